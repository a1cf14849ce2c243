/* See history.h. A table of line types; what each says is done here for numbers and the run as a whole, for channels, words and lanes in
 * history_*.c. Steps of lines that are known already are passed over: a feed may tell things twice. */
#include "tui/history_impl.h"

#include "core/base/json.h"
#include "core/telemetry/eta.h"
#include "tui/format.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name, type, field) type,
const char *const zf_series_type[ZF_SERIES_COUNT] = {ZF_SERIES_MAP(X)};
#undef X
#define X(name, type, field) field,
const char *const zf_series_field[ZF_SERIES_COUNT] = {ZF_SERIES_MAP(X)};
#undef X

enum { OPTIONS_MOST = 1000, OPTIONS_BYTES = 256 << 10 };

/* ---- values ---- */

double zf_history_number(const json_t *v, double absent)
{
    if (json_is_number(v)) return json_number_value(v);
    const char *s = json_string_value(v);
    if (!s) return absent;
    return !strcmp(s, "nan") ? (double)NAN : !strcmp(s, "inf") ? (double)INFINITY : !strcmp(s, "-inf") ? -(double)INFINITY : absent;
}

uint64_t zf_history_count(const json_t *v, uint64_t absent)
{
    double x = json_is_number(v) ? json_number_value(v) : -1;
    return x >= 0 && x <= (double)ZF_STEP_MOST ? (uint64_t)x : absent;
}

float zf_history_float(double x)
{
    return x > (double)FLT_MAX ? INFINITY : x < -(double)FLT_MAX ? -INFINITY : (float)x;
}

static uint64_t step_of(const json_t *line)
{
    return zf_history_count(json_object_get(line, "step"), UINT64_MAX);
}

/* ---- numbers ---- */

static const char *const phases[] = {[ZF_BUFFER_ACC] = "ACC", [ZF_BUFFER_UP] = "UP", [ZF_BUFFER_UPLOAD] = "UPLOAD"};

/* "busy.compute" is field compute of field busy. */
static const json_t *field_of(const json_t *line, const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? json_object_get(json_object_getn(line, name, (size_t)(dot - name)), dot + 1) : json_object_get(line, name);
}

static void read_groups(struct zf_number_line *out, const json_t *list)
{
    out->has_groups = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list) && out->groups < ZF_GROUPS_MOST; i++) {
        const json_t *o = json_array_get(list, i);
        const char *phase = json_string_value(json_object_get(o, "phase"));
        uint64_t staleness = zf_history_count(json_object_get(o, "staleness"), 0);
        struct zf_buffer *g = &out->group[out->groups++];
        *g = (struct zf_buffer){.fill = zf_history_float(zf_history_number(json_object_get(o, "fill"), 0)),
                                .staleness = staleness < UINT32_MAX ? (uint32_t)staleness : UINT32_MAX,
                                .due = zf_history_count(json_object_get(o, "due"), 0)};
        for (size_t p = 0; phase && p < sizeof phases / sizeof *phases; p++)
            if (!strcmp(phase, phases[p])) g->phase = (uint8_t)p;
    }
}

static void read_numbers(struct zf_number_line *out, const json_t *line, const char *type)
{
    *out = (struct zf_number_line){.step = step_of(line)};
    out->has_step = out->step != UINT64_MAX;
    out->index = zf_history_count(json_object_get(line, "index"), 0);
    for (int i = 0; i < ZF_SERIES_COUNT; i++) {
        const json_t *v = strcmp(zf_series_type[i], type) != 0 ? NULL : field_of(line, zf_series_field[i]);
        const char *s = json_string_value(v);
        if (!json_is_number(v) && !(s && (!strcmp(s, "nan") || !strcmp(s, "inf") || !strcmp(s, "-inf")))) continue;
        out->value[i] = zf_history_number(v, 0);
        out->present |= (uint64_t)1 << i;
    }
}

