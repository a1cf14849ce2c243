/* Watching a run that another process trains. */
#include "core/run/remote.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/run/client.h"
#include "core/session/rundir.h"
#include "core/telemetry/jsonl.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

volatile sig_atomic_t zf_left;

static void on_leave(int number)
{
    (void)number;
    zf_left = 1;
}

void zf_leave_on_signals(void)
{
    struct sigaction act = {.sa_handler = on_leave};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* --- lines for people --- */

void zf_printer_init(struct zf_printer *p, const char *run, double plain_every)
{
    struct zf_run_facts facts;
    struct zf_err ignored;
    *p = (struct zf_printer){0};
    zf_plain_init(&p->plain, STDOUT_FILENO, plain_every);
    if (!zf_rundir_look(&facts, run, NULL, &ignored)) p->steps = facts.steps;
}

static void print_step(struct zf_printer *p, const json_t *o)
{
    struct zf_plain_step s = {.step = zf_json_count(o, "step"),
                              .steps = p->steps,
                              .loss = zf_json_number(o, "loss", NAN),
                              .norm = zf_json_number(o, "grad_norm", NAN),
                              .clip = zf_json_number(o, "clip", 1),
                              .learning_rate = zf_json_number(o, "learning_rate", 0),
                              .tokens_per_s = zf_json_number(o, "tokens_per_s", 0),
                              .skipped = zf_json_count(o, "skipped")};
    s.applied = isfinite(s.loss) && isfinite(s.norm);
    zf_eta_step(&p->eta, zf_json_number(o, "step_ms", 0) / 1e3);
    s.eta = zf_eta_left(&p->eta, s.steps > s.step ? s.steps - s.step : 0, 0);
    zf_plain_step(&p->plain, &s, zf_clock(), s.step == s.steps);
}

static void value_text(char *to, size_t size, const json_t *v)
{
    char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(to, size, "%s", json_is_string(v) ? json_string_value(v) : text ? text : "?");
    free(text);
}

static void print_change(struct zf_printer *p, const json_t *o)
{
    char old[128], new[128];
    const char *name = zf_json_text(o, "option", "?");
    value_text(old, sizeof old, json_object_get(o, "old"));
    value_text(new, sizeof new, json_object_get(o, "new"));
    zf_plain_text(&p->plain, "change: %s %s -> %s, from step %.0f (%s, %s)", name, old, new, zf_json_number(o, "from_step", 0),
                  zf_json_text(o, "user", "?"), zf_json_text(o, "by", "?"));
    if (!strcmp(name, "steps")) p->steps = zf_json_count(o, "new");
}

static void print_end(struct zf_printer *p, const json_t *o)
{
    static const struct {
        const char *reason;
        enum zf_status code;
    } codes[] = {{"done", ZF_OK}, {"stopped", ZF_STOPPED}, {"signal", ZF_STOPPED}};
    const char *reason = zf_json_text(o, "reason", "?");
    p->code = ZF_NUMERIC;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(reason, codes[i].reason)) p->code = codes[i].code;
    double code = zf_json_number(o, "code", -1);
    if (code >= 0 && code <= ZF_BUSY) p->code = (enum zf_status)code;
    p->ended = true;
    zf_plain_text(&p->plain, "end: %s at step %.0f of %llu", reason, zf_json_number(o, "step", 0), (unsigned long long)p->steps);
}

