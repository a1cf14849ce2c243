#include "core/run/setup.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { READING = 6 }; /* bytes of memory a byte of text while it is read; 5.5 were measured */

void zf_setup_note(struct zf_setup *s, const char *where, const char *fmt, ...)
{
    struct zf_err note;
    va_list ap;
    va_start(ap, fmt);
    zf_vfail(&note, ZF_OK, where, fmt, ap);
    va_end(ap);
    zf_err_list_add(&s->notes, &note);
}

enum zf_status zf_setup_freeze(struct zf_params *p, const struct zf_strings *patterns, struct zf_err *e)
{
    for (size_t i = 0; i < patterns->count; i++) {
        size_t matched = 0;
        for (size_t k = 0; k < p->count; k++)
            if (!fnmatch(patterns->list[i], p->list[k].name, 0)) p->list[k].frozen = true, matched++;
        if (!matched)
            return zf_fail(e, ZF_USAGE, "freeze", "the pattern %s matches no parameter; names look like %s; * and ? are wildcards",
                           patterns->list[i], p->list[p->count / 2].name);
    }
    for (size_t k = 0; k < p->count; k++)
        if (!p->list[k].frozen) return ZF_OK;
    return zf_fail(e, ZF_USAGE, "freeze", "every parameter is frozen; nothing is left to train");
}

/* From scratch: the config.json that the options stand for. The rest are the family's defaults, which reading it fills in. */
static json_t *scratch_config(const struct zf_options *o, size_t vocab, int eos)
{
    long long h = o->hidden, L = o->layers, H = o->heads, KV = o->kv_heads ? o->kv_heads : H, V = (long long)vocab;
    long long context = o->context ? o->context : o->sequence_length ? o->sequence_length : 1024;
    long long ffn = o->ffn ? o->ffn : 4 * h, glu = o->ffn ? o->ffn : (8 * h / 3 + 63) / 64 * 64;
    json_t *j;
    switch (o->family) {
    case ZF_SCRATCH_GPT2:
        j = json_pack("{s:s s:I s:I s:I s:I s:I s:I s:s}", "model_type", "gpt2", "n_layer", L, "n_embd", h, "n_head", H, "n_inner", ffn,
                      "vocab_size", V, "n_positions", context, "activation_function", "gelu_new");
        break;
    case ZF_SCRATCH_OPT:
        j = json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I s:b s:s}", "model_type", "opt", "num_hidden_layers", L, "hidden_size", h,
                      "num_attention_heads", H, "ffn_dim", ffn, "vocab_size", V, "max_position_embeddings", context, "word_embed_proj_dim",
                      h, "do_layer_norm_before", 1, "activation_function", "relu");
        break;
    default:
        j = json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I s:s s:b s:f s:I}", "model_type",
                      o->family == ZF_SCRATCH_LLAMA   ? "llama"
                      : o->family == ZF_SCRATCH_QWEN2 ? "qwen2"
                                                      : "qwen3",
                      "num_hidden_layers", L, "hidden_size", h, "num_attention_heads", H, "num_key_value_heads", KV, "intermediate_size",
                      glu, "vocab_size", V, "max_position_embeddings", context, "hidden_act", "silu", "tie_word_embeddings", 1,
                      "rope_theta", o->family == ZF_SCRATCH_LLAMA ? 1e4 : 1e6, "head_dim",
                      o->head_dim ? (long long)o->head_dim : h / (H ? H : 1));
    }
    if (!j) return NULL;
    if (eos >= 0) {
        json_object_set_new(j, "eos_token_id", json_integer(eos));
        json_object_set_new(j, "bos_token_id", json_integer(eos));
    }
    return j;
}

