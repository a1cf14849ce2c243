/* Checkpoint files for the tests and the fuzzer: the standard one, and any that can be put together by hand, with checksums that are right.
 */
#ifndef ZF_TESTS_CHECKPOINTS_CONTAINER_SUPPORT_H
#define ZF_TESTS_CHECKPOINTS_CONTAINER_SUPPORT_H

#include "checkpoints/container_file.h"
#include "core/base/rng.h"
#include <stdlib.h>
#include <xxhash.h>

/* Byte i of the data of tensor t: the upper bytes of elements are small and repeat, the lower ones are noise, as of floats. No element of
 * it is NaN or infinite. */
static inline unsigned char content(size_t t, size_t i, enum zf_ckpt_type type)
{
    size_t bytes = zf_ckpt_type_bytes(type), place = i % bytes;
    uint32_t r = zf_philox(t, ZF_STREAM_TEST, i / 4).v[i % 4];
    return (unsigned char)(bytes > 1 && place == bytes - 1 ? 0x38 + (r & r >> 8 & 3) : r >> 24);
}

static inline unsigned char *contents(size_t t, enum zf_ckpt_type type, size_t bytes)
{
    unsigned char *data = malloc(bytes ? bytes : 1);
    for (size_t i = 0; data && i < bytes; i++) data[i] = content(t, i, type);
    return data;
}

/* One tensor of each type, sizes on both sides of the standard file's chunk; one without elements, one without dimensions. */
static const struct {
    const char *name;
    enum zf_ckpt_type type;
    size_t rank;
    uint64_t shape[ZF_CKPT_DIMENSIONS];
} standard[] = {
    {"weight", ZF_CKPT_F32, 2, {41, 73}}, {"half", ZF_CKPT_BF16, 2, {3, 701}}, {"other half", ZF_CKPT_F16, 1, {512}},
    {"double", ZF_CKPT_F64, 1, {300}},    {"bytes", ZF_CKPT_U8, 1, {5000}},    {"counts", ZF_CKPT_U32, 3, {2, 3, 200}},
    {"empty", ZF_CKPT_F32, 3, {4, 0, 2}}, {"scalar", ZF_CKPT_U64, 0, {0}},     {"owners", ZF_CKPT_I16, 1, {511}},
    {"signed", ZF_CKPT_I32, 1, {257}},
};
enum { STANDARD = sizeof standard / sizeof *standard, STANDARD_CHUNK = 1024 };

static inline uint64_t standard_bytes(size_t t)
{
    uint64_t n = zf_ckpt_type_bytes(standard[t].type);
    for (size_t d = 0; d < standard[t].rank; d++) n *= standard[t].shape[d];
    return n;
}

static inline enum zf_status put_standard(struct zf_ckpt_writer *w, size_t piece, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    for (size_t t = 0; t < STANDARD && !s; t++) {
        size_t bytes = (size_t)standard_bytes(t);
        unsigned char *data = contents(t, standard[t].type, bytes);
        if (!data) abort();
        s = zf_ckpt_begin(w, standard[t].name, standard[t].type, standard[t].rank, standard[t].shape, e);
        for (size_t at = 0; at < bytes && !s; at += piece) s = zf_ckpt_put(w, data + at, bytes - at < piece ? bytes - at : piece, e);
        free(data);
    }
    return s;
}

/* The standard file. Whatever fails, the writer is gone afterwards. */
static inline enum zf_status write_standard(const char *path, const struct zf_ckpt_options *o, size_t piece, struct zf_err *e)
{
    struct zf_ckpt_writer *w;
    ZF_TRY(zf_ckpt_create(&w, path, o, e));
    put_standard(w, piece, e);
    return zf_ckpt_finish(w, json_pack("{s:i,s:s}", "step", 500, "of", "the tests"), e);
}

/* A whole file from its parts, to be freed: chunks (from byte 48 on), the frame of the index. */
static inline unsigned char *assemble(const void *chunks, size_t bytes, const void *index, size_t length, unsigned version, size_t *size)
{
    unsigned char *file = calloc(1, bytes + length + 2 * ZF_ZFC_EDGE), *end = file + ZF_ZFC_EDGE + bytes + length;
    if (!file) abort();
    *size = (size_t)(end - file) + ZF_ZFC_EDGE;
    if (bytes) memcpy(file + ZF_ZFC_EDGE, chunks, bytes);
    if (length) memcpy(file + ZF_ZFC_EDGE + bytes, index, length);
    zf_zfc_put(file, ZF_ZFC_SKIPPABLE, 4);
    zf_zfc_put(file + 4, ZF_ZFC_EDGE - 8, 4);
    memcpy(file + 8, ZF_ZFC_MAGIC, ZF_ZFC_VERSION - 8);
    zf_zfc_put(file + ZF_ZFC_VERSION, version, 4);
    zf_zfc_put(file + ZF_ZFC_SIZE, *size, 8);
    zf_zfc_put(file + ZF_ZFC_CHECK, XXH3_64bits(file, ZF_ZFC_CHECK), 8);
    zf_zfc_put(end, ZF_ZFC_SKIPPABLE, 4);
    zf_zfc_put(end + 4, ZF_ZFC_EDGE - 8, 4);
    zf_zfc_put(end + ZF_ZFC_INDEX_AT, ZF_ZFC_EDGE + bytes, 8);
    zf_zfc_put(end + ZF_ZFC_INDEX_SIZE, length, 8);
    zf_zfc_put(end + ZF_ZFC_INDEX_CHECK, XXH3_64bits(index, length), 8);
    zf_zfc_put(end + ZF_ZFC_FILE_SIZE, *size, 8);
    memcpy(end + ZF_ZFC_TAIL, ZF_ZFC_END, 8);
    return file;
}

/* The same with the text of the index. */
static inline unsigned char *assemble_text(const void *chunks, size_t bytes, const char *text, size_t length, unsigned version,
                                           size_t *size)
{
    struct zf_zfc_coder coder;
    struct zf_err e;
    unsigned char *frame = malloc(zf_zfc_room(length));
    size_t n;
    if (!frame || zf_zfc_coder_open(&coder, 8, true, 1, &e) || zf_zfc_frame(&coder, frame, text, length, false, &n, &e)) abort();
    unsigned char *file = assemble(chunks, bytes, frame, n, version, size);
    zf_zfc_coder_close(&coder);
    free(frame);
    return file;
}

#endif
