/* See watch.h. */
#include "core/run/watch.h"
#include "core/run/trainer.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/session/session.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROOM = 1 << 15, /* spans that a lane keeps between two takes */
    PIECES = 256
}; /* of a lane in a `lanes` line: closer ones are one */

static const double lanes_every = 1 / 25.0; /* seconds between two `lanes` lines, at least */

/* Spans of a step that are close together as one: a screen has no more columns. */
struct zf_live {
    struct pieces {
        size_t busy, wait;
        double at[2][PIECES][2];
    } lane[ZF_LANES];
    uint64_t lost;
};

static void warn(struct zf_trainer *t, const struct zf_err *e)
{
    zf_record_text(t, "warning", "%s: %s", e->where, e->message);
}

/* ---- what lanes keep ---- */

static void unwatch(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_device *d;
    struct zf_err ignored;
    for (int i = 0; w->spans && i < zf_pipeline_lanes(&t->pipeline); i++) {
        struct zf_lane *l = zf_pipeline_lane(&t->pipeline, (enum zf_lane_id)i, &d);
        d->type->lane_watch(l, 0, &ignored);
    }
    free(w->spans);
    w->spans = NULL;
}

static enum zf_status watch(struct zf_trainer *t, struct zf_err *e)
{
    struct zf_watch *w = &t->watch;
    struct zf_device *d;
    if (w->spans) return ZF_OK;
    w->spans = malloc(ROOM * sizeof *w->spans);
    if (!w->spans) return zf_fail_memory(e, "spans of time");
    for (int i = 0; i < zf_pipeline_lanes(&t->pipeline); i++) {
        struct zf_lane *l = zf_pipeline_lane(&t->pipeline, (enum zf_lane_id)i, &d);
        enum zf_status s = d->type->lane_watch(l, ROOM, e);
        if (!s) continue;
        unwatch(t);
        return s;
    }
    return ZF_OK;
}

static void piece(struct pieces *p, const struct zf_span *s, double close)
{
    size_t *n = s->wait ? &p->wait : &p->busy;
    double(*at)[2] = p->at[s->wait];
    if (*n && (s->start - at[*n - 1][1] < close || *n == PIECES))
        at[*n - 1][1] = s->end;
    else {
        at[*n][0] = s->start;
        at[(*n)++][1] = s->end;
    }
}

/* To whoever wants them. What began after the last step of a trace is not of it. */
static void hand_out(struct zf_watch *w, int lane, const struct zf_span *s, size_t n, double close)
{
    for (size_t i = 0; i < n; i++) {
        if (w->trace.file && !w->trace.cut && (!w->trace.over || s[i].start < w->trace.over))
            zf_trace_span(w->trace.file, lane + 1, s[i].op, zf_phase_name(s[i].phase), s[i].wait, s[i].start, s[i].end, s[i].work);
        if (w->showing) piece(&w->live->lane[lane], &s[i], close);
    }
}

static void take(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_device *d;
    uint64_t lost;
    double close = (w->ended > w->began ? w->ended - w->began : 0.1) / PIECES; /* by the last step */
    for (int i = 0; w->spans && i < zf_pipeline_lanes(&t->pipeline); i++) {
        struct zf_lane *l = zf_pipeline_lane(&t->pipeline, (enum zf_lane_id)i, &d);
        size_t n = d->type->lane_take(l, w->spans, ROOM, &lost);
        hand_out(w, i, w->spans, n, close);
        if (w->trace.file && !w->trace.over) w->trace.lost += lost;
        if (w->showing) w->live->lost += lost;
        size_t most = (size_t)t->o->trace_bytes;
        if (w->trace.file && most && zf_trace_size(w->trace.file) >= most) w->trace.cut = true;
    }
}

void zf_watch_take(struct zf_trainer *t)
{
    if (t->watch.trace.file || t->watch.showing) take(t);
}

/* ---- traces ---- */

static void trace_close(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_err e;
    char cut[96] = "", size[32];
    if (!w->trace.file) return;
    if (w->trace.cut)
        snprintf(cut, sizeof cut, "; it was cut in the last of them, at %s (trace_bytes)",
                 zf_bytes_text(zf_trace_size(w->trace.file), size, sizeof size));
    if (zf_trace_close(w->trace.file, &e))
        warn(t, &e);
    else
        zf_record_text(t, "note", "steps %" PRIu64 " to %" PRIu64 " traced: %s%s%s", w->trace.first, w->trace.last, w->trace.path, cut,
                       w->trace.lost ? " (with gaps: lanes did more than they can keep)" : "");
    w->trace.file = NULL;
    w->trace.cut = false;
    w->trace.over = 0;
    free(w->trace.path);
    w->trace.path = NULL;
}

