/* Rows of tokens, their order, and the batches of a step.
 *
 * A dataset is immutable after opening: rows 0..rows-1, in file order. The order of training is a pure function of (seed, epoch): position
 * p of the run is row zf_permute(p % rows, rows, seed, p / rows), or p % rows without shuffle. So the loader's whole state is one integer.
 */
#ifndef ZF_DATA_DATASET_H
#define ZF_DATA_DATASET_H

#include "core/base/err.h"
#include "core/tokenizer/tokenizer.h"
#include "kernels/ops.h"

enum zf_data_format { ZF_DATA_AUTO, ZF_DATA_TEXT, ZF_DATA_JSONL, ZF_DATA_JSON, ZF_DATA_TSV, ZF_DATA_CSV, ZF_DATA_TOKENS };

struct zf_dataset_options {
    const char *const *files;
    size_t file_count;
    enum zf_data_format format;           /* AUTO: by extension; .safetensors are tokens, .txt and .md text */
    const struct zf_tokenizer *tokenizer; /* may be NULL for tokens */
    size_t sequence_length;               /* rows of text are cut to it; tokens rows must not be longer than `context` */
    size_t context, vocab;                /* of the model: limits for positions and ids */
    const char *documents;                /* "file", "blank", or a separator string */
    bool add_eos, skip_bad;
};

/* One row: ids[length]; target[i] is what position i is scored against (the next id of its document, -1: none); document[i] counts
 * documents within the row (NULL: one document). */
struct zf_row {
    const int32_t *ids, *target, *document;
    size_t length, label_tokens;
};

struct zf_dataset {
    size_t rows, documents;
    size_t tokens, label_tokens;
    size_t longest;    /* tokens of the longest row */
    size_t unlabelled; /* rows without any label token */
    size_t bytes;      /* memory held */
    struct zf_dataset_store *store;
    size_t first;   /* of a slice: its first row in the store */
    bool slice;     /* the store belongs to another dataset */
    char note[512]; /* what was counted, cast or ignored */
};

/* Reads, tokenises and checks everything. No usable row, no label token, an id out of range, a row longer than the context: ZF_FORMAT, with
 * file, row and what to do. Polls *stop (may be NULL) and returns ZF_STOPPED when it becomes true. */
enum zf_status zf_dataset_open(struct zf_dataset *out, const struct zf_dataset_options *o, const volatile int *stop, struct zf_err *e);
void zf_dataset_close(struct zf_dataset *d);
struct zf_row zf_dataset_row(const struct zf_dataset *d, size_t row);

/* A view of rows first .. first+count of another dataset, which must outlive it (valid_split). */
void zf_dataset_slice(struct zf_dataset *out, const struct zf_dataset *of, size_t first, size_t count);

struct zf_order {
    uint64_t seed, rows;
    bool shuffle;
};
uint64_t zf_order_row(const struct zf_order *o, uint64_t position);

/* A micro-batch as kernels see it: one stream of tokens without padding; host memory, allocated once for the longest that can occur. */
struct zf_batch {
    size_t tokens, label_tokens, segment_count;
    size_t room_tokens, room_segments;
    int32_t *ids, *position, *target; /* [tokens] */
    struct zf_segment *segments;      /* one a document (q and k the same range) */
};

enum zf_status zf_batch_init(struct zf_batch *b, size_t room_tokens, struct zf_err *e); /* room_segments = room_tokens */
void zf_batch_free(struct zf_batch *b);
void zf_batch_clear(struct zf_batch *b);
/* Appends a row. The caller has checked that it fits. */
void zf_batch_add(struct zf_batch *b, const struct zf_row *r);

#endif
