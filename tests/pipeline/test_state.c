/* I6 in memory: a run that is saved after any step and goes on from there in another trainer, whose memory held something else before,
 * ends with the same bits as one that was never stopped. */
#include "bits.h"
#include "core/pipeline/state.h"

struct kept {
    char (*name)[256];
    void **bytes;
    size_t *size, count;
    char *facts;
};

static size_t bytes_of(const struct zf_state_piece *x)
{
    return x->rows * x->cols * zf_state_type_bytes(x->type);
}

/* rows: at once. */
static void save(struct kept *k, struct run *r, size_t rows)
{
    struct zf_state s;
    ok(zf_state_open(&s, &r->pipeline, &e));
    *k = (struct kept){
        .name = calloc(s.count, sizeof *k->name), .bytes = calloc(s.count, sizeof *k->bytes), .size = calloc(s.count, sizeof *k->size)};
    assert_true(k->name && k->bytes && k->size);
    for (; k->count < s.count; k->count++) {
        const struct zf_state_piece *x = &s.list[k->count];
        strcpy(k->name[k->count], x->name);
        k->size[k->count] = bytes_of(x);
        char *to = k->bytes[k->count] = malloc(bytes_of(x));
        assert_non_null(to);
        size_t row = bytes_of(x) / x->rows;
        for (size_t at = 0; at < x->rows; at += rows)
            ok(zf_state_read(&s, x, at, x->rows - at < rows ? x->rows - at : rows, to + at * row, &e));
    }
    zf_state_close(&s);
    json_t *facts = zf_state_facts(&r->pipeline);
    assert_non_null(facts);
    k->facts = json_dumps(facts, JSON_COMPACT | JSON_REAL_PRECISION(17));
    assert_non_null(k->facts);
    json_decref(facts);
}

static void restore(const struct kept *k, struct run *r, size_t rows)
{
    struct zf_state s;
    json_t *facts = json_loads(k->facts, 0, NULL);
    ok(zf_state_shape(&r->pipeline, facts, &e));
    json_decref(facts);
    ok(zf_state_open(&s, &r->pipeline, &e));
    assert_int_equal(s.count, k->count);
    for (size_t i = 0; i < s.count; i++) {
        const struct zf_state_piece *x = &s.list[i];
        assert_string_equal(x->name, k->name[i]);
        assert_int_equal(bytes_of(x), k->size[i]);
        size_t row = bytes_of(x) / x->rows;
        for (size_t at = 0; at < x->rows; at += rows)
            ok(zf_state_write(&s, x, at, x->rows - at < rows ? x->rows - at : rows, (char *)k->bytes[i] + at * row, &e));
    }
    zf_state_close(&s);
    ok(zf_state_settled(&r->pipeline, &e));
}

static void kept_free(struct kept *k)
{
    for (size_t i = 0; i < k->count; i++) free(k->bytes[i]);
    free(k->name);
    free(k->bytes);
    free(k->size);
    free(k->facts);
}

static void change_at(struct run *r, const char *changes, uint64_t t)
{
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", changes ? changes : "");
    for (char *c = strtok_r(copy, ";", &rest); c; c = strtok_r(NULL, ";", &rest)) {
        int at, used = 0;
        assert_int_equal(sscanf(c, "%d %n", &at, &used), 1);
        if ((uint64_t)at == t) run_change_text(r, c + used);
    }
}

/* What a fresh process has in its memory is not what the run had. */
static void poison(struct run *r)
{
    struct zf_model *m = &r->model;
    memset(m->weights, 0x5a, m->params.elements * zf_dtype_size(m->dtype));
    if (m->master != m->weights) memset(m->master, 0x5b, m->params.elements * sizeof *m->master);
}

/* Saved after step `after`, and once more after step `again` (0: not). */
static void stopped(const struct source *s, const char *options, const char *changes, const struct run_options *how, uint64_t after,
                    uint64_t again, const struct result *like, const char *what)
{
    struct run r;
    struct kept k;
    struct result out = {0};
    double losses[STEPS + 1];
    run_open_text(&r, s, options, how);
    for (uint64_t t = 1; t <= STEPS; t++) {
        change_at(&r, changes, t);
        run_step(&r, t);
        if (t != after && t != again) continue;
        save(&k, &r, t % 3 ? SIZE_MAX : 5);
        memcpy(losses, r.losses, sizeof losses);
        struct zf_options then = r.options;
        struct zf_adam_rule rule = r.rule;
        memset(&r.options, 0, sizeof r.options);
        zf_pipeline_close(&r.pipeline);
        zf_batch_free(&r.batch);
        zf_model_close(&r.model);
        if (r.host) r.host->type->close(r.host);
        r.device->type->close(r.device);
        run_prepare(&r, s, how);
        zf_options_free(&r.options);
        r.options = then;
        r.rule = rule;
        memcpy(r.losses, losses, sizeof losses);
        r.how.threads = 3 - r.how.threads % 3; /* another number */
        run_start_model(&r);
        poison(&r);
        run_start_pipeline(&r);
        restore(&k, &r, t % 2 ? SIZE_MAX : 7);
        kept_free(&k);
    }
    ok(zf_pipeline_drain(&r.pipeline, &e));
    result_take(&out, &r);
    if (!same(like, &out, &r, what, false)) fail_msg("%s: not the same bits", what);
    result_free(&out);
    run_close(&r);
}

static void everywhere(const char *options, const char *changes, size_t turn)
{
    for (int d = 0; d < 3; d++) {
        struct source s;
        struct result x = {0};
        struct run_options how = {.dtype = d ? ZF_BF16 : ZF_F32, .threads = 2, .stochastic = d == 2};
        source_make(&s, SOURCES[(turn + (size_t)d) % 2], 2 * STEPS, 12);
        train(&x, &s, options, changes, &how, NULL, "");
        bool all = getenv("ZF_ALL_STEPS") != NULL; /* else a sample */
        for (uint64_t after = all ? 1 : 1 + (turn + (size_t)d) % 4; after < STEPS; after += all ? 1 : 4) {
            char what[800];
            snprintf(what, sizeof what, "%s / %s, saved after step %d, %s%s", options, changes ? changes : "", (int)after,
                     d ? "bf16" : "f32", d == 2 ? ", by chance" : "");
            stopped(&s, options, changes, &how, after, after % 4 == 1 ? after + 2 : 0, &x, what);
        }
        result_free(&x);
        source_free(&s);
    }
}

static void test_i6_every_policy_after_every_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < POLICY_COUNT; i++) everywhere(POLICIES[i], NULL, i);
}

static void test_i6_with_changes(void **state)
{
    (void)state;
    static const char *const runs[][2] = {
        {"strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4",
         "3 topk_ratio 0.6;6 update_interval 5;9 optimistic no;11 optimistic yes"},
        {"strategy gpu_only", "4 strategy zero_offload;7 strategy zenflow;10 strategy gpu_only;12 strategy zenflow_sync"},
        {"strategy zenflow topk_ratio 1", "5 topk_ratio 0.25;9 topk_ratio 1;12 topk_ratio 0"},
        {"strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 2",
         "6 swap rolling optimistic no;9 cpu_update mean;12 swap staggered optimistic yes"},
        {"strategy zenflow optimistic no cpu_update mean update_interval 3 accumulate_on device",
         "5 accumulate_on host update_interval 4;9 accumulate_on device"},
        {"strategy selected_only topk_ratio 0.25 update_interval 2", "6 strategy zenflow;10 strategy stronghold"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) everywhere(runs[i][0], runs[i][1], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_i6_every_policy_after_every_step), cmocka_unit_test(test_i6_with_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
