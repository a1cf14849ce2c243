/* The bytes of a file of rows, for the two halves that write and read it. */
#ifndef ZF_DATA_ROWS_IMPL_H
#define ZF_DATA_ROWS_IMPL_H

#include "core/data/rows.h"

enum { ZF_ROWS_VERSION = 2, ZF_ROWS_HEADER = 4096 };
#define ZF_ROWS_MAGIC "ZFrows\r\n" /* 8 bytes; a transfer as text is seen */

/* Everything in the file is under a check: the header under its own, the index under index_hash, a row under its place's. */
struct zf_rows_header {
    char magic[8];
    uint32_t version, head; /* head: ZF_ROWS_HEADER */
    unsigned char key[16];
    uint64_t rows, index, bytes; /* index: its offset; bytes: of the file */
    uint64_t index_hash;         /* XXH3 */
    uint64_t content;            /* zf_rows's */
    struct zf_data_stats stats;
    unsigned char unused[ZF_ROWS_HEADER - 80 - sizeof(struct zf_data_stats)];
    uint64_t hash; /* XXH3 of the header up to here */
};

/* What is written as it lies in memory has no padding, whose bytes would be anything. */
_Static_assert(sizeof(struct zf_rows_header) == ZF_ROWS_HEADER, "the header's size");
_Static_assert(offsetof(struct zf_rows_header, hash) == ZF_ROWS_HEADER - sizeof(uint64_t), "no padding in the header");
_Static_assert(sizeof(struct zf_source) == 16 && sizeof(struct zf_row_place) == 24, "no padding in the rows");
_Static_assert(sizeof(struct zf_data_stats) == 8 * (19 + ZF_LENGTH_BINS) + 3 * sizeof(struct zf_source), "no padding in the numbers");

/* Bytes of a row; documents without the top bit. Cannot overflow. */
static inline uint64_t zf_row_bytes(uint32_t length, uint32_t documents, bool targets)
{
    return (uint64_t)length * (targets ? 8 : 4) + (uint64_t)documents * sizeof(struct zf_source);
}

/* All of `size` bytes at `offset`; a file that ends before is ZF_IO. */
enum zf_status zf_rows_pread(int fd, void *data, size_t size, uint64_t offset, const char *where, struct zf_err *e);

/* How many of the `count` numbers in a file are equal to an earlier one, exactly, with a table of at most `memory` bytes. */
enum zf_status zf_rows_duplicates(int fd, uint64_t count, size_t memory, uint64_t *out, struct zf_err *e);

#endif
