#include "comm_problem.h"

#include "core/base/rng.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 8 };

void problem_fail(const struct rank_of_problem *r, const char *text, ...)
{
    va_list ap;
    va_start(ap, text);
    fprintf(stderr, "rank %d of %d: ", r->rank, r->ranks);
    vfprintf(stderr, text, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    _exit(1);
}

#define MUST(r, expr) \
    do { \
        if (expr) problem_fail(r, "%s:%d: %s", __FILE__, __LINE__, #expr); \
    } while (0)

void problem_device(struct rank_of_problem *r, const char *name)
{
    struct zf_err e;
    if (zf_device_open(&r->device, name, &(struct zf_device_options){.threads = 1, .number = r->rank}, &e)) problem_fail(r, "%s", e.message);
}

/* A number that every rank knows of every rank: small integers times a power of two, whose sums are exact in any order. */
static double value(uint64_t seed, int rank, size_t i)
{
    return (double)(int)(zf_philox(seed, (uint64_t)rank, i).v[0] % 1025) / 64 - 8;
}

static void put(enum zf_dtype t, void *to, size_t i, double x)
{
    if (t == ZF_F64) {
        ((double *)to)[i] = x;
    } else if (t == ZF_F32) {
        ((float *)to)[i] = (float)x;
    } else { /* any bits will do */
        uint16_t bits = (uint16_t)(int)(x * 64);
        memcpy((char *)to + 2 * i, &bits, 2);
    }
}

/* Shares of n rows: even ones, one rank with all, or any. */
static void shares(uint64_t seed, size_t n, int ranks, size_t *first)
{
    uint32_t draw = zf_philox(seed, 1, 0).v[0];
    zf_shares(n, ranks, first);
    if (draw % 3 == 1)
        for (int r = 1; r < ranks; r++) first[r] = r <= (int)(draw / 3) % ranks ? 0 : n;
    if (draw % 3 == 2)
        for (int r = 1; r < ranks; r++) first[r] = first[r - 1] + zf_philox(seed, 2, (uint64_t)r).v[0] % (n - first[r - 1] + 1);
}

struct part {
    struct zf_comm_rows rows;
    size_t first[MOST_RANKS + 1], elements, bytes;
    uint64_t seed;
    char *host;
};

static void part_make(const struct rank_of_problem *r, struct part *x, uint64_t seed, bool sum)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 17, 64, 1000}, cols[] = {1, 3, 64, 129};
    static const enum zf_dtype types[] = {ZF_F32, ZF_F64, ZF_BF16};
    struct zf_u32x4 draw = zf_philox(seed, 0, 0);
    struct zf_err e;
    *x = (struct part){.seed = seed};
    size_t n = counts[draw.v[0] % 8];
    x->rows = (struct zf_comm_rows){.type = types[draw.v[1] % (sum ? 2 : 3)], .cols = cols[draw.v[2] % 4], .first = x->first};
    if (draw.v[3] % 8 == 0) n *= 37; /* more than is exchanged at once */
    shares(seed, n, r->ranks, x->first);
    x->elements = n * x->rows.cols;
    x->bytes = x->elements * zf_dtype_size(x->rows.type);
    x->host = malloc(x->bytes + 1);
    if (r->device->type->alloc(r->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, x->bytes + 64, &x->rows.base, &e)) problem_fail(r, "%s", e.message);
}

static size_t share_of(const struct part *x, int ranks, size_t element)
{
    size_t row = element / x->rows.cols;
    for (int q = 0; q < ranks; q++)
        if (row < x->first[q + 1]) return (size_t)q;
    return 0;
}

/* Before: a sum's parts; or of a gathering the own rows alone. Behind it stand bytes that nobody may touch. */
static void part_fill(const struct rank_of_problem *r, struct part *x, bool sum)
{
    const struct zf_device_type *t = r->device->type;
    memset(x->host, 0x5a, x->bytes);
    for (size_t i = 0; i < x->elements; i++)
        if (sum || share_of(x, r->ranks, i) == (size_t)r->rank) put(x->rows.type, x->host, i, value(x->seed, r->rank, i));
    MUST(r, t->fill(r->lane, (char *)x->rows.base + x->bytes, 0x77, 64));
    MUST(r, t->copy(r->lane, x->rows.base, x->host, x->bytes));
}

static void part_check(const struct rank_of_problem *r, struct part *x, bool sum, uint64_t turn)
{
    const struct zf_device_type *t = r->device->type;
    size_t each = zf_dtype_size(x->rows.type);
    struct zf_err e;
    char *seen = malloc(x->bytes + 64);
    MUST(r, t->copy(r->lane, seen, x->rows.base, x->bytes + 64));
    MUST(r, t->lane_sync(r->lane, &e));
    for (size_t i = 0; i < x->elements; i++) {
        char wanted[8];
        size_t owner = share_of(x, r->ranks, i);
        double sum_of = 0;
        if (sum && owner != (size_t)r->rank) continue;
        for (int q = 0; q < r->ranks; q++) sum_of += value(x->seed, q, i);
        put(x->rows.type, wanted, 0, sum ? sum_of : value(x->seed, (int)owner, i));
        if (memcmp(wanted, seen + i * each, each))
            problem_fail(r, "%s, turn %d, seed %d: element %zu of %zu (%s) is not what rank %zu has", sum ? "a sum" : "a gathering",
                         (int)turn, (int)x->seed, i, x->elements, zf_dtype_name(x->rows.type), owner);
    }
    for (size_t i = 0; i < 64; i++)
        if (seen[x->bytes + i] != 0x77) problem_fail(r, "turn %d: what stands behind the rows has changed", (int)turn);
    free(seen);
}

