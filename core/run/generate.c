#include "core/run/generate.h"

#include "checkpoints/hf.h"
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/base/show.h"
#include "core/base/utf8.h"
#include "core/plan/memory.h"
#include "core/run/checkpoint_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct chance {
    double p;
    int32_t id;
};

static int likeliest_first(const void *a, const void *b)
{
    const struct chance *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : (x->id > y->id) - (x->id < y->id);
}

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

int32_t zf_sample_token(const float *logits, size_t n, double temperature, double top_p, double draw)
{
    int32_t best = likeliest(logits, n);
    if (temperature <= 0) return best;
    struct chance *c = malloc(n * sizeof *c);
    if (!c) return -1;
    double sum = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        c[i] = (struct chance){exp(((double)logits[i] - logits[best]) / temperature), (int32_t)i};
        sum += c[i].p;
    }
    size_t count = n;
    if (top_p < 1) { /* the smallest set of the likeliest tokens that reaches top_p */
        qsort(c, n, sizeof *c, likeliest_first);
        for (count = 0; count < n && kept < top_p * sum; count++) kept += c[count].p;
        sum = kept;
    }
    double at = draw * sum;
    size_t i = 0;
    while (i + 1 < count && at >= c[i].p) at -= c[i++].p;
    int32_t id = c[i].id;
    free(c);
    return id;
}

struct job {
    const struct zf_generate *g;
    char *folder; /* of the model; NULL: it is in `saved` */
    struct zf_hf hf;
    struct zf_saved_model saved;
    struct zf_tokenizer *tokenizer; /* NULL: the folder has none; then ids only */
    struct zf_device *device;
    struct zf_model model;
    struct zf_cache *cache;
    struct zf_ids ids;
    size_t prompt;
    size_t printed; /* bytes of the text so far */
    float *logits;
};

static enum zf_status read_ids(struct job *j, const char *text, struct zf_err *e)
{
    for (const char *at = text; *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || (size_t)id >= j->model.config.vocab || (*end && *end != ','))
            return zf_fail(e, ZF_USAGE, "--ids", "`%s` begins with no id from 0 to %zu; give them as 1,2,3", at, j->model.config.vocab - 1);
        ZF_TRY(zf_ids_push(&j->ids, (int32_t)id, e));
        at = *end ? end + 1 : end;
    }
    return ZF_OK;
}

static enum zf_status open_tokenizer(struct job *j, struct zf_err *e)
{
    const char *folder = j->folder ? j->folder : zf_saved_model_tokenizer(&j->saved);
    char *path = folder ? zf_path_join(folder, "tokenizer.json") : NULL;
    bool there = path && zf_file_exists(path);
    free(path);
    enum zf_status s = there || !folder ? zf_tokenizer_open(&j->tokenizer, folder ? folder : "bytes", e) : ZF_OK;
    return s && j->g->ids ? ZF_OK : s; /* ids need none: without it ids are printed */
}

static enum zf_status read_prompt(struct job *j, struct zf_err *e)
{
    const struct zf_generate *g = j->g;
    if (g->ids)
        ZF_TRY(read_ids(j, g->ids, e));
    else if (j->tokenizer) {
        if (zf_tokenizer_encode(j->tokenizer, g->prompt, strlen(g->prompt), true, true, &j->ids, e))
            return zf_fail(e, e->code, "--prompt", "%s", e->message);
    } else
        return zf_fail(e, ZF_FORMAT, g->model, "its model has no tokenizer.json; give the prompt as token ids with --ids 1,2,3");
    if (!j->ids.count && j->model.config.bos_id >= 0) ZF_TRY(zf_ids_push(&j->ids, j->model.config.bos_id, e));
    if (!j->ids.count) return zf_fail(e, ZF_USAGE, "--prompt", "it has no token; give some text");
    for (size_t i = 0; i < j->ids.count; i++)
        if ((size_t)j->ids.ids[i] >= j->model.config.vocab)
            return zf_fail(e, ZF_FORMAT, g->model, "the tokenizer gives id %d; the model has %zu tokens", j->ids.ids[i],
                           j->model.config.vocab);
    if (j->ids.count >= j->model.config.context)
        return zf_fail(e, ZF_USAGE, "--prompt", "it has %zu tokens; the model's context is %zu", j->ids.count, j->model.config.context);
    j->prompt = j->ids.count;
    return ZF_OK;
}

