/* Host buffers: what the CPU half has of each group of matrices, a letter a step: A gradients accumulate, U the CPU updates, ^ the result
 * goes up. Colour repeats the letter. */
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct phase {
    char letter;
    uint16_t style;
    const char *word;
} phases[] = {
    [ZF_BUFFER_ACC] = {'A', ZF_STYLE_ACC, "ACC"},
    [ZF_BUFFER_UP] = {'U', ZF_STYLE_UP, "UP"},
    [ZF_BUFFER_UPLOAD] = {'^', ZF_STYLE_UPLOAD, "UPLOAD"},
};
enum { PHASES = sizeof phases / sizeof *phases, LABEL = 6, SIDE = 30, SHORT_SIDE = 7 };

static const struct phase *phase_of(const struct zf_history *h, uint64_t step, size_t group)
{
    const struct zf_buffers *b = &h->buffers;
    if (!b->phase || step > b->newest || b->newest - step >= ZF_GROUP_STEPS || !step) return NULL;
    unsigned x = b->phase[(step % ZF_GROUP_STEPS) * ZF_GROUPS_MOST + group];
    return x >= 1 && x <= PHASES ? &phases[x - 1] : NULL;
}

static size_t groups_of(const struct zf_history *h)
{
    return h->buffers.groups < ZF_GROUPS_MOST ? h->buffers.groups : ZF_GROUPS_MOST;
}

/* The newest step shown: the cursor's, or the newest, rounded up so that letters move in blocks. */
static uint64_t right_edge(const struct zf_view *v, int cols)
{
    uint64_t newest = v->h->buffers.newest, jump = cols > 32 ? 8 : 1;
    if (v->cursor && v->cursor_step < newest) newest = v->cursor_step;
    return newest > UINT64_MAX - jump ? newest : (newest / jump + 1) * jump - 1;
}

static void side(struct zf_canvas *c, struct zf_rect r, int x, int y, const struct zf_buffer *b)
{
    const struct phase *p = b->phase < PHASES ? &phases[b->phase] : &phases[0];
    zf_text(c, r, x, y, p->style, p->word);
    zf_bar(c, r, x + 7, y, 6, (double)b->fill, p->style);
    zf_textf(c, r, x + 14, y, ZF_STYLE_TEXT, "%3u old", b->staleness > 999 ? 999 : b->staleness);
    if (b->due < 10000000) zf_textf(c, r, x + 22, y, ZF_STYLE_TEXT, "@%" PRIu64, b->due);
}

/* Where compute had to wait for the CPU half. */
static void waits(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y, uint64_t last, int n)
{
    const struct zf_series *stall = zf_history_series(v->h, ZF_SERIES_STALL_MS), *whole = zf_history_series(v->h, ZF_SERIES_STEP_MS);
    zf_text(c, r, 0, y, ZF_STYLE_DIM, "wait");
    for (int i = 0; i < n; i++) {
        uint64_t step = last - (uint64_t)(n - 1 - i);
        if (step > last || !step || step > v->h->step) continue;
        struct zf_bucket s = zf_series_between(stall, step, step), w = zf_series_between(whole, step, step);
        bool much = s.count && w.count && s.sum > 0.02 * w.sum;
        if (s.count) zf_put(c, r, LABEL + i, y, much ? '!' : '.', much ? ZF_STYLE_STALL : ZF_STYLE_DIM);
    }
}

static void head(struct zf_canvas *c, struct zf_rect r, uint64_t last, int n, bool wide, int rows, size_t groups)
{
    char text[96];
    uint64_t first = last >= (uint64_t)n ? last - (uint64_t)n + 1 : 1;
    snprintf(text, sizeof text, "step %" PRIu64, first);
    if (rows < (int)groups) zf_append(text, sizeof text, "  %d of %zu%s", rows, groups, n >= 30 ? " groups" : "");
    zf_text(c, r, 0, 0, ZF_STYLE_DIM, "group");
    zf_fit(c, r, LABEL, 0, n, ZF_STYLE_DIM, text);
    if (wide) zf_text(c, r, r.cols - SIDE + 1, 0, ZF_STYLE_DIM, "phase  fill   stale   due");
}

void zf_draw_buffers(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    const struct zf_history *h = v->h;
    size_t groups = groups_of(h);
    if (!groups) {
        if (!h->step)
            zf_say(c, r, "no step yet");
        else
            zf_say(c, r, "This strategy has no CPU half: the device updates everything itself, nothing waits in host buffers.");
        return;
    }
    bool wide = r.cols >= LABEL + SIDE + 10, some = r.cols >= LABEL + SHORT_SIDE + 8;
    int n = r.cols - LABEL - (wide ? SIDE : some ? SHORT_SIDE : 0), y = 0, wait = r.rows >= (int)groups + 2 || r.rows >= 6;
    if (n < 1) return;
    if (n > ZF_GROUP_STEPS) n = ZF_GROUP_STEPS;
    uint64_t last = right_edge(v, n);
    int rows = r.rows - (r.rows >= 3) - wait;
    if (rows > (int)groups) rows = (int)groups;
    if (r.rows >= 3) head(c, r, last, n, wide, rows, groups), y++;
    for (int i = 0; i < rows; i++, y++) {
        size_t g = (size_t)i * groups / (size_t)rows;
        zf_textf(c, r, 0, y, ZF_STYLE_DIM, "%4zu", g + 1);
        for (int k = 0; k < n; k++) {
            uint64_t step = last - (uint64_t)(n - 1 - k);
            const struct phase *p = step <= last ? phase_of(h, step, g) : NULL;
            if (p) zf_put(c, r, LABEL + k, y, (uint32_t)p->letter, p->style);
        }
        if (wide)
            side(c, r, r.cols - SIDE + 1, y, &h->buffers.now[g]);
        else if (some && h->buffers.now[g].phase < PHASES)
            zf_text(c, r, r.cols - SHORT_SIDE + 1, y, phases[h->buffers.now[g].phase].style, phases[h->buffers.now[g].phase].word);
    }
    if (wait && y < r.rows) waits(v, c, r, y, last, n);
}

void zf_frame_buffers(const struct zf_view *v, char *title, char *note, size_t size)
{
    char number[ZF_FORMAT_ROOM], value[64];
    if (!groups_of(v->h)) return;
    zf_append(title, size, "  S=%.16s", zf_history_option(v->h, "update_interval", value, sizeof value));
    if (zf_have(v->h, ZF_SERIES_STALL_MS))
        zf_append(title, size, "  stall %s", zf_format_share(number, zf_recent(v, ZF_SERIES_STALL_MS, ZF_SERIES_STEP_MS)));
    zf_append(note, size, "A accumulate U update ^ upload ! stall");
}

void zf_table_buffers(const struct zf_view *v, struct zf_table *out)
{
    static const char *const column[] = {"step", "group", "phase"}, *const phase[] = {"ACC", "UP", "UPLOAD"};
    static const char *const *const words[] = {NULL, NULL, phase};
    const struct zf_buffers *b = &v->h->buffers;
    out->column = column;
    out->columns = 3;
    out->words = words;
    uint64_t first = b->newest >= ZF_GROUP_STEPS ? b->newest - ZF_GROUP_STEPS + 1 : 1;
    if (!b->phase || !b->newest) return;
    for (uint64_t step = first; step <= b->newest && step >= first; step++)
        for (size_t g = 0; g < groups_of(v->h); g++) {
            const struct phase *p = phase_of(v->h, step, g);
            if (p) zf_table_row(out, (double[]){(double)step, (double)g + 1, (double)(p - phases)}, NULL);
        }
}
