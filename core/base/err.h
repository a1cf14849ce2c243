/* Errors: one list of status codes, one struct that says what, where and what to do.
 *
 * A function that can fail returns enum zf_status and fills the struct zf_err it was given (never NULL).
 * Nothing below main() exits. The numbers are the program's exit codes (README, "Exit codes"). */
#ifndef ZF_BASE_ERR_H
#define ZF_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define ZF_STATUS_MAP(X) \
    X(OK, 0, "done") \
    X(DIFFERENT, 1, "compared and found different, or refused") \
    X(USAGE, 2, "usage or configuration") \
    X(MEMORY, 3, "does not fit in memory") \
    X(FORMAT, 4, "model, data or checkpoint unreadable") \
    X(STOPPED, 5, "ended early by a signal or a command, state saved") \
    X(NUMERIC, 6, "numerical failure; the weights are exported if they are finite") \
    X(IO, 7, "input/output") \
    X(BUSY, 8, "no live trainer there, or another one holds the run")

enum zf_status {
#define X(name, code, text) ZF_##name = code,
    ZF_STATUS_MAP(X)
#undef X
};

struct zf_err {
    enum zf_status code;
    char where[512];    /* "FILE:LINE:COLUMN", a file, a tensor; empty if there is no place */
    char message[1536]; /* what was found; what was expected; what to do */
};

/* Fills *e and returns code, so that a caller can write `return zf_fail(...)`. `where` may be NULL. */
enum zf_status zf_fail(struct zf_err *e, enum zf_status code, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
enum zf_status zf_vfail(struct zf_err *e, enum zf_status code, const char *where, const char *fmt, va_list ap);

/* ZF_IO with strerror(errno) at the end of the message. */
enum zf_status zf_fail_errno(struct zf_err *e, const char *where, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "FILE:LINE:COLUMN" into `to`, without the numbers that are 0; "...END:LINE:COLUMN" if the name is too long for it. Returns `to`. */
const char *zf_place(char *to, size_t room, const char *file, uint64_t line, uint64_t column);

enum zf_status zf_fail_memory(struct zf_err *e, const char *what);

const char *zf_status_text(enum zf_status s);

/* "zenflow-console: KIND: PLACE: message" on stderr. kind: "note", "warning"; NULL for an error. */
void zf_err_print(const char *kind, const struct zf_err *e);

#define ZF_TRY(expr) \
    do { \
        enum zf_status zf_try_ = (expr); \
        if (zf_try_ != ZF_OK) return zf_try_; \
    } while (0)

/* For functions with a common exit label that frees what they hold. */
#define ZF_GOTO(label, status, expr) \
    do { \
        (status) = (expr); \
        if ((status) != ZF_OK) goto label; \
    } while (0)

#endif
