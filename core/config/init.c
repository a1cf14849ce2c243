/* `init`: a run.cfg to begin with. The sentences come from the option table, so that they cannot disagree with the reference. */
#include "core/config/run_cfg.h"
#include "core/config/value.h"

#include <stdlib.h>
#include <string.h>

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
