/* A program on a pseudo-terminal and the terminal itself, by libvterm: what a person would see, and every byte that made it so.
 * One terminal at a time; header only, for the console's tests. */
#ifndef ZF_TESTS_TUI_GLASS_H
#define ZF_TESTS_TUI_GLASS_H

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <vterm.h>

struct pty {
    int master, slave, report; /* the slave stays open, so that the mode can be read when the program is gone */
    pid_t shell, program;      /* the leader of the session; its only child */
    int rows, cols;
    VTerm *vt;
    VTermScreen *screen;
    bool alternative, cursor, mouse;
    char *bytes; /* all that came */
    size_t size, room;
    char said[65536]; /* what the program reported */
    size_t said_size;
    struct termios before;
};

static int pty_property(VTermProp prop, VTermValue *value, void *user)
{
    struct pty *p = user;
    if (prop == VTERM_PROP_ALTSCREEN) p->alternative = value->boolean;
    if (prop == VTERM_PROP_CURSORVISIBLE) p->cursor = value->boolean;
    if (prop == VTERM_PROP_MOUSE) p->mouse = value->number != 0;
    return 1;
}

/* libvterm 0.1 writes outside of its screen in some changes of size, and in tiny ones at all: each size gets a terminal of its own, a tiny
 * one none that is fed. */
static void pty_terminal(struct pty *p, int cols, int rows)
{
    static const VTermScreenCallbacks callbacks = {.settermprop = pty_property};
    bool alternative = p->alternative, cursor = p->cursor, again = p->vt;
    if (p->vt) vterm_free(p->vt);
    p->rows = rows, p->cols = cols;
    p->vt = vterm_new(rows, cols);
    vterm_set_utf8(p->vt, 1);
    p->screen = vterm_obtain_screen(p->vt);
    vterm_screen_set_callbacks(p->screen, &callbacks, p);
    vterm_screen_enable_altscreen(p->screen, 1);
    vterm_screen_reset(p->screen, 1);
    vterm_input_write(p->vt, "before\r\n", 8); /* what was on the screen */
    if (again && alternative) vterm_input_write(p->vt, "\033[?1049h", 8);
    if (again && !cursor) vterm_input_write(p->vt, "\033[?25l", 6);
}

/* The smallest shell with job control: what it runs stops and goes on, by a byte on `wake`. */
static void pty_shell(struct pty *p, int wake, char *const argv[], char *const env[])
{
    setsid();
    ioctl(p->slave, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++) dup2(p->slave, i);
    signal(SIGTTOU, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        signal(SIGTTOU, SIG_DFL);
        execve(argv[0], argv, env);
        _exit(127);
    }
    setpgid(child, child);
    tcsetpgrp(0, child);
    char line[64];
    snprintf(line, sizeof line, "pid %d\n", (int)child);
    if (write(p->report, line, strlen(line)) < 0) _exit(126);
    int status;
    while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) {
        char byte;
        tcsetpgrp(0, getpid());
        if (write(p->report, "stopped\n", 8) < 0 || read(wake, &byte, 1) != 1) _exit(126);
        tcsetpgrp(0, child);
        kill(-child, SIGCONT);
    }
    tcsetpgrp(0, getpid());
    /* As a number: a signal's end is no shell's. */
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static int pty_wake; /* writes to the shell */

static bool pty_open(struct pty *p, int cols, int rows, char *const argv[], char *const env[])
{
    int out[2], wake[2];
    struct winsize ws = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    *p = (struct pty){.rows = rows, .cols = cols, .cursor = true};
    if (openpty(&p->master, &p->slave, NULL, NULL, &ws) || pipe(out) || pipe(wake)) return false;
    tcgetattr(p->slave, &p->before);
    pty_terminal(p, cols, rows);
    p->shell = fork();
    if (p->shell == 0) {
        p->report = out[1];
        close(p->master);
        close(out[0]);
        close(wake[1]);
        fcntl(wake[0], F_SETFD, FD_CLOEXEC);
        char number[16];
        snprintf(number, sizeof number, "%d", out[1]);
        size_t n = 0;
        while (env[n]) n++;
        char **all = calloc(n + 2, sizeof *all);
        memcpy(all, env, n * sizeof *all);
        if (asprintf(&all[n], "DRIVER_REPORT=%s", number) < 0) _exit(126);
        pty_shell(p, wake[0], argv, all);
    }
    p->report = out[0];
    pty_wake = wake[1];
    close(out[1]);
    close(wake[0]);
    fcntl(p->report, F_SETFL, O_NONBLOCK);
    return p->shell > 0;
}

/* What the program reported, without its screen: nothing is read from the terminal. */
static void pty_hear(struct pty *p)
{
    ssize_t n;
    while (p->said_size < sizeof p->said - 1 && (n = read(p->report, p->said + p->said_size, sizeof p->said - 1 - p->said_size)) > 0)
        p->said_size += (size_t)n;
    p->said[p->said_size] = 0;
    const char *line = strstr(p->said, "pid ");
    if (!p->program && line && strchr(line, '\n')) p->program = (pid_t)atoi(line + 4);
}

