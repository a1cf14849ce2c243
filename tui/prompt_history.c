/* See prompt_history.h. The list is our own, not readline's: its searches in a list (8.2, by callbacks) use lines, and lists for undo, that
 * were freed. Several consoles may have the file: each appends its lines as they come, in one write; who opens or closes it takes out what
 * is there twice or too much, by a new file in its place. */
#include "tui/prompt_history.h"

#include "core/base/file.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 20, LINE_MOST = 65536, LINES_MOST = 20000 };

static struct {
    char *path; /* NULL: none */
    char *line[ZF_PROMPT_HISTORY_MOST];
    size_t count;
} kept;

static bool wants(const char *line)
{
    if (!*line || *line == ' ' || *line == '\t' || strlen(line) > LINE_MOST) return false;
    for (const char *s = line; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127) return false;
    return true;
}

struct lines {
    char *text, **list; /* the newest first */
    size_t count, all;  /* all: that were looked at */
    bool tidy;          /* the file needs no other form */
};

static bool listed(const struct lines *l, const char *line)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->list[i], line)) return true;
    return false;
}

/* The end of the file: all of it, but for one that grew too large. */
static char *read_end(const char *path, size_t *size, bool *whole)
{
    struct zf_err e;
    struct stat st;
    int fd;
    if (zf_file_open(&fd, &st, path, &e)) return NULL;
    *whole = st.st_size <= FILE_MOST;
    off_t from = *whole ? 0 : st.st_size - FILE_MOST;
    char *text = malloc((size_t)(st.st_size - from) + 1);
    ssize_t n = text ? pread(fd, text, (size_t)(st.st_size - from), from) : -1;
    if (st.st_mode & 077 && fchmod(fd, 0600)) *whole = false; /* put in order: a new file, and ours alone */
    close(fd);
    *size = n > 0 ? (size_t)n : 0;
    return text;
}

/* The newest lines, none of them twice. */
static bool read_lines(struct lines *l, const char *path)
{
    size_t size;
    *l = (struct lines){0};
    if (!(l->text = read_end(path, &size, &l->tidy)) || !(l->list = calloc(ZF_PROMPT_HISTORY_MOST, sizeof *l->list))) return false;
    l->text[size] = 0;
    char *end = l->text + size;
    for (char *line; end > l->text && l->all < LINES_MOST; end = line) { /* from the end */
        if (end[-1] == '\n') *--end = 0;
        for (line = end; line > l->text && line[-1] != '\n';) line--;
        l->all++;
        if (l->count < ZF_PROMPT_HISTORY_MOST && strlen(line) == (size_t)(end - line) && wants(line) && !listed(l, line))
            l->list[l->count++] = line;
    }
    l->tidy &= l->count == l->all && end == l->text;
    return true;
}

static void free_lines(struct lines *l)
{
    free(l->text);
    free(l->list);
}

static void put_in_order(const struct lines *l)
{
    struct zf_replacement r;
    struct zf_err e;
    if (l->tidy || zf_file_begin(&r, kept.path, &e)) return;
    enum zf_status s = fchmod(r.fd, 0600) ? zf_fail_errno(&e, kept.path, "cannot be made private") : ZF_OK;
    for (size_t i = l->count; !s && i--;) {
        s = zf_write_all(r.fd, l->list[i], strlen(l->list[i]), kept.path, &e);
        if (!s) s = zf_write_all(r.fd, "\n", 1, kept.path, &e);
    }
    zf_file_end(&r, s, &e); /* if it failed the old file is still there */
}

/* Takes the line in, in place of an older one like it. */
static void remember(char *line)
{
    size_t drop = 0;
    while (drop < kept.count && strcmp(kept.line[drop], line) != 0) drop++;
    if (drop == kept.count && kept.count == ZF_PROMPT_HISTORY_MOST) drop = 0;
    if (drop < kept.count) {
        free(kept.line[drop]);
        memmove(kept.line + drop, kept.line + drop + 1, (--kept.count - drop) * sizeof *kept.line);
    }
    kept.line[kept.count++] = line;
}

void zf_prompt_history_open(const char *path)
{
    struct lines l;
    struct zf_err e;
    zf_prompt_history_close();
    if (!path) return;
    kept.path = realpath(path, NULL); /* a link stays one */
    if (!kept.path) kept.path = strdup(path);
    char *folder = kept.path ? zf_path_directory(kept.path) : NULL;
    if (folder) zf_directory_make(folder, 0700, &e);
    free(folder);
    if (!kept.path) return;
    if (read_lines(&l, kept.path)) {
        put_in_order(&l);
        for (size_t i = l.count; i--;) {
            char *line = strdup(l.list[i]);
            if (line) remember(line);
        }
    }
    free_lines(&l);
}

void zf_prompt_history_add(const char *line)
{
    char *text;
    struct zf_err e;
    if (!wants(line)) return;
    int size = asprintf(&text, "%s\n", line);
    if (size < 0) return;
    int fd = kept.path ? open(kept.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600) : -1;
    if (fd >= 0) zf_write_all(fd, text, (size_t)size, kept.path, &e); /* if not: it is still in memory */
    if (fd >= 0) close(fd);
    text[size - 1] = 0;
    remember(text);
}

void zf_prompt_history_close(void)
{
    struct lines l;
    if (kept.path) {
        if (read_lines(&l, kept.path)) put_in_order(&l);
        free_lines(&l);
    }
    free(kept.path);
    kept.path = NULL;
    while (kept.count) free(kept.line[--kept.count]);
}

size_t zf_prompt_history_count(void)
{
    return kept.count;
}

const char *zf_prompt_history_line(size_t i)
{
    return i < kept.count ? kept.line[i] : "";
}

size_t zf_prompt_history_find(const char *text, size_t size, size_t from, bool back, bool begins)
{
    for (size_t i = from; i < kept.count; i += back ? SIZE_MAX : 1) { /* below 0 it is above all */
        const char *line = kept.line[i];
        if (begins ? !strncmp(line, text, size) : memmem(line, strlen(line), text, size) != NULL) return i;
    }
    return SIZE_MAX;
}
