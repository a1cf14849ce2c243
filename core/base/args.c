#include "core/base/args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool only_positional_from(const struct zf_args *a, int i)
{
    return a->list[i] && !strcmp(a->list[i], "--");
}

bool zf_args_flag(struct zf_args *a, const char *name)
{
    bool found = false;
    for (int i = 0; i < a->count && !only_positional_from(a, i); i++)
        if (a->list[i] && !strcmp(a->list[i], name)) {
            a->list[i] = NULL;
            found = true;
        }
    return found;
}

enum zf_status zf_args_value(struct zf_args *a, const char *name, const char **out, struct zf_err *e)
{
    size_t n = strlen(name);
    *out = NULL;
    for (int i = 0; i < a->count && !only_positional_from(a, i); i++) {
        char *arg = a->list[i];
        if (!arg || strncmp(arg, name, n)) continue;
        if (arg[n] == '=') {
            a->list[i] = NULL;
            *out = arg + n + 1;
            return ZF_OK;
        }
        if (arg[n]) continue;
        if (i + 1 >= a->count || !a->list[i + 1]) return zf_fail(e, ZF_USAGE, name, "it needs a value behind it");
        *out = a->list[i + 1];
        a->list[i] = a->list[i + 1] = NULL;
        return ZF_OK;
    }
    return ZF_OK;
}

enum zf_status zf_args_integer(struct zf_args *a, const char *name, int64_t least, int64_t most, int64_t *out, struct zf_err *e)
{
    const char *text;
    char *end;
    ZF_TRY(zf_args_value(a, name, &text, e));
    if (!text) return ZF_OK;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (end == text || *end || errno || x < least || x > most)
        return zf_fail(e, ZF_USAGE, name, "`%s` is no whole number from %lld to %lld", text, (long long)least, (long long)most);
    *out = x;
    return ZF_OK;
}

enum zf_status zf_args_real(struct zf_args *a, const char *name, double least, double most, double *out, struct zf_err *e)
{
    const char *text;
    char *end;
    ZF_TRY(zf_args_value(a, name, &text, e));
    if (!text) return ZF_OK;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= least && x <= most))
        return zf_fail(e, ZF_USAGE, name, "`%s` is no number from %g to %g", text, least, most);
    *out = x;
    return ZF_OK;
}

const char *zf_args_next(struct zf_args *a)
{
    bool all = false;
    for (int i = 0; i < a->count; i++) {
        char *arg = a->list[i];
        if (!arg) continue;
        if (!all && !strcmp(arg, "--")) {
            all = true;
            continue;
        }
        if (!all && arg[0] == '-' && arg[1]) continue;
        a->list[i] = NULL;
        return arg;
    }
    return NULL;
}

enum zf_status zf_args_need(struct zf_args *a, const char *what, const char **out, struct zf_err *e)
{
    *out = zf_args_next(a);
    return *out ? ZF_OK : zf_fail(e, ZF_USAGE, NULL, "%s is missing; --help shows how to call it", what);
}

enum zf_status zf_args_done(const struct zf_args *a, struct zf_err *e)
{
    for (int i = 0; i < a->count; i++)
        if (a->list[i] && strcmp(a->list[i], "--"))
            return zf_fail(e, ZF_USAGE, NULL, "`%s` is not understood here; --help shows what is", a->list[i]);
    return ZF_OK;
}
