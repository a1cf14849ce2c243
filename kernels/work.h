/* What backends share of a lane's work: its arguments in one union, what kind of work it is, what it costs. Nobody outside kernels includes
 * it. */
#ifndef ZF_KERNELS_WORK_H
#define ZF_KERNELS_WORK_H

#include "kernels/ops.h"

/* The arguments of any op, and of the work that is no op. */
struct zf_copy_args {
    void *to;
    const void *from;
    size_t bytes;
};
struct zf_copy_list_args {
    const struct zf_copy *list;
    size_t count;
};
struct zf_fill_args {
    void *to;
    size_t bytes;
    int byte;
};
struct zf_call_args {
    void (*body)(void *ctx);
    void *ctx;
};
struct zf_fail_args {
    enum zf_status code;
    char message[192];
};
struct zf_event_args {
    struct zf_event *event;
    uint64_t ticket;
};
union zf_work_args {
#define ZF_OP(name) struct zf_##name##_args name;
#include "kernels/ops.def"
#undef ZF_OP
    struct zf_copy_args copy;
    struct zf_copy_list_args copy_list;
    struct zf_fill_args fill;
    struct zf_call_args call;
    struct zf_fail_args fail;
    struct zf_event_args event;
};

/* Kinds of work, for the account of a lane's time. */
enum zf_work_kind {
    ZF_WORK_OTHER,
#define ZF_OP(name) ZF_WORK_##name,
#include "kernels/ops.def"
#undef ZF_OP
    ZF_WORK_copy,
    ZF_WORK_copy_list,
    ZF_WORK_fill,
    ZF_WORK_call,
    ZF_WORK_KINDS
};

/* What a lane does, one at a time, on its own thread. */
struct zf_work {
    enum zf_status (*run)(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e);
    bool always; /* done even after an error (events: somebody waits for them) */
    bool waits;  /* its time is waiting */
    enum zf_work_kind kind;
};

/* profile.c. Of one call: what the arguments alone say, no memory that they point to but a copy's list is read. */
struct zf_cost {
    double flops, bytes;
};
struct zf_cost zf_cost_of(enum zf_work_kind kind, const union zf_work_args *a);
const char *zf_work_name(enum zf_work_kind kind);

#endif
