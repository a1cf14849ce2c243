/* See prompt.h. readline edits a line in memory: it is handed whole keys through a queue, never reads a descriptor, never writes to one,
 * sets no signals and no modes of the terminal. The state is readline's and therefore global; one thread. The history is our own:
 * prompt_recall.c. */
#include "tui/prompt.h"

#include "tui/keys.h"
#include "tui/prompt_history.h"
#include "tui/prompt_inputrc.h"
#include "tui/prompt_recall.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <readline/readline.h>

enum { LINE_MOST = 65536, MACROS_MOST = 256, MACRO_DEPTH = 4, MACRO_MOST = 16384 };

static struct {
    struct zf_prompt_hooks hooks;
    bool open, initialized, dirty, utf8;
    FILE *null_in, *null_out;
    char label[32];
    int scroll; /* columns that are left of the view */
    struct {
        const unsigned char *at;
        size_t left;
    } key; /* what readline may take now */
    bool pasting;
    bool gap; /* a paste's line break, a blank if something follows */
    struct macro {
        Keymap map;
        int key;
        const char *text; /* readline's */
    } macro[MACROS_MOST];
    size_t macros;
    const char *wanted; /* text of the macro whose key has just come */
    int depth;          /* macros within macros */
    size_t macro_left;  /* bytes of macros that one key may still stand for */
    char complaint[512];
    bool taking; /* in the caller's `line` */
    char *later; /* set there; readline empties the line after it */
    struct zf_candidates found;
    size_t found_at;   /* of those that are handed over one by one */
    size_t shown_from; /* of a match, where matches are shown */
} p;

/* ---- what readline calls */

static int get_byte(FILE *in)
{
    (void)in;
    if (!p.key.left) return EOF;
    p.key.left--;
    return *p.key.at++;
}

static int bytes_left(void)
{
    return p.key.left > 0;
}

static void redisplay(void)
{
    p.dirty = true;
}

static void take_line(char *line)
{
    if (!line) return; /* the end of a file, which there is none */
    if (!strcmp(p.label, ZF_PROMPT_LABEL)) zf_prompt_history_add(line);
    zf_recall_reset();
    p.scroll = 0;
    p.dirty = true;
    p.taking = true;
    if (p.hooks.line) p.hooks.line(p.hooks.ctx, line);
    p.taking = false;
    free(line);
}

/* ---- completion */

/* readline is told that the whole line is one word (no characters break it), so that where words begin is decided in one place. */
static char *next_match(const char *text, int again)
{
    char *match;
    if (!again) p.found_at = 0;
    if (p.found_at == p.found.count) return NULL;
    if (asprintf(&match, "%.*s%s", (int)p.found.start, text, p.found.list[p.found_at++]) < 0) return NULL;
    return match;
}

static char **complete(const char *text, int start, int end)
{
    size_t size = strlen(text);
    (void)start;
    (void)end;
    rl_attempted_completion_over = 1; /* readline knows nothing better */
    zf_candidates_free(&p.found);
    if (p.hooks.complete) p.hooks.complete(p.hooks.ctx, text, size, &p.found);
    if (p.found.start > size) return zf_candidates_free(&p.found), NULL;
    if (p.found.files) zf_complete_files(&p.found, text + p.found.start);
    const char *slash = p.found.files ? strrchr(text + p.found.start, '/') : NULL;
    p.shown_from = slash ? (size_t)(slash + 1 - text) : p.found.start;
    char **matches = p.found.count ? rl_completion_matches(text, next_match) : NULL;
    if (matches && !matches[1]) {
        size_t n = strlen(matches[0]);
        bool quoted = p.found.files && p.found.start && text[p.found.start - 1] == '"';
        rl_completion_suppress_append = n && matches[0][n - 1] == '/'; /* a folder: to be gone on with */
        rl_completion_append_character = quoted ? '"' : ' ';
    }
    zf_candidates_free(&p.found);
    return matches;
}

static void show_matches(char **matches, int count, int longest)
{
    (void)longest;
    char **list = count > 0 ? calloc((size_t)count, sizeof *list) : NULL;
    for (int i = 0; list && i < count; i++) {
        size_t n = strlen(matches[i + 1]);
        list[i] = matches[i + 1] + (p.shown_from < n ? p.shown_from : n);
    }
    if (list && p.hooks.matches) p.hooks.matches(p.hooks.ctx, list, (size_t)count);
    free(list);
    p.dirty = true;
}

