/* P01, P11: the plan's arithmetic, the choice of the micro-batch, and what the refusal says. The workspace's size function is a simple one
 * here. */
#include "core/plan/memory.h"
#include "core/model/model.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

struct zf_workspace_sizes zf_workspace_measure(const struct zf_model_config *c, enum zf_dtype dtype, size_t tokens, size_t positions,
                                               enum zf_keep keep)
{
    static const size_t each[] = {[ZF_KEEP_NOTHING] = MIB / 8, [ZF_KEEP_INPUTS] = MIB / 4, [ZF_KEEP_ALL] = MIB};
    (void)positions;
    size_t activations = tokens * (c->layers > 1 ? each[keep] : MIB) / (dtype == ZF_BF16 ? 2 : 1);
    return (struct zf_workspace_sizes){.activations = activations, .logits = c->vocab, .batch = tokens * 16};
}

static const struct zf_model_config config = {.layers = 2, .kv_heads = 4, .head_dim = 8, .vocab = 1000},
                                    one_layer = {.layers = 1, .kv_heads = 4, .head_dim = 8, .vocab = 1000};
static const struct zf_params params = {.elements = 25 * 1048576};

static struct zf_memory_request request(size_t batch, size_t micro, size_t row)
{
    return (struct zf_memory_request){.config = &config,
                                      .params = &params,
                                      .batch_size = batch,
                                      .micro_batch = micro,
                                      .sequence_length = row,
                                      .data_bytes = 7,
                                      .training = true};
}

static struct zf_memory_limits limit(size_t least)
{
    return (struct zf_memory_limits){.available = least,
                                     .cgroup = SIZE_MAX,
                                     .option = SIZE_MAX,
                                     .least = least,
                                     .least_name = "MemAvailable",
                                     .device = SIZE_MAX,
                                     .device_total = SIZE_MAX};
}

static void rows_add_up(void **state)
{
    (void)state;
    struct zf_memory_plan p;
    struct zf_memory_request r = request(8, 2, 100);
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_int_equal(p.bytes[ZF_PLAN_WEIGHTS], 100 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_GRADIENTS], 100 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_MOMENTS], 200 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_ACTIVATIONS], 200 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_LOGITS], 1000);
    assert_int_equal(p.bytes[ZF_PLAN_BATCH], 3200);
    assert_int_equal(p.bytes[ZF_PLAN_CACHE], 0);
    assert_int_equal(p.bytes[ZF_PLAN_DATA], 7);
    assert_int_equal(p.tokens, 200);
    size_t sum = 0;
    for (int i = 0; i < ZF_PLAN_ROWS; i++) sum += p.bytes[i];
    assert_int_equal(p.total, sum);
    r.training = false;
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_int_equal(p.bytes[ZF_PLAN_GRADIENTS] + p.bytes[ZF_PLAN_MOMENTS], 0);
    assert_int_equal(p.bytes[ZF_PLAN_CACHE], 2 * 2 * 100 * 4 * 8 * 4); /* layers, K and V, positions, heads, head_dim, floats */
}

/* Visible weights and masters, 6 bytes a parameter; half of everything else that is of the type; gradients and moments as ever. */
static void rows_in_bf16(void **state)
{
    (void)state;
    struct zf_memory_plan p, q;
    struct zf_memory_request r = request(8, 2, 100);
    zf_memory_plan_make(&q, &r, SIZE_MAX);
    r.dtype = ZF_BF16;
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_int_equal(p.bytes[ZF_PLAN_WEIGHTS], 150 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_GRADIENTS], 100 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_MOMENTS], 200 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_ACTIVATIONS], 100 * MIB);
    assert_int_equal(q.total - p.total, 50 * MIB);
    r.training = false;
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_int_equal(p.bytes[ZF_PLAN_WEIGHTS], 50 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_GRADIENTS] + p.bytes[ZF_PLAN_MOMENTS], 0);
    assert_int_equal(p.bytes[ZF_PLAN_CACHE], 2 * 2 * 100 * 4 * 8 * 2);
}

static size_t chosen(size_t batch, size_t micro, size_t row, size_t at_most)
{
    struct zf_memory_plan p;
    struct zf_memory_request r = request(batch, micro, row);
    zf_memory_plan_make(&p, &r, at_most);
    assert_int_equal(p.tokens, p.micro_batch * row);
    return p.micro_batch;
}

