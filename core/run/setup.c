#include "core/run/setup.h"

#include "core/base/clock.h"
#include "core/data/cache.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEMPLATE_LIMIT = 1 << 20, TELL_EVERY = 5 /* seconds */ };

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
        if (zf_tokenizer_open(&s->tokenizer, path, &s->tokenizer_error) && zf_file_exists(tokenizer))
            zf_setup_note(s, s->tokenizer_error.where, "the tokenizer is not used: %s", s->tokenizer_error.message);
    }
    free(place);
    free(tokenizer);
    return status;
}

enum zf_status zf_setup_device(struct zf_device_choice *out, enum zf_choice_device wanted, struct zf_err *e)
{
    struct zf_device_info found;
    struct zf_err why = {0};
    bool any = wanted == ZF_DEVICE_AUTO;
    const enum zf_choice_device first = any ? ZF_DEVICE_CUDA : wanted;
    const char *name = zf_option_table[ZF_OPT_device].choices[first];
    *out = (struct zf_device_choice){.device = first, .name = name};
    enum zf_status s = zf_device_probe(&found, name, NULL, any ? &why : e);
    snprintf(out->description, sizeof out->description, "%s", found.description);
    if (!s || !any) return s;
    *out = (struct zf_device_choice){.device = ZF_DEVICE_HOST, .name = zf_option_table[ZF_OPT_device].choices[ZF_DEVICE_HOST]};
    if (found.description[0]) out->ignored = why;
    return ZF_OK;
}

enum zf_dtype zf_setup_dtype(enum zf_choice_dtype choice, const char *device, bool *native)
{
    struct zf_device_info info;
    zf_device_survey(device, &info);
    if (native) *native = info.bf16_products;
    return choice == ZF_DTYPE_BF16 || (choice == ZF_DTYPE_AUTO && info.bf16_products) ? ZF_BF16 : ZF_F32;
}

static void choose_device(struct zf_setup *s)
{
    struct zf_err *e = &s->no_device;
    char place[600];
    if (zf_setup_device(&s->device, s->o->device, e))
        snprintf(e->where, sizeof e->where, "%s", zf_origin_text(&s->o->origin[ZF_OPT_device], "device", place, sizeof place));
    else if (s->device.ignored.code)
        zf_setup_note(s, "device", "there is a GPU, and it is not used: %s", s->device.ignored.message);
}

static void choose_dtype(struct zf_setup *s)
{
    bool native;
    s->dtype = zf_setup_dtype(s->o->dtype, s->device.name, &native);
    if (s->dtype == ZF_BF16 && !native)
        zf_setup_note(s, "dtype", "this processor does not multiply bf16 in hardware; bf16 saves memory here, and f32 is faster");
    if (s->dtype == ZF_F32 && s->o->stochastic_rounding)
        zf_setup_note(s, "stochastic_rounding", "it has no effect on f32 weights, which are their own masters");
}

enum zf_status zf_setup_model(struct zf_setup *s, const struct zf_options *o, struct zf_err *e)
{
    *s = (struct zf_setup){.o = o, .ranks = s->ranks, .neighbours = s->neighbours, .micro_batch = s->micro_batch};
    choose_device(s);
    choose_dtype(s);
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

/* "VALUE=TEXT" or "TEXT", each of `choices`. */
static enum zf_status read_choices(struct zf_setup *s, struct zf_err *e)
{
    const struct zf_strings *list = &s->o->choices;
    if (!list->count) return ZF_OK;
    if (list->count == 1)
        return zf_fail(e, ZF_USAGE, "choices", "there is one; expected two or more to choose from, as VALUE=TEXT or TEXT");
    s->choice = zf_arena_alloc(&s->arena, list->count * sizeof *s->choice);
    if (!s->choice) return zf_fail_memory(e, "choices");
    s->choice_count = list->count;
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->list[i], *equals = strchr(text, '=');
        size_t size = equals ? (size_t)(equals - text) : strlen(text);
        while (equals && size && text[size - 1] == ' ') size--; /* `0 = bad`: the value is 0, the text " bad" */
        char *value = zf_arena_strndup(&s->arena, text, size);
        if (!value) return zf_fail_memory(e, "choices");
        s->choice[i] = (struct zf_choice){.value = value, .text = equals ? equals + 1 : value};
        if (!*s->choice[i].text) return zf_fail(e, ZF_USAGE, "choices", "`%s` has no text; expected VALUE=TEXT or TEXT", text);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(s->choice[k].value, value) || !strcmp(s->choice[k].text, s->choice[i].text))
                return zf_fail(e, ZF_USAGE, "choices", "`%s` and `%s` are the same choice; expected different ones", list->list[k], text);
    }
    return ZF_OK;
}

