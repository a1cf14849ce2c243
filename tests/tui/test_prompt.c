/* The prompt: bytes in, cells and lines out. */
#include "prompt_child.h"

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

/* Pages of the process. */
static long memory(void)
{
    long all = 0, mine = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &mine) == 2);
    fclose(f);
    return mine * sysconf(_SC_PAGESIZE);
}

/* What is typed beyond the longest line is nothing, and costs nothing: a paste without marks, a key that is stuck. */
static void too_long(void)
{
    static char much[500001];
    memset(much, 'y', sizeof much - 1);
    open_prompt();
    type("y");
    long before = memory();
    for (int i = 0; i < 4; i++) type(much);
    long after = memory();
    if (after - before > 64 << 20) fprintf(stderr, "%ld KiB more\n", (after - before) >> 10);
    CHECK(after - before <= 64 << 20);
    type("\x01");
    type("abc");
    draw();
    CHECK(canvas.cell[4].code == 'y');
    zf_prompt_clear();
    type("ok\r");
    CHECK(!strcmp(ran, "ok|"));
    close_prompt();
}

/* A file of keys that readline would not come back from is not read, and that is said; the prompt is there. */
static void bad_inputrc(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/inputrc", folder);
    const char *how = getenv("BAD");
    if (!strcmp(how, "fifo")) CHECK(!unlink(path) && !mkfifo(path, 0600));
    if (!strcmp(how, "itself")) {
        char text[96];
        snprintf(text, sizeof text, "set bell-style none\n  $Include %s\n", path);
        put_file(path, text);
    }
    if (!strcmp(how, "large")) CHECK(!truncate(path, 64 << 20));
    alarm(20);
    open_prompt();
    CHECK(zf_prompt_complaint() && strstr(zf_prompt_complaint(), path) && strstr(zf_prompt_complaint(), "not read"));
    CHECK(!strcmp(getenv("INPUTRC"), path));
    type("ok\r");
    CHECK(!strcmp(ran, "ok|"));
    close_prompt();
    unlink(path);
}

static void fine_inputrc(void)
{
    alarm(20);
    open_prompt();
    CHECK(!zf_prompt_complaint());
    type("\x18"
         "k"); /* stands for very much */
    type("\x15ok\r");
    CHECK(strstr(ran, "ok|"));
    close_prompt();
}

static void run_bad_inputrc(void **state)
{
    (void)state;
    static const char *const hows[] = {"fifo", "itself", "large"};
    for (size_t i = 0; i < 3; i++) {
        setenv("BAD", hows[i], 1);
        assert_int_equal(in_child(bad_inputrc, ""), 0);
    }
}

static void run_macro_bomb(void **state)
{
    (void)state;
    char rc[8192] = "", text[2048] = "";
    for (int level = 0; level < 4; level++) { /* each one 250 times the next: 4 * 10^9 keys */
        text[0] = 0;
        for (int i = 0; i < 250; i++) strcat(text, level == 3 ? "x" : level == 2 ? "\\C-xn" : level == 1 ? "\\C-xm" : "\\C-xl");
        snprintf(rc + strlen(rc), sizeof rc - strlen(rc), "\"\\C-x%c\": \"%s\"\n", 'k' + level, text);
    }
    assert_int_equal(in_child(fine_inputrc, rc), 0);
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
static const char inputrc_text[] =
    "set bell-style audible\nset convert-meta on\nset enable-bracketed-paste off\nset horizontal-scroll-mode on\n"
    "$if zenflow\n\"\\C-t\": \"set topk_ratio \"\n\"\\e[24~\": \"9\"\n"
    "\"\\C-o\": \"ab\\C-xu\\C-xqcz\\C-b\\C-b\"\n\"\\C-xy\": \"<\\C-t>\"\n\"\\C-xx\": \"r\\C-xx\"\n"
    "\"\\C-xm\": \"one\\rtwo\"\n$endif\n$if Bash\n\"\\C-t\": \"no\"\n$endif\n";

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

static void random_keys(void)
{
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD(editing, ""),
        CHILD(wide, ""),
        CHILD(too_long, ""),
        cmocka_unit_test(run_bad_inputrc),
        cmocka_unit_test(run_macro_bomb),
        CHILD(scrolling, ""),
        CHILD(pasting, ""),
        CHILD(completing, ""),
        CHILD(vi, "set editing-mode vi\nset show-mode-in-prompt on\n"),
        CHILD(inputrc, inputrc_text),
        CHILD(random_keys, ""),
        CHILD(random_keys, "set editing-mode vi\n"),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
