/* A copy of all that a history knows, but of lanes, which are of the newest moments only. */
#include "tui/history_impl.h"

#include <stdlib.h>
#include <string.h>

static bool copy_bytes(void *to, const void *from, size_t size, size_t room)
{
    void *copy = NULL;
    bool ok = !from || !room || (copy = malloc(room));
    if (copy && size) memcpy(copy, from, size);
    memcpy(to, &copy, sizeof copy);
    return ok;
}

static bool copy_word(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}

static bool copy_series(struct zf_series *to, const struct zf_series *from)
{
    *to = *from;
    to->recent = NULL;
    bool ok = copy_bytes(&to->bucket, from->bucket, from->used * sizeof *from->bucket, ZF_SERIES_BUCKETS * sizeof *from->bucket);
    return copy_bytes(&to->recent, from->recent, ZF_SERIES_RECENT * sizeof *from->recent, ZF_SERIES_RECENT * sizeof *from->recent) && ok;
}

static bool copy_notes(struct zf_notes *to, const struct zf_notes *from)
{
    *to = (struct zf_notes){.list = from->list ? malloc(ZF_NOTES_MOST * sizeof *to->list) : NULL, .added = from->added};
    for (; to->list && to->count < from->count; to->count++) {
        struct zf_note *n = &to->list[to->count];
        *n = from->list[to->count];
        if (!copy_word(&n->text, from->list[to->count].text)) return false;
    }
    return to->list || !from->list;
}

static bool copy_matrices(struct zf_history *to, const struct zf_history *from)
{
    size_t columns = ZF_HEAT_COLUMNS * sizeof(float), steps = ZF_HEAT_COLUMNS * sizeof *from->heat.step, n = from->matrices;
    if (!n) return true;
    to->matrix = calloc(n, sizeof *to->matrix);
    bool ok = copy_bytes(&to->own.slot, from->own.slot, from->own.slots * sizeof *from->own.slot, from->own.slots * sizeof *from->own.slot);
    ok = copy_bytes(&to->norm, from->norm, n * sizeof *from->norm, n * sizeof *from->norm) && ok;
    to->heat = from->heat;
    ok = copy_bytes(&to->heat.step, from->heat.step, steps, steps) && to->matrix && ok;
    to->own.slots = from->own.slots;
    to->own.round = from->own.round;
    to->own.channels_kept = from->own.channels_kept;
    for (size_t i = 0; ok && i < n; i++) {
        const struct zf_matrix_seen *m = &from->matrix[i];
        struct zf_matrix_seen *x = &to->matrix[i];
        *x = *m;
        ok = copy_word(&x->name, m->name);
        ok = copy_bytes(&x->energy_column, m->energy_column, columns, columns) && ok;
        ok = copy_bytes(&x->channel, m->channel, m->channel_count * sizeof *m->channel, m->channel_count * sizeof *m->channel) && ok;
        to->matrices++;
    }
    return ok;
}

static bool copy_map(struct zf_history *to, const struct zf_history *from)
{
    const struct zf_channel_map *a = &from->map;
    if (a->matrix >= from->matrices) return true;
    zf_history_watch(to, a->matrix);
    struct zf_channel_map *b = &to->map;
    if (b->matrix != a->matrix) return false;
    b->rows = a->rows;
    b->full = a->full;
    b->used = a->used;
    b->at = a->at;
    for (size_t i = 0; i < a->used; i++) { /* of the ring's columns those that are in use */
        size_t c = (a->at + ZF_CHANNEL_COLUMNS - 1 - i) % ZF_CHANNEL_COLUMNS, at = c * ZF_CHANNEL_ROWS;
        b->step[c] = a->step[c];
        memcpy(b->score + at, a->score + at, a->rows * sizeof *a->score);
        memcpy(b->selected + at, a->selected + at, a->rows);
    }
    return true;
}

bool zf_history_copy(struct zf_history *to, const struct zf_history *from)
{
    static const size_t phases = (size_t)ZF_GROUP_STEPS * ZF_GROUPS_MOST;
    bool ok = copy_word(&to->model, from->model);
    ok = copy_word(&to->device, from->device) && ok;
    ok = copy_word(&to->strategy, from->strategy) && ok;
    ok = copy_word(&to->saved.file, from->saved.file) && ok;
    char *file = to->saved.file;
    to->saved = from->saved;
    to->saved.file = file;
    to->options = json_deep_copy(from->options);
    to->origin_options = json_deep_copy(from->origin_options);
    ok = ok && (to->options || !from->options) && (to->origin_options || !from->origin_options);
    for (int i = 0; i < ZF_SERIES_COUNT; i++) ok = copy_series(&to->series[i], &from->series[i]) && ok;
    to->buffers = from->buffers;
    ok = copy_bytes(&to->buffers.phase, from->buffers.phase, phases, phases) && ok;
    ok = copy_notes(&to->notes, &from->notes) && ok;
    ok = copy_notes(&to->samples, &from->samples) && ok;
    to->own.bytes_of_notes = from->own.bytes_of_notes;
    to->own.bytes_of_samples = from->own.bytes_of_samples;
    ok = copy_matrices(to, from) && ok;
    ok = ok && copy_map(to, from);
    to->parameters = from->parameters;
    to->steps = from->steps;
    to->attempt = from->attempt;
    to->step = from->step;
    to->time = from->time;
    to->norm_step = from->norm_step;
    to->ended = from->ended;
    memcpy(to->end_reason, from->end_reason, sizeof to->end_reason);
    to->bad = from->bad;
    to->parsed = from->parsed;
    to->version_of_data = from->version_of_data;
    if (!ok) zf_history_close(to);
    return ok;
}
