/* The device interface: what core asks of a machine that holds weights and multiplies matrices.
 *
 * A backend (host, later cuda and sim) is one struct of function pointers. Work is *issued* into lanes: a lane is an in-order
 * queue, an event marks a point in one, a lane waits for events without holding up the thread that issues. Every function
 * returns a status; what goes wrong inside issued work comes up at the next lane_sync, or when lane_failed is asked.
 * Kernels are flat functions over raw pointers (kernels/ops.h); none allocates; workspaces are passed.
 * Threads: one thread issues into a lane; lane_sync, event_sync may be called from any. */
#ifndef ZF_KERNELS_DEVICE_H
#define ZF_KERNELS_DEVICE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZF_DEVICE_ABI = 1 };

enum zf_dtype { ZF_F32, ZF_BF16, ZF_F16, ZF_F64, ZF_I32, ZF_I64, ZF_U8, ZF_DTYPES };

enum zf_memory_kind {
    ZF_MEM_DEVICE, /* where kernels work */
    ZF_MEM_PINNED  /* host memory that the device can copy from and to without staging */
};

/* What an allocation is for: the rows of the memory plan and of the live table (device_info.bytes). */
/* clang-format off */
#define ZF_MEM_TAG_MAP(X) \
    X(WEIGHTS, "weights") \
    X(GRADIENTS, "gradients") \
    X(MOMENTS, "moments") \
    X(ACTIVATIONS, "activations") \
    X(LOGITS, "logits") \
    X(CACHE, "key/value cache") \
    X(BATCH, "batch") \
    X(CPU_STATE, "CPU half") \
    X(SLOTS, "gradient slots") \
    X(STAGING, "staging") \
    X(COPIES, "copies for a checkpoint") \
    X(OTHER, "other")
/* clang-format on */
enum zf_mem_tag {
#define X(name, text) ZF_TAG_##name,
    ZF_MEM_TAG_MAP(X)
#undef X
        ZF_MEM_TAGS
};

/* What a lane's work is for: the parts of the account of its time (lane_profile). */
/* clang-format off */
#define ZF_PHASE_MAP(X) \
    X(OTHER, "other") \
    X(FORWARD, "forward") \
    X(HEAD, "head and loss") \
    X(BACKWARD, "backward") \
    X(UPDATE, "update") \
    X(VALIDATION, "validation") \
    X(GENERATION, "generation")
/* clang-format on */
enum zf_phase {
#define X(name, text) ZF_PHASE_##name,
    ZF_PHASE_MAP(X)
#undef X
        ZF_PHASES
};

/* A line of that account: an op, within a phase. flops and bytes are what the op cannot do without: each operand once. */
struct zf_profile_row {
    enum zf_phase phase;
    const char *op;
    uint64_t calls;
    double seconds, flops, bytes;
};

/* What a lane did from start to end (zf_clock): an op, or a wait for an event. */
struct zf_span {
    double start, end, work; /* work: seconds of it, less where the op waited for the pool; of a wait 0 */
    const char *op;          /* static text */
    enum zf_phase phase;
    bool wait;
};

struct zf_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct zf_device;
struct zf_lane;
struct zf_event;

/* Whose work a device of the host does, and so which of a run's threads it has (kernels/cores.h). Where there are too few to be parted each
 * has all. */
enum zf_device_part {
    ZF_PART_ALL,
    ZF_PART_COMPUTE, /* while the CPU half has nothing to do its threads as well: see `share` */
    ZF_PART_CPU_HALF,
    ZF_PART_BESIDE_GPU /* the CPU half of another device, which needs the thread that issues alone */
};

struct zf_device_options {
    int number;               /* cuda: which GPU, from 0 */
    int threads;              /* of all parts together; 0: the physical cores of the affinity mask */
    enum zf_device_part part; /* host */
    const char *isa;          /* host: force a path (scalar, avx2, avx512, avx512+amx); NULL: the best there is */
    bool synchronous;         /* run each op inside the call that issues it, for debugging */
    uint64_t jitter; /* delays before pieces of work, of random length from this seed; to find what waits for too little. 0: none */
};

struct zf_device_info {
    char description[256];          /* "2 threads, avx512+amx, oneDNN 2.6.3 (avx512_core_amx_bf16)" */
    char isa[32];                   /* which path own kernels take */
    char products[64];              /* library and version of matrix products, with what it dispatches to: part of what "same bits" means */
    int threads;                    /* of the host that work for it; of its part. cuda: that may make what it works on */
    bool pinned;                    /* each thread to a core of its own */
    char placement[192];            /* "pinned to processors 0-7", "not pinned: WHY"; empty: not opened */
    bool bf16_products;             /* the hardware multiplies bf16 */
    size_t total_bytes, free_bytes; /* memory of the device; 0 = not known */
    size_t bytes[ZF_MEM_TAGS], peak_bytes; /* allocated now, by tag; the most there was */
};

struct zf_ops;
struct zf_comm;
struct zf_comm_world;

/* The head of every backend's event: a lane may wait for events of another backend's lanes. */
struct zf_event {
    const struct zf_device_type *type;
};

