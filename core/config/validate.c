/* What no single option can tell, as three tables: rules between options, values that this version does not have, options without effect
 * yet.
 *
 * In sentences {name} stands for the value of an option and {@name} for its place. */
#include "core/config/options.h"

#include <stdlib.h>
#include <string.h>

/* Somebody gave it a value that is not the default's. */
static bool given(const struct zf_options *o, enum zf_option_id id)
{
    return o->origin[id].kind != ZF_ORIGIN_DEFAULT && !zf_options_is_default(o, id);
}

static bool named(const struct zf_options *o, enum zf_option_id id)
{
    return o->origin[id].kind != ZF_ORIGIN_DEFAULT;
}

static const enum zf_option_id scratch_options[] = {ZF_OPT_family,   ZF_OPT_layers, ZF_OPT_hidden, ZF_OPT_heads,   ZF_OPT_kv_heads,
                                                    ZF_OPT_head_dim, ZF_OPT_ffn,    ZF_OPT_vocab,  ZF_OPT_context, ZF_OPT_tokenizer};
enum { SCRATCH_OPTIONS = sizeof scratch_options / sizeof *scratch_options };

static bool has_path(const struct zf_options *o)
{
    return o->path[0] != 0;
}

/* family = gpt2 and tokenizer = bytes are defaults, but whoever writes them wants a model from scratch, unless there is a path. */
static bool from_scratch(const struct zf_options *o)
{
    bool any = false;
    for (int i = 0; i < SCRATCH_OPTIONS; i++) any |= has_path(o) ? given(o, scratch_options[i]) : named(o, scratch_options[i]);
    return any;
}

static bool only_scratch(const struct zf_options *o)
{
    return !has_path(o) && from_scratch(o);
}

static int64_t head_dim(const struct zf_options *o)
{
    return o->head_dim ? o->head_dim : o->heads ? o->hidden / o->heads : 0;
}

static bool has_rope(const struct zf_options *o)
{
    return o->family == ZF_SCRATCH_LLAMA || o->family == ZF_SCRATCH_QWEN2 || o->family == ZF_SCRATCH_QWEN3;
}

static bool only_tokens(const struct zf_options *o)
{
    bool all = o->train.count > 0;
    for (size_t i = 0; i < o->train.count; i++) {
        size_t n = strlen(o->train.list[i]);
        all &= n > 12 && !strcmp(o->train.list[i] + n - 12, ".safetensors");
    }
    return o->format == ZF_FORMAT_TOKENS || (o->format == ZF_FORMAT_AUTO && all);
}

static bool has_validation(const struct zf_options *o)
{
    return o->valid.count || o->valid_split > 0;
}

/* Digits alone, at most 18 of them. */
static bool number(const char **text, uint64_t *out)
{
    size_t n = strspn(*text, "0123456789");
    if (!n || n > 18) return false;
    *out = strtoull(*text, NULL, 10);
    *text += n;
    return true;
}

bool zf_options_trace(const char *text, uint64_t *first, uint64_t *last)
{
    uint64_t a, b;
    if (!number(&text, &a)) return false;
    b = a;
    if (*text == '-' && (text++, !number(&text, &b))) return false;
    if (*text || !a || b < a) return false;
    *first = a;
    *last = b;
    return true;
}

/* One predicate a rule: true is an error. */
#define RULE(name, expression) \
    static bool name(const struct zf_options *o) \
    { \
        return expression; \
    }