static void micro_batch(void **state)
{
    (void)state;
    assert_int_equal(chosen(8, 0, 100, SIZE_MAX), 8);    /* never more than the batch */
    assert_int_equal(chosen(100, 0, 1024, SIZE_MAX), 4); /* 4096 tokens */
    assert_int_equal(chosen(100, 0, 1000, SIZE_MAX), 4);
    assert_int_equal(chosen(100, 0, 5000, SIZE_MAX), 1); /* one row may be longer */
    assert_int_equal(chosen(8, 3, 100, SIZE_MAX), 3);
    assert_int_equal(chosen(8, 30, 100, SIZE_MAX), 8);
    assert_int_equal(chosen(8, 3, 100, 1), 3); /* what is set is not changed silently */
    assert_int_equal(chosen(8, 0, 100, (400 + 64 + 350) * MIB), 3);
    assert_int_equal(chosen(8, 0, 100, 1), 1);
}

static void check(struct zf_memory_request r, size_t least, struct zf_err *e, enum zf_status expected)
{
    struct zf_memory_plan p;
    struct zf_memory_limits l = limit(least);
    zf_memory_plan_make(&p, &r, least);
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, e), expected);
}

/* The number behind `what` in the message. */
static size_t number_after(const struct zf_err *e, const char *what)
{
    const char *at = strstr(e->message, what);
    if (!at) fail_msg("no \"%s\" in: %s", what, e->message);
    return strtoull(at + strlen(what), NULL, 10);
}

static void exact_to_the_byte(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_memory_plan p;
    struct zf_memory_request r = request(8, 2, 100);
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    check(r, p.total, &e, ZF_OK);
    check(r, p.total - 1, &e, ZF_MEMORY);
    assert_int_equal(number_after(&e, "("), p.total);
    assert_non_null(strstr(e.message, "MemAvailable"));
    assert_non_null(strstr(e.message, "moments 200.00 MiB, activations 200.00 MiB, weights 100.00 MiB"));
}

/* What the message says fits, does; a little more does not. */
static void remedies_are_true(void **state)
{
    (void)state;
    struct zf_err e, again;
    size_t least = (400 + 64 + 350) * MIB;
    check(request(8, 8, 100), least, &e, ZF_MEMORY);
    size_t micro = number_after(&e, "micro_batch = ");
    assert_int_equal(micro, 3);
    check(request(8, micro, 100), least, &again, ZF_OK);
    check(request(8, micro + 1, 100), least, &again, ZF_MEMORY);

    struct zf_memory_request r = request(8, 8, 1000); /* not even one row of 1000 */
    r.config = &one_layer;                            /* whose recomputing gains nothing */
    check(r, least, &e, ZF_MEMORY);
    assert_null(strstr(e.message, "set micro_batch"));
    assert_null(strstr(e.message, "recompute"));
    size_t row = number_after(&e, "sequence_length = ");
    assert_int_equal(number_after(&e, "and micro_batch = "), 1);
    assert_true(row % 16 == 0 && row > 300);
    check(request(8, 1, row), least, &again, ZF_OK);
    check(request(8, 1, row + 16), least, &again, ZF_MEMORY);

    check(request(8, 0, 1000), 300 * MIB, &e, ZF_MEMORY);
    assert_null(strstr(e.message, "recompute"));
    size_t missing = number_after(&e, "MiB (");
    (void)missing;
    struct zf_memory_request least_one = request(1, 1, 1);
    struct zf_memory_plan p;
    zf_memory_plan_make(&p, &least_one, SIZE_MAX);
    char text[64];
    snprintf(text, sizeof text, "(%zu bytes) are missing", p.total - 300 * MIB);
    assert_non_null(strstr(e.message, text));
}

