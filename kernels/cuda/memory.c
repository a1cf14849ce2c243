/* Memory of the CUDA device: zeroed, counted by tag. Any thread.
 *
 * What a run needs is planned, and taken before its first step in a few large blocks (reserve), of which parts are given out; what does not
 * fit into them, and all of it where nothing was reserved, is a block of CUDA's own. A free part may be given out again at once: nobody
 * frees memory that issued work still uses.
 *
 * Host memory that the system does not let be pinned is ordinary memory; copies from and to it take the way over a lane's own piece
 * (bounce.c). So are copies for a checkpoint, which may be as large as all of a run's state. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- the tables, under the lock ---- */

static const char *tag_name(enum zf_mem_tag tag)
{
    static const char *const names[] = {
#define X(name, text) text,
        ZF_MEM_TAG_MAP(X)
#undef X
    };
    return names[tag];
}

static void count(struct zf_cuda *c, const struct zf_cuda_block *b, bool more)
{
    bool device = b->place == ZF_CUDA_DEVICE;
    struct zf_cuda_count *of[] = {&c->all, device ? &c->own : NULL};
    for (size_t i = 0; i < 2; i++) {
        if (!of[i]) continue;
        of[i]->bytes[b->tag] += more ? b->bytes : -b->bytes;
        of[i]->total += more ? b->bytes : -b->bytes;
        if (of[i]->total > of[i]->peak) of[i]->peak = of[i]->total;
    }
    if (device || b->tag == ZF_TAG_COPIES) return;
    *(b->place == ZF_CUDA_PINNED ? &c->locked : &c->unlocked) += more ? b->bytes : -b->bytes;
}

static bool enter(struct zf_cuda *c, const struct zf_cuda_block *b)
{
    if (c->block_count == c->block_room) {
        size_t room = c->block_room ? 2 * c->block_room : 64;
        void *more = reallocarray(c->blocks, room, sizeof *c->blocks);
        if (!more) return false;
        c->blocks = more;
        c->block_room = room;
    }
    c->blocks[c->block_count++] = *b;
    count(c, b, true);
    return true;
}

/* A part of what was reserved. */
static bool take_part(struct zf_cuda *c, struct zf_cuda_block *b)
{
    size_t at;
    for (size_t i = 0; i < c->slab_count; i++) {
        struct zf_cuda_slab *s = &c->slabs[i];
        if (s->place != b->place || !zf_ranges_take(&s->ranges, b->bytes, &at)) continue;
        b->data = s->base + at;
        b->slab = s->base;
        return true;
    }
    return false;
}

static struct zf_cuda_slab *slab_of(struct zf_cuda *c, const char *base)
{
    for (size_t i = 0; i < c->slab_count; i++)
        if (c->slabs[i].base == base) return &c->slabs[i];
    return NULL;
}

enum zf_cuda_place zf_cuda_place_of(struct zf_cuda *c, const void *p)
{
    enum zf_cuda_place place = ZF_CUDA_PAGEABLE;
    uintptr_t at = (uintptr_t)p;
    bool found = false;
    pthread_mutex_lock(&c->memory_lock);
    for (size_t i = 0; !found && i < c->slab_count; i++) {
        found = at - (uintptr_t)c->slabs[i].base < c->slabs[i].bytes;
        if (found) place = c->slabs[i].place;
    }
    for (size_t i = c->block_count; !found && i--;) {
        const struct zf_cuda_block *b = &c->blocks[i];
        found = !b->slab && at - (uintptr_t)b->data < (b->bytes ? b->bytes : 1);
        if (found) place = b->place;
    }
    pthread_mutex_unlock(&c->memory_lock);
    return place;
}

/* ---- blocks of CUDA's and of the system's ---- */

static cudaError_t get(enum zf_cuda_place place, size_t bytes, void **out)
{
    cudaError_t code = place == ZF_CUDA_PINNED ? cudaHostAlloc(out, bytes, cudaHostAllocDefault) : cudaMalloc(out, bytes);
    if (code == cudaErrorMemoryAllocation || code == cudaErrorHostMemoryAlreadyRegistered || code == cudaErrorNotSupported)
        cudaGetLastError(); /* no memory is no broken device */
    return code;
}

