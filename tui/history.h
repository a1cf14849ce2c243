/* A run as its lines tell it (interface.md 5): what the panels show. One struct, fed line by line, from a socket, a file or a recording;
 * it knows nothing of terminals. Memory is bounded whatever comes: rings and buckets. Unknown types and fields are passed over. One thread.
 */
#ifndef ZF_TUI_HISTORY_H
#define ZF_TUI_HISTORY_H

#include "tui/series.h"

#include <jansson.h>

/* Numbers of a `step` line (and where they are in it), of `valid`, of `gpu`. */
/* clang-format off */
#define ZF_SERIES_MAP(X) \
    X(LOSS, "step", "loss") X(NORM, "step", "grad_norm") X(CLIP, "step", "clip") X(RATE, "step", "learning_rate") \
    X(TOKENS_PER_S, "step", "tokens_per_s") X(TOKENS, "step", "tokens") X(STEP_MS, "step", "step_ms") X(COMPUTE_MS, "step", "compute_ms") \
    X(STALL_MS, "step", "stall_ms") X(BUSY_COMPUTE, "step", "busy.compute") X(BUSY_D2H, "step", "busy.d2h") X(BUSY_H2D, "step", "busy.h2d") \
    X(BUSY_CPU, "step", "busy.cpu") X(BUSY_COMM, "step", "busy.comm") X(D2H_BYTES, "step", "d2h_bytes") X(H2D_BYTES, "step", "h2d_bytes") \
    X(CPU_UPDATES, "step", "cpu_updates") X(ADAM_GB_S, "step", "adam_gb_s") X(MEMORY_DEVICE, "step", "memory_device") \
    X(MEMORY_HOST, "step", "memory_host") X(EPOCH, "step", "epoch") X(SKIPPED, "step", "skipped") X(TIME, "step", "time") \
    X(VALID, "valid", "loss") X(KEPT, "select", "kept") /* the mean of its matrices */ \
    X(GPU_UTILIZATION, "gpu", "utilization") X(GPU_MEMORY, "gpu", "memory_used") X(GPU_POWER, "gpu", "power_w") \
    X(GPU_TEMPERATURE, "gpu", "temperature_c") X(GPU_RX, "gpu", "pcie_rx") X(GPU_TX, "gpu", "pcie_tx")
/* clang-format on */
enum zf_series_id {
#define X(name, type, field) ZF_SERIES_##name,
    ZF_SERIES_MAP(X)
#undef X
        ZF_SERIES_COUNT
};
extern const char *const zf_series_type[ZF_SERIES_COUNT], *const zf_series_field[ZF_SERIES_COUNT];

enum zf_note_kind {
    ZF_NOTE_CHANGE,
    ZF_NOTE_CHECKPOINT,
    ZF_NOTE_MARK,
    ZF_NOTE_NOTE,
    ZF_NOTE_WARNING,
    ZF_NOTE_ERROR,
    ZF_NOTE_SAMPLE,
    ZF_NOTE_RESUME,
    ZF_NOTE_END,
    ZF_NOTE_VALID, /* the most frequent: the first to go when there are too many */
    ZF_NOTE_KINDS
};
extern const char *const zf_note_names[ZF_NOTE_KINDS];
struct zf_note {
    uint64_t step;
    double time; /* seconds since the run's start; below 0: not known */
    enum zf_note_kind kind;
    char *text; /* owned */
};
/* The newest ZF_NOTES_MOST of a kind of thing; [0] is the oldest. added: how many there have been. */
enum { ZF_NOTES_MOST = 4096 };
struct zf_notes {
    struct zf_note *list;
    size_t count;
    uint64_t added;
};

enum zf_buffer_phase { ZF_BUFFER_ACC, ZF_BUFFER_UP, ZF_BUFFER_UPLOAD };
struct zf_buffer { /* of a `groups` entry */
    float fill;
    uint8_t phase;
    uint32_t staleness;
    uint64_t due;
};
enum { ZF_GROUPS_MOST = 64, ZF_GROUP_STEPS = 1024 };
/* Phases of all groups, a column a step: ring. */
struct zf_buffers {
    struct zf_buffer now[ZF_GROUPS_MOST];
    size_t groups;
    uint8_t *phase; /* [ZF_GROUP_STEPS][ZF_GROUPS_MOST]: phase + 1, 0: none; of step s at s % ZF_GROUP_STEPS */
    uint64_t newest;
};

/* Busy intervals of one step, of a `lanes` line (socket only). Seconds since the run's start. */
struct zf_interval_list {
    float (*at)[2];
    size_t count;
};
enum { ZF_LANES_MOST = 8, ZF_LANE_STEPS = 32 };
struct zf_lane_step {
    uint64_t step;
    double from, to; /* at[][] are relative to `from` */
    struct {
        char name[16];
        struct zf_interval_list busy, wait;
    } lane[ZF_LANES_MOST];
    size_t lanes;
};

/* Energy of every matrix, a column a round: as many `select` and `score` lines as it takes until a matrix comes again. Columns are halved
 * in number when they are full. Where nothing is selected it is what the best 10 % of the channels hold. */