void zf_printer_line(struct zf_printer *p, const json_t *o)
{
    static const char *const texts[] = {"note", "warning", "error", "mark", "sample"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (zf_json_is(o, texts[i])) zf_plain_text(&p->plain, "%s: %s", texts[i], zf_json_text(o, "text", ""));
    if (zf_json_is(o, "step")) print_step(p, o);
    if (zf_json_is(o, "change")) print_change(p, o);
    if (zf_json_is(o, "end")) print_end(p, o);
    if (zf_json_is(o, "valid")) {
        char accuracy[48] = "";
        if (json_object_get(o, "accuracy")) snprintf(accuracy, sizeof accuracy, ", accuracy %.4f", zf_json_number(o, "accuracy", NAN));
        zf_plain_text(&p->plain, "step %.0f validation loss %.4f over %.0f targets%s", zf_json_number(o, "step", 0),
                      zf_json_number(o, "loss", NAN), zf_json_number(o, "tokens", 0), accuracy);
    }
}

/* --- a file that grows --- */

struct tail {
    const char *path;
    int fd;
    off_t at;
    ino_t inode;
    char *text; /* of a line that is not yet whole */
    size_t used, room;
};

/* Opens it at its end, or anew where it was replaced or cut. */
static bool open_tail(struct tail *t, bool at_end)
{
    struct stat st;
    if (t->fd >= 0 && (stat(t->path, &st) || st.st_ino != t->inode || st.st_size < t->at)) {
        close(t->fd);
        t->fd = -1;
        at_end = false;
    }
    if (t->fd >= 0) return true;
    t->fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (t->fd < 0 || fstat(t->fd, &st)) return false;
    t->inode = st.st_ino;
    t->at = at_end ? st.st_size : 0;
    t->used = 0;
    return true;
}

static void give_lines(struct tail *t, struct zf_printer *p)
{
    char *from = t->text, *newline;
    while ((newline = memchr(from, '\n', t->used - (size_t)(from - t->text)))) {
        json_t *o = json_loadb(from, (size_t)(newline - from), JSON_ALLOW_NUL, NULL);
        if (json_is_object(o)) zf_printer_line(p, o);
        json_decref(o);
        from = newline + 1;
    }
    t->used -= (size_t)(from - t->text);
    memmove(t->text, from, t->used);
}

/* What has come since. */
static void read_tail(struct tail *t, struct zf_printer *p)
{
    enum { PIECE = 64 << 10 };
    if (!open_tail(t, false)) return;
    for (;;) {
        if (t->room - t->used < PIECE) {
            size_t room = t->room ? 2 * t->room : 2 * PIECE;
            char *more = room > ZF_JSONL_LONGEST ? NULL : realloc(t->text, room);
            if (!more) {
                t->used = 0; /* no line of ours */
                return;
            }
            t->text = more;
            t->room = room;
        }
        ssize_t n = pread(t->fd, t->text + t->used, PIECE, t->at);
        if (n <= 0) return;
        t->used += (size_t)n;
        t->at += n;
        give_lines(t, p);
    }
}

static enum zf_status how_it_ended(const char *run, const struct zf_printer *p, const struct zf_lock_record *holder, struct zf_err *e)
{
    char why[768];
    if (p->ended && p->code == ZF_OK) return ZF_OK;
    if (p->ended) return zf_fail(e, p->code, run, "the run has ended: %s", zf_status_text(p->code));
    zf_lock_explain(holder, holder->step, why, sizeof why);
    return zf_fail(e, ZF_BUSY, run, "%s", why);
}

enum zf_status zf_follow(const char *run, double plain_every, struct zf_err *e)
{
    char *path = zf_path_join(run, "metrics.jsonl"), ssh[600];
    struct tail t = {.path = path, .fd = -1};
    struct zf_printer p;
    struct zf_client c;
    if (!path) return zf_fail_memory(e, run);
    zf_leave_on_signals();
    enum zf_status s = zf_client_find(&c, run, e);
    zf_printer_init(&p, run, plain_every);
    if (!s) {
        zf_plain_text(&p.plain, "%s: a trainer is at work on it (pid %lld on %s); following it, Ctrl-C leaves it alone", run, c.holder.pid,
                      c.holder.host);
        zf_client_ssh(&c, "attach", ssh, sizeof ssh);
        if (c.elsewhere) zf_plain_text(&p.plain, "from its files, as it is on another machine; to steer it: %s", ssh);
        json_t *last = zf_jsonl_last(path, "step");
        open_tail(&t, true);
        if (last) zf_printer_line(&p, last);
        json_decref(last);
    }
    bool alive = true;
    double looked = zf_clock();
    while (!s && !p.ended && !zf_left) {
        read_tail(&t, &p);
        if (p.ended || !alive) break;
        usleep(100000);
        if (zf_clock() - looked < 0.5) continue;
        looked = zf_clock();
        struct zf_lock_record now;
        alive = zf_lock_look(run, &now) == ZF_LOCK_LIVE; /* then once more what it left */
        if (alive) c.holder = now;
    }
    if (!s && zf_left && !p.ended)
        zf_plain_text(&p.plain, "left; the run goes on");
    else if (!s)
        s = how_it_ended(run, &p, &c.holder, e);
    if (t.fd >= 0) close(t.fd);
    free(t.text);
    free(path);
    zf_client_close(&c);
    return s;
}
