/* Lanes of the (emulated) CUDA device and of the host that wait for each other: in every order, with events that move and are freed, full
 * rings, failures, a GPU that is lost; what their accounts say; and that nothing of it waits for the whole device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/rng.h"
#include "kernels/ops.h"
#include "tests/cudaemu/child.h"
#include "tests/cudaemu/cudaemu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { LANES = 5, CUDA_LANES = 3, N = 250 };

static struct zf_err err;

/* Lanes 0 .. CUDA_LANES are the GPU's, the others the host's. */
struct both {
    struct zf_device *cuda, *host;
    struct zf_lane *lane[LANES];
};

static struct zf_device *device_of(const struct both *b, int lane)
{
    return lane < CUDA_LANES ? b->cuda : b->host;
}

static void must(enum zf_status s)
{
    if (s) fail_msg("%s", err.message);
}

static void open_both(struct both *b, const struct zf_device_options *cuda, const struct zf_device_options *host)
{
    must(zf_device_open(&b->cuda, "cuda", cuda, &err));
    must(zf_device_open(&b->host, "host", host, &err));
    for (int i = 0; i < LANES; i++) {
        struct zf_device *d = device_of(b, i);
        must(d->type->lane_new(d, "both", &b->lane[i], &err));
    }
}

static void close_both(struct both *b)
{
    for (int i = 0; i < LANES; i++) device_of(b, i)->type->lane_free(b->lane[i]);
    b->cuda->type->close(b->cuda);
    b->host->type->close(b->host);
}

static void sync_all(const struct both *b)
{
    for (int i = 0; i < LANES; i++) must(device_of(b, i)->type->lane_sync(b->lane[i], &err));
}

/* Memory that either can use. */
static float *floats(const struct both *b, size_t n)
{
    void *p;
    must(b->cuda->type->alloc(b->cuda, ZF_MEM_PINNED, ZF_TAG_OTHER, n * sizeof(float), &p, &err));
    return p;
}

static struct zf_event *event_of(const struct both *b, int lane)
{
    struct zf_event *v;
    must(device_of(b, lane)->type->event_new(device_of(b, lane), &v, &err));
    return v;
}

static void free_event(struct zf_event *v)
{
    if (v) v->type->event_free(v);
}

static void wait_for(const struct both *b, int lane, struct zf_event *v)
{
    if (v) assert_int_equal(device_of(b, lane)->type->event_wait(b->lane[lane], v), ZF_OK);
}

static void record(const struct both *b, int lane, struct zf_event *v)
{
    assert_int_equal(device_of(b, lane)->type->event_record(b->lane[lane], v), ZF_OK);
}

static enum zf_status add(const struct both *b, int lane, const float *x, const float *y, float *to, size_t n)
{
    return device_of(b, lane)->type->ops->add(b->lane[lane], &(struct zf_add_args){.a = x, .b = y, .y = to, .n = n});
}

/* ---- random graphs ---- */

enum { CELLS = 6, STEPS = 150 };

/* What of a cell must be done before somebody writes it, or (writer) reads it. */
struct cell {
    float *at, expected;
    struct zf_event *writer, *reader[LANES];
};

/* EACH: an event of its own for each piece of work, freed when the cell has another; KEPT: one for each lane, recorded again and again, of
 * which a wait means the last record issued before it; MOVED: one for each cell and backend, recorded in whichever lane. */
enum events { EACH, KEPT, MOVED };

struct graph {
    struct both both;
    enum events events;
    struct cell cell[CELLS];
    struct zf_event *kept[LANES], *moved[CELLS][2];
    float *ones;
};

static struct zf_event *event_for(struct graph *g, int lane, int y)
{
    if (g->events == KEPT) return g->kept[lane];
    if (g->events == MOVED) return g->moved[y][lane < CUDA_LANES];
    return event_of(&g->both, lane);
}

/* Frees are for events that have other holders: lanes that wait for them yet. */
static void put(struct graph *g, struct zf_event **at, struct zf_event *v)
{
    if (g->events == EACH) free_event(*at);
    *at = v;
}