static void part_free(const struct rank_of_problem *r, struct part *x)
{
    r->device->type->free(r->device, x->rows.base);
    free(x->host);
}

static void turn(struct rank_of_problem *r, uint64_t number)
{
    enum { PARTS = 4 };
    struct part part[PARTS];
    struct zf_comm_rows list[PARTS];
    bool sum = number % 2;
    size_t count = zf_philox(number, 3, 0).v[0] % (PARTS + 1), bytes = 0;
    for (size_t i = 0; i < count; i++) {
        part_make(r, &part[i], 100 * number + i, sum);
        part_fill(r, &part[i], sum);
        list[i] = part[i].rows;
        bytes += zf_comm_bytes(r->comm, sum, &list[i]);
    }
    MUST(r, sum ? r->comm->type->reduce_scatter(r->comm, r->lane, list, count) : r->comm->type->all_gather(r->comm, r->lane, list, count));
    if (r->ranks == 1 && bytes) problem_fail(r, "%zu bytes for nobody", bytes);
    for (size_t i = 0; i < count; i++) part_check(r, &part[i], sum, number);
    for (size_t i = 0; i < count; i++) part_free(r, &part[i]);
}

/* A chain of collectives that is issued at once: sums of sums. What stands in `first` is gone by the time that they are done. */
static void chain(struct rank_of_problem *r)
{
    enum { ROWS = 7, COLS = 5, LINKS = 6 };
    const struct zf_device_type *t = r->device->type;
    size_t first[MOST_RANKS + 1];
    struct zf_err e;
    void *memory;
    double x[ROWS * COLS], wanted = 0, times = 1;
    if (t->alloc(r->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, sizeof x, &memory, &e)) problem_fail(r, "%s", e.message);
    for (size_t i = 0; i < ROWS * COLS; i++) x[i] = r->rank + 1;
    MUST(r, t->copy(r->lane, memory, x, sizeof x));
    for (int i = 0; i < LINKS; i++) {
        struct zf_comm_rows rows = {memory, ZF_F64, COLS, first};
        zf_shares(ROWS, r->ranks, first);
        MUST(r, r->comm->type->reduce_scatter(r->comm, r->lane, &rows, 1));
        MUST(r, r->comm->type->all_gather(r->comm, r->lane, &rows, 1));
        memset(first, 0xff, sizeof first);
    }
    MUST(r, t->copy(r->lane, x, memory, sizeof x));
    MUST(r, t->lane_sync(r->lane, &e));
    for (int q = 0; q < r->ranks; q++) wanted += q + 1;
    for (int i = 1; i < LINKS; i++) times *= r->ranks;
    for (size_t i = 0; i < ROWS * COLS; i++)
        if (x[i] != wanted * times) problem_fail(r, "a chain of sums: %g, not %g", x[i], wanted * times);
    t->free(r->device, memory);
}

void problem_all(struct rank_of_problem *r)
{
    enum { TURNS = 60 };
    struct zf_err e;
    MUST(r, r->device->type->lane_new(r->device, "comm", &r->lane, &e));
    if (r->comm->rank != r->rank || r->comm->ranks != r->ranks) problem_fail(r, "it is called %d of %d", r->comm->rank, r->comm->ranks);
    for (uint64_t i = 0; i < TURNS; i++) turn(r, i);
    chain(r);
    if (zf_comm_failed(r->comm, &e)) problem_fail(r, "%s", e.message);
    r->device->type->lane_free(r->lane);
}

static void expect_failure(struct rank_of_problem *r, void *memory)
{
    struct zf_err e;
    r->device->type->lane_sync(r->lane, &e); /* it may say so as well */
    if (!zf_comm_failed(r->comm, &e) || !*e.message) problem_fail(r, "no error");
    if (!zf_comm_failed(r->comm, &e)) problem_fail(r, "an error that has been told is forgotten");
    r->device->type->free(r->device, memory);
    r->device->type->lane_free(r->lane);
}

static void *begin(struct rank_of_problem *r, size_t rows)
{
    struct zf_err e;
    void *memory;
    size_t first[MOST_RANKS + 1];
    MUST(r, r->device->type->lane_new(r->device, "comm", &r->lane, &e));
    if (r->device->type->alloc(r->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, rows * 4, &memory, &e)) problem_fail(r, "%s", e.message);
    for (size_t i = 0; i < (size_t)r->ranks + 1; i++) first[i] = rows * i / (size_t)r->ranks;
    struct zf_comm_rows list = {memory, ZF_F32, 1, first};
    MUST(r, r->comm->type->all_gather(r->comm, r->lane, &list, 1));
    MUST(r, r->comm->type->reduce_scatter(r->comm, r->lane, &list, 1));
    return memory;
}

void problem_disagree(struct rank_of_problem *r, size_t rows)
{
    expect_failure(r, begin(r, rows));
}

static void *abort_soon(void *comm)
{
    struct zf_comm *c = comm;
    usleep(50000);
    c->type->abort(c);
    return NULL;
}

void problem_alone(struct rank_of_problem *r)
{
    pthread_t thread;
    void *memory = begin(r, 4);
    if (pthread_create(&thread, NULL, abort_soon, r->comm)) problem_fail(r, "no thread");
    expect_failure(r, memory);
    pthread_join(thread, NULL);
}
