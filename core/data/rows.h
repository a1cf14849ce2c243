/* A file of rows: what the data became, on disk, so that memory does not grow with it. Written once, then read row by row.
 *
 *   header, 4096 bytes: magic, version, key, counts, statistics
 *   rows, one behind the other: tokens u32[length] (document.h), then targets i32[length] if the row has targets of its own, then
 *     struct zf_source [documents]
 *   index: struct zf_row_place [rows]
 *
 * Little-endian, of this machine; a file with another key or size is not ours and is made anew. A row carries a check of its bytes. */
#ifndef ZF_DATA_ROWS_H
#define ZF_DATA_ROWS_H

#include "core/data/data.h"
#include "core/data/document.h"

struct zf_row_place {
    uint64_t offset; /* in the file */
    uint32_t length, label_tokens, documents;
    uint32_t check; /* of the row's bytes (low half of XXH3); the top bit of `documents` says that it has targets of its own */
};
#define ZF_ROW_TARGETS 0x80000000u

struct zf_rows {
    int fd;
    uint64_t rows, index; /* index: its offset */
    uint64_t bytes;       /* of the file */
    uint64_t content;     /* XXH3 of the rows' lengths, tokens and targets: the same wherever they are kept, whatever lines they are of */
    bool in_memory;       /* an anonymous file: its bytes are memory */
    struct zf_data_stats stats;
};

/* Writing. Into `path` (appears when finished, by rename), or with path NULL into an anonymous file in memory. */
struct zf_rows_writer;
enum zf_status zf_rows_create(struct zf_rows_writer **out, const char *path, const unsigned char key[16], struct zf_err *e);
/* targets: NULL where they follow from the tokens. tokens of sources sum to length. After an error there is only zf_rows_discard. */
enum zf_status zf_rows_add(struct zf_rows_writer *w, const uint32_t *tokens, const int32_t *targets, size_t length,
                           const struct zf_source *sources, size_t documents, struct zf_err *e);
/* Finishes the file and opens it for reading. stats->rows, tokens, label_tokens, longest_row are filled in from what was added. The writer
 * is gone afterwards, whatever comes of it. */
enum zf_status zf_rows_finish(struct zf_rows_writer *w, const struct zf_data_stats *stats, struct zf_rows *out, struct zf_err *e);
void zf_rows_discard(struct zf_rows_writer *w);

/* Documents equal to an earlier one: notes a document's hash, counts duplicates at the end with bounded memory (the hashes lie in an
 * unlinked file beside the rows). */
enum zf_status zf_rows_document(struct zf_rows_writer *w, uint64_t hash, struct zf_err *e);

/* ZF_OK with out->fd < 0: there is none with this key (or it is damaged, which *damaged says). */
enum zf_status zf_rows_open(struct zf_rows *out, const char *path, const unsigned char key[16], bool *damaged, struct zf_err *e);
void zf_rows_close(struct zf_rows *r);

/* A thread's buffer for a row it reads. */
struct zf_row_buffer { /* zeroed = empty */
    unsigned char *bytes;
    size_t room;
    int32_t *ids, *targets, *document;
    size_t token_room;
};
void zf_row_buffer_free(struct zf_row_buffer *b);

/* One row: target[i] is what position i is scored against (the next id of its document, or -1); document[i] counts documents within the
 * row. sources: where they come from. All in the buffer, until it is used again. */
struct zf_row {
    const int32_t *ids, *target, *document; /* document may be NULL: one document */
    size_t length, label_tokens;
    const struct zf_source *sources;
    size_t documents;
};

/* Places of rows first .. first+count. */
enum zf_status zf_rows_places(const struct zf_rows *r, uint64_t first, size_t count, struct zf_row_place *out, struct zf_err *e);
/* ZF_IO, also for a row whose check fails: the file was damaged after it was written. */
enum zf_status zf_rows_read(const struct zf_rows *r, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *e);

#endif
