/* Checkpoints, writing. The caller's thread fills the slots, one chunk each; when all are full the pool codes them, and the caller's thread
 * writes them in their order. So the file is the same for every number of threads, and memory is two chunks for each. */
#include "checkpoints/container_file.h"

#include "core/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

enum { WINDOW = 32 << 20 }; /* bytes on their way to the disk: this many, and as many behind them, are in the page cache */

struct slot {
    struct zf_zfc_coder coder;
    size_t raw, stored;
    uint64_t from, xxh3;            /* first byte in the tensor; of what is stored */
    const struct zf_zfc_type *type; /* of its tensor, as the next two */
    json_t *entry;
    char name[ZF_CKPT_NAME + 1];
    enum zf_status status;
    struct zf_err err;
};

struct zf_ckpt_writer {
    struct zf_ckpt_options o;
    struct zf_ckpt_counts counts;
    char *path;
    struct zf_replacement file;
    bool begun; /* there is a file to end */
    struct slot *slots;
    size_t slot_count, used; /* slots[used] is being filled */
    json_t *tensors, *names; /* entries of the index; names that are taken */
    bool planes;
    const struct zf_zfc_type *type; /* the tensor that is being written: its type, entry, name, bytes, and how many of them came */
    json_t *entry;
    char name[ZF_CKPT_NAME + 1];
    uint64_t bytes, done;
    uint64_t sent, dropped; /* of the file: on its way to the disk; out of the page cache */
    enum zf_status failed;
    struct zf_err err;
};

/* The first failure stays: what comes after it would only hide it. */
static enum zf_status stick(struct zf_ckpt_writer *w, enum zf_status s, struct zf_err *e)
{
    if (s && !w->failed) {
        w->failed = s;
        w->err = *e;
    }
    if (w->failed) *e = w->err;
    return w->failed;
}

static void writer_free(struct zf_ckpt_writer *w)
{
    for (size_t i = 0; i < w->slot_count; i++) zf_zfc_coder_close(&w->slots[i].coder);
    free(w->slots);
    free(w->path);
    json_decref(w->tensors);
    json_decref(w->names);
    free(w);
}

