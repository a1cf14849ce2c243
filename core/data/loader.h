/* A thread that reads rows ahead and hands out micro-batches through a bounded queue. What comes out is a pure function of the options: the
 * thread decides only when. */
#ifndef ZF_DATA_LOADER_H
#define ZF_DATA_LOADER_H

#include "core/data/batch.h"
#include "core/data/dataset.h"

enum { ZF_LOADER_DEPTH = 3 }; /* micro-batches in memory: one in use, the others waiting or being filled */

struct zf_loader_options {
    const struct zf_dataset *data;
    const struct zf_order *order; /* NULL: rows as they lie */
    uint64_t first, count;        /* positions first .. first+count */
    uint64_t step_rows; /* positions of an optimizer step; the last one may be smaller. Steps begin at multiples of it from `first` */
    int rank, ranks;    /* 0, 0: one. Each takes its share of a step's rows, in order (zf_share); one that has none takes the first row, as a
                           row without targets, so that all ranks have a micro-batch */
    size_t micro_batch; /* rows of a micro-batch, at most; it never spans two steps */
    size_t room_tokens; /* of a micro-batch */
    bool placed;        /* its thread is to run on this processor; else where the system likes */
    int processor;
};

struct zf_load {
    struct zf_batch batch;
    uint64_t first, last;          /* positions of the step it belongs to */
    uint64_t tokens, label_tokens; /* of that step, all its micro-batches */
    bool begins, ends;             /* the first, the last micro-batch of its step */
};

struct zf_loader;
enum zf_status zf_loader_start(struct zf_loader **out, const struct zf_loader_options *o, struct zf_err *e);
/* The next micro-batch, valid until the next call; NULL: that was all. What reading met comes at its place. */
enum zf_status zf_loader_next(struct zf_loader *l, const struct zf_load **out, struct zf_err *e);
double zf_loader_cpu(struct zf_loader *l);  /* processor seconds of its thread, up to the newest micro-batch; NULL is fine */
void zf_loader_stop(struct zf_loader *l);   /* NULL is fine; does not wait for the queue to drain */
size_t zf_loader_bytes(size_t room_tokens); /* memory that it takes, for the plan */

#endif
