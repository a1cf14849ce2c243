/* How a trainer ended that could not say so: what a signal handler still writes into the lock, and what the next start makes of it. SIGKILL
 * and a power cut leave nothing; they are told by what is missing. */
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/session/journal.h"
#include "core/session/lock_impl.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the handler: nothing but writes of bytes ---- */

static const int deaths[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGQUIT, SIGXCPU};
enum { DEATHS = sizeof deaths / sizeof *deaths };

static struct sigaction before[DEATHS];
static struct zf_lock *volatile dying; /* NULL: nobody is to be told */

/* Ends there: right-aligned among spaces, as JSON has no leading zeros. Returns its first digit. */
static char *put_number(char *end, uint64_t x)
{
    do *--end = (char)('0' + x % 10);
    while (x /= 10);
    return end;
}

char *zf_lock_head(char to[ZF_LOCK_HEAD + 1], int number, uint64_t step)
{
    enum { SIGNAL = 14, STEP = 45 }; /* where the numbers end */
    static const char blank[] = "{\"signal\":    ,\"died_at\":                    ,";
    _Static_assert(sizeof blank == ZF_LOCK_HEAD + 1, "the places of the numbers");
    memcpy(to, blank, sizeof blank);
    put_number(to + SIGNAL, (uint64_t)number);
    put_number(to + STEP, step);
    return to;
}

static char *put_text(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

static char *put_digits(char *to, uint64_t x)
{
    char digits[20];
    char *first = put_number(digits + sizeof digits, x);
    size_t n = (size_t)(digits + sizeof digits - first);
    memcpy(to, first, n);
    return to + n;
}

static void say(int number, uint64_t step)
{
    char text[160], *at = put_text(text, "zenflow-console: ended by signal ");
    at = put_digits(at, (uint64_t)number);
    at = put_text(at, " after step ");
    at = put_digits(at, step);
    at = put_text(at, "; the same command goes on from the newest checkpoint\n");
    if (write(STDERR_FILENO, text, (size_t)(at - text)) < 0) return; /* nobody listens */
}

void zf_lock_died(int number)
{
    char head[ZF_LOCK_HEAD + 1];
    struct zf_lock *l = dying;
    if (!l || l->lost) return;
    l->me.signal = number;
    zf_lock_head(head, number, l->me.step);
    if (pwrite(l->fd, head, ZF_LOCK_HEAD, 0) < 0) return; /* the record stays as it was */
}

/* Whoever was here before, the system's way of ending most often, has the last word. */
static void on_death(int number)
{
    int saved = errno;
    struct zf_lock *l = dying;
    zf_lock_died(number);
    if (l) say(number, l->me.step);
    for (int i = 0; i < DEATHS; i++)
        if (deaths[i] == number) sigaction(number, &before[i], NULL);
    raise(number);
    errno = saved;
}

void zf_lock_tell_death(struct zf_lock *l)
{
    static char stack[64 << 10]; /* one that has overflowed cannot be used; AMX's registers alone take 8 KB of it */
    const stack_t apart = {.ss_sp = stack, .ss_size = sizeof stack};
    const struct sigaction ours = {.sa_handler = on_death, .sa_flags = SA_ONSTACK};
    if (dying) return;
    dying = l;
    sigaltstack(&apart, NULL);
    for (int i = 0; i < DEATHS; i++)
        if (!sigaction(deaths[i], NULL, &before[i]) && before[i].sa_handler != SIG_IGN) sigaction(deaths[i], &ours, NULL);
}

void zf_lock_no_death(struct zf_lock *l)
{
    struct sigaction now;
    if (dying != l) return;
    dying = NULL;
    for (int i = 0; i < DEATHS; i++)
        if (!sigaction(deaths[i], NULL, &now) && now.sa_handler == on_death) sigaction(deaths[i], &before[i], NULL);
}

/* ---- the explanation ---- */

struct text {
    char *to;
    size_t room, used;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    if (t->used >= t->room) return;
    va_start(ap, fmt);
    int n = vsnprintf(t->to + t->used, t->room - t->used, fmt, ap);
    va_end(ap);
    t->used += n > 0 ? (size_t)n : 0;
}

static bool known(double bytes)
{
    return bytes > 0 && bytes < 1e18;
}

static void add_memory(struct text *t, const struct zf_lock_record *r)
{
    char bytes[32];
    if (known(r->peak_bytes)) add(t, "; peak memory %s", zf_bytes_text((size_t)r->peak_bytes, bytes, sizeof bytes));
    if (known(r->peak_bytes) && known(r->limit_bytes))
        add(t, " of a limit of %s", zf_bytes_text((size_t)r->limit_bytes, bytes, sizeof bytes));
}

static void add_last_sign(struct text *t, const struct zf_lock_record *r)
{
    char bytes[32], time[96];
    if (r->heartbeat <= 0) return;
    add(t, "; its last sign of life was at %s", zf_time_text(r->heartbeat, time, sizeof time));
    if (known(r->resident_bytes)) add(t, " with %s", zf_bytes_text((size_t)r->resident_bytes, bytes, sizeof bytes));
}

void zf_lock_explain_here(const struct zf_lock_record *r, uint64_t step, const struct zf_lock_record *here, char *buffer, size_t size)
{
    struct text t = {buffer, size, 0};
    bool same_boot = r->boot_id[0] && !strcmp(here->boot_id, r->boot_id), same_host = !strcmp(here->host, r->host);
    double kills = r->oom_kills >= 0 && here->oom_kills > r->oom_kills ? here->oom_kills - r->oom_kills : 0;
    if (size) *buffer = 0;
    add(&t, "the trainer (pid %lld on host %s) ended without a clean stop at step %llu", r->pid, r->host,
        (unsigned long long)(step > r->step ? step : r->step));
    if (r->signal) add(&t, " by signal %d (%s)", r->signal, strsignal(r->signal));
    add_memory(&t, r);
    add_last_sign(&t, r);
    if (same_boot && kills)
        add(&t, "; the kernel's out-of-memory killer has acted here since it started (%.0f time%s)", kills, kills == 1 ? "" : "s");
    else if (same_host && !same_boot)
        add(&t, "; the machine was started anew since");
    else if (same_boot && !r->signal)
        add(&t, "; it was killed outright, as by kill -9, a batch system or the kernel: any other signal would have been noted");
}

void zf_lock_explain(const struct zf_lock_record *r, uint64_t step, char *buffer, size_t size)
{
    struct zf_lock_record here = {.oom_kills = -1};
    size_t kills = zf_memory_oom_kills("/");
    zf_lock_read_host(&here);
    if (kills != SIZE_MAX) here.oom_kills = (double)kills;
    zf_lock_explain_here(r, step, &here, buffer, size);
}