RULE(no_train, !o->train.count)
RULE(no_model, !has_path(o) && !from_scratch(o))
RULE(no_layers, only_scratch(o) && !o->layers)
RULE(no_hidden, only_scratch(o) && !o->hidden)
RULE(no_heads, only_scratch(o) && !o->heads)
RULE(heads_uneven, only_scratch(o) && o->heads && !o->head_dim && o->hidden % o->heads)
RULE(kv_heads_many, only_scratch(o) && o->heads && o->kv_heads > o->heads)
RULE(kv_heads_uneven, only_scratch(o) && o->kv_heads && o->kv_heads <= o->heads && o->heads % o->kv_heads)
RULE(kv_heads_other, only_scratch(o) && !has_rope(o) && o->heads && o->kv_heads && o->kv_heads != o->heads)
RULE(head_dim_other, only_scratch(o) && !has_rope(o) && o->heads && o->head_dim && o->head_dim * o->heads != o->hidden)
RULE(head_dim_odd, only_scratch(o) && has_rope(o) && !heads_uneven(o) && head_dim(o) % 2)
RULE(no_vocab, only_scratch(o) && only_tokens(o) && !o->vocab && !named(o, ZF_OPT_tokenizer))
RULE(rows_too_long, only_scratch(o) && o->context && o->sequence_length > o->context)
RULE(row_of_one, o->sequence_length == 1)
RULE(split_and_files, o->valid_split > 0 && o->valid.count)
RULE(steps_and_epochs, o->steps > 0 && named(o, ZF_OPT_epochs))
RULE(warmup_long, o->steps > 0 && o->warmup_steps > o->steps)
RULE(rate_rises, o->min_learning_rate > o->learning_rate)
RULE(micro_large, o->micro_batch > o->batch_size)
RULE(valid_every_blind, o->valid_every > 0 && !has_validation(o))
RULE(patience_blind, o->patience > 0 && !has_validation(o))
RULE(patience_idle, o->patience > 0 && !o->valid_every)
RULE(best_blind, o->keep_best && !has_validation(o))
RULE(best_idle, o->keep_best && !o->valid_every)
RULE(no_separator, !o->documents[0])
RULE(choices_blind, o->choices.count && o->valid_split > 0)
RULE(two_prompts, o->prompt[0] && o->prompt_file[0])
RULE(two_responses, o->response[0] && o->response_file[0])
RULE(trace_wrong, o->trace_steps[0] && !zf_options_trace(o->trace_steps, &(uint64_t){0}, &(uint64_t){0}))

enum scope { ALWAYS, NOT_PLAN };

