/* Classification by choices on a tiny model: what micro-batches of rows give is what rows one by one give, and rows that do not belong
 * together are refused. The dataset is made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/run/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 37, LONGEST = 12, RECORDS = 40 };

static struct zf_err e;

static enum zf_status score(const struct zf_choices *c, struct zf_model *m, uint64_t *records, uint64_t *right, struct zf_err *error)
{
    struct zf_choices_found found;
    double *counts = calloc(ZF_CHOICE_COUNTS + c->count, sizeof *counts);
    assert_non_null(counts);
    enum zf_status s = zf_choices_score(c, m, counts, error);
    zf_choices_sum(&found, counts, c->count);
    free(counts);
    assert_true(s || (found.commonest <= found.records && found.commonest * c->count >= found.records));
    *records = found.records;
    *right = found.right;
    return s;
}

static void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

/* What the dataset is like. */
static struct {
    size_t choices;
    uint64_t cut;       /* this row has no target left; UINT64_MAX: none */
    uint64_t elsewhere; /* this one is of another line */
    uint64_t unchosen, chosen;
} fake;

static uint32_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 1) * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

static size_t own_choice(uint64_t record)
{
    return mix(record, 77) % fake.choices;
}

enum zf_status zf_dataset_read(const struct zf_dataset *d, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *error)
{
    static int32_t ids[LONGEST], target[LONGEST];
    static struct zf_source source;
    uint64_t record = row / fake.choices, k = row % fake.choices;
    size_t prompt = 2 + mix(record, 1) % 5, length = prompt + 1 + mix(record, 20 + k) % 5; /* the prompt is that of the record */
    (void)b;
    if (row >= d->rows) return zf_fail(error, ZF_IO, NULL, "row %llu", (unsigned long long)row);
    for (size_t i = 0; i < length; i++) ids[i] = (int32_t)(3 + mix(i < prompt ? record : 1000 + row, 100 + i) % (V - 3));
    for (size_t i = 0; i < length; i++) target[i] = i + 1 < length && i + 1 >= prompt && row != fake.cut ? ids[i + 1] : -1;
    bool own = (k == own_choice(record) && row != fake.unchosen) || row == fake.chosen;
    source = (struct zf_source){.line = record + (row == fake.elsewhere), .file = own ? ZF_SOURCE_CHOSEN : 0, .tokens = (uint32_t)length};
    *out = (struct zf_row){.ids = ids,
                           .target = target,
                           .length = length,
                           .label_tokens = row == fake.cut ? 0 : length - prompt,
                           .sources = &source,
                           .documents = 1};
    return ZF_OK;
}

struct fixture {
    struct zf_device *device;
    struct zf_model model;
    double *loss;
};

