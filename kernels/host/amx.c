/* May this process use AMX's tiles for bf16? The processor has to have them, and Linux asks for a permission first, as threads then need
 * more room for their registers; it belongs to the process. Compiled without any of those instructions. */
#include "kernels/host/attention_amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };

bool zf_host_amx(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bf16"))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d >> 22 & 1) || !(d >> 24 & 1)) return false; /* amx-bf16, amx-tile */
    return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_);
}