/* A template's file without its last line end and its BOM, which editors add. */
static enum zf_status read_template(char **out, const char *path, struct zf_err *e)
{
    if (!*path) return ZF_OK;
    size_t n;
    ZF_TRY(zf_file_read(out, &n, path, TEMPLATE_LIMIT, e));
    if (strlen(*out) != n) return zf_fail(e, ZF_USAGE, path, "a NUL byte at offset %zu; a template is text", strlen(*out));
    if (n && (*out)[n - 1] == '\n') (*out)[--n] = 0;
    if (n && (*out)[n - 1] == '\r') (*out)[--n] = 0;
    if (!strncmp(*out, "\xEF\xBB\xBF", 3)) memmove(*out, *out + 3, n - 2);
    return ZF_OK;
}

static void told(void *context, uint64_t bytes, uint64_t of)
{
    struct zf_setup *s = context;
    char done[32], all[32];
    if (zf_clock() - s->told < TELL_EVERY) return;
    s->told = zf_clock();
    fprintf(stderr, "zenflow-console: note: reading the data: %s of %s\n", zf_bytes_text(bytes, done, sizeof done),
            zf_bytes_text(of, all, sizeof all));
}

/* Options become the data room's enums by casts. */
#define SAME(option, data) _Static_assert((int)(option) == (int)(data), "the order of an option's values");
#define SAME_FORMAT(prefix, constant, text) SAME(ZF_FORMAT_##constant, ZF_DATA_##constant)
#define SAME_CHAT(prefix, constant, text) SAME(ZF_CHAT_TEMPLATE_##constant, ZF_CHAT_##constant)
#define SAME_LONG(prefix, constant, text) SAME(ZF_LONG_ROWS_##constant, ZF_LONG_##constant)
#define SAME_SWITCH(prefix, constant, text) SAME(ZF_ADD_BOS_##constant, ZF_SWITCH_##constant)

static int tokenising_threads(const struct zf_options *o)
{
    struct zf_device_info host;
    if (o->threads) return (int)o->threads;
    return zf_device_survey("host", &host) ? host.threads : 1;
}

static struct zf_dataset_options data_options(struct zf_setup *s, const struct zf_strings *files)
{
    ZF_CHOICES_format(SAME_FORMAT);
    ZF_CHOICES_chat_template(SAME_CHAT);
    ZF_CHOICES_long_rows(SAME_LONG);
    ZF_CHOICES_add_bos(SAME_SWITCH);
    const struct zf_options *o = s->o;
    return (struct zf_dataset_options){.files = (const char *const *)files->list,
                                       .file_count = files->count,
                                       .format = (enum zf_data_format)o->format,
                                       .tokenizer = s->tokenizer,
                                       .no_tokenizer = s->tokenizer ? NULL : &s->tokenizer_error,
                                       .folder = s->tokenizer_folder,
                                       .sequence_length = s->sequence_length,
                                       .context = s->config.context,
                                       .vocab = s->config.vocab,
                                       .documents = o->documents,
                                       .prompt = s->prompt ? s->prompt : o->prompt,
                                       .response = s->response ? s->response : o->response,
                                       .choices = s->choice,
                                       .choice_count = s->choice_count,
                                       .chat = (enum zf_chat_kind)o->chat_template,
                                       .long_rows = (enum zf_long_rows)o->long_rows,
                                       .show_only = s->rows_only,
                                       .add_bos = (enum zf_switch)o->add_bos,
                                       .train_all = o->train_on == ZF_TRAIN_ON_ALL,
                                       .pack = o->pack,
                                       .add_eos = o->add_eos,
                                       .skip_bad = o->skip_bad,
                                       .cache = o->cache,
                                       .shared = s->ranks > 1,
                                       .threads = tokenising_threads(o),
                                       .progress = told,
                                       .progress_context = s};
}

