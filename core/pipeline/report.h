/* What a pipeline has done and where it stands, for those who show it. Only reads; between steps, by the issuing thread; waits for nothing.
 */
#ifndef ZF_PIPELINE_REPORT_H
#define ZF_PIPELINE_REPORT_H

#include "core/pipeline/pipeline.h"

/* clang-format off */
#define ZF_LANE_MAP(X) \
    X(COMPUTE, compute, "compute") \
    X(D2H, d2h, "d2h") \
    X(H2D, h2d, "h2d") \
    X(CPU, cpu, "cpu") \
    X(COMM, exchange, "comm")
/* clang-format on */
enum zf_lane_id {
#define X(name, field, text) ZF_LANE_##name,
    ZF_LANE_MAP(X)
#undef X
        ZF_LANES
};
const char *zf_lane_name(enum zf_lane_id id);
int zf_pipeline_lanes(const struct zf_pipeline *p); /* how many of them there are: one rank alone has no comm */
/* The lane, and its device. */
struct zf_lane *zf_pipeline_lane(const struct zf_pipeline *p, enum zf_lane_id id, struct zf_device **d);

/* Since the pipeline was opened, but what is under way. */
struct zf_pipeline_sample {
    double busy[ZF_LANES];           /* seconds */
    double stalled;                  /* seconds in which compute waited for another lane */
    double adam_seconds, adam_bytes; /* of AdamW in the cpu lane; 0 where the device does not tell */
    struct zf_pipeline_counts counts;
};
void zf_pipeline_sample(const struct zf_pipeline *p, struct zf_pipeline_sample *out);
/* What came between the two. */
struct zf_pipeline_sample zf_pipeline_between(const struct zf_pipeline_sample *from, const struct zf_pipeline_sample *to);

/* What the bus carries in a step, down and up, by D2 of the published formula for the present policy: (1 - k) M and (1 - k) M / S, in
 * bytes. *matrix_bytes: M, weights of all matrices. */
struct zf_bus {
    double down, up;
};
struct zf_bus zf_pipeline_bus_formula(const struct zf_pipeline *p, double *matrix_bytes);

/* Matrices whose service begins at the same step of a round: what the CPU half has of them. */
enum zf_group_phase { ZF_GROUP_ACC, ZF_GROUP_UP, ZF_GROUP_UPLOAD };
const char *zf_group_phase_name(enum zf_group_phase p);
struct zf_group {
    uint32_t start;            /* step of the round */
    double fill;               /* share of its window that is accumulated */
    enum zf_group_phase phase; /* UP: a completed window is not yet visible. UPLOAD: it becomes so with the next forward */
    uint64_t staleness;        /* steps since the last one whose gradients the next step computes with, itself counted; the most */
    uint64_t due;              /* at the end of which step all of it is visible next */
};
/* How many there are, of which `room` are written. None without a CPU half. */
size_t zf_pipeline_groups(const struct zf_pipeline *p, struct zf_group *out, size_t room);

/* Whether a matrix has selected with the last step, and whether its scores of that step are known (the step counted). */
bool zf_pipeline_selected(const struct zf_pipeline *p, const struct zf_matrix *x);
bool zf_pipeline_scored(const struct zf_pipeline *p, const struct zf_matrix *x);

/* The scores of a matrix whose scores are known. */
enum { ZF_SCORE_BINS = 64, ZF_SCORE_TOPS = 6 };
extern const double zf_score_tops[ZF_SCORE_TOPS]; /* shares of the channels: 0.1 % .. 50 % */
struct zf_scores {
    size_t bins;
    double bin[ZF_SCORE_BINS]; /* log10 of the mean score of the channels there, by position */
    double top[ZF_SCORE_TOPS]; /* share of the squared norm in the best channels (at least one) */
    double selected_energy;    /* share of the squared norm in the device half's channels */
};
enum zf_status zf_pipeline_scores(const struct zf_pipeline *p, const struct zf_matrix *x, struct zf_scores *out, struct zf_err *e);

/* The policy as a sentence: "zenflow: the device updates 10 % of the channels every step, ...". Returns text. */
const char *zf_policy_words(const struct zf_policy *p, char *text, size_t size);

#endif
