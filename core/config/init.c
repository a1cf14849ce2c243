/* `init`: a run.cfg to begin with. The sentences come from the option table, so that they cannot disagree with the reference. */
#include "core/config/run_cfg.h"
#include "core/config/value.h"

#include "core/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* HIDDEN: as a comment. SCRATCH, MODEL: only without or with a model folder. */
enum shown { PLAIN = 0, HIDDEN = 1, SCRATCH = 2, MODEL = 4 };

static const struct line {
    enum zf_option_id id;
    int shown;
    const char *value; /* NULL: the default */
} lines[] = {
    {ZF_OPT_dir, HIDDEN, "runs/first"},
    {ZF_OPT_seed, PLAIN, NULL},
    {ZF_OPT_device, PLAIN, NULL},
    {ZF_OPT_threads, HIDDEN, NULL},
    {ZF_OPT_memory_limit, HIDDEN, NULL},
    {ZF_OPT_path, MODEL, NULL},
    {ZF_OPT_freeze, MODEL | HIDDEN, "*embed*"},
    {ZF_OPT_family, SCRATCH, "llama"},
    {ZF_OPT_layers, SCRATCH, "4"},
    {ZF_OPT_hidden, SCRATCH, "128"},
    {ZF_OPT_heads, SCRATCH, "4"},
    {ZF_OPT_context, SCRATCH, "256"},
    {ZF_OPT_tokenizer, SCRATCH, "bytes"},
    {ZF_OPT_train, PLAIN, "data.txt"},
    {ZF_OPT_valid_split, HIDDEN, "0.05"},
    {ZF_OPT_format, PLAIN, NULL},
    {ZF_OPT_prompt, HIDDEN, "{question}"},
    {ZF_OPT_response, HIDDEN, "{answer}"},
    {ZF_OPT_sequence_length, PLAIN, NULL},
    {ZF_OPT_long_rows, PLAIN, NULL},
    {ZF_OPT_pack, HIDDEN, NULL},
    {ZF_OPT_epochs, PLAIN, NULL},
    {ZF_OPT_batch_size, PLAIN, NULL},
    {ZF_OPT_micro_batch, HIDDEN, NULL},
    {ZF_OPT_learning_rate, MODEL, "2e-5"},
    {ZF_OPT_learning_rate, SCRATCH, "1e-3"},
    {ZF_OPT_schedule, PLAIN, NULL},
    {ZF_OPT_warmup_steps, PLAIN, NULL},
    {ZF_OPT_weight_decay, HIDDEN, NULL},
    {ZF_OPT_clip_norm, HIDDEN, NULL},
    {ZF_OPT_nonfinite, HIDDEN, NULL},
    {ZF_OPT_valid_every, HIDDEN, "100"},
    {ZF_OPT_keep_best, HIDDEN, NULL},
    {ZF_OPT_strategy, HIDDEN, NULL},
    {ZF_OPT_topk_ratio, HIDDEN, NULL},
    {ZF_OPT_update_interval, HIDDEN, NULL},
    {ZF_OPT_save_minutes, HIDDEN, NULL},
    {ZF_OPT_log_every, HIDDEN, NULL},
    {ZF_OPT_plain_every, HIDDEN, NULL},
};

/* A name from the command line as value text; a list's element needs quotes for its commas. */
static char *quoted(const struct zf_option *row, const char *name)
{
    char *text = (char *)(size_t)name;
    struct zf_value v = {.text = name, .strings = {&text, 1}};
    return zf_value_text(row, &v);
}

/* What in `directory` is called nearly like `name`; for a folder, what has config.json. To be freed; NULL: nothing. */
static char *near_name(const char *directory, const char *name, bool models)
{
    struct dirent **items = NULL;
    int count = scandir(directory, &items, NULL, alphasort);
    const char **names = calloc(count > 0 ? (size_t)count : 1, sizeof *names);
    size_t n = 0;
    for (int i = 0; names && i < count; i++) {
        char *path = zf_path_join(directory, items[i]->d_name), *config = path ? zf_path_join(path, "config.json") : NULL;
        bool meant = config && (models ? zf_file_exists(config) : zf_file_exists(path));
        if (meant && items[i]->d_name[0] != '.') names[n++] = items[i]->d_name;
        free(path);
        free(config);
    }
    const char *near = n && *name ? zf_nearest(name, names, n) : n == 1 ? names[0] : NULL;
    char *found = near ? strcmp(directory, ".") ? zf_path_join(directory, near) : strdup(near) : NULL;
    for (int i = 0; i < count; i++) free(items[i]);
    free(items);
    free(names);
    return found;
}

