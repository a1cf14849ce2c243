/* The loader alone: its dataset and order are made up here, of any length and as slow as wanted, and what it hands out is compared with a
 * straightforward computation. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/data/loader.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 13 };

/* What the fakes do; set before a loader is started. */
static struct {
    uint64_t bad_row, bad_place; /* reading this one fails; UINT64_MAX: none */
    unsigned delay;              /* microseconds at most; 0: none */
    atomic_uint_fast64_t reads;
} fake = {.bad_row = UINT64_MAX, .bad_place = UINT64_MAX};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void wait_a_little(uint64_t salt)
{
    if (fake.delay && mix(salt) % 4 == 0) usleep((useconds_t)(mix(salt + 1) % fake.delay));
}

static size_t row_length(uint64_t row)
{
    return 1 + mix(row) % LONGEST;
}

static int32_t row_target(uint64_t row, size_t i) /* every fifth row has none */
{
    return row % 5 == 3 || i % 3 == 2 ? -1 : (int32_t)(row % 1000 + i);
}

static uint32_t row_labels(uint64_t row)
{
    uint32_t n = 0;
    for (size_t i = 0; i < row_length(row); i++) n += row_target(row, i) >= 0;
    return n;
}

uint64_t zf_order_row(const struct zf_order *o, uint64_t position)
{
    return o->shuffle ? mix(position + o->seed) % o->rows : position % o->rows;
}

enum zf_status zf_dataset_places(const struct zf_dataset *d, uint64_t first, size_t count, struct zf_row_place *out, struct zf_err *e)
{
    if (first > d->rows || count > d->rows - first) return zf_fail(e, ZF_IO, "fake", "rows behind the end");
    for (uint64_t r = first; r < first + count; r++) {
        if (r == fake.bad_place) return zf_fail(e, ZF_IO, "fake", "place %llu", (unsigned long long)r);
        *out++ = (struct zf_row_place){.length = (uint32_t)row_length(r), .label_tokens = row_labels(r)};
    }
    wait_a_little(first);
    return ZF_OK;
}

void zf_row_buffer_free(struct zf_row_buffer *b)
{
    free(b->ids);
    *b = (struct zf_row_buffer){0};
}

enum zf_status zf_dataset_read(const struct zf_dataset *d, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *e)
{
    size_t n = row_length(row);
    wait_a_little(row * 3);
    atomic_fetch_add(&fake.reads, 1);
    if (row >= d->rows || row == fake.bad_row) return zf_fail(e, ZF_IO, "fake", "row %llu", (unsigned long long)row);
    if (!b->ids) b->ids = calloc(3 * LONGEST, sizeof *b->ids);
    assert_non_null(b->ids);
    b->targets = b->ids + LONGEST;
    b->document = b->targets + LONGEST;
    for (size_t i = 0; i < n; i++) {
        b->ids[i] = (int32_t)(row * 100 + i);
        b->targets[i] = row_target(row, i);
        b->document[i] = i >= 4; /* two documents from five tokens on */
    }
    *out = (struct zf_row){.ids = b->ids, .target = b->targets, .document = b->document, .length = n, .label_tokens = row_labels(row)};
    return ZF_OK;
}

static uint64_t row_of(const struct zf_loader_options *o, uint64_t position)
{
    return o->order ? zf_order_row(o->order, position) : position;
}

static void check_row(const struct zf_batch *b, size_t *token, size_t *segment, uint64_t row)
{
    size_t n = row_length(row), documents = n > 4 ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b->ids[*token + i], row * 100 + i);
        assert_int_equal(b->target[*token + i], row_target(row, i));
        assert_int_equal(b->position[*token + i], i < 4 ? i : i - 4);
    }
    for (size_t d = 0; d < documents; d++) {
        const struct zf_segment *s = &b->segments[(*segment)++];
        assert_int_equal(s->q_begin, *token + d * 4);
        assert_int_equal(s->q_count, d || documents == 1 ? n - d * 4 : 4);
        assert_int_equal(s->k_begin, s->q_begin);
        assert_int_equal(s->k_count, s->q_count);
    }
    *token += n;
}

