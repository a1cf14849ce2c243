/* Where a stream's time goes: CUDA events with timing between stretches of work, harvested as they come, without waiting for any.
 *
 * A mark costs the host and the stream about as much as the launch of a kernel that does nothing. So there is not one an op: work is
 * gathered until it is worth STRETCH of time by what it costs at best (struct zf_cost; each launch counts as at least LAUNCH), or MOST ops
 * of it; then its time is shared out by those costs. Ops that take their time are measured each by itself; a model of many small ones has a
 * mark for some dozens of them. Gaps between launches within a stretch count as work.
 *
 * A wait for an event has a mark before and one behind, so it begins when the stream has come to it, and one that is over already is none.
 * When the lane's thread has nothing to launch the stretch ends, and what follows begins with its next work: idle is neither.
 *
 * Elapsed times are floats: small differences are added up in double, and where the stream has been idle its clock is set anew by zf_clock;
 * a mark is never earlier than its launch, nor later than its harvest. */
#ifndef ZF_CUDA_MARKS_H
#define ZF_CUDA_MARKS_H

#include "kernels/account.h"

#include <cuda_runtime_api.h>

enum {
    ZF_MARKS = 256,
    ZF_MARKED_OPS = 32 * ZF_MARKS
}; /* as many as stretches may have (MOST): if there is room for a mark there is for its ops */

enum zf_stretch { ZF_STRETCH_IDLE, ZF_STRETCH_WORK, ZF_STRETCH_WAIT };

/* The end of a stretch. */
struct zf_mark {
    cudaEvent_t event;
    enum zf_stretch stretch;
    enum zf_phase phase; /* of a wait */
    double launched;
    bool alone; /* the stream had done all it was given */
    uint32_t ops;
};

struct zf_marked_op {
    enum zf_work_kind kind;
    enum zf_phase phase;
    struct zf_cost cost;
    double seconds; /* at best */
};

struct zf_marks {
    pthread_mutex_t lock; /* over all of it */
    cudaStream_t stream;
    struct zf_account account;
    struct zf_mark ring[ZF_MARKS]; /* [first, next) are to be harvested; the one before them is the last that was */
    uint64_t first, next;
    struct zf_marked_op ops[ZF_MARKED_OPS]; /* [first_op, next_op): those of the marks, then those of the open stretch */
    uint64_t first_op, next_op;
    uint32_t open;       /* ops since the last mark */
    double open_seconds; /* of them, at best */
    bool idle;           /* nothing is launched behind the last mark: what comes next begins a stretch */
    bool begun;          /* there is a last mark, at `at` */
    double at;
};

void zf_marks_init(struct zf_marks *m, cudaStream_t stream);
void zf_marks_free(struct zf_marks *m); /* the stream has done all it was given */

/* The lane's thread: around the launch of an op, and around a wait. */
void zf_marks_begin(struct zf_marks *m);
void zf_marks_op(struct zf_marks *m, enum zf_work_kind kind, enum zf_phase phase, const union zf_work_args *args);
void zf_marks_begin_wait(struct zf_marks *m);
void zf_marks_end_wait(struct zf_marks *m, enum zf_phase phase);
void zf_marks_close(struct zf_marks *m);   /* what is open ends here, and nothing begins before there is more work */
void zf_marks_harvest(struct zf_marks *m); /* any thread */

#endif
