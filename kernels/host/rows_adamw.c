/* AdamW of rows that have their own counts of updates: the device half's every step, the CPU half's of a whole window at once. The element
 * is that of adamw.h, so that a row learns the same wherever it lives. */
#include "kernels/host/adamw.h"
#include "kernels/host/rows.h"

/* Corrections for the counts seen last in a task: rows that came together stay together, so most find theirs. Slot i has a t with
 * t % CORRECTIONS == i, or any other number for none. */
enum { CORRECTIONS = 64 };

struct corrections {
    double beta1, beta2;
    uint64_t seed;
    struct correction slot[CORRECTIONS];
};

static void corrections_clear(struct corrections *c, double beta1, double beta2, uint64_t seed)
{
    c->beta1 = beta1;
    c->beta2 = beta2;
    c->seed = seed;
    for (uint64_t i = 0; i < CORRECTIONS; i++) c->slot[i].t = i + 1;
}

static const struct correction *correction(struct corrections *c, uint64_t t)
{
    struct correction *s = &c->slot[t % CORRECTIONS];
    if (s->t != t) *s = correction_at(t, c->beta1, c->beta2, c->seed);
    return s;
}

/* Where a row lies, and how its visible copy is rounded. */
struct row {
    float *master, *m, *v;
    elem *visible;              /* NULL: none */
    const struct zf_u32x4 *key; /* NULL: to nearest */
    uint64_t first;             /* index of its first element, for chance */
    bool past;                  /* visible goes past the caches */
};

/* ---- adamw_rows ---- */

static size_t adamw_rows_tasks(const void *args)
{
    const struct zf_adamw_rows_args *a = args;
    return group_tasks(a->rows, a->cols);
}

/* next: elements from this row of g and of the visible copy to the list's next one, which is fetched meanwhile. */
ALWAYS_INLINE void update_some(const struct step *s, const struct row *r, const float *g, ptrdiff_t next, bool bus16, size_t i, size_t n)
{
    fetch(g + i + next);
    if (r->visible && !r->past) fetch(r->visible + i + next);
    vf gradient = load_f32(g + i, n);
    if (bus16) gradient = bwiden(bnarrow(gradient));
    struct values x = update(s, load_values(r->master + i, r->m + i, r->v + i, n), gradient);
    store_values(r->master + i, r->m + i, r->v + i, x, n);
    if (r->visible) show(r->visible + i, x.master, n, r->key, r->first + i, r->past);
}

ALWAYS_INLINE void update_row(const struct step *s, const struct row *r, const float *g, ptrdiff_t next, bool bus16, size_t cols)
{
    size_t i = 0;
    for (; i + VW <= cols; i += VW) update_some(s, r, g, next, bus16, i, VW);
    if (i < cols) update_some(s, r, g, next, bus16, i, cols - i);
}

static void adamw_rows_run(const void *args, size_t task)
{
    const struct zf_adamw_rows_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task), cols = a->cols;
    struct corrections known;
    corrections_clear(&known, a->beta1, a->beta2, a->seed);
    struct step s = step_constants(a->beta1, a->beta2, a->eps);
    for (size_t r = task * each; r < end; r++) {
        const struct correction *c = correction(&known, ++a->t[r]);
        struct rates rates = rates_of(c, a->clip, a->lr, a->decay);
        set_rates(&s, &rates);
        size_t n = number(a->list, r);
        ptrdiff_t next = r + 1 < end ? (ptrdiff_t)((number(a->list, r + 1) - n) * cols) : 0;
        elem *weights = a->weights ? (elem *)a->weights + n * cols : NULL;
        struct row row = {
            .m = a->m + r * cols, .v = a->v + r * cols, .key = a->stochastic ? &c->chance : NULL, .first = a->first + n * cols};
        row.master = a->master ? a->master + r * cols : (float *)weights;
        if (a->master) {
            row.visible = weights;
            row.past = past_caches(weights, a->rows * cols);
        }
        if (a->bus_type == ZF_BF16)
            update_row(&s, &row, a->g + n * cols, next, true, cols);
        else
            update_row(&s, &row, a->g + n * cols, next, false, cols);
    }
    past_caches_done();
}

const struct zf_host_kernel ZF_PATH(zf_host_adamw_rows) = {adamw_rows_tasks, adamw_rows_run};

/* ---- serve_rows ---- */

/* Entries go through registers this many at a time: each is a stream that the processor has to fetch ahead. */
enum { ENTRIES = 16 };

struct part {
    size_t count;
    struct rates rates[ENTRIES];
    const void *g[ENTRIES]; /* of the present row */
    bool ahead;
    float ahead_rate, ahead_unbias2;
};

static size_t serve_rows_tasks(const void *args)
{
    const struct zf_serve_rows_args *a = args;
    return group_tasks(a->rows, a->cols);
}

