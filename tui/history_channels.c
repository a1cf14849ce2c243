/* What a run says about its matrices: who they are, which channels are selected, how the gradient is spread over them. */
#include "tui/history_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS_KEPT_MOST = 2 << 20 }; /* numbers of selected channels, of all matrices */

/* ---- who they are ---- */

static uint32_t hash(const char *name, size_t size)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h;
}

static bool is_named(const struct zf_history *h, size_t i, const char *name, size_t size)
{
    return !strncmp(h->matrix[i].name, name, size) && !h->matrix[i].name[size];
}

size_t zf_history_matrix(const struct zf_history *h, const char *name, size_t size, size_t *hint)
{
    if (!h->matrices) return SIZE_MAX;
    if (*hint < h->matrices && is_named(h, *hint, name, size)) return (*hint)++; /* lines have them in one order */
    for (size_t at = hash(name, size) & (h->own.slots - 1); h->own.slot[at]; at = (at + 1) & (h->own.slots - 1)) {
        size_t i = h->own.slot[at] - 1;
        if (!is_named(h, i, name, size)) continue;
        *hint = i + 1;
        return i;
    }
    return SIZE_MAX;
}

static void free_matrices(struct zf_history *h)
{
    for (size_t i = 0; i < h->matrices; i++) {
        free(h->matrix[i].name);
        free(h->matrix[i].energy_column);
        free(h->matrix[i].channel);
    }
    free(h->matrix);
    free(h->norm);
    free(h->heat.step);
    free(h->own.slot);
    h->matrix = NULL;
    h->norm = NULL;
    h->heat = (struct zf_heat_columns){.merged = 1};
    h->own.slot = NULL;
    h->matrices = h->own.slots = h->own.channels_kept = 0;
    h->own.round = 1;
    h->norm_step = 0;
    zf_history_watch(h, SIZE_MAX);
}

void zf_history_free_channels(struct zf_history *h)
{
    free_matrices(h);
    free(h->own.entry);
    free(h->own.channel);
    free(h->own.late);
    h->own.entry = NULL;
    h->own.channel = NULL;
    h->own.late = NULL;
    h->own.entry_room = h->own.channel_room = h->own.late_size = h->own.late_room = 0;
}

static bool same_matrices(const struct zf_history *h, const json_t *list, size_t n)
{
    if (n != h->matrices) return false;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (!name || strcmp(h->matrix[i].name, name) != 0) return false;
    }
    return true;
}

static bool add_matrix(struct zf_history *h, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    size_t unused = SIZE_MAX;
    if (!name || zf_history_matrix(h, name, strlen(name), &unused) != SIZE_MAX) return true;
    struct zf_matrix_seen m = {.kept = (double)NAN,
                               .energy = (double)NAN,
                               .name = strdup(name),
                               .energy_column = malloc(ZF_HEAT_COLUMNS * sizeof(float)),
                               .channels = zf_history_count(json_object_get(o, "channels"), 0),
                               .length = zf_history_count(json_object_get(o, "length"), 0)};
    if (!m.name || !m.energy_column) {
        free(m.name);
        free(m.energy_column);
        return false;
    }
    size_t at = hash(name, strlen(name)) & (h->own.slots - 1);
    while (h->own.slot[at]) at = (at + 1) & (h->own.slots - 1);
    h->matrix[h->matrices] = m;
    h->own.slot[at] = (uint32_t)++h->matrices;
    return true;
}

bool zf_history_matrices(struct zf_history *h, const json_t *list)
{
    size_t n = json_array_size(list), slots = 16;
    if (n > ZF_MATRICES_MOST) n = ZF_MATRICES_MOST;
    if (!n || same_matrices(h, list, n) || (h->matrices && h->step)) return true; /* a run's matrices stay */
    free_matrices(h);
    while (slots < 2 * n) slots *= 2;
    h->matrix = calloc(n, sizeof *h->matrix);
    h->norm = calloc(n, sizeof *h->norm);
    h->heat.step = malloc(ZF_HEAT_COLUMNS * sizeof *h->heat.step);
    h->own.slot = calloc(slots, sizeof *h->own.slot);
    h->own.slots = slots;
    bool ok = h->matrix && h->norm && h->heat.step && h->own.slot;
    for (size_t i = 0; ok && i < n; i++) ok = add_matrix(h, json_array_get(list, i));
    if (!ok) free_matrices(h);
    return ok;
}

