/* Rows on their way between the halves: moved, handed over (packed for the bus and, where optimistic, moved by their gradient), folded into
 * the sum of a window. Each in one pass over memory, which is what it costs. */
#include "kernels/host/rows.h"
#include "kernels/host/chance.h"

/* ---- move_rows ---- */

static size_t move_rows_tasks(const void *args)
{
    const struct zf_move_rows_args *a = args;
    return group_tasks(a->rows, a->cols);
}

ALWAYS_INLINE void convert_some(elem *to, const void *from, enum zf_dtype from_type, size_t i, size_t n)
{
    vf x = from_type == ZF_BF16 ? load_bf16((const uint16_t *)from + i, n) : load_f32((const float *)from + i, n);
    show(to + i, x, n, NULL, 0, false);
}

static void convert_row(elem *to, const void *from, enum zf_dtype from_type, size_t cols)
{
    size_t i = 0;
    for (; i + VW <= cols; i += VW) convert_some(to, from, from_type, i, VW);
    if (i < cols) convert_some(to, from, from_type, i, cols - i);
}

/* Bits, whatever they mean. next_*: bytes from a row to the list's next one, which is fetched meanwhile. */
static void copy_row(char *to, const char *from, size_t bytes, ptrdiff_t next_to, ptrdiff_t next_from)
{
    size_t i = 0;
    for (; i + sizeof(vf) <= bytes; i += sizeof(vf)) {
        vf x;
        fetch(from + i + next_from);
        fetch(to + i + next_to);
        memcpy(&x, from + i, sizeof x);
        memcpy(to + i, &x, sizeof x);
    }
    if (i < bytes) memcpy(to + i, from + i, bytes - i);
}

static void move_rows_run(const void *args, size_t task)
{
    const struct zf_move_rows_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task), cols = a->cols;
    elem *to = a->to;
    const char *from = a->from;
    size_t to_row = cols * sizeof *to, from_row = cols * zf_dtype_size(a->from_type);
    if (a->type != a->from_type) {
        for (size_t r = task * each; r < end; r++)
            convert_row(to + number(a->to_list, r) * cols, from + number(a->from_list, r) * from_row, a->from_type, cols);
    } else if (cols == 1) { /* counts of updates, means: no loop for each */
        for (size_t r = task * each; r < end; r++)
            memcpy(to + number(a->to_list, r), from + number(a->from_list, r) * sizeof *to, sizeof *to);
    } else {
        for (size_t r = task * each; r < end; r++) {
            size_t t = number(a->to_list, r), f = number(a->from_list, r), next = r + 1 < end ? r + 1 : r;
            copy_row((char *)(to + t * cols), from + f * from_row, to_row, (ptrdiff_t)((number(a->to_list, next) - t) * to_row),
                     (ptrdiff_t)((number(a->from_list, next) - f) * from_row));
        }
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_move_rows) = {move_rows_tasks, move_rows_run};

/* ---- hand_over ---- */

static size_t hand_over_tasks(const void *args)
{
    const struct zf_hand_over_args *a = args;
    return group_tasks(a->rows, a->cols);
}

/* A row of it. NULL: not packed, not moved. */
struct handed {
    const float *g, *column;
    void *packed;
    elem *weights;
    vf channel; /* beta2 * its mean second moment */
    uint64_t first;
    ptrdiff_t next; /* elements from this row to the next of the list: while this one is worked on, that one is fetched */
};

struct move {
    vf clip, rate, rest2, eps;
    struct zf_u32x4 key;
};

#ifdef ZF_ELEM_BF16
/* By chance: sixteen bits for each element, one round of mix(); `key` has the upper half of their index in it. */
ALWAYS_INLINE void show_moved(elem *to, vf x, size_t n, uint32_t key, uint32_t index)
{
    uint32_t noise[VW];
#pragma GCC unroll 1 /* one vector, not sixteen numbers put into one */
    for (uint32_t j = 0; j < VW; j++) noise[j] = mix_upper((index + j) ^ key) >> 16;
    store_bf16(to, bnarrow_by(x, noise), n, false);
}

static uint32_t key_of(const struct move *m, uint64_t index)
{
    return mix((uint32_t)(index >> 32) ^ m->key.v[0]) + m->key.v[1];
}
#else
ALWAYS_INLINE void show_moved(elem *to, vf x, size_t n, uint32_t key, uint32_t index)
{
    (void)key;
    (void)index;
    store_f32(to, x, n);
}

static uint32_t key_of(const struct move *m, uint64_t index)
{
    (void)m;
    (void)index;
    return 0;
}
#endif

