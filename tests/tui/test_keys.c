/* Keys: sequences of the usual terminals, every split of the bytes, any bytes at all; the table of bindings. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/session/commands.h"
#include "tui/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };
struct seen {
    struct {
        uint32_t key;
        size_t size;
        int x, y, button;
    } list[MOST];
    size_t count, bytes;
};

static void take(struct zf_keys *k, struct seen *s)
{
    struct zf_key_event e;
    while (zf_keys_next(k, &e)) {
        assert_true(e.size > 0 && s->count < MOST);
        s->list[s->count].key = e.key;
        s->list[s->count].size = e.size;
        s->list[s->count].x = e.x;
        s->list[s->count].y = e.y;
        s->list[s->count++].button = e.button;
        s->bytes += e.size;
    }
}

static void feed(struct zf_keys *k, struct seen *s, const unsigned char *b, size_t n)
{
    assert_true(zf_keys_feed(k, b, n));
    take(k, s);
}

/* What is kept when nothing more comes. */
static void finish(struct zf_keys *k, struct seen *s)
{
    zf_keys_idle(k);
    take(k, s);
    assert_false(zf_keys_waits(k));
    assert_int_equal(k->used, k->taken);
}

static void assert_same(const struct seen *a, const struct seen *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->list[i].key, b->list[i].key);
        assert_int_equal(a->list[i].size, b->list[i].size);
        assert_int_equal(a->list[i].x, b->list[i].x);
        assert_int_equal(a->list[i].y, b->list[i].y);
        assert_int_equal(a->list[i].button, b->list[i].button);
    }
}

static struct seen whole(const unsigned char *b, size_t n)
{
    struct zf_keys k = {0};
    struct seen s = {0};
    feed(&k, &s, b, n);
    finish(&k, &s);
    assert_int_equal(s.bytes, n); /* nothing is lost, nothing stays */
    return s;
}

