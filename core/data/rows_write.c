/* Writing a file of rows. Rows go out as they come; their places, and the documents' hashes, wait in unlinked files beside it, so that
 * memory does not grow with the rows. The same calls make the same bytes. One writer, one thread. */
#include "core/data/rows_impl.h"

#include "core/base/file.h"
#include "core/data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    ROWS_BUFFER = 1 << 20,
    SPOOL_BUFFER = 1 << 16,
    TABLE_BYTES = 60 << 20, /* for duplicates */
    TABLE_SMALLEST = 8      /* slots */
};

struct sink { /* a file that is written through a buffer */
    int fd;
    unsigned char *data;
    size_t used, room;
    uint64_t size; /* with what is in the buffer */
};

struct zf_rows_writer {
    struct zf_replacement file;
    char *path; /* NULL: anonymous, in memory */
    const char *name;
    struct sink rows, places, hashes;
    XXH3_state_t *hash, *content;
    unsigned char key[16];
    uint64_t count, tokens, label_tokens, longest;
};

static enum zf_status flush(const struct zf_rows_writer *w, struct sink *s, struct zf_err *e)
{
    size_t n = s->used;
    s->used = 0;
    return n ? zf_write_all(s->fd, s->data, n, w->name, e) : ZF_OK;
}

static enum zf_status put(const struct zf_rows_writer *w, struct sink *s, const void *data, size_t size, struct zf_err *e)
{
    if (!size) return ZF_OK;
    if (size > s->room - s->used) ZF_TRY(flush(w, s, e));
    s->size += size;
    if (size >= s->room) return zf_write_all(s->fd, data, size, w->name, e);
    memcpy(s->data + s->used, data, size);
    s->used += size;
    return ZF_OK;
}

static int unlinked_file(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    char *name = zf_path_join(folder, ".rows-XXXXXX"); /* a file system without O_TMPFILE */
    if (!name) return -1;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) unlink(name);
    free(name);
    return fd;
}

static enum zf_status open_sinks(struct zf_rows_writer *w, struct zf_err *e)
{
    if (!w->path) {
        w->rows.fd = memfd_create("rows", MFD_CLOEXEC);
        w->places.fd = memfd_create("places", MFD_CLOEXEC);
        w->hashes.fd = memfd_create("hashes", MFD_CLOEXEC);
    } else {
        char *folder = zf_path_directory(w->path);
        if (!folder) return zf_fail_memory(e, w->path);
        w->places.fd = unlinked_file(folder);
        w->hashes.fd = w->places.fd < 0 ? -1 : unlinked_file(folder);
        if (w->hashes.fd < 0)
            zf_fail_errno(e, folder, "cannot make a file there");
        else
            zf_cache_sweep(folder);
        free(folder);
        if (w->hashes.fd < 0) return e->code;
        ZF_TRY(zf_file_begin(&w->file, w->path, e));
        w->rows.fd = w->file.fd;
        (void)flock(w->rows.fd, LOCK_EX | LOCK_NB); /* where there are no locks, nothing is swept, either */
    }
    if (w->rows.fd < 0 || w->places.fd < 0 || w->hashes.fd < 0) return zf_fail_errno(e, w->name, "cannot make a file in memory");
    struct sink *all[] = {&w->rows, &w->places, &w->hashes};
    for (size_t i = 0; i < 3; i++) {
        all[i]->room = i ? SPOOL_BUFFER : ROWS_BUFFER;
        all[i]->data = malloc(all[i]->room);
        if (!all[i]->data) return zf_fail_memory(e, "rows on their way to a file");
    }
    w->hash = XXH3_createState();
    w->content = XXH3_createState();
    if (w->content) XXH3_64bits_reset(w->content);
    return w->hash && w->content ? ZF_OK : zf_fail_memory(e, "rows on their way to a file");
}

