/* runtime.cpp - devices, streams, events and launches of libcudart.
 *
 * Every stream is a worker thread that runs its operations in order. Streams, counts and queues are
 * guarded by invisible locks (emu.h); the edges a program may rely on are announced:
 * enqueue -> operation, operation -> next operation, event record -> wait, anything -> synchronise.
 */
#include "emu.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <thread>
#include <vector>

long emu_env(const char *name, long dflt)
{
    const char *v = getenv(name);
    return v && *v ? strtol(v, nullptr, 0) : dflt;
}

uint64_t emu_rand(uint64_t *state)
{ /* xorshift64* */
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}

static double now_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* ------------------------------------------------------------------ devices */

static __thread int current_device;

int emu_device()
{
    return current_device;
}
size_t emu_device_bytes()
{
    return (size_t)emu_env("CUDAEMU_MEM_MB", 4096) << 20;
}
static int compute_capability()
{
    return (int)emu_env("CUDAEMU_CC", 90);
}
static int max_dynamic_shared()
{ /* after opting in with cudaFuncSetAttribute */
    int cc = compute_capability();
    return (cc >= 90 ? 227 : cc == 80 ? 163 : cc == 75 ? 64 : 99) << 10;
}

static cudaError_t describe(struct cudaDeviceProp *p, int d)
{
    if (d < 0 || d >= emu_device_count()) return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "cudaemu sm_%d", compute_capability());
    p->major = compute_capability() / 10;
    p->minor = compute_capability() % 10;
    p->totalGlobalMem = emu_device_bytes();
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)max_dynamic_shared();
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->multiProcessorCount = 4;
    p->asyncEngineCount = 2;
    p->regsPerBlock = 65536;
    p->concurrentKernels = 1;
    p->unifiedAddressing = 1;
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = i == 2 ? 64 : 1024;
        p->maxGridSize[i] = i ? 65535 : 0x7fffffff;
    }
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaGetDeviceCount(int *n)
{
    emu_count(EMU_cudaGetDeviceCount);
    cudaError_t none = emu_no_device();
    if (none != cudaErrorInsufficientDriver) *n = emu_device_count(); /* without a driver it is not written */
    return emu_set_error(none);
}
cudaError_t cudaSetDevice(int d)
{
    ENTER_DEVICE(cudaSetDevice);
    if (d < 0 || d >= emu_device_count()) return emu_set_error(cudaErrorInvalidDevice);
    current_device = d;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    ENTER(cudaGetDevice);
    *d = current_device;
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void)
{
    ENTER(cudaDeviceReset);
    return emu_sync_device(current_device);
}
cudaError_t cudaDeviceSynchronize(void)
{
    ENTER(cudaDeviceSynchronize);
    return emu_sync_device(current_device);
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = emu_no_device() == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    ENTER(cudaGetDeviceProperties);
    return emu_set_error(describe(p, d));
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d)
{
    ENTER(cudaDeviceGetAttribute);
    struct cudaDeviceProp p;
    cudaError_t e = describe(&p, d);
    if (e) return emu_set_error(e);
    switch (a) {
    case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *v = p.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *v = p.minor; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = max_dynamic_shared(); return cudaSuccess;
    default: return emu_set_error(cudaErrorNotSupported);
    }
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    ENTER_DEVICE(cudaMemGetInfo);
    size_t used = emu_used_bytes(current_device);
    *total = emu_device_bytes();
    *free_bytes = *total > used ? *total - used : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *r, int a, int b)
{
    ENTER(cudaDeviceCanAccessPeer);
    *r = a != b;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    ENTER_DEVICE(cudaDeviceEnablePeerAccess);
    return cudaSuccess;
}
}

/* ------------------------------------------------------------------ streams */

typedef std::shared_ptr<struct CUstream_st> StreamRef;
struct Dependency { /* wait until `stream` has done `count` operations */
    StreamRef stream;
    int count;
};
struct Op {
    Op *next = nullptr;
    std::function<void()> fn;
    std::vector<Dependency> deps;
    bool stop = false;   /* last operation of a destroyed stream */
    bool always = false; /* runs even after a sticky error (events, so that nobody waits for ever) */
    bool device = false; /* the device does it, so that it may touch the device's memory */
};
struct CUstream_st {
    Lock l;
    Op *head = nullptr, *tail = nullptr; /* intrusive: nothing is allocated under the lock */
    std::atomic<int> enqueued{0}, done{0};
    bool nonblocking = false;
    int device = 0, id = 0;
    uint64_t rng = 1;
    char hb_done = 0;
    Clock clock{}; /* under clock_lock */
    bool idle() const
    {
        return done.load() == enqueued.load();
    }
};

