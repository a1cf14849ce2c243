/* nccl.cpp - collectives over a board in POSIX shared memory: ranks may be threads or processes.
 *
 * Every rank writes a chunk of its data on the board, waits, reads what it needs, waits. Reductions
 * add in rank order in f32 (bf16, f16) or the type itself, rounding once. Ranks that disagree on a
 * collective, or one that never comes, end in an asynchronous error; a real NCCL would hang. Every argument is checked against the
 * documentation.
 */
#include "emu.h"
#include "vendor.h"
#include <nccl.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

enum { MAX_RANKS = 16, CHUNK = 1 << 20 };
enum Kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE };

static const char *const kind_name[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclReduce"};

struct Call { /* compared between the ranks byte by byte: zero the padding */
    int kind, type, reduction, root;
    size_t count;
};
struct Board {
    std::atomic<int> arrived, generation, nranks, broken;
    std::atomic<int> taken[MAX_RANKS]; /* who is that rank: its process */
    int device[MAX_RANKS];
    Call call[MAX_RANKS];
    char slot[MAX_RANKS][CHUNK];
};
enum Life { ALIVE, FINALIZED, ABORTED };
struct ncclComm {
    Board *board;
    int rank, nranks, device;
    std::atomic<int> error{0}, life{ALIVE};
    StreamPlace last; /* of its collectives */
    ~ncclComm()
    {
        munmap(board, sizeof(Board));
    }
};

/* Communicators that exist. What is still in a stream keeps its own alive. */
typedef std::shared_ptr<ncclComm> CommRef;
static Lock comms_lock;
static std::vector<CommRef> &comms()
{
    static auto *v = [] {
        auto *x = new std::vector<CommRef>();
        x->reserve(1024);
        return x;
    }();
    return *v;
}

static CommRef find_comm(const char *call, ncclComm_t c)
{
    CommRef found;
    {
        Guard g(comms_lock);
        for (auto &x : comms())
            if (x.get() == c) found = x;
    }
    if (!found) emu_refuse(call, "comm", "one that was made and not destroyed or aborted", "%s", c ? "not one of these" : "NULL");
    return found;
}

static CommRef forget_comm(const char *call, ncclComm_t c)
{
    CommRef found = find_comm(call, c);
    Guard g(comms_lock);
    for (auto &x : comms())
        if (found && x == found) {
            x.swap(comms().back());
            break;
        }
    if (found) comms().pop_back();
    return found;
}

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
        if (left <= 0 || c->life.load() == ABORTED || b->broken.load()) return false;
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
            char text[200];
            const Call other = b->call[r];
            snprintf(
                text, sizeof text,
                "ranks disagree on the collective: %s, %zu of type %d, op %d, root %d here; %s, %zu of type %d, op %d, root %d in rank %d",
                kind_name[call.kind], call.count, call.type, call.reduction, call.root, kind_name[other.kind], other.count, other.type,
                other.reduction, other.root, r);
            barrier(c);
            return fail(text);
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
static std::atomic<int> joined_badly;              /* what one of them said */
static __thread std::vector<std::thread> *joining; /* communicators being made by this group */

/* ---- what is checked of a collective ---- */

struct Buffers {
    const char *send, *recv;
    size_t send_bytes, recv_bytes; /* 0: this rank has no such buffer */
    ptrdiff_t in_place;            /* of recv from send, where both may be the same memory */
};

static Buffers buffers(const ncclComm *c, const Call &x, const void *send, void *recv)
{
    size_t one = x.count * width((ncclDataType_t)x.type), all = one * (size_t)c->nranks;
    bool root = c->rank == x.root;
    ptrdiff_t share = (ptrdiff_t)one * c->rank;
    Buffers b = {(const char *)send, (const char *)recv, one, one, 0};
    switch (x.kind) {
    case ALL_GATHER: b.recv_bytes = all, b.in_place = -share; break;
    case REDUCE_SCATTER: b.send_bytes = all, b.in_place = share; break;
    case BROADCAST: b.send_bytes = root ? one : 0; break;
    case REDUCE: b.recv_bytes = root ? one : 0; break;
    }
    return b;
}

static bool check_buffer(const char *call, const char *name, const void *p, size_t bytes, size_t align, int device)
{
    size_t size, offset;
    int owner;
    if (!bytes) return true;
    if (!p || !emu_allocation_of(p, &size, &offset, &owner)) {
        emu_refuse(call, name, "memory that the device can reach", "%s", p ? "ordinary host memory" : "NULL");
        return false;
    }
    if ((uintptr_t)p % align) {
        emu_refuse(call, name, "a pointer that is aligned to its elements", "%p; the elements have %zu bytes", p, align);
        return false;
    }
    return emu_check_memory(call, name, p, bytes, device);
}

static bool check_buffers(const char *call, const ncclComm *c, const Call &x, const void *send, void *recv)
{
    Buffers b = buffers(c, x, send, recv);
    size_t align = width((ncclDataType_t)x.type);
    if (!check_buffer(call, "sendbuff", b.send, b.send_bytes, align, c->device)) return false;
    if (!check_buffer(call, "recvbuff", b.recv, b.recv_bytes, align, c->device)) return false;
    if (!b.send_bytes || !b.recv_bytes) return true;
    bool apart = b.send + b.send_bytes <= b.recv || b.recv + b.recv_bytes <= b.send;
    if (apart || b.recv - b.send == b.in_place) return true;
    emu_refuse(call, "recvbuff", "that the buffers are apart, or in place: its offset from sendbuff is as documented",
               "%td bytes from sendbuff; in place it is %td in this rank", b.recv - b.send, b.in_place);
    return false;
}

static bool check_collective(const char *call, const ncclComm *c, const Call &x, cudaStream_t s)
{
    const struct {
        const char *name, *asks;
        int value;
        bool right;
    } checks[] = {
        {"datatype", "one of ncclDataType_t that there is", x.type, width((ncclDataType_t)x.type) != 0},
        {"op", "one of ncclRedOp_t", x.reduction, x.reduction >= ncclSum && x.reduction <= ncclAvg},
        {"root", "a rank of the communicator", x.root, x.root >= 0 && x.root < c->nranks},
        {"comm", "one that is not finalized", c->life.load(), c->life.load() == ALIVE},
    };
    for (auto &k : checks)
        if (!k.right) {
            emu_refuse(call, k.name, k.asks, "%d", k.value);
            return false;
        }
    if (!emu_check_stream(call, s, c->device)) return false;
    if (emu_is_ordered(c->last, s)) return true;
    emu_refuse(call, "the stream", "that collectives of a communicator follow one another",
               "not ordered after the communicator's last collective, which is in another stream");
    return false;
}

static ncclResult_t collective(Kind kind, const void *send, void *recv, size_t n, ncclDataType_t t, int reduction, int root,
                               ncclComm_t comm, cudaStream_t s)
{
    const char *name = kind_name[kind];
    CommRef c = find_comm(name, comm);
    if (!c) return ncclInvalidArgument;
    Call call;
    memset(&call, 0, sizeof call);
    call.kind = kind, call.type = t, call.reduction = reduction, call.root = root, call.count = n;
    if (c->error.load()) return (ncclResult_t)c->error.load();
    if (!check_collective(name, c.get(), call, s)) return ncclInvalidArgument;
    if (!n) return ncclSuccess;
    if (!check_buffers(name, c.get(), call, send, recv)) return ncclInvalidArgument;
    auto go = [=] {
        cudaError_t e = emu_submit(s, [=] { run(c.get(), call, (const char *)send, (char *)recv); });
        c->last = emu_place(s);
        return e ? ncclUnhandledCudaError : ncclSuccess;
    };
    if (!group_depth) return go();
    deferred->push_back(go);
    return ncclSuccess;
}

/* ---- how a communicator is made ---- */

/* An identifier makes one communicator: who comes back with it waits for ranks that never come. */
static bool is_used(const ncclUniqueId &id, int rank)
{
    static Lock lock;
    static auto *used = [] {
        auto *x = new std::vector<std::pair<ncclUniqueId, int>>();
        x->reserve(4096);
        return x;
    }();
    Guard g(lock);
    for (auto &u : *used)
        if (u.second == rank && !strncmp(u.first.internal, id.internal, sizeof id.internal)) return true;
    if (used->size() < used->capacity()) used->emplace_back(id, rank);
    return false;
}

static bool check_join(int n, const ncclUniqueId &id, int rank)
{
    static const char call[] = "ncclCommInitRank", prefix[] = "/cudaemu-nccl-";
    if (n < 1 || n > MAX_RANKS)
        emu_refuse(call, "nranks", "1 or more (the emulation: at most 16)", "%d", n);
    else if (rank < 0 || rank >= n)
        emu_refuse(call, "rank", "from 0 to nranks - 1", "%d of %d", rank, n);
    else if (strncmp(id.internal, prefix, sizeof prefix - 1))
        emu_refuse(call, "commId", "what ncclGetUniqueId made, in every rank", "something else");
    else if (is_used(id, rank))
        emu_refuse(call, "commId", "a new one for each communicator", "one that rank %d has used before", rank);
    else
        return true;
    return false;
}

/* Takes the place of this rank. */
static bool enter_board(Board *b, int n, int rank)
{
    static const char call[] = "ncclCommInitRank";
    int none = 0, nobody = 0;
    if (!b->nranks.compare_exchange_strong(none, n) && none != n)
        emu_refuse(call, "nranks", "the same in all ranks", "%d in rank %d, %d in another", n, rank, none);
    else if (!b->taken[rank].compare_exchange_strong(nobody, getpid()))
        emu_refuse(call, "rank", "one that no other has", "%d, which process %d has", rank, nobody);
    else {
        b->device[rank] = emu_device();
        for (int r = 0; r < n; r++)
            if (r != rank && b->taken[r].load() == getpid() && b->device[r] == emu_device()) {
                emu_refuse(call, "the current device", "one for each rank", "%d, which rank %d has", emu_device(), r);
                b->broken.store(1);
                return false;
            }
        return true;
    }
    b->broken.store(1); /* the others need not wait */
    return false;
}

static ncclResult_t join(ncclComm_t *out, int n, ncclUniqueId id, int rank, int device)
{
    cudaSetDevice(device); /* of who called: in a group this is a thread of its own */
    id.internal[sizeof id.internal - 1] = 0;
    int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (fd < 0) return ncclSystemError;
    bool sized = ftruncate(fd, sizeof(Board)) == 0;
    void *map = sized ? mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) return ncclSystemError;
    auto c = std::make_shared<ncclComm>();
    c->board = (Board *)map, c->rank = rank, c->nranks = n, c->device = device;
    bool joined = enter_board(c->board, n, rank);
    bool all = joined && barrier(c.get());
    if (rank == 0 || !all) shm_unlink(id.internal);
    if (!all) return joined ? ncclSystemError : ncclInvalidUsage;
    *out = c.get();
    Guard g(comms_lock);
    comms().push_back(std::move(c));
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
    if (emu_no_device() || emu_sticky()) return ncclUnhandledCudaError;
    if (!c || !check_join(n, id, rank)) return ncclInvalidArgument;
    int device = emu_device();
    if (!group_depth) return join(c, n, id, rank, device);
    deferred->push_back([=]() -> ncclResult_t { /* all ranks of a group must join at once */
                                                joining->emplace_back([=] {
                                                    ncclResult_t failed = join(c, n, id, rank, device);
                                                    if (failed) joined_badly.store(failed);
                                                });
                                                return ncclSuccess;
    });
    return ncclSuccess;
}
ncclResult_t ncclCommInitAll(ncclComm_t *c, int n, const int *devices)
{
    ncclUniqueId id;
    if (emu_no_device() || emu_sticky()) return ncclUnhandledCudaError;
    if (!c || n < 1 || n > emu_device_count()) {
        emu_refuse("ncclCommInitAll", "ndev", "from 1 to the number of devices", "%d of %d", n, emu_device_count());
        return ncclInvalidArgument;
    }
    ncclGetUniqueId(&id);
    std::vector<std::thread> threads;
    std::vector<ncclResult_t> rc((size_t)n, ncclSuccess);
    for (int i = 0; i < n; i++) threads.emplace_back([&, i] { rc[(size_t)i] = join(&c[i], n, id, i, devices ? devices[i] : i); });
    for (auto &t : threads) t.join();
    for (auto r : rc)
        if (r) return r;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    CommRef c = find_comm("ncclCommFinalize", comm);
    if (!c) return ncclInvalidArgument;
    c->life.store(FINALIZED);
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return forget_comm("ncclCommDestroy", comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommAbort(ncclComm_t comm)
{ /* it is gone, as after ncclCommDestroy, and nothing of it waits any more */
    CommRef c = forget_comm("ncclCommAbort", comm);
    if (!c) return ncclInvalidArgument;
    c->life.store(ABORTED);
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *e)
{
    CommRef c = find_comm("ncclCommGetAsyncError", comm);
    if (!c) return ncclInvalidArgument;
    *e = (ncclResult_t)c->error.load();
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *n)
{
    CommRef c = find_comm("ncclCommCount", comm);
    if (!c) return ncclInvalidArgument;
    *n = c->nranks;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *r)
{
    CommRef c = find_comm("ncclCommUserRank", comm);
    if (!c) return ncclInvalidArgument;
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
    if (!group_depth) {
        emu_refuse("ncclGroupEnd", "the group", "an ncclGroupStart before", "none");
        return ncclInvalidUsage;
    }
    if (--group_depth) return ncclSuccess;
    ncclResult_t rc = ncclSuccess;
    for (auto &f : *deferred)
        if (ncclResult_t r = f()) rc = r;
    for (auto &t : *joining) t.join();
    if (int failed = joined_badly.exchange(0)) rc = (ncclResult_t)failed;
    delete joining; /* a thread that ends leaves nothing */
    delete deferred;
    joining = nullptr;
    deferred = nullptr;
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
