/* Panels: a table of functions from a view to cells, and to rows of numbers for files. A panel keeps no state. */
#ifndef ZF_TUI_PANEL_H
#define ZF_TUI_PANEL_H

#include "core/base/err.h"
#include "tui/view.h"

/* Numbers for files: rows x columns, row by row; text (may be NULL) is a last column. */
struct zf_table {
    const char *const *column; /* [columns], constants, or owned in `names` */
    size_t columns, rows, room;
    double *cell;
    char **text;                     /* [rows], owned; NULL: none */
    char **names;                    /* owned column names, if they are not constants */
    const char *const *const *words; /* [columns]: what a column's numbers stand for, where they are read by people; NULL: numbers */
    bool failed;                     /* no memory */
};
void zf_table_free(struct zf_table *t);
void zf_table_row(struct zf_table *t, const double *cells, const char *text); /* copies */

struct zf_panel {
    const char *title;
    int least_cols, least_rows; /* below that it is not shown unless alone */
    int weight;                 /* of the rows that are left over */
    /* Inside its frame. title, note: of the frame, at most size bytes each; may be left as they are. */
    void (*draw)(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r);
    void (*frame)(const struct zf_view *v, char *title, char *note, size_t size);
    void (*table)(const struct zf_view *v, struct zf_table *out);
    uint64_t (*scrolls)(const struct zf_view *v, struct zf_rect r); /* how far; NULL: it is no list */
    bool filters;                                                   /* a filter of the view shows a part of it */
};
extern const struct zf_panel zf_panel_table[ZF_PANELS];

/* Channels: cursor_row counts the matrices that the filter lets through (zoomed on one: rows of its map, from 0). How many there are, and
 * which matrix row `row` is; SIZE_MAX: none. */
uint64_t zf_channels_rows(const struct zf_view *v);
size_t zf_channels_matrix(const struct zf_view *v, uint64_t row);

/* A rectangle for each shown panel (0x0: no room), header, message and prompt lines. Pure; any size from 0x0. */
struct zf_layout {
    struct zf_rect panel[ZF_PANELS], header, message, prompt;
};
struct zf_layout zf_layout_of(const struct zf_view *v, int cols, int rows, int message_rows);

struct zf_rect zf_panel_inside(struct zf_rect r); /* of its frame, which low ones have not */

/* The whole frame but prompt and dialogs. */
void zf_draw(const struct zf_view *v, const struct zf_layout *l, struct zf_canvas *c);

/* What a panel shows, into a file: by the ending of its name .csv .npy .svg .txt. ZF_USAGE: another ending, or no data for it. */
enum zf_status zf_write_panel(const struct zf_view *v, enum zf_panel_id id, const char *path, struct zf_err *e);

#endif
