/* Everything that a pipeline, and the model it trains, need to go on as if they had never stopped: pieces of memory with names, and a JSON
 * object of what is no array. One list of pieces serves writing and reading. Between two steps.
 *
 * Either training waits meanwhile (zf_state_open), or the state is that of a moment while training goes on (zf_state_copy). Then what every
 * step alters, the device half and the visible weights, is copied by the lanes at that place; the CPU half's state and its slots stay where
 * they are until the CPU serves a matrix the next time: by then it has been read by whoever writes it, or it is copied, if there is memory
 * for that, or else the cpu lane waits.
 *
 * Names: PARAMETER:WHAT. Rows of masters, moments and counts are in the order of channels, whoever owns them, so that a file does not
 * depend on where they lie. Visible weights are stored as what they differ from the rounded master by, as integers of the same size: almost
 * all zeros (formats.md 5). */
#ifndef ZF_PIPELINE_STATE_H
#define ZF_PIPELINE_STATE_H

#include "core/pipeline/pipeline.h"

#include <jansson.h>
#include <stdbool.h>

enum zf_state_type { ZF_STATE_F32, ZF_STATE_BF16, ZF_STATE_U32, ZF_STATE_I16, ZF_STATE_I32 };
size_t zf_state_type_bytes(enum zf_state_type t);

enum zf_state_place {
    ZF_STATE_MASTER,  /* of a parameter */
    ZF_STATE_VISIBLE, /* its weights, against its masters, which come before them */
    ZF_STATE_HALVES,  /* of a matrix: an array of both halves' rows */
    ZF_STATE_DEVICE,  /* plain device memory */
    ZF_STATE_HOST,    /* plain host memory */
    ZF_STATE_CHUNKED  /* rows in pieces of pinned memory */
};

/* Which of its rows a rank has. In the file those of all ranks come together, so that it does not tell how many they were. */
enum zf_state_split {
    ZF_STATE_WHOLE,      /* all of them: every rank has the same, and the first one's are kept */
    ZF_STATE_BY_CHANNEL, /* a row a channel: those of its share */
    ZF_STATE_BY_RANK,    /* rows of its own CPU half: one rank's behind the other's */
    ZF_STATE_ORDER       /* the same, behind those of the device half */
};

struct zf_state_piece {
    char name[256];
    enum zf_state_type type;
    size_t rows, cols;
    enum zf_state_place place;
    enum zf_state_split split;
    size_t part;      /* of zf_state.part: whose it is */
    int array;        /* HALVES: which */
    bool cpu_own;     /* the cpu lane alone alters it, every few steps or every one */
    bool forward_own; /* a forward may alter it, as the visible weights */
    void *memory;     /* DEVICE, HOST */
    struct zf_rows_memory chunks;
};

enum zf_state_stage {
    ZF_STATE_PENDING, /* the CPU half's state lies where the CPU will alter it */
    ZF_STATE_WRITING, /* the same, and it is being read */
    ZF_STATE_KEPT,    /* copied */
    ZF_STATE_DONE
};

/* A parameter: where the memory is that its pieces are made of. */
struct zf_state_part {
    const struct zf_param *param;
    struct zf_matrix *matrix;                       /* one with two halves; NULL: a vector, or one that has no owners (yet) */
    size_t channels, device_rows, cpu_rows, length; /* cpu_rows: of this rank */
    const uint32_t *order;                          /* [channels] */
    struct zf_array device[ZF_ARRAYS], cpu[ZF_ARRAYS];
    float *block;  /* masters where there are no halves */
    char *weights; /* visible */
    struct zf_state_piece *first;
    size_t pieces;
    /* of a copy, under the gate's lock */
    struct zf_state_gate *gate;
    enum zf_state_stage stage;
    uint64_t serves; /* at the end of which step the CPU half is altered next */
    void *kept;
    size_t kept_bytes;
};

