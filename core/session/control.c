/* See control.h. Three parts: what the two threads share, clients, the loop of the control thread. */
#include "core/session/control.h"
#include "core/base/clock.h"
#include "core/base/plural.h"
#include "core/base/pool.h"
#include "core/telemetry/jsonl.h"
#include "core/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CLIENTS = 32,
    QUEUE = 4 << 20,      /* bytes of telemetry that wait for a client */
    ANSWERS = 1 << 20,    /* room for answers beyond that */
    WAITING = 256,        /* requests that wait for the trainer; of one client at most half as many */
    OUTBOX = 16 << 20,    /* bytes that wait for the control thread */
    KEPT = 64,            /* last lines for a new client */
    KEPT_BYTES = 1 << 20, /* of all of them */
    STRIKES = 100,        /* lines that were no requests until a client is dropped */
    OVERLONG = 1 << 20,   /* bytes of one line until then */
    BURST = 256,          /* requests at once; then RATE a second */
    RATE = 100,
    DOZE_MS = 10,
    GOODBYE_MS = 500, /* for what is queued at the end */
    PATIENCE_S = 5,   /* for what is queued when a client is dropped */
};

struct item {
    struct item *next;
    uint64_t client; /* 0: all */
    size_t size;
    char text[];
};

struct client {
    struct zf_wire wire;
    uint64_t number;
    unsigned waiting; /* requests of it in the trainer's queue; under the lock */
    unsigned uid, strikes;
    unsigned owed;             /* answers that are still to come from the trainer */
    double allowance, counted; /* requests that it may still send, as of when */
    size_t lost;               /* lines since it was last told */
    bool ended;                /* it sends no more */
    bool over;                 /* to be dropped once its queue is empty, at the latest at `until` */
    double until;
};

struct zf_control {
    struct zf_control_hooks hooks;
    char path[ZF_WIRE_PATH_MOST];
    int listener, wake;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t come;
    /* under the lock */
    struct zf_request *first, **last;
    unsigned waiting;
    struct item *out, **out_last;
    size_t out_bytes, out_lost;
    uint64_t lost;
    unsigned count;
    struct stat file; /* the socket, as it was made */
    bool closed;      /* no more requests: those that come are refused at once */
    bool ending;
    bool dozing; /* the control thread looks by itself, DOZE_MS after it last handed something out: lines need not wake it */
    /* the control thread's */
    struct client client[CLIENTS];
    uint64_t next_number;
    struct item *start, *kept[KEPT];
    size_t kept_from, kept_count, kept_bytes;
};

/* --- what the two threads share --- */

static void wake(struct zf_control *c)
{
    uint64_t one = 1;
    if (write(c->wake, &one, sizeof one) < 0) return; /* it is awake */
}

static struct item *new_item(uint64_t client, const char *text, size_t size)
{
    struct item *i = malloc(sizeof *i + size);
    if (!i) return NULL;
    *i = (struct item){.client = client, .size = size};
    memcpy(i->text, text, size);
    return i;
}

static void put_out(struct zf_control *c, struct item *i, bool answer)
{
    pthread_mutex_lock(&c->lock);
    if (i && (answer || c->out_bytes + i->size <= OUTBOX)) {
        c->out_bytes += i->size;
        *c->out_last = i;
        c->out_last = &i->next;
        i = NULL;
    } else {
        c->out_lost++;
        c->lost++;
    }
    bool dozing = c->dozing && !answer;
    pthread_mutex_unlock(&c->lock);
    free(i);
    if (!dozing) wake(c);
}

void zf_control_publish(struct zf_control *c, const char *line, size_t size)
{
    if (c) put_out(c, new_item(0, line, size), false);
}

/* A directory's name may be anything; an answer is JSON. */
static json_t *text_json(const char *text)
{
    json_t *o = json_string(text);
    char *copy = o ? NULL : strdup(text);
    for (char *c = copy; c && *c; c++)
        if ((unsigned char)*c >= 128) *c = '?';
    if (copy) o = json_string(copy);
    free(copy);
    return o;
}

static char *answer_text(json_t *id, bool ok, bool ask, const char *text, size_t *size)
{
    json_t *said = text_json(text), *o = json_pack("{sO sb so}", "id", id ? id : json_null(), "ok", ok, "text", said ? said : json_null());
    if (o && ask) json_object_set_new(o, "ask", json_true());
    char *line = zf_jsonl_text(o, size);
    json_decref(o);
    return line;
}

