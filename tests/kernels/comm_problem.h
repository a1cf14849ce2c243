/* What collectives must do, checked by each rank for itself, in a thread or a process; a failure ends the program with a word about it. */
#ifndef ZF_TESTS_KERNELS_COMM_PROBLEM_H
#define ZF_TESTS_KERNELS_COMM_PROBLEM_H

#include "kernels/comm.h"

struct rank_of_problem {
    int rank, ranks;
    struct zf_device *device;
    struct zf_comm *comm;
    struct zf_lane *lane;
};

void problem_fail(const struct rank_of_problem *r, const char *text, ...) __attribute__((format(printf, 2, 3), noreturn));
void problem_device(struct rank_of_problem *r, const char *name);
void problem_all(struct rank_of_problem *r);
void problem_disagree(struct rank_of_problem *r, size_t rows); /* the ranks bring different numbers of rows: all find an error */
void problem_alone(struct rank_of_problem *r);                 /* the others never come; an abort is heard */

#endif
