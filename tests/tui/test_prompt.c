/* The prompt: bytes in, cells and lines out. readline reads ~/.inputrc once in a process, so each test is one of its own. */
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
    fprintf(stderr, "tests/tui/test_prompt.c:%d: %s\n  shown: [%s] cursor %d, ran: [%s] matches: [%s]\n", line, what, text ? text : "",
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

static char *file_text(const char *path)
{
    static char text[65536];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    CHECK(n >= 0 && close(fd) == 0);
    text[n] = 0;
    return text;
}

/* ---- the tests, each in a process */

static void editing(void)
{
    open_prompt();
    SHOWS("zf> _");
    type("set lr");
    CHECK(zf_prompt_dirty());
    SHOWS("zf> set lr_");
    type("\x1b[D\x1b[D");
    SHOWS("zf> set _lr");
    type("\x01\x1bOC\x1b[C");
    SHOWS("zf> se_t lr");
    type("\x1b"
         "f");
    SHOWS("zf> set_ lr");
    type("\x1b[1;5D"); /* what a terminal tells of Ctrl and an arrow: bound, or nothing happens; never text */
    type("\x1b[15~\x1b[I\x1b[<0;3;4M\x1b[99;99x");
    type("\x05 1e-5");
    SHOWS("zf> set lr 1e-5_");
    type("\x17");
    type("\x1f");
    type("\r");
    CHECK(!strcmp(ran, "set lr 1e-5|"));
    SHOWS("zf> _");
    type("\x04");
    CHECK(!strcmp(ran, "set lr 1e-5|"));
    SHOWS("zf> _");
    zf_prompt_set("given text");
    SHOWS("zf> given text_");
    zf_prompt_clear();
    SHOWS("zf> _");
    set_in_line = "again";
    type("refused\r");
    SHOWS("zf> again_");
    set_in_line = NULL;
    zf_prompt_clear();
    zf_prompt_label("filter> ");
    SHOWS("filter> _");
    type("attn\r");
    zf_prompt_label(ZF_PROMPT_LABEL);
    SHOWS("zf> _");
    type("\x1b[A\x1b[A");
    SHOWS("zf> set lr 1e-5_"); /* what was typed at another label is not in the history */
    close_prompt();
    open_prompt(); /* once more in the same process */
    type("ok\r");
    CHECK(!strcmp(ran, "ok|"));
    close_prompt();
    zf_prompt_bytes((const unsigned char *)"x", 1);
    zf_prompt_clear();
}

static void wide(void)
{
    open_prompt();
    type("日本a");
    SHOWS("zf> 日本a_");
    CHECK(canvas.cursor_x == 9);
    type("\x02\x02");
    SHOWS("zf> 日_本a");
    CHECK(canvas.cursor_x == 6);
    type("\x05\x16\x01z"); /* a control character, quoted: one cell, as the canvas shows it */
    draw();
    CHECK(canvas.cursor_x == 11);
    CHECK(canvas.cell[9].code != 1 && canvas.cell[9].code >= ' ' && canvas.cell[10].code == 'z');
    zf_prompt_clear();
    type("e\xcc\x81x"); /* what has no width of its own */
    draw();
    CHECK(canvas.cursor_x == 6);
    zf_prompt_clear();
    type("a\xff\xc3 b\xe6\x9c"); /* no characters */
    SHOWS("zf> a b_");
    type("\r");
    CHECK(!strcmp(ran, "a b|"));
    close_prompt();
}

static void scrolling(void)
{
    char text[300] = "";
    open_prompt();
    CHECK(zf_canvas_resize(&canvas, 20, 1));
    zf_prompt_resize(20);
    for (int i = 0; i < 26; i++) {
        char c[2] = {(char)('a' + i)};
        type(c);
        draw();
        CHECK(canvas.cell[canvas.cursor_x - 1].code == (uint32_t)c[0]); /* what was typed is seen, left of the cursor */
    }
    draw();
    CHECK(canvas.cell[0].code == '<');
    type("\x01");
    SHOWS("zf> _abcdefghijklmno>");
    type("\x05");
    for (int i = 25; i >= 0; i--) {
        type("\x02");
        draw();
        CHECK(canvas.cell[canvas.cursor_x].code == (uint32_t)('a' + i));
    }
    zf_prompt_clear();
    for (int i = 0; i < 30; i++) strcat(text, "日");
    type(text);
    for (int i = 0; i < 30; i++) {
        type("\x02");
        draw();
        CHECK(canvas.cell[canvas.cursor_x].code == 0x65e5 && canvas.cell[canvas.cursor_x + 1].code == (uint32_t)ZF_CELL_RIGHT);
    }
    for (int cols = 20; cols >= 1; cols--) { /* any width */
        CHECK(zf_canvas_resize(&canvas, cols, 1));
        zf_prompt_resize(cols);
        draw();
        type("\x05");
        draw();
        type("\x01");
        draw();
    }
    CHECK(zf_canvas_resize(&canvas, 0, 0));
    zf_prompt_draw(&canvas, zf_canvas_all(&canvas), true);
    CHECK(zf_canvas_resize(&canvas, 100, 1));
    zf_prompt_draw(&canvas, (struct zf_rect){10, 0, 50, 1}, true); /* a place of its own */
    CHECK(canvas.cell[10].code == 'z' && canvas.cell[9].code == ' ' && canvas.cursor_x == 14);
    zf_canvas_clear(&canvas);
    zf_prompt_draw(&canvas, (struct zf_rect){10, 0, 50, 1}, false);
    CHECK(canvas.cursor_x < 0);
    type("\r");
    CHECK(strlen(ran) == 91);
    close_prompt();
}

static void pasting(void)
{
    open_prompt();
    type("\x1b[200~set lr 1\r\nstop now\n\x1b[201~");
    CHECK(!ran[0]);
    SHOWS("zf> set lr 1 stop now_");
    zf_prompt_clear();
    type("\x1b[200~a\n"); /* in pieces, as a terminal gives them */
    type("\nb\x03\x1b"
         "c\x1b[A\td\x15");
    type("e\xff");
    type("日\r");
    type("\x1b[201~");
    CHECK(!ran[0]);
    SHOWS("zf> a b de日_"); /* of a key nothing */
    type("!\r");
    CHECK(!strcmp(ran, "a b de日!|"));
    ran[0] = 0;
    type("\x1b[200~half");
    zf_prompt_clear(); /* Ctrl-C: the end of a paste that never came */
    type("x\r");
    CHECK(!strcmp(ran, "x|"));
    char *large = malloc(200001);
    CHECK(large);
    memset(large, 'y', 200000);
    large[200000] = 0;
    type("\x1b[200~");
    type(large);
    type("\x1b[201~");
    type(large);
    type("\x02q");
    draw();
    zf_prompt_clear();
    type("still\r");
    CHECK(!strcmp(ran, "x|still|"));
    free(large);
    close_prompt();
}

static void searching(void)
{
    put_file(history, "set topk_ratio 0.1\nmark 日本語\nsave first\n");
    open_prompt();
    type("\x12");
    type("本");
    draw();
    char *text = zf_canvas_text(&canvas, false);
    CHECK(text && strstr(text, "mark 日本語") && strstr(text, "本'"));
    free(text);
    CHECK(zf_prompt_takes_escape());
    type("\x1b[200~語\n\x1b[201~"); /* a paste is searched for */
    draw();
    text = zf_canvas_text(&canvas, false);
    CHECK(text && strstr(text, "mark 日本語") && strstr(text, "本語'"));
    free(text);
    type("\r");
    CHECK(!strcmp(ran, "mark 日本語|"));
    SHOWS("zf> _");
    type("\x12save");
    zf_prompt_clear();
    SHOWS("zf> _");
    type("\x1b[A"); /* from the newest on, wherever the search was */
    SHOWS("zf> mark 日本語_");
    zf_prompt_clear();
    type("\x12topk");
    CHECK(zf_prompt_takes_escape());
    type("\x1b"); /* ends the search, keeps the line */
    CHECK(!zf_prompt_takes_escape());
    draw();
    text = zf_canvas_text(&canvas, false);
    CHECK(text && !strncmp(text, "zf> set topk_ratio 0.1", 22));
    free(text);
    type("\x05 x");
    SHOWS("zf> set topk_ratio 0.1 x_");
    zf_prompt_clear();
    type("\x12s\x12\x07"); /* Ctrl-G leaves it as it was */
    SHOWS("zf> _");
    type("\x1b"
         "5"); /* the argument of a command is a message, too */
    zf_prompt_clear();
    SHOWS("zf> _");
    type("\x1b"
         "3x");
    SHOWS("zf> xxx_");
    close_prompt();
}

/* What stood in quotes comes back as it was typed, and as one word. */
static void recalling_quotes(void)
{
    put_file(history, "set note \"a \\\" b\"\n");
    open_prompt();
    type("\x1b[A");
    SHOWS("zf> set note \"a \\\" b\"_");
    type("\r");
    CHECK(!strcmp(ran, "set note \"a \\\" b\"|"));
    CHECK(!strcmp(file_text(history), "set note \"a \\\" b\"\nset note \"a \\\" b\"\n")); /* put in order when it is closed */
    type("mark \x1b.");
    SHOWS("zf> mark \"a \\\" b\"_");
}

/* The rest of what a history is good for. */
static void recalling(void)
{
    put_file(history, "set lr 1\nsave one\nset lr 2\nmark here\n");
    open_prompt();
    type("set t\x1b[A\x1b[A");
    SHOWS("zf> set lr 2_");
    type("\x1b[B\x1b[B\x1b[B"); /* back to what was being typed */
    SHOWS("zf> set t_");
    type("\x1b<");
    SHOWS("zf> set lr 1_");
    type("\x1b>");
    SHOWS("zf> set t_");
    zf_prompt_clear();
    type("\x12set"); /* older ones, then newer ones */
    SHOWS("(reverse-i-search)`set': _set lr 2");
    type("\x12");
    SHOWS("(reverse-i-search)`set': _set lr 1");
    type("\x12");
    SHOWS("(failed reverse-i-search)`set': _set lr 1");
    type("\x13");
    SHOWS("(i-search)`set': _set lr 2");
    type("\x7f\x7f\x7f");
    SHOWS("(i-search)`': _");
    type("\x12"
         "ave");
    SHOWS("(reverse-i-search)`ave': s_ave one");
    type("x");
    SHOWS("(failed reverse-i-search)`avex': s_ave o>");
    type("\x07");
    SHOWS("zf> _");
    type("begun\x12mark\x1b[D!"); /* an arrow goes on with what was found */
    SHOWS("zf> !_mark here");
    zf_prompt_clear();
    type("\x12\x12"); /* what was searched for last */
    SHOWS("(reverse-i-search)`mark': _mark here");
    type("\r");
    CHECK(!strcmp(ran, "mark here|"));
    type("note \x1b.");
    SHOWS("zf> note here_");
    type("\x1b.");
    SHOWS("zf> note 2_");
    type("\x1b_!");
    SHOWS("zf> note one!_");
    zf_prompt_clear();
    type("set\x0e"); /* bound to lines that begin so */
    SHOWS("zf> set_");
    type("\x10");
    SHOWS("zf> set_ lr 2");
    type("\x10");
    SHOWS("zf> set_ lr 1");
    type("\x0e\x0e");
    SHOWS("zf> set_");
    close_prompt();
}

static void completing(void)
{
    char line[200];
    open_prompt();
    type("sa\t");
    SHOWS("zf> save _");
    zf_prompt_clear();
    type("s\t");
    SHOWS("zf> s_");
    type("e\t\t");
    CHECK(!strcmp(matches, "select|set|"));
    zf_prompt_clear();
    type("set to\t0.1");
    SHOWS("zf> set topk_ratio 0.1_");
    zf_prompt_clear();
    type("set w\t");
    SHOWS("zf> set wörter _");
    zf_prompt_clear();
    type("nothing\t\t");
    SHOWS("zf> nothing_");
    zf_prompt_clear();
    matches[0] = 0;
    type("\t\t");
    CHECK(!strcmp(matches, "save|select|set|topk_ratio|wörter|"));
    zf_prompt_clear();

    snprintf(line, sizeof line, "%s/files", folder);
    CHECK(mkdir(line, 0700) == 0);
    snprintf(line, sizeof line, "%s/files/deep", folder);
    CHECK(mkdir(line, 0700) == 0);
    static const char *const names[] = {"one.cfg", "own name.cfg", ".hidden", "evil\x1b[2J"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "%s/files/%s", folder, names[i]);
        put_file(line, "");
    }
    CHECK(zf_canvas_resize(&canvas, 100, 1));
    snprintf(line, sizeof line, "load %s/files/", folder);
    type(line);
    type("\t\t");
    CHECK(!strcmp(matches, "deep/|one.cfg|own name.cfg|"));
    type("d\t");
    snprintf(line, sizeof line, "zf> load %s/files/deep/_", folder);
    SHOWS(line);
    type("\t");
    SHOWS(line);
    zf_prompt_clear();
    snprintf(line, sizeof line, "load \"%s/files/on\t\r", folder);
    type(line);
    snprintf(line, sizeof line, "load \"%s/files/one.cfg\"|", folder);
    CHECK(!strcmp(ran, line));
    zf_prompt_close();
    static const struct zf_prompt_hooks none = {0};
    CHECK(zf_prompt_open(&none, NULL)); /* hooks may be left out */
    type("s\t\tx\r");
    SHOWS("zf> _");
    close_prompt();
}

