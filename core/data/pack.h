/* Documents -> rows. With packing: first fit among the ZF_PACK_WINDOW rows that are open; when none has room, a new one is opened, for
 * which the oldest is closed. Rows come out in the order in which they were opened: a pure function of the documents' order and lengths. */
#ifndef ZF_DATA_PACK_H
#define ZF_DATA_PACK_H

#include "core/data/rows.h"

enum { ZF_PACK_WINDOW = 64 };

/* In the order of the option `long_rows`. */
enum zf_long_rows { ZF_LONG_ERROR, ZF_LONG_TRUNCATE, ZF_LONG_SPLIT, ZF_LONG_DROP };

struct zf_packer;
/* length: of a row, at most. stats are counted here: documents, truncated, split, dropped, cut_tokens, unlabelled, lengths,
 * longest_document, first_long, first_unlabelled. With ERROR a long document is counted (first_long, `dropped`) and the caller refuses at
 * the end. Documents' hashes go to the writer. */
enum zf_status zf_packer_new(struct zf_packer **out, struct zf_rows_writer *w, size_t length, enum zf_long_rows policy, bool pack,
                             struct zf_data_stats *stats, struct zf_err *e);
/* A piece of a split document is a document of its own: its first token begins it and is no target. */
enum zf_status zf_packer_add(struct zf_packer *p, const uint32_t *tokens, size_t count, const struct zf_source *source, struct zf_err *e);
enum zf_status zf_packer_flush(struct zf_packer *p, struct zf_err *e);
void zf_packer_free(struct zf_packer *p);

/* `text`: pieces of one document, in order, cut into rows of `length`, the rest a shorter row; `last` ends the document. Not packed. Counts
 * the document, its hash and its rows. */
enum zf_status zf_packer_text(struct zf_packer *p, const uint32_t *tokens, size_t count, bool last, const struct zf_source *source,
                              struct zf_err *e);

#endif
