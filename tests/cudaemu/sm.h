/* sm.h - the state of one emulated multiprocessor (SM), shared by exec.cpp and grid.cpp.
 *
 * One SM is one OS thread. It runs one block at a time; every CUDA thread of that block is a fiber
 * with a stack of its own. Nothing here is shared between SMs, so there are no locks.
 */
#pragma once
#include "emu.h"
#include <vector>

enum { WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP };
static const size_t STACK_BYTES = 128 << 10;

enum ThreadState : uint8_t { NEW, READY, IN_BARRIER, IN_WARP_OP, DONE };

/* Numbering as in device.h (EMU_BAR..., EMU_SYNCWARP...). */
enum { BAR, BAR_COUNT, BAR_AND, BAR_OR };
enum { SYNCWARP, SHFL, BALLOT, REDUCE_ADD, MMA_BF16 };

struct Stack {
    void *sp;   /* saved stack pointer while the fiber is parked */
    char *base; /* mapping of STACK_BYTES, lowest page inaccessible */
    void *asan; /* AddressSanitizer's "fake stack" of the parked fiber */
};

struct CudaThread {
    ThreadState state;
    int stack; /* index into SM::stacks, -1 before the start */
    void *tsan_fiber;
    /* what it waits for, valid in IN_BARRIER and IN_WARP_OP */
    const char *file;
    int line;
    int op;        /* SYNCWARP ... MMA_BF16 */
    unsigned mask; /* lanes that take part */
    int src, size; /* shuffle: lane read from, bytes */
    void *val;     /* operand, replaced by the result */
};

/* Queue of thread numbers; capacity fixed beforehand because fibers must not allocate. */
struct ReadyQueue {
    std::vector<int> slots; /* size is a power of two */
    unsigned head = 0, count = 0;
    int &at(unsigned i)
    {
        return slots[(head + i) & (slots.size() - 1)];
    }
    void push(int x)
    {
        at(count++) = x;
    }
    int pop()
    {
        int x = at(0);
        head++, count--;
        return x;
    }
    int take(unsigned i)
    { /* order is not kept: the last one fills the gap */
        int x = at(i);
        at(i) = at(--count);
        return x;
    }
};

struct SM {
    /* the block that runs */
    const std::function<void()> *body = nullptr; /* the kernel with its arguments bound */
    int nthreads = 0;
    std::vector<CudaThread> threads;
    std::vector<int> start_order;
    int next_new = 0; /* position in start_order */
    int current = -1; /* thread that runs now, -1: the SM loop itself */
    int alive = 0;
    bool failed = false; /* misuse was reported: give up the block */
    ReadyQueue ready;

    /* __syncthreads */
    int waiting = 0; /* threads at the barrier */
    int bar_kind = 0, bar_value = 0, bar_result = 0;
    const char *bar_file = nullptr;
    int bar_line = 0;
    unsigned bar_generation = 0;

    /* warp operations, per warp */
    unsigned warp_generation[MAX_WARPS];
    unsigned warp_waiting[MAX_WARPS]; /* lanes in a warp operation */
    unsigned warp_gone[MAX_WARPS];    /* lanes that returned from the kernel or never existed */

    /* schedule */
    bool random = false;
    uint64_t rng = 1;
    int favourite = 0; /* warp that is allowed to run ahead */

    /* stacks; capacity reserved beforehand */
    std::vector<Stack> stacks;
    std::vector<int> free_stacks, retired_stacks;
    Stack main{}; /* the OS thread's own stack */
    const void *main_bottom = nullptr;
    size_t main_size = 0;
    void *main_tsan_fiber = nullptr;

    /* shared memory: the dynamic one, and the kernels' arrays, where they are a block of thread-local memory */
    unsigned char *dyn = nullptr;
    size_t dyn_capacity = 0, dyn_size = 0;
    unsigned char *arrays = nullptr;
    size_t arrays_size = 0;

    /* which block it is */
    const void *kernel = nullptr;
    uint64_t launch = 0, block = 0;

    /* addresses that stand for CUDA's happens-before edges; the contents are never used */
    char hb_start, hb_end, hb_barrier[2], hb_warp[MAX_WARPS][2];
};

extern __thread SM *emu_sm; /* the SM this OS thread is, or NULL */

bool emu_run_block(SM *s); /* false: misuse or deadlock, already reported */
