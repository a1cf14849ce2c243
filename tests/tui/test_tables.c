/* The manual page and the completions: whatever the tables have is in them, and shells and roff take them as they are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/config/options.h"
#include "core/session/commands.h"
#include "tui/canvas.h"
#include "tui/keys.h"
#include "tui/tables.h"
#include "tui/theme.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/zf-tables-XXXXXX";
static const char *const shells[] = {"bash", "zsh", "fish"};
enum { SHELLS = 3 };

/* What is printed, also as a file in `folder`. To be freed. */
static char *printed(const char *shell)
{
    char *text = NULL, path[96];
    size_t size;
    struct zf_err e;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    assert_int_equal(shell ? zf_print_completion(to, shell, &e) : zf_print_man(to, &e), ZF_OK);
    assert_int_equal(fclose(to), 0);
    snprintf(path, sizeof path, "%s/%s", folder, shell ? shell : "man");
    assert_non_null(to = fopen(path, "w"));
    assert_int_equal(fwrite(text, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    for (const char *s = text; *s; s++) assert_true((unsigned char)*s < 127 && (*s >= ' ' || *s == '\n' || *s == '\t'));
    return text;
}

/* As the manual page writes it. */
static const char *in_roff(const char *text)
{
    static char to[256];
    size_t n = 0;
    for (; *text && n + 2 < sizeof to; text++) {
        if (*text == '-') to[n++] = '\\';
        to[n++] = *text;
    }
    to[n] = 0;
    return to;
}

static void assert_has(const char *text, const char *wanted)
{
    if (!strstr(text, wanted)) fail_msg("there is no `%s`", wanted);
}

static void test_usages(void **state)
{
    (void)state;
    struct zf_cli_flag f[ZF_CLI_FLAGS];
    char words[96], list[128] = "";
    assert_string_equal(zf_cli_table[0].name, "");
    struct zf_cli_row row = {
        "x", "x RUN [--set NAME=VALUE]... [--plain|--detach] [--dtype f32|bf16] [--resume never] --prompt TEXT | --plain", ""};
    assert_int_equal(zf_cli_flags(&row, f), 6);
    assert_string_equal(f[0].name, "--set");
    assert_string_equal(f[0].value, "NAME=VALUE");
    assert_true(f[0].again && !f[0].listed);
    assert_string_equal(f[1].name, "--plain");
    assert_string_equal(f[1].value, "");
    assert_string_equal(f[2].name, "--detach");
    assert_false(f[2].again);
    assert_string_equal(f[3].value, "f32|bf16");
    assert_true(f[3].listed && f[4].listed);
    assert_string_equal(f[4].value, "never");
    assert_string_equal(f[5].value, "TEXT");
    zf_cli_words(&row, words, sizeof words);
    assert_string_equal(words, "");
    row.usage = "x one|two";
    zf_cli_words(&row, words, sizeof words);
    assert_string_equal(words, "one|two");
    for (size_t i = 0; i < ZF_SCHEMES; i++) sprintf(list + strlen(list), "%s%s", i ? "|" : "--theme ", zf_scheme_names[i]);
    assert_has(zf_cli_table[0].usage, list);
    list[0] = 0;
    for (size_t i = 0; i < ZF_GLYPH_SETS; i++) sprintf(list + strlen(list), "%s%s", i ? "|" : "--glyphs ", zf_glyph_names[i]);
    assert_has(zf_cli_table[0].usage, list);
    for (size_t i = 1; i < zf_cli_count; i++) /* the usage begins with the name, and its flags fit */
        assert_true(!strncmp(zf_cli_table[i].usage, zf_cli_table[i].name, strlen(zf_cli_table[i].name)) &&
                    zf_cli_flags(&zf_cli_table[i], f) < ZF_CLI_FLAGS);
}

static void test_manual_has_all(void **state)
{
    (void)state;
    char *text = printed(NULL), wanted[512];
    struct zf_cli_flag f[ZF_CLI_FLAGS];
    for (size_t i = 1; i < zf_cli_count; i++) {
        snprintf(wanted, sizeof wanted, ".TP\n\\fB%s", zf_cli_table[i].name);
        assert_has(text, wanted);
    }
    for (size_t i = 0; i < zf_cli_count; i++)
        for (size_t k = 0, n = zf_cli_flags(&zf_cli_table[i], f); k < n; k++) assert_has(text, in_roff(f[k].name));
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        snprintf(wanted, sizeof wanted, ".TP\n\\fB%s\\fR", zf_command_table[i].name);
        assert_has(text, wanted);
    }
    for (size_t i = 0; i < ZF_OPTIONS; i++) {
        snprintf(wanted, sizeof wanted, ".TP\n\\fB%s\\fR = ", zf_option_table[i].name);
        assert_has(text, wanted);
        snprintf(wanted, sizeof wanted, ".SS [%s]\n", zf_option_table[i].section);
        assert_has(text, wanted);
    }
    for (size_t i = 0; i < zf_binding_count; i++)
        if (zf_bindings[i].help) assert_has(text, in_roff(zf_bindings[i].help));
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) /* no text is taken for a request */
        assert_true(line[0] != '\'' && (line[0] != '.' || strchr("THSPRBIbna\\", line[1])));
    free(text);
}

