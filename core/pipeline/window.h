/* The window clock of a matrix: when windows begin and end, when the CPU serves them, when their result becomes visible. Integers only, a
 * pure function of steps and of which of them were skipped (golden/zenflow_oracle.py); nothing here waits or computes. */
#ifndef ZF_PIPELINE_WINDOW_H
#define ZF_PIPELINE_WINDOW_H

#include "core/pipeline/policy.h"

struct zf_window {
    uint64_t origin;     /* step after which the present policy's windows began */
    uint32_t start, end; /* of this matrix's service in a round of S steps */
    uint64_t selected;   /* step of the last selection, 0: none */
    bool starts;         /* a window begins with the next step that is not skipped */
    struct {             /* the completed window that is not yet visible; at most one */
        bool any, served;
        uint64_t ended, serve, due; /* steps: at whose end it ended, is served, becomes visible */
    } up;
};

/* A new clock after step `origin`. before, own, all: parameters of the matrices in front of it, of this one, of all. */
void zf_window_start(struct zf_window *w, const struct zf_policy *p, uint64_t origin, size_t before, size_t own, size_t all);

/* Whether step t selects, unless it is skipped. */
bool zf_window_may_select(const struct zf_window *w, const struct zf_policy *p, uint64_t t);
/* Whether the open window ends with step t. */
bool zf_window_ends(const struct zf_window *w, const struct zf_policy *p, uint64_t t);
/* The open window, which is not empty, ended with step t: it becomes `up`. */
void zf_window_close(struct zf_window *w, const struct zf_policy *p, uint64_t t);
/* Whether `up` is to be visible in step t + 1; steps up to t are completed. */
bool zf_window_shows(const struct zf_window *w, uint64_t t);
/* n, the mean lag in steps of what optimistic weights look ahead by. */
double zf_window_lag(const struct zf_window *w, const struct zf_policy *p);
/* The last step whose gradients are in what step t + 1 computes with; steps up to t are completed. */
uint64_t zf_window_visible(const struct zf_window *w, const struct zf_policy *p, uint64_t t);
/* At whose end the CPU half is served next. */
uint64_t zf_window_serves(const struct zf_window *w, const struct zf_policy *p, uint64_t t);
/* At whose end rows of the CPU half become visible next. */
uint64_t zf_window_due(const struct zf_window *w, const struct zf_policy *p, uint64_t t);

#endif