static void keeping(void)
{
    struct stat st;
    char line[64], *text;
    put_file(history, "one\ntwo\n\n hidden\none\nbad\x1b[2J\nthree");
    open_prompt();
    CHECK(stat(history, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(!strcmp(file_text(history), "two\none\nthree\n"));
    type("\x1b[A");
    SHOWS("zf> three_");
    type("\x1b[A\x1b[A\x1b[A");
    SHOWS("zf> two_");
    zf_prompt_clear();
    type("two\r two\r\r");
    CHECK(!strcmp(ran, "two| two||"));
    text = file_text(history); /* before any close: a console may be killed */
    CHECK(strlen(text) > 4 && !strcmp(text + strlen(text) - 4, "two\n"));
    CHECK(!strstr(text, " two"));
    type("\x1b[A");
    SHOWS("zf> two_");
    type("\x1b[A");
    SHOWS("zf> three_");
    type("X\x1b[AY\x1b[B\x1b[B"); /* entries that were edited and left */
    SHOWS("zf> two_");
    type("\r");
    type("one\rthree\r");
    close_prompt();
    text = file_text(history); /* in order: none twice, the newest last */
    CHECK(strlen(text) > 10 && !strcmp(text + strlen(text) - 10, "one\nthree\n"));
    CHECK(strstr(text, "two\n"));
    for (const char *at = text, *end; *at; at = end + 1) {
        CHECK((end = strchr(at, '\n')));
        snprintf(line, sizeof line, "%.*s\n", (int)(end - at), at);
        for (const char *other = end + 1; (other = strstr(other, line)); other++) CHECK(other[-1] != '\n');
    }
    open_prompt(); /* many lines: the newest thousand */
    for (int n = 0; n < 1100; n++) {
        snprintf(line, sizeof line, "mark %d\r", n);
        type(line);
    }
    close_prompt();
    text = file_text(history);
    size_t count = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) count++;
    CHECK(count == 1000 && !strncmp(text, "mark 100\n", 9));
    CHECK(stat(history, &st) == 0 && (st.st_mode & 0777) == 0600);

    /* a link stays one; a file far too large gives its end; what is no file is no history */
    snprintf(line, sizeof line, "%s/real", folder);
    char *many = malloc(3 << 20);
    CHECK(many && unlink(history) == 0 && symlink(line, history) == 0);
    for (size_t at = 0; at < 3 << 20; at += 8) memcpy(many + at, "mark me\n", 8);
    many[(3 << 20) - 1] = 0;
    put_file(line, many);
    free(many);
    open_prompt();
    type("\x1b[A");
    SHOWS("zf> mark me_");
    close_prompt();
    CHECK(lstat(history, &st) == 0 && S_ISLNK(st.st_mode) && stat(history, &st) == 0 && st.st_size == 8);
    CHECK(unlink(history) == 0 && mkdir(history, 0700) == 0);
    open_prompt();
    type("works\r");
    close_prompt();
    CHECK(!strcmp(ran, "works|") && rmdir(history) == 0);
    snprintf(line, sizeof line, "%s/state/deep/history", folder); /* its folder is made */
    static const struct zf_prompt_hooks hooks = {NULL, on_line, on_matches, on_complete};
    CHECK(zf_prompt_open(&hooks, line));
    type("first\r");
    zf_prompt_close();
    CHECK(!strcmp(file_text(line), "first\n"));
}

/* Two consoles of one person: the lines of both stay. */
static void sharing(void)
{
    open_prompt();
    type("mine\r");
    int fd = open(history, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, "theirs\n", 7) == 7 && close(fd) == 0);
    type("mine, too\r");
    close_prompt();
    CHECK(!strcmp(file_text(history), "mine\ntheirs\nmine, too\n"));
}

