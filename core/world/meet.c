/* How the ranks find each other. See world_impl.h.
 *
 * The file that says where rank 0 listens stands beside the run directory, which may be another's, or not be there yet: nothing is written
 * into it before that is known. Only where that folder is closed to us it stands within. It is gone as soon as all have come. */
#include "core/world/world_impl.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/json.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 64 << 10, TELL_AFTER = 10 /* seconds */, BACKLOG = 128 };
static const double connect_seconds = 2, greet_seconds = 5, look_again = 0.1;

/* ---- this process ---- */

static long long start_of(long long pid)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    char *at = n > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

static void read_mask(char *to, size_t room)
{
    cpu_set_t set;
    size_t n = 0;
    *to = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int word = CPU_SETSIZE - 8; word >= 0 && n + 3 < room; word -= 8) {
        unsigned bits = 0;
        for (int i = 0; i < 8; i++) bits |= CPU_ISSET(word + i, &set) ? 1u << i : 0;
        if (bits || n) n += (size_t)snprintf(to + n, room - n, "%02x", bits);
    }
}

/* Processes with the same word see each other's numbers. */
static void read_machine(char *to, size_t room)
{
    char boot[40] = "", space[48] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, boot, 36) != 36) boot[0] = 0;
    if (fd >= 0) close(fd);
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = 0;
    snprintf(to, room, "%s %s", boot, space);
}

void zf_meet_self(struct zf_world *w)
{
    struct zf_peer *me = &w->peer[w->launch.rank];
    read_machine(w->machine, sizeof w->machine);
    read_mask(w->mask, sizeof w->mask);
    if (gethostname(me->host, sizeof me->host - 1) || !me->host[0]) snprintf(me->host, sizeof me->host, "localhost");
    me->pid = getpid();
    me->pid_start = start_of(me->pid);
    me->hello = json_pack("{si ss sI sI ss ss ss si sO*}", "rank", w->launch.rank, "host", me->host, "pid", (json_int_t)me->pid, "start",
                          (json_int_t)me->pid_start, "machine", w->machine, "mask", w->mask, "version", w->version, "ranks",
                          w->launch.ranks, "hello", w->hello);
}

/* ---- the file ---- */

/* To be freed; NULL: no memory. */
static char *file_of(const struct zf_world *w, bool inside)
{
    char *run = strdup(w->run), *folder, *path = NULL;
    for (size_t n = run ? strlen(run) : 0; n > 1 && run[n - 1] == '/'; n--) run[n - 1] = 0;
    folder = run ? zf_path_directory(run) : NULL;
    int n = !folder  ? -1
            : inside ? asprintf(&path, "%s/.ranks-%s", run, w->launch.job)
                     : asprintf(&path, "%s/.%s.ranks-%s", folder, zf_path_name(run), w->launch.job);
    free(run);
    free(folder);
    return n < 0 ? NULL : path;
}

json_t *zf_meet_addresses(void)
{
    struct ifaddrs *all = NULL;
    json_t *list = json_array();
    if (getifaddrs(&all)) return list;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || a->ifa_flags & IFF_LOOPBACK) continue;
        if (a->ifa_addr->sa_family == AF_INET)
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, text, sizeof text);
        else if (a->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr))
            inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr, text, sizeof text);
        if (text[0]) json_array_append_new(list, json_string(text));
    }
    freeifaddrs(all);
    return list;
}

enum zf_status zf_meet_listener(int *out, int *port, struct zf_err *e)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } got;
    socklen_t size = sizeof got;
    int no = 0;
    *out = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*out >= 0) setsockopt(*out, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (*out >= 0 && bind(*out, (struct sockaddr *)&six, sizeof six)) {
        close(*out);
        *out = -1;
    }
    if (*out < 0) { /* a system without IPv6 */
        *out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*out < 0 || bind(*out, (struct sockaddr *)&four, sizeof four))
            return zf_fail_errno(e, NULL, "no socket for the other ranks to come to");
    }
    if (listen(*out, BACKLOG) || getsockname(*out, &got.any, &size))
        return zf_fail_errno(e, NULL, "no socket for the other ranks to come to");
    *port = ntohs(got.any.sa_family == AF_INET6 ? got.six.sin6_port : got.four.sin_port);
    return ZF_OK;
}