static enum zf_status trace_open(struct zf_trainer *t, uint64_t step, struct zf_err *e)
{
    struct zf_watch *w = &t->watch;
    char *name = NULL, *folder = zf_path_join(t->run, "traces");
    w->trace.path = NULL;
    if (w->trace.last > t->setup->steps) w->trace.last = t->setup->steps;
    if (folder && asprintf(&name, "steps-%08" PRIu64 "-%08" PRIu64 ".json", step, w->trace.last) > 0)
        w->trace.path = zf_path_join(folder, name);
    enum zf_status s = w->trace.path ? zf_directory_make(folder, 0777, e) : zf_fail_memory(e, "a path");
    free(name);
    free(folder);
    if (!s) s = watch(t, e);
    if (!s) take(t); /* what lanes kept for clients is not of it */
    if (!s) s = zf_trace_open(&w->trace.file, w->trace.path, t->started, e);
    if (s) {
        free(w->trace.path);
        w->trace.path = NULL;
        return s;
    }
    w->trace.first = step;
    w->trace.lost = 0;
    for (int i = 0; i < zf_pipeline_lanes(&t->pipeline); i++) zf_trace_track(w->trace.file, i + 1, zf_lane_name((enum zf_lane_id)i));
    return ZF_OK;
}

enum zf_status zf_watch_trace(struct zf_trainer *t, uint64_t steps, char *text, size_t room, struct zf_err *e)
{
    struct zf_watch *w = &t->watch;
    if (w->trace.file || w->trace.wanted)
        return zf_fail(e, ZF_DIFFERENT, "trace", "steps %" PRIu64 " to %" PRIu64 " are being traced; wait for their end",
                       w->trace.wanted ? w->trace.wanted : w->trace.first, w->trace.last);
    if (t->step >= t->setup->steps) return zf_fail(e, ZF_DIFFERENT, "trace", "no step follows");
    if (!steps) return zf_fail(e, ZF_USAGE, "trace", "0 steps; at least 1 is expected");
    uint64_t left = t->setup->steps - t->step;
    w->trace.wanted = t->step + 1;
    w->trace.last = t->step + (steps < left ? steps : left);
    char size[32];
    snprintf(text, room, "steps %" PRIu64 " to %" PRIu64 " will be traced into %s/traces%s%s", w->trace.wanted, w->trace.last, t->run,
             t->o->trace_bytes ? ", until the file has " : "",
             t->o->trace_bytes ? zf_bytes_text((size_t)t->o->trace_bytes, size, sizeof size) : "");
    return ZF_OK;
}

void zf_watch_score(struct zf_trainer *t)
{
    t->watch.score_asked = true;
}

/* Those who left, and this one. */
static void forget_watchers(struct zf_trainer *t, uint64_t client)
{
    struct zf_watch *w = &t->watch;
    size_t kept = 0;
    for (size_t i = 0; i < w->watchers; i++)
        if (w->watcher[i].client != client && zf_session_has_client(t->session, w->watcher[i].client)) w->watcher[kept++] = w->watcher[i];
    w->watchers = kept;
}

size_t zf_watch_matrices(struct zf_trainer *t, size_t *out)
{
    struct zf_watch *w = &t->watch;
    size_t n = 0, k;
    forget_watchers(t, 0);
    for (size_t i = 0; i < w->watchers; i++) {
        for (k = 0; k < n && out[k] != w->watcher[i].matrix; k++) continue;
        if (k == n) out[n++] = w->watcher[i].matrix;
    }
    return n;
}

enum zf_status zf_watch_matrix(struct zf_trainer *t, uint64_t client, const char *name, char *text, size_t room, struct zf_err *e)
{
    const struct zf_pipeline *p = &t->pipeline;
    const char **names = malloc((p->matrices + 1) * sizeof *names), *near;
    size_t i = 0;
    if (!names) return zf_fail_memory(e, "a list of names");
    while (i < p->matrices && strcmp(p->matrix[i].param->name, name) != 0) i++;
    for (size_t k = 0; k < p->matrices; k++) names[k] = p->matrix[k].param->name;
    near = i < p->matrices || !strcmp(name, "none") ? NULL : zf_nearest(name, names, p->matrices);
    free(names);
    if (i == p->matrices && strcmp(name, "none") != 0)
        return zf_fail(e, ZF_USAGE, name, "there is no such matrix%s%s%s", near ? "; did you mean " : "", near ? near : "",
                       near ? "?" : "; a name as in `select` lines is expected");
    forget_watchers(t, client);
    snprintf(text, room, "this client watches no matrix");
    if (i == p->matrices) return ZF_OK;
    if (t->watch.watchers == ZF_WATCHERS) return zf_fail(e, ZF_DIFFERENT, name, "%d clients watch already", ZF_WATCHERS);
    t->watch.watcher[t->watch.watchers++] = (struct zf_watcher){client, i};
    snprintf(text, room,
             "scores of %s, with every `score` line (now, every score_every steps, at selections), as long as this client stays", name);
    return ZF_OK;
}

/* ---- clients ---- */

/* Since the start, to a microsecond. */
static double moment(const struct zf_trainer *t, double at)
{
    return round(1e6 * (at - t->started)) / 1e6;
}

