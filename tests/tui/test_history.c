/* The history of a run as its lines tell it: every type, what repeats and what is cut, hostile lines, the reader of our own against the
 * parser for JSON on real and on mutated lines, bounded memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/telemetry/jsonl.h"
#include "tui/history.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double unit(void)
{
    return (double)(any() >> 11) * 0x1p-53;
}

static bool say(struct zf_history *h, const char *line)
{
    return zf_history_text(h, line, strlen(line));
}

static const char start_line[] =
    "{\"type\":\"start\",\"version\":\"0.1.0\",\"model\":\"sky\",\"parameters\":1000,\"device\":\"cuda\",\"strategy\":\"zenflow\","
    "\"options\":{\"steps\":100,\"topk_ratio\":0.1,\"train\":[\"a\",\"b\"],\"pack\":true,\"note\":\"x\"},\"matrices\":[{\"name\":\"q\","
    "\"channels\":"
    "128,\"length\":4},{\"name\":\"k\",\"channels\":8,\"length\":4},{\"name\":\"v\",\"channels\":8,\"length\":4}],\"attempt\":1}";

static double last(const struct zf_history *h, enum zf_series_id id)
{
    return zf_history_series(h, id)->last;
}

static void step(struct zf_history *h, uint64_t n, double loss)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"type\":\"step\",\"step\":%llu,\"time\":%.17g,\"loss\":%.17g,\"busy\":{\"compute\":0.5},\"step_ms\":%d,\"groups\":[{"
             "\"fill\":0.25,"
             "\"phase\":\"UP\",\"staleness\":3,\"due\":%llu},{\"fill\":1.0,\"phase\":\"ACC\",\"staleness\":1,\"due\":1}]}",
             (unsigned long long)n, (double)n * 0.5, loss, n % 5 ? 500 : 900, (unsigned long long)n + 1);
    assert_true(say(h, line));
}

static void every_type(void **unused)
{
    (void)unused;
    struct zf_history h;
    char buffer[64];
    zf_history_open(&h);
    assert_true(zf_history_eta(&h) < 0);
    assert_true(say(&h, start_line));
    assert_string_equal(h.model, "sky");
    assert_int_equal(h.matrices, 3);
    assert_int_equal(h.matrix[0].channels, 128);
    assert_int_equal(h.steps, 100);
    assert_string_equal(zf_history_option(&h, "topk_ratio", buffer, sizeof buffer), "0.1");
    assert_string_equal(zf_history_option(&h, "train", buffer, sizeof buffer), "a, b");
    assert_string_equal(zf_history_option(&h, "pack", buffer, sizeof buffer), "yes");
    assert_string_equal(zf_history_option(&h, "steps", buffer, sizeof buffer), "100");
    assert_string_equal(zf_history_option(&h, "nothing", buffer, sizeof buffer), "");

    for (uint64_t i = 1; i <= 10; i++) step(&h, i, 3 - 0.1 * (double)i);
    assert_int_equal(h.step, 10);
    assert_true(h.time == 5 && last(&h, ZF_SERIES_LOSS) == 2 && last(&h, ZF_SERIES_BUSY_COMPUTE) == 0.5);
    assert_true(zf_history_eta(&h) == 0.5 * 90);
    assert_int_equal(h.buffers.groups, 2);
    assert_int_equal(h.buffers.now[0].phase, ZF_BUFFER_UP);
    assert_int_equal(h.buffers.now[0].due, 11);
    assert_int_equal(h.buffers.phase[10 * ZF_GROUPS_MOST], ZF_BUFFER_UP + 1);
    assert_int_equal(h.buffers.phase[10 * ZF_GROUPS_MOST + 1], ZF_BUFFER_ACC + 1);
    assert_int_equal(h.buffers.phase[10 * ZF_GROUPS_MOST + 2], 0);
    assert_false(say(&h, "{\"type\":\"step\",\"step\":10,\"loss\":9}")); /* known already */
    assert_true(last(&h, ZF_SERIES_LOSS) == 2);

    assert_true(say(&h, "{\"type\":\"gpu\",\"index\":0,\"utilization\":0.5,\"power_w\":400}"));
    assert_true(say(&h, "{\"type\":\"gpu\",\"index\":0,\"utilization\":0.75,\"power_w\":\"nan\"}")); /* the same step, the next second */
    assert_false(say(&h, "{\"type\":\"gpu\",\"index\":1,\"utilization\":0.1}"));
    assert_true(last(&h, ZF_SERIES_GPU_UTILIZATION) == 0.75);
    assert_int_equal(h.series[ZF_SERIES_GPU_UTILIZATION].bucket[0].count, 2);

    assert_true(say(&h, "{\"type\":\"valid\",\"step\":10,\"loss\":2.5,\"tokens\":7}"));
    assert_false(say(&h, "{\"type\":\"valid\",\"step\":10,\"loss\":2.6,\"tokens\":7}"));
    assert_true(last(&h, ZF_SERIES_VALID) == 2.5);

    assert_true(say(&h, "{\"type\":\"norms\",\"step\":10,\"total\":2.0,\"matrices\":[{\"name\":\"k\",\"norm\":1.5,\"max\":0.5}]}"));
    assert_true(h.norm_step == 10 && h.norm[1] == 1.5);

    assert_true(say(&h,
                    "{\"type\":\"lanes\",\"step\":10,\"from\":4.5,\"to\":5,\"lanes\":[{\"name\":\"compute\",\"busy\":[[4.5,4.75],[4.8,5]],"
                    "\"wait\":[[4.75,4.8]]},{\"name\":\"d2h\",\"busy\":[],\"wait\":[]}],\"lost\":0}"));
    assert_int_equal(h.lane_steps, 1);
    assert_int_equal(h.lane_step[0].lanes, 2);
    assert_int_equal(h.lane_step[0].lane[0].busy.count, 2);
    assert_true(h.lane_step[0].lane[0].busy.at[0][1] == 0.25f);

    assert_true(say(&h, "{\"type\":\"checkpoint\",\"step\":10,\"file\":\"c/step-10.zfc\",\"bytes\":1500,\"raw_bytes\":2000,\"stall_ms\":1,"
                        "\"seconds\":0.5}"));
    assert_true(h.saved.step == 10 && h.saved.bytes == 1500 && !strcmp(h.saved.file, "c/step-10.zfc"));
    assert_string_equal(h.notes.list[1].text, "saved step 10: c/step-10.zfc (1.46 KiB, 0.5 s)");
    assert_false(h.saved.export);
    assert_true(
        say(&h, "{\"type\":\"change\",\"step\":10,\"option\":\"topk_ratio\",\"old\":0.1,\"new\":0.05,\"from_step\":11,\"by\":\"console\","
                "\"user\":\"ada\"}"));
    assert_string_equal(h.notes.list[2].text, "topk_ratio 0.1 -> 0.05, from step 11 (ada, console)");
    assert_int_equal(h.notes.list[2].step, 11);
    assert_string_equal(zf_history_option(&h, "topk_ratio", buffer, sizeof buffer), "0.05");
    assert_true(json_real_value(json_object_get(h.origin_options, "topk_ratio")) == 0.1);
    assert_true(say(
        &h,
        "{\"type\":\"change\",\"step\":10,\"option\":\"steps\",\"old\":100,\"new\":200,\"from_step\":11,\"by\":\"send\",\"user\":\"\"}"));
    assert_int_equal(h.steps, 200);
    assert_string_equal(h.notes.list[3].text, "steps 100 -> 200, from step 11 (send)");
    static const char *const kinds[] = {"mark", "note", "warning", "error"};
    for (int i = 0; i < 4; i++) {
        char line[80];
        snprintf(line, sizeof line, "{\"type\":\"%s\",\"step\":10,\"text\":\"hello %d\"}", kinds[i], i);
        assert_true(say(&h, line));
        assert_int_equal(h.notes.list[4 + i].kind, ZF_NOTE_MARK + i);
        assert_string_equal(zf_note_names[h.notes.list[4 + i].kind], kinds[i]);
        assert_true(h.notes.list[4 + i].time == 5);
    }
    assert_true(say(&h, "{\"type\":\"sample\",\"step\":10,\"text\":\"To be\"}"));
    assert_int_equal(h.samples.count, 1);

    assert_true(say(&h, start_line)); /* as every client is told */
    assert_string_equal(zf_history_option(&h, "topk_ratio", buffer, sizeof buffer), "0.05");
    assert_true(h.norm[1] == 1.5);

    assert_false(say(&h, "{\"type\":\"profile\",\"step\":10}"));
    assert_int_equal(h.bad, 0);
    assert_true(say(&h, "{\"type\":\"end\",\"step\":10,\"reason\":\"stopped\",\"code\":5}"));
    assert_true(h.ended && !strcmp(h.end_reason, "stopped"));
    zf_history_close(&h);
    assert_null(h.model);
}