/* ---- open and close */

/* A key of ~/.inputrc that stands for others: they are handed over one by one, as if they were typed. readline 8.2 itself follows a null
 * pointer where there is a sequence among them that does nothing. */
static int run_macro(int count, int key)
{
    (void)count;
    for (size_t i = 0; i < p.macros; i++)
        if (p.macro[i].map == rl_executing_keymap && p.macro[i].key == key) p.wanted = p.macro[i].text;
    return 0;
}

static void replace(Keymap map, int depth)
{
    for (int key = 0; key < KEYMAP_SIZE; key++) {
        KEYMAP_ENTRY *entry = &map[key];
        if (entry->type == ISKMAP && depth) replace((Keymap)entry->function, depth - 1);
        if (entry->type == ISMACR) {
            if (p.macros < MACROS_MOST) p.macro[p.macros++] = (struct macro){map, key, (const char *)entry->function};
            entry->type = ISFUNC;
            entry->function = run_macro;
        }
        if (entry->type == ISFUNC) entry->function = zf_recall_instead(entry->function);
    }
}

/* Without ~/.inputrc, where reading it might take forever. */
static void begin_readline(void)
{
    bool fine = p.initialized || zf_inputrc_is_fine(p.complaint, sizeof p.complaint);
    const char *named = getenv("INPUTRC");
    char *kept = named ? strdup(named) : NULL;
    if (!fine) setenv("INPUTRC", "/dev/null", 1);
    rl_initialize();
    if (!fine && kept) setenv("INPUTRC", kept, 1);
    if (!fine && !kept) unsetenv("INPUTRC");
    free(kept);
}

static void set_readline(void)
{
    rl_readline_name = "zenflow"; /* `$if zenflow` in ~/.inputrc */
    rl_instream = p.null_in;
    rl_outstream = p.null_out;
    rl_catch_signals = rl_catch_sigwinch = 0;
    rl_change_environment = 0;
    rl_prep_term_function = NULL;
    rl_deprep_term_function = NULL;
    rl_getc_function = get_byte;
    rl_input_available_hook = bytes_left;
    rl_redisplay_function = redisplay;
    rl_attempted_completion_function = complete;
    rl_completion_display_matches_hook = show_matches;
    rl_completer_word_break_characters = "\n";
    rl_completer_quote_characters = NULL;
    begin_readline();
    if (!p.initialized) {
        replace(emacs_standard_keymap, 8);
        replace(vi_insertion_keymap, 8);
        replace(vi_movement_keymap, 8);
    }
    p.initialized = true;
    rl_tty_set_echoing(0);
    rl_variable_bind("bell-style", "none"); /* it would ring on stderr */
    if (!p.utf8) return;
    rl_variable_bind("convert-meta", "off"); /* bytes of characters are no keys with Alt */
    rl_variable_bind("input-meta", "on");
    rl_variable_bind("output-meta", "on");
}

bool zf_prompt_open(const struct zf_prompt_hooks *hooks, const char *history)
{
    if (p.open) return false;
    p.hooks = *hooks;
    p.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    p.null_in = fopen("/dev/null", "re");
    p.null_out = fopen("/dev/null", "we");
    if (!p.null_in || !p.null_out) {
        if (p.null_in) fclose(p.null_in);
        if (p.null_out) fclose(p.null_out);
        return false;
    }
    set_readline();
    zf_prompt_history_open(history);
    zf_recall_reset();
    snprintf(p.label, sizeof p.label, "%s", ZF_PROMPT_LABEL);
    rl_callback_handler_install(p.label, take_line);
    p.open = p.dirty = true;
    p.pasting = p.gap = false;
    p.scroll = 0;
    return true;
}

void zf_prompt_close(void)
{
    if (!p.open) return;
    zf_prompt_clear();
    rl_callback_handler_remove();
    zf_prompt_history_close();
    rl_instream = rl_outstream = NULL;
    fclose(p.null_in);
    fclose(p.null_out);
    p.open = false;
}

/* ---- input */

/* Longer lines are nobody's commands. */
static void cut_line(void)
{
    if (rl_end <= LINE_MOST) return;
    int end = LINE_MOST;
    while (end && (rl_line_buffer[end] & 0xc0) == 0x80) end--;
    rl_delete_text(end, rl_end);
    if (rl_point > rl_end) rl_point = rl_end;
}

