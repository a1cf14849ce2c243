/* Rotary positions, activations, sums, copies and casts: what has no sum over elements. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

static inline vf load_some(const elem *p, size_t n)
{
    return n < VW ? eload_n(p, n) : eload(p);
}

static inline void store_some(elem *p, vf v, size_t n)
{
    if (n < VW)
        estore_n(p, v, n);
    else
        estore(p, v);
}

static inline size_t step_of(size_t i, size_t n)
{
    return n - i < VW ? n - i : VW;
}

/* One head: pairs (d, d + half). */
static void rotate(elem *x, const float *cosine, const float *sine, size_t half)
{
    for (size_t i = 0; i < half; i += VW) {
        size_t n = step_of(i, half);
        vf a = load_some(x + i, n), b = load_some(x + half + i, n), c = vload(cosine + i), s = vload(sine + i);
        store_some(x + i, vsub(vmul(a, c), vmul(b, s)), n);
        store_some(x + half + i, vadd(vmul(b, c), vmul(a, s)), n);
    }
}

static size_t rope_tasks(const void *args)
{
    const struct zf_rope_args *a = args;
    return zf_host_tasks(a->rows, zf_host_rows_per_task(a->heads * a->head_dim));
}

static void rope_run(const void *args, size_t task)
{
    const struct zf_rope_args *a = args;
    size_t each = zf_host_rows_per_task(a->heads * a->head_dim), end = zf_host_end(a->rows, each, task), half = a->head_dim / 2;
    float cosine[ZF_HEAD_DIM_MAX / 2] = {0}, sine[ZF_HEAD_DIM_MAX / 2] = {0}, sign = a->inverse ? -1.0f : 1.0f;
    for (size_t r = task * each; r < end; r++) {
        const float *angles = a->table + (size_t)a->position[r] * a->head_dim;
        for (size_t d = 0; d < half; d++) {
            cosine[d] = angles[2 * d];
            sine[d] = sign * angles[2 * d + 1];
        }
        for (size_t h = 0; h < a->heads; h++) rotate((elem *)a->x + r * a->ld + h * a->head_dim, cosine, sine, half);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_rope) = {rope_tasks, rope_run};

/* at = 1 / (1 + e^-x), exactly 0 from -80 down; rest = 1 - at, without cancellation; NaN stays NaN */
struct sigmoid {
    vf at, rest;
};

static inline struct sigmoid sigmoid(vf x)
{
    vf z = vsub(vzero(), x), e = vexp_low(vmin(vset(87), z)), s = vdiv(vset(1), vadd(vset(1), e));
    return (struct sigmoid){vselect_lt(vset(80), z, vzero(), s), vmul(e, s)};
}

/* GELU by tanh is x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), and (1 + tanh u) / 2 is sigmoid(2u): no cancellation anywhere.
 */
static const float GELU_SCALE = 1.5957691216057308f, GELU_CUBE = 0.044715f; /* 2 sqrt(2/pi) */

static inline struct sigmoid gelu_gate(vf x)
{
    return sigmoid(vmul(vmul(vset(GELU_SCALE), x), vfma(vset(GELU_CUBE), vmul(x, x), vset(1))));
}

static inline vf gelu_slope(vf x)
{
    struct sigmoid s = gelu_gate(x);
    vf y = vmin(vset(20), vmax(vset(-20), x)); /* beyond, one of the two is 0, and x^3 must not turn that to NaN */
    vf du = vmul(vset(GELU_SCALE), vfma(vset(3 * GELU_CUBE), vmul(y, y), vset(1)));
    return vfma(vmul(y, vmul(s.at, s.rest)), du, s.at);
}

static inline vf silu_slope(vf x, struct sigmoid s)
{
    return vmul(s.at, vfma(x, s.rest, vset(1)));
}

/* 1 where x > 0, 0 where not, NaN for NaN: times dy */
static inline vf relu_back(vf x, vf dy)
{
    return vselect_lt(vzero(), x, dy, vmax(vzero(), vmin(vzero(), x)));
}

/* Element n of what may be missing. */
static inline const elem *read_at(const void *p, size_t n)
{
    return p ? (const elem *)p + n : NULL;
}

static inline elem *write_at(void *p, size_t n)
{
    return p ? (elem *)p + n : NULL;
}

static size_t activation_tasks(const void *args)
{
    const struct zf_activation_args *a = args;
    return zf_host_tasks(a->rows, zf_host_rows_per_task(a->n));
}

static void activate(enum zf_activation_kind kind, const elem *x, const elem *up, elem *y, size_t size)
{
    for (size_t i = 0; i < size; i += VW) {
        size_t n = step_of(i, size);
        vf v = load_some(x + i, n);
        if (kind == ZF_RELU)
            v = vmax(vzero(), v); /* the second operand if NaN */
        else if (kind == ZF_GELU_TANH)
            v = vmul(v, gelu_gate(v).at);
        else
            v = vmul(vmul(v, sigmoid(v).at), load_some(up + i, n));
        store_some(y + i, v, n);
    }
}

static void activation_run(const void *args, size_t task)
{
    const struct zf_activation_args *a = args;
    size_t each = zf_host_rows_per_task(a->n), end = zf_host_end(a->rows, each, task);
    for (size_t r = task * each; r < end; r++)
        activate(a->kind, read_at(a->x, r * a->ldx), read_at(a->up, r * a->ldx), write_at(a->y, r * a->ldy), a->n);
}

const struct zf_host_kernel ZF_PATH(zf_host_activation) = {activation_tasks, activation_run};

static size_t activation_backward_tasks(const void *args)
{
    const struct zf_activation_backward_args *a = args;
    return zf_host_tasks(a->rows, zf_host_rows_per_task(a->n));
}

static void activate_back(enum zf_activation_kind kind, const elem *dy, const elem *x, const elem *up, elem *dx, elem *dup, size_t size)
{
    for (size_t i = 0; i < size; i += VW) {
        size_t n = step_of(i, size);
        vf d = load_some(dy + i, n), v = load_some(x + i, n);
        if (kind == ZF_SWIGLU) {
            vf u = load_some(up + i, n);
            struct sigmoid s = sigmoid(v);
            store_some(dx + i, vmul(vmul(d, u), silu_slope(v, s)), n);
            store_some(dup + i, vmul(d, vmul(v, s.at)), n);
        } else {
            store_some(dx + i, kind == ZF_RELU ? relu_back(v, d) : vmul(d, gelu_slope(v)), n);
        }
    }
}

static void activation_backward_run(const void *args, size_t task)
{
    const struct zf_activation_backward_args *a = args;
    size_t each = zf_host_rows_per_task(a->n), end = zf_host_end(a->rows, each, task);
    for (size_t r = task * each; r < end; r++)
        activate_back(a->kind, read_at(a->dy, r * a->lddy), read_at(a->x, r * a->ldx), read_at(a->up, r * a->ldx),
                      write_at(a->dx, r * a->lddx), write_at(a->dup, r * a->lddx), a->n);
}

const struct zf_host_kernel ZF_PATH(zf_host_activation_backward) = {activation_backward_tasks, activation_backward_run};

static size_t add_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_add_args *)args)->n, ZF_HOST_TASK);
}