static enum zf_status from_scratch(struct zf_setup *s, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    bool bytes = !strcmp(o->tokenizer, "bytes");
    ZF_TRY(zf_tokenizer_open(&s->tokenizer, o->tokenizer, e));
    if (!bytes) s->tokenizer_folder = o->tokenizer;
    size_t size = zf_tokenizer_size(s->tokenizer), vocab = o->vocab ? (size_t)o->vocab : size;
    int eos = zf_tokenizer_eos(s->tokenizer);
    if (eos >= 0 && (size_t)eos >= vocab) {
        zf_setup_note(s, "vocab", "%zu leaves no room for the end-of-text token (id %d); none is added", vocab, eos);
        eos = -1;
    }
    if (vocab < (bytes ? 256 : size))
        return zf_fail(e, ZF_USAGE, "vocab", "%zu is smaller than the tokenizer's %zu tokens; leave it out to take the tokenizer's size",
                       vocab, size);
    json_t *j = scratch_config(o, vocab, eos);
    if (!j) return zf_fail_memory(e, "the model's configuration");
    enum zf_status status = zf_model_config_read(&s->config, j, "[model]", e);
    json_decref(j);
    if (status) return e->code = ZF_USAGE; /* options, not a file */
    s->config_json = zf_model_config_write(&s->config);
    return s->config_json ? ZF_OK : zf_fail_memory(e, "the model's configuration");
}

static enum zf_status from_folder(struct zf_setup *s, struct zf_err *e)
{
    const char *path = s->o->path;
    ZF_TRY(zf_hf_open_config(&s->hf, path, e));
    char *place = zf_path_join(path, "config.json"), *tokenizer = zf_path_join(path, "tokenizer.json");
    enum zf_status status = place && tokenizer ? zf_model_config_read(&s->config, s->hf.config, place, e) : zf_fail_memory(e, path);
    if (!status) {
        s->config_json = json_incref(s->hf.config);
        s->tokenizer_folder = path;
        if (!zf_file_exists(tokenizer))
            zf_fail(&s->tokenizer_error, ZF_FORMAT, path, "it has no tokenizer.json; text needs one, files of format tokens do not");
        else if (zf_tokenizer_open(&s->tokenizer, path, &s->tokenizer_error))
            zf_setup_note(s, s->tokenizer_error.where, "the tokenizer is not used: %s", s->tokenizer_error.message);
    }
    free(place);
    free(tokenizer);
    return status;
}

enum zf_status zf_setup_model(struct zf_setup *s, const struct zf_options *o, struct zf_err *e)
{
    *s = (struct zf_setup){.o = o};
    ZF_TRY(o->path[0] ? from_folder(s, e) : from_scratch(s, e));
    ZF_TRY(zf_params_build(&s->params, &s->config, &s->arena, e));
    ZF_TRY(zf_setup_freeze(&s->params, &o->freeze, e));
    if (s->tokenizer && zf_tokenizer_note(s->tokenizer)[0]) zf_setup_note(s, "tokenizer", "%s", zf_tokenizer_note(s->tokenizer));
    if ((size_t)o->sequence_length > s->config.context)
        return zf_fail(e, ZF_USAGE, "sequence_length",
                       "%lld is more than the model's context of %zu tokens; set sequence_length to at most that",
                       (long long)o->sequence_length, s->config.context);
    s->sequence_length = o->sequence_length ? (size_t)o->sequence_length : s->config.context < 1024 ? s->config.context : 1024;
    return ZF_OK;
}

enum zf_status zf_setup_weights(struct zf_setup *s, struct zf_err *e)
{
    if (!s->o->path[0]) return ZF_OK;
    zf_hf_close(&s->hf);
    ZF_TRY(zf_hf_open(&s->hf, s->o->path, e));
    if (s->hf.note[0]) zf_setup_note(s, s->o->path, "%s", s->hf.note);
    char note[512];
    struct zf_weight_source *found = calloc(s->params.count, sizeof *found);
    if (!found) return zf_fail_memory(e, "the list of tensors");
    enum zf_status status = zf_sources_find(found, &s->config, &s->params, &s->hf, note, sizeof note, e);
    if (!status && note[0]) zf_setup_note(s, s->o->path, "%s", note);
    free(found);
    return status;
}