static void a_resume_takes_steps_back(void **unused)
{
    (void)unused;
    struct zf_history h;
    zf_history_open(&h);
    say(&h, start_line);
    for (uint64_t i = 1; i <= 50; i++) step(&h, i, 3);
    say(&h, "{\"type\":\"mark\",\"step\":30,\"text\":\"stays\"}");
    say(&h, "{\"type\":\"mark\",\"step\":45,\"text\":\"goes\"}");
    say(&h, "{\"type\":\"valid\",\"step\":50,\"loss\":2.5}");
    say(&h, "{\"type\":\"end\",\"step\":50,\"reason\":\"signal\"}");
    assert_true(h.ended);
    assert_true(say(&h, "{\"type\":\"resume\",\"step\":40,\"attempt\":2}"));
    assert_int_equal(h.step, 40);
    assert_true(h.time == 20 && !h.ended && h.attempt == 2);
    assert_int_equal(zf_series_between(&h.series[ZF_SERIES_LOSS], 0, 1000).count, 40);
    assert_int_equal(h.series[ZF_SERIES_VALID].used, 0);
    assert_int_equal(h.buffers.phase[41 * ZF_GROUPS_MOST], 0);
    assert_int_equal(h.buffers.phase[40 * ZF_GROUPS_MOST], ZF_BUFFER_UP + 1);
    assert_int_equal(h.notes.count, 3); /* stays, end, resume */
    assert_string_equal(h.notes.list[0].text, "stays");
    assert_int_equal(h.notes.list[2].kind, ZF_NOTE_RESUME);
    step(&h, 41, 2);
    assert_int_equal(h.step, 41);
    assert_true(last(&h, ZF_SERIES_LOSS) == 2);
    assert_true(say(&h, "{\"type\":\"resume\",\"step\":38,\"attempt\":2,\"by\":\"send\",\"user\":\"ada\"}"));
    assert_int_equal(h.step, 38);
    assert_int_equal(h.attempt, 2);
    assert_string_equal(h.notes.list[h.notes.count - 1].text, "taken to step 38 by load (ada, send)");
    zf_history_close(&h);
}