enum zf_status zf_rows_create(struct zf_rows_writer **out, const char *path, const unsigned char key[16], struct zf_err *e)
{
    static const struct zf_rows_header nothing; /* its place is kept; what it says is known at the end */
    *out = NULL;
    struct zf_rows_writer *w = calloc(1, sizeof *w);
    if (!w) return zf_fail_memory(e, "rows on their way to a file");
    w->rows.fd = w->places.fd = w->hashes.fd = w->file.fd = -1;
    memcpy(w->key, key, sizeof w->key);
    w->path = path ? strdup(path) : NULL;
    w->name = w->path ? w->path : "rows in memory";
    enum zf_status s = path && !w->path ? zf_fail_memory(e, "rows on their way to a file") : open_sinks(w, e);
    if (s == ZF_OK) s = put(w, &w->rows, &nothing, sizeof nothing, e);
    if (s == ZF_OK)
        *out = w;
    else
        zf_rows_discard(w);
    return s;
}

/* The writer without its file of rows, which has become something, or nothing, before. */
static void writer_free(struct zf_rows_writer *w)
{
    if (w->places.fd >= 0) close(w->places.fd);
    if (w->hashes.fd >= 0) close(w->hashes.fd);
    free(w->rows.data);
    free(w->places.data);
    free(w->hashes.data);
    XXH3_freeState(w->hash);
    XXH3_freeState(w->content);
    free(w->path);
    free(w);
}

void zf_rows_discard(struct zf_rows_writer *w)
{
    struct zf_err ignored;
    if (!w) return;
    if (w->file.beside)
        zf_file_end(&w->file, ZF_STOPPED, &ignored);
    else if (!w->path && w->rows.fd >= 0)
        close(w->rows.fd);
    writer_free(w);
}

/* Targets of a row, counted, if it is one. */
static enum zf_status check_row(const uint32_t *tokens, const int32_t *targets, size_t length, const struct zf_source *sources,
                                size_t documents, size_t *label_tokens, struct zf_err *e)
{
    uint64_t sum = 0;
    if (!length || length > INT32_MAX) return zf_fail(e, ZF_FORMAT, NULL, "a row of %zu tokens; expected 1 to %d", length, INT32_MAX);
    if (!documents || documents > length)
        return zf_fail(e, ZF_FORMAT, NULL, "a row of %zu documents in %zu tokens; expected at least one, and none empty", documents,
                       length);
    for (size_t i = 0; i < documents; i++) sum += sources[i].tokens;
    if (sum != length) return zf_fail(e, ZF_FORMAT, NULL, "a row of %zu tokens whose documents have %llu", length, (unsigned long long)sum);
    for (size_t i = 0; i < length; i++) {
        if (targets && (targets[i] < -1 || targets[i] > ZF_TOKEN_ID))
            return zf_fail(e, ZF_FORMAT, NULL, "a row with the target %d; expected -1 (none) or an id", targets[i]);
        *label_tokens += targets ? targets[i] >= 0 : i && zf_token_is_target(tokens[i]);
    }
    return ZF_OK;
}

enum zf_status zf_rows_add(struct zf_rows_writer *w, const uint32_t *tokens, const int32_t *targets, size_t length,
                           const struct zf_source *sources, size_t documents, struct zf_err *e)
{
    size_t bytes = length * sizeof *tokens, source_bytes = documents * sizeof *sources, label_tokens = 0;
    ZF_TRY(check_row(tokens, targets, length, sources, documents, &label_tokens, e));
    struct zf_row_place p = {.offset = w->rows.size,
                             .length = (uint32_t)length,
                             .label_tokens = (uint32_t)label_tokens,
                             .documents = (uint32_t)documents | (targets ? ZF_ROW_TARGETS : 0)};
    XXH3_64bits_reset(w->hash);
    XXH3_64bits_update(w->hash, tokens, bytes);
    if (targets) XXH3_64bits_update(w->hash, targets, bytes);
    XXH3_64bits_update(w->hash, sources, source_bytes);
    p.check = (uint32_t)XXH3_64bits_digest(w->hash);
    XXH3_64bits_update(w->content, (const uint32_t[]){p.length, targets ? 1 : 0}, 2 * sizeof(uint32_t));
    XXH3_64bits_update(w->content, tokens, bytes);
    if (targets) XXH3_64bits_update(w->content, targets, bytes);
    ZF_TRY(put(w, &w->rows, tokens, bytes, e));
    ZF_TRY(put(w, &w->rows, targets, targets ? bytes : 0, e));
    ZF_TRY(put(w, &w->rows, sources, source_bytes, e));
    ZF_TRY(put(w, &w->places, &p, sizeof p, e));
    w->count++;
    w->tokens += length;
    w->label_tokens += label_tokens;
    if (length > w->longest) w->longest = length;
    return ZF_OK;
}

