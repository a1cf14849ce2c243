/* Series against a plain array of all values, in float64. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tui/series.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct plain {
    struct zf_point *list;
    size_t count, room;
};

static uint64_t state = 88172645463325252u;

static uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double unit(void)
{
    return (double)(any() >> 11) * 0x1p-53;
}

static void add(struct zf_series *s, struct plain *p, uint64_t step, double value)
{
    assert_true(zf_series_add(s, step, value));
    if (p->count && step <= p->list[p->count - 1].step) return;
    if (p->count == p->room) {
        p->room = p->room ? 2 * p->room : 1024;
        p->list = realloc(p->list, p->room * sizeof *p->list);
        assert_non_null(p->list);
    }
    p->list[p->count++] = (struct zf_point){step, value};
}

static bool good(double x)
{
    return fabs(x) <= (double)FLT_MAX;
}

static struct zf_bucket between(const struct plain *p, uint64_t from, uint64_t to)
{
    struct zf_bucket b = {.least = INFINITY, .most = -INFINITY, .last = NAN};
    for (size_t i = 0; i < p->count; i++) {
        if (p->list[i].step < from || p->list[i].step > to) continue;
        double x = p->list[i].value;
        if (!good(x)) {
            b.bad++;
            continue;
        }
        b.least = fminf(b.least, (float)x);
        b.most = fmaxf(b.most, (float)x);
        b.last = (float)x;
        b.sum += x;
        b.count++;
    }
    return b;
}

static void same(struct zf_bucket a, struct zf_bucket b)
{
    assert_int_equal(a.count, b.count);
    assert_int_equal(a.bad, b.bad);
    if (!b.count) return;
    assert_true(a.least == b.least && a.most == b.most && a.last == b.last);
    assert_true(fabs(a.sum - b.sum) <= 1e-12 * b.count * fmax(fabs((double)b.least), fabs((double)b.most)));
}

/* By the definition: weights fall by 1 - 1/n a step. */
static double smooth(const struct plain *p, uint64_t n, uint64_t end)
{
    double sum = 0, weight = 0, keep = n > 1 ? 1 - 1 / (double)n : 0;
    for (size_t i = 0; i < p->count && p->list[i].step <= end; i++) {
        if (!good(p->list[i].value)) continue;
        double w = keep > 0 ? pow(keep, (double)(end - p->list[i].step)) : 0;
        if (!(keep > 0)) sum = weight = 0, w = 1;
        sum += w * p->list[i].value;
        weight += w;
    }
    return weight > 0 ? sum / weight : (double)NAN;
}

static void fill(struct zf_series *s, struct plain *p, uint64_t first, size_t count, uint64_t gap, bool bad)
{
    uint64_t step = first;
    for (size_t i = 0; i < count; i++) {
        double x = 3 * exp(-(double)i / 900) + 0.3 * unit();
        if (bad && any() % 97 == 0) x = any() % 3 ? (any() % 2 ? (double)NAN : (double)INFINITY) : -1e300;
        add(s, p, step, x);
        step += 1 + (gap ? any() % gap : 0);
    }
}

static void all_is_exact(const struct zf_series *s, const struct plain *p, uint64_t from, uint64_t to)
{
    double least, most, out[7];
    uint64_t at = 0;
    double value = 0;
    struct zf_bucket b = between(p, from, to);
    same(zf_series_between(s, from, to), b);
    assert_int_equal(zf_series_range(s, from, to, false, &least, &most), b.count > 0);
    if (b.count) assert_true((float)least == b.least && (float)most == b.most);
    size_t i = p->count;
    while (i && p->list[i - 1].step > to) i--;
    assert_int_equal(zf_series_at(s, to, &at, &value), i > 0);
    if (i) {
        double x = p->list[i - 1].value;
        assert_int_equal(at, p->list[i - 1].step);
        assert_true(value == x || (!good(value) && !good(x)));
    }
    uint64_t n = 1 + any() % 300, newest = p->count ? p->list[p->count - 1].step : 0, begin = from;
    zf_series_smooth(s, n, from, to, out, 7);
    for (size_t k = 0; k < 7; k++) {
        uint64_t end = from + (uint64_t)(((double)(to - from) + 1) * (double)(k + 1) / 7);
        double x = end ? smooth(p, n, end - 1) : (double)NAN;
        if (begin > newest) x = (double)NAN;
        if (isnan(x))
            assert_true(isnan(out[k]));
        else
            assert_true(fabs(out[k] - x) < 1e-9);
        begin = end;
    }
}

