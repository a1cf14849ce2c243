/* Cross-entropy of rows of logits, and in their place its gradient (in bf16 over the first half of the row). A row is read twice without a
 * gradient, three times with. Sums of exp are kept in double from one chunk of a row to the next, so that long vocabularies lose nothing;
 * the logarithm is of a double too, the same on every path. Tasks are blocks of rows; they write disjoint rows. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

enum {
    CHUNK = 1024,         /* logits that are summed in single precision: 16 a lane of four vectors */
    TASK_LOGITS = 1 << 16 /* a task has about as many, in whole rows */
};

/* The last n < VW numbers of a row; the other lanes are `fill`. */
static vf load_end(const float *p, size_t n, float fill)
{
    float f[VW];
    for (size_t i = 0; i < VW; i++) f[i] = i < n ? p[i] : fill;
    return vload(f);
}

struct range {
    float min, max; /* of what is not NaN */
};

static struct range row_range(const float *x, size_t n)
{
    vf low[4], high[4];
    size_t i = 0;
    for (size_t v = 0; v < 4; v++) {
        low[v] = vset(INFINITY);
        high[v] = vset(-INFINITY);
    }
    for (; i + 4 * VW <= n; i += 4 * VW) {
        for (size_t v = 0; v < 4; v++) {
            vf a = vload(x + i + v * VW);
            low[v] = vmin(a, low[v]); /* this order: a NaN is passed over, and found when it is summed */
            high[v] = vmax(a, high[v]);
        }
    }
    for (; i < n; i += VW) {
        vf a = i + VW <= n ? vload(x + i) : load_end(x + i, n - i, x[0]);
        low[0] = vmin(a, low[0]);
        high[0] = vmax(a, high[0]);
    }
    vf min = vmin(vmin(low[0], low[1]), vmin(low[2], low[3])), max = vmax(vmax(high[0], high[1]), vmax(high[2], high[3]));
    return (struct range){-vmaxall(vsub(vzero(), min)), vmaxall(max)};
}

/* The sum of e = exp(x - max), in order of chunks; `keep`: x becomes e. */
static double sum_exp(float *x, size_t n, float max, bool keep)
{
    double sum = 0;
    vf m = vset(max);
    for (size_t first = 0; first < n; first += CHUNK) {
        size_t end = n - first < CHUNK ? n : first + CHUNK, i = first;
        vf part[4] = {vzero(), vzero(), vzero(), vzero()};
        for (; i + 4 * VW <= end; i += 4 * VW) {
            for (size_t v = 0; v < 4; v++) {
                vf e = vexp_low(vsub(vload(x + i + v * VW), m));
                if (keep) vstore(x + i + v * VW, e);
                part[v] = vadd(part[v], e);
            }
        }
        for (; i < end; i += VW) {
            size_t left = end - i;
            vf e = vexp_low(vsub(left < VW ? load_end(x + i, left, -INFINITY) : vload(x + i), m));
            if (keep && left < VW) vstore_n(x + i, e, left);
            else if (keep) vstore(x + i, e);
            part[0] = vadd(part[0], e);
        }
        sum += (double)vsum(vadd(vadd(part[0], part[1]), vadd(part[2], part[3])));
    }
    return sum;
}

/* y may lie over x: numbers of y are no longer than those of x, so what is written was read. */
static void scale_row(const float *x, elem *y, size_t n, float factor)
{
    vf f = vset(factor);
    size_t i = 0;
    for (; i + VW <= n; i += VW) estore(y + i, vmul(f, vload(x + i)));
    if (i < n) estore_n(y + i, vmul(f, vload_n(x + i, n - i)), n - i);
}

static float row_loss(const struct zf_cross_entropy_args *a, float *x, size_t target)
{
    struct range range = row_range(x, a->n);
    float chosen = x[target];
    double sum = sum_exp(x, a->n, range.max, a->gradient);
    if (range.min == -INFINITY) sum = NAN; /* exp would pass it over */
    if (a->gradient) {
        float factor = (float)((double)a->scale / sum);
        vf hit = vsub(vmul(vset(factor), vset(x[target])), vset(a->scale));
        elem *y = (elem *)(void *)x;
        scale_row(x, y, a->n, factor);
        estore_n(y + target, hit, 1);
    }
    return (float)(log(sum) + ((double)range.max - (double)chosen));
}

static size_t task_rows(const struct zf_cross_entropy_args *a)
{
    return a->n < TASK_LOGITS ? TASK_LOGITS / a->n : 1;
}

static size_t cross_entropy_tasks(const void *args)
{
    const struct zf_cross_entropy_args *a = args;
    if (!a->n || !a->rows) return 0;
    return (a->rows - 1) / task_rows(a) + 1;
}

static void cross_entropy_run(const void *args, size_t task)
{
    const struct zf_cross_entropy_args *a = args;
    size_t rows = task_rows(a), first = task * rows, end = a->rows - first < rows ? a->rows : first + rows;
    for (size_t r = first; r < end; r++) {
        float *x = a->logits + r * a->ld;
        if (a->target[r] >= 0) {
            a->loss[r] = row_loss(a, x, (size_t)a->target[r]);
        } else {
            a->loss[r] = 0;
            if (a->gradient) memset(x, 0, a->n * sizeof(elem));
        }
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_cross_entropy) = {cross_entropy_tasks, cross_entropy_run};
