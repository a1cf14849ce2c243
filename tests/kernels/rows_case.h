/* Memory of a case of the ops of rows: blocks whose edges are watched, and one check of an op on every device. */
#ifndef ZF_TESTS_ROWS_CASE_H
#define ZF_TESTS_ROWS_CASE_H

#include "tests/kernels/harness.h"

/* Begins a case: random numbers from `seed`, no blocks. */
void case_begin(uint64_t seed);
void case_end(void);

/* A block that lies off any alignment but its element's; full of bits that are a NaN in either type. It begins every run as it is when
 * `everywhere` is called. */
void *block(size_t count, size_t element);
float *floats(size_t count);                  /* normal numbers */
float *halves_of(size_t count, void **half);  /* normal numbers of bf16; *half: a block of them */
uint32_t *some_list(size_t count, size_t of); /* distinct numbers below `of`, in random order */

/* Runs the op on every device, each time from the same content of all blocks: all of them, counters and what no op should touch included,
 * have the same bits afterwards, and no edge is touched. Blocks keep the result. What a block was before: before(). */
void everywhere(const char *what, op_call call, const void *args);
const void *before(const void *at);

/* |x - expected| within tolerance * (size of either + scale). */
void near(const char *what, size_t where, double x, double expected, double tolerance, double scale);

/* Shapes that pass ends of vectors, of pieces and of parts. */
size_t some_rows(size_t i);
size_t some_cols(size_t i);

bool listed(const uint32_t *list, size_t rows, size_t n);
/* Row n of a block of rows is what it was. */
void untouched(const char *what, const void *rows, size_t n, size_t row_bytes);

uint16_t half_of(const void *p, size_t i); /* bits */
double number_of(const void *p, enum zf_dtype type, size_t i);

/* Rows in chunks that are a block each. */
struct pieces {
    struct zf_chunked chunked;
    void *chunk[64];
};
void make_pieces(struct pieces *p, size_t rows, size_t cols, size_t chunk_rows, size_t element);
void *piece_row(const struct pieces *p, size_t r, size_t cols, size_t element);         /* where row r begins */
void fill_pieces(const struct pieces *p, size_t rows, size_t cols, enum zf_dtype type); /* normal numbers */
size_t some_chunk_rows(size_t i, size_t rows);                                          /* as many as make at most ten chunks */

#endif
