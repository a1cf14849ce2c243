/* See prompt_history.h. Several consoles may have the file: each appends its lines as they come, in one write; who opens or closes it takes
 * out what is there twice or too much, by a new file in its place. */
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

static char *kept; /* the path; NULL: none */

bool zf_prompt_history_wants(const char *line)
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
        if (l->count < ZF_PROMPT_HISTORY_MOST && strlen(line) == (size_t)(end - line) && zf_prompt_history_wants(line) && !listed(l, line))
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
    if (l->tidy || zf_file_begin(&r, kept, &e)) return;
    enum zf_status s = fchmod(r.fd, 0600) ? zf_fail_errno(&e, kept, "cannot be made private") : ZF_OK;
    for (size_t i = l->count; !s && i--;) {
        s = zf_write_all(r.fd, l->list[i], strlen(l->list[i]), kept, &e);
        if (!s) s = zf_write_all(r.fd, "\n", 1, kept, &e);
    }
    zf_file_end(&r, s, &e); /* if it failed the old file is still there */
}

void zf_prompt_history_open(const char *path, void (*recall)(void *ctx, const char *line), void *ctx)
{
    struct lines l;
    struct zf_err e;
    free(kept);
    kept = NULL;
    if (!path) return;
    kept = realpath(path, NULL); /* a link stays one */
    if (!kept) kept = strdup(path);
    char *folder = kept ? zf_path_directory(kept) : NULL;
    if (folder) zf_directory_make(folder, 0700, &e);
    free(folder);
    if (!kept) return;
    if (read_lines(&l, kept)) {
        put_in_order(&l);
        for (size_t i = l.count; i--;) recall(ctx, l.list[i]);
    }
    free_lines(&l);
}

void zf_prompt_history_add(const char *line)
{
    char *text;
    struct zf_err e;
    if (!kept || !zf_prompt_history_wants(line)) return;
    int fd = open(kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600), size = asprintf(&text, "%s\n", line);
    if (fd >= 0 && size > 0) zf_write_all(fd, text, (size_t)size, kept, &e); /* what cannot be kept is still in memory */
    if (size > 0) free(text);
    if (fd >= 0) close(fd);
}

void zf_prompt_history_close(void)
{
    struct lines l;
    if (!kept) return;
    if (read_lines(&l, kept)) put_in_order(&l);
    free_lines(&l);
    free(kept);
    kept = NULL;
}
