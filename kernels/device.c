/* The table of backends, and what is known of element types. */
#include "kernels/device.h"

#include <stdio.h>
#include <string.h>

extern const struct zf_device_type zf_host_device;
extern const struct zf_device_type zf_cuda_device __attribute__((weak)); /* who links kernels/cuda has it */

enum { BACKENDS = 2 };
static const struct zf_device_type *const backends[BACKENDS] = {&zf_host_device, &zf_cuda_device};

static const struct zf_device_type *find(const char *name)
{
    for (size_t i = 0; i < BACKENDS; i++)
        if (backends[i] && !strcmp(backends[i]->name, name)) return backends[i];
    return NULL;
}

static const struct {
    const char *name;
    size_t size;
} dtypes[ZF_DTYPES] = {
    [ZF_F32] = {"f32", 4}, [ZF_BF16] = {"bf16", 2}, [ZF_F16] = {"f16", 2}, [ZF_F64] = {"f64", 8},
    [ZF_I32] = {"i32", 4}, [ZF_I64] = {"i64", 8},   [ZF_U8] = {"u8", 1},
};

size_t zf_dtype_size(enum zf_dtype t)
{
    return (unsigned)t < ZF_DTYPES ? dtypes[t].size : 0;
}

const char *zf_phase_name(enum zf_phase p)
{
    static const char *const names[] = {
#define X(name, text) text,
        ZF_PHASE_MAP(X)
#undef X
    };
    return (unsigned)p < ZF_PHASES ? names[p] : "unknown phase";
}

const char *zf_dtype_name(enum zf_dtype t)
{
    return (unsigned)t < ZF_DTYPES ? dtypes[t].name : "unknown type";
}

static const struct zf_device_options defaults;

static enum zf_status find_type(const struct zf_device_type **out, const char *name, struct zf_err *e)
{
    const struct zf_device_type *t = *out = find(name);
    char names[128] = "";
    if (t && t->abi != ZF_DEVICE_ABI)
        return zf_fail(e, ZF_USAGE, NULL,
                       "the device %s speaks version %u of the device interface; this program needs version %d; rebuild it", name,
                       (unsigned)t->abi, (int)ZF_DEVICE_ABI);
    if (t) return ZF_OK;
    for (size_t i = 0; i < BACKENDS; i++) {
        size_t n = strlen(names);
        if (backends[i]) snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", backends[i]->name);
    }
    return zf_fail(e, ZF_USAGE, NULL, "there is no device \"%s\"; this build has: %s%s", name, names,
                   strcmp(name, "cuda") ? "" : "; with the CUDA toolkit at hand (gpu_root) a build has cuda as well");
}

enum zf_status zf_device_open(struct zf_device **out, const char *name, const struct zf_device_options *o, struct zf_err *e)
{
    const struct zf_device_type *t;
    *out = NULL;
    ZF_TRY(find_type(&t, name, e));
    return t->open(out, o ? o : &defaults, e);
}

enum zf_status zf_device_probe(struct zf_device_info *found, const char *name, const struct zf_device_options *o, struct zf_err *e)
{
    const struct zf_device_type *t;
    *found = (struct zf_device_info){0};
    ZF_TRY(find_type(&t, name, e));
    return t->probe ? t->probe(o ? o : &defaults, found, e) : ZF_OK;
}

bool zf_device_survey(const char *name, struct zf_device_info *out)
{
    const struct zf_device_type *t = find(name);
    *out = (struct zf_device_info){0};
    if (t) t->info(NULL, out);
    return t;
}

enum zf_status zf_lane_refused(struct zf_device *d, struct zf_lane *l, enum zf_status s, const char *what, struct zf_err *e)
{
    enum zf_status found = d->type->lane_sync(l, e);
    return found ? found : zf_fail(e, s, what, "the device %s refused it", d->type->name);
}
