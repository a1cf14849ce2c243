/* safetensors: reader (memory-mapped, every check of the reference reader and more) and writer.
 * Format: u64 little-endian N, N bytes of JSON, data. */
#ifndef ZF_CHECKPOINTS_SAFETENSORS_H
#define ZF_CHECKPOINTS_SAFETENSORS_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum zf_st_type { /* in the order of the reference implementation */
                  ZF_ST_BOOL,
                  ZF_ST_F4,
                  ZF_ST_F6_E2M3,
                  ZF_ST_F6_E3M2,
                  ZF_ST_U8,
                  ZF_ST_I8,
                  ZF_ST_F8_E5M2,
                  ZF_ST_F8_E4M3,
                  ZF_ST_F8_E8M0,
                  ZF_ST_F8_E4M3FNUZ,
                  ZF_ST_F8_E5M2FNUZ,
                  ZF_ST_I16,
                  ZF_ST_U16,
                  ZF_ST_F16,
                  ZF_ST_BF16,
                  ZF_ST_I32,
                  ZF_ST_U32,
                  ZF_ST_F32,
                  ZF_ST_C64,
                  ZF_ST_F64,
                  ZF_ST_I64,
                  ZF_ST_U64,
                  ZF_ST_TYPES
};

enum { ZF_ST_DIMENSIONS = 16 };

struct zf_st_tensor {
    const char *name; /* any UTF-8: escape before printing */
    enum zf_st_type type;
    size_t rank, shape[ZF_ST_DIMENSIONS];
    size_t elements;
    const unsigned char *data; /* inside the mapping, maybe unaligned: read with memcpy */
    size_t bytes, offset;      /* offset in the file */
};

struct zf_safetensors {
    struct zf_map map;
    struct zf_arena arena;
    struct zf_st_tensor *list; /* in the order of offsets */
    size_t count;
    struct zf_st_tensor **sorted; /* by name: zf_st_find bisects */
    const char **metadata;        /* pairs: key, value */
    size_t metadata_count;
};

/* Every malformed file is ZF_FORMAT with the name of the check's finding, the tensor and the offset; guesses what the file is instead (a
 * Git-LFS pointer, a pickle, an HTML page, truncated by N bytes). Nothing is allocated from a size that was not checked against the file.
 */
enum zf_status zf_st_open(struct zf_safetensors *out, const char *path, struct zf_err *e);
/* The same on bytes in memory, which must outlive *out. For fuzzing. */
enum zf_status zf_st_parse(struct zf_safetensors *out, const unsigned char *data, size_t size, const char *path, struct zf_err *e);
void zf_st_close(struct zf_safetensors *s);

const struct zf_st_tensor *zf_st_find(const struct zf_safetensors *s, const char *name); /* NULL: none */
const char *zf_st_type_name(enum zf_st_type t);
/* A name as it may be printed: anything but printable ASCII as \xNN, long ones cut. Returns `to`, of `room` > 8 bytes. */
char *zf_st_escape(char *to, size_t room, const char *name);
size_t zf_st_type_bits(enum zf_st_type t);

/* Elements first .. first+n of a F32, BF16, F16 or F64 tensor as floats. ZF_FORMAT for other types. */
enum zf_status zf_st_floats(float *to, const struct zf_st_tensor *t, size_t first, size_t n, struct zf_err *e);
/* Of a I64, I32, U8, ... tensor. */
enum zf_status zf_st_integers(int64_t *to, const struct zf_st_tensor *t, size_t first, size_t n, struct zf_err *e);

/* Writing: declare every tensor, then supply the data in the order of zf_st_writer_next. */
struct zf_st_entry {
    const char *name;
    enum zf_st_type type;
    size_t rank, shape[ZF_ST_DIMENSIONS];
};

/* The bytes of its data, overflow-checked. ZF_FORMAT: too many dimensions, too big, or no whole number of bytes. */
enum zf_status zf_st_entry_bytes(size_t *bytes, const struct zf_st_entry *t, struct zf_err *e);

/* Called for each tensor in file order; writes its bytes by zf_st_sink, in pieces of any size. */
struct zf_st_sink;
enum zf_status zf_st_put(struct zf_st_sink *sink, const void *data, size_t bytes, struct zf_err *e);
typedef enum zf_status zf_st_source(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e); /* index into entries */

/* One file: written beside, fsync, rename. Always has __metadata__ {"format": "pt"}. Entries are ordered by type, then name, in the file.
 * Streams: memory does not grow with the tensors. */
enum zf_status zf_st_write(const char *path, const struct zf_st_entry *entries, size_t count, zf_st_source *source, void *ctx,
                           struct zf_err *e);

#endif
