/* LayerNorm and RMSNorm, forward and backward. A row's sums are taken in 4 x 16 lanes, in one order. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

/* Lanes n and above become 0. */
static inline vf first(vf v, size_t n)
{
    float f[VW] = {0};
    vstore_n(f, v, n);
    return vload(f);
}

static float sum_of(const elem *x, size_t n)
{
    vf s[4] = {vzero(), vzero(), vzero(), vzero()};
    size_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++) s[j] = vadd(s[j], eload(x + i + (size_t)j * VW));
    for (; i + VW <= n; i += VW) s[0] = vadd(s[0], eload(x + i));
    if (i < n) s[1] = vadd(s[1], eload_n(x + i, n - i));
    return vsum(vadd(vadd(s[0], s[1]), vadd(s[2], s[3])));
}

/* sum of (x - mean)^2 */
static float squares_of(const elem *x, size_t n, float mean)
{
    vf s[4] = {vzero(), vzero(), vzero(), vzero()}, m = vset(mean);
    size_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++) {
            vf d = vsub(eload(x + i + (size_t)j * VW), m);
            s[j] = vfma(d, d, s[j]);
        }
    for (; i + VW <= n; i += VW) {
        vf d = vsub(eload(x + i), m);
        s[0] = vfma(d, d, s[0]);
    }
    if (i < n) {
        vf d = first(vsub(eload_n(x + i, n - i), m), n - i);
        s[1] = vfma(d, d, s[1]);
    }
    return vsum(vadd(vadd(s[0], s[1]), vadd(s[2], s[3])));
}

static inline vf scaled(vf x, vf mean, vf rstd, vf weight, vf bias, int has)
{
    vf y = vmul(vsub(x, mean), rstd);
    if (has & 1) y = vmul(y, weight);
    if (has & 2) y = vadd(y, bias);
    return y;
}

static void norm_one(const struct zf_norm_args *a, const elem *x, elem *y, float *stats)
{
    size_t n = a->cols, i = 0;
    const elem *w = a->weight, *b = a->bias;
    float mean = a->kind == ZF_LAYERNORM ? sum_of(x, n) / (float)n : 0;
    float rstd = 1 / sqrtf(squares_of(x, n, mean) / (float)n + a->eps);
    vf m = vset(mean), r = vset(rstd);
    int has = (w ? 1 : 0) | (b ? 2 : 0);
    for (; i + VW <= n; i += VW) estore(y + i, scaled(eload(x + i), m, r, w ? eload(w + i) : vzero(), b ? eload(b + i) : vzero(), has));
    if (i < n) {
        size_t k = n - i;
        estore_n(y + i, scaled(eload_n(x + i, k), m, r, w ? eload_n(w + i, k) : vzero(), b ? eload_n(b + i, k) : vzero(), has), k);
    }
    if (stats) {
        stats[0] = mean;
        stats[1] = rstd;
    }
}

static void add_rows(const elem *x, const elem *y, elem *sum, size_t n)
{
    size_t i = 0;
    for (; i + VW <= n; i += VW) estore(sum + i, vadd(eload(x + i), eload(y + i)));
    if (i < n) estore_n(sum + i, vadd(eload_n(x + i, n - i), eload_n(y + i, n - i)), n - i);
}

static size_t norm_tasks(const void *args)
{
    const struct zf_norm_args *a = args;
    return zf_host_tasks(a->rows * a->groups, zf_host_rows_per_task(a->cols));
}

