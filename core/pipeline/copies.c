/* The state of a moment while training goes on: see state.h. What every step alters is copied by the lanes, in their order, at once; the
 * gate stands between the cpu lane and the thread that writes what was not. */
#include "core/base/clock.h"
#include "core/pipeline/state_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is copied ---- */

/* By whom. WEIGHTS, with what moves them, is what a forward may alter first; HALF is altered when the next norm is known. */
enum by { BY_WEIGHTS, BY_HALF, BY_CPU, BY_ISSUER };

struct copier {
    struct zf_state *s;
    char *memory; /* NULL: it is only counted */
    size_t at;
    size_t room[BY_ISSUER]; /* of s->copies */
};

/* Room for a block of the copy; NULL: it is only counted. */
static char *place(struct copier *c, size_t bytes)
{
    enum { ALIGNMENT = 64 };
    char *to = c->memory ? c->memory + c->at : NULL;
    c->at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return to;
}

static enum zf_status later(struct copier *c, enum by by, void *to, const void *from, size_t bytes, struct zf_err *e)
{
    struct zf_state_copies *list = &c->s->copies[by];
    if (list->count == c->room[by]) {
        size_t room = c->room[by] ? 2 * c->room[by] : 512;
        struct zf_copy *more = realloc(list->list, room * sizeof *more);
        if (!more) return zf_fail_memory(e, "the list of what is saved");
        list->list = more;
        c->room[by] = room;
    }
    list->list[list->count++] = (struct zf_copy){to, from, bytes};
    return ZF_OK;
}

/* *from, which then is its copy. */
static enum zf_status take(struct copier *c, enum by by, void *from, size_t bytes, struct zf_err *e)
{
    void *was;
    char *to = place(c, bytes);
    memcpy(&was, from, sizeof was);
    if (!to || !bytes) return ZF_OK;
    if (by == BY_ISSUER)
        memcpy(to, was, bytes);
    else
        ZF_TRY(later(c, by, to, was, bytes, e));
    memcpy(from, &to, sizeof to);
    return ZF_OK;
}

static enum zf_status take_part(struct copier *c, struct zf_state_part *x, struct zf_err *e)
{
    const struct zf_param *q = x->param;
    size_t elements = q->rows * q->cols;
    bool f32 = c->s->pipeline->model->dtype == ZF_F32;
    ZF_TRY(take(c, BY_WEIGHTS, &x->weights, elements * zf_dtype_size(c->s->pipeline->model->dtype), e));
    if (!x->matrix && f32 && c->memory) x->block = (float *)(void *)x->weights;
    if (!x->matrix) return f32 ? ZF_OK : take(c, BY_HALF, &x->block, elements * sizeof(float), e);
    ZF_TRY(take(c, BY_ISSUER, &x->order, x->channels * sizeof *x->order, e));
    for (int k = 0; k < ZF_ARRAYS; k++) {
        struct zf_array *a = &x->device[k];
        if (!a->by_channel)
            ZF_TRY(take(c, BY_HALF, &a->base, x->device_rows * a->cols * sizeof *a->base, e));
        else if (c->memory)
            a->base = (float *)(void *)x->weights;
    }
    return ZF_OK;
}

/* Rows that lie in chunks, one after the other. */
static enum zf_status take_chunks(struct copier *c, struct zf_state_piece *x, struct zf_err *e)
{
    const struct zf_rows_memory *m = &x->chunks;
    size_t row = x->cols * zf_state_type_bytes(x->type);
    char *to = place(c, x->rows * row);
    for (size_t r = 0; to && r < x->rows; r += m->chunk_rows) {
        size_t some = x->rows - r < m->chunk_rows ? x->rows - r : m->chunk_rows;
        ZF_TRY(later(c, BY_CPU, to + r * row, m->chunk[r / m->chunk_rows], some * row, e));
    }
    if (!to) return ZF_OK;
    x->memory = to;
    x->place = ZF_STATE_HOST;
    return ZF_OK;
}