static enum zf_status check_memory(const struct job *j, size_t room, struct zf_err *e)
{
    struct zf_memory_limits limits;
    struct zf_memory_plan plan;
    struct zf_memory_request r = {.config = &j->model.config,
                                  .params = &j->model.params,
                                  .batch_size = 1,
                                  .micro_batch = 1,
                                  .sequence_length = room,
                                  .dtype = j->g->dtype};
    zf_memory_limits_read(&limits, "/", 0);
    zf_memory_plan_make(&plan, &r, limits.least);
    return zf_memory_plan_check(&plan, &r, &limits, e);
}

/* The text so far. What is no character is U+FFFD, also where the tokenizer gives bytes as they are: an export's does that, too. */
static enum zf_status text_so_far(const struct job *j, char **out, size_t *size, struct zf_err *e)
{
    char *raw;
    size_t n, bad;
    ZF_TRY(zf_tokenizer_decode(j->tokenizer, j->ids.ids, j->ids.count, true, &raw, &n, e));
    FILE *to = open_memstream(out, size);
    for (size_t at = 0, length; to && at < n; at += length) {
        length = zf_utf8_length((const unsigned char *)raw + at, n - at, &bad);
        if (length)
            fwrite(raw + at, 1, length, to);
        else
            fputs("\xef\xbf\xbd", to), length = bad;
    }
    free(raw);
    if (!to || fclose(to)) return zf_fail_memory(e, "the text");
    return ZF_OK;
}

/* Prints what the newest token added; an unfinished character waits for its other bytes. */
static enum zf_status stream(struct job *j, FILE *out, bool last, struct zf_err *e)
{
    char *text;
    size_t size, end;
    if (!j->tokenizer) {
        fprintf(out, "%s%d", j->printed++ ? " " : "", j->ids.ids[j->ids.count - 1]);
        return ZF_OK;
    }
    ZF_TRY(text_so_far(j, &text, &size, e));
    end = size;
    static const char replacement[] = "\xef\xbf\xbd";
    while (!last && end >= 3 && !memcmp(text + end - 3, replacement, 3)) end -= 3;
    if (end > j->printed) {
        zf_show_terminal(out, text + j->printed, end - j->printed);
        j->printed = end;
    }
    fflush(out);
    free(text);
    return ZF_OK;
}

static bool ends(const struct job *j, int32_t id)
{
    for (size_t i = 0; i < j->model.config.eos_count; i++)
        if (id == j->model.config.eos_ids[i]) return true;
    return j->tokenizer && id == zf_tokenizer_eos(j->tokenizer);
}

/* The first token comes with the prompt. */
static void tell_time(const struct job *j, double prompt, double rest)
{
    size_t made = j->ids.count - j->prompt, after = made ? made - 1 : 0;
    fprintf(stderr, "%szenflow-console: note: prompt of %zu tokens in %.3f s; %zu more in %.3f s", j->g->json ? "" : "\n", j->prompt,
            prompt, after, rest);
    if (after && rest > 0) fprintf(stderr, ", %.1f tokens/s", (double)after / rest);
    fputc('\n', stderr);
}

