/* See prompt_inputrc.h. */
#include "tui/prompt_inputrc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <readline/readline.h>
#include <readline/tilde.h>

enum { BYTES_MOST = 1 << 20, DEEP_MOST = 8 };

struct look {
    size_t bytes; /* of all of them */
    int depth;
    char *why;
    size_t size;
};

static bool refuse(struct look *l, const char *path, const char *what)
{
    snprintf(l->why, l->size, "%s was not read: %s", path, what);
    return false;
}

static bool look_at(struct look *l, const char *name);

/* Whatever `$if` says about them: whether they are reached is readline's to know. */
static bool look_at_includes(struct look *l, char *text)
{
    static const char include[] = "$include";
    bool fine = true;
    for (char *line = text, *next; fine && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        line += strspn(line, " \t");
        line[strcspn(line, "\r")] = 0;
        size_t n = sizeof include - 1, gap = strncasecmp(line, include, n) ? 0 : strspn(line + n, " \t");
        if (gap) fine = look_at(l, line + n + gap);
    }
    return fine;
}

static bool look_inside(struct look *l, const char *path, int fd)
{
    struct stat st;
    char *text = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) return refuse(l, path, "it is no regular file");
    if (st.st_size > (off_t)(BYTES_MOST - l->bytes)) return refuse(l, path, "it is, with what it includes, larger than 1 MiB");
    if (l->depth > DEEP_MOST) return refuse(l, path, "files include each other, more than 8 deep");
    size_t size = (size_t)st.st_size;
    l->bytes += size + 1;
    ssize_t n = (text = malloc(size + 1)) ? pread(fd, text, size, 0) : -1;
    bool fine = true;
    if (n >= 0) {
        text[n] = 0;
        fine = look_at_includes(l, text);
    }
    free(text);
    return fine;
}

static bool look_at(struct look *l, const char *name)
{
    char *path = tilde_expand(name);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    bool fine = true;
    if (fd >= 0) { /* else readline cannot open it either */
        l->depth++;
        fine = look_inside(l, path, fd);
        l->depth--;
        close(fd);
    }
    rl_free(path);
    return fine;
}

bool zf_inputrc_is_fine(char *why, size_t size)
{
    struct look l = {.why = why, .size = size};
    const char *named = getenv("INPUTRC");
    if (named && *named) return look_at(&l, named);
    return look_at(&l, "~/.inputrc") && look_at(&l, "/etc/inputrc");
}