/* Named where it helps, with what else is needed; what it says fits, does. */
static void recompute_is_advised(void **state)
{
    (void)state;
    struct zf_err e, again;
    struct zf_memory_plan p, q;
    struct zf_memory_request r = request(8, 2, 100);
    zf_memory_plan_make(&q, &r, SIZE_MAX);
    r.recompute = true;
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_true(p.recompute && !q.recompute);
    assert_int_equal(q.bytes[ZF_PLAN_ACTIVATIONS] - p.bytes[ZF_PLAN_ACTIVATIONS], 150 * MIB);
    assert_int_equal(q.total - p.total, 150 * MIB);

    const struct {
        size_t micro, row, left; /* for activations, MiB */
        const char *advice, *none;
        size_t then_micro, then_row;
    } cases[] = {
        {8, 100, 350, "; set micro_batch = 3: that fits with 764.01 MiB; or recompute = yes: that fits with 664.01 MiB", "length", 8, 100},
        {8, 100, 150, "; set micro_batch = 1: that fits with 564.00 MiB; or recompute = yes and micro_batch = 6: ", "length", 6, 100},
        {8, 100, 80, "; set recompute = yes and micro_batch = 3: that fits with ", "length", 3, 100},
        {0, 100, 80, "; set recompute = yes: that fits with ", "micro_batch = ", 0, 100},
        {0, 1000, 80, "; set sequence_length = 320 and recompute = yes: that fits with ", "micro_batch = ", 0, 320},
        {2, 1000, 80, "; set sequence_length = 320 and recompute = yes and micro_batch = 1: that fits with ", "more memory", 1, 320},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t least = (400 + 64 + 1 + cases[i].left) * MIB;
        r = request(8, cases[i].micro, cases[i].row);
        check(r, least, &e, ZF_MEMORY);
        if (!strstr(e.message, cases[i].advice) || strstr(e.message, cases[i].none)) fail_msg("case %zu: %s", i, e.message);
        r = request(8, cases[i].then_micro, cases[i].then_row);
        r.recompute = true;
        check(r, least, &again, ZF_OK);
    }
    r = request(8, 8, 1000); /* on already, it is not named again */
    r.recompute = true;
    check(r, 600 * MIB, &e, ZF_MEMORY);
    assert_null(strstr(e.message, "recompute"));
}

static void names_the_limit(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_memory_plan p;
    struct zf_memory_request r = request(8, 0, 100);
    struct zf_memory_limits l = {.available = 99 * MIB,
                                 .cgroup = 10 * MIB,
                                 .option = SIZE_MAX,
                                 .least = 10 * MIB,
                                 .least_name = "cgroup limit",
                                 .cgroup_path = "/sys/fs/cgroup/a"};
    zf_memory_plan_make(&p, &r, l.least);
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "10.00 MiB"));
    assert_non_null(strstr(e.message, "cgroup limit of /sys/fs/cgroup/a"));
}

/* A GPU's memory is one plan, the host's another; each must be enough, and the remedy is for the one that is not. */
static void two_memories(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_memory_plan p, q;
    struct zf_memory_request r = request(8, 8, 100);
    struct zf_memory_limits l = limit(SIZE_MAX);
    const struct zf_plan_choice choices[] = {{"topk_ratio = 0.05", {.device_state = 150 * MIB}},
                                             {"strategy = zero_offload", {.device_state = MIB}}};
    r.apart = true;
    r.device_limit = SIZE_MAX;
    r.halves = (struct zf_pipeline_sizes){.device_state = 200 * MIB,
                                          .cpu_state = 30 * MIB,
                                          .slots = 3 * MIB,
                                          .slabs = 16 * MIB,
                                          .device_staging = 24 * MIB,
                                          .device_other = MIB,
                                          .other = 2 * MIB};
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    assert_int_equal(p.device[ZF_PLAN_WEIGHTS], 100 * MIB);
    assert_int_equal(p.device[ZF_PLAN_GRADIENTS], 100 * MIB); /* of full size */
    assert_int_equal(p.device[ZF_PLAN_MOMENTS], 200 * MIB);
    assert_int_equal(p.device[ZF_PLAN_SLOTS], 24 * MIB);
    assert_int_equal(p.device[ZF_PLAN_ACTIVATIONS], 800 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_WEIGHTS] + p.bytes[ZF_PLAN_ACTIVATIONS] + p.bytes[ZF_PLAN_GRADIENTS] + p.bytes[ZF_PLAN_MOMENTS], 0);
    assert_int_equal(p.bytes[ZF_PLAN_CPU_HALF], 30 * MIB);
    assert_int_equal(p.bytes[ZF_PLAN_SLOTS], 16 * MIB);
    assert_true(p.pinned >= 16 * MIB && p.device_total > p.device_blocks && p.device_blocks > 1257 * MIB && p.device_total < 1332 * MIB);

    l.device_total = 2000 * MIB;
    snprintf(l.device_name, sizeof l.device_name, "a GPU");
    l.device = r.device_limit = p.device_total;
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_OK);
    l.device = r.device_limit = p.device_total - 1;
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_int_equal(number_after(&e, "("), p.device_total);
    assert_non_null(strstr(e.message, "of 1.95 GiB: other programs and CUDA have"));
    assert_int_equal(number_after(&e, "set micro_batch = "), 7);
    r.micro_batch = 0; /* auto, too, looks at the GPU */
    r.device_limit = p.device_total - 350 * MIB;
    zf_memory_plan_make(&q, &r, SIZE_MAX);
    assert_int_equal(q.micro_batch, 4);

    r.micro_batch = 8; /* the first policy that is enough */
    r.choices = choices;
    r.choice_count = 2;
    l.device = r.device_limit = p.device_total - 100 * MIB;
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "; or strategy = zero_offload: that fits with "));
    l.device = r.device_limit = p.device_total - 50 * MIB;
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "; or topk_ratio = 0.05: that fits with "));
    l.device_option = true;
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "are left: memory_limit"));

    l = limit(10 * MIB); /* the host's is too little: its figures, although the GPU is short, too */
    assert_int_equal(zf_memory_plan_check(&p, &r, &l, &e), ZF_MEMORY);
    assert_int_equal(number_after(&e, "("), p.total);
}

