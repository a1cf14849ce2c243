/* Coding of a checkpoint's chunks: byte planes, zstd frames. Each thread has its own coder. A chunk goes to and fro between the coder's two
 * buffers, so that no third one is needed: split from `data` into `spare`, compressed from there back into `data`. */
#include "checkpoints/container_file.h"

#include <stdlib.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

/* Level 1 for planes of floats. Exponents have few values and no order: what zstd finds there are chance matches, which take time and come
 * out longer than the bytes themselves would. Long ones in a small table are runs and repeated rows; all else is left to its entropy coder.
 */
enum { FLOAT_MATCH = 7, FLOAT_HASH_LOG = 8 };

enum { PROBE = 4096, PROBE_PAYS = PROBE * 97 / 100, BLOCK = 128 << 10, FRAME_HEADER = 9, BLOCK_HEADER = 3, CHECKSUM = 4 };

const struct zf_zfc_type zf_zfc_types[ZF_CKPT_TYPES] = {
    [ZF_CKPT_F32] = {"f32", 4, true, 0x7f800000}, [ZF_CKPT_BF16] = {"bf16", 2, true, 0x7f80},
    [ZF_CKPT_F16] = {"f16", 2, true, 0x7c00},     [ZF_CKPT_F64] = {"f64", 8, false, 0x7ff0000000000000},
    [ZF_CKPT_U8] = {"u8", 1, false, 0},           [ZF_CKPT_U32] = {"u32", 4, true, 0},
    [ZF_CKPT_U64] = {"u64", 8, false, 0},         [ZF_CKPT_I16] = {"i16", 2, true, 0},
    [ZF_CKPT_I32] = {"i32", 4, true, 0},
};

const char *zf_ckpt_type_name(enum zf_ckpt_type t)
{
    return (unsigned)t < ZF_CKPT_TYPES ? zf_zfc_types[t].name : "no type";
}

size_t zf_ckpt_type_bytes(enum zf_ckpt_type t)
{
    return (unsigned)t < ZF_CKPT_TYPES ? zf_zfc_types[t].bytes : 0;
}

/* Four frames of raw blocks, or three and one at zstd's bound, which is a 256th and 64 bytes more. */
size_t zf_zfc_room(size_t bytes)
{
    return bytes + bytes / 128 + 512;
}

enum zf_status zf_zfc_coder_open(struct zf_zfc_coder *c, size_t chunk, bool write, int level, struct zf_err *e)
{
    *c = (struct zf_zfc_coder){.data = malloc(zf_zfc_room(chunk)), .spare = malloc(zf_zfc_room(chunk)), .level = level};
    if (write)
        c->compress = ZSTD_createCCtx();
    else
        c->decompress = ZSTD_createDCtx();
    if (!c->data || !c->spare || !(write ? (void *)c->compress : (void *)c->decompress))
        return zf_fail_memory(e, "the chunks of a checkpoint");
    if (!write) return ZF_OK;
    ZSTD_CCtx_setParameter(c->compress, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c->compress, ZSTD_c_checksumFlag, 1);
    return ZF_OK;
}

void zf_zfc_coder_close(struct zf_zfc_coder *c)
{
    free(c->data);
    free(c->spare);
    ZSTD_freeCCtx(c->compress);
    ZSTD_freeDCtx(c->decompress);
    *c = (struct zf_zfc_coder){0};
}

/* Plain loops over words: compilers make vectors of them. Of n elements, byte p of each goes to to[p * n ...]. */
static void split2(unsigned char *restrict to, const unsigned char *restrict from, size_t n)
{
    unsigned char *restrict a = to, *restrict b = to + n;
    for (size_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, sizeof x);
        a[i] = (unsigned char)x;
        b[i] = (unsigned char)(x >> 8);
    }
}

static void split4(unsigned char *restrict to, const unsigned char *restrict from, size_t n)
{
    unsigned char *restrict a = to, *restrict b = to + n, *restrict c = b + n, *restrict d = c + n;
    for (size_t i = 0; i < n; i++) {
        uint32_t x;
        memcpy(&x, from + 4 * i, sizeof x);
        a[i] = (unsigned char)x;
        b[i] = (unsigned char)(x >> 8);
        c[i] = (unsigned char)(x >> 16);
        d[i] = (unsigned char)(x >> 24);
    }
}

static void merge2(unsigned char *restrict to, const unsigned char *restrict from, size_t n)
{
    const unsigned char *a = from, *b = from + n;
    for (size_t i = 0; i < n; i++) {
        uint16_t x = (uint16_t)(a[i] | b[i] << 8);
        memcpy(to + 2 * i, &x, sizeof x);
    }
}