/* ---- what is read of a line ---- */

struct zf_channel_entry *zf_history_entry(struct zf_history *h, size_t index)
{
    struct zf_history_own *o = &h->own;
    if (index >= ZF_MATRICES_MOST) return NULL;
    if (index >= o->entry_room) {
        size_t room = o->entry_room ? 2 * o->entry_room : 64;
        struct zf_channel_entry *more = realloc(o->entry, room * sizeof *more);
        if (!more) return NULL;
        o->entry = more;
        o->entry_room = room;
    }
    struct zf_channel_entry *x = &o->entry[index];
    x->matrix = SIZE_MAX;
    x->energy = x->kept = (double)NAN;
    x->selected = x->bins = x->tops = x->channel_at = x->channels = 0;
    x->has_channels = false;
    return x;
}

bool zf_history_channel(struct zf_history *h, size_t index, uint32_t channel)
{
    struct zf_history_own *o = &h->own;
    if (index >= CHANNELS_KEPT_MOST) return false;
    if (index >= o->channel_room) {
        size_t room = o->channel_room ? 2 * o->channel_room : 1024;
        uint32_t *more = realloc(o->channel, room * sizeof *more);
        if (!more) return false;
        o->channel = more;
        o->channel_room = room;
    }
    o->channel[index] = channel;
    return true;
}

static size_t float_list(const json_t *list, float *to, size_t most)
{
    size_t n = json_array_size(list);
    if (n > most) n = most;
    for (size_t i = 0; i < n; i++) to[i] = zf_history_float(zf_history_number(json_array_get(list, i), (double)NAN));
    return n;
}

bool zf_history_take_channels(struct zf_history *h, const json_t *line, bool score)
{
    const json_t *list = json_object_get(line, "matrices"), *one, *channels;
    struct zf_channel_line l = {.step = zf_history_count(json_object_get(line, "step"), UINT64_MAX), .score = score};
    size_t hint = 0, at = 0;
    if (l.step == UINT64_MAX) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        struct zf_channel_entry *x = name ? zf_history_entry(h, l.entries) : NULL;
        if (!x) continue;
        l.entries++;
        x->matrix = zf_history_matrix(h, name, strlen(name), &hint);
        x->energy = zf_history_number(json_object_get(one, score ? "selected_energy" : "energy"), (double)NAN);
        if (score) {
            x->bins = float_list(json_object_get(one, "bins"), x->bin, ZF_BINS_MOST);
            x->tops = float_list(json_object_get(one, "top"), x->top, ZF_TOPS_MOST);
            continue;
        }
        x->kept = zf_history_number(json_object_get(one, "kept"), (double)NAN);
        x->selected = zf_history_count(json_object_get(one, "selected"), 0);
        channels = json_object_get(one, "channels");
        x->has_channels = json_is_array(channels);
        x->channel_at = at;
        for (size_t k = 0; k < json_array_size(channels); k++) {
            uint64_t c = zf_history_count(json_array_get(channels, k), UINT64_MAX);
            if (c <= UINT32_MAX && zf_history_channel(h, at, (uint32_t)c)) at++, x->channels++;
        }
    }
    return zf_history_channels(h, &l);
}

/* ---- what is done with it ---- */

/* Two columns are one: the mean of what is known. */
static void halve_columns(struct zf_history *h)
{
    size_t n = h->heat.used / 2;
    for (size_t i = 0; i < h->matrices; i++) {
        float *c = h->matrix[i].energy_column;
        for (size_t k = 0; k < n; k++) {
            float a = c[2 * k], b = c[2 * k + 1];
            c[k] = isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
        }
    }
    for (size_t k = 0; k < n; k++) h->heat.step[k] = h->heat.step[2 * k + 1];
    h->heat.used = n;
    h->heat.merged *= 2;
    h->heat.pending = h->heat.merged;
}

