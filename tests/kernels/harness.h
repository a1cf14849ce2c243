/* What the tests of kernels share: a device of every instruction set and thread count, poisoned matrices, one check of an op on all of
 * them. */
#ifndef ZF_TESTS_HARNESS_H
#define ZF_TESTS_HARNESS_H

#include "kernels/ops.h"

/* Devices: each path this processor runs, with 1, 2 and 3 threads. */
int devices_open(void **state);
int devices_close(void **state);
struct zf_lane *device_lane(size_t i); /* 0 .. device_count() - 1 */
enum zf_status device_sync(size_t i, struct zf_err *e);
const struct zf_ops *device_ops(void);
size_t device_count(void);

/* Random numbers; reseed at the head of a case. */
void reseed(uint64_t seed);
size_t below(size_t n); /* n > 0 */
double normal(void);

/* Rows of `cols` floats, ld apart; the gaps hold a NaN. The block ends with the last column, and begins off any alignment. */
struct matrix {
    float *at;
    size_t rows, cols, ld, size; /* size: floats from the first to the last */
    float *block, *initial;
    uint16_t *half; /* of bf16: what kernels get; `at` are its numbers. NULL: f32 */
};
struct matrix matrix_new(size_t rows, size_t cols, size_t ld);    /* all poison */
struct matrix matrix_random(size_t rows, size_t cols, size_t ld); /* normal numbers between the gaps */
void matrix_keep(struct matrix *m); /* what it holds now, rounded to its type, is what every run begins with */
double *matrix_double(const struct matrix *m);                    /* a copy in the same layout, to be freed */
size_t some_ld(size_t cols);                                      /* cols or a little more */

/* The type of activations and weights in a test: its prestate, &as_f32 or &as_bf16. */
extern enum zf_dtype as_f32, as_bf16;
enum zf_dtype use_type(void **state);
struct matrix typed_new(size_t rows, size_t cols, size_t ld); /* as matrix_*, of that type */
struct matrix typed_random(size_t rows, size_t cols, size_t ld);
double typed(double x);              /* rounded to bf16, if that is the type */
void *data(const struct matrix *m);  /* what a kernel gets */
void matrix_fetch(struct matrix *m); /* `at` from what a kernel wrote: check_op does so */

/* Expected in the layout of m. Every element lies within tolerance * (its size + the root mean square), and in bf16
 * half of its last place more. */
struct output {
    struct matrix *m;
    const double *expected;
    double tolerance;
};

typedef enum zf_status (*op_call)(struct zf_lane *l, const void *args);
#define ZF_OP(name) enum zf_status call_##name(struct zf_lane *l, const void *args);
#include "kernels/ops.def"
#undef ZF_OP

/* Runs the op on every device, each time from the outputs' initial content: compares with what is expected, looks at the gaps, and demands
 * the same bits of all. The outputs keep the last result. */
void check_op(const char *what, op_call call, const void *args, const struct output *outputs, size_t count);

void must_run(op_call call, const void *args); /* on the first device */
/* On the device that the CPU half has there: the last one, or, beside a GPU, one of the host. */
void must_serve(const struct zf_serve_rows_args *args);
void devices_must_serve(void); /* ends the test where they do not: they are no devices of the host */

#endif