/* Advice, but what went wrong on the disk is told once only: who hears it here must say so, fsync will not. */
static enum zf_status drop_pages(struct zf_ckpt_writer *w, struct zf_err *e)
{
    uint64_t at = w->counts.stored;
    if (!w->o.drop_pages || at - w->sent < WINDOW) return ZF_OK;
    off_t before = (off_t)(w->sent - w->dropped);
    int failed = sync_file_range(w->file.fd, (off_t)w->sent, (off_t)(at - w->sent), SYNC_FILE_RANGE_WRITE);
    if (!failed && before)
        failed = sync_file_range(w->file.fd, (off_t)w->dropped, before,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    if (failed && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) return zf_fail_errno(e, w->file.beside, "cannot write it out");
    if (before) posix_fadvise(w->file.fd, (off_t)w->dropped, before, POSIX_FADV_DONTNEED);
    w->dropped = w->sent;
    w->sent = at;
    return ZF_OK;
}

static enum zf_status append(struct zf_ckpt_writer *w, const void *data, size_t bytes, struct zf_err *e)
{
    ZF_TRY(zf_write_all(w->file.fd, data, bytes, w->file.beside, e));
    w->counts.stored += bytes;
    if (w->o.counts) *w->o.counts = w->counts;
    return drop_pages(w, e);
}

/* File size 0: it is being written. */
static enum zf_status write_header(struct zf_ckpt_writer *w, uint64_t size, struct zf_err *e)
{
    unsigned char edge[ZF_ZFC_EDGE];
    zf_zfc_put(edge, ZF_ZFC_SKIPPABLE, 4);
    zf_zfc_put(edge + 4, ZF_ZFC_EDGE - 8, 4);
    memcpy(edge + 8, ZF_ZFC_MAGIC, ZF_ZFC_VERSION - 8);
    zf_zfc_put(edge + ZF_ZFC_VERSION, ZF_CKPT_VERSION, 4);
    zf_zfc_put(edge + ZF_ZFC_SIZE, size, 8);
    zf_zfc_put(edge + ZF_ZFC_CHECK, XXH3_64bits(edge, ZF_ZFC_CHECK), 8);
    if (!size) return append(w, edge, sizeof edge, e);
    if (lseek(w->file.fd, 0, SEEK_SET)) return zf_fail_errno(e, w->file.beside, "cannot go back to its beginning");
    return zf_write_all(w->file.fd, edge, sizeof edge, w->file.beside, e);
}

static enum zf_status writer_open(struct zf_ckpt_writer *w, const char *path, struct zf_err *e)
{
    size_t threads = w->o.pool ? (size_t)zf_pool_threads(w->o.pool) : 1;
    if (w->o.chunk % 8 || w->o.chunk > ZF_ZFC_CHUNK_LIMIT)
        return zf_fail(e, ZF_USAGE, path, "chunks of %zu bytes; a multiple of 8 up to %d is expected", w->o.chunk, ZF_ZFC_CHUNK_LIMIT);
    w->path = strdup(path);
    w->slots = calloc(threads, sizeof *w->slots);
    w->tensors = json_array();
    w->names = json_object();
    if (!w->path || !w->slots || !w->tensors || !w->names) return zf_fail_memory(e, "a checkpoint's index");
    while (w->slot_count < threads) ZF_TRY(zf_zfc_coder_open(&w->slots[w->slot_count++].coder, w->o.chunk, true, w->o.level, e));
    ZF_TRY(zf_file_begin(&w->file, w->path, e));
    w->begun = true;
    return write_header(w, 0, e);
}

enum zf_status zf_ckpt_create(struct zf_ckpt_writer **out, const char *path, const struct zf_ckpt_options *o, struct zf_err *e)
{
    struct zf_ckpt_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return zf_fail_memory(e, path);
    w->o = *o;
    if (!w->o.chunk) w->o.chunk = ZF_ZFC_CHUNK;
    enum zf_status s = stick(w, writer_open(w, path, e), e);
    if (s)
        zf_ckpt_abandon(w);
    else
        *out = w;
    return s;
}

/* Names are shown in messages and typed at prompts. */
static enum zf_status check_name(struct zf_ckpt_writer *w, const char *name, struct zf_err *e)
{
    size_t n = strlen(name);
    bool good = n && n <= ZF_CKPT_NAME;
    for (const char *c = name; good && *c; c++) good = *c > 31 && *c < 127;
    if (!good)
        return zf_fail(e, ZF_FORMAT, w->path, "a tensor of %zu bytes of name; 1 to %d printable ASCII characters are expected", n,
                       ZF_CKPT_NAME);
    if (json_object_get(w->names, name)) return zf_fail(e, ZF_FORMAT, w->path, "two tensors have the name \"%s\"", name);
    return ZF_OK;
}

/* An entry of the index; "offset" comes at the end. NULL: no memory. */
static json_t *new_entry(const char *name, const struct zf_zfc_type *type, size_t rank, const uint64_t *shape)
{
    json_t *entry = json_object(), *sizes = json_array();
    int bad = !sizes;
    for (size_t i = 0; i < rank && !bad; i++) bad = json_array_append_new(sizes, json_integer((json_int_t)shape[i]));
    bad |= json_object_set_new(entry, "name", json_string(name));
    bad |= json_object_set_new(entry, "dtype", json_string(type->name));
    bad |= json_object_set_new(entry, "shape", sizes);
    bad |= json_object_set_new(entry, "filter", json_string(type->planes ? "planes" : "none"));
    bad |= json_object_set_new(entry, "stored", json_array());
    bad |= json_object_set_new(entry, "xxh3", json_array());
    if (!bad) return entry;
    json_decref(entry);
    return NULL;
}

static enum zf_status check_whole(const struct zf_ckpt_writer *w, struct zf_err *e)
{
    if (w->done == w->bytes) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, w->path, "tensor \"%s\": its data ended %" PRIu64 " bytes short of the declared %" PRIu64, w->name,
                   w->bytes - w->done, w->bytes);
}

static enum zf_status begin(struct zf_ckpt_writer *w, const char *name, enum zf_ckpt_type type, size_t rank, const uint64_t *shape,
                            struct zf_err *e)
{
    uint64_t bytes = zf_ckpt_type_bytes(type);
    bool over = false, empty = false;
    ZF_TRY(check_whole(w, e));
    ZF_TRY(check_name(w, name, e));
    for (size_t i = 0; i < rank && i < ZF_CKPT_DIMENSIONS; i++) {
        over |= shape[i] > INT64_MAX || __builtin_mul_overflow(bytes, shape[i] ? shape[i] : 1, &bytes) || bytes > INT64_MAX;
        empty |= !shape[i];
    }
    if (!bytes || over || rank > ZF_CKPT_DIMENSIONS)
        return zf_fail(e, ZF_FORMAT, w->path, "tensor \"%s\" cannot be written: type %s, %zu dimensions (at most %d), its size %s 63 bits",
                       name, zf_ckpt_type_name(type), rank, ZF_CKPT_DIMENSIONS, over ? "does not fit into" : "fits into");
    w->type = &zf_zfc_types[type];
    w->entry = new_entry(name, w->type, rank, shape);
    w->bytes = empty ? 0 : bytes;
    w->done = 0;
    strcpy(w->name, name);
    int bad = json_array_append_new(w->tensors, w->entry) || json_object_set_new(w->names, name, json_true());
    return bad ? zf_fail_memory(e, "a checkpoint's index") : ZF_OK;
}