static struct zf_dataset_options data_options(const struct zf_setup *s, const struct zf_strings *files)
{
    const struct zf_options *o = s->o;
    return (struct zf_dataset_options){.files = (const char *const *)files->list,
                                       .file_count = files->count,
                                       .format = (enum zf_data_format)o->format,
                                       .tokenizer = s->tokenizer,
                                       .sequence_length = s->sequence_length,
                                       .context = s->config.context,
                                       .vocab = s->config.vocab,
                                       .documents = o->documents,
                                       .add_eos = o->add_eos,
                                       .skip_bad = o->skip_bad};
}

static bool is_tokens(const struct zf_setup *s, const char *file)
{
    const char *dot = strrchr(file, '.');
    return s->o->format == ZF_FORMAT_TOKENS || (s->o->format == ZF_FORMAT_AUTO && dot && !strcasecmp(dot, ".safetensors"));
}

/* Bytes that reading these files will take at most, and the longest row of `tokens` files: from sizes and headers alone, for the early
 * refusal. */
static void estimate(const struct zf_setup *s, const struct zf_strings *files, size_t *bytes, size_t *longest)
{
    for (size_t i = 0; i < files->count; i++) {
        struct stat st;
        if (stat(files->list[i], &st) || !S_ISREG(st.st_mode)) continue;
        struct zf_safetensors t;
        struct zf_err ignored;
        if (is_tokens(s, files->list[i]) && !zf_st_open(&t, files->list[i], &ignored)) {
            const struct zf_st_tensor *ids = zf_st_find(&t, "input_ids");
            if (ids && ids->rank == 2) {
                *bytes += 2 * ids->elements * sizeof(int32_t);
                if (ids->shape[1] > *longest) *longest = ids->shape[1];
            }
            zf_st_close(&t);
        } else {
            /* int32 a token: a byte each with `bytes`, two or more on average with others */
            *bytes += (s->tokenizer_folder ? 2 : sizeof(int32_t)) * (size_t)st.st_size;
            if (s->sequence_length > *longest) *longest = s->sequence_length;
        }
    }
}

/* A tokenizer that this version cannot read matters only where there is text. */
static enum zf_status need_tokenizer(const struct zf_setup *s, const struct zf_strings *files, struct zf_err *e)
{
    for (size_t i = 0; !s->tokenizer && i < files->count; i++)
        if (!is_tokens(s, files->list[i])) {
            *e = s->tokenizer_error;
            return e->code;
        }
    return ZF_OK;
}

static enum zf_status plan(struct zf_setup *s, size_t longest, size_t data_bytes, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    s->request = (struct zf_memory_request){.config = &s->config,
                                            .params = &s->params,
                                            .batch_size = (size_t)o->batch_size,
                                            .micro_batch = (size_t)o->micro_batch,
                                            .sequence_length = longest,
                                            .data_bytes = data_bytes,
                                            .training = true};
    zf_memory_plan_make(&s->plan, &s->request, s->limits.least);
    return zf_memory_plan_check(&s->plan, &s->request, &s->limits, e);
}

static void split_valid(struct zf_setup *s)
{
    size_t held = (size_t)(s->o->valid_split * (double)s->all.rows + 0.5);
    if (s->o->valid_split > 0 && held == 0) held = 1;
    if (held >= s->all.rows) held = s->all.rows - 1;
    zf_dataset_slice(&s->train, &s->all, 0, s->all.rows - held);
    if (held) zf_dataset_slice(&s->valid, &s->all, s->all.rows - held, held);
}

