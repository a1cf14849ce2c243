/* See parts.h. */
#include "tui/panels/parts.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct zf_mark zf_mark_table[ZF_NOTE_KINDS] = {
    [ZF_NOTE_CHANGE] = {0x25bc, 'v', ZF_STYLE_MARK, true, "change", "set"},
    [ZF_NOTE_CHECKPOINT] = {0x25cf, '@', ZF_STYLE_GOOD, true, "save", "save"},
    [ZF_NOTE_MARK] = {0x25c6, '#', ZF_STYLE_KEY, true, "mark", "mark"},
    [ZF_NOTE_NOTE] = {0x00b7, '.', ZF_STYLE_DIM, false, "note", NULL},
    [ZF_NOTE_WARNING] = {'!', '!', ZF_STYLE_WARN, true, "warning", "trouble"},
    [ZF_NOTE_ERROR] = {'!', '!', ZF_STYLE_BAD, true, "error", NULL}, /* as a warning */
    [ZF_NOTE_SAMPLE] = {'"', '"', ZF_STYLE_DIM, false, "sample", NULL},
    [ZF_NOTE_RESUME] = {0x25b6, '>', ZF_STYLE_MARK, true, "resume", "resume"},
    [ZF_NOTE_END] = {0x25a0, ']', ZF_STYLE_STRONG, true, "end", NULL},
    [ZF_NOTE_VALID] = {0x25c7, 'o', ZF_STYLE_VALID, false, "valid", NULL},
};

uint32_t zf_mark_glyph(const struct zf_canvas *c, enum zf_note_kind kind)
{
    return zf_glyph(c, zf_mark_table[kind].glyph, zf_mark_table[kind].letter);
}

/* ---- text ---- */

void zf_append(char *text, size_t size, const char *fmt, ...)
{
    size_t used = strnlen(text, size);
    va_list ap;
    if (used + 1 >= size) return;
    va_start(ap, fmt);
    vsnprintf(text + used, size - used, fmt, ap);
    va_end(ap);
}

/* Bytes of the character at s; bytes that are none count alone. */
static size_t character(const char *s)
{
    size_t n = 1;
    if ((unsigned char)*s >= 0xc0)
        while (n < 4 && ((unsigned char)s[n] & 0xc0) == 0x80) n++;
    return n;
}

/* Bytes of the longest beginning of at most `cols` columns, up to a newline. */
static size_t that_fits(const char *text, int cols)
{
    size_t n = 0;
    for (int used = 0; text[n] && text[n] != '\n';) {
        size_t more = character(text + n);
        used += zf_text_width(text + n, more);
        if (used > cols) break;
        n += more;
    }
    return n;
}

void zf_piece(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *text, size_t size)
{
    char few[256];
    char *copy = size < sizeof few ? few : malloc(size + 1);
    if (!copy) return;
    memcpy(copy, text, size);
    copy[size] = 0;
    zf_text(c, r, x, y, style, copy);
    if (copy != few) free(copy);
}

int zf_fit(struct zf_canvas *c, struct zf_rect r, int x, int y, int cols, unsigned style, const char *text)
{
    if (cols > r.cols - x) cols = r.cols - x;
    if (cols <= 0) return 0;
    size_t n = that_fits(text, cols);
    bool cut = text[n] != 0;
    if (cut) n = that_fits(text, cols - 1);
    int used = zf_text_width(text, n);
    zf_piece(c, r, x, y, style, text, n);
    if (cut) zf_put(c, r, x + used, y, zf_glyph(c, 0x2026, '~'), style);
    return used + cut;
}

size_t zf_wrap(const char *text, int cols, size_t *next)
{
    size_t n = that_fits(text, cols > 0 ? cols : 1);
    if (!n && text[0] && text[0] != '\n') n = character(text);
    *next = n;
    if (text[n] == '\n' || !text[n]) {
        *next += text[n] == '\n';
        return n;
    }
    for (size_t k = n; k > n / 4; k--) /* the last blank, unless the line would be very short */
        if (text[k] == ' ') {
            *next = k + 1;
            return k;
        }
    return n;
}

void zf_say(struct zf_canvas *c, struct zf_rect r, const char *text)
{
    size_t next, lines = 0;
    int cols = r.cols - 2;
    if (r.rows < 1 || cols < 1) return;
    for (const char *s = text; *s; s += next) zf_wrap(s, cols, &next), lines++;
    int y = lines < (size_t)r.rows ? (r.rows - (int)lines) / 2 : 0;
    for (const char *s = text; *s; s += next) {
        size_t n = zf_wrap(s, cols, &next);
        zf_piece(c, r, 1 + (cols - zf_text_width(s, n)) / 2, y++, ZF_STYLE_DIM, s, n);
    }
}

bool zf_matches(const char *text, const char *filter)
{
    return !*filter || strcasestr(text, filter) != NULL;
}

/* ---- steps and columns ---- */

/* How many steps first..last are; at least 1. */
static uint64_t span_of(uint64_t first, uint64_t last)
{
    if (last < first) return 1;
    return last - first == UINT64_MAX ? UINT64_MAX : last - first + 1;
}

bool zf_piece_steps(uint64_t first, uint64_t last, int i, int n, struct zf_step_range *out)
{
    unsigned __int128 span = span_of(first, last);
    uint64_t from = (uint64_t)(span * (unsigned)i / (unsigned)n), end = (uint64_t)(span * (unsigned)(i + 1) / (unsigned)n);
    *out = (struct zf_step_range){first + from, first + (end > from ? end - 1 : from)};
    return end > from;
}

