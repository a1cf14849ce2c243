/* Memory of the CUDA device: zeroed, 64-aligned, counted by tag. Any thread. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

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
    c->bytes[b->tag] += b->bytes;
    c->total += b->bytes;
    if (c->total > c->peak) c->peak = c->total;
    return true;
}

enum zf_status zf_cuda_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out, struct zf_err *e)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    *out = NULL;
    if ((unsigned)tag >= ZF_MEM_TAGS)
        return zf_fail(e, ZF_USAGE, NULL, "memory was asked for with tag %d; there are %d", (int)tag, (int)ZF_MEM_TAGS);
    struct zf_cuda_block b = {.bytes = bytes, .tag = tag, .pinned = kind == ZF_MEM_PINNED};
    size_t room = bytes ? bytes : 1;
    cudaError_t code = b.pinned ? cudaHostAlloc(&b.data, room, cudaHostAllocDefault) : cudaMalloc(&b.data, room);
    if (code == cudaSuccess && b.pinned) memset(b.data, 0, room);
    if (code == cudaSuccess && !b.pinned) code = cudaMemset(b.data, 0, room);
    if (code == cudaSuccess && !b.pinned)
        code = cudaStreamSynchronize(0); /* lanes do not wait for that stream: it could erase their work */
    if (code != cudaSuccess) {
        cudaGetLastError(); /* no memory is no broken device */
        return zf_fail(e, ZF_MEMORY, NULL, "CUDA refused %zu bytes of %s memory (%zu bytes are in use): %s", bytes,
                       b.pinned ? "pinned" : "device", c->total, cudaGetErrorString(code));
    }
    pthread_mutex_lock(&c->memory_lock);
    bool entered = enter(c, &b);
    pthread_mutex_unlock(&c->memory_lock);
    if (!entered) {
        b.pinned ? cudaFreeHost(b.data) : cudaFree(b.data);
        return zf_fail_memory(e, "the table of memory blocks");
    }
    *out = b.data;
    return ZF_OK;
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
            c->bytes[b.tag] -= b.bytes;
            c->total -= b.bytes;
            break;
        }
    pthread_mutex_unlock(&c->memory_lock);
    if (b.data) b.pinned ? cudaFreeHost(b.data) : cudaFree(b.data);
}
