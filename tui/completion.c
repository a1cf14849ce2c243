/* Completion for shells: a script of functions around lists that come from the tables. Pure but for the output. */
#include "core/config/options.h"
#include "core/session/commands.h"
#include "tui/tables.h"

#include <string.h>

/* ---- words, as shells want them */

/* Inside '...': a quote ends the string, and stands by itself in between. */
static void put_quoted(FILE *to, const char *text, const char *quote, const char *escape)
{
    for (const char *s = text; *s; s++) {
        if (*s == '\'')
            fputs(quote, to);
        else if (strchr(escape, *s))
            fprintf(to, "\\%c", *s);
        else
            putc(*s, to);
    }
}

static void put_words(FILE *to, const char *list) /* "a|b" */
{
    for (; *list; list++) putc(*list == '|' ? ' ' : *list, to);
}

static void put_names(FILE *to)
{
    for (size_t i = 1; i < zf_cli_count; i++) fprintf(to, "%s%s", i > 1 ? " " : "", zf_cli_table[i].name);
}

static void put_commands(FILE *to) /* those that a trainer, or anybody, carries out */
{
    const char *blank = "";
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        if (zf_command_table[i].who == ZF_WHO_CONSOLE) continue;
        fprintf(to, "%s%s", blank, zf_command_table[i].name);
        blank = " ";
    }
}

static void put_options(FILE *to, bool live)
{
    const char *blank = "";
    for (size_t i = 0; i < ZF_OPTIONS; i++) {
        if (live && zf_option_table[i].when == ZF_WHEN_RESTART) continue;
        fprintf(to, "%s%s", blank, zf_option_table[i].name);
        blank = " ";
    }
}

static bool has_words(const struct zf_option *o)
{
    return o->type == ZF_TYPE_BOOL || o->choice_count;
}

static void put_values(FILE *to, const struct zf_option *o)
{
    if (o->type == ZF_TYPE_BOOL) fputs("yes no", to);
    for (size_t i = 0; i < o->choice_count; i++) fprintf(to, "%s%s", i ? " " : "", o->choices[i]);
}

/* `case` of names to their words: the same in bash and zsh. */
static void put_value_cases(FILE *to)
{
    for (size_t i = 0; i < ZF_OPTIONS; i++) {
        const struct zf_option *o = &zf_option_table[i];
        if (!has_words(o)) continue;
        fprintf(to, "    %s) echo \"", o->name);
        put_values(to, o);
        fputs("\" ;;\n", to);
    }
}

/* ---- bash */

static bool takes_run(const struct zf_cli_row *row)
{
    const char *first = row->usage + strcspn(row->usage, " ");
    return !strncmp(first, " RUN", 4) || !strncmp(first, " [RUN]", 6);
}

static void put_bash_rows(FILE *to)
{
    struct zf_cli_flag flag[ZF_CLI_FLAGS];
    char words[96];
    for (size_t n = 1; n <= zf_cli_count; n++) { /* that of any other word comes last */
        size_t i = n % zf_cli_count;
        const struct zf_cli_row *row = &zf_cli_table[i];
        size_t flags = zf_cli_flags(row, flag);
        zf_cli_words(row, words, sizeof words);
        fprintf(to, "    %s)\n        flags='", i ? row->name : "*");
        for (size_t k = 0; k < flags; k++) fprintf(to, "%s ", flag[k].name);
        fputs("--help", to);
        if (!i) fputs(" --version", to);
        fputs("'\n", to);
        if (takes_run(row)) fputs("        runs=1\n", to);
        if (words[0]) {
            fputs("        words='", to);
            put_words(to, words);
            fputs("'\n", to);
        }
        fputs("        case $prev in\n", to);
        for (size_t k = 0; k < flags; k++) {
            if (!flag[k].value[0] || !strcmp(flag[k].name, "--set")) continue;
            fprintf(to, "        %s) values='", flag[k].name);
            if (flag[k].listed) put_words(to, flag[k].value);
            fputs("' taken=1 ;;\n", to);
        }
        fputs("        esac ;;\n", to);
    }
}

