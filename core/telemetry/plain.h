/* --plain: progress as lines for logs and pipes. No escape sequence, no carriage return; few lines. A stdout that is closed, full or not
 * read loses lines, counted; the run goes on. The program ignores SIGPIPE. One thread. */
#ifndef ZF_TELEMETRY_PLAIN_H
#define ZF_TELEMETRY_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_plain_step {
    uint64_t step, steps;
    double loss;       /* mean over the step's label tokens, raw: NaN is shown as such */
    double norm, clip; /* before clipping; the factor, 1: not clipped */
    bool applied;      /* false: loss or norm is not finite, nothing was updated */
    double learning_rate, tokens_per_s;
    double eta;       /* seconds; below 0: not known yet */
    uint64_t skipped; /* steps not applied so far */
};

/* The line, with its newline, into buffer (at least 256 bytes); returns its length. Pure. */
size_t zf_plain_line(char *buffer, size_t size, const struct zf_plain_step *s);

struct zf_plain {
    int fd;
    double every; /* seconds between two step lines */
    double last;  /* clock of the last one */
    bool any;
    size_t lost;
};

void zf_plain_init(struct zf_plain *p, int fd, double every);
/* Prints if it is the first or the last line, or if `every` seconds have passed at `now` (zf_clock). */
void zf_plain_step(struct zf_plain *p, const struct zf_plain_step *s, double now, bool last);
/* Any other line (validation, an export, why the run ended): always. One line; what is in it cannot drive a terminal. */
void zf_plain_text(struct zf_plain *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
