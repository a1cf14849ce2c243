/* Sockets and frames. See world_impl.h. */
#include "core/world/world_impl.h"

#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void zf_link_prepare(int fd)
{
    int on = 1;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool is_over(const struct zf_world *w)
{
    struct zf_err ignored;
    return w && zf_world_check(w, &ignored) != ZF_OK;
}

/* Something can be moved now; false: too late, or there is no use any more. */
static bool wait_for(int fd, short what, double until, const struct zf_world *w)
{
    enum { LOOK_MS = 100 };
    while (zf_clock() < until) {
        struct pollfd p = {.fd = fd, .events = what};
        int n = poll(&p, 1, LOOK_MS);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
        if (is_over(w)) return false;
    }
    return false;
}

static bool move_all(int fd, char *bytes, size_t size, bool write, double seconds, const struct zf_world *w)
{
    double until = zf_clock() + seconds;
    while (size) {
        ssize_t n = write ? send(fd, bytes, size, MSG_NOSIGNAL) : recv(fd, bytes, size, 0);
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
            until = zf_clock() + seconds;
        } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ||
                   !wait_for(fd, write ? POLLOUT : POLLIN, until, w)) {
            return false;
        }
    }
    return true;
}

bool zf_link_write(int fd, const void *bytes, size_t size, double seconds, const struct zf_world *w)
{
    return move_all(fd, (char *)(uintptr_t)bytes, size, true, seconds, w);
}

bool zf_link_read(int fd, void *bytes, size_t size, double seconds, const struct zf_world *w)
{
    return move_all(fd, bytes, size, false, seconds, w);
}

bool zf_link_frame(int fd, struct zf_frame_head *head, char **bytes, double seconds)
{
    *bytes = NULL;
    if (!zf_link_read(fd, head, sizeof *head, seconds, NULL) || head->kind >= ZF_FRAME_KINDS || head->size > ZF_FRAME_MOST) return false;
    char *all = malloc(head->size + 1);
    if (!all || !zf_link_read(fd, all, head->size, seconds, NULL)) {
        free(all);
        return false;
    }
    all[head->size] = 0;
    *bytes = all;
    return true;
}

static bool send_locked(struct zf_world *w, struct zf_peer *p, enum zf_frame_kind kind, const void *bytes, size_t size, double seconds)
{
    const struct zf_frame_head head = {kind, (uint32_t)size};
    return p->fd >= 0 && zf_link_write(p->fd, &head, sizeof head, seconds, w) && (!size || zf_link_write(p->fd, bytes, size, seconds, w));
}

bool zf_peer_send(struct zf_world *w, struct zf_peer *p, enum zf_frame_kind kind, const void *bytes, size_t size, double seconds)
{
    pthread_mutex_lock(&p->sending);
    bool done = send_locked(w, p, kind, bytes, size, seconds);
    pthread_mutex_unlock(&p->sending);
    return done;
}

bool zf_peer_try(struct zf_peer *p, enum zf_frame_kind kind, const void *bytes, size_t size)
{
    const struct zf_frame_head head = {kind, (uint32_t)size};
    char all[2048];
    bool done = false;
    if (p->fd < 0 || sizeof head + size > sizeof all || pthread_mutex_trylock(&p->sending)) return false;
    memcpy(all, &head, sizeof head);
    if (size) memcpy(all + sizeof head, bytes, size);
    struct pollfd f = {.fd = p->fd, .events = POLLOUT}; /* then a third of its buffer is free: it fits */
    if (poll(&f, 1, 0) == 1 && f.revents & POLLOUT)
        done = send(p->fd, all, sizeof head + size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)(sizeof head + size);
    pthread_mutex_unlock(&p->sending);
    return done;
}

bool zf_peer_json(struct zf_world *w, struct zf_peer *p, enum zf_frame_kind kind, const json_t *o, double seconds)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    bool done = text && zf_peer_send(w, p, kind, text, strlen(text), seconds);
    free(text);
    return done;
}
