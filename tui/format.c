/* See format.h. */
#include "tui/format.h"

#include <math.h>
#include <stdio.h>

const char *zf_format_value(char to[ZF_FORMAT_ROOM], double v)
{
    double size = fabs(v);
    if (isnan(v))
        snprintf(to, ZF_FORMAT_ROOM, "--");
    else if (isinf(v))
        snprintf(to, ZF_FORMAT_ROOM, "%s", v > 0 ? "inf" : "-inf");
    else if (v == 0)
        snprintf(to, ZF_FORMAT_ROOM, "0");
    else if (size < 1e-3 || size >= 1e6)
        snprintf(to, ZF_FORMAT_ROOM, "%.2e", v);
    else
        snprintf(to, ZF_FORMAT_ROOM, "%.*f", size < 0.1 ? 5 : size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0, v);
    return to;
}

/* Three digits and one of `units`, each `base` times the one before. */
static const char *scaled(char to[ZF_FORMAT_ROOM], double v, double base, const char *const *units, size_t count)
{
    size_t i = 0;
    double size = fabs(v);
    if (!isfinite(v)) return zf_format_value(to, v);
    for (; size >= (base == 1000 ? 999.5 : 1000) && i + 1 < count; i++) size /= base;
    if (size >= 1e6)
        snprintf(to, ZF_FORMAT_ROOM, "%.1e%s", v < 0 ? -size : size, units[i]);
    else
        snprintf(to, ZF_FORMAT_ROOM, "%.*f%s",
                 i == 0 && size == floor(size) ? 0
                 : size < 9.995                ? 2
                 : size < 99.95                ? 1
                                               : 0,
                 v < 0 ? -size : size, units[i]);
    return to;
}

const char *zf_format_count(char to[ZF_FORMAT_ROOM], double v)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    return scaled(to, v, 1000, units, sizeof units / sizeof *units);
}

const char *zf_format_bytes(char to[ZF_FORMAT_ROOM], double v)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    return scaled(to, v, 1024, units, sizeof units / sizeof *units);
}

const char *zf_format_share(char to[ZF_FORMAT_ROOM], double v)
{
    if (!isfinite(v)) return zf_format_value(to, v);
    snprintf(to, ZF_FORMAT_ROOM, fabs(v) < 0.0995 ? "%.1f %%" : fabs(v) < 100 ? "%.0f %%" : "%.1e %%", 100 * v);
    return to;
}

const char *zf_format_clock(char to[ZF_FORMAT_ROOM], double s)
{
    if (!(s >= 0) || s > 1e9)
        *to = 0;
    else
        snprintf(to, ZF_FORMAT_ROOM, "%d:%02d:%02d", (int)s / 3600, (int)s / 60 % 60, (int)s % 60);
    return to;
}
