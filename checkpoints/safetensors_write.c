/* safetensors, writing: header first, then the data through one fixed buffer, beside the target; fsync, rename, fsync of the directory.
 * Whatever fails, the target is as it was and nothing is left beside it. One thread per target. */
#include "checkpoints/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_LIMIT = 100000000, SINK_BYTES = 1 << 20 };

struct zf_st_sink {
    int fd;
    const char *path, *name; /* of the file beside the target; of the tensor that is being written */
    size_t left;             /* bytes this tensor still needs */
    size_t used;
    enum zf_status failed; /* sticky: a source that ignores it is not believed */
    unsigned char *buffer;
};

struct slot {
    const struct zf_st_entry *entry;
    size_t index, bytes;
};

enum zf_status zf_st_entry_bytes(size_t *bytes, const struct zf_st_entry *t, struct zf_err *e)
{
    char shown[160];
    size_t n = zf_st_type_bits(t->type);
    bool over = false;
    zf_st_escape(shown, sizeof shown, t->name);
    if (!n || t->rank > ZF_ST_DIMENSIONS)
        return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" cannot be written: type %s, %zu dimensions (at most %d)", shown,
                       zf_st_type_name(t->type), t->rank, ZF_ST_DIMENSIONS);
    for (size_t i = 0; i < t->rank; i++) over |= __builtin_mul_overflow(n, t->shape[i], &n);
    if (over) return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" cannot be written: its size does not fit into 64 bits", shown);
    if (n % 8) return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" cannot be written: its %zu bits are no whole number of bytes", shown, n);
    *bytes = n / 8;
    return ZF_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct slot *)a)->entry->name, ((const struct slot *)b)->entry->name);
}

/* The reference writer's order: wide types first, so that each tensor is aligned to its type. */
static int by_type(const void *a, const void *b)
{
    const struct zf_st_entry *x = ((const struct slot *)a)->entry, *y = ((const struct slot *)b)->entry;
    if (x->type != y->type) return x->type > y->type ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum zf_status order_entries(struct slot *slots, const struct zf_st_entry *entries, size_t count, struct zf_err *e)
{
    char shown[160];
    for (size_t i = 0; i < count; i++) {
        slots[i] = (struct slot){&entries[i], i, 0};
        ZF_TRY(zf_st_entry_bytes(&slots[i].bytes, &entries[i], e));
    }
    qsort(slots, count, sizeof *slots, by_name);
    for (size_t i = 0; i < count; i++) {
        const char *name = slots[i].entry->name;
        if (!strcmp(name, "__metadata__"))
            return zf_fail(e, ZF_FORMAT, NULL, "a tensor cannot have the name \"__metadata__\": the format reserves it");
        if (i && !strcmp(slots[i - 1].entry->name, name))
            return zf_fail(e, ZF_FORMAT, NULL, "two tensors have the name \"%s\"; names must be unique in a file",
                           zf_st_escape(shown, sizeof shown, name));
    }
    qsort(slots, count, sizeof *slots, by_type);
    return ZF_OK;
}

static enum zf_status print_entry(FILE *to, const struct slot *slot, size_t begin, struct zf_err *e)
{
    char shown[160];
    json_t *name = json_string(slot->entry->name);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!quoted)
        return zf_fail(e, ZF_FORMAT, NULL, "tensor \"%s\" cannot be written: its name is not UTF-8",
                       zf_st_escape(shown, sizeof shown, slot->entry->name));
    fprintf(to, ",%s:{\"dtype\":\"%s\",\"shape\":[", quoted, zf_st_type_name(slot->entry->type));
    free(quoted);
    for (size_t i = 0; i < slot->entry->rank; i++) fprintf(to, "%s%zu", i ? "," : "", slot->entry->shape[i]);
    fprintf(to, "],\"data_offsets\":[%zu,%zu]}", begin, begin + slot->bytes);
    return ZF_OK;
}

/* Eight bytes of length and the JSON, padded with spaces to a multiple of 8. To be freed. */
static enum zf_status build_header(char **out, size_t *size, const struct slot *slots, size_t count, struct zf_err *e)
{
    size_t begin = 0, end;
    enum zf_status s = ZF_OK;
    char *text = NULL;
    FILE *to = open_memstream(&text, size);
    *out = NULL;
    if (!to) return zf_fail_memory(e, "a safetensors header");
    fprintf(to, "%8s{\"__metadata__\":{\"format\":\"pt\"}", "");
    for (size_t i = 0; i < count && !s; i++, begin = end) {
        if (__builtin_add_overflow(begin, slots[i].bytes, &end))
            s = zf_fail(e, ZF_FORMAT, NULL, "the tensors' sizes do not fit into 64 bits");
        else
            s = print_entry(to, &slots[i], begin, e);
        if (!s && ftell(to) > HEADER_LIMIT)
            s = zf_fail(e, ZF_FORMAT, NULL,
                        "%zu tensors need a header of more than %d bytes, which no reader accepts: write them into several files", count,
                        HEADER_LIMIT);
    }
    fputc('}', to);
    while (!s && ftell(to) % 8) fputc(' ', to);
    bool broken = ferror(to);
    if (fclose(to) || broken) s = s ? s : zf_fail_memory(e, "a safetensors header");
    if (!s && *size - 8 > HEADER_LIMIT) /* the closing brace and padding */
        s = zf_fail(e, ZF_FORMAT, NULL, "the header would have %zu bytes; readers accept %d: write several files", *size - 8, HEADER_LIMIT);
    if (s) {
        free(text);
        return s;
    }
    for (int i = 0; i < 8; i++) text[i] = (char)((uint64_t)(*size - 8) >> (8 * i));
    *out = text;
    return ZF_OK;
}

