/* ncurses, and only here. It draws into a file in memory; what it wrote is taken from there, put between the marks of one synchronized
 * piece and handed to tty.c: a frame goes out whole or is left out, and nothing ever waits for a slow line. Owns the screen; one thread. */
#define NCURSES_WIDECHAR 1
#include "tui/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include <curses.h>
#include <term.h>

#include "tui/tty.h"

static const char sync_on[] = "\033[?2026h", sync_off[] = "\033[?2026l", paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l",
                  mouse_on[] = "\033[?1000h\033[?1006h", mouse_off[] = "\033[?1006l\033[?1000l";

enum { SEQUENCE = 384, LEAST_COLS = 2 }; /* below: ncurses 6.4 reads behind its screen */

static struct {
    SCREEN *screen;
    FILE *sink;
    struct zf_screen_facts facts;
    bool ansi, sync, mouse, whole, cursor;
    bool torn; /* its windows are not of one size: nothing is drawn until they are */
    enum zf_scheme scheme;
    short pairs; /* made so far; the next one */
    int most_pairs;
    struct zf_look pair[ZF_STYLE_END]; /* [pair - 1]: its colours */
    int pair_of[ZF_STYLE_END];         /* of a style; -1: not made yet */
    attr_t attributes[ZF_STYLE_END];
    struct zf_cell *shown; /* [rows][cols] */
    char enter[SEQUENCE], again[SEQUENCE];
} s;

static int signals = -1;

/* --- Strings of the terminal --- */

static char *collect_to;
static size_t collect_room;

static int collect_byte(int byte)
{
    if (collect_room > 1) *collect_to++ = (char)byte, *collect_to = 0, collect_room--;
    return byte;
}

static void collect(char *to, size_t room)
{
    collect_to = to, collect_room = room;
    *to = 0;
}

static void collect_text(const char *text)
{
    while (*text) collect_byte((unsigned char)*text++);
}

/* A capability, its padding obeyed; nothing where there is none. */
static void collect_capability(const char *name)
{
    const char *value = tigetstr(name);
    if (value && value != (char *)-1) tputs(value, 1, collect_byte);
}

static bool has(const char *name)
{
    const char *value = tigetstr(name);
    return value && value != (char *)-1 && *value;
}

static void make_sequences(void)
{
    char leave[SEQUENCE];
    const char *const on = s.mouse ? mouse_on : "";
    collect(s.again, sizeof s.again); /* the alternative screen is still there */
    if (s.ansi) collect_text(paste_on), collect_text(on);
    collect(s.enter, sizeof s.enter);
    collect_capability("smcup");
    collect_text(s.again);

    collect(leave, sizeof leave);
    if (s.sync) collect_text(sync_off);
    if (s.ansi) collect_text(mouse_off), collect_text(paste_off);
    collect_capability("sgr0");
    collect_capability("op");
    collect_capability("cnorm");
    /* Without another screen to go back to, the shell goes on below ours. */
    const char *cup = tigetstr("cup");
    if (cup && cup != (char *)-1) tputs(tiparm(cup, s.facts.rows - 1, 0), 1, collect_byte);
    if (!has("rmcup")) collect_capability("el");
    collect_capability("rmcup");
    collect_text(has("rmcup") ? "\r" : "\r\n");
    zf_tty_leave(leave);
}

/* --- Opening --- */

static FILE *open_sink(void)
{
    int fd = memfd_create("screen", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!f && fd >= 0) close(fd);
    return f ? f : tmpfile();
}

static bool empty_sink(void)
{
    return ftruncate(fileno(s.sink), 0) == 0 && lseek(fileno(s.sink), 0, SEEK_SET) == 0;
}

static bool known(const char *term)
{
    int error = 0;
    bool is = setupterm(term, fileno(s.sink), &error) == OK && error == 1;
    if (is) del_curterm(cur_term);
    return is;
}

/* The first of TERM and what resembles most terminals that is described on this machine. */
static const char *pick_term(const char *term)
{
    static const char *const like[] = {"xterm-256color", "xterm", "ansi", "vt100"};
    if (known(term)) return term;
    for (size_t i = 0; i < sizeof like / sizeof *like; i++)
        if (known(like[i])) return like[i];
    return NULL;
}

static void leave_alone(int number)
{
    (void)number;
}

