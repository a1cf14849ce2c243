/* The table, the struct, what is written of it, and the rules between options. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/config/run_cfg.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("`%s` is not in `%s`", part, text);
}

static struct zf_options fresh(void)
{
    struct zf_options o;
    struct zf_err e;
    assert_int_equal(zf_options_init(&o, &e), ZF_OK);
    return o;
}

/* zf_options_is_default compares texts, so the table must have them as they are written. */
static void defaults_are_written_as_they_are_printed(void **state)
{
    (void)state;
    struct zf_options o = fresh();
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        char *text = zf_options_get_text(&o, id);
        assert_string_equal(text, row->fallback[0] ? row->fallback : "\"\"");
        assert_true(zf_options_is_default(&o, id));
        assert_int_equal(o.origin[id].kind, ZF_ORIGIN_DEFAULT);
        free(text);
        assert_ptr_equal(zf_option_find(row->name), row);
        assert_true(row->sentence[strlen(row->sentence) - 1] == '.');
        for (enum zf_option_id other = 0; other < id; other++) assert_string_not_equal(row->name, zf_option_table[other].name);
        if (row->type == ZF_TYPE_CHOICE) assert_string_equal(row->choices[0], row->fallback);
    }
    assert_int_equal(o.micro_batch, 0);
    assert_int_equal(o.strategy, ZF_STRATEGY_AUTO);
    assert_true(o.learning_rate == 2e-5 && o.epsilon == 1e-8 && o.grace == 30 && o.plain_every == 2);
    assert_true(o.optimistic && o.pack && !o.recompute);
    assert_ptr_equal(zf_option_find("lr"), &zf_option_table[ZF_OPT_learning_rate]);
    zf_options_free(&o);
}

/* A value other than the default for every option. */
static const char *other_value(const struct zf_option *row)
{
    switch (row->type) {
    case ZF_TYPE_STRING: return "\" two\\nlines, \\\"quoted\\\" \"";
    case ZF_TYPE_PATH: return "some folder/it, \xc3\xa4";
    case ZF_TYPE_PATHS: return "a.txt, \"b, c.txt\", \"\\\"d\\\"\"";
    case ZF_TYPE_LIST: return "*.bias, \"x,y\", \" z\"";
    case ZF_TYPE_INT: return row->most == 22 ? "19" : row->most >= 123 ? "123" : "3";
    case ZF_TYPE_SIZE: return "1537k";
    case ZF_TYPE_DURATION: return "0.1m";
    case ZF_TYPE_FLOAT: return row->most == 1 ? "0.30000000000000004" : "1.2345678901234567e-3";
    case ZF_TYPE_BOOL: return strcmp(row->fallback, "no") ? "no" : "yes";
    case ZF_TYPE_CHOICE: return row->choices[row->choice_count - 1];
    }
    return "";
}

static void write_is_read_back(void **state)
{
    (void)state;
    const struct zf_origin origin = {.kind = ZF_ORIGIN_COMMAND};
    struct zf_options o = fresh(), back = fresh(), plain = fresh();
    struct zf_err e;
    struct zf_err_list errors = {0};
    for (int round = 0; round < 2; round++) {
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        assert_non_null(f);
        assert_int_equal(zf_options_write(&o, f, &e), ZF_OK);
        fclose(f);
        if (zf_run_cfg_read_memory(&back, text, size, "run.cfg", "/elsewhere", &errors))
            fail_msg("%s: %s", errors.list[0].where, errors.list[0].message);
        assert_true(zf_options_equal(&o, &back));
        for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
            char line[64];
            snprintf(line, sizeof line, "\n%s = ", zf_option_table[id].name);
            assert_contains(text, line);
            assert_int_equal(zf_options_is_default(&back, id), !round);
            if (round) continue;
            if (zf_options_set(&o, zf_option_table[id].name, other_value(&zf_option_table[id]), &origin, &e))
                fail_msg("%s: %s", e.where, e.message);
            assert_false(zf_options_equal(&o, &plain));
        }
        assert_int_equal(zf_options_at(&o, "40", "set topk_ratio 0.05", &origin, &e), ZF_OK);
        assert_int_equal(zf_options_at(&o, "40", "mark \"x\" # y", &origin, &e), ZF_OK);
        assert_false(zf_options_equal(&o, &back));
        free(text);
    }
    zf_options_free(&o);
    zf_options_free(&back);
    zf_options_free(&plain);
}