/* Bytes that the rows of these files, read `times` times, will take in memory at most, and the longest row of `tokens` files: from sizes
 * and headers alone, for the early refusal. Rows in a file take none. */
static void estimate(const struct zf_setup *s, const struct zf_strings *files, size_t times, size_t *bytes, size_t *longest)
{
    size_t size = 0, tokens = 0;
    struct zf_err ignored;
    enum zf_data_format format = (enum zf_data_format)s->o->format;
    if (files->count && zf_data_format_find(&format, files->list[0], &ignored)) format = ZF_DATA_TEXT; /* to be refused */
    for (size_t i = 0; i < files->count; i++) {
        struct stat st;
        if (stat(files->list[i], &st) || !S_ISREG(st.st_mode)) continue;
        struct zf_safetensors t;
        size += (size_t)st.st_size;
        if (format == ZF_DATA_TOKENS && !zf_st_open(&t, files->list[i], &ignored)) {
            const struct zf_st_tensor *ids = zf_st_find(&t, "input_ids");
            if (ids && ids->rank == 2) {
                tokens += ids->elements;
                if (ids->shape[1] > *longest) *longest = ids->shape[1];
            }
            zf_st_close(&t);
        } else {
            /* a token a byte with `bytes`, two or more bytes a token on average with others */
            tokens += s->tokenizer_folder ? (size_t)st.st_size / 2 : (size_t)st.st_size;
            if (s->sequence_length > *longest) *longest = s->sequence_length;
        }
    }
    if (!zf_cache_used(s->o->cache, s->ranks > 1 ? UINT64_MAX : size)) *bytes += times * tokens * sizeof(int32_t);
}

void zf_setup_limits(const struct zf_setup *s, struct zf_memory_limits *out)
{
    size_t limit = (size_t)s->o->memory_limit, left, all;
    zf_memory_limits_read(out, "/", limit);
    if (s->neighbours > 1) zf_memory_limits_share(out, (size_t)s->neighbours);
    if (s->no_device.code || !zf_device_room(s->device.name, &left, &all)) return;
    out->device_total = all;
    out->device_option = limit && limit < left;
    out->device = out->device_option ? limit : left;
    snprintf(out->device_name, sizeof out->device_name, "%s", s->device.description);
}

/* The plan under a strategy. */
static void plan_policy(struct zf_setup *s, enum zf_choice_strategy strategy)
{
    struct zf_options o = *s->o; /* shares what it points to */
    o.strategy = s->strategy = strategy;
    s->policy = zf_policy_of(&o, s->dtype, zf_policy_first_interval(&o));
    zf_pipeline_measure_rank(&s->request.halves, &s->params, &s->policy, s->dtype, s->ranks ? s->ranks : 1);
    zf_memory_plan_make(&s->plan, &s->request, s->limits.least);
}