static void put_groups(struct zf_history *h, const struct zf_number_line *l)
{
    struct zf_buffers *b = &h->buffers;
    if (!b->phase && !(b->phase = calloc(ZF_GROUP_STEPS, ZF_GROUPS_MOST))) return;
    uint64_t gap = b->newest ? l->step - b->newest : 1;
    for (uint64_t s = l->step - (gap < ZF_GROUP_STEPS ? gap : ZF_GROUP_STEPS) + 1; s <= l->step; s++)
        memset(b->phase + (s % ZF_GROUP_STEPS) * ZF_GROUPS_MOST, 0, ZF_GROUPS_MOST);
    for (size_t i = 0; i < l->groups; i++) {
        float fill = l->group[i].fill;
        b->now[i] = l->group[i];
        b->now[i].fill = fill >= 0 && fill <= 1 ? fill : fill > 1 ? 1 : 0;
        b->phase[(l->step % ZF_GROUP_STEPS) * ZF_GROUPS_MOST + i] = (uint8_t)(l->group[i].phase + 1);
    }
    b->groups = l->groups;
    b->newest = l->step;
}

bool zf_history_numbers(struct zf_history *h, const struct zf_number_line *l, bool steps)
{
    uint64_t step = l->has_step ? l->step : h->step;
    if (steps && (!l->has_step || !l->step || l->step <= h->step)) return false;
    if (!l->present && !steps) return false;
    for (uint64_t left = l->present; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        struct zf_series *s = &h->series[i];
        if (!steps && s->used && s->newest == step)
            zf_series_again(s, l->value[i]);
        else
            zf_series_add(s, step, l->value[i]);
    }
    if (!steps) return true;
    h->step = l->step;
    h->ended = false;
    double time = l->present >> ZF_SERIES_TIME & 1 ? l->value[ZF_SERIES_TIME] : (double)NAN;
    if (time >= 0 && time < 1e12) h->time = time;
    if (l->has_groups) put_groups(h, l);
    return true;
}

static bool take_step(struct zf_history *h, const json_t *line)
{
    struct zf_number_line l;
    read_numbers(&l, line, "step");
    if (l.has_step) read_groups(&l, json_object_get(line, "groups"));
    return zf_history_numbers(h, &l, true);
}

static const struct {
    const char *name;
    enum zf_series_id id;
} gpu_fields[ZF_GPU_FIELDS] = {
    {"utilization", ZF_SERIES_GPU_UTILIZATION},   {"memory_used", ZF_SERIES_GPU_MEMORY}, {"power_w", ZF_SERIES_GPU_POWER},
    {"temperature_c", ZF_SERIES_GPU_TEMPERATURE}, {"pcie_rx", ZF_SERIES_GPU_RX},         {"pcie_tx", ZF_SERIES_GPU_TX}};

static bool take_gpu(struct zf_history *h, const json_t *line)
{
    struct zf_number_line l;
    bool changed = false;
    read_numbers(&l, line, "gpu");
    l.has_step = false;
    if (l.index != 0) return false;
    const json_t *refused = json_object_get(line, "refused");
    for (int i = 0; i < ZF_GPU_FIELDS; i++) {
        const char *why = json_string_value(json_object_get(refused, gpu_fields[i].name));
        if (!why) why = "";
        changed |= strncmp(h->refused[i], why, sizeof h->refused[i] - 1) != 0;
        snprintf(h->refused[i], sizeof h->refused[i], "%s", why);
    }
    return zf_history_numbers(h, &l, false) || changed;
}

const char *zf_history_refused(const struct zf_history *h, enum zf_series_id id)
{
    for (int i = 0; i < ZF_GPU_FIELDS; i++)
        if (gpu_fields[i].id == id && h->refused[i][0]) return h->refused[i];
    return NULL;
}

static bool take_valid(struct zf_history *h, const json_t *line)
{
    struct zf_number_line l;
    read_numbers(&l, line, "valid");
    const struct zf_series *s = &h->series[ZF_SERIES_VALID];
    if (!l.has_step || (s->used && l.step <= s->newest) || !zf_history_numbers(h, &l, false)) return false;
    char number[ZF_FORMAT_ROOM], text[80];
    snprintf(text, sizeof text, "validation loss %s", zf_format_value(number, s->last));
    return zf_history_note(h, ZF_NOTE_VALID, line, text);
}

