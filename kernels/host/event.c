/* Events: each record takes the next ticket, a wait remembers the last ticket there was when it was issued. Tickets are done in their
 * order: a record in a second lane waits for the record before it in the first. So an event may move from lane to lane.
 * What lies in a ring holds a reference: an event may be freed before it is done. Any thread. */
#include "kernels/host/host.h"

#include <stdlib.h>

struct event {
    struct zf_event head;
    pthread_mutex_t lock; /* over all of it */
    pthread_cond_t changed;
    uint64_t recorded, done;
    size_t holders;
};

enum zf_status zf_host_event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e)
{
    struct event *v = calloc(1, sizeof *v);
    (void)d;
    *out = &v->head;
    if (!v) return zf_fail_memory(e, "an event");
    v->head.type = &zf_host_device;
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->changed, NULL);
    v->holders = 1;
    return ZF_OK;
}

static struct event *own(struct zf_event *v)
{
    return (struct event *)v;
}

void zf_host_event_free(struct zf_event *freed)
{
    struct event *v = own(freed);
    if (!v) return;
    pthread_mutex_lock(&v->lock);
    bool last = --v->holders == 0;
    pthread_mutex_unlock(&v->lock);
    if (!last) return;
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

static void wait_until(struct event *v, uint64_t ticket) /* locked */
{
    while (v->done < ticket) pthread_cond_wait(&v->changed, &v->lock);
}

static enum zf_status run_record(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    struct event *v = own(a->event.event);
    (void)l;
    (void)e;
    pthread_mutex_lock(&v->lock);
    wait_until(v, a->event.ticket - 1);
    v->done = a->event.ticket;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    zf_host_event_free(&v->head);
    return ZF_OK;
}

static enum zf_status run_wait(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    struct event *v = own(a->event.event);
    (void)l;
    (void)e;
    pthread_mutex_lock(&v->lock);
    wait_until(v, a->event.ticket);
    pthread_mutex_unlock(&v->lock);
    zf_host_event_free(&v->head);
    return ZF_OK;
}

enum zf_status zf_host_event_record(struct zf_lane *l, struct zf_event *recorded)
{
    struct event *v = own(recorded);
    static const struct zf_host_work record = {.run = run_record, .always = true};
    pthread_mutex_lock(&v->lock);
    v->holders++;
    struct zf_host_event_args a = {recorded, ++v->recorded};
    pthread_mutex_unlock(&v->lock);
    zf_host_issue(l, &record, &a, sizeof a);
    return ZF_OK; /* an older error of the lane is lane_sync's to tell */
}

static enum zf_status run_wait_foreign(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    (void)l;
    return a->event.event->type->event_sync(a->event.event, e);
}

enum zf_status zf_host_event_wait(struct zf_lane *l, struct zf_event *waited)
{
    static const struct zf_host_work wait = {.run = run_wait, .always = true, .waits = true},
                                     wait_foreign = {.run = run_wait_foreign, .always = true, .waits = true};
    struct event *v = own(waited);
    if (waited->type != &zf_host_device) {
        zf_host_issue(l, &wait_foreign, &(struct zf_host_event_args){waited, 0}, sizeof(struct zf_host_event_args));
        return ZF_OK;
    }
    pthread_mutex_lock(&v->lock);
    struct zf_host_event_args a = {waited, v->recorded};
    bool done = v->done >= a.ticket;
    if (!done) v->holders++;
    pthread_mutex_unlock(&v->lock);
    if (!done) zf_host_issue(l, &wait, &a, sizeof a);
    return ZF_OK;
}

enum zf_status zf_host_event_sync(struct zf_event *waited, struct zf_err *e)
{
    struct event *v = own(waited);
    (void)e; /* nothing of an event fails; what failed in its lane is lane_sync's to tell */
    pthread_mutex_lock(&v->lock);
    wait_until(v, v->recorded);
    pthread_mutex_unlock(&v->lock);
    return ZF_OK;
}