static void a_short_series_is_exact(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct zf_series s = {0};
        struct plain p = {0};
        uint64_t first = any() % 3 ? any() % 50 : 1;
        fill(&s, &p, first, 1 + any() % 4000, round % 3 ? 0 : 5, round % 2);
        uint64_t newest = p.list[p.count - 1].step;
        for (int i = 0; i < 12; i++) {
            uint64_t from = any() % (newest + 10);
            all_is_exact(&s, &p, from, from + any() % (newest + 10 - from + 1));
        }
        assert_int_equal(s.newest, newest);
        free(p.list);
        zf_series_free(&s);
    }
}

/* Longer than the ring, buckets of one step. */
static void one_step_a_bucket_is_exact(void **unused)
{
    (void)unused;
    struct zf_series s = {0};
    struct plain p = {0};
    fill(&s, &p, 17, 8000, 0, true);
    assert_int_equal(s.span, 1);
    for (int i = 0; i < 200; i++) {
        uint64_t from = any() % 8100;
        all_is_exact(&s, &p, from, from + any() % 8100);
    }
    free(p.list);
    zf_series_free(&s);
}

/* A long one: by whole buckets what is old, by the value what is new; nothing is lost or counted twice. */
static void a_long_series_keeps_all(void **unused)
{
    (void)unused;
    struct zf_series s = {0};
    struct plain p = {0};
    fill(&s, &p, 1, 100000, 0, true);
    add(&s, &p, 100001, 77); /* spikes */
    fill(&s, &p, 100002, 100000, 0, false);
    assert_true(s.used <= ZF_SERIES_BUCKETS && s.span == 32);
    same(zf_series_between(&s, 0, UINT64_MAX), between(&p, 0, UINT64_MAX));
    same(zf_series_between(&s, 1, 200001), between(&p, 0, UINT64_MAX));
    for (int i = 0; i < 300; i++) {
        uint64_t from = any() % 195000, to = from + any() % 6000, a = (from ? from - 1 : 0) / 32 * 32 + 1,
                 b = (to ? to - 1 : 0) / 32 * 32 + 32;
        if (b > 195000) continue;
        same(zf_series_between(&s, from, to), between(&p, a, b));
    }
    for (int i = 0; i < 20; i++) {
        uint64_t from = 200001 - any() % 3900, to = from + any() % 50;
        same(zf_series_between(&s, from, to), between(&p, from, to));
    }
    double least, most, robust_least, robust_most;
    assert_true(zf_series_range(&s, 1, 200001, false, &least, &most));
    assert_true(most == 77);
    assert_true(zf_series_range(&s, 1, 200001, true, &robust_least, &robust_most));
    assert_true(robust_most < 4 && robust_least >= least);
    double out[50];
    zf_series_smooth(&s, 2000, 1, 200001, out, 50);
    for (size_t k = 0; k < 50; k++) {
        uint64_t end = 1 + (uint64_t)(200001.0 * (double)(k + 1) / 50);
        assert_true(fabs(out[k] - smooth(&p, 2000, end - 1)) < 0.03);
    }
    uint64_t at;
    double value;
    assert_true(zf_series_at(&s, 50, &at, &value) && at <= 50 && at > 50 - 32);
    assert_true(value >= 3 * exp(-64.0 / 900) && value < 3.4);
    free(p.list);
    zf_series_free(&s);
}

static void cut(struct plain *p, uint64_t step)
{
    while (p->count && p->list[p->count - 1].step > step) p->count--;
}