static bool new_round(struct zf_history *h, const struct zf_channel_line *l)
{
    if (!h->heat.used) return true;
    for (size_t i = 0; i < l->entries; i++) {
        size_t m = h->own.entry[i].matrix;
        if (m != SIZE_MAX && h->matrix[m].round == h->own.round) return true;
    }
    return false;
}

static void begin_round(struct zf_history *h)
{
    h->own.round++;
    if (h->heat.used && h->heat.pending < h->heat.merged) {
        h->heat.pending++;
        return;
    }
    if (h->heat.used == ZF_HEAT_COLUMNS) halve_columns(h);
    for (size_t i = 0; i < h->matrices; i++) h->matrix[i].energy_column[h->heat.used] = NAN;
    h->heat.used++;
    h->heat.pending = 1;
}

static void put_energy(struct zf_history *h, struct zf_matrix_seen *m, double energy)
{
    float *c = &m->energy_column[h->heat.used - 1];
    m->round = h->own.round;
    if (!(energy >= 0 && energy <= 1)) return;
    m->energy = energy;
    *c = isnan(*c) ? (float)energy : *c + ((float)energy - *c) / (float)h->heat.pending;
}

static void put_channels(struct zf_history *h, struct zf_matrix_seen *m, const struct zf_channel_entry *x)
{
    size_t n = x->channels, others = h->own.channels_kept - m->channel_count;
    if (others + n > CHANNELS_KEPT_MOST) n = 0;
    uint32_t *list = n ? malloc(n * sizeof *list) : NULL;
    if (n && list) memcpy(list, h->own.channel + x->channel_at, n * sizeof *list);
    free(m->channel);
    m->channel = list;
    m->channel_count = list ? n : 0;
    h->own.channels_kept = others + m->channel_count;
}

/* Share of each row's channels that are among the selected ones. */
static void put_selected(const struct zf_matrix_seen *m, uint8_t *to, size_t rows)
{
    uint32_t hits[ZF_CHANNEL_ROWS] = {0};
    memset(to, 0, rows);
    if (!m->channels || !rows) return;
    for (size_t i = 0; i < m->channel_count; i++) {
        if (m->channel[i] >= m->channels) continue;
        size_t r = (size_t)((double)m->channel[i] * (double)rows / (double)m->channels);
        hits[r < rows ? r : rows - 1]++;
    }
    double share = 255 * (double)rows / (double)m->channels;
    for (size_t r = 0; r < rows; r++) to[r] = (uint8_t)fmin(255, ceil(share * hits[r]));
}

/* Columns that have less rows than the map by now: each row gets the score of the one that it is a part of. */
static void widen(float *score, uint8_t *selected, size_t from, size_t to)
{
    for (size_t r = to; r-- > 0;) {
        score[r] = score[r * from / to];
        if (selected) selected[r] = selected[r * from / to];
    }
}