/* within: the nearest is looked for in the folder that `path` is, else beside it. */
static enum zf_status not_there(const char *path, bool model, bool within, const char *what, struct zf_err *e)
{
    char *bare = strdup(path), *directory = NULL, *near = NULL;
    for (size_t n = bare ? strlen(bare) : 0; n > 1 && bare[n - 1] == '/'; n--) bare[n - 1] = 0;
    const char *slash = bare ? strrchr(bare, '/') : NULL;
    if (bare) directory = within ? strdup(bare) : zf_path_directory(bare);
    if (directory) near = near_name(directory, within ? "" : slash ? slash + 1 : bare, model);
    zf_fail(e, ZF_FORMAT, path, "%s%s%s", what, near ? "; did you mean " : "", near ? near : "");
    free(bare);
    free(directory);
    free(near);
    return e->code;
}

static enum zf_status check_model(const char *model, struct zf_err *e)
{
    char *config = zf_path_join(model, "config.json");
    bool there = config && zf_file_exists(config), folder = zf_directory_exists(model), file = zf_file_exists(model);
    free(config);
    return there    ? ZF_OK
           : folder ? not_there(model, true, true, "MODEL is a folder without config.json; that of a Hugging Face model is expected", e)
           : file
               ? zf_fail(
                     e, ZF_FORMAT, model,
                     "MODEL is a file; a folder with config.json is expected, and DATA behind it; for a model from scratch: `init` alone, "
                     "with this name as `train` in what it prints")
               : not_there(model, true, false, "MODEL: there is no such folder; one with config.json is expected", e);
}

static enum zf_status check_data(const char *data, struct zf_err *e)
{
    if (zf_directory_exists(data)) return not_there(data, false, true, "DATA is a folder; a file is expected", e);
    if (access(data, F_OK)) return not_there(data, false, false, "DATA: there is no such file", e);
    return access(data, R_OK) ? zf_fail(e, ZF_FORMAT, data, "DATA: it cannot be read: %s", strerror(errno)) : ZF_OK;
}

enum zf_status zf_init_check(const char *model, const char *data, struct zf_err *e)
{
    if (model && *model) ZF_TRY(check_model(model, e));
    return data && *data ? check_data(data, e) : ZF_OK;
}

enum zf_status zf_init_write(FILE *out, const char *model, const char *data, struct zf_err *e)
{
    const char *section = "", *names[] = {model, data};
    for (size_t i = 0; i < 2; i++)
        if (names[i] && (!names[i][0] || zf_utf8_good(names[i], strlen(names[i])) < strlen(names[i])))
            return zf_fail(e, ZF_USAGE, i ? "DATA" : "MODEL",
                           "the name is empty or not UTF-8; init [MODEL [DATA]] is expected; correct it");
    fputs("# Begin with: zenflow-console THIS-FILE\n"
          "# Relative paths are relative to this file. What is commented out shows the default, or an example.\n"
          "# All options: zenflow-console options\n",
          out);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const struct line *l = &lines[i];
        const struct zf_option *row = &zf_option_table[l->id];
        if (((l->shown & SCRATCH) && model) || ((l->shown & MODEL) && !model)) continue;
        const char *name = l->id == ZF_OPT_path ? model : l->id == ZF_OPT_train && data ? data : NULL;
        char *text = name ? quoted(row, name) : strdup(l->value ? l->value : row->fallback);
        if (!text) return zf_fail_memory(e, "run.cfg");
        if (strcmp(section, row->section)) fprintf(out, "\n[%s]\n", section = row->section);
        fprintf(out, "# %s\n", row->sentence);
        if (l->id == ZF_OPT_train && !data) fputs("# Put the name of your file here.\n", out);
        fprintf(out, "%s%s = %s\n", l->shown & HIDDEN ? "# " : "", row->name, text);
        free(text);
    }
    return fflush(out) || ferror(out) ? zf_fail_errno(e, "stdout", "cannot write the run.cfg") : ZF_OK;
}
