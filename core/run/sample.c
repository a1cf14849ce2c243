/* See sample.h. */
#include "core/run/sample.h"
#include "core/run/generate.h"
#include "core/run/orders.h"

#include "core/base/clock.h"
#include "core/base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_TOKENS = 64 };
static const double temperature = 0.8, top_p = 0.95;

struct sampling {
    struct zf_trainer *t;
    struct zf_ids ids;
    struct zf_cache *cache;
    float *logits;
    char *text; /* owned */
    size_t size;
};

static enum zf_status read_prompt(struct sampling *s, const char *prompt, struct zf_err *e)
{
    const struct zf_trainer *t = s->t;
    const struct zf_model_config *c = &t->model.config;
    if (!t->setup->tokenizer) return zf_fail(e, ZF_DIFFERENT, "sample", "this run has no tokenizer: its data are token numbers");
    ZF_TRY(zf_tokenizer_encode(t->setup->tokenizer, prompt, strlen(prompt), true, true, &s->ids, e));
    if (!s->ids.count && c->bos_id >= 0) ZF_TRY(zf_ids_push(&s->ids, c->bos_id, e));
    if (!s->ids.count) return zf_fail(e, ZF_DIFFERENT, "sample", "nothing to begin with; give some text (or set sample_prompt)");
    if (s->ids.count >= c->context)
        return zf_fail(e, ZF_DIFFERENT, "sample", "the text has %zu tokens; the model's context is %zu", s->ids.count, c->context);
    for (size_t i = 0; i < s->ids.count; i++)
        if ((size_t)s->ids.ids[i] >= c->vocab) return zf_fail(e, ZF_DIFFERENT, "sample", "token %d is none of the model's", s->ids.ids[i]);
    return ZF_OK;
}

/* What was planned is taken already: what there is now must be enough. */
static enum zf_status check_memory(const struct sampling *s, size_t room, struct zf_err *e)
{
    const struct zf_trainer *t = s->t;
    struct zf_memory_limits limits;
    char need[32], have[32];
    size_t bytes = zf_cache_bytes(&t->model.config, t->model.dtype, room) + t->model.config.vocab * sizeof(float);
    zf_setup_limits(t->setup, &limits);
    if (bytes <= limits.least) return ZF_OK;
    return zf_fail(e, ZF_MEMORY, "sample", "it needs %s for keys and values, and %s are left: %s", zf_bytes_text(bytes, need, sizeof need),
                   zf_bytes_text(limits.least, have, sizeof have), limits.least_name);
}

static bool ends(const struct zf_trainer *t, int32_t id)
{
    for (size_t i = 0; i < t->model.config.eos_count; i++)
        if (id == t->model.config.eos_ids[i]) return true;
    return id == zf_tokenizer_eos(t->setup->tokenizer);
}

static enum zf_status go_on(struct sampling *s, size_t room, struct zf_err *e)
{
    struct zf_trainer *t = s->t;
    size_t vocab = t->model.config.vocab, fresh = s->ids.count;
    for (uint32_t i = 0; s->ids.count < room; i++) {
        ZF_TRY(zf_cache_append(s->cache, s->ids.ids + s->ids.count - fresh, fresh, s->logits, e));
        ZF_TRY(zf_trainer_between(t, e));
        for (size_t k = 0; k < vocab; k++)
            if (!isfinite(s->logits[k]))
                return zf_fail(e, ZF_DIFFERENT, "sample", "the logits are not finite after step %" PRIu64 "; the weights may be damaged",
                               t->step);
        double draw = zf_uniform((uint64_t)t->o->seed, ZF_STREAM_SAMPLE, (uint32_t)t->step, i);
        int32_t id = zf_sample_token(s->logits, vocab, temperature, top_p, draw);
        if (id < 0) return zf_fail_memory(e, "the chances of the next token");
        if (ends(t, id)) break;
        ZF_TRY(zf_ids_push(&s->ids, id, e));
        fresh = 1;
    }
    return zf_tokenizer_decode(t->setup->tokenizer, s->ids.ids, s->ids.count, true, &s->text, &s->size, e);
}

static enum zf_status make(struct sampling *s, const char *prompt, struct zf_err *e)
{
    struct zf_trainer *t = s->t;
    ZF_TRY(read_prompt(s, prompt, e));
    size_t room = s->ids.count + SAMPLE_TOKENS;
    if (room > t->model.config.context) room = t->model.config.context;
    ZF_TRY(check_memory(s, room, e));
    ZF_TRY(zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_SETTLE}, NULL, e));
    ZF_TRY(zf_cache_new(&s->cache, &t->model, room, e));
    if (!(s->logits = malloc(t->model.config.vocab * sizeof *s->logits))) return zf_fail_memory(e, "the logits");
    return go_on(s, room, e);
}

enum zf_status zf_trainer_sample(struct zf_trainer *t, const char *prompt, char *text, size_t size, struct zf_err *e)
{
    struct sampling s = {.t = t};
    double from = zf_clock();
    zf_session_doing(t->session, "sampling");
    enum zf_status bad = make(&s, prompt, e);
    if (!bad) {
        json_t *said = json_stringn(s.text, s.size); /* NULL: no UTF-8 */
        for (size_t i = 0; !said && i < s.size; i++)
            if ((unsigned char)s.text[i] >= 0x80) s.text[i] = '?';
        if (!said) said = json_stringn(s.text, s.size);
        if (text) snprintf(text, size, "%.*s", (int)(s.size < size ? s.size : size), s.text);
        if (said) zf_record_said(t, "sample", json_string_value(said));
        zf_metrics_write(t->metrics, json_pack("{s:s s:I s:s s:o}", "type", "sample", "step", (json_int_t)t->step, "prompt", prompt, "text",
                                               said ? said : json_string("")));
    }
    zf_eta_pause(&t->eta, zf_clock() - from);
    zf_session_doing(t->session, "training");
    zf_cache_free(s.cache);
    free(s.logits);
    free(s.ids.ids);
    free(s.text);
    return bad;
}