/* ncurses takes signals over that have their default action, and then has SIGTSTP ignored during each frame, which loses one that waits. */
static SCREEN *new_screen(const char *term)
{
    static const int theirs[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
    struct sigaction nothing = {.sa_handler = leave_alone}, before[4];
    sigemptyset(&nothing.sa_mask);
    for (int i = 0; i < 4; i++) sigaction(theirs[i], &nothing, &before[i]);
    unsetenv("LINES"); /* stale ones would be believed */
    unsetenv("COLUMNS");
    SCREEN *screen = newterm(term, s.sink, stdin);
    for (int i = 0; i < 4; i++) sigaction(theirs[i], &before[i], NULL);
    return screen;
}

/* A locale that is named and not installed: its letters at least. */
static bool take_locale(void)
{
    if (!setlocale(LC_CTYPE, "")) {
        const char *name = NULL;
        for (int i = 0; i < 3 && (!name || !*name); i++) name = getenv((const char *[]){"LC_ALL", "LC_CTYPE", "LANG"}[i]);
        if (name && (strcasestr(name, "utf-8") || strcasestr(name, "utf8"))) setlocale(LC_CTYPE, "C.UTF-8");
    }
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static int depth_of_terminal(void)
{
    const char *no = getenv("NO_COLOR");
    if ((no && *no) || !has_colors() || start_color() != OK || use_default_colors() != OK) return 0;
    s.most_pairs = COLOR_PAIRS;
    return COLORS >= 256 && COLOR_PAIRS >= ZF_STYLE_END ? 256 : COLORS >= 16 ? 16 : COLORS >= 8 ? 8 : 0;
}

/* No more than a canvas has: a size is asked memory for. */
static void terminal_size(int *cols, int *rows)
{
    zf_tty_size(cols, rows);
    if (*cols > ZF_CANVAS_MOST_COLS) *cols = ZF_CANVAS_MOST_COLS;
    if (*rows > ZF_CANVAS_MOST_ROWS) *rows = ZF_CANVAS_MOST_ROWS;
}

/* ncurses draws behind its windows' ends once it got no memory for all of them: it is asked only if there is some. */
static bool has_memory(int cols, int rows)
{
    enum { WINDOWS = 4, SLACK = 1 << 18 };
    void *tried = malloc((size_t)cols * (size_t)rows * sizeof(cchar_t) * WINDOWS + SLACK);
    bool has = tried != NULL;
    free(tried);
    return has;
}

/* false: the size stays what it was, and what is drawn is cut to it. */
static bool resize_to(int cols, int rows)
{
    struct zf_cell *shown = calloc((size_t)cols * (size_t)rows, sizeof *shown);
    if (!shown || !has_memory(cols, rows)) {
        free(shown);
        return false;
    }
    s.torn = cols >= LEAST_COLS && resizeterm(rows, cols) != OK;
    if (s.torn) {
        free(shown);
        return false;
    }
    free(s.shown);
    s.shown = shown;
    s.facts.cols = cols, s.facts.rows = rows;
    s.whole = true;
    make_sequences();
    return true;
}

static enum zf_status open_curses(const char *term, struct zf_err *e)
{
    bool like_linux = strncmp(term, "linux", 5) == 0 || strncmp(term, "vt", 2) == 0 || strncmp(term, "con", 3) == 0;
    s.facts.utf8 = take_locale();
    s.facts.braille = s.facts.utf8 && !like_linux;
    s.sink = open_sink();
    if (!s.sink) return zf_fail_errno(e, NULL, "a file in memory for frames");
    const char *as = pick_term(term);
    if (!as)
        return zf_fail(e, ZF_USAGE, NULL, "TERM=%.64s is not described on this machine, nor is xterm; install terminfo or use --plain",
                       term);
    int cols, rows;
    terminal_size(&cols, &rows);
    if (!has_memory(cols, rows)) return zf_fail_memory(e, "the screen");
    s.screen = new_screen(as);
    if (!s.screen) return zf_fail(e, ZF_USAGE, NULL, "ncurses cannot draw for TERM=%.64s; use --plain", as);
    set_term(s.screen);
    if (!has("cup"))
        return zf_fail(e, ZF_USAGE, NULL, "TERM=%.64s cannot place text on a screen; use --plain, or set TERM to what your terminal is",
                       as);
    s.ansi = strncmp(tigetstr("cup"), "\033[", 2) == 0;
    s.sync = s.ansi && !like_linux;
    s.facts.colours = depth_of_terminal();
    s.scheme = ZF_SCHEMES; /* none yet */
    s.cursor = true;
    nonl();
    typeahead(-1); /* or a key that waits breaks a frame off */
    scrollok(stdscr, FALSE);
    idlok(stdscr, FALSE);
    doupdate(); /* its own way of entering; ours is in `enter` */
    empty_sink();
    terminal_size(&cols, &rows);
    if (!resize_to(cols, rows)) return zf_fail_memory(e, "the screen");
    ZF_TRY(zf_tty_take(s.enter, e));
    if (as != term)
        fprintf(stderr, "TERM=%.64s is not described on this machine: drawing as for %s. If that looks wrong, install its terminfo.\n",
                term, as);
    return ZF_OK;
}

enum zf_status zf_screen_open(struct zf_screen_facts *f, struct zf_err *e)
{
    const char *term = getenv("TERM");
    if (!term || !*term || strcmp(term, "dumb") == 0 || strcmp(term, "unknown") == 0)
        return zf_fail(e, ZF_USAGE, NULL, "TERM is %s: no screen can be drawn there; use --plain, or set TERM to what your terminal is",
                       term && *term ? term : "not set");
    ZF_TRY(zf_tty_open(e));
    enum zf_status status = open_curses(term, e);
    if (status != ZF_OK) zf_screen_close();
    *f = s.facts;
    return status;
}

void zf_screen_close(void)
{
    zf_tty_close();
    if (s.screen) {
        endwin(); /* into the sink: the terminal is back already */
        delscreen(s.screen);
    }
    if (s.sink) fclose(s.sink);
    free(s.shown);
    s.screen = NULL, s.sink = NULL, s.shown = NULL;
    memset(&s.facts, 0, sizeof s.facts);
    s.mouse = false;
}

void zf_screen_size(int *cols, int *rows)
{
    *cols = s.facts.cols, *rows = s.facts.rows;
    if (!s.screen) return;
    int now_cols, now_rows;
    terminal_size(&now_cols, &now_rows);
    if ((now_cols != *cols || now_rows != *rows) && resize_to(now_cols, now_rows)) *cols = now_cols, *rows = now_rows;
}

int zf_screen_input(void)
{
    return zf_tty_input();
}

/* --- Drawing --- */

static void new_scheme(enum zf_scheme scheme)
{
    for (int i = 0; i < ZF_STYLE_END; i++) s.pair_of[i] = -1;
    s.pairs = 1; /* 0 is the terminal's own */
    s.scheme = scheme;
    s.whole = true;
}

/* Pairs are made when first seen: 8 colours have 64 of them, and 256 colours take 50 ms for all. */
static void make_pair(unsigned style)
{
    struct zf_look look = zf_theme_look(s.scheme, s.facts.colours, style);
    static const attr_t attribute[4] = {A_BOLD, A_DIM, A_REVERSE, A_UNDERLINE};
    s.attributes[style] = 0;
    for (int i = 0; i < 4; i++)
        if (look.attributes >> i & 1) s.attributes[style] |= attribute[i];
    s.pair_of[style] = 0;
    if (look.fg < 0 && look.bg < 0) return;
    for (int i = 1; i < s.pairs; i++)
        if (s.pair[i - 1].fg == look.fg && s.pair[i - 1].bg == look.bg) {
            s.pair_of[style] = i;
            return;
        }
    if (s.pairs >= s.most_pairs || init_pair(s.pairs, (short)look.fg, (short)look.bg) != OK) return;
    s.pair[s.pairs - 1] = look;
    s.pair_of[style] = s.pairs++;
}

/* What the C library and ncurses would give another width, or have no bytes for in this locale, becomes '?'. */
static void put_cell(int x, int y, struct zf_cell cell, bool wide)
{
    unsigned style = cell.style < ZF_STYLE_END ? cell.style : ZF_STYLE_TEXT;
    if (s.pair_of[style] < 0) make_pair(style);
    bool fits = cell.code < 0x7f || (s.facts.utf8 && wcwidth((wchar_t)cell.code) == 1 + wide);
    wchar_t text[2] = {fits ? (wchar_t)cell.code : L'?', 0};
    cchar_t drawn;
    int pair = s.pair_of[style];
    for (int i = 0; i <= (wide && !fits); i++)
        if (setcchar(&drawn, text, s.attributes[style], 0, &pair) == OK) mvwadd_wch(stdscr, y, x + i, &drawn);
}

static void put_changes(const struct zf_canvas *c)
{
    static const struct zf_cell blank = {' ', ZF_STYLE_TEXT};
    for (int y = 0; y < s.facts.rows; y++) {
        const struct zf_cell *row = y < c->rows ? c->cell + (size_t)y * (size_t)c->cols : NULL;
        struct zf_cell *shown = s.shown + (size_t)y * (size_t)s.facts.cols;
        int drawn = row ? c->cols < s.facts.cols ? c->cols : s.facts.cols : 0;
        for (int x = 0; x < s.facts.cols; x++) {
            struct zf_cell cell = x < drawn ? row[x] : blank;
            bool wide = x + 1 < drawn && row[x + 1].code == (uint32_t)ZF_CELL_RIGHT;
            if (x == drawn - 1 && drawn < c->cols && row[x + 1].code == (uint32_t)ZF_CELL_RIGHT) cell.code = ' ';
            if (!s.whole && cell.code == shown[x].code && cell.style == shown[x].style) continue;
            shown[x] = cell;
            if (cell.code != (uint32_t)ZF_CELL_RIGHT) put_cell(x, y, cell, wide);
        }
    }
}

static void put_cursor(const struct zf_canvas *c)
{
    bool on = c->cursor_x >= 0 && c->cursor_x < s.facts.cols && c->cursor_y >= 0 && c->cursor_y < s.facts.rows;
    if (s.whole) curs_set(!on); /* it remembers what may no longer be so */
    if (on != s.cursor || s.whole) curs_set(on);
    s.cursor = on;
    leaveok(stdscr, !on); /* a hidden one stays where it is: bytes less */
    if (on) wmove(stdscr, c->cursor_y, c->cursor_x);
}

/* What ncurses wrote, between the marks, into the queue. */
static bool take_frame(void)
{
    int fd = fileno(s.sink);
    struct stat st;
    char *bytes;
    if (fstat(fd, &st) || st.st_size == 0) return true;
    bool kept = (bytes = malloc((size_t)st.st_size)) && pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size &&
                (!s.sync || zf_tty_queue(sync_on, sizeof sync_on - 1));
    if (kept) kept = zf_tty_queue(bytes, (size_t)st.st_size) && (!s.sync || zf_tty_queue(sync_off, sizeof sync_off - 1));
    free(bytes);
    return empty_sink() && kept;
}

bool zf_screen_draw(const struct zf_canvas *c, enum zf_scheme scheme)
{
    enum { WAIT_MS = 12 };
    if (!s.screen) return true;
    if (!zf_tty_flush(0)) return false;
    if (s.facts.cols < LEAST_COLS || s.torn) return true;
    if (scheme != s.scheme) new_scheme(scheme);
    if (s.whole) clearok(curscr, TRUE);
    put_changes(c);
    put_cursor(c);
    wnoutrefresh(stdscr);
    doupdate();
    s.whole = !take_frame(); /* lost: once more, all of it */
    return !s.whole && zf_tty_flush(WAIT_MS);
}

void zf_screen_redraw(void)
{
    s.whole = true;
}

void zf_screen_mouse(bool on)
{
    if (!s.screen || !s.ansi || on == s.mouse) return;
    s.mouse = on;
    const char *bytes = on ? mouse_on : mouse_off;
    zf_tty_queue(bytes, strlen(bytes));
    zf_tty_flush(0);
    make_sequences();
}

/* --- Signals --- */

void zf_screen_suspend(void)
{
    if (!s.screen) return;
    zf_tty_suspend(s.enter);
    s.whole = true;
}

int zf_screen_stray(void)
{
    return zf_tty_stray();
}

int zf_screen_signals(void)
{
    static const int ours[] = {SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGCONT, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) sigaddset(&set, ours[i]);
    if (signals < 0 && pthread_sigmask(SIG_BLOCK, &set, NULL) == 0) signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return signals;
}

int zf_screen_signal(void)
{
    struct signalfd_siginfo one;
    while (signals >= 0 && read(signals, &one, sizeof one) == (ssize_t)sizeof one) {
        if (one.ssi_signo == SIGTSTP) { /* from another program: the key is a byte to us */
            zf_screen_suspend();
            continue;
        }
        if (one.ssi_signo == SIGCONT && s.screen) {
            zf_tty_again(s.again); /* after a stop of our own, too: nobody knows who came first */
            s.whole = true;
        }
        return (int)one.ssi_signo;
    }
    return 0;
}

uint64_t zf_screen_bytes(void)
{
    return zf_tty_bytes();
}
