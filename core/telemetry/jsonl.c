/* See jsonl.h. One writer a file; readers need no lock. */
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct text {
    char *bytes;
    size_t size, room;
    bool failed;
};

static void put(struct text *t, const char *bytes, size_t size)
{
    if (t->failed) return;
    if (t->room - t->size < size) {
        size_t room = t->room ? t->room : 512;
        while (room - t->size < size && room < SIZE_MAX / 4) room *= 2;
        char *more = room - t->size < size ? NULL : realloc(t->bytes, room);
        if (!more) {
            t->failed = true;
            return;
        }
        t->bytes = more;
        t->room = room;
    }
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

static void put_word(struct text *t, const char *word)
{
    put(t, word, strlen(word));
}

/* jansson would print 0.1 as 0.10000000000000001. */
static void put_real(struct text *t, double x)
{
    char s[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    char *point = strchr(s, *localeconv()->decimal_point);
    if (point) *point = '.';
    if (!strpbrk(s, ".e")) strcat(s, ".0"); /* it stays a real */
    put_word(t, s);
}

/* jansson escapes what is below a blank; DEL and U+0080 .. U+009F drive a terminal, too. */
static void put_harmless(struct text *t, const char *s, size_t n)
{
    char escape[8];
    size_t from = 0, at = 0;
    while (at < n) {
        const unsigned char *c = (const unsigned char *)s + at;
        size_t length = c[0] == 0x7F ? 1 : c[0] == 0xC2 && at + 1 < n && c[1] < 0xA0 ? 2 : 0;
        if (length) {
            put(t, s + from, at - from);
            snprintf(escape, sizeof escape, "\\u%04x", c[length - 1]);
            put_word(t, escape);
            from = at + length;
        }
        at += length ? length : 1;
    }
    put(t, s + from, n - from);
}

static void put_plain(struct text *t, const json_t *v)
{
    char few[256], *s = few;
    size_t n = json_dumpb(v, few, sizeof few, JSON_ENCODE_ANY | JSON_COMPACT);
    if (n > sizeof few) { /* all of it is needed: once more */
        s = malloc(n);
        if (s) n = json_dumpb(v, s, n, JSON_ENCODE_ANY | JSON_COMPACT);
    }
    if (s && n)
        put_harmless(t, s, n);
    else
        t->failed = true;
    if (s != few) free(s);
}

static void put_string(struct text *t, const char *s, size_t n)
{
    json_t *v = json_stringn(s, n);
    if (v)
        put_plain(t, v);
    else
        t->failed = true;
    json_decref(v);
}

static void put_value(struct text *t, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i = 0;
    if (json_is_object(v)) {
        put(t, "{", 1);
        json_object_foreach((json_t *)(size_t)v, key, item)
        {
            if (i++) put(t, ",", 1);
            put_string(t, key, strlen(key));
            put(t, ":", 1);
            put_value(t, item);
        }
        put(t, "}", 1);
    } else if (json_is_array(v)) {
        put(t, "[", 1);
        for (; i < json_array_size(v); i++) {
            if (i) put(t, ",", 1);
            put_value(t, json_array_get(v, i));
        }
        put(t, "]", 1);
    } else if (json_is_real(v)) {
        put_real(t, json_real_value(v));
    } else {
        put_plain(t, v);
    }
}

char *zf_jsonl_text(const json_t *value, size_t *size)
{
    struct text t = {0};
    if (!value) return NULL;
    put_value(&t, value);
    put(&t, "\n", 2);
    if (t.failed) {
        free(t.bytes);
        return NULL;
    }
    if (size) *size = t.size - 1;
    return t.bytes;
}

/* Where the last whole line ends: what stands behind was torn by a kill. */
static off_t end_of_lines(int fd, off_t size)
{
    char block[4096];
    while (size > 0) {
        size_t n = size < (off_t)sizeof block ? (size_t)size : sizeof block;
        if (pread(fd, block, n, size - (off_t)n) != (ssize_t)n) return -1;
        char *newline = memrchr(block, '\n', n);
        if (newline) return size - (off_t)n + (newline - block) + 1;
        size -= (off_t)n;
    }
    return 0;
}

enum zf_status zf_jsonl_open(struct zf_jsonl *out, const char *path, struct zf_err *e)
{
    struct stat st;
    /* O_NONBLOCK: whatever the name leads to, writing to it never waits for a reader. */
    *out = (struct zf_jsonl){open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666), false};
    if (out->fd < 0) return zf_fail_errno(e, path, "cannot open it for appending");
    if (fstat(out->fd, &st)) {
        zf_fail_errno(e, path, "cannot stat it");
        zf_jsonl_close(out);
        return e->code;
    }
    if (S_ISREG(st.st_mode) && st.st_size) {
        off_t end = end_of_lines(out->fd, st.st_size);
        out->torn = end < 0 || (end < st.st_size && ftruncate(out->fd, end));
    }
    return ZF_OK;
}

void zf_jsonl_close(struct zf_jsonl *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
}

int zf_jsonl_append(struct zf_jsonl *j, const char *text, size_t size)
{
    struct stat st;
    ssize_t n;
    if (!fstat(j->fd, &st) && !st.st_nlink) return ENOENT; /* somebody has removed it: nobody would ever read the line */
    if (j->torn) {
        if (write(j->fd, "\n", 1) != 1) return errno ? errno : EIO;
        j->torn = false;
    }
    do n = write(j->fd, text, size);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size) return 0;
    int why = n < 0 ? errno : ENOSPC;
    if (n > 0) j->torn = fstat(j->fd, &st) || !S_ISREG(st.st_mode) || st.st_size < n || ftruncate(j->fd, st.st_size - n);
    return why;
}

