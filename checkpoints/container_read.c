/* Checkpoints, reading. The file is read with pread, not mapped: a disk that fails is an error then, not a signal. Each thread that works
 * on a call has two buffers of its own; struct zf_ckpt does not change after it was opened. */
#include "checkpoints/container_file.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#define ADVICE "; use an older checkpoint of the run, or a copy of this one"

static const char *const known_parts[] = {"planes"};

static enum zf_status damaged(const struct zf_ckpt *c, struct zf_err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static enum zf_status damaged(const struct zf_ckpt *c, struct zf_err *e, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return zf_fail(e, ZF_FORMAT, c->path, "%s" ADVICE, text);
}

static enum zf_status read_at(const struct zf_ckpt *c, void *to, size_t bytes, uint64_t from, struct zf_err *e)
{
    char *at = to;
    while (bytes) {
        ssize_t n = pread(c->fd, at, bytes, (off_t)from);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            zf_fail_errno(e, c->path, "cannot read %zu bytes at byte %" PRIu64, bytes, from);
            return zf_unreadable(e);
        }
        if (!n) return damaged(c, e, "it ends at byte %" PRIu64 ", %zu bytes early: somebody cuts it while it is read", from, bytes);
        at += n;
        from += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return ZF_OK;
}

/* What a file that is no checkpoint is instead. */
static const char *guess(const unsigned char *data, size_t size)
{
    static const struct {
        size_t at, length;
        const char *start, *text;
    } known[] = {
#define START(at, s, text) {at, sizeof s - 1, s, text}
        START(8, "{", "; it looks like safetensors, which --model reads"),
        START(0, "PK\3\4", "; it looks like a zip, as torch.save writes it"),
        START(0, "\x1f\x8b", "; it looks like a gzip archive"),
        START(0, "\x28\xb5\x2f\xfd", "; it looks like some other file that zstd compressed"),
        START(0, "GGUF", "; it looks like a GGUF file"),
        START(0, "\0\0\0\0\0\0\0\0", "; it begins with zeros, as a crash of the machine leaves a file" ADVICE),
#undef START
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size >= known[i].at + known[i].length && !memcmp(data + known[i].at, known[i].start, known[i].length)) return known[i].text;
    size_t text = 0;
    while (text < size && ((data[text] >= 32 && data[text] != 127) || (data[text] >= 9 && data[text] <= 13))) text++;
    return size && text == size ? "; it looks like text" : "";
}

/* The header says how long the file is, so that a cut is told apart from damage. */
static enum zf_status check_header(const struct zf_ckpt *c, struct zf_err *e)
{
    unsigned char edge[ZF_ZFC_EDGE] = {0};
    size_t have = c->size < sizeof edge ? (size_t)c->size : sizeof edge, magic = have < ZF_ZFC_VERSION - 8 ? have : ZF_ZFC_VERSION - 8;
    ZF_TRY(read_at(c, edge, have, 0, e));
    uint64_t version = zf_zfc_get(edge + ZF_ZFC_VERSION, 4), size = zf_zfc_get(edge + ZF_ZFC_SIZE, 8);
    if (!have) return damaged(c, e, "it is empty; a checkpoint is expected");
    if (have < sizeof edge && have > 8 && !memcmp(edge + 8, ZF_ZFC_MAGIC, magic - 8))
        return damaged(c, e, "it is truncated: it has %zu bytes, its header alone takes %d", have, ZF_ZFC_EDGE);
    if (have < sizeof edge || memcmp(edge + 8, ZF_ZFC_MAGIC, ZF_ZFC_VERSION - 8))
        return zf_fail(e, ZF_FORMAT, c->path, "it is no checkpoint (.zfc): it does not begin with \"%s\"%s", ZF_ZFC_MAGIC,
                       guess(edge, have));
    if (zf_zfc_get(edge, 4) != ZF_ZFC_SKIPPABLE || zf_zfc_get(edge + 4, 4) != ZF_ZFC_EDGE - 8 ||
        zf_zfc_get(edge + ZF_ZFC_CHECK, 8) != XXH3_64bits(edge, ZF_ZFC_CHECK))
        return damaged(c, e, "its header is damaged: the checksum is another one");
    if (!version || version > ZF_CKPT_VERSION)
        return zf_fail(e, ZF_FORMAT, c->path,
                       "it has checkpoint format version %" PRIu64 "; this program reads up to %d: use a newer zenflow-console", version,
                       ZF_CKPT_VERSION);
    if (!size) return damaged(c, e, "writing it was interrupted: it was never finished and can be deleted");
    if (size > c->size)
        return damaged(c, e, "it is truncated by %" PRIu64 " bytes: it has %" PRIu64 " of %" PRIu64, size - c->size, c->size, size);
    if (size < c->size) return damaged(c, e, "%" PRIu64 " bytes follow after its end at byte %" PRIu64, c->size - size, size);
    return ZF_OK;
}

struct span {
    uint64_t at, size, check;
};

static enum zf_status check_footer(const struct zf_ckpt *c, struct span *index, struct zf_err *e)
{
    unsigned char edge[ZF_ZFC_EDGE];
    if (c->size < 2 * ZF_ZFC_EDGE) return damaged(c, e, "it has %" PRIu64 " bytes; at least %d are expected", c->size, 2 * ZF_ZFC_EDGE);
    uint64_t end = c->size - ZF_ZFC_EDGE;
    ZF_TRY(read_at(c, edge, sizeof edge, end, e));
    *index = (struct span){zf_zfc_get(edge + ZF_ZFC_INDEX_AT, 8), zf_zfc_get(edge + ZF_ZFC_INDEX_SIZE, 8),
                           zf_zfc_get(edge + ZF_ZFC_INDEX_CHECK, 8)};
    if (zf_zfc_get(edge, 4) != ZF_ZFC_SKIPPABLE || zf_zfc_get(edge + 4, 4) != ZF_ZFC_EDGE - 8 ||
        memcmp(edge + ZF_ZFC_TAIL, ZF_ZFC_END, 8) || zf_zfc_get(edge + ZF_ZFC_FILE_SIZE, 8) != c->size)
        return damaged(c, e, "its last %d bytes are damaged: they are no footer", ZF_ZFC_EDGE);
    if (index->at < ZF_ZFC_EDGE || index->at > end || index->size != end - index->at)
        return damaged(c, e,
                       "its footer is damaged: an index of %" PRIu64 " bytes at byte %" PRIu64 ", where the footer begins at %" PRIu64,
                       index->size, index->at, end);
    return ZF_OK;
}

/* The JSON of the index, to be freed. */
static enum zf_status unpack_index(const struct zf_ckpt *c, const unsigned char *frame, size_t size, char **text, size_t *length,
                                   struct zf_err *e)
{
    unsigned long long n = ZSTD_getFrameContentSize(frame, size);
    if (n == ZSTD_CONTENTSIZE_ERROR || n == ZSTD_CONTENTSIZE_UNKNOWN || n > ZF_ZFC_INDEX_LIMIT)
        return damaged(c, e, "its index is no frame of at most %d bytes", ZF_ZFC_INDEX_LIMIT);
    if (!(*text = malloc((size_t)n + 1))) return zf_fail_memory(e, "a checkpoint's index");
    *length = ZSTD_decompress(*text, (size_t)n, frame, size);
    if (ZSTD_getErrorCode(*length) == ZSTD_error_memory_allocation) return zf_fail_memory(e, "a checkpoint's index");
    if (ZSTD_isError(*length)) return damaged(c, e, "its index cannot be decoded: %s", ZSTD_getErrorName(*length));
    return *length == n ? ZF_OK : damaged(c, e, "its index has %zu bytes; %llu are announced", *length, n);
}

static enum zf_status read_index(struct zf_ckpt *c, const struct span *at, struct zf_err *e)
{
    char *text = NULL;
    size_t length = 0;
    enum zf_status s;
    if (at->size > zf_zfc_room(ZF_ZFC_INDEX_LIMIT)) return damaged(c, e, "its index has %" PRIu64 " bytes, far too many", at->size);
    unsigned char *frame = malloc((size_t)at->size + 1);
    if (!frame) return zf_fail_memory(e, "a checkpoint's index");
    ZF_GOTO(done, s, read_at(c, frame, (size_t)at->size, at->at, e));
    if (XXH3_64bits(frame, (size_t)at->size) != at->check) {
        s = damaged(c, e, "its index (%" PRIu64 " bytes at byte %" PRIu64 ") is damaged: the checksum is another one", at->size, at->at);
        goto done;
    }
    ZF_GOTO(done, s, unpack_index(c, frame, (size_t)at->size, &text, &length, e));
    s = zf_json_parse(&c->index, text, length, c->path, e);
    if (s == ZF_FORMAT) zf_fail(e, s, c->path, "its index is no JSON: %s", e->message);
done:
    free(text);
    free(frame);
    return s;
}

static bool get_number(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool get_sum(const json_t *v, uint64_t *out)
{
    const char *text = json_string_value(v);
    if (!text || json_string_length(v) != 16) return false;
    *out = 0;
    for (; *text; text++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, *text);
        if (!d) return false;
        *out = *out << 4 | (uint64_t)(d - digits);
    }
    return true;
}

/* Length-checked: a NUL inside would make two names look like one. */
static bool printable(const json_t *v, size_t most)
{
    const char *text = json_string_value(v);
    size_t n = text ? json_string_length(v) : 0, i = 0;
    while (i < n && text[i] > 31 && text[i] < 127) i++;
    return n && i == n && n <= most;
}

static enum zf_status check_parts(const struct zf_ckpt *c, struct zf_err *e)
{
    json_t *needs = json_object_get(c->index, "needs"), *part;
    size_t i, k;
    if (!json_is_array(needs)) return damaged(c, e, "its index has no list \"needs\"");
    json_array_foreach(needs, i, part)
    {
        if (!printable(part, ZF_CKPT_NAME)) return damaged(c, e, "entry %zu of \"needs\" in its index is no name", i);
        for (k = 0; k < sizeof known_parts / sizeof *known_parts; k++)
            if (!strcmp(json_string_value(part), known_parts[k])) break;
        if (k == sizeof known_parts / sizeof *known_parts)
            return zf_fail(e, ZF_FORMAT, c->path, "it needs \"%s\", which this program does not know: use a newer zenflow-console",
                           json_string_value(part));
    }
    return ZF_OK;
}

/* Version, needs, chunk, and how many tensors and chunks there will be. */
static enum zf_status check_index(struct zf_ckpt *c, size_t *chunks, struct zf_err *e)
{
    json_t *tensors = json_object_get(c->index, "tensors"), *t;
    uint64_t version, chunk;
    size_t i;
    c->info = json_object_get(c->index, "info");
    if (!get_number(json_object_get(c->index, "version"), &version) || version != ZF_CKPT_VERSION)
        return damaged(c, e, "its index has another \"version\" than its header, %d", ZF_CKPT_VERSION);
    ZF_TRY(check_parts(c, e));
    if (!get_number(json_object_get(c->index, "chunk"), &chunk) || !chunk || chunk % 8 || chunk > ZF_ZFC_CHUNK_LIMIT)
        return damaged(c, e, "\"chunk\" in its index is no multiple of 8 up to %d", ZF_ZFC_CHUNK_LIMIT);
    if (!json_is_array(tensors)) return damaged(c, e, "its index has no list \"tensors\"");
    if (!json_is_object(c->info)) return damaged(c, e, "its index has no object \"info\"");
    c->chunk = (size_t)chunk;
    c->count = json_array_size(tensors);
    json_array_foreach(tensors, i, t) *chunks += json_array_size(json_object_get(t, "stored"));
    return ZF_OK;
}

/* Type, shape, filter and size of one tensor; what does not fit is told with `what`. NULL: all is well. */
static const char *read_entry(struct zf_ckpt_tensor *t, const json_t *entry)
{
    const json_t *name = json_object_get(entry, "name"), *shape = json_object_get(entry, "shape"), *size;
    const char *dtype = json_string_value(json_object_get(entry, "dtype")), *filter = json_string_value(json_object_get(entry, "filter"));
    size_t i;
    bool empty = false;
    if (!printable(name, ZF_CKPT_NAME)) return "a name of printable characters is expected";
    *t = (struct zf_ckpt_tensor){.name = json_string_value(name), .rank = json_array_size(shape), .json = entry};
    while (dtype && t->type < ZF_CKPT_TYPES && strcmp(dtype, zf_zfc_types[t->type].name)) t->type++;
    if (!dtype || t->type == ZF_CKPT_TYPES) return "its dtype is not known";
    if (!json_is_array(shape) || t->rank > ZF_CKPT_DIMENSIONS) return "its shape is no list of at most 8 sizes";
    uint64_t bytes = zf_zfc_types[t->type].bytes;
    json_array_foreach(shape, i, size)
    {
        if (!get_number(size, &t->shape[i])) return "its shape has something else than sizes";
        empty |= !t->shape[i];
        if (__builtin_mul_overflow(bytes, t->shape[i] ? t->shape[i] : 1, &bytes) || bytes > INT64_MAX)
            return "its shape is absurd: its bytes do not fit into 63 bits";
    }
    t->bytes = empty ? 0 : bytes;
    t->planes = filter && !strcmp(filter, "planes");
    if (!filter || (!t->planes && strcmp(filter, "none"))) return "its filter is not known";
    if (t->planes && zf_zfc_types[t->type].bytes != 2 && zf_zfc_types[t->type].bytes != 4) return "its elements cannot have planes";
    return NULL;
}

static size_t chunk_bytes(const struct zf_ckpt *c, const struct zf_ckpt_tensor *t, size_t k)
{
    uint64_t left = t->bytes - (uint64_t)k * c->chunk;
    return left < c->chunk ? (size_t)left : c->chunk;
}

/* Its chunks into `to`. `free_from`, `end`: where the tensor before ends, and where the index begins. */
static const char *read_chunks(struct zf_ckpt *c, struct zf_ckpt_tensor *t, struct zf_ckpt_chunk *to, uint64_t free_from, uint64_t end)
{
    const json_t *stored = json_object_get(t->json, "stored"), *sums = json_object_get(t->json, "xxh3");
    uint64_t n;
    t->chunk_count = json_array_size(stored);
    t->chunks = to;
    if (t->chunk_count != t->bytes / c->chunk + (t->bytes % c->chunk != 0)) return "\"stored\" has another number of chunks than its shape";
    if (!json_is_array(stored) || !json_is_array(sums) || json_array_size(sums) != t->chunk_count)
        return "\"xxh3\" has not as many entries as \"stored\"";
    if (!get_number(json_object_get(t->json, "offset"), &t->offset) || t->offset > end) return "its offset is no place in the file";
    if (t->offset < free_from) return "it overlaps with what stands before it in the file";
    for (size_t k = 0; k < t->chunk_count; k++) {
        if (!get_number(json_array_get(stored, k), &n) || !n || n > zf_zfc_room(chunk_bytes(c, t, k)))
            return "a chunk has a number of bytes that it cannot have";
        if (n > end - t->offset - t->stored) return "its chunks do not fit into the file";
        if (!get_sum(json_array_get(sums, k), &to[k].xxh3)) return "a checksum is no 16 hexadecimal digits";
        to[k].offset = t->offset + t->stored;
        to[k].stored = (uint32_t)n;
        to[k].tensor = (uint32_t)(t - c->list);
        t->stored += n;
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct zf_ckpt_tensor *const *)a)->name, (*(struct zf_ckpt_tensor *const *)b)->name);
}