static void graph_step(struct graph *g, struct zf_u32x4 r)
{
    struct both *b = &g->both;
    int l = (int)(r.v[0] % LANES), x = (int)(r.v[1] % CELLS), z = (int)(r.v[2] % CELLS), y = (int)(r.v[3] % CELLS);
    struct cell *to = &g->cell[y], *from[2] = {&g->cell[x], &g->cell[z]};
    for (int i = 0; i < 2; i++) wait_for(b, l, from[i]->writer);
    wait_for(b, l, to->writer);
    for (int i = 0; i < LANES; i++) wait_for(b, l, to->reader[i]);
    bool large = from[0]->expected + from[1]->expected > 1e6f; /* sums stay exact */
    if (large)
        assert_int_equal(device_of(b, l)->type->copy(b->lane[l], to->at, g->ones, N * sizeof(float)), ZF_OK);
    else
        assert_int_equal(add(b, l, from[0]->at, from[1]->at, to->at, N), ZF_OK);
    to->expected = large ? 1 : from[0]->expected + from[1]->expected;
    if (g->events == EACH) {
        for (int i = 0; i < 2; i++) {
            put(g, &from[i]->reader[l], event_of(b, l));
            record(b, l, from[i]->reader[l]);
        }
        put(g, &to->writer, event_of(b, l));
        record(b, l, to->writer);
        return;
    }
    struct zf_event *v = event_for(g, l, y);
    record(b, l, v);
    to->writer = v;
    for (int i = 0; i < 2; i++) from[i]->reader[l] = v;
}

static void graph_run(enum events events, uint64_t seed, const struct zf_device_options *cuda, const struct zf_device_options *host)
{
    static struct graph g;
    memset(&g, 0, sizeof g);
    g.events = events;
    open_both(&g.both, cuda, host);
    g.ones = floats(&g.both, N);
    for (int i = 0; i < N; i++) g.ones[i] = 1;
    for (int l = 0; l < LANES; l++) g.kept[l] = event_of(&g.both, l);
    for (int c = 0; c < CELLS; c++) {
        g.cell[c].at = floats(&g.both, N);
        g.cell[c].expected = (float)c + 1;
        for (int i = 0; i < N; i++) g.cell[c].at[i] = g.cell[c].expected;
        for (int k = 0; k < 2; k++) g.moved[c][k] = event_of(&g.both, k ? 0 : LANES - 1);
    }
    for (int s = 0; s < STEPS; s++) graph_step(&g, zf_philox(seed, 0, (uint64_t)s));
    sync_all(&g.both);
    for (int c = 0; c < CELLS; c++) {
        for (int i = 0; i < N; i++) assert_true(g.cell[c].at[i] == g.cell[c].expected);
        g.both.cuda->type->free(g.both.cuda, g.cell[c].at);
        for (int k = 0; k < 2; k++) free_event(g.moved[c][k]);
        for (int l = 0; events == EACH && l < LANES; l++) free_event(g.cell[c].reader[l]);
        if (events == EACH) free_event(g.cell[c].writer);
    }
    for (int l = 0; l < LANES; l++) free_event(g.kept[l]);
    g.both.cuda->type->free(g.both.cuda, g.ones);
    close_both(&g.both);
}

static void test_random_graphs(void **state)
{
    enum { SEEDS = 6 };
    static const char *const latencies[] = {"0", "30", "100"};
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (enum events events = EACH; events <= MOVED; events++) {
            setenv("CUDAEMU_LATENCY_US", latencies[seed % 3], 1);
            struct zf_device_options cuda = {.jitter = seed % 2 ? 100 * seed + events : 0},
                                     host = {.threads = 2, .jitter = seed % 4 < 2 ? 200 * seed + events : 0};
            graph_run(events, seed, &cuda, &host);
        }
    unsetenv("CUDAEMU_LATENCY_US");
    for (int synchronous = 1; synchronous < 4; synchronous++)
        graph_run(EACH, 77, &(struct zf_device_options){.synchronous = synchronous & 1},
                  &(struct zf_device_options){.threads = 1, .synchronous = synchronous & 2});
}

/* ---- a lane that waits long ---- */

static void rest(void *ctx)
{
    nanosleep(&(struct timespec){.tv_nsec = *(const long *)ctx}, NULL);
}

