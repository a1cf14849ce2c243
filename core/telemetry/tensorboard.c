/* See tensorboard.h. Field numbers are those of tensorboard's event.proto and summary.proto. */
#include "core/telemetry/tensorboard.h"
#include "core/base/clock.h"
#include "core/base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct zf_tensorboard {
    int fd;
    char *path;
    size_t dropped;
};

/* Castagnoli's polynomial, reflected, a byte at a time: some hundred bytes a step. */
uint32_t zf_crc32c(const void *data, size_t size)
{
    uint32_t c = UINT32_MAX;
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++) {
        c ^= p[i];
        for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    return ~c;
}

static unsigned char *little(unsigned char *out, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) *out++ = (unsigned char)(x >> 8 * i);
    return out;
}

static unsigned char *varint(unsigned char *out, uint64_t x)
{
    for (; x > 127; x >>= 7) *out++ = (unsigned char)(x | 128);
    *out++ = (unsigned char)x;
    return out;
}

static unsigned char *real(unsigned char *out, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return little(out, bits, 8);
}

static uint32_t masked(const unsigned char *data, size_t size)
{
    uint32_t c = zf_crc32c(data, size);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

size_t zf_event_frame(unsigned char *out, const unsigned char *event, size_t size)
{
    unsigned char *p = little(out, size, 8);
    p = little(p, masked(out, 8), 4);
    memmove(p, event, size);
    p = little(p + size, masked(p, size), 4);
    return (size_t)(p - out);
}

/* wall_time and step, with which every event begins. */
static unsigned char *head(unsigned char *p, double wall, uint64_t step)
{
    *p++ = 0x09;
    p = real(p, wall);
    if (!step) return p;
    *p++ = 0x10;
    return varint(p, step);
}

size_t zf_event_version(unsigned char *out, double wall)
{
    static const char version[] = "brain.Event:2";
    unsigned char *p = head(out, wall, 0);
    *p++ = 0x1a;
    *p++ = sizeof version - 1;
    memcpy(p, version, sizeof version - 1);
    return (size_t)(p - out) + sizeof version - 1;
}

size_t zf_event_restart(unsigned char *out, double wall, uint64_t step)
{
    static const unsigned char start[] = {0x3a, 2, 0x08, 1}; /* session_log: status START */
    unsigned char *p = head(out, wall, step);
    memcpy(p, start, sizeof start);
    return (size_t)(p - out) + sizeof start;
}

/* Bytes of a Value: its tag, its number. */
static size_t value_size(const struct zf_scalar *s)
{
    unsigned char scratch[10];
    size_t n = strlen(s->tag);
    return 1 + (size_t)(varint(scratch, n) - scratch) + n + 5;
}

static size_t summary_size(const struct zf_scalar *scalars, size_t count)
{
    unsigned char scratch[10];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        size_t value = value_size(&scalars[i]);
        n += 1 + (size_t)(varint(scratch, value) - scratch) + value;
    }
    return n;
}

size_t zf_event_room(const struct zf_scalar *scalars, size_t count)
{
    return 64 + summary_size(scalars, count);
}

size_t zf_event_scalars(unsigned char *out, double wall, uint64_t step, const struct zf_scalar *scalars, size_t count)
{
    unsigned char *p = head(out, wall, step);
    *p++ = 0x2a;
    p = varint(p, summary_size(scalars, count));
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(scalars[i].tag);
        uint32_t bits;
        memcpy(&bits, &scalars[i].value, sizeof bits);
        *p++ = 0x0a;
        p = varint(p, value_size(&scalars[i]));
        *p++ = 0x0a;
        p = varint(p, n);
        memcpy(p, scalars[i].tag, n);
        p += n;
        *p++ = 0x15;
        p = little(p, bits, 4);
    }
    return (size_t)(p - out);
}

/* One write(2): a reader never sees half of a record for long, and a disk that is full costs whole ones. */
static enum zf_status put(struct zf_tensorboard *t, const unsigned char *event, size_t size, struct zf_err *e)
{
    unsigned char *record = malloc(ZF_EVENT_FRAME + size);
    if (!record) return zf_fail_memory(e, t->path);
    off_t before = lseek(t->fd, 0, SEEK_CUR);
    enum zf_status s = zf_write_all(t->fd, record, zf_event_frame(record, event, size), t->path, e);
    free(record);
    if (s && before >= 0 && ftruncate(t->fd, before) == 0) lseek(t->fd, before, SEEK_SET); /* nothing torn stays in the middle */
    return s;
}

static enum zf_status begin(struct zf_tensorboard *t, uint64_t first, struct zf_err *e)
{
    unsigned char event[64];
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (t->fd < 0) return zf_fail_errno(e, t->path, "cannot make it");
    ZF_TRY(put(t, event, zf_event_version(event, zf_wall_clock()), e));
    return first > 1 ? put(t, event, zf_event_restart(event, zf_wall_clock(), first), e) : ZF_OK;
}

enum zf_status zf_tensorboard_open(struct zf_tensorboard **out, const char *folder, uint64_t first, struct zf_err *e)
{
    static atomic_uint made;
    char host[65] = "localhost", name[160];
    *out = NULL;
    ZF_TRY(zf_directory_make(folder, 0777, e));
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%ld.%u", (int64_t)zf_wall_clock(), host, (long)getpid(),
             atomic_fetch_add(&made, 1u));
    struct zf_tensorboard *t = calloc(1, sizeof *t);
    if (!t) return zf_fail_memory(e, folder);
    t->fd = -1;
    t->path = zf_path_join(folder, name);
    enum zf_status s = t->path ? begin(t, first, e) : zf_fail_memory(e, folder);
    if (s)
        zf_tensorboard_close(t);
    else
        *out = t;
    return s;
}

void zf_tensorboard_write(struct zf_tensorboard *t, uint64_t step, const struct zf_scalar *scalars, size_t count)
{
    struct zf_err ignored;
    if (!t) return;
    unsigned char *event = malloc(zf_event_room(scalars, count));
    if (!event || put(t, event, zf_event_scalars(event, zf_wall_clock(), step, scalars, count), &ignored)) t->dropped++;
    free(event);
}

size_t zf_tensorboard_dropped(const struct zf_tensorboard *t)
{
    return t ? t->dropped : 0;
}

void zf_tensorboard_close(struct zf_tensorboard *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    free(t);
}
