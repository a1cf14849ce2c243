/* The terminal's descriptors, mode and signals.
 *
 * Written to through an open file of our own that does not block: one that is shared with the shell must stay as it is, and a line that
 * stands still (Ctrl-S, a stalled ssh) must not stop the console. What may run in a signal handler is restore() and what it calls: it
 * touches plain integers, atomics and two buffers of which one is whole at any time. One thread, but for that. */
#include "tui/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Every signal that ends a process by default. Those that zf_screen_signals() blocks do not get here; a fault does in any thread. */
static const int ending[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS,  SIGQUIT,   SIGTERM, SIGHUP,
                             SIGINT,  SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO};
enum { ENDING = sizeof ending / sizeof *ending, LEAVE_ROOM = 512, DRAIN_MOST = 1 << 20 };

static struct {
    pid_t owner; /* a child that exits must not put back what is still ours */
    int out, in, saved[2], pipe[2];
    bool patient; /* `out` is shared and blocks: small pieces, when poll says so */
    struct termios shell, raw;
    struct sigaction before[ENDING];
    char *queue;
    size_t queued, room;
    uint64_t bytes;
} t = {.out = -1, .in = -1, .saved = {-1, -1}, .pipe = {-1, -1}};

static atomic_bool taken, in_frame;
static char leave[2][LEAVE_ROOM];
static atomic_int which_leave;

static void give_up(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int again_own(int fd)
{
    char path[128];
    struct stat a, b;
    if (ttyname_r(fd, path, sizeof path)) return -1;
    int own = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0 && fstat(own, &a) == 0 && fstat(fd, &b) == 0 && a.st_rdev == b.st_rdev) return own;
    give_up(&own);
    return -1;
}

enum zf_status zf_tty_open(struct zf_err *e)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return zf_fail(e, ZF_USAGE, NULL, "standard %s is not a terminal, and the screen needs one; use --plain",
                       isatty(STDIN_FILENO) ? "output" : "input");
    t.owner = getpid();
    t.bytes = 0;
    t.out = again_own(STDOUT_FILENO);
    t.patient = t.out < 0;
    if (t.patient) t.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    t.in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    enum zf_status s = ZF_OK;
    if (t.out < 0 || t.in < 0 || tcgetattr(t.in, &t.shell)) s = zf_fail_errno(e, NULL, "the terminal");
    if (s != ZF_OK) zf_tty_close();
    return s;
}

/* --- Putting back: async-signal-safe from here --- */

static void write_all(int fd, const char *bytes, size_t size, int wait_ms)
{
    while (size) {
        ssize_t n = write(fd, bytes, size);
        if (n > 0) {
            bytes += n, size -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {fd, POLLOUT, 0};
            if (poll(&p, 1, wait_ms) <= 0) return;
        } else if (n >= 0 || errno != EINTR) {
            return;
        }
    }
}

/* A process in the background that sets a terminal's mode is stopped; one that dies should not be. */
static void set_mode(const struct termios *mode, bool even_in_background)
{
    sigset_t stop, old;
    sigemptyset(&stop);
    if (even_in_background) sigaddset(&stop, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &stop, &old);
    while (tcsetattr(t.in, TCSANOW, mode) && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void put_back(void)
{
    const char *bytes = leave[atomic_load(&which_leave)];
    if (atomic_load(&in_frame)) write_all(t.out, "\030", 1, 100); /* ends a sequence of which only half went out */
    write_all(t.out, bytes, strlen(bytes), 100);
    set_mode(&t.shell, true);
}

void zf_tty_restore(void)
{
    if (getpid() != t.owner || !atomic_exchange(&taken, false)) return;
    int error = errno;
    put_back();
    dup2(t.saved[0], STDOUT_FILENO);
    dup2(t.saved[1], STDERR_FILENO);
    /* What was said and not shown yet may be why we end. */
    char b[4096];
    ssize_t n;
    for (size_t all = 0; all < DRAIN_MOST && (n = read(t.pipe[0], b, sizeof b)) > 0; all += (size_t)n)
        write_all(STDERR_FILENO, b, (size_t)n, 100);
    errno = error;
}

static void at_end(int number)
{
    zf_tty_restore();
    for (int i = 0; i < ENDING; i++)
        if (ending[i] == number) sigaction(number, &t.before[i], NULL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
}

/* --- up to here --- */

/* Where the system has a signal ignored (nohup), or somebody else takes it, it does not end us; faults always do. */
static void handle_endings(void)
{
    static char stack[64 * 1024];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack}, old;
    if (sigaltstack(NULL, &old) == 0 && old.ss_flags & SS_DISABLE) sigaltstack(&own, NULL);
    for (int i = 0; i < ENDING; i++) {
        struct sigaction ours = {.sa_handler = at_end, .sa_flags = SA_ONSTACK | SA_NODEFER};
        sigemptyset(&ours.sa_mask);
        if (sigaction(ending[i], NULL, &t.before[i])) continue;
        bool fault = ending[i] == SIGSEGV || ending[i] == SIGBUS || ending[i] == SIGFPE || ending[i] == SIGILL || ending[i] == SIGABRT;
        if (fault || t.before[i].sa_handler == SIG_DFL) sigaction(ending[i], &ours, NULL);
    }
}

static void forget_endings(void)
{
    for (int i = 0; i < ENDING; i++) {
        struct sigaction now;
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == at_end) sigaction(ending[i], &t.before[i], NULL);
    }
}

void zf_tty_leave(const char *bytes)
{
    int other = !atomic_load(&which_leave);
    snprintf(leave[other], LEAVE_ROOM, "%s", bytes);
    atomic_store(&which_leave, other);
}

static void go_raw(const char *enter)
{
    t.raw = t.shell;
    t.raw.c_iflag &= ~(tcflag_t)(IXON | IXOFF | ICRNL | INLCR | IGNCR | ISTRIP | BRKINT | PARMRK);
    t.raw.c_oflag &= ~(tcflag_t)OPOST;
    t.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL | ISIG | IEXTEN);
    t.raw.c_cflag = (t.raw.c_cflag & ~(tcflag_t)(CSIZE | PARENB)) | CS8;
    t.raw.c_cc[VMIN] = 1;
    t.raw.c_cc[VTIME] = 0;
    set_mode(&t.raw, false);
    zf_tty_queue(enter, strlen(enter));
    zf_tty_flush(100);
}

