/* "It fits or it says no": bytes by category, before anything is allocated, against what there is. */
#ifndef ZF_PLAN_MEMORY_H
#define ZF_PLAN_MEMORY_H

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/family.h"
#include "core/pipeline/measure.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What there is, in bytes; SIZE_MAX = no such limit. */
struct zf_memory_limits {
    size_t available;      /* MemAvailable */
    size_t cgroup;         /* the tightest of all ancestors, v1 or v2: limit minus usage, reclaimable file cache not counted as used */
    char cgroup_path[512]; /* which one */
    size_t option;         /* memory_limit, minus what this process has already */
    size_t address;        /* RLIMIT_AS (ulimit -v), likewise */
    size_t resident;       /* of this process now */
    size_t least;          /* the smallest of the above */
    const char *least_name;
    size_t device, device_total; /* a GPU's memory: what is left of it for this program, and all of it; SIZE_MAX: there is no GPU in it */
    bool device_option;          /* memory_limit leaves so little */
    char device_name[256];
};

/* root: "/" ; tests give fake trees (root/proc/meminfo, root/proc/self/cgroup, root/sys/fs/cgroup/...). memory_limit 0: none. */
void zf_memory_limits_read(struct zf_memory_limits *out, const char *root, size_t memory_limit);

/* `processes` like this one are on the machine: what is the machine's or the cgroup's is shared out. */
void zf_memory_limits_share(struct zf_memory_limits *l, size_t processes);

/* How often the out-of-memory killer has acted in this process's cgroup; SIZE_MAX: not known. */
size_t zf_memory_oom_kills(const char *root);

enum zf_plan_row {
    ZF_PLAN_WEIGHTS,
    ZF_PLAN_GRADIENTS,
    ZF_PLAN_MOMENTS, /* the device half's state, but for masters */
    ZF_PLAN_CPU_HALF,
    ZF_PLAN_SLOTS, /* gradients, sums, updates on their way between the halves */
    ZF_PLAN_ACTIVATIONS,
    ZF_PLAN_LOGITS,
    ZF_PLAN_CACHE,
    ZF_PLAN_BATCH,
    ZF_PLAN_DATA,
    ZF_PLAN_OTHER,
    ZF_PLAN_ROWS
};

struct zf_memory_plan {
    size_t bytes[ZF_PLAN_ROWS]; /* of the host's memory; where the device has its own, without `device` */
    size_t total;
    size_t device[ZF_PLAN_ROWS], device_total; /* of a GPU's: rows, and what else CUDA takes; zeros: the device has no memory of its own */
    size_t device_blocks;                      /* what is taken of it before the first step: the rows, and what is lost between blocks */
    size_t pinned;                             /* of `bytes`: to be pinned */
    size_t tokens;                             /* of the largest micro-batch: its sequences times the longest row */
    size_t micro_batch;                        /* sequences; chosen here where the option is auto */
    bool recompute;
};

/* Something that might be changed so that it fits. */
struct zf_plan_choice {
    char text[64]; /* "topk_ratio = 0.05" */
    struct zf_pipeline_sizes halves;
};

struct zf_memory_request {
    const struct zf_model_config *config;
    const struct zf_params *params;
    size_t batch_size,
        micro_batch;        /* sequences; micro_batch 0: auto, the largest that fits, at most 4096 tokens unless one row is longer */
    size_t sequence_length; /* the longest row that can occur, validation included */
    size_t data_bytes;      /* what the datasets will hold */
    size_t loaders;         /* that read ahead at the same time, each with a queue of micro-batches */
    bool training;          /* false: forward only (check of generate) */
    bool recompute;         /* in training: layers keep their inputs only */
    enum zf_dtype dtype;    /* of weights and activations */
    struct zf_pipeline_sizes halves; /* of the policy; zeros: all is the device half's */
    bool apart;                      /* the device has memory of its own, */
    size_t device_limit;             /* of which so much is left */
    const struct zf_plan_choice *choices;
    size_t choice_count;
};
void zf_memory_plan_make(struct zf_memory_plan *out, const struct zf_memory_request *r, size_t limit);

/* Whether it fits: `limit` bytes of the host's memory, and what the request says of a GPU's. */
bool zf_memory_plan_fits(const struct zf_memory_plan *p, const struct zf_memory_request *r, size_t limit);

/* ZF_MEMORY with the numbers and what would make it fit (a smaller micro_batch, recompute, sequence_length), if total > limits->least. */
enum zf_status zf_memory_plan_check(const struct zf_memory_plan *p, const struct zf_memory_request *r, const struct zf_memory_limits *l,
                                    struct zf_err *e);

/* The table of `check`, and the same as JSON (new reference, NULL: no memory; null in it: no such limit). limits may be NULL. */
void zf_memory_plan_print(FILE *to, const struct zf_memory_plan *p, const struct zf_memory_limits *l);
json_t *zf_memory_plan_json(const struct zf_memory_plan *p, const struct zf_memory_limits *l);

const char *zf_plan_row_name(enum zf_plan_row r);
/* "1.50 GiB" into buffer, returned. */
const char *zf_bytes_text(size_t bytes, char *buffer, size_t size);

#endif
