/* Any bytes as a checkpoint: read or refused, never a crash. As nothing random gets past checksums, the first byte chooses: the bytes are
 * the file; they are edits (place, what, by what) of a sound file's index, or of its chunks, and the checksums above them are put right. */
#include "tests/checkpoints/container_support.h"

#include "core/base/file.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SOUND_CHUNK = 64, ROOM = 1 << 16, READ_LIMIT = 1 << 20 };

static unsigned char *sound; /* a file, its chunks from byte 48 on, its index as text */
static size_t chunk_bytes;
static char *text;
static struct zf_ckpt_chunk chunks[16];
static size_t chunk_count;

static void need(bool condition)
{
    if (!condition) abort();
}

static void make_sound(void)
{
    static const uint64_t shapes[] = {40, 70, 33};
    static const enum zf_ckpt_type types[] = {ZF_CKPT_F32, ZF_CKPT_U8, ZF_CKPT_BF16};
    char folder[] = "/tmp/zf-fuzz-XXXXXX", path[64], name[2] = "a";
    struct zf_ckpt_writer *w;
    struct zf_ckpt c;
    struct zf_err e;
    need(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/sound.zfc", folder);
    need(!zf_ckpt_create(&w, path, &(struct zf_ckpt_options){.level = 1, .chunk = SOUND_CHUNK}, &e));
    for (size_t t = 0; t < 3; t++, name[0]++) {
        unsigned char *bytes = contents(t, types[t], (size_t)shapes[t] * zf_ckpt_type_bytes(types[t]));
        need(bytes && !zf_ckpt_begin(w, name, types[t], 1, &shapes[t], &e));
        need(!zf_ckpt_put(w, bytes, (size_t)shapes[t] * zf_ckpt_type_bytes(types[t]), &e));
        free(bytes);
    }
    need(!zf_ckpt_finish(w, NULL, &e) && !zf_ckpt_open(&c, path, &e));
    for (size_t t = 0; t < c.count; t++)
        for (size_t k = 0; k < c.list[t].chunk_count; k++) chunks[chunk_count++] = c.list[t].chunks[k];
    text = json_dumps(c.index, JSON_COMPACT);
    chunk_bytes = (size_t)(chunks[chunk_count - 1].offset + chunks[chunk_count - 1].stored) - ZF_ZFC_EDGE;
    need(text && !zf_file_read((char **)&sound, NULL, path, ROOM, &e));
    zf_ckpt_close(&c);
    unlink(path);
    rmdir(folder);
}

/* Four bytes an edit: replace, insert, delete a byte, insert a word, copy 16 bytes to the front of others. */
static size_t change(unsigned char *to, size_t n, const uint8_t *data, size_t size)
{
    static const char *const words[] = {
        "-1",       "0",          "null",     "[]",      "{}",     "\"\"",    "9223372036854775807", "1e9", "18446744073709551616", ",",
        "\"x\":1,", "\"planes\"", "\"none\"", "\"f64\"", "\"u8\"", "16777216"};
    for (; size >= 4 && n > 32; data += 4, size -= 4) {
        size_t at = (size_t)(data[0] | data[1] << 8) % n;
        const unsigned char byte = data[3];
        const void *from = &byte;
        unsigned char copy[16];
        size_t add = 0;
        switch (data[2] % 5) {
        case 0: to[at] = byte; continue;
        case 1: add = 1; break;
        case 2: memmove(to + at, to + at + 1, --n - at); continue;
        case 3: from = words[byte % 16], add = strlen(from); break;
        case 4: memcpy(copy, to + byte % (n - 16), 16), from = copy, add = 16; break;
        }
        if (n + add > ROOM) return n;
        memmove(to + at + add, to + at, n - at);
        memcpy(to + at, from, add);
        n += add;
    }
    return n;
}

/* Chunks keep their places; what was changed in them gets the checksum it has now. */
static void put_sums_right(const unsigned char *bytes, size_t n, char *index)
{
    char old[17], new[17];
    for (size_t i = 0; i < chunk_count; i++) {
        size_t at = (size_t)chunks[i].offset - ZF_ZFC_EDGE;
        if (at + chunks[i].stored > n) return;
        snprintf(old, sizeof old, "%016" PRIx64, chunks[i].xxh3);
        snprintf(new, sizeof new, "%016" PRIx64, XXH3_64bits(bytes + at, chunks[i].stored));
        char *found = strstr(index, old);
        if (found) memcpy(found, new, 16);
    }
}

static unsigned char *build(const uint8_t *data, size_t size, size_t *length)
{
    static unsigned char edited[ROOM + 32];
    static char index[ROOM];
    size_t n = strlen(text);
    if (data[0] % 3 == 0) {
        unsigned char *file = malloc(size);
        need(file);
        memcpy(file, data + 1, size - 1);
        *length = size - 1;
        return file;
    }
    if (data[0] % 3 == 1) {
        memcpy(edited, text, n);
        n = change(edited, n, data + 1, size - 1);
        return assemble_text(sound + ZF_ZFC_EDGE, chunk_bytes, (char *)edited, n, 1, length);
    }
    memcpy(index, text, n + 1);
    memcpy(edited, sound + ZF_ZFC_EDGE, chunk_bytes);
    size_t bytes = change(edited, chunk_bytes, data + 1, size - 1);
    put_sums_right(edited, bytes, index);
    return assemble_text(edited, bytes, index, n, 1, length);
}

static void read_tensor(const struct zf_ckpt *c, const struct zf_ckpt_tensor *t, bool all)
{
    struct zf_err e;
    unsigned char *whole = malloc((size_t)t->bytes + 1), *part = malloc((size_t)t->bytes + 1);
    size_t half = (size_t)t->bytes / 3;
    need(whole && part);
    enum zf_status s = zf_ckpt_read(c, t, whole, 0, t->bytes, NULL, &e);
    need(all ? !s : s == ZF_OK || s == ZF_FORMAT);
    if (!s) {
        need(!zf_ckpt_read(c, t, part, 0, half, NULL, &e) && !zf_ckpt_read(c, t, part + half, half, t->bytes - half, NULL, &e));
        need(!memcmp(whole, part, (size_t)t->bytes));
    }
    free(whole);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    struct zf_ckpt c;
    struct zf_err e = {0};
    size_t length;
    if (!size) return 0;
    if (fd < 0) {
        make_sound();
        need((fd = memfd_create("checkpoint", 0)) >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    unsigned char *file = build(data, size, &length);
    need(!ftruncate(fd, 0) && pwrite(fd, file, length, 0) == (ssize_t)length);
    free(file);
    if (zf_ckpt_open(&c, path, &e)) {
        need(e.code == ZF_FORMAT && strlen(e.message) > 10 && !c.list && !c.path);
        return 0;
    }
    struct zf_ckpt_damage d;
    enum zf_status s = zf_ckpt_verify(&c, NULL, &d, &e);
    need(s == (d.count ? ZF_FORMAT : ZF_OK));
    for (size_t i = 0; i < c.count; i++) {
        const struct zf_ckpt_tensor *t = &c.list[i];
        need(zf_ckpt_find(&c, t->name) == t && t->offset + t->stored <= length);
        if (t->bytes < READ_LIMIT) read_tensor(&c, t, !d.count);
    }
    zf_ckpt_close(&c);
    return 0;
}
