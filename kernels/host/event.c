/* Events: tickets (kernels/tickets.h), done by the threads of the lanes. */
#include "kernels/host/host.h"
#include "kernels/tickets.h"

#include <stdlib.h>

struct event {
    struct zf_event head;
    struct zf_tickets tickets;
};

enum zf_status zf_host_event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e)
{
    struct event *v = calloc(1, sizeof *v);
    (void)d;
    *out = &v->head;
    if (!v) return zf_fail_memory(e, "an event");
    v->head.type = &zf_host_device;
    zf_tickets_init(&v->tickets);
    return ZF_OK;
}

static struct zf_tickets *tickets(struct zf_event *v)
{
    return &((struct event *)v)->tickets;
}

void zf_host_event_free(struct zf_event *v)
{
    if (v && zf_tickets_drop(tickets(v))) free(v);
}

static enum zf_status run_record(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    struct zf_tickets *t = tickets(a->event.event);
    (void)l;
    (void)e;
    zf_tickets_await(t, a->event.ticket - 1);
    zf_tickets_done(t, a->event.ticket);
    zf_host_event_free(a->event.event);
    return ZF_OK;
}

enum zf_status zf_host_event_record(struct zf_lane *l, struct zf_event *v)
{
    static const struct zf_work record = {.run = run_record, .always = true};
    struct zf_event_args a = {v, zf_tickets_record(tickets(v))};
    zf_host_issue(l, &record, &a, sizeof a);
    return ZF_OK; /* an older error of the lane is lane_sync's to tell */
}

uint64_t zf_host_event_hold(struct zf_event *v)
{
    return zf_tickets_hold(tickets(v), false);
}

void zf_host_event_await(struct zf_event *v, uint64_t ticket)
{
    zf_tickets_await(tickets(v), ticket);
    zf_host_event_free(v);
}

static enum zf_status run_wait(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    (void)l;
    (void)e;
    a->event.event->type->event_await(a->event.event, a->event.ticket);
    return ZF_OK;
}

/* Of whichever backend. */
enum zf_status zf_host_event_wait(struct zf_lane *l, struct zf_event *v)
{
    static const struct zf_work wait = {.run = run_wait, .always = true, .waits = true};
    struct zf_event_args a = {v, v->type->event_hold(v)};
    if (a.ticket) zf_host_issue(l, &wait, &a, sizeof a);
    return ZF_OK;
}

enum zf_status zf_host_event_sync(struct zf_event *v, struct zf_err *e)
{
    (void)e; /* nothing of an event fails; what failed in its lane is lane_sync's to tell */
    zf_tickets_await(tickets(v), zf_tickets_last(tickets(v)));
    return ZF_OK;
}
