/* Copies from and to host memory that is not pinned: over a piece that is, by the lane itself, in its order.
 *
 * The runtime would copy such memory as well, but it holds up the thread that launches, and it may read a source before the stream has come
 * that far. Here a function of the host, between two pieces of work of the stream, copies what fits the piece. Where not even that piece
 * can be pinned the lane's thread waits for its stream, and the runtime does it. */
#include "kernels/cuda/cuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4 << 20 };

/* One memcpy that a lane will do. Used again when it is done. */
struct zf_cuda_leap {
    void *to;
    const void *from;
    size_t bytes;
    atomic_bool done;
    struct zf_cuda_leap *next;
};

static void leap(void *arg)
{
    struct zf_cuda_leap *x = arg;
    memcpy(x->to, x->from, x->bytes);
    x->done = true;
}

static cudaError_t issue_leap(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    struct zf_cuda_leap *x = l->leaps;
    while (x && !x->done) x = x->next;
    if (!x) {
        if (!(x = calloc(1, sizeof *x))) return cudaErrorMemoryAllocation;
        x->next = l->leaps;
        l->leaps = x;
    }
    x->to = to;
    x->from = from;
    x->bytes = bytes;
    x->done = false;
    cudaError_t code = cudaLaunchHostFunc(l->stream, leap, x);
    if (code != cudaSuccess) x->done = true;
    return code;
}

/* The lane's own piece, taken when it is first needed. */
static bool has_piece(struct zf_lane *l)
{
    struct zf_err ignored;
    if (l->piece || l->no_piece) return l->piece != NULL;
    enum zf_status s = zf_cuda_alloc(&l->device->head, ZF_MEM_PINNED, ZF_TAG_STAGING, PIECE, &l->piece, &ignored);
    l->no_piece = s || zf_cuda_place_of(l->device, l->piece) != ZF_CUDA_PINNED;
    if (!l->no_piece) return true;
    if (!s) zf_cuda_free(&l->device->head, l->piece);
    l->piece = NULL;
    return false;
}

static cudaError_t by_the_runtime(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    cudaError_t code = cudaStreamSynchronize(l->stream);
    if (code == cudaSuccess) code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, l->stream);
    return code == cudaSuccess ? cudaStreamSynchronize(l->stream) : code;
}

enum zf_status zf_cuda_bounce(struct zf_lane *l, void *to, const void *from, size_t bytes, bool down, struct zf_err *e)
{
    cudaError_t code = cudaSuccess;
    if (!has_piece(l)) return zf_cuda_status(by_the_runtime(l, to, from, bytes), "copy", e);
    for (size_t at = 0, n; code == cudaSuccess && at < bytes; at += n) {
        char *there = (char *)to + at;
        const char *here = (const char *)from + at;
        n = bytes - at < PIECE ? bytes - at : PIECE;
        if (!down) code = issue_leap(l, l->piece, here, n);
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(down ? l->piece : (void *)there, down ? (const void *)here : l->piece, n, cudaMemcpyDefault, l->stream);
        if (down && code == cudaSuccess) code = issue_leap(l, there, l->piece, n);
    }
    return zf_cuda_status(code, "copy", e);
}

enum zf_status zf_cuda_move(struct zf_lane *l, void *to, const void *from, size_t bytes, struct zf_err *e)
{
    return zf_cuda_status(issue_leap(l, to, from, bytes), "copy", e);
}

void zf_cuda_bounce_close(struct zf_lane *l)
{
    zf_cuda_free(&l->device->head, l->piece);
    while (l->leaps) {
        struct zf_cuda_leap *next = l->leaps->next;
        free(l->leaps);
        l->leaps = next;
    }
}
