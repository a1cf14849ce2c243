/* What the kernels of rows share: how rows are cut into tasks, where row r lies. */
#ifndef ZF_HOST_ROWS_H
#define ZF_HOST_ROWS_H

#include "kernels/host/path.h"

/* Rows of one task: as many as make about 2 ZF_HOST_TASK elements, at least one. */
static inline size_t group_rows(size_t cols)
{
    return cols >= 2 * ZF_HOST_TASK ? 1 : 2 * ZF_HOST_TASK / cols;
}

static inline size_t group_tasks(size_t rows, size_t cols)
{
    return zf_host_tasks(rows, group_rows(cols));
}

/* The number that a list gives row r. */
static inline size_t number(const uint32_t *list, size_t r)
{
    return list ? list[r] : r;
}

static inline void *chunk_row(const struct zf_chunked *c, size_t r, size_t row_bytes)
{
    return (char *)c->chunk[r / c->chunk_rows] + r % c->chunk_rows * row_bytes;
}

#endif