/* Lanes behind a gate of the host's: more work than their rings hold, and, behind a stream that lags, more waits than there are marks. */
static void test_full_rings(void **state)
{
    enum { TURNS = 500 };
    static long pause = 100000000; /* long enough that lane 0 has come to wait by then */
    struct both b;
    (void)state;
    setenv("CUDAEMU_LATENCY_US", "100", 1);
    open_both(&b, &(struct zf_device_options){0}, &(struct zf_device_options){.threads = 1});
    int host = CUDA_LANES;
    float *x = floats(&b, N), *one = floats(&b, N);
    struct zf_event *gate = event_of(&b, host), *turn[2] = {event_of(&b, 0), event_of(&b, 1)};
    for (int i = 0; i < N; i++) one[i] = 1;
    assert_int_equal(b.host->type->call(b.lane[host], rest, &pause), ZF_OK);
    record(&b, host, gate);
    wait_for(&b, 0, gate);
    free_event(gate);
    for (int i = 0; i < TURNS; i++) {
        for (int l = 0; l < 2; l++) {
            assert_int_equal(add(&b, l, x, one, x, N), ZF_OK);
            record(&b, l, turn[l]);
            wait_for(&b, 1 - l, turn[l]);
        }
    }
    sync_all(&b);
    for (int i = 0; i < N; i++) assert_true(x[i] == 2 * TURNS);
    struct zf_profile_row row[2];
    for (int l = 0; l < 2; l++) {
        assert_int_equal(b.cuda->type->lane_profile(b.lane[l], row, 2), 1);
        assert_true(row[0].calls == TURNS && row[0].flops == (double)TURNS * N);
    }
    assert_true(b.cuda->type->lane_waited(b.lane[0]) > 0); /* for the gate, too, for which its thread waits */
    for (int i = 0; i < 2; i++) free_event(turn[i]);
    b.cuda->type->free(b.cuda, x);
    b.cuda->type->free(b.cuda, one);
    close_both(&b);
    unsetenv("CUDAEMU_LATENCY_US");
}

struct seen {
    const float *from;
    float values[2];
    int calls;
};

static void look(void *ctx)
{
    struct seen *s = ctx;
    s->values[s->calls++] = s->from[N - 1];
}

/* A call comes when the stream has done what was issued before, and what follows waits for it; it may wait for a lane of the host. */
static void test_calls(void **state)
{
    struct both b;
    (void)state;
    setenv("CUDAEMU_LATENCY_US", "1000", 1);
    open_both(&b, &(struct zf_device_options){0}, &(struct zf_device_options){.threads = 1});
    float *x = floats(&b, N);
    struct seen seen = {.from = x};
    for (int i = 0; i < N; i++) x[i] = 1;
    for (int i = 0; i < 2; i++) {
        add(&b, 0, x, x, x, N);
        assert_int_equal(b.cuda->type->call(b.lane[0], look, &seen), ZF_OK);
    }
    add(&b, 0, x, x, x, N);
    sync_all(&b);
    assert_true(seen.calls == 2 && seen.values[0] == 2 && seen.values[1] == 4 && x[0] == 8);
    b.cuda->type->free(b.cuda, x);
    close_both(&b);
    unsetenv("CUDAEMU_LATENCY_US");
}

/* ---- accounts ---- */

/* Spans of a lane: in order, apart, their work what the lane was busy, their waits what it waited. Small ops are measured some together,
 * and told one by one. */