/* In the first place that can be written. The file is the user's alone from its first byte on. */
static enum zf_status publish(struct zf_world *w, const char *text, struct zf_err *e)
{
    enum zf_status s = ZF_IO;
    for (int inside = 0; s && inside < 2; inside++) {
        char *path = file_of(w, inside), *folder = path ? zf_path_directory(path) : NULL;
        if (!folder) {
            free(path);
            return zf_fail_memory(e, "a path");
        }
        bool made = !zf_directory_exists(folder);
        s = made && inside ? ZF_IO : zf_directory_make(folder, 0777, e);
        mode_t mask = umask(0077);
        if (!s) s = zf_file_write_atomic(path, text, strlen(text), e);
        umask(mask);
        if (!s && made) w->made = strdup(folder);
        if (!s) w->place = path;
        if (s) free(path);
        free(folder);
    }
    return s;
}

enum zf_status zf_meet_listen(struct zf_world *w, struct zf_err *e)
{
    unsigned char random[16];
    int port = 0;
    if (getrandom(random, sizeof random, 0) != sizeof random) return zf_fail_errno(e, NULL, "no random numbers");
    for (size_t i = 0; i < sizeof random; i++) snprintf(w->token + 2 * i, 3, "%02x", random[i]);
    ZF_TRY(zf_meet_listener(&w->listener, &port, e));
    json_t *o = json_pack("{ss ss si so ss}", "job", w->launch.job, "token", w->token, "port", port, "addresses", zf_meet_addresses(),
                          "machine", w->machine);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    enum zf_status s = text ? publish(w, text, e) : zf_fail_memory(e, "the place of rank 0");
    free(text);
    json_decref(o);
    return s;
}

void zf_meet_remove(struct zf_world *w)
{
    if (w->place) unlink(w->place);
    if (w->made) rmdir(w->made); /* empty: nothing else came of it */
    free(w->place);
    free(w->made);
    w->place = w->made = NULL;
}

/* What rank 0 has written; NULL: nothing (yet). A file of another user is none. */
static json_t *look(const struct zf_world *w, bool inside)
{
    char *path = file_of(w, inside), *folder = path ? zf_path_directory(path) : NULL, text[FILE_MOST];
    DIR *d = folder ? opendir(folder) : NULL; /* a network file system looks anew when a folder is opened, else it may remember for long */
    int fd = d ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    struct stat st;
    ssize_t n = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() ? read(fd, text, sizeof text) : -1;
    if (fd >= 0) close(fd);
    if (d) closedir(d);
    free(folder);
    free(path);
    return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

/* ---- coming ---- */

int zf_meet_connect(const char *address, int port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_four = inet_pton(AF_INET, address, &four.sin_addr) == 1;
    if (!is_four && inet_pton(AF_INET6, address, &six.sin6_addr) != 1) return -1;
    int fd = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), bad = 0;
    socklen_t size = sizeof bad;
    if (fd < 0) return -1;
    int r = is_four ? connect(fd, (struct sockaddr *)&four, sizeof four) : connect(fd, (struct sockaddr *)&six, sizeof six);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (r && (errno != EINPROGRESS || poll(&p, 1, (int)(1000 * connect_seconds)) != 1 ||
              getsockopt(fd, SOL_SOCKET, SO_ERROR, &bad, &size) || bad)) {
        close(fd);
        return -1;
    }
    zf_link_prepare(fd);
    return fd;
}

/* ZF_OK with *out -1: nobody of ours is there. Else rank 0 has refused. */
static enum zf_status greet(struct zf_world *w, const char *address, int port, const char *token, bool bulk, int *out, struct zf_err *e)
{
    struct zf_frame_head head;
    char *answer = NULL;
    json_t *hello = json_copy(w->peer[w->launch.rank].hello);
    int fd = *out = zf_meet_connect(address, port);
    if (hello) json_object_set_new(hello, "token", json_string(token));
    if (hello) json_object_set_new(hello, "bulk", json_boolean(bulk));
    struct zf_peer to = {.fd = fd, .sending = PTHREAD_MUTEX_INITIALIZER};
    bool heard =
        fd >= 0 && zf_peer_json(NULL, &to, ZF_FRAME_HELLO, hello, greet_seconds) && zf_link_frame(fd, &head, &answer, greet_seconds);
    json_decref(hello);
    enum zf_status s = ZF_OK;
    if (heard && head.kind == ZF_FRAME_FATE) {
        json_t *o = json_loads(answer, 0, NULL);
        const char *text = json_string_value(json_object_get(o, "text"));
        json_int_t code = json_integer_value(json_object_get(o, "code"));
        s = zf_fail(e, code > 0 && code <= ZF_BUSY ? (enum zf_status)code : ZF_IO, NULL, "%s", text ? text : "rank 0 has ended");
        json_decref(o);
    }
    free(answer);
    if ((s || !heard) && fd >= 0) {
        close(fd);
        *out = -1;
    }
    return s;
}

