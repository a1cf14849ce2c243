/* See keys.h. A parser from the first kept byte: a key and how many bytes it is, or nothing yet. What it says depends on the bytes alone,
 * so any split of them gives the same keys; only `complete` (nothing follows) makes a beginning a key of its own. */
#include "tui/keys.h"

#include <string.h>
#include <utf8proc.h>

const struct zf_binding zf_bindings[] = {
#define ZF_BIND(key, name, command, help) {key, name, command, help},
#include "tui/keys.def"
#undef ZF_BIND
};
const size_t zf_binding_count = sizeof zf_bindings / sizeof *zf_bindings;

const struct zf_binding *zf_binding_of(uint32_t key)
{
    for (size_t i = 0; i < zf_binding_count; i++)
        if (zf_bindings[i].key == key) return &zf_bindings[i];
    return NULL;
}

enum { ESC = 27, SEQUENCE_MOST = 64, STRING_MOST = 512, NUMBER_MOST = 100000 };

/* A view of the kept bytes; `end`: nothing follows them. */
struct view {
    const unsigned char *b;
    size_t n;
    bool end;
};

static size_t key(struct zf_key_event *out, uint32_t code, size_t size)
{
    out->key = code;
    return size;
}

/* A character. Its size; 0: it has only begun. */
static size_t character(struct view v, struct zf_key_event *out)
{
    unsigned char c = v.b[0];
    if (c < 0x80) return key(out, c == 8 ? 127 : c, 1);
    size_t size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2, have = 1;
    utf8proc_int32_t code;
    while (have < size && have < v.n && (v.b[have] & 0xc0) == 0x80) have++;
    if (c >= 0xc2 && c <= 0xf4 && have < size && have == v.n && !v.end) return 0;
    if (c >= 0xc2 && c <= 0xf4 && have == size && utf8proc_iterate(v.b, (utf8proc_ssize_t)size, &code) > 0)
        return key(out, (uint32_t)code, size);
    return key(out, 0xfffd, 1);
}

/* Numbers of a sequence: "1;5", "0;12;7"; those that are left out are 0. How many. */
static size_t numbers(const unsigned char *b, size_t n, unsigned *out, size_t most)
{
    size_t count = n > 0;
    memset(out, 0, most * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        if (b[i] == ';')
            count++;
        else if (b[i] >= '0' && b[i] <= '9' && count <= most && out[count - 1] < NUMBER_MOST)
            out[count - 1] = out[count - 1] * 10 + (b[i] - '0');
    }
    return count;
}

/* ESC [ letter, ESC O letter; lower case: rxvt with a modifier. */
static uint32_t letter_key(unsigned char c)
{
    static const struct {
        unsigned char c;
        uint32_t key;
    } rows[] = {{'A', ZF_KEY_UP},  {'B', ZF_KEY_DOWN},   {'C', ZF_KEY_RIGHT},  {'D', ZF_KEY_LEFT},   {'H', ZF_KEY_HOME},
                {'F', ZF_KEY_END}, {'a', ZF_KEY_UP},     {'b', ZF_KEY_DOWN},   {'c', ZF_KEY_RIGHT},  {'d', ZF_KEY_LEFT},
                {'P', ZF_KEY_F1},  {'Q', ZF_KEY_F1 + 1}, {'R', ZF_KEY_F1 + 2}, {'S', ZF_KEY_F1 + 3}, {'Z', ZF_KEY_BACK_TAB}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].c == c) return rows[i].key;
    return ZF_KEY_FOCUS;
}

/* ESC [ number ~, of xterm, the Linux console and rxvt. */
static uint32_t number_key(unsigned number)
{
    static const uint32_t rows[] = {
        [1] = ZF_KEY_HOME,      [2] = ZF_KEY_INSERT,  [3] = ZF_KEY_DELETE,  [4] = ZF_KEY_END,      [5] = ZF_KEY_PAGE_UP,
        [6] = ZF_KEY_PAGE_DOWN, [7] = ZF_KEY_HOME,    [8] = ZF_KEY_END,     [11] = ZF_KEY_F1,      [12] = ZF_KEY_F1 + 1,
        [13] = ZF_KEY_F1 + 2,   [14] = ZF_KEY_F1 + 3, [15] = ZF_KEY_F1 + 4, [17] = ZF_KEY_F1 + 5,  [18] = ZF_KEY_F1 + 6,
        [19] = ZF_KEY_F1 + 7,   [20] = ZF_KEY_F1 + 8, [21] = ZF_KEY_F1 + 9, [23] = ZF_KEY_F1 + 10, [24] = ZF_KEY_F12};
    if (number == 200) return ZF_KEY_PASTE_BEGIN;
    if (number == 201) return ZF_KEY_PASTE_END;
    return number < sizeof rows / sizeof *rows && rows[number] ? rows[number] : ZF_KEY_FOCUS;
}