#define ALT(key) ((uint32_t)(key) | ZF_KEY_ALT)
static const struct {
    const char *bytes;
    uint32_t key;
} rows[] = {
    {"a", 'a'},
    {"\x01", 1},
    {"\t", 9},
    {"\r", 13},
    {"\n", 10},
    {"\x7f", 127},
    {"\b", 127},
    {"\x1a", 26},
    {"\xc3\xa4", 0xe4},
    {"\xe6\x9c\xac", 0x672c},
    {"\xf0\x9f\x99\x82", 0x1f642},
    {"\x1b", ZF_KEY_ESCAPE},
    {"\x1b"
     "b",
     ALT('b')},
    {"\x1b\x7f", ALT(127)},
    {"\x1b\xc3\xa4", ALT(0xe4)},
    {"\x1b[", ALT('[')},
    {"\x1bO", ALT('O')},
    {"\x1b]", ALT(']')},
    {"\x1bP", ALT('P')},
    /* xterm */
    {"\x1b[A", ZF_KEY_UP},
    {"\x1b[B", ZF_KEY_DOWN},
    {"\x1b[C", ZF_KEY_RIGHT},
    {"\x1b[D", ZF_KEY_LEFT},
    {"\x1bOA", ZF_KEY_UP},
    {"\x1bOD", ZF_KEY_LEFT},
    {"\x1b[H", ZF_KEY_HOME},
    {"\x1bOF", ZF_KEY_END},
    {"\x1b[1~", ZF_KEY_HOME},
    {"\x1b[4~", ZF_KEY_END},
    {"\x1b[2~", ZF_KEY_INSERT},
    {"\x1b[3~", ZF_KEY_DELETE},
    {"\x1b[5~", ZF_KEY_PAGE_UP},
    {"\x1b[6~", ZF_KEY_PAGE_DOWN},
    {"\x1b[Z", ZF_KEY_BACK_TAB},
    {"\x1b[1;2A", ZF_KEY_UP},
    {"\x1b[1;5D", ZF_KEY_LEFT},
    {"\x1b[1;3C", ALT(ZF_KEY_RIGHT)},
    {"\x1b[5;3~", ALT(ZF_KEY_PAGE_UP)},
    {"\x1bOP", ZF_KEY_F1},
    {"\x1bOS", ZF_KEY_F1 + 3},
    {"\x1b[1;5P", ZF_KEY_F1},
    {"\x1bO5P", ZF_KEY_F1},
    {"\x1b[15~", ZF_KEY_F1 + 4},
    {"\x1b[15;2~", ZF_KEY_F1 + 4},
    {"\x1b[17~", ZF_KEY_F1 + 5},
    {"\x1b[21~", ZF_KEY_F1 + 9},
    {"\x1b[23~", ZF_KEY_F1 + 10},
    {"\x1b[24~", ZF_KEY_F12},
    /* the Linux console */
    {"\x1b[[A", ZF_KEY_F1},
    {"\x1b[[E", ZF_KEY_F1 + 4},
    /* rxvt */
    {"\x1b[11~", ZF_KEY_F1},
    {"\x1b[14~", ZF_KEY_F1 + 3},
    {"\x1b[7~", ZF_KEY_HOME},
    {"\x1b[8~", ZF_KEY_END},
    {"\x1b[7$", ZF_KEY_HOME},
    {"\x1b[8^", ZF_KEY_END},
    {"\x1b[3@", ZF_KEY_DELETE},
    {"\x1b[a", ZF_KEY_UP},
    {"\x1bOd", ZF_KEY_LEFT},
    {"\x1b\x1b[A", ALT(ZF_KEY_UP)},
    {"\x1b\x1bOB", ALT(ZF_KEY_DOWN)},
    {"\x1b\x1b[6~", ALT(ZF_KEY_PAGE_DOWN)},
    /* keypad */
    {"\x1bOM", 13},
    {"\x1bOk", '+'},
    {"\x1bOp", '0'},
    {"\x1bOy", '9'},
    {"\x1b[200~", ZF_KEY_PASTE_BEGIN},
    {"\x1b[201~", ZF_KEY_PASTE_END},
    /* told by the terminal */
    {"\x1b[I", ZF_KEY_FOCUS},
    {"\x1b[O", ZF_KEY_FOCUS},
    {"\x1b[24;80R", ZF_KEY_FOCUS},
    {"\x1b[1;2R", ZF_KEY_FOCUS},
    {"\x1b[?62;4c", ZF_KEY_FOCUS},
    {"\x1b[?2026;2$y", ZF_KEY_FOCUS},
    {"\x1b[>41;351;0c", ZF_KEY_FOCUS},
    {"\x1b]11;rgb:0000/0000/0000\x07", ZF_KEY_FOCUS},
    {"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", ZF_KEY_FOCUS},
    {"\x1bP>|XTerm(370)\x1b\\", ZF_KEY_FOCUS},
    {"\x1b[99~", ZF_KEY_FOCUS},
    {"\x1b[<0;3;4M", ZF_KEY_MOUSE},
    {"\x1b[<35;3;4M", ZF_KEY_FOCUS}, /* motion */
    {"\x1b[<0;3M", ZF_KEY_FOCUS},
    {"\x1b[<0;0;0M", ZF_KEY_FOCUS},
    {"\x1b[M !!", ZF_KEY_MOUSE},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void test_sequences(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        struct seen s = whole((const unsigned char *)rows[i].bytes, strlen(rows[i].bytes));
        if (s.count != 1 || s.list[0].key != rows[i].key)
            fail_msg("row %zu (%s): %zu keys, the first %x, not %x", i, rows[i].bytes + 1, s.count, s.list[0].key, rows[i].key);
    }
}