/* One slow step is no pace. */
static void pace(void **unused)
{
    (void)unused;
    struct zf_history h;
    char line[200];
    zf_history_open(&h);
    assert_true(zf_history_pace(&h) < 0);
    for (int i = 1; i <= 30; i++) {
        int n = snprintf(line, sizeof line, "{\"type\":\"step\",\"step\":%d,\"loss\":2.5,\"step_ms\":%s}", i, i == 30 ? "9000.0" : "500.0");
        zf_history_text(&h, line, (size_t)n);
        assert_true(zf_history_pace(&h) == 0.5);
    }
    zf_history_close(&h);
}

/* Validations are in the log, and do not crowd out what happens seldom. */
static void validations(void **unused)
{
    (void)unused;
    struct zf_history h;
    char line[200];
    bool kept = false;
    zf_history_open(&h);
    int n = snprintf(line, sizeof line, "{\"type\":\"mark\",\"step\":1,\"text\":\"remember\"}");
    zf_history_text(&h, line, (size_t)n);
    for (int i = 1; i <= 3 * ZF_NOTES_MOST; i++) {
        n = snprintf(line, sizeof line, "{\"type\":\"valid\",\"step\":%d,\"loss\":2.5,\"tokens\":64}", i);
        zf_history_text(&h, line, (size_t)n);
    }
    assert_int_equal(h.notes.list[h.notes.count - 1].kind, ZF_NOTE_VALID);
    assert_int_equal(h.notes.list[h.notes.count - 1].step, 3 * ZF_NOTES_MOST);
    assert_string_equal(h.notes.list[h.notes.count - 1].text, "validation loss 2.500");
    for (size_t i = 0; i < h.notes.count; i++) kept |= h.notes.list[i].kind == ZF_NOTE_MARK;
    assert_true(kept);
    zf_history_close(&h);
}

static void score_line(struct zf_history *h, const char *type, uint64_t n, const char *const *names, const double *energy, size_t count)
{
    char line[1024];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"type\":\"%s\",\"step\":%llu,\"matrices\":[", type, (unsigned long long)n);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(type, "score"))
            used += (size_t)snprintf(
                line + used, sizeof line - used,
                "%s{\"name\":\"%s\",\"bins\":[-1.5,\"-inf\",%d.5],\"top\":[0.1,0.2,0.3,0.4,0.5,0.6],\"selected_energy\":%g}", i ? "," : "",
                names[i], (int)n, energy[i]);
        else
            used += (size_t)snprintf(line + used, sizeof line - used,
                                     "%s{\"name\":\"%s\",\"selected\":3,\"kept\":0.5,\"energy\":%g,\"channels\":[0,2,127]}", i ? "," : "",
                                     names[i], energy[i]);
    snprintf(line + used, sizeof line - used, "]}");
    say(h, line);
}

