/* nccl.cpp - collectives over a board in POSIX shared memory: ranks may be threads or processes.
 *
 * Every rank writes a chunk of its data on the board, waits, reads what it needs, waits. Reductions
 * add in rank order in f32 (bf16, f16) or the type itself, rounding once. Ranks that disagree on a
 * collective, or one that never comes, end in an asynchronous error; a real NCCL would hang.
 */
#include "emu.h"
#include <nccl.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

enum { MAX_RANKS = 16, CHUNK = 1 << 20 };
enum Kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE };

struct Call { /* compared between the ranks byte by byte: zero the padding */
    int kind, type, reduction, root;
    size_t count;
};
struct Board {
    std::atomic<int> joined, arrived, generation;
    Call call[MAX_RANKS];
    char slot[MAX_RANKS][CHUNK];
};
struct ncclComm {
    Board *board;
    int rank, nranks;
    std::atomic<int> error{0}, aborted{0};
    ncclComm *next = nullptr; /* of those that were aborted */
};

/* ------------------------------------------------------------------ barrier of the ranks */

static bool barrier(ncclComm *c)
{ /* false: timed out or aborted */
    Board *b = c->board;
    int g = b->generation.load();
    if (b->arrived.fetch_add(1) == c->nranks - 1) {
        b->arrived.store(0);
        b->generation.store(g + 1);
        futex_wake(&b->generation);
        return true;
    }
    timespec tenth{0, 100000000};
    for (long left = emu_env("CUDAEMU_NCCL_TIMEOUT_S", 60) * 10; b->generation.load() == g; left--) {
        if (left <= 0 || c->aborted.load()) return false;
        syscall(SYS_futex, &b->generation, FUTEX_WAIT, g, &tenth, nullptr, 0);
    }
    return true;
}

/* ------------------------------------------------------------------ reductions */

