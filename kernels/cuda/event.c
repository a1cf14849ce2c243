/* Events: tickets (kernels/tickets.h) that are done when the lane's thread has launched the record, and a CUDA event that is done when the
 * stream has come there. Who waits for a ticket may find a later one recorded over it: it waits for that, too. Nothing hangs by it, since
 * whatever a launched record waits for has itself been launched, or is done. */
#include "kernels/cuda/cuda.h"
#include "kernels/tickets.h"

#include <stdlib.h>

struct event {
    struct zf_event head;
    struct zf_cuda *device;
    cudaEvent_t event;
    struct zf_tickets tickets;
    const struct zf_lane *last; /* that recorded it; of whoever launches a record */
};

static struct event *own(struct zf_event *v)
{
    return (struct event *)v;
}

enum zf_status zf_cuda_event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e)
{
    struct event *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return zf_fail_memory(e, "an event");
    v->head.type = &zf_cuda_device;
    v->device = (struct zf_cuda *)d;
    zf_cuda_enter(v->device);
    enum zf_status s = zf_cuda_status(cudaEventCreateWithFlags(&v->event, cudaEventDisableTiming | cudaEventBlockingSync), "an event", e);
    if (s) {
        free(v);
        return s;
    }
    zf_tickets_init(&v->tickets);
    *out = &v->head;
    return ZF_OK;
}

void zf_cuda_event_free(struct zf_event *freed)
{
    struct event *v = own(freed);
    if (!v || !zf_tickets_drop(&v->tickets)) return;
    zf_cuda_enter(v->device);
    cudaEventDestroy(v->event);
    free(v);
}

/* Tickets are done in their order: behind the record before it, if that is in another stream. */
static enum zf_status run_record(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    struct event *v = own(a->event.event);
    cudaError_t code = cudaSuccess;
    zf_tickets_await(&v->tickets, a->event.ticket - 1);
    if (v->last && v->last != l) code = cudaStreamWaitEvent(l->stream, v->event, 0);
    if (code == cudaSuccess) code = cudaEventRecord(v->event, l->stream);
    v->last = l;
    zf_tickets_done(&v->tickets, a->event.ticket);
    zf_cuda_event_free(&v->head);
    return zf_cuda_status(code, l->name, e);
}

enum zf_status zf_cuda_event_record(struct zf_lane *l, struct zf_event *v)
{
    static const struct zf_work record = {.run = run_record, .always = true};
    struct zf_event_args a = {v, zf_tickets_record(&own(v)->tickets)};
    zf_cuda_issue(l, &record, &a, sizeof a);
    return ZF_OK; /* an older error of the lane is lane_sync's to tell */
}

static enum zf_status run_wait(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    struct event *v = own(a->event.event);
    cudaError_t code = cudaSuccess;
    bool launched = zf_tickets_are_done(&v->tickets, a->event.ticket);
    if (!launched || cudaEventQuery(v->event) != cudaSuccess) {
        zf_marks_begin_wait(&l->marks);
        zf_tickets_await(&v->tickets, a->event.ticket);
        code = cudaStreamWaitEvent(l->stream, v->event, 0);
        zf_marks_end_wait(&l->marks, l->phase);
    }
    zf_cuda_event_free(&v->head);
    return zf_cuda_status(code, l->name, e);
}

static enum zf_status run_wait_foreign(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    (void)e;
    zf_marks_begin_wait(&l->marks);
    a->event.event->type->event_await(a->event.event, a->event.ticket);
    zf_marks_end_wait(&l->marks, l->phase);
    return ZF_OK;
}

enum zf_status zf_cuda_event_wait(struct zf_lane *l, struct zf_event *v)
{
    static const struct zf_work wait = {.run = run_wait, .always = true, .waits = true},
                                wait_foreign = {.run = run_wait_foreign, .always = true, .waits = true};
    bool foreign = v->type != &zf_cuda_device;
    struct zf_event_args a = {v, v->type->event_hold(v)};
    if (a.ticket) zf_cuda_issue(l, foreign ? &wait_foreign : &wait, &a, sizeof a);
    return ZF_OK;
}

uint64_t zf_cuda_event_hold(struct zf_event *v)
{
    return zf_tickets_hold(&own(v)->tickets, true);
}

void zf_cuda_event_await(struct zf_event *waited, uint64_t ticket)
{
    struct event *v = own(waited);
    zf_cuda_enter(v->device);
    zf_tickets_await(&v->tickets, ticket);
    cudaEventSynchronize(v->event); /* what fails is the recording lane's to tell */
    zf_cuda_event_free(waited);
}

enum zf_status zf_cuda_event_sync(struct zf_event *waited, struct zf_err *e)
{
    struct event *v = own(waited);
    uint64_t ticket = zf_tickets_last(&v->tickets);
    if (!ticket) return ZF_OK;
    zf_cuda_enter(v->device);
    zf_tickets_await(&v->tickets, ticket);
    return zf_cuda_status(cudaEventSynchronize(v->event), "the device", e);
}