static void what_is_cut_is_gone(void **unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        struct zf_series s = {0};
        struct plain p = {0};
        fill(&s, &p, 5, 1000 + any() % 3000, round % 2 ? 3 : 0, true);
        for (int again = 0; again < 4; again++) {
            uint64_t newest = p.count ? p.list[p.count - 1].step : 5, step = newest > 300 ? newest - any() % 300 : newest / 2;
            if (round == 7 && again == 2) step = 2; /* all of it */
            zf_series_cut(&s, step);
            cut(&p, step);
            all_is_exact(&s, &p, 0, newest + 7);
            fill(&s, &p, step + 1, 200, 0, false);
            for (int i = 0; i < 5; i++) all_is_exact(&s, &p, any() % newest, newest + any() % 300);
        }
        free(p.list);
        zf_series_free(&s);
    }
}

/* Far back, where only buckets are: what stays is right but for the last bucket. */
static void a_deep_cut_keeps_whole_buckets(void **unused)
{
    (void)unused;
    struct zf_series s = {0};
    struct plain p = {0};
    fill(&s, &p, 1, 200000, 0, false);
    zf_series_cut(&s, 64000);
    cut(&p, 64000);
    same(zf_series_between(&s, 1, 64000), between(&p, 1, 64000));
    assert_int_equal(s.newest, 64000);
    zf_series_cut(&s, 50010);
    cut(&p, 50010);
    struct zf_bucket all = zf_series_between(&s, 1, UINT64_MAX);
    assert_in_range(all.count, 50010, 50010 + 32);
    fill(&s, &p, 50011, 3000, 0, false);
    assert_int_equal(s.newest, 53010);
    same(zf_series_between(&s, 50100, 53010), between(&p, 50100, 53010));
    free(p.list);
    zf_series_free(&s);
}

static void odd_ones(void **unused)
{
    (void)unused;
    struct zf_series s = {0};
    double least, most, value, out[3];
    uint64_t at;
    assert_int_equal(zf_series_between(&s, 0, UINT64_MAX).count, 0);
    assert_false(zf_series_at(&s, 5, &at, &value));
    assert_false(zf_series_range(&s, 0, 9, true, &least, &most));
    zf_series_smooth(&s, 10, 0, 9, out, 3);
    assert_true(isnan(out[0]) && isnan(out[2]));
    zf_series_cut(&s, 3);
    zf_series_again(&s, 3);
    zf_series_free(&s);

    assert_true(zf_series_add(&s, 0, (double)NAN)); /* nothing but bad ones */
    assert_true(zf_series_at(&s, 5, &at, &value) && isnan(value) && at == 0);
    assert_false(zf_series_range(&s, 0, 9, true, &least, &most));
    zf_series_smooth(&s, 10, 0, 9, out, 3);
    assert_true(isnan(out[0]));
    assert_true(zf_series_add(&s, 3, 5));
    assert_true(zf_series_add(&s, 3, 6)); /* not above the newest */
    assert_true(zf_series_add(&s, 2, 7));
    assert_true(s.last == 5 && zf_series_between(&s, 0, 9).count == 1 && zf_series_between(&s, 0, 9).bad == 1);
    zf_series_again(&s, 8);
    assert_true(s.last == 8 && zf_series_at(&s, 3, &at, &value) && value == 8);
    zf_series_free(&s);

    assert_true(zf_series_add(&s, 1, 1)); /* far apart */
    assert_true(zf_series_add(&s, (uint64_t)1 << 52, 2));
    assert_true(zf_series_add(&s, UINT64_MAX, 3));
    assert_true(s.used <= ZF_SERIES_BUCKETS && zf_series_between(&s, 0, UINT64_MAX).count == 3);
    assert_true(zf_series_at(&s, UINT64_MAX, &at, &value) && value == 3);
    zf_series_smooth(&s, 10, 0, UINT64_MAX, out, 3);
    zf_series_cut(&s, 100);
    assert_int_equal(zf_series_between(&s, 0, UINT64_MAX).count, 1);
    zf_series_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_series_is_exact),        cmocka_unit_test(one_step_a_bucket_is_exact),
        cmocka_unit_test(a_long_series_keeps_all),        cmocka_unit_test(what_is_cut_is_gone),
        cmocka_unit_test(a_deep_cut_keeps_whole_buckets), cmocka_unit_test(odd_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
