/* The memory plan: pure arithmetic over shapes, saturating at SIZE_MAX, so that a model too large for the address space does not fit
 * either. */
#include "core/plan/memory.h"

#include "core/data/loader.h"
#include "core/model/model.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { AUTO_TOKENS = 4096 };
/* The program itself: code and data of libraries, thread stacks, the product library's compiled kernels and scratch space,
 * names, telemetry. (About 30 MiB were measured with 60 products of different shapes.) */
#define OTHER_BYTES ((size_t)64 << 20)

static size_t add(size_t a, size_t b)
{
    size_t c;
    return __builtin_add_overflow(a, b, &c) ? SIZE_MAX : c;
}

static size_t multiply(size_t a, size_t b)
{
    size_t c;
    return __builtin_mul_overflow(a, b, &c) ? SIZE_MAX : c;
}

static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

static void plan_for(struct zf_memory_plan *p, const struct zf_memory_request *r, size_t micro_batch, size_t row)
{
    *p = (struct zf_memory_plan){.tokens = multiply(micro_batch, row), .micro_batch = micro_batch, .recompute = r->recompute};
    const struct zf_model_config *c = r->config;
    struct zf_workspace_sizes w = {.activations = SIZE_MAX};
    const struct zf_pipeline_sizes *h = &r->halves;
    enum zf_keep keep = !r->training ? ZF_KEEP_NOTHING : r->recompute ? ZF_KEEP_INPUTS : ZF_KEEP_ALL;
    size_t n = r->params->elements, wide = sizeof(float), narrow = r->dtype == ZF_BF16 ? wide / 2 : wide,
           tokens = r->training || p->tokens < ZF_CACHE_PREFILL ? p->tokens : ZF_CACHE_PREFILL;
    /* The widths of all buffers together are below a small multiple of the elements: what passes here cannot overflow there. */
    if (multiply(multiply(p->tokens, n), 64) != SIZE_MAX) w = zf_workspace_measure(c, r->dtype, tokens, row, keep);
    p->bytes[ZF_PLAN_WEIGHTS] = multiply(n, narrow + (r->training && narrow != wide ? wide : 0)); /* visible ones, and masters */
    p->bytes[ZF_PLAN_GRADIENTS] = r->training ? multiply(n, wide) : 0;
    p->bytes[ZF_PLAN_MOMENTS] = r->training ? multiply(n, 2 * wide) : 0;
    if (r->training && h->cpu_state) { /* masters are read as one block before the halves take theirs */
        p->bytes[ZF_PLAN_MOMENTS] = h->device_state;
        p->bytes[ZF_PLAN_CPU_HALF] = h->cpu_state;
        p->bytes[ZF_PLAN_SLOTS] = add(h->slots, h->device_staging);
    }
    p->bytes[ZF_PLAN_ACTIVATIONS] = w.activations;
    p->bytes[ZF_PLAN_LOGITS] = w.logits;
    p->bytes[ZF_PLAN_CACHE] = r->training ? 0 : multiply(multiply(row, c->layers), multiply(2 * narrow, c->kv_heads * c->head_dim));
    p->bytes[ZF_PLAN_BATCH] = add(w.batch, r->loaders ? multiply(r->loaders, zf_loader_bytes(p->tokens)) : 0);
    p->bytes[ZF_PLAN_DATA] = r->data_bytes;
    p->bytes[ZF_PLAN_OTHER] = add(OTHER_BYTES, h->other);
    for (int i = 0; i < ZF_PLAN_ROWS; i++) p->total = add(p->total, p->bytes[i]);
}

/* The largest count of sequences from `most` down whose plan fits; at least 1. */
static void plan_largest(struct zf_memory_plan *p, const struct zf_memory_request *r, size_t most, size_t row, size_t limit)
{
    for (size_t n = at_least_one(most);; n--) {
        plan_for(p, r, n, row);
        if (n == 1 || p->total <= limit) return;
    }
}

void zf_memory_plan_make(struct zf_memory_plan *out, const struct zf_memory_request *r, size_t limit)
{
    size_t row = at_least_one(r->sequence_length), batch = at_least_one(r->batch_size);
    if (r->micro_batch) {
        plan_for(out, r, r->micro_batch < batch ? r->micro_batch : batch, row);
        return;
    }
    size_t most = AUTO_TOKENS / row;
    plan_largest(out, r, most < batch ? most : batch, row, limit);
}

/* The longest row that fits with one sequence, 0 if not even one token does. Round numbers are easier to believe. */
static size_t longest_row(const struct zf_memory_request *r, size_t limit)
{
    struct zf_memory_plan p;
    size_t fits = 0, fails = at_least_one(r->sequence_length);
    while (fails - fits > 1) {
        size_t middle = fits + (fails - fits) / 2;
        plan_for(&p, r, 1, middle);
        *(p.total <= limit ? &fits : &fails) = middle;
    }
    return fits >= 32 ? fits - fits % 16 : fits;
}

static void append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(text);
    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}