static enum zf_status come(struct zf_world *w, const json_t *there, const char *address, struct zf_err *e)
{
    struct zf_peer *p = &w->peer[0];
    int port = (int)json_integer_value(json_object_get(there, "port"));
    const char *token = json_string_value(json_object_get(there, "token"));
    if (!address || !token || port <= 0 || port > 65535) return ZF_OK;
    ZF_TRY(greet(w, address, port, token, false, &p->fd, e));
    if (p->fd < 0) return ZF_OK;
    enum zf_status s = greet(w, address, port, token, true, &p->bulk, e);
    if (s || p->bulk < 0) {
        close(p->fd);
        p->fd = -1;
    }
    return s;
}

enum zf_status zf_meet_find(struct zf_world *w, struct zf_err *e)
{
    struct zf_peer *p = &w->peer[0];
    double from = zf_clock();
    bool told = false, found = false;
    for (; p->fd < 0 && zf_clock() - from < ZF_WORLD_COME; nanosleep(&(struct timespec){.tv_nsec = (long)(look_again * 1e9)}, NULL)) {
        if (*w->stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped before rank 0 was found");
        for (int inside = 0; p->fd < 0 && inside < 2; inside++) {
            json_t *there = look(w, inside);
            const char *machine = json_string_value(json_object_get(there, "machine"));
            const json_t *list = json_object_get(there, "addresses");
            found |= there != NULL;
            enum zf_status s = machine && !strcmp(machine, w->machine) ? come(w, there, "127.0.0.1", e) : ZF_OK;
            for (size_t i = 0; !s && p->fd < 0 && i < json_array_size(list); i++)
                s = come(w, there, json_string_value(json_array_get(list, i)), e);
            json_decref(there);
            ZF_TRY(s);
        }
        if (!told && zf_clock() - from > TELL_AFTER) {
            told = true;
            fprintf(stderr, "zenflow-console: note: rank %d waits for rank 0: it %s\n", w->launch.rank,
                    found ? "has said where it listens, and cannot be reached there" : "has not said yet where it listens");
        }
    }
    if (p->fd >= 0) return ZF_OK;
    return zf_fail(e, ZF_IO, w->run, "rank %d of %d has not found rank 0 within %d s: %s", w->launch.rank, w->launch.ranks, ZF_WORLD_COME,
                   found ? "none of its addresses can be reached from here; is there a firewall between the machines?"
                         : "there is no file beside the run directory that says where it listens; is that directory on a disk that all "
                           "machines share, and was rank 0 started?");
}

/* ---- rank 0: who comes ---- */

void zf_meet_accept(struct zf_world *w)
{
    int fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    struct zf_waiting *more = realloc(w->waiting, (w->waitings + 1) * sizeof *more);
    if (!more) {
        close(fd);
        return;
    }
    zf_link_prepare(fd);
    w->waiting = more;
    w->waiting[w->waitings++] = (struct zf_waiting){fd, zf_clock()};
}

static void refuse(int fd, enum zf_status code, const char *text)
{
    struct zf_peer to = {.fd = fd, .sending = PTHREAD_MUTEX_INITIALIZER};
    json_t *o = json_pack("{si ss si}", "code", (int)code, "text", text, "rank", -1);
    zf_peer_json(NULL, &to, ZF_FRAME_FATE, o, 1);
    json_decref(o);
    close(fd);
}

/* Not ours at all is told nothing. */
static struct zf_peer *who_is(struct zf_world *w, const json_t *o, int fd)
{
    const char *token = json_string_value(json_object_get(o, "token")), *version = json_string_value(json_object_get(o, "version"));
    json_int_t rank = json_integer_value(json_object_get(o, "rank")), ranks = json_integer_value(json_object_get(o, "ranks"));
    const char *host = json_string_value(json_object_get(o, "host"));
    long long pid = (long long)json_integer_value(json_object_get(o, "pid"));
    char text[512] = "";
    if (!token || strcmp(token, w->token) || !version || !host) {
        close(fd);
        return NULL;
    }
    struct zf_peer *p = rank > 0 && rank < w->launch.ranks ? &w->peer[rank] : NULL;
    bool bulk = json_is_true(json_object_get(o, "bulk"));
    if (!p || ranks != w->launch.ranks)
        snprintf(text, sizeof text, "rank %lld of %lld (pid %lld on host %.64s) has come to a run of %d ranks", (long long)rank,
                 (long long)ranks, pid, host, w->launch.ranks);
    else if (strcmp(version, w->version))
        snprintf(text, sizeof text,
                 "rank %lld (pid %lld on host %.64s) is version %.40s of the program, and rank 0 is %.40s; the same one is expected on all "
                 "machines",
                 (long long)rank, pid, host, version, w->version);
    else if (bulk ? p->bulk >= 0 || p->fd < 0 : p->fd >= 0 || p->come)
        snprintf(text, sizeof text, "there is a rank %lld already (pid %lld on host %.64s)", (long long)rank, p->pid, p->host);
    if (!text[0]) return p;
    refuse(fd, ZF_USAGE, text);
    zf_world_set_fate(w, ZF_USAGE, -1, 0, text, true);
    return NULL;
}

void zf_meet_hello(struct zf_world *w, size_t waiting)
{
    struct zf_frame_head head;
    char *text = NULL;
    int fd = w->waiting[waiting].fd;
    w->waiting[waiting] = w->waiting[--w->waitings];
    bool whole = zf_link_frame(fd, &head, &text, 1) && head.kind == ZF_FRAME_HELLO;
    json_t *o = whole ? json_loadb(text, head.size, 0, NULL) : NULL;
    struct zf_err fate;
    free(text);
    const char *token = json_string_value(json_object_get(o, "token"));
    if (!o) {
        close(fd);
    } else if (token && !strcmp(token, w->token) && zf_world_check(w, &fate)) {
        refuse(fd, fate.code, fate.message);
    } else {
        struct zf_peer *p = who_is(w, o, fd), to = {.fd = fd, .sending = PTHREAD_MUTEX_INITIALIZER};
        bool bulk = json_is_true(json_object_get(o, "bulk"));
        if (p && !zf_peer_send(NULL, &to, ZF_FRAME_WELCOME, NULL, 0, 1)) {
            close(fd);
            p = NULL;
        }
        pthread_mutex_lock(&w->lock);
        if (p && !bulk) {
            p->hello = json_incref(o);
            snprintf(p->host, sizeof p->host, "%s", json_string_value(json_object_get(o, "host")));
            p->pid = (long long)json_integer_value(json_object_get(o, "pid"));
            p->pid_start = (long long)json_integer_value(json_object_get(o, "start"));
            p->heard = zf_clock();
            p->fd = fd;
        } else if (p) {
            p->bulk = fd;
            p->come = true;
        }
        pthread_cond_broadcast(&w->moved);
        pthread_mutex_unlock(&w->lock);
    }
    json_decref(o);
}

/* ---- who is where ---- */

static bool same(const struct zf_world *w, int a, int b, const char *key)
{
    const char *x = json_string_value(json_object_get(w->peer[a].hello, key)),
               *y = json_string_value(json_object_get(w->peer[b].hello, key));
    return x && y && !strcmp(x, y);
}

void zf_meet_places(struct zf_world *w)
{
    struct zf_world_place *p = &w->where;
    int me = w->launch.rank;
    *p = (struct zf_world_place){0};
    for (int r = 0; r < w->launch.ranks; r++) {
        if (!same(w, r, me, "machine")) continue;
        p->rank += r < me;
        p->ranks++;
        if (!same(w, r, me, "mask")) continue;
        p->share += r < me;
        p->shares++;
    }
}

/* For all, when all have come: without what each has to tell rank 0 alone. */
json_t *zf_meet_list(const struct zf_world *w)
{
    json_t *list = json_array();
    for (int r = 0; r < w->launch.ranks; r++) {
        json_t *one = json_copy(w->peer[r].hello);
        json_object_del(one, "hello");
        json_object_del(one, "token");
        json_array_append_new(list, one);
    }
    return json_pack("{so}", "ranks", list);
}

bool zf_meet_welcome(struct zf_world *w, const json_t *o)
{
    const json_t *list = json_object_get(o, "ranks");
    if (json_array_size(list) != (size_t)w->launch.ranks) return false;
    for (int r = 0; r < w->launch.ranks; r++) {
        struct zf_peer *p = &w->peer[r];
        json_t *one = json_array_get(list, (size_t)r);
        const char *host = json_string_value(json_object_get(one, "host"));
        json_decref(p->hello);
        p->hello = json_incref(one);
        snprintf(p->host, sizeof p->host, "%s", host ? host : "?");
        p->pid = (long long)json_integer_value(json_object_get(one, "pid"));
        p->pid_start = (long long)json_integer_value(json_object_get(one, "start"));
    }
    zf_meet_places(w);
    return true;
}
