#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/rows_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 160, EDGE = 64 };
static const unsigned char FILL = 0xff; /* 0xffff and 0xffffffff are NaN */

static struct {
    unsigned char *all, *initial, *first; /* with both edges; first: what the first device made of it */
    size_t bytes;                         /* of all */
    unsigned char *at;
    size_t size;
} blocks[BLOCKS];
static size_t block_count;

void case_begin(uint64_t seed)
{
    reseed(seed);
}

void case_end(void)
{
    for (; block_count; block_count--) {
        free(blocks[block_count - 1].all);
        free(blocks[block_count - 1].initial);
        free(blocks[block_count - 1].first);
    }
}

void *block(size_t count, size_t element)
{
    size_t shift = below(8) * element, i = block_count++;
    assert_true(i < BLOCKS);
    blocks[i].size = count * element;
    blocks[i].bytes = shift + blocks[i].size + 2 * EDGE;
    blocks[i].all = malloc(blocks[i].bytes);
    blocks[i].initial = malloc(blocks[i].bytes);
    blocks[i].first = malloc(blocks[i].bytes);
    assert_true(blocks[i].all && blocks[i].initial && blocks[i].first);
    memset(blocks[i].all, FILL, blocks[i].bytes);
    return blocks[i].at = blocks[i].all + EDGE + shift;
}

float *floats(size_t count)
{
    float *x = block(count, sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)normal();
    return x;
}

float *halves_of(size_t count, void **half)
{
    float *x = block(count, sizeof *x);
    uint16_t *h = block(count, sizeof *h);
    for (size_t i = 0; i < count; i++) {
        h[i] = zf_f32_to_bf16((float)normal());
        x[i] = zf_bf16_to_f32(h[i]);
    }
    *half = h;
    return x;
}

uint32_t *some_list(size_t count, size_t of)
{
    uint32_t *list = block(of, sizeof *list);
    for (size_t i = 0; i < of; i++) list[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        size_t j = i + below(of - i);
        uint32_t swapped = list[i];
        list[i] = list[j];
        list[j] = swapped;
    }
    return list;
}

void everywhere(const char *what, op_call call, const void *args)
{
    for (size_t i = 0; i < block_count; i++) memcpy(blocks[i].initial, blocks[i].all, blocks[i].bytes);
    for (size_t d = 0; d < device_count(); d++) {
        struct zf_err e;
        for (size_t i = 0; i < block_count; i++) memcpy(blocks[i].all, blocks[i].initial, blocks[i].bytes);
        enum zf_status issued = call(device_lane(d), args), s = device_sync(d, &e);
        if (s) fail_msg("%s: device %zu: %s", what, d, e.message);
        assert_int_equal(issued, ZF_OK);
        for (size_t i = 0; i < block_count; i++) {
            size_t begin = (size_t)(blocks[i].at - blocks[i].all), end = begin + blocks[i].size;
            for (size_t b = 0; b < blocks[i].bytes; b++)
                if ((b < begin || b >= end) && blocks[i].all[b] != FILL) fail_msg("%s: device %zu wrote beside block %zu", what, d, i);
            if (!d)
                memcpy(blocks[i].first, blocks[i].all, blocks[i].bytes);
            else if (memcmp(blocks[i].first, blocks[i].all, blocks[i].bytes))
                fail_msg("%s: device %zu has other bits in block %zu than device 0", what, d, i);
        }
    }
}

const void *before(const void *at)
{
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].at == at) return blocks[i].initial + (blocks[i].at - blocks[i].all);
    fail_msg("no block begins there");
    return NULL;
}

void near(const char *what, size_t where, double x, double expected, double tolerance, double scale)
{
    if (!(fabs(x - expected) <= tolerance * (fmax(fabs(x), fabs(expected)) + scale)))
        fail_msg("%s: %zu: %.9g, expected %.9g", what, where, x, expected);
}

size_t some_rows(size_t i)
{
    static const size_t rows[] = {1, 2, 3, 17, 64, 65, 100, 301};
    return rows[i % (sizeof rows / sizeof *rows)];
}

size_t some_cols(size_t i)
{
    static const size_t cols[] = {1, 2, 15, 16, 17, 48, 255, 256, 257, 600, 33};
    return cols[i % (sizeof cols / sizeof *cols)];
}

bool listed(const uint32_t *list, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        if (list[r] == n) return true;
    return false;
}

void untouched(const char *what, const void *rows, size_t n, size_t row_bytes)
{
    if (memcmp((const char *)rows + n * row_bytes, (const char *)before(rows) + n * row_bytes, row_bytes))
        fail_msg("%s: row %zu is in no list, and changed", what, n);
}

uint16_t half_of(const void *p, size_t i)
{
    return ((const uint16_t *)p)[i];
}

double number_of(const void *p, enum zf_dtype type, size_t i)
{
    return type == ZF_BF16 ? (double)zf_bf16_to_f32(half_of(p, i)) : (double)((const float *)p)[i];
}

void make_pieces(struct pieces *p, size_t rows, size_t cols, size_t chunk_rows, size_t element)
{
    p->chunked = (struct zf_chunked){p->chunk, chunk_rows};
    for (size_t i = 0; i * chunk_rows < rows; i++) {
        size_t n = rows - i * chunk_rows < chunk_rows ? rows - i * chunk_rows : chunk_rows;
        assert_true(i < sizeof p->chunk / sizeof *p->chunk);
        p->chunk[i] = block(n * cols, element);
    }
}

void *piece_row(const struct pieces *p, size_t r, size_t cols, size_t element)
{
    return (char *)p->chunk[r / p->chunked.chunk_rows] + r % p->chunked.chunk_rows * cols * element;
}

void fill_pieces(const struct pieces *p, size_t rows, size_t cols, enum zf_dtype type)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            float x = (float)normal();
            if (type == ZF_BF16)
                ((uint16_t *)piece_row(p, r, cols, 2))[c] = zf_f32_to_bf16(x);
            else
                ((float *)piece_row(p, r, cols, 4))[c] = x;
        }
}

size_t some_chunk_rows(size_t i, size_t rows)
{
    size_t least = (rows + 9) / 10;
    return i % 3 == 0 ? rows : i % 3 == 1 ? least : least + 1 + i % 5;
}