static void free_request(struct zf_request *r)
{
    json_decref(r->id);
    free(r->command);
    free(r);
}

void zf_control_answer(struct zf_control *c, struct zf_request *stolen, bool ok, bool ask, const char *text)
{
    size_t size = 0;
    char *line = answer_text(stolen->id, ok, ask, text, &size);
    put_out(c, line ? new_item(stolen->client, line, size) : NULL, true);
    free(line);
    free_request(stolen);
}

struct zf_request *zf_control_next(struct zf_control *c)
{
    pthread_mutex_lock(&c->lock);
    struct zf_request *r = c->first;
    if (r) {
        if (!(c->first = r->next)) c->last = &c->first;
        c->waiting--;
        for (int i = 0; i < CLIENTS; i++)
            if (c->client[i].number == r->client && c->client[i].waiting) c->client[i].waiting--;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

void zf_control_wait(struct zf_control *c, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long ns = until.tv_nsec + (long)(1e9 * (seconds - (double)(long)seconds));
    until.tv_sec += (time_t)seconds + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&c->lock);
    while (!c->first && !pthread_cond_timedwait(&c->come, &c->lock, &until)) continue;
    pthread_mutex_unlock(&c->lock);
}

unsigned zf_control_clients(struct zf_control *c)
{
    if (!c) return 0;
    pthread_mutex_lock(&c->lock);
    unsigned n = c->count;
    pthread_mutex_unlock(&c->lock);
    return n;
}

bool zf_control_has(struct zf_control *c, uint64_t client)
{
    bool has = false;
    if (!c || !client) return false;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < CLIENTS; i++) has |= c->client[i].number == client;
    pthread_mutex_unlock(&c->lock);
    return has;
}

uint64_t zf_control_lost(struct zf_control *c)
{
    if (!c) return 0;
    pthread_mutex_lock(&c->lock);
    uint64_t n = c->lost;
    pthread_mutex_unlock(&c->lock);
    return n;
}

const char *zf_control_path(const struct zf_control *c)
{
    return c->path;
}

/* --- clients --- */

static void drop(struct zf_control *c, struct client *k)
{
    zf_wire_close(&k->wire);
    pthread_mutex_lock(&c->lock);
    k->number = 0; /* its requests are carried out all the same; their answers find nobody */
    c->count--;
    pthread_mutex_unlock(&c->lock);
}

/* What a client lost is told once it reads again, before anything newer. false: it does not. */
static bool tell_lost(struct client *k)
{
    char line[160];
    if (!k->lost) return true;
    if (zf_wire_queued(&k->wire) > QUEUE / 2) return false;
    int n = snprintf(line, sizeof line, "{\"type\":\"note\",\"text\":\"%zu line%s lost: this client did not read\",\"lost\":%zu}\n",
                     k->lost, zf_plural(k->lost), k->lost);
    if (!zf_wire_queue(&k->wire, line, (size_t)n, 0)) return false;
    k->lost = 0;
    return true;
}

static void send_line(struct zf_control *c, struct client *k, const char *text, size_t size)
{
    if (k->over) return;
    if (tell_lost(k) && zf_wire_queue(&k->wire, text, size, 0)) return;
    k->lost++;
    pthread_mutex_lock(&c->lock);
    c->lost++;
    pthread_mutex_unlock(&c->lock);
}

static void finish(struct client *k)
{
    if (!k->over) k->until = zf_clock() + PATIENCE_S;
    k->over = true;
}

static void send_answer(struct client *k, const char *text, size_t size)
{
    if (zf_wire_queue(&k->wire, text, size, ANSWERS)) return;
    k->wire.out_from = k->wire.out_used; /* not even this fits: nothing more for it */
    finish(k);
}

static void answer(struct client *k, json_t *id, bool ok, const char *text)
{
    size_t size = 0;
    char *line = answer_text(id, ok, false, text, &size);
    if (line) send_answer(k, line, size);
    free(line);
}

static void goodbye(struct client *k, const char *why)
{
    answer(k, NULL, false, why);
    finish(k);
}

