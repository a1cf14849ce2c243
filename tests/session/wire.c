/* Connections: framing in pieces, lines that are too long, queues that are full, sockets where they may be. */
#include "tests/session/support.h"

#include "core/base/clock.h"
#include "core/wire/wire.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void pair(struct zf_wire *a, struct zf_wire *b, size_t line_most, size_t queue_most)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    zf_wire_open(a, fd[0], line_most, queue_most);
    zf_wire_open(b, fd[1], line_most, queue_most);
}

static void send_text(struct zf_wire *w, const char *text)
{
    assert_true(zf_wire_queue(w, text, strlen(text), 0));
    assert_int_equal(zf_wire_flush(w), ZF_WIRE_OK);
}

static void expect_line(struct zf_wire *w, const char *expected)
{
    char *line;
    size_t size;
    assert_int_equal(zf_wire_line(w, &line, &size), ZF_WIRE_LINE);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(line, expected);
}

static void expect_none(struct zf_wire *w)
{
    char *line;
    size_t size;
    assert_int_equal(zf_wire_line(w, &line, &size), ZF_WIRE_NONE);
}

static void lines_in_pieces(void **state)
{
    (void)state;
    struct zf_wire a, b;
    pair(&a, &b, 100, 1000);
    expect_none(&b);
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK); /* nothing there: it does not wait */
    send_text(&a, "one\ntw");
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK);
    expect_line(&b, "one");
    expect_none(&b);
    send_text(&a, "o\r\n\nlast");
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK);
    expect_line(&b, "two");
    expect_line(&b, "");
    expect_none(&b);
    zf_wire_close(&a);
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_ENDED);
    expect_none(&b); /* a line without its newline is none */
    zf_wire_close(&b);
    zf_wire_close(&b);
}

static void too_long(void **state)
{
    (void)state;
    char block[1000], *line;
    size_t size;
    struct zf_wire a, b;
    pair(&a, &b, 10, 5000);
    send_text(&a, "0123456789\n0123456789x\nnext\n");
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK);
    expect_line(&b, "0123456789");
    assert_int_equal(zf_wire_line(&b, &line, &size), ZF_WIRE_TOO_LONG);
    expect_line(&b, "next");
    memset(block, 'x', sizeof block);
    int told = 0;
    for (int i = 0; i < 20; i++) { /* over many reads: told once, and no memory for it */
        assert_true(zf_wire_queue(&a, block, sizeof block, 0));
        assert_int_equal(zf_wire_flush(&a), ZF_WIRE_OK);
        assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK);
        while (zf_wire_line(&b, &line, &size) == ZF_WIRE_TOO_LONG) told++;
    }
    assert_int_equal(told, 1);
    assert_true(b.passing);
    assert_int_equal(b.passed, 20 * sizeof block);
    send_text(&a, "\nafter\n");
    assert_int_equal(zf_wire_read(&b), ZF_WIRE_OK);
    expect_line(&b, "after");
    assert_true(b.in_room <= 256 << 10);
    zf_wire_close(&a);
    zf_wire_close(&b);
}

static void full_queue(void **state)
{
    (void)state;
    static char block[10000];
    struct zf_wire a, b;
    memset(block, 'y', sizeof block);
    block[sizeof block - 1] = '\n';
    pair(&a, &b, 1 << 20, 30000);
    int taken = 0;
    double from = zf_clock();
    while (taken < 10000 && zf_wire_queue(&a, block, sizeof block, 0)) { /* nobody reads */
        taken++;
        assert_int_equal(zf_wire_flush(&a), ZF_WIRE_OK);
    }
    assert_true(taken > 3 && taken < 10000);
    assert_true(zf_clock() - from < 2);
    assert_false(zf_wire_queue(&a, block, sizeof block, 0));
    assert_true(zf_wire_queue(&a, block, sizeof block, sizeof block)); /* answers have more room */
    taken++;
    char *line;
    size_t size;
    int got = 0;
    while (got < taken) {
        assert_int_equal(zf_wire_wait(&b, 1), ZF_WIRE_OK);
        while (zf_wire_line(&b, &line, &size) == ZF_WIRE_LINE) {
            assert_int_equal(size, sizeof block - 1);
            got++;
        }
        assert_int_equal(zf_wire_flush(&a), ZF_WIRE_OK);
    }
    assert_int_equal(zf_wire_queued(&a), 0);
    zf_wire_close(&b);
    send(a.fd, "x", 1, MSG_NOSIGNAL);
    assert_true(zf_wire_queue(&a, block, sizeof block, 0));
    assert_int_equal(zf_wire_flush(&a), ZF_WIRE_ENDED);
    zf_wire_close(&a);
}

static void listens(void **state)
{
    (void)state;
    char path[ZF_WIRE_PATH_MOST];
    struct zf_err e;
    struct stat st;
    int listener, client;
    unsigned uid;
    assert_int_equal(zf_wire_connect(&client, at("control.sock"), 0.1, &e), ZF_BUSY);
    assert_int_equal(zf_wire_listen(&listener, path, root, "control.sock", &e), ZF_OK);
    assert_string_equal(path, at("control.sock"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(zf_wire_accept(listener, &uid), -1);
    assert_int_equal(zf_wire_connect(&client, path, 1, &e), ZF_OK);
    int server = zf_wire_accept(listener, &uid);
    assert_true(server >= 0);
    assert_int_equal(uid, geteuid());
    close(server);
    close(client);
    close(listener); /* as if killed: the file stays */
    assert_int_equal(zf_wire_connect(&client, path, 0.1, &e), ZF_BUSY);
    assert_int_equal(zf_wire_listen(&listener, path, root, "control.sock", &e), ZF_OK);
    close(listener);
}

static void elsewhere(void **state)
{
    (void)state;
    char path[ZF_WIRE_PATH_MOST], run[300], again[ZF_WIRE_PATH_MOST], far[400];
    struct zf_err e;
    int listener, client;
    snprintf(run, sizeof run, "%s/%0150d", root, 0);
    char *runtime = strdup(at("runtime"));
    assert_int_equal(mkdir(run, 0700), 0);
    assert_int_equal(mkdir(runtime, 0700), 0);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    assert_int_equal(zf_wire_listen(&listener, path, run, "control.sock", &e), ZF_OK);
    assert_memory_equal(path, runtime, strlen(runtime));
    assert_int_equal(zf_wire_connect(&client, path, 1, &e), ZF_OK);
    close(client);
    close(listener);
    assert_int_equal(zf_wire_listen(&listener, again, run, "control.sock", &e), ZF_OK); /* the same name: what died leaves nothing */
    assert_string_equal(again, path);
    close(listener);
    snprintf(far, sizeof far, "%s/control.sock", run);
    assert_int_equal(zf_wire_connect(&client, far, 0.1, &e), ZF_BUSY); /* longer than a socket's name may be */
    write_text("control.sock", "mine");
    assert_int_equal(zf_wire_listen(&listener, path, root, "control.sock", &e), ZF_OK); /* a file of somebody's stands there */
    assert_memory_equal(path, runtime, strlen(runtime));
    expect_text("control.sock", "mine");
    close(listener);
    unsetenv("XDG_RUNTIME_DIR");
    free(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(lines_in_pieces), T(too_long), T(full_queue), T(listens), T(elsewhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
