/* JSON lines over a Unix stream socket, for both ends. It knows lines and buffers, nothing of trainers.
 *
 * A connection has two bounded buffers. Reading: a line longer than `line_most` is reported once and passed over. Writing never blocks:
 * what does not fit into the queue is refused, and the caller counts it. A struct zf_wire belongs to one thread. */
#ifndef ZF_WIRE_WIRE_H
#define ZF_WIRE_WIRE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    ZF_WIRE_REQUEST_MOST = 64 << 10, /* of a request, without its newline */
    ZF_WIRE_LINE_MOST = 64 << 20,    /* of a line to a client: a start line names every matrix of a model */
    ZF_WIRE_PATH_MOST = 108,         /* of a socket's name, its end included: the kernel's limit */
};

struct zf_wire {
    int fd;
    char *in;
    size_t in_from, in_used, in_seen, in_room, line_most; /* in_seen: up to there is no newline */
    size_t passed;                                        /* bytes of the too long line that is being passed over */
    bool passing;
    char *out;
    size_t out_from, out_used, out_room, queue_most;
};

/* Takes the descriptor over and makes it non-blocking. */
void zf_wire_open(struct zf_wire *w, int fd, size_t line_most, size_t queue_most);
void zf_wire_close(struct zf_wire *w); /* again is fine */

enum zf_wire_state { ZF_WIRE_OK, ZF_WIRE_ENDED }; /* ENDED: the other side is gone, or there is no memory for it */

/* One read of at most 64 KiB; OK also if nothing was there. At the end what came before is still given by zf_wire_line. */
enum zf_wire_state zf_wire_read(struct zf_wire *w);

enum zf_wire_line { ZF_WIRE_NONE, ZF_WIRE_LINE, ZF_WIRE_TOO_LONG };
/* The next line, NUL-terminated (and maybe with NULs inside: *size tells), without its newline; valid until the next zf_wire_read. */
enum zf_wire_line zf_wire_line(struct zf_wire *w, char **line, size_t *size);

/* Queues bytes (whole lines). false: they do not fit into queue_most + `more`. */
bool zf_wire_queue(struct zf_wire *w, const void *bytes, size_t size, size_t more);
size_t zf_wire_queued(const struct zf_wire *w);
enum zf_wire_state zf_wire_flush(struct zf_wire *w); /* as much as goes without waiting */

/* Listens at DIRECTORY/NAME with mode 0600; if that is too long for a socket or the file system has none, in XDG_RUNTIME_DIR
 * (/run/user/UID, /tmp/zenflow-console-UID) under a name made of the directory's. What a dead process left there is replaced; a file that
 * is no socket is not touched. path: [ZF_WIRE_PATH_MOST], where it listens. */
enum zf_status zf_wire_listen(int *fd, char *path, const char *directory, const char *name, struct zf_err *e);
/* A client that came, or -1. Non-blocking. *uid of its process. */
int zf_wire_accept(int listener, unsigned *uid);

/* ZF_BUSY: nobody listens there. Waits at most `seconds` for a listener that is busy. A path longer than a socket's may be is fine. */
enum zf_status zf_wire_connect(int *fd, const char *path, double seconds, struct zf_err *e);

/* Waits until there is something to read (or to write, while something is queued), at most `seconds` (below 0: for ever), then reads and
 * flushes. */
enum zf_wire_state zf_wire_wait(struct zf_wire *w, double seconds);

#endif