static void get_text_reads_back(void **state)
{
    (void)state;
    static const char *const numbers[] = {"0.1", "1e-300",  "123456789.123",     "5e-324", "1.7976931348623157e308",
                                          "3",   "1000000", "0.3333333333333333"};
    const struct zf_origin origin = {.kind = ZF_ORIGIN_SET};
    struct zf_options o = fresh();
    struct zf_err e;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_int_equal(zf_options_set(&o, "lr", numbers[i], &origin, &e), ZF_OK);
        assert_true(o.learning_rate == strtod(numbers[i], NULL));
        char *text = zf_options_get_text(&o, ZF_OPT_learning_rate);
        assert_true(strtod(text, NULL) == o.learning_rate);
        free(text);
        assert_int_equal(zf_options_set(&o, "max_time", numbers[i], &origin, &e), ZF_OK);
        double seconds = o.max_time;
        text = zf_options_get_text(&o, ZF_OPT_max_time);
        assert_int_equal(zf_options_set(&o, "max_time", text, &origin, &e), ZF_OK);
        assert_true(o.max_time == seconds);
        free(text);
    }
    zf_options_free(&o);
}

static void a_failed_set_changes_nothing(void **state)
{
    (void)state;
    struct zf_options o = fresh();
    struct zf_err e;
    assert_int_equal(zf_options_set_argument(&o, "lr=3e-4", &e), ZF_OK);
    assert_int_equal(zf_options_set_argument(&o, "lr=-3e-4", &e), ZF_USAGE);
    assert_string_equal(e.where, "--set learning_rate");
    assert_true(o.learning_rate == 3e-4);
    assert_int_equal(zf_options_set_argument(&o, "lr", &e), ZF_USAGE);
    assert_contains(e.message, "name=value");
    assert_int_equal(zf_options_set_argument(&o, "max_grad_norm=1", &e), ZF_USAGE);
    assert_contains(e.message, "clip_norm");
    assert_int_equal(zf_options_set_argument(&o, "note=\xff", &e), ZF_USAGE);
    assert_int_equal(zf_options_set_argument(&o, "note=\"a\\tb\"", &e), ZF_OK);
    assert_string_equal(o.note, "a\tb");
    assert_int_equal(zf_options_set_argument(&o, "train=x", &e), ZF_OK);
    assert_true(o.train.list[0][0] == '/');
    zf_options_free(&o);
}

/* The console sets the user's locale; numbers must not notice. */
static void a_locale_with_commas(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        print_message("neither de_DE.UTF-8 nor fr_FR.UTF-8 is installed\n");
        skip();
    }
    struct zf_options o = fresh();
    struct zf_err e;
    assert_int_equal(zf_options_set_argument(&o, "lr=1.5e-4", &e), ZF_OK);
    char *text = zf_options_get_text(&o, ZF_OPT_learning_rate);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "1.5e-4");
    assert_true(o.learning_rate == 1.5e-4);
    free(text);
    zf_options_free(&o);
}

static void json_has_every_option(void **state)
{
    (void)state;
    struct zf_options o = fresh();
    struct zf_err e;
    assert_int_equal(zf_options_set_argument(&o, "train=/a,/b", &e), ZF_OK);
    assert_int_equal(zf_options_at(&o, "4", "stop", &(struct zf_origin){0}, &e), ZF_OK);
    json_t *j = zf_options_json(&o);
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) assert_non_null(json_object_get(j, zf_option_table[id].name));
    assert_true(json_real_value(json_object_get(j, "learning_rate")) == 2e-5);
    assert_string_equal(json_string_value(json_object_get(j, "micro_batch")), "auto");
    assert_int_equal(json_integer_value(json_object_get(j, "batch_size")), 8);
    assert_int_equal(json_array_size(json_object_get(j, "train")), 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "at"), 0)), "4 = stop");
    json_decref(j);
    zf_options_free(&o);
}

static char *printed(enum zf_table_style style)
{
    char *text = NULL;
    size_t size = 0;
    struct zf_err e;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(zf_options_print(f, style, &e), ZF_OK);
    fclose(f);
    return text;
}

