/* See series.h. Buckets hold all values, the ring the newest ones again, one by one: a question is answered from buckets up to the one in
 * which the ring begins, and from the ring behind it. */
#include "tui/series.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct zf_bucket nothing = {.least = INFINITY, .most = -INFINITY, .last = NAN};

static void put(struct zf_bucket *b, double value)
{
    if (!(fabs(value) <= (double)FLT_MAX)) {
        b->bad++;
        return;
    }
    float x = (float)value;
    if (x < b->least) b->least = x;
    if (x > b->most) b->most = x;
    b->last = x;
    b->sum += value;
    b->count++;
}

static void join(struct zf_bucket *a, const struct zf_bucket *later)
{
    if (later->least < a->least) a->least = later->least;
    if (later->most > a->most) a->most = later->most;
    if (later->count) a->last = later->last;
    a->sum += later->sum;
    a->count += later->count;
    a->bad += later->bad;
}

static const struct zf_point *point(const struct zf_series *s, size_t i) /* 0: the oldest */
{
    return &s->recent[(s->recent_at + ZF_SERIES_RECENT - s->recent_used + i) % ZF_SERIES_RECENT];
}

/* How many points of the ring have a step below this one. */
static size_t points_before(const struct zf_series *s, uint64_t step)
{
    size_t low = 0, high = s->recent_used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point(s, middle)->step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t begin_of(const struct zf_series *s, size_t bucket)
{
    return s->first + bucket * s->span;
}

/* Buckets from here on say nothing that the ring does not say better. */
static size_t coarse_buckets(const struct zf_series *s)
{
    if (!s->recent_used) return s->used;
    uint64_t from = point(s, 0)->step;
    if (from == s->first) return 0;
    uint64_t n = (from - s->first + s->span - 1) / s->span;
    return n < s->used ? (size_t)n : s->used;
}

/* The first point of the ring that lies behind those buckets. */
static size_t fine_points(const struct zf_series *s, size_t coarse)
{
    return coarse ? points_before(s, begin_of(s, coarse)) : 0;
}

static void halve(struct zf_series *s)
{
    size_t n = (s->used + 1) / 2;
    for (size_t i = 0; i < n; i++) {
        struct zf_bucket b = s->bucket[2 * i];
        if (2 * i + 1 < s->used) join(&b, &s->bucket[2 * i + 1]);
        s->bucket[i] = b;
    }
    s->used = n;
    s->span *= 2;
}

static bool begin(struct zf_series *s, uint64_t step)
{
    if (!s->bucket) s->bucket = malloc(ZF_SERIES_BUCKETS * sizeof *s->bucket);
    if (!s->recent) s->recent = malloc(ZF_SERIES_RECENT * sizeof *s->recent);
    if (!s->bucket || !s->recent) return false;
    s->first = step;
    s->span = 1;
    return true;
}

bool zf_series_add(struct zf_series *s, uint64_t step, double value)
{
    if (s->used && step <= s->newest) return true;
    if (!s->used && !begin(s, step)) return false;
    while ((step - s->first) >> __builtin_ctzll(s->span) >= ZF_SERIES_BUCKETS) halve(s); /* a division would be most of the work */
    size_t at = (size_t)((step - s->first) >> __builtin_ctzll(s->span));
    while (s->used <= at) s->bucket[s->used++] = nothing;
    put(&s->bucket[at], value);
    s->recent[s->recent_at] = (struct zf_point){step, value};
    s->recent_at = (s->recent_at + 1) % ZF_SERIES_RECENT;
    if (s->recent_used < ZF_SERIES_RECENT) s->recent_used++;
    s->newest = step;
    s->last = value;
    return true;
}

void zf_series_again(struct zf_series *s, double value)
{
    if (!s->used || !s->recent_used) return;
    put(&s->bucket[s->used - 1], value);
    s->recent[(s->recent_at + ZF_SERIES_RECENT - 1) % ZF_SERIES_RECENT].value = value;
    s->last = value;
}

/* The last bucket anew from the ring, if that still has all of it; else it keeps what was cut off. */
static void shorten_last(struct zf_series *s)
{
    uint64_t from = begin_of(s, s->used - 1);
    if (!s->recent_used || point(s, 0)->step > from) return;
    s->bucket[s->used - 1] = nothing;
    for (size_t i = points_before(s, from); i < s->recent_used; i++) put(&s->bucket[s->used - 1], point(s, i)->value);
}

void zf_series_cut(struct zf_series *s, uint64_t step)
{
    if (!s->used || step >= s->newest) return;
    size_t keep = points_before(s, step + 1);
    s->recent_at = (s->recent_at + ZF_SERIES_RECENT - (s->recent_used - keep)) % ZF_SERIES_RECENT;
    s->recent_used = keep;
    if (step < s->first) {
        s->used = s->recent_used = 0;
        return;
    }
    s->used = (size_t)((step - s->first) / s->span) + 1;
    shorten_last(s);
    while (s->used > 1 && !s->bucket[s->used - 1].count && !s->bucket[s->used - 1].bad) s->used--;
    const struct zf_bucket *b = &s->bucket[s->used - 1];
    uint64_t end = begin_of(s, s->used - 1) + s->span - 1;
    s->newest = keep ? point(s, keep - 1)->step : end < step ? end : step;
    s->last = keep ? point(s, keep - 1)->value : b->count ? (double)b->last : (double)NAN;
}

void zf_series_free(struct zf_series *s)
{
    free(s->bucket);
    free(s->recent);
    *s = (struct zf_series){0};
}

/* ---- questions ---- */

struct part { /* of a series: buckets [b0, b1), points [p0, p1) */
    size_t b0, b1, p0, p1;
};

static struct part part_of(const struct zf_series *s, uint64_t from, uint64_t to)
{
    struct part p = {0};
    if (!s->used || from > to || to < s->first) return p;
    size_t coarse = coarse_buckets(s), fine = fine_points(s, coarse);
    uint64_t b0 = from > s->first ? (from - s->first) / s->span : 0, b1 = (to - s->first) / s->span + 1;
    p.b1 = b1 < coarse ? (size_t)b1 : coarse;
    p.b0 = b0 < p.b1 ? (size_t)b0 : p.b1;
    p.p0 = points_before(s, from);
    if (p.p0 < fine) p.p0 = fine;
    p.p1 = to == UINT64_MAX ? s->recent_used : points_before(s, to + 1);
    if (p.p1 < p.p0) p.p1 = p.p0;
    return p;
}

struct zf_bucket zf_series_between(const struct zf_series *s, uint64_t from, uint64_t to)
{
    struct zf_bucket sum = nothing;
    struct part p = part_of(s, from, to);
    for (size_t i = p.b0; i < p.b1; i++) join(&sum, &s->bucket[i]);
    for (size_t i = p.p0; i < p.p1; i++) put(&sum, point(s, i)->value);
    return sum;
}

bool zf_series_at(const struct zf_series *s, uint64_t step, uint64_t *at, double *value)
{
    struct part p = part_of(s, 0, step);
    if (p.p1 > p.p0) {
        *at = point(s, p.p1 - 1)->step;
        *value = point(s, p.p1 - 1)->value;
        return true;
    }
    for (size_t i = p.b1; i > 0; i--) {
        const struct zf_bucket *b = &s->bucket[i - 1];
        if (!b->count && !b->bad) continue;
        *at = begin_of(s, i - 1);
        *value = b->count ? b->sum / b->count : (double)NAN;
        return true;
    }
    return false;
}

struct mean { /* exponential: of what came so far, weights and weighted sum as of step `at` */
    double sum, weight, keep, log_keep;
    uint64_t at;
};

static void age(struct mean *m, uint64_t to)
{
    uint64_t n = to - m->at;
    double k = n == 1 ? m->keep : exp((double)n * m->log_keep);
    m->sum *= k;
    m->weight *= k;
    m->at = to;
}

static void take_bucket(struct mean *m, const struct zf_series *s, size_t i)
{
    const struct zf_bucket *b = &s->bucket[i];
    double width = (double)s->span, w = s->span == 1 ? 1 - m->keep : -expm1(width * m->log_keep);
    age(m, begin_of(s, i) + s->span - 1);
    if (!b->count) return;
    w *= (double)b->count / width;
    m->sum += w * (b->sum / b->count);
    m->weight += w;
}

static void take_point(struct mean *m, const struct zf_point *p)
{
    age(m, p->step);
    if (!(fabs(p->value) <= (double)FLT_MAX)) return;
    m->sum += (1 - m->keep) * p->value;
    m->weight += 1 - m->keep;
}

void zf_series_smooth(const struct zf_series *s, uint64_t n, uint64_t from, uint64_t to, double *out, size_t count)
{
    if (to > (uint64_t)1 << 53) to = (uint64_t)1 << 53;
    double keep = n > 1 ? 1 - 1 / (double)n : 0, wide = to >= from ? (double)(to - from) + 1 : 0;
    struct part p = part_of(s, 0, to);
    struct mean m = {.keep = keep, .log_keep = keep > 0 ? log(keep) : -745, .at = s->first};
    size_t b = p.b0, i = p.p0;
    uint64_t begin_piece = from;
    for (size_t k = 0; k < count; k++) {
        uint64_t end = from + (uint64_t)(wide * (double)(k + 1) / (double)count); /* the first step that is not in it */
        while (b < p.b1 && begin_of(s, b) < end) take_bucket(&m, s, b++);
        while (b == p.b1 && i < p.p1 && point(s, i)->step < end) take_point(&m, point(s, i++));
        out[k] = m.weight > 0 && begin_piece <= s->newest ? m.sum / m.weight : (double)NAN;
        begin_piece = end;
    }
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

bool zf_series_range(const struct zf_series *s, uint64_t from, uint64_t to, bool robust, double *least, double *most)
{
    static const size_t room = ZF_SERIES_BUCKETS + ZF_SERIES_RECENT;
    struct zf_bucket all = zf_series_between(s, from, to);
    if (!all.count) return false;
    *least = (double)all.least;
    *most = (double)all.most;
    float *low = robust ? malloc(2 * room * sizeof *low) : NULL;
    if (!low) return true;
    float *high = low + room;
    struct part p = part_of(s, from, to);
    size_t n = 0;
    for (size_t i = p.b0; i < p.b1; i++) {
        if (!s->bucket[i].count) continue;
        low[n] = s->bucket[i].least;
        high[n++] = s->bucket[i].most;
    }
    for (size_t i = p.p0; i < p.p1; i++) {
        double x = point(s, i)->value;
        if (fabs(x) <= (double)FLT_MAX) low[n] = high[n] = (float)x, n++;
    }
    qsort(low, n, sizeof *low, ascending);
    qsort(high, n, sizeof *high, ascending);
    *least = (double)low[(n - 1) / 100];
    *most = (double)high[n - 1 - (n - 1) / 100];
    free(low);
    return true;
}