static void strike(struct client *k, json_t *id, const char *what)
{
    if (++k->strikes >= STRIKES)
        goodbye(k, "too many lines that are no requests; this client is dropped");
    else
        answer(k, id, false, what);
}

static void welcome(struct zf_control *c)
{
    unsigned uid;
    int fd = zf_wire_accept(c->listener, &uid);
    struct client *k = NULL;
    for (int i = 0; fd >= 0 && i < CLIENTS && !k; i++)
        if (!c->client[i].number) k = &c->client[i];
    if (fd < 0) return;
    if (!k || (uid != geteuid() && uid != 0)) {
        static const char full[] = "{\"id\":null,\"ok\":false,\"text\":\"there are 32 clients already, or it is another user's run\"}\n";
        if (send(fd, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) errno = 0; /* then it is not told */
        close(fd);
        return;
    }
    pthread_mutex_lock(&c->lock);
    *k = (struct client){.number = ++c->next_number, .uid = uid, .allowance = BURST, .counted = zf_clock()};
    c->count++;
    pthread_mutex_unlock(&c->lock);
    zf_wire_open(&k->wire, fd, ZF_WIRE_REQUEST_MOST, QUEUE);
    if (c->start) send_line(c, k, c->start->text, c->start->size);
    for (size_t i = 0; i < c->kept_count; i++) {
        const struct item *line = c->kept[(c->kept_from + i) % KEPT];
        send_line(c, k, line->text, line->size);
    }
}

static void copy_word(char *to, size_t size, const json_t *from, const char *absent)
{
    const char *s = json_string_value(from);
    snprintf(to, size, "%s", s && *s ? s : absent);
    for (; *to; to++)
        if ((unsigned char)*to < ' ' || *to == 127 || (unsigned char)*to >= 128) *to = '?';
}

static const char over[] = "the run has ended; nothing was done";

/* Takes `command` and `id` of the request over. */
static void take(struct zf_control *c, struct client *k, const json_t *o, json_t *id, const char *command)
{
    struct zf_request *r = calloc(1, sizeof *r);
    char number[32];
    const char *me = getenv("USER");
    snprintf(number, sizeof number, "uid %u", k->uid);
    if (!r || !(r->command = strdup(command))) {
        free(r);
        answer(k, id, false, "no memory for it; try again");
        return;
    }
    r->client = k->number;
    r->id = json_incref(id ? id : json_null());
    r->yes = json_is_true(json_object_get(o, "yes"));
    copy_word(r->user, sizeof r->user, json_object_get(o, "user"), me && *me && k->uid == geteuid() ? me : number);
    copy_word(r->by, sizeof r->by, json_object_get(o, "by"), "send");
    if (strcmp(r->by, "console") != 0) strcpy(r->by, "send");
    bool ok = false;
    char *text = c->hooks.at_once(c->hooks.ctx, r, &ok);
    const char *refusal = NULL;
    if (!text) {
        pthread_mutex_lock(&c->lock);
        bool full = c->waiting >= WAITING || k->waiting >= WAITING / 2;
        refusal = c->closed ? over : full ? "too many commands wait for the end of the step; this one was refused: try again" : NULL;
        if (!refusal) {
            *c->last = r;
            c->last = &r->next;
            c->waiting++;
            k->waiting++;
            k->owed++;
            r = NULL;
            pthread_cond_signal(&c->come);
        }
        pthread_mutex_unlock(&c->lock);
    }
    if (text || refusal) answer(k, id, ok, text ? text : refusal);
    free(text);
    if (r) free_request(r);
}

static void one_line(struct zf_control *c, struct client *k, const char *line, size_t size)
{
    if (!size) return;
    json_t *o = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL), *id = json_object_get(o, "id");
    const char *command = json_string_value(json_object_get(o, "command"));
    bool odd = id && !json_is_null(id) && !json_is_integer(id) && (!json_is_string(id) || json_string_length(id) > 256);
    if (!json_is_object(o) || !command || odd)
        strike(k, odd ? NULL : id,
               !json_is_object(o) ? "no request: a line {\"id\":1,\"command\":\"status\"} of JSON is expected"
               : odd              ? "its `id` is neither a whole number nor a text of at most 256 bytes"
                                  : "it has no `command`, which is a text");
    else
        take(c, k, o, id, command);
    json_decref(o);
}