static void add_run(const void *args, size_t task)
{
    const struct zf_add_args *a = args;
    size_t end = zf_host_end(a->n, ZF_HOST_TASK, task);
    const elem *x = a->a, *y = a->b;
    for (size_t i = task * ZF_HOST_TASK; i < end; i += VW) {
        size_t n = step_of(i, end);
        store_some((elem *)a->y + i, vadd(load_some(x + i, n), load_some(y + i, n)), n);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_add) = {add_tasks, add_run};

static size_t copy_rows_tasks(const void *args)
{
    const struct zf_copy_rows_args *a = args;
    return zf_host_tasks(a->rows, zf_host_rows_per_task(a->cols));
}

static void copy_rows_run(const void *args, size_t task)
{
    const struct zf_copy_rows_args *a = args;
    size_t each = zf_host_rows_per_task(a->cols), end = zf_host_end(a->rows, each, task);
    for (size_t r = task * each; r < end; r++)
        memcpy((elem *)a->to + r * a->ld_to, (const elem *)a->from + r * a->ld_from, a->cols * sizeof(elem));
}

const struct zf_host_kernel ZF_PATH(zf_host_copy_rows) = {copy_rows_tasks, copy_rows_run};

static size_t cast_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_cast_args *)args)->n, ZF_HOST_TASK);
}

static void cast_f32(elem *to, const float *from, size_t n)
{
    size_t i = 0;
    for (; i + VW <= n; i += VW) estore(to + i, vload(from + i));
    if (i < n) estore_n(to + i, vload_n(from + i, n - i), n - i);
}

static void cast_bf16(elem *to, const uint16_t *from, size_t n)
{
    size_t i = 0;
    for (; i + VW <= n; i += VW) estore(to + i, bload(from + i));
    if (i < n) estore_n(to + i, bload_n(from + i, n - i), n - i);
}

static void cast_run(const void *args, size_t task)
{
    const struct zf_cast_args *a = args;
    size_t first = task * ZF_HOST_TASK, n = zf_host_end(a->n, ZF_HOST_TASK, task) - first;
    elem *to = (elem *)a->to + first;
    if (a->from_type == a->type)
        memcpy(to, (const elem *)a->from + first, n * sizeof *to);
    else if (a->from_type == ZF_F32)
        cast_f32(to, (const float *)a->from + first, n);
    else
        cast_bf16(to, (const uint16_t *)a->from + first, n);
}

const struct zf_host_kernel ZF_PATH(zf_host_cast) = {cast_tasks, cast_run};
