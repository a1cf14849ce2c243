/* Keys: bytes of a terminal -> keys -> command strings. The table of bindings is keys.def; `?` lists it. Pure. */
#ifndef ZF_TUI_KEYS_H
#define ZF_TUI_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A code point, or one of these above all of them; ALT is a bit. Control keys are their bytes (1..26), Tab 9, Enter 13, Backspace 127. */
enum zf_key {
    ZF_KEY_NONE = 0x110000,
    ZF_KEY_ESCAPE,
    ZF_KEY_UP,
    ZF_KEY_DOWN,
    ZF_KEY_LEFT,
    ZF_KEY_RIGHT,
    ZF_KEY_HOME,
    ZF_KEY_END,
    ZF_KEY_PAGE_UP,
    ZF_KEY_PAGE_DOWN,
    ZF_KEY_INSERT,
    ZF_KEY_DELETE,
    ZF_KEY_BACK_TAB,
    ZF_KEY_F1, /* ..F12 follow */
    ZF_KEY_F12 = ZF_KEY_F1 + 11,
    ZF_KEY_MOUSE,
    ZF_KEY_PASTE_BEGIN,
    ZF_KEY_PASTE_END,
    ZF_KEY_FOCUS, /* something the terminal reports that means nothing here */
    ZF_KEY_ALT = 1 << 24
};

struct zf_key_event {
    uint32_t key;
    const unsigned char *bytes; /* as they came, for readline */
    size_t size;
    int x, y, button; /* MOUSE: cells from 0; 0 left, 1 middle, 2 right, 64 wheel up, 65 wheel down; -1: released */
};

/* Bytes that are no whole key yet are kept. A lone ESC is a key only when nothing follows for a while: zf_keys_idle says so. */
struct zf_keys {
    unsigned char bytes[4096];
    size_t used, taken, complete; /* complete: nothing follows the bytes before it */
};
/* false: there is no room (the caller takes keys first). */
bool zf_keys_feed(struct zf_keys *k, const unsigned char *bytes, size_t size);
bool zf_keys_next(struct zf_keys *k, struct zf_key_event *out); /* false: no whole key; `out->bytes` is valid until the next feed */
bool zf_keys_waits(const struct zf_keys *k);                    /* an ESC, or the beginning of a sequence, is kept */
void zf_keys_idle(struct zf_keys *k);                           /* nothing came for ZF_KEY_WAIT seconds: what is kept is complete */
#define ZF_KEY_WAIT 0.05

struct zf_binding {
    uint32_t key;
    const char *name, *command, *help; /* name: as `?` shows it */
};
extern const struct zf_binding zf_bindings[];
extern const size_t zf_binding_count;
/* The command of a key in the dashboard; NULL: it has none. */
const struct zf_binding *zf_binding_of(uint32_t key);

#endif
