/* A checkpoint of several ranks: rank 0 writes it, and asks the others for the rows of their shares. */
#ifndef ZF_RUN_SAVE_SHARE_H
#define ZF_RUN_SAVE_SHARE_H

#include "core/run/save_file.h"
#include "core/world/world.h"

/* Rank 0's view of all ranks' pieces. */
struct zf_sharing {
    struct zf_world *world;
    struct zf_state *state;
    struct zf_shared_piece { /* of another rank, which is no list of its own here */
        struct zf_state_piece piece;
        int rank;
        uint32_t index; /* in its list */
    } *others;
    size_t count, room;
};

/* All ranks, with the state open: rank 0 learns what there is. Another rank serves what it is asked for, until rank 0 ends it. */
enum zf_status zf_sharing_open(struct zf_sharing *s, struct zf_world *w, struct zf_state *state, struct zf_err *e);
enum zf_status zf_sharing_serve(struct zf_world *w, struct zf_state *state, struct zf_err *e);
void zf_sharing_close(struct zf_sharing *s, struct zf_err *e);

#endif
