/* The lines of the prompt, in memory and in a file. One list a process; the thread of the screen. */
#ifndef ZF_TUI_PROMPT_HISTORY_H
#define ZF_TUI_PROMPT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

enum { ZF_PROMPT_HISTORY_MOST = 1000 };

/* Reads the file: no line twice, the newest ZF_PROMPT_HISTORY_MOST. path: NULL: in memory only. What cannot be read or written is no reason
 * not to work. */
void zf_prompt_history_open(const char *path);
/* The newest line from now on; in the file at once, as consoles may be killed. Not an empty one, nor one that begins with a blank. */
void zf_prompt_history_add(const char *line);
void zf_prompt_history_close(void); /* puts the file in order */

size_t zf_prompt_history_count(void);
const char *zf_prompt_history_line(size_t i); /* [0] is the oldest; valid until the next add */
/* The nearest line at `from` or before (back), or after it, with `size` bytes of text in it (`begins`: at its beginning); SIZE_MAX: none.
 */
size_t zf_prompt_history_find(const char *text, size_t size, size_t from, bool back, bool begins);

#endif