/* Sizes that overflow do not wrap round to something that fits. */
static void enormous(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_params huge = {.elements = SIZE_MAX / 3};
    struct zf_memory_request r = request(SIZE_MAX, SIZE_MAX, SIZE_MAX / 2);
    check(r, SIZE_MAX - 1, &e, ZF_MEMORY);
    r = request(8, 0, 100);
    r.params = &huge;
    check(r, SIZE_MAX - 1, &e, ZF_MEMORY);
    assert_non_null(strstr(e.message, "missing"));
    r = request(SIZE_MAX, SIZE_MAX, 100); /* found by trying, in no time */
    check(r, (400 + 64 + 350) * MIB, &e, ZF_MEMORY);
    assert_int_equal(number_after(&e, "micro_batch = "), 3);
    r = request(0, 0, 0);
    check(r, SIZE_MAX, &e, ZF_OK);
}

static void printed(void **state)
{
    (void)state;
    struct zf_memory_plan p;
    struct zf_memory_request r = request(8, 2, 100);
    struct zf_memory_limits l = limit(100 * MIB);
    char *text;
    size_t size;
    zf_memory_plan_make(&p, &r, SIZE_MAX);
    FILE *f = open_memstream(&text, &size);
    zf_memory_plan_print(f, &p, &l);
    fclose(f);
    assert_non_null(strstr(text, "  weights      100.00 MiB\n"));
    assert_non_null(strstr(text, "does not fit"));
    assert_null(strstr(text, "memory_limit")); /* not set */
    assert_null(strstr(text, "recompute"));
    free(text);
    p.recompute = true;
    f = open_memstream(&text, &size);
    zf_memory_plan_print(f, &p, NULL);
    fclose(f);
    assert_non_null(strstr(text, "(micro_batch 2, 200 tokens, recompute)"));
    free(text);
    json_t *v = zf_memory_plan_json(&p, &l);
    assert_int_equal(json_integer_value(json_object_get(v, "total")), p.total);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "bytes"), "moments")), 200 * MIB);
    assert_true(json_is_false(json_object_get(v, "fits")));
    assert_true(json_is_null(json_object_get(json_object_get(v, "limits"), "cgroup")));
    assert_true(json_is_true(json_object_get(v, "recompute")));
    json_decref(v);
    v = zf_memory_plan_json(&p, NULL);
    assert_null(json_object_get(v, "fits"));
    json_decref(v);
}

static void bytes_text(void **state)
{
    (void)state;
    char b[32];
    assert_string_equal(zf_bytes_text(0, b, sizeof b), "0 B");
    assert_string_equal(zf_bytes_text(1023, b, sizeof b), "1023 B");
    assert_string_equal(zf_bytes_text(1536 * MIB, b, sizeof b), "1.50 GiB");
    assert_string_equal(zf_bytes_text(SIZE_MAX, b, sizeof b), "16.00 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_add_up),       cmocka_unit_test(rows_in_bf16),
                                       cmocka_unit_test(micro_batch),       cmocka_unit_test(exact_to_the_byte),
                                       cmocka_unit_test(remedies_are_true), cmocka_unit_test(names_the_limit),
                                       cmocka_unit_test(enormous),          cmocka_unit_test(printed),
                                       cmocka_unit_test(bytes_text),        cmocka_unit_test(recompute_is_advised),
                                       cmocka_unit_test(two_memories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