/* The list of a slot's chunks, which is freed when its window is visible. */
static enum zf_status take_list(struct zf_state *s, struct zf_state_piece *x, struct zf_err *e)
{
    void **list = malloc(x->chunks.count * sizeof *list);
    if (!list) return zf_fail_memory(e, "the list of what is saved");
    memcpy(list, x->chunks.chunk, x->chunks.count * sizeof *list);
    s->lists[s->list_count++] = list;
    x->chunks.chunk = list;
    return ZF_OK;
}

static enum zf_status take_piece(struct copier *c, struct zf_state_piece *x, struct zf_err *e)
{
    struct zf_state_part *part = &c->s->part[x->part];
    size_t bytes = x->rows * x->cols * zf_state_type_bytes(x->type);
    if (x->place == ZF_STATE_CHUNKED) return x->cpu_own ? take_chunks(c, x, e) : c->memory ? take_list(c->s, x, e) : ZF_OK;
    if (x->place != ZF_STATE_DEVICE && x->place != ZF_STATE_HOST) return ZF_OK; /* made of the part's arrays */
    if (part->matrix && x == part->first) {
        if (c->memory) x->memory = (void *)(uintptr_t)part->order;
        return ZF_OK;
    }
    enum by by = x->forward_own ? BY_WEIGHTS : x->place == ZF_STATE_DEVICE ? BY_HALF : x->cpu_own ? BY_CPU : BY_ISSUER;
    ZF_TRY(take(c, by, &x->memory, bytes, e));
    if (c->memory) x->place = ZF_STATE_HOST;
    return ZF_OK;
}

static enum zf_status take_all(struct copier *c, struct zf_err *e)
{
    for (size_t i = 0; i < c->s->parts; i++) ZF_TRY(take_part(c, &c->s->part[i], e));
    for (size_t i = 0; i < c->s->count; i++) ZF_TRY(take_piece(c, &c->s->list[i], e));
    return ZF_OK;
}

/* Some megabytes at a time, so that compute comes in between; but not so many times that the lane is full. */
static enum zf_status issue(struct zf_state *s, enum by by, struct zf_device *d, struct zf_lane *l, struct zf_err *e)
{
    enum { SOME = 16 << 20, TIMES = 64 };
    const struct zf_state_copies *all = &s->copies[by];
    size_t bytes = 0;
    for (size_t i = 0; i < all->count; i++) bytes += all->list[i].bytes;
    size_t most = bytes / TIMES > SOME ? bytes / TIMES : SOME;
    for (size_t first = 0, n; first < all->count; first += n) {
        for (n = bytes = 0; first + n < all->count && bytes < most; n++) bytes += all->list[first + n].bytes;
        enum zf_status failed = d->type->copy_list(l, all->list + first, n);
        if (failed) return zf_lane_refused(d, l, failed, "a copy", e);
    }
    return zf_pipeline_record(d, l, s->gate->copied[by], e);
}

/* The d2h lane copies what is the device's, while the next forward begins already: compute waits for it where it alters something
 * (zf_pipeline_hold). Staging is given back when it has been shown, which waits for `served`: from here on that is behind its copy. */
static enum zf_status issue_all(struct zf_state *s, struct zf_err *e)
{
    struct zf_pipeline *p = s->pipeline;
    struct zf_state_gate *g = s->gate;
    ZF_TRY(p->device->type->event_new(p->device, &g->place, e));
    ZF_TRY(p->device->type->event_new(p->device, &g->copied[BY_WEIGHTS], e));
    ZF_TRY(p->device->type->event_new(p->device, &g->copied[BY_HALF], e));
    ZF_TRY(p->host->type->event_new(p->host, &g->copied[BY_CPU], e));
    ZF_TRY(zf_pipeline_record(p->device, p->compute, g->place, e));
    ZF_TRY(zf_pipeline_wait(p->device, p->d2h, g->place, e));
    ZF_TRY(issue(s, BY_WEIGHTS, p->device, p->d2h, e));
    ZF_TRY(issue(s, BY_HALF, p->device, p->d2h, e));
    ZF_TRY(issue(s, BY_CPU, p->host, p->cpu, e));
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].staging.chunk && p->matrix[i].staged_rows) ZF_TRY(zf_pipeline_record(p->host, p->cpu, p->matrix[i].served, e));
    return ZF_OK;
}

