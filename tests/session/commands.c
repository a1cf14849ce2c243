/* The table of commands and its parser; changes of options as words. */
#include "tests/session/support.h"

#include "core/session/change.h"
#include "core/session/commands.h"

#include <limits.h>
#include <unistd.h>

static void parses(const char *line, const char *expected)
{
    struct zf_command c;
    struct zf_err e;
    char got[2200] = "";
    if (zf_command_parse(&c, line, &e)) {
        snprintf(got, sizeof got, "refused: %s: %s", e.where, e.message);
    } else {
        snprintf(got, sizeof got, "%s%s", c.row->name, c.yes ? "!" : "");
        for (size_t i = 0; i < c.count; i++) snprintf(got + strlen(got), sizeof got - strlen(got), "|%s", c.word[i]);
    }
    zf_command_free(&c);
    if (!strncmp(expected, "refused", 7) && strncmp(got, "refused", 7)) fail_msg("`%s` was understood as %s", line, got);
    const char *says = strchr(expected, '*');
    if (says ? !strstr(got, says + 1) : strcmp(got, expected) != 0) fail_msg("`%s` gave `%s`, not `%s`", line, got, expected);
}

static void words(void **state)
{
    (void)state;
    parses("set learning_rate 1e-4", "set|learning_rate|1e-4");
    parses("  set! lr  +10%\ttopk_ratio x0.5 ", "set!|lr|+10%|topk_ratio|x0.5");
    parses(":set lr=1e-4 steps = 5", "set|lr|1e-4|steps|5");
    parses("set note \"two words = \\\" quote\"", "set|note|\"two words = \\\" quote\"");
    parses("get", "show");
    parses("show lear*", "show|lear*");
    parses("step", "step");
    parses("step 12", "step|12");
    parses("at 40 set topk_ratio 0.05", "at|40|set topk_ratio 0.05");
    parses("at! 40 set lr 1", "at!|40|set lr 1");
    parses("mark  a  text ", "mark|a  text");
    parses("export my folder", "export|my folder");
    parses("export \"my folder\"", "export|my folder");
    parses("save \"a b\"", "save|a b");
    parses("save \"a \\\"b\\\" \\\\ \\c\"", "save|a \"b\" \\ \\c");
    parses("export \"a \\\"b\\\"/c\"", "export|a \"b\"/c");
    parses("export \"a b", "refused*not closed");
    parses("export \"a\" b", "refused*not closed");
    parses("write loss \"a \\\"b\\\".csv\"", "write|loss|a \"b\".csv");
    parses("write \"loss\" \"two words.csv\"", "write|loss|two words.csv");
    parses("write loss x.csv y.csv", "refused*quotes");
    parses("write! loss a.csv", "write!|loss|a.csv");
    parses("write loss", "write|loss");
    parses("write", "refused*missing");
    parses("write heat a.csv", "write|heat|a.csv");
}

static void refusals(void **state)
{
    (void)state;
    parses("", "refused*no command");
    parses(" \t", "refused*no command");
    parses("sett lr 1", "refused*nearest is `set`");
    parses("learning_rate 1e-4", "refused*`set learning_rate VALUE` changes it");
    parses("zzzzzzz", "refused*`help` lists all");
    parses("set", "refused*something is missing; `set NAME VALUE");
    parses("set lr", "refused*value is missing");
    parses("set note two words", "refused*needs quotes");
    parses("pause now", "refused*too many words; `pause`");
    parses("pause!", "refused*never asks");
    parses("step 0", "refused*1 or more");
    parses("step -1", "refused*1 or more");
    parses("step 99999999999999999999", "refused*1 or more");
    parses("at 40", "refused*missing");
    parses("at x pause", "refused*1 or more");
    parses("trace", "refused*missing");
    parses("mark", "refused*missing");
    parses("set lr 1\nset lr 2", "refused*no line of text");
    parses("mark \xff\xfe", "refused*no line of text");
}

static void many_words(void **state)
{
    (void)state;
    char line[8192] = "set";
    for (int i = 0; i < 200; i++) strcat(line, " lr 1e-4");
    parses(line, "refused*too many words");
}

static void help(void **state)
{
    (void)state;
    bool known;
    char *text = zf_command_help(NULL, &known);
    assert_true(known);
    for (size_t i = 0; i < ZF_COMMANDS; i++) assert_non_null(strstr(text, zf_command_table[i].name));
    free(text);
    text = zf_command_help("set", &known);
    assert_true(known && strstr(text, "NAME VALUE"));
    free(text);
    text = zf_command_help("topk_ratio", &known);
    assert_true(known && strstr(text, "0 <= x <= 1"));
    free(text);
    text = zf_command_help("topk_ration", &known);
    assert_true(!known && strstr(text, "topk_ratio"));
    free(text);
    json_t *all = zf_commands_json();
    assert_int_equal(json_array_size(all), ZF_COMMANDS);
    json_decref(all);
}

