/* The ops of rows, an element or a row at a time, in double: what their tests measure against. */
#ifndef ZF_TESTS_REFERENCE_ROWS_H
#define ZF_TESTS_REFERENCE_ROWS_H

#include <stddef.h>
#include <stdint.h>

struct reference_rule {
    double lr, beta1, beta2, eps, decay;
};

struct reference_weight {
    double master, m, v;
};

/* The t-th update, with a gradient that is already clipped. */
void reference_update(struct reference_weight *w, const struct reference_rule *r, double t, double g);

/* What is visible of it: the master less `ahead` times the direction that its momentum has; t 0: the master. */
double reference_ahead(const struct reference_weight *w, const struct reference_rule *r, double t, double ahead);

/* Where a gradient, already clipped, is expected to take a visible weight. */
double reference_moved(double w, double g, double channel, double column, double rate, double beta2, double eps);

void reference_row_sums(const float *g, size_t cols, double *squares, double *magnitudes);

/* Second moments without their bias of `rows` rows of v, whose counts are t: the mean of each row, and the mean of each column relative to
 * the mean of all. */
void reference_second_moments(const float *v, const uint32_t *t, size_t rows, size_t cols, double beta2, double *channel, double *share);

#endif