static void test_spans(void **state)
{
    enum { ADDS = 100, ROOM = 1000 };
    static struct zf_span span[ROOM];
    static long pause = 20000000;
    struct both b;
    uint64_t lost;
    (void)state;
    open_both(&b, &(struct zf_device_options){0}, &(struct zf_device_options){.threads = 1});
    int host = CUDA_LANES;
    float *x = floats(&b, N);
    struct zf_event *gate = event_of(&b, host);
    must(b.cuda->type->lane_watch(b.lane[0], ROOM, &err));
    for (int i = 0; i < ADDS; i++) {
        b.cuda->type->lane_phase(b.lane[0], i < ADDS / 2 ? ZF_PHASE_FORWARD : ZF_PHASE_BACKWARD);
        if (i == ADDS / 2) {
            b.host->type->call(b.lane[host], rest, &pause);
            record(&b, host, gate);
            wait_for(&b, 0, gate);
            b.cuda->type->call(b.lane[0], rest, &pause);
        }
        add(&b, 0, x, x, x, 1 + (size_t)i % N);
    }
    sync_all(&b);
    size_t n = b.cuda->type->lane_take(b.lane[0], span, ROOM, &lost), adds = 0, waits = 0, calls = 0;
    double work = 0, waited = 0;
    assert_true(lost == 0);
    for (size_t i = 0; i < n; i++) {
        assert_true(span[i].end >= span[i].start && (!i || span[i].start >= span[i - 1].end));
        assert_int_equal(span[i].phase, i < ADDS / 2 ? ZF_PHASE_FORWARD : ZF_PHASE_BACKWARD);
        adds += !strcmp(span[i].op, "add");
        calls += !strcmp(span[i].op, "call");
        waits += span[i].wait;
        work += span[i].work;
        waited += span[i].wait ? span[i].end - span[i].start : 0;
    }
    assert_true(adds == ADDS && calls == 1 && waits <= 1 && n == adds + calls + waits); /* one that is over already is not told */
    assert_true(!waits || span[ADDS / 2].wait);
    assert_string_equal(span[ADDS / 2 + waits].op, "call");
    assert_true(span[ADDS / 2 + waits].work >= 0.9e-9 * (double)pause);
    assert_true(fabs(work - b.cuda->type->lane_busy(b.lane[0])) <= 1e-9);
    assert_true(fabs(waited - b.cuda->type->lane_waited(b.lane[0])) <= 1e-9);
    free_event(gate);
    b.cuda->type->free(b.cuda, x);
    close_both(&b);
}

/* ---- failures ---- */

/* A lane that has failed still does its events, for lanes of either kind. */
static void test_failed_lanes(void **state)
{
    struct both b;
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++)
        for (int bad = 0; bad < LANES; bad += CUDA_LANES) { /* one of the GPU's, one of the host's */
            open_both(&b, &(struct zf_device_options){.synchronous = synchronous}, &(struct zf_device_options){.threads = 1});
            float *x = floats(&b, N);
            struct zf_event *v = event_of(&b, bad);
            for (int i = 0; i < N; i++) x[i] = 1;
            assert_int_equal(add(&b, bad, NULL, x, x, N), ZF_USAGE);
            add(&b, bad, x, x, x, N); /* not done */
            record(&b, bad, v);
            for (int l = 0; l < LANES; l++)
                if (l != bad) wait_for(&b, l, v);
            must(v->type->event_sync(v, &err));
            free_event(v);
            for (int l = 0; l < LANES; l++)
                if (l != bad) must(device_of(&b, l)->type->lane_sync(b.lane[l], &err));
            assert_int_equal(device_of(&b, bad)->type->lane_failed(b.lane[bad], &err), ZF_USAGE);
            assert_int_equal(device_of(&b, bad)->type->lane_sync(b.lane[bad], &err), ZF_USAGE);
            assert_non_null(strstr(err.message, "add"));
            assert_true(x[0] == 1);
            add(&b, bad, x, x, x, N);
            sync_all(&b);
            assert_true(x[0] == 2);
            b.cuda->type->free(b.cuda, x);
            close_both(&b);
        }
}

/* In a process of its own: nothing comes after it. Each lane says it once, nobody hangs, calls are not made. */
static int lose(void *arg)
{
    struct both b;
    struct seen seen = {0};
    (void)arg;
    open_both(&b, &(struct zf_device_options){0}, &(struct zf_device_options){.threads = 1});
    int host = CUDA_LANES;
    float *x = floats(&b, N);
    struct zf_event *v[2] = {event_of(&b, 0), event_of(&b, host)};
    seen.from = x;
    for (int turn = 0; turn < 5; turn++) {
        add(&b, 0, x, x, x, N);
        record(&b, 0, v[0]);
        for (int l = 1; l < LANES; l++) wait_for(&b, l, v[0]);
        add(&b, host, x, x, x, N);
        record(&b, host, v[1]);
        wait_for(&b, 0, v[1]);
    }
    b.cuda->type->call(b.lane[0], look, &seen);
    enum zf_status s[LANES];
    for (int l = 0; l < LANES; l++) {
        s[l] = device_of(&b, l)->type->lane_sync(b.lane[l], &err);
        if (s[l]) printf("%s\n", err.message);
    }
    bool told = s[0] == ZF_IO && !s[host] && !s[host + 1];
    bool synced = v[0]->type->event_sync(v[0], &err) == ZF_IO && !v[1]->type->event_sync(v[1], &err);
    for (int i = 0; i < 2; i++) free_event(v[i]);
    b.cuda->type->lane_busy(b.lane[0]);
    b.cuda->type->free(b.cuda, x);
    close_both(&b);
    printf("told %d, synced %d, calls %d\n", told, synced, seen.calls);
    return told && synced && !seen.calls ? 0 : 1;
}

