/* The checkpoint container (.zfc): named tensors and one JSON object in one file that verifies itself. It knows nothing of training.
 *
 * A sequence of zstd frames, so that `zstd -t FILE` checks it, too: a header (a skippable frame), the tensors' chunks, the index (a frame
 * of JSON), a footer (a skippable frame). A chunk is cut and compressed on its own: chunks are written and read on all threads of a pool,
 * the file does not depend on their number, and part of a tensor can be read alone. container_file.h has the layout. */
#ifndef ZF_CHECKPOINTS_CONTAINER_H
#define ZF_CHECKPOINTS_CONTAINER_H

#include "core/base/err.h"
#include "core/base/pool.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum zf_ckpt_type {
    ZF_CKPT_F32,
    ZF_CKPT_BF16,
    ZF_CKPT_F16,
    ZF_CKPT_F64,
    ZF_CKPT_U8,
    ZF_CKPT_U32,
    ZF_CKPT_U64,
    ZF_CKPT_I16,
    ZF_CKPT_I32,
    ZF_CKPT_TYPES
};

enum { ZF_CKPT_VERSION = 1, ZF_CKPT_DIMENSIONS = 8, ZF_CKPT_NAME = 255, ZF_CKPT_DAMAGES = 16 };

const char *zf_ckpt_type_name(enum zf_ckpt_type t); /* "f32" */
size_t zf_ckpt_type_bytes(enum zf_ckpt_type t);

/* Writing. One thread per writer; what it gives to the pool it waits for. */
struct zf_ckpt_counts {
    uint64_t raw, stored; /* bytes of tensors taken; bytes of the file */
};

struct zf_ckpt_options {
    int level;                     /* of zstd; 0: not compressed; 1 is best for planes of floats */
    size_t chunk;                  /* bytes before compression, a multiple of 8 up to 16 MiB; 0: 1 MiB */
    struct zf_pool *pool;          /* NULL: this thread alone. Each thread takes two chunks of memory, and its tables of zstd */
    bool finite;                   /* refuse NaN and infinity: ZF_NUMERIC with tensor and element */
    bool drop_pages;               /* written out while it goes on, and dropped from the page cache */
    struct zf_ckpt_counts *counts; /* kept up to date by the writer's thread if not NULL; must outlive the writer */
};

struct zf_ckpt_writer;

/* `path` appears when finish succeeds, never half of it; before, and after a failure, it is as it was, and nothing is left beside it. Only
 * if the last step, fsync of the directory, fails is the file there, whole, but may be gone after a crash of the machine. The first failure
 * stays: later calls return it. */
enum zf_status zf_ckpt_create(struct zf_ckpt_writer **out, const char *path, const struct zf_ckpt_options *o, struct zf_err *e);
/* Names: printable ASCII, at most ZF_CKPT_NAME, each once. The tensor before must have all its bytes. */
enum zf_status zf_ckpt_begin(struct zf_ckpt_writer *w, const char *name, enum zf_ckpt_type type, size_t rank, const uint64_t *shape,
                             struct zf_err *e);
enum zf_status zf_ckpt_put(struct zf_ckpt_writer *w, const void *data, size_t bytes, struct zf_err *e); /* pieces of any size */
/* Both free the writer. info, an object or NULL, is taken whatever comes of it. */
enum zf_status zf_ckpt_finish(struct zf_ckpt_writer *w, json_t *info, struct zf_err *e);
void zf_ckpt_abandon(struct zf_ckpt_writer *w); /* NULL is fine */

/* Reading. From several threads at once is fine, each with a pool of its own. */
struct zf_ckpt_chunk {
    uint64_t offset, xxh3;
    uint32_t stored, tensor; /* bytes in the file; whose it is: list[tensor] */
};

struct zf_ckpt_tensor {
    const char *name;
    enum zf_ckpt_type type;
    size_t rank;
    uint64_t shape[ZF_CKPT_DIMENSIONS];
    uint64_t bytes, offset, stored; /* raw; where in the file and how many there */
    bool planes;
    size_t chunk_count;
    const struct zf_ckpt_chunk *chunks;
    const json_t *json; /* its entry in the index, with whatever a later program added */
};

struct zf_ckpt {
    char *path;
    int fd;
    uint64_t size;
    size_t chunk, count;
    struct zf_ckpt_tensor *list; /* in the order of the file */
    struct zf_ckpt_tensor **sorted;
    struct zf_ckpt_chunk *chunks;
    json_t *index; /* all of it, also what this program does not know */
    json_t *info;  /* the writer's object, in the index */
};

/* Header, footer and index verified, not the tensors. What is no checkpoint, cut short, damaged or too new is ZF_FORMAT, with what it is
 * instead. Nothing is allocated from a size that was not checked against the file. */
enum zf_status zf_ckpt_open(struct zf_ckpt *out, const char *path, struct zf_err *e);
void zf_ckpt_close(struct zf_ckpt *c);
const struct zf_ckpt_tensor *zf_ckpt_find(const struct zf_ckpt *c, const char *name); /* NULL: none */

/* Bytes from .. from + bytes of a tensor. Each chunk they are in is verified; one that is damaged is ZF_FORMAT with file, tensor and chunk,
 * and `to` is not to be used. */
enum zf_status zf_ckpt_read(const struct zf_ckpt *c, const struct zf_ckpt_tensor *t, void *to, uint64_t from, uint64_t bytes,
                            struct zf_pool *pool, struct zf_err *e);

struct zf_ckpt_damage {
    size_t count; /* of damaged tensors, may be more than are listed */
    struct {
        const struct zf_ckpt_tensor *tensor;
        size_t chunk; /* the first one */
    } list[ZF_CKPT_DAMAGES];
};

/* Every chunk of every tensor, checksummed and decoded. ZF_FORMAT names the damaged tensors; `damage` may be NULL. */
enum zf_status zf_ckpt_verify(const struct zf_ckpt *c, struct zf_pool *pool, struct zf_ckpt_damage *damage, struct zf_err *e);

#endif