static enum zf_status make_room(struct zf_pipeline *p, struct zf_state_memory *m, size_t bytes, size_t most, struct zf_err *e)
{
    if (bytes > most)
        return zf_fail(e, ZF_MEMORY, NULL, "%zu bytes are needed for a copy of what training alters, and %zu are left", bytes, most);
    if (bytes <= m->size) return ZF_OK;
    if (m->held) return zf_fail(e, ZF_BUSY, NULL, "memory for %zu bytes of copies is held; %zu are needed", m->size, bytes);
    p->device->type->free(p->device, m->bytes);
    *m = (struct zf_state_memory){0};
    ZF_TRY(p->device->type->alloc(p->device, ZF_MEM_PINNED, ZF_TAG_COPIES, bytes, &m->bytes, e));
    m->size = bytes;
    return ZF_OK;
}

static enum zf_status copy(struct zf_state *s, struct zf_state_memory *m, size_t most, struct zf_err *e)
{
    struct copier c = {.s = s};
    ZF_TRY(take_all(&c, e));
    size_t bytes = c.at;
    ZF_TRY(make_room(s->pipeline, m, bytes, most, e));
    if (!(s->lists = calloc(s->count, sizeof *s->lists))) return zf_fail_memory(e, "the list of what is saved");
    s->gate->spare = most - bytes;
    c = (struct copier){.s = s, .memory = m->bytes};
    ZF_TRY(take_all(&c, e));
    return issue_all(s, e);
}

static enum zf_status open_copy(struct zf_state *s, struct zf_pipeline *p, struct zf_err *e)
{
    size_t parts = p->model->params.count;
    struct zf_state_gate *gate = calloc(1, sizeof *gate + parts * sizeof *gate->part);
    *s = (struct zf_state){.pipeline = p};
    if (!gate) return zf_fail_memory(e, "the list of what is saved");
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->moved, NULL);
    enum zf_status failed = zf_state_list(s, p, gate->part, e);
    s->gate = gate;
    gate->parts = s->parts;
    for (size_t i = 0; i < s->parts; i++) gate->part[i].gate = gate;
    return failed;
}

enum zf_status zf_state_prepare(struct zf_pipeline *p, struct zf_state_memory *memory, size_t most, struct zf_err *e)
{
    struct zf_state s;
    struct copier c = {.s = &s};
    enum zf_status failed = open_copy(&s, p, e);
    if (!failed) failed = take_all(&c, e);
    if (!failed) failed = make_room(p, memory, c.at + c.at / 8, most, e); /* staging is not always as large */
    zf_state_close(&s);
    return failed;
}

enum zf_status zf_state_copy(struct zf_state *s, struct zf_pipeline *p, struct zf_state_memory *memory, size_t most, struct zf_err *e)
{
    enum zf_status failed = open_copy(s, p, e);
    if (!failed) failed = copy(s, memory, most, e);
    if (failed) { /* what was issued writes into `memory` yet; waiting takes a lane's own failure out of it, which then is what counts */
        struct zf_err why;
        enum zf_status broken = zf_pipeline_sync(p, &why);
        if (broken) *e = why;
        zf_state_close(s);
        return broken ? broken : failed;
    }
    p->gate = s->gate;
    return ZF_OK;
}

/* ---- the gates ---- */

static void began_to_wait(void *gate)
{
    ((struct zf_state_gate *)gate)->wait_began = zf_clock();
}

static void waited(void *gate)
{
    struct zf_state_gate *g = gate;
    pthread_mutex_lock(&g->lock);
    g->waited += zf_clock() - g->wait_began;
    pthread_mutex_unlock(&g->lock);
}

