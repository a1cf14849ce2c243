#include "core/run/check.h"

#include "core/run/setup.h"
#include "core/run/train.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* What is counted of a dataset: one row a number, for the table and for JSON. */
static const struct counter {
    const char *name;
    size_t offset; /* in struct zf_data_stats */
    const char *meaning;
} counters[] = {
#define COUNTER(name, member, meaning) \
    { \
        name, offsetof(struct zf_data_stats, member), meaning \
    }
    COUNTER("records", records, "read"),
    COUNTER("documents", documents, "made of them"),
    COUNTER("longest_document", longest_document, "tokens"),
    COUNTER("empty", empty, "records without any text, left out"),
    COUNTER("bad", bad, "records that cannot be read, left out"),
    COUNTER("truncated", truncated, "documents longer than a row, cut off"),
    COUNTER("split", split, "documents longer than a row, made several"),
    COUNTER("dropped", dropped, "documents longer than a row, left out"),
    COUNTER("cut_tokens", cut_tokens, "tokens lost by that"),
    COUNTER("duplicates", duplicates, "documents equal to an earlier one"),
    COUNTER("unlabelled", unlabelled, "documents without a token to train on"),
    COUNTER("spelled_specials", spelled_specials, "records whose content spells a special token (taken as ordinary text)"),
    COUNTER("recognised", recognised, "special tokens written in texts (taken as such)"),
#undef COUNTER
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static uint64_t counted(const struct zf_data_stats *s, int i)
{
    return *(const uint64_t *)((const char *)s + counters[i].offset);
}

/* rows .. unlabelled_rows are of this dataset; what is counted of documents belongs to its files, which valid_split divides. */
static json_t *dataset_json(const struct zf_dataset *d)
{
    json_t *o = json_pack("{s:I s:I s:I s:I s:I s:i}", "rows", (json_int_t)d->rows, "tokens", (json_int_t)d->tokens, "label_tokens",
                          (json_int_t)d->label_tokens, "longest", (json_int_t)d->longest, "unlabelled_rows", (json_int_t)d->unlabelled,
                          "padding", 0);
    if (!d->store) return o;
    const struct zf_data_stats *s = &d->store->stats;
    json_t *lengths = json_array();
    for (int i = 0; i < COUNTERS; i++) json_object_set_new(o, counters[i].name, json_integer((json_int_t)counted(s, i)));
    for (int i = 0; i < ZF_LENGTH_BINS; i++) json_array_append_new(lengths, json_integer((json_int_t)s->lengths[i]));
    json_object_set_new(o, "lengths", lengths); /* documents of 2^i .. 2^(i+1)-1 tokens */
    if (d->layout) json_object_set_new(o, "layout", json_string(d->layout));
    if (d->cached) json_object_set_new(o, "cache", json_string(d->cached));
    return o;
}

static void print_json(const struct zf_setup *s, const struct zf_err *fit)
{
    const struct zf_model_config *c = &s->config;
    json_t *notes = json_array(), *o = json_object();
    for (size_t i = 0; i < s->notes.count; i++) json_array_append_new(notes, json_string(s->notes.list[i].message));
    json_object_set_new(o, "model",
                        json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I}", "family", zf_family_name(c->family), "parameters",
                                  (json_int_t)s->params.parameters, "layers", (json_int_t)c->layers, "hidden", (json_int_t)c->hidden,
                                  "heads", (json_int_t)c->heads, "kv_heads", (json_int_t)c->kv_heads, "vocab", (json_int_t)c->vocab,
                                  "context", (json_int_t)c->context));
    json_object_set_new(o, "train", dataset_json(&s->train));
    json_object_set_new(o, "valid", dataset_json(&s->valid));
    json_object_set_new(o, "steps", json_integer((json_int_t)s->steps));
    json_object_set_new(o, "memory", zf_memory_plan_json(&s->plan, &s->limits));
    json_object_set_new(o, "fits", json_boolean(!fit));
    if (fit) json_object_set_new(o, "error", json_string(fit->message));
    json_object_set_new(o, "options", zf_options_json(s->o));
    json_object_set_new(o, "notes", notes);
    size_t size;
    char *text = zf_jsonl_text(o, &size);
    if (text) fwrite(text, 1, size, stdout);
    free(text);
    json_decref(o);
}

