/* What the tests of panels share: a history from a recording, a frame of it as text. */
#ifndef ZF_TESTS_TUI_FRAME_H
#define ZF_TESTS_TUI_FRAME_H

#include "core/base/file.h"
#include "tui/panel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines of RUN/metrics.jsonl up to step `until` (0: all). false: there is no such file. */
static inline bool frame_load(struct zf_history *h, const char *path, uint64_t until)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    if (!f) return false;
    while ((n = getline(&line, &room, f)) > 0) {
        zf_history_text(h, line, (size_t)n - (line[n - 1] == '\n'));
        if (until && h->step >= until) break;
    }
    free(line);
    fclose(f);
    return true;
}

static inline char *frame_of(const struct zf_view *v, int cols, int rows, bool styles)
{
    struct zf_canvas c = {.glyphs = v->glyphs};
    struct zf_layout l = zf_layout_of(v, cols, rows, 1);
    if (!zf_canvas_resize(&c, cols, rows)) return NULL;
    zf_draw(v, &l, &c);
    char *text = zf_canvas_text(&c, styles);
    zf_canvas_free(&c);
    return text;
}

#endif
