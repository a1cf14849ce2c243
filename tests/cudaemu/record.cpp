/* record.cpp - the thread sanitizer's entry points, which record instead of looking for races (record.h).
 *
 * Lanes are fibers that run one after another, so that nothing tells which accesses a warp would make at once. They are matched by
 * instruction (the return address) and by how often the lane has been there. Not seen: what the compiler keeps in registers, as it would be
 * on a GPU, and the lanes' own stacks, which would be registers or local memory there. */
#include "record.h"
#include "emu.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

extern "C" {
extern __thread uint3 threadIdx, blockIdx, blockDim;
}

enum { WARP = 32, SECTOR = 32, BANKS = 32, WORD = 4, MAX_THREADS = 1024 };
static const size_t STACK = 128 << 10;

struct Instruction {
    const void *kernel;
    uintptr_t at; /* where the call returns to */
    bool write, shared;
    bool operator<(const Instruction &o) const
    {
        return std::tie(kernel, at, write, shared) < std::tie(o.kernel, o.at, o.write, o.shared);
    }
};
struct Totals {
    unsigned long accesses = 0, bytes = 0, sectors = 0, ideal = 0, phases = 0;
    unsigned worst = 0;
};
struct Access { /* of a warp, as far as its lanes have come */
    unsigned mask = 0, size = 0;
    uintptr_t at[WARP];
};

static bool recording, busy; /* busy: what is touched now is ours */
static std::map<Instruction, Totals> *totals;
static std::vector<record_row> *rows;

/* ------------------------------------------------------------------ one access of a warp */

/* Counts different multiples of `unit` that the ranges touch. */
static unsigned long count_units(const Access &a, uintptr_t unit)
{
    std::vector<uintptr_t> seen;
    for (int l = 0; l < WARP; l++)
        if (a.mask >> l & 1)
            for (uintptr_t u = a.at[l] / unit; u <= (a.at[l] + a.size - 1) / unit; u++) seen.push_back(u);
    std::sort(seen.begin(), seen.end());
    return (unsigned long)(std::unique(seen.begin(), seen.end()) - seen.begin());
}

/* How many different words of one bank the lanes [first, end) want, at most. */
static unsigned conflict(const Access &a, int first, int end)
{
    std::vector<uintptr_t> words;
    unsigned in_bank[BANKS] = {0}, most = 0;
    for (int l = first; l < end; l++)
        if (a.mask >> l & 1)
            for (uintptr_t w = a.at[l] / WORD; w <= (a.at[l] + a.size - 1) / WORD; w++) words.push_back(w);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (uintptr_t w : words) most = std::max(most, ++in_bank[w % BANKS]);
    return most;
}

static void add(Totals *t, const Access &a, bool shared)
{
    t->accesses++;
    unsigned long bytes = count_units(a, 1);
    t->bytes += bytes;
    if (!shared) {
        t->sectors += count_units(a, SECTOR);
        t->ideal += (bytes + SECTOR - 1) / SECTOR;
        return;
    }
    int lanes = a.size <= WORD ? WARP : a.size <= 2 * WORD ? WARP / 2 : WARP / 4; /* of a phase */
    for (int first = 0; first < WARP; first += lanes) {
        unsigned ways = conflict(a, first, first + lanes);
        if (!ways) continue;
        t->worst = std::max(t->worst, ways);
        t->phases += ways;
        t->ideal++;
    }
}

/* ------------------------------------------------------------------ the block that runs */

static struct Block {
    EmuBlock id{};
    std::map<Instruction, std::vector<std::vector<Access>>> accesses; /* by warp, by how often */
    std::map<Instruction, std::vector<unsigned>> times;               /* by thread */
} * block;

static void finish_block()
{
    for (auto &i : block->accesses)
        for (auto &warp : i.second)
            for (auto &a : warp) add(&(*totals)[i.first], a, i.first.shared);
    block->accesses.clear();
    block->times.clear();
}

