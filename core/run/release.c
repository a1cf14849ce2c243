/* See release.h. */
#include "core/run/release.h"

#include "core/base/clock.h"
#include "core/run/save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct zf_kept {
    json_t *facts;
    struct zf_policy policy; /* what the pipeline had, and it counted */
    struct zf_pipeline_counts counts;
    struct zf_state_piece *list; /* [count] */
    void **bytes;                /* [count]: all rows of each */
    size_t count;
    double seconds; /* that leaving took */
};

void zf_kept_free(struct zf_kept *k)
{
    if (!k) return;
    for (size_t i = 0; k->bytes && i < k->count; i++) free(k->bytes[i]);
    free(k->bytes);
    free(k->list);
    json_decref(k->facts);
    free(k);
}

json_t *zf_kept_facts(const struct zf_kept *k)
{
    return json_incref(k->facts);
}

enum zf_status zf_kept_state(const struct zf_kept *k, struct zf_state *out, struct zf_err *e)
{
    *out = (struct zf_state){.count = k->count, .kept = k->bytes};
    if (!(out->list = malloc(k->count * sizeof *out->list))) return zf_fail_memory(e, "the list of what is saved");
    memcpy(out->list, k->list, k->count * sizeof *out->list);
    return ZF_OK;
}

static size_t piece_bytes(const struct zf_state_piece *x)
{
    return x->rows * x->cols * zf_state_type_bytes(x->type);
}

/* Some rows at a time: a piece may be as large as a matrix, and signs of life are due. */
static enum zf_status each_part(struct zf_trainer *t, struct zf_state *s, struct zf_kept *k, bool write, struct zf_err *e)
{
    enum { SOME = 4 << 20 };
    for (size_t i = 0; i < s->count; i++) {
        const struct zf_state_piece *x = &s->list[i];
        size_t row = x->cols * zf_state_type_bytes(x->type), most = row < SOME ? SOME / row : 1;
        for (size_t first = 0; first < x->rows; first += most) {
            size_t n = x->rows - first < most ? x->rows - first : most;
            char *at = (char *)k->bytes[i] + first * row;
            ZF_TRY(write ? zf_state_write(s, x, first, n, at, e) : zf_state_read(s, x, first, n, at, e));
        }
        ZF_TRY(zf_lock_beat(t->lock, t->step, e));
    }
    return ZF_OK;
}

/* ---- leaving ---- */

static enum zf_status make_room(const struct zf_trainer *t, struct zf_kept *k, const struct zf_state *s, struct zf_err *e)
{
    struct zf_memory_limits l;
    size_t all = 0;
    char need[32], have[32];
    for (size_t i = 0; i < s->count; i++) all += piece_bytes(&s->list[i]);
    zf_memory_limits_read(&l, "/", (size_t)t->o->memory_limit);
    if (all > l.least)
        return zf_fail(e, ZF_MEMORY, NULL,
                       "the state would take %s of host memory, and %s are left (%s); `save`, then `stop`, gives the GPU back as well, and "
                       "the same run.cfg goes on from there",
                       zf_bytes_text(all, need, sizeof need), zf_bytes_text(l.least, have, sizeof have), l.least_name);
    k->count = s->count;
    k->list = malloc(s->count * sizeof *k->list);
    k->bytes = calloc(s->count, sizeof *k->bytes);
    if (!k->list || !k->bytes) return zf_fail_memory(e, "the state");
    memcpy(k->list, s->list, s->count * sizeof *k->list);
    for (size_t i = 0; i < s->count; i++)
        if (!(k->bytes[i] = malloc(piece_bytes(&s->list[i])))) return zf_fail_memory(e, "the state");
    return ZF_OK;
}

static enum zf_status keep(struct zf_trainer *t, struct zf_kept *k, struct zf_err *e)
{
    struct zf_state s;
    ZF_TRY(zf_state_open(&s, &t->pipeline, e));
    enum zf_status failed = make_room(t, k, &s, e);
    if (!failed) failed = each_part(t, &s, k, false, e);
    zf_state_close(&s);
    k->policy = t->pipeline.policy;
    k->counts = t->pipeline.counts;
    if (!failed && !(k->facts = zf_state_facts(&t->pipeline))) failed = zf_fail_memory(e, "the state");
    return failed;
}