static Lock streams_lock;
static std::vector<StreamRef> &streams()
{ /* never destroyed: workers outlive main() */
    static auto *v = [] {
        auto *x = new std::vector<StreamRef>();
        x->reserve(1024);
        return x;
    }();
    return *v;
}

/* ------------------------------------------------------------------ order, as it follows from the calls */

static Lock clock_lock;
static Clock host_clock;

/* By hand: memcpy would be intercepted by the thread sanitizer. */
static void merge(Clock *to, const Clock *from)
{
    for (int i = 0; i < CLOCK_STREAMS; i++)
        if (to->done[i] < from->done[i]) to->done[i] = from->done[i];
}
static void reach(Clock *c, int stream, int count)
{
    if (stream < CLOCK_STREAMS && c->done[stream] < count) c->done[stream] = count;
}
static void host_has_seen(CUstream_st *s, int count)
{
    Guard g(clock_lock);
    merge(&host_clock, &s->clock);
    reach(&host_clock, s->id, count);
}

/* Kept, so that no stream that is made later has the address of one that was destroyed: its use is to be found. */
static std::vector<StreamRef> &destroyed_streams()
{
    static auto *v = [] {
        auto *x = new std::vector<StreamRef>();
        x->reserve(1024);
        return x;
    }();
    return *v;
}

static void wait_done(CUstream_st *s, int count)
{
    for (int d; (d = s->done.load()) - count < 0;) futex_wait(&s->done, d);
    hb_acquire(&s->hb_done);
}

static void random_delay(CUstream_st *s, long max_us)
{
    long us = (long)(emu_rand(&s->rng) % (uint64_t)(max_us + 1));
    timespec t{us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, nullptr);
}

static void worker(StreamRef s)
{
    current_device = s->device;
    long latency_us = emu_env("CUDAEMU_LATENCY_US", 0);
    s->rng = (uint64_t)(emu_env("CUDAEMU_SEED", 1) * 7919 + s->id + 1);
    for (int k = 0;; k++) {
        for (int e; (e = s->enqueued.load()) == k;) futex_wait(&s->enqueued, e);
        s->l.lock();
        Op *op = s->head;
        s->head = op->next;
        s->l.unlock();
        hb_acquire(op);
        for (auto &d : op->deps) wait_done(d.stream.get(), d.count);
        if (latency_us) random_delay(s.get(), latency_us);
        bool stop = op->stop;
        if (op->fn && (op->always || emu_sticky() == cudaSuccess)) {
            if (op->device) {
                DeviceAccess access;
                op->fn();
            } else {
                op->fn();
            }
        }
        delete op;
        hb_release(&s->hb_done);
        s->done.store(k + 1);
        futex_wake(&s->done);
        if (stop) return;
    }
}

static StreamRef new_stream(int device, bool nonblocking)
{
    static std::atomic<int> ids{0};
    auto s = std::make_shared<CUstream_st>();
    s->device = device;
    s->nonblocking = nonblocking;
    s->id = ids++;
    {
        Guard g(streams_lock);
        streams().push_back(s);
    }
    std::thread(worker, s).detach();
    return s;
}

static StreamRef default_stream(int device)
{ /* the legacy one */
    static Lock l;
    static auto *v = new std::map<int, StreamRef>();
    Guard g(l);
    auto &r = (*v)[device];
    if (!r) r = new_stream(device, false);
    return r;
}

static StreamRef resolve(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) return default_stream(current_device);
    Guard g(streams_lock);
    for (auto &r : streams())
        if (r.get() == s) return r;
    return nullptr;
}

/* The legacy default stream waits for all blocking streams of its device, and they for it. */
static void add_implicit_dependencies(Op *op, const StreamRef &s)
{
    if (s->nonblocking) return;
    StreamRef dflt = default_stream(s->device);
    if (s != dflt) {
        if (!dflt->idle()) op->deps.push_back({dflt, dflt->enqueued.load()});
        return;
    }
    Guard g(streams_lock);
    for (auto &r : streams())
        if (r != s && !r->nonblocking && r->device == s->device && !r->idle()) op->deps.push_back({r, r->enqueued.load()});
}

enum Work { BY_DEVICE, BY_HOST, RECORD, LAST };