static size_t width(ncclDataType_t t)
{ /* 0: not supported */
    switch (t) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

template <class T> static T combine(T a, T b, int reduction)
{
    switch (reduction) {
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    case ncclProd: return (T)(a * b);
    default: return (T)(a + b); /* ncclSum, ncclAvg */
    }
}

/* T: as stored, W: as computed */
template <class T, class W>
static void reduce_as(char *out, Board *b, size_t offset, size_t n, int ranks, int reduction, W (*widen)(T), T (*narrow)(W))
{
    for (size_t i = 0; i < n; i++) {
        W acc = widen(((const T *)(b->slot[0] + offset))[i]);
        for (int r = 1; r < ranks; r++) acc = combine(acc, widen(((const T *)(b->slot[r] + offset))[i]), reduction);
        if (reduction == ncclAvg) acc = acc / (W)ranks;
        ((T *)out)[i] = narrow(acc);
    }
}
template <class T> static T same(T x)
{
    return x;
}
static float widen_bf16(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __nv_bfloat16 narrow_bf16(float x)
{
    return __float2bfloat16_rn(x);
}
static float widen_f16(__half x)
{
    return __half2float(x);
}
static __half narrow_f16(float x)
{
    return __float2half_rn(x);
}

static void reduce(char *out, Board *b, size_t off, size_t n, int ranks, ncclDataType_t t, int red)
{
    switch (t) {
    case ncclFloat32: reduce_as<float, float>(out, b, off, n, ranks, red, same, same); break;
    case ncclFloat64: reduce_as<double, double>(out, b, off, n, ranks, red, same, same); break;
    case ncclInt32: reduce_as<int, int>(out, b, off, n, ranks, red, same, same); break;
    case ncclInt64: reduce_as<long, long>(out, b, off, n, ranks, red, same, same); break;
    case ncclUint8: reduce_as<uint8_t, uint8_t>(out, b, off, n, ranks, red, same, same); break;
    case ncclBfloat16: reduce_as(out, b, off, n, ranks, red, widen_bf16, narrow_bf16); break;
    case ncclFloat16: reduce_as(out, b, off, n, ranks, red, widen_f16, narrow_f16); break;
    default: break;
    }
}

/* ------------------------------------------------------------------ one collective */

static void run(ncclComm *c, Call call, const char *send, char *recv)
{
    Board *b = c->board;
    ncclDataType_t type = (ncclDataType_t)call.type;
    size_t w = width(type), n = call.count;
    auto fail = [&](const char *why) {
        fprintf(stderr, "cudaemu: nccl rank %d: %s\n", c->rank, why);
        c->error.store(ncclInternalError);
    };
    b->call[c->rank] = call;
    if (!barrier(c)) return fail("a collective timed out waiting for the other ranks");
    for (int r = 0; r < c->nranks; r++)
        if (memcmp(&b->call[r], &call, sizeof call)) {
            barrier(c);
            return fail("ranks disagree on the collective (op, count, type, reduction or root)");
        }

    size_t total = call.kind == REDUCE_SCATTER ? n * (size_t)c->nranks : n, step = CHUNK / w;
    std::vector<char> sum;
    for (size_t at = 0; at < total; at += step) {
        size_t m = std::min(step, total - at); /* elements in this chunk */
        if (call.kind != BROADCAST || c->rank == call.root) memcpy(b->slot[c->rank], send + at * w, m * w);
        if (!barrier(c)) return fail("timed out");
        sum.resize(m * w);
        switch (call.kind) {
        case REDUCE:
            if (c->rank != call.root) break;
            [[fallthrough]];
        case ALL_REDUCE:
            reduce(sum.data(), b, 0, m, c->nranks, type, call.reduction);
            memcpy(recv + at * w, sum.data(), m * w);
            break;
        case BROADCAST: memcpy(recv + at * w, b->slot[call.root], m * w); break;
        case ALL_GATHER:
            for (int r = 0; r < c->nranks; r++) memcpy(recv + ((size_t)r * n + at) * w, b->slot[r], m * w);
            break;
        case REDUCE_SCATTER: { /* this rank's share of the chunk, if any */
            size_t mine = n * (size_t)c->rank;
            size_t lo = std::max(at, mine), hi = std::min(at + m, mine + n);
            if (lo >= hi) break;
            reduce(sum.data(), b, (lo - at) * w, hi - lo, c->nranks, type, call.reduction);
            memcpy(recv + (lo - mine) * w, sum.data(), (hi - lo) * w);
            break;
        }
        }
        if (!barrier(c)) return fail("timed out");
    }
}

/* ------------------------------------------------------------------ groups and communicators */

typedef std::function<ncclResult_t()> Deferred;
static __thread int group_depth;
static __thread std::vector<Deferred> *deferred;
static __thread std::vector<std::thread> *joining; /* communicators being made by this group */

static ncclResult_t collective(Kind kind, const void *send, void *recv, size_t n, ncclDataType_t t, int reduction, int root, ncclComm_t c,
                               cudaStream_t s)
{
    if (!c || !width(t)) return ncclInvalidArgument;
    if (!n) return ncclSuccess;
    Call call;
    memset(&call, 0, sizeof call);
    call.kind = kind, call.type = t, call.reduction = reduction, call.root = root, call.count = n;
    auto go = [=] {
        cudaError_t e = emu_submit(s, [=] { run(c, call, (const char *)send, (char *)recv); });
        return e ? ncclUnhandledCudaError : ncclSuccess;
    };
    if (!group_depth) return go();
    deferred->push_back(go);
    return ncclSuccess;
}

static ncclResult_t join(ncclComm_t *out, int n, ncclUniqueId id, int rank)
{
    if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n) return ncclInvalidArgument;
    id.internal[sizeof id.internal - 1] = 0;
    int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (fd < 0) return ncclSystemError;
    bool sized = ftruncate(fd, sizeof(Board)) == 0;
    void *map = sized ? mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return ncclSystemError;
    auto *c = new ncclComm{(Board *)map, rank, n};
    c->board->joined.fetch_add(1);
    if (!barrier(c)) return ncclSystemError;
    if (rank == 0) shm_unlink(id.internal);
    *out = c;
    return ncclSuccess;
}

extern "C" {
ncclResult_t ncclGetVersion(int *v)
{
    *v = NCCL_VERSION_CODE;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<int> counter{0};
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/cudaemu-nccl-%d-%d-%lx", getpid(), counter++, (unsigned long)t.tv_nsec);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int rank)
{
    if (emu_no_device()) return ncclUnhandledCudaError;
    if (!group_depth) return join(c, n, id, rank);
    deferred->push_back([=]() -> ncclResult_t { /* all ranks of a group must join at once */
                                                joining->emplace_back([=] { join(c, n, id, rank); });
                                                return ncclSuccess;
    });
    return ncclSuccess;
}
ncclResult_t ncclCommInitAll(ncclComm_t *c, int n, const int *)
{
    ncclUniqueId id;
    if (emu_no_device()) return ncclUnhandledCudaError;
    ncclGetUniqueId(&id);
    std::vector<std::thread> threads;
    std::vector<ncclResult_t> rc((size_t)n, ncclSuccess);
    for (int i = 0; i < n; i++) threads.emplace_back([&, i] { rc[(size_t)i] = join(&c[i], n, id, i); });
    for (auto &t : threads) t.join();
    for (auto r : rc)
        if (r) return r;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    munmap(c->board, sizeof(Board));
    delete c;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c)
{ /* what is under way still looks at it: it stays */
    static std::atomic<ncclComm *> last;
    c->aborted.store(1);
    c->next = last.exchange(c);
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
    *e = (ncclResult_t)c->error.load();
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int *n)
{
    *n = c->nranks;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int *r)
{
    *r = c->rank;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r)
{
    return r ? "nccl error" : "no error";
}

ncclResult_t ncclGroupStart(void)
{
    if (!deferred) {
        deferred = new std::vector<Deferred>();
        joining = new std::vector<std::thread>();
    }
    group_depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
    if (!group_depth) return ncclInvalidUsage;
    if (--group_depth) return ncclSuccess;
    ncclResult_t rc = ncclSuccess;
    for (auto &f : *deferred)
        if (ncclResult_t r = f()) rc = r;
    for (auto &t : *joining) t.join();
    joining->clear();
    deferred->clear();
    return rc;
}

ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t st)
{
    return collective(ALL_REDUCE, s, r, n, t, op, 0, c, st);
}
ncclResult_t ncclReduce(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t st)
{
    return collective(REDUCE, s, r, n, t, op, root, c, st);
}
ncclResult_t ncclReduceScatter(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t st)
{
    return collective(REDUCE_SCATTER, s, r, n, t, op, 0, c, st);
}
ncclResult_t ncclAllGather(const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t st)
{
    return collective(ALL_GATHER, s, r, n, t, 0, 0, c, st);
}
ncclResult_t ncclBroadcast(const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st)
{
    return collective(BROADCAST, s, r, n, t, 0, root, c, st);
}
}
