/* The layout of a checkpoint file, and the coding of its chunks. Little-endian, all of it zstd frames:
 *
 * - header: a skippable frame: u32 magic, u32 40, "zenflow checkpoint" and two zeros, u32 format version, u64 size of the file (0 while it
 *   is being written), u64 XXH3 of the 40 bytes before. In every version to come the same.
 *
 * - chunks of each tensor, one after the other. Filter "none": the bytes, as one frame. Filter "planes", of elements of 2 and 4 bytes: all
 *   first bytes as one frame, all second bytes as one, ... Frames have content size and checksum; what does not compress is a frame of raw
 *   blocks.
 *
 * - index: one frame of JSON: {"version", "needs": [parts a reader must know], "chunk": bytes, "tensors": [{"name", "dtype", "shape",
 *   "offset", "filter", "stored": [bytes of each chunk], "xxh3": [of those bytes, in hexadecimal]}], "info": {}}
 *
 * - footer: a skippable frame: u32 magic, u32 40, u64 offset, size and XXH3 of the index, u64 size of the file, "zfc end\n"
 *
 * A reader ignores members of the JSON that it does not know, and bytes that no tensor claims; what must not be ignored is in "needs". */
#ifndef ZF_CHECKPOINTS_CONTAINER_FILE_H
#define ZF_CHECKPOINTS_CONTAINER_FILE_H

#include "checkpoints/container.h"
#include <string.h>

#define ZF_ZFC_MAGIC "zenflow checkpoint\0" /* with the NUL behind: 20 bytes */
#define ZF_ZFC_END "zfc end\n"
#define ZF_ZFC_SKIPPABLE 0x184D2A50u

enum {
    ZF_ZFC_EDGE = 48,    /* bytes of the header, and of the footer */
    ZF_ZFC_VERSION = 28, /* places in the header */
    ZF_ZFC_SIZE = 32,
    ZF_ZFC_CHECK = 40,
    ZF_ZFC_INDEX_AT = 8, /* places in the footer */
    ZF_ZFC_INDEX_SIZE = 16,
    ZF_ZFC_INDEX_CHECK = 24,
    ZF_ZFC_FILE_SIZE = 32,
    ZF_ZFC_TAIL = 40,
    ZF_ZFC_CHUNK = 1 << 20,
    ZF_ZFC_CHUNK_LIMIT = 16 << 20,
    ZF_ZFC_INDEX_LIMIT = 64 << 20 /* bytes of JSON: 2 TB of tensors */
};

static inline void zf_zfc_put(unsigned char *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(x >> (8 * i));
}

static inline uint64_t zf_zfc_get(const unsigned char *from, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)from[i] << (8 * i);
    return x;
}

struct zf_zfc_type {
    const char *name;
    size_t bytes;
    bool planes;
    uint64_t exponent; /* of floats: all these bits set is no finite number. 0: an integer */
};
extern const struct zf_zfc_type zf_zfc_types[ZF_CKPT_TYPES];

/* One thread's two buffers. What is to be coded, either way, is in `data`. */
struct zf_zfc_coder {
    unsigned char *data, *spare; /* [zf_zfc_room(chunk)] */
    int level;                   /* 0: nothing is compressed */
    struct ZSTD_CCtx_s *compress;
    struct ZSTD_DCtx_s *decompress;
};

/* The most that `bytes` become when they are coded. */
size_t zf_zfc_room(size_t bytes);

/* For writing at this level, or for reading. After a failure, and of a zeroed struct, close is fine. */
enum zf_status zf_zfc_coder_open(struct zf_zfc_coder *c, size_t chunk, bool write, int level, struct zf_err *e);
void zf_zfc_coder_close(struct zf_zfc_coder *c);

/* data[bytes], elements of this type, becomes data[*stored]. */
enum zf_status zf_zfc_encode(struct zf_zfc_coder *c, size_t bytes, const struct zf_zfc_type *type, size_t *stored, struct zf_err *e);

/* data[stored] becomes `bytes` bytes that zf_zfc_take can give out. NULL: done; else what is wrong with it. planes: 1, 2 or 4. */
const char *zf_zfc_decode(struct zf_zfc_coder *c, size_t stored, size_t bytes, size_t planes);
/* Of what was decoded: `n` bytes from `from` on. */
void zf_zfc_take(struct zf_zfc_coder *c, size_t bytes, size_t planes, void *to, size_t from, size_t n);

/* One frame of `data`, at least one byte, into `to`, which has zf_zfc_room(bytes). floats: it is a plane of floats. */
enum zf_status zf_zfc_frame(struct zf_zfc_coder *c, unsigned char *to, const void *data, size_t bytes, bool floats, size_t *size,
                            struct zf_err *e);

#endif