static void test_completions_have_all(void **state)
{
    (void)state;
    struct zf_cli_flag f[ZF_CLI_FLAGS];
    for (size_t s = 0; s < SHELLS; s++) {
        char *text = printed(shells[s]), wanted[64];
        for (size_t i = 0; i < zf_cli_count; i++) {
            assert_has(text, zf_cli_table[i].name);
            for (size_t k = 0, n = zf_cli_flags(&zf_cli_table[i], f); k < n; k++) {
                snprintf(wanted, sizeof wanted, s == 2 ? "-l %s" : "--%s", f[k].name + 2);
                assert_has(text, wanted);
            }
        }
        for (size_t i = 0; i < ZF_OPTIONS; i++) assert_has(text, zf_option_table[i].name);
        for (size_t i = 0; i < ZF_COMMANDS; i++)
            if (zf_command_table[i].who != ZF_WHO_CONSOLE) assert_has(text, zf_command_table[i].name);
        assert_has(text, "staggered rolling global");
        free(text);
    }
}

static bool installed(const char *program)
{
    char command[64];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    if (system(command) == 0) return true;
    print_message("skipped: there is no %s\n", program);
    return false;
}

/* What a command says on both streams; it must not fail. */
__attribute__((format(printf, 1, 2))) static char *said(const char *fmt, ...)
{
    static char text[65536];
    char command[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    assert_true(n > 0 && n < (int)sizeof command);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    text[fread(text, 1, sizeof text - 1, from)] = 0;
    if (pclose(from)) fail_msg("%s: %s", command, text);
    return text;
}

static void test_shells_take_them(void **state)
{
    (void)state;
    for (size_t s = 0; s < SHELLS; s++) {
        free(printed(shells[s]));
        if (!installed(shells[s])) continue;
        assert_string_equal(said("cd %s && %s 2>&1", folder,
                                 s == 0   ? "bash -n bash"
                                 : s == 1 ? "zsh -n zsh"
                                          : "fish --no-execute fish"),
                            "");
    }
}

static const struct {
    const char *bash, *line, *wanted; /* words for bash, the line for fish; what is offered, in any order */
} lines[] = {
    {"zenflow-console ver", "zenflow-console ver", "verify"},
    {"zenflow-console run.cfg --pl", "zenflow-console run.cfg --pl", "--plain"},
    {"zenflow-console run.cfg --set swap = r", "zenflow-console run.cfg --set swap=r", "rolling"},
    {"zenflow-console check x --set log_ch", "zenflow-console check x --set log_ch", "log_channels"},
    {"zenflow-console attach --theme da", "zenflow-console attach --theme da", "dark"},
    {"zenflow-console verify --dtype b", "zenflow-console verify --dtype b", "bf16"},
    {"zenflow-console completion z", "zenflow-console completion z", "zsh"},
    {"zenflow-console attach r", "", "runs/one runs/two"},
    {"zenflow-console replay runs/t", "", "runs/two"},
    {"zenflow-console send undo", "zenflow-console send undo", "undo"},
    {"zenflow-console send set topk_r", "zenflow-console send set topk_r", "topk_ratio"},
};

static void test_bash_completes(void **state)
{
    (void)state;
    free(printed("bash"));
    if (!installed("bash")) return;
    said("cd %s && mkdir -p runs/one runs/two runs/none && touch runs/one/journal.jsonl runs/two/journal.jsonl", folder);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *text = said("cd %s && bash -c 'compopt() { :; }; . ./bash; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                          "_zenflow_console; echo \"${COMPREPLY[@]}\"' 2>&1",
                          folder, lines[i].bash);
        if (strncmp(text, lines[i].wanted, strlen(lines[i].wanted)) != 0) fail_msg("%s: %s", lines[i].bash, text);
    }
}

