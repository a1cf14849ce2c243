/* Datasets: the key under which rows are kept, building or finding them, what there is to say about them, slices, order. */
#include "core/data/build.h"

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/plural.h"
#include "core/base/rng.h"
#include "core/data/cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_LENGTH = 1024, HASH_BLOCK = 1 << 20, PLACES = 4096 };

/* Everything that zf_dataset_open finds out on its way. */
struct opening {
    const struct zf_dataset_options *o;
    const volatile int *stop;
    enum zf_data_format format;
    size_t length;
    int32_t eos; /* -1: none is added */
    bool specials, wants_eos;
    uint64_t bytes;    /* of all files */
    struct stat *seen; /* [file_count] before anything was read */
    unsigned char key[16];
    char *path; /* of the rows' file; NULL: in memory */
    struct zf_build *build;
    struct zf_err no_folder; /* to keep rows in; code ZF_OK: there is one, or it was not looked for */
};

static enum zf_status check_options(struct opening *p, struct zf_err *e)
{
    const struct zf_dataset_options *o = p->o;
    if (!o->file_count) return zf_fail(e, ZF_USAGE, NULL, "no data file is given");
    for (size_t i = 0; i < o->file_count; i++) {
        enum zf_data_format this = o->format;
        ZF_TRY(zf_data_format_find(&this, o->files[i], e));
        if (i && this != p->format)
            return zf_fail(e, ZF_USAGE, o->files[i], "it is %s, but %s is %s; give files of one format, or set format",
                           zf_data_format_name(this), o->files[0], zf_data_format_name(p->format));
        p->format = this;
    }
    bool records = p->format != ZF_DATA_TOKENS && p->format != ZF_DATA_TEXT;
    const char *idle = o->choice_count ? "choices" : o->prompt && *o->prompt ? "prompt" : o->response && *o->response ? "response" : NULL;
    if (!records && idle)
        return zf_fail(e, ZF_USAGE, idle, "it is for records, but %s is %s; take it out, or give jsonl, json, tsv or csv", o->files[0],
                       zf_data_format_name(p->format));
    if (p->format == ZF_DATA_TOKENS) return ZF_OK;
    if (!o->tokenizer && o->no_tokenizer) {
        *e = *o->no_tokenizer;
        return e->code;
    }
    if (!o->tokenizer) return zf_fail(e, ZF_USAGE, o->files[0], "text needs a tokenizer; none is given");
    if (o->documents && !*o->documents)
        return zf_fail(e, ZF_USAGE, NULL, "documents is an empty separator; expected file, blank or some text");
    if (o->sequence_length > o->context)
        return zf_fail(e, ZF_USAGE, NULL, "sequence_length %zu is more than the model's context; at most %zu", o->sequence_length,
                       o->context);
    p->length = o->sequence_length ? o->sequence_length : o->context < DEFAULT_LENGTH ? o->context : DEFAULT_LENGTH;
    if (!p->length || p->length > INT32_MAX)
        return zf_fail(e, ZF_USAGE, NULL, "rows of %zu tokens; expected 1 to %d", p->length, INT32_MAX);
    p->wants_eos = o->add_eos;
    p->eos = zf_tokenizer_eos(o->tokenizer);
    /* `bytes` on a model of 256 ids: its one special token has no id there, so the text is bytes and nothing else. */
    p->specials = !zf_tokenizer_takes_bytes(o->tokenizer) || (size_t)p->eos < o->vocab;
    if (p->eos >= 0 && (size_t)p->eos >= o->vocab) p->eos = -1;
    return ZF_OK;
}

static enum zf_status measure(struct opening *p, struct zf_err *e)
{
    p->seen = calloc(p->o->file_count, sizeof *p->seen);
    if (!p->seen) return zf_fail_memory(e, "the data");
    for (size_t i = 0; i < p->o->file_count; i++) {
        int fd;
        if (zf_file_open(&fd, &p->seen[i], p->o->files[i], e)) return zf_unreadable(e);
        close(fd);
        p->bytes += (uint64_t)p->seen[i].st_size;
    }
    return ZF_OK;
}

