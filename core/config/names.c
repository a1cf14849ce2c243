/* Names of options: the one that is meant by a misspelt name, or by a habit from another program. */
#include "core/config/options.h"
#include "core/config/value.h"

#include <string.h>

/* Names people type from habit. hint: what differs here; NULL: only the name does. */
static const struct habit {
    const char *name, *right, *hint;
} habits[] = {
    {"max_grad_norm", "clip_norm", NULL},
    {"gradient_clipping", "clip_norm", NULL},
    {"grad_clip", "clip_norm", NULL},
    {"gradient_accumulation_steps", "micro_batch",
     "batch_size is the sequences of a whole optimizer step, micro_batch how many are computed at once"},
    {"grad_accum", "micro_batch", "batch_size is the sequences of a whole optimizer step, micro_batch how many are computed at once"},
    {"per_device_train_batch_size", "batch_size",
     "batch_size is the sequences of a whole optimizer step, micro_batch how many are computed at once"},
    {"train_batch_size", "batch_size", NULL},
    {"train_micro_batch_size_per_gpu", "micro_batch", NULL},
    {"micro_batch_size", "micro_batch", NULL},
    {"per_device_eval_batch_size", "valid_batches",
     "validation takes micro_batch sequences at once; valid_batches limits how many batches"},
    {"num_train_epochs", "epochs", NULL},
    {"num_epochs", "epochs", NULL},
    {"max_epochs", "epochs", NULL},
    {"max_steps", "steps", NULL},
    {"max_iters", "steps", NULL},
    {"num_steps", "steps", NULL},
    {"train_steps", "steps", NULL},
    {"save_steps", "save_every", NULL},
    {"save_interval", "save_every", NULL},
    {"save_total_limit", "keep", NULL},
    {"eval_steps", "valid_every", NULL},
    {"eval_interval", "valid_every", NULL},
    {"eval_strategy", "valid_every", NULL},
    {"evaluation_strategy", "valid_every", NULL},
    {"eval_iters", "valid_batches", NULL},
    {"logging_steps", "log_every", NULL},
    {"log_interval", "log_every", NULL},
    {"logging_dir", "tensorboard", NULL},
    {"report_to", "tensorboard", NULL},
    {"output_dir", "dir", NULL},
    {"run_name", "note", NULL},
    {"random_seed", "seed", NULL},
    {"data_seed", "seed", NULL},
    {"resume_from_checkpoint", "resume", "a certain checkpoint is given as --resume PATH"},
    {"model", "path", NULL},
    {"model_path", "path", NULL},
    {"model_name", "path", "it is a folder; nothing is downloaded"},
    {"model_name_or_path", "path", "it is a folder; nothing is downloaded"},
    {"base_model", "path", "it is a folder; nothing is downloaded"},
    {"torch_dtype", "dtype", NULL},
    {"precision", "dtype", NULL},
    {"fp16", "dtype", "bf16 and f32 are what there is"},
    {"bf16", "dtype", "write dtype = bf16"},
    {"gradient_checkpointing", "recompute", NULL},
    {"activation_checkpointing", "recompute", NULL},
    {"model_type", "family", NULL},
    {"n_layer", "layers", NULL},
    {"num_layers", "layers", NULL},
    {"num_hidden_layers", "layers", NULL},
    {"n_embd", "hidden", NULL},
    {"d_model", "hidden", NULL},
    {"hidden_size", "hidden", NULL},
    {"n_head", "heads", NULL},
    {"num_attention_heads", "heads", NULL},
    {"num_key_value_heads", "kv_heads", NULL},
    {"intermediate_size", "ffn", NULL},
    {"d_ff", "ffn", NULL},
    {"vocab_size", "vocab", NULL},
    {"n_positions", "context", NULL},
    {"max_position_embeddings", "context", NULL},
    {"tokenizer_name", "tokenizer", NULL},
    {"train_file", "train", NULL},
    {"train_data", "train", NULL},
    {"dataset", "train", NULL},
    {"data_path", "train", NULL},
    {"validation_file", "valid", NULL},
    {"eval_file", "valid", NULL},
    {"val_file", "valid", NULL},
    {"test_size", "valid_split", NULL},
    {"val_set_size", "valid_split", NULL},
    {"max_seq_length", "sequence_length", NULL},
    {"max_seq_len", "sequence_length", NULL},
    {"max_length", "sequence_length", NULL},
    {"model_max_length", "sequence_length", NULL},
    {"cutoff_len", "sequence_length", NULL},
    {"block_size", "sequence_length", NULL},
    {"seq_len", "sequence_length", NULL},
    {"packing", "pack", NULL},
    {"train_on_inputs", "train_on", "all trains on prompts, too"},
    {"lr_scheduler", "schedule", NULL},
    {"lr_scheduler_type", "schedule", NULL},
    {"lr_decay_iters", "schedule_steps", NULL},
    {"warmup", "warmup_steps", NULL},
    {"warmup_iters", "warmup_steps", NULL},
    {"warmup_ratio", "warmup_steps", "it is a number of steps: the ratio times steps"},
    {"min_lr", "min_learning_rate", NULL},
    {"max_lr", "learning_rate", NULL},
    {"wd", "weight_decay", NULL},
    {"betas", "beta1", "beta1 and beta2 are two options"},
    {"adam_beta1", "beta1", NULL},
    {"adam_beta2", "beta2", NULL},
    {"eps", "epsilon", NULL},
    {"adam_eps", "epsilon", NULL},
    {"adam_epsilon", "epsilon", NULL},
    {"early_stopping_patience", "patience", NULL},
    {"load_best_model_at_end", "keep_best", NULL},
    {"num_threads", "threads", NULL},
    {"num_workers", "threads", NULL},
    {"topk", "topk_ratio", NULL},
    {"top_k_ratio", "topk_ratio", NULL},
    {"overlap_step", "strategy", "zenflow overlaps, zenflow_sync does not"},
    {"select_strategy", "select_interval", "it is a number of steps"},
};