/* ---- the run ---- */

static void put_word(char **to, const json_t *v)
{
    char *copy = json_is_string(v) ? strndup(json_string_value(v), 1024) : NULL;
    if (!copy) return;
    free(*to);
    *to = copy;
}

static void put_options(struct zf_history *h, const json_t *o)
{
    if (!json_is_object(o) || json_object_size(o) > OPTIONS_MOST || json_dumpb(o, NULL, 0, 0) > OPTIONS_BYTES) return;
    json_t *now = json_deep_copy(o), *origin = h->origin_options ? NULL : json_deep_copy(o);
    if (now) {
        json_decref(h->options);
        h->options = now;
    }
    if (origin) h->origin_options = origin;
    uint64_t steps = zf_history_count(json_object_get(o, "steps"), 0);
    if (!steps) steps = zf_history_count(json_object_get(o, "schedule_steps"), 0); /* steps of epochs */
    if (steps) h->steps = steps;
}

/* It comes again to every client: options of the start do not undo what was changed since. */
static bool take_start(struct zf_history *h, const json_t *line)
{
    bool first = !h->options;
    put_word(&h->model, json_object_get(line, "model"));
    put_word(&h->device, json_object_get(line, "device"));
    put_word(&h->strategy, json_object_get(line, "strategy"));
    h->parameters = zf_history_count(json_object_get(line, "parameters"), h->parameters);
    uint64_t attempt = zf_history_count(json_object_get(line, "attempt"), 0);
    if (attempt > h->attempt || first) put_options(h, json_object_get(line, "options"));
    if (attempt > h->attempt) h->attempt = attempt;
    if (!zf_history_matrices(h, json_object_get(line, "matrices"))) return false;
    return true;
}

/* What came after the step did not happen. */
static void cut(struct zf_history *h, uint64_t step)
{
    uint64_t at;
    double time;
    for (int i = 0; i < ZF_SERIES_COUNT; i++) zf_series_cut(&h->series[i], step);
    zf_history_cut_channels(h, step);
    zf_history_cut_notes(h, step);
    zf_history_free_lanes(h);
    struct zf_buffers *b = &h->buffers;
    for (uint64_t s = b->newest; s > step && b->newest - s < ZF_GROUP_STEPS && b->phase; s--)
        memset(b->phase + (s % ZF_GROUP_STEPS) * ZF_GROUPS_MOST, 0, ZF_GROUPS_MOST);
    if (b->newest > step) {
        b->newest = step;
        b->groups = 0;
    }
    if (h->step <= step) return;
    h->step = step;
    if (zf_series_at(&h->series[ZF_SERIES_TIME], step, &at, &time) && time >= 0) h->time = time;
}

static bool take_resume(struct zf_history *h, const json_t *line)
{
    char text[192];
    const char *by = json_string_value(json_object_get(line, "by")), *user = json_string_value(json_object_get(line, "user"));
    uint64_t step = step_of(line), attempt = zf_history_count(json_object_get(line, "attempt"), 0);
    if (step == UINT64_MAX) return false;
    cut(h, step);
    h->ended = false;
    if (attempt) h->attempt = attempt;
    if (by) /* `load`: no attempt begins */
        snprintf(text, sizeof text, "taken to step %llu by load (%.40s%s%.20s)", (unsigned long long)step, user ? user : "",
                 user && *user ? ", " : "", by);
    else if (attempt)
        snprintf(text, sizeof text, "goes on from step %llu (attempt %llu)", (unsigned long long)step, (unsigned long long)attempt);
    else
        snprintf(text, sizeof text, "goes on from step %llu", (unsigned long long)step);
    return zf_history_note(h, ZF_NOTE_RESUME, line, text);
}

