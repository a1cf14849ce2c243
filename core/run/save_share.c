/* See save_share.h. */
#include "core/run/save_share.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t the_end = UINT32_MAX;

/* ---- what there is ---- */

/* Of a rank, for rank 0: pieces that it has rows of, and what is staged. */
static json_t *own_list(const struct zf_state *state)
{
    json_t *pieces = json_array(), *staged = json_array();
    for (size_t i = 0; i < state->count; i++) {
        const struct zf_state_piece *x = &state->list[i];
        size_t first, n;
        if (x->split == ZF_STATE_WHOLE) continue;
        zf_state_own(state, x, &first, &n);
        json_array_append_new(pieces, json_pack("[s I I I i]", x->name, (json_int_t)i, (json_int_t)n, (json_int_t)x->cols, (int)x->type));
    }
    for (size_t i = 0; i < state->pipeline->matrices; i++) {
        bool moved;
        size_t rows = zf_state_staged(state->pipeline, i, &moved);
        json_array_append_new(staged, json_pack("[I b]", (json_int_t)rows, moved));
    }
    return json_pack("{so so}", "pieces", pieces, "staged", staged);
}

static struct zf_shared_piece *piece_of(struct zf_sharing *s, const char *name, size_t cols, enum zf_state_type type)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->list[i].name, name)) return &s->list[i];
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        struct zf_shared_piece *grown = realloc(s->list, room * sizeof *grown);
        if (!grown) return NULL;
        s->list = grown;
        s->room = room;
    }
    struct zf_shared_piece *x = &s->list[s->count];
    *x = (struct zf_shared_piece){.type = type, .cols = cols, .part = calloc((size_t)zf_world_ranks(s->world), sizeof *x->part)};
    if (!x->part) return NULL;
    snprintf(x->name, sizeof x->name, "%s", name);
    s->count++;
    return x;
}

static enum zf_status add_list(struct zf_sharing *s, int rank, const json_t *list, struct zf_err *e)
{
    size_t i;
    const json_t *o, *pieces = json_object_get(list, "pieces");
    s->staged[rank] = json_incref(json_object_get(list, "staged"));
    json_array_foreach((json_t *)(uintptr_t)pieces, i, o)
    {
        const char *name = json_string_value(json_array_get(o, 0));
        size_t rows = (size_t)json_integer_value(json_array_get(o, 2)), cols = (size_t)json_integer_value(json_array_get(o, 3));
        enum zf_state_type type = (enum zf_state_type)json_integer_value(json_array_get(o, 4));
        struct zf_shared_piece *x = name ? piece_of(s, name, cols, type) : NULL;
        if (!x) return zf_fail_memory(e, "what ranks save");
        if (x->cols != cols || x->type != type)
            return zf_fail(e, ZF_IO, name, "ranks have it in different shapes; this is a mistake in the program");
        x->part[rank] = (struct zf_shared_part){rows, (uint32_t)json_integer_value(json_array_get(o, 1))};
        x->rows += rows;
    }
    return ZF_OK;
}

enum zf_status zf_sharing_open(struct zf_sharing *s, struct zf_world *w, struct zf_state *state, struct zf_err *e)
{
    *s = (struct zf_sharing){.world = w, .state = state, .staged = calloc((size_t)zf_world_ranks(w), sizeof(json_t *))};
    json_t *own = own_list(state);
    enum zf_status bad = own && s->staged ? add_list(s, 0, own, e) : zf_fail_memory(e, "what ranks save");
    json_decref(own);
    for (int r = 1; !bad && r < zf_world_ranks(w); r++) {
        void *bytes;
        size_t size;
        ZF_TRY(zf_world_receive(w, r, &bytes, &size, e));
        json_t *list = json_loadb(bytes, size, 0, NULL);
        free(bytes);
        bad = list ? add_list(s, r, list, e) : zf_fail(e, ZF_IO, NULL, "rank %d has sent no list of its state", r);
        json_decref(list);
    }
    return bad;
}

const struct zf_shared_piece *zf_sharing_find(const struct zf_sharing *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->list[i].name, name)) return &s->list[i];
    return NULL;
}

void zf_sharing_facts(const struct zf_sharing *s, json_t *facts)
{
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(facts, "matrices"), i, o)
    {
        json_int_t rows = 0;
        bool moved = false;
        for (int r = 0; r < zf_world_ranks(s->world); r++) {
            const json_t *one = json_array_get(s->staged[r], i);
            rows += json_integer_value(json_array_get(one, 0));
            moved |= json_is_true(json_array_get(one, 1));
        }
        json_object_set_new(o, "staged_rows", json_integer(rows));
        json_object_set_new(o, "staged_moved", json_boolean(moved));
    }
}

/* ---- rows ---- */

enum zf_status zf_sharing_ask(const struct zf_sharing *s, const struct zf_shared_piece *x, int rank, struct zf_err *e)
{
    return zf_world_put(s->world, rank, &x->part[rank].index, sizeof x->part[rank].index, e);
}

enum zf_status zf_sharing_close(struct zf_sharing *s, struct zf_err *e)
{
    enum zf_status bad = ZF_OK;
    for (int r = 1; r < zf_world_ranks(s->world); r++) {
        json_decref(s->staged ? s->staged[r] : NULL);
        if (!bad) bad = zf_world_put(s->world, r, &the_end, sizeof the_end, e);
    }
    if (s->staged) json_decref(s->staged[0]);
    for (size_t i = 0; i < s->count; i++) free(s->list[i].part);
    free(s->staged);
    free(s->list);
    *s = (struct zf_sharing){0};
    return bad;
}

static enum zf_status give(struct zf_world *w, struct zf_state *state, const struct zf_state_piece *x, struct zf_err *e)
{
    enum { BYTES = 4 << 20 };
    size_t row = x->cols * zf_state_type_bytes(x->type), most = row < BYTES ? BYTES / row : 1, first, n;
    void *buffer = malloc(most * row);
    enum zf_status bad = buffer ? ZF_OK : zf_fail_memory(e, "a checkpoint");
    zf_state_own(state, x, &first, &n);
    for (size_t at = 0, some; !bad && at < n; at += some) {
        some = n - at < most ? n - at : most;
        bad = zf_state_read(state, x, first + at, some, buffer, e);
        if (!bad) bad = zf_world_put(w, 0, buffer, some * row, e);
    }
    free(buffer);
    return bad;
}

enum zf_status zf_sharing_serve(struct zf_world *w, struct zf_state *state, struct zf_err *e)
{
    json_t *own = own_list(state);
    char *text = own ? json_dumps(own, JSON_COMPACT) : NULL;
    enum zf_status bad = text ? zf_world_send(w, 0, text, strlen(text), e) : zf_fail_memory(e, "what ranks save");
    free(text);
    json_decref(own);
    for (uint32_t index; !bad;) {
        ZF_TRY(zf_world_get(w, 0, &index, sizeof index, e));
        if (index == the_end) return ZF_OK;
        if (index >= state->count) return zf_fail(e, ZF_IO, NULL, "rank 0 wants a piece that is not there; a mistake in the program");
        bad = give(w, state, &state->list[index], e);
    }
    return bad;
}