/* A column of the map; of a step that is there already it is the same column. */
static void put_map(struct zf_history *h, uint64_t step, const float *score, size_t rows, bool full)
{
    struct zf_channel_map *p = &h->map;
    if (!p->score || !rows) return;
    size_t last = (p->at + ZF_CHANNEL_COLUMNS - 1) % ZF_CHANNEL_COLUMNS, at = p->at;
    bool again = p->used && p->step[last] == step;
    if (p->used && (step < p->step[last] || (again && p->full && !full))) return;
    if (p->used && full && !p->full && rows >= p->rows) {
        for (size_t i = 0; i < ZF_CHANNEL_COLUMNS && i < p->used; i++) {
            size_t c = (p->at + ZF_CHANNEL_COLUMNS - 1 - i) % ZF_CHANNEL_COLUMNS;
            widen(p->score + c * ZF_CHANNEL_ROWS, p->selected + c * ZF_CHANNEL_ROWS, p->rows, rows);
        }
        p->rows = rows;
        p->full = true;
    } else if (!p->used || (rows != p->rows && !(p->full && !full && rows < p->rows))) {
        p->used = p->at = at = 0;
        again = false;
        p->rows = rows;
        p->full = full;
    }
    if (again) {
        at = last;
    } else {
        p->at = (at + 1) % ZF_CHANNEL_COLUMNS;
        if (p->used < ZF_CHANNEL_COLUMNS) p->used++;
    }
    p->step[at] = step;
    memcpy(p->score + at * ZF_CHANNEL_ROWS, score, rows * sizeof *score);
    if (rows < p->rows) widen(p->score + at * ZF_CHANNEL_ROWS, NULL, rows, p->rows);
    put_selected(&h->matrix[p->matrix], p->selected + at * ZF_CHANNEL_ROWS, p->rows);
}

static void put_score(struct zf_history *h, const struct zf_channel_entry *x, uint64_t step)
{
    struct zf_matrix_seen *m = &h->matrix[x->matrix];
    if (x->bins) {
        memcpy(m->bin, x->bin, x->bins * sizeof *m->bin);
        m->bins = x->bins;
    }
    for (size_t i = 0; i < ZF_TOPS_MOST && x->tops; i++) m->top[i] = i < x->tops ? x->top[i] : NAN;
    if (x->matrix == h->map.matrix && x->bins && !h->mapping) put_map(h, step, x->bin, x->bins, false);
}

bool zf_history_channels(struct zf_history *h, const struct zf_channel_line *l)
{
    bool known = false;
    double kept = 0, selections = 0;
    for (size_t i = 0; i < l->entries; i++) known |= h->own.entry[i].matrix != SIZE_MAX;
    if (!known) return false;
    uint64_t newest = h->heat.used ? h->heat.step[h->heat.used - 1] : 0;
    if (h->heat.used && l->step < newest) return false;
    bool again = h->heat.used && l->step == newest; /* a select line and the score line after it */
    if (!again && new_round(h, l)) begin_round(h);
    h->heat.step[h->heat.used - 1] = l->step;
    for (size_t i = 0; i < l->entries; i++) {
        const struct zf_channel_entry *x = &h->own.entry[i];
        if (x->matrix == SIZE_MAX) continue;
        struct zf_matrix_seen *m = &h->matrix[x->matrix];
        bool all_or_none = !(x->energy > 0 && x->energy < 1); /* one half has every channel: nothing is selected */
        double energy = l->score && all_or_none && x->tops > 3 ? (double)x->top[3] : x->energy;
        if (!again || m->round != h->own.round) put_energy(h, m, energy);
        if (l->score) {
            put_score(h, x, l->step);
            continue;
        }
        m->energy = energy;
        m->kept = x->kept;
        if (isfinite(x->kept)) kept += x->kept, selections++;
        m->selected = x->selected;
        if (x->has_channels) put_channels(h, m, x);
    }
    if (selections) zf_series_add(&h->series[ZF_SERIES_KEPT], l->step, kept / selections);
    return true;
}

bool zf_history_take_norms(struct zf_history *h, const json_t *line)
{
    const json_t *list = json_object_get(line, "matrices");
    size_t hint = 0;
    uint64_t step = zf_history_count(json_object_get(line, "step"), UINT64_MAX);
    if (step == UINT64_MAX || (h->norm_step && step < h->norm_step)) return false;
    h->norm_step = step;
    for (size_t i = 0; h->norm && i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        size_t m = name ? zf_history_matrix(h, name, strlen(name), &hint) : SIZE_MAX;
        if (m == SIZE_MAX) continue;
        h->norm[m] = zf_history_number(json_object_get(o, "norm"), (double)NAN);
    }
    return true;
}

/* ---- one matrix ---- */

