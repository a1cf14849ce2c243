/* metrics.jsonl as it grows, in large blocks: whole lines and where they are. A writer may cut the file back or put another in its place
 * (a resume); what is cut in the middle of a line waits for its rest. Bounded memory. One thread. */
#ifndef ZF_TUI_TAIL_H
#define ZF_TUI_TAIL_H

#include "tui/history.h"

#include "core/base/err.h"

#include <sys/types.h>

enum { ZF_TAIL_BLOCK = 1 << 18, ZF_TAIL_LINE_MOST = 16 << 20 };

struct zf_tail {
    char *path;
    int fd;
    dev_t device;
    ino_t inode;
    char *bytes;
    size_t from, used, room; /* what is unread: [from, used) */
    off_t at;                /* of bytes[from] in the file */
    bool passing;            /* a line that is too long is being passed over */
};

/* ZF_USAGE: there is no such file. */
enum zf_status zf_tail_open(struct zf_tail *t, const char *run, struct zf_err *e);
void zf_tail_close(struct zf_tail *t);
/* The next whole line without its newline, not NUL-terminated; stays until the next call. false: none for now. */
bool zf_tail_line(struct zf_tail *t, const char **line, size_t *size);
void zf_tail_unread(struct zf_tail *t, const char *line, size_t size); /* the last one again */
void zf_tail_rewind(struct zf_tail *t, off_t at);
/* Bytes that are in the file and were not given yet. */
off_t zf_tail_left(const struct zf_tail *t);
/* Is it another file by now, or shorter than what was read? Then it is opened anew, from its beginning. */
bool zf_tail_replaced(struct zf_tail *t);
/* Seconds since it was last written to. */
double zf_tail_age(const struct zf_tail *t);

#endif
