/* grid.cpp - distributes the blocks of a grid over emulated SMs and prepares shared memory. */
#include "sm.h"
#include <link.h>
#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" __thread uint3 blockIdx, blockDim, gridDim;

struct Grid {
    dim3 grid, block;
    size_t smem;
    const void *kernel;
    const std::function<void()> *body;
    bool shared_static; /* __shared__ arrays are static (ASan): one block at a time */
    uint64_t number;
    int nsm = 1;
    std::atomic<int> failed{0};
    char hb_go, hb_done; /* stand for launch -> block and block -> end of grid */
};

/* ------------------------------------------------------------------ static shared memory */

/* In the plain and TSan builds __shared__ means thread_local, so the arrays of all kernels of a
 * module are exactly its TLS block. Find it through the address of a kernel. */
struct SharedArrays {
    uintptr_t kernel;
    void *data;
    size_t size;
};

static int find_shared(struct dl_phdr_info *info, size_t, void *arg)
{
    SharedArrays *want = (SharedArrays *)arg;
    size_t tls = 0;
    bool mine = false;
    for (int k = 0; k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[k];
        uintptr_t start = info->dlpi_addr + p.p_vaddr;
        if (p.p_type == PT_LOAD && want->kernel >= start && want->kernel < start + p.p_memsz) mine = true;
        if (p.p_type == PT_TLS) tls = p.p_memsz;
    }
    if (!mine) return 0;
    want->data = info->dlpi_tls_data, want->size = tls;
    return 1;
}

/* Exact-size heap blocks under a sanitizer, so that an overrun by one element is seen. */
static void new_dynamic_shared(SM *s, size_t bytes)
{
    if (in_asan() || in_tsan()) {
        free(s->dyn);
        s->dyn = nullptr;
        if (bytes && posix_memalign((void **)&s->dyn, 128, bytes)) abort();
    } else if (s->dyn_capacity < bytes) {
        free(s->dyn);
        s->dyn = (unsigned char *)aligned_alloc(128, (bytes + 127) & ~127ul);
        s->dyn_capacity = bytes;
    }
    s->dyn_size = bytes;
    if (bytes) memset(s->dyn, 0xFF, bytes); /* NaN in every float format */
}

/* ------------------------------------------------------------------ SMs */

struct SMOwner { /* frees the SM when its OS thread ends */
    SM *sm = nullptr;
    ~SMOwner()
    {
        if (!sm) return;
        for (auto &k : sm->stacks) munmap(k.base, STACK_BYTES);
        if (&__tsan_destroy_fiber)
            for (auto &t : sm->threads)
                if (t.tsan_fiber) __tsan_destroy_fiber(t.tsan_fiber);
        free(sm->dyn);
        delete sm;
    }
};

static SM *new_sm()
{
    SM *s = new SM();
    if (&__tsan_get_current_fiber) s->main_tsan_fiber = __tsan_get_current_fiber();
    s->ready.slots.resize(MAX_THREADS);
    s->stacks.reserve(MAX_THREADS + 1);
    s->free_stacks.reserve(MAX_THREADS + 1);
    s->retired_stacks.reserve(MAX_THREADS + 1);
    return s;
}

/* The SM of the calling OS thread, ready for blocks of n threads. */
static SM *get_sm(int n, uint64_t salt)
{
    static thread_local SMOwner own;
    if (!own.sm) own.sm = new_sm();
    SM *s = own.sm;
    for (size_t i = s->threads.size(); i < (size_t)n; i++) {
        CudaThread t{};
        if (&__tsan_create_fiber) {
            char name[40];
            snprintf(name, sizeof name, "cuda thread %zu", i);
            t.tsan_fiber = __tsan_create_fiber(0);
            __tsan_set_fiber_name(t.tsan_fiber, name);
        }
        s->threads.push_back(t);
    }
    s->nthreads = n;
    s->start_order.resize((size_t)n);
    for (int i = 0; i < n; i++) s->start_order[i] = i;
    long seed = emu_env("CUDAEMU_SEED", 0);
    s->random = seed != 0;
    s->rng = (uint64_t)seed * 0x9E3779B97F4A7C15ull + salt * 0xD1B54A32D192ED03ull + 1;
    return s;
}

