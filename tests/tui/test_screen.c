/* The screen on a pseudo-terminal: what is shown, in how many bytes, and that the terminal is as it was after every kind of end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>

#include "tests/tui/glass.h"

static struct pty p;

static void start(const char *term, const char *locale, const char *more, int cols, int rows)
{
    char term_is[128], locale_is[128];
    snprintf(term_is, sizeof term_is, "TERM=%s", term ? term : "");
    snprintf(locale_is, sizeof locale_is, "LC_ALL=%s", locale);
    char *const argv[] = {(char *)(uintptr_t)SCREEN_DRIVER, NULL};
    /* LINES, COLUMNS: stale ones must not matter. A sanitizer leaves the signals that end a process to us. */
    static char lines[] = "LINES=7", columns[] = "COLUMNS=33", nothing[] = "X=y";
    static char faults[] = "ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0";
    char *const env[] = {term_is, locale_is, lines, columns, faults, more ? (char *)(uintptr_t)more : nothing, NULL};
    assert_true(pty_open(&p, cols, rows, argv, env));
}

static int count(const char *what)
{
    int n = 0;
    for (const char *at = p.bytes; at && (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void expect_end(int code)
{
    int is = pty_wait(&p);
    if (is != code) pty_dump(&p);
    assert_int_equal(is, code);
    assert_true(pty_mode_is_back(&p));
    assert_false(p.alternative);
    assert_true(p.cursor);
    assert_false(p.mouse);
    assert_int_equal(count("\033[?2026h"), count("\033[?2026l") - 1); /* leaving ends one, begun or not */
    assert_int_equal(count("\033[?2004h"), 1);
    assert_int_equal(count("\033[?2004l"), 1);
    assert_int_equal(count("\033[?1049h"), 1);
    assert_int_equal(count("\033[?1049l"), 1);
}

static void draws(void **state)
{
    (void)state;
    start("xterm-256color", "C.UTF-8", NULL, 60, 12);
    assert_true(pty_until(&p, "size 60x12", "open 60x12 colours 256 utf8 1 braille 1"));
    assert_true(pty_until(&p, "number 0 \u672c|\u00e9|\ufffd[31m", NULL));
    assert_true(p.alternative);
    assert_false(p.cursor);
    VTermScreenCell cell;
    vterm_screen_get_cell(p.screen, (VTermPos){2, 0}, &cell);
    assert_int_equal(cell.fg.indexed.idx, 114); /* GOOD */
    assert_true(pty_until(&p, "#", NULL));
    vterm_screen_get_cell(p.screen, (VTermPos){11, 59}, &cell);
    assert_int_equal(cell.chars[0], '#'); /* the last cell */
    pty_type(&p, "n");
    assert_true(pty_until(&p, "number 1", NULL));
    assert_true(p.cursor);
    VTermPos at;
    vterm_state_get_cursorpos(vterm_obtain_state(p.vt), &at);
    assert_int_equal(at.row, 1);
    assert_int_equal(at.col, 4);
    pty_type(&p, "tt"); /* safe */
    assert_true(pty_until(&p, NULL, "key 74\nkey 74"));
    for (double end = pty_clock() + 5; cell.fg.indexed.idx != 32 && pty_clock() < end; pty_pump(&p, 20))
        vterm_screen_get_cell(p.screen, (VTermPos){2, 0}, &cell);
    assert_int_equal(cell.fg.indexed.idx, 32);
    pty_type(&p, "m");
    assert_true(pty_until(&p, NULL, "key 6d"));
    assert_true(p.mouse);
    pty_type(&p, "p"); /* a child that ends takes nothing away */
    assert_true(pty_until(&p, NULL, "key 70"));
    pty_type(&p, "n");
    assert_true(pty_until(&p, "number 2", NULL));
    assert_true(p.alternative && p.mouse);
    pty_type(&p, "q");
    expect_end(3);
    assert_true(pty_shows(&p, "before"));
    assert_false(pty_shows(&p, "number"));
    pty_close(&p);
}

static int reported(const char *what)
{
    const char *last = NULL, *at = p.said;
    for (; (at = strstr(at, what)); at++) last = at;
    return last ? atoi(last + strlen(what)) : -1;
}

/* Presses a key, returns the bytes that its frame took. */
static int frame_of(const char *keys, const char *what)
{
    p.said_size = 0;
    p.said[0] = 0;
    pty_type(&p, keys);
    char done[16];
    snprintf(done, sizeof done, "key %02x", (unsigned char)keys[strlen(keys) - 1]);
    assert_true(pty_until(&p, NULL, done));
    int n = reported(what);
    print_message("%s: %d bytes\n", what, n);
    return n;
}

static void few_bytes(void **state)
{
    enum { MARKS = 16 }; /* of a synchronized piece */
    (void)state;
    start("xterm-256color", "C.UTF-8", NULL, 200, 50);
    assert_true(pty_until(&p, "size 200x50", NULL));
    assert_int_equal(frame_of("i", "idle "), 0);
    frame_of("n", "number ");
    frame_of("n", "number ");
    assert_in_range(frame_of("n", "number "), 1, 50 + MARKS); /* one number, and the cursor's appearance */
    frame_of("g", "grow ");
    int most = 0;
    for (int i = 0; i < 8; i++) {
        int n = frame_of("g", "grow ");
        most = n > most ? n : most;
    }
    assert_in_range(most, 1, 60 + MARKS);
    pty_type(&p, "G");
    assert_true(pty_until(&p, NULL, "key 47"));
    assert_in_range(frame_of("H", "heat "), 1000, 260000);
    assert_true(pty_until(&p, "\u2580", NULL));
    assert_in_range(frame_of("H", "heat "), 1000, 260000);
    pty_type(&p, "q");
    expect_end(3);
    pty_close(&p);
}

static bool until_gone(const char *what)
{
    for (double end = pty_clock() + 10; pty_shows(&p, what) && pty_clock() < end;) pty_pump(&p, 20);
    return !pty_shows(&p, what);
}

static void storm_of_sizes(void **state)
{
    (void)state;
    static const int sizes[][2] = {{100, 30},  {20, 5}, {3, 2}, {1, 1},   {2, 1}, {1, 40}, {40, 1},
                                   {300, 100}, {1, 1},  {2, 2}, {80, 24}, {1, 1}, {60, 12}};
    start("xterm-256color", "C.UTF-8", NULL, 60, 12);
    assert_true(pty_until(&p, "size 60x12", NULL));
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            pty_resize(&p, sizes[i][0], sizes[i][1]);
            pty_type(&p, round & 1 ? "H" : "i");
            if (round & 2) { /* drawn at that size, not swept over */
                p.said_size = 0;
                p.said[0] = 0;
                pty_type(&p, "i");
                assert_true(pty_until(&p, NULL, "key 69"));
            }
            pty_pump(&p, 2);
        }
    pty_type(&p, "h");
    assert_true(pty_until(&p, "size 60x12", NULL));
    assert_true(pty_until(&p, "number 0", NULL));
    assert_true(pty_until(&p, "#", NULL));
    assert_true(until_gone("\u2580"));
    VTermScreenCell cell;
    vterm_screen_get_cell(p.screen, (VTermPos){11, 59}, &cell);
    assert_int_equal(cell.chars[0], '#');
    for (int y = 3; y < 11; y++) { /* nothing is left of other sizes */
        char line[256];
        pty_row(&p, y, line, sizeof line);
        assert_string_equal(line, "");
    }
    pty_type(&p, "q");
    expect_end(3);
    pty_close(&p);
}

/* Without memory for a size the one before it stays, and the next one that fits is taken. */
static void no_memory(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it needs room without end itself */
#endif
    start("xterm-256color", "C.UTF-8", NULL, 60, 12);
    assert_true(pty_until(&p, "size 60x12", NULL));
    pty_type(&p, "L");
    assert_true(pty_until(&p, NULL, "key 4c"));
    for (int i = 0; i < 3; i++) {
        pty_resize(&p, 1000, 300);
        pty_type(&p, "ri");
        assert_true(pty_until(&p, NULL, "signal 28") && pty_until(&p, NULL, "key 69"));
        assert_true(pty_until(&p, "size 60x12", NULL));
        pty_resize(&p, 80, 24);
        assert_true(pty_until(&p, "size 80x24", NULL));
        pty_resize(&p, 60, 12);
        assert_true(pty_until(&p, "size 60x12", NULL));
        p.said_size = 0;
        p.said[0] = 0;
    }
    pty_type(&p, "q");
    expect_end(3);
    pty_close(&p);
}

static void ends(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int number, code;
        bool unblocked; /* nobody asked for a descriptor of signals */
    } t[] = {
        {NULL, SIGSEGV, 128 + SIGSEGV, false},
        {NULL, SIGTERM, 3, false},
        {NULL, SIGHUP, 3, false},
        {NULL, SIGTERM, 128 + SIGTERM, true},
        {NULL, SIGHUP, 128 + SIGHUP, true},
        {NULL, SIGINT, 128 + SIGINT, true},
        {NULL, SIGBUS, 128 + SIGBUS, false},
        {NULL, SIGFPE, 128 + SIGFPE, false},
        {NULL, SIGILL, 128 + SIGILL, false},
        {NULL, SIGQUIT, 128 + SIGQUIT, false},
        {NULL, SIGUSR1, 128 + SIGUSR1, false},
        {"a", 0, 128 + SIGABRT, false},
        {"x", 0, 5, false},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        start("xterm-256color", "C.UTF-8", t[i].unblocked ? "DRIVER_NO_SIGNALS=1" : NULL, 60, 12);
        assert_true(pty_until(&p, "number 0", NULL));
        pty_type(&p, "mn");
        assert_true(pty_until(&p, "number 1", NULL));
        if (t[i].key)
            pty_type(&p, t[i].key);
        else
            kill(pty_program(&p), t[i].number);
        expect_end(t[i].code);
        assert_true(pty_shows(&p, "before"));
        assert_false(pty_shows(&p, "number"));
        if (t[i].number == 0 && t[i].key[0] == 'a') assert_true(pty_shows(&p, "last words")); /* why it ended is not lost */
        pty_close(&p);
    }
}

static void stray_output(void **state)
{
    (void)state;
    start("xterm-256color", "C.UTF-8", NULL, 60, 12);
    assert_true(pty_until(&p, "size 60x12", NULL));
    pty_type(&p, "o");
    assert_true(pty_until(&p, "log to stderr \ufffd[2J", NULL));
    assert_false(pty_shows(&p, "to stdout"));
    pty_type(&p, "O"); /* more than a pipe holds, from the thread that would read it */
    assert_true(pty_until(&p, NULL, "key 4f"));
    assert_true(pty_until(&p, "log a flood of lines", NULL));
    char line[256];
    for (int y = 3; y < 11; y++) {
        pty_row(&p, y, line, sizeof line);
        assert_string_equal(line, "");
    }
    pty_type(&p, "q");
    expect_end(3);
    pty_close(&p);
}

static void slow_line(void **state)
{
    (void)state;
    start("xterm-256color", "C.UTF-8", NULL, 200, 50);
    assert_true(pty_until(&p, "size 200x50", NULL));
    p.said_size = 0;
    pty_type(&p, "f"); /* 400 frames of 200 KB: the program ends that while nobody reads its terminal */
    for (double end = pty_clock() + 20; !strstr(p.said, "flood ") && pty_clock() < end; usleep(2000)) pty_hear(&p);
    int taken = reported("taken "), refused = reported("refused ");
    print_message("taken %d, refused %d\n", taken, refused);
    assert_true(refused > 0 && taken < 4);
    /* Then it reads again: not an old frame, the last one. */
    size_t before = p.size;
    pty_type(&p, "hn");
    assert_true(pty_until(&p, "number 1", NULL));
    assert_true(p.size - before < 1200000);
    assert_true(until_gone("\u2580"));
    pty_type(&p, "q");
    expect_end(3);
    pty_close(&p);

    /* Killed while half a frame is out: still the terminal is put back. */
    start("xterm-256color", "C.UTF-8", NULL, 200, 50);
    assert_true(pty_until(&p, "size 200x50", NULL));
    pty_type(&p, "f");
    for (double end = pty_clock() + 20; !strstr(p.said, "flood ") && pty_clock() < end; usleep(2000)) pty_hear(&p);
    kill(pty_program(&p), SIGSEGV);
    assert_int_equal(pty_wait(&p), 128 + SIGSEGV);
    assert_true(pty_mode_is_back(&p));
    pty_close(&p);
}

static void shared_descriptor(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can give its terminal to another user: not tried\n");
        skip();
    }
    start("xterm-256color", "C.UTF-8", "DRIVER_NOBODY=1", 200, 50);
    assert_true(pty_until(&p, "size 200x50", NULL));
    assert_in_range(frame_of("H", "heat "), 100000, 260000);
    p.said_size = 0;
    pty_type(&p, "f");
    for (double end = pty_clock() + 20; !strstr(p.said, "flood ") && pty_clock() < end; usleep(2000)) pty_hear(&p);
    assert_true(reported("refused ") > 300);
    pty_type(&p, "hn");
    assert_true(pty_until(&p, "number 1", NULL));
    assert_true(until_gone("\u2580"));
    pty_type(&p, "q");
    expect_end(3);
    assert_true(pty_shows(&p, "before"));
    pty_close(&p);
}