/* The time of each wait is taken: it is what a checkpoint costs the training. */
static enum zf_status hold(struct zf_pipeline *p, enum by by, struct zf_err *e)
{
    struct zf_state_gate *g = p->gate;
    const struct zf_device_type *t = p->device->type;
    if (p->ready != p->compute && !g->exchange_passed[by]) { /* it is not what training waits for first */
        g->exchange_passed[by] = true;
        return zf_pipeline_wait(p->device, p->ready, g->copied[by], e);
    }
    if (p->ready != p->compute || g->passed[by]) return ZF_OK;
    g->passed[by] = true;
    enum zf_status s = t->call(p->compute, began_to_wait, g);
    if (!s) s = t->event_wait(p->compute, g->copied[by]);
    if (!s && by == BY_WEIGHTS) s = t->event_wait(p->h2d, g->copied[by]); /* second moments of columns go straight to their place */
    if (!s) s = t->call(p->compute, waited, g);
    return s ? zf_lane_refused(p->device, p->compute, s, "a checkpoint", e) : ZF_OK;
}

enum zf_status zf_pipeline_hold(struct zf_pipeline *p, bool half, struct zf_err *e)
{
    if (!p->gate) return ZF_OK;
    ZF_TRY(hold(p, BY_WEIGHTS, e));
    return half ? hold(p, BY_HALF, e) : ZF_OK;
}

static size_t kept_bytes(const struct zf_state_part *x)
{
    size_t bytes = 0;
    for (int k = 0; k < ZF_ARRAYS; k++) bytes += x->cpu_rows * x->cpu[k].cols * sizeof(float);
    for (size_t i = 0; i < x->pieces; i++)
        if (x->first[i].place == ZF_STATE_CHUNKED) bytes += x->first[i].rows * x->first[i].cols * zf_state_type_bytes(x->first[i].type);
    return bytes;
}

static void keep(struct zf_state_part *x, char *to)
{
    for (int k = 0; k < ZF_ARRAYS; k++) {
        size_t bytes = x->cpu_rows * x->cpu[k].cols * sizeof(float);
        memcpy(to, x->cpu[k].base, bytes);
        x->cpu[k].base = (float *)(void *)to;
        to += bytes;
    }
    for (size_t i = 0; i < x->pieces; i++) {
        struct zf_state_piece *slot = &x->first[i];
        size_t row = slot->cols * zf_state_type_bytes(slot->type), rows = slot->chunks.chunk_rows;
        if (slot->place != ZF_STATE_CHUNKED) continue;
        slot->place = ZF_STATE_HOST;
        slot->memory = to;
        for (size_t r = 0; r < slot->rows; r += rows, to += rows * row) {
            if (slot->rows - r < rows) rows = slot->rows - r;
            memcpy(to, slot->chunks.chunk[r / slot->chunks.chunk_rows], rows * row);
        }
    }
}