static enum zf_status produce(struct job *j, size_t tokens, FILE *out, struct zf_err *e)
{
    const struct zf_generate *g = j->g;
    size_t vocab = j->model.config.vocab, fresh = j->ids.count;
    double began = zf_clock(), first = began;
    if (!g->json && j->tokenizer) ZF_TRY(stream(j, out, false, e));
    for (size_t i = 0; i < tokens; i++) {
        ZF_TRY(zf_cache_append(j->cache, j->ids.ids + j->ids.count - fresh, fresh, j->logits, e));
        fresh = 1;
        for (size_t k = 0; k < vocab; k++)
            if (!isfinite(j->logits[k]))
                return zf_fail(e, ZF_NUMERIC, g->model, "the logits of token %zu are not finite; the weights are damaged", j->ids.count);
        int32_t id = zf_sample_token(j->logits, vocab, g->temperature, g->top_p, zf_uniform((uint64_t)g->seed, ZF_STREAM_SAMPLE, 0, i));
        if (id < 0) return zf_fail_memory(e, "the chances of the next token");
        if (!i) first = zf_clock();
        if (ends(j, id)) break;
        ZF_TRY(zf_ids_push(&j->ids, id, e));
        if (!g->json) ZF_TRY(stream(j, out, false, e));
        if (ferror(out)) return zf_fail(e, ZF_IO, NULL, "nobody reads the output any more");
    }
    if (!g->json && j->tokenizer) ZF_TRY(stream(j, out, true, e));
    if (g->time) tell_time(j, first - began, zf_clock() - first);
    return ZF_OK;
}

static enum zf_status print_json(const struct job *j, FILE *out, struct zf_err *e)
{
    json_t *prompt = json_array(), *ids = json_array(), *o = json_object();
    for (size_t i = 0; i < j->ids.count; i++) json_array_append_new(i < j->prompt ? prompt : ids, json_integer(j->ids.ids[i]));
    json_object_set_new(o, "prompt_ids", prompt);
    json_object_set_new(o, "ids", ids);
    if (j->tokenizer) {
        char *text;
        size_t size;
        enum zf_status s = text_so_far(j, &text, &size, e);
        if (s) {
            json_decref(o);
            return s;
        }
        json_object_set_new(o, "text", json_stringn(text, size));
        free(text);
    }
    json_dumpf(o, out, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    return ZF_OK;
}

static enum zf_status run(struct job *j, FILE *out, struct zf_err *e)
{
    const struct zf_generate *g = j->g;
    struct zf_model_config config;
    ZF_TRY(zf_find_model(&j->folder, &j->saved, g->model, NULL, e));
    if (j->folder) ZF_TRY(zf_hf_open(&j->hf, j->folder, e));
    if (j->folder) ZF_TRY(zf_model_config_read(&config, j->hf.config, j->folder, e));
    if (!j->folder) config = j->saved.config;
    ZF_TRY(open_tokenizer(j, e));
    j->model.config = config;
    ZF_TRY(read_prompt(j, e));
    size_t room = j->ids.count + (size_t)g->tokens;
    if (room > config.context) room = config.context;
    struct zf_params params;
    ZF_TRY(zf_params_build(&params, &config, &j->model.arena, e));
    j->model.params = params;
    ZF_TRY(check_memory(j, room, e));
    zf_arena_free(&j->model.arena);
    ZF_TRY(zf_device_open(&j->device, g->device, &(struct zf_device_options){.threads = (int)g->threads}, e));
    ZF_TRY(j->folder ? zf_model_open(&j->model, &config, &j->hf, 0, g->dtype, false, j->device, e)
                     : zf_model_open_blank(&j->model, &config, g->dtype, false, j->device, e));
    if (!j->folder) ZF_TRY(zf_saved_model_load(&j->saved, &j->model, e));
    ZF_TRY(zf_cache_new(&j->cache, &j->model, room, e));
    if (!(j->logits = malloc(config.vocab * sizeof *j->logits))) return zf_fail_memory(e, "the logits");
    ZF_TRY(produce(j, room - j->ids.count, out, e));
    if (g->json) ZF_TRY(print_json(j, out, e));
    fputc('\n', out);
    return fflush(out) ? zf_fail_errno(e, NULL, "cannot write the text") : ZF_OK;
}

enum zf_status zf_generate_run(const struct zf_generate *g, FILE *out, struct zf_err *e)
{
    struct job j = {.g = g};
    enum zf_status s = run(&j, out, e);
    zf_cache_free(j.cache);
    zf_model_close(&j.model);
    if (j.device) j.device->type->close(j.device);
    zf_tokenizer_close(j.tokenizer);
    zf_hf_close(&j.hf);
    zf_saved_model_close(&j.saved);
    free(j.folder);
    free(j.ids.ids);
    free(j.logits);
    return s;
}