static void norm_run(const void *args, size_t task)
{
    const struct zf_norm_args *a = args;
    size_t each = zf_host_rows_per_task(a->cols), end = zf_host_end(a->rows * a->groups, each, task);
    for (size_t i = task * each; i < end; i++) {
        size_t r = i / a->groups, g = i % a->groups;
        const elem *x = (const elem *)a->x + r * a->ldx + g * a->cols;
        if (a->residual) {
            elem *sum = (elem *)a->sum + r * a->cols;
            add_rows(x, (const elem *)a->residual + r * a->cols, sum, a->cols);
            x = sum;
        }
        norm_one(a, x, (elem *)a->y + r * a->ldy + g * a->cols, a->stats ? a->stats + 2 * i : NULL);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_norm) = {norm_tasks, norm_run};

/* One vector of the backward pass; n < 16 in the last step. */
struct back {
    const elem *dy, *x, *w; /* w may be NULL */
    elem *dx;
    vf mean, rstd, mean_d, mean_dx; /* the means of d and d * xhat, where d = dy * w */
    vf sum_d, sum_dx;
    bool accumulate;
};

static inline void back_sum(struct back *b, vf dy, vf x, vf w)
{
    vf d = b->w ? vmul(dy, w) : dy;
    b->sum_d = vadd(b->sum_d, d);
    b->sum_dx = vfma(d, vmul(vsub(x, b->mean), b->rstd), b->sum_dx);
}

static inline vf back_step(const struct back *b, vf dy, vf x, vf w, vf old)
{
    vf d = b->w ? vmul(dy, w) : dy, xhat = vmul(vsub(x, b->mean), b->rstd);
    vf dx = vmul(b->rstd, vsub(vsub(d, b->mean_d), vmul(xhat, b->mean_dx)));
    return b->accumulate ? vadd(old, dx) : dx;
}

static void back_one(struct back *b, size_t n, bool centred)
{
    size_t i, k = n % VW;
    b->sum_d = b->sum_dx = vzero();
    for (i = 0; i + VW <= n; i += VW) back_sum(b, eload(b->dy + i), eload(b->x + i), b->w ? eload(b->w + i) : vzero());
    if (k) back_sum(b, eload_n(b->dy + i, k), eload_n(b->x + i, k), b->w ? eload_n(b->w + i, k) : vzero());
    b->mean_d = vset(centred ? vsum(b->sum_d) / (float)n : 0);
    b->mean_dx = vset(vsum(b->sum_dx) / (float)n);
    for (i = 0; i + VW <= n; i += VW)
        estore(b->dx + i, back_step(b, eload(b->dy + i), eload(b->x + i), b->w ? eload(b->w + i) : vzero(),
                                    b->accumulate ? eload(b->dx + i) : vzero()));
    if (k)
        estore_n(b->dx + i,
                 back_step(b, eload_n(b->dy + i, k), eload_n(b->x + i, k), b->w ? eload_n(b->w + i, k) : vzero(),
                           b->accumulate ? eload_n(b->dx + i, k) : vzero()),
                 k);
}

static size_t norm_backward_tasks(const void *args)
{
    const struct zf_norm_backward_args *a = args;
    return zf_host_tasks(a->rows * a->groups, zf_host_rows_per_task(a->cols));
}

static void norm_backward_run(const void *args, size_t task)
{
    const struct zf_norm_backward_args *a = args;
    size_t each = zf_host_rows_per_task(a->cols), end = zf_host_end(a->rows * a->groups, each, task);
    for (size_t i = task * each; i < end; i++) {
        size_t r = i / a->groups, g = i % a->groups * a->cols;
        struct back b = {.dy = (const elem *)a->dy + r * a->lddy + g,
                         .x = (const elem *)a->x + r * a->ldx + g,
                         .w = a->weight,
                         .dx = (elem *)a->dx + r * a->lddx + g,
                         .mean = vset(a->stats[2 * i]),
                         .rstd = vset(a->stats[2 * i + 1]),
                         .accumulate = a->accumulate};
        back_one(&b, a->cols, a->kind == ZF_LAYERNORM);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_norm_backward) = {norm_backward_tasks, norm_backward_run};

/* Gradients of the weights: a task has 64 columns and goes down all rows. Sums of 64 rows are added to the total, so that its rounding does
 * not grow with the number of rows. */
enum { COLUMNS = 64, BLOCK = 64 };

struct weight_sums {
    vf w, b;
};

static inline void weight_row(const struct zf_norm_backward_weight_args *a, size_t i, size_t c, size_t n, struct weight_sums *s)
{
    size_t r = i / a->groups, g = i % a->groups * a->cols + c;
    const elem *dy = (const elem *)a->dy + r * a->lddy + g;
    vf d = n < VW ? eload_n(dy, n) : eload(dy);
    if (a->dweight) {
        const elem *x = (const elem *)a->x + r * a->ldx + g;
        vf xhat = vmul(vsub(n < VW ? eload_n(x, n) : eload(x), vset(a->stats[2 * i])), vset(a->stats[2 * i + 1]));
        s->w = vfma(d, xhat, s->w);
    }
    s->b = vadd(s->b, d);
}

static void add_to(float *to, vf v, size_t n)
{
    if (!to) return;
    if (n < VW)
        vstore_n(to, vadd(vload_n(to, n), v), n);
    else
        vstore(to, vadd(vload(to), v));
}

static size_t weight_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_norm_backward_weight_args *)args)->cols, COLUMNS);
}

static void weight_run(const void *args, size_t task)
{
    const struct zf_norm_backward_weight_args *a = args;
    size_t begin = task * COLUMNS, end = zf_host_end(a->cols, COLUMNS, task), rows = a->rows * a->groups;
    struct weight_sums total[COLUMNS / VW];
    for (int v = 0; v < COLUMNS / VW; v++) total[v] = (struct weight_sums){vzero(), vzero()};
    for (size_t i = 0; i < rows; i += BLOCK) {
        size_t last = rows - i < BLOCK ? rows : i + BLOCK;
        for (size_t c = begin, v = 0; c < end; c += VW, v++) {
            struct weight_sums s = {vzero(), vzero()};
            if (end - c >= VW)
                for (size_t j = i; j < last; j++) weight_row(a, j, c, VW, &s);
            else
                for (size_t j = i; j < last; j++) weight_row(a, j, c, end - c, &s);
            total[v].w = vadd(total[v].w, s.w);
            total[v].b = vadd(total[v].b, s.b);
        }
    }
    for (size_t c = begin, v = 0; c < end; c += VW, v++) {
        size_t n = end - c < VW ? end - c : VW;
        add_to(a->dweight ? a->dweight + c : NULL, total[v].w, n);
        add_to(a->dbias ? a->dbias + c : NULL, total[v].b, n);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_norm_backward_weight) = {weight_tasks, weight_run};