/* In the cpu lane, or while it is idle: x is about to be altered. */
static void spare(void *part)
{
    struct zf_state_part *x = part;
    struct zf_state_gate *g = x->gate;
    pthread_mutex_lock(&g->lock);
    if (!g->over && x->stage == ZF_STATE_PENDING) {
        size_t bytes = kept_bytes(x);
        void *to = bytes <= g->spare ? malloc(bytes) : NULL;
        if (to) { /* under the lock: the writer has others to write, and asks for them seldom */
            keep(x, to);
            g->spare -= bytes;
            x->kept = to;
            x->kept_bytes = bytes;
            x->stage = ZF_STATE_KEPT;
        }
    }
    while (!g->over && (x->stage == ZF_STATE_PENDING || x->stage == ZF_STATE_WRITING)) {
        g->wanted = x;
        pthread_cond_wait(&g->moved, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

static struct zf_state_part *part_of(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    for (size_t i = 0; p->gate && i < p->gate->parts; i++)
        if (p->gate->part[i].matrix == x) return &p->gate->part[i];
    return NULL;
}

enum zf_status zf_pipeline_spare(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct zf_state_part *part = part_of(p, x);
    enum zf_status s = part ? p->host->type->call(p->cpu, spare, part) : ZF_OK;
    return s ? zf_lane_refused(p->host, p->cpu, s, "a checkpoint", e) : ZF_OK;
}

void zf_pipeline_spare_now(struct zf_pipeline *p, struct zf_matrix *x)
{
    struct zf_state_part *part = part_of(p, x);
    if (part) spare(part);
}

/* ---- the thread that writes ---- */

enum zf_status zf_state_ready(struct zf_state *s, struct zf_err *e)
{
    const struct zf_pipeline *p = s->pipeline;
    ZF_TRY(p->device->type->event_sync(s->gate->copied[BY_WEIGHTS], e));
    ZF_TRY(p->device->type->event_sync(s->gate->copied[BY_HALF], e));
    ZF_TRY(p->host->type->event_sync(s->gate->copied[BY_CPU], e));
    struct zf_lane *const lanes[] = {p->compute, p->d2h, p->h2d}; /* events come also behind work that failed */
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) ZF_TRY(p->device->type->lane_failed(lanes[i], e));
    return p->host->type->lane_failed(p->cpu, e);
}

/* The one that the lane waits for, or else the one that it will come to first. */
static struct zf_state_part *most_urgent(struct zf_state *s)
{
    struct zf_state_part *best = NULL;
    if (s->gate->wanted && s->gate->wanted->stage == ZF_STATE_PENDING) return s->gate->wanted;
    for (size_t i = 0; i < s->parts; i++) {
        struct zf_state_part *x = &s->part[i];
        if (x->stage == ZF_STATE_DONE) continue;
        if (!best || x->serves < best->serves) best = x;
    }
    return best;
}

struct zf_state_part *zf_state_next(struct zf_state *s)
{
    pthread_mutex_lock(&s->gate->lock);
    struct zf_state_part *x = most_urgent(s);
    if (x && x->stage == ZF_STATE_PENDING) x->stage = ZF_STATE_WRITING;
    pthread_mutex_unlock(&s->gate->lock);
    return x;
}

void zf_state_done(struct zf_state *s, struct zf_state_part *x)
{
    pthread_mutex_lock(&s->gate->lock);
    x->stage = ZF_STATE_DONE;
    free(x->kept);
    s->gate->spare += x->kept_bytes;
    x->kept = NULL;
    x->kept_bytes = 0;
    if (s->gate->wanted == x) s->gate->wanted = NULL;
    pthread_cond_broadcast(&s->gate->moved);
    pthread_mutex_unlock(&s->gate->lock);
}

double zf_state_waited(struct zf_state *s)
{
    pthread_mutex_lock(&s->gate->lock);
    double waited = s->gate->waited;
    pthread_mutex_unlock(&s->gate->lock);
    return waited;
}

void zf_state_over(struct zf_state *s)
{
    pthread_mutex_lock(&s->gate->lock);
    s->gate->over = true;
    pthread_cond_broadcast(&s->gate->moved);
    pthread_mutex_unlock(&s->gate->lock);
}

/* ---- afterwards ---- */

void zf_state_end_copy(struct zf_state *s)
{
    struct zf_pipeline *p = s->pipeline;
    const struct zf_device_type *d = p->device->type;
    struct zf_event *const events[] = {s->gate->place, s->gate->copied[BY_WEIGHTS], s->gate->copied[BY_HALF]};
    struct zf_err ignored;
    if (s->gate->copied[BY_CPU]) zf_state_ready(s, &ignored); /* the lanes read what is freed here */
    for (size_t i = 0; i < s->list_count; i++) free(s->lists[i]);
    free(s->lists);
    for (int by = 0; by < BY_ISSUER; by++) free(s->copies[by].list);
    for (size_t i = 0; i < s->gate->parts; i++) free(s->gate->part[i].kept);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) d->event_free(events[i]);
    if (s->gate->copied[BY_CPU]) p->host->type->event_free(s->gate->copied[BY_CPU]);
    if (p->gate == s->gate) p->gate = NULL;
    /* the cpu lane has done what it was given for a step when that step's windows are visible to the device */
    zf_pipeline_bury(p, s->gate, p->step + 2 + 2 * (uint64_t)p->policy.interval, &ignored);
}