/* All rows after each other, cut in two at every place, and fed byte by byte: keys need no pause between them. */
static void test_splits(void **state)
{
    (void)state;
    unsigned char all[4096];
    size_t n = 0;
    for (size_t i = 0; i < ROWS; i++) {
        size_t size = strlen(rows[i].bytes);
        if (rows[i].key == ZF_KEY_ESCAPE || (size == 2 && strchr("[O]P", rows[i].bytes[1]))) continue; /* need a pause */
        memcpy(all + n, rows[i].bytes, size);
        n += size;
    }
    struct seen one = whole(all, n);
    assert_true(one.count >= ROWS - 5);
    for (size_t cut = 0; cut <= n; cut++) {
        struct zf_keys k = {0};
        struct seen s = {0};
        feed(&k, &s, all, cut);
        feed(&k, &s, all + cut, n - cut);
        finish(&k, &s);
        assert_same(&one, &s);
    }
    struct zf_keys k = {0};
    struct seen s = {0};
    for (size_t i = 0; i < n; i++) feed(&k, &s, all + i, 1);
    finish(&k, &s);
    assert_same(&one, &s);
}

static void test_pause(void **state)
{
    (void)state;
    struct zf_keys k = {0};
    struct seen s = {0};
    feed(&k, &s, (const unsigned char *)"\x1b", 1);
    assert_int_equal(s.count, 0);
    assert_true(zf_keys_waits(&k));
    zf_keys_idle(&k);
    feed(&k, &s, (const unsigned char *)"[A", 2); /* too late: the pause has made it an Escape */
    assert_int_equal(s.count, 3);
    assert_int_equal(s.list[0].key, ZF_KEY_ESCAPE);
    assert_int_equal(s.list[1].key, '[');
    assert_int_equal(s.list[2].key, 'A');
    feed(&k, &s, (const unsigned char *)"\x1b[A", 3);
    assert_int_equal(s.list[3].key, ZF_KEY_UP);
    assert_false(zf_keys_waits(&k));
    feed(&k, &s, (const unsigned char *)"\x1b\x1b", 2);
    finish(&k, &s);
    assert_int_equal(s.count, 6);
    assert_int_equal(s.list[4].key, ZF_KEY_ESCAPE);
    assert_int_equal(s.list[5].key, ZF_KEY_ESCAPE);
    feed(&k, &s, (const unsigned char *)"\x1b:", 2); /* Alt: the next key came at once */
    assert_int_equal(s.list[6].key, ALT(':'));
    feed(&k, &s, (const unsigned char *)"\xe6\x9c", 2);
    assert_true(zf_keys_waits(&k));
    finish(&k, &s);
    assert_int_equal(s.list[7].key, 0xfffd);
    assert_int_equal(s.list[8].key, 0xfffd);
}

static void test_mouse(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int x, y, button;
    } events[] = {{"\x1b[<0;1;1M", 0, 0, 0},   {"\x1b[<2;300;100M", 299, 99, 2}, {"\x1b[<0;5;6m", 4, 5, -1},
                  {"\x1b[<64;2;3M", 1, 2, 64}, {"\x1b[<65;2;3M", 1, 2, 65},      {"\x1b[<16;2;3M", 1, 2, 0},
                  {"\x1b[M !\"", 0, 1, 0},     {"\x1b[M#!\"", 0, 1, -1},         {"\x1b[M`!\"", 0, 1, 64}};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct seen s = whole((const unsigned char *)events[i].bytes, strlen(events[i].bytes));
        assert_int_equal(s.count, 1);
        assert_int_equal(s.list[0].key, ZF_KEY_MOUSE);
        assert_int_equal(s.list[0].x, events[i].x);
        assert_int_equal(s.list[0].y, events[i].y);
        assert_int_equal(s.list[0].button, events[i].button);
    }
    const char *most = "\x1b[<0;99999999999999999999;4M";
    struct seen far = whole((const unsigned char *)most, strlen(most));
    assert_int_equal(far.count, 1);
    assert_true(far.list[0].x > 0); /* no overflow */
}

