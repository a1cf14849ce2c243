/* The table of one path. matmul has no kernel here. */
#include "kernels/host/path.h"

#define ZF_STRING2_(x) #x
#define ZF_STRING_(x) ZF_STRING2_(x)

#define ZF_OPS_WITHOUT_MATMUL
const struct zf_host_path ZF_PATH(zf_host_path) = {
    .name = ZF_STRING_(ZF_PATH_NAME),
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