static void next_is(struct zf_loader *l, const struct zf_loader_options *o, uint64_t first, uint64_t last, uint64_t at, uint64_t n)
{
    const struct zf_load *load;
    struct zf_err e = {0};
    uint64_t tokens = 0, labels = 0, batch_labels = 0;
    size_t token = 0, segment = 0;
    assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
    assert_non_null(load);
    for (uint64_t p = first; p <= last; p++) {
        tokens += row_length(row_of(o, p));
        labels += row_labels(row_of(o, p));
    }
    assert_int_equal(load->first, first);
    assert_int_equal(load->last, last);
    assert_int_equal(load->tokens, tokens);
    assert_int_equal(load->label_tokens, labels);
    assert_int_equal(load->begins, at == first);
    assert_int_equal(load->ends, at + n == last + 1);
    wait_a_little(at * 7);
    for (uint64_t p = at; p < at + n; p++) {
        check_row(&load->batch, &token, &segment, row_of(o, p));
        batch_labels += row_labels(row_of(o, p));
    }
    assert_int_equal(load->batch.tokens, token);
    assert_int_equal(load->batch.segment_count, segment);
    assert_int_equal(load->batch.label_tokens, batch_labels);
}

/* All of it, up to position `end`. */
static void drain(struct zf_loader *l, const struct zf_loader_options *o, uint64_t end)
{
    for (uint64_t first = o->first; first < end; first += o->step_rows) {
        uint64_t last = o->first + o->count - first < o->step_rows ? o->first + o->count - 1 : first + o->step_rows - 1;
        for (uint64_t at = first; at <= last && at < end; at += o->micro_batch)
            next_is(l, o, first, last, at, last + 1 - at < o->micro_batch ? last + 1 - at : o->micro_batch);
    }
}

static void all_of_it(const struct zf_loader_options *o)
{
    struct zf_loader *l;
    struct zf_err e = {0};
    const struct zf_load *load;
    assert_int_equal(zf_loader_start(&l, o, &e), ZF_OK);
    drain(l, o, o->first + o->count);
    for (int i = 0; i < 2; i++) { /* the end stays the end */
        load = (const void *)&e;
        assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
        assert_null(load);
    }
    zf_loader_stop(l);
}

static void whatever_the_timing(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 97};
    const struct zf_order orders[] = {{.seed = 5, .rows = 97, .shuffle = true}, {.rows = 97}};
    static const size_t micro[] = {1, 2, 3, 8, 64}, steps[] = {1, 4, 7, 8, 200};
    for (unsigned delay = 0; delay <= 60; delay += 60) {
        fake.delay = delay;
        for (size_t m = 0; m < sizeof micro / sizeof *micro; m++)
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                for (size_t k = 0; k < 3; k++) {
                    struct zf_loader_options o = {.data = &data,
                                                  .order = k < 2 ? &orders[k] : NULL,
                                                  .first = k < 2 ? 40 * m + s : 0, /* across the end of an epoch, too */
                                                  .count = k < 2 ? 61 + s : 97,
                                                  .step_rows = steps[s],
                                                  .micro_batch = micro[m],
                                                  .room_tokens = micro[m] * LONGEST};
                    all_of_it(&o);
                }
    }
    fake.delay = 0;
}

