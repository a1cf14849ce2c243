/* Runs that fuzz_oracle.py found worth keeping, with what the oracle made of them (data/cases.json; its --record made the file): losses,
 * norms, losses between steps, counts of updates, the loss afterwards. Limits as for the golden trajectories. */
#include "script.h"

static void compare(const char *what, const json_t *ours, const json_t *wanted, double limit)
{
    if (json_is_null(wanted)) return;
    double a = json_number_value(ours), b = json_number_value(wanted);
    if (!(fabs(a - b) <= limit * fabs(b))) fail_msg("%s: %.9g, the oracle's %.9g", what, a, b);
}

static void run_case(json_t *script, const char *source)
{
    char model[1024], what[256];
    snprintf(model, sizeof model, "%s/tests/golden/families/%s", source, json_string_value(json_object_get(script, "family")));
    json_object_set_new(script, "model", json_string(model));
    const json_t *expected = json_object_get(script, "expected"), *steps = json_object_get(script, "steps");
    json_t *result = run_script(script), *p;
    static const struct {
        const char *name;
        double limit;
    } figures[] = {{"loss", 1e-5}, {"norm", 1e-4}, {"validation", 1e-5}};
    int number = (int)json_integer_value(json_object_get(script, "case"));
    for (size_t t = 0; t < json_array_size(steps); t++)
        for (size_t k = 0; k < 3; k++) {
            if (k < 2 && json_object_get(json_array_get(steps, t), "bad")) continue;
            snprintf(what, sizeof what, "case %d, step %zu: %s", number, t + 1, figures[k].name);
            compare(what, json_object_get(json_array_get(json_object_get(result, "steps"), t), figures[k].name),
                    json_array_get(json_object_get(expected, figures[k].name), t), figures[k].limit);
        }
    snprintf(what, sizeof what, "case %d: the last loss", number);
    compare(what, json_object_get(result, "last"), json_object_get(expected, "last"), 1e-5);
    size_t i, k;
    json_array_foreach(json_object_get(result, "parameters"), i, p)
    {
        long long sum = 0;
        json_t *t;
        const char *name = json_string_value(json_object_get(p, "name"));
        if (json_is_true(json_object_get(script, "undrained"))) break; /* the CPU half is ahead of what is visible */
        json_array_foreach(json_object_get(p, "t"), k, t) sum += json_integer_value(t);
        long long wanted = json_integer_value(json_object_get(json_object_get(expected, "updates"), name));
        if (sum != wanted) fail_msg("case %d: %s: %lld updates of channels, the oracle's %lld", number, name, sum, wanted);
    }
    json_decref(result);
}

static void test_recorded(void **state)
{
    (void)state;
    char path[1024];
    const char *source = getenv("ZF_SOURCE");
    assert_non_null(source);
    snprintf(path, sizeof path, "%s/tests/pipeline/data/cases.json", source);
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error), *c;
    if (!cases) fail_msg("%s: %s", path, error.text);
    size_t i;
    json_array_foreach(cases, i, c) run_case(c, source);
    assert_true(i > 0);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