int zf_piece_of(uint64_t first, uint64_t last, uint64_t step, int n)
{
    uint64_t span = span_of(first, last);
    if (step <= first || n < 1) return 0;
    if (step >= last) return n - 1;
    /* the piece whose end is the first one behind the step */
    return (int)((((unsigned __int128)(step - first) + 1) * (unsigned)n - 1) / span);
}

static uint64_t grain(uint64_t span)
{
    uint64_t g = 1;
    while (g < span / 16) g *= 2;
    return g;
}

void zf_axis_steps(const struct zf_view *v, uint64_t *first, uint64_t *last)
{
    zf_view_steps(v, first, last);
    if (*last < *first) *last = *first;
    if (v->to || *last < v->h->step || *last > UINT64_MAX / 2) return;
    uint64_t span = *last - *first + 1, g = grain(v->tail ? v->tail : span);
    uint64_t behind = v->tail ? (g - *last % g) % g : (g - span % g) % g;
    uint64_t steps = v->h->steps >= *last ? v->h->steps : UINT64_MAX;
    if (behind > steps - *last) behind = steps - *last;
    if (v->tail && *first > 1) *first += behind < span - 1 ? behind : span - 1;
    *last += behind;
}

void zf_cursor_column(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, uint64_t first, uint64_t last, bool over)
{
    if (!v->cursor || v->cursor_step < first || v->cursor_step > last) return;
    int x = r.x + zf_piece_of(first, last, v->cursor_step, r.cols);
    for (int y = r.y; y < r.y + r.rows; y++) {
        if (x < 0 || y < 0 || x >= c->cols || y >= c->rows) continue;
        struct zf_cell *cell = &c->cell[(size_t)y * (size_t)c->cols + (size_t)x];
        if (over || cell->code == ' ') cell->code = zf_glyph(c, 0x2502, '|');
        cell->style = ZF_STYLE_CURSOR;
    }
}

int zf_table_pieces(const struct zf_view *v, uint64_t *first, uint64_t *last)
{
    enum { MOST = 4096 };
    zf_view_steps(v, first, last);
    return !v->h->step ? 0 : *last - *first < MOST ? (int)(*last - *first) + 1 : MOST;
}

static double piece_value(const struct zf_series *s, const struct zf_series *per, enum zf_how how, struct zf_step_range p)
{
    struct zf_bucket b = zf_series_between(s, p.from, p.to);
    if (!b.count) return NAN;
    if (!per) return how == ZF_HOW_MOST ? (double)b.most : b.sum / b.count;
    struct zf_bucket whole = zf_series_between(per, p.from, p.to);
    return whole.count && whole.sum > 0 ? b.sum / whole.sum : NAN;
}

void zf_sample(const struct zf_series *s, const struct zf_series *per, enum zf_how how, uint64_t first, uint64_t last, double *out, int n)
{
    double before = NAN;
    for (int i = 0; i < n; i++) {
        struct zf_step_range p;
        bool own = zf_piece_steps(first, last, i, n, &p);
        out[i] = NAN;
        if (!s->used || p.from > s->newest) continue;
        if (own) {
            double x = piece_value(s, per, how, p);
            if (!isnan(x)) before = x;
        }
        out[i] = before;
    }
}

double zf_value_now(const struct zf_view *v, enum zf_series_id id)
{
    const struct zf_series *s = zf_history_series(v->h, id);
    uint64_t at;
    double x;
    if (!s->used) return NAN;
    if (!v->cursor) return s->last;
    return zf_series_at(s, v->cursor_step, &at, &x) ? x : NAN;
}

const struct zf_series *zf_per(const struct zf_view *v, int per)
{
    return per < 0 ? NULL : zf_history_series(v->h, (enum zf_series_id)per);
}

double zf_recent(const struct zf_view *v, enum zf_series_id id, int per)
{
    const struct zf_series *s = zf_history_series(v->h, id);
    if (v->cursor) {
        double by = per < 0 ? 1 : zf_value_now(v, (enum zf_series_id)per);
        return by > 0 ? zf_value_now(v, id) / by : NAN;
    }
    struct zf_step_range newest = {s->newest >= ZF_RECENT_STEPS ? s->newest - ZF_RECENT_STEPS + 1 : 0, s->newest};
    return s->used ? piece_value(s, zf_per(v, per), ZF_HOW_MEAN, newest) : NAN;
}

bool zf_have(const struct zf_history *h, enum zf_series_id id)
{
    return zf_history_series(h, id)->used > 0;
}

double zf_nice(double x)
{
    if (!(x > 0) || !isfinite(x)) return 1;
    double power = pow(10, floor(log10(x))), part = x / power;
    return (part <= 1 + 1e-9 ? 1 : part <= 2 + 1e-9 ? 2 : part <= 5 + 1e-9 ? 5 : 10) * power;
}

int zf_level(const struct zf_canvas *c, double value, double least, double most)
{
    if (!isfinite(value)) return -1;
    int lowest = zf_heat_rows(c) == 1 ? 2 : 0, levels = ZF_HEAT_LEVELS - lowest;
    double share = most > least ? (value - least) / (most - least) : 0.5;
    int level = share <= 0 ? 0 : share >= 1 ? levels - 1 : (int)(share * levels);
    return lowest + (level < levels ? level : levels - 1);
}

int zf_ramp(struct zf_canvas *c, struct zf_rect r, int x, int y, const char *least, const char *most)
{
    int at = x;
    at += zf_text(c, r, at, y, ZF_STYLE_DIM, least) + 1;
    for (int i = 0; i < 8; i++, at++) {
        int level = zf_level(c, i, 0, 7);
        zf_heat(c, r, at, y, level, level);
    }
    return at + 1 + zf_text(c, r, at + 1, y, ZF_STYLE_DIM, most) - x;
}
