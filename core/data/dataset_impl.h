/* How rows are kept and filled; for the files of this folder. */
#ifndef ZF_DATA_DATASET_IMPL_H
#define ZF_DATA_DATASET_IMPL_H

#include "core/data/dataset.h"
#include "core/tokenizer/text.h"

struct zf_row_place {
    size_t begin; /* of its ids in the store */
    uint32_t length, label_tokens;
};

/* Behind each row's ids stands a -1, so that without labels and documents the targets are the same array, one further. */
struct zf_dataset_store {
    struct zf_ids ids;
    int32_t *target, *document; /* as long as ids, or NULL */
    struct zf_row_place *rows;
    size_t row_count, row_room;
};

struct zf_filling {
    struct zf_dataset_store *store;
    const struct zf_dataset_options *o;
    const volatile int *stop;
    size_t length; /* of a row, at most */
    size_t documents, empty_documents, empty_files, bad_documents, recognised;
    bool specials, wants_eos;
    int32_t eos; /* -1: none is added */
};

enum zf_status zf_filling_stopped(const struct zf_filling *f, struct zf_err *e); /* ZF_STOPPED once *stop is set */
enum zf_status zf_filling_row(struct zf_filling *f, size_t begin, size_t length, size_t label_tokens, struct zf_err *e);
enum zf_status zf_fill_text(struct zf_filling *f, const char *file, struct zf_err *e);
enum zf_status zf_fill_tokens(struct zf_filling *f, struct zf_err *e); /* all files */

#endif
