/* Reading a file of rows, by pread: a file that is cut or changed under us is an error in words, where a mapping would be a signal.
 * A struct zf_rows is read-only once open and is shared by threads, each with a buffer of its own. */
#include "core/data/rows_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { INDEX_BLOCK = 8192 }; /* places read at once */

enum verdict { FOUND, OTHER, DAMAGED };

enum zf_status zf_rows_pread(int fd, void *data, size_t size, uint64_t offset, const char *where, struct zf_err *e)
{
    char *to = data;
    if (offset > INT64_MAX - size) return zf_fail(e, ZF_IO, where, "offset %llu is beyond any file", (unsigned long long)offset);
    while (size) {
        ssize_t n = pread(fd, to, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return zf_fail_errno(e, where, "cannot read rows from it");
        if (!n) return zf_fail(e, ZF_IO, where, "it ends after %llu bytes; %zu more are expected", (unsigned long long)offset, size);
        to += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return ZF_OK;
}

static bool place_fits(const struct zf_row_place *p, uint64_t index)
{
    uint32_t documents = p->documents & ~ZF_ROW_TARGETS;
    if (!p->length || p->length > INT32_MAX || p->label_tokens > p->length || !documents || documents > p->length) return false;
    uint64_t bytes = zf_row_bytes(p->length, documents, p->documents & ZF_ROW_TARGETS);
    return p->offset >= ZF_ROWS_HEADER && p->offset <= index && bytes <= index - p->offset;
}

static enum verdict check_header(struct zf_rows_header *h, int fd, uint64_t size, const unsigned char key[16])
{
    struct zf_err ignored;
    if (size < sizeof *h || zf_rows_pread(fd, h, sizeof *h, 0, NULL, &ignored)) return DAMAGED;
    if (memcmp(h->magic, ZF_ROWS_MAGIC, sizeof h->magic)) return DAMAGED;
    if (h->version != ZF_ROWS_VERSION) return OTHER; /* the rest may lie elsewhere */
    if (h->hash != XXH3_64bits(h, offsetof(struct zf_rows_header, hash))) return DAMAGED;
    if (memcmp(h->key, key, sizeof h->key)) return OTHER;
    bool fits = h->head == sizeof *h && h->bytes == size && h->rows <= (size - sizeof *h) / sizeof(struct zf_row_place) &&
                h->index == size - h->rows * sizeof(struct zf_row_place);
    return fits ? FOUND : DAMAGED;
}

/* Block by block, so that memory does not grow with it. Rows lie one behind the other and are what the header counts. */
static bool index_is_good(const struct zf_rows_header *h, int fd, struct zf_row_place *block, XXH3_state_t *hash)
{
    struct zf_err ignored;
    uint64_t offset = sizeof *h, tokens = 0, labels = 0, longest = 0;
    if (XXH3_64bits_reset(hash) != XXH_OK) return false;
    for (uint64_t row = 0; row < h->rows;) {
        size_t n = h->rows - row < INDEX_BLOCK ? (size_t)(h->rows - row) : INDEX_BLOCK;
        if (zf_rows_pread(fd, block, n * sizeof *block, h->index + row * sizeof *block, NULL, &ignored)) return false;
        XXH3_64bits_update(hash, block, n * sizeof *block);
        for (size_t i = 0; i < n; i++) {
            const struct zf_row_place *p = &block[i];
            if (p->offset != offset || !place_fits(p, h->index)) return false;
            offset += zf_row_bytes(p->length, p->documents & ~ZF_ROW_TARGETS, p->documents & ZF_ROW_TARGETS);
            tokens += p->length;
            labels += p->label_tokens;
            if (p->length > longest) longest = p->length;
        }
        row += n;
    }
    return offset == h->index && XXH3_64bits_digest(hash) == h->index_hash && h->stats.rows == h->rows && h->stats.tokens == tokens &&
           h->stats.label_tokens == labels && h->stats.longest_row == longest;
}

static enum zf_status check(enum verdict *out, struct zf_rows_header *h, int fd, uint64_t size, const unsigned char key[16],
                            struct zf_err *e)
{
    *out = check_header(h, fd, size, key);
    if (*out != FOUND) return ZF_OK;
    struct zf_row_place *block = malloc(INDEX_BLOCK * sizeof *block);
    XXH3_state_t *hash = XXH3_createState();
    enum zf_status s = block && hash ? ZF_OK : zf_fail_memory(e, "the index of rows");
    if (s == ZF_OK && !index_is_good(h, fd, block, hash)) *out = DAMAGED;
    free(block);
    XXH3_freeState(hash);
    return s;
}

enum zf_status zf_rows_open(struct zf_rows *out, const char *path, const unsigned char key[16], bool *damaged, struct zf_err *e)
{
    *out = (struct zf_rows){.fd = -1};
    *damaged = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return ZF_OK;
    if (fd < 0) return zf_fail_errno(e, path, "cannot open the rows kept in it");
    struct stat st;
    struct zf_rows_header h;
    enum verdict v = OTHER;
    enum zf_status s = ZF_OK;
    if (fstat(fd, &st))
        s = zf_fail_errno(e, path, "cannot stat it");
    else if (!S_ISREG(st.st_mode))
        s = zf_fail(e, ZF_IO, path, "it is no regular file; rows would be kept there: remove it, or set cache to another folder");
    else
        s = check(&v, &h, fd, (uint64_t)st.st_size, key, e);
    *damaged = v == DAMAGED;
    if (s != ZF_OK || v != FOUND) {
        close(fd);
        return s;
    }
    *out = (struct zf_rows){.fd = fd, .rows = h.rows, .index = h.index, .bytes = h.bytes, .content = h.content, .stats = h.stats};
    return ZF_OK;
}

void zf_rows_close(struct zf_rows *r)
{
    if (r->fd >= 0) close(r->fd);
    *r = (struct zf_rows){.fd = -1};
}

static enum zf_status damaged_row(const struct zf_rows *r, uint64_t row, const char *what, struct zf_err *e)
{
    char link[64], name[512]; /* the path it has now; without /proc the message does without it */
    snprintf(link, sizeof link, "/proc/self/fd/%d", r->fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    name[n > 0 ? n : 0] = 0;
    return zf_fail(e, ZF_IO, name, "row %llu of the rows kept here is damaged (%s): the file was changed after it was written; %s",
                   (unsigned long long)row, what, r->in_memory ? "start again" : "delete it, it will be made anew");
}

enum zf_status zf_rows_places(const struct zf_rows *r, uint64_t first, size_t count, struct zf_row_place *out, struct zf_err *e)
{
    if (first > r->rows || count > r->rows - first) {
        return zf_fail(e, ZF_USAGE, NULL, "rows %llu to %llu are asked for; there are %llu", (unsigned long long)first,
                       (unsigned long long)(first + count), (unsigned long long)r->rows);
    }
    ZF_TRY(zf_rows_pread(r->fd, out, count * sizeof *out, r->index + first * sizeof *out, NULL, e));
    for (size_t i = 0; i < count; i++) {
        if (!place_fits(&out[i], r->index)) return damaged_row(r, first + i, "its place is none", e);
    }
    return ZF_OK;
}

void zf_row_buffer_free(struct zf_row_buffer *b)
{
    free(b->bytes);
    free(b->ids); /* targets and document lie behind it */
    *b = (struct zf_row_buffer){0};
}

/* Rows of slowly growing length do not allocate each time. */
static size_t grown(size_t have, size_t need)
{
    return have * 2 > need ? have * 2 : need;
}

static enum zf_status make_room(struct zf_row_buffer *b, size_t bytes, size_t tokens, struct zf_err *e)
{
    if (bytes > b->room) {
        size_t room = grown(b->room, bytes);
        free(b->bytes);
        b->room = 0;
        b->bytes = malloc(room);
        if (!b->bytes) return zf_fail_memory(e, "a row");
        b->room = room;
    }
    if (tokens > b->token_room) {
        size_t room = grown(b->token_room, tokens);
        free(b->ids);
        b->token_room = 0;
        b->ids = malloc(room * 3 * sizeof *b->ids);
        if (!b->ids) return zf_fail_memory(e, "a row");
        b->targets = b->ids + room;
        b->document = b->targets + room;
        b->token_room = room;
    }
    return ZF_OK;
}

static void decode(struct zf_row_buffer *b, const uint32_t *tokens, const int32_t *targets, size_t n, struct zf_row *out)
{
    int32_t document = 0;
    for (size_t i = 0; i < n; i++) {
        document += i && tokens[i] & ZF_TOKEN_FIRST;
        b->document[i] = document;
        b->ids[i] = (int32_t)(tokens[i] & ZF_TOKEN_ID);
        if (!i || targets) continue;
        b->targets[i - 1] = zf_token_is_target(tokens[i]) ? b->ids[i] : -1;
    }
    if (!targets) b->targets[n - 1] = -1;
    *out = (struct zf_row){.ids = b->ids, .target = targets ? targets : b->targets, .document = document ? b->document : NULL, .length = n};
}

enum zf_status zf_rows_read(const struct zf_rows *r, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *e)
{
    struct zf_row_place p;
    ZF_TRY(zf_rows_places(r, row, 1, &p, e));
    bool own = p.documents & ZF_ROW_TARGETS;
    uint32_t documents = p.documents & ~ZF_ROW_TARGETS;
    uint64_t bytes = zf_row_bytes(p.length, documents, own);
    /* Sources need an address that is a multiple of 8; the tokens before them may be an odd number of words. */
    size_t shift = bytes % 8;
    ZF_TRY(make_room(b, (size_t)bytes + shift, p.length, e));
    unsigned char *data = b->bytes + shift;
    ZF_TRY(zf_rows_pread(r->fd, data, (size_t)bytes, p.offset, NULL, e));
    if ((uint32_t)XXH3_64bits(data, (size_t)bytes) != p.check) return damaged_row(r, row, "its check fails", e);

    const uint32_t *tokens = (const uint32_t *)(const void *)data;
    const int32_t *targets = own ? (const int32_t *)(const void *)(tokens + p.length) : NULL;
    const struct zf_source *sources = (const void *)(tokens + (own ? 2 : 1) * (size_t)p.length);
    decode(b, tokens, targets, p.length, out);
    out->label_tokens = p.label_tokens;
    out->sources = sources;
    out->documents = documents;
    return ZF_OK;
}
