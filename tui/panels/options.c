/* Options: value, default, where the value comes from. First what was changed in this run or is going to be, then what can be changed now,
 * then what only a restart changes. From the trainer's own table (`show --json`) where it is known, else from what the recording says. */
#include "core/base/json.h"
#include "core/config/options.h"
#include "core/base/plural.h"
#include "core/session/commands.h"
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum group { CHANGED, LIVE, FIXED, GROUPS };
static const char *const group_words[GROUPS] = {"changed in this run", "can be changed now", "changed by a restart only"};

struct row {
    const char *name, *fallback;
    char value[256], origin[256];
    const char *pending; /* "-> 0.05 at step 40", "": nothing */
    enum group group;
    bool usual; /* the default */
};
struct list {
    struct row row[ZF_OPTIONS + 1]; /* one more: that which is looked at */
    int count;
    char pending[ZF_OPTIONS][128];
    bool to_come; /* of any */
};

/* ---- values ---- */

/* "30s", "4k", "2e-5" as a number; false: it is none. */
static bool number_of(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text) return false;
    switch (*end) {
    case 0: return true;
    case 's': return !end[1];
    case 'm': *out *= 60; return !end[1];
    case 'h': *out *= 3600; return !end[1];
    case 'k': *out *= 1024; return !end[1];
    case 'M': *out *= 1 << 20; return !end[1];
    case 'G': *out *= 1 << 30; return !end[1];
    default: return false;
    }
}

/* The same value, however it is written: 0 stands for the word of a number that has one. */
static bool same_value(const struct zf_option *o, const char *a, const char *b)
{
    double x, y;
    if (!strcmp(a, b)) return true;
    bool na = number_of(a, &x), nb = number_of(b, &y);
    if (na && nb) return fabs(x - y) <= 1e-6 * fmax(fabs(x), fabs(y));
    if (o->type != ZF_TYPE_INT || !o->choice_count) return false;
    return (na && x == 0 && !strcmp(b, o->choices[0])) || (nb && y == 0 && !strcmp(a, o->choices[0]));
}

/* ---- rows ---- */

static const json_t *told(const struct zf_view *v, const char *name)
{
    size_t i;
    const json_t *o;
    json_array_foreach((json_t *)v->option_rows, i, o)
    {
        const char *s = json_string_value(json_object_get(o, "name"));
        if (s && !strcmp(s, name)) return o;
    }
    return NULL;
}

static void put_pending(struct list *l, const char *name, const char *value, double step)
{
    const struct zf_option *o = zf_option_find(name);
    char *text = o ? l->pending[zf_option_id(o)] : NULL;
    if (text) zf_append(text, sizeof l->pending[0], "%s %s at step %.0f", *text ? "," : "->", value, step);
}

/* What `40 = set topk_ratio 0.05` of [at] puts off, while that step is to come: where no trainer tells. */
static void scripted(const struct zf_view *v, struct list *l)
{
    size_t i;
    const json_t *line;
    json_array_foreach(json_object_get(v->h->options, "at"), i, line)
    {
        const char *text = json_string_value(line), *command = text ? strstr(text, " = ") : NULL;
        struct zf_command c;
        struct zf_err ignored;
        double step = command ? strtod(text, NULL) : 0;
        if (!(step > (double)v->h->step)) continue;
        bool sets = !zf_command_parse(&c, command + 3, &ignored) && c.row->arguments == ZF_ARGS_PAIRS;
        for (size_t k = 0; sets && k + 1 < c.count; k += 2) put_pending(l, c.word[k], c.word[k + 1], step);
        zf_command_free(&c);
    }
}

static void told_to_come(const struct zf_view *v, struct list *l)
{
    size_t i, k;
    const json_t *row, *one;
    json_array_foreach((json_t *)v->option_rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        json_array_foreach(json_object_get(row, "pending"), k, one)
        {
            const char *value = json_string_value(json_object_get(one, "value"));
            if (name && value) put_pending(l, name, value, json_number_value(json_object_get(one, "from_step")));
        }
    }
}

