/* Everything that a pipeline, and the model it trains, need to go on as if they had never stopped: pieces of memory with names, and a JSON
 * object of what is no array. One list of pieces serves writing and reading. Between two steps; every function waits.
 *
 * Names: PARAMETER:WHAT. Rows of masters, moments and counts are in the order of channels, whoever owns them, so that a file does not
 * depend on where they lie. Visible weights are stored as what they differ from the rounded master by, as integers of the same size: almost
 * all zeros (formats.md 5). */
#ifndef ZF_PIPELINE_STATE_H
#define ZF_PIPELINE_STATE_H

#include "core/pipeline/pipeline.h"

#include <jansson.h>

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

struct zf_state_piece {
    char name[256];
    enum zf_state_type type;
    size_t rows, cols;
    enum zf_state_place place;
    const struct zf_param *param;
    struct zf_matrix *matrix;     /* HALVES; MASTER, VISIBLE of a matrix that is trained, else NULL */
    const struct zf_half *vector; /* MASTER of a parameter of one dimension that is trained */
    int array;                    /* HALVES: which */
    void *memory;                 /* DEVICE, HOST */
    const struct zf_rows_memory *chunks;
};

struct zf_state {
    struct zf_pipeline *pipeline;
    struct zf_state_piece *list;
    size_t count, room;
    /* scratch */
    const struct zf_matrix *slots_of;
    uint32_t *slot;         /* of each channel of that matrix: its row in the device half, then in the CPU half */
    uint32_t *rows, *place; /* of rows that are fetched together: their numbers, and where they go */
    float *buffer;          /* as large as a piece of the ring */
};

/* The pieces that there are now. Settles the pipeline. ZF_NUMERIC: a failure has left parameters of different steps: nothing to go on from.
 */
enum zf_status zf_state_open(struct zf_state *s, struct zf_pipeline *p, struct zf_err *e);
void zf_state_close(struct zf_state *s);             /* zeroed is fine */
json_t *zf_state_facts(const struct zf_pipeline *p); /* NULL: no memory */

/* Rows first .. first + n of a piece, [n][cols], to or from host memory. Writing: in the order of the list. */
enum zf_status zf_state_read(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, void *out, struct zf_err *e);
enum zf_status zf_state_write(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, const void *in, struct zf_err *e);

/* A pipeline that has just been opened, under the policy that it had then, gets the form that the facts tell: then zf_state_open has the
 * same pieces as there were, to be written, all of them, then zf_state_settled. ZF_FORMAT: the facts do not fit. */
enum zf_status zf_state_shape(struct zf_pipeline *p, const json_t *facts, struct zf_err *e);
enum zf_status zf_state_settled(struct zf_pipeline *p, struct zf_err *e);

#endif