static void channels(void **unused)
{
    (void)unused;
    static const char *const all[] = {"q", "k", "v"}, *const one[] = {"k"}, *const odd[] = {"nobody", "v"};
    struct zf_history h;
    zf_history_open(&h);
    score_line(&h, "score", 1, all, (double[]){0.1, 0.2, 0.3}, 3); /* of nobody */
    assert_int_equal(h.heat.used, 0);
    say(&h, start_line);
    zf_history_watch(&h, 0);
    score_line(&h, "score", 16, all, (double[]){0.25, 0.5, 0}, 3);
    assert_int_equal(h.heat.used, 1);
    assert_true(h.matrix[0].energy_column[0] == 0.25f && h.matrix[1].energy_column[0] == 0.5f);
    assert_true(h.matrix[2].energy_column[0] == 0.4f); /* nothing selected: of the best 10 % */
    assert_int_equal(h.matrix[0].bins, 3);
    assert_true(h.matrix[0].bin[2] == 16.5f && isinf(h.matrix[0].bin[1]) && h.matrix[0].top[5] == 0.6f);
    score_line(&h, "select", 17, one, (double[]){0.75}, 1); /* comes again: a new column */
    score_line(&h, "select", 18, odd, (double[]){1, 0.125}, 2);
    assert_int_equal(h.heat.used, 2);
    assert_true(isnan(h.matrix[0].energy_column[1]) && h.matrix[1].energy_column[1] == 0.75f && h.matrix[2].energy_column[1] == 0.125f);
    assert_true(h.matrix[2].selected == 3 && h.matrix[2].kept == 0.5 && h.matrix[2].channel_count == 3 && h.matrix[2].channel[2] == 127);
    score_line(&h, "select", 32, all, (double[]){0.5, 0.5, 0.5}, 3);
    score_line(&h, "score", 32, all, (double[]){0.5, 0.5, 0.5}, 3);
    assert_int_equal(h.heat.used, 3);
    assert_true(h.heat.step[2] == 32);
    assert_int_equal(h.map.used, 2);
    assert_int_equal(h.map.rows, 3);
    assert_true(h.map.score[ZF_CHANNEL_ROWS] == -1.5f && h.map.step[1] == 32);
    assert_true(h.map.selected[ZF_CHANNEL_ROWS] == 12 && h.map.selected[ZF_CHANNEL_ROWS + 1] == 0); /* 2 of 42.7 */
    say(&h, "{\"type\":\"resume\",\"step\":20}");
    assert_int_equal(h.heat.used, 2);
    assert_int_equal(h.map.used, 1);
    score_line(&h, "score", 32, all, (double[]){0.5, 0.5, 0.5}, 3); /* once more, beside what was before the cut */
    assert_true(h.heat.used == 3 && h.heat.step[1] == 18 && h.matrix[1].energy_column[1] == 0.75f);
    for (uint64_t s = 1; s <= 5000; s++) score_line(&h, "score", 100 + s, all, (double[]){0.25, (double)(s % 2), 0.5}, 3);
    assert_true(h.heat.used <= ZF_HEAT_COLUMNS && h.heat.used > ZF_HEAT_COLUMNS / 2 && h.heat.merged == 8);
    assert_true(h.heat.step[h.heat.used - 1] == 5100);
    assert_true(h.matrix[0].energy_column[700 % h.heat.used] == 0.25f);
    assert_true(fabsf(h.matrix[1].energy_column[600] - 0.5f) < 0.3f);
    assert_int_equal(h.map.used, ZF_CHANNEL_COLUMNS);

    zf_history_watch(&h, 1);
    assert_int_equal(h.map.used, 0);
    assert_true(say(&h, "{\"type\":\"watch\",\"step\":5200,\"name\":\"k\",\"scores\":[0,2,3,4,5,6,7,1000],\"selected\":[7]}"));
    assert_true(h.map.full && h.map.rows == 8 && h.map.score[7] == 3 && isinf(h.map.score[0]) && h.map.selected[7] == 255);
    assert_false(say(&h, "{\"type\":\"watch\",\"step\":5201,\"name\":\"q\",\"scores\":[1]}"));
    zf_history_watch(&h, 99);
    assert_true(h.map.matrix == SIZE_MAX && !h.map.score);
    zf_history_close(&h);
}

static void brief_reading_ends_with_all_that_is_new(void **unused)
{
    (void)unused;
    static const char *const all[] = {"q", "k", "v"}, *const one[] = {"k"};
    struct zf_history h;
    zf_history_open(&h);
    say(&h, start_line);
    zf_history_watch(&h, 2);
    zf_history_brief(&h, true);
    for (uint64_t s = 1; s <= 20; s++) score_line(&h, "score", s, all, (double[]){0.25, 0.5, 0.5}, 3);
    score_line(&h, "score", 21, one, (double[]){0.125}, 1);
    assert_int_equal(h.matrix[0].bins, 0);
    assert_int_equal(h.matrix[2].bins, 3); /* it is watched */
    assert_int_equal(h.map.used, 20);
    zf_history_brief(&h, false);
    assert_int_equal(h.matrix[0].bins, 3);
    assert_true(h.matrix[0].bin[2] == 20.5f && h.matrix[1].energy == 0.125);
    assert_int_equal(h.heat.used, 21);
    zf_history_close(&h);
}

/* ---- the reader of our own against the parser ---- */

static void same_floats(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

static void same_series(const struct zf_series *a, const struct zf_series *b)
{
    assert_int_equal(a->used, b->used);
    if (!a->used) return;
    assert_true(a->first == b->first && a->span == b->span && a->newest == b->newest && a->recent_used == b->recent_used);
    assert_memory_equal(&a->last, &b->last, sizeof a->last);
    for (size_t i = 0; i < a->used; i++) {
        assert_memory_equal(&a->bucket[i], &b->bucket[i], offsetof(struct zf_bucket, bad) + sizeof a->bucket[i].bad);
        assert_memory_equal(&a->bucket[i].sum, &b->bucket[i].sum, sizeof a->bucket[i].sum);
    }
    assert_int_equal(a->recent_at, b->recent_at);
    for (size_t i = 0; i < a->recent_used; i++) {
        size_t k = (a->recent_at + ZF_SERIES_RECENT - 1 - i) % ZF_SERIES_RECENT;
        assert_int_equal(a->recent[k].step, b->recent[k].step);
        assert_memory_equal(&a->recent[k].value, &b->recent[k].value, sizeof a->recent[k].value);
    }
}

static void same_notes(const struct zf_notes *a, const struct zf_notes *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_true(a->list[i].step == b->list[i].step && a->list[i].kind == b->list[i].kind && a->list[i].time == b->list[i].time);
        assert_string_equal(a->list[i].text, b->list[i].text);
    }
}

