/* A program on a screen, for test_screen.c: draws what keys ask for. What it finds out goes to the descriptor in DRIVER_REPORT, a line
 * each, since its standard output belongs to the screen. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tui/screen.h"

static FILE *report;
static struct zf_screen_facts facts;
static struct zf_canvas canvas;
static enum zf_scheme scheme;
static char log_line[160];
static int number, heat_seed = -1, growing;

static void draw_heat(struct zf_rect all)
{
    struct zf_rect r = {0, 3, all.cols, all.rows - 3};
    for (int y = 0; y < r.rows; y++)
        for (int x = 0; x < r.cols; x++) zf_heat(&canvas, r, x, y, (x * 7 + y * 3 + heat_seed) & 15, (x + y * 5 + heat_seed * 3) & 15);
}

static void draw_line(struct zf_rect all)
{
    struct zf_dots d;
    struct zf_rect r = {0, 3, all.cols, all.rows - 3};
    if (!zf_dots_open(&d, &canvas, r)) return;
    for (int x = 0; x < d.cols && x < growing; x++) {
        int y = (x * 7919 % 13 + d.rows) / 3;
        zf_dots_span(&d, canvas.glyphs, x, y, y + 2, ZF_STYLE_TRAIN);
    }
    zf_dots_close(&d, &canvas);
}

static bool draw(void)
{
    int cols, rows;
    zf_screen_size(&cols, &rows);
    if (cols != canvas.cols || rows != canvas.rows) zf_canvas_resize(&canvas, cols, rows);
    zf_canvas_clear(&canvas);
    struct zf_rect all = zf_canvas_all(&canvas);
    if (heat_seed >= 0) draw_heat(all);
    if (growing) draw_line(all);
    zf_textf(&canvas, all, 0, 0, ZF_STYLE_TITLE, "size %dx%d", cols, rows);
    zf_textf(&canvas, all, 0, 1, ZF_STYLE_TEXT, "log %s", log_line);
    zf_textf(&canvas, all, 0, 2, ZF_STYLE_GOOD, "number %d \u672c|\u00e9|%s", number, "\033[31m");
    zf_put(&canvas, all, cols - 1, rows - 1, '#', ZF_STYLE_BAD);
    if (number & 1) canvas.cursor_x = 4, canvas.cursor_y = 1;
    return zf_screen_draw(&canvas, scheme);
}

static void take_stray(void)
{
    char b[512];
    ssize_t n;
    while ((n = read(zf_screen_stray(), b, sizeof b - 1)) > 0) {
        b[n] = 0;
        char *end = strrchr(b, '\n');
        if (end) *end = 0;
        char *last = strrchr(b, '\n');
        snprintf(log_line, sizeof log_line, "%.100s", last ? last + 1 : b);
    }
}

/* Frames that all differ, as fast as they are taken. */
static void flood(void)
{
    int taken = 0, refused = 0;
    for (int i = 0; i < 400; i++) {
        heat_seed = i;
        if (draw())
            taken++;
        else
            refused++;
    }
    fprintf(report, "flood taken %d refused %d\n", taken, refused);
}

static void measure(const char *what)
{
    uint64_t before = zf_screen_bytes();
    while (!draw()) usleep(1000);
    fprintf(report, "%s %llu\n", what, (unsigned long long)(zf_screen_bytes() - before));
}

static void say(void)
{
    printf("to stdout\n");
    fprintf(stderr, "to stderr \033[2J\n");
}

/* To what is there and a bit: for our own list of cells of 1000x300, not for all that ncurses keeps of them. */
static void limit_memory(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1) exit(7);
    fclose(statm);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (6 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most})) exit(7);
}

/* false: to end. */
static bool key(char c)
{
    switch (c) {
    case 'q': return false;
    case 'n': number++, measure("number"); break;
    case 'H': heat_seed++, measure("heat"); break;
    case 'h': heat_seed = -1; break;
    case 'g': growing = growing ? growing + 1 : 60, measure("grow"); break;
    case 'G': growing = 0; break;
    case 'i': measure("idle"); break;
    case 'f': flood(); break;
    case 't': scheme = (scheme + 1) % ZF_SCHEMES; break;
    case 'm': zf_screen_mouse(true); break;
    case 'M': zf_screen_mouse(false); break;
    case 'r': zf_screen_redraw(); break;
    case 'z': zf_screen_suspend(); break;
    case 'o': say(); break;
    case 'O':
        for (int i = 0; i < 100000; i++) fprintf(stderr, "a flood of lines that nobody reads %d\n", i);
        break;
    case 'L': limit_memory(); break;
    case 'x': exit(5);
    case 'X': _exit(6);
    case 'a': fprintf(stderr, "last words\n"); abort();
    case 'p': {
        pid_t child = fork();
        if (child == 0) exit(0);
        break;
    }
    default: break;
    }
    return true;
}

/* The keys that wait; false: to end. */
static bool take_keys(void)
{
    char keys[64];
    ssize_t n = read(zf_screen_input(), keys, sizeof keys);
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n; i++) {
        if (!key(keys[i])) return false;
        fprintf(report, "key %02x\n", (unsigned char)keys[i]);
    }
    return true;
}

int main(void)
{
    struct zf_err e = {0};
    const char *to = getenv("DRIVER_REPORT");
    report = fdopen(to ? atoi(to) : 2, "w");
    if (!report) return 9;
    setvbuf(report, NULL, _IOLBF, 0);
    /* Another user's terminal cannot be opened again: the shared one must do. */
    if (getenv("DRIVER_NOBODY") && (setgid(65534) || setuid(65534))) return 8;
    int signals = getenv("DRIVER_NO_SIGNALS") ? -1 : zf_screen_signals();
    if (zf_screen_open(&facts, &e) != ZF_OK) {
        fprintf(report, "refused %d %s\n", e.code, e.message);
        return e.code;
    }
    fprintf(report, "open %dx%d colours %d utf8 %d braille %d\n", facts.cols, facts.rows, facts.colours, facts.utf8, facts.braille);
    canvas.shades = facts.colours < 256;
    canvas.glyphs = facts.braille ? ZF_GLYPHS_BRAILLE : facts.utf8 ? ZF_GLYPHS_BLOCK : ZF_GLYPHS_ASCII;
    for (bool on = true; on;) {
        bool done = draw();
        struct pollfd p[3] = {{zf_screen_input(), POLLIN, 0}, {zf_screen_stray(), POLLIN, 0}, {signals, POLLIN, 0}};
        poll(p, 3, done ? -1 : 20);
        if (p[0].revents) on = take_keys();
        if (p[1].revents) take_stray();
        for (int number_of = 0; on && p[2].revents && (number_of = zf_screen_signal());) {
            fprintf(report, "signal %d\n", number_of);
            if (number_of == SIGTERM || number_of == SIGHUP) on = false;
        }
    }
    zf_screen_close();
    zf_screen_close();
    zf_canvas_free(&canvas);
    fclose(report);
    return 3;
}