static enum zf_status read_tensors(struct zf_ckpt *c, uint64_t end, struct zf_err *e)
{
    size_t chunks = 0, i;
    uint64_t at = ZF_ZFC_EDGE;
    json_t *entry;
    ZF_TRY(check_index(c, &chunks, e));
    c->list = calloc(c->count + 1, sizeof *c->list);
    c->sorted = calloc(c->count + 1, sizeof *c->sorted);
    struct zf_ckpt_chunk *to = c->chunks = calloc(chunks + 1, sizeof *c->chunks);
    if (!c->list || !c->sorted || !c->chunks) return zf_fail_memory(e, "a checkpoint's index");
    json_array_foreach(json_object_get(c->index, "tensors"), i, entry)
    {
        struct zf_ckpt_tensor *t = c->sorted[i] = &c->list[i];
        const char *what = read_entry(t, entry);
        if (!what) what = read_chunks(c, t, to, at, end);
        if (what) return damaged(c, e, "its index is damaged: tensor %zu (\"%s\"): %s", i, t->name ? t->name : "", what);
        to += t->chunk_count;
        at = t->offset + t->stored;
    }
    qsort(c->sorted, c->count, sizeof *c->sorted, by_name);
    for (i = 1; i < c->count; i++)
        if (!strcmp(c->sorted[i - 1]->name, c->sorted[i]->name))
            return damaged(c, e, "its index is damaged: two tensors have the name \"%s\"", c->sorted[i]->name);
    return ZF_OK;
}

