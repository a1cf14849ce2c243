/* See show.h. */
#include "core/base/show.h"
#include "core/base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_harmless(uint32_t c)
{
    bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    bool reorders = c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0x061C;
    return !control && !reorders && c != 0x2028 && c != 0x2029;
}

size_t zf_text_show_one(char to[ZF_SHOWN], const char *s, size_t size, size_t *used)
{
    size_t n = zf_utf8_length((const unsigned char *)s, size, NULL);
    uint32_t c = n ? zf_utf8_decode((const unsigned char *)s, n) : (unsigned char)*s;
    *used = n ? n : 1;
    if (n && is_harmless(c)) {
        memcpy(to, s, n);
        return n;
    }
    if (c == '\n' || c == '\t') return (size_t)snprintf(to, ZF_SHOWN, c == '\n' ? "\\n" : "\\t");
    return (size_t)snprintf(to, ZF_SHOWN, c < 0x80 || !n ? "\\x%02x" : "\\u%04x", (unsigned)c & 0xFFFF);
}

char *zf_text_show(char *to, size_t room, const char *text, size_t size)
{
    size_t n = 0, fits = 0; /* fits: bytes behind which there is room for the dots */
    for (size_t at = 0, used; at < size; at += used) {
        char one[ZF_SHOWN];
        size_t length = zf_text_show_one(one, text + at, size - at, &used);
        if (n + length >= room) {
            memcpy(to + fits, "...", 4);
            return to;
        }
        memcpy(to + n, one, length);
        n += length;
        if (n + 3 < room) fits = n;
    }
    to[n] = 0;
    return to;
}

static void show(FILE *to, const char *text, size_t size, bool lines)
{
    char kept[512]; /* stderr has no buffer of its own */
    size_t n = 0;
    for (size_t at = 0, used; at < size; at += used) {
        used = 1;
        if (lines && (text[at] == '\n' || text[at] == '\t'))
            kept[n++] = text[at];
        else
            n += zf_text_show_one(kept + n, text + at, size - at, &used);
        if (n + ZF_SHOWN <= sizeof kept && at + used < size) continue;
        fwrite(kept, 1, n, to);
        n = 0;
    }
}

void zf_show(FILE *to, const char *text)
{
    show(to, text, strlen(text), false);
}

void zf_show_line(FILE *to, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) text = NULL;
    va_end(ap);
    if (text) zf_show(to, text);
    putc('\n', to);
    free(text);
}

void zf_show_lines(FILE *to, const char *text, size_t size)
{
    show(to, text, size, true);
}

/* One character of it; returns its size. */
static size_t shell_one(char to[4 * ZF_SHOWN], const char *s, size_t size, bool escapes)
{
    if (!escapes && *s == '\'') return (size_t)snprintf(to, 4 * ZF_SHOWN, "'\\''");
    if (escapes && (*s == '\'' || *s == '\\')) return (size_t)snprintf(to, 4 * ZF_SHOWN, "\\%c", *s);
    size_t n = zf_utf8_length((const unsigned char *)s, size, NULL), done = 0;
    if (n && is_harmless(zf_utf8_decode((const unsigned char *)s, n))) return (size_t)snprintf(to, 4 * ZF_SHOWN, "%.*s", (int)n, s);
    for (size_t i = 0; i < (n ? n : 1); i++) done += (size_t)snprintf(to + done, 4 * ZF_SHOWN - done, "\\x%02x", (unsigned char)s[i]);
    return done;
}

char *zf_shell_word(char to[ZF_SHELL_WORD], const char *name)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+,:@%=-";
    size_t size = strlen(name), n = 0, used;
    bool quotes = !size || name[strspn(name, bare)], escapes = false;
    char one[4 * ZF_SHOWN];
    for (size_t at = 0; at < size; at += used) { /* what may not be shown as it is */
        zf_text_show_one(one, name + at, size - at, &used);
        escapes |= memcmp(one, name + at, used) != 0;
    }
    n = (size_t)snprintf(to, ZF_SHELL_WORD, "%s", !quotes ? "" : escapes ? "$'" : "'");
    for (size_t at = 0; at < size; at += used) {
        size_t length = shell_one(one, name + at, size - at, escapes),
               left = zf_utf8_length((const unsigned char *)name + at, size - at, NULL);
        used = left ? left : 1;
        if (n + length + 2 > ZF_SHELL_WORD) return strcpy(to, "RUN");
        memcpy(to + n, one, length);
        n += length;
    }
    strcpy(to + n, quotes ? "'" : "");
    return to;
}

void zf_show_terminal(FILE *to, const char *text, size_t size)
{
    if (isatty(fileno(to)))
        show(to, text, size, true);
    else
        fwrite(text, 1, size, to);
}
