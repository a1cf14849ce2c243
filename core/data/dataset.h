/* Rows of tokens, their order, and micro-batches.
 *
 * A dataset is immutable after opening: rows 0..rows-1, in file order. The order of training is a pure function of (seed, epoch): position
 * p of the run is row zf_permute(p % rows, rows, seed, p / rows), or p % rows without shuffle. So the loader's whole state is one integer.
 */
#ifndef ZF_DATA_DATASET_H
#define ZF_DATA_DATASET_H

#include "core/data/layout.h"
#include "core/data/pack.h"
#include "core/tokenizer/tokenizer.h"

struct zf_dataset_options {
    const char *const *files;
    size_t file_count;
    enum zf_data_format format;           /* AUTO: see zf_data_format_find */
    const struct zf_tokenizer *tokenizer; /* may be NULL for tokens */
    const struct zf_err *no_tokenizer;    /* why tokenizer is NULL; NULL: no reason is known */
    const char *folder;                   /* of the tokenizer; NULL: none */
    size_t sequence_length;               /* rows are cut or packed to it; tokens rows must not be longer than `context` */
    size_t context, vocab;                /* of the model: limits for positions and ids */
    const char *documents;                /* "file", "blank", or a separator string */
    const char *prompt, *response;        /* templates; NULL or "": not given */
    const struct zf_choice *choices;
    size_t choice_count;
    enum zf_chat_kind chat;
    enum zf_long_rows long_rows;
    enum zf_switch add_bos;
    bool train_all, pack, add_eos, skip_bad;
    bool every_choice; /* rows i*choice_count .. : record i with each of the choices instead of its own; not packed; records without one of
                          the choices are left out */
    bool show_only;    /* records too long for long_rows = error are left out and counted, no error: rows are looked at, not trained */
    bool shared;       /* other processes want the same rows: they are kept whatever their size, where they may be */
    const char *cache; /* "auto", "no" or a folder: see cache.h */
    int threads;       /* that tokenise; at least 1 */
    void (*progress)(void *context, uint64_t bytes, uint64_t of); /* every few MB; may be NULL */
    void *progress_context;
};

struct zf_dataset {
    enum zf_data_format format;
    const char *const *files; /* the options' */
    size_t file_count;
    uint64_t rows, first; /* of a slice: its first row in the file */
    uint64_t tokens, label_tokens;
    size_t longest;      /* tokens of the longest row */
    size_t length;       /* tokens that a row may have; of `tokens`, that the longest one of its files has */
    uint64_t unlabelled; /* rows without any label token */
    size_t bytes;        /* memory held: 0 where the rows lie in a file */
    struct zf_rows *store;
    bool slice;      /* the store belongs to another dataset */
    char *layout;    /* how records became documents, for people; NULL: text, tokens. Owned unless slice */
    char *cached;    /* the rows' file, NULL: in memory. Owned unless slice */
    char note[1024]; /* what was counted, cast or ignored */
};

/* Reads, tokenises and checks everything, or finds it done already. No usable row, no label token, an id out of range, a row longer than
 * allowed: ZF_FORMAT, with file, line and what to do. Polls *stop (may be NULL) and returns ZF_STOPPED when it becomes true. */
enum zf_status zf_dataset_open(struct zf_dataset *out, const struct zf_dataset_options *o, const volatile int *stop, struct zf_err *e);
void zf_dataset_close(struct zf_dataset *d);

/* Rows and places of a dataset; see rows.h. */
enum zf_status zf_dataset_read(const struct zf_dataset *d, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *e);
enum zf_status zf_dataset_places(const struct zf_dataset *d, uint64_t first, size_t count, struct zf_row_place *out, struct zf_err *e);

/* Where a document of this dataset comes from: zf_source_place. */
const char *zf_dataset_place(const struct zf_dataset *d, const struct zf_source *s, char *to, size_t room);

/* A view of rows first .. first+count of another dataset, which must outlive it (valid_split). */
enum zf_status zf_dataset_slice(struct zf_dataset *out, const struct zf_dataset *of, uint64_t first, uint64_t count, struct zf_err *e);

struct zf_order {
    uint64_t seed, rows;
    bool shuffle;
};
uint64_t zf_order_row(const struct zf_order *o, uint64_t position);

#endif