static void stops_and_goes_on(void **state)
{
    (void)state;
    start("xterm-256color", "C.UTF-8", NULL, 60, 12);
    assert_true(pty_until(&p, "number 0", NULL));
    pid_t program = pty_program(&p);
    for (int i = 0; i < 3; i++) {
        p.said_size = 0;
        p.said[0] = 0;
        if (i == 0)
            pty_type(&p, "z");
        else /* from another program; a stop that cannot be caught */
            kill(program, i == 1 ? SIGTSTP : SIGSTOP);
        assert_true(pty_until(&p, NULL, "stopped"));
        if (i < 2) {
            while (pty_pump(&p, 20)) continue;
            assert_true(pty_mode_is_back(&p));
            assert_false(p.alternative);
            assert_true(p.cursor);
            assert_true(pty_shows(&p, "before"));
        }
        struct termios other = p.before; /* the shell in between */
        tcsetattr(p.slave, TCSANOW, &other);
        pty_resize(&p, 50 + i, 10);
        assert_true(write(pty_wake, "c", 1) == 1);
        char size[32];
        snprintf(size, sizeof size, "size %dx10", 50 + i);
        assert_true(pty_until(&p, size, NULL));
        assert_true(p.alternative);
        struct termios now = p.before;
        for (double end = pty_clock() + 5; now.c_lflag & (ICANON | ECHO | ISIG) && pty_clock() < end; pty_pump(&p, 10))
            tcgetattr(p.slave, &now);
        assert_false(now.c_lflag & (ICANON | ECHO | ISIG));
        pty_type(&p, "n");
        char number[32];
        snprintf(number, sizeof number, "number %d", i + 1);
        assert_true(pty_until(&p, number, NULL));
    }
    pty_type(&p, "q");
    assert_int_equal(pty_wait(&p), 3);
    assert_true(pty_mode_is_back(&p));
    assert_false(p.alternative);
    pty_close(&p);
}

