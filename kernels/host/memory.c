/* Memory of the host device: zeroed, 64-aligned, counted by tag. Large blocks are mapped, so that freeing them gives the memory back
 * to the system; the largest stand on huge pages where the system has some, spread over the NUMA nodes. Any thread. */
#include "kernels/cores.h"
#include "kernels/host/host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, MAPPED_FROM = 1 << 18, HUGE_FROM = 1 << 22, HUGE_PAGE = 1 << 21 };

static const char *const tag_names[ZF_MEM_TAGS] = {
#define X(name, text) text,
    ZF_MEM_TAG_MAP(X)
#undef X
};

/* A mapping that begins on a huge page: mapped larger, the ends given back. `bytes` is a multiple of the page. */
static void *map_huge(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    size_t room = bytes + HUGE_PAGE;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE, after = room - before - bytes;
    if (before) munmap(p, before);
    if (after) munmap(p + before + bytes, after);
    madvise(p + before, bytes, MADV_HUGEPAGE); /* a wish: without it the pages are small */
    zf_cores_spread_block(p + before, bytes);  /* another: without it the nodes are those of who comes first */
    return p + before;
}

static void *take(size_t bytes, size_t *mapped)
{
    *mapped = 0;
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    if (bytes < MAPPED_FROM) {
        size_t room = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
        void *p = aligned_alloc(ALIGNMENT, room);
        return p ? memset(p, 0, room) : NULL;
    }
    *mapped = (bytes + 4095) / 4096 * 4096;
    if (bytes >= HUGE_FROM) return map_huge(*mapped);
    void *p = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void give_back(void *p, size_t mapped)
{
    if (mapped)
        munmap(p, mapped);
    else
        free(p);
}

static bool enter(struct zf_host *h, const struct zf_host_block *b)
{
    if (h->block_count == h->block_room) {
        size_t room = h->block_room ? 2 * h->block_room : 64;
        void *more = reallocarray(h->blocks, room, sizeof *h->blocks);
        if (!more) return false;
        h->blocks = more;
        h->block_room = room;
    }
    h->blocks[h->block_count++] = *b;
    h->bytes[b->tag] += b->bytes;
    h->total += b->bytes;
    if (h->total > h->peak) h->peak = h->total;
    return true;
}

enum zf_status zf_host_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out, struct zf_err *e)
{
    struct zf_host *h = (struct zf_host *)d;
    (void)kind; /* a processor reaches all of its memory */
    *out = NULL;
    if ((unsigned)tag >= ZF_MEM_TAGS)
        return zf_fail(e, ZF_USAGE, NULL, "memory was asked for with tag %d; there are %d", (int)tag, (int)ZF_MEM_TAGS);
    struct zf_host_block b = {.bytes = bytes, .tag = tag};
    b.data = take(bytes, &b.mapped);
    if (!b.data)
        return zf_fail(e, ZF_MEMORY, NULL, "the system refused %zu bytes for %s (%zu bytes are in use)", bytes, tag_names[tag], h->total);
    pthread_mutex_lock(&h->memory_lock);
    bool entered = enter(h, &b);
    pthread_mutex_unlock(&h->memory_lock);
    if (!entered) {
        give_back(b.data, b.mapped);
        return zf_fail_memory(e, "the table of memory blocks");
    }
    *out = b.data;
    return ZF_OK;
}

void zf_host_free(struct zf_device *d, void *p)
{
    struct zf_host *h = (struct zf_host *)d;
    struct zf_host_block b = {0};
    if (!p) return;
    pthread_mutex_lock(&h->memory_lock);
    for (size_t i = h->block_count; i--;) /* what came last goes first, mostly */
        if (h->blocks[i].data == p) {
            b = h->blocks[i];
            h->blocks[i] = h->blocks[--h->block_count];
            h->bytes[b.tag] -= b.bytes;
            h->total -= b.bytes;
            break;
        }
    pthread_mutex_unlock(&h->memory_lock);
    if (b.data) give_back(b.data, b.mapped);
}
