/* What Tab offers: for every command by the kind of its arguments, from the tables; nothing for what is text of one's own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/session/commands.h"
#include "tui/complete.h"
#include "tui/theme.h"
#include "tui/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct zf_history history;

static int open_history(void **state)
{
    static char names[][24] = {"h.0.attn.weight", "h.1.attn.weight", "wte.weight", "evil\x1b[2Jname", "two words", "bad\xff", ""};
    enum { NAMES = sizeof names / sizeof *names };
    static struct zf_matrix_seen matrix[NAMES + 1]; /* the last has no name */
    (void)state;
    for (size_t i = 0; i < NAMES; i++) matrix[i].name = names[i];
    history.matrix = matrix;
    history.matrices = NAMES + 1;
    history.options = json_pack("{sf ss sb}", "topk_ratio", 0.25, "swap", "rolling", "optimistic", 1);
    return history.options ? 0 : -1;
}

static int close_history(void **state)
{
    (void)state;
    json_decref(history.options);
    return 0;
}

/* `|` in line is the cursor; the end, if there is none. */
static struct zf_candidates at(const char *line)
{
    struct zf_candidates c;
    const char *bar = strchr(line, '|');
    zf_complete(&c, &history, line, bar ? (size_t)(bar - line) : SIZE_MAX);
    size_t end = bar ? (size_t)(bar - line) : strlen(line);
    assert_true(c.start <= end);
    for (size_t i = 0; i < c.count; i++) { /* each goes on with what is there, and none comes twice */
        assert_memory_equal(c.list[i], line + c.start, end - c.start);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(c.list[i], c.list[j]);
    }
    return c;
}

static bool has(const struct zf_candidates *c, const char *text)
{
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->list[i], text)) return true;
    return false;
}

/* The candidates are these, in any order: a list of words. */
static void offers(const char *line, size_t start, bool files, const char *words)
{
    struct zf_candidates c = at(line);
    char copy[1024];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "), n++)
        if (!has(&c, word)) fail_msg("`%s`: no `%s`", line, word);
    for (size_t i = n; i < c.count && c.count != n; i++) print_message("`%s`: %s\n", line, c.list[i]);
    assert_int_equal(c.count, n);
    if (n || files) assert_int_equal(c.start, start);
    assert_int_equal(c.files, files);
    zf_candidates_free(&c);
    assert_null(c.list);
}

static void test_commands(void **state)
{
    (void)state;
    struct zf_candidates c = at("");
    for (size_t i = 0; i < ZF_COMMANDS; i++) assert_true(has(&c, zf_command_table[i].name));
    assert_true(has(&c, "get"));
    zf_candidates_free(&c);
    offers("pa", 0, false, "pause panel");
    offers("  : pa", 4, false, "pause panel");
    offers(":pa", 1, false, "pause panel");
    offers("pa|use", 0, false, "pause panel");
    offers("set", 0, false, "set");
    offers("set!", 0, false, "set!");
    offers("se", 0, false, "set select");
    offers("pause!", 0, false, "");
    offers("nothing like it", 0, false, "");
    offers("pause ", 6, false, "--release-gpu");
    offers("mark pa", 0, false, "");
    offers("sample ", 0, false, "");
    offers("step ", 0, false, "");
    offers("save ", 0, false, "");
}

static void test_pairs(void **state)
{
    (void)state;
    struct zf_candidates c = at("set ");
    for (size_t i = 0; i < ZF_OPTIONS; i++) assert_true(has(&c, zf_option_table[i].name) == (zf_option_table[i].when != ZF_WHEN_RESTART));
    zf_candidates_free(&c);
    offers("set topk", 4, false, "topk_ratio");
    offers("set! topk", 5, false, "topk_ratio");
    offers("set micro", 0, false, ""); /* after a restart only */
    offers("set swap ", 9, false, "staggered rolling global default");
    offers("set swap r", 9, false, "rolling");
    offers("set optimistic ", 15, false, "yes no default");
    offers("set update_interval a", 20, false, "auto");
    offers("set schedule_steps ", 19, false, "steps default");
    offers("set topk_ratio ", 15, false, "0.25 default");
    offers("set topk_ratio 0.1 sw", 19, false, "swap");
    offers("set topk_ratio 0.1 topk", 19, false, ""); /* once is enough */
    offers("set topk_ratio 0.1 swap g", 24, false, "global");
    offers("set swap=", 9, false, "staggered rolling global default");
    offers("set swap=g", 9, false, "global");
    offers("set swap = g", 11, false, "global");
    offers("set swap= g", 10, false, "global");
    offers("set swap=global opti", 16, false, "optimistic");
    offers("set swap global opti", 16, false, "optimistic");
    offers("set note \"two words\" swap ", 26, false, "staggered rolling global default");
    offers("set note \"two \\\" wor", 0, false, "");
    offers("set nonsense ", 0, false, "");
    offers("set lr d", 7, false, "default");
    offers("set =", 0, false, "");
}

