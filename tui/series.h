/* Numbers by step, in bounded memory: the whole run in buckets that keep least, most, mean and last, so that no spike vanishes, and the
 * newest values one by one. When the buckets are full two neighbours become one. NaN and infinity are counted apart. One thread. */
#ifndef ZF_TUI_SERIES_H
#define ZF_TUI_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZF_SERIES_BUCKETS = 8192, ZF_SERIES_RECENT = 4096 };

struct zf_bucket {
    float least, most, last;
    uint32_t count; /* finite values; 0: none, or only bad ones */
    uint32_t bad;   /* NaN, infinity */
    double sum;
};

struct zf_series {
    uint64_t first, span; /* step of bucket 0; steps a bucket: a power of two */
    size_t used;          /* buckets */
    struct zf_bucket *bucket;
    struct zf_point {
        uint64_t step;
        double value;
    } * recent; /* ring [ZF_SERIES_RECENT] */
    size_t recent_used, recent_at;
    uint64_t newest; /* step; steps only grow, but for zf_series_cut */
    double last;     /* value, as it was */
};

/* A zeroed struct is an empty series. false: no memory (the value is lost). A step not above `newest`: ignored, true. */
bool zf_series_add(struct zf_series *s, uint64_t step, double value);
/* One more value of the newest step; it is that step's from now on. */
void zf_series_again(struct zf_series *s, double value);
/* Steps after `step` did not happen (a resume). */
void zf_series_cut(struct zf_series *s, uint64_t step);
void zf_series_free(struct zf_series *s);

/* All values of steps from..to (both included) as one bucket; exact where they are recent, else by whole buckets. */
struct zf_bucket zf_series_between(const struct zf_series *s, uint64_t from, uint64_t to);
/* The value of a step or the nearest one before; false: none. *at: whose it is. */
bool zf_series_at(const struct zf_series *s, uint64_t step, uint64_t *at, double *value);
/* The exponential mean over about n steps, bias-corrected, at the ends of `count` equal pieces of from..to into out (NaN: no value yet). */
void zf_series_smooth(const struct zf_series *s, uint64_t n, uint64_t from, uint64_t to, double *out, size_t count);
/* Least and most between from and to; what lies outside the 1st..99th percentile of the buckets is left out if `robust`. false: nothing. */
bool zf_series_range(const struct zf_series *s, uint64_t from, uint64_t to, bool robust, double *least, double *most);

#endif