enum zf_status zf_ckpt_begin(struct zf_ckpt_writer *w, const char *name, enum zf_ckpt_type type, size_t rank, const uint64_t *shape,
                             struct zf_err *e)
{
    return w->failed ? stick(w, w->failed, e) : stick(w, begin(w, name, type, rank, shape, e), e);
}

static uint64_t element(const unsigned char *data, size_t i, size_t bytes)
{
    uint64_t x = 0;
    memcpy(&x, data + i * bytes, bytes);
    return x;
}

#define ANY_INFINITE(word, data, n, mask) \
    do { \
        word any_ = 0; \
        for (size_t i_ = 0; i_ < (n); i_++) { \
            word x_; \
            memcpy(&x_, (data) + i_ * sizeof x_, sizeof x_); \
            any_ |= (word)((x_ & (word)(mask)) == (word)(mask)); \
        } \
        return any_; \
    } while (0)

static bool any_infinite(const unsigned char *data, size_t bytes, const struct zf_zfc_type *t)
{
    if (t->bytes == 2) ANY_INFINITE(uint16_t, data, bytes / 2, t->exponent);
    if (t->bytes == 4) ANY_INFINITE(uint32_t, data, bytes / 4, t->exponent);
    ANY_INFINITE(uint64_t, data, bytes / 8, t->exponent);
}

static enum zf_status check_finite(struct slot *s)
{
    const struct zf_zfc_type *t = s->type;
    size_t i = 0;
    if (!t->exponent || !any_infinite(s->coder.data, s->raw, t)) return ZF_OK;
    while ((element(s->coder.data, i, t->bytes) & t->exponent) != t->exponent) i++;
    return zf_fail(&s->err, ZF_NUMERIC, NULL,
                   "tensor \"%s\", element %" PRIu64 " is no finite number (bits 0x%" PRIx64 "): it is not saved", s->name,
                   s->from / t->bytes + i, element(s->coder.data, i, t->bytes));
}

static void encode(void *ctx, size_t index)
{
    struct zf_ckpt_writer *w = ctx;
    struct slot *s = &w->slots[index];
    s->status = w->o.finite ? check_finite(s) : ZF_OK;
    if (!s->status) s->status = zf_zfc_encode(&s->coder, s->raw, s->type, &s->stored, &s->err);
    if (!s->status) s->xxh3 = XXH3_64bits(s->coder.data, s->stored);
}

static enum zf_status flush(struct zf_ckpt_writer *w, struct zf_err *e)
{
    size_t n = w->used;
    w->used = 0;
    if (w->o.pool)
        zf_pool_run(w->o.pool, n, encode, w);
    else if (n)
        encode(w, 0);
    for (size_t i = 0; i < n; i++) {
        struct slot *s = &w->slots[i];
        char sum[17];
        if (s->status) {
            *e = s->err;
            return s->status;
        }
        ZF_TRY(append(w, s->coder.data, s->stored, e));
        snprintf(sum, sizeof sum, "%016" PRIx64, s->xxh3);
        if (json_array_append_new(json_object_get(s->entry, "stored"), json_integer((json_int_t)s->stored)) ||
            json_array_append_new(json_object_get(s->entry, "xxh3"), json_string(sum)))
            return zf_fail_memory(e, "a checkpoint's index");
        s->raw = 0;
    }
    return ZF_OK;
}

static enum zf_status put(struct zf_ckpt_writer *w, const unsigned char *data, size_t bytes, struct zf_err *e)
{
    if (bytes > w->bytes - w->done)
        return zf_fail(e, ZF_FORMAT, w->path, "tensor \"%s\": %zu bytes were supplied where %" PRIu64 " are left", w->name, bytes,
                       w->bytes - w->done);
    while (bytes) {
        struct slot *s = &w->slots[w->used];
        if (!s->raw) {
            s->from = w->done;
            s->type = w->type;
            s->entry = w->entry;
            strcpy(s->name, w->name);
        }
        size_t n = w->o.chunk - s->raw < bytes ? w->o.chunk - s->raw : bytes;
        memcpy(s->coder.data + s->raw, data, n);
        s->raw += n;
        data += n;
        bytes -= n;
        w->done += n;
        w->counts.raw += n;
        if (s->raw < w->o.chunk && w->done < w->bytes) continue;
        w->planes |= w->type->planes;
        if (++w->used == w->slot_count) ZF_TRY(flush(w, e));
    }
    return ZF_OK;
}

enum zf_status zf_ckpt_put(struct zf_ckpt_writer *w, const void *data, size_t bytes, struct zf_err *e)
{
    return w->failed ? stick(w, w->failed, e) : stick(w, put(w, data, bytes, e), e);
}