static void start(struct fixture *f)
{
    static const char text[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":24,\"num_attention_heads\":4,"
                               "\"num_key_value_heads\":2,\"intermediate_size\":40,\"vocab_size\":37,\"max_position_embeddings\":64,"
                               "\"hidden_act\":\"silu\",\"rope_theta\":10000.0,\"tie_word_embeddings\":false}";
    struct zf_model_config c;
    json_t *j;
    memset(f, 0, sizeof *f);
    fake.cut = fake.elsewhere = fake.unchosen = fake.chosen = UINT64_MAX;
    ok(zf_json_parse(&j, text, sizeof text - 1, "config", &e));
    ok(zf_model_config_read(&c, j, "config", &e));
    json_decref(j);
    ok(zf_device_open(&f->device, "host", &(struct zf_device_options){.threads = 1}, &e));
    ok(zf_model_open(&f->model, &c, NULL, 7, ZF_F32, true, f->device, &e));
    for (size_t i = 0; i < f->model.params.elements; i++) f->model.master[i] *= 3; /* so that choices differ */
    ok(zf_model_reserve(&f->model, 16 * LONGEST, LONGEST, ZF_KEEP_ALL, &e));
    void *loss;
    ok(f->device->type->alloc(f->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, sizeof *f->loss, &loss, &e));
    f->loss = loss;
}

static void stop(struct fixture *f)
{
    zf_model_close(&f->model);
    f->device->type->free(f->device, f->loss);
    f->device->type->close(f->device);
}

/* Each row alone, through the sum that training uses. */
static double loss_of_row(struct fixture *f, const struct zf_dataset *d, uint64_t row)
{
    struct zf_batch batch;
    struct zf_row r;
    ok(zf_batch_init(&batch, LONGEST, &e));
    ok(zf_dataset_read(d, row, NULL, &r, &e));
    zf_batch_add(&batch, &r);
    *f->loss = 0;
    ok(zf_model_step(&f->model, &batch, false, 0, f->loss, &e));
    ok(f->device->type->lane_sync(f->model.lane, &e));
    zf_batch_free(&batch);
    return *f->loss;
}

static uint64_t right_one_by_one(struct fixture *f, const struct zf_dataset *d, uint64_t records)
{
    uint64_t right = 0;
    for (uint64_t i = 0; i < records; i++) {
        double least = INFINITY;
        size_t best = 0;
        for (size_t k = 0; k < fake.choices; k++) {
            double loss = loss_of_row(f, d, i * fake.choices + k);
            if (loss < least) least = loss, best = k;
        }
        right += best == own_choice(i);
    }
    return right;
}

static enum zf_status count_calls(void *context, struct zf_err *error)
{
    int *left = context;
    return --*left ? ZF_OK : zf_fail(error, ZF_STOPPED, NULL, "enough");
}

static void agrees_with_one_by_one(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    for (fake.choices = 2; fake.choices <= 5; fake.choices++) {
        struct zf_dataset d = {.rows = RECORDS * fake.choices};
        uint64_t want = right_one_by_one(&f, &d, RECORDS), some = right_one_by_one(&f, &d, 13), records, right;
        assert_true(want > 0 && want < RECORDS);
        for (size_t micro = 1; micro <= 16; micro += 3) {
            struct zf_choices c = {.data = &d, .count = fake.choices, .micro_batch = micro, .room_tokens = micro * LONGEST};
            ok(score(&c, &f.model, &records, &right, &e));
            assert_int_equal(records, RECORDS);
            assert_int_equal(right, want);
            c.most = 13;
            c.room_tokens =
                micro * LONGEST / 2 < LONGEST ? LONGEST : micro * LONGEST / 2; /* a micro-batch may end before it has all rows */
            ok(score(&c, &f.model, &records, &right, &e));
            assert_int_equal(records, 13);
            assert_int_equal(right, some);
        }
    }
    stop(&f);
}

/* Without a token of one choice, or with a loss that is not a number, nothing is predicted. */
static void no_prediction_is_wrong(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    fake.choices = 2;
    struct zf_dataset d = {.rows = RECORDS * 2};
    struct zf_choices c = {.data = &d, .count = 2, .micro_batch = 8, .room_tokens = 8 * LONGEST};
    uint64_t records, right, with;
    ok(score(&c, &f.model, &records, &with, &e));
    uint64_t record = 0;
    while (loss_of_row(&f, &d, record * 2 + own_choice(record)) > loss_of_row(&f, &d, record * 2 + !own_choice(record))) record++;
    for (uint64_t k = 0; k < 2; k++) { /* one that was right */
        fake.cut = record * 2 + k;
        ok(score(&c, &f.model, &records, &right, &e));
        assert_int_equal(records, RECORDS);
        assert_int_equal(right, with - 1);
    }
    for (size_t i = 0; i < f.model.params.elements; i++) f.model.master[i] = NAN;
    ok(score(&c, &f.model, &records, &right, &e));
    assert_int_equal(records, RECORDS);
    assert_int_equal(right, 0);
    stop(&f);
}

static void stops_when_asked(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    fake.choices = 2;
    struct zf_dataset d = {.rows = RECORDS * 2};
    int left = 3;
    uint64_t records, right;
    struct zf_choices c = {.data = &d, .count = 2, .micro_batch = 4, .room_tokens = 4 * LONGEST, .between = count_calls, .context = &left};
    assert_int_equal(score(&c, &f.model, &records, &right, &e), ZF_STOPPED);
    assert_int_equal(left, 0);
    assert_int_equal(records, 6);
    stop(&f);
}

static void rows_that_do_not_belong_together(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    fake.choices = 3;
    struct zf_dataset d = {.rows = 30};
    struct zf_choices c = {.data = &d, .count = 3, .micro_batch = 4, .room_tokens = 4 * LONGEST};
    uint64_t records, right;
    uint64_t *const faults[] = {&fake.elsewhere, &fake.unchosen, &fake.chosen};
    const uint64_t rows[] = {13, 12 + own_choice(4), 12 + (own_choice(4) + 1) % 3};
    for (size_t i = 0; i < 3; i++) {
        *faults[i] = rows[i];
        assert_int_equal(score(&c, &f.model, &records, &right, &e), ZF_FORMAT);
        assert_non_null(strstr(e.message, "3 rows of each record"));
        *faults[i] = UINT64_MAX;
    }
    d.rows = 29;
    assert_int_equal(score(&c, &f.model, &records, &right, &e), ZF_FORMAT);
    d.rows = 30;
    c.room_tokens = 2;
    assert_int_equal(score(&c, &f.model, &records, &right, &e), ZF_MEMORY);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_one_by_one),
        cmocka_unit_test(no_prediction_is_wrong),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(rows_that_do_not_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