static void same(const struct zf_history *a, const struct zf_history *b)
{
    assert_true(a->step == b->step && a->time == b->time && a->steps == b->steps && a->ended == b->ended);
    assert_true(a->version_of_data == b->version_of_data);
    for (int i = 0; i < ZF_SERIES_COUNT; i++) same_series(&a->series[i], &b->series[i]);
    assert_true(a->buffers.groups == b->buffers.groups && a->buffers.newest == b->buffers.newest);
    for (size_t i = 0; i < a->buffers.groups; i++) {
        const struct zf_buffer *x = &a->buffers.now[i], *y = &b->buffers.now[i];
        assert_true(x->fill == y->fill && x->phase == y->phase && x->staleness == y->staleness && x->due == y->due);
    }
    assert_true(!a->buffers.phase == !b->buffers.phase);
    if (a->buffers.phase) assert_memory_equal(a->buffers.phase, b->buffers.phase, (size_t)ZF_GROUP_STEPS * ZF_GROUPS_MOST);
    assert_int_equal(a->matrices, b->matrices);
    assert_true(a->heat.used == b->heat.used && a->heat.merged == b->heat.merged && a->heat.pending == b->heat.pending);
    for (size_t i = 0; i < a->matrices; i++) {
        const struct zf_matrix_seen *x = &a->matrix[i], *y = &b->matrix[i];
        assert_true(x->selected == y->selected && x->bins == y->bins && x->channel_count == y->channel_count);
        assert_memory_equal(&x->kept, &y->kept, sizeof x->kept);
        assert_memory_equal(&x->energy, &y->energy, sizeof x->energy);
        same_floats(x->energy_column, y->energy_column, a->heat.used);
        same_floats(x->bin, y->bin, x->bins);
        same_floats(x->top, y->top, 6);
        if (x->channel_count) assert_memory_equal(x->channel, y->channel, x->channel_count * sizeof *x->channel);
    }
    same_notes(&a->notes, &b->notes);
    same_notes(&a->samples, &b->samples);
}

/* As zf_history_text does, without a reader of our own. */
static void by_parser(struct zf_history *h, const char *line, size_t size)
{
    json_t *o = json_loadb(line, size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(o)) zf_history_take(h, o);
    json_decref(o);
}

static json_t *real(void)
{
    switch (any() % 12) {
    case 0: return json_real(0);
    case 1: return zf_json_real(any() % 2 ? (double)NAN : any() % 2 ? (double)INFINITY : -(double)INFINITY);
    case 2: return json_real(ldexp(unit(), any() % 50 ? (int)(any() % 40) - 20 : (int)(any() % 2000) - 1000));
    case 3: return json_real(-round(unit() * 1e4) / 1e3);
    case 4: return json_integer((json_int_t)(any() % 3));
    default: return json_real(unit() * (any() % 2 ? 1 : 1e6));
    }
}

/* A step line as the trainer writes it. */
static char *made_step(uint64_t n, size_t *size)
{
    static const char *const reals[] = {"time", "epoch", "loss", "grad_norm", "clip", "learning_rate"},
                             *const after[] = {"compute_ms", "stall_ms"}, *const busy[] = {"compute", "d2h", "h2d", "cpu"},
                             *const phase[] = {"ACC", "UP", "UPLOAD"};
    json_t *o = json_object(), *b = json_object(), *groups = json_array();
    json_object_set_new(o, "type", json_string("step"));
    json_object_set_new(o, "step", json_integer((json_int_t)n));
    for (size_t i = 0; i < 6; i++) json_object_set_new(o, reals[i], real());
    json_object_set_new(o, "tokens", json_integer((json_int_t)(any() % 100000)));
    json_object_set_new(o, "label_tokens", json_integer((json_int_t)(any() % 100000)));
    json_object_set_new(o, "tokens_per_s", real());
    json_object_set_new(o, "step_ms", real());
    json_object_set_new(o, "rows", json_pack("[I,I]", (json_int_t)n, (json_int_t)n + 3));
    for (size_t i = 0; i < 2; i++) json_object_set_new(o, after[i], real());
    for (size_t i = 0; i < 4; i++) json_object_set_new(b, busy[i], real());
    json_object_set_new(o, "busy", b);
    json_object_set_new(o, "d2h_bytes", json_integer((json_int_t)(any() >> 12)));
    json_object_set_new(o, "h2d_bytes", json_integer(0));
    for (uint64_t i = any() % 9; i; i--)
        json_array_append_new(groups, json_pack("{s:o s:s s:I s:I}", "fill", real(), "phase", phase[any() % 3], "staleness",
                                                (json_int_t)(any() % 20), "due", (json_int_t)(n + any() % 20)));
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "cpu_updates", json_integer(4));
    if (any() % 2) json_object_set_new(o, "adam_gb_s", real());
    json_object_set_new(o, "skipped", json_integer(0));
    json_object_set_new(o, "memory_device", json_integer((json_int_t)(any() >> 20)));
    json_object_set_new(o, "memory_host", json_integer(28667904));
    char *text = zf_jsonl_text(o, size);
    assert_non_null(text);
    json_decref(o);
    return text;
}

