/* See marks.h. */
#include "kernels/cuda/marks.h"

#include "core/base/clock.h"

/* Seconds; at best: of a large GPU of today. */
static const double STRETCH = 50e-6, LAUNCH = 2e-6, SHORTEST_WAIT = 5e-6, FLOPS = 4e14, BYTES = 2.5e12;
enum { MOST = ZF_MARKED_OPS / ZF_MARKS };

void zf_marks_init(struct zf_marks *m, cudaStream_t stream)
{
    pthread_mutex_init(&m->lock, NULL);
    zf_account_init(&m->account);
    m->stream = stream;
    m->idle = true;
}

void zf_marks_free(struct zf_marks *m)
{
    for (int i = 0; i < ZF_MARKS; i++)
        if (m->ring[i].event) cudaEventDestroy(m->ring[i].event);
    zf_account_free(&m->account);
    pthread_mutex_destroy(&m->lock);
}

/* The time of a stretch among its ops. */
static void share_out(struct zf_marks *m, uint32_t ops, double from, double to)
{
    double all = 0, sum = 0, start = from;
    for (uint32_t i = 0; i < ops; i++) all += m->ops[(m->first_op + i) % ZF_MARKED_OPS].seconds;
    for (uint32_t i = 0; i < ops; i++) {
        const struct zf_marked_op *op = &m->ops[m->first_op++ % ZF_MARKED_OPS];
        sum += op->seconds;
        double end = i + 1 == ops ? to : from + (to - from) * (sum / all);
        struct zf_span span = {.start = start, .end = end, .work = end - start, .op = zf_work_name(op->kind), .phase = op->phase};
        zf_account_work(&m->account, op->kind, &op->cost, &span);
        start = end;
    }
}

static void settle(struct zf_marks *m, const struct zf_mark *x, double to)
{
    struct zf_span wait = {.start = m->at, .end = to, .op = "wait", .phase = x->phase, .wait = true};
    if (x->stretch == ZF_STRETCH_WORK)
        share_out(m, x->ops, m->at, to);
    else if (x->stretch == ZF_STRETCH_WAIT && to - m->at >= SHORTEST_WAIT)
        zf_account_wait(&m->account, &wait);
    m->at = to;
    m->begun = true;
}

/* A lost GPU tells no times. */
static void forget(struct zf_marks *m)
{
    m->first = m->next;
    m->first_op = m->next_op;
    m->open = 0;
    m->open_seconds = 0;
    m->begun = false;
    m->idle = true;
}

static void harvest(struct zf_marks *m)
{
    while (m->first < m->next) {
        const struct zf_mark *x = &m->ring[m->first % ZF_MARKS], *last = &m->ring[(m->first - 1) % ZF_MARKS];
        cudaError_t code = cudaEventQuery(x->event);
        if (code == cudaErrorNotReady) return;
        float ms = 0;
        bool anew = !m->begun || (x->alone && x->stretch == ZF_STRETCH_IDLE);
        if (code == cudaSuccess && !anew) code = cudaEventElapsedTime(&ms, last->event, x->event);
        if (code != cudaSuccess) {
            forget(m);
            return;
        }
        double now = zf_clock(), to = anew ? x->launched : m->at + 1e-3 * (double)ms;
        if (to < x->launched) to = x->launched;
        if (to > now) to = now;
        if (to < m->at) to = m->at;
        settle(m, x, to);
        m->first++;
    }
}

/* One place of the ring is the last mark's. A full ring waits for the oldest: it depends on nothing that is not launched. */
static void mark(struct zf_marks *m, enum zf_stretch stretch, enum zf_phase phase)
{
    if (m->next - m->first == ZF_MARKS - 1) cudaEventSynchronize(m->ring[m->first % ZF_MARKS].event);
    harvest(m);
    struct zf_mark *x = &m->ring[m->next % ZF_MARKS];
    cudaError_t code = x->event ? cudaSuccess : cudaEventCreateWithFlags(&x->event, cudaEventBlockingSync);
    *x = (struct zf_mark){x->event,      .stretch = stretch, .phase = phase, .launched = zf_clock(), .alone = m->first == m->next,
                          .ops = m->open};
    if (code == cudaSuccess) code = cudaEventRecord(x->event, m->stream);
    if (code != cudaSuccess) {
        forget(m);
        return;
    }
    m->next++;
    m->open = 0;
    m->open_seconds = 0;
    m->idle = false;
}

void zf_marks_harvest(struct zf_marks *m)
{
    pthread_mutex_lock(&m->lock);
    harvest(m);
    pthread_mutex_unlock(&m->lock);
}

void zf_marks_begin(struct zf_marks *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->idle) mark(m, ZF_STRETCH_IDLE, ZF_PHASE_OTHER);
    pthread_mutex_unlock(&m->lock);
}

void zf_marks_op(struct zf_marks *m, enum zf_work_kind kind, enum zf_phase phase, const union zf_work_args *args)
{
    struct zf_cost cost = zf_cost_of(kind, args);
    double seconds = cost.flops / FLOPS + cost.bytes / BYTES;
    if (seconds < LAUNCH) seconds = LAUNCH;
    pthread_mutex_lock(&m->lock);
    if (!m->idle) { /* else the mark before it could not be launched */
        m->ops[m->next_op++ % ZF_MARKED_OPS] = (struct zf_marked_op){kind, phase, cost, seconds};
        m->open++;
        m->open_seconds += seconds;
        bool ends = m->open_seconds >= STRETCH || m->open == MOST || kind == ZF_WORK_call; /* nobody knows what a call costs */
        if (ends) mark(m, ZF_STRETCH_WORK, phase);
    }
    pthread_mutex_unlock(&m->lock);
}

void zf_marks_begin_wait(struct zf_marks *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->idle || m->open) mark(m, m->idle ? ZF_STRETCH_IDLE : ZF_STRETCH_WORK, ZF_PHASE_OTHER);
    pthread_mutex_unlock(&m->lock);
}

void zf_marks_end_wait(struct zf_marks *m, enum zf_phase phase)
{
    pthread_mutex_lock(&m->lock);
    if (!m->idle) mark(m, ZF_STRETCH_WAIT, phase);
    pthread_mutex_unlock(&m->lock);
}

void zf_marks_close(struct zf_marks *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->open) mark(m, ZF_STRETCH_WORK, ZF_PHASE_OTHER);
    harvest(m);
    m->idle = true;
    pthread_mutex_unlock(&m->lock);
}
