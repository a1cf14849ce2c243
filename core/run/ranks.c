/* See ranks.h. */
#include "core/run/ranks.h"
#include "core/run/content.h"
#include "core/run/orders.h"
#include "core/run/save_file.h"
#include "core/telemetry/jsonl.h"
#include "kernels/comm.h"
#include "kernels/cores.h"
#include "core/world/mesh.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/config/run_cfg.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what all have in common before they begin ---- */

/* The first line of an option in which two texts differ, into `line`; "": the texts are equal. */
static void first_difference(const char *a, const char *b, char *line, size_t room)
{
    *line = 0;
    while (*a || *b) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n)) {
            snprintf(line, room, "`%.*s` there, `%.*s` at rank 0", (int)(n < 300 ? n : 300), a, (int)(m < 300 ? m : 300), b);
            return;
        }
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
}

static enum zf_status compare_options(const struct zf_world *w, const char *own, struct zf_err *e)
{
    char line[700], name[128];
    for (int r = 1; r < zf_world_ranks(w); r++) {
        const json_t *hello = json_object_get(zf_world_hello(w, r), "hello");
        first_difference(zf_json_text(hello, "options", ""), own, line, sizeof line);
        if (*line)
            return zf_fail(e, ZF_USAGE, zf_world_name(w, r, name, sizeof name),
                           "it was started with other options: %s; all ranks are started with the same run.cfg and the same --set", line);
    }
    return ZF_OK;
}

static enum zf_status lead(struct zf_options *o, struct zf_train_how *how, struct zf_world *w, const char *asked, struct zf_err *e)
{
    struct zf_world_place p;
    if (o->batch_size < zf_world_ranks(w))
        return zf_fail(e, ZF_USAGE, "batch_size",
                       "%" PRId64 " sequence%s cannot be shared out among %d ranks; raise batch_size, or start at most %" PRId64 " ranks",
                       o->batch_size, o->batch_size == 1 ? "" : "s", zf_world_ranks(w), o->batch_size);
    ZF_TRY(zf_world_join(w, e));
    ZF_TRY(compare_options(w, asked, e));
    p = zf_world_place(w);
    zf_cores_share(p.share, p.shares);
    return zf_train_run(o, how, e);
}

/* What rank 0 found when it looked: the others do not look themselves. */
enum zf_status zf_ranks_begin(struct zf_world *w, const struct zf_setup *s, const struct zf_resume *r, struct zf_err *e)
{
    if (!w) return ZF_OK;
    char *options = zf_options_text(s->o);
    json_t *o = json_pack("{ss* sI sI ss* sI}", "options", options, "micro_batch", (json_int_t)s->plan.micro_batch, "longest",
                          (json_int_t)s->longest_row, "checkpoint", r ? r->path : NULL, "step", r ? (json_int_t)r->step : 0);
    char *text = options && o ? json_dumps(o, JSON_COMPACT) : NULL;
    enum zf_status bad = text ? zf_world_tell(w, text, strlen(text), e) : zf_fail_memory(e, "the start of the other ranks");
    free(text);
    free(options);
    json_decref(o);
    return bad;
}

int zf_ranks_gpu(const struct zf_world *w)
{
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    return given && *given && !strchr(given, ',') ? 0 : zf_world_place(w).rank;
}

/* Ranks without a GPU exchange over MPI where all were started by a launcher that MPI knows, else over TCP. */
static enum zf_status choose_mesh(struct zf_trainer *t, bool *mesh, struct zf_err *e)
{
    char own = !getenv("PMIX_RANK"), *all = malloc((size_t)zf_world_ranks(t->world));
    *mesh = false;
    if (!all) return zf_fail_memory(e, "the other ranks");
    enum zf_status s = zf_world_exchange(t->world, &own, all, sizeof own, e);
    for (int r = 0; !s && r < zf_world_ranks(t->world); r++) *mesh |= all[r] != 0;
    *mesh = *mesh && !strcmp(t->device->type->name, "host");
    free(all);
    return s;
}

enum zf_status zf_ranks_open_comm(struct zf_trainer *t, struct zf_err *e)
{
    if (!t->world) return ZF_OK;
    const struct zf_comm_world world = {
        .rank = zf_world_rank(t->world), .ranks = zf_world_ranks(t->world), .tell = zf_world_share, .ctx = t->world};
    zf_world_doing(t->world, t->step, "finding the other ranks");
    bool mesh;
    ZF_TRY(choose_mesh(t, &mesh, e));
    if (!mesh) return zf_comm_open(&t->comm, t->device, &world, e);
    struct zf_wire *wire;
    ZF_TRY(zf_mesh_open(&wire, t->world, e));
    return zf_comm_over_wire(&t->comm, "TCP", t->device, wire, e);
}

/* ---- the same on all ---- */

struct sameness {
    unsigned char data[16], weights[16];
    uint64_t step;
};

