/* The table of one path. matmul has kernels for few rows only. */
#include "kernels/host/path.h"

#define ZF_STRING2_(x) #x
#define ZF_STRING_(x) ZF_STRING2_(x)

#define ZF_OPS_WITHOUT_MATMUL
const struct zf_host_path ZF_PATH(zf_host_path) = {
    .name = ZF_STRING_(ZF_PATH_NAME),
    .typed[ZF_F32] = {.few = &ZF_PATH_F32(zf_host_few), .few_end = &ZF_PATH_F32(zf_host_few_end)},
    .typed[ZF_BF16] = {.few = &ZF_PATH_BF16(zf_host_few), .few_end = &ZF_PATH_BF16(zf_host_few_end)},
#define ZF_OP_UNTYPED(op)
#define ZF_OP(op) .typed[ZF_F32].op = &ZF_PATH_F32(zf_host_##op), .typed[ZF_BF16].op = &ZF_PATH_BF16(zf_host_##op),
#include "kernels/ops.def"
#undef ZF_OP
#undef ZF_OP_UNTYPED
#define ZF_OP(op)
#define ZF_OP_UNTYPED(op) .op = &ZF_PATH_F32(zf_host_##op),
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
};
