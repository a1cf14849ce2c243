/* I6 in memory: a run that is saved after any step and goes on from there in another trainer, whose memory held something else before,
 * ends with the same bits as one that was never stopped. */
#include "bits.h"
#include "core/base/rng.h"
#include "core/pipeline/state.h"

#include <pthread.h>
#include <time.h>

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
    ok(zf_state_shape(&r->pipeline, facts, NULL, NULL, &e));
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
    ok(m->device->type->fill(m->lane, m->weights, 0x5a, m->params.elements * zf_dtype_size(m->dtype)));
    if (m->master != m->weights) ok(m->device->type->fill(m->lane, m->master, 0x5b, m->params.elements * sizeof *m->master));
    ok(m->device->type->lane_sync(m->lane, &e));
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
        if (left_out((size_t)d + turn, 5)) continue;
        struct source s;
        struct result x = {0};
        struct run_options how = {.dtype = d ? ZF_BF16 : ZF_F32, .threads = 2, .stochastic = d == 2};
        source_make(&s, SOURCES[(turn + (size_t)d) % 2], 2 * STEPS, 12);
        train(&x, &s, options, changes, &how, NULL, "");
        bool all = getenv("ZF_ALL_STEPS") != NULL; /* else a sample */
        for (uint64_t after = all ? 1 : 1 + (turn + (size_t)d) % 4; after < STEPS; after += all ? 1 : ON_CUDA ? 8 : 4) {
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
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (!left_out(i, 4)) everywhere(POLICIES[i], NULL, i);
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

/* ---- while training goes on ---- */

/* A thread that writes a copy, slowly, into memory; it compares with what there was. */
struct writer {
    struct zf_state state;
    const struct kept *like;
    size_t pieces, rows;
    unsigned slow; /* microseconds a part, at most */
    uint64_t seed;
    char wrong[600]; /* empty: nothing */
    pthread_t thread;
};

static void compare_piece(struct writer *w, const struct zf_state_piece *x)
{
    struct zf_err why;
    size_t i = 0, row = bytes_of(x) / x->rows;
    while (i < w->like->count && strcmp(w->like->name[i], x->name)) i++;
    char *bytes = malloc(bytes_of(x));
    bool fine = bytes && i < w->like->count && w->like->size[i] == bytes_of(x);
    for (size_t at = 0; fine && at < x->rows; at += w->rows)
        fine = !zf_state_read(&w->state, x, at, x->rows - at < w->rows ? x->rows - at : w->rows, bytes + at * row, &why);
    if (fine) fine = !memcmp(bytes, w->like->bytes[i], bytes_of(x));
    if (!fine) snprintf(w->wrong, sizeof w->wrong, "%s is not what it was", x->name);
    w->pieces++;
    free(bytes);
}

static void *write_copy(void *arg)
{
    struct writer *w = arg;
    struct zf_err why;
    struct zf_state_part *x;
    if (zf_state_ready(&w->state, &why)) snprintf(w->wrong, sizeof w->wrong, "%.500s", why.message);
    for (uint64_t n = 0; (x = zf_state_next(&w->state)); n++) {
        uint32_t pause = w->slow ? zf_philox(w->seed, n, 0).v[0] % w->slow : 0;
        for (size_t i = 0; i < x->pieces; i++) compare_piece(w, &x->first[i]);
        nanosleep(&(struct timespec){.tv_nsec = (long)pause * 1000}, NULL);
        zf_state_done(&w->state, x);
    }
    zf_state_over(&w->state);
    return NULL;
}

static void writer_end(struct writer *w, struct kept *k, const char *what)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    if (w->wrong[0]) fail_msg("%s: %s", what, w->wrong);
    assert_int_equal(w->pieces, k->count);
    zf_state_close(&w->state);
    kept_free(k);
}

/* A copy after every few steps, each written while the next steps are taken. spare: what of the CPU half may be kept. */
static void copied(const struct source *s, const char *options, const char *changes, const struct run_options *how, size_t spare,
                   unsigned slow, const struct result *like, const char *what)
{
    struct run r;
    struct kept k;
    struct writer w;
    struct result out = {0};
    struct zf_state_memory memory = {0};
    bool under_way = false;
    run_open_text(&r, s, options, how);
    for (uint64_t t = 1; t <= STEPS; t++) {
        change_at(&r, changes, t);
        run_step(&r, t);
        if (t % 4 != 2) continue;
        if (under_way) writer_end(&w, &k, what);
        save(&k, &r, SIZE_MAX);
        w = (struct writer){.like = &k, .slow = slow, .seed = t, .rows = t % 3 ? SIZE_MAX : 5};
        if (zf_state_copy(&w.state, &r.pipeline, &memory, 0, &e) != ZF_MEMORY) fail_msg("%s: copied into no memory", what);
        struct zf_state first;
        ok(zf_state_copy(&first, &r.pipeline, &memory, SIZE_MAX / 2, &e)); /* for its size */
        zf_state_over(&first);
        zf_state_close(&first);
        memory.held = true; /* it is large enough */
        ok(zf_state_copy(&w.state, &r.pipeline, &memory, memory.size + spare, &e));
        memory.held = false;
        assert_int_equal(pthread_create(&w.thread, NULL, write_copy, &w), 0);
        under_way = true;
    }
    if (under_way) writer_end(&w, &k, what);
    ok(zf_pipeline_drain(&r.pipeline, &e));
    result_take(&out, &r);
    if (!same(like, &out, &r, what, false)) fail_msg("%s: not the same bits", what);
    result_free(&out);
    r.device->type->free(r.device, memory.bytes);
    run_close(&r);
}

static void test_copies(void **state)
{
    static const char changes[] = "5 topk_ratio 0.6;9 update_interval 5;12 strategy gpu_only";
    (void)state;
    bool all = getenv("ZF_ALL_STEPS") != NULL;
    for (size_t i = 0; i < POLICY_COUNT; i++)
        for (size_t d = left_out(i + 1, 2) ? 2 : all ? 0 : i % 2; d < 2; d += all ? 1 : 2) {
            struct source s;
            struct result x = {0};
            struct run_options how = {.dtype = d ? ZF_BF16 : ZF_F32, .threads = 2, .jitter = i};
            const char *change = i % 3 == 2 ? changes : NULL;
            char what[800];
            source_make(&s, SOURCES[i % 2], 2 * STEPS, 12);
            train(&x, &s, POLICIES[i], change, &how, NULL, "");
            for (int spare = 0; spare < 3; spare++) {
                if (left_out((size_t)spare + i, 3)) continue;
                snprintf(what, sizeof what, "%s / %s, %s, copied (%d)", POLICIES[i], change ? change : "", d ? "bf16" : "f32", spare);
                copied(&s, POLICIES[i], change, &how, spare == 0 ? 0 : spare == 1 ? 6000 : SIZE_MAX / 4, spare == 2 ? 3000 : 300, &x, what);
            }
            result_free(&x);
            source_free(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_i6_every_policy_after_every_step), cmocka_unit_test(test_i6_with_changes),
                                       cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