static void tables_have_every_option(void **state)
{
    (void)state;
    char *plain = printed(ZF_TABLE_PLAIN), *markdown = printed(ZF_TABLE_MARKDOWN), *json = printed(ZF_TABLE_JSON);
    json_t *rows = json_loads(json, 0, NULL);
    assert_int_equal(json_array_size(rows), ZF_OPTIONS + 1); /* and [at] */
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        char start[128];
        snprintf(start, sizeof start, "\n| %s | `%s` | %s | ", row->section, row->name, zf_option_type_name(row->type));
        assert_contains(markdown, start);
        snprintf(start, sizeof start, "  %s ", row->name);
        assert_contains(plain, start);
        assert_contains(plain, row->sentence);
        json_t *j = json_array_get(rows, id);
        assert_string_equal(json_string_value(json_object_get(j, "name")), row->name);
        assert_string_equal(json_string_value(json_object_get(j, "default")), row->fallback);
        assert_string_equal(json_string_value(json_object_get(j, "when")), zf_option_when_name(row->when));
    }
    for (char *line = markdown; *line; line = strchr(line, '\n') + 1) { /* eight cells each */
        int bars = 0;
        for (char *c = line; *c != '\n'; c++) bars += *c == '|' && (c == line || c[-1] != '\\');
        assert_int_equal(bars, 9);
    }
    json_decref(rows);
    free(plain);
    free(markdown);
    free(json);
}

#define MODEL "[model]\npath = /m\n"
#define DATA "[data]\ntrain = a.txt\n"

/* A run.cfg, the place of its one error, and what the message says; NULL: none. */
static const struct {
    const char *text, *where, *says;
} rules[] = {
    {MODEL DATA, NULL, NULL},
    {MODEL DATA "[zenflow]\nstrategy = gpu_only\ntopk_ratio = 0\n", NULL, NULL},
    {DATA, "f.cfg", "there is no model"},
    {MODEL, "f.cfg", "nothing to train on"},
    {MODEL "layers = 2\nvocab = 3\n" DATA, "f.cfg:3:10", "layers, vocab (for a model from scratch) beside path (f.cfg:2:8)"},
    {MODEL "layers = 0\n" DATA, NULL, NULL},
    {"[model]\nlayers = 2\nhidden = 64\n" DATA, "f.cfg:2:10", "without `heads`"},
    {"[model]\nhidden = 64\nheads = 4\n" DATA, "f.cfg:2:10", "without `layers`"},
    {"[model]\nlayers = 2\nheads = 4\n" DATA, "f.cfg:2:10", "without `hidden`"},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 4\n" DATA, NULL, NULL},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 5\n" DATA, "f.cfg:4:9", "hidden is 64 and heads is 5"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 64\nheads = 5\nhead_dim = 12\n" DATA, NULL, NULL},
    {"[model]\nfamily = opt\nlayers = 2\nhidden = 64\nheads = 4\nhead_dim = 12\n" DATA, "f.cfg:6:12", "family opt"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 64\nheads = 4\nhead_dim = 15\n" DATA, "f.cfg:6:12", "even"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 60\nheads = 4\n" DATA, "f.cfg:5:9", "even"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 3\n" DATA, "f.cfg:6:12", "multiple of kv_heads"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 8\n" DATA, "f.cfg:6:12", "lower kv_heads"},
    {"[model]\nfamily = llama\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 1\n" DATA, NULL, NULL},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\n" DATA, "f.cfg:5:12", "family gpt2"},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 4\n[data]\ntrain = a.safetensors\n", "f.cfg:6:9", "without `vocab`"},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 4\nvocab = 9\n[data]\ntrain = a.safetensors\n", NULL, NULL},
    {"[model]\nlayers = 2\nhidden = 64\nheads = 4\ncontext = 16\n" DATA "sequence_length = 17\n", "f.cfg:8:19", "at most context, 16"},
    {MODEL DATA "sequence_length = 1\n", "f.cfg:5:19", "nothing to predict"},
    {MODEL DATA "documents =\n", "f.cfg:5:12", "documents is empty"},
    {MODEL DATA "valid = b\nvalid_split = 0.1\n", "f.cfg:6:15", "(f.cfg:5:9)"},
    {MODEL DATA "[train]\nsteps = 9\nepochs = 1\n", "f.cfg:7:10", "epochs beside steps (f.cfg:6:9)"},
    {MODEL DATA "[train]\nsteps = 0\nepochs = 3\n", NULL, NULL},
    {MODEL DATA "[train]\nsteps = 9\nwarmup_steps = 10\n", "f.cfg:7:16", "warmup_steps is 10 and steps is 9"},
    {MODEL DATA "[train]\nlr = 1e-4\nmin_learning_rate = 1e-3\n", "f.cfg:7:21", "is 0.001 and learning_rate is 0.0001"},
    {MODEL DATA "[train]\nbatch_size = 4\nmicro_batch = 8\n", "f.cfg:7:15", "micro_batch is 8 and batch_size is 4"},
    {MODEL DATA "[train]\nvalid_every = 4\n", "f.cfg:6:15", "without validation data"},
    {MODEL DATA "valid = b\n[train]\npatience = 4\n", "f.cfg:7:12", "without valid_every"},
    {MODEL DATA "valid = b\n[train]\nkeep_best = yes\n", "f.cfg:7:13", "without valid_every"},
    {MODEL DATA "valid = b\n[train]\nkeep_best = yes\npatience = 2\nvalid_every = 5\n", NULL, NULL},
    {MODEL "dtype = bf16\nstochastic_rounding = yes\n" DATA, NULL, NULL},
    {MODEL "dtype = f32\nstochastic_rounding = yes\n" DATA, NULL, NULL}, /* counts when dtype changes */
    {MODEL "recompute = yes\n" DATA, NULL, NULL},
    {MODEL DATA "chat_template = chatml\nformat = jsonl\nprompt = {a}\nresponse = {b}\n", NULL, NULL},
    {MODEL DATA "valid_split = 0.1\nchoices = a, b\n", "f.cfg:6:11", "choices beside valid_split"},
    {MODEL DATA "[run]\ndevice = cuda\n", NULL, NULL}, /* whether there is one is seen later */
    {MODEL "[run]\ndevice = sim\n", "f.cfg:4:10", "device is sim"},
    {MODEL DATA "[zenflow]\nstrategy = zenflow\n", NULL, NULL},
    {MODEL DATA "[log]\ntrace_steps = 3-7\n", NULL, NULL},
    {MODEL DATA "[log]\ntrace_steps = 3\n", NULL, NULL},
    {MODEL DATA "[log]\ntrace_steps = 7-3\n", "f.cfg:6:15", "trace_steps is 7-3; FIRST-LAST"},
    {MODEL DATA "[log]\ntrace_steps = 0-3\n", "f.cfg:6:15", "from 1 on"},
    {MODEL DATA "[log]\ntrace_steps = 1-99999999999999999999\n", "f.cfg:6:15", "FIRST-LAST"},
    {MODEL DATA "[log]\ntrace_steps = 1 - 2\n", "f.cfg:6:15", "FIRST-LAST"},
};