static enum zf_status digest_data(const struct zf_trainer *t, unsigned char out[16], struct zf_err *e)
{
    struct zf_hash h;
    json_t *content = zf_content_of(t->setup);
    char *text = content ? json_dumps(content, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    enum zf_status s = text ? zf_hash_begin(&h, e) : zf_fail_memory(e, "the data");
    if (!s) zf_hash_add_text(&h, text);
    if (!s) zf_hash_end(&h, out);
    free(text);
    json_decref(content);
    return s;
}

enum zf_status zf_ranks_compare(struct zf_trainer *t, struct zf_err *e)
{
    struct sameness own = {.step = t->step}, *all;
    char name[128];
    if (!t->world) return ZF_OK;
    zf_world_doing(t->world, t->step, "comparing");
    ZF_TRY(digest_data(t, own.data, e));
    ZF_TRY(zf_pipeline_digest(&t->pipeline, own.weights, e));
    if (!(all = calloc((size_t)zf_world_ranks(t->world), sizeof *all))) return zf_fail_memory(e, "what ranks have in common");
    enum zf_status s = zf_world_exchange(t->world, &own, all, sizeof own, e);
    for (int r = 1; !s && r < zf_world_ranks(t->world); r++) {
        zf_world_name(t->world, r, name, sizeof name);
        if (memcmp(all[r].data, all[0].data, sizeof own.data))
            s = zf_fail(e, ZF_DIFFERENT, name,
                        "its data or tokenizer are not those of rank 0; the same files are expected on all machines");
        else if (all[r].step != all[0].step || memcmp(all[r].weights, all[0].weights, sizeof own.weights))
            s = zf_fail(e, ZF_IO, name,
                        "its weights after step %" PRIu64
                        " are not those of rank 0, bit for bit; the same model files and the same kind of machine are expected for all "
                        "ranks, or memory or a wire is damaged",
                        t->step);
    }
    free(all);
    return s;
}

/* ---- the loss of a rank ---- */

static void lost(void *ctx, int rank, const char *text)
{
    struct zf_trainer *t = ctx;
    struct zf_err ignored;
    if (t->comm) t->comm->type->abort(t->comm);
    if (!t->journal || zf_world_rank(t->world)) return;
    json_t *o = json_pack("{ss sI sI ss}", "type", "rank", "step", (json_int_t)t->step, "rank", (json_int_t)rank, "text", text);
    zf_metrics_write(t->metrics, json_incref(o));
    zf_journal_append(t->journal, o, &ignored);
}

static void last(void *ctx, enum zf_status code, const char *text)
{
    struct zf_trainer *t = ctx;
    struct zf_err ignored;
    if (!t->journal || zf_world_rank(t->world) || atomic_exchange(&t->ended, true)) return;
    json_t *o =
        json_pack("{ss sI ss si ss}", "type", "end", "step", (json_int_t)t->step, "reason", "error", "code", (int)code, "text", text);
    zf_metrics_write(t->metrics, json_incref(o));
    zf_journal_append(t->journal, o, &ignored);
}

/* Rank 0 may wait long for the others' answers. */
static enum zf_status beat(void *trainer, struct zf_err *e)
{
    struct zf_trainer *t = trainer;
    return t->lock ? zf_lock_beat(t->lock, t->step, e) : ZF_OK;
}

void zf_ranks_watch(struct zf_trainer *t)
{
    zf_world_when_lost(t->world, lost, last, t);
    zf_world_tick(t->world, beat, t);
}

void zf_ranks_unwatch(struct zf_trainer *t)
{
    zf_world_when_lost(t->world, NULL, NULL, NULL);
    zf_world_tick(t->world, NULL, NULL);
}

enum zf_status zf_ranks_why(struct zf_trainer *t, enum zf_status s, struct zf_err *e)
{
    double until = zf_clock() + ZF_WORLD_SILENCE + 1;
    struct zf_err ignored;
    if (!t->world || !s || s == ZF_STOPPED || !t->comm || !zf_comm_failed(t->comm, &ignored)) return s;
    while (!zf_world_is_broken(t->world) && zf_clock() < until) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return zf_world_is_broken(t->world) ? zf_world_check(t->world, e) : s;
}

/* ---- another rank ---- */

static volatile int never; /* signals: rank 0 decides what they mean */

struct member {
    struct zf_options o;
    struct zf_setup setup;
    struct zf_resume resume;
    bool resumes;
};

struct wait {
    int rank;
    double from;
    bool told;
};

static enum zf_status tell_wait(void *ctx, struct zf_err *e)
{
    enum { TELL_AFTER = 10 /* seconds */ };
    struct wait *x = ctx;
    (void)e;
    if (x->told || zf_clock() - x->from < TELL_AFTER) return ZF_OK;
    x->told = true;
    fprintf(stderr, "zenflow-console: note: rank %d waits for rank 0, which reads the data first\n", x->rank);
    return ZF_OK;
}

static enum zf_status hear_start(struct zf_world *w, json_t **out, struct zf_err *e)
{
    void *bytes;
    size_t size;
    struct wait x = {.rank = zf_world_rank(w), .from = zf_clock()};
    zf_world_doing(w, 0, "waiting for rank 0's start");
    zf_world_tick(w, tell_wait, &x);
    enum zf_status s = zf_world_receive(w, 0, &bytes, &size, e);
    zf_world_tick(w, NULL, NULL);
    ZF_TRY(s);
    *out = json_loadb(bytes, size, 0, NULL);
    free(bytes);
    return *out ? ZF_OK : zf_fail(e, ZF_IO, NULL, "rank 0 has sent no start; this is a mistake in the program");
}

/* As rank 0 has it: what `auto` stands for, what was edited or changed since, which checkpoint. */
static enum zf_status set_up(struct member *m, struct zf_world *w, const json_t *start, const volatile int *stop, struct zf_err *e)
{
    const char *text = zf_json_text(start, "options", ""), *checkpoint = zf_json_text(start, "checkpoint", NULL);
    zf_world_doing(w, 0, "reading model and data");
    ZF_TRY(zf_run_cfg_options(&m->o, text, "the options of rank 0", e));
    m->setup.ranks = zf_world_ranks(w);
    m->setup.neighbours = zf_world_place(w).ranks;
    m->setup.micro_batch = (size_t)zf_json_number(start, "micro_batch", 0);
    if (checkpoint) {
        ZF_TRY(zf_ckpt_open(&m->resume.file, checkpoint, e));
        m->resume.path = strdup(checkpoint);
        m->resume.step = m->resume.last_step = zf_json_count(start, "step");
        m->resumes = true;
    }
    ZF_TRY(zf_setup_model(&m->setup, &m->o, e));
    if (!checkpoint) ZF_TRY(zf_setup_weights(&m->setup, e));
    return zf_setup_data(&m->setup, stop, e);
}

static enum zf_status take_part(struct member *m, struct zf_world *w, enum zf_status *code, struct zf_err *e)
{
    struct zf_trainer t = {.setup = &m->setup, .o = &m->o, .stop = &never, .usr1 = &never, .run = m->o.dir, .place = -1, .world = w};
    t.started = zf_clock();
    zf_ranks_watch(&t);
    enum zf_status s = zf_trainer_open(&t, m->resumes ? &m->resume : NULL, e);
    zf_hf_close(&m->setup.hf);
    if (!s) s = zf_ranks_compare(&t, e);
    if (!s) s = zf_orders_obey(&t, code, e);
    s = zf_ranks_why(&t, s, e);
    if (s && s != ZF_STOPPED && !zf_world_is_broken(w)) { /* the others wait for it, wherever they are */
        char text[1200];
        snprintf(text, sizeof text, "%.300s%s%.800s", e->where, e->where[0] ? ": " : "", e->message);
        zf_world_fail(w, s, text);
    }
    zf_trainer_close(&t);
    zf_ranks_unwatch(&t);
    return s;
}

static enum zf_status follow(struct zf_world *w, const volatile int *stop, struct zf_err *e)
{
    json_t *start;
    struct member m = {0};
    enum zf_status code = ZF_OK;
    struct zf_world_place p;
    ZF_TRY(hear_start(w, &start, e));
    p = zf_world_place(w);
    zf_cores_share(p.share, p.shares);
    enum zf_status s = zf_options_init(&m.o, e);
    if (!s && json_object_get(start, "options")) {
        zf_options_free(&m.o);
        s = set_up(&m, w, start, stop, e);
        if (!s) s = take_part(&m, w, &code, e);
        zf_setup_free(&m.setup);
        zf_resume_close(&m.resume);
    }
    zf_options_free(&m.o);
    json_decref(start);
    return s ? s : code;
}

/* ---- both ---- */

static void fail_all(struct zf_world *w, enum zf_status s, const struct zf_err *e)
{
    char text[1200];
    snprintf(text, sizeof text, "%.300s%s%.800s", e->where, e->where[0] ? ": " : "", e->message);
    if (!zf_world_is_broken(w)) zf_world_fail(w, s, text);
}

enum zf_status zf_ranks_run(struct zf_options *o, struct zf_train_how *how, const struct zf_launch *l, bool *quiet, struct zf_err *e)
{
    struct zf_world *w;
    char *asked = zf_options_text(o);
    json_t *hello = asked ? json_pack("{ss}", "options", asked) : NULL;
    bool leads = !l->rank, together = false;
    enum zf_status s =
        hello ? zf_world_open(
                    &w, &(struct zf_world_options){.launch = l, .run = o->dir, .stop = how->stop, .hello = hello, .version = ZF_VERSION}, e)
              : zf_fail_memory(e, "the options");
    *quiet = s && !leads && s != ZF_IO && s != ZF_MEMORY; /* rank 0 has refused it, and says so */
    if (!s) {
        how->world = w;
        how->together = &together;
        s = leads ? lead(o, how, w, asked, e) : follow(w, how->stop, e);
        *quiet = !leads;
        bool broken = zf_world_is_broken(w);
        if (s && !together) fail_all(w, s, e);
        if (!s && !together && leads) zf_world_tell(w, "{}", 2, e); /* there was nothing to be done */
        if (broken) {                                               /* lanes may wait for ranks that are gone: nothing is given back */
            if (leads) zf_err_print(NULL, e);
            fflush(stdout);
            zf_world_close(w);
            _exit((int)s);
        }
        zf_world_close(w);
    }
    free(asked);
    json_decref(hello);
    return s;
}
