/* exec.cpp - runs one block: fibers, their scheduler, barriers and warp operations. */
#include "sm.h"
#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
__thread int cudaemu_lane;
}
__thread SM *emu_sm;
static char hb_fence;
static const char *const op_name[] = {"__syncwarp", "__shfl_sync", "__ballot_sync", "__reduce_add_sync", "mma"};

static void report(const char *what, const char *detail, const char *file, int line, int thread)
{
    fprintf(stderr, "cudaemu: %s%s at %s:%d by thread (%u,%u,%u) [linear %d] of block (%u,%u,%u)\n", what, detail, file ? file : "?", line,
            threadIdx.x, threadIdx.y, threadIdx.z, thread, blockIdx.x, blockIdx.y, blockIdx.z);
}

/* ------------------------------------------------------------------ stacks and the switch */

#if defined(__x86_64__)
/* Save the callee-saved registers and the stack pointer in *save, continue at `load`.
 * 16 ns measured; swapcontext() takes 348 ns because it makes two system calls. */
extern "C" void emu_switch(void **save, void *load);
asm(R"(
    .text
    .globl emu_switch
    .type emu_switch,@function
emu_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size emu_switch,.-emu_switch
)");
#else
#error "add a context switch for this processor (or use ucontext)"
#endif

static void fiber_main();

static int new_stack(SM *s)
{
    if (!s->free_stacks.empty()) {
        int i = s->free_stacks.back();
        s->free_stacks.pop_back();
        return i;
    }
    char *base = (char *)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        perror("cudaemu: mmap");
        abort();
    }
    mprotect(base, 4096, PROT_NONE);
    s->stacks.push_back({nullptr, base, nullptr});
    return (int)s->stacks.size() - 1;
}

/* Prepare a stack so that switching to it enters fiber_main(). The tops are staggered: were they a
 * power of two apart, the frames of all fibers would fall into one cache set. */
static void arm_stack(Stack *k)
{
    uintptr_t colour = ((uintptr_t)k->base >> 17) % 61 * 192;
    void **sp = (void **)(k->base + STACK_BYTES - 64 - colour);
    *--sp = nullptr; /* return address of fiber_main: none */
    *--sp = (void *)fiber_main;
    sp -= 6; /* the six registers emu_switch pops */
    memset(sp, 0, 6 * sizeof *sp);
    k->sp = sp;
}

/* Make thread i the one that threadIdx and the warp operations speak of. */
static inline void become(SM *s, int i)
{
    unsigned x = blockDim.x, y = blockDim.y, u = (unsigned)i;
    threadIdx = {u % x, u / x % y, u / (x * y)};
    cudaemu_lane = i % WARP;
    s->current = i;
}

/* from, to: stack index, or -1 for the SM's own stack. Both sanitizers are told of the switch; for
 * TSan it makes no happens-before edge, only CUDA's synchronisation does. */