enum zf_status zf_tty_take(const char *enter, struct zf_err *e)
{
    fflush(stdout);
    fflush(stderr);
    t.saved[0] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    t.saved[1] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    /* Neither end blocks: a library that says more than the pipe holds before we read again must not hang, and least of all our own. */
    if (t.saved[0] < 0 || t.saved[1] < 0 || pipe2(t.pipe, O_CLOEXEC | O_NONBLOCK))
        return zf_fail_errno(e, NULL, "a pipe in place of stdout and stderr");
    handle_endings();
    static bool registered;
    if (!registered) registered = atexit(zf_tty_restore) == 0;
    atomic_store(&taken, true);
    if (dup2(t.pipe[1], STDOUT_FILENO) < 0 || dup2(t.pipe[1], STDERR_FILENO) < 0)
        return zf_fail_errno(e, NULL, "a pipe in place of stdout and stderr");
    setvbuf(stdout, NULL, _IOLBF, 0);
    go_raw(enter);
    return ZF_OK;
}

void zf_tty_close(void)
{
    if (atomic_load(&taken)) fflush(stdout);
    zf_tty_restore();
    forget_endings();
    give_up(&t.out);
    give_up(&t.in);
    for (int i = 0; i < 2; i++) give_up(&t.saved[i]), give_up(&t.pipe[i]);
    free(t.queue);
    t.queue = NULL;
    t.queued = t.room = 0;
    atomic_store(&in_frame, false);
}

void zf_tty_suspend(const char *enter)
{
    if (!atomic_load(&taken)) return;
    zf_tty_flush(100);
    put_back();
    t.queued = 0;
    atomic_store(&in_frame, false);
    /* The whole group, as the terminal would: a script that called us stops, too, and its shell sees it. */
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;
    sigset_t stop, old;
    sigemptyset(&usual.sa_mask);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaction(SIGTSTP, &usual, &before);
    kill(0, SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, &old);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGTSTP, &before, NULL);
    while (tcgetattr(t.in, &t.shell) && errno == EINTR) continue;
    go_raw(enter);
}

void zf_tty_again(const char *enter)
{
    if (atomic_load(&taken)) go_raw(enter);
}

bool zf_tty_queue(const char *bytes, size_t size)
{
    if (size > SIZE_MAX / 4 - t.queued) return false;
    if (t.queued + size > t.room) {
        size_t room = (t.queued + size) * 2;
        char *more = realloc(t.queue, room);
        if (!more) return false;
        t.queue = more, t.room = room;
    }
    memcpy(t.queue + t.queued, bytes, size);
    t.queued += size;
    return true;
}

/* One write; false: it takes nothing now. */
static bool write_some(const char *bytes, size_t size, size_t *done)
{
    enum { PIECE = 256 };
    struct pollfd p = {t.out, POLLOUT, 0};
    if (t.patient && poll(&p, 1, 0) <= 0) {
        errno = EAGAIN;
        return false;
    }
    if (t.patient && size > PIECE) size = PIECE;
    ssize_t n = write(t.out, bytes, size);
    if (n > 0) *done += (size_t)n, t.bytes += (size_t)n;
    return n > 0 || (n < 0 && errno == EINTR);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Room for more, or nobody there any more; for that we need not wait. */
static bool ready(int wait_ms)
{
    struct pollfd p = {t.out, POLLOUT, 0};
    return poll(&p, 1, wait_ms) > 0;
}

bool zf_tty_flush(int wait_ms)
{
    size_t done = 0;
    int out = 0;
    if (t.out < 0) return true;
    if (wait_ms == 0 && ioctl(t.out, TIOCOUTQ, &out) == 0 && out > 0) return false; /* a serial line is still busy */
    if (!t.queued) return ready(wait_ms);
    atomic_store(&in_frame, true);
    for (int64_t end = now_ms() + wait_ms, left = wait_ms; done < t.queued; left = end - now_ms()) {
        if (write_some(t.queue + done, t.queued - done, &done)) continue;
        if (errno != EAGAIN) done = t.queued; /* the terminal is gone: reading says so, too */
        if (done == t.queued || left <= 0 || !ready((int)left)) break;
    }
    memmove(t.queue, t.queue + done, t.queued - done);
    t.queued -= done;
    atomic_store(&in_frame, t.queued > 0);
    return !t.queued;
}

uint64_t zf_tty_bytes(void)
{
    return t.bytes;
}

void zf_tty_size(int *cols, int *rows)
{
    struct winsize ws;
    bool says = t.out >= 0 && ioctl(t.out, TIOCGWINSZ, &ws) == 0 && ws.ws_col && ws.ws_row;
    *cols = says ? ws.ws_col : 80;
    *rows = says ? ws.ws_row : 24;
}

int zf_tty_input(void)
{
    return t.in;
}

int zf_tty_stray(void)
{
    return t.pipe[0];
}