static cudaError_t submit(cudaStream_t h, std::function<void()> fn, Work work)
{
    StreamRef s = resolve(h);
    if (!s) return emu_set_error(cudaErrorInvalidResourceHandle);
    if (emu_sticky() != cudaSuccess && work < RECORD) return emu_set_error(emu_sticky());
    Op *op = new Op();
    op->fn = std::move(fn);
    op->stop = work == LAST;
    op->always = work == RECORD;
    op->device = work == BY_DEVICE;
    add_implicit_dependencies(op, s);
    std::vector<Dependency> deps = op->deps; /* the operation may be gone by the time they are noted */
    hb_release(op);
    s->l.lock();
    if (s->head)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    s->enqueued++;
    s->l.unlock();
    {
        Guard g(clock_lock);
        for (auto &d : deps) {
            merge(&s->clock, &d.stream->clock);
            reach(&s->clock, d.stream->id, d.count);
        }
    }
    futex_wake(&s->enqueued);
    return emu_set_error(emu_sticky());
}

cudaError_t emu_submit(cudaStream_t s, std::function<void()> fn)
{
    return submit(s, std::move(fn), BY_DEVICE);
}
cudaError_t emu_submit_host(cudaStream_t s, std::function<void()> fn)
{
    return submit(s, std::move(fn), BY_HOST);
}
StreamPlace emu_place(cudaStream_t h)
{
    StreamRef s = resolve(h);
    return s ? StreamPlace{s->id, s->enqueued.load()} : StreamPlace{};
}
bool emu_is_ordered(const StreamPlace &before, cudaStream_t h)
{
    StreamRef s = resolve(h);
    if (!s || before.stream < 0 || before.stream == s->id || before.stream >= CLOCK_STREAMS) return true;
    Guard g(clock_lock);
    return s->clock.done[before.stream] >= before.count || host_clock.done[before.stream] >= before.count;
}
int emu_stream_device(cudaStream_t h)
{
    StreamRef s = resolve(h);
    return s ? s->device : -1;
}
cudaError_t emu_sync_stream(cudaStream_t h)
{
    StreamRef s = resolve(h);
    if (!s) return emu_set_error(cudaErrorInvalidResourceHandle);
    int count = s->enqueued.load();
    wait_done(s.get(), count);
    host_has_seen(s.get(), count);
    return emu_set_error(emu_sticky());
}
cudaError_t emu_sync_device(int device)
{
    std::vector<StreamRef> v;
    {
        Guard g(streams_lock);
        v = streams();
    }
    for (auto &s : v)
        if (device < 0 || s->device == device) {
            int count = s->enqueued.load();
            wait_done(s.get(), count);
            host_has_seen(s.get(), count);
        }
    return emu_set_error(emu_sticky());
}

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    ENTER_DEVICE(cudaStreamCreateWithFlags);
    *s = new_stream(current_device, flags & cudaStreamNonBlocking).get();
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(cudaDeviceGetStreamPriorityRange);
    *least = 0, *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t h)
{
    ENTER(cudaStreamDestroy);
    StreamRef s = resolve(h);
    if (!s || !h) return emu_set_error(cudaErrorInvalidResourceHandle);
    cudaError_t e = submit(h, nullptr, LAST);
    Guard g(streams_lock);
    auto &v = streams();
    v.erase(std::remove(v.begin(), v.end(), s), v.end());
    auto &gone = destroyed_streams();
    if (gone.size() < gone.capacity()) gone.push_back(s);
    return e;
}
cudaError_t cudaStreamSynchronize(cudaStream_t h)
{
    ENTER(cudaStreamSynchronize);
    return emu_sync_stream(h);
}
cudaError_t cudaStreamQuery(cudaStream_t h)
{
    ENTER(cudaStreamQuery);
    StreamRef s = resolve(h);
    if (!s) return emu_set_error(cudaErrorInvalidResourceHandle);
    if (emu_sticky()) return emu_set_error(emu_sticky());
    int count = s->enqueued.load();
    if (s->done.load() != count) return cudaErrorNotReady;
    hb_acquire(&s->hb_done);
    host_has_seen(s.get(), count);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *user)
{
    ENTER(cudaLaunchHostFunc);
    return emu_submit_host(s, [=] { f(user); });
}
}

/* ------------------------------------------------------------------ events */

