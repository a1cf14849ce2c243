/* What tests of the prompt share: a prompt, keys, what is shown. readline reads ~/.inputrc once in a process, so each test is one of its
 * own.
 */
#ifndef ZF_TESTS_TUI_PROMPT_CHILD_H
#define ZF_TESTS_TUI_PROMPT_CHILD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tui/prompt.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) failed(__LINE__, #condition); \
    } while (0)
#define SHOWS(text) shows(__LINE__, text)

static struct zf_canvas canvas;
static char folder[] = "/tmp/zf-prompt-XXXXXX", history[64];
static char ran[8192]; /* lines, each with a | after it */
static char matches[8192];
static const char *set_in_line;

static void failed(int line, const char *what)
{
    char *text = zf_canvas_text(&canvas, false);
    fprintf(stderr, "%s:%d: %s\n  shown: [%s] cursor %d, ran: [%s] matches: [%s]\n", __BASE_FILE__, line, what, text ? text : "",
            canvas.cursor_x, ran, matches);
    free(text);
    _exit(1);
}

static void append(char *to, size_t room, const char *text)
{
    size_t n = strlen(to);
    snprintf(to + n, room - n, "%s|", text);
}

static void on_line(void *ctx, const char *text)
{
    (void)ctx;
    append(ran, sizeof ran, text);
    if (set_in_line) zf_prompt_set(set_in_line);
}

static void on_matches(void *ctx, char **list, size_t count)
{
    (void)ctx;
    matches[0] = 0;
    for (size_t i = 0; i < count; i++) {
        append(matches, sizeof matches, list[i]);
    }
}

/* A few words, the second one after a blank; files after `load `. */
static void on_complete(void *ctx, const char *line, size_t end, struct zf_candidates *out)
{
    static const char *const words[] = {"save", "set", "select", "topk_ratio", "wörter"};
    size_t start = end;
    (void)ctx;
    *out = (struct zf_candidates){0};
    while (start && line[start - 1] != ' ' && line[start - 1] != '"') start--;
    out->start = start;
    out->files = !strncmp(line, "load ", 5);
    out->list = calloc(8, sizeof *out->list);
    for (size_t i = 0; !out->files && i < sizeof words / sizeof *words; i++)
        if (!strncmp(words[i], line + start, end - start)) out->list[out->count++] = strdup(words[i]);
    out->room = 8;
}

static void draw(void)
{
    zf_canvas_clear(&canvas);
    zf_prompt_draw(&canvas, zf_canvas_all(&canvas), true);
    CHECK(!zf_prompt_dirty());
    CHECK(canvas.cursor_y == 0 && canvas.cursor_x >= 0 && canvas.cursor_x < canvas.cols);
}

/* The row as text with the cursor as `_` in front of what it stands on. */
static void shows(int line, const char *wanted)
{
    char row[1024] = "";
    int last = 0;
    draw();
    for (int x = 0; x < canvas.cols; x++)
        if (canvas.cell[x].code != ' ' || x == canvas.cursor_x) last = x + 1;
    for (int x = 0; x < last; x++) {
        uint32_t u = canvas.cell[x].code;
        if (x == canvas.cursor_x) strcat(row, "_");
        if (u == (uint32_t)ZF_CELL_RIGHT) continue;
        char c[5] = {(char)u};
        if (u >= 0x10000)
            c[0] = (char)(0xf0 | u >> 18), c[1] = (char)(0x80 | (u >> 12 & 63)), c[2] = (char)(0x80 | (u >> 6 & 63)),
            c[3] = (char)(0x80 | (u & 63));
        else if (u >= 0x800)
            c[0] = (char)(0xe0 | u >> 12), c[1] = (char)(0x80 | (u >> 6 & 63)), c[2] = (char)(0x80 | (u & 63));
        else if (u >= 0x80)
            c[0] = (char)(0xc0 | u >> 6), c[1] = (char)(0x80 | (u & 63));
        if (!(u == ' ' && x == last - 1)) strcat(row, c);
    }
    if (strcmp(row, wanted)) {
        fprintf(stderr, "[%s] is shown, not [%s]\n", row, wanted);
        failed(line, "SHOWS");
    }
}

static void type(const char *bytes)
{
    zf_prompt_bytes((const unsigned char *)bytes, strlen(bytes));
}

static void open_prompt(void)
{
    static const struct zf_prompt_hooks hooks = {NULL, on_line, on_matches, on_complete};
    CHECK(zf_canvas_resize(&canvas, 40, 1));
    CHECK(zf_prompt_open(&hooks, history));
    ran[0] = 0;
}

static void close_prompt(void)
{
    zf_prompt_close();
    zf_canvas_free(&canvas);
}

static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* Where a terminal would be nothing is written, and nothing is read. */
static int in_child(void (*test)(void), const char *rc)
{
    int status, out[2];
    char path[64], junk[256], no_home[64];
    pid_t child;
    fflush(NULL);
    if (pipe(out)) return -1;
    child = fork();
    if (child == 0) {
        int copy = dup(STDERR_FILENO);
        snprintf(path, sizeof path, "%s/inputrc", folder);
        snprintf(no_home, sizeof no_home, "%s/nobody", folder);
        snprintf(history, sizeof history, "%s/history", folder);
        unlink(history);
        if (copy < 0 || dup2(out[1], STDOUT_FILENO) < 0 || setenv("INPUTRC", path, 1) || setenv("HOME", no_home, 1) || unsetenv("LINES") ||
            unsetenv("COLUMNS"))
            _exit(2);
        put_file(path, rc);
        close(out[0]);
        close(STDIN_FILENO);
        test();
        CHECK(!getenv("LINES") && !getenv("COLUMNS"));
        exit(0);
    }
    close(out[1]);
    ssize_t written = read(out[0], junk, sizeof junk);
    close(out[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || written) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct child {
    void (*test)(void);
    const char *rc; /* ~/.inputrc */
};
#define CHILD(test, rc) \
    { \
#test, run_child, NULL, NULL, &(struct child) \
        { \
            test, rc \
        } \
    }

static void run_child(void **state)
{
    const struct child *c = *state;
    assert_int_equal(in_child(c->test, c->rc), 0);
}

static int open_folder(void **state)
{
    (void)state;
    return setlocale(LC_ALL, "C.UTF-8") && mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* What readline itself has lost track of: messages, lists for undo. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libreadline";
}

#endif