/* Rows of a file that changed meanwhile are rows of neither content, and must not be kept under the key of one. */
static enum zf_status check_unchanged(const struct opening *p, struct zf_err *e)
{
    for (size_t i = 0; i < p->o->file_count; i++) {
        const struct stat *was = &p->seen[i];
        struct stat is;
        if (!stat(p->o->files[i], &is) && is.st_size == was->st_size && is.st_ino == was->st_ino && is.st_dev == was->st_dev &&
            is.st_mtim.tv_sec == was->st_mtim.tv_sec && is.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
            continue;
        return zf_fail(e, ZF_FORMAT, p->o->files[i], "it changed while it was read; start again when nobody writes to it");
    }
    return ZF_OK;
}

/* Kept rows are read once, all of them: damage is found now, when they can be made again, and not in the middle of a run. */
static enum zf_status check_kept(struct zf_rows *r, const volatile int *stop, bool *damaged, struct zf_err *e)
{
    struct zf_row_buffer buffer = {0};
    struct zf_row row;
    enum zf_status s = ZF_OK;
    for (uint64_t i = 0; !s && i < r->rows; i++) {
        s = stop && *stop ? zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data") : zf_rows_read(r, i, &buffer, &row, e);
    }
    zf_row_buffer_free(&buffer);
    if (s != ZF_IO) return s;
    *damaged = true;
    zf_rows_close(r);
    *r = (struct zf_rows){.fd = -1};
    return ZF_OK;
}

static enum zf_status add_content(struct zf_hash *h, const char *file, const volatile int *stop, struct zf_err *e)
{
    struct stat st;
    int fd;
    if (zf_file_open(&fd, &st, file, e)) return zf_unreadable(e);
    char *block = malloc(HASH_BLOCK);
    enum zf_status s = block ? ZF_OK : zf_fail_memory(e, "the data");
    uint64_t size = 0;
    for (ssize_t n = 1; !s && n;) {
        n = TEMP_FAILURE_RETRY(read(fd, block, HASH_BLOCK));
        if (n < 0) s = zf_fail_errno(e, file, "cannot read it");
        if (n > 0) zf_hash_add_part(h, block, (size_t)n), size += (uint64_t)n;
        if (!s && stop && *stop) s = zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data");
    }
    zf_hash_add_number(h, size);
    close(fd);
    free(block);
    if (s == ZF_IO) return zf_unreadable(e);
    return s;
}

/* The same key: the same rows. */
static enum zf_status make_key(struct opening *p, struct zf_err *e)
{
    const struct zf_dataset_options *o = p->o;
    const uint64_t numbers[] = {p->format,       p->length,  p->format == ZF_DATA_TOKENS ? o->context : 0,
                                o->vocab,        p->eos + 1, p->specials,
                                o->long_rows,    o->pack,    o->skip_bad,
                                o->every_choice, o->add_eos};
    const struct zf_layout *layout = p->build ? zf_build_layout(p->build) : NULL;
    struct zf_hash h;
    ZF_TRY(zf_hash_begin(&h, e));
    zf_hash_add_text(&h, "zenflow rows 3");
    zf_hash_add(&h, numbers, sizeof numbers);
    zf_hash_add_text(&h, o->documents);
    zf_hash_add(&h, o->tokenizer ? zf_tokenizer_hash(o->tokenizer) : NULL, o->tokenizer ? 16 : 0);
    zf_hash_add(&h, layout ? zf_layout_hash(layout) : NULL, layout ? 16 : 0);
    enum zf_status s = ZF_OK;
    for (size_t i = 0; !s && i < o->file_count; i++) s = add_content(&h, o->files[i], p->stop, e);
    zf_hash_end(&h, p->key);
    return s;
}

static enum zf_status choose_place(struct opening *p, struct zf_err *e)
{
    char *folder;
    if (!zf_cache_used(p->o->cache, p->o->shared ? UINT64_MAX : p->bytes) || zf_cache_folder(&folder, p->o->cache, &p->no_folder)) return ZF_OK;
    enum zf_status s = make_key(p, e);
    if (!s && !(p->path = zf_cache_path(folder, p->key))) s = zf_fail_memory(e, "a path");
    free(folder);
    return s;
}

static void add_note(struct zf_dataset *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(struct zf_dataset *d, const char *fmt, ...)
{
    size_t n = strlen(d->note);
    if (n) n += (size_t)snprintf(d->note + n, sizeof d->note - n, "; ");
    if (n >= sizeof d->note) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->note + n, sizeof d->note - n, fmt, ap);
    va_end(ap);
}

static void write_note(struct zf_dataset *d, const struct opening *p)
{
    const struct zf_data_stats *s = &d->store->stats;
    if (p->wants_eos && p->eos < 0)
        add_note(d, "no end token after documents: the tokenizer has none, or the model's vocabulary has no room for it");
    if (p->no_folder.code) add_note(d, "rows are kept in memory: %.300s: %.300s", p->no_folder.where, p->no_folder.message);
    for (const struct zf_data_counter *c = zf_data_counters; c->name; c++) {
        char more[sizeof d->note] = "", place[512];
        uint64_t n = zf_stats_count(s, c);
        if (!n || !c->noted) continue;
        if (c->first) {
            const struct zf_source *first = (const void *)((const char *)s + c->first);
            snprintf(more, sizeof more, ", the first at %s", zf_dataset_place(d, first, place, sizeof place));
        }
        if (c->offset == offsetof(struct zf_data_stats, cut_tokens))
            snprintf(more, sizeof more, " (%.2g %%)", 100.0 * (double)n / (double)(n + s->tokens));
        add_note(d, "%llu %s%s", (unsigned long long)n, c->meaning, more);
    }
    if (d->unlabelled) add_note(d, "%llu of %llu rows have no label token", (unsigned long long)d->unlabelled, (unsigned long long)d->rows);
}

/* What rows tell only together. */
static enum zf_status count_rows(struct zf_dataset *d, struct zf_err *e)
{
    struct zf_row_place *places = malloc(PLACES * sizeof *places);
    enum zf_status s = places ? ZF_OK : zf_fail_memory(e, "the data");
    for (uint64_t at = 0; !s && at < d->rows;) {
        size_t n = d->rows - at < PLACES ? (size_t)(d->rows - at) : PLACES;
        s = zf_dataset_places(d, at, n, places, e);
        for (size_t i = 0; !s && i < n; i++) {
            d->tokens += places[i].length;
            d->label_tokens += places[i].label_tokens;
            if (places[i].length > d->longest) d->longest = places[i].length;
            d->unlabelled += !places[i].label_tokens;
        }
        at += n;
    }
    free(places);
    return s;
}

static enum zf_status check_long(const struct zf_dataset *d, const struct opening *p, struct zf_err *e)
{
    const struct zf_data_stats *s = &d->store->stats;
    if (p->format == ZF_DATA_TOKENS || p->format == ZF_DATA_TEXT || p->o->long_rows != ZF_LONG_ERROR || !s->dropped ||
        (p->o->show_only && d->rows))
        return ZF_OK;
    char where[sizeof e->where];
    return zf_fail(e, ZF_FORMAT, zf_dataset_place(d, &s->first_long, where, sizeof where),
                   "%llu of %llu records are longer than sequence_length, %zu tokens, this one the first (the longest has %llu); %sset "
                   "long_rows = truncate (their ends are lost), split or drop",
                   (unsigned long long)s->dropped, (unsigned long long)s->documents, p->length, (unsigned long long)s->longest_document,
                   p->length < p->o->context ? "raise it, or " : "the model takes no more: ");
}

static enum zf_status check_rows(const struct zf_dataset *d, const struct opening *p, struct zf_err *e)
{
    const struct zf_dataset_options *o = p->o;
    const struct zf_data_stats *s = &d->store->stats;
    bool tokens = p->format == ZF_DATA_TOKENS;
    typedef unsigned long long number;
    ZF_TRY(check_long(d, p, e));
    if (!d->rows)
        return zf_fail(e, ZF_FORMAT, o->files[0], "no usable row in %zu file%s: %s; expected some %s", o->file_count,
                       zf_plural(o->file_count),
                       s->bad       ? "nothing that can be read"
                       : s->dropped ? "all documents were dropped as too long"
                                    : "everything is empty",
                       p->format == ZF_DATA_TEXT ? "text" : "records");
    if (!d->label_tokens)
        return zf_fail(e, ZF_FORMAT, o->files[0], "none of its %llu rows has a label token (%s); nothing could be trained or scored",
                       (number)d->rows,
                       tokens                      ? "all labels are -100, or every document is one token"
                       : p->format == ZF_DATA_TEXT ? "every document is a single token"
                                                   : "no record has an answer, or all answers were cut off");
    uint64_t bad = s->unlabelled, of = tokens ? d->rows : s->documents;
    if (p->format == ZF_DATA_TEXT || o->skip_bad || bad * 100 <= of) return ZF_OK;
    char place[512];
    return zf_fail(e, ZF_FORMAT, o->files[0],
                   "%llu of %llu %s have no label token (the first: %s%s), more than 1 %%; %scorrect them, or set skip_bad = yes",
                   (number)bad, (number)of, tokens ? "rows" : "documents", zf_dataset_place(d, &s->first_unlabelled, place, sizeof place),
                   tokens ? ", from 0" : "", s->truncated ? "raise sequence_length, " : "");
}

static enum zf_status build(struct zf_dataset *d, struct opening *p, struct zf_err *e)
{
    struct zf_rows_writer *w;
    struct zf_data_stats stats = {0};
    ZF_TRY(zf_rows_create(&w, p->path, p->key, e));
    enum zf_status s = p->build ? zf_build_rows(p->build, w, &stats, e) : zf_build_tokens(p->o, w, &stats, p->stop, e);
    if (!s) s = check_unchanged(p, e);
    if (s) {
        zf_rows_discard(w);
    } else {
        s = zf_rows_finish(w, &stats, d->store, e);
    }
    if (s == ZF_IO && p->path) {
        size_t n = strlen(e->message);
        snprintf(e->message + n, sizeof e->message - n,
                 "; free some space, or set cache = ANOTHER FOLDER, or cache = no to keep rows in memory");
    }
    return s;
}

static enum zf_status fill(struct zf_dataset *d, struct opening *p, struct zf_err *e)
{
    ZF_TRY(check_options(p, e));
    d->format = p->format;
    d->files = p->o->files;
    d->file_count = p->o->file_count;
    ZF_TRY(measure(p, e));
    if (p->format != ZF_DATA_TOKENS) {
        bool adds = p->format != ZF_DATA_TEXT || p->o->add_eos; /* of records, the layout decides */
        const struct zf_build_options b = {.data = p->o,
                                           .format = p->format,
                                           .length = p->length,
                                           .eos = adds ? p->eos : -1,
                                           .specials = p->specials,
                                           .total = p->bytes,
                                           .stop = p->stop};
        ZF_TRY(zf_build_begin(&p->build, &b, e));
    }
    ZF_TRY(choose_place(p, e));
    bool damaged = false;
    if (p->path) ZF_TRY(zf_rows_open(d->store, p->path, p->key, &damaged, e));
    if (d->store->fd >= 0) ZF_TRY(check_kept(d->store, p->stop, &damaged, e));
    if (d->store->fd < 0) ZF_TRY(build(d, p, e));
    if (damaged) add_note(d, "%s was damaged and has been made again", p->path);
    d->rows = d->store->rows;
    d->length = p->format == ZF_DATA_TOKENS ? d->store->stats.longest_row : p->length;
    if (d->store->in_memory) d->bytes = d->store->bytes;
    const struct zf_layout *layout = p->build ? zf_build_layout(p->build) : NULL;
    if (layout && !(d->layout = strdup(zf_layout_describe(layout)))) return zf_fail_memory(e, "the data");
    if (p->path && !(d->cached = strdup(p->path))) return zf_fail_memory(e, "the data");
    ZF_TRY(count_rows(d, e));
    ZF_TRY(check_rows(d, p, e));
    write_note(d, p);
    return ZF_OK;
}

enum zf_status zf_dataset_open(struct zf_dataset *out, const struct zf_dataset_options *o, const volatile int *stop, struct zf_err *e)
{
    *out = (struct zf_dataset){.store = calloc(1, sizeof *out->store)};
    if (!out->store) return zf_fail_memory(e, "the data");
    out->store->fd = -1;
    struct opening p = {.o = o, .stop = stop, .eos = -1};
    enum zf_status s = fill(out, &p, e);
    zf_build_end(p.build);
    free(p.path);
    free(p.seen);
    if (s) zf_dataset_close(out);
    return s;
}

void zf_dataset_close(struct zf_dataset *d)
{
    if (!d->slice && d->store) {
        if (d->store->fd >= 0) zf_rows_close(d->store);
        free(d->store);
        free(d->layout);
        free(d->cached);
    }
    *d = (struct zf_dataset){0};
}

enum zf_status zf_dataset_read(const struct zf_dataset *d, uint64_t row, struct zf_row_buffer *b, struct zf_row *out, struct zf_err *e)
{
    return zf_rows_read(d->store, d->first + row, b, out, e);
}

enum zf_status zf_dataset_places(const struct zf_dataset *d, uint64_t first, size_t count, struct zf_row_place *out, struct zf_err *e)
{
    return zf_rows_places(d->store, d->first + first, count, out, e);
}

const char *zf_dataset_place(const struct zf_dataset *d, const struct zf_source *s, char *to, size_t room)
{
    uint32_t file = s->file & ~ZF_SOURCE_CHOSEN;
    return zf_source_place(to, room, d->format, file < d->file_count ? d->files[file] : "?", s->line);
}

enum zf_status zf_dataset_slice(struct zf_dataset *out, const struct zf_dataset *of, uint64_t first, uint64_t count, struct zf_err *e)
{
    if (first > of->rows) first = of->rows;
    if (count > of->rows - first) count = of->rows - first;
    *out = (struct zf_dataset){.format = of->format,
                               .files = of->files,
                               .file_count = of->file_count,
                               .rows = count,
                               .first = of->first + first,
                               .length = of->length,
                               .store = of->store,
                               .slice = true,
                               .layout = of->layout,
                               .cached = of->cached};
    return count_rows(out, e);
}

uint64_t zf_order_row(const struct zf_order *o, uint64_t position)
{
    if (!o->rows) return 0;
    uint64_t row = position % o->rows;
    return o->shuffle ? zf_permute(row, o->rows, o->seed, position / o->rows) : row;
}