static enum zf_status open_file(struct zf_ckpt *c, const char *path, struct zf_err *e)
{
    struct stat st;
    struct span index = {0};
    if (!(c->path = strdup(path))) return zf_fail_memory(e, path);
    if (zf_file_open(&c->fd, &st, path, e)) {
        c->fd = -1;
        return zf_unreadable(e);
    }
    c->size = (uint64_t)st.st_size;
    ZF_TRY(check_header(c, e));
    ZF_TRY(check_footer(c, &index, e));
    ZF_TRY(read_index(c, &index, e));
    return read_tensors(c, index.at, e);
}

enum zf_status zf_ckpt_open(struct zf_ckpt *out, const char *path, struct zf_err *e)
{
    *out = (struct zf_ckpt){.fd = -1};
    enum zf_status s = open_file(out, path, e);
    if (s) zf_ckpt_close(out);
    return s;
}

void zf_ckpt_close(struct zf_ckpt *c)
{
    if (c->path && c->fd >= 0) close(c->fd);
    free(c->path);
    free(c->list);
    free(c->sorted);
    free(c->chunks);
    json_decref(c->index);
    *c = (struct zf_ckpt){.fd = -1};
}

const struct zf_ckpt_tensor *zf_ckpt_find(const struct zf_ckpt *c, const char *name)
{
    const struct zf_ckpt_tensor key = {.name = name}, *const at = &key;
    const struct zf_ckpt_tensor *const *found = c->count ? bsearch(&at, c->sorted, c->count, sizeof *c->sorted, by_name) : NULL;
    return found ? *found : NULL;
}