struct EventState { /* one record of an event; a later record makes a new one */
    Flag happened;
    double ms = 0;
    char hb = 0;
    Clock clock{}; /* of the stream, where it was recorded */
    void wait(bool orders = true)
    {
        happened.wait();
        if (orders) hb_acquire(&hb);
    }
    void host_has_seen()
    {
        Guard g(clock_lock);
        merge(&host_clock, &clock);
    }
};
typedef std::shared_ptr<EventState> EventRef;
struct CUevent_st {
    int device;
    bool timed; /* it is for measuring: whoever asks for it on the host learns nothing of memory by it */
    Lock l;
    EventRef state;
};
static EventRef state_of(cudaEvent_t e)
{
    Guard g(e->l);
    return e->state;
}

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    ENTER_DEVICE(cudaEventCreateWithFlags);
    *e = new CUevent_st();
    (*e)->device = current_device;
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    ENTER(cudaEventDestroy);
    delete e;
    return emu_set_error(emu_sticky());
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    ENTER(cudaEventRecord);
    if (emu_stream_device(s) != e->device) {
        fprintf(stderr, "cudaemu: an event of device %d is recorded in a stream of device %d\n", e->device, emu_stream_device(s));
        return emu_set_error(cudaErrorInvalidResourceHandle);
    }
    auto st = std::make_shared<EventState>();
    {
        Guard g(e->l);
        e->state = st;
    }
    auto record = [st] {
        st->ms = now_ms();
        hb_release(&st->hb);
        st->happened.set();
    };
    StreamRef stream = resolve(s);
    {
        Guard g(clock_lock);
        merge(&st->clock, &stream->clock);
        reach(&st->clock, stream->id, stream->enqueued.load() + 1);
    }
    return submit(s, record, RECORD);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    ENTER(cudaStreamWaitEvent);
    EventRef st = state_of(e); /* the last record made before this call; none: no wait */
    if (!st) return emu_set_error(emu_sticky());
    StreamRef stream = resolve(s);
    if (stream) {
        Guard g(clock_lock);
        merge(&stream->clock, &st->clock);
    }
    return emu_submit_host(s, [st] { st->wait(); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    ENTER(cudaEventSynchronize);
    EventRef st = state_of(e);
    if (st) {
        st->wait(!e->timed);
        st->host_has_seen();
    }
    return emu_set_error(emu_sticky());
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    ENTER(cudaEventQuery);
    EventRef st = state_of(e);
    if (st && !st->happened.test()) return cudaErrorNotReady;
    if (st) {
        if (!e->timed) hb_acquire(&st->hb);
        st->host_has_seen();
    }
    return emu_set_error(emu_sticky());
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    ENTER_DEVICE(cudaEventElapsedTime);
    EventRef x = state_of(a), y = state_of(b);
    if (!x || !y || !a->timed || !b->timed) return emu_set_error(cudaErrorInvalidResourceHandle);
    if (!x->happened.test() || !y->happened.test()) return cudaErrorNotReady;
    *ms = (float)(y->ms - x->ms);
    return cudaSuccess;
}
}

/* ------------------------------------------------------------------ kernel launches */

static Lock limits_lock;
static std::map<const void *, int> &dynamic_shared_limits()
{
    static auto *m = new std::map<const void *, int>();
    return *m;
}

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int v)
{
    ENTER_DEVICE(cudaFuncSetAttribute);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (v < 0 || v > max_dynamic_shared()) return emu_set_error(cudaErrorInvalidValue);
    Guard g(limits_lock);
    dynamic_shared_limits()[kernel] = v;
    return cudaSuccess;
}

static size_t dynamic_shared_limit(const void *kernel)
{
    Guard g(limits_lock);
    auto it = dynamic_shared_limits().find(kernel);
    return it == dynamic_shared_limits().end() ? 48 << 10 : (size_t)it->second;
}

void cudaemu_enqueue(dim3 g, dim3 b, size_t smem, cudaStream_t s, const void *kernel, std::function<void()> body, int shared_static,
                     cudaError_t *rc)
{
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (!threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
        *rc = emu_set_error(cudaErrorInvalidConfiguration);
        return;
    }
    size_t limit = dynamic_shared_limit(kernel);
    if (smem > limit) {
        fprintf(stderr,
                "cudaemu: launch wants %zu bytes of dynamic shared memory, %zu allowed "
                "(cudaFuncSetAttribute)\n",
                smem, limit);
        *rc = emu_set_error(cudaErrorInvalidValue);
        return;
    }
    emu_count(EMU_launch);
    if (emu_stream_device(s) >= 0 && emu_stream_device(s) != current_device) {
        fprintf(stderr, "cudaemu: device %d is current, the launch is into a stream of device %d\n", current_device, emu_stream_device(s));
        *rc = emu_set_error(cudaErrorInvalidResourceHandle);
        return;
    }
    if (emu_loses_device()) { /* accepted, as the others: what became of it comes up later */
        *rc = cudaSuccess;
        return;
    }
    *rc = emu_submit(s, [=] {
        cudaError_t e = emu_run_grid(g, b, smem, kernel, body, shared_static);
        if (e != cudaSuccess) emu_set_sticky(e);
    });
}
