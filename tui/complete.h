/* What can stand where one types: commands, options, values, matrices, files, from the tables and the history. Pure, but for
 * zf_complete_files and zf_complete_saves. */
#ifndef ZF_TUI_COMPLETE_H
#define ZF_TUI_COMPLETE_H

#include "tui/history.h"

struct zf_candidates {
    char **list; /* owned; whole words */
    size_t count, room;
    size_t start; /* of the word in the line */
    bool files;   /* file names, too */
    bool saves;   /* names of the run's checkpoints, too */
};
/* line[0..end): what is left of the cursor. */
void zf_complete(struct zf_candidates *out, const struct zf_history *h, const char *line, size_t end);
/* Adds the files that `typed` may become: folders end with a slash, hidden ones only if it begins with a dot. Reads folders. */
void zf_complete_files(struct zf_candidates *c, const char *typed);
/* Adds the checkpoints of the run that `typed` may become, as `load` lists them. Reads a folder. */
void zf_complete_saves(struct zf_candidates *c, const char *run, const char *typed, size_t size);
bool zf_is_text(const char *name);                           /* UTF-8 without control characters */
void zf_candidates_add(struct zf_candidates *c, char *word); /* which is its own then */
void zf_candidates_free(struct zf_candidates *c);

#endif
