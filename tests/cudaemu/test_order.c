/* The order of lanes, through the product's own device interface: a ring of two staging buffers, filled by the host, uploaded in one lane,
 * added up in another. As it stands it is right under any timing; with one wait left out the thread sanitizer says so, whatever the timing
 * was, because the emulated device tells it of nothing but what CUDA promises. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/ops.h"
#include "tests/cudaemu/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct zf_device_type zf_cuda_device;

enum { N = 3000, RING = 2, STEPS = 6 };

enum wait {
    NONE_LEFT_OUT,
    FOR_THE_UPLOAD,  /* the sum begins before the numbers are there */
    FOR_THE_SUM,     /* an upload overwrites what is still being added */
    FOR_THE_STAGING, /* the host fills a buffer that is still being uploaded */
    FOR_THE_RESULT   /* the host reads a sum that is still being copied */
};
static const char *const wait_name[] = {"none", "for the upload", "for the sum", "for the staging", "for the result"};

struct ring {
    struct zf_device *d;
    struct zf_lane *compute, *h2d;
    struct zf_event *uploaded[RING], *added[RING];
    float *staging[RING], *there[RING], *sum, *result;
};

static enum zf_status make(struct ring *r, struct zf_err *e)
{
    const struct zf_device_type *t = &zf_cuda_device;
    size_t bytes = N * sizeof(float);
    ZF_TRY(t->open(&r->d, &(struct zf_device_options){0}, e));
    ZF_TRY(t->lane_new(r->d, "compute", &r->compute, e));
    ZF_TRY(t->lane_new(r->d, "h2d", &r->h2d, e));
    ZF_TRY(t->alloc(r->d, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, (void **)&r->sum, e));
    ZF_TRY(t->alloc(r->d, ZF_MEM_PINNED, ZF_TAG_STAGING, bytes, (void **)&r->result, e));
    for (int i = 0; i < RING; i++) {
        ZF_TRY(t->event_new(r->d, &r->uploaded[i], e));
        ZF_TRY(t->event_new(r->d, &r->added[i], e));
        ZF_TRY(t->alloc(r->d, ZF_MEM_PINNED, ZF_TAG_STAGING, bytes, (void **)&r->staging[i], e));
        ZF_TRY(t->alloc(r->d, ZF_MEM_DEVICE, ZF_TAG_STAGING, bytes, (void **)&r->there[i], e));
    }
    return t->lane_sync(r->compute, e);
}

static void unmake(struct ring *r)
{
    const struct zf_device_type *t = &zf_cuda_device;
    t->lane_free(r->h2d);
    t->lane_free(r->compute);
    for (int i = 0; i < RING; i++) {
        t->event_free(r->uploaded[i]);
        t->event_free(r->added[i]);
        t->free(r->d, r->staging[i]);
        t->free(r->d, r->there[i]);
    }
    t->free(r->d, r->sum);
    t->free(r->d, r->result);
    t->close(r->d);
}

static enum zf_status step(struct ring *r, int number, enum wait left_out, struct zf_err *e)
{
    const struct zf_device_type *t = &zf_cuda_device;
    int i = number % RING;
    struct zf_add_args add = {ZF_F32, r->sum, r->there[i], r->sum, N};
    if (left_out != FOR_THE_STAGING) ZF_TRY(t->event_sync(r->uploaded[i], e));
    for (int k = 0; k < N; k++) r->staging[i][k] = (float)(number + k);
    if (left_out != FOR_THE_SUM) ZF_TRY(t->event_wait(r->h2d, r->added[i]));
    ZF_TRY(t->copy(r->h2d, r->there[i], r->staging[i], N * sizeof(float)));
    ZF_TRY(t->event_record(r->h2d, r->uploaded[i]));
    if (left_out != FOR_THE_UPLOAD) ZF_TRY(t->event_wait(r->compute, r->uploaded[i]));
    ZF_TRY(t->ops->add(r->compute, &add));
    return t->event_record(r->compute, r->added[i]);
}

static enum zf_status all_steps(struct ring *r, enum wait left_out, struct zf_err *e)
{
    const struct zf_device_type *t = &zf_cuda_device;
    ZF_TRY(t->fill(r->compute, r->sum, 0, N * sizeof(float)));
    for (int number = 0; number < STEPS; number++) ZF_TRY(step(r, number, left_out, e));
    ZF_TRY(t->copy(r->compute, r->result, r->sum, N * sizeof(float)));
    return left_out == FOR_THE_RESULT ? ZF_OK : t->lane_sync(r->compute, e);
}

static int run(void *arg)
{
    struct ring r = {0};
    struct zf_err e = {0};
    int bad = 0;
    if (make(&r, &e) || all_steps(&r, *(enum wait *)arg, &e)) {
        printf("failed: %s\n", e.message);
        return 9;
    }
    for (int k = 0; k < N; k++) bad += r.result[k] != (float)(STEPS * k + STEPS * (STEPS - 1) / 2);
    if (bad) printf("%d wrong sums, the first values are %g %g %g\n", bad, r.result[0], r.result[1], r.result[2]);
    unmake(&r);
    return bad != 0;
}

/* Delays of random length before each operation: for those who only look at values. */
static const char *const slow[] = {"CUDAEMU_LATENCY_US", "500", NULL};

static void the_right_order_gives_no_report(void **state)
{
    enum wait none = NONE_LEFT_OUT;
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct child c;
        child_run(&c, i % 2 ? slow : NULL, run, &none);
        if (c.status || c.text[0]) fail_msg("status %#x, said: %s", c.status, c.text);
    }
}

static void a_missing_wait_is_a_race(void **state)
{
    (void)state;
#if !defined(__SANITIZE_THREAD__)
    skip(); /* values tell by luck alone */
#endif
    for (enum wait left_out = FOR_THE_UPLOAD; left_out <= FOR_THE_RESULT; left_out++) {
        bool of_host = left_out >= FOR_THE_STAGING, found = false;
        struct child c;
        for (int i = 0; i < 5 && !found; i++) {
            child_run(&c, i ? slow : NULL, run, &left_out);
            bool raced =
                strstr(c.text, "WARNING: ThreadSanitizer: data race") && strstr(c.text, of_host ? "test_order.c" : "elementwise.cu");
            /* what the host issues next may order its own access with what the lane's thread then launches: there the values tell */
            found = c.status && (raced || (of_host && strstr(c.text, "wrong sums")));
        }
        print_message("without the wait %s: %s\n", wait_name[left_out], found ? "found" : "NOT FOUND");
        if (!found) fail_msg("status %#x, said: %s", c.status, c.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_order_gives_no_report),
        cmocka_unit_test(a_missing_wait_is_a_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
