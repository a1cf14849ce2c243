/* Connections: framing and queues. See wire.h. */
#include "core/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_MOST = 64 << 10, FIRST_ROOM = 4096 };

void zf_wire_open(struct zf_wire *w, int fd, size_t line_most, size_t queue_most)
{
    *w = (struct zf_wire){.fd = fd, .line_most = line_most, .queue_most = queue_most};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void zf_wire_close(struct zf_wire *w)
{
    if (w->fd >= 0) close(w->fd);
    free(w->in);
    free(w->out);
    *w = (struct zf_wire){.fd = -1};
}

/* Room for `more` bytes behind what is used, moving it to the front first. */
static bool make_room(char **buffer, size_t *from, size_t *used, size_t *room, size_t more)
{
    if (*from) {
        memmove(*buffer, *buffer + *from, *used - *from);
        *used -= *from;
        *from = 0;
    }
    if (*room - *used >= more) return true;
    size_t want = *room ? *room : FIRST_ROOM;
    while (want - *used < more) want *= 2; /* both are bounded by the limits of the caller */
    char *bytes = realloc(*buffer, want);
    if (!bytes) return false;
    *buffer = bytes;
    *room = want;
    return true;
}

/* Passes over the rest of a line that is too long. */
static void pass_over(struct zf_wire *w)
{
    char *begin = w->in + w->in_from, *newline = memchr(begin, '\n', w->in_used - w->in_from);
    size_t n = newline ? (size_t)(newline - begin) + 1 : w->in_used - w->in_from;
    w->passed += n;
    w->in_from += n;
    w->in_seen = w->in_from;
    w->passing = !newline;
}

enum zf_wire_state zf_wire_read(struct zf_wire *w)
{
    if (w->in_from == w->in_used) w->in_from = w->in_used = w->in_seen = 0;
    size_t seen = w->in_seen - w->in_from;
    if (!make_room(&w->in, &w->in_from, &w->in_used, &w->in_room, READ_MOST + 1)) return ZF_WIRE_ENDED;
    w->in_seen = seen;
    ssize_t n;
    do n = recv(w->fd, w->in + w->in_used, READ_MOST, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? ZF_WIRE_OK : ZF_WIRE_ENDED;
    w->in_used += (size_t)n;
    if (n && w->passing) pass_over(w);
    return n ? ZF_WIRE_OK : ZF_WIRE_ENDED;
}

enum zf_wire_line zf_wire_line(struct zf_wire *w, char **line, size_t *size)
{
    if (w->in_seen == w->in_used) return ZF_WIRE_NONE;
    char *begin = w->in + w->in_from, *newline = memchr(w->in + w->in_seen, '\n', w->in_used - w->in_seen);
    size_t n = newline ? (size_t)(newline - begin) : w->in_used - w->in_from;
    w->in_seen = w->in_used;
    if (n > w->line_most) {
        w->passed = 0;
        pass_over(w);
        return ZF_WIRE_TOO_LONG;
    }
    if (!newline) return ZF_WIRE_NONE;
    *newline = 0;
    *line = begin;
    *size = n && begin[n - 1] == '\r' ? n - 1 : n;
    begin[*size] = 0;
    w->in_from += n + 1;
    w->in_seen = w->in_from;
    return ZF_WIRE_LINE;
}

size_t zf_wire_queued(const struct zf_wire *w)
{
    return w->out_used - w->out_from;
}

bool zf_wire_queue(struct zf_wire *w, const void *bytes, size_t size, size_t more)
{
    size_t most = w->queue_most + more, queued = zf_wire_queued(w);
    if (size > most || queued > most - size) return false;
    if (!make_room(&w->out, &w->out_from, &w->out_used, &w->out_room, size)) return false;
    memcpy(w->out + w->out_used, bytes, size);
    w->out_used += size;
    return true;
}

enum zf_wire_state zf_wire_flush(struct zf_wire *w)
{
    while (w->out_from < w->out_used) {
        ssize_t n = send(w->fd, w->out + w->out_from, w->out_used - w->out_from, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? ZF_WIRE_OK : ZF_WIRE_ENDED;
        w->out_from += (size_t)n;
    }
    w->out_from = w->out_used = 0;
    if (w->out_room > READ_MOST) { /* a burst is over */
        free(w->out);
        w->out = NULL;
        w->out_room = 0;
    }
    return ZF_WIRE_OK;
}

enum zf_wire_state zf_wire_wait(struct zf_wire *w, double seconds)
{
    struct pollfd ready = {.fd = w->fd, .events = (short)(POLLIN | (zf_wire_queued(w) ? POLLOUT : 0))};
    int n = poll(&ready, 1, seconds < 0 ? -1 : seconds > 1e6 ? 1000000000 : (int)(seconds * 1000));
    if (n <= 0) return n < 0 && errno != EINTR ? ZF_WIRE_ENDED : ZF_WIRE_OK;
    if (ready.revents & POLLOUT && zf_wire_flush(w)) return ZF_WIRE_ENDED;
    return ready.revents & ~POLLOUT ? zf_wire_read(w) : ZF_WIRE_OK;
}
