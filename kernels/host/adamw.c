/* AdamW in one pass: reads and writes each number once, so memory is what it costs. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

struct step {
    vf decay;                      /* lr * decay: kept apart, as 1 - 1e-7 is no float */
    vf clip, b1, rest1, b2, rest2; /* rest: 1 - b */
    vf rate, unbias2, eps;         /* lr / (1 - b1^t), 1 / (1 - b2^t) */
};

struct values {
    vf master, m, v;
};

static inline struct values update(const struct step *s, struct values x, vf g)
{
    g = vmul(s->clip, g);
    x.m = vfma(s->b1, x.m, vmul(s->rest1, g));
    x.v = vfma(s->b2, x.v, vmul(s->rest2, vmul(g, g)));
    vf root = vadd(vsqrt(vmul(x.v, s->unbias2)), s->eps);
    x.master = vsub(x.master, vfma(s->decay, x.master, vdiv(vmul(s->rate, x.m), root)));
    return x;
}

static size_t adamw_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_adamw_args *)args)->n, 2 * ZF_HOST_TASK);
}

static void adamw_run(const void *args, size_t task)
{
    const struct zf_adamw_args *a = args;
    if (a->norm && !a->norm->apply) return;
    double t = (double)a->t, correct1 = 1 - pow(a->beta1, t), correct2 = 1 - pow(a->beta2, t);
    struct step s = {vset((float)(a->lr * a->decay)),
                     vset(a->norm ? a->norm->clip : 1),
                     vset((float)a->beta1),
                     vset((float)(1 - a->beta1)),
                     vset((float)a->beta2),
                     vset((float)(1 - a->beta2)),
                     vset((float)(a->lr / correct1)),
                     vset((float)(1 / correct2)),
                     vset((float)a->eps)};
    size_t i = task * 2 * ZF_HOST_TASK, end = zf_host_end(a->n, 2 * ZF_HOST_TASK, task);
    float *weights = a->weights != a->master ? a->weights : NULL;
    for (; i + VW <= end; i += VW) {
        struct values x = update(&s, (struct values){vload(a->master + i), vload(a->m + i), vload(a->v + i)}, vload(a->g + i));
        vstore(a->master + i, x.master);
        vstore(a->m + i, x.m);
        vstore(a->v + i, x.v);
        if (weights) vstore(weights + i, x.master);
    }
    if (i < end) {
        size_t n = end - i;
        struct values x =
            update(&s, (struct values){vload_n(a->master + i, n), vload_n(a->m + i, n), vload_n(a->v + i, n)}, vload_n(a->g + i, n));
        vstore_n(a->master + i, x.master, n);
        vstore_n(a->m + i, x.m, n);
        vstore_n(a->v + i, x.v, n);
        if (weights) vstore_n(weights + i, x.master, n);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_adamw) = {adamw_tasks, adamw_run};