static void note(uintptr_t address, unsigned size, bool write, uintptr_t from)
{
    EmuBlock now;
    size_t allocated, offset;
    int device;
    if (!recording || busy || !emu_block(&now)) return;
    if (address - (uintptr_t)__builtin_frame_address(0) + STACK < 2 * STACK) return;
    busy = true;
    bool shared = emu_is_shared((const void *)address);
    if (shared || (emu_allocation_of((const void *)address, &allocated, &offset, &device) && device >= 0)) {
        if (now.launch != block->id.launch || now.number != block->id.number) {
            finish_block();
            block->id = now;
        }
        unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        Instruction i{now.kernel, from, write, shared};
        auto &times = block->times[i];
        auto &warps = block->accesses[i];
        times.resize(MAX_THREADS), warps.resize(MAX_THREADS / WARP);
        auto &warp = warps[thread / WARP];
        unsigned k = times[thread]++;
        if (warp.size() <= k) warp.resize(k + 1);
        warp[k].mask |= 1u << thread % WARP;
        warp[k].size = size;
        warp[k].at[thread % WARP] = address;
    }
    busy = false;
}

/* ------------------------------------------------------------------ what the compiler calls */

#define FROM (uintptr_t) __builtin_return_address(0)
extern "C" {
#define PLAIN(bytes) \
    void __tsan_read##bytes(void *p) \
    { \
        note((uintptr_t)p, bytes, false, FROM); \
    } \
    void __tsan_write##bytes(void *p) \
    { \
        note((uintptr_t)p, bytes, true, FROM); \
    } \
    void __tsan_unaligned_read##bytes(void *p) \
    { \
        note((uintptr_t)p, bytes, false, FROM); \
    } \
    void __tsan_unaligned_write##bytes(void *p) \
    { \
        note((uintptr_t)p, bytes, true, FROM); \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
/* An aggregate: as the accesses of 16 bytes at most that a device makes of it. */
static void range(uintptr_t p, unsigned long n, bool write, uintptr_t from)
{
    for (unsigned step; n; p += step, n -= step) {
        step = n >= 16 && p % 16 == 0 ? 16 : n >= 8 && p % 8 == 0 ? 8 : n >= 4 && p % 4 == 0 ? 4 : n >= 2 && p % 2 == 0 ? 2 : 1;
        note(p, step, write, from);
    }
}
void __tsan_read_range(void *p, unsigned long n)
{
    range((uintptr_t)p, n, false, FROM);
}
void __tsan_write_range(void *p, unsigned long n)
{
    range((uintptr_t)p, n, true, FROM);
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_init(void)
{
}
void __tsan_vptr_read(void **)
{
}
void __tsan_vptr_update(void **, void *)
{
}
#define ATOMIC(bits, T) \
    T __tsan_atomic##bits##_load(const volatile T *p, int) \
    { \
        note((uintptr_t)p, sizeof(T), false, FROM); \
        return __atomic_load_n(p, __ATOMIC_RELAXED); \
    } \
    static bool cas##bits(volatile T *p, T *old, T to, uintptr_t from) \
    { \
        note((uintptr_t)p, sizeof(T), true, from); \
        return __atomic_compare_exchange_n(p, old, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    } \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *old, T to, int, int) \
    { \
        return cas##bits(p, old, to, FROM); \
    } \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *old, T to, int, int) \
    { \
        return cas##bits(p, old, to, FROM); \
    } \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *p, T old, T to, int, int) \
    { \
        cas##bits(p, &old, to, FROM); \
        return old; \
    }
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
}

/* ------------------------------------------------------------------ names */

struct Place {
    std::string function, file;
    int line = 0;
};

/* addr2line knows the lines, and the names of static functions, which dladdr does not. */
static std::map<uintptr_t, Place> look_up(const std::vector<uintptr_t> &addresses)
{
    std::map<uintptr_t, Place> out;
    std::map<std::string, std::vector<std::pair<uintptr_t, uintptr_t>>> by_module; /* address, offset */
    for (uintptr_t a : addresses) {
        Dl_info info;
        if (dladdr((void *)a, &info)) by_module[info.dli_fname].emplace_back(a, a - (uintptr_t)info.dli_fbase);
    }
    for (auto &m : by_module)
        for (size_t begin = 0; begin < m.second.size(); begin += 256) {
            size_t end = std::min(m.second.size(), begin + 256);
            std::string words = "addr2line -f -C -e '" + m.first + "'";
            char hex[32], function[4096], where[4096];
            for (size_t i = begin; i < end; i++) {
                snprintf(hex, sizeof hex, " 0x%lx", (unsigned long)m.second[i].second);
                words += hex;
            }
            FILE *f = popen(words.c_str(), "r");
            for (size_t i = begin; f && i < end && fgets(function, sizeof function, f) && fgets(where, sizeof where, f); i++) {
                Place &p = out[m.second[i].first];
                p.function = std::string(function, strcspn(function, "\n"));
                char *colon = strrchr(where, ':'), *slash = strrchr(where, '/');
                if (!colon) continue;
                p.line = atoi(colon + 1);
                p.file = std::string(slash ? slash + 1 : where, colon);
            }
            if (f) pclose(f);
        }
    return out;
}