/* A sequence that is broken off ends where it cannot go on, and what follows is read as it is. */
static void test_broken(void **state)
{
    (void)state;
    struct seen s = whole((const unsigned char *)"\x1b[1;\x03q\x1b[12\x1b[Ax", 14);
    assert_int_equal(s.count, 6);
    assert_int_equal(s.list[0].key, ZF_KEY_FOCUS);
    assert_int_equal(s.list[1].key, 3);
    assert_int_equal(s.list[2].key, 'q');
    assert_int_equal(s.list[3].key, ZF_KEY_FOCUS);
    assert_int_equal(s.list[4].key, ZF_KEY_UP);
    assert_int_equal(s.list[5].key, 'x');
    static const char *const bad[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\x80", "\xe0\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n = strlen(bad[i]);
        s = whole((const unsigned char *)bad[i], n);
        assert_int_equal(s.count, n);
        for (size_t j = 0; j < n; j++) assert_int_equal(s.list[j].key, 0xfffd);
    }
}

static uint64_t seed = 7;
static unsigned chance(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

/* Bytes that like to be sequences, in pieces: the same keys as at once; never more kept than a sequence may be. */
static void test_random(void **state)
{
    (void)state;
    static const char often[] = "\x1b\x1b\x1b[[O]P<?;$~M0123456789AmRZ\x07\\\xe6\x9c\xac\xc3";
    for (size_t round = 0; round < 20000; round++) {
        unsigned char b[700];
        size_t n = 1 + chance(round % 50 ? 40 : 700);
        bool long_one = n > 500 && chance(2);
        for (size_t i = 0; i < n; i++)
            b[i] = long_one && i > 4 ? '0' + (unsigned char)chance(10)
                   : chance(8)       ? (unsigned char)often[chance(sizeof often - 1)]
                                     : (unsigned char)chance(256);
        if (long_one) memcpy(b, chance(2) ? "\x1b[1;0" : "\x1b]10;", 5);
        struct seen one = whole(b, n), s = {0};
        struct zf_keys k = {0};
        for (size_t at = 0, piece; at < n; at += piece) {
            piece = 1 + chance(7);
            if (piece > n - at) piece = n - at;
            feed(&k, &s, b + at, piece);
            assert_true(k.used - k.taken <= 520);
            assert_true(zf_keys_waits(&k) == (k.used > k.taken));
        }
        finish(&k, &s);
        assert_same(&one, &s);
    }
}

static void test_room(void **state)
{
    (void)state;
    struct zf_keys k = {0};
    struct zf_key_event e;
    static unsigned char b[sizeof k.bytes + 1];
    memset(b, 'x', sizeof b);
    assert_false(zf_keys_feed(&k, b, sizeof b));
    assert_true(zf_keys_feed(&k, b, sizeof b - 1));
    assert_false(zf_keys_feed(&k, b, 1));
    assert_true(zf_keys_next(&k, &e));
    assert_true(zf_keys_feed(&k, b, 1));
    assert_false(zf_keys_feed(&k, b, 1));
}

/* Every row has a command that exists, and is found; the first of a group has the words for `?`. */
static void test_bindings(void **state)
{
    (void)state;
    for (size_t i = 0; i < zf_binding_count; i++) {
        const struct zf_binding *b = &zf_bindings[i];
        char name[64];
        assert_ptr_equal(zf_binding_of(b->key), b); /* no key twice */
        assert_true(!b->name == !b->help);
        assert_non_null(b->command);
        assert_true(sscanf(b->command, "%63s", name) == 1);
        if (name[0] != '.') assert_non_null(zf_command_find(name));
    }
    assert_true(zf_binding_count > 30);
    assert_null(zf_binding_of(0x1f642));
    assert_null(zf_binding_of(ALT('q')));
    assert_string_equal(zf_binding_of('?')->command, ".help");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_splits), cmocka_unit_test(test_pause), cmocka_unit_test(test_mouse),
        cmocka_unit_test(test_broken),    cmocka_unit_test(test_random), cmocka_unit_test(test_room),  cmocka_unit_test(test_bindings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