static bool may_read(struct client *k)
{
    double now = zf_clock();
    k->allowance += (now - k->counted) * RATE;
    if (k->allowance > BURST) k->allowance = BURST;
    k->counted = now;
    return k->allowance >= 1 && !k->over;
}

static void read_client(struct zf_control *c, struct client *k)
{
    char *line;
    size_t size;
    enum zf_wire_line found = ZF_WIRE_LINE;
    if (may_read(k) && !k->ended) k->ended = zf_wire_read(&k->wire) == ZF_WIRE_ENDED;
    while (may_read(k) && (found = zf_wire_line(&k->wire, &line, &size)) != ZF_WIRE_NONE) {
        k->allowance--;
        if (found == ZF_WIRE_TOO_LONG)
            strike(k, NULL, "the line is longer than 64 KiB, which no command is; it was passed over");
        else
            one_line(c, k, line, size);
    }
    if (k->wire.passing && k->wire.passed > OVERLONG && !k->over) goodbye(k, "the line does not end; this client is dropped");
    if (k->ended && found == ZF_WIRE_NONE && !k->owed) finish(k);
}

/* --- the loop --- */

static void keep(struct zf_control *c, struct item *i)
{
    static const char start[] = "{\"type\":\"start\"", lanes[] = "{\"type\":\"lanes\"";
    if (i->size > sizeof start && !memcmp(i->text, start, sizeof start - 1)) {
        free(c->start);
        c->start = i;
        return;
    }
    if (i->size > KEPT_BYTES / 4 || (i->size > sizeof lanes && !memcmp(i->text, lanes, sizeof lanes - 1))) {
        free(i);
        return;
    }
    while (c->kept_count && (c->kept_count == KEPT || c->kept_bytes + i->size > KEPT_BYTES)) {
        struct item *old = c->kept[c->kept_from];
        c->kept_from = (c->kept_from + 1) % KEPT;
        c->kept_count--;
        c->kept_bytes -= old->size;
        free(old);
    }
    c->kept[(c->kept_from + c->kept_count++) % KEPT] = i;
    c->kept_bytes += i->size;
}

/* Hands out what the trainer put there. true: it was the last. */
static bool hand_out(struct zf_control *c)
{
    pthread_mutex_lock(&c->lock);
    struct item *i = c->out;
    c->out = NULL;
    c->out_last = &c->out;
    c->out_bytes = 0;
    size_t lost = c->out_lost;
    c->out_lost = 0;
    bool ending = c->ending;
    c->dozing = i != NULL;
    pthread_mutex_unlock(&c->lock);
    while (i) {
        struct item *next = i->next;
        i->next = NULL;
        for (int n = 0; n < CLIENTS; n++) {
            struct client *k = &c->client[n];
            if (!k->number) continue;
            if (!i->client) {
                send_line(c, k, i->text, i->size);
            } else if (i->client == k->number) {
                send_answer(k, i->text, i->size);
                if (k->owed) k->owed--;
            }
        }
        if (i->client)
            free(i);
        else
            keep(c, i);
        i = next;
    }
    for (int n = 0; n < CLIENTS && lost; n++)
        if (c->client[n].number) c->client[n].lost += lost;
    return ending;
}

/* Fills in what to wait for; the first two are the wake-up and the listener. Returns how many; *soon: something is due without any of it.
 */
static nfds_t watch(struct zf_control *c, struct pollfd *p, struct client **of, bool *soon)
{
    nfds_t n = 0;
    *soon = false;
    p[n++] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    for (int i = 0; i < CLIENTS; i++) {
        struct client *k = &c->client[i];
        if (!k->number) continue;
        bool throttled = !may_read(k), queued = zf_wire_queued(&k->wire) > 0;
        *soon |= throttled || k->over;
        of[n] = k;
        /* A throttled one is not watched at all: that it hung up would wake us again and again. */
        p[n++] = (struct pollfd){.fd = throttled && !queued ? -1 : k->wire.fd,
                                 .events = (short)((throttled || k->ended ? 0 : POLLIN) | (queued ? POLLOUT : 0))};
    }
    return n;
}

