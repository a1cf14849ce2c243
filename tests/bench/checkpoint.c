/* Reads a checkpoint of a run, and writes it again as trainers do, tensor by tensor: bench_checkpoint FILE.zfc FOLDER THREADS. Prints one
 * JSON object: bytes, processor seconds, what is left in the page cache, memory of the writer. FOLDER/plain.safetensors has the same
 * tensors as they are, for whoever does the same by other means. checkpoints.py makes tables of it. A measurement, not a test. */
#include "checkpoints/container_file.h"
#include "checkpoints/safetensors.h"
#include "core/base/clock.h"
#include "core/base/file.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct bench {
    struct zf_ckpt from;
    struct zf_pool *pool;
    void *data; /* the largest tensor */
    double read, write, wall;
    size_t memory; /* more than before the writer, at most */
};

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_checkpoint: %s: %s\n", e->where, e->message);
    exit(1);
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void again(struct bench *b, const char *path)
{
    struct zf_ckpt_writer *w;
    struct zf_err e;
    size_t before = allocated();
    const struct zf_ckpt_options o = {.level = 1, .pool = b->pool, .finite = true, .drop_pages = true};
    need(zf_ckpt_create(&w, path, &o, &e), &e);
    for (size_t i = 0; i < b->from.count; i++) {
        const struct zf_ckpt_tensor *t = &b->from.list[i];
        double start = zf_clock_cpu();
        need(zf_ckpt_read(&b->from, t, b->data, 0, t->bytes, b->pool, &e), &e);
        b->read += zf_clock_cpu() - start;
        start = zf_clock_cpu();
        double wall = zf_clock();
        need(zf_ckpt_begin(w, t->name, t->type, t->rank, t->shape, &e), &e);
        need(zf_ckpt_put(w, b->data, t->bytes, &e), &e);
        b->write += zf_clock_cpu() - start;
        b->wall += zf_clock() - wall;
        if (allocated() > before + b->memory) b->memory = allocated() - before;
    }
    double start = zf_clock_cpu(), wall = zf_clock();
    need(zf_ckpt_finish(w, json_incref(b->from.info), &e), &e);
    b->write += zf_clock_cpu() - start;
    b->wall += zf_clock() - wall;
}

static enum zf_status give(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    struct bench *b = ctx;
    const struct zf_ckpt_tensor *t = &b->from.list[index];
    ZF_TRY(zf_ckpt_read(&b->from, t, b->data, 0, t->bytes, b->pool, e));
    return zf_st_put(sink, b->data, t->bytes, e);
}

static void write_plain(struct bench *b, const char *path)
{
    static const enum zf_st_type types[ZF_CKPT_TYPES] = {[ZF_CKPT_F32] = ZF_ST_F32, [ZF_CKPT_BF16] = ZF_ST_BF16, [ZF_CKPT_F16] = ZF_ST_F16,
                                                         [ZF_CKPT_F64] = ZF_ST_F64, [ZF_CKPT_U8] = ZF_ST_U8,     [ZF_CKPT_U32] = ZF_ST_U32,
                                                         [ZF_CKPT_U64] = ZF_ST_U64, [ZF_CKPT_I16] = ZF_ST_I16,   [ZF_CKPT_I32] = ZF_ST_I32};
    struct zf_err e;
    struct zf_st_entry *entries = calloc(b->from.count + 1, sizeof *entries);
    if (!entries) need(zf_fail_memory(&e, path), &e);
    for (size_t i = 0; i < b->from.count; i++) {
        const struct zf_ckpt_tensor *t = &b->from.list[i];
        entries[i] = (struct zf_st_entry){.name = t->name, .type = types[t->type], .rank = t->rank};
        for (size_t k = 0; k < t->rank; k++) entries[i].shape[k] = t->shape[k];
    }
    need(zf_st_write(path, entries, b->from.count, give, b, &e), &e);
    free(entries);
}

static size_t cached(const char *path, size_t *size)
{
    struct zf_map m;
    struct zf_err e;
    need(zf_map_open(&m, path, &e), &e);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (m.size + page - 1) / page, count = 0;
    unsigned char *in = calloc(pages + 1, 1);
    if (in) mincore((void *)(uintptr_t)m.data, m.size, in);
    for (size_t i = 0; in && i < pages; i++) count += in[i] & 1;
    *size = m.size;
    free(in);
    zf_map_close(&m);
    return count * page;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct zf_err e;
    size_t raw = 0, most = 1, size;
    if (argc != 4) return fprintf(stderr, "usage: bench_checkpoint FILE.zfc FOLDER THREADS\n"), ZF_USAGE;
    need(zf_ckpt_open(&b.from, argv[1], &e), &e);
    need(zf_pool_new(&b.pool, atoi(argv[3]), &e), &e);
    for (size_t i = 0; i < b.from.count; i++) {
        raw += b.from.list[i].bytes;
        if (b.from.list[i].bytes > most) most = b.from.list[i].bytes;
    }
    if (!(b.data = calloc(most, 1))) need(zf_fail_memory(&e, "a tensor"), &e);
    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* else mallinfo2 does not tell what other threads have */
    char *path = zf_path_join(argv[2], "again.zfc"), *plain = zf_path_join(argv[2], "plain.safetensors");
    again(&b, path);
    size_t left = cached(path, &size);
    write_plain(&b, plain);
    printf("{\"raw\": %zu, \"stored\": %zu, \"read\": %.3f, \"write\": %.3f, \"wall\": %.3f, \"cached\": %zu, \"memory\": "
           "%zu, "
           "\"chunks\": %zu}\n",
           raw, size, b.read, b.write, b.wall, left, b.memory, (size_t)zf_pool_threads(b.pool) * 2 * zf_zfc_room(ZF_ZFC_CHUNK));
    unlink(path);
    free(path);
    free(plain);
    free(b.data);
    zf_pool_free(b.pool);
    zf_ckpt_close(&b.from);
    return 0;
}