static void rules_between_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct zf_options o = fresh();
        struct zf_err_list errors = {0};
        zf_run_cfg_read_memory(&o, rules[i].text, strlen(rules[i].text), "f.cfg", "/base", &errors);
        print_message("%s", rules[i].text);
        assert_int_equal(errors.count, 0);
        enum zf_status s = zf_options_validate(&o, false, &errors);
        for (size_t k = 0; k < errors.count; k++) print_message("%s: %s\n", errors.list[k].where, errors.list[k].message);
        assert_int_equal(errors.count, rules[i].says ? 1 : 0);
        assert_int_equal(s, rules[i].says ? ZF_USAGE : ZF_OK);
        if (rules[i].says) {
            assert_string_equal(errors.list[0].where, rules[i].where);
            assert_contains(errors.list[0].message, rules[i].says);
        }
        zf_err_list_free(&errors);
        zf_options_free(&o);
    }
}

static void a_plan_needs_no_data(void **state)
{
    (void)state;
    static const char text[] = "[run]\ndevice = sim\n[model]\npath = /m\ndtype = bf16\n[zenflow]\nstrategy = stronghold\n";
    struct zf_options o = fresh();
    struct zf_err_list errors = {0};
    zf_run_cfg_read_memory(&o, text, sizeof text - 1, "f.cfg", NULL, &errors);
    assert_int_equal(zf_options_validate(&o, true, &errors), ZF_OK);
    zf_options_free(&o);
}