static void serve_clients(struct zf_control *c, const struct pollfd *p, struct client **of, nfds_t n)
{
    double now = zf_clock();
    for (nfds_t i = 2; i < n; i++) {
        struct client *k = of[i];
        bool unread = k->wire.in_seen < k->wire.in_used; /* lines that wait since it was throttled */
        if (p[i].revents & (POLLIN | POLLHUP | POLLERR) || unread || k->ended) read_client(c, k);
        tell_lost(k);
        bool deaf = zf_wire_flush(&k->wire) == ZF_WIRE_ENDED;
        if (deaf) read_client(c, k); /* it hung up since the poll: what it said before counts */
        bool gone = deaf || (k->ended && p[i].revents & (POLLHUP | POLLERR) && !unread);
        if (gone || (k->over && (!zf_wire_queued(&k->wire) || now > k->until))) drop(c, k);
    }
}

static bool all_sent(const struct zf_control *c)
{
    for (int i = 0; i < CLIENTS; i++)
        if (c->client[i].number && zf_wire_queued(&c->client[i].wire)) return false;
    return true;
}

static void *serve(void *arg)
{
    struct zf_control *c = arg;
    struct pollfd p[CLIENTS + 2];
    struct client *of[CLIENTS + 2];
    double ending = 0;
    bool soon;
    for (;;) {
        nfds_t n = watch(c, p, of, &soon);
        if (poll(p, n, ending > 0 || soon || c->dozing ? DOZE_MS : -1) < 0 && errno != EINTR) usleep(10000);
        uint64_t told;
        if (p[0].revents & POLLIN && read(c->wake, &told, sizeof told) < 0) told = 0;
        bool end = hand_out(c);
        if (p[1].revents & POLLIN && !end) welcome(c);
        serve_clients(c, p, of, n);
        if (!end) continue;
        if (!(ending > 0)) ending = zf_clock();
        if (all_sent(c) || zf_clock() - ending > 1e-3 * GOODBYE_MS) return NULL;
    }
}

static void free_all(struct zf_control *c)
{
    for (int i = 0; i < CLIENTS; i++)
        if (c->client[i].number) zf_wire_close(&c->client[i].wire);
    for (struct zf_request *r = c->first, *next; r; r = next) next = r->next, free_request(r);
    for (struct item *i = c->out, *next; i; i = next) next = i->next, free(i);
    for (size_t i = 0; i < c->kept_count; i++) free(c->kept[(c->kept_from + i) % KEPT]);
    free(c->start);
    if (c->listener >= 0) close(c->listener);
    if (c->wake >= 0) close(c->wake);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->come);
    free(c);
}

/* The directory may have been moved, and the path be another run's by now. */
static void remove_socket(const struct zf_control *c)
{
    struct stat now;
    if (!lstat(c->path, &now) && now.st_dev == c->file.st_dev && now.st_ino == c->file.st_ino) unlink(c->path);
}

enum zf_status zf_control_start(struct zf_control **out, const char *run, const struct zf_control_hooks *hooks, struct zf_err *e)
{
    *out = NULL;
    struct zf_control *c = calloc(1, sizeof *c);
    if (!c) return zf_fail_memory(e, run);
    c->hooks = *hooks;
    c->last = &c->first;
    c->out_last = &c->out;
    c->listener = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->come, NULL);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum zf_status s =
        c->wake < 0 ? zf_fail_errno(e, run, "cannot make an event") : zf_wire_listen(&c->listener, c->path, run, "control.sock", e);
    if (!s && lstat(c->path, &c->file)) c->file = (struct stat){0};
    if (!s && (errno = zf_thread_start(&c->thread, serve, c))) {
        s = zf_fail_errno(e, run, "cannot start a thread");
        remove_socket(c);
    }
    if (s)
        free_all(c);
    else
        *out = c;
    return s;
}

void zf_control_stop(struct zf_control *c)
{
    if (!c) return;
    remove_socket(c); /* first: who comes now finds nobody, instead of a connection that is cut */
    struct zf_request *r;
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    pthread_mutex_unlock(&c->lock);
    while ((r = zf_control_next(c))) zf_control_answer(c, r, false, false, over);
    pthread_mutex_lock(&c->lock);
    c->ending = true;
    pthread_mutex_unlock(&c->lock);
    wake(c);
    pthread_join(c->thread, NULL);
    free_all(c);
}