struct worker {
    struct zf_zfc_coder coder;
    size_t bad; /* the first chunk that is, if err.code */
    struct zf_err err;
};

/* Chunks [count] from `first` on, taken in their order: whoever is free takes the next. */
struct job {
    const struct zf_ckpt *c;
    const struct zf_ckpt_chunk *first;
    size_t count;
    unsigned char *to; /* reading: bytes [from, from + bytes) of the tensor */
    uint64_t from, bytes;
    bool *bad; /* [count], verifying: all are looked at, whatever is found */
    atomic_size_t next;
    atomic_bool stop;
    struct worker *workers;
};

static enum zf_status do_chunk(const struct job *j, struct zf_zfc_coder *coder, const struct zf_ckpt_chunk *chunk, struct zf_err *e)
{
    const struct zf_ckpt_tensor *t = &j->c->list[chunk->tensor];
    size_t k = (size_t)(chunk - t->chunks), bytes = chunk_bytes(j->c, t, k);
    uint64_t begin = (uint64_t)k * j->c->chunk, from = j->from > begin ? j->from : begin, to = begin + bytes;
    size_t planes = t->planes ? zf_zfc_types[t->type].bytes : 1;
    const char *what = NULL;
    if (read_at(j->c, coder->data, chunk->stored, chunk->offset, e))
        what = e->message;
    else if (XXH3_64bits(coder->data, chunk->stored) != chunk->xxh3)
        what = "the checksum is another one";
    else
        what = zf_zfc_decode(coder, chunk->stored, bytes, planes);
    if (what)
        return damaged(j->c, e, "tensor \"%s\", chunk %zu of %zu (%u bytes at byte %" PRIu64 ") is damaged: %s", t->name, k + 1,
                       t->chunk_count, chunk->stored, chunk->offset, what);
    if (to > j->from + j->bytes) to = j->from + j->bytes;
    if (j->to) zf_zfc_take(coder, bytes, planes, j->to + (from - j->from), (size_t)(from - begin), (size_t)(to - from));
    return ZF_OK;
}

