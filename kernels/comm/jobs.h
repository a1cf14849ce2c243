/* Collectives that wait in lanes: what they are about, copied, until they have been done. A lane that has failed does none of them, so
 * somebody must know of those that are left. */
#ifndef ZF_KERNELS_COMM_JOBS_H
#define ZF_KERNELS_COMM_JOBS_H

#include "kernels/comm.h"

#include <pthread.h>

struct zf_comm_job {
    struct zf_comm *comm;
    struct zf_comm_job *next;
    bool sum;
    size_t count;
    struct zf_comm_rows *list; /* behind it; their `first` as well */
};

struct zf_comm_jobs {
    pthread_mutex_t lock;
    struct zf_comm_job *first; /* those that are not done */
};

void zf_comm_jobs_init(struct zf_comm_jobs *all);
void zf_comm_jobs_free(struct zf_comm_jobs *all); /* lanes are idle */
/* NULL: no memory. */
struct zf_comm_job *zf_comm_job_new(struct zf_comm_jobs *all, struct zf_comm *c, bool sum, const struct zf_comm_rows *list, size_t count);
void zf_comm_job_done(struct zf_comm_jobs *all, struct zf_comm_job *j);

#endif
