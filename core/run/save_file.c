/* See save_file.h. */
#include "core/run/save_file.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/run/saves.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- what writing and reading share ---- */

static enum zf_ckpt_type type_of(enum zf_state_type t)
{
    static const enum zf_ckpt_type types[] = {[ZF_STATE_F32] = ZF_CKPT_F32,
                                              [ZF_STATE_BF16] = ZF_CKPT_BF16,
                                              [ZF_STATE_U32] = ZF_CKPT_U32,
                                              [ZF_STATE_I16] = ZF_CKPT_I16,
                                              [ZF_STATE_I32] = ZF_CKPT_I32};
    return types[t];
}

/* As many rows of a piece as are moved at once. */
struct buffer {
    void *bytes;
    size_t room, rows, row; /* bytes; rows at once; bytes of a row */
};

static enum zf_status make_room(size_t row, struct buffer *b, struct zf_err *e)
{
    enum { BYTES = 4 << 20 };
    b->row = row;
    b->rows = b->row < BYTES ? BYTES / b->row : 1;
    if (b->rows * b->row <= b->room) return ZF_OK;
    void *grown = realloc(b->bytes, b->rows * b->row);
    if (!grown) return zf_fail_memory(e, "a checkpoint");
    b->bytes = grown;
    b->room = b->rows * b->row;
    return ZF_OK;
}

/* ---- to the disk ---- */

struct writer {
    struct zf_saving *s;
    struct zf_ckpt_writer *file;
    struct zf_pool *pool;
    struct buffer buffer;
};

static enum zf_status put_rows(struct writer *w, size_t n, struct zf_err *e)
{
    ZF_TRY(zf_ckpt_put(w->file, w->buffer.bytes, n * w->buffer.row, e));
    if (w->s->between) ZF_TRY(w->s->between(w->s->ctx, e)); /* signals are heard when it is written */
    return w->s->cancelled ? zf_fail(e, ZF_STOPPED, w->s->path, "it is not written to its end") : ZF_OK;
}

static enum zf_status put_own(struct writer *w, const struct zf_state_piece *x, size_t from, size_t rows, struct zf_err *e)
{
    for (size_t first = 0, n; first < rows; first += n) {
        n = rows - first < w->buffer.rows ? rows - first : w->buffer.rows;
        ZF_TRY(zf_state_read(&w->s->state, x, from + first, n, w->buffer.bytes, e));
        ZF_TRY(put_rows(w, n, e));
    }
    return ZF_OK;
}

/* What was asked for comes, whether the disk takes it or not. */
static enum zf_status put_theirs(struct writer *w, const struct zf_shared_piece *x, int rank, struct zf_err *e)
{
    struct zf_world *world = w->s->sharing->world;
    enum zf_status failed = ZF_OK;
    size_t rows = x->part[rank].rows;
    if (!rows) return ZF_OK;
    ZF_TRY(zf_sharing_ask(w->s->sharing, x, rank, e));
    for (size_t first = 0, n; first < rows; first += n) {
        struct zf_err ignored;
        n = rows - first < w->buffer.rows ? rows - first : w->buffer.rows;
        ZF_TRY(zf_world_get(world, rank, w->buffer.bytes, n * w->buffer.row, failed ? &ignored : e));
        if (!failed) failed = put_rows(w, n, e);
    }
    return failed;
}

/* own: this rank's piece of that name, if it has one. */
static enum zf_status put_shared(struct writer *w, const struct zf_state_piece *own, const struct zf_shared_piece *x, struct zf_err *e)
{
    const uint64_t shape[2] = {x->rows, x->cols};
    size_t first = 0, n = 0;
    ZF_TRY(make_room(x->cols * zf_state_type_bytes(x->type), &w->buffer, e));
    ZF_TRY(zf_ckpt_begin(w->file, x->name, type_of(x->type), 2, shape, e));
    if (own) zf_state_own(&w->s->state, own, &first, &n);
    ZF_TRY(put_own(w, own, first, n, e));
    for (int r = 1; r < zf_world_ranks(w->s->sharing->world); r++) ZF_TRY(put_theirs(w, x, r, e));
    return ZF_OK;
}

static enum zf_status put_piece(struct writer *w, const struct zf_state_piece *x, struct zf_err *e)
{
    const uint64_t shape[2] = {x->rows, x->cols};
    const struct zf_shared_piece *shared = w->s->sharing ? zf_sharing_find(w->s->sharing, x->name) : NULL;
    if (shared) return put_shared(w, x, shared, e);
    ZF_TRY(make_room(x->cols * zf_state_type_bytes(x->type), &w->buffer, e));
    ZF_TRY(zf_ckpt_begin(w->file, x->name, type_of(x->type), 2, shape, e));
    return put_own(w, x, 0, x->rows, e);
}

