/* The numbers of a dataset, by the list of counters. */
#include "core/run/report.h"

#include "core/base/plural.h"
#include "core/base/show.h"

#include <inttypes.h>
#include <stdio.h>

/* rows .. unlabelled_rows are of this dataset; what is counted of documents belongs to its files, which valid_split divides. */
json_t *zf_report_dataset_json(const struct zf_dataset *d)
{
    json_t *o = json_pack("{s:I s:I s:I s:I s:I s:i}", "rows", (json_int_t)d->rows, "tokens", (json_int_t)d->tokens, "label_tokens",
                          (json_int_t)d->label_tokens, "longest", (json_int_t)d->longest, "unlabelled_rows", (json_int_t)d->unlabelled,
                          "padding", 0);
    if (!d->store) return o;
    const struct zf_data_stats *s = &d->store->stats;
    json_t *lengths = json_array();
    for (const struct zf_data_counter *c = zf_data_counters; c->name; c++)
        json_object_set_new(o, c->name, json_integer((json_int_t)zf_stats_count(s, c)));
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

void zf_report_dataset(const char *name, const struct zf_dataset *d, bool details)
{
    printf("%-14s %" PRIu64 " row%s, %" PRIu64 " tokens, %" PRIu64 " of them targets, longest row %zu, rows %.1f %% full, no padding\n",
           name, d->rows, zf_plural(d->rows), d->tokens, d->label_tokens, d->longest,
           100.0 * (double)d->tokens / ((double)d->rows * (double)(d->length ? d->length : 1)));
    if (!details) return;
    if (d->layout) zf_show_line(stdout, "  %-18s %s", "template", d->layout);
    for (const struct zf_data_counter *c = zf_data_counters; c->name; c++)
        printf("  %-18s %-10" PRIu64 " %s\n", c->name, zf_stats_count(&d->store->stats, c), c->meaning);
    printf("  %-18s %-10" PRIu64 " %s\n", "unlabelled_rows", d->unlabelled, "rows without a token to train on");
    print_lengths(&d->store->stats);
    if (d->cached) zf_show_line(stdout, "  %-18s %s", "cache", d->cached);
}
