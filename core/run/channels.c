/* Lines of metrics.jsonl about channels: who was selected, how scores are spread. */
#include "core/run/trainer.h"

#include "core/telemetry/jsonl.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* To so many steps of one: a large model has ten thousand of them in a line. */
static json_t *reals(const double *x, size_t n, double steps)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, zf_json_real(round(x[i] * steps) / steps));
    return list;
}

static json_t *channels_of(const struct zf_matrix *x)
{
    json_t *list = json_array();
    size_t n = x->device.rows;
    uint32_t *sorted = malloc((n ? n : 1) * sizeof *sorted);
    for (size_t i = 0; sorted && i < n; i++) sorted[i] = x->order[i];
    if (sorted) qsort(sorted, n, sizeof *sorted, ascending);
    for (size_t i = 0; sorted && i < n; i++) json_array_append_new(list, json_integer(sorted[i]));
    free(sorted);
    return list;
}

static json_t *select_json(const struct zf_trainer *t, const struct zf_matrix *x)
{
    json_t *o = json_pack("{s:s s:I}", "name", x->param->name, "selected", (json_int_t)x->device.rows);
    json_object_set_new(o, "kept", zf_json_real(x->kept_of ? (double)x->kept / (double)x->kept_of : 0));
    json_object_set_new(o, "energy", zf_json_real(x->energy));
    if (t->o->log_channels) json_object_set_new(o, "channels", channels_of(x));
    return o;
}

static json_t *score_json(const struct zf_trainer *t, const struct zf_matrix *x)
{
    struct zf_scores s;
    struct zf_err ignored;
    if (zf_pipeline_scores(&t->pipeline, x, &s, &ignored)) return NULL;
    json_t *o = json_pack("{s:s}", "name", x->param->name);
    json_object_set_new(o, "bins", reals(s.bin, s.bins, 1e3));
    json_object_set_new(o, "top", reals(s.top, ZF_SCORE_TOPS, 1e6));
    json_object_set_new(o, "selected_energy", zf_json_real(s.selected_energy));
    return o;
}

/* A line of all matrices that `which` is true of; none where there are none. */
static void line(struct zf_trainer *t, const char *type, bool (*which)(const struct zf_pipeline *, const struct zf_matrix *),
                 json_t *(*make)(const struct zf_trainer *, const struct zf_matrix *))
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->pipeline.matrices; i++)
        if (which(&t->pipeline, &t->pipeline.matrix[i])) json_array_append_new(list, make(t, &t->pipeline.matrix[i]));
    if (json_array_size(list))
        zf_metrics_write(t->metrics, json_pack("{s:s s:I s:O}", "type", type, "step", (json_int_t)t->step, "matrices", list));
    json_decref(list);
}

/* For clients alone: the scores of a matrix, and who is selected. To six digits. */
static void publish_matrix(const struct zf_trainer *t, size_t matrix)
{
    const struct zf_watch *w = &t->watch;
    const struct zf_matrix *x = &t->pipeline.matrix[matrix];
    const double *sums = t->pipeline.sums_seen + t->pipeline.sums_at[matrix] + (t->pipeline.policy.score == ZF_SCORE_L1);
    if (!zf_pipeline_scored(&t->pipeline, x)) return;
    json_t *scores = json_array();
    for (size_t i = 0; i < x->channels; i++) {
        char digits[32];
        snprintf(digits, sizeof digits, "%.6g", sums[2 * i]);
        json_array_append_new(scores, zf_json_real(strtod(digits, NULL)));
    }
    json_t *o = json_pack("{s:s s:I s:s s:o s:o}", "type", "watch", "step", (json_int_t)t->step, "name", x->param->name, "scores", scores,
                          "selected", x->assigned && x->device.rows < x->channels ? channels_of(x) : json_array());
    size_t size;
    char *text = o ? zf_jsonl_text(o, &size) : NULL;
    if (text) w->publish(w->ctx, text, size);
    free(text);
    json_decref(o);
}

static void publish_watched(struct zf_trainer *t)
{
    size_t matrix[ZF_WATCHERS], n = t->watch.publish ? zf_watch_matrices(t, matrix) : 0;
    for (size_t i = 0; i < n; i++) publish_matrix(t, matrix[i]);
}

void zf_record_channels(struct zf_trainer *t)
{
    t->watch.score_asked = false; /* a step that does not count has none: then the next one has */
    publish_watched(t);
    line(t, "select", zf_pipeline_selected, select_json);
    line(t, "score", zf_pipeline_scored, score_json);
}
