/* The manual page, in man(7)'s macros, from the tables. Pure but for the output. */
#include "core/config/options.h"
#include "core/session/commands.h"
#include "tui/keys.h"
#include "tui/tables.h"

#include <ctype.h>
#include <string.h>

/* As it is, whatever roff would take it for: a dot or a quote at the beginning, a backslash, a minus that shall stay one. */
static void put(FILE *to, const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", to);
    for (const char *s = text; *s; s++) {
        switch (*s) {
        case '\\': fputs("\\e", to); break;
        case '-': fputs("\\-", to); break;
        case '\'': fputs("\\(aq", to); break;
        case '`': fputs("\\(ga", to); break;
        case '^': fputs("\\(ha", to); break;
        case '~': fputs("\\(ti", to); break;
        case '|': fputs("|\\:", to); break; /* a line may be broken here */
        case '"': fputs("\\(dq", to); break;
        default: putc(*s, to);
        }
    }
}

static void put_line(FILE *to, const char *macro, const char *text)
{
    fprintf(to, "%s \"", macro);
    put(to, text);
    fputs("\"\n", to);
}

static void put_text(FILE *to, const char *text)
{
    put(to, text);
    putc('\n', to);
}

/* What is typed in bold, what a person fills in in italics. */
static void put_usage(FILE *to, const char *usage)
{
    char word[160];
    while (*usage) {
        size_t size = strcspn(usage, " []"), i = 0;
        bool fill = false, small = false;
        if (!size) {
            putc(*usage++, to);
            continue;
        }
        if (size >= sizeof word) size = sizeof word - 1;
        memcpy(word, usage, size);
        word[size] = 0;
        usage += size;
        for (; i < size; i++) fill |= isupper((unsigned char)word[i]) != 0, small |= islower((unsigned char)word[i]) != 0;
        bool bold = !fill && small;
        if (!strcmp(word, "run.cfg")) fill = true, bold = false;
        fputs(fill ? "\\fI" : bold ? "\\fB" : "", to);
        put(to, word);
        fputs(fill || bold ? "\\fR" : "", to);
    }
    putc('\n', to);
}

static void put_head(FILE *to)
{
    fputs(".\\\" Made by `zenflow-console man` from the program's own tables.\n", to);
    fprintf(to, ".TH ZENFLOW\\-CONSOLE 1 \"\" \"zenflow\\-console %s\" \"User Commands\"\n", ZF_VERSION);
    fputs(".nh\n.ad l\n.SH NAME\nzenflow\\-console \\- fine\\-tune language models, and watch and steer it\n.SH SYNOPSIS\n", to);
    for (size_t i = 0; i < zf_cli_count; i++) {
        fputs(".HP\n\\fBzenflow\\-console\\fR ", to);
        put_usage(to, zf_cli_table[i].usage);
    }
    fputs(".HP\n\\fBzenflow\\-console \\-\\-help\\fR | \\fB\\-\\-version\\fR | \\fICOMMAND\\fR \\fB\\-\\-help\\fR\n", to);
    fputs(".SH DESCRIPTION\n"
          "Fine\\-tunes language models whose training state does not fit into the memory of a GPU. A run is a file,\n\\fIrun.cfg\\fR,\n"
          "and a run directory. The training is a process of its own; the screen only watches and steers it, may be left at any time\n"
          "(\\fBq\\fR), and be opened again, several times at once. What may be typed at its prompt may also be sent by\n\\fBsend\\fR.\n",
          to);
}

static void put_command_lines(FILE *to)
{
    fputs(".SH COMMANDS\n", to);
    for (size_t i = 0; i < zf_cli_count; i++) {
        fputs(".TP\n", to);
        put_usage(to, zf_cli_table[i].usage);
        put_text(to, zf_cli_table[i].text);
    }
}

static void put_prompt(FILE *to)
{
    fputs(".SH PROMPT\nAt the prompt of the screen, by\n.BR send ,\nin the section [at] of run.cfg, and in files for\n.BR source .\n", to);
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        const struct zf_command_row *r = &zf_command_table[i];
        fputs(".TP\n\\fB", to);
        put(to, r->name);
        fputs("\\fR ", to);
        put_usage(to, r->usage);
        put(to, r->sentence);
        if (r->alias[0]) {
            fputs(" Also\n\\fB", to);
            put(to, r->alias);
            fputs("\\fR.", to);
        }
        fprintf(to, "%s\n",
                r->allowed == ZF_ALLOWED_PAUSED ? " Only while paused."
                : r->who == ZF_WHO_CONSOLE      ? " On the screen only."
                                                : "");
    }
    fputs(".PP\nThe line is edited by GNU readline: ~/.inputrc counts ($if zenflow), Tab completes, Ctrl\\-R searches what was typed "
          "before.\n",
          to);
}

