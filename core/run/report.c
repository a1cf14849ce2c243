/* The numbers of a dataset, from one table. */
#include "core/run/report.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

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
    COUNTER("empty_files", empty_files, "files without anything"),
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
json_t *zf_report_dataset_json(const struct zf_dataset *d)
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

static void print_lengths(const struct zf_data_stats *s)
{
    printf("  %-18s", "lengths");
    for (int i = 0; i < ZF_LENGTH_BINS; i++)
        if (s->lengths[i]) printf(" %d-%d: %" PRIu64 "", 1 << i, (2 << i) - 1, s->lengths[i]);
    puts("  (tokens: documents)");
}

void zf_report_dataset(const char *name, const struct zf_dataset *d, size_t sequence_length, bool details)
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