static char *made_channels(uint64_t n, size_t *size)
{
    static const char *const names[] = {"q", "k", "v", "nobody"};
    json_t *list = json_array(), *o;
    bool score = any() % 2;
    for (size_t i = any() % 2; i < 4; i += 1 + any() % 2) {
        json_t *one = json_pack("{s:s}", "name", names[i]);
        if (score) {
            json_t *bins = json_array(), *top = json_array();
            for (uint64_t k = any() % 70; k; k--) json_array_append_new(bins, real());
            for (uint64_t k = 0; k < 6; k++) json_array_append_new(top, json_real(round(unit() * 1e6) / 1e6));
            json_object_set_new(one, "bins", bins);
            json_object_set_new(one, "top", top);
            json_object_set_new(one, "selected_energy", real());
        } else {
            json_object_set_new(one, "selected", json_integer((json_int_t)(any() % 128)));
            json_object_set_new(one, "kept", real());
            json_object_set_new(one, "energy", real());
            if (any() % 2) json_object_set_new(one, "channels", json_pack("[I,I]", (json_int_t)(any() % 8), (json_int_t)(any() % 128)));
        }
        json_array_append_new(list, one);
    }
    o = json_pack("{s:s s:I s:o}", "type", score ? "score" : "select", "step", (json_int_t)n, "matrices", list);
    char *text = zf_jsonl_text(o, size);
    assert_non_null(text);
    json_decref(o);
    return text;
}

static char *made(uint64_t n, size_t *size)
{
    char *text;
    switch (any() % 5) {
    case 0: return made_channels(n, size);
    case 1:
        assert_true(
            asprintf(&text,
                     "{\"type\":\"gpu\",\"index\":0,\"utilization\":%.3f,\"memory_used\":%llu,\"power_w\":%.1f,\"temperature_c\":61,"
                     "\"pcie_rx\":2138954275,\"pcie_tx\":9402602904}\n",
                     unit(), (unsigned long long)(any() >> 30), unit() * 400) > 0);
        *size = strlen(text);
        return text;
    default: return made_step(n, size);
    }
}

static void own_reader_equals_parser(void **unused)
{
    (void)unused;
    struct zf_history a, b;
    uint64_t lines = 0;
    zf_history_open(&a);
    zf_history_open(&b);
    say(&a, start_line);
    say(&b, start_line);
    for (uint64_t n = 1; n <= 6000; n++, lines++) {
        size_t size;
        char *text = made(n, &size);
        zf_history_text(&a, text, size);
        by_parser(&b, text, size);
        free(text);
    }
    same(&a, &b);
    assert_true(a.step > 5000 && a.heat.used > 100);
    assert_true(a.parsed < lines / 20); /* but for numbers that take exact arithmetic */
    zf_history_close(&a);
    zf_history_close(&b);
}

static size_t mutate(char *text, size_t size)
{
    static const char odd[] = "0123456789.-+eE\"{}[],: \\ntfu\x00\xff\x1b";
    for (uint64_t k = 1 + any() % 3; k && size > 2; k--) {
        size_t at = any() % (size - 1), n = 1 + any() % 4;
        switch (any() % 5) {
        case 0: /* gone */
            if (n > size - 1 - at) n = size - 1 - at;
            memmove(text + at, text + at + n, size - at - n);
            size -= n;
            break;
        case 1: /* torn */
            if (any() % 8 == 0) size = at + 1;
            break;
        case 2: { /* twice */
            size_t to = any() % (size - 1);
            if (n > size - 1 - (to > at ? to : at)) n = 1;
            memmove(text + to, text + at, n);
            break;
        }
        default: text[at] = odd[any() % (sizeof odd - 1)];
        }
    }
    return size;
}

static void mutated_lines_read_the_same(void **unused)
{
    (void)unused;
    struct zf_history a, b;
    zf_history_open(&a);
    zf_history_open(&b);
    say(&a, start_line);
    say(&b, start_line);
    for (uint64_t n = 1; n <= 40000; n++) {
        size_t size;
        char *text = made(n, &size);
        size = mutate(text, size);
        char *exact = malloc(size ? size : 1); /* so that reading behind its end is seen */
        assert_non_null(exact);
        memcpy(exact, text, size);
        zf_history_text(&a, exact, size);
        by_parser(&b, exact, size);
        free(exact);
        free(text);
        if (n % 1000 == 0) same(&a, &b);
    }
    same(&a, &b);
    assert_true(a.step > 1000 && a.bad > 1000);
    zf_history_close(&a);
    zf_history_close(&b);
}