/* A run from scratch goes on from its export: --set path takes the place of what described the model. */
static void a_path_beats_a_model_from_scratch(void **state)
{
    (void)state;
    static const char text[] = "[model]\nfamily = llama\nlayers = 2\nhidden = 32\nheads = 2\ncontext = 64\n" DATA;
    struct zf_err e;
    struct zf_options o = fresh();
    struct zf_err_list errors = {0};
    zf_run_cfg_read_memory(&o, text, sizeof text - 1, "f.cfg", NULL, &errors);
    assert_int_equal(zf_options_set_argument(&o, "path=/some/export", &e), ZF_OK);
    assert_int_equal(o.layers, 0);
    assert_int_equal(zf_options_validate(&o, false, &errors), ZF_OK);
    assert_int_equal(zf_options_set_argument(&o, "layers=3", &e), ZF_OK); /* both on the command line is a mistake */
    assert_int_equal(zf_options_validate(&o, false, &errors), ZF_USAGE);
    zf_err_list_free(&errors);
    zf_options_free(&o);
}

/* What --set says takes the place of its rival in the file; in one place both are an error. */
static void set_beats_the_file(void **state)
{
    (void)state;
    static const char text[] = MODEL DATA "[train]\nsteps = 9\n";
    struct zf_err e;
    struct zf_options o = fresh();
    struct zf_err_list errors = {0};
    zf_run_cfg_read_memory(&o, text, sizeof text - 1, "f.cfg", NULL, &errors);
    assert_int_equal(zf_options_set_argument(&o, "epochs=2", &e), ZF_OK);
    assert_int_equal(o.steps, 0);
    assert_int_equal(zf_options_validate(&o, false, &errors), ZF_OK);
    assert_int_equal(zf_options_set_argument(&o, "steps=3", &e), ZF_OK);
    assert_int_equal(zf_options_validate(&o, false, &errors), ZF_USAGE);
    assert_string_equal(errors.list[0].where, "--set epochs");
    assert_contains(errors.list[0].message, "(--set steps)");
    zf_err_list_free(&errors);
    zf_options_free(&o);
}

/* RUN/run.cfg has every option, and is a valid run.cfg itself: `epochs = 1` beside steps would be refused. */
static void a_written_file_is_valid(void **state)
{
    (void)state;
    static const char *const inputs[] = {MODEL DATA "[train]\nsteps = 9\n",
                                         "[model]\nlayers = 2\nhidden = 64\nheads = 4\n" DATA "[train]\nepochs = 3\n"};
    for (size_t i = 0; i < 2; i++) {
        struct zf_options o = fresh(), back = fresh();
        struct zf_err_list errors = {0};
        struct zf_err e;
        char *text = NULL;
        size_t size = 0;
        zf_run_cfg_read_memory(&o, inputs[i], strlen(inputs[i]), "f.cfg", "/base", &errors);
        FILE *f = open_memstream(&text, &size);
        assert_non_null(f);
        assert_int_equal(zf_options_write(&o, f, &e), ZF_OK);
        fclose(f);
        zf_run_cfg_read_memory(&back, text, size, "run.cfg", "/other", &errors);
        zf_options_validate(&back, false, &errors);
        if (errors.count) fail_msg("%s: %s", errors.list[0].where, errors.list[0].message);
        assert_true(zf_options_equal(&o, &back));
        zf_options_free(&o);
        zf_options_free(&back);
        free(text);
    }
}

static void the_exit_code_of_several_errors(void **state)
{
    (void)state;
    static const enum zf_status kinds[] = {ZF_IO, ZF_MEMORY, ZF_FORMAT, ZF_USAGE}, worst[] = {ZF_IO, ZF_MEMORY, ZF_FORMAT, ZF_USAGE};
    struct zf_err_list l = {0};
    assert_int_equal(zf_err_list_status(&l), ZF_OK);
    for (size_t i = 0; i < 4; i++) {
        zf_err_list_add(&l, &(struct zf_err){.code = kinds[i]});
        assert_int_equal(zf_err_list_status(&l), worst[i]);
    }
    zf_err_list_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_written_as_they_are_printed),
        cmocka_unit_test(write_is_read_back),
        cmocka_unit_test(get_text_reads_back),
        cmocka_unit_test(a_failed_set_changes_nothing),
        cmocka_unit_test(a_locale_with_commas),
        cmocka_unit_test(json_has_every_option),
        cmocka_unit_test(tables_have_every_option),
        cmocka_unit_test(rules_between_options),
        cmocka_unit_test(a_plan_needs_no_data),
        cmocka_unit_test(a_path_beats_a_model_from_scratch),
        cmocka_unit_test(set_beats_the_file),
        cmocka_unit_test(a_written_file_is_valid),
        cmocka_unit_test(the_exit_code_of_several_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