static void print_bash(FILE *to)
{
    fputs("# bash completion of zenflow-console: eval \"$(zenflow-console completion bash)\" in ~/.bashrc,\n"
          "# or this file as ~/.local/share/bash-completion/completions/zenflow-console\n"
          "_zenflow_console_values()\n{\n    case $1 in\n",
          to);
    put_value_cases(to);
    fputs("    esac\n}\n\n"
          "# run directories that begin so, and those in ./runs\n"
          "_zenflow_console_runs()\n{\n    local dir\n"
          "    for dir in \"$1\"*/ \"$1\"*/*/ runs/*/; do\n"
          "        [[ -e $dir/journal.jsonl && $dir == \"$1\"* ]] && printf '%s\\n' \"${dir%/}\"\n"
          "    done | sort -u\n}\n\n_zenflow_console()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
          "    local flags= words= values= taken= name= live= names= runs= file\n"
          "    COMPREPLY=()\n"
          "    # --set NAME=VALUE comes in three words, as `=` breaks words\n"
          "    if [[ $cur == = ]]; then name=$prev cur=\n"
          "    elif [[ $prev == = ]]; then name=${COMP_WORDS[COMP_CWORD-2]} prev=$name; fi\n"
          "    if [[ -n $name && $name != -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$(_zenflow_console_values \"$name\")\" -- \"$cur\"))\n"
          "        return\n    fi\n"
          "    if [[ $prev == --set ]]; then\n"
          "        compopt -o nospace\n        COMPREPLY=($(compgen -S = -W '",
          to);
    put_options(to, false);
    fputs("' -- \"$cur\"))\n        return\n    fi\n    case $command in\n", to);
    put_bash_rows(to);
    fputs("    esac\n"
          "    if [[ -n $taken && -n $values ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n        return\n    fi\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n        return\n    fi\n"
          "    (( COMP_CWORD == 1 )) && names='",
          to);
    put_names(to);
    fputs("'\n    if [[ $command == send && $COMP_CWORD -gt 1 ]]; then\n        names='", to);
    put_commands(to);
    fputs("'\n        live='", to);
    put_options(to, true);
    fputs("'\n        [[ \" ${COMP_WORDS[*]} \" =~ \\ (set|set!|show|get|help)\\  ]] && names=$live\n"
          "        COMPREPLY=($(compgen -W \"$(_zenflow_console_values \"$prev\")\" -- \"$cur\"))\n"
          "        [[ ${#COMPREPLY[@]} -gt 0 ]] && return\n"
          "    fi\n"
          "    COMPREPLY=($(compgen -W \"$names $words\" -- \"$cur\"))\n"
          "    [[ -n $words ]] && return\n"
          "    compopt -o filenames\n"
          "    if [[ -n $runs && $COMP_CWORD -eq 2 ]]; then\n"
          "        while IFS= read -r file; do COMPREPLY+=(\"$file\"); done < <(_zenflow_console_runs \"$cur\")\n"
          "        (( ${#COMPREPLY[@]} )) && return\n    fi\n"
          "    while IFS= read -r file; do COMPREPLY+=(\"$file\"); done < <(compgen -f -- \"$cur\")\n"
          "}\ncomplete -F _zenflow_console zenflow-console\n",
          to);
}

/* ---- zsh */

static void put_zsh_row(FILE *to, const struct zf_cli_row *row)
{
    struct zf_cli_flag flag[ZF_CLI_FLAGS];
    char words[96];
    size_t flags = zf_cli_flags(row, flag);
    zf_cli_words(row, words, sizeof words);
    fprintf(to, "    %s)\n        _arguments", row->name[0] ? row->name : "*");
    for (size_t k = 0; k < flags; k++) {
        const struct zf_cli_flag *f = &flag[k];
        fprintf(to, " \\\n            '%s%s", f->again ? "*" : "", f->name);
        if (!strcmp(f->name, "--set")) {
            fputs(":option:_zenflow-console_set", to);
        } else if (f->value[0]) {
            fputs(":value:", to);
            if (f->listed) {
                putc('(', to);
                put_words(to, f->value);
                putc(')', to);
            }
        }
        putc('\'', to);
    }
    fputs(" \\\n            '--help'", to);
    if (words[0]) {
        fputs(" \\\n            '1:word:(", to);
        put_words(to, words);
        fputs(")'", to);
    } else {
        fprintf(to, " \\\n            '*:file:%s'", !strcmp(row->name, "send") ? "_zenflow-console_send" : "_files");
    }
    fputs(" ;;\n", to);
}