/* A button pressed or the wheel; motion and whatever else there is mean nothing here. */
static uint32_t mouse(struct zf_key_event *out, unsigned button, unsigned column, unsigned row, bool released)
{
    button &= ~(4u | 8u | 16u); /* Shift, Alt, Ctrl */
    if (!column || !row || (button > 2 && button != 64 && button != 65)) return ZF_KEY_FOCUS;
    out->x = (int)column - 1;
    out->y = (int)row - 1;
    out->button = released ? -1 : (int)button;
    return ZF_KEY_MOUSE;
}

/* b[2..n-1): what stands between ESC [ and the last byte. */
static uint32_t csi_key(const unsigned char *b, size_t n, struct zf_key_event *out)
{
    unsigned number[3], last = b[n - 1];
    bool marked = n > 3 && b[2] >= '<' && b[2] <= '?';
    size_t count = numbers(b + 2 + marked, n - 3 - marked, number, 3);
    if (marked && b[2] == '<' && (last == 'M' || last == 'm') && count == 3)
        return mouse(out, number[0], number[1], number[2], last == 'm');
    if (marked || count > 2) return ZF_KEY_FOCUS;
    bool numbered = last == '~' || last == '^' || last == '$' || last == '@';
    uint32_t found = numbered ? number_key(number[0]) : number[0] > 1 ? (uint32_t)ZF_KEY_FOCUS : letter_key((unsigned char)last);
    /* the place of the cursor is told in the same way as F3 with a modifier: neither means anything */
    if (last == 'R') return ZF_KEY_FOCUS;
    bool alt = count == 2 && number[1] && ((number[1] - 1) & 2) && found < ZF_KEY_MOUSE;
    return found | (alt ? (uint32_t)ZF_KEY_ALT : 0);
}

/* ESC [ M and three bytes: the oldest form of mouse reports. */
static size_t old_mouse(struct view v, struct zf_key_event *out)
{
    for (size_t i = 3; i < 6; i++) {
        if (i == v.n) return v.end ? key(out, ZF_KEY_FOCUS, v.n) : 0;
        if (v.b[i] < 32) return key(out, ZF_KEY_FOCUS, i);
    }
    unsigned button = v.b[3] - 32u;
    if ((button & 0x43) == 3) return key(out, mouse(out, 0, v.b[4] - 32u, v.b[5] - 32u, true), 6);
    return key(out, mouse(out, button, v.b[4] - 32u, v.b[5] - 32u, false), 6);
}

/* What follows ESC [: up to the first byte that ends a sequence, or cannot be in one. */
static size_t csi(struct view v, struct zf_key_event *out)
{
    size_t i = 2;
    if (v.n > 2 && v.b[2] == 'M') return old_mouse(v, out);
    if (v.n > 2 && v.b[2] == '[') { /* F1..F5 of the Linux console */
        if (v.n > 3) return v.b[3] >= 'A' && v.b[3] <= 'E' ? key(out, (uint32_t)ZF_KEY_F1 + v.b[3] - 'A', 4) : key(out, ZF_KEY_FOCUS, 3);
        return v.end ? key(out, ZF_KEY_FOCUS, 3) : 0;
    }
    while (i < v.n && i < SEQUENCE_MOST && v.b[i] >= 0x20 && v.b[i] <= 0x3f) {
        if (v.b[i] == '$' && i > 2 && v.b[2] >= '0' && v.b[2] <= '9') return key(out, csi_key(v.b, i + 1, out), i + 1); /* rxvt, Shift */
        i++;
    }
    if (i == v.n && i < SEQUENCE_MOST) {
        if (!v.end) return 0;
        return v.n == 2 ? key(out, '[' | ZF_KEY_ALT, 2) : key(out, ZF_KEY_FOCUS, v.n);
    }
    if (i == SEQUENCE_MOST || v.b[i] < 0x40 || v.b[i] > 0x7e) return key(out, ZF_KEY_FOCUS, i); /* broken off */
    return key(out, csi_key(v.b, i + 1, out), i + 1);
}