/* Each rank takes its share of every step, in order, and knows the figures of the whole; one without rows has a row without targets. */
static void shares_of_ranks(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 97};
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            struct zf_loader_options o = {.data = &data,
                                          .first = 3,
                                          .count = 41,
                                          .step_rows = 7,
                                          .rank = rank,
                                          .ranks = ranks,
                                          .micro_batch = 2,
                                          .room_tokens = 2 * LONGEST};
            struct zf_loader *l;
            struct zf_err e = {0};
            assert_int_equal(zf_loader_start(&l, &o, &e), ZF_OK);
            for (uint64_t first = 3; first < 44; first += 7) {
                uint64_t rows = 44 - first < 7 ? 44 - first : 7, from = first + rows * (uint64_t)rank / (uint64_t)ranks,
                         to = first + rows * ((uint64_t)rank + 1) / (uint64_t)ranks, tokens = 0, labels = 0;
                const struct zf_load *load;
                for (uint64_t p = first; p < first + rows; p++) tokens += row_length(p), labels += row_labels(p);
                bool idle = from == to;
                for (uint64_t at = idle ? first : from, end = idle ? first + 1 : to; at < end; at += 2) {
                    size_t n = end - at < 2 ? end - at : 2, token = 0, segment = 0;
                    assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
                    assert_non_null(load);
                    assert_int_equal(load->tokens, tokens);
                    assert_int_equal(load->label_tokens, labels);
                    assert_int_equal(load->begins, at == (idle ? first : from));
                    assert_int_equal(load->ends, at + n == end);
                    for (size_t i = 0; !idle && i < n; i++) check_row(&load->batch, &token, &segment, at + i);
                    for (size_t i = 0; idle && i < load->batch.tokens; i++) assert_int_equal(load->batch.target[i], -1);
                    if (idle) assert_int_equal(load->batch.label_tokens, 0);
                }
            }
            zf_loader_stop(l);
        }
}

/* More rows side by side than their places are read at once. */
static void one_long_step(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 1000};
    struct zf_loader_options o = {
        .data = &data, .first = 3, .count = 997, .step_rows = 5000, .micro_batch = 100, .room_tokens = 100 * LONGEST};
    all_of_it(&o);
}

static void nothing(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 10};
    struct zf_loader_options o = {.data = &data, .first = 4, .step_rows = 4, .micro_batch = 2, .room_tokens = 2 * LONGEST};
    all_of_it(&o);
}

/* Rows without labels: the step's count is 0, its micro-batches come all the same. */
static void no_labels(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 10};
    struct zf_loader_options o = {.data = &data, .first = 3, .count = 1, .step_rows = 1, .micro_batch = 1, .room_tokens = LONGEST};
    struct zf_loader *l;
    struct zf_err e = {0};
    const struct zf_load *load;
    assert_int_equal(zf_loader_start(&l, &o, &e), ZF_OK);
    assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
    assert_int_equal(load->label_tokens, 0);
    assert_int_equal(load->batch.label_tokens, 0);
    assert_int_equal(load->batch.tokens, row_length(3));
    assert_int_equal(load->tokens, row_length(3));
    assert_true(load->begins && load->ends);
    zf_loader_stop(l);
    all_of_it(&o);
}

static void fails_at(const struct zf_loader_options *o, uint64_t end, enum zf_status code, const char *word)
{
    struct zf_loader *l;
    struct zf_err e = {0};
    const struct zf_load *load;
    assert_int_equal(zf_loader_start(&l, o, &e), ZF_OK);
    drain(l, o, end); /* what stands before it is whole */
    for (int i = 0; i < 2; i++) {
        e = (struct zf_err){0};
        assert_int_equal(zf_loader_next(l, &load, &e), code);
        assert_null(load);
        assert_int_equal(e.code, code);
        assert_non_null(strstr(e.message, word));
    }
    zf_loader_stop(l);
}

static void errors_at_their_place(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 50};
    struct zf_loader_options o = {.data = &data, .count = 50, .step_rows = 6, .micro_batch = 2, .room_tokens = 2 * LONGEST};
    for (fake.delay = 0; fake.delay <= 60; fake.delay += 60) {
        for (uint64_t bad = 0; bad < 50; bad += 7) {
            char word[32];
            fake.bad_row = bad;
            snprintf(word, sizeof word, "row %llu", (unsigned long long)bad);
            fails_at(&o, bad - bad % 6 % 2, ZF_IO, word);
            fake.bad_row = UINT64_MAX;
            fake.bad_place = bad; /* a step whose tokens cannot be counted does not begin */
            snprintf(word, sizeof word, "place %llu", (unsigned long long)bad);
            fails_at(&o, bad - bad % 6, ZF_IO, word);
            fake.bad_place = UINT64_MAX;
        }
    }
    fake.delay = 0;
}