static void test_lost_gpu(void **state)
{
    static const char *const how[] = {"launch", "ecc", "unavailable"};
    static struct child c;
    (void)state;
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        const char *const environment[] = {"CUDAEMU_LOSE_AT", "3", "CUDAEMU_LOSE_WITH", how[i], NULL};
        child_run(&c, environment, lose, NULL);
        if (!WIFEXITED(c.status) || WEXITSTATUS(c.status)) fail_msg("%s: %s", how[i], c.text);
    }
}

/* ---- a step ---- */

/* As a step issues: compute, copies down, the host's work, copies up, in turns. None of it waits for the whole device, or takes memory. */
static void test_a_step_waits_for_no_device(void **state)
{
    enum { WARM = 3, TURNS = 40 };
    struct both b;
    void *on_device;
    (void)state;
    open_both(&b, &(struct zf_device_options){0}, &(struct zf_device_options){.threads = 2});
    int host = CUDA_LANES;
    must(b.cuda->type->alloc(b.cuda, ZF_MEM_DEVICE, ZF_TAG_OTHER, N * sizeof(float), &on_device, &err));
    float *x = on_device, *down = floats(&b, N), *up = floats(&b, N);
    struct zf_event *computed = event_of(&b, 0), *lowered = event_of(&b, 1), *served = event_of(&b, host), *raised = event_of(&b, 2);
    long before = 0;
    for (int i = 0; i < N; i++) up[i] = 1;
    must(b.cuda->type->lane_watch(b.lane[0], 100, &err));
    for (int i = 0; i < WARM + TURNS; i++) {
        if (i == WARM) before = cudaemu_whole_device_calls();
        wait_for(&b, 2, served);
        b.cuda->type->copy(b.lane[2], x, up, N * sizeof *up);
        record(&b, 2, raised);
        wait_for(&b, 0, raised);
        add(&b, 0, x, x, x, N);
        record(&b, 0, computed);
        wait_for(&b, 1, computed);
        b.cuda->type->copy(b.lane[1], down, x, N * sizeof *down);
        record(&b, 1, lowered);
        wait_for(&b, host, lowered);
        b.host->type->ops->activation(
            b.lane[host], &(struct zf_activation_args){.kind = ZF_RELU, .x = down, .y = up, .rows = 1, .n = N, .ldx = N, .ldy = N});
        record(&b, host, served);
        if (i % 7 == 0) must(computed->type->event_sync(computed, &err));
        b.cuda->type->lane_busy(b.lane[0]);
    }
    must(served->type->event_sync(served, &err));
    sync_all(&b);
    assert_int_equal(cudaemu_whole_device_calls(), before);
    for (int i = 0; i < N; i++) assert_true(up[i] == ldexpf(1, WARM + TURNS));
    struct zf_event *const events[] = {computed, lowered, served, raised};
    for (int i = 0; i < 4; i++) free_event(events[i]);
    b.cuda->type->free(b.cuda, x);
    b.cuda->type->free(b.cuda, down);
    b.cuda->type->free(b.cuda, up);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_gpu), /* forks: before there are threads */
        cmocka_unit_test(test_random_graphs), cmocka_unit_test(test_full_rings),   cmocka_unit_test(test_calls),
        cmocka_unit_test(test_spans),         cmocka_unit_test(test_failed_lanes), cmocka_unit_test(test_a_step_waits_for_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
