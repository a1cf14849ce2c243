/* The file with the lines of the prompt. prompt.c's own. */
#ifndef ZF_TUI_PROMPT_HISTORY_H
#define ZF_TUI_PROMPT_HISTORY_H

#include <stdbool.h>

enum { ZF_PROMPT_HISTORY_MOST = 1000 };

/* Calls `recall` for each line, the oldest first: no line twice, at most ZF_PROMPT_HISTORY_MOST. path: NULL: nothing is kept. What cannot
 * be read or written is no reason not to work. */
void zf_prompt_history_open(const char *path, void (*recall)(void *ctx, const char *line), void *ctx);
bool zf_prompt_history_wants(const char *line); /* not an empty one, nor one that begins with a blank */
void zf_prompt_history_add(const char *line);   /* at once: consoles may be killed */
void zf_prompt_history_close(void);             /* puts the file in order */

#endif