static json_t *pieces_json(const struct zf_trainer *t, double (*at)[2], size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_pack("[f,f]", moment(t, at[i][0]), moment(t, at[i][1])));
    return list;
}

static void publish(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    json_t *lanes = json_array();
    for (int i = 0; i < zf_pipeline_lanes(&t->pipeline); i++) {
        struct pieces *p = &w->live->lane[i];
        json_array_append_new(lanes, json_pack("{s:s s:o s:o}", "name", zf_lane_name((enum zf_lane_id)i), "busy",
                                               pieces_json(t, p->at[0], p->busy), "wait", pieces_json(t, p->at[1], p->wait)));
    }
    json_t *o = json_pack("{s:s s:I s:f s:f s:o s:I}", "type", "lanes", "step", (json_int_t)t->step, "from", moment(t, w->began), "to",
                          moment(t, w->ended), "lanes", lanes, "lost", (json_int_t)w->live->lost);
    size_t size;
    char *text = zf_jsonl_text(o, &size);
    if (text) w->publish(w->ctx, text, size);
    free(text);
    json_decref(o);
}

/* ---- a step ---- */

void zf_watch_begin(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_err e;
    uint64_t step = t->step + 1;
    char mark[40];
    if (w->trace.wanted && step >= w->trace.wanted) {
        w->trace.wanted = 0;
        if (step <= w->trace.last && !w->trace.file && trace_open(t, step, &e)) warn(t, &e);
    }
    if (w->listeners && w->publish && !w->live && !watch(t, &e)) w->live = malloc(sizeof *w->live);
    struct zf_pipeline_counts counted = w->before.counts;
    zf_pipeline_sample(&t->pipeline, &w->before);
    w->before.counts = counted; /* what was done since the last step, for a validation, is counted with this one */
    w->began = zf_clock();
    bool show = w->live && w->publish && w->began - w->shown >= lanes_every;
    if (show) {
        take(t); /* what lanes kept of the steps between is nobody's */
        memset(w->live, 0, sizeof *w->live);
        w->shown = w->began;
    }
    w->showing = show;
    snprintf(mark, sizeof mark, "step %" PRIu64, step);
    if (w->trace.file && !w->trace.over) zf_trace_mark(w->trace.file, mark, w->began);
}

/* The lanes go on with the step's work after it: a trace is complete a step later. */
void zf_watch_end(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_pipeline_sample now;
    double matrix_bytes;
    zf_pipeline_sample(&t->pipeline, &now);
    w->step = zf_pipeline_between(&w->before, &now);
    w->before.counts = now.counts;
    w->ended = zf_clock();
    struct zf_bus bus = zf_pipeline_bus_formula(&t->pipeline, &matrix_bytes);
    w->sum.steps++;
    w->sum.seconds += w->ended - w->began;
    w->sum.stalled += w->step.stalled;
    w->sum.d2h_bytes += w->step.counts.d2h_bytes;
    w->sum.h2d_bytes += w->step.counts.h2d_bytes;
    w->sum.selections += w->step.counts.selections;
    w->sum.formula_down += bus.down;
    w->sum.formula_up += bus.up;
    if (!w->spans) return;
    zf_watch_take(t);
    if (w->showing) publish(t);
    w->showing = false;
    if (!w->listeners) {
        free(w->live);
        w->live = NULL;
    }
    if (w->trace.over) trace_close(t);
    if (w->trace.cut && !w->trace.over && w->trace.last > t->step) {
        w->trace.last = t->step;
        zf_trace_mark(w->trace.file, "cut here: trace_bytes", w->ended);
    }
    if (w->trace.file && t->step >= w->trace.last) w->trace.over = w->ended;
    if (!w->trace.file && !w->live) unwatch(t);
}

/* ---- from start to end ---- */

void zf_watch_open(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    struct zf_err e;
    if (t->o->tensorboard) {
        char *folder = zf_path_join(t->run, "tensorboard");
        enum zf_status s = folder ? zf_tensorboard_open(&w->tensorboard, folder, t->step + 1, &e) : zf_fail_memory(&e, "a path");
        if (s) warn(t, &e);
        free(folder);
    }
    if (zf_options_trace(t->o->trace_steps, &w->trace.wanted, &w->trace.last) && w->trace.last <= t->step) w->trace.wanted = 0;
}

void zf_watch_stop(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    if (!w->trace.file) return;
    zf_watch_take(t);
    if (w->trace.last > t->step) w->trace.last = t->step;
    trace_close(t);
}

void zf_watch_leave(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    zf_watch_stop(t);
    unwatch(t);
    free(w->live);
    w->live = NULL;
    w->showing = false;
    w->trace.wanted = 0;
    w->before = w->step = (struct zf_pipeline_sample){0};
    zf_tensorboard_close(w->tensorboard);
    w->tensorboard = NULL;
}

void zf_watch_close(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    zf_trace_discard(w->trace.file);
    free(w->trace.path);
    unwatch(t);
    free(w->live);
    free(w->groups);
    zf_tensorboard_close(w->tensorboard);
    *w = (struct zf_watch){0};
}
