/* The table of panels. Sizes are with the frame. */
#include "tui/panels/parts.h"

#include <stdlib.h>
#include <string.h>

#define PANEL(word, what, cols, rows, weight, scrolls, filters) \
    { \
        what, cols, rows, weight, zf_draw_##word, zf_frame_##word, zf_table_##word, scrolls, filters \
    }

const struct zf_panel zf_panel_table[ZF_PANELS] = {
    [ZF_PANEL_LOSS] = PANEL(loss, "loss", 20, 6, 5, NULL, false),
    [ZF_PANEL_DEVICE] = PANEL(device, "device", 28, 8, 2, NULL, false),
    [ZF_PANEL_LANES] = PANEL(lanes, "lanes", 28, 7, 0, NULL, false),
    [ZF_PANEL_BUFFERS] = PANEL(buffers, "host buffers", 24, 5, 3, NULL, false),
    [ZF_PANEL_CHANNELS] = PANEL(channels, "channels", 28, 6, 4, zf_scrolls_channels, true),
    [ZF_PANEL_RUN] = PANEL(run, "run", 28, 8, 1, NULL, false),
    [ZF_PANEL_LOG] = PANEL(log, "log", 24, 5, 3, zf_scrolls_log, true),
    [ZF_PANEL_SAMPLES] = PANEL(samples, "samples", 24, 5, 2, zf_scrolls_samples, false),
    [ZF_PANEL_OPTIONS] = PANEL(options, "options", 28, 6, 3, zf_scrolls_options, true),
};

static bool grow(struct zf_table *t)
{
    size_t room = t->room ? 2 * t->room : 64, cells = t->columns ? t->columns : 1;
    if (room < t->room || room > SIZE_MAX / sizeof(double) / cells) return false;
    double *cell = realloc(t->cell, room * cells * sizeof *cell);
    if (!cell) return false;
    t->cell = cell;
    char **text = realloc(t->text, room * sizeof *text);
    if (!text) return false;
    t->text = text;
    t->room = room;
    return true;
}

void zf_table_row(struct zf_table *t, const double *cells, const char *text)
{
    if (t->failed || (t->rows == t->room && !grow(t))) {
        t->failed = true;
        return;
    }
    if (t->columns && cells) memcpy(t->cell + t->rows * t->columns, cells, t->columns * sizeof *cells);
    t->text[t->rows] = text ? strdup(text) : NULL;
    if (text && !t->text[t->rows]) t->failed = true;
    t->rows++;
}

void zf_table_free(struct zf_table *t)
{
    for (size_t i = 0; i < t->rows; i++) free(t->text[i]);
    for (size_t i = 0; t->names && i < t->columns; i++) free(t->names[i]);
    free(t->names);
    free(t->text);
    free(t->cell);
    *t = (struct zf_table){0};
}
