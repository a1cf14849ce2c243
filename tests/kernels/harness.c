#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "core/base/rng.h"
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, DEVICES = 3 * THREADS };
static const uint32_t POISON = 0x7fc0beefu;
static const uint16_t HALF_POISON = 0x7fcb;

static struct {
    struct zf_device *device;
    struct zf_lane *lane;
    char name[32];
} devices[DEVICES];
static size_t opened;

#ifdef ZF_TEST_CUDA
extern const struct zf_device_type zf_cuda_device;

int devices_open(void **state)
{
    struct zf_err e;
    struct zf_device *d;
    (void)state;
    if (zf_cuda_device.open(&d, &(struct zf_device_options){0}, &e)) return -1;
    if (d->type->lane_new(d, "test", &devices[0].lane, &e)) return -1;
    devices[0].device = d;
    strcpy(devices[0].name, "cuda");
    opened = 1;
    if (zf_device_open(&d, "host", &(struct zf_device_options){.threads = 2}, &e)) return -1;
    if (d->type->lane_new(d, "cpu", &devices[1].lane, &e)) return -1;
    devices[1].device = d;
    strcpy(devices[1].name, "the CPU half");
    return 0;
}

static const size_t beside = 1; /* behind those opened */
#else
int devices_open(void **state)
{
    static const char *const paths[] = {"scalar", "avx2", "avx512"};
    (void)state;
    for (size_t p = 0; p < 3; p++)
        for (int threads = 1; threads <= THREADS; threads++) {
            struct zf_device_options o = {.threads = threads, .isa = paths[p]};
            struct zf_err e;
            struct zf_device *d;
            enum zf_status s = zf_device_open(&d, "host", &o, &e);
            if (s == ZF_USAGE && p) {
                print_message("not tested: %s: %s\n", paths[p], e.message);
                break;
            }
            if (s || d->type->lane_new(d, "test", &devices[opened].lane, &e)) return -1;
            devices[opened].device = d;
            snprintf(devices[opened].name, sizeof devices[opened].name, "%s, %d threads", paths[p], threads);
            opened++;
        }
    return 0;
}

static const size_t beside = 0;
#endif

int devices_close(void **state)
{
    (void)state;
    for (size_t i = opened + beside; i--;) {
        struct zf_device *d = devices[i].device;
        d->type->lane_free(devices[i].lane);
        d->type->close(d);
    }
    opened = 0;
    return 0;
}

struct zf_lane *device_lane(size_t i)
{
    return devices[i].lane;
}

enum zf_status device_sync(size_t i, struct zf_err *e)
{
    return devices[i].device->type->lane_sync(devices[i].lane, e);
}

const struct zf_ops *device_ops(void)
{
    return devices[0].device->type->ops;
}

size_t device_count(void)
{
    return opened;
}

static uint64_t seed_now, drawn;

void reseed(uint64_t seed)
{
    seed_now = seed;
    drawn = 0;
}

size_t below(size_t n)
{
    return (size_t)(zf_uniform(seed_now, ZF_STREAM_TEST, 0, drawn++) * (double)n);
}

double normal(void)
{
    return zf_normal(seed_now, ZF_STREAM_TEST, 1, drawn++);
}

size_t some_ld(size_t cols)
{
    return cols + (below(2) ? below(19) : 0);
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return p;
}

/* A test's memory lives until the test is over: freed at exit. */
static void **kept;
static size_t kept_count;

static void free_kept(void)
{
    while (kept_count) free(kept[--kept_count]);
    free(kept);
    kept = NULL;
}

static void *keep(void *p)
{
    if (!kept_count) atexit(free_kept);
    if ((kept_count & (kept_count - 1)) == 0) {
        kept = realloc(kept, (kept_count ? 2 * kept_count : 1) * sizeof *kept);
        assert_non_null(kept);
    }
    kept[kept_count++] = p;
    return p;
}

static bool is_gap(const struct matrix *m, size_t i)
{
    return i % m->ld >= m->cols;
}

enum zf_dtype as_f32 = ZF_F32, as_bf16 = ZF_BF16;
static enum zf_dtype type;

enum zf_dtype use_type(void **state)
{
    return type = *(enum zf_dtype *)*state;
}

double typed(double x)
{
    return type == ZF_BF16 ? (double)zf_bf16_to_f32(zf_f32_to_bf16((float)x)) : x;
}

void *data(const struct matrix *m)
{
    return m->half ? (void *)m->half : m->at;
}

void matrix_fetch(struct matrix *m)
{
    for (size_t i = 0; i < m->size && m->half; i++) m->at[i] = zf_bf16_to_f32(m->half[i]);
}

static void give(const struct matrix *m)
{
    memcpy(m->at, m->initial, m->size * sizeof(float));
    for (size_t i = 0; i < m->size && m->half; i++) m->half[i] = (uint16_t)(zf_bits_from_float(m->at[i]) >> 16);
}

static uint32_t poison_of(const struct matrix *m)
{
    return m->half ? (uint32_t)HALF_POISON << 16 : POISON;
}

struct matrix typed_new(size_t rows, size_t cols, size_t ld)
{
    struct matrix m = matrix_new(rows, cols, ld);
    if (type != ZF_BF16) return m;
    size_t shift = below(4);
    m.half = (uint16_t *)keep(need((m.size + shift) * sizeof(uint16_t))) + shift;
    for (size_t i = 0; i < m.size; i++) m.at[i] = zf_float_from_bits(poison_of(&m));
    matrix_keep(&m);
    return m;
}