static void vi(void)
{
    open_prompt();
    SHOWS("zf> _                                 ins");
    type("set lrx");
    CHECK(zf_prompt_takes_escape());
    type("\x1b");
    CHECK(!zf_prompt_takes_escape());
    SHOWS("zf> set lr_x                          cmd");
    type("xbiall ");
    SHOWS("zf> set all _lr                       ins");
    type("\x1b");
    type("\x1b[D");                 /* an arrow is no Escape */
    type("\x1b[200~dd\n\x1b[201~"); /* a paste is text, whatever the mode */
    draw();
    CHECK(!ran[0]);
    char *text = zf_canvas_text(&canvas, false);
    CHECK(text && strstr(text, "dd"));
    free(text);
    zf_prompt_clear();
    SHOWS("zf> _                                 ins");
    type("pause\x1b");
    type("\r");
    CHECK(!strncmp(ran, "pause", 5));
    CHECK(zf_canvas_resize(&canvas, 20, 1)); /* no room for it */
    SHOWS("zf> _");
    close_prompt();
}

/* The person's own settings: a macro for zenflow, another key, and what would spoil the screen is not obeyed. */
static void inputrc(void)
{
    open_prompt();
    type("\x14");
    SHOWS("zf> set topk_ratio _");
    type("\x1b[24~");
    SHOWS("zf> set topk_ratio 9_");
    type("ä");
    SHOWS("zf> set topk_ratio 9ä_");
    type("\x1b[200~p\nq\x1b[201~");
    SHOWS("zf> set topk_ratio 9äp q_");
    CHECK(!ran[0]);
    zf_prompt_clear();
    type("\x0f"); /* a macro with sequences in it that do nothing; one with another in it; one with itself */
    SHOWS("zf> ab_cz");
    zf_prompt_clear();
    type("\x18y");
    SHOWS("zf> <set topk_ratio >_");
    zf_prompt_clear();
    type("\x18x");
    draw();
    zf_prompt_clear();
    type("\x18m\r");
    CHECK(!strcmp(ran, "one|two|"));
    close_prompt();
}