static void table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        const struct zf_command_row *r = &zf_command_table[i];
        assert_ptr_equal(zf_command_find(r->name), r);
        if (r->alias[0]) assert_ptr_equal(zf_command_find(r->alias), r);
        assert_true(r->sentence[strlen(r->sentence) - 1] == '.');
    }
    assert_null(zf_command_find("")); /* the alias of none */
}

/* --- changes --- */

static struct zf_options now;

static int make_options(void **state)
{
    struct zf_err e;
    if (make_root(state) || zf_options_init(&now, &e)) return -1;
    static const char *const given[] = {"family=llama", "layers=1",       "hidden=32",         "heads=2",
                                        "train=x.txt",  "steps=300",      "lr=2e-5",           "strategy=gpu_only",
                                        "note=hi",      "warmup_steps=5", "schedule_steps=300"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (zf_options_set_argument(&now, given[i], &e)) return -1;
    return 0;
}

static int drop_options(void **state)
{
    zf_options_free(&now);
    return remove_root(state);
}

static double half(void *ctx, const struct zf_options *o, uint64_t step)
{
    (void)ctx;
    return o->learning_rate / 2 + 0 * (double)step;
}

/* What `set WORDS` says at step 40: the answer, "? question", or "! refusal". */
static void says(const char *line, const char *expected)
{
    struct zf_command c;
    struct zf_err e;
    struct zf_changes changes;
    struct zf_change_place place = {.step = 40, .steps = 300, .rate = half, .run = "runs/a"};
    char *text = NULL, whole[512];
    snprintf(whole, sizeof whole, "set %s", line);
    assert_int_equal(zf_command_parse(&c, whole, &e), ZF_OK);
    if (zf_changes_make(&changes, &now, c.word, c.count, &place, &e)) {
        assert_true(asprintf(&text, "! %s: %s", e.where, e.message) > 0);
    } else if (changes.ask[0]) {
        assert_true(asprintf(&text, "? %s", changes.ask) > 0);
    } else {
        text = zf_changes_text(&changes, &now, c.word, c.count, &place);
    }
    const char *part = strchr(expected, '*');
    bool right = part ? text[0] == expected[0] && strstr(text, part + 1) : !strcmp(text, expected);
    if (!right) fail_msg("`set %s` says `%s`, not `%s`", line, text, expected);
    free(text);
    zf_changes_free(&changes);
    zf_command_free(&c);
}

static void answers(void **state)
{
    (void)state;
    says("lr 1e-5", "learning_rate 2e-5 -> 1e-5, from step 41 (lr(41) 1e-05 -> 5e-06)");
    says("lr +10%", "learning_rate 2e-5 -> 2.2e-5, from step 41 (lr(41) 1e-05 -> 1.1e-05)");
    says("lr -50%", "learning_rate 2e-5 -> 1e-5, from step 41 (lr(41) 1e-05 -> 5e-06)");
    says("lr x0.5", "learning_rate 2e-5 -> 1e-5, from step 41 (lr(41) 1e-05 -> 5e-06)");
    says("weight_decay default", "weight_decay is 0.01 already");
    says("clip_norm 0.5 weight_decay 0.01", "clip_norm 1 -> 0.5, from step 41\nweight_decay is 0.01 already");
    static const char longer[] =
        "steps 300 -> 400, from step 41\nsteps 301 to 400 have learning rate 0 (min_learning_rate), as the schedule "
        "ends at step 300; set schedule_steps 400 too";
    says("steps 400", longer);
    says("steps x2", "s*set schedule_steps 600 too");
    says("steps 301", "s*step 301 has learning rate 0");
    says("steps 400 schedule_steps 400", "steps 300 -> 400, from step 41\nschedule_steps 300 -> 400, from step 41 (lr(41) 1e-05 -> 1e-05)");
    says("steps 400 min_learning_rate 1e-6", "s*lr(41) 1e-05 -> 1e-05)");
    says("steps 200", "steps 300 -> 200, from step 41");
    says("schedule_steps 20", "s*steps 41 to 300 have learning rate 0 (min_learning_rate), as the schedule ended at step 20; set");
    says("topk_ratio 0.05", "topk_ratio 0.1 -> 0.05, from step 41 (kept: it counts when strategy, swap and cpu_update use it)");
    says("note \"two words\"", "note hi -> two words, from step 41");
    says("note default", "note hi -> \"\", from step 41");
    says("save_every 5", "save_every 0 -> 5, from step 41");
    says("keep_weights 5", "keep_weights 0 -> 5, from step 41");
}

static void questions(void **state)
{
    (void)state;
    says("lr x10", "learning_rate 2e-5 -> 0.0002, from step 41 (lr(41) 1e-05 -> 0.0001)");
    says("lr x10.1", "?*10.1 times");
    says("lr x0.1", "learning_rate 2e-5 -> 2e-06*");
    says("lr x0.09", "?*falls to 1/11.11 of what it is (less than 1/10)");
    says("update_interval 16", "u*4 -> 16");
    says("update_interval 1", "u*4 -> 1");
    says("update_interval 17", "?*update_interval grows to 4.25 times");
    says("steps 40", "?*the run would end now");
    says("steps 41", "steps 300 -> 41, from step 41");
}

static void not_changed(void **state)
{
    (void)state;
    says("lr 0", "!*above 0");
    says("topk_ratio 1.5", "!*the nearest is 1");
    says("update_interval 5000", "!*the nearest is 1024");
    says("lr nan", "!*number");
    says("learning_rat 1", "!*learning_rate");
    says("max_grad_norm 1", "!*clip_norm");
    says("batch_size 16", "!*zenflow-console send runs/a stop");
    says("batch_size 16", "!*--set batch_size=16");
    says("lr 1e-5 lr 2e-5", "!*twice");
    says("min_learning_rate 1", "!*at most learning_rate");
    says("lr 1e-5 min_learning_rate 1.5e-5", "!*at most learning_rate"); /* together they do not fit, one by one each would */
    says("valid_every 5", "!*without validation data");
    says("steps 0", "!*1 or more");
    says("steps 3", "!*warmup_steps is 5");
    says("steps default", "!*no default");
    says("swap x2", "!*swap is `x2`");
    says("dtype bf16", "!*begin another run from the export");
    says("device cuda", "!*--set device=cuda`");
    says("threads 3", "!*stop, and go on with it");
    says("threads 3", "!*--set threads=3`");
}

static void joined(void **state)
{
    (void)state;
    char here[PATH_MAX], wanted[PATH_MAX + 64];
    assert_non_null(getcwd(here, sizeof here));
    const struct {
        const char *words[6], *before, *after; /* after: what is relative to here, NULL: nothing */
    } rows[] = {{{"export", "out"}, "export ", "out"},
                {{"at", "40", "export", "out"}, "at 40 export ", "out"},
                {{"at", "40", "load", "step-5"}, "at 40 load step-5", NULL},
                {{"at", "40", "set!", "note", "two words"}, "at 40 set! note \"two words\"", NULL},
                {{"at", "1", "at", "2", "source", "/x"}, "at 1 at 2 source /x", NULL},
                {{"at", "40", "nonsense", "a b"}, "at 40 nonsense a b", NULL},
                {{"at", "40"}, "at 40", NULL},
                {{"at"}, "at", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        while (n < 6 && rows[i].words[n]) n++;
        char *text = zf_command_join(rows[i].words, n);
        snprintf(wanted, sizeof wanted, "%s%s%s%s", rows[i].before, rows[i].after ? here : "", rows[i].after ? "/" : "",
                 rows[i].after ? rows[i].after : "");
        assert_non_null(text);
        assert_string_equal(text, wanted);
        free(text);
    }
}

static void back_and_forth(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_changes c;
    struct zf_change_place place = {.step = 40, .steps = 300};
    const char *const w[] = {"lr", "x100", "note", "\"a \\\"b\\\" c\"", "clip_norm", "0"};
    assert_int_equal(zf_changes_make(&c, &now, w, 6, &place, &e), ZF_OK);
    char *forth = zf_changes_command(&c, false), *back = zf_changes_command(&c, true);
    assert_string_equal(forth, "set! note \"a \\\"b\\\" c\" learning_rate 0.002 clip_norm 0");
    assert_string_equal(back, "set! note hi learning_rate 2e-5 clip_norm 1");
    struct zf_command parsed;
    struct zf_changes again;
    assert_int_equal(zf_command_parse(&parsed, forth, &e), ZF_OK);
    assert_int_equal(zf_changes_make(&again, &now, parsed.word, parsed.count, &place, &e), ZF_OK);
    assert_true(zf_options_equal(&again.wanted, &c.wanted));
    zf_command_free(&parsed);
    zf_changes_free(&again);
    zf_changes_free(&c);
    free(forth);
    free(back);
    struct zf_options copy;
    assert_int_equal(zf_options_copy(&copy, &now, &e), ZF_OK);
    assert_true(zf_options_equal(&copy, &now));
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) assert_int_equal(copy.origin[id].kind, now.origin[id].kind);
    zf_options_free(&copy);
}

#define O(name) cmocka_unit_test_setup_teardown(name, make_options, drop_options)

int main(void)
{
    const struct CMUnitTest tests[] = {T(words),  T(refusals), T(many_words), T(help),        T(table),
                                       T(joined), O(answers),  O(questions),  O(not_changed), O(back_and_forth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