/* Where a value comes from, or what it was. told: as the trainer's table says, NULL: there is none. */
static bool was_changed(const struct zf_history *h, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < h->notes.count; i++) {
        const struct zf_note *note = &h->notes.list[i];
        if (note->kind == ZF_NOTE_CHANGE && !strncmp(note->text, name, n) && note->text[n] == ' ') return true;
    }
    return false;
}

static void put_origin(const struct zf_history *h, const struct zf_option *o, const json_t *told, const json_t *start, const json_t *now,
                       struct row *r)
{
    char before[128], as_told[128];
    const char *origin = json_string_value(json_object_get(told, "origin"));
    zf_json_shown(now, as_told, sizeof as_told);
    bool changed = now && start && !json_equal(now, start),
         waits = told && now && !same_value(o, r->value, as_told); /* accepted, not yet in the telemetry: it waits for a step */
    if (changed)
        snprintf(r->origin, sizeof r->origin, waits ? "was %s, %s until its step" : "was %s", zf_json_shown(start, before, sizeof before),
                 as_told);
    else if (waits)
        snprintf(r->origin, sizeof r->origin, "pending, still %s", as_told);
    else if (origin && !strncmp(origin, "set ", 4) && !was_changed(h, o->name)) /* by the trainer itself, then */
        snprintf(r->origin, sizeof r->origin, "settled at the start");
    else if (origin && *origin)
        snprintf(r->origin, sizeof r->origin, "%s", origin);
    else
        snprintf(r->origin, sizeof r->origin, "%s", r->usual ? "default" : "run.cfg");
    if (changed || waits) r->group = CHANGED;
}

static void fill(const struct zf_view *v, const struct zf_option *o, const char *pending, struct row *r)
{
    const struct zf_history *h = v->h;
    const json_t *now = json_object_get(h->options, o->name), *start = json_object_get(h->origin_options, o->name), *row = told(v, o->name);
    *r = (struct row){.name = o->name, .fallback = o->fallback, .pending = pending, .group = o->when == ZF_WHEN_RESTART ? FIXED : LIVE};
    zf_json_shown(row ? json_object_get(row, "value") : now, r->value, sizeof r->value);
    if (o->type == ZF_TYPE_INT && o->choice_count && !strcmp(r->value, "0")) snprintf(r->value, sizeof r->value, "%s", o->choices[0]);
    if (o->type == ZF_TYPE_DURATION && *r->value && !r->value[strspn(r->value, "0123456789.")]) zf_append(r->value, sizeof r->value, "s");
    r->usual = same_value(o, r->value, o->fallback);
    put_origin(h, o, row, start, now, r);
    if (*pending) r->group = CHANGED;
}

static struct list *list_of(const struct zf_view *v)
{
    struct list *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (!json_object_size(v->h->options) && !json_array_size(v->option_rows)) return l;
    if (json_array_size(v->option_rows))
        told_to_come(v, l);
    else
        scripted(v, l);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < ZF_OPTIONS; i++) {
            const struct zf_option *o = &zf_option_table[i];
            struct row *r = &l->row[l->count];
            if (!json_object_get(v->h->options, o->name) && !told(v, o->name)) continue;
            if (!zf_matches(o->name, v->filter[ZF_PANEL_OPTIONS])) continue;
            fill(v, o, l->pending[i], r);
            if ((int)r->group == g) l->count++;
            l->to_come |= *r->pending != 0;
        }
    return l;
}

static void put_row(struct zf_canvas *c, struct zf_rect r, int y, const struct row *o)
{
    int name = r.cols >= 50 ? 21 : r.cols * 2 / 5, value = r.cols >= 50 ? (r.cols - name) / 3 : r.cols - name, x = 0;
    unsigned style = o->group == CHANGED ? ZF_STYLE_MARK : o->usual ? ZF_STYLE_DIM : ZF_STYLE_TEXT;
    if (o->group == CHANGED) zf_put(c, r, 0, y, zf_mark_glyph(c, ZF_NOTE_CHANGE), ZF_STYLE_MARK);
    x = 2;
    zf_fit(c, r, x, y, name - 3, o->group == CHANGED ? ZF_STYLE_STRONG : style, o->name);
    int after = zf_fit(c, r, name, y, value - 1, o->group == CHANGED ? ZF_STYLE_STRONG : style, *o->value ? o->value : "none");
    if (r.cols < 50) {
        x = name + after + 1;
        if (x < r.cols) zf_fit(c, r, x, y, r.cols - x, ZF_STYLE_MARK, o->pending);
        return;
    }
    x = name + value;
    int fallback = r.cols >= 64 ? 14 : 0;
    if (fallback) zf_fit(c, r, x, y, fallback - 1, ZF_STYLE_DIM, *o->fallback ? o->fallback : "none");
    x += fallback;
    if (*o->pending) x += zf_fit(c, r, x, y, r.cols - x, ZF_STYLE_MARK, o->pending) + 2;
    if (x < r.cols) zf_fit(c, r, x, y, r.cols - x, o->group == CHANGED ? ZF_STYLE_MARK : ZF_STYLE_DIM, o->origin);
}

