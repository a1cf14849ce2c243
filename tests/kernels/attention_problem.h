/* What the tests of attention share: problems of any shape in fp32 and what kernels make of them, beside the reference in double.
 * Everything that must not be read or written (gaps between rows, rows of no segment) holds a NaN. */
#ifndef ZF_TESTS_ATTENTION_PROBLEM_H
#define ZF_TESTS_ATTENTION_PROBLEM_H

#include "kernels/host/path.h"
#include "tests/kernels/reference_attention.h"

enum { SEGMENTS_MAX = 4096 };
enum order { FORWARD, REVERSE, RANDOM };

extern uint64_t seed; /* of what is drawn next */

/* Rows of `cols` numbers, ld apart, and nothing after the last: a sanitizer sees what reads or writes too far. */
struct matrix {
    float *at;
    size_t rows, cols, ld, size;
};

struct shape {
    size_t heads, kv_heads, head_dim, segments, shortest, longest;
    bool cached;  /* segments of fewer queries than keys, and empty ones */
    bool aligned; /* rows of bf16 begin at multiples of 16 bytes, if head_dim * heads does */
};

struct problem {
    struct shape shape;
    struct zf_segment segments[SEGMENTS_MAX];
    bool *in_q, *in_k; /* rows of a segment */
    size_t q_rows, k_rows, ldq, ldkv, ldo;
    float scale;
    struct matrix q, k, v, do_;
};

struct result {
    struct matrix o, lse, dq, dk, dv, delta;
};

struct expected {
    struct reference_attention r;
    double *all[9];
};

size_t below(size_t n);
float poison(void);
/* Relative L2 distance over the rows in `rows`; elsewhere the poison must be untouched. */
double distance(struct matrix m, const double *expected, const bool *rows);
void problem_init(struct problem *p, const struct shape *s);
void problem_free(struct problem *p);
struct result result_new(const struct problem *p);
void result_free(struct result *r);
void assert_same_bits(const struct result *a, const struct result *b);
struct zf_attention_args forward_args(const struct problem *p, const struct result *r);
void run_tasks(const struct zf_host_kernel *kernel, const void *args, enum order order);
struct zf_attention_backward_args backward_args(const struct problem *p, const struct result *r);
double *zeros(size_t n);
struct expected expected_new(const struct problem *p);
void expected_free(struct expected *e);
/* The same where the expected numbers have another ld. */
double apart(struct matrix m, const double *expected, size_t ld, const bool *rows);
void assert_close(const char *what, const char *path, const struct shape *s, double found, double allowed);
void round_all(struct matrix m); /* to bf16 */
uint16_t *to_bf16(struct matrix m);
void round_inputs(const struct problem *p);
/* Takes what a task wrote into m out of it again, and demands that no task before wrote there. */
void take(struct matrix m, unsigned char *written);

#endif
