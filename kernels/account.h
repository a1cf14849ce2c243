/* The account of a lane's time, and its spans while somebody watches. One thread writes, any thread reads: under a lock that is held for
 * some instructions. */
#ifndef ZF_KERNELS_ACCOUNT_H
#define ZF_KERNELS_ACCOUNT_H

#include "kernels/work.h"

#include <pthread.h>

struct zf_usage {
    uint64_t calls;
    double seconds, flops, bytes;
};
struct zf_account {
    pthread_mutex_t lock; /* over all of it */
    double busy, waited;
    struct zf_usage used[ZF_PHASES][ZF_WORK_KINDS];
    struct zf_span *ring; /* [room], count from first on */
    size_t room, first, count;
    uint64_t dropped;
};
void zf_account_init(struct zf_account *a);
void zf_account_free(struct zf_account *a);
void zf_account_work(struct zf_account *a, enum zf_work_kind kind, const struct zf_cost *cost, const struct zf_span *s);
void zf_account_wait(struct zf_account *a, const struct zf_span *s);
double zf_account_busy(struct zf_account *a);
double zf_account_waited(struct zf_account *a);
/* As the lane_* of struct zf_device_type: */
size_t zf_account_rows(struct zf_account *a, struct zf_profile_row *out, size_t room);
enum zf_status zf_account_watch(struct zf_account *a, size_t room, struct zf_err *e);
size_t zf_account_take(struct zf_account *a, struct zf_span *out, size_t room, uint64_t *dropped);

#endif