static void print_lengths(const struct zf_data_stats *s)
{
    printf("  %-18s", "lengths");
    for (int i = 0; i < ZF_LENGTH_BINS; i++)
        if (s->lengths[i]) printf(" %d-%d: %" PRIu64 "", 1 << i, (2 << i) - 1, s->lengths[i]);
    puts("  (tokens: documents)");
}

static void print_dataset(const char *name, const struct zf_dataset *d, size_t sequence_length, bool details)
{
    printf("%-14s %" PRIu64 " rows, %" PRIu64 " tokens, %" PRIu64 " of them targets, longest row %zu, rows %.1f %% full, no padding\n",
           name, d->rows, d->tokens, d->label_tokens, d->longest,
           100.0 * (double)d->tokens / ((double)d->rows * (double)(sequence_length ? sequence_length : 1)));
    if (!details) return;
    if (d->layout) printf("  %-18s %s\n", "template", d->layout);
    for (int i = 0; i < COUNTERS; i++)
        printf("  %-18s %-10" PRIu64 " %s\n", counters[i].name, counted(&d->store->stats, i), counters[i].meaning);
    printf("  %-18s %-10" PRIu64 " %s\n", "unlabelled_rows", d->unlabelled, "rows without a token to train on");
    print_lengths(&d->store->stats);
    if (d->cached) printf("  %-18s %s\n", "cache", d->cached);
}

static void print_options(const struct zf_options *o)
{
    printf("options        other than their defaults\n");
    for (int i = 0; i < ZF_OPTIONS; i++) {
        enum zf_option_id id = (enum zf_option_id)i;
        char *text = zf_options_is_default(o, id) ? NULL : zf_options_get_text(o, id), place[600];
        if (text)
            printf("  %-20s %s%s%s\n", zf_option_table[i].name, text, o->origin[i].kind == ZF_ORIGIN_DEFAULT ? "" : "  from ",
                   zf_origin_text(&o->origin[i], zf_option_table[i].name, place, sizeof place));
        free(text);
    }
}

static void print_text(const struct zf_setup *s, bool fits, bool over)
{
    const struct zf_model_config *c = &s->config;
    printf("%-14s %s, %zu parameters: %zu layers, hidden %zu, %zu heads (%zu key/value), ffn %zu, vocabulary %zu, context %zu\n", "model",
           zf_family_name(c->family), s->params.parameters, c->layers, c->hidden, c->heads, c->kv_heads, c->ffn, c->vocab, c->context);
    /* with valid_split both are of the same files */
    if (s->train.rows) print_dataset("train", &s->train, s->sequence_length, true);
    if (s->valid.rows) print_dataset("valid", &s->valid, s->sequence_length, s->o->valid.count > 0);
    if (s->choices.rows)
        printf("%-14s %" PRIu64 " records to answer, %zu choices\n", "choices", s->choices.rows / s->choice_count, s->choice_count);
    if (s->steps)
        printf("%-14s %" PRIu64 " steps of %" PRId64 " sequences, %.3g epochs\n", "run", s->steps, s->o->batch_size,
               (double)s->total_rows / (double)s->train.rows);
    printf("%-14s %s%s\n", "directory", s->o->dir, over ? " (its run is over: this run.cfg would change nothing)" : "");
    zf_memory_plan_print(stdout, &s->plan, &s->limits);
    print_options(s->o);
    for (size_t i = 0; i < s->notes.count; i++) printf("note           %s: %s\n", s->notes.list[i].where, s->notes.list[i].message);
    if (fits) puts("all is well: nothing was trained, nothing was written");
}

enum zf_status zf_check_run(const struct zf_options *o, bool json, const volatile int *stop, struct zf_err *e)
{
    struct zf_setup s = {0};
    bool over;
    ZF_TRY(zf_train_look(o, &over, e));
    enum zf_status status = zf_setup_model(&s, o, e);
    if (!status) status = zf_setup_weights(&s, e);
    if (!status) status = zf_setup_data(&s, stop, e);
    if (!status || (status == ZF_MEMORY && s.plan.total)) {
        if (json)
            print_json(&s, status ? e : NULL);
        else
            print_text(&s, !status, over);
    }
    zf_setup_free(&s);
    return status;
}