enum zf_status zf_rows_document(struct zf_rows_writer *w, uint64_t hash, struct zf_err *e)
{
    return put(w, &w->hashes, &hash, sizeof hash, e);
}

struct seen { /* different numbers; open addressing, 0 stands for an empty slot */
    uint64_t *slot;
    size_t slots, used, limit;
    bool zero;
};

static uint64_t *slot_of(const struct seen *t, uint64_t hash)
{
    /* Numbers of one pass share their high bits: mix them down to choose a slot. */
    uint64_t mixed = (hash * 0x9E3779B97F4A7C15u) >> 32;
    size_t at = (size_t)((mixed * t->slots) >> 32);
    while (t->slot[at] && t->slot[at] != hash) at = at + 1 == t->slots ? 0 : at + 1;
    return &t->slot[at];
}

/* Duplicates among the numbers from `low` to `high`; *full: they do not fit in the table. */
static enum zf_status duplicates_between(struct seen *t, int fd, uint64_t count, uint64_t low, uint64_t high, uint64_t *block,
                                         uint64_t *found, bool *full, struct zf_err *e)
{
    enum { BLOCK = SPOOL_BUFFER / sizeof *block };
    memset(t->slot, 0, t->slots * sizeof *t->slot);
    t->used = 0;
    t->zero = *full = false;
    *found = 0;
    for (uint64_t done = 0; done < count;) {
        size_t n = count - done < BLOCK ? (size_t)(count - done) : BLOCK;
        ZF_TRY(zf_rows_pread(fd, block, n * sizeof *block, done * sizeof *block, "the documents' hashes", e));
        done += n;
        for (size_t i = 0; i < n; i++) {
            if (block[i] < low || block[i] > high) continue;
            if (!block[i]) {
                *found += t->zero;
                t->zero = true;
                continue;
            }
            uint64_t *slot = slot_of(t, block[i]);
            if (*slot) {
                ++*found;
            } else if (t->used == t->limit) {
                *full = true;
                return ZF_OK;
            } else {
                *slot = block[i];
                t->used++;
            }
        }
    }
    return ZF_OK;
}

enum zf_status zf_rows_duplicates(int fd, uint64_t count, size_t memory, uint64_t *out, struct zf_err *e)
{
    *out = 0;
    if (count < 2) return ZF_OK;
    struct seen t = {.slots = memory / sizeof *t.slot};
    if (t.slots < TABLE_SMALLEST) t.slots = TABLE_SMALLEST;
    if (count < t.slots / 2) t.slots = (size_t)count * 2 + TABLE_SMALLEST;
    t.limit = t.slots / 4 * 3;
    t.slot = malloc(t.slots * sizeof *t.slot);
    uint64_t *block = malloc(SPOOL_BUFFER);
    enum zf_status s = t.slot && block ? ZF_OK : zf_fail_memory(e, "the documents' hashes");

