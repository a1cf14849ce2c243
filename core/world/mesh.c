/* See mesh.h. Every rank listens; the later ones come to the earlier ones, and say who they are with a token that rank 0 has made up. */
#include "core/world/mesh.h"
#include "core/world/world_impl.h"

#include "core/base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 600 };
static const double come_seconds = 30, greet_seconds = 10;

struct mesh {
    struct zf_wire head;
    struct zf_world *world;
    int *fd; /* [ranks] -1: this rank itself */
    struct moving {
        char *out, *in;
        size_t to_send, to_come;
    } * moving;              /* [ranks] scratch */
    struct pollfd *interest; /* [ranks] scratch */
    bool broken;
};

/* How a rank can be reached. */
struct door {
    char machine[128], addresses[ADDRESSES]; /* one a line */
    int port;
};

struct greeting {
    char token[16];
    int rank;
};

/* ---- a connection to each ---- */

static enum zf_status make_door(const struct zf_world *w, struct door *d, int *listener, struct zf_err *e)
{
    size_t n = 0;
    json_t *list = zf_meet_addresses();
    *d = (struct door){.port = 0};
    snprintf(d->machine, sizeof d->machine, "%s", w->machine);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && n + strlen(one) + 2 < sizeof d->addresses) n += (size_t)sprintf(d->addresses + n, "%s\n", one);
    }
    json_decref(list);
    return zf_meet_listener(listener, &d->port, e);
}

static int try_door(const struct zf_world *w, const struct door *d)
{
    char all[ADDRESSES], *at = all;
    int fd = strcmp(d->machine, w->machine) ? -1 : zf_meet_connect("127.0.0.1", d->port);
    memcpy(all, d->addresses, sizeof all);
    for (char *one; fd < 0 && (one = strsep(&at, "\n")) && *one;) fd = zf_meet_connect(one, d->port);
    return fd;
}

static enum zf_status go_to(struct mesh *m, const struct door *d, const struct greeting *g, int rank, struct zf_err *e)
{
    char name[128];
    m->fd[rank] = try_door(m->world, d);
    if (m->fd[rank] >= 0 && zf_link_write(m->fd[rank], g, sizeof *g, greet_seconds, m->world)) return ZF_OK;
    ZF_TRY(zf_world_check(m->world, e));
    return zf_fail(e, ZF_IO, NULL, "%s cannot be reached from here; is there a firewall between the machines?",
                   zf_world_name(m->world, rank, name, sizeof name));
}

static enum zf_status let_in(struct mesh *m, int listener, const struct greeting *mine, struct zf_err *e)
{
    double until = zf_clock() + come_seconds;
    for (int left = m->head.ranks - 1 - m->head.rank; left;) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        struct greeting g;
        ZF_TRY(zf_world_check(m->world, e));
        if (zf_clock() > until) return zf_fail(e, ZF_IO, NULL, "%d rank%s did not come to exchange", left, left > 1 ? "s" : "");
        if (poll(&p, 1, 100) <= 0) continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) continue;
        zf_link_prepare(fd);
        bool known = zf_link_read(fd, &g, sizeof g, greet_seconds, m->world) && !memcmp(g.token, mine->token, sizeof g.token) &&
                     g.rank > m->head.rank && g.rank < m->head.ranks && m->fd[g.rank] < 0;
        if (!known) {
            close(fd);
            continue;
        }
        m->fd[g.rank] = fd;
        left--;
    }
    return ZF_OK;
}

