/* What every backend asks of an op's arguments before it issues them: what is wrong, in words; NULL: nothing; zf_nothing: there is nothing to
 * do. No rows or columns is no work. */
#ifndef ZF_KERNELS_CHECKS_H
#define ZF_KERNELS_CHECKS_H

#include "kernels/ops.h"

extern const char zf_nothing[];
#define ZF_OP(name) const char *zf_check_##name(const struct zf_##name##_args *a);
#include "kernels/ops.def"
#undef ZF_OP

#endif
