/* See eta.h. */
#include "core/telemetry/eta.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void zf_eta_step(struct zf_eta *t, double seconds)
{
    t->seconds[t->count++ % ZF_ETA_WINDOW] = seconds;
}

void zf_eta_pause(struct zf_eta *t, double seconds)
{
    t->pause_seconds += seconds;
    t->pauses++;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double zf_eta_step_seconds(const struct zf_eta *t)
{
    size_t n = t->count < ZF_ETA_WINDOW ? t->count : ZF_ETA_WINDOW;
    double sorted[ZF_ETA_WINDOW];
    if (n < ZF_ETA_LEAST) return -1;
    memcpy(sorted, t->seconds, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double zf_eta_left(const struct zf_eta *t, uint64_t steps_left, uint64_t pauses_left)
{
    double step = zf_eta_step_seconds(t), pause = t->pauses ? t->pause_seconds / (double)t->pauses : 0;
    return step < 0 ? -1 : step * (double)steps_left + pause * (double)pauses_left;
}

const char *zf_duration_text(double seconds, char *buffer, size_t size)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) {
        snprintf(buffer, size, "--");
        return buffer;
    }
    unsigned long long s = (unsigned long long)(seconds + 0.5), m = s / 60, h = m / 60;
    if (s < 60)
        snprintf(buffer, size, "%llus", s);
    else if (m < 60)
        snprintf(buffer, size, "%llum%02llus", m, s % 60);
    else if (h < 24)
        snprintf(buffer, size, "%lluh%02llum", h, m % 60);
    else
        snprintf(buffer, size, "%llud%02lluh", h / 24, h % 24);
    return buffer;
}