/* Run every nsm-th block of the grid, beginning with block `id`. */
static void run_share(Grid *g, int id)
{
    DeviceAccess access;
    SM *outer = emu_sm;
    SM *s = get_sm((int)(g->block.x * g->block.y * g->block.z), g->number * 64 + (uint64_t)id);
    emu_sm = s;
    s->body = g->body;
    hb_acquire(&g->hb_go);
    blockDim = {g->block.x, g->block.y, g->block.z};
    gridDim = {g->grid.x, g->grid.y, g->grid.z};
    SharedArrays shared{(uintptr_t)g->kernel, nullptr, 0};
    if (!in_asan()) dl_iterate_phdr(find_shared, &shared);
    s->arrays = (unsigned char *)shared.data, s->arrays_size = shared.data ? shared.size : 0;
    s->kernel = g->kernel, s->launch = g->number;

    uint64_t nblocks = (uint64_t)g->grid.x * g->grid.y * g->grid.z;
    std::vector<uint64_t> mine;
    for (uint64_t i = (uint64_t)id; i < nblocks; i += (uint64_t)g->nsm) mine.push_back(i);
    if (s->random)
        for (size_t i = mine.size(); i-- > 1;) std::swap(mine[i], mine[emu_rand(&s->rng) % (i + 1)]);

    for (uint64_t i : mine) {
        if (g->failed.load()) break;
        blockIdx = {(unsigned)(i % g->grid.x), (unsigned)(i / g->grid.x % g->grid.y), (unsigned)(i / g->grid.x / g->grid.y)};
        s->block = i;
        new_dynamic_shared(s, g->smem);
        if (shared.data) memset(shared.data, 0xFF, shared.size);
        if (!emu_run_block(s)) g->failed.store(1);
    }
    hb_release(&g->hb_done);
    emu_sm = outer;
}

bool emu_block(EmuBlock *out)
{
    SM *s = emu_sm;
    if (!s || s->current < 0) return false;
    *out = EmuBlock{s->kernel, s->launch, s->block};
    return true;
}

bool emu_is_shared(const void *p)
{
    SM *s = emu_sm;
    const unsigned char *at = (const unsigned char *)p;
    if (!s) return false;
    return (at >= s->dyn && at < s->dyn + s->dyn_size) || (at >= s->arrays && at < s->arrays + s->arrays_size);
}

/* An OS thread for each SM after the first; kept for the life of the stream's worker thread. */
struct ExtraSM {
    std::atomic<int> go{0}, done{0};
    Grid *grid;
    int id;
};

static void extra_sm_main(ExtraSM *h)
{
    for (int k = 1;; k++) {
        while (h->go.load() < k) futex_wait(&h->go, k - 1);
        run_share(h->grid, h->id);
        h->done.store(k);
        futex_wake(&h->done);
    }
}

static void run_on_several(Grid *g)
{
    static __thread std::vector<ExtraSM *> *pool;
    if (!pool) pool = new std::vector<ExtraSM *>();
    while ((int)pool->size() < g->nsm - 1) {
        ExtraSM *h = new ExtraSM();
        h->id = (int)pool->size() + 1;
        pool->push_back(h);
        std::thread(extra_sm_main, h).detach();
    }
    for (int i = 0; i < g->nsm - 1; i++) {
        ExtraSM *h = (*pool)[i];
        h->grid = g;
        h->go++;
        futex_wake(&h->go);
    }
    run_share(g, 0);
    for (int i = 0; i < g->nsm - 1; i++) {
        ExtraSM *h = (*pool)[i];
        int want = h->go.load(), have;
        while ((have = h->done.load()) < want) futex_wait(&h->done, have);
    }
}

cudaError_t emu_run_grid(dim3 grid, dim3 block, size_t smem, const void *kernel, const std::function<void()> &body, int shared_static)
{
    static Lock one_at_a_time;
    static std::atomic<uint64_t> counter{0};
    Grid g{};
    g.grid = grid, g.block = block, g.smem = smem, g.kernel = kernel, g.body = &body;
    g.shared_static = shared_static != 0, g.number = counter++;
    uint64_t nblocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t want = (uint64_t)emu_env("CUDAEMU_SMS", in_tsan() ? 2 : 1);
    g.nsm = g.shared_static ? 1 : (int)(nblocks < want ? nblocks : want);

    if (g.shared_static) one_at_a_time.lock();
    hb_release(&g.hb_go);
    if (g.nsm == 1)
        run_share(&g, 0);
    else
        run_on_several(&g);
    hb_acquire(&g.hb_done);
    if (g.shared_static) one_at_a_time.unlock();
    return g.failed.load() ? cudaErrorLaunchFailure : cudaSuccess;
}
