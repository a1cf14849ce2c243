/* Log: what was changed, saved, said, went wrong; the newest at the bottom. */
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Columns of the parts before the text; 0: left out. */
struct columns {
    int time, step, word, text;
};

static struct columns columns_of(int cols)
{
    struct columns k = {0};
    k.time = cols >= 48 ? 9 : 0;
    k.step = cols >= 30 ? 8 : 0;
    k.word = cols >= 64 ? 10 : 2;
    k.text = k.time + k.step + k.word;
    return k;
}

static const char *text_of(const struct zf_note *n)
{
    return n->text ? n->text : "";
}

static bool passes(const struct zf_view *v, const struct zf_note *n)
{
    return zf_matches(text_of(n), v->filter[ZF_PANEL_LOG]) || zf_matches(zf_mark_table[n->kind].word, v->filter[ZF_PANEL_LOG]);
}

/* Beside other panels there is room for the newest of validations in a row, lest they push everything else out. */
static bool wanted(const struct zf_view *v, size_t i)
{
    const struct zf_notes *l = &v->h->notes;
    bool brief = v->zoomed != ZF_PANEL_LOG && !*v->filter[ZF_PANEL_LOG];
    if (brief && i + 1 < l->count && l->list[i].kind == ZF_NOTE_VALID && l->list[i + 1].kind == ZF_NOTE_VALID) return false;
    return passes(v, &l->list[i]);
}

/* Lines that a text takes, at most `most`. */
static int lines_of(const char *text, int cols, int most)
{
    int lines = 0;
    size_t next;
    if (!*text) return 1;
    for (; *text && lines < most; text += next) zf_wrap(text, cols, &next), lines++;
    return lines;
}

static void put(struct zf_canvas *c, struct zf_rect r, int y, const struct columns *k, const struct zf_note *n, int lines)
{
    char text[ZF_FORMAT_ROOM];
    const struct zf_mark *m = &zf_mark_table[n->kind];
    unsigned style = n->kind == ZF_NOTE_ERROR || n->kind == ZF_NOTE_WARNING ? m->style
                     : n->kind == ZF_NOTE_NOTE                              ? ZF_STYLE_DIM
                                                                            : ZF_STYLE_TEXT;
    if (k->time) zf_text(c, r, k->time - 1 - (int)strlen(zf_format_clock(text, n->time)), y, ZF_STYLE_DIM, text);
    if (k->step) {
        if (n->step < 10000000)
            snprintf(text, sizeof text, "%" PRIu64, n->step);
        else
            zf_format_count(text, (double)n->step);
        zf_text(c, r, k->time + k->step - 1 - (int)strlen(text), y, ZF_STYLE_DIM, text);
    }
    zf_put(c, r, k->time + k->step, y, zf_mark_glyph(c, n->kind), m->style);
    if (k->word > 2) zf_fit(c, r, k->time + k->step + 2, y, k->word - 3, m->style, m->word);
    const char *s = text_of(n);
    for (int i = 0; i < lines; i++, y++) {
        size_t next, size = zf_wrap(s, r.cols - k->text, &next);
        if (i + 1 == lines)
            zf_fit(c, r, k->text, y, r.cols - k->text, style, s);
        else
            zf_piece(c, r, k->text, y, style, s, size);
        s += next;
    }
}