static void put_back(enum zf_cuda_place place, void *p, size_t bytes)
{
    if (place == ZF_CUDA_PAGEABLE)
        munmap(p, bytes);
    else
        place == ZF_CUDA_PINNED ? cudaFreeHost(p) : cudaFree(p);
}

/* Without the device's default stream, for which others would wait, and which waits for none of ours. */
static cudaError_t zero(struct zf_cuda *c, const struct zf_cuda_block *b)
{
    if (b->place == ZF_CUDA_PINNED) memset(b->data, 0, b->bytes);
    if (b->place != ZF_CUDA_DEVICE || !b->bytes) return cudaSuccess;
    cudaError_t code = cudaMemsetAsync(b->data, 0, b->bytes, c->zeroes);
    return code == cudaSuccess ? cudaStreamSynchronize(c->zeroes) : code;
}

static void discard(struct zf_cuda *c, const struct zf_cuda_block *b)
{
    size_t room = b->bytes ? b->bytes : 1;
    if (b->slab) {
        pthread_mutex_lock(&c->memory_lock);
        zf_ranges_give(&slab_of(c, b->slab)->ranges, (size_t)((char *)b->data - b->slab), b->bytes);
        pthread_mutex_unlock(&c->memory_lock);
    } else if (b->data) {
        put_back(b->place, b->data, room);
    }
}

/* Data where it is to lie, or else where it can. */
static cudaError_t find_block(struct zf_cuda *c, struct zf_cuda_block *b)
{
    size_t room = b->bytes ? b->bytes : 1;
    cudaError_t code = cudaSuccess;
    pthread_mutex_lock(&c->memory_lock);
    bool part = b->place != ZF_CUDA_PAGEABLE && take_part(c, b), refused = b->place == ZF_CUDA_PINNED && c->pin_refused;
    pthread_mutex_unlock(&c->memory_lock);
    if (part) return cudaSuccess;
    if (b->place != ZF_CUDA_PAGEABLE && !refused) {
        code = get(b->place, room, &b->data);
        if (code == cudaSuccess || b->place == ZF_CUDA_DEVICE || zf_cuda_is_lost(code)) return code;
        pthread_mutex_lock(&c->memory_lock);
        c->pin_refused = true;
        pthread_mutex_unlock(&c->memory_lock);
    }
    b->place = ZF_CUDA_PAGEABLE;
    b->data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->data != MAP_FAILED) return cudaSuccess;
    b->data = NULL;
    return cudaErrorMemoryAllocation;
}

enum zf_status zf_cuda_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out, struct zf_err *e)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    *out = NULL;
    if ((unsigned)tag >= ZF_MEM_TAGS)
        return zf_fail(e, ZF_USAGE, NULL, "memory was asked for with tag %d; there are %d", (int)tag, (int)ZF_MEM_TAGS);
    enum zf_cuda_place place = kind == ZF_MEM_DEVICE ? ZF_CUDA_DEVICE : tag == ZF_TAG_COPIES ? ZF_CUDA_PAGEABLE : ZF_CUDA_PINNED;
    struct zf_cuda_block b = {.bytes = bytes, .tag = tag, .place = place};
    zf_cuda_enter(c);
    cudaError_t code = find_block(c, &b);
    if (code == cudaSuccess) code = zero(c, &b);
    if (code == cudaSuccess) {
        pthread_mutex_lock(&c->memory_lock);
        bool entered = enter(c, &b);
        pthread_mutex_unlock(&c->memory_lock);
        if (entered) {
            *out = b.data;
            return ZF_OK;
        }
    }
    discard(c, &b);
    if (code == cudaSuccess) return zf_fail_memory(e, "the table of memory blocks");
    if (zf_cuda_is_lost(code)) return zf_cuda_status(code, "memory", e);
    return zf_fail(e, ZF_MEMORY, NULL, "CUDA refused %zu bytes of %s for %s (%zu bytes of the GPU are in use by this program): %s", bytes,
                   kind == ZF_MEM_DEVICE ? "the GPU's memory" : "host memory", tag_name(tag), c->own.total, cudaGetErrorString(code));
}