/* ESC O letter, with the modifier before the letter in some terminals; the keypad. */
static size_t ss3(struct view v, struct zf_key_event *out)
{
    size_t i = 2;
    while (i < v.n && i < 8 && ((v.b[i] >= '0' && v.b[i] <= '9') || v.b[i] == ';')) i++;
    if (i == v.n && i < 8) return v.end ? key(out, 'O' | ZF_KEY_ALT, 2) : 0;
    unsigned char c = i < 8 ? v.b[i] : 0;
    if (c < 0x40 || c > 0x7e) return key(out, 'O' | ZF_KEY_ALT, 2);
    if (c == 'M') return key(out, 13, i + 1);
    if (c == 'I') return key(out, 9, i + 1);
    if (c >= 'j' && c <= 'y') return key(out, c - 0x40u, i + 1); /* * + , - . / 0..9 */
    return key(out, letter_key(c), i + 1);
}

/* ESC ] digit and ESC P digit: an answer of the terminal, up to BEL or ESC \. Something else: a key with Alt. */
static size_t answer(struct view v, struct zf_key_event *out)
{
    if (v.n == 2 && !v.end) return 0;
    bool begins = v.n > 2 && ((v.b[2] >= '0' && v.b[2] <= '9') || (v.b[1] == 'P' && (v.b[2] == '>' || v.b[2] == '!')));
    for (size_t i = 2; begins && i < v.n && i < STRING_MOST; i++) {
        if (v.b[i] == 7) return key(out, ZF_KEY_FOCUS, i + 1);
        if (v.b[i] == ESC && i + 1 == v.n && !v.end) return 0;
        if (v.b[i] == ESC && i + 1 < v.n && v.b[i + 1] == '\\') return key(out, ZF_KEY_FOCUS, i + 2);
        begins = v.b[i] >= 32;
    }
    if (begins && v.n < STRING_MOST && !v.end) return 0;
    return key(out, v.b[1] | (uint32_t)ZF_KEY_ALT, 2);
}

/* The first key and its size; 0: it has only begun. */
static size_t parse(struct view v, struct zf_key_event *out)
{
    if (v.b[0] != ESC) return character(v, out);
    if (v.n == 1) return v.end ? key(out, ZF_KEY_ESCAPE, 1) : 0;
    struct view rest = {v.b + 1, v.n - 1, v.end};
    size_t size;
    switch (v.b[1]) {
    case '[': return csi(v, out);
    case 'O': return ss3(v, out);
    case ']':
    case 'P': return answer(v, out);
    case ESC: /* Escape twice, or rxvt's Alt with an arrow */
        if (rest.n == 1 && !v.end) return 0;
        if (rest.n == 1 || (rest.b[1] != '[' && rest.b[1] != 'O')) return key(out, ZF_KEY_ESCAPE, 1);
        size = parse(rest, out);
        if (!size) return 0;
        if (size > 2 && out->key >= ZF_KEY_UP && out->key < ZF_KEY_MOUSE) return key(out, out->key | ZF_KEY_ALT, size + 1);
        return key(out, ZF_KEY_ESCAPE, 1);
    default: size = character(rest, out); return size ? key(out, out->key | ZF_KEY_ALT, size + 1) : 0;
    }
}

static size_t next(const struct zf_keys *k, struct zf_key_event *out)
{
    bool end = k->complete > k->taken;
    struct view v = {k->bytes + k->taken, (end ? k->complete : k->used) - k->taken, end};
    *out = (struct zf_key_event){.key = ZF_KEY_NONE, .bytes = v.b};
    return v.n ? parse(v, out) : 0;
}

bool zf_keys_feed(struct zf_keys *k, const unsigned char *bytes, size_t size)
{
    if (size > sizeof k->bytes - (k->used - k->taken)) return false;
    memmove(k->bytes, k->bytes + k->taken, k->used - k->taken);
    k->used -= k->taken;
    k->complete -= k->complete < k->taken ? k->complete : k->taken;
    k->taken = 0;
    if (size) memcpy(k->bytes + k->used, bytes, size);
    k->used += size;
    return true;
}

bool zf_keys_next(struct zf_keys *k, struct zf_key_event *out)
{
    size_t size = next(k, out);
    out->size = size;
    k->taken += size;
    return size > 0;
}

bool zf_keys_waits(const struct zf_keys *k)
{
    struct zf_key_event e;
    return k->used > k->taken && !next(k, &e);
}

void zf_keys_idle(struct zf_keys *k)
{
    k->complete = k->used;
}