static const struct rule {
    bool (*broken)(const struct zf_options *o);
    enum zf_option_id place, second; /* whose place is reported; the second's where the first has none */
    enum scope scope;
    const char *sentence;
} rules[] = {
    {no_model, ZF_OPT_path, ZF_OPT_path, ALWAYS,
     "there is no model; `path` (a Hugging Face folder), or layers, hidden and heads for one from scratch, is expected in [model]; add one "
     "of the two"},
    {no_layers, ZF_OPT_layers, ZF_OPT_hidden, ALWAYS,
     "a model from scratch without `layers`; layers, hidden and heads are expected in [model]; add `layers = ...` (or `path`, for a model "
     "that exists)"},
    {no_hidden, ZF_OPT_hidden, ZF_OPT_layers, ALWAYS,
     "a model from scratch without `hidden`; layers, hidden and heads are expected in [model]; add `hidden = ...` (or `path`, for a model "
     "that exists)"},
    {no_heads, ZF_OPT_heads, ZF_OPT_layers, ALWAYS,
     "a model from scratch without `heads`; layers, hidden and heads are expected in [model]; add `heads = ...` (or `path`, for a model "
     "that exists)"},
    {heads_uneven, ZF_OPT_heads, ZF_OPT_hidden, ALWAYS,
     "hidden is {hidden} and heads is {heads}; hidden is expected to be a multiple of heads; change one, or give head_dim"},
    {kv_heads_many, ZF_OPT_kv_heads, ZF_OPT_heads, ALWAYS,
     "kv_heads is {kv_heads} and heads is {heads}; at most as many are expected; lower kv_heads"},
    {kv_heads_uneven, ZF_OPT_kv_heads, ZF_OPT_heads, ALWAYS,
     "heads is {heads} and kv_heads is {kv_heads}; heads is expected to be a multiple of kv_heads; change one"},
    {kv_heads_other, ZF_OPT_kv_heads, ZF_OPT_family, ALWAYS,
     "kv_heads is {kv_heads} and heads is {heads}; family {family} has as many of both; leave kv_heads out, or take llama, qwen2 or qwen3"},
    {head_dim_other, ZF_OPT_head_dim, ZF_OPT_family, ALWAYS,
     "head_dim is {head_dim}; family {family} has hidden / heads, of {hidden} / {heads}; leave head_dim out, or take llama, qwen2 or "
     "qwen3"},
    {head_dim_odd, ZF_OPT_head_dim, ZF_OPT_heads, ALWAYS,
     "heads of an odd width (hidden {hidden}, heads {heads}, head_dim {head_dim}); family {family} rotates pairs and needs an even one; "
     "change it"},
    {no_vocab, ZF_OPT_vocab, ZF_OPT_train, NOT_PLAN,
     "a model from scratch on `tokens` data without `vocab` or `tokenizer`; the number of tokens is expected; add `vocab = ...` to "
     "[model]"},
    {no_train, ZF_OPT_train, ZF_OPT_train, NOT_PLAN, "there is nothing to train on; `train` is expected in [data]; add `train = FILE`"},
    {rows_too_long, ZF_OPT_sequence_length, ZF_OPT_context, ALWAYS,
     "sequence_length is {sequence_length}; at most context, {context}, is expected; lower it or raise context"},
    {row_of_one, ZF_OPT_sequence_length, ZF_OPT_sequence_length, ALWAYS,
     "sequence_length is 1; 2 or more is expected, as a row of one token has nothing to predict; raise it"},
    {no_separator, ZF_OPT_documents, ZF_OPT_documents, ALWAYS, "documents is empty; file, blank or a separator is expected; give one"},
    {choices_blind, ZF_OPT_choices, ZF_OPT_valid_split, ALWAYS,
     "choices beside valid_split; they are scored on the files of `valid`; name a file there instead"},
    {two_prompts, ZF_OPT_prompt_file, ZF_OPT_prompt, ALWAYS,
     "prompt_file beside prompt ({@prompt}); one of the two is expected; take one out"},
    {two_responses, ZF_OPT_response_file, ZF_OPT_response, ALWAYS,
     "response_file beside response ({@response}); one of the two is expected; take one out"},
    {trace_wrong, ZF_OPT_trace_steps, ZF_OPT_trace_steps, NOT_PLAN,
     "trace_steps is {trace_steps}; FIRST-LAST, two steps from 1 on, is expected; for example 10-12"},
    {split_and_files, ZF_OPT_valid_split, ZF_OPT_valid, ALWAYS,
     "valid_split beside the files of `valid` ({@valid}); one of the two is expected; take one out"},
    {steps_and_epochs, ZF_OPT_epochs, ZF_OPT_steps, ALWAYS, "epochs beside steps ({@steps}); one of the two is expected; take one out"},
    {warmup_long, ZF_OPT_warmup_steps, ZF_OPT_steps, ALWAYS,
     "warmup_steps is {warmup_steps} and steps is {steps}; at most steps is expected; lower warmup_steps or raise steps"},
    {rate_rises, ZF_OPT_min_learning_rate, ZF_OPT_learning_rate, NOT_PLAN,
     "min_learning_rate is {min_learning_rate} and learning_rate is {learning_rate}; at most learning_rate is expected; lower "
     "min_learning_rate"},
    {micro_large, ZF_OPT_micro_batch, ZF_OPT_batch_size, ALWAYS,
     "micro_batch is {micro_batch} and batch_size is {batch_size}; at most batch_size is expected, the sequences of a whole step; lower "
     "micro_batch or raise batch_size"},
    {valid_every_blind, ZF_OPT_valid_every, ZF_OPT_valid_every, NOT_PLAN,
     "valid_every without validation data; `valid` or `valid_split` is expected in [data]; add one or take valid_every out"},
    {patience_blind, ZF_OPT_patience, ZF_OPT_patience, NOT_PLAN,
     "patience without validation data; `valid` or `valid_split` is expected in [data]; add one or take patience out"},
    {patience_idle, ZF_OPT_patience, ZF_OPT_patience, NOT_PLAN,
     "patience without valid_every; it counts validations; add `valid_every = ...` or take patience out"},
    {best_blind, ZF_OPT_keep_best, ZF_OPT_keep_best, NOT_PLAN,
     "keep_best without validation data; `valid` or `valid_split` is expected in [data]; add one or take keep_best out"},
    {best_idle, ZF_OPT_keep_best, ZF_OPT_keep_best, NOT_PLAN,
     "keep_best without valid_every; validations to choose from are expected; add `valid_every = ...` or take keep_best out"},
};

/* The values that this version has; any other valid one is refused. As value texts, | between them. */
static const struct limit {
    enum zf_option_id id;
    enum scope scope;
    const char *has, *sentence;
} limits[] = {
    {ZF_OPT_device, NOT_PLAN, "auto|host|cuda", "this version simulates nothing"},
};

/* Of the options that only a start changes. Any other is part of what a run is. */
static const enum zf_option_id free_to_change[] = {ZF_OPT_dir,       ZF_OPT_resume,        ZF_OPT_threads,     ZF_OPT_memory_limit,
                                                   ZF_OPT_epochs,    ZF_OPT_micro_batch,   ZF_OPT_recompute,   ZF_OPT_nonfinite,
                                                   ZF_OPT_max_skips, ZF_OPT_valid_batches, ZF_OPT_patience,    ZF_OPT_keep_best,
                                                   ZF_OPT_cache,     ZF_OPT_tensorboard,   ZF_OPT_trace_steps, ZF_OPT_device};

