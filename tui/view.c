/* See view.h. */
#include "tui/view.h"

#include <string.h>

const char *const zf_panel_words[ZF_PANELS] = {
#define X(name, word) #word,
    ZF_PANEL_MAP(X)
#undef X
};

size_t zf_name_index(const char *name, const char *const *names, size_t count)
{
    size_t i = 0;
    while (i < count && strcmp(name, names[i])) i++;
    return i;
}

void zf_view_init(struct zf_view *v, const struct zf_history *h)
{
    *v = (struct zf_view){.h = h, .zoomed = -1, .smooth = 30, .matrix = SIZE_MAX, .run = "", .said = "", .speed = 1};
    for (int i = 0; i < ZF_PANELS; i++) v->shown[i] = true;
}

bool zf_view_goes_on(const struct zf_view *v)
{
    return !v->h->ended && !v->died && v->link != ZF_LINK_LOST;
}

void zf_view_steps(const struct zf_view *v, uint64_t *first, uint64_t *last)
{
    const struct zf_series *loss = zf_history_series(v->h, ZF_SERIES_LOSS);
    uint64_t newest = v->h->step ? v->h->step : 1, begin = loss->used && loss->first <= newest ? loss->first : 1;
    *last = v->to ? v->to : newest;
    *first = !v->to && v->tail ? (newest > v->tail ? newest - v->tail + 1 : 1) : v->from;
    if (v->cursor && !v->to && v->tail && v->cursor_step && v->cursor_step < *first) { /* it keeps the view until it is moved, or gone */
        *first = v->cursor_step;
        *last = *first + v->tail - 1;
    }
    if (*first < begin) *first = begin;
    if (*last < *first) *last = *first;
}