/* Keys and bytes at random: it goes on, and answers at the end. */
static void random_keys(void)
{
    static const char *const pieces[] = {"a",
                                         "é",
                                         "日",
                                         "\x12",
                                         "\x13",
                                         "\x07",
                                         "\t",
                                         "\r",
                                         "\x1b[A",
                                         "\x1b[B",
                                         "\x1b[C",
                                         "\x1b[D",
                                         "\x1b"
                                         "3",
                                         "\x1b"
                                         "d",
                                         "\x17",
                                         "\x19",
                                         "\x1f",
                                         "\x16",
                                         "\x1b[200~",
                                         "\x1b[201~",
                                         "\x01",
                                         "\x05",
                                         "\x0b",
                                         "\x18\x18",
                                         "\x1b.",
                                         "\x1b\x7f",
                                         "\xff",
                                         "\xe6",
                                         "\x1b[15~",
                                         "\x1d"
                                         "x",
                                         "\x1b#",
                                         "\x1b*",
                                         "\x1b?",
                                         "\x04",
                                         "\x7f",
                                         "\x18(",
                                         "\x18)",
                                         "\x18"
                                         "e",
                                         "\x1b\x0e",
                                         "\x1b"
                                         "p",
                                         "\x1b"
                                         "u",
                                         "\x1b~",
                                         "\x18\x12",
                                         "\x18q",
                                         "\x18u",
                                         "\x0f",
                                         "\x1b"
                                         "r",
                                         "\x1bx",
                                         "dw",
                                         "/",
                                         "\x1b"};
    uint64_t seed = 11;
    open_prompt();
    for (int i = 0; i < 6000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(seed >> 33);
        type(pieces[r % (sizeof pieces / sizeof *pieces)]);
        ran[0] = 0;
        if (r % 50 == 7) zf_prompt_clear();
        if (r % 90 == 11) zf_prompt_set("set lr 1");
        if (r % 70 == 13) {
            CHECK(zf_canvas_resize(&canvas, 1 + (int)(r >> 8) % 90, 1));
            zf_prompt_resize(canvas.cols);
        }
        draw();
    }
    zf_prompt_clear();
    CHECK(zf_canvas_resize(&canvas, 40, 1));
    type("status\r");
    CHECK(!strcmp(ran, "status|"));
    draw(); /* keys may have changed between emacs and vi */
    CHECK(canvas.cursor_x == 4);
    close_prompt();
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

static void test_editing(void **state)
{
    (void)state;
    assert_int_equal(in_child(editing, ""), 0);
}
static void test_wide(void **state)
{
    (void)state;
    assert_int_equal(in_child(wide, ""), 0);
}
static void test_scrolling(void **state)
{
    (void)state;
    assert_int_equal(in_child(scrolling, ""), 0);
}
static void test_pasting(void **state)
{
    (void)state;
    assert_int_equal(in_child(pasting, ""), 0);
}
static void test_searching(void **state)
{
    (void)state;
    assert_int_equal(in_child(searching, ""), 0);
}
static void test_recalling(void **state)
{
    (void)state;
    assert_int_equal(in_child(recalling, "\"\\C-p\": history-search-backward\n\"\\C-n\": history-search-forward\n"), 0);
    assert_int_equal(in_child(recalling_quotes, ""), 0);
}
static void test_completing(void **state)
{
    (void)state;
    assert_int_equal(in_child(completing, ""), 0);
}
static void test_keeping(void **state)
{
    (void)state;
    assert_int_equal(in_child(keeping, ""), 0);
}
static void test_sharing(void **state)
{
    (void)state;
    assert_int_equal(in_child(sharing, ""), 0);
}
static void test_vi(void **state)
{
    (void)state;
    assert_int_equal(in_child(vi, "set editing-mode vi\nset show-mode-in-prompt on\n"), 0);
}
static void test_inputrc(void **state)
{
    (void)state;
    assert_int_equal(in_child(inputrc,
                              "set bell-style audible\nset convert-meta on\nset enable-bracketed-paste off\nset horizontal-scroll-mode on\n"
                              "$if zenflow\n\"\\C-t\": \"set topk_ratio \"\n\"\\e[24~\": \"9\"\n"
                              "\"\\C-o\": \"ab\\C-xu\\C-xqcz\\C-b\\C-b\"\n\"\\C-xy\": \"<\\C-t>\"\n\"\\C-xx\": \"r\\C-xx\"\n"
                              "\"\\C-xm\": \"one\\rtwo\"\n$endif\n$if Bash\n\"\\C-t\": \"no\"\n$endif\n"),
                     0);
}
static void test_random(void **state)
{
    (void)state;
    assert_int_equal(in_child(random_keys, ""), 0);
    assert_int_equal(in_child(random_keys, "set editing-mode vi\n"), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_editing),    cmocka_unit_test(test_wide),      cmocka_unit_test(test_scrolling),
        cmocka_unit_test(test_pasting),    cmocka_unit_test(test_searching), cmocka_unit_test(test_recalling),
        cmocka_unit_test(test_completing), cmocka_unit_test(test_keeping),   cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_vi),         cmocka_unit_test(test_inputrc),   cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
