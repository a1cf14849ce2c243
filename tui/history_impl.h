/* Inside of history*.c: what a line says, however it was read, and what is done with it. */
#ifndef ZF_TUI_HISTORY_IMPL_H
#define ZF_TUI_HISTORY_IMPL_H

#include "tui/history.h"

enum {
    ZF_MATRICES_MOST = 4096,
    ZF_LINE_PARSED_MOST = 4 << 20, /* bytes of a line that is given to the parser for JSON, which takes twenty times that */
    ZF_BINS_MOST = 64,
    ZF_TOPS_MOST = 6,
};
#define ZF_STEP_MOST ((uint64_t)1 << 53)

/* Of a `step`, `gpu` or `valid` line. */
struct zf_number_line {
    uint64_t step;
    bool has_step, has_groups;
    uint64_t index;   /* of a GPU */
    uint64_t present; /* bits by series */
    double value[ZF_SERIES_COUNT];
    struct zf_buffer group[ZF_GROUPS_MOST];
    size_t groups;
};
_Static_assert(ZF_SERIES_COUNT <= 64, "bits by series");

/* Of one matrix in a `select` or `score` line. */
struct zf_channel_entry {
    size_t matrix; /* SIZE_MAX: of none that is known */
    double energy, kept;
    uint64_t selected;
    size_t bins, tops; /* 0 bins: passed over */
    float bin[ZF_BINS_MOST], top[ZF_TOPS_MOST];
    bool has_channels;
    size_t channel_at, channels; /* in own.channel */
};

struct zf_channel_line {
    uint64_t step;
    bool score;
    size_t entries; /* in own.entry */
};

/* history.c */
uint64_t zf_history_count(const json_t *v, uint64_t absent); /* a number as a step or a size: 0..2^53, else `absent` */
double zf_history_number(const json_t *v, double absent);    /* "nan", "inf", "-inf" as well */
float zf_history_float(double x);                            /* what no float can hold is infinite */
bool zf_history_numbers(struct zf_history *h, const struct zf_number_line *l, bool steps);

/* history_scan.c: false: not as our own writer makes it; nothing was done. */
bool zf_scan_step(struct zf_number_line *out, const char *line, size_t size);
bool zf_scan_gpu(struct zf_number_line *out, const char *line, size_t size);
bool zf_scan_channels(struct zf_history *h, struct zf_channel_line *out, const char *line, size_t size);

/* history_channels.c */
bool zf_history_matrices(struct zf_history *h, const json_t *list);
size_t zf_history_matrix(const struct zf_history *h, const char *name, size_t size, size_t *hint); /* SIZE_MAX: none */
struct zf_channel_entry *zf_history_entry(struct zf_history *h, size_t index);                     /* NULL: no more room */
bool zf_history_channel(struct zf_history *h, size_t index, uint32_t channel);
bool zf_history_channels(struct zf_history *h, const struct zf_channel_line *l);
bool zf_history_take_channels(struct zf_history *h, const json_t *line, bool score);
bool zf_history_take_norms(struct zf_history *h, const json_t *line);
bool zf_history_take_watch(struct zf_history *h, const json_t *line);
void zf_history_cut_channels(struct zf_history *h, uint64_t step);
void zf_history_free_channels(struct zf_history *h);

/* history_notes.c */
bool zf_history_note(struct zf_history *h, enum zf_note_kind kind, const json_t *line, const char *text);
bool zf_history_take_change(struct zf_history *h, const json_t *line);
bool zf_history_take_checkpoint(struct zf_history *h, const json_t *line);
void zf_history_cut_notes(struct zf_history *h, uint64_t step);
void zf_history_free_notes(struct zf_history *h);

/* history_lanes.c */
bool zf_history_take_lanes(struct zf_history *h, const json_t *line);
void zf_history_free_lanes(struct zf_history *h);

#endif
