/* A checkpoint of several ranks: rank 0 writes it, and asks the others for the rows of their shares, piece by piece. */
#ifndef ZF_RUN_SAVE_SHARE_H
#define ZF_RUN_SAVE_SHARE_H

#include "core/pipeline/state.h"
#include "core/world/world.h"

/* A piece that ranks have parts of, at rank 0. */
struct zf_shared_piece {
    char name[256];
    enum zf_state_type type;
    size_t rows, cols; /* of all ranks */
    struct zf_shared_part {
        size_t rows;
        uint32_t index; /* in the list of that rank */
    } * part;           /* [ranks] */
};

struct zf_sharing {
    struct zf_world *world;
    struct zf_state *state;
    struct zf_shared_piece *list;
    size_t count, room;
    json_t **staged; /* [ranks] [[rows, moved], ...] by matrix */
};

/* Rank 0, with its state open: learns what the others have. They are in zf_sharing_serve until it is closed. */
enum zf_status zf_sharing_open(struct zf_sharing *s, struct zf_world *w, struct zf_state *state, struct zf_err *e);
/* The others may go on. Zeroed is fine. */
enum zf_status zf_sharing_close(struct zf_sharing *s, struct zf_err *e);
/* Another rank: gives what it is asked for. */
enum zf_status zf_sharing_serve(struct zf_world *w, struct zf_state *state, struct zf_err *e);

const struct zf_shared_piece *zf_sharing_find(const struct zf_sharing *s, const char *name); /* NULL: rank 0 has all of it */
/* Before the rows of a rank's part, which then come by zf_world_get. */
enum zf_status zf_sharing_ask(const struct zf_sharing *s, const struct zf_shared_piece *x, int rank, struct zf_err *e);
/* What zf_state_facts says, for all ranks. */
void zf_sharing_facts(const struct zf_sharing *s, json_t *facts);

#endif