static enum zf_status meet(struct mesh *m, struct zf_err *e)
{
    struct greeting mine = {.rank = m->head.rank};
    struct door own, *all = calloc((size_t)m->head.ranks, sizeof *all);
    int listener = -1;
    enum zf_status s = all ? make_door(m->world, &own, &listener, e) : zf_fail_memory(e, "the other ranks");
    if (!s && getrandom(mine.token, sizeof mine.token, 0) != sizeof mine.token) s = zf_fail_errno(e, NULL, "no random numbers");
    if (!s) s = zf_world_share(m->world, mine.token, sizeof mine.token, e);
    if (!s) s = zf_world_exchange(m->world, &own, all, sizeof own, e);
    for (int r = 0; !s && r < m->head.rank; r++) s = go_to(m, &all[r], &mine, r, e);
    if (!s) s = let_in(m, listener, &mine, e);
    if (listener >= 0) close(listener);
    free(all);
    return s;
}

/* ---- the wire ---- */

static void close_wire(struct zf_wire *head)
{
    struct mesh *m = (struct mesh *)head;
    for (int r = 0; m->fd && r < head->ranks; r++)
        if (m->fd[r] >= 0) close(m->fd[r]);
    free(m->fd);
    free(m->moving);
    free(m->interest);
    free(m);
}

/* As much as goes without waiting; false: the other side is gone. */
static bool move_some(int fd, char **at, size_t *left, bool write)
{
    while (*left) {
        ssize_t n = write ? send(fd, *at, *left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, *at, *left, MSG_DONTWAIT);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        *at += n;
        *left -= (size_t)n;
    }
    return true;
}

/* Which connections have something to move yet; how many. */
static nfds_t look_for(struct mesh *m)
{
    nfds_t n = 0;
    for (int r = 0; r < m->head.ranks; r++) {
        const struct moving *x = &m->moving[r];
        short events = (short)((x->to_send ? POLLOUT : 0) | (x->to_come ? POLLIN : 0));
        if (events) m->interest[n++] = (struct pollfd){.fd = m->fd[r], .events = events};
    }
    return n;
}

static enum zf_status exchange(struct zf_wire *head, const struct zf_wire_block *out, const struct zf_wire_block *in,
                               const atomic_bool *aborted, struct zf_err *e)
{
    enum { LOOK_MS = 100 };
    struct mesh *m = (struct mesh *)head;
    char name[128];
    if (m->broken) return zf_fail(e, ZF_IO, "ranks", "an exchange after one that failed");
    m->broken = true; /* until it is whole */
    for (int r = 0; r < head->ranks; r++) {
        bool other = r != head->rank;
        m->moving[r] = (struct moving){out[r].bytes, in[r].bytes, other ? out[r].size : 0, other ? in[r].size : 0};
    }
    for (;;) {
        for (int r = 0; r < head->ranks; r++) {
            struct moving *x = &m->moving[r];
            if (!move_some(m->fd[r], &x->out, &x->to_send, true) || !move_some(m->fd[r], &x->in, &x->to_come, false))
                return zf_fail(e, ZF_IO, "ranks", "the connection to %s is broken", zf_world_name(m->world, r, name, sizeof name));
        }
        nfds_t n = look_for(m);
        if (!n) break;
        if (atomic_load(aborted)) return zf_fail(e, ZF_IO, "ranks", "an exchange with the other ranks was given up");
        poll(m->interest, n, LOOK_MS);
    }
    m->broken = false;
    return ZF_OK;
}

enum zf_status zf_mesh_open(struct zf_wire **out, struct zf_world *w, struct zf_err *e)
{
    size_t n = (size_t)zf_world_ranks(w);
    struct mesh *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return zf_fail_memory(e, "the other ranks");
    m->head = (struct zf_wire){zf_world_rank(w), (int)n, exchange, close_wire};
    m->world = w;
    m->fd = malloc(n * sizeof *m->fd);
    m->moving = calloc(n, sizeof *m->moving);
    m->interest = calloc(n, sizeof *m->interest);
    for (size_t r = 0; m->fd && r < n; r++) m->fd[r] = -1;
    enum zf_status s = m->fd && m->moving && m->interest ? meet(m, e) : zf_fail_memory(e, "the other ranks");
    if (s)
        close_wire(&m->head);
    else
        *out = &m->head;
    return s;
}