static void work(void *ctx, size_t index)
{
    struct job *j = ctx;
    struct worker *w = &j->workers[index];
    struct zf_err e;
    size_t i;
    while (!atomic_load(&j->stop) && (i = atomic_fetch_add(&j->next, 1)) < j->count) {
        if (!do_chunk(j, &w->coder, &j->first[i], &e)) continue;
        if (!w->err.code) {
            w->err = e;
            w->bad = i;
        }
        if (j->bad)
            j->bad[i] = true;
        else
            atomic_store(&j->stop, true);
    }
}

/* Every chunk before a bad one was taken before it: the first one that is found bad is the same for any number of threads. */
static enum zf_status run(struct job *j, struct zf_pool *pool, struct zf_err *e)
{
    size_t threads = pool ? (size_t)zf_pool_used(pool) : 1, largest = 0, opened = 0;
    const struct worker *first = NULL;
    enum zf_status s = ZF_OK;
    if (!j->count) return ZF_OK;
    for (size_t i = 0; i < j->count; i++) {
        const struct zf_ckpt_tensor *t = &j->c->list[j->first[i].tensor];
        size_t bytes = chunk_bytes(j->c, t, (size_t)(&j->first[i] - t->chunks));
        if (bytes > largest) largest = bytes;
    }
    if (threads > j->count) threads = j->count;
    j->workers = calloc(threads, sizeof *j->workers);
    if (!j->workers) return zf_fail_memory(e, "reading a checkpoint");
    while (!s && opened < threads) s = zf_zfc_coder_open(&j->workers[opened++].coder, largest, false, 0, e);
    if (!s && pool)
        zf_pool_run(pool, threads, work, j);
    else if (!s)
        work(j, 0);
    for (size_t i = 0; i < opened; i++) {
        const struct worker *w = &j->workers[i];
        if (w->err.code && (!first || w->bad < first->bad)) first = w;
        zf_zfc_coder_close(&j->workers[i].coder);
    }
    if (first) {
        *e = first->err;
        s = e->code;
    }
    free(j->workers);
    return s;
}