enum { ZF_HEAT_COLUMNS = 1024 };
struct zf_matrix_seen {
    char *name;
    uint64_t channels, length;
    uint64_t selected;     /* 0: not known */
    double kept, energy;   /* of the last selection; of the last select or score line; NaN: not known */
    float *energy_column;  /* [ZF_HEAT_COLUMNS], NaN: not known */
    float bin[64], top[6]; /* of the last score; bins: log10 */
    size_t bins;
    uint32_t *channel; /* of the last select line with log_channels, ascending; NULL: not told */
    size_t channel_count;
    uint64_t round; /* of the heat columns; the history's own */
};
struct zf_heat_columns {
    uint64_t *step;               /* [ZF_HEAT_COLUMNS]: of the last line that went into the column */
    size_t used, merged, pending; /* columns; rounds a column; rounds in the last one so far */
};

/* One matrix in full, for the channel panel: columns of scores per bin of channels, from `score` lines, or per channel, from
 * {"type":"watch","step":…,"name":…,"scores":[…],"selected":[…]} (more than ZF_CHANNEL_ROWS channels: rows of about equally many). */
enum { ZF_CHANNEL_COLUMNS = 512, ZF_CHANNEL_ROWS = 1024 };
struct zf_channel_map {
    size_t matrix;     /* whose; SIZE_MAX: nobody's */
    size_t rows;       /* bins or channels */
    bool full;         /* rows are channels: `watch` lines; columns of before have a bin's score in each of its rows */
    float *score;      /* ring [ZF_CHANNEL_COLUMNS][ZF_CHANNEL_ROWS], log10 of the mean score; NaN: none */
    uint8_t *selected; /* the same: share of the row's channels that are selected, 0..255 */
    uint64_t *step;    /* [ZF_CHANNEL_COLUMNS] */
    size_t used, at;
};

/* history*.c's own */
struct zf_history_own {
    uint32_t *slot; /* hash table of the matrices' names: index + 1 */
    size_t slots, channels_kept;
    uint64_t round;
    size_t bytes_of_notes, bytes_of_samples;
    struct zf_channel_entry *entry; /* of the line that is being read */
    uint32_t *channel;
    size_t entry_room, channel_room;
    char *late; /* the newest whole score line that was read in brief */
    size_t late_size, late_room;
};

enum { ZF_GPU_FIELDS = 6 };

struct zf_history {
    /* start */
    char *model, *device, *strategy;
    json_t *options;        /* as they are now: changes are applied */
    json_t *origin_options; /* as they were at the start */
    uint64_t parameters, steps, attempt;
    struct zf_matrix_seen *matrix;
    size_t matrices;
    struct zf_heat_columns heat;
    struct zf_channel_map map;
    /* steps */
    struct zf_series series[ZF_SERIES_COUNT];
    uint64_t step; /* the newest; 0: none */
    double time;   /* of it */
    struct zf_buffers buffers;
    struct zf_lane_step lane_step[ZF_LANE_STEPS]; /* ring */
    size_t lane_steps, lane_at;
    /* words */
    struct zf_notes notes; /* everything but samples, in order */
    struct zf_notes samples;
    struct { /* newest checkpoint or export */
        uint64_t step;
        double seconds, bytes;
        bool export; /* weights only: nothing to resume from */
        char *file;
    } saved;
    double *norm; /* of the newest `norms` line, by matrix */
    uint64_t norm_step;
    char refused[ZF_GPU_FIELDS][48]; /* why a GPU does not tell a figure; empty: it does, or nobody has asked */
    bool ended;
    char end_reason[16];
    uint64_t parsed, bad;     /* lines that needed a parser for JSON; that were none */
    bool brief, mapping;      /* see zf_history_brief, zf_history_mapping */
    uint64_t watched;         /* how often `map` was begun */
    uint64_t version_of_data; /* grows with every line that changed something: what is drawn is older if it differs */
    struct zf_history_own own;
};

void zf_history_open(struct zf_history *h);
void zf_history_close(struct zf_history *h);
/* Borrowed. false: passed over (no type known, no memory). */
bool zf_history_take(struct zf_history *h, const json_t *line);
/* A line of text. `step` lines as our own writer makes them are read without a parser for JSON, the others with one. */
bool zf_history_text(struct zf_history *h, const char *line, size_t size);
/* While a feed catches up with a long file: bins and tops of `score` lines are passed over, but for the matrix that `map` follows. When
 * that ends the newest are there. */
void zf_history_brief(struct zf_history *h, bool brief);
/* Which matrix `map` follows; SIZE_MAX: none. What was collected goes; a feed then brings the columns of before: while it is at it other
 * lines leave the map alone, and what it tells by zf_history_map is for the map only. */
void zf_history_watch(struct zf_history *h, size_t matrix);
void zf_history_mapping(struct zf_history *h, bool on);
void zf_history_map(struct zf_history *h, const char *line, size_t size);
/* A state to come back to, for a recording that is wound back. false: no memory (then `to` is empty). `to` is an opened one. */
bool zf_history_copy(struct zf_history *to, const struct zf_history *from);

/* Sizes, options as text: "" if there is none. */
const char *zf_history_option(const struct zf_history *h, const char *name, char *buffer, size_t size);
const char *zf_history_refused(const struct zf_history *h, enum zf_series_id id); /* NULL: it is not a figure that a GPU keeps to itself */
const struct zf_series *zf_history_series(const struct zf_history *h, enum zf_series_id id);
/* Seconds that are left, by the newest steps; below 0: not known. */
double zf_history_eta(const struct zf_history *h);
double zf_history_pace(const struct zf_history *h); /* seconds a step, of the newest ones; below 0: not known */

#endif