/* What there is: of the host, and of a GPU if it computes. memory_limit counts for each. */
/* Other policies, which need less of a GPU. */
static void offer_choices(struct zf_setup *s)
{
    static const struct {
        enum zf_choice_strategy strategy;
        double ratio; /* 0: as it is */
        const char *text;
    } others[] = {{ZF_STRATEGY_ZENFLOW, 0, "strategy = zenflow"},
                  {ZF_STRATEGY_ZENFLOW, 0.05, "topk_ratio = 0.05"},
                  {ZF_STRATEGY_ZENFLOW, 0.01, "topk_ratio = 0.01"},
                  {ZF_STRATEGY_ZERO_OFFLOAD, 0, "strategy = zero_offload"}};
    bool selects = zf_policy_selects(&s->policy);
    s->request.choices = s->choice_of_memory;
    s->request.choice_count = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct zf_options o = *s->o;
        bool same = others[i].ratio > 0;
        if (same ? !selects || o.topk_ratio <= others[i].ratio
                 : (selects ? others[i].strategy == ZF_STRATEGY_ZENFLOW : s->strategy == others[i].strategy))
            continue;
        struct zf_plan_choice *c = &s->choice_of_memory[s->request.choice_count++];
        o.strategy = same ? s->strategy : others[i].strategy;
        if (same) o.topk_ratio = others[i].ratio;
        struct zf_policy policy = zf_policy_of(&o, s->dtype, zf_policy_first_interval(&o));
        snprintf(c->text, sizeof c->text, "%s", others[i].text);
        zf_pipeline_measure(&c->halves, &s->params, &policy, s->dtype);
    }
}

static bool fits(const struct zf_setup *s)
{
    return zf_memory_plan_fits(&s->plan, &s->request, s->limits.least);
}

static enum zf_status plan(struct zf_setup *s, size_t longest, size_t data_bytes, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    s->request = (struct zf_memory_request){.config = &s->config,
                                            .params = &s->params,
                                            .batch_size = s->ranks ? ((size_t)o->batch_size + (size_t)s->ranks - 1) / (size_t)s->ranks
                                                                   : (size_t)o->batch_size,
                                            .micro_batch = s->micro_batch ? s->micro_batch : (size_t)o->micro_batch,
                                            .sequence_length = longest,
                                            .data_bytes = data_bytes,
                                            .loaders = 2,
                                            .training = true,
                                            .recompute = o->recompute,
                                            .dtype = s->dtype,
                                            .apart = s->limits.device < SIZE_MAX,
                                            .device_limit = s->limits.device};
    plan_policy(s, o->strategy == ZF_STRATEGY_AUTO ? ZF_STRATEGY_GPU_ONLY : o->strategy);
    if (o->strategy == ZF_STRATEGY_AUTO && !fits(s)) {
        struct zf_memory_plan gpu_only = s->plan;
        plan_policy(s, ZF_STRATEGY_ZENFLOW);
        bool smaller = s->request.apart ? s->plan.device_total < gpu_only.device_total : s->plan.total < gpu_only.total;
        if (!smaller) plan_policy(s, ZF_STRATEGY_GPU_ONLY); /* where both halves share one memory it is no smaller */
    }
    if (s->rows_only) return ZF_OK;
    if (s->request.apart && !fits(s)) offer_choices(s);
    return zf_memory_plan_check(&s->plan, &s->request, &s->limits, e);
}

static enum zf_status split_valid(struct zf_setup *s, struct zf_err *e)
{
    uint64_t held = (uint64_t)(s->o->valid_split * (double)s->all.rows + 0.5);
    if (s->o->valid_split > 0 && held == 0) held = 1;
    if (s->o->valid_split > 0 && s->all.rows == 1) zf_setup_note(s, "valid_split", "there is a single row; nothing is left to validate on");
    if (held >= s->all.rows) held = s->all.rows - 1;
    ZF_TRY(zf_dataset_slice(&s->train, &s->all, 0, s->all.rows - held, e));
    return held ? zf_dataset_slice(&s->valid, &s->all, s->all.rows - held, held, e) : ZF_OK;
}

enum zf_status zf_setup_steps(struct zf_setup *s, struct zf_err *e)
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

static enum zf_status open_dataset(struct zf_setup *s, struct zf_dataset *out, const struct zf_strings *files, const char *name,
                                   const volatile int *stop, struct zf_err *e)
{
    const struct zf_dataset_options d = data_options(s, files);
    ZF_TRY(zf_dataset_open(out, &d, stop, e));
    if (out->note[0]) zf_setup_note(s, name, "%s", out->note);
    return ZF_OK;
}