static void give_readline(const unsigned char *bytes, size_t size)
{
    p.key.at = bytes;
    p.key.left = size;
    for (size_t before, spare = 8; p.key.left && p.open && spare; spare -= p.key.left == before) { /* it may push something back first */
        before = p.key.left;
        rl_callback_read_char();
    }
    p.key.left = 0;
    if (p.open) cut_line();
    if (p.open && p.later) zf_prompt_set(p.later);
    free(p.later);
    p.later = NULL;
}

/* What is pasted is text, whatever is in it: nothing of it is a key, and a line break runs nothing. */
static void paste(const struct zf_key_event *e)
{
    char text[8];
    size_t size = 0;
    if (e->key == '\r' || e->key == '\n' || e->key == '\t') {
        p.gap = true;
        return;
    }
    if (!zf_recall_is_text(e, p.utf8)) return;
    if (p.gap && (rl_end || zf_recall_searches())) text[size++] = ' ';
    p.gap = false;
    memcpy(text + size, e->bytes, e->size);
    size += e->size;
    text[size] = 0;
    if (zf_recall_searches())
        zf_recall_add(text, size);
    else if (rl_end < LINE_MOST)
        rl_insert_text(text);
}

/* Sequences that are bound to nothing would be taken for text by their ends. */
static bool is_bound(const struct zf_key_event *e)
{
    int type;
    char sequence[80];
    if (e->bytes[0] != 27 || e->size < 3) return true;
    if (e->size >= sizeof sequence || e->key == ZF_KEY_MOUSE || e->key == ZF_KEY_FOCUS) return false;
    memcpy(sequence, e->bytes, e->size);
    sequence[e->size] = 0;
    return rl_function_of_keyseq_len(sequence, e->size, NULL, &type) && type != ISKMAP;
}

static void take_bytes(const unsigned char *bytes, size_t size);

static void take_macro(void)
{
    const char *text = p.wanted;
    p.wanted = NULL;
    size_t size = text ? strlen(text) : 0;
    if (!p.depth) p.macro_left = MACRO_MOST;
    if (!size || size > p.macro_left || p.depth == MACRO_DEPTH) return;
    p.macro_left -= size;
    p.depth++;
    take_bytes((const unsigned char *)text, size);
    p.depth--;
}

static void take_key(const struct zf_key_event *e)
{
    if (e->key == ZF_KEY_PASTE_BEGIN || e->key == ZF_KEY_PASTE_END) {
        p.pasting = e->key == ZF_KEY_PASTE_BEGIN;
        p.gap = false;
    } else if (p.pasting) {
        paste(e);
    } else if (zf_recall_key(e, p.utf8)) {
        return;
    } else if (e->key == 4 && !rl_end) {
        return; /* Ctrl-D on an empty line: there is no end of input here */
    } else if (rl_end >= LINE_MOST && zf_recall_is_text(e, p.utf8) && rl_get_keymap() != vi_movement_keymap &&
               !RL_ISSTATE(RL_STATE_MULTIKEY)) {
        return; /* readline would note each one for undo, at a hundred times its size */
    } else if (is_bound(e) && e->key != 0xfffd && (p.utf8 || (e->key & ~(uint32_t)ZF_KEY_ALT) < 0x80 || e->key >= ZF_KEY_NONE)) {
        give_readline(e->bytes, e->size);
    }
}

static void take_bytes(const unsigned char *bytes, size_t size)
{
    struct zf_keys k = {0};
    struct zf_key_event e;
    for (size_t done = 0; done < size;) {
        size_t piece = size - done < sizeof k.bytes / 2 ? size - done : sizeof k.bytes / 2;
        if (!zf_keys_feed(&k, bytes + done, piece)) break;
        done += piece;
        if (done == size) zf_keys_idle(&k);
        while (p.open && zf_keys_next(&k, &e)) {
            take_key(&e);
            take_macro();
        }
    }
}

void zf_prompt_bytes(const unsigned char *bytes, size_t size)
{
    if (!p.open) return;
    take_bytes(bytes, size);
    p.dirty = true;
}

/* ---- what others set and ask */