static bool has_piece(const struct zf_state *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->list[i].name, name)) return true;
    return false;
}

/* What other ranks alone have rows of. */
static enum zf_status put_others(struct writer *w, struct zf_err *e)
{
    const struct zf_sharing *s = w->s->sharing;
    for (size_t i = 0; s && i < s->count; i++)
        if (!has_piece(&w->s->state, s->list[i].name)) ZF_TRY(put_shared(w, NULL, &s->list[i], e));
    return ZF_OK;
}

/* Training waits: as they are listed. */
static enum zf_status put_list(struct writer *w, struct zf_err *e)
{
    struct zf_state *s = &w->s->state;
    for (size_t i = 0; i < s->count; i++) ZF_TRY(put_piece(w, &s->list[i], e));
    return put_others(w, e);
}

/* Training goes on: in the order in which the CPU will come to them. */
static enum zf_status put_parts(struct writer *w, struct zf_err *e)
{
    struct zf_state *s = &w->s->state;
    enum zf_status failed = ZF_OK;
    for (struct zf_state_part *x; !failed && (x = zf_state_next(s));) {
        for (size_t i = 0; !failed && i < x->pieces; i++) failed = put_piece(w, &x->first[i], e);
        zf_state_done(s, x);
    }
    return failed;
}

/* As many bytes as the last one and an eighth, or all that the first one could take: a disk that is nearly full is told before minutes of
 * compressing. */
static enum zf_status check_disk(const struct zf_saving *s, struct zf_err *e)
{
    uint64_t wanted = s->likely + s->likely / 8;
    for (size_t i = 0; i < s->state.count && !s->likely; i++)
        wanted += (uint64_t)s->state.list[i].rows * s->state.list[i].cols * zf_state_type_bytes(s->state.list[i].type);
    for (size_t i = 0; s->sharing && i < s->sharing->count && !s->likely; i++)
        wanted += (uint64_t)s->sharing->list[i].rows * s->sharing->list[i].cols * zf_state_type_bytes(s->sharing->list[i].type);
    char need[32], have[32];
    uint64_t room = zf_file_room(s->path);
    if (wanted <= room) return ZF_OK;
    return zf_fail(e, ZF_IO, s->path, "about %s are needed, and %s are free there; make room, or lower `keep`",
                   zf_bytes_text(wanted, need, sizeof need), zf_bytes_text(room, have, sizeof have));
}

static enum zf_status write_file(struct writer *w, struct zf_err *e)
{
    struct zf_saving *s = w->s;
    ZF_TRY(check_disk(s, e));
    ZF_TRY(zf_pool_new(&w->pool, s->threads, e));
    struct zf_ckpt_options o = {.level = s->level, .pool = w->pool, .finite = true, .drop_pages = true, .counts = &s->counts};
    ZF_TRY(zf_ckpt_create(&w->file, s->path, &o, e));
    enum zf_status failed = s->state.gate ? put_parts(w, e) : put_list(w, e);
    if (failed) {
        zf_ckpt_abandon(w->file);
        return failed;
    }
    json_t *info = s->info;
    s->info = NULL;
    return zf_ckpt_finish(w->file, info, e);
}

json_t *zf_saving_entry(const struct zf_saving *s)
{
    return json_pack("{s:s s:I s:s s:I s:I s:f s:f}", "type", "checkpoint", "step", (json_int_t)s->step, "file", s->path, "bytes",
                     (json_int_t)s->counts.stored, "raw_bytes", (json_int_t)s->counts.raw, "stall_ms", 1e3 * s->stalled, "seconds",
                     s->ended - s->began);
}

void zf_saving_run(struct zf_saving *s)
{
    struct writer w = {.s = s};
    bool copy = s->state.gate != NULL;
    s->status = copy ? zf_state_ready(&s->state, &s->err) : ZF_OK;
    if (!s->status) s->status = write_file(&w, &s->err);
    if (copy) s->stalled += zf_state_waited(&s->state);
    if (copy) zf_state_over(&s->state);
    zf_pool_free(w.pool);
    free(w.buffer.bytes);
    s->ended = zf_clock();
    if (!copy) s->stalled = s->ended - s->began;
    if (!s->status) {
        s->unwritten = zf_journal_append(s->journal, zf_saving_entry(s), &s->err) != ZF_OK;
        zf_saves_keep(s->run, s->keep, s->keep_weights);
    }
    s->done = true;
}