/* The validation files once more, each record with each of the choices. */
static enum zf_status open_choices(struct zf_setup *s, const volatile int *stop, struct zf_err *e)
{
    if (!s->choice_count || !s->o->valid.count) return ZF_OK;
    struct zf_dataset_options d = data_options(s, &s->o->valid);
    d.every_choice = true;
    d.train_all = false;                                              /* an answer is scored, not its question */
    if (d.long_rows != ZF_LONG_ERROR) d.long_rows = ZF_LONG_TRUNCATE; /* a row for each choice, whatever its length */
    return zf_dataset_open(&s->choices, &d, stop, e);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static enum zf_status read_data(struct zf_setup *s, const volatile int *stop, struct zf_err *e)
{
    const struct zf_options *o = s->o;
    size_t bytes = 0, longest = 0;
    if (s->no_device.code && !s->rows_only) return *e = s->no_device, e->code;
    s->told = zf_clock();
    ZF_TRY(read_choices(s, e));
    ZF_TRY(read_template(&s->prompt, o->prompt_file, e));
    ZF_TRY(read_template(&s->response, o->response_file, e));
    zf_setup_limits(s, &s->limits);
    estimate(s, &o->train, 1, &bytes, &longest);
    estimate(s, &o->valid, 1 + s->choice_count, &bytes, &longest);
    ZF_TRY(plan(s, longest ? longest : s->sequence_length, bytes, e));

    ZF_TRY(open_dataset(s, &s->all, &o->train, "train", stop, e));
    for (size_t i = 0; i < o->valid.count; i++)
        for (size_t k = 0; k < o->train.count; k++)
            if (!strcmp(o->valid.list[i], o->train.list[k]))
                zf_setup_note(s, "valid", "%s is trained on, too; its loss says nothing about other text", o->valid.list[i]);
    if (o->valid.count) {
        ZF_TRY(open_dataset(s, &s->valid, &o->valid, "valid", stop, e));
        s->train = s->all;
        ZF_TRY(open_choices(s, stop, e));
    } else {
        ZF_TRY(split_valid(s, e));
    }
    if (!s->train.label_tokens)
        return zf_fail(e, ZF_FORMAT, "train", "no token of the training rows is a target; there is nothing to learn");
    if (s->valid.rows && !s->valid.label_tokens)
        return zf_fail(e, ZF_FORMAT, "valid", "no token of the validation rows is a target; give more rows, with valid_split or valid");
    s->longest_row = longest = most(most(s->all.longest, s->valid.longest), s->choices.longest);
    ZF_TRY(zf_setup_steps(s, e));
    size_t held = s->all.bytes + s->valid.bytes + s->choices.bytes; /* a slice holds nothing */
    /* what the data takes is resident by now: it counts in the plan, not once more in what is there */
    zf_setup_limits(s, &s->limits);
    s->limits.least = s->limits.least > SIZE_MAX - held ? SIZE_MAX : s->limits.least + held;
    return plan(s, longest, held, e);
}

enum zf_status zf_setup_data(struct zf_setup *s, const volatile int *stop, struct zf_err *e)
{
    double from = zf_clock_cpu();
    ZF_TRY(read_data(s, stop, e));
    s->data_cpu = zf_clock_cpu() - from;
    return ZF_OK;
}

void zf_setup_free(struct zf_setup *s)
{
    zf_dataset_close(&s->valid);
    zf_dataset_close(&s->all);
    zf_dataset_close(&s->choices);
    free(s->prompt);
    free(s->response);
    zf_tokenizer_close(s->tokenizer);
    zf_hf_close(&s->hf);
    json_decref(s->config_json);
    zf_err_list_free(&s->notes);
    zf_arena_free(&s->arena);
    *s = (struct zf_setup){0};
}
