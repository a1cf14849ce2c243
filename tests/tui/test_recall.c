/* Lines of before: looking for them, keeping them in a file, more than one console. */
#include "prompt_child.h"

static char *file_text(const char *path)
{
    static char text[65536];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    CHECK(n >= 0 && close(fd) == 0);
    text[n] = 0;
    return text;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD(searching, ""),        CHILD(recalling, "\"\\C-p\": history-search-backward\n\"\\C-n\": history-search-forward\n"),
        CHILD(recalling_quotes, ""), CHILD(keeping, ""),
        CHILD(sharing, ""),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