static void test_nested(void **state)
{
    (void)state;
    offers("at ", 0, false, "");
    offers("at 40", 0, false, "");
    offers("at 40 pa", 6, false, "pause panel");
    offers("at 40 set swap gl", 15, false, "global");
    offers("at! 40 set! swap gl", 17, false, "global");
    offers("at 40 at 50 set swap gl", 21, false, "global");
    char deep[20000] = "";
    for (size_t i = 0; i + 10 < sizeof deep; i += 5) memcpy(deep + i, "at 1 ", 6);
    struct zf_candidates c = at(deep);
    assert_int_equal(c.count, ZF_COMMANDS + 1);
    zf_candidates_free(&c);
}

static void test_words(void **state)
{
    (void)state;
    struct zf_candidates c = at("show ");
    assert_int_equal(c.count, ZF_OPTIONS);
    zf_candidates_free(&c);
    offers("get micro", 4, false, "micro_batch");
    offers("show swap s", 0, false, ""); /* takes one */
    offers("help topk", 5, false, "topk_ratio");
    offers("help watc", 5, false, "watch");
    offers("watch ", 6, false, "h.0.attn.weight h.1.attn.weight wte.weight");
    offers("watch h.1", 6, false, "h.1.attn.weight");
    zf_complete(&c, NULL, "watch ", SIZE_MAX);
    assert_int_equal(c.count, 0);
    zf_complete(&c, NULL, "set topk_ratio ", SIZE_MAX);
    assert_int_equal(c.count, 1);
    zf_candidates_free(&c);
    offers("panel l", 6, false, "loss lanes log");
    offers("zoom ", 5, false, "loss device lanes buffers channels run log samples options");
    offers("panel al", 6, false, "all");
    offers("scale lo", 6, false, "log");
    offers("smooth 1", 7, false, "10 100");
    for (size_t i = 0; i < ZF_SCHEMES; i++) {
        char line[64];
        snprintf(line, sizeof line, "theme %s", zf_scheme_names[i]);
        offers(line, 6, false, zf_scheme_names[i]);
    }
    offers("glyphs ", 7, false, "braille block ascii");
}

static void test_files(void **state)
{
    (void)state;
    offers("export ", 7, true, "");
    offers("export a b", 7, true, ""); /* the rest of the line */
    offers("load ./a", 5, true, "");
    offers("load runs/a", 5, true, "");
    offers("source \"a b", 8, true, "");
    offers("at 5 export ", 12, true, "");
    offers("write ch", 6, false, "channels");
    offers("write loss ", 11, true, "loss.csv loss.npy loss.svg loss.txt");
    offers("write loss a", 11, true, "a.csv a.npy a.svg a.txt");
    offers("write loss a.", 11, true, "a.csv a.npy a.svg a.txt");
    offers("write loss a.b.n", 11, true, "a.b.npy");
    offers("write loss a.pdf", 11, true, "");
    offers("write loss plots/", 11, true, "plots/loss.csv plots/loss.npy plots/loss.svg plots/loss.txt");
}

static void test_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"good.zfc",  "step-00000010.zfc", "step-00000020.zfc", "step-00000020.zfc.tmp-7",
                                        "notes.txt", ".hidden.zfc"};
    char run[] = "/tmp/zf-complete-XXXXXX", path[128];
    assert_non_null(mkdtemp(run));
    snprintf(path, sizeof path, "%s/checkpoints", run);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", run, names[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
    struct zf_candidates c = at("load! st");
    assert_true(c.saves && !c.files && c.start == 6);
    zf_complete_saves(&c, run, "st", 2);
    assert_true(c.count == 2 && has(&c, "step-00000010") && has(&c, "step-00000020"));
    zf_complete_saves(&c, run, "", 0);
    assert_true(c.count == 5 && has(&c, "good"));
    zf_candidates_free(&c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", run, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/checkpoints", run);
    assert_int_equal(rmdir(path) || rmdir(run), 0);
}

/* Any line, any cursor: what comes goes on with what is there. */
static void test_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {"set",  "!",    " ",     " ",       "  ",   "at",   "5",          "=",  "\"", "\\",
                                         "swap", "note", "write", "loss",    "/",    ".",    "watch",      "h.", ":",  "\t",
                                         "\xff", "\x1b", "show",  "default", "help", "load", "topk_ratio", "x"};
    uint64_t seed = 3;
    for (size_t round = 0; round < 20000; round++) {
        char line[256] = "";
        for (size_t i = 0; i < round % 14; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strcat(line, pieces[(seed >> 33) % (sizeof pieces / sizeof *pieces)]);
        }
        struct zf_candidates c;
        size_t end = strlen(line);
        for (size_t cut = 0; cut <= end; cut += 1 + end / 3) {
            zf_complete(&c, &history, line, cut);
            assert_true(c.start <= cut && c.count <= ZF_OPTIONS + ZF_COMMANDS + 1);
            for (size_t i = 0; i < c.count; i++) assert_int_equal(strncmp(c.list[i], line + c.start, cut - c.start), 0);
            zf_candidates_free(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands), cmocka_unit_test(test_pairs),       cmocka_unit_test(test_nested), cmocka_unit_test(test_words),
        cmocka_unit_test(test_files),    cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, open_history, close_history);
}