    /* Each pass takes a range of numbers. Hashes spread evenly; a range where they do not, and the table is full, is halved. */
    const uint64_t widest = UINT64_MAX / (count / (t.limit - t.limit / 8) + 1);
    uint64_t width = widest, low = 0, found = 0;
    for (bool full, more = true; s == ZF_OK && more;) {
        uint64_t high = UINT64_MAX - low < width ? UINT64_MAX : low + width;
        s = duplicates_between(&t, fd, count, low, high, block, &found, &full, e);
        if (s == ZF_OK && full) {
            width /= 2;
            continue;
        }
        *out += found;
        more = high != UINT64_MAX;
        low = high + 1;
        width = width < widest / 2 ? width * 2 + 1 : widest;
    }
    free(t.slot);
    free(block);
    return s;
}

/* The places behind the rows. Their buffer is free to carry them. */
static enum zf_status append_index(struct zf_rows_writer *w, uint64_t *hash, struct zf_err *e)
{
    struct sink *from = &w->places;
    ZF_TRY(flush(w, from, e));
    XXH3_64bits_reset(w->hash);
    for (uint64_t done = 0; done < from->size;) {
        size_t n = from->size - done < from->room ? (size_t)(from->size - done) : from->room;
        ZF_TRY(zf_rows_pread(from->fd, from->data, n, done, w->name, e));
        XXH3_64bits_update(w->hash, from->data, n);
        ZF_TRY(put(w, &w->rows, from->data, n, e));
        done += n;
    }
    *hash = XXH3_64bits_digest(w->hash);
    return flush(w, &w->rows, e);
}

static enum zf_status write_header(struct zf_rows_writer *w, const struct zf_rows_header *h, struct zf_err *e)
{
    if (lseek(w->rows.fd, 0, SEEK_SET)) return zf_fail_errno(e, w->name, "cannot go back to its beginning");
    return zf_write_all(w->rows.fd, h, sizeof *h, w->name, e);
}

static enum zf_status complete(struct zf_rows_writer *w, struct zf_rows_header *h, struct zf_err *e)
{
    h->index = w->rows.size;
    ZF_TRY(append_index(w, &h->index_hash, e));
    ZF_TRY(flush(w, &w->hashes, e));
    ZF_TRY(zf_rows_duplicates(w->hashes.fd, w->hashes.size / sizeof(uint64_t), TABLE_BYTES, &h->stats.duplicates, e));
    memcpy(h->magic, ZF_ROWS_MAGIC, sizeof h->magic);
    memcpy(h->key, w->key, sizeof h->key);
    h->version = ZF_ROWS_VERSION;
    h->head = ZF_ROWS_HEADER;
    h->rows = h->stats.rows = w->count;
    h->bytes = w->rows.size;
    h->content = XXH3_64bits_digest(w->content);
    h->stats.tokens = w->tokens;
    h->stats.label_tokens = w->label_tokens;
    h->stats.longest_row = w->longest;
    h->hash = XXH3_64bits(h, offsetof(struct zf_rows_header, hash));
    return write_header(w, h, e);
}

enum zf_status zf_rows_finish(struct zf_rows_writer *w, const struct zf_data_stats *stats, struct zf_rows *out, struct zf_err *e)
{
    struct zf_rows_header h = {.stats = *stats};
    *out = (struct zf_rows){.fd = -1};
    enum zf_status s = complete(w, &h, e);
    int fd = w->rows.fd;
    if (w->path) {
        /* Opened before it has its name: what is read is what was written, whoever writes the same file meanwhile. */
        fd = s == ZF_OK ? open(w->file.beside, O_RDONLY | O_CLOEXEC) : -1;
        if (s == ZF_OK && fd < 0) s = zf_fail_errno(e, w->file.beside, "cannot open it");
        s = zf_file_end(&w->file, s, e);
    }
    if (s == ZF_OK) {
        *out = (struct zf_rows){
            .fd = fd, .rows = h.rows, .index = h.index, .bytes = h.bytes, .content = h.content, .in_memory = !w->path, .stats = h.stats};
    } else if (fd >= 0) {
        close(fd);
    }
    writer_free(w);
    return s;
}
