/* How long it still takes, from this process's recent steps alone: steps done before a resume say nothing about this machine. */
#ifndef ZF_TELEMETRY_ETA_H
#define ZF_TELEMETRY_ETA_H

#include <stddef.h>
#include <stdint.h>

enum { ZF_ETA_WINDOW = 20, ZF_ETA_LEAST = 5 };

/* A zeroed struct is a fresh one. */
struct zf_eta {
    double seconds[ZF_ETA_WINDOW];
    size_t count;
    double pause_seconds; /* validation, saves */
    size_t pauses;
};

void zf_eta_step(struct zf_eta *t, double seconds);  /* one step, pauses not included */
void zf_eta_pause(struct zf_eta *t, double seconds); /* one validation or save */
/* Median of the last steps, or -1 until there are ZF_ETA_LEAST. */
double zf_eta_step_seconds(const struct zf_eta *t);
/* For what is left, pauses at the mean of those seen; -1: not known yet. */
double zf_eta_left(const struct zf_eta *t, uint64_t steps_left, uint64_t pauses_left);

/* "12s", "3m05s", "1h02m", "2d03h"; "--" for less than 0 and what is no number. Into buffer, returned. */
const char *zf_duration_text(double seconds, char *buffer, size_t size);

#endif
