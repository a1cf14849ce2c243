#include "core/base/err.h"
#include "core/base/show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum zf_status zf_vfail(struct zf_err *e, enum zf_status code, const char *where, const char *fmt, va_list ap)
{
    /* The arguments may point into *e (a message that is wrapped in another): format beside it first. */
    char message[sizeof e->message], place[sizeof e->where];
    vsnprintf(message, sizeof message, fmt, ap);
    snprintf(place, sizeof place, "%s", where ? where : "");
    e->code = code;
    memcpy(e->message, message, sizeof message);
    memcpy(e->where, place, sizeof place);
    return code;
}

enum zf_status zf_fail(struct zf_err *e, enum zf_status code, const char *where, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    zf_vfail(e, code, where, fmt, ap);
    va_end(ap);
    return code;
}

enum zf_status zf_fail_errno(struct zf_err *e, const char *where, const char *fmt, ...)
{
    int number = errno;
    va_list ap;
    va_start(ap, fmt);
    zf_vfail(e, ZF_IO, where, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->message);
    snprintf(e->message + n, sizeof e->message - n, ": %s", strerror(number));
    return ZF_IO;
}

const char *zf_place(char *to, size_t room, const char *file, uint64_t line, uint64_t column)
{
    char numbers[48] = "";
    size_t n = line ? (size_t)snprintf(numbers, sizeof numbers, ":%" PRIu64, line) : 0, length = strlen(file), cut = 0;
    if (column) n += (size_t)snprintf(numbers + n, sizeof numbers - n, ":%" PRIu64, column);
    if (length + n >= room) {
        cut = room > n + 4 ? length - (room - n - 4) : length;
        while ((file[cut] & 0xC0) == 0x80) cut++; /* no half a character */
    }
    snprintf(to, room, "%s%s%s", cut ? "..." : "", file + cut, numbers);
    return to;
}

enum zf_status zf_fail_memory(struct zf_err *e, const char *what)
{
    return zf_fail(e, ZF_MEMORY, NULL, "the system refused memory for %s", what);
}

const char *zf_status_text(enum zf_status s)
{
    switch (s) {
#define X(name, code, text) \
    case ZF_##name: return text;
        ZF_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

void zf_err_print(const char *kind, const struct zf_err *e)
{
    flockfile(stderr);
    fprintf(stderr, "zenflow-console: %s%s", kind ? kind : "", kind ? ": " : "");
    zf_show(stderr, e->where);
    if (e->where[0]) fputs(": ", stderr);
    zf_show(stderr, e->message);
    putc('\n', stderr);
    funlockfile(stderr);
}