static void *write_in_background(void *arg)
{
    enum { NICE = 10 };
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread and those that it starts; a wish */
    zf_saving_run(arg);
    return NULL;
}

enum zf_status zf_saving_start(struct zf_saving *s, struct zf_err *e)
{
    if (zf_thread_start(&s->thread, write_in_background, s)) return zf_fail(e, ZF_MEMORY, s->path, "the system refused a thread for it");
    pthread_setname_np(s->thread, "checkpoint");
    return ZF_OK;
}

void zf_saving_free(struct zf_saving *s)
{
    if (!s) return;
    zf_state_close(&s->state);
    json_decref(s->info);
    free(s->run);
    free(s->path);
    free(s);
}

/* ---- and back ---- */

struct reader {
    const struct zf_ckpt *file;
    struct zf_pool *pool;
    struct buffer buffer;
    enum zf_status (*between)(void *ctx, struct zf_err *e);
    void *ctx;
};

static enum zf_status find_tensor(struct reader *r, const char *name, size_t cols, enum zf_state_type type,
                                  const struct zf_ckpt_tensor **out, struct zf_err *e)
{
    const struct zf_ckpt *c = r->file;
    const struct zf_ckpt_tensor *t = *out = zf_ckpt_find(c, name);
    if (!t) return zf_fail(e, ZF_FORMAT, c->path, "%s is missing; the checkpoint is not of this run", name);
    if (t->rank == 2 && t->shape[1] == cols && type_of(type) == t->type) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, c->path, "%s has another shape or type than this run's, which has rows of %zu", name, cols);
}

/* Lists of channels, which say whose rows are whose. */
static enum zf_status read_list(void *reader, const char *name, uint32_t *out, size_t room, size_t *count, struct zf_err *e)
{
    struct reader *r = reader;
    const struct zf_ckpt_tensor *t;
    ZF_TRY(find_tensor(r, name, 1, ZF_STATE_U32, &t, e));
    *count = t->shape[0] < room ? (size_t)t->shape[0] : room;
    return zf_ckpt_read(r->file, t, out, 0, *count * sizeof *out, r->pool, e);
}

/* Of the rows in the file, which are those of all ranks, this rank's. */
static enum zf_status get_own(struct reader *r, struct zf_state *s, const struct zf_state_piece *x, const struct zf_ckpt_tensor *t,
                              struct zf_err *e)
{
    const struct zf_state_part *part = &s->part[x->part];
    const char *what = strrchr(x->name, ':');
    bool staged = what && (!strcmp(what, ":staged") || !strcmp(what, ":staging") || !strcmp(what, ":next_channel"));
    size_t n, rows = (size_t)t->shape[0], skip = staged ? 0 : part->device_rows;
    char name[256];
    struct buffer *b = &r->buffer;
    snprintf(name, sizeof name, "%.180s:%s", part->param->name, staged ? "staged" : "order");
    uint32_t *list = calloc(2 * (skip + rows) + 1, sizeof *list), *place = list ? list + skip + rows : NULL;
    enum zf_status failed = list ? read_list(r, name, list, skip + rows, &n, e) : zf_fail_memory(e, x->name);
    if (!failed && n != skip + rows) failed = zf_fail(e, ZF_FORMAT, r->file->path, "%s has %zu rows, and %s %zu", x->name, rows, name, n);
    if (!failed) zf_state_places(s, x, list + skip, rows, place);
    for (size_t first = 0, some; !failed && first < rows; first += some) {
        some = rows - first < b->rows ? rows - first : b->rows;
        if (r->between) failed = r->between(r->ctx, e);
        if (!failed) failed = zf_ckpt_read(r->file, t, b->bytes, first * b->row, some * b->row, r->pool, e);
        for (size_t i = 0; !failed && i < some; i++)
            if (place[first + i] != UINT32_MAX) failed = zf_state_write(s, x, place[first + i], 1, (char *)b->bytes + i * b->row, e);
    }
    free(list);
    return failed;
}