bool zf_option_free_to_change(enum zf_option_id id)
{
    for (size_t i = 0; i < sizeof free_to_change / sizeof *free_to_change; i++)
        if (free_to_change[i] == id) return true;
    return false;
}

static const char *place_of(const struct zf_options *o, enum zf_option_id id, char *buffer, size_t size)
{
    return zf_origin_text(&o->origin[id], zf_option_table[id].name, buffer, size);
}

/* Copies a sentence with {name} and {@name} filled in. */
static void fill(const struct zf_options *o, const char *sentence, char *out, size_t size)
{
    size_t n = 0;
    for (const char *s = sentence; *s && n + 1 < size;) {
        const char *end = *s == '{' ? strchr(s, '}') : NULL;
        char name[64], place[512];
        bool wants_place = s[0] == '{' && s[1] == '@';
        if (!end || (size_t)(end - s) >= sizeof name) {
            out[n++] = *s++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(end - s) - 1 - wants_place, s + 1 + wants_place);
        const struct zf_option *row = zf_option_find(name);
        char *text = row ? zf_options_get_text(o, zf_option_id(row)) : NULL;
        int written = snprintf(out + n, size - n, "%.500s",
                               row && wants_place ? place_of(o, zf_option_id(row), place, sizeof place)
                               : text             ? text
                                                  : "?");
        free(text);
        n += (size_t)written < size - n ? (size_t)written : size - n - 1;
        s = end + 1;
    }
    out[n] = 0;
}

static void report(const struct zf_options *o, enum zf_option_id place, enum zf_option_id second, const char *sentence,
                   struct zf_err_list *errors)
{
    struct zf_err e;
    char message[sizeof e.message], where[sizeof e.where];
    fill(o, sentence, message, sizeof message);
    if (!place_of(o, place, where, sizeof where)[0] && !place_of(o, second, where, sizeof where)[0])
        snprintf(where, sizeof where, "%s", o->file ? o->file : "");
    zf_fail(&e, ZF_USAGE, where, "%s", message);
    zf_err_list_add(errors, &e);
}

/* All options from scratch that stand beside path, in one message. */
static void check_two_models(const struct zf_options *o, struct zf_err_list *errors)
{
    char message[1024];
    size_t n = 0;
    enum zf_option_id first = ZF_OPT_path;
    for (int i = 0; has_path(o) && i < SCRATCH_OPTIONS; i++) {
        if (!given(o, scratch_options[i])) continue;
        if (!n) first = scratch_options[i];
        n += (size_t)snprintf(message + n, sizeof message - n, "%s%s", n ? ", " : "", zf_option_table[scratch_options[i]].name);
    }
    if (!n) return;
    snprintf(message + n, sizeof message - n,
             " (for a model from scratch) beside path ({@path}); one of the two kinds is expected; take one out");
    report(o, first, ZF_OPT_path, message, errors);
}

static bool in_words(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *w = words; w; w = strchr(w, '|')) {
        if (*w == '|') w++;
        if (!strncmp(w, word, n) && (!w[n] || w[n] == '|')) return true;
    }
    return false;
}

static void check_limits(const struct zf_options *o, bool plan, struct zf_err_list *errors)
{
    char sentence[512];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *l = &limits[i];
        const char *name = zf_option_table[l->id].name;
        char *text = zf_options_get_text(o, l->id);
        if (text && !(plan && l->scope == NOT_PLAN) && !in_words(l->has, text)) {
            if (l->has[0] == '"')
                snprintf(sentence, sizeof sentence, "%s is set; %s; take it out", name, l->sentence);
            else
                snprintf(sentence, sizeof sentence, "%s is {%s}; %s is expected, as %s; change it or leave it out", name, name, l->has,
                         l->sentence);
            report(o, l->id, l->id, sentence, errors);
        }
        free(text);
    }
}

enum zf_status zf_options_validate(const struct zf_options *o, bool plan, struct zf_err_list *errors)
{
    bool simulated = plan || o->device == ZF_DEVICE_SIM;
    check_two_models(o, errors);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!(simulated && rules[i].scope == NOT_PLAN) && rules[i].broken(o))
            report(o, rules[i].place, rules[i].second, rules[i].sentence, errors);
    check_limits(o, plan, errors);
    return zf_err_list_status(errors);
}