static void test_fish_completes(void **state)
{
    (void)state;
    free(printed("fish"));
    if (!installed("fish")) return;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!*lines[i].line) continue;
        char *text =
            said("cd %s && HOME=$PWD XDG_CONFIG_HOME=$PWD fish -c 'source ./fish; complete -C \"%s\"' 2>&1", folder, lines[i].line);
        assert_has(text, lines[i].wanted);
    }
}

static void test_roff_takes_it(void **state)
{
    (void)state;
    free(printed(NULL));
    if (installed("groff")) assert_string_equal(said("groff -ww -man -Tutf8 -z %s/man 2>&1", folder), "");
    if (!installed("man")) return;
    assert_string_equal(said("MANWIDTH=80 man --warnings -E UTF-8 -l %s/man 2>&1 >/dev/null", folder), "");
    char *text = said("MANWIDTH=300 man -E UTF-8 -P cat -l %s/man 2>/dev/null", folder);
    assert_has(text, "zenflow-console completion bash|zsh|fish");
    assert_has(text, "$(zenflow-console completion bash)");
    assert_has(text, "+10%, -10%, x0.5");
}

static void test_command_line(void **state)
{
    (void)state;
    struct zf_err e;
    bool handled;
    char z[] = "z", completion[] = "completion", man[] = "man", ksh[] = "ksh", help[] = "--help", check[] = "check";
    assert_int_equal(zf_tables_launch(1, (char *[]){z}, &handled, &e), ZF_OK);
    assert_false(handled);
    assert_int_equal(zf_tables_launch(2, (char *[]){z, check}, &handled, &e), ZF_OK);
    assert_false(handled);
    assert_int_equal(zf_tables_launch(3, (char *[]){z, man, help}, &handled, &e), ZF_OK); /* the trainer's --help has it */
    assert_false(handled);
    assert_int_equal(zf_tables_launch(2, (char *[]){z, completion}, &handled, &e), ZF_USAGE);
    assert_true(handled);
    assert_int_equal(zf_tables_launch(3, (char *[]){z, completion, ksh}, &handled, &e), ZF_USAGE);
    assert_has(e.message, "ksh");
    assert_int_equal(zf_tables_launch(3, (char *[]){z, man, ksh}, &handled, &e), ZF_USAGE);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        assert_int_equal(zf_print_man(full, &e), ZF_IO);
        fclose(full);
    }
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usages),           cmocka_unit_test(test_manual_has_all), cmocka_unit_test(test_completions_have_all),
        cmocka_unit_test(test_shells_take_them), cmocka_unit_test(test_bash_completes), cmocka_unit_test(test_fish_completes),
        cmocka_unit_test(test_roff_takes_it),    cmocka_unit_test(test_command_line),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
