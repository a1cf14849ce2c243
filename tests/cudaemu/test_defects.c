/* Seeded defects: each is found in the builds that can find it, with the report that names it; the kernel without it gives none anywhere.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/child.h"
#include "tests/cudaemu/defects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum build { PLAIN, ASAN, TSAN, BUILDS };
#if defined(__SANITIZE_ADDRESS__)
static const enum build build = ASAN;
#elif defined(__SANITIZE_THREAD__)
static const enum build build = TSAN;
#else
static const enum build build = PLAIN;
#endif

#define RACE "data race"
#define RACE_PLACE "defects.cu"
#define VALUE "wrong value"

/* What the build's report must hold; NULL: that build cannot find it. `kernel` must be named by the sanitizers as well. */
struct expected {
    const char *name;
    const char *found[BUILDS];
};
static const struct expected table[DEFECTS] = {
    [DEFECT_missing_barrier] = {"missing_barrier", {VALUE, VALUE, RACE}},
    [DEFECT_scratch_reused] = {"scratch_reused", {VALUE, NULL, RACE}}, /* plain: under one schedule of a few */
    [DEFECT_warp_in_lockstep] = {"warp_in_lockstep", {VALUE, VALUE, RACE}},
    [DEFECT_static_shared_overrun] = {"static_shared_overrun", {NULL, "out of bounds", NULL}},
    [DEFECT_static_shared_overrun_by_pointer] = {"put", {NULL, "global-buffer-overflow", NULL}},
    [DEFECT_dynamic_shared_overrun] = {"dynamic_shared_overrun", {NULL, "heap-buffer-overflow", NULL}},
    [DEFECT_global_overrun] = {"global_overrun", {NULL, "heap-buffer-overflow", NULL}},
    [DEFECT_adds_without_atomics] = {"adds_without_atomics", {NULL, NULL, RACE}},
    [DEFECT_divergent_barrier] = {"divergent_barrier", {"divergent barrier", "divergent barrier", "divergent barrier"}},
    [DEFECT_two_barriers_meet] = {"two_barriers_meet", {"divergent barrier", "divergent barrier", "divergent barrier"}},
    [DEFECT_shuffle_of_the_absent] = {"shuffle_of_the_absent", {"deadlock", "deadlock", "deadlock"}},
    [DEFECT_mask_without_its_caller] = {"mask_without_its_caller",
                                        {"leaves out its caller", "leaves out its caller", "leaves out its caller"}},
    [DEFECT_shared_uninitialised] = {"shared_uninitialised", {VALUE, VALUE, VALUE}},
    [DEFECT_product_kernel_overrun] = {"copy_listed", {NULL, "heap-buffer-overflow", NULL}},
    [DEFECT_too_many_threads] = {"too_many_threads", {"refused", "refused", "refused"}},
    [DEFECT_too_much_shared_memory] = {"too_much_shared_memory", {"refused", "refused", "refused"}},
};

/* What the kernel without the defect writes. */
static float right(enum defect which, int i)
{
    switch (which) {
    case DEFECT_missing_barrier:
    case DEFECT_too_many_threads: return (float)(DEFECT_VALUES - 1 - i);
    case DEFECT_scratch_reused: return 128 + 256;
    case DEFECT_warp_in_lockstep: return i < 32 ? (float)(i ^ 1) : 0;
    case DEFECT_adds_without_atomics: return i ? 0 : 64;
    case DEFECT_shuffle_of_the_absent:
    case DEFECT_mask_without_its_caller: return i < 32;
    case DEFECT_product_kernel_overrun: return 0;
    default: return 1;
    }
}

struct run {
    enum defect which;
    bool wrong;
};

/* Says "refused", "error NAME" or "wrong value"; 0: nothing to say. */
static int run_it(void *arg)
{
    const struct run *r = arg;
    float *device, host[DEFECT_VALUES];
    cudaStream_t s;
    int bad = 0;
    if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) return 9;
    if (cudaMalloc((void **)&device, sizeof host) || cudaMemsetAsync(device, 0, sizeof host, s)) return 9;
    cudaError_t e = defect_launch(r->which, r->wrong, device, s);
    if (e) printf("refused: %s\n", cudaGetErrorName(e));
    if (!e) e = cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, s);
    if (!e) e = cudaStreamSynchronize(s);
    if (e) printf("error %s\n", cudaGetErrorName(e));
    for (int i = 0; !e && i < DEFECT_VALUES; i++) bad += !(host[i] == right(r->which, i));
    if (bad) printf("wrong value: %d of them\n", bad);
    cudaFree(device);
    cudaStreamDestroy(s);
    return e || bad;
}

static void run_under(struct child *c, struct run r, int seed)
{
    char text[16];
    const char *const environment[] = {"CUDAEMU_SEED", text, NULL};
    snprintf(text, sizeof text, "%d", seed);
    child_run(c, environment, run_it, &r);
}

static void each_defect_is_found(void **state)
{
    (void)state;
    for (int which = 0; which < DEFECTS; which++) {
        const struct expected *x = &table[which];
        const char *expected = x->found[build];
        struct child c;
        if (!expected) continue;
        /* Which schedule shows it is a matter of luck where nothing but values tells. */
        for (int seed = 0; seed < (build == PLAIN ? 8 : 1); seed++) {
            run_under(&c, (struct run){(enum defect)which, true}, seed);
            if (c.status && strstr(c.text, expected)) break;
        }
        bool named = strcmp(expected, RACE) || (strstr(c.text, RACE_PLACE) && strstr(c.text, x->name));
        if (!strcmp(expected, "heap-buffer-overflow") || !strcmp(expected, "global-buffer-overflow"))
            named = strstr(c.text, RACE_PLACE) && strstr(c.text, x->name);
        print_message("%s: %s\n", x->name, c.status && strstr(c.text, expected) && named ? expected : "NOT FOUND");
        if (!c.status || !strstr(c.text, expected) || !named) fail_msg("status %#x, expected '%s', said: %s", c.status, expected, c.text);
    }
}

static void what_has_no_defect_gives_no_report(void **state)
{
    (void)state;
    for (int which = 0; which < DEFECTS; which++)
        for (int seed = 0; seed < 4; seed++) {
            struct child c;
            run_under(&c, (struct run){(enum defect)which, false}, seed);
            if (c.status || c.text[0]) fail_msg("%s, seed %d: status %#x, said: %s", table[which].name, seed, c.status, c.text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_defect_is_found),
        cmocka_unit_test(what_has_no_defect_gives_no_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