ALWAYS_INLINE void hand_over_some(const struct move *m, const struct handed *h, bool pack16, uint32_t key, size_t i, size_t n)
{
    vf g = load_f32(h->g + i, n), w = vzero(), column = vzero();
    fetch(h->g + i + h->next);
    if (h->weights) { /* before a store, which may lie at the same place of another page: the processor would wait for it */
        w = n == VW ? eload(h->weights + i) : eload_n(h->weights + i, n);
        column = load_f32(h->column + i, n);
        fetch(h->weights + i + h->next);
    }
    if (h->packed && pack16) store_bf16((uint16_t *)h->packed + i, bnarrow(g), n, false); /* a copy reads it next */
    if (h->packed && !pack16) store_f32((float *)h->packed + i, g, n);
    if (!h->weights) return;
    g = vmul(m->clip, g);
    vf moment = vfma(m->rest2, vmul(g, g), vmul(h->channel, column));
    w = vsub(w, vdiv(vmul(m->rate, g), vadd(vsqrt(moment), m->eps)));
    show_moved(h->weights + i, w, n, key, (uint32_t)(h->first + i));
}

/* Columns i .. end. */
ALWAYS_INLINE void hand_over_columns(const struct move *m, const struct handed *h, bool pack16, size_t i, size_t end)
{
    uint32_t key = key_of(m, h->first + i);
    for (; i + VW <= end; i += VW) hand_over_some(m, h, pack16, key, i, VW);
    if (i < end) hand_over_some(m, h, pack16, key, i, end - i);
}

/* Columns between two multiples of 2^32 in the count of elements have one key. */
static void hand_over_row(const struct move *m, const struct handed *h, bool pack16, size_t cols)
{
    for (size_t i = 0, end; i < cols; i = end) {
        uint64_t rest = (1ull << 32) - (uint32_t)(h->first + i);
        end = cols - i < rest ? cols : i + rest;
        if (pack16)
            hand_over_columns(m, h, true, i, end);
        else
            hand_over_columns(m, h, false, i, end);
    }
}

static bool all_finite(const double *x, size_t n)
{
    const uint64_t exponent = 0x7ff0000000000000u;
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

static void hand_over_run(const void *args, size_t task)
{
    const struct zf_hand_over_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task), cols = a->cols;
    bool moves = a->weights && all_finite(a->partial, a->partials);
    struct move m = {vset(a->clip), vset((float)a->rate), vset((float)(1 - a->beta2)), vset((float)a->eps),
                     zf_philox(a->seed, (uint64_t)ZF_STREAM_MOVE << 32, a->step)};
    for (size_t r = task * each; r < end; r++) {
        size_t n = number(a->list, r);
        struct handed h = {.g = a->g + n * cols, .column = a->column, .first = a->first + n * cols};
        if (r + 1 < end) h.next = (ptrdiff_t)((number(a->list, r + 1) - n) * cols);
        if (a->packed) {
            h.packed = (char *)a->packed + r * cols * zf_dtype_size(a->bus_type);
        }
        if (moves && a->channel[n] > 0) {
            h.weights = (elem *)a->weights + n * cols;
            h.channel = vset((float)a->beta2 * a->channel[n]);
        }
        hand_over_row(&m, &h, a->bus_type == ZF_BF16, cols);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_hand_over) = {hand_over_tasks, hand_over_run};

/* ---- fold_rows ---- */

static size_t fold_rows_tasks(const void *args)
{
    const struct zf_fold_rows_args *a = args;
    return group_tasks(a->rows, a->cols);
}

ALWAYS_INLINE void fold_some(float *sum, const elem *g, vf scale, bool add, size_t i, size_t n)
{
    enum { FETCH = 256 };
    fetch(sum + i + FETCH);
    fetch(g + i + FETCH);
    vf x = n == VW ? eload(g + i) : eload_n(g + i, n);
    store_f32(sum + i, add ? vfma(scale, x, load_f32(sum + i, n)) : vmul(scale, x), n);
}

ALWAYS_INLINE void fold_row(float *sum, const elem *g, vf scale, bool add, size_t cols)
{
    size_t i = 0;
    for (; i + VW <= cols; i += VW) fold_some(sum, g, scale, add, i, VW);
    if (i < cols) fold_some(sum, g, scale, add, i, cols - i);
}

static void fold_rows_run(const void *args, size_t task)
{
    const struct zf_fold_rows_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task);
    vf scale = vset(a->scale);
    for (size_t r = task * each; r < end; r++) {
        float *sum = chunk_row(&a->sum, r, a->cols * sizeof(float));
        const elem *g = chunk_row(&a->g, r, a->cols * sizeof(elem));
        if (a->add)
            fold_row(sum, g, scale, true, a->cols);
        else
            fold_row(sum, g, scale, false, a->cols);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_fold_rows) = {fold_rows_tasks, fold_rows_run};