enum zf_status zf_lines_open(struct zf_lines *out, const char *path, struct zf_err *e)
{
    struct stat st;
    *out = (struct zf_lines){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return zf_fail_errno(e, path, "cannot open it");
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return zf_fail(e, ZF_IO, path, "it is no regular file");
    }
    out->file = fdopen(fd, "r");
    if (out->file) return ZF_OK;
    close(fd);
    return zf_fail_memory(e, path);
}

void zf_lines_close(struct zf_lines *l)
{
    if (l->file) fclose(l->file);
    free(l->text);
    *l = (struct zf_lines){0};
}

/* Reads up to the newline. *whole: the newline was there and the line not too long. false: nothing left. */
static bool read_line(struct zf_lines *l, bool *whole)
{
    int c;
    *whole = true;
    l->length = 0;
    while ((c = getc_unlocked(l->file)) != EOF && c != '\n') {
        if (!*whole) continue;
        if (l->room - l->length < 2) {
            size_t room = l->room ? 2 * l->room : 4096;
            char *more = room > ZF_JSONL_LONGEST ? NULL : realloc(l->text, room);
            if (!more) {
                *whole = false;
                continue;
            }
            l->text = more;
            l->room = room;
        }
        l->text[l->length++] = (char)c;
    }
    if (l->length) l->text[l->length] = 0;
    if (c == EOF && !l->length && *whole) return false;
    if (c == EOF) *whole = false;
    return true;
}

static json_t *parse_object(const char *text, size_t length)
{
    json_t *v = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

json_t *zf_lines_next(struct zf_lines *l)
{
    bool whole;
    for (;;) {
        off_t begin = ftello(l->file);
        if (!read_line(l, &whole)) return NULL;
        l->offset = begin;
        if (whole && !l->length) continue; /* an empty line is harmless */
        json_t *v = whole ? parse_object(l->text, l->length) : NULL;
        if (v) return v;
        l->bad++;
    }
}

json_t *zf_lines_at(struct zf_lines *l, off_t offset)
{
    bool whole;
    if (fseeko(l->file, offset, SEEK_SET) || !read_line(l, &whole) || !whole || !l->length) return NULL;
    return parse_object(l->text, l->length);
}

/* Searches the whole lines of the last `size` bytes backwards; `first`: the block begins with the file. */
static json_t *search_back(const char *block, size_t size, bool first, const char *type)
{
    const char *end = memrchr(block, '\n', size);
    while (end) {
        const char *before = end > block ? memrchr(block, '\n', (size_t)(end - block)) : NULL;
        if (!before && !first) return NULL;
        const char *begin = before ? before + 1 : block;
        size_t length = end > begin ? (size_t)(end - begin) : 0;
        json_t *v = memmem(begin, length, type, strlen(type)) ? parse_object(begin, length) : NULL;
        if (v && zf_json_is(v, type)) return v;
        json_decref(v);
        end = before;
    }
    return NULL;
}

json_t *zf_jsonl_last(const char *path, const char *type)
{
    struct stat st;
    json_t *found = NULL;
    bool all = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
        for (size_t want = 256 << 10; !found && !all && want <= ZF_JSONL_LONGEST; want *= 4) {
            all = (uintmax_t)st.st_size <= want;
            size_t size = all ? (size_t)st.st_size : want;
            char *block = malloc(size + 1);
            ssize_t n = block ? pread(fd, block, size, st.st_size - (off_t)size) : -1;
            if (n > 0) found = search_back(block, (size_t)n, all, type);
            free(block);
            if (n <= 0) break;
        }
    }
    close(fd);
    return found;
}

double zf_json_number(const json_t *object, const char *key, double absent)
{
    const json_t *v = json_object_get(object, key);
    if (json_is_number(v)) return json_number_value(v);
    const char *s = json_string_value(v);
    if (!s) return absent;
    return !strcmp(s, "nan") ? (double)NAN : !strcmp(s, "inf") ? (double)INFINITY : !strcmp(s, "-inf") ? -(double)INFINITY : absent;
}

const char *zf_json_text(const json_t *object, const char *key, const char *absent)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : absent;
}

uint64_t zf_json_count(const json_t *object, const char *key)
{
    double x = zf_json_number(object, key, 0);
    return x >= 1 && x < 9e15 ? (uint64_t)x : 0;
}

bool zf_json_is(const json_t *line, const char *type)
{
    return !strcmp(zf_json_text(line, "type", ""), type);
}