void zf_cuda_free(struct zf_device *d, void *p)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    struct zf_cuda_block b = {0};
    if (!p) return;
    pthread_mutex_lock(&c->memory_lock);
    for (size_t i = c->block_count; i--;)
        if (c->blocks[i].data == p) {
            b = c->blocks[i];
            c->blocks[i] = c->blocks[--c->block_count];
            count(c, &b, false);
            break;
        }
    pthread_mutex_unlock(&c->memory_lock);
    discard(c, &b);
}

/* ---- what is taken before the first step ---- */

static bool enter_slab(struct zf_cuda *c, enum zf_cuda_place place, char *base, size_t bytes)
{
    struct zf_cuda_slab s = {.base = base, .bytes = bytes, .place = place};
    bool fine = zf_ranges_open(&s.ranges, bytes);
    pthread_mutex_lock(&c->memory_lock);
    struct zf_cuda_slab *more = fine ? reallocarray(c->slabs, c->slab_count + 1, sizeof *more) : NULL;
    if (more) {
        c->slabs = more;
        c->slabs[c->slab_count++] = s;
    }
    pthread_mutex_unlock(&c->memory_lock);
    if (!more) zf_ranges_close(&s.ranges);
    return more != NULL;
}

static size_t reserved(struct zf_cuda *c, enum zf_cuda_place place)
{
    size_t sum = 0;
    for (size_t i = 0; i < c->slab_count; i++)
        if (c->slabs[i].place == place) sum += c->slabs[i].bytes;
    return sum;
}

/* Pinned pieces are small enough for the system to find, and become smaller where it refuses. */
enum zf_status zf_cuda_reserve(struct zf_device *d, enum zf_memory_kind kind, size_t bytes, struct zf_err *e)
{
    enum { LEAST = 16 << 20 };
    struct zf_cuda *c = (struct zf_cuda *)d;
    enum zf_cuda_place place = kind == ZF_MEM_PINNED ? ZF_CUDA_PINNED : ZF_CUDA_DEVICE;
    size_t have = reserved(c, place), left = bytes > have ? zf_range_bytes(bytes - have) : 0,
           piece = place == ZF_CUDA_PINNED && left > ((size_t)1 << 30) ? (size_t)1 << 30 : left;
    zf_cuda_enter(c);
    while (left && !(place == ZF_CUDA_PINNED && c->pin_refused)) {
        void *base;
        if (piece > left) piece = left;
        cudaError_t code = get(place, piece, &base);
        if (code == cudaSuccess && !enter_slab(c, place, base, piece)) {
            put_back(place, base, piece);
            return zf_fail_memory(e, "the table of memory blocks");
        }
        if (code == cudaSuccess) {
            left -= piece;
        } else if (zf_cuda_is_lost(code)) {
            return zf_cuda_status(code, "memory", e);
        } else if (place == ZF_CUDA_PINNED && piece / 2 >= LEAST) {
            piece = zf_range_bytes(piece / 2);
        } else if (place == ZF_CUDA_PINNED) {
            c->pin_refused = true;
        } else {
            size_t idle = 0, all = 0;
            cudaMemGetInfo(&idle, &all);
            return zf_fail(e, ZF_MEMORY, NULL,
                           "the GPU refused %zu bytes in one block (%s); it has %zu bytes, of which %zu are free: another program may "
                           "have taken memory a moment ago",
                           piece, cudaGetErrorString(code), all, idle);
        }
    }
    return ZF_OK;
}

size_t zf_cuda_trim(struct zf_device *d)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    size_t kept = 0, given = 0;
    pthread_mutex_lock(&c->memory_lock);
    for (size_t i = 0; i < c->slab_count; i++) {
        struct zf_cuda_slab *s = &c->slabs[i];
        if (s->ranges.parts) {
            c->slabs[kept++] = *s;
            continue;
        }
        if (s->place == ZF_CUDA_DEVICE) given += s->bytes;
        put_back(s->place, s->base, s->bytes);
        zf_ranges_close(&s->ranges);
    }
    c->slab_count = kept;
    c->pin_refused = false;
    pthread_mutex_unlock(&c->memory_lock);
    return given;
}

void zf_cuda_memory_close(struct zf_cuda *c)
{
    zf_cuda_trim(&c->head);
    for (size_t i = 0; i < c->slab_count; i++) zf_ranges_close(&c->slabs[i].ranges);
    free(c->slabs);
    free(c->blocks);
}