/* Single numbers, among them those that are hard to round. */
static void numbers_are_exact(void **unused)
{
    (void)unused;
    static const char *const hard[] = {
        "0",
        "-0",
        "-0.0",
        "1e22",
        "1e23",
        "123456789012345678",
        "9007199254740993.0",
        "9007199254740993",
        "1e400",
        "1e-400",
        "4.9e-324",
        "1.7e308",
        "0.1e1",
        "1E5",
        "1e+5",
        "00",
        "01",
        "1.",
        ".5",
        "-",
        "1e",
        "1e-",
        "+1",
        "1 ",
        " 1",
        "0x1",
        "nan",
        "\"nan\"",
        "\"inf\"",
        "\"-inf\"",
        "\"Inf\"",
        "null",
        "9223372036854775807",
        "9223372036854775808",
        "123456789012345678901234567890.0",
        "0.00000000000000000000000000000000000000000000001",
        "8.5711029999999994e-07",
        "2.2250738585072011e-308",
        "0.30000000000000004",
        "179769313486231580793728971405301199.0",
    };
    char line[256];
    struct zf_history a, b;
    for (int i = 0; i < 20000 + (int)(sizeof hard / sizeof *hard); i++) {
        char made_up[40];
        const char *number = made_up;
        if (i < (int)(sizeof hard / sizeof *hard))
            number = hard[i];
        else
            snprintf(made_up, sizeof made_up, "%.*g", 15 + (int)(any() % 4), (unit() - 0.5) * pow(10, (double)(any() % 30) - 15));
        int n = snprintf(line, sizeof line, "{\"type\":\"step\",\"step\":1,\"loss\":%s}", number);
        zf_history_open(&a);
        zf_history_open(&b);
        zf_history_text(&a, line, (size_t)n);
        by_parser(&b, line, (size_t)n);
        if (a.series[0].last != b.series[0].last || a.series[0].used != b.series[0].used) same(&a, &b);
        if (b.series[0].used) assert_memory_equal(&a.series[0].last, &b.series[0].last, sizeof(double));
        zf_history_close(&a);
        zf_history_close(&b);
    }
}

/* What nobody writes: passed over, counted, harmless; what stands around it counts. */
static void hostile_lines(void **unused)
{
    (void)unused;
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"type\":1}",
        "{\"type\":\"step\"}",
        "{\"type\":\"step\",\"step\":\"x\"}",
        "{\"type\":\"step\",\"step\":-1}",
        "{\"type\":\"step\",\"step\":0}",
        "{\"type\":\"step\",\"step\":1e300}",
        "{\"type\":\"step\",\"step\":9223372036854775807}",
        "{\"type\":\"score\",\"step\":5,\"matrices\":[1,null,{\"name\":5}]}",
        "{\"type\":\"score\",\"step\":5}",
        "{\"type\":\"select\",\"matrices\":{}}",
        "{\"type\":\"lanes\",\"step\":1,\"from\":5,\"to\":1,\"lanes\":[]}",
        "{\"type\":\"lanes\",\"step\":1,\"from\":\"nan\",\"to\":1,\"lanes\":[]}",
        "{\"type\":\"norms\"}",
        "{\"type\":\"valid\",\"step\":3}",
        "{\"type\":\"valid\",\"loss\":3}",
        "{\"type\":\"resume\"}",
        "{\"type\":\"end\"}",
        "{\"type\":\"change\",\"option\":\"x\"}",
        "{\"type\":\"change\",\"new\":1}",
        "{\"type\":\"checkpoint\",\"step\":3}",
        "{\"type\":\"mark\",\"step\":3}",
        "{\"type\":\"note\",\"text\":7}",
        "{\"type\":\"gpu\"}",
        "{\"type\":\"gpu\",\"index\":-1}",
        "{\"type\":\"step\",\"step\":1",
        "\x00\xff",
        "{\"type\":\"",
        "{\"type\":\"watch\",\"step\":1,\"name\":\"q\",\"scores\":[1]}",
        "{\"type\":\"sample\",\"text\":\"\xff\"}",
    };
    struct zf_history h;
    zf_history_open(&h);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(say(&h, bad[i]));
        assert_int_equal(h.version_of_data, 0);
    }
    assert_true(h.bad > 3);
    say(&h, start_line);
    step(&h, 1, 3);
    assert_true(say(&h, "{\"type\":\"step\",\"step\":2,\"loss\":[1],\"time\":\"x\",\"groups\":7,\"busy\":[]}"));
    assert_true(last(&h, ZF_SERIES_LOSS) == 3);
    assert_true(say(&h, "{\"type\":\"step\",\"step\":3,\"groups\":[{\"fill\":1e99,\"phase\":\"?\",\"staleness\":1e30,\"due\":-1},7]}"));
    assert_true(h.buffers.groups == 2 && h.buffers.now[0].fill == 1);
    assert_true(say(&h, "{\"type\":\"start\",\"matrices\":[{\"name\":\"other\"}],\"model\":5,\"options\":[1],\"attempt\":1e99}"));
    assert_int_equal(h.matrices, 3); /* a run's matrices stay */
    assert_string_equal(h.model, "sky");
    assert_true(say(
        &h,
        "{\"type\":\"select\",\"step\":5,\"matrices\":[{\"name\":\"q\",\"selected\":1e18,\"kept\":\"nan\",\"energy\":\"inf\",\"channels\":"
        "[4294967295,-1,\"x\",1e300]}]}"));
    assert_int_equal(h.matrix[0].channel_count, 1);
    assert_true(say(
        &h, "{\"type\":\"score\",\"step\":6,\"matrices\":[{\"name\":\"q\",\"bins\":[1,\"x\",1e300],\"top\":7,\"selected_energy\":-5}]}"));
    assert_true(h.matrix[0].bins == 3 && isnan(h.matrix[0].bin[1]) && isinf(h.matrix[0].bin[2]));

    size_t size = 1 << 20; /* deep, long, endless */
    char *deep = malloc(size);
    assert_non_null(deep);
    memset(deep, '[', size);
    assert_false(zf_history_text(&h, deep, size));
    size = (size_t)snprintf(deep, 64, "{\"type\":\"note\",\"step\":3,\"text\":\"");
    for (; size < (1 << 20) - 10; size += 3) memcpy(deep + size, "\xe6\x9d\xb1", 3);
    size += (size_t)snprintf(deep + size, 4, "\"}");
    assert_true(zf_history_text(&h, deep, size));
    const char *text = h.notes.list[h.notes.count - 1].text;
    assert_true(strlen(text) <= 4096 && strlen(text) % 3 == 0);
    free(deep);
    zf_history_close(&h);
}

