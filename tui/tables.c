/* See tables.h: rows of the table of command lines, and flags out of usages. Pure. */
#include "tui/tables.h"

#include <ctype.h>
#include <string.h>

const struct zf_cli_row zf_cli_table[] = {
#define ZF_CLI(name, function, usage, text) {#name, usage, text},
#include "core/run/cli.def"
#undef ZF_CLI
};
const size_t zf_cli_count = sizeof zf_cli_table / sizeof *zf_cli_table;

/* "a|b": words to choose from, not what stands for something. */
static bool is_list(const char *text, size_t size)
{
    bool bar = false;
    for (size_t i = 0; i < size; i++) {
        if (isupper((unsigned char)text[i])) return false;
        bar |= text[i] == '|';
    }
    return bar;
}

size_t zf_cli_flags(const struct zf_cli_row *row, struct zf_cli_flag *out)
{
    size_t count = 0;
    for (const char *at = row->usage; (at = strstr(at, "--")) && count < ZF_CLI_FLAGS;) {
        struct zf_cli_flag f = {0};
        size_t size = 2 + strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-"), i = 0;
        if (size < sizeof f.name) memcpy(f.name, at, size);
        at += size;
        if (*at == ' ' && !strchr("[|-", at[1])) {
            size = strcspn(at + 1, " ]");
            f.listed = is_list(at + 1, size) || !strncmp(at + 1, "never", 5);
            if (size < sizeof f.value) memcpy(f.value, at + 1, size);
            at += 1 + size;
        }
        f.again = !strncmp(at, "]...", 4);
        while (i < count && strcmp(out[i].name, f.name) != 0) i++;
        if (i == count && f.name[0]) out[count++] = f;
    }
    return count;
}

void zf_cli_words(const struct zf_cli_row *row, char *to, size_t room)
{
    const char *word = strchr(row->usage, ' ');
    size_t size = word ? strcspn(word + 1, " ") : 0;
    to[0] = 0;
    if (!word || word[1] == '[' || word[1] == '-' || !is_list(word + 1, size) || size >= room) return;
    memcpy(to, word + 1, size);
    to[size] = 0;
}

enum zf_status zf_tables_launch(int argc, char **argv, bool *handled, struct zf_err *e)
{
    const char *command = argc > 1 ? argv[1] : "", *shell = argc > 2 ? argv[2] : NULL;
    bool completion = !strcmp(command, "completion"), man = !strcmp(command, "man");
    *handled = false;
    for (int i = 2; i < argc; i++) completion = completion && strcmp(argv[i], "--help") != 0, man = man && strcmp(argv[i], "--help") != 0;
    if (!completion && !man) return ZF_OK;
    *handled = true;
    if (argc > 2 + completion) return zf_fail(e, ZF_USAGE, argv[2 + completion], "it was not expected; see `%s --help`", command);
    if (completion && !shell) return zf_fail(e, ZF_USAGE, command, "the shell is missing; bash, zsh or fish is expected");
    return completion ? zf_print_completion(stdout, shell, e) : zf_print_man(stdout, e);
}