static void append_biggest(char *text, size_t size, const struct zf_memory_plan *p)
{
    bool used[ZF_PLAN_ROWS] = {false};
    char bytes[32];
    for (int k = 0; k < 3; k++) {
        int best = 0;
        for (int i = 1; i < ZF_PLAN_ROWS; i++)
            if (used[best] || (!used[i] && p->bytes[i] > p->bytes[best])) best = i;
        used[best] = true;
        if (!p->bytes[best]) break;
        append(text, size, "%s%s %s", k ? ", " : "", zf_plan_row_name((enum zf_plan_row)best),
               zf_bytes_text(p->bytes[best], bytes, sizeof bytes));
    }
}

/* The largest count of sequences up to `most` that fits, and its plan; 0 if none does. Counts given by hand may be huge. */
static size_t largest_that_fits(struct zf_memory_plan *p, const struct zf_memory_request *r, size_t most, size_t limit)
{
    size_t row = at_least_one(r->sequence_length), fits = 0, fails = most < SIZE_MAX ? most + 1 : most;
    while (fails - fits > 1) {
        size_t middle = fits + (fails - fits) / 2;
        plan_for(p, r, middle, row);
        *(p->total <= limit ? &fits : &fails) = middle;
    }
    if (fits) plan_for(p, r, fits, row);
    return fits;
}

/* A smaller micro-batch, or what recomputing makes possible, both of the row that was asked for. false: nothing of the kind. */
static bool append_same_row(char *text, size_t size, const struct zf_memory_plan *p, const struct zf_memory_request *r,
                            const struct zf_memory_request *again, size_t limit)
{
    struct zf_memory_plan q;
    char bytes[32];
    size_t smaller = largest_that_fits(&q, r, p->micro_batch, limit);
    if (smaller) append(text, size, "; set micro_batch = %zu: that fits with %s", smaller, zf_bytes_text(q.total, bytes, sizeof bytes));
    if (r->recompute) return smaller;
    size_t more = largest_that_fits(&q, again, p->micro_batch, limit);
    if (more <= smaller) return smaller;
    append(text, size, smaller ? "; or recompute = yes" : "; set recompute = yes");
    if (more < p->micro_batch) append(text, size, " and micro_batch = %zu", more);
    append(text, size, ": that fits with %s", zf_bytes_text(q.total, bytes, sizeof bytes));
    return true;
}

/* Found by trying: a smaller micro-batch, recomputing, then a shorter row; else by how much even that is too large. */
static void append_remedy(char *text, size_t size, const struct zf_memory_plan *p, const struct zf_memory_request *r,
                          const struct zf_memory_limits *l)
{
    struct zf_memory_plan q;
    struct zf_memory_request again = *r;
    char bytes[32];
    again.recompute = true;
    if (!r->training) {
        append(text, size, "; a shorter prompt, fewer --tokens, a smaller model or more memory is needed");
        return;
    }
    if (p->bytes[ZF_PLAN_DATA] > l->least) {
        append(text, size, "; the data alone are more: train on fewer or smaller files");
        return;
    }
    if (append_same_row(text, size, p, r, &again, l->least)) return;
    size_t shorter = longest_row(r, l->least), longer = r->recompute ? 0 : longest_row(&again, l->least);
    bool recompute = longer > shorter; /* not so with one layer */
    if (recompute) shorter = longer;
    if (shorter) {
        plan_for(&q, recompute ? &again : r, 1, shorter);
        append(text, size, "; set sequence_length = %zu%s%s: that fits with %s", shorter, recompute ? " and recompute = yes" : "",
               p->micro_batch > 1 || r->micro_batch ? " and micro_batch = 1" : "", zf_bytes_text(q.total, bytes, sizeof bytes));
        return;
    }
    plan_for(&q, r, 1, 1);
    append(text, size,
           "; %s (%zu bytes) are missing even with micro_batch = 1 and rows of one token: a smaller model or more memory is needed",
           zf_bytes_text(q.total - l->least, bytes, sizeof bytes), q.total - l->least);
}

enum zf_status zf_memory_plan_check(const struct zf_memory_plan *p, const struct zf_memory_request *r, const struct zf_memory_limits *l,
                                    struct zf_err *e)
{
    if (p->total <= l->least) return ZF_OK;
    char text[sizeof e->message] = "", total[32], least[32];
    append(text, sizeof text, "%s needs %s (%zu bytes), but %s (%zu bytes) are left: %s", r->training ? "training" : "the model",
           zf_bytes_text(p->total, total, sizeof total), p->total, zf_bytes_text(l->least, least, sizeof least), l->least, l->least_name);
    if (l->least == l->cgroup && l->cgroup_path[0]) append(text, sizeof text, " of %s", l->cgroup_path);
    append(text, sizeof text, "; the biggest parts: ");
    append_biggest(text, sizeof text, p);
    append(text, sizeof text, " (micro-batches of %zu x %zu tokens)", p->micro_batch, at_least_one(r->sequence_length));
    append_remedy(text, sizeof text, p, r, l);
    return zf_fail(e, ZF_MEMORY, NULL, "%s", text);
}