static void many_matrices(void **unused)
{
    (void)unused;
    struct zf_history h;
    json_t *list = json_array();
    for (int i = 0; i < 6000; i++)
        json_array_append_new(list, json_pack("{s:o s:i s:i}", "name", json_sprintf("m%d", i % 5900), "channels", 5, "length", 5));
    json_t *o = json_pack("{s:s s:o}", "type", "start", "matrices", list);
    zf_history_open(&h);
    assert_true(zf_history_take(&h, o));
    assert_int_equal(h.matrices, 4096);
    assert_true(zf_history_take(&h, o));
    json_decref(o);
    zf_history_close(&h);
}

/* A million lines of all kinds: memory does not grow with them. */
static void memory_is_bounded(void **unused)
{
    (void)unused;
#ifdef __SANITIZE_ADDRESS__
    enum { LINES = 100000, FILLER = 200 };
#else
    enum { LINES = 1000000, FILLER = 200 };
#endif
    static const char *const all[] = {"q", "k", "v"};
    struct zf_history h;
    char line[1024];
    size_t after_first = 0;
    struct mallinfo2 before = mallinfo2();
    zf_history_open(&h);
    say(&h, start_line);
    for (int i = 1; i <= LINES; i++) {
        int n;
        if (i % 16 == 5) {
            score_line(&h, "score", (uint64_t)i, all, (double[]){0.25, 0.5, 0.5}, 3);
            continue;
        } else if (i % 8 == 1) {
            n = snprintf(line, sizeof line, "{\"type\":\"note\",\"step\":%d,\"text\":\"%0*d\"}", i, FILLER, i);
        } else if (i % 64 == 2) {
            n = snprintf(line, sizeof line, "{\"type\":\"sample\",\"step\":%d,\"text\":\"%0*d\"}", i, FILLER, i);
        } else if (i % 64 == 3) {
            n = snprintf(line, sizeof line,
                         "{\"type\":\"lanes\",\"step\":%d,\"from\":1,\"to\":2,\"lanes\":[{\"name\":\"cpu\",\"busy\":[[1,2]]}]}", i);
        } else {
            n = snprintf(line, sizeof line,
                         "{\"type\":\"step\",\"step\":%d,\"time\":%d.25,\"loss\":2.5,\"grad_norm\":0.5,\"busy\":{\"compute\":0.5},"
                         "\"groups\":[{\"fill\":0.25,"
                         "\"phase\":\"UP\",\"staleness\":3,\"due\":7}]}",
                         i, i / 2);
        }
        zf_history_text(&h, line, (size_t)n);
        if (i == LINES / 2) after_first = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd, base = before.uordblks + before.hblkhd;
    if (now) { /* a sanitizer's allocator does not tell */
        assert_true(now - base < 24u << 20);
        assert_true(now < after_first + (1 << 20));
    }
    assert_true(h.notes.count <= ZF_NOTES_MOST && h.notes.count > ZF_NOTES_MOST / 2 && h.samples.count <= ZF_NOTES_MOST);
    assert_true(h.notes.list[h.notes.count - 1].step > LINES - 10);
    assert_int_equal(h.bad, 0);
    assert_int_equal(h.step, LINES);
    zf_history_close(&h);
}

/* An export has weights only: nothing to resume from. */
static void exports_and_checkpoints(void **unused)
{
    (void)unused;
    struct zf_history h;
    zf_history_open(&h);
    assert_true(say(&h, "{\"type\":\"export\",\"step\":20,\"file\":\"out/exports/step-00000020\",\"best\":false}"));
    assert_true(h.saved.export && h.saved.step == 20);
    assert_string_equal(h.notes.list[0].text, "exported step 20: out/exports/step-00000020");
    assert_true(say(&h, "{\"type\":\"checkpoint\",\"step\":30,\"file\":\"c/step-30.zfc\"}"));
    assert_false(h.saved.export);
    zf_history_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(a_resume_takes_steps_back),
        cmocka_unit_test(exports_and_checkpoints),
        cmocka_unit_test(channels),
        cmocka_unit_test(brief_reading_ends_with_all_that_is_new),
        cmocka_unit_test(own_reader_equals_parser),
        cmocka_unit_test(mutated_lines_read_the_same),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(hostile_lines),
        cmocka_unit_test(many_matrices),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(validations),
        cmocka_unit_test(pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