static void put_head(struct zf_canvas *c, struct zf_rect r)
{
    int name = 21, value = (r.cols - name) / 3;
    zf_text(c, r, 2, 0, ZF_STYLE_DIM, "option");
    zf_text(c, r, name, 0, ZF_STYLE_DIM, "value");
    if (r.cols >= 64) zf_text(c, r, name + value, 0, ZF_STYLE_DIM, "default");
    zf_text(c, r, name + value + (r.cols >= 64 ? 14 : 0), 0, ZF_STYLE_DIM, "from");
}

static bool has_head(struct zf_rect r)
{
    return r.cols >= 50 && r.rows >= 4;
}

/* Lines that are above when the last ones are seen. */
static int most_above(const struct list *l, struct zf_rect r)
{
    int lines = l->count + 1 - (r.rows - has_head(r));
    for (int i = 1; i < l->count; i++) lines += l->row[i].group != l->row[i - 1].group;
    return l->count && lines > 0 ? lines : 0;
}

uint64_t zf_scrolls_options(const struct zf_view *v, struct zf_rect r)
{
    struct list *l = list_of(v);
    int most = l ? most_above(l, r) : 0;
    free(l);
    return (uint64_t)most;
}

void zf_draw_options(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    struct list *l = list_of(v);
    uint64_t down = v->scroll[ZF_PANEL_OPTIONS];
    if (!l || !l->count) {
        zf_say(c, r, *v->filter[ZF_PANEL_OPTIONS] ? "no option has this filter's text in its name" : "the options are not known yet");
        free(l);
        return;
    }
    int last = -1, y = 0, most = most_above(l, r), skip = down > (uint64_t)most ? most : (int)down;
    if (has_head(r)) {
        put_head(c, r);
        r.y++;
        r.rows--;
    }
    for (int i = 0; i < l->count && y - skip < r.rows; i++) {
        if ((int)l->row[i].group != last) {
            const char *words =
                l->row[i].group == CHANGED && l->to_come ? "changed in this run, or about to be" : group_words[l->row[i].group];
            if (y >= skip) zf_fit(c, r, 0, y - skip, r.cols, ZF_STYLE_TITLE, words);
            y++;
        }
        last = (int)l->row[i].group;
        if (y >= skip) put_row(c, r, y - skip, &l->row[i]);
        y++;
    }
    free(l);
}

void zf_frame_options(const struct zf_view *v, char *title, char *note, size_t size)
{
    if (*v->filter[ZF_PANEL_OPTIONS]) zf_append(title, size, "  /%s", v->filter[ZF_PANEL_OPTIONS]);
    if (v->scroll[ZF_PANEL_OPTIONS])
        zf_append(note, size, "%" PRIu64 " line%s above", v->scroll[ZF_PANEL_OPTIONS], zf_plural(v->scroll[ZF_PANEL_OPTIONS]));
}

/* Words: only text has a place for them. */
void zf_table_options(const struct zf_view *v, struct zf_table *out)
{
    struct list *l = list_of(v);
    if (!l) out->failed = true;
    for (int i = 0; l && i < l->count; i++) {
        char text[800];
        const struct row *r = &l->row[i];
        snprintf(text, sizeof text, "%s = %s%s%s (default %s; %s)", r->name, r->value, *r->pending ? " " : "", r->pending,
                 *r->fallback ? r->fallback : "none", r->origin);
        zf_table_row(out, NULL, text);
    }
    free(l);
}