static void fill_random(struct matrix *m)
{
    for (size_t i = 0; i < m->size; i++)
        if (!is_gap(m, i)) m->at[i] = (float)normal();
    matrix_keep(m);
}

struct matrix typed_random(size_t rows, size_t cols, size_t ld)
{
    struct matrix m = typed_new(rows, cols, ld);
    fill_random(&m);
    return m;
}

struct matrix matrix_new(size_t rows, size_t cols, size_t ld)
{
    struct matrix m = {.rows = rows, .cols = cols, .ld = ld, .size = rows && cols ? (rows - 1) * ld + cols : 0};
    size_t shift = below(4);
    m.block = keep(need((m.size + shift) * sizeof(float)));
    m.initial = keep(need(m.size * sizeof(float)));
    m.at = m.block + shift;
    for (size_t i = 0; i < m.size; i++) m.at[i] = zf_float_from_bits(POISON);
    matrix_keep(&m);
    return m;
}

struct matrix matrix_random(size_t rows, size_t cols, size_t ld)
{
    struct matrix m = matrix_new(rows, cols, ld);
    fill_random(&m);
    return m;
}

void matrix_keep(struct matrix *m)
{
    for (size_t i = 0; i < m->size && m->half; i++) m->at[i] = zf_bf16_to_f32(zf_f32_to_bf16(m->at[i]));
    memcpy(m->initial, m->at, m->size * sizeof(float));
    give(m);
}

double *matrix_double(const struct matrix *m)
{
    double *d = keep(need(m->size * sizeof *d));
    for (size_t i = 0; i < m->size; i++) d[i] = (double)m->at[i];
    return d;
}

#define ZF_OP(name) \
    enum zf_status call_##name(struct zf_lane *l, const void *args) \
    { \
        return device_ops()->name(l, args); \
    }
#include "kernels/ops.def"
#undef ZF_OP

static void run_on(size_t device, op_call call, const void *args)
{
    struct zf_err e;
    enum zf_status issued = call(devices[device].lane, args), s = device_sync(device, &e);
    if (s) fail_msg("%s: %s", devices[device].name, e.message);
    assert_int_equal(issued, ZF_OK);
}

void must_run(op_call call, const void *args)
{
    run_on(0, call, args);
}

void must_serve(const struct zf_serve_rows_args *args)
{
    size_t i = opened - 1 + beside; /* whose ops are not those of the others, maybe */
    struct zf_err e;
    assert_int_equal(devices[i].device->type->ops->serve_rows(devices[i].lane, args), ZF_OK);
    if (device_sync(i, &e)) fail_msg("%s: %s", devices[i].name, e.message);
}

void devices_must_serve(void)
{
    if (!beside) return;
    print_message("not tested: serve_rows is the work of a device of the host\n");
    skip();
}

/* Half of it. */
static double last_place(const struct matrix *m, double expected, size_t i)
{
    double size = fmax(fabs(expected), fabs((double)m->at[i]));
    return m->half ? ldexp(1, ilogb(fmax(size, 0x1p-126)) - 8) : 0;
}

static void compare(const char *what, size_t device, const struct output *o, size_t number)
{
    const struct matrix *m = o->m;
    double square = 0;
    size_t count = 0;
    for (size_t i = 0; i < m->size; i++)
        if (!is_gap(m, i)) {
            square += o->expected[i] * o->expected[i];
            count++;
        }
    double rms = sqrt(square / (double)(count ? count : 1));
    for (size_t i = 0; i < m->size; i++) {
        if (is_gap(m, i)) {
            if (zf_bits_from_float(m->at[i]) != poison_of(m))
                fail_msg("%s, %s: output %zu: written between the rows at %zu", what, devices[device].name, number, i);
        } else if (!(fabs((double)m->at[i] - o->expected[i]) <=
                     o->tolerance * (fabs(o->expected[i]) + rms) + last_place(m, o->expected[i], i))) {
            fail_msg("%s, %s: output %zu, row %zu, column %zu of %zux%zu: %.9g, expected %.9g", what, devices[device].name, number,
                     i / m->ld, i % m->ld, m->rows, m->cols, (double)m->at[i], o->expected[i]);
        }
    }
}

void check_op(const char *what, op_call call, const void *args, const struct output *outputs, size_t count)
{
    enum { OUTPUTS = 4 };
    float *first[OUTPUTS] = {NULL};
    assert_true(count <= OUTPUTS);
    for (size_t d = 0; d < opened; d++) {
        for (size_t i = 0; i < count; i++) give(outputs[i].m);
        run_on(d, call, args);
        for (size_t i = 0; i < count; i++) {
            size_t bytes = outputs[i].m->size * sizeof(float);
            matrix_fetch(outputs[i].m);
            compare(what, d, &outputs[i], i);
            if (d == 0)
                memcpy(first[i] = need(bytes), outputs[i].m->at, bytes);
            else if (memcmp(first[i], outputs[i].m->at, bytes))
                fail_msg("%s, %s: output %zu has other bits than with %s", what, devices[d].name, i, devices[0].name);
        }
    }
    for (size_t i = 0; i < count; i++) free(first[i]);
}