static enum zf_status sink_flush(struct zf_st_sink *sink, struct zf_err *e)
{
    size_t n = sink->used;
    sink->used = 0;
    return n ? zf_write_all(sink->fd, sink->buffer, n, sink->path, e) : ZF_OK;
}

static enum zf_status sink_put(struct zf_st_sink *sink, const unsigned char *data, size_t bytes, struct zf_err *e)
{
    while (bytes) {
        size_t n = SINK_BYTES - sink->used;
        if (n > bytes) n = bytes;
        memcpy(sink->buffer + sink->used, data, n);
        sink->used += n;
        data += n;
        bytes -= n;
        if (sink->used == SINK_BYTES) ZF_TRY(sink_flush(sink, e));
    }
    return ZF_OK;
}

enum zf_status zf_st_put(struct zf_st_sink *sink, const void *data, size_t bytes, struct zf_err *e)
{
    char shown[160];
    if (sink->failed) return zf_fail(e, sink->failed, sink->path, "writing has already failed");
    if (bytes > sink->left)
        return sink->failed = zf_fail(e, ZF_FORMAT, sink->path, "tensor \"%s\": %zu bytes were supplied where %zu are left",
                                      zf_st_escape(shown, sizeof shown, sink->name), bytes, sink->left);
    sink->left -= bytes;
    return sink->failed = sink_put(sink, data, bytes, e);
}

static enum zf_status write_tensors(struct zf_st_sink *sink, const struct slot *slots, size_t count, zf_st_source *source, void *ctx,
                                    struct zf_err *e)
{
    char shown[160];
    for (size_t i = 0; i < count; i++) {
        sink->name = slots[i].entry->name;
        sink->left = slots[i].bytes;
        ZF_TRY(source(ctx, slots[i].index, sink, e));
        if (sink->failed) return e->code == sink->failed ? sink->failed : zf_fail(e, sink->failed, sink->path, "writing failed");
        if (sink->left)
            return zf_fail(e, ZF_FORMAT, sink->path, "tensor \"%s\": its data ended %zu bytes short of the declared %zu",
                           zf_st_escape(shown, sizeof shown, sink->name), sink->left, slots[i].bytes);
    }
    return sink_flush(sink, e);
}

static enum zf_status check_target(const char *path, struct zf_err *e)
{
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? ZF_OK : zf_fail_errno(e, path, "cannot write there");
    if (S_ISREG(st.st_mode)) return ZF_OK;
    return zf_fail(e, ZF_IO, path, "it exists and is %s; a safetensors file only replaces a regular file: choose another name",
                   S_ISDIR(st.st_mode)   ? "a directory"
                   : S_ISLNK(st.st_mode) ? "a symbolic link"
                                         : "no regular file");
}

enum zf_status zf_st_write(const char *path, const struct zf_st_entry *entries, size_t count, zf_st_source *source, void *ctx,
                           struct zf_err *e)
{
    struct zf_st_sink sink = {.fd = -1};
    struct zf_replacement file;
    size_t size;
    char *header = NULL;
    enum zf_status s;
    ZF_TRY(check_target(path, e));
    if (count > SIZE_MAX / sizeof(struct slot)) return zf_fail_memory(e, path);
    struct slot *slots = malloc(count ? count * sizeof *slots : 1);
    sink.buffer = malloc(SINK_BYTES);
    if (!slots || !sink.buffer) {
        s = zf_fail_memory(e, path);
        goto done;
    }
    ZF_GOTO(done, s, order_entries(slots, entries, count, e));
    ZF_GOTO(done, s, build_header(&header, &size, slots, count, e));
    ZF_GOTO(done, s, zf_file_begin(&file, path, e));
    sink.path = file.beside;
    sink.fd = file.fd;
    s = sink_put(&sink, (const unsigned char *)header, size, e);
    if (!s) s = write_tensors(&sink, slots, count, source, ctx, e);
    s = zf_file_end(&file, s, e);
done:
    free(slots);
    free(sink.buffer);
    free(header);
    return s;
}
