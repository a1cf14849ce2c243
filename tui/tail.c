/* See tail.h. */
#include "tui/tail.h"

#include "core/base/clock.h"
#include "core/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum zf_status open_it(struct zf_tail *t, struct zf_err *e)
{
    struct stat st;
    ZF_TRY(zf_file_open(&t->fd, &st, t->path, e));
    t->device = st.st_dev;
    t->inode = st.st_ino;
    return ZF_OK;
}

enum zf_status zf_tail_open(struct zf_tail *t, const char *run, struct zf_err *e)
{
    *t = (struct zf_tail){.fd = -1, .path = zf_path_join(run, "metrics.jsonl")};
    if (!t->path) return zf_fail_memory(e, run);
    enum zf_status s = zf_file_exists(t->path)
                           ? open_it(t, e)
                           : zf_fail(e, ZF_USAGE, run, "there is no metrics.jsonl; a run directory is expected (see `list`)");
    if (s) zf_tail_close(t);
    return s;
}

void zf_tail_close(struct zf_tail *t)
{
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    free(t->bytes);
    *t = (struct zf_tail){.fd = -1};
}

void zf_tail_rewind(struct zf_tail *t, off_t at)
{
    t->from = t->used = 0;
    t->at = at;
    t->passing = false;
}

/* Reads on behind what is there; grows for a long line. false: nothing came. */
static bool read_more(struct zf_tail *t)
{
    if (t->from) {
        memmove(t->bytes, t->bytes + t->from, t->used - t->from);
        t->used -= t->from;
        t->from = 0;
    }
    if (t->used >= ZF_TAIL_LINE_MOST) { /* no line of ours */
        t->at += (off_t)t->used;
        t->used = 0;
        t->passing = true;
    }
    if (t->room - t->used < ZF_TAIL_BLOCK) {
        size_t room = t->room ? 2 * t->room : 2 * ZF_TAIL_BLOCK;
        char *more = realloc(t->bytes, room);
        if (!more) return false;
        t->bytes = more;
        t->room = room;
    }
    ssize_t n;
    do n = pread(t->fd, t->bytes + t->used, ZF_TAIL_BLOCK, t->at + (off_t)t->used);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    t->used += (size_t)n;
    return true;
}

bool zf_tail_line(struct zf_tail *t, const char **line, size_t *size)
{
    size_t seen = 0; /* up to there is no newline */
    if (t->fd < 0) return false;
    for (;;) {
        size_t n = t->used - t->from;
        char *begin = n ? t->bytes + t->from : NULL, *newline = n > seen ? memchr(begin + seen, '\n', n - seen) : NULL;
        if (!newline) {
            seen = n < ZF_TAIL_LINE_MOST ? n : 0;
            if (!read_more(t)) return false;
            continue;
        }
        bool passed = t->passing;
        *line = begin;
        *size = (size_t)(newline - begin);
        t->from += *size + 1;
        t->at += (off_t)*size + 1;
        t->passing = false;
        seen = 0;
        if (!passed) return true;
    }
}

void zf_tail_unread(struct zf_tail *t, const char *line, size_t size)
{
    t->from = (size_t)(line - t->bytes);
    t->at -= (off_t)size + 1;
}

off_t zf_tail_left(const struct zf_tail *t)
{
    struct stat st;
    return t->fd >= 0 && !fstat(t->fd, &st) && st.st_size > t->at ? st.st_size - t->at : 0;
}

bool zf_tail_replaced(struct zf_tail *t)
{
    struct stat st;
    struct zf_err ignored;
    if (stat(t->path, &st)) return false; /* between two names, or gone: what was read stays */
    if (t->fd >= 0 && st.st_ino == t->inode && st.st_dev == t->device && st.st_size >= t->at + (off_t)(t->used - t->from)) return false;
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    zf_tail_rewind(t, 0);
    return !open_it(t, &ignored);
}

double zf_tail_age(const struct zf_tail *t)
{
    struct stat st;
    if (t->fd < 0 || fstat(t->fd, &st)) return 0;
    double age = zf_wall_clock() - (double)st.st_mtim.tv_sec - 1e-9 * (double)st.st_mtim.tv_nsec;
    return age > 0 ? age : 0;
}