static int set_offsets(json_t *tensors)
{
    size_t i, k;
    json_t *entry, *stored;
    json_int_t at = ZF_ZFC_EDGE;
    json_array_foreach(tensors, i, entry)
    {
        if (json_object_set_new(entry, "offset", json_integer(at))) return -1;
        json_array_foreach(json_object_get(entry, "stored"), k, stored) at += json_integer_value(stored);
    }
    return 0;
}

/* To be freed; NULL: no memory. Not json_dumps: where the system refuses it memory it may drop bytes and say nothing. */
static char *print_json(const json_t *root, size_t *length)
{
    *length = json_dumpb(root, NULL, 0, JSON_COMPACT);
    char *text = *length ? malloc(*length) : NULL;
    if (!text || json_dumpb(root, text, *length, JSON_COMPACT) == *length) return text;
    free(text);
    return NULL;
}

/* The index as text, to be freed; NULL: no memory. Takes info. */
static char *print_index(struct zf_ckpt_writer *w, json_t *info, size_t *length)
{
    json_t *root = json_object(), *needs = json_array();
    int bad = set_offsets(w->tensors) || (w->planes && json_array_append_new(needs, json_string("planes")));
    bad |= json_object_set_new(root, "version", json_integer(ZF_CKPT_VERSION));
    bad |= json_object_set_new(root, "needs", needs);
    bad |= json_object_set_new(root, "chunk", json_integer((json_int_t)w->o.chunk));
    bad |= json_object_set(root, "tensors", w->tensors);
    bad |= json_object_set_new(root, "info", info ? info : json_object());
    char *text = bad ? NULL : print_json(root, length);
    json_decref(root);
    return text;
}

static enum zf_status write_footer(struct zf_ckpt_writer *w, uint64_t index, uint64_t check, struct zf_err *e)
{
    unsigned char edge[ZF_ZFC_EDGE];
    uint64_t size = w->counts.stored - index;
    zf_zfc_put(edge, ZF_ZFC_SKIPPABLE, 4);
    zf_zfc_put(edge + 4, ZF_ZFC_EDGE - 8, 4);
    zf_zfc_put(edge + ZF_ZFC_INDEX_AT, index, 8);
    zf_zfc_put(edge + ZF_ZFC_INDEX_SIZE, size, 8);
    zf_zfc_put(edge + ZF_ZFC_INDEX_CHECK, check, 8);
    zf_zfc_put(edge + ZF_ZFC_FILE_SIZE, index + size + ZF_ZFC_EDGE, 8);
    memcpy(edge + ZF_ZFC_TAIL, ZF_ZFC_END, 8);
    return append(w, edge, sizeof edge, e);
}

static enum zf_status write_index(struct zf_ckpt_writer *w, const char *text, size_t n, struct zf_err *e)
{
    size_t size;
    uint64_t at = w->counts.stored;
    if (n > ZF_ZFC_INDEX_LIMIT)
        return zf_fail(e, ZF_FORMAT, w->path, "its index would have %zu bytes; readers accept %d: save less in one file", n,
                       ZF_ZFC_INDEX_LIMIT);
    unsigned char *frame = malloc(zf_zfc_room(n));
    if (!frame) return zf_fail_memory(e, "a checkpoint's index");
    enum zf_status s = zf_zfc_frame(&w->slots[0].coder, frame, text, n, false, &size, e);
    uint64_t check = s ? 0 : XXH3_64bits(frame, size);
    if (!s) s = append(w, frame, size, e);
    free(frame);
    ZF_TRY(s);
    ZF_TRY(write_footer(w, at, check, e));
    return write_header(w, w->counts.stored, e);
}

enum zf_status zf_ckpt_finish(struct zf_ckpt_writer *w, json_t *info, struct zf_err *e)
{
    char *text = NULL;
    size_t length = 0;
    enum zf_status s = stick(w, ZF_OK, e);
    if (!s) s = check_whole(w, e);
    if (!s && info && !json_is_object(info)) s = zf_fail(e, ZF_FORMAT, w->path, "the info of a checkpoint is no JSON object");
    if (!s) s = flush(w, e);
    if (s)
        json_decref(info);
    else if (!(text = print_index(w, info, &length)))
        s = zf_fail_memory(e, "a checkpoint's index");
    if (!s) s = write_index(w, text, length, e);
    free(text);
    s = zf_file_end(&w->file, s, e);
    writer_free(w);
    return s;
}

void zf_ckpt_abandon(struct zf_ckpt_writer *w)
{
    struct zf_err e;
    if (!w) return;
    if (w->begun) zf_file_end(&w->file, ZF_STOPPED, &e);
    writer_free(w);
}