static void merge4(unsigned char *restrict to, const unsigned char *restrict from, size_t n)
{
    const unsigned char *a = from, *b = from + n, *c = b + n, *d = c + n;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
        memcpy(to + 4 * i, &x, sizeof x);
    }
}

/* A frame of raw blocks, of at least one byte: what does not compress costs a copy. Returns its size. */
static size_t store(unsigned char *to, const unsigned char *data, size_t bytes)
{
    unsigned char *at = to;
    zf_zfc_put(at, ZSTD_MAGICNUMBER, 4);
    at[4] = 0xA4; /* content size of 4 bytes, single segment, checksum */
    zf_zfc_put(at + 5, bytes, 4);
    at += FRAME_HEADER;
    for (size_t from = 0, n; from < bytes; from += n) {
        n = bytes - from < BLOCK ? bytes - from : BLOCK;
        zf_zfc_put(at, n << 3 | (from + n == bytes), BLOCK_HEADER);
        memcpy(at + BLOCK_HEADER, data + from, n);
        at += BLOCK_HEADER + n;
    }
    zf_zfc_put(at, XXH64(data, bytes, 0), CHECKSUM);
    return (size_t)(at + CHECKSUM - to);
}

static enum zf_status compress(struct zf_zfc_coder *c, unsigned char *to, const unsigned char *data, size_t bytes, size_t *size,
                               struct zf_err *e)
{
    *size = ZSTD_compress2(c->compress, to, ZSTD_compressBound(bytes), data, bytes);
    if (!ZSTD_isError(*size)) return ZF_OK;
    if (ZSTD_getErrorCode(*size) == ZSTD_error_memory_allocation) return zf_fail_memory(e, "the tables of zstd");
    return zf_fail(e, ZF_IO, NULL, "zstd cannot compress %zu bytes: %s", bytes, ZSTD_getErrorName(*size));
}

enum zf_status zf_zfc_frame(struct zf_zfc_coder *c, unsigned char *to, const void *data, size_t bytes, bool floats, size_t *size,
                            struct zf_err *e)
{
    bool pays = c->level != 0, tuned = floats && c->level == 1;
    ZSTD_CCtx_setParameter(c->compress, ZSTD_c_minMatch, tuned ? FLOAT_MATCH : 0);
    ZSTD_CCtx_setParameter(c->compress, ZSTD_c_hashLog, tuned ? FLOAT_HASH_LOG : 0);
    if (pays && bytes > PROBE) {
        ZF_TRY(compress(c, to, data, PROBE, size, e));
        pays = *size < PROBE_PAYS;
    }
    if (pays) ZF_TRY(compress(c, to, data, bytes, size, e));
    if (!pays || *size > bytes) *size = store(to, data, bytes);
    return ZF_OK;
}

enum zf_status zf_zfc_encode(struct zf_zfc_coder *c, size_t bytes, const struct zf_zfc_type *type, size_t *stored, struct zf_err *e)
{
    size_t planes = type->planes ? type->bytes : 1, n = bytes / planes, size;
    if (planes == 4)
        split4(c->spare, c->data, n);
    else if (planes == 2)
        split2(c->spare, c->data, n);
    else {
        unsigned char *swap = c->spare;
        c->spare = c->data;
        c->data = swap;
    }
    *stored = 0;
    for (size_t p = 0; p < planes; p++) {
        ZF_TRY(zf_zfc_frame(c, c->data + *stored, c->spare + p * n, n, type->planes && type->exponent, &size, e));
        *stored += size;
    }
    return ZF_OK;
}

/* As many frames as planes, each of the size it must have: an index that names another filter is found out. */
const char *zf_zfc_decode(struct zf_zfc_coder *c, size_t stored, size_t bytes, size_t planes)
{
    const unsigned char *at = c->data, *end = c->data + stored;
    size_t n = bytes / planes;
    for (size_t p = 0; p < planes; p++) {
        size_t size = ZSTD_findFrameCompressedSize(at, (size_t)(end - at)), got = size;
        if (!ZSTD_isError(size)) got = ZSTD_decompressDCtx(c->decompress, c->spare + p * n, n, at, size);
        if (ZSTD_isError(got)) return ZSTD_getErrorName(got);
        if (got != n) return "it has fewer bytes than its tensor needs";
        at += size;
    }
    return at == end ? NULL : "it has more bytes than its tensor needs";
}

void zf_zfc_take(struct zf_zfc_coder *c, size_t bytes, size_t planes, void *to, size_t from, size_t n)
{
    unsigned char *whole = n == bytes ? to : c->data;
    if (planes == 4)
        merge4(whole, c->spare, bytes / 4);
    else if (planes == 2)
        merge2(whole, c->spare, bytes / 2);
    else
        whole = c->spare;
    if (whole != to) memcpy(to, whole + from, n);
}
