/* Private to state.c and copies.c. */
#ifndef ZF_PIPELINE_STATE_IMPL_H
#define ZF_PIPELINE_STATE_IMPL_H

#include "core/pipeline/impl.h"
#include "core/pipeline/state.h"

#include <pthread.h>

/* Between the cpu lane, which wants to alter a part, and the thread that writes it. One block with the parts: work that was issued into the
 * lane may still come by when all is written, so it is buried, not freed. */
struct zf_state_gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool over;                    /* nobody reads any more: alter what you like */
    size_t spare;                 /* bytes that may still be kept */
    struct zf_state_part *wanted; /* the lane waits for this one */
    double waited, wait_began;    /* seconds that compute did; clock, the lane's */
    struct zf_event *place, *copied[3];
    bool exchange_passed[2]; /* the lane of ranks waits for that copy, from here on */
    bool passed[2];          /* compute waits for that copy, from here on; the issuer's */
    size_t parts;
    struct zf_state_part part[]; /* [parts] */
};

/* s is zeroed but for what is listed here; on failure, too, it is to be closed. parts: room for all parameters. */
enum zf_status zf_state_list(struct zf_state *s, struct zf_pipeline *p, struct zf_state_part *parts, struct zf_err *e);
void zf_state_end_copy(struct zf_state *s);

#endif