enum { NAME_MOST = 64 };

/* Lower case, - as _; false: longer than any name. */
static bool fold(const char *name, char out[NAME_MOST])
{
    size_t n = strlen(name);
    if (n >= NAME_MOST) return false;
    for (size_t i = 0; i <= n; i++) {
        char c = name[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c == '-' || c == ' ' ? '_' : c;
    }
    return true;
}

/* Insertions, deletions, substitutions, swaps of neighbours. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), rows[3][NAME_MOST + 1], *before = rows[0], *last = rows[1], *now = rows[2];
    if (n >= NAME_MOST || m >= NAME_MOST) return NAME_MOST;
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

/* One edit for every three letters is still a misspelling. */
static void consider(const char *folded, const char *candidate, const char **best, size_t *least)
{
    size_t n = strlen(folded), d = distance(folded, candidate), allowed = n < 3 ? 1 : (n + 1) / 3;
    if (d <= allowed && d < n && d < *least) {
        *least = d;
        *best = candidate;
    }
}

const char *zf_nearest(const char *name, const char *const *names, size_t count)
{
    char folded[NAME_MOST];
    const char *best = NULL;
    size_t least = NAME_MOST;
    if (!fold(name, folded)) return NULL;
    for (size_t i = 0; i < count; i++) consider(folded, names[i], &best, &least);
    return best;
}

const char *zf_option_nearest(const char *name)
{
    const char *names[ZF_OPTIONS];
    for (size_t i = 0; i < ZF_OPTIONS; i++) names[i] = zf_option_table[i].name;
    return zf_nearest(name, names, ZF_OPTIONS);
}

const struct zf_option *zf_option_find(const char *name)
{
    if (!strcmp(name, "lr")) return &zf_option_table[ZF_OPT_learning_rate];
    for (size_t i = 0; i < ZF_OPTIONS; i++)
        if (!strcmp(name, zf_option_table[i].name)) return &zf_option_table[i];
    return NULL;
}

enum zf_status zf_option_unknown(const char *name, const char *where, struct zf_err *e)
{
    char folded[NAME_MOST], shown[80];
    zf_excerpt(name, shown, sizeof shown);
    if (fold(name, folded)) {
        for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
            const struct habit *h = &habits[i];
            if (strcmp(folded, h->name)) continue;
            return zf_fail(e, ZF_USAGE, where, "there is no option `%s`; here it is `%s`%s%s; write `%s = ...` in [%s]", shown, h->right,
                           h->hint ? ": " : "", h->hint ? h->hint : "", h->right, zf_option_find(h->right)->section);
        }
    }
    const char *near = zf_option_nearest(name);
    if (near)
        return zf_fail(e, ZF_USAGE, where,
                       "there is no option `%s`; the nearest is `%s`; correct the name (`zenflow-console options` lists all)", shown, near);
    return zf_fail(e, ZF_USAGE, where, "there is no option `%s`; the name of an option is expected; `zenflow-console options` lists all",
                   shown);
}