static void put_keys(FILE *to)
{
    fputs(".SH KEYS\n", to);
    for (size_t i = 0; i < zf_binding_count; i++) {
        if (!zf_bindings[i].name) continue;
        put_line(to, ".TP 12\n.B", zf_bindings[i].name);
        put_text(to, zf_bindings[i].help);
    }
}

static void put_option(FILE *to, const struct zf_option *o)
{
    char range[256];
    fputs(".TP\n\\fB", to);
    put(to, o->name);
    fputs("\\fR = ", to);
    put(to, o->fallback[0] ? o->fallback : "\"\"");
    putc('\n', to);
    put_text(to, o->sentence);
    fputs(".br\n", to);
    put(to, zf_option_type_name(o->type));
    const char *allowed = zf_option_range(o, range, sizeof range);
    if (allowed[0] && strcmp(allowed, zf_option_type_name(o->type)) != 0) {
        fputs(", ", to);
        put(to, allowed);
    }
    if (o->unit[0]) {
        fputs(", ", to);
        put(to, o->unit);
    }
    fputs("; a change takes effect ", to);
    put_text(to, o->when == ZF_WHEN_NOW ? "at once" : o->when == ZF_WHEN_STEP ? "at the next step" : "at the next start");
}

static void put_options(FILE *to)
{
    fputs(".SH OPTIONS OF RUN.CFG\nA line each,\n.IR \"name = value\" ,\nin their sections; in\n.B \\-\\-set\nand\n.B set\nwithout.\n", to);
    for (size_t i = 0; i < ZF_OPTIONS; i++) {
        const struct zf_option *o = &zf_option_table[i];
        if (!i || strcmp(o->section, o[-1].section) != 0) fprintf(to, ".SS [%s]\n", o->section);
        put_option(to, o);
    }
    fputs(".SS [at]\n\\fISTEP\\fR = \\fICOMMAND\\fR: done before that step is issued; a step may come several times.\n", to);
}

static void put_rest(FILE *to)
{
    static const struct {
        const char *name, *text;
    } files[] = {{"RUN/run.cfg", "what really ran: every option with its value"},
                 {"RUN/metrics.jsonl", "one JSON object a line: steps, selections, scores, validations"},
                 {"RUN/journal.jsonl", "starts, commands, checkpoints, ends; only ever appended to"},
                 {"RUN/checkpoints/", "what the run goes on from: step-00000500.zfc"},
                 {"RUN/exports/", "models as Hugging Face folders"},
                 {"RUN/trainer.log", "what the trainer and its libraries print"},
                 {"~/.inputrc", "keys of the prompt"}},
      variables[] = {{"TERM", "what the terminal can show; with TERM=dumb there are lines instead of a screen"},
                     {"NO_COLOR", "not empty: no colours"},
                     {"XDG_STATE_HOME", "where the prompt's history is kept; else ~/.local/state"},
                     {"XDG_CACHE_HOME", "where tokenised data is kept; else ~/.cache"},
                     {"XDG_RUNTIME_DIR", "where a run's socket is, if it cannot be in the run directory"}};
    fputs(".SH FILES\n", to);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put_line(to, ".TP\n.I", files[i].name);
        put_text(to, files[i].text);
    }
    fputs(".SH ENVIRONMENT\n", to);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        put_line(to, ".TP\n.B", variables[i].name);
        put_text(to, variables[i].text);
    }
    fputs(".SH EXIT STATUS\n", to);
#define X(name, code, text) fprintf(to, ".TP 4\n.B %d\n%s\n", code, text);
    ZF_STATUS_MAP(X)
#undef X
}

enum zf_status zf_print_man(FILE *to, struct zf_err *e)
{
    put_head(to);
    put_command_lines(to);
    put_prompt(to);
    put_keys(to);
    put_options(to);
    put_rest(to);
    return fflush(to) || ferror(to) ? zf_fail_errno(e, "stdout", "cannot write the manual page") : ZF_OK;
}