/* Any sequence ESC [ ... m that sets a colour. */
static bool coloured(void)
{
    for (const char *at = p.bytes; at && (at = strstr(at, "\033["));) {
        const char *from = at += 2, *end = at + strspn(at, "0123456789;");
        if (*end != 'm') continue;
        while (at < end) {
            char *next;
            long n = strtol(at, &next, 10);
            if ((n >= 30 && n < 39) || (n >= 40 && n < 49)) return true;
            at = next > at ? next : at + 1;
            at += *at == ';';
        }
        at = from;
    }
    return false;
}

static void terminals(void **state)
{
    (void)state;
    static const struct {
        const char *term, *locale, *more, *reports, *shows;
    } t[] = {
        {"vt100", "C.UTF-8", NULL, "colours 0 utf8 1 braille 0", "number 0 \u672c|\u00e9"},
        {"linux", "C.UTF-8", NULL, "colours 8 utf8 1 braille 0", "number 0 \u672c|\u00e9"},
        {"screen", "C.UTF-8", NULL, "colours 8 utf8 1 braille 1", "number 0 \u672c|\u00e9"},
        {"tmux-256color", "C.UTF-8", NULL, "colours 256 utf8 1 braille 1", "number 0 \u672c|\u00e9"},
        {"xterm", "C", NULL, "colours 8 utf8 0 braille 0", "number 0 ??|?|?[31m"},
        {"xterm-256color", "C.UTF-8", "NO_COLOR=1", "colours 0 utf8 1", "number 0 \u672c|\u00e9"},
        {"xterm-256color", "xx_YY.UTF-8", NULL, "colours 256 utf8 1", "number 0 \u672c|\u00e9"},
        {"no-such-terminal", "C.UTF-8", NULL, "colours 256 utf8 1", "log TERM=no-such-terminal is not described"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        start(t[i].term, t[i].locale, t[i].more, 80, 12);
        assert_true(pty_until(&p, t[i].shows, t[i].reports));
        pty_type(&p, "t");
        pty_type(&p, "n");
        assert_true(pty_until(&p, "number 1", NULL));
        pty_type(&p, "H");
        assert_true(pty_until(&p, NULL, "key 48"));
        assert_true(pty_until(&p, "number 1", NULL));
        pty_type(&p, "q");
        assert_int_equal(pty_wait(&p), 3);
        assert_true(pty_mode_is_back(&p));
        assert_false(p.alternative);
        assert_true(p.cursor);
        assert_int_equal(count("$<"), 0); /* padding is obeyed, not shown */
        assert_true(coloured() == !strstr(t[i].reports, "colours 0"));
        if (strcmp(t[i].locale, "C") == 0)
            for (size_t k = 0; k < p.size; k++) assert_true((unsigned char)p.bytes[k] < 0x80);
        if (strcmp(t[i].term, "linux") == 0 || strcmp(t[i].term, "vt100") == 0) assert_int_equal(count("2026"), 0);
        pty_close(&p);
    }
}

/* A terminal that cannot place text, made here. */
static bool without_cup(char *folder)
{
    char command[256];
    if (!mkdtemp(folder)) return false;
    snprintf(command, sizeof command,
             "printf 'no-cup|for a test,\\n\\tcols#80, lines#24, bel=^G, cr=\\\\r, clear=\\\\E[J,\\n' | tic -o %s - 2>/dev/null", folder);
    return system(command) == 0;
}

static void refuses(void **state)
{
    (void)state;
    char folder[] = "/tmp/zf-terminfo-XXXXXX", where[64], gone[64];
    bool made = without_cup(folder);
    snprintf(where, sizeof where, "TERMINFO=%s", folder);
    static const char *const terms[] = {"dumb", "", "unknown", "no-cup"};
    for (size_t i = 0; i < (made ? 4 : 3); i++) {
        start(terms[i], "C.UTF-8", i == 3 ? where : NULL, 60, 12);
        assert_int_equal(pty_wait(&p), 2);
        assert_non_null(strstr(p.said, "refused 2 TERM"));
        assert_non_null(strstr(p.said, "--plain"));
        assert_int_equal(p.size, 0); /* not a byte */
        assert_true(pty_mode_is_back(&p));
        pty_close(&p);
    }
    snprintf(gone, sizeof gone, "rm -r %s", folder);
    assert_int_equal(system(gone), 0);
    if (!made) print_message("no tic: a terminal without cup was not tried\n");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
        cmocka_unit_test(few_bytes),
        cmocka_unit_test(storm_of_sizes),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(ends),
        cmocka_unit_test(stray_output),
        cmocka_unit_test(slow_line),
        cmocka_unit_test(shared_descriptor),
        cmocka_unit_test(stops_and_goes_on),
        cmocka_unit_test(terminals),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests_name("tui_screen", tests, NULL, NULL);
}