void zf_history_watch(struct zf_history *h, size_t matrix)
{
    struct zf_channel_map *p = &h->map;
    free(p->score);
    free(p->selected);
    free(p->step);
    *p = (struct zf_channel_map){.matrix = SIZE_MAX};
    h->mapping = false;
    h->watched++;
    if (matrix >= h->matrices) return;
    p->score = malloc((size_t)ZF_CHANNEL_COLUMNS * ZF_CHANNEL_ROWS * sizeof *p->score);
    p->selected = malloc((size_t)ZF_CHANNEL_COLUMNS * ZF_CHANNEL_ROWS);
    p->step = malloc(ZF_CHANNEL_COLUMNS * sizeof *p->step);
    if (p->score && p->selected && p->step) {
        p->matrix = matrix;
        return;
    }
    free(p->score);
    free(p->selected);
    free(p->step);
    *p = (struct zf_channel_map){.matrix = SIZE_MAX};
}

void zf_history_mapping(struct zf_history *h, bool on)
{
    h->mapping = on;
}

void zf_history_map(struct zf_history *h, const char *line, size_t size)
{
    struct zf_channel_line l;
    bool brief = h->brief;
    if (h->map.matrix >= h->matrices) return;
    h->brief = true;
    bool ok = zf_scan_channels(h, &l, line, size);
    h->brief = brief;
    for (size_t i = 0; ok && i < l.entries; i++) {
        const struct zf_channel_entry *x = &h->own.entry[i];
        if (x->matrix != h->map.matrix) continue;
        if (l.score)
            put_map(h, l.step, x->bin, x->bins, false);
        else if (x->has_channels)
            put_channels(h, &h->matrix[x->matrix], x);
        h->version_of_data++;
    }
}

bool zf_history_take_watch(struct zf_history *h, const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    const json_t *scores = json_object_get(line, "scores"), *channels = json_object_get(line, "selected");
    uint64_t step = zf_history_count(json_object_get(line, "step"), UINT64_MAX);
    size_t hint = 0, n = json_array_size(scores), m = name ? zf_history_matrix(h, name, strlen(name), &hint) : SIZE_MAX, at = 0;
    float row[ZF_CHANNEL_ROWS];
    if (m == SIZE_MAX || m != h->map.matrix || h->mapping || !n || step == UINT64_MAX) return false;
    size_t rows = n < ZF_CHANNEL_ROWS ? n : ZF_CHANNEL_ROWS;
    for (size_t r = 0; r < rows; r++) {
        size_t from = r * n / rows, end = (r + 1) * n / rows;
        double sum = 0;
        for (size_t i = from; i < end; i++) sum += zf_history_number(json_array_get(scores, i), 0);
        row[r] = zf_history_float(log10(sum / (double)(end - from)));
    }
    if (json_is_array(channels)) {
        struct zf_channel_entry x = {0};
        for (size_t k = 0; k < json_array_size(channels); k++) {
            uint64_t c = zf_history_count(json_array_get(channels, k), UINT64_MAX);
            if (c <= UINT32_MAX && zf_history_channel(h, at, (uint32_t)c)) at++, x.channels++;
        }
        put_channels(h, &h->matrix[m], &x);
    }
    put_map(h, step, row, rows, true);
    return true;
}

void zf_history_cut_channels(struct zf_history *h, uint64_t step)
{
    bool any = false;
    for (; h->heat.used && h->heat.step[h->heat.used - 1] > step; any = true) {
        h->heat.used--;
        h->heat.pending = h->heat.merged;
    }
    for (size_t i = 0; any && i < h->matrices; i++) h->matrix[i].round = h->own.round; /* whatever comes begins a new column */
    struct zf_channel_map *p = &h->map;
    while (p->used) {
        size_t last = (p->at + ZF_CHANNEL_COLUMNS - 1) % ZF_CHANNEL_COLUMNS;
        if (p->step[last] <= step) break;
        p->at = last;
        p->used--;
    }
    if (h->norm_step > step) h->norm_step = 0;
}