/* One backend. Pointers marked "may be NULL" are optional. */
struct zf_device_type {
    uint32_t abi; /* ZF_DEVICE_ABI */
    const char *name;
    enum zf_status (*open)(struct zf_device **out, const struct zf_device_options *o, struct zf_err *e);
    /* May be NULL: it can always be opened. Whether it could be: else what is missing, and what to do. *found: there is one (its
     * description), if it can be opened or not. */
    enum zf_status (*probe)(const struct zf_device_options *o, struct zf_device_info *found, struct zf_err *e);
    void (*close)(struct zf_device *d);                            /* all lanes, events and memory must have been freed */
    void (*info)(struct zf_device *d, struct zf_device_info *out); /* d NULL: what it would be, opened with its defaults; isa is empty */

    enum zf_status (*alloc)(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out,
                            struct zf_err *e);  /* 64-aligned, zeroed */
    void (*free)(struct zf_device *d, void *p); /* NULL is fine */

    /* May be NULL. Of a device of ZF_PART_COMPUTE: whether there is a CPU half that needs its threads (so it is at first), or nobody does.
     * Any thread, also while lanes work. */
    void (*share)(struct zf_device *d, bool needed);

    enum zf_status (*lane_new)(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e);
    void (*lane_free)(struct zf_lane *l);                               /* waits for what was issued */
    enum zf_status (*lane_sync)(struct zf_lane *l, struct zf_err *e);   /* the caller waits; the first error of the lane, once */
    enum zf_status (*lane_failed)(struct zf_lane *l, struct zf_err *e); /* without waiting: that error, if there is one by now; it stays */
    double (*lane_busy)(struct zf_lane *l);                             /* seconds spent working since the lane was made */
    double (*lane_waited)(struct zf_lane *l);                           /* seconds spent waiting for events */
    /* Keeps what the lane does from here on, at most `room` spans between two takes (the oldest go); 0: no more. Takes them, in order: how
     * many were written; *dropped: how many are lost since the last take. */
    enum zf_status (*lane_watch)(struct zf_lane *l, size_t room, struct zf_err *e);
    size_t (*lane_take)(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped);
    /* May be NULL, both. Work that is issued from here on belongs to `phase`; what was finished since the lane was made: the number of
     * rows, of which `room` are written, by phase. All of these but lane_phase from any thread, while the lane works. */
    void (*lane_phase)(struct zf_lane *l, enum zf_phase phase);
    size_t (*lane_profile)(struct zf_lane *l, struct zf_profile_row *out, size_t room);

    enum zf_status (*event_new)(struct zf_device *d, struct zf_event **out, struct zf_err *e);
    void (*event_free)(struct zf_event *v);
    enum zf_status (*event_record)(struct zf_lane *l, struct zf_event *v); /* done when all issued before it is done */
    enum zf_status (*event_wait)(struct zf_lane *l, struct zf_event *v);   /* the lane waits; an event never recorded is done */
    enum zf_status (*event_sync)(struct zf_event *v, struct zf_err *e);    /* the caller waits */
    /* For lanes of other backends: the ticket of the last record that has been issued, and v is held until that has been awaited, wherever
     * it is freed; 0: there is nothing to wait for, and v is not held. */
    uint64_t (*event_hold)(struct zf_event *v);
    void (*event_await)(struct zf_event *v, uint64_t ticket); /* the caller waits */

    /* Either side may be any host memory; only pinned memory is copied without holding up the lane. It must stay until the lane has done
     * it. */
    enum zf_status (*copy)(struct zf_lane *l, void *to, const void *from, size_t bytes);
    enum zf_status (*copy_list)(struct zf_lane *l, const struct zf_copy *list, size_t count); /* all of them; the list must stay as well */
    enum zf_status (*fill)(struct zf_lane *l, void *to, int byte, size_t bytes);
    /* body(ctx) when all issued before is done; the lane goes on when it returns. Not if the lane has failed by then. It issues nothing. */
    enum zf_status (*call)(struct zf_lane *l, void (*body)(void *ctx), void *ctx);

    const struct zf_ops *ops;

    /* How its ranks speak with each other (kernels/comm.h). NULL: they do not. */
    enum zf_status (*comm_open)(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e);
};

/* The head of every backend's device. */
struct zf_device {
    const struct zf_device_type *type;
};

/* The error of a call that a lane refused with s: what the lane itself has to say about it, which also clears it; else a sentence with
 * `what`. */
enum zf_status zf_lane_refused(struct zf_device *d, struct zf_lane *l, enum zf_status s, const char *what, struct zf_err *e);

/* Opens the backend called `name`. ZF_USAGE names the ones there are. */
enum zf_status zf_device_open(struct zf_device **out, const char *name, const struct zf_device_options *o, struct zf_err *e);

/* Whether zf_device_open would open it. ZF_USAGE: what is missing on this machine, and what to do. */
enum zf_status zf_device_probe(struct zf_device_info *found, const char *name, const struct zf_device_options *o, struct zf_err *e);

/* What the backend called `name` would be on this machine, without opening it: threads, products, memory. false: there is none. */
bool zf_device_survey(const char *name, struct zf_device_info *out);

size_t zf_dtype_size(enum zf_dtype t);
const char *zf_phase_name(enum zf_phase p);
const char *zf_dtype_name(enum zf_dtype t); /* "f32", "bf16", ... */

#endif