/* A row that does not fit is refused, not written behind the batch. */
static void too_long(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 50};
    uint64_t row = 0;
    while (row_length(row) < 3) row++;
    struct zf_loader_options o = {.data = &data, .first = row, .count = 1, .step_rows = 1, .micro_batch = 1, .room_tokens = 2};
    fails_at(&o, row, ZF_MEMORY, "has room for 2 more");
}

static void stopped_at_any_time(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 50};
    const struct zf_order order = {.rows = 50, .shuffle = true};
    struct zf_loader_options o = {.data = &data,
                                  .order = &order,
                                  .count = UINT64_MAX / 2, /* it would never end */
                                  .step_rows = 8,
                                  .micro_batch = 3,
                                  .room_tokens = 3 * LONGEST};
    for (unsigned taken = 0; taken < 12; taken++)
        for (unsigned pause = 0; pause < 1500; pause += 500) {
            struct zf_loader *l;
            struct zf_err e = {0};
            const struct zf_load *load;
            fake.delay = taken % 2 ? 100 : 0;
            assert_int_equal(zf_loader_start(&l, &o, &e), ZF_OK);
            for (unsigned i = 0; i < taken; i++) assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
            if (pause) usleep(pause);
            zf_loader_stop(l);
        }
    o.step_rows = UINT64_MAX / 2; /* counting alone would never end */
    struct zf_loader *l;
    struct zf_err e = {0};
    assert_int_equal(zf_loader_start(&l, &o, &e), ZF_OK);
    usleep(500);
    zf_loader_stop(l);
    zf_loader_stop(NULL);
    fake.delay = 0;
}

/* The queue is bounded: with a consumer that does not come, reading ends. */
static void bounded(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 500};
    struct zf_loader_options o = {.data = &data, .count = 500, .step_rows = 10, .micro_batch = 5, .room_tokens = 5 * LONGEST};
    struct zf_loader *l;
    struct zf_err e = {0};
    const struct zf_load *load;
    uint64_t before = atomic_load(&fake.reads);
    assert_int_equal(zf_loader_start(&l, &o, &e), ZF_OK);
    for (int i = 0; i < 1000 && atomic_load(&fake.reads) - before < ZF_LOADER_DEPTH * 5; i++) usleep(1000);
    usleep(20000);
    assert_int_equal(atomic_load(&fake.reads) - before, ZF_LOADER_DEPTH * 5);
    assert_int_equal(zf_loader_next(l, &load, &e), ZF_OK);
    usleep(20000);
    assert_int_equal(atomic_load(&fake.reads) - before, ZF_LOADER_DEPTH * 5); /* the one that is in use is not written over */
    assert_int_equal(load->batch.ids[0], 0);
    zf_loader_stop(l);
}

static void refused(void **state)
{
    (void)state;
    const struct zf_dataset data = {.rows = 10};
    const struct zf_loader_options good = {.data = &data, .count = 10, .step_rows = 4, .micro_batch = 2, .room_tokens = 2 * LONGEST};
    struct zf_loader_options bad[] = {good, good, good, good};
    bad[0].step_rows = bad[1].micro_batch = bad[2].room_tokens = 0;
    bad[3].first = UINT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct zf_loader *l;
        struct zf_err e = {0};
        assert_int_equal(zf_loader_start(&l, &bad[i], &e), ZF_USAGE);
        assert_null(l);
    }
}

static void bytes(void **state)
{
    (void)state;
    size_t one = zf_loader_bytes(1000), two = zf_loader_bytes(2000);
    assert_true(one >= ZF_LOADER_DEPTH * 1000 * (3 * sizeof(int32_t) + sizeof(struct zf_segment)));
    assert_true(two > one && two < 2 * one);
    assert_int_equal(zf_loader_bytes(SIZE_MAX / 8), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_the_timing),
        cmocka_unit_test(shares_of_ranks),
        cmocka_unit_test(one_long_step),
        cmocka_unit_test(nothing),
        cmocka_unit_test(no_labels),
        cmocka_unit_test(errors_at_their_place),
        cmocka_unit_test(too_long),
        cmocka_unit_test(stopped_at_any_time),
        cmocka_unit_test(bounded),
        cmocka_unit_test(refused),
        cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