/* `epochs` or `steps` -> both numbers. */
static enum zf_status count_steps(struct zf_setup *s, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    uint64_t batch = (uint64_t)o->batch_size;
    if (o->steps) {
        s->steps = (uint64_t)o->steps;
        if (s->steps > UINT64_MAX / batch)
            return zf_fail(e, ZF_USAGE, "steps", "%llu steps of %llu rows are too many", (unsigned long long)s->steps,
                           (unsigned long long)batch);
        s->total_rows = s->steps * batch;
        return ZF_OK;
    }
    double rows = o->epochs * (double)s->train.rows;
    s->total_rows = (uint64_t)rows + ((double)(uint64_t)rows < rows);
    if (!s->total_rows) s->total_rows = 1;
    s->steps = (s->total_rows + batch - 1) / batch;
    return ZF_OK;
}

/* Reading text takes more for a while than what stays: the file, the pieces it is cut into, the ids as they grow. */
static enum zf_status check_reading(const struct zf_setup *s, struct zf_err *e)
{
    const struct zf_strings *both[] = {&s->o->train, &s->o->valid};
    size_t most = 0;
    struct stat st;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < both[i]->count; k++)
            if (!is_tokens(s, both[i]->list[k]) && !stat(both[i]->list[k], &st) && S_ISREG(st.st_mode)) most += (size_t)st.st_size;
    most *= READING;
    if (most <= s->limits.least) return ZF_OK;
    char need[32], have[32];
    return zf_fail(e, ZF_MEMORY, "train",
                   "reading this data takes about %s, but %s are left: %s; train on fewer or smaller files, or give them as `tokens`",
                   zf_bytes_text(most, need, sizeof need), zf_bytes_text(s->limits.least, have, sizeof have), s->limits.least_name);
}

enum zf_status zf_setup_data(struct zf_setup *s, const volatile int *stop, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    size_t bytes = 0, longest = 0;
    zf_memory_limits_read(&s->limits, "/", (size_t)o->memory_limit);
    estimate(s, &o->train, &bytes, &longest);
    estimate(s, &o->valid, &bytes, &longest);
    ZF_TRY(check_reading(s, e));
    ZF_TRY(plan(s, longest ? longest : s->sequence_length, bytes, e));

    ZF_TRY(need_tokenizer(s, &o->train, e));
    ZF_TRY(need_tokenizer(s, &o->valid, e));
    struct zf_dataset_options d = data_options(s, &o->train);
    ZF_TRY(zf_dataset_open(&s->all, &d, stop, e));
    if (s->all.note[0]) zf_setup_note(s, "train", "%s", s->all.note);
    if (o->valid.count) {
        d = data_options(s, &o->valid);
        ZF_TRY(zf_dataset_open(&s->valid, &d, stop, e));
        if (s->valid.note[0]) zf_setup_note(s, "valid", "%s", s->valid.note);
        s->train = s->all;
    } else {
        split_valid(s);
    }
    if (!s->train.label_tokens)
        return zf_fail(e, ZF_FORMAT, "train", "no token of the training rows is a target; there is nothing to learn");
    if (s->valid.rows && !s->valid.label_tokens)
        return zf_fail(e, ZF_FORMAT, "valid", "no token of the validation rows is a target; give more rows, with valid_split or valid");
    longest = s->all.longest > s->valid.longest ? s->all.longest : s->valid.longest;
    s->sequence_length = longest;
    ZF_TRY(count_steps(s, e));
    size_t held = s->all.bytes + (o->valid.count ? s->valid.bytes : 0);
    /* what the data takes is resident by now: it counts in the plan, not once more in what is there */
    zf_memory_limits_read(&s->limits, "/", (size_t)o->memory_limit);
    s->limits.least = s->limits.least > SIZE_MAX - held ? SIZE_MAX : s->limits.least + held;
    return plan(s, longest, held, e);
}

void zf_setup_free(struct zf_setup *s)
{
    if (s->o && s->o->valid.count) zf_dataset_close(&s->valid);
    zf_dataset_close(&s->all);
    zf_tokenizer_close(s->tokenizer);
    zf_hf_close(&s->hf);
    json_decref(s->config_json);
    zf_err_list_free(&s->notes);
    zf_arena_free(&s->arena);
    *s = (struct zf_setup){0};
}