enum zf_status zf_ckpt_read(const struct zf_ckpt *c, const struct zf_ckpt_tensor *t, void *to, uint64_t from, uint64_t bytes,
                            struct zf_pool *pool, struct zf_err *e)
{
    if (from > t->bytes || bytes > t->bytes - from)
        return zf_fail(e, ZF_FORMAT, c->path, "tensor \"%s\" has %" PRIu64 " bytes; %" PRIu64 " from byte %" PRIu64 " on are wanted",
                       t->name, t->bytes, bytes, from);
    if (!bytes) return ZF_OK;
    size_t first = (size_t)(from / c->chunk), last = (size_t)((from + bytes - 1) / c->chunk);
    struct job j = {.c = c, .first = t->chunks + first, .count = last - first + 1, .to = to, .from = from, .bytes = bytes};
    return run(&j, pool, e);
}

/* The names into the message, the first finding behind them. */
static enum zf_status tell_damage(const struct zf_ckpt *c, const struct zf_ckpt_damage *d, struct zf_err *e)
{
    char names[768] = "";
    for (size_t i = 0, n = 0; i < d->count && i < ZF_CKPT_DAMAGES && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s\"%.64s\"", i ? ", " : "", d->list[i].tensor->name);
    return zf_fail(e, ZF_FORMAT, c->path, "%zu of %zu tensors are damaged: %s%s; the first: %s", d->count, c->count, names,
                   d->count > ZF_CKPT_DAMAGES ? ", ..." : "", e->message);
}

enum zf_status zf_ckpt_verify(const struct zf_ckpt *c, struct zf_pool *pool, struct zf_ckpt_damage *damage, struct zf_err *e)
{
    struct zf_ckpt_damage found = {0};
    struct job j = {.c = c, .first = c->chunks};
    for (size_t i = 0; i < c->count; i++) j.count += c->list[i].chunk_count;
    if (!(j.bad = calloc(j.count + 1, sizeof *j.bad))) return zf_fail_memory(e, "verifying a checkpoint");
    enum zf_status s = run(&j, pool, e);
    for (size_t i = 0, last = c->count; s == ZF_FORMAT && i < j.count; i++) {
        size_t t = c->chunks[i].tensor;
        if (!j.bad[i] || t == last) continue;
        if (found.count < ZF_CKPT_DAMAGES) {
            found.list[found.count].tensor = &c->list[t];
            found.list[found.count].chunk = i - (size_t)(c->list[t].chunks - c->chunks);
        }
        found.count++;
        last = t;
    }
    free(j.bad);
    if (found.count) s = tell_damage(c, &found, e);
    if (damage) *damage = found;
    return s;
}
