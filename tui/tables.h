/* What the tables of command lines, commands, keys and options tell shells and readers of manuals. */
#ifndef ZF_TUI_TABLES_H
#define ZF_TUI_TABLES_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* `completion SHELL` and `man`. *handled false: the command line is another one. */
enum zf_status zf_tables_launch(int argc, char **argv, bool *handled, struct zf_err *e);

enum zf_status zf_print_completion(FILE *to, const char *shell, struct zf_err *e); /* bash, zsh, fish */
enum zf_status zf_print_man(FILE *to, struct zf_err *e);

/* The table of command lines (core/run/cli.def); [0] is that of a run.cfg. */
struct zf_cli_row {
    const char *name, *usage, *text;
};
extern const struct zf_cli_row zf_cli_table[];
extern const size_t zf_cli_count;

/* A --flag of a usage: its value's words where they are listed ("dark|light"), else what a person has to fill in ("N"), "" without one. */
struct zf_cli_flag {
    char name[32], value[96];
    bool listed, again; /* again: it may come several times */
};
enum { ZF_CLI_FLAGS = 24 };
size_t zf_cli_flags(const struct zf_cli_row *row, struct zf_cli_flag *out); /* ZF_CLI_FLAGS at most */
/* The words of the first argument, where they are listed ("bash|zsh|fish"); "" if not. */
void zf_cli_words(const struct zf_cli_row *row, char *to, size_t room);

#endif