/* "add<float>(float const*, ...)": without what it is called with. */
static std::string short_name(const std::string &whole)
{
    std::string function = whole.compare(0, 5, "void ") ? whole : whole.substr(5); /* templates are written with their result */
    int depth = 0;
    for (size_t i = 0; i < function.size(); i++) {
        if (function[i] == '<') depth++;
        if (function[i] == '>') depth--;
        if (function[i] == '(' && !depth && i) return function.substr(0, i);
    }
    return function;
}

/* ------------------------------------------------------------------ API */

extern "C" void record_start(void)
{
    if (!totals) totals = new std::map<Instruction, Totals>(), rows = new std::vector<record_row>(), block = new Block();
    totals->clear();
    rows->clear();
    recording = true;
}

static void sum_by_line()
{
    std::vector<uintptr_t> addresses;
    std::map<std::tuple<std::string, std::string, int, bool, bool>, Totals> lines;
    for (auto &t : *totals) {
        addresses.push_back(t.first.at - 1); /* the call, not what follows it */
        addresses.push_back((uintptr_t)t.first.kernel);
    }
    auto places = look_up(addresses);
    for (auto &t : *totals) {
        const Place &p = places[t.first.at - 1];
        Totals &sum = lines[{short_name(places[(uintptr_t)t.first.kernel].function), p.file, p.line, t.first.write, t.first.shared}];
        sum.accesses += t.second.accesses, sum.bytes += t.second.bytes, sum.sectors += t.second.sectors;
        sum.ideal += t.second.ideal, sum.phases += t.second.phases, sum.worst = std::max(sum.worst, t.second.worst);
    }
    for (auto &l : lines) {
        record_row r = {};
        const Totals &t = l.second;
        snprintf(r.kernel, sizeof r.kernel, "%s", std::get<0>(l.first).c_str());
        snprintf(r.file, sizeof r.file, "%s", std::get<1>(l.first).c_str());
        r.line = std::get<2>(l.first), r.write = std::get<3>(l.first), r.shared = std::get<4>(l.first);
        r.accesses = t.accesses, r.bytes = t.bytes, r.sectors = t.sectors, r.ideal = t.ideal, r.phases = t.phases, r.worst = t.worst;
        rows->push_back(r);
    }
}

extern "C" void record_stop(void)
{
    recording = false;
    finish_block();
    sum_by_line();
}

extern "C" size_t record_rows(struct record_row *out, size_t room)
{
    for (size_t i = 0; i < rows->size() && i < room; i++) out[i] = (*rows)[i];
    return rows->size();
}

extern "C" void record_print(FILE *to)
{
    fprintf(to, "%-44s %-22s %-13s %9s %10s %9s %9s %6s\n", "kernel", "line", "what", "accesses", "bytes", "sectors", "ideal", "ratio");
    for (auto &r : *rows) {
        char where[96];
        unsigned long did = r.shared ? r.phases : r.sectors;
        snprintf(where, sizeof where, "%s:%d", r.file, r.line);
        fprintf(to, "%-44.44s %-22s %-6s %-6s %9lu %10lu %9lu %9lu %6.2f", r.kernel, where, r.shared ? "shared" : "global",
                r.write ? "store" : "load", r.accesses, r.bytes, did, r.ideal, r.ideal ? (double)did / (double)r.ideal : 1);
        if (r.shared) fprintf(to, "  %u-way", r.worst);
        fputc('\n', to);
    }
}