struct zf_state {
    struct zf_pipeline *pipeline;
    struct zf_state_piece *list;
    size_t count, room;
    struct zf_state_part *part; /* in the gate's block where there is one */
    size_t parts;
    struct zf_state_gate *gate; /* of a copy; NULL: training waits */
    void ***lists;              /* of a copy: the chunks of slots */
    size_t list_count;
    struct zf_state_copies {
        struct zf_copy *list;
        size_t count;
    } copies[3];       /* of a copy: for the lanes */
    void *const *kept; /* all rows of each piece, in host memory; NULL: they lie where they lie. Not freed with it */
    /* scratch */
    const struct zf_state_part *slots_of;
    uint32_t *slot;         /* of each channel of that matrix: its row in the device half, then in the CPU half */
    uint32_t *rows, *place; /* of rows that are fetched together: their numbers, and where they go */
    float *buffer;          /* as large as a piece of the ring */
};

/* Memory for copies; whoever saves more than once keeps it. Zeroed at first, freed by its owner. */
struct zf_state_memory {
    void *bytes; /* pinned */
    size_t size;
    bool held; /* its owner looks at it meanwhile: it may be written, but a copy that needs more is ZF_BUSY */
};

/* The pieces that there are now. Settles the pipeline and waits, as reading and writing then do. ZF_NUMERIC: a failure has left parameters
 * of different steps: nothing to go on from. */
enum zf_status zf_state_open(struct zf_state *s, struct zf_pipeline *p, struct zf_err *e);
void zf_state_close(struct zf_state *s);             /* zeroed is fine. The issuing thread; a copy: after zf_state_over */
json_t *zf_state_facts(const struct zf_pipeline *p); /* NULL: no memory */

/* The same, while the lanes go on: issues the copies, into `memory`, and returns. Of the CPU half at most what then is left of `most` bytes
 * is ever copied. ZF_MEMORY: `most` is not enough for what must be, or the system has no such memory; the caller may let training wait. One
 * copy at a time. */
enum zf_status zf_state_copy(struct zf_state *s, struct zf_pipeline *p, struct zf_state_memory *memory, size_t most, struct zf_err *e);
/* Takes as much memory as the next copy is likely to need: whose first use takes its time. */
enum zf_status zf_state_prepare(struct zf_pipeline *p, struct zf_state_memory *memory, size_t most, struct zf_err *e);
/* By the thread that writes the copy, whichever it is: waits until all is copied that is to be; then part after part, each of which may be
 * read between next and done. NULL: that was the last one. over: nobody needs to wait for this copy any more. */
enum zf_status zf_state_ready(struct zf_state *s, struct zf_err *e);
struct zf_state_part *zf_state_next(struct zf_state *s);
void zf_state_done(struct zf_state *s, struct zf_state_part *x);
void zf_state_over(struct zf_state *s);
double zf_state_waited(struct zf_state *s); /* seconds that compute has waited for copies */

/* Rows first .. first + n of a piece, [n][cols], to or from host memory. Writing: in the order of the list. */
enum zf_status zf_state_read(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, void *out, struct zf_err *e);
enum zf_status zf_state_write(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, const void *in, struct zf_err *e);

/* The rows of a piece that this rank gives: with one rank, all. */
void zf_state_own(const struct zf_state *s, const struct zf_state_piece *x, size_t *first, size_t *n);
/* Ranks: the weights of rows first .. first + n, of which `masters` are all masters there are, in whatever rank. */
enum zf_status zf_state_write_visible(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, const void *in,
                                      const float *masters, struct zf_err *e);
/* Of a matrix whose rows lie in the file as channels[0 .. n) say: the one that is row i there, on this rank; UINT32_MAX: it is another's.
 */
void zf_state_places(const struct zf_state *s, const struct zf_state_piece *x, const uint32_t *channels, size_t n, uint32_t *to);
size_t zf_state_staged(const struct zf_pipeline *p, size_t matrix, bool *moved); /* this rank's */

/* How ranks read what a file says of their channels before there is memory for the rest: u32 rows of a piece by its name. *count: how many
 * there are, at most `room`. */
typedef enum zf_status zf_state_list_reader(void *ctx, const char *name, uint32_t *out, size_t room, size_t *count, struct zf_err *e);

/* A pipeline that has just been opened, under the policy that it had then, gets the form that the facts tell: then zf_state_open has the
 * same pieces as there were, to be written, all of them, then zf_state_settled. ZF_FORMAT: the facts do not fit. */
enum zf_status zf_state_shape(struct zf_pipeline *p, const json_t *facts, zf_state_list_reader *read, void *ctx, struct zf_err *e);
enum zf_status zf_state_settled(struct zf_pipeline *p, struct zf_err *e);

#endif