static void print_zsh(FILE *to)
{
    fputs("#compdef zenflow-console\n"
          "# zsh completion of zenflow-console: this file as _zenflow-console in a folder of $fpath,\n"
          "# or eval \"$(zenflow-console completion zsh)\" after compinit in ~/.zshrc\n"
          "_zenflow-console_values()\n{\n    case $1 in\n",
          to);
    put_value_cases(to);
    fputs("    esac\n}\n\n_zenflow-console_set()\n{\n"
          "    local name\n"
          "    if compset -P 1 '*='; then\n        name=${${IPREFIX%=}##*=}\n"
          "        compadd -- ${=\"$(_zenflow-console_values $name)\"}\n"
          "    else\n        compadd -S = -- ",
          to);
    put_options(to, false);
    fputs("\n    fi\n}\n\n_zenflow-console_send()\n{\n    local values=\"$(_zenflow-console_values $words[CURRENT-1])\"\n"
          "    if [[ -n $values ]]; then compadd -- ${=values}\n"
          "    elif [[ \" $words \" == *\\ (set|set!|show|get|help)\\ * ]]; then\n        compadd -- ",
          to);
    put_options(to, true);
    fputs("\n    else\n        compadd -- ", to);
    put_commands(to);
    fputs("\n        _files\n    fi\n}\n\n_zenflow-console()\n{\n    local -a commands\n    commands=(\n", to);
    for (size_t i = 1; i < zf_cli_count; i++) {
        fprintf(to, "        '%s:", zf_cli_table[i].name);
        put_quoted(to, zf_cli_table[i].text, "'\\''", ":\\");
        fputs("'\n", to);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        _describe -t commands command commands\n        _files\n        return\n    fi\n"
          "    local command=$words[2]\n"
          "    if (( $commands[(I)$command:*] )); then\n        shift words\n        (( CURRENT-- ))\n    fi\n"
          "    case $command in\n",
          to);
    for (size_t i = 1; i < zf_cli_count; i++) put_zsh_row(to, &zf_cli_table[i]);
    put_zsh_row(to, &zf_cli_table[0]);
    fputs("    esac\n}\n\n"
          "if [[ $funcstack[1] == _zenflow-console ]]; then _zenflow-console \"$@\"; else compdef _zenflow-console zenflow-console; fi\n",
          to);
}

/* ---- fish */

static void put_fish_row(FILE *to, const struct zf_cli_row *row)
{
    struct zf_cli_flag flag[ZF_CLI_FLAGS];
    char words[96], when[160];
    size_t flags = zf_cli_flags(row, flag);
    zf_cli_words(row, words, sizeof words);
    snprintf(when, sizeof when,
             row->name[0] ? "__fish_seen_subcommand_from %s" : "not __fish_seen_subcommand_from $zenflow_console_commands", row->name);
    for (size_t k = 0; k < flags; k++) {
        const struct zf_cli_flag *f = &flag[k];
        fprintf(to, "complete -c zenflow-console -n '%s' -l %s", when, f->name + 2);
        if (!strcmp(f->name, "--set")) {
            fputs(" -x -a '(__zenflow_console_set)'", to);
        } else if (f->listed) {
            fputs(" -x -a '", to);
            put_words(to, f->value);
            putc('\'', to);
        } else if (f->value[0]) {
            fputs(" -x", to);
        }
        putc('\n', to);
    }
    if (!words[0]) return;
    fprintf(to, "complete -c zenflow-console -n '%s' -f -a '", when);
    put_words(to, words);
    fputs("'\n", to);
}

static void print_fish(FILE *to)
{
    fputs("# fish completion of zenflow-console: this file as ~/.config/fish/completions/zenflow-console.fish\n"
          "set -g zenflow_console_commands ",
          to);
    put_names(to);
    fputs("\n\nfunction __zenflow_console_set\n", to);
    for (size_t i = 0; i < ZF_OPTIONS; i++) {
        const struct zf_option *o = &zf_option_table[i];
        fprintf(to, "    printf '%%s\\t%%s\\n' '%s=' '", o->name);
        put_quoted(to, o->sentence, "\\'", "\\");
        fputs("'\n", to);
        if (!has_words(o)) continue;
        fputs("    for value in ", to);
        put_values(to, o);
        fprintf(to, "\n        echo %s=$value\n    end\n", o->name);
    }
    fputs("end\n\n", to);
    for (size_t i = 1; i < zf_cli_count; i++) {
        fprintf(to, "complete -c zenflow-console -n __fish_use_subcommand -a %s -d '", zf_cli_table[i].name);
        put_quoted(to, zf_cli_table[i].text, "\\'", "\\");
        fputs("'\n", to);
    }
    fputs("complete -c zenflow-console -l help\ncomplete -c zenflow-console -n __fish_use_subcommand -l version\n", to);
    for (size_t i = 0; i < zf_cli_count; i++) put_fish_row(to, &zf_cli_table[i]);
    fputs("complete -c zenflow-console -n '__fish_seen_subcommand_from send' -a '", to);
    put_commands(to);
    fputs("'\ncomplete -c zenflow-console -n '__fish_seen_subcommand_from send; and __fish_seen_subcommand_from set show' -a '", to);
    put_options(to, true);
    fputs("'\n", to);
}

enum zf_status zf_print_completion(FILE *to, const char *shell, struct zf_err *e)
{
    static const struct {
        const char *name;
        void (*print)(FILE *);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shell, shells[i].name)) continue;
        shells[i].print(to);
        return fflush(to) || ferror(to) ? zf_fail_errno(e, "stdout", "cannot write the completion") : ZF_OK;
    }
    return zf_fail(e, ZF_USAGE, "completion", "`%s` is no shell that is known here; bash, zsh or fish is expected", shell);
}
