/* The files of keys that readline would read, looked at before it does: it reads a pipe without a writer, a disk's worth or a file that
 * includes itself until it is killed, and signals wait for the loop then. */
#ifndef ZF_TUI_PROMPT_INPUTRC_H
#define ZF_TUI_PROMPT_INPUTRC_H

#include <stdbool.h>
#include <stddef.h>

/* false: they are not to be read; why: of which, and what is the matter. */
bool zf_inputrc_is_fine(char *why, size_t size);

#endif
