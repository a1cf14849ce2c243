/* The golden trajectories: every case of the policy space that the oracle has run, live changes included, on two models (golden/README.md).
 * Limits: losses 1e-5, norms 1e-4, matrices 1e-4, vectors 5e-3, all relative; every selection whose gap is above 1e-5. A case in which a
 * selection with a smaller gap falls differently is compared up to that step. */
#include "support.h"
#ifdef ZF_RANKS
#include "kernels/comm_threads.h"
#endif

static double relative(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 1e-12);
}

/* Selections of step t against the oracle's; false: one with a small gap fell differently. */
static bool same_selections(const struct run *r, const json_t *wanted, uint64_t t, const char *name)
{
    size_t i;
    json_t *s;
    json_array_foreach((json_t *)(uintptr_t)wanted, i, s)
    {
        if ((uint64_t)json_integer_value(json_array_get(s, 0)) != t) continue;
        const char *matrix = json_string_value(json_array_get(s, 1));
        const json_t *channels = json_array_get(s, 2);
        const struct zf_matrix *x = NULL;
        for (size_t k = 0; k < r->pipeline.matrices; k++)
            if (!strcmp(r->pipeline.matrix[k].param->name, matrix)) x = &r->pipeline.matrix[k];
        assert_non_null(x);
        if (x->window.selected != t) fail_msg("%s: step %d: %s was last selected at %d", name, (int)t, matrix, (int)x->window.selected);
        size_t same = 0, n = json_array_size(channels);
        for (size_t k = 0; k < x->device.rows; k++)
            for (size_t c = 0; c < n; c++) same += (uint32_t)json_integer_value(json_array_get(channels, c)) == x->order[k];
        if (same == n && x->device.rows == n) continue;
        if (json_number_value(json_array_get(s, 3)) < 1e-5) return false;
        fail_msg("%s: step %d: %s: %zu of %zu channels are the oracle's %zu", name, (int)t, matrix, same, x->device.rows, n);
    }
    return true;
}

static void compare_weights(const struct run *r, const struct zf_safetensors *results, const char *name)
{
    for (size_t i = 0; i < r->model.params.count; i++) {
        const struct zf_param *p = &r->model.params.list[i];
        char key[512];
        snprintf(key, sizeof key, "%s.after.%s", name, p->name);
        const struct zf_st_tensor *t = zf_st_find(results, key);
        assert_non_null(t);
        size_t n = p->rows * p->cols;
        float *ours = run_weights(r, p), *theirs = malloc(n * sizeof *theirs);
        ok(zf_st_floats(theirs, t, 0, n, &e));
        double difference = 0, size = 0;
        for (size_t row = 0; row < p->rows; row++)
            for (size_t c = 0; c < p->cols; c++) {
                double b = theirs[p->transposed ? c * p->rows + row : row * p->cols + c], d = ours[row * p->cols + c] - b;
                difference += d * d;
                size += b * b;
            }
        double limit = p->matrix ? 1e-4 : 5e-3;
        if (sqrt(difference) > limit * sqrt(size)) fail_msg("%s: %s differs by %.3g", key, p->name, sqrt(difference / size));
        free(ours);
        free(theirs);
    }
}

static void run_case(const struct golden *g, const char *name, const json_t *c, const struct run_options *how)
{
    struct run r;
    char key[256];
    const json_t *selected = json_object_get(c, "selected"), *at = json_object_get(c, "at");
    double losses[GOLDEN_STEPS], norms[GOLDEN_STEPS];
    snprintf(key, sizeof key, "%s.loss", name);
    const struct zf_st_tensor *t = zf_st_find(&g->results, key);
    assert_non_null(t);
    memcpy(losses, t->data, sizeof losses);
    snprintf(key, sizeof key, "%s.norm", name);
    memcpy(norms, zf_st_find(&g->results, key)->data, sizeof norms);
    run_open(&r, &g->source, json_object_get(c, "options"), how);
    bool whole = true;
    for (uint64_t step = 1; whole && step <= GOLDEN_STEPS; step++) {
        size_t i;
        json_t *change;
        json_array_foreach((json_t *)(uintptr_t)at, i, change)
        {
            if ((uint64_t)json_integer_value(json_array_get(change, 0)) == step) run_change(&r, json_array_get(change, 1));
        }
        run_step(&r, step);
        if (relative(r.losses[step], losses[step - 1]) > 1e-5)
            fail_msg("%s: step %d: loss %.9g, the oracle's %.9g", name, (int)step, r.losses[step], losses[step - 1]);
        if (relative(r.norms[step], norms[step - 1]) > 1e-4)
            fail_msg("%s: step %d: norm %.9g, the oracle's %.9g", name, (int)step, r.norms[step], norms[step - 1]);
        whole = same_selections(&r, selected, step, name);
    }
    ok(zf_pipeline_drain(&r.pipeline, &e));
    if (whole)
        compare_weights(&r, &g->results, name);
    else
        print_message("%s: compared up to a selection whose gap is below 1e-5\n", name);
    run_close(&r);
}

#ifdef ZF_RANKS
/* The same, by several ranks, each of which must find all of it. */
struct together {
    const struct golden *g;
    const char *name;
    const json_t *c;
    struct hub *hub;
};

static void comm_of(struct zf_comm **out, void *hub, int rank, struct zf_device *d)
{
    ok(hub_comm(out, hub, rank, d, &e));
}

static void one_rank(int rank, void *ctx)
{
    const struct together *a = ctx;
    run_case(a->g, a->name, a->c, &(struct run_options){.dtype = ZF_F32, .threads = 1, .comm = comm_of, .comm_ctx = a->hub, .rank = rank});
}

static void one_case(const struct golden *g, const char *name, const json_t *c)
{
    static int turn;
    int ranks = turn++ % 2 ? 4 : 2; /* with four two have no rows */
    struct together a = {g, name, c, hub_new(ranks)};
    hub_run(ranks, one_rank, &a);
    hub_free(a.hub);
}
#else
static void one_case(const struct golden *g, const char *name, const json_t *c)
{
    run_case(g, name, c, &(struct run_options){.dtype = ZF_F32, .threads = 2});
}
#endif

/* turn: of the models, which on an emulated GPU share the cases. */
static void all_cases(const char *model, size_t turn)
{
    struct golden g;
    if (!golden_open(&g, model)) {
        print_message("the golden trajectories are not here (ZF_SHARED)\n");
        skip();
    }
    const char *name, *only = getenv("ZF_CASE");
    json_t *c;
    json_object_foreach(json_object_get(g.cases, "cases"), name, c)
    {
        if (only ? !strcmp(only, name) : !left_out(turn++, 3)) one_case(&g, name, c);
    }
    golden_close(&g);
}

static void test_gpt2(void **state)
{
    (void)state;
    all_cases("gpt2-plain", 0);
}

static void test_llama2(void **state)
{
    (void)state;
    all_cases("llama2-plain", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_llama2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