void zf_prompt_clear(void)
{
    if (!p.open) return;
    rl_free_line_state();
    rl_callback_sigcleanup();
    rl_replace_line("", 1);
    rl_point = rl_mark = 0;
    rl_set_prompt(p.label); /* in place of a message */
    if (rl_editing_mode == 0) rl_vi_insertion_mode(1, 0);
    zf_recall_reset();
    p.pasting = p.gap = false;
    p.scroll = 0;
    p.dirty = true;
}

void zf_prompt_label(const char *label)
{
    if (!p.open || !strcmp(label, p.label)) return;
    snprintf(p.label, sizeof p.label, "%s", label);
    rl_set_prompt(p.label);
    p.dirty = true;
}

void zf_prompt_set(const char *text)
{
    if (!p.open) return;
    if (p.taking) {
        free(p.later);
        p.later = strdup(text);
        return;
    }
    zf_prompt_clear();
    rl_replace_line(text, 1);
    rl_point = rl_end;
    cut_line();
}

const char *zf_prompt_complaint(void)
{
    return p.complaint[0] ? p.complaint : NULL;
}

bool zf_prompt_empty(void)
{
    return !p.open || (!rl_end && !zf_recall_searches());
}

bool zf_prompt_takes_escape(void)
{
    if (!p.open) return false;
    return zf_recall_searches() || (rl_editing_mode == 0 && rl_get_keymap() != vi_movement_keymap);
}

bool zf_prompt_binds(const unsigned char *bytes, size_t size)
{
    return p.open && rl_function_of_keyseq_len((const char *)bytes, size, rl_get_keymap(), NULL);
}

bool zf_prompt_dirty(void)
{
    return p.dirty;
}

void zf_prompt_resize(int cols)
{
    if (!p.open) return;
    rl_set_screen_size(1, cols > 1 ? cols : 1);
    p.dirty = true;
}

/* ---- drawing */

static int width(const char *text, int size)
{
    return size > 0 ? zf_text_width(text, (size_t)size) : 0;
}

/* In vi mode what keys mean must be seen; readline puts that into a prompt it draws itself. */
static struct zf_rect draw_mode(struct zf_canvas *c, struct zf_rect r)
{
    const char *mode = rl_get_keymap() == vi_movement_keymap ? " cmd" : " ins";
    int cols = (int)strlen(mode);
    if (rl_editing_mode != 0 || r.cols < 6 * cols) return r;
    zf_text_right(c, r, 0, ZF_STYLE_DIM, mode);
    r.cols -= cols;
    return r;
}

void zf_prompt_draw(struct zf_canvas *c, struct zf_rect r, bool active)
{
    p.dirty = false;
    if (!p.open || r.cols < 1 || r.rows < 1) return;
    r.rows = 1;
    zf_fill(c, r, ' ', ZF_STYLE_TEXT);
    r = draw_mode(c, r);
    char searching[ZF_RECALL_LABEL];
    const char *label = zf_recall_label(searching, sizeof searching) ? searching : rl_display_prompt ? rl_display_prompt : "";
    int label_cols = width(label, (int)strlen(label));
    int cursor = label_cols + width(rl_line_buffer, rl_point), all = label_cols + width(rl_line_buffer, rl_end);
    int under = rl_point < rl_end ? all - cursor : 1; /* of the character at the cursor */
    under = under > 1 ? 2 : 1;
    int room = r.cols;
    bool fits = all < room || (all == room && rl_point < rl_end);
    if (fits)
        p.scroll = 0;
    else if (cursor + under > p.scroll + room - (p.scroll + room < all) || cursor < p.scroll + (p.scroll > 0))
        p.scroll = cursor > room * 2 / 3 ? cursor - room * 2 / 3 : 0;
    if (p.scroll > all + 1 - room) p.scroll = all + 1 > room ? all + 1 - room : 0;
    zf_text(c, r, -p.scroll, 0, ZF_STYLE_PROMPT, label);
    zf_text(c, r, label_cols - p.scroll, 0, ZF_STYLE_TEXT, rl_line_buffer);
    if (p.scroll > 0 && room > 4) zf_put(c, r, 0, 0, '<', ZF_STYLE_DIM);
    if (all - p.scroll > room && room > 4) zf_put(c, r, room - 1, 0, '>', ZF_STYLE_DIM);
    if (!active) return;
    int x = cursor - p.scroll;
    c->cursor_x = r.x + (x < 0 ? 0 : x < room ? x : room - 1);
    c->cursor_y = r.y;
}
