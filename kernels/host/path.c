/* The table of one path. matmul has no kernel here. */
#include "kernels/host/path.h"

#define ZF_STRING2_(x) #x
#define ZF_STRING_(x) ZF_STRING2_(x)

#define ZF_OPS_WITHOUT_MATMUL
const struct zf_host_path ZF_PATH(zf_host_path) = {
    .name = ZF_STRING_(ZF_PATH_NAME),
#define ZF_OP(op) .op = &ZF_PATH(zf_host_##op),
#include "kernels/ops.def"
#undef ZF_OP
};