/* Rows first .. first + n of weights, of which the masters are wherever they are, and in the file. */
static enum zf_status get_visible(struct reader *r, struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n,
                                  struct zf_err *e)
{
    const struct zf_ckpt_tensor *t;
    size_t row = x->cols * sizeof(float);
    char name[256];
    snprintf(name, sizeof name, "%.180s:master", s->part[x->part].param->name);
    ZF_TRY(find_tensor(r, name, x->cols, ZF_STATE_F32, &t, e));
    float *masters = malloc(n * row);
    enum zf_status failed = masters ? zf_ckpt_read(r->file, t, masters, first * row, n * row, r->pool, e) : zf_fail_memory(e, x->name);
    if (!failed) failed = zf_state_write_visible(s, x, first, n, r->buffer.bytes, masters, e);
    free(masters);
    return failed;
}

static enum zf_status get_piece(struct reader *r, struct zf_state *s, const struct zf_state_piece *x, struct zf_err *e)
{
    struct buffer *b = &r->buffer;
    const struct zf_ckpt_tensor *t;
    bool shared = x->split != ZF_STATE_WHOLE;
    ZF_TRY(find_tensor(r, x->name, x->cols, x->type, &t, e));
    ZF_TRY(make_room(x->cols * zf_state_type_bytes(x->type), b, e));
    if (x->split == ZF_STATE_ORDER) return ZF_OK; /* its form has it */
    if (x->split == ZF_STATE_BY_RANK) return get_own(r, s, x, t, e);
    if (t->shape[0] != x->rows)
        return zf_fail(e, ZF_FORMAT, r->file->path, "%s has another shape or type than this run's, which is [%zu, %zu]", x->name, x->rows,
                       x->cols);
    for (size_t first = 0; first < x->rows; first += b->rows) {
        size_t n = x->rows - first < b->rows ? x->rows - first : b->rows;
        if (r->between) ZF_TRY(r->between(r->ctx, e));
        ZF_TRY(zf_ckpt_read(r->file, t, b->bytes, first * b->row, n * b->row, r->pool, e));
        ZF_TRY(shared && x->place == ZF_STATE_VISIBLE ? get_visible(r, s, x, first, n, e) : zf_state_write(s, x, first, n, b->bytes, e));
    }
    return ZF_OK;
}

static enum zf_status shape(struct reader *r, struct zf_pipeline *p, struct zf_err *e)
{
    const struct zf_ckpt *c = r->file;
    char what[512];
    enum zf_status s = zf_state_shape(p, json_object_get(c->info, "pipeline"), read_list, r, e);
    if (s != ZF_FORMAT) return s;
    snprintf(what, sizeof what, "%.200s: %.300s", e->where, e->message);
    return zf_fail(e, s, c->path, "%s", what);
}

enum zf_status zf_saved_state(const struct zf_ckpt *c, struct zf_pipeline *p, enum zf_status (*between)(void *ctx, struct zf_err *e),
                              void *ctx, struct zf_err *e)
{
    struct zf_state state;
    struct zf_device_info device;
    struct reader r = {.file = c, .between = between, .ctx = ctx};
    if (zf_saves_is_weights(c->info))
        return zf_fail(e, ZF_DIFFERENT, c->path, "it has its weights only, as keep_weights asks for; what is pending is not among them");
    p->device->type->info(p->device, &device);
    ZF_TRY(zf_pool_new(&r.pool, device.threads, e));
    enum zf_status s = shape(&r, p, e);
    if (!s) s = zf_state_open(&state, p, e);
    if (s) {
        zf_pool_free(r.pool);
        return s;
    }
    for (size_t i = 0; !s && i < state.count; i++) s = get_piece(&r, &state, &state.list[i], e);
    free(r.buffer.bytes);
    zf_pool_free(r.pool);
    zf_state_close(&state);
    return s ? s : zf_state_settled(p, e);
}

enum zf_status zf_saved_master(const struct zf_ckpt_tensor **out, const struct zf_ckpt *c, const struct zf_param *p, struct zf_err *e)
{
    char name[ZF_CKPT_NAME + 1];
    snprintf(name, sizeof name, "%.180s:master", p->name);
    const struct zf_ckpt_tensor *t = *out = zf_ckpt_find(c, name);
    if (t && t->type == ZF_CKPT_F32 && t->rank == 2 && t->shape[0] == p->rows && t->shape[1] == p->cols) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, c->path, "%s is %s; by the model's config.json it is f32 [%zu, %zu]: the checkpoint is of another model",
                   name, t ? "of another shape or type" : "missing", p->rows, p->cols);
}

uint32_t zf_saved_interval(const struct zf_ckpt *c, const struct zf_options *o)
{
    uint64_t interval = zf_json_count(json_object_get(c->info, "trainer"), "update_interval");
    return interval && interval < 1000000 ? (uint32_t)interval : zf_policy_first_interval(o);
}