static bool take_end(struct zf_history *h, const json_t *line)
{
    char text[96];
    const char *reason = json_string_value(json_object_get(line, "reason"));
    if (!reason) return false;
    h->ended = true;
    snprintf(h->end_reason, sizeof h->end_reason, "%s", reason);
    snprintf(text, sizeof text, "the run has ended: %.15s, at step %llu", reason,
             (unsigned long long)zf_history_count(json_object_get(line, "step"), h->step));
    return zf_history_note(h, ZF_NOTE_END, line, text);
}

static const char *text_of(const json_t *line)
{
    return json_string_value(json_object_get(line, "text"));
}

static bool take_select(struct zf_history *h, const json_t *line)
{
    return zf_history_take_channels(h, line, false);
}

static bool take_score(struct zf_history *h, const json_t *line)
{
    return zf_history_take_channels(h, line, true);
}

#define NOTE(name, KIND) \
    static bool take_##name(struct zf_history *h, const json_t *line) \
    { \
        return zf_history_note(h, ZF_NOTE_##KIND, line, text_of(line)); \
    }
NOTE(mark, MARK)
NOTE(note, NOTE)
NOTE(warning, WARNING)
NOTE(error, ERROR)
NOTE(sample, SAMPLE)

/* ---- lines ---- */

static const struct line_type {
    const char *name;
    bool (*take)(struct zf_history *h, const json_t *line);
} types[] = {
    {"step", take_step},
    {"gpu", take_gpu},
    {"lanes", zf_history_take_lanes},
    {"score", take_score},
    {"select", take_select},
    {"watch", zf_history_take_watch},
    {"norms", zf_history_take_norms},
    {"valid", take_valid},
    {"start", take_start},
    {"resume", take_resume},
    {"end", take_end},
    {"change", zf_history_take_change},
    {"checkpoint", zf_history_take_checkpoint},
    {"export", zf_history_take_checkpoint}, /* without sizes */
    {"mark", take_mark},
    {"note", take_note},
    {"warning", take_warning},
    {"error", take_error},
    {"sample", take_sample},
};

static const struct line_type *type_of(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == size && !memcmp(types[i].name, name, size)) return &types[i];
    return NULL;
}

static bool done(struct zf_history *h, bool changed)
{
    h->version_of_data += changed;
    return changed;
}

bool zf_history_take(struct zf_history *h, const json_t *line)
{
    const json_t *name = json_object_get(line, "type");
    const struct line_type *t = json_is_string(name) ? type_of(json_string_value(name), json_string_length(name)) : NULL;
    return t && done(h, t->take(h, line));
}

static void keep_late(struct zf_history *h, const char *line, size_t size)
{
    struct zf_history_own *o = &h->own;
    if (size > o->late_room) {
        char *more = realloc(o->late, size);
        if (!more) return;
        o->late = more;
        o->late_room = size;
    }
    memcpy(o->late, line, size);
    o->late_size = size;
}

/* true: it is dealt with, *changed tells how. */
static bool scanned(struct zf_history *h, const char *type, size_t size, const char *line, size_t length, bool *changed)
{
    static const char step[] = "step", gpu[] = "gpu", score[] = "score", select[] = "select";
    if (size == sizeof step - 1 && !memcmp(type, step, size)) {
        struct zf_number_line l;
        if (!zf_scan_step(&l, line, length)) return false;
        *changed = zf_history_numbers(h, &l, true);
        return true;
    }
    if (size == sizeof gpu - 1 && !memcmp(type, gpu, size)) {
        struct zf_number_line l;
        if (!zf_scan_gpu(&l, line, length)) return false;
        *changed = l.index == 0 && zf_history_numbers(h, &l, false);
        return true;
    }
    if ((size == sizeof score - 1 && !memcmp(type, score, size)) || (size == sizeof select - 1 && !memcmp(type, select, size))) {
        struct zf_channel_line l;
        if (!zf_scan_channels(h, &l, line, length)) return false;
        *changed = zf_history_channels(h, &l);
        if (*changed && h->brief && l.score && 2 * l.entries > h->matrices) keep_late(h, line, length);
        return true;
    }
    return false;
}

