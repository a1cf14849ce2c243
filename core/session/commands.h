/* Commands: the table, and text -> command. Pure; no state. */
#ifndef ZF_SESSION_COMMANDS_H
#define ZF_SESSION_COMMANDS_H

#include "core/base/err.h"
#include "core/config/options.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum zf_command_id {
#define ZF_COMMAND(name, ...) ZF_CMD_##name,
#include "core/session/commands.def"
#undef ZF_COMMAND
    ZF_COMMANDS
};

enum zf_command_arguments {
    ZF_ARGS_NONE,
    ZF_ARGS_PAIRS,
    ZF_ARGS_PATTERN,
    ZF_ARGS_COUNT,
    ZF_ARGS_NAME,
    ZF_ARGS_PATH,
    ZF_ARGS_TEXT,
    ZF_ARGS_STEP_COMMAND,
    ZF_ARGS_MATRIX,
    ZF_ARGS_TOPIC,
    ZF_ARGS_PANEL_FILE,
    ZF_ARGS_SWITCH
};
enum zf_command_who { ZF_WHO_READ, ZF_WHO_TRAINER, ZF_WHO_CONSOLE };
enum zf_command_effect {
    ZF_EFFECT_NOTHING,
    ZF_EFFECT_OPTIONS,
    ZF_EFFECT_COURSE,
    ZF_EFFECT_STATE,
    ZF_EFFECT_FILES,
    ZF_EFFECT_RECORD,
    ZF_EFFECT_LATER
};
enum zf_command_allowed { ZF_ALLOWED_ANY, ZF_ALLOWED_PAUSED };
enum zf_command_asks { ZF_ASKS_NEVER, ZF_ASKS_BIG };

struct zf_command_row {
    const char *name, *alias, *usage; /* alias: "" if there is none */
    enum zf_command_arguments arguments;
    size_t least;
    enum zf_command_who who;
    enum zf_command_effect effect;
    enum zf_command_allowed allowed;
    enum zf_command_asks asks;
    const char *without, *sentence;
};
extern const struct zf_command_row zf_command_table[ZF_COMMANDS];

enum { ZF_COMMAND_WORDS = 256 };

/* Ends the question of what asks, for those who cannot be asked; the console, which can, leaves it out. */
#define ZF_TO_DO_IT "; to do it say yes"

struct zf_command {
    const struct zf_command_row *row;
    enum zf_command_id id;
    bool yes;                           /* NAME! */
    size_t count;                       /* words; PAIRS: names and values in turn, values as value text */
    const char *word[ZF_COMMAND_WORDS]; /* PATH, TEXT: one, the rest of the line. STEP_COMMAND, PANEL_FILE: a word and the rest */
    uint64_t client;                    /* of control.h: who asked; 0: nobody who is still there */
    const char *by, *user;              /* who asked, in words; the caller's. NULL: not said */
    uint64_t number;                    /* COUNT (1 if it was left out), the step of STEP_COMMAND */
    char *storage;
};

/* ZF_USAGE: what is wrong with it, with the nearest name or the usage. */
enum zf_status zf_command_parse(struct zf_command *c, const char *line, struct zf_err *e);
void zf_command_free(struct zf_command *c); /* after a failed parse, too */

/* One command out of words, as a shell gave them: what has blanks is put into quotes where it must stay one word, and the path of a command
 * becomes absolute, as the trainer may be elsewhere. To be freed; NULL: no memory. */
char *zf_command_join(const char *const *words, size_t count);

/* NULL: no such command. Finds aliases. */
const struct zf_command_row *zf_command_find(const char *name);

/* What `help` says: all, or of a command or an option. To be freed; NULL: no memory. *known false: there is no such topic. */
char *zf_command_help(const char *topic, bool *known);
enum zf_status zf_commands_print(FILE *to, enum zf_table_style style, struct zf_err *e);
/* For completion: [{"name","alias","usage","arguments","effect","who","sentence"}...]; NULL: no memory. */
json_t *zf_commands_json(void);

#endif
