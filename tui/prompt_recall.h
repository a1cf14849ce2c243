/* Going through the history and searching it, as functions that keys are bound to. prompt.c's own; it and prompt_recall.c are the only
 * files that include readline. */
#ifndef ZF_TUI_PROMPT_RECALL_H
#define ZF_TUI_PROMPT_RECALL_H

#include "tui/keys.h"

#include <stdio.h>

#include <readline/readline.h>

enum { ZF_RECALL_LABEL = 300 };

/* What a key does in place of what readline would do. */
rl_command_func_t *zf_recall_instead(rl_command_func_t *bound);
void zf_recall_reset(void); /* a new line: no search, behind the newest */
bool zf_recall_searches(void);
/* true: a search took the key. false: there is none, or it is over and the key is one for the line that was found. */
bool zf_recall_key(const struct zf_key_event *e, bool utf8);
void zf_recall_add(const char *text, size_t size); /* to what is searched for */
bool zf_recall_label(char *to, size_t room);       /* in place of the prompt's; false: none */
bool zf_recall_is_text(const struct zf_key_event *e, bool utf8);

#endif