void zf_draw_log(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    const struct zf_notes *l = &v->h->notes;
    struct columns k = columns_of(r.cols);
    enum { MOST = 12 };
    int most = v->zoomed == ZF_PANEL_LOG ? MOST : 3, y = r.rows;
    uint64_t back = v->scroll[ZF_PANEL_LOG];
    size_t from[512];
    int lines[512], count = 0, rows = 0;
    if (r.cols <= k.text || r.rows < 1) return;
    for (size_t i = l->count; i > 0 && rows < y && count < 512; i--) {
        const struct zf_note *n = &l->list[i - 1];
        if (!wanted(v, i - 1)) continue;
        if (back && back--) continue;
        from[count] = i - 1;
        bool trouble = n->kind == ZF_NOTE_WARNING || n->kind == ZF_NOTE_ERROR; /* it says what to do, at its end */
        lines[count] = lines_of(text_of(n), r.cols - k.text, trouble ? MOST : most);
        if (lines[count] > y - rows) lines[count] = y - rows;
        rows += lines[count++];
    }
    if (!count) {
        zf_say(c, r, *v->filter[ZF_PANEL_LOG] ? "nothing in the log has this filter's text in it" : "nothing has happened yet");
        return;
    }
    y = 0;
    while (count-- > 0) {
        put(c, r, y, &k, &l->list[from[count]], lines[count]);
        y += lines[count];
    }
}

uint64_t zf_scrolls_log(const struct zf_view *v, struct zf_rect r)
{
    uint64_t n = 0;
    (void)r;
    for (size_t i = 0; i < v->h->notes.count; i++) n += wanted(v, i);
    return n ? n - 1 : 0;
}

void zf_frame_log(const struct zf_view *v, char *title, char *note, size_t size)
{
    if (*v->filter[ZF_PANEL_LOG]) zf_append(title, size, "  /%s", v->filter[ZF_PANEL_LOG]);
    if (v->scroll[ZF_PANEL_LOG]) zf_append(note, size, "%" PRIu64 " newer below", v->scroll[ZF_PANEL_LOG]);
}

static void notes_table(const struct zf_view *v, const struct zf_notes *l, struct zf_table *out, bool filter)
{
    static const char *const column[] = {"time", "step", "kind"};
    static const char *const *const words[] = {NULL, NULL, zf_note_names};
    out->words = words;
    out->column = column;
    out->columns = 3;
    for (size_t i = 0; i < l->count; i++) {
        const struct zf_note *n = &l->list[i];
        if (!filter || passes(v, n)) zf_table_row(out, (double[]){n->time < 0 ? NAN : n->time, (double)n->step, n->kind}, text_of(n));
    }
}

void zf_table_log(const struct zf_view *v, struct zf_table *out)
{
    notes_table(v, &v->h->notes, out, true);
}

/* ---- samples ---- */

void zf_draw_samples(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    const struct zf_notes *l = &v->h->samples;
    uint64_t back = v->scroll[ZF_PANEL_SAMPLES];
    int y = 0;
    if (!l->count) {
        zf_say(c, r, "No samples: `sample TEXT` makes one, `set sample_every N` one every N steps.");
        return;
    }
    for (size_t i = back < l->count ? l->count - (size_t)back : 1; i > 0 && y < r.rows; i--) { /* the newest first */
        const struct zf_note *n = &l->list[i - 1];
        const char *s = text_of(n);
        size_t next;
        if (y && y + 1 < r.rows) y++;
        zf_textf(c, r, 0, y++, ZF_STYLE_TITLE, "step %" PRIu64, n->step);
        for (; *s && y < r.rows; s += next) {
            size_t size = zf_wrap(s, r.cols - 2, &next);
            zf_piece(c, r, 2, y++, ZF_STYLE_TEXT, s, size);
        }
    }
}

uint64_t zf_scrolls_samples(const struct zf_view *v, struct zf_rect r)
{
    (void)r;
    return v->h->samples.count ? v->h->samples.count - 1 : 0;
}

void zf_frame_samples(const struct zf_view *v, char *title, char *note, size_t size)
{
    if (v->h->samples.count) zf_append(title, size, "  %zu", v->h->samples.count);
    if (v->scroll[ZF_PANEL_SAMPLES]) zf_append(note, size, "%" PRIu64 " newer above", v->scroll[ZF_PANEL_SAMPLES]);
}

void zf_table_samples(const struct zf_view *v, struct zf_table *out)
{
    notes_table(v, &v->h->samples, out, false);
}