/* One look; false: nothing came for so long. */
static bool pty_pump(struct pty *p, int ms)
{
    struct pollfd f[2] = {{p->master, POLLIN, 0}, {p->report, POLLIN, 0}};
    if (poll(f, f[1].fd >= 0 ? 2 : 1, ms) <= 0) return false;
    if (f[0].revents & POLLIN) {
        char b[16384];
        ssize_t n = read(p->master, b, sizeof b);
        if (n > 0) {
            if (p->size + (size_t)n + 1 > p->room) p->bytes = realloc(p->bytes, p->room = (p->size + (size_t)n) * 2 + 1);
            memcpy(p->bytes + p->size, b, (size_t)n);
            p->bytes[p->size += (size_t)n] = 0;
            if (p->cols >= 8 && p->rows >= 4) vterm_input_write(p->vt, b, (size_t)n);
        }
    }
    size_t said = p->said_size;
    pty_hear(p);
    if (f[1].revents & POLLHUP && said == p->said_size) close(p->report), p->report = -1;
    return true;
}

static void pty_row(struct pty *p, int row, char *text, size_t room)
{
    size_t n = 0;
    for (int x = 0; x < p->cols && n + 8 < room;) {
        VTermScreenCell c;
        vterm_screen_get_cell(p->screen, (VTermPos){row, x}, &c);
        uint32_t u = c.chars[0] ? c.chars[0] : ' ';
        if (u < 0x80)
            text[n++] = (char)u;
        else if (u < 0x800)
            text[n++] = (char)(0xc0 | u >> 6), text[n++] = (char)(0x80 | (u & 63));
        else
            text[n++] = (char)(0xe0 | u >> 12), text[n++] = (char)(0x80 | (u >> 6 & 63)), text[n++] = (char)(0x80 | (u & 63));
        x += c.width > 1 ? c.width : 1;
    }
    while (n && text[n - 1] == ' ') n--;
    text[n] = 0;
}

static bool pty_shows(struct pty *p, const char *what)
{
    char line[4096];
    for (int y = 0; y < p->rows; y++) {
        pty_row(p, y, line, sizeof line);
        if (strstr(line, what)) return true;
    }
    return false;
}

static void pty_dump(struct pty *p)
{
    char line[4096];
    for (int y = 0; y < p->rows; y++) {
        pty_row(p, y, line, sizeof line);
        fprintf(stderr, "%3d |%s|\n", y, line);
    }
    fprintf(stderr, "reported: %s\n", p->said);
}

static double pty_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Until the screen shows, or the program reported, that; a dump otherwise. */
static bool pty_until(struct pty *p, const char *shows, const char *reports)
{
    for (double end = pty_clock() + 10; pty_clock() < end; pty_pump(p, 20))
        if ((!shows || pty_shows(p, shows)) && (!reports || strstr(p->said, reports))) return true;
    fprintf(stderr, "waited for %s %s\n", shows ? shows : "", reports ? reports : "");
    pty_dump(p);
    return false;
}

static void pty_type(struct pty *p, const char *keys)
{
    if (write(p->master, keys, strlen(keys)) < 0) perror("type");
}

static void pty_resize(struct pty *p, int cols, int rows)
{
    struct winsize ws = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    pty_terminal(p, cols, rows);
    ioctl(p->master, TIOCSWINSZ, &ws);
}

/* Never 0: that would be us. */
static pid_t pty_program(struct pty *p)
{
    for (double end = pty_clock() + 10; !p->program && pty_clock() < end;) pty_pump(p, 20);
    return p->program ? p->program : p->shell;
}

/* The program's exit code, 128 + a signal that ended it; all that it wrote is on the screen then. */
static int pty_wait(struct pty *p)
{
    int status = 0;
    for (double end = pty_clock() + 10; waitpid(p->shell, &status, WNOHANG) == 0; pty_pump(p, 10))
        if (pty_clock() > end) {
            pty_dump(p);
            kill(pty_program(p), SIGKILL);
            kill(p->shell, SIGKILL);
            waitpid(p->shell, &status, 0);
            return -1;
        }
    while (p->report >= 0 && pty_pump(p, 200)) continue; /* closed by the program and its shell */
    for (struct pollfd f = {p->master, POLLIN, 0}; poll(&f, 1, 0) > 0 && f.revents & POLLIN;) pty_pump(p, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool pty_mode_is_back(struct pty *p)
{
    struct termios now;
    return tcgetattr(p->slave, &now) == 0 && now.c_iflag == p->before.c_iflag && now.c_oflag == p->before.c_oflag &&
           now.c_cflag == p->before.c_cflag && now.c_lflag == p->before.c_lflag && memcmp(now.c_cc, p->before.c_cc, sizeof now.c_cc) == 0;
}

static void pty_close(struct pty *p)
{
    close(p->master);
    close(p->slave);
    close(pty_wake);
    if (p->report >= 0) close(p->report);
    vterm_free(p->vt);
    free(p->bytes);
}

#endif