bool zf_history_text(struct zf_history *h, const char *line, size_t size)
{
    static const char prefix[] = "{\"type\":\"";
    bool changed = false;
    while (size && (line[size - 1] == '\n' || line[size - 1] == '\r')) size--;
    if (size > sizeof prefix && !memcmp(line, prefix, sizeof prefix - 1)) {
        const char *name = line + sizeof prefix - 1, *quote = memchr(name, '"', size - (sizeof prefix - 1));
        size_t n = quote ? (size_t)(quote - name) : 0;
        if (quote && !memchr(name, '\\', n) && !type_of(name, n)) return false;
        if (quote && scanned(h, name, n, line, size, &changed)) return done(h, changed);
    }
    if (!size) return false;
    h->parsed++;
    json_t *o = size > ZF_LINE_PARSED_MOST ? NULL : json_loadb(line, size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(o)) {
        h->bad++;
        json_decref(o);
        return false;
    }
    changed = zf_history_take(h, o);
    json_decref(o);
    return changed;
}

void zf_history_brief(struct zf_history *h, bool brief)
{
    struct zf_channel_line l;
    bool over = h->brief && !brief;
    h->brief = brief;
    if (!over || !h->own.late_size) return;
    if (zf_scan_channels(h, &l, h->own.late, h->own.late_size)) {
        for (size_t i = 0; i < l.entries; i++) {
            const struct zf_channel_entry *x = &h->own.entry[i];
            if (x->matrix == SIZE_MAX || !x->bins) continue;
            memcpy(h->matrix[x->matrix].bin, x->bin, x->bins * sizeof *x->bin);
            h->matrix[x->matrix].bins = x->bins;
        }
    }
    free(h->own.late);
    h->own.late = NULL;
    h->own.late_size = h->own.late_room = 0;
    h->version_of_data++;
}

/* ---- from start to end ---- */

void zf_history_open(struct zf_history *h)
{
    *h = (struct zf_history){.map.matrix = SIZE_MAX, .heat.merged = 1, .own.round = 1};
}

void zf_history_close(struct zf_history *h)
{
    free(h->model);
    free(h->device);
    free(h->strategy);
    json_decref(h->options);
    json_decref(h->origin_options);
    for (int i = 0; i < ZF_SERIES_COUNT; i++) zf_series_free(&h->series[i]);
    free(h->buffers.phase);
    zf_history_free_channels(h);
    zf_history_free_notes(h);
    zf_history_free_lanes(h);
    zf_history_open(h);
}

/* ---- questions ---- */

const char *zf_history_option(const struct zf_history *h, const char *name, char *buffer, size_t size)
{
    return zf_json_shown(json_object_get(h->options, name), buffer, size);
}

const struct zf_series *zf_history_series(const struct zf_history *h, enum zf_series_id id)
{
    return &h->series[id];
}

static struct zf_eta newest_steps(const struct zf_history *h)
{
    const struct zf_series *s = &h->series[ZF_SERIES_STEP_MS];
    struct zf_eta eta = {0};
    for (size_t i = 1; i <= s->recent_used && eta.count < ZF_ETA_WINDOW; i++) {
        double ms = s->recent[(s->recent_at + ZF_SERIES_RECENT - i) % ZF_SERIES_RECENT].value;
        if (ms >= 0 && ms < 1e12) zf_eta_step(&eta, ms / 1e3);
    }
    return eta;
}

double zf_history_pace(const struct zf_history *h)
{
    struct zf_eta eta = newest_steps(h);
    double last = h->series[ZF_SERIES_STEP_MS].last / 1e3;
    return eta.count >= ZF_ETA_LEAST ? zf_eta_step_seconds(&eta) : eta.count && last > 0 ? last : -1;
}

double zf_history_eta(const struct zf_history *h)
{
    struct zf_eta eta = newest_steps(h);
    return h->steps && h->step <= h->steps ? zf_eta_left(&eta, h->steps - h->step, 0) : -1;
}
