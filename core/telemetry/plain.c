/* See plain.h. */
#include "core/telemetry/plain.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/show.h"
#include "core/telemetry/eta.h"

/* How long a line may wait for a reader that is slow, not gone. */
enum { WAIT_STEP_MS = 0, WAIT_TEXT_MS = 1000 };

/* Not "-nan". */
static const char *number(char *buffer, size_t size, const char *fmt, double x)
{
    if (isnan(x)) return "nan";
    if (isinf(x)) return x > 0 ? "inf" : "-inf";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(buffer, size, fmt, x);
#pragma GCC diagnostic pop
    return buffer;
}

size_t zf_plain_line(char *buffer, size_t size, const struct zf_plain_step *s)
{
    char loss[32], norm[32], after[32], rate[32], speed[32], eta[32], skipped[48] = "";
    const char *mark = !s->applied ? " (not applied)" : s->clip < 1 ? " clipped" : "";
    if (s->skipped) snprintf(skipped, sizeof skipped, "  skipped %llu", (unsigned long long)s->skipped);
    int digits = snprintf(NULL, 0, "%llu", (unsigned long long)s->steps);
    snprintf(buffer, size, "step %*llu/%llu  loss %-7s  norm %9s -> %-7s%-8s  lr %-9s  %7s tok/s  ETA %s%s\n", digits,
             (unsigned long long)s->step, (unsigned long long)s->steps, number(loss, sizeof loss, "%.4f", s->loss),
             number(norm, sizeof norm, "%.4g", s->norm), s->applied ? number(after, sizeof after, "%.4g", s->norm * s->clip) : "0", mark,
             number(rate, sizeof rate, "%.4g", s->learning_rate), number(speed, sizeof speed, "%.0f", s->tokens_per_s),
             zf_duration_text(s->eta, eta, sizeof eta), skipped);
    return strlen(buffer);
}

void zf_plain_init(struct zf_plain *p, int fd, double every)
{
    *p = (struct zf_plain){.fd = fd, .every = every};
}

/* A pipe that says it is writable takes PIPE_BUF bytes at once: a reader that has stopped cannot stop us. */
static void put(struct zf_plain *p, const char *line, size_t size, int wait_ms)
{
    struct pollfd ready = {.fd = p->fd, .events = POLLOUT};
    ssize_t n = -1;
    if (poll(&ready, 1, wait_ms) == 1 && ready.revents & POLLOUT) {
        do n = write(p->fd, line, size);
        while (n < 0 && errno == EINTR);
    }
    if (n != (ssize_t)size) p->lost++;
}

void zf_plain_step(struct zf_plain *p, const struct zf_plain_step *s, double now, bool last)
{
    char line[512];
    if (p->any && !last && now - p->last < p->every) return;
    p->any = true;
    p->last = now;
    put(p, line, zf_plain_line(line, sizeof line, s), last ? WAIT_TEXT_MS : WAIT_STEP_MS);
}

void zf_plain_text(struct zf_plain *p, const char *fmt, ...)
{
    char text[2048], line[3072]; /* an escape is longer than what it stands for; PIPE_BUF is 4096 */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; (c = strpbrk(c, "\n\r\t"));) *c = ' ';
    size_t n = strlen(text);
    while (n && text[n - 1] == ' ') n--;
    n = strlen(zf_text_show(line, sizeof line - 1, text, n));
    line[n++] = '\n';
    put(p, line, n, WAIT_TEXT_MS);
}