static void switch_stack(SM *s, int from, int to, void *tsan_to, bool from_dies)
{
    Stack *f = from < 0 ? &s->main : &s->stacks[from];
    Stack *t = to < 0 ? &s->main : &s->stacks[to];
    if (&__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(from_dies ? nullptr : &f->asan, to < 0 ? s->main_bottom : t->base,
                                       to < 0 ? s->main_size : STACK_BYTES);
    if (tsan_to && &__tsan_switch_to_fiber) __tsan_switch_to_fiber(tsan_to, 1 /* no sync */);
    emu_switch(&f->sp, t->sp);
    /* back again, possibly much later: s->stacks may have grown, so f is looked up anew */
    if (&__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber((from < 0 ? &s->main : &s->stacks[from])->asan, nullptr, nullptr);
}

/* ------------------------------------------------------------------ scheduler */

static int start_next(SM *s)
{
    return s->start_order[s->next_new++];
}

/* The next thread to run, or -1. */
static int pick(SM *s)
{
    int nready = (int)s->ready.count, nnew = s->nthreads - s->next_new;
    if (!nready && !nnew) return -1;
    if (!s->random) return nnew ? start_next(s) : s->ready.pop();

    /* Unfair on purpose: one warp may run ahead until it blocks or, one time in 64, loses favour.
     * A uniform choice is so fair that no warp ever overtakes another by a whole phase. */
    uint64_t z = emu_rand(&s->rng);
    if (z % 64) {
        unsigned at = nready ? (unsigned)(z >> 32) % (unsigned)nready : 0;
        for (int i = 0; i < nready; i++, at = (at + 1) % (unsigned)nready)
            if (s->ready.at(at) / WARP == s->favourite) return s->ready.take(at);
        if (nnew && s->start_order[s->next_new] / WARP == s->favourite) return start_next(s);
    }
    int k = (int)((z >> 8) % (uint64_t)(nready + nnew));
    int chosen = k >= nready ? start_next(s) : s->ready.take((unsigned)k);
    s->favourite = chosen / WARP;
    return chosen;
}

/* Under TSan a stack is not used twice within a block: its shadow still belongs to the old fiber. */
static void retire_stack(SM *s, int k)
{
    (in_tsan() ? s->retired_stacks : s->free_stacks).push_back(k);
}

/* Give up the CPU: to the next runnable thread, else back to the SM loop. */
static void leave(SM *s, bool dies)
{
    int me = s->current, my_stack = s->threads[me].stack, next = s->failed ? -1 : pick(s);
    if (next == me) return;
    if (next < 0) {
        if (dies) retire_stack(s, my_stack);
        switch_stack(s, my_stack, -1, s->main_tsan_fiber, dies);
    } else {
        if (s->threads[next].stack < 0) {
            s->threads[next].stack = new_stack(s);
            arm_stack(&s->stacks[s->threads[next].stack]);
        }
        int to = s->threads[next].stack;
        if (dies) retire_stack(s, my_stack);
        become(s, next);
        switch_stack(s, my_stack, to, s->threads[next].tsan_fiber, dies);
    }
    become(s, me);
}

static void give_up_block(SM *s)
{
    s->failed = true;
    leave(s, false);
}

/* `self` is running already and must not be queued a second time. */
static void wake(SM *s, int i, int self)
{
    s->threads[i].state = READY;
    if (i != self) s->ready.push(i);
}

/* ------------------------------------------------------------------ __syncthreads */

static void release_barrier(SM *s, int self)
{
    s->bar_result = s->bar_value;
    s->bar_generation++;
    s->waiting = 0;
    for (int i = 0; i < s->nthreads; i++)
        if (s->threads[i].state == IN_BARRIER) wake(s, i, self);
}

extern "C" int cudaemu_barrier(int kind, int pred, const char *file, int line)
{
    SM *s = emu_sm;
    int me = s->current;
    CudaThread &x = s->threads[me];
    x.state = IN_BARRIER, x.file = file, x.line = line;
    if (s->waiting == 0) {
        s->bar_kind = kind;
        s->bar_value = kind == BAR_AND;
        s->bar_file = file, s->bar_line = line;
    } else if (line != s->bar_line || strcmp(file, s->bar_file)) {
        report("divergent barrier: other threads of the block wait at another __syncthreads", "", file, line, me);
        fprintf(stderr, "  the others are at %s:%d\n", s->bar_file, s->bar_line);
        give_up_block(s);
    } else if (s->bar_kind != kind) {
        report("different kinds of block barrier meet", "", file, line, me);
        give_up_block(s);
    }
    s->waiting++;
    switch (kind) {
    case BAR_COUNT: s->bar_value += pred != 0; break;
    case BAR_AND: s->bar_value &= pred != 0; break;
    default: s->bar_value |= pred != 0; break;
    }
    char *edge = &s->hb_barrier[s->bar_generation & 1];
    hb_release(edge);
    if (s->waiting < s->alive) {
        leave(s, false);
    } else {
        release_barrier(s, me);
        if (s->random) {
            s->ready.push(me);
            leave(s, false);
        }
    }
    hb_acquire(edge);
    return s->bar_result;
}

/* ------------------------------------------------------------------ warp operations */

static float bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* mma.m16n8k16, row.col, f32 += bf16*bf16, fragments distributed as PTX lays them out. */
static void do_mma(CudaThread *lane)
{
    struct Frag {
        float d[4];
        uint32_t a[4], b[2];
    };
    float A[16][16], B[16][8];
    for (int l = 0; l < WARP; l++) {
        Frag *f = (Frag *)lane[l].val;
        int g = l >> 2, q = l & 3;
        for (int i = 0; i < 8; i++) {
            int row = g + ((i >> 1) & 1) * 8, col = q * 2 + (i & 1) + (i >> 2) * 8;
            A[row][col] = bf16_to_float((uint16_t)(f->a[i >> 1] >> 16 * (i & 1)));
        }
        for (int i = 0; i < 4; i++) {
            int row = q * 2 + (i & 1) + (i >> 1) * 8;
            B[row][g] = bf16_to_float((uint16_t)(f->b[i >> 1] >> 16 * (i & 1)));
        }
    }
    for (int l = 0; l < WARP; l++) {
        Frag *f = (Frag *)lane[l].val;
        for (int i = 0; i < 4; i++) {
            int row = (l >> 2) + (i >> 1) * 8, col = (l & 3) * 2 + (i & 1);
            for (int k = 0; k < 16; k++) f->d[i] += A[row][k] * B[k][col];
        }
    }
}

/* Bytes are copied by hand: memcpy would be intercepted by the sanitizers. */
static void copy_bytes(void *to, const void *from, int n)
{
    for (int i = 0; i < n; i++) ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
}

/* A lane that reads from an absent lane gets 0xFF bytes: undefined on the device, NaN here. */
static void do_shuffle(CudaThread *lane, unsigned live)
{
    unsigned char value[WARP][16];
    for (int l = 0; l < WARP; l++)
        if (live >> l & 1) copy_bytes(value[l], lane[l].val, lane[l].size);
    for (int l = 0; l < WARP; l++) {
        if (!(live >> l & 1)) continue;
        int src = lane[l].src % WARP;
        if (live >> src & 1) {
            copy_bytes(lane[l].val, value[src], lane[l].size);
        } else {
            for (int i = 0; i < lane[l].size; i++) ((unsigned char *)lane[l].val)[i] = 0xFF;
        }
    }
}

static void do_reduce(CudaThread *lane, unsigned live, bool ballot)
{
    unsigned r = 0;
    for (int l = 0; l < WARP; l++) {
        if (!(live >> l & 1)) continue;
        unsigned v = *(unsigned *)lane[l].val;
        r = ballot ? r | (unsigned)(v != 0) << l : r + v;
    }
    for (int l = 0; l < WARP; l++)
        if (live >> l & 1) *(unsigned *)lane[l].val = r;
}

/* Complete the operation of `mask` in the warp that starts at thread w0, if all its living lanes
 * have arrived. `self`: the caller if it is one of them, else -1. */
static bool try_warp_op(SM *s, int w0, unsigned mask, int self)
{
    CudaThread *lane = &s->threads[w0];
    int first = -1;
    unsigned live = 0;
    for (int l = 0; l < WARP; l++) {
        if (!(mask >> l & 1) || w0 + l >= s->nthreads || lane[l].state == DONE) continue;
        if (lane[l].state != IN_WARP_OP || lane[l].mask != mask) return false;
        if (first < 0) {
            first = l;
        } else if (lane[l].op != lane[first].op) {
            report("threads of one warp wait in different operations: ", op_name[lane[l].op], lane[l].file, lane[l].line, w0 + l);
            s->failed = true;
            return false;
        }
        live |= 1u << l;
    }
    if (first < 0) return false;
    switch (lane[first].op) {
    case SHFL: do_shuffle(lane, live); break;
    case BALLOT: do_reduce(lane, live, true); break;
    case REDUCE_ADD: do_reduce(lane, live, false); break;
    case MMA_BF16:
        if (live != 0xffffffffu) {
            report("mma by an incomplete warp", "", lane[first].file, lane[first].line, w0 + first);
            s->failed = true;
            return false;
        }
        do_mma(lane);
        break;
    }
    s->warp_waiting[w0 / WARP] &= ~live;
    s->warp_generation[w0 / WARP]++;
    for (int l = 0; l < WARP; l++)
        if (live >> l & 1) wake(s, w0 + l, self);
    return true;
}

extern "C" void cudaemu_warp(int op, unsigned mask, void *val, int size, int src, const char *file, int line)
{
    SM *s = emu_sm;
    int me = s->current, w = me / WARP, l = me % WARP;
    CudaThread &x = s->threads[me];
    x.state = IN_WARP_OP, x.op = op, x.mask = mask, x.file = file, x.line = line;
    x.val = val, x.size = size, x.src = src;
    if (!(mask >> l & 1)) {
        report("the mask leaves out its caller: ", op_name[op], file, line, me);
        give_up_block(s);
    }
    /* only __syncwarp orders memory; a shuffle does not */
    char *edge = op == SYNCWARP ? &s->hb_warp[w][s->warp_generation[w] & 1] : nullptr;
    if (edge) hb_release(edge);
    s->warp_waiting[w] |= 1u << l;
    bool all_here = !(mask & ~(s->warp_waiting[w] | s->warp_gone[w]));
    if (!(all_here && try_warp_op(s, w * WARP, mask, me))) {
        leave(s, false);
    } else if (s->random) {
        s->ready.push(me);
        leave(s, false);
    }
    if (edge) hb_acquire(edge);
}

/* ------------------------------------------------------------------ the rest of the device API */

extern "C" void cudaemu_fence(void)
{
    std::atomic_thread_fence(std::memory_order_seq_cst);
    hb_acquire(&hb_fence);
    hb_release(&hb_fence);
}

extern "C" void cudaemu_yield(void)
{ /* a scheduling point in random mode only */
    SM *s = emu_sm;
    if (!s || !s->random || s->current < 0) return;
    wake(s, s->current, -1);
    leave(s, false);
}

extern "C" void *cudaemu_dyn_smem(void)
{
    return emu_sm->dyn;
}

extern "C" void cudaemu_trap(const char *file, int line)
{
    report("__trap", "", file, line, emu_sm->current);
    give_up_block(emu_sm);
}

/* ------------------------------------------------------------------ a block from start to end */

/* A thread returned from the kernel: others may have waited only for it. */
static void thread_ends(SM *s, int me)
{
    int w0 = me / WARP * WARP;
    s->threads[me].state = DONE;
    s->alive--;
    s->warp_gone[w0 / WARP] |= 1u << me % WARP;
    if (s->warp_waiting[w0 / WARP])
        for (int i = w0; i < w0 + WARP && i < s->nthreads && !s->failed; i++) {
            CudaThread &x = s->threads[i];
            if (x.state == IN_WARP_OP && (x.mask >> me % WARP & 1) && try_warp_op(s, w0, x.mask, -1)) break;
        }
    if (s->alive && s->waiting == s->alive) release_barrier(s, -1);
}

static void fiber_main()
{
    SM *s = emu_sm;
    if (&__sanitizer_finish_switch_fiber) {
        const void *bottom;
        size_t size;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
        if (!s->main_bottom) s->main_bottom = bottom, s->main_size = size;
    }
    for (;;) {
        hb_acquire(&s->hb_start);
        (*s->body)();
        hb_release(&s->hb_end);
        int me = s->current, stack = s->threads[me].stack;
        thread_ends(s, me);
        if (!in_tsan() && !s->failed) {
            int next = pick(s);
            if (next >= 0 && s->threads[next].stack < 0) {
                s->threads[next].stack = stack; /* a new thread starts here: no switch at all */
                become(s, next);
                continue;
            }
            if (next >= 0) {
                s->free_stacks.push_back(stack);
                become(s, next);
                switch_stack(s, stack, s->threads[next].stack, nullptr, true);
                abort();
            }
        }
        leave(s, true);
        abort(); /* a dead fiber is never switched to */
    }
}

/* Random mode: warps in random order, lanes in random order within each. */
static void shuffle_start_order(SM *s)
{
    int nwarps = (s->nthreads + WARP - 1) / WARP, warp[MAX_WARPS], k = 0;
    auto below = [s](int n) { return (int)(emu_rand(&s->rng) % (unsigned)n); };
    for (int i = 0; i < nwarps; i++) warp[i] = i;
    for (int i = nwarps - 1; i > 0; i--) std::swap(warp[i], warp[below(i + 1)]);
    for (int i = 0; i < nwarps; i++) {
        int lo = k;
        for (int j = warp[i] * WARP; j < s->nthreads && j < (warp[i] + 1) * WARP; j++) s->start_order[k++] = j;
        for (int j = k - 1; j > lo; j--) std::swap(s->start_order[j], s->start_order[lo + below(j - lo + 1)]);
    }
}

static void report_deadlock(SM *s)
{
    fprintf(stderr, "cudaemu: deadlock in block (%u,%u,%u): %d of %d threads never get on\n", blockIdx.x, blockIdx.y, blockIdx.z, s->alive,
            s->nthreads);
    for (int i = 0, shown = 0; i < s->nthreads && shown < 4; i++) {
        CudaThread &x = s->threads[i];
        if (x.state == DONE) continue;
        if (i) { /* one line for neighbours that wait at the same place */
            CudaThread &before = s->threads[i - 1];
            if (before.state == x.state && before.line == x.line && before.mask == x.mask) continue;
        }
        fprintf(stderr, "  thread %d.. waits in %s at %s:%d", i, x.state == IN_BARRIER ? "__syncthreads" : op_name[x.op], x.file, x.line);
        if (x.state == IN_WARP_OP) fprintf(stderr, " mask %08x", x.mask);
        fputc('\n', stderr);
        shown++;
    }
}

/* Threads of a failed block stay parked on their stacks for ever. Tell TSan that what they did is
 * over, or the clean-up of their closure looks like a race. */
static void abandon_threads(SM *s)
{
    if (&__tsan_switch_to_fiber) {
        for (int i = 0; i < s->nthreads; i++) {
            CudaThread &x = s->threads[i];
            if (x.state == DONE || x.stack < 0) continue;
            __tsan_switch_to_fiber(x.tsan_fiber, 1);
            hb_release(&s->hb_end);
            __tsan_switch_to_fiber(s->main_tsan_fiber, 1);
        }
        hb_acquire(&s->hb_end);
    }
    s->free_stacks.clear();
    for (size_t i = 0; i < s->stacks.size(); i++) s->free_stacks.push_back((int)i);
}

bool emu_run_block(SM *s)
{
    int n = s->nthreads;
    s->current = -1, s->next_new = 0, s->alive = n, s->waiting = 0, s->failed = false;
    s->ready.head = s->ready.count = 0;
    for (int i = 0; i < n; i++) {
        s->threads[i].state = NEW;
        s->threads[i].stack = -1;
    }
    for (int w = 0; w * WARP < n; w++) {
        int lanes = n - w * WARP;
        s->warp_waiting[w] = 0;
        s->warp_gone[w] = lanes >= WARP ? 0 : ~0u << lanes;
    }
    if (s->random) shuffle_start_order(s);

    hb_release(&s->hb_start);
    int first = pick(s);
    s->threads[first].stack = new_stack(s);
    arm_stack(&s->stacks[s->threads[first].stack]);
    become(s, first);
    switch_stack(s, -1, s->threads[first].stack, s->threads[first].tsan_fiber, false);
    hb_acquire(&s->hb_end); /* here again when no thread can run */
    s->current = -1;

    s->free_stacks.insert(s->free_stacks.end(), s->retired_stacks.begin(), s->retired_stacks.end());
    s->retired_stacks.clear();
    if (!s->failed && !s->alive) return true;
    if (!s->failed) report_deadlock(s);
    abandon_threads(s);
    return false;
}
