/* Files -> rows: records are read in batches, become documents on several threads, and are packed in their order. What comes out does not
 * depend on the number of threads. For dataset.c. */
#ifndef ZF_DATA_BUILD_H
#define ZF_DATA_BUILD_H

#include "core/data/dataset.h"

struct zf_build;

/* format: resolved, not TOKENS. length: of a row. eos: -1 for none. specials: added tokens written in text are recognised. Reads as far as
 * the first record that says what records look like. */
struct zf_build_options {
    const struct zf_dataset_options *data;
    enum zf_data_format format;
    size_t length;
    int32_t eos;
    bool specials;
    uint64_t total; /* bytes of all files, for progress */
    const volatile int *stop;
};
enum zf_status zf_build_begin(struct zf_build **out, const struct zf_build_options *o, struct zf_err *e);
const struct zf_layout *zf_build_layout(const struct zf_build *b); /* NULL: text */
enum zf_status zf_build_rows(struct zf_build *b, struct zf_rows_writer *w, struct zf_data_stats *stats, struct zf_err *e);
void zf_build_end(struct zf_build *b);

/* The same for files of tokens, whose rows are taken as they are. */
enum zf_status zf_build_tokens(const struct zf_dataset_options *o, struct zf_rows_writer *w, struct zf_data_stats *stats,
                               const volatile int *stop, struct zf_err *e);

#endif