static void close_model(struct zf_trainer *t)
{
    zf_pipeline_close(&t->pipeline);
    zf_model_close(&t->model);
    if (t->device->type->trim) t->device->type->trim(t->device);
}

enum zf_status zf_release(struct zf_trainer *t, char *text, size_t room, struct zf_err *e)
{
    struct zf_device_info before, after;
    char freed[32], left[32];
    double from = zf_clock();
    if (t->kept) {
        snprintf(text, room, "the GPU is released already");
        return ZF_OK;
    }
    if (!t->device->type->trim)
        return zf_fail(e, ZF_DIFFERENT, "--release-gpu", "this run computes on %s, which has no memory of its own", t->device->type->name);
    if (t->world)
        return zf_fail(e, ZF_DIFFERENT, "--release-gpu",
                       "a run of %d ranks keeps its GPUs while it is paused; `stop` saves and gives them back, and the same command goes on",
                       zf_world_ranks(t->world));
    zf_save_end(t);
    zf_session_doing(t->session, "releasing the GPU");
    t->device->type->info(t->device, &before);
    struct zf_kept *k = calloc(1, sizeof *k);
    enum zf_status s = k ? keep(t, k, e) : zf_fail_memory(e, "the state");
    if (s) {
        zf_kept_free(k);
        return s;
    }
    zf_watch_leave(t);
    close_model(t);
    t->kept = k;
    k->seconds = zf_clock() - from;
    t->device->type->info(t->device, &after);
    size_t more = after.free_bytes > before.free_bytes ? after.free_bytes - before.free_bytes : 0;
    snprintf(text, room,
             "%s of the GPU's memory are released in %.1f s (%s are free there now; CUDA itself keeps some for this program); `resume` "
             "takes it again, which takes about %.1f s",
             zf_bytes_text(more, freed, sizeof freed), k->seconds, zf_bytes_text(after.free_bytes, left, sizeof left), k->seconds);
    return ZF_OK;
}

/* ---- coming back ---- */

static enum zf_status restore(struct zf_trainer *t, struct zf_kept *k, struct zf_err *e)
{
    struct zf_state s;
    ZF_TRY(zf_trainer_open_blank(t, e));
    ZF_TRY(zf_pipeline_open(&t->pipeline, &t->model, t->host, NULL, &k->policy, &t->rule, e));
    ZF_TRY(zf_state_shape(&t->pipeline, k->facts, NULL, NULL, e)); /* lists are what ranks read */
    ZF_TRY(zf_state_open(&s, &t->pipeline, e));
    enum zf_status failed =
        s.count == k->count ? ZF_OK : zf_fail(e, ZF_FORMAT, NULL, "the state has %zu pieces, and had %zu", s.count, k->count);
    if (!failed) failed = each_part(t, &s, k, true, e);
    zf_state_close(&s);
    return failed ? failed : zf_state_settled(&t->pipeline, e);
}

enum zf_status zf_take_back(struct zf_trainer *t, char *text, size_t room, struct zf_err *e)
{
    double from = zf_clock();
    *text = 0;
    if (!t->kept) return ZF_OK;
    zf_session_doing(t->session, "taking the GPU again");
    enum zf_status s = restore(t, t->kept, e);
    if (s) {
        close_model(t);
        return s;
    }
    t->pipeline.counts = t->kept->counts;
    zf_kept_free(t->kept);
    t->kept = NULL;
    t->profile = (struct zf_profile){.data_cpu = t->profile.data_cpu}; /* lanes count from 0 again */
    zf_pace_forget(t);
    zf_watch_open(t);
    snprintf(text, room, "the GPU is taken again, in %.1f s", zf_clock() - from);
    return ZF_OK;
}