/* Entry e, on elements i .. i + n. */
ALWAYS_INLINE struct values apply(struct step *s, const struct part *p, size_t e, struct values x, bool g16, bool products, size_t i,
                                  size_t n)
{
    set_rates(s, &p->rates[e]);
    if (g16) {
        const uint16_t *g = (const uint16_t *)p->g[e] + i;
        fetch(g + FETCH);
        return update_by(s, x, load_bf16(g, n), products);
    }
    const float *g = (const float *)p->g[e] + i;
    fetch(g + FETCH);
    return update_by(s, x, load_f32(g, n), products);
}

/* Elements i .. i + n: loaded once, updated by each entry in turn, stored once. */
ALWAYS_INLINE void serve_some(struct step s, const struct part *p, const struct row *r, bool g16, size_t i, size_t n)
{
    struct values x;
    if (p->count || p->ahead)
        x = load_values(r->master + i, r->m + i, r->v + i, n);
    else
        x = (struct values){.master = load_f32(r->master + i, n)};
    if (r->visible && !r->past) fetch(r->visible + i + FETCH);
    size_t e = 0;
    for (; e + 2 <= p->count; e += 2) { /* two ways to the same root, side by side */
        x = apply(&s, p, e, x, g16, false, i, n);
        x = apply(&s, p, e + 1, x, g16, true, i, n);
    }
    if (e < p->count) x = apply(&s, p, e, x, g16, false, i, n);
    if (p->count) store_values(r->master + i, r->m + i, r->v + i, x, n);
    if (!r->visible) return;
    if (p->ahead) {
        vf root = vadd(vsqrt(vmul(x.v, vset(p->ahead_unbias2))), s.eps);
        x.master = vsub(x.master, vdiv(vmul(vset(p->ahead_rate), x.m), root));
    }
    show(r->visible + i, x.master, n, r->key, r->first + i, r->past);
}

ALWAYS_INLINE void serve_row(const struct step *s, const struct part *p, const struct row *r, bool g16, size_t cols)
{
    size_t i = 0;
    for (; i + VW <= cols; i += VW) serve_some(*s, p, r, g16, i, VW);
    if (i < cols) serve_some(*s, p, r, g16, i, cols - i);
}

/* Entries first .. of row r, as many as a part takes. */
static void fill_part(struct part *p, const struct zf_serve_rows_args *a, struct corrections *known, size_t r, size_t first)
{
    size_t row_bytes = a->cols * zf_dtype_size(a->g_type);
    p->count = a->entry_count - first < ENTRIES ? a->entry_count - first : ENTRIES;
    for (size_t e = 0; e < p->count; e++) {
        const struct zf_entry *entry = &a->entries[first + e];
        p->rates[e] = rates_of(correction(known, (uint64_t)a->t[r] + e + 1), entry->scale, entry->lr, a->decay);
        p->g[e] = chunk_row(&entry->g, r, row_bytes);
    }
    a->t[r] += (uint32_t)p->count;
}

/* How row r is shown, once its entries are applied. */
static void fill_visible(struct part *p, struct row *row, const struct zf_serve_rows_args *a, struct corrections *known, size_t r)
{
    if (!a->visible.chunk) return;
    const struct correction *c = correction(known, a->t[r]);
    row->visible = chunk_row(&a->visible, r, a->cols * sizeof(elem));
    row->past = past_caches(row->visible, a->rows * a->cols);
    if (a->stochastic) row->key = &c->chance;
    if (!(a->ahead > 0) || !a->t[r]) return; /* without an update there is no momentum */
    p->ahead = true;
    p->ahead_rate = (float)(a->ahead / c->first);
    p->ahead_unbias2 = (float)(1 / c->second);
}

static void serve_rows_run(const void *args, size_t task)
{
    const struct zf_serve_rows_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task), cols = a->cols;
    struct corrections known;
    corrections_clear(&known, a->beta1, a->beta2, a->seed);
    struct step s = step_constants(a->beta1, a->beta2, a->eps);
    for (size_t r = task * each; r < end; r++) {
        struct row row = {a->master + r * cols, a->m + r * cols, a->v + r * cols, .first = a->first + number(a->list, r) * cols};
        size_t first = 0;
        do {
            struct part p;
            p.ahead = false;
            fill_part(&p, a, &known, r, first);
            first += p.count;
            if (first == a->entry_count) fill_visible(&p, &row, a, &known, r);
            if (a->g_type == ZF_BF16)
                serve_row(&s, &p, &row, true, cols);
            else
                serve_row(&s, &p, &row, false, cols);
        } while (first < a->entry_count);
    }
    past_caches_done();
}

const struct zf_host_kernel ZF_PATH(zf_host_serve_rows) = {serve_rows_tasks, serve_rows_run};
