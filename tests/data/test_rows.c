/* Files of rows: what is written is read, the same calls make the same bytes, and no byte can be changed without notice. */
#include "tests/data/support.h"

#include "core/base/rng.h"
#include "core/data/rows_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

static const unsigned char key[16] = "sixteen bytes.."; /* any */
static const unsigned char other_key[16] = "sixteen others.";

static uint64_t drawn;
static uint32_t draw(uint32_t below)
{
    return zf_philox(7, 1, drawn++).v[0] % below;
}

enum { MOST = 300 };
struct sample { /* a row, and what reading it must give */
    uint32_t tokens[MOST];
    int32_t targets[MOST], expected[MOST], document[MOST];
    struct zf_source sources[MOST];
    size_t length, documents, label_tokens;
    bool own;
};

static void make_sample(struct sample *s, size_t length)
{
    memset(s, 0, sizeof *s);
    s->length = length;
    s->own = !draw(3);
    for (size_t i = 0; i < length; i++) {
        bool first = !i || !draw(5), trained = !first && draw(3);
        s->tokens[i] = draw(4) ? draw(50000) : (uint32_t)ZF_TOKEN_ID;
        s->tokens[i] |= (first ? ZF_TOKEN_FIRST : 0) | (trained ? (uint32_t)ZF_TOKEN_TRAINED : 0);
        s->targets[i] = draw(2) ? (int32_t)draw(50000) : -1;
        if (first) s->sources[s->documents++] = (struct zf_source){.line = 1 + ((uint64_t)draw(1000) << 33), .file = draw(3)};
        s->sources[s->documents - 1].tokens++;
        s->document[i] = (int32_t)s->documents - 1;
    }
    for (size_t i = 0; i < length; i++) {
        bool scored = i + 1 < length && s->tokens[i + 1] & ZF_TOKEN_TRAINED;
        s->expected[i] = s->own ? s->targets[i] : scored ? (int32_t)(s->tokens[i + 1] & ZF_TOKEN_ID) : -1;
        s->label_tokens += s->expected[i] >= 0;
    }
}

static void assert_row(const struct zf_row *r, const struct sample *s)
{
    assert_int_equal(r->length, s->length);
    assert_int_equal(r->label_tokens, s->label_tokens);
    assert_int_equal(r->documents, s->documents);
    assert_int_equal(r->document != NULL, s->documents > 1);
    assert_int_equal((uintptr_t)r->sources % 8, 0);
    for (size_t i = 0; i < s->length; i++) {
        assert_int_equal(r->ids[i], s->tokens[i] & ZF_TOKEN_ID);
        assert_int_equal(r->target[i], s->expected[i]);
        if (r->document) assert_int_equal(r->document[i], s->document[i]);
    }
    assert_memory_equal(r->sources, s->sources, s->documents * sizeof *s->sources);
}

static struct zf_rows write_rows(const char *path, const struct sample *s, size_t count)
{
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_rows r;
    struct zf_data_stats stats = {.records = 11, .duplicates = 99, .rows = 99, .first_bad = {.line = 5, .file = 1}};
    assert_int_equal(zf_rows_create(&w, path, key, &e), ZF_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(zf_rows_add(w, s[i].tokens, s[i].own ? s[i].targets : NULL, s[i].length, s[i].sources, s[i].documents, &e), ZF_OK);
        assert_int_equal(zf_rows_document(w, i / 2, &e), ZF_OK);
    }
    assert_int_equal(zf_rows_finish(w, &stats, &r, &e), ZF_OK);
    return r;
}

static size_t files_in_folder(void)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) n += strcmp(f->d_name, ".") && strcmp(f->d_name, "..");
    closedir(d);
    return n;
}

static void test_round_trip(void **state)
{
    enum { ROWS = 200 };
    (void)state;
    struct zf_err e = {0};
    struct sample *s = calloc(ROWS, sizeof *s);
    uint64_t tokens = 0, labels = 0, longest = 0;
    for (size_t i = 0; i < ROWS; i++) {
        make_sample(&s[i], i < 40 ? i + 1 : 1 + draw(i % 10 ? 20 : MOST)); /* first, a buffer that grows by one */
        tokens += s[i].length;
        labels += s[i].label_tokens;
        if (s[i].length > longest) longest = s[i].length;
    }
    const char *path = in_folder("trip.rows");
    bool damaged;
    struct zf_rows rows[3] = {write_rows(path, s, ROWS), write_rows(NULL, s, ROWS)};
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(zf_rows_open(&rows[2], path, key, &damaged, &e), ZF_OK);
    assert_false(damaged);
    assert_false(rows[0].in_memory);
    assert_true(rows[1].in_memory);
    struct zf_row_buffer b = {0};
    for (size_t k = 0; k < 3; k++) {
        struct zf_row row;
        struct zf_row_place places[ROWS];
        assert_true(rows[k].fd >= 0);
        assert_int_equal(rows[k].rows, ROWS);
        const struct zf_data_stats *st = &rows[k].stats;
        assert_int_equal(st->records, 11);
        assert_int_equal(st->first_bad.line, 5);
        assert_int_equal(st->rows, ROWS);
        assert_int_equal(st->tokens, tokens);
        assert_int_equal(st->label_tokens, labels);
        assert_int_equal(st->longest_row, longest);
        assert_int_equal(st->duplicates, ROWS / 2);
        for (size_t i = 0; i < ROWS; i++) {
            size_t at = k ? ROWS - 1 - i : i;
            assert_int_equal(zf_rows_read(&rows[k], at, &b, &row, &e), ZF_OK);
            assert_row(&row, &s[at]);
        }
        assert_int_equal(zf_rows_places(&rows[k], 3, ROWS - 3, places, &e), ZF_OK);
        for (size_t i = 3; i < ROWS; i++) {
            const struct zf_row_place *p = &places[i - 3];
            assert_int_equal(p->length, s[i].length);
            assert_int_equal(p->label_tokens, s[i].label_tokens);
            assert_int_equal(p->documents, s[i].documents | (s[i].own ? ZF_ROW_TARGETS : 0));
        }
        assert_int_equal(zf_rows_places(&rows[k], ROWS, 0, places, &e), ZF_OK);
        assert_int_equal(zf_rows_places(&rows[k], ROWS - 1, 2, places, &e), ZF_USAGE);
        assert_int_equal(zf_rows_places(&rows[k], UINT64_MAX, 2, places, &e), ZF_USAGE);
        assert_int_equal(zf_rows_read(&rows[k], ROWS, &b, &row, &e), ZF_USAGE);
        zf_rows_close(&rows[k]);
        assert_int_equal(rows[k].fd, -1);
    }
    zf_row_buffer_free(&b);
    free(s);
}

static unsigned char *bytes_of(int fd, size_t size)
{
    unsigned char *data = malloc(size);
    assert_non_null(data);
    assert_int_equal(pread(fd, data, size, 0), size);
    return data;
}

static void test_same_calls_same_bytes(void **state)
{
    enum { ROWS = 2000 }; /* more than a buffer of places */
    (void)state;
    struct sample *s = calloc(ROWS, sizeof *s);
    for (size_t i = 0; i < ROWS; i++) make_sample(&s[i], 1 + draw(MOST));
    struct zf_rows a = write_rows(in_folder("same.rows"), s, ROWS), b = write_rows(in_folder("same.rows"), s, ROWS),
                   c = write_rows(NULL, s, ROWS);
    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(a.bytes, c.bytes);
    unsigned char *x = bytes_of(a.fd, a.bytes), *y = bytes_of(b.fd, b.bytes), *z = bytes_of(c.fd, c.bytes);
    assert_memory_equal(x, y, a.bytes);
    assert_memory_equal(x, z, a.bytes);
    free(x);
    free(y);
    free(z);
    zf_rows_close(&a);
    zf_rows_close(&b);
    zf_rows_close(&c);
    free(s);
}

static uint64_t content_of(const char *path, const struct sample *s, size_t count)
{
    struct zf_rows r = write_rows(path, s, count);
    uint64_t content = r.content;
    zf_rows_close(&r);
    return content;
}

/* What the rows hold, and not where they are kept or where they come from. */
static void test_content(void **state)
{
    enum { ROWS = 20 };
    (void)state;
    bool damaged;
    struct zf_err e;
    struct zf_rows kept;
    struct sample *s = calloc(ROWS, sizeof *s), was;
    for (size_t i = 0; i < ROWS; i++) make_sample(&s[i], 2 + draw(MOST - 1));
    for (size_t i = 0; i < ROWS; i++) s[i].own = i % 2;
    const uint64_t right = content_of(in_folder("content.rows"), s, ROWS);
    assert_int_equal(zf_rows_open(&kept, in_folder("content.rows"), key, &damaged, &e), ZF_OK);
    assert_int_equal(kept.content, right);
    zf_rows_close(&kept);
    for (size_t i = 0; i < ROWS; i++) s[i].sources[0].line++, s[i].sources[0].file++;
    assert_int_equal(content_of(NULL, s, ROWS), right);
    assert_int_not_equal(content_of(NULL, s, ROWS - 1), right);
    for (size_t i = 0; i < ROWS; i++) { /* another id, another mark, another target; a target that a row does not use */
        was = s[i];
        s[i].tokens[1] ^= 1;
        assert_int_not_equal(content_of(NULL, s, ROWS), right);
        s[i] = was;
        s[i].tokens[1] ^= ZF_TOKEN_TRAINED;
        assert_int_not_equal(content_of(NULL, s, ROWS), right);
        s[i] = was;
        s[i].targets[0]++;
        assert_int_equal(content_of(NULL, s, ROWS) != right, s[i].own);
        s[i] = was;
    }
    was = s[0];
    s[0] = s[2];
    s[2] = was;
    assert_int_not_equal(content_of(NULL, s, ROWS), right);
    free(s);
}

static void test_long_row(void **state)
{
    enum { LONG = 131072 };
    (void)state;
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_rows r;
    struct zf_row row;
    struct zf_row_buffer b = {0};
    uint32_t *tokens = malloc(LONG * sizeof *tokens);
    for (size_t i = 0; i < LONG; i++) tokens[i] = (uint32_t)i | (i ? (uint32_t)ZF_TOKEN_TRAINED : ZF_TOKEN_FIRST);
    struct zf_source source = {.line = 1, .tokens = LONG};
    struct zf_data_stats stats = {0};
    assert_int_equal(zf_rows_create(&w, NULL, key, &e), ZF_OK);
    for (size_t i = 0; i < 3; i++) assert_int_equal(zf_rows_add(w, tokens, NULL, LONG, &source, 1, &e), ZF_OK);
    assert_int_equal(zf_rows_finish(w, &stats, &r, &e), ZF_OK);
    assert_int_equal(zf_rows_read(&r, 2, &b, &row, &e), ZF_OK);
    assert_int_equal(row.length, LONG);
    assert_null(row.document);
    assert_int_equal(row.target[LONG - 2], LONG - 1);
    assert_int_equal(row.target[LONG - 1], -1);
    zf_rows_close(&r);
    zf_row_buffer_free(&b);
    free(tokens);
}

static void test_what_is_no_row(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    const uint32_t tokens[3] = {ZF_TOKEN_FIRST, 1 | ZF_TOKEN_TRAINED, 2};
    const int32_t below[3] = {-2, 1, -1};
    const struct zf_source sources[4] = {{.tokens = 3}, {.tokens = 0}, {.tokens = 0}, {.tokens = 0}};
    const struct zf_source little = {.tokens = 2};
    const unsigned char *k = key;
    assert_int_equal(zf_rows_create(&w, in_folder("none.rows"), k, &e), ZF_OK);
    assert_int_equal(zf_rows_add(w, tokens, NULL, 0, sources, 1, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, NULL, (size_t)1 << 31, sources, 1, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, below, 3, sources, 1, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, NULL, 3, sources, 0, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, NULL, 3, sources, 4, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, NULL, 3, &little, 1, &e), ZF_FORMAT);
    assert_int_equal(zf_rows_add(w, tokens, NULL, 3, sources, 1, &e), ZF_OK);
    zf_rows_discard(w);
    zf_rows_discard(NULL);
    assert_int_equal(access(in_folder("none.rows"), F_OK), -1);
    assert_int_equal(zf_rows_create(&w, in_folder("no/such/folder.rows"), k, &e), ZF_IO);
    assert_null(w);
}

static void test_absent(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct sample s;
    struct zf_rows r;
    bool damaged = true;
    make_sample(&s, 9);
    const char *path = in_folder("absent.rows");
    assert_int_equal(zf_rows_open(&r, path, key, &damaged, &e), ZF_OK);
    assert_true(r.fd < 0 && !damaged);
    r = write_rows(path, &s, 1);
    zf_rows_close(&r);
    assert_int_equal(zf_rows_open(&r, path, other_key, &damaged, &e), ZF_OK);
    assert_true(r.fd < 0 && !damaged);
    zf_rows_close(&r); /* fine */
    assert_int_equal(zf_rows_open(&r, in_folder("absent.rows/x"), key, &damaged, &e), ZF_OK);
    assert_true(r.fd < 0 && !damaged);
    assert_int_equal(zf_rows_open(&r, folder, key, &damaged, &e), ZF_IO);
    const char *fifo = in_folder("fifo.rows");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(zf_rows_open(&r, fifo, key, &damaged, &e), ZF_IO);
    assert_true(r.fd < 0);
    r = write_rows(path, &s, 0);
    zf_rows_close(&r);
    assert_int_equal(zf_rows_open(&r, path, key, &damaged, &e), ZF_OK);
    assert_true(r.fd >= 0 && !r.rows);
    zf_rows_close(&r);
}

/* Opens and reads everything; true: all of it is found good. */
static bool all_good(const char *path, size_t rows, struct zf_row_buffer *b, bool *damaged)
{
    struct zf_err e = {0};
    struct zf_rows r;
    struct zf_row row;
    assert_int_equal(zf_rows_open(&r, path, key, damaged, &e), ZF_OK);
    if (r.fd < 0) return false;
    assert_int_equal(r.rows, rows);
    bool good = true;
    for (size_t i = 0; i < rows; i++) {
        enum zf_status s = zf_rows_read(&r, i, b, &row, &e);
        assert_true(s == ZF_OK || (s == ZF_IO && strstr(e.message, "damaged") && strstr(e.where, ".rows")));
        good &= s == ZF_OK;
    }
    zf_rows_close(&r);
    return good;
}

static void test_every_byte_counts(void **state)
{
    enum { ROWS = 6 };
    (void)state;
    struct sample s[ROWS];
    struct zf_row_buffer b = {0};
    const char *path = in_folder("flip.rows");
    for (size_t i = 0; i < ROWS; i++) make_sample(&s[i], 1 + draw(9));
    struct zf_rows r = write_rows(path, s, ROWS);
    size_t size = r.bytes;
    unsigned char *data = bytes_of(r.fd, size);
    zf_rows_close(&r);
    bool damaged;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_true(all_good(path, ROWS, &b, &damaged));
    for (size_t at = 0; at < size; at++) {
        static const unsigned char flips[] = {1, 0x80, 0xFF};
        for (size_t k = 0; k < sizeof flips; k++) {
            unsigned char changed = data[at] ^ flips[k];
            assert_int_equal(pwrite(fd, &changed, 1, (off_t)at), 1);
            assert_false(all_good(path, ROWS, &b, &damaged));
            bool version = at >= 8 && at < 12, in_rows = at >= ZF_ROWS_HEADER && at < size - ROWS * sizeof(struct zf_row_place);
            assert_int_equal(damaged, !version && !in_rows);
        }
        assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
    }
    assert_true(all_good(path, ROWS, &b, &damaged));
    assert_int_equal(pwrite(fd, "", 1, (off_t)size), 1); /* a byte too much */
    assert_false(all_good(path, ROWS, &b, &damaged));
    assert_true(damaged);
    for (size_t cut = size; cut--;) {
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
        assert_false(all_good(path, ROWS, &b, &damaged));
        assert_true(damaged);
    }
    close(fd);
    free(data);
    zf_row_buffer_free(&b);
}

/* A file whose checks are right and whose numbers are not. */
struct crafted {
    struct zf_rows_header h;
    uint32_t tokens[4];
    int32_t targets[4];
    struct zf_source sources[2];
    struct zf_row_place place;
};

static bool crafted_is_read(struct crafted *c, bool *damaged)
{
    struct zf_row_buffer b = {0};
    size_t bytes = offsetof(struct crafted, place) - offsetof(struct crafted, tokens);
    if (!c->place.check) c->place.check = (uint32_t)XXH3_64bits(c->tokens, bytes);
    c->h.index_hash = XXH3_64bits(&c->place, sizeof c->place);
    c->h.hash = XXH3_64bits(&c->h, offsetof(struct zf_rows_header, hash));
    const char *path = in_folder("crafted.rows");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, c, sizeof *c), sizeof *c);
    close(fd);
    bool read = all_good(path, 1, &b, damaged);
    zf_row_buffer_free(&b);
    return read;
}

static struct crafted craft(void)
{
    struct crafted c = {.h = {.version = ZF_ROWS_VERSION,
                              .head = ZF_ROWS_HEADER,
                              .rows = 1,
                              .index = offsetof(struct crafted, place),
                              .bytes = sizeof c,
                              .stats = {.rows = 1, .tokens = 4, .label_tokens = 2, .longest_row = 4}},
                        .tokens = {1 | ZF_TOKEN_FIRST, 2, 3 | ZF_TOKEN_FIRST, 4},
                        .targets = {2, -1, 4, -1},
                        .sources = {{.line = 1, .tokens = 2}, {.line = 2, .tokens = 2}},
                        .place = {.offset = ZF_ROWS_HEADER, .length = 4, .label_tokens = 2, .documents = 2 | ZF_ROW_TARGETS}};
    memcpy(c.h.magic, ZF_ROWS_MAGIC, 8);
    memcpy(c.h.key, key, 16);
    return c;
}

static void test_hostile(void **state)
{
    (void)state;
    bool damaged;
    struct crafted c = craft();
    assert_true(crafted_is_read(&c, &damaged));
#define REFUSED(change) \
    do { \
        c = craft(); \
        change; \
        assert_false(crafted_is_read(&c, &damaged)); \
    } while (0)
    REFUSED(c.h.rows = 2);
    REFUSED(c.h.rows = 0);
    REFUSED(c.h.rows = UINT64_MAX / 24 + 2);
    REFUSED(c.h.rows = UINT64_MAX);
    REFUSED(c.h.index = 0);
    REFUSED(c.h.index = UINT64_MAX);
    REFUSED(c.h.bytes = UINT64_MAX);
    REFUSED(c.h.head = 0);
    REFUSED(c.h.stats.rows = 2);
    REFUSED(c.h.stats.tokens = 5);
    REFUSED(c.h.stats.longest_row = 3);
    REFUSED(c.place.offset = 0);
    REFUSED(c.place.offset = UINT64_MAX - 3);
    REFUSED(c.place.offset = ZF_ROWS_HEADER + 4);
    REFUSED(c.place.length = c.h.stats.tokens = c.h.stats.longest_row = UINT32_MAX);
    REFUSED(c.place.length = c.h.stats.tokens = c.h.stats.longest_row = INT32_MAX);
    REFUSED(c.place.length = c.h.stats.tokens = c.h.stats.longest_row = 0);
    REFUSED(c.place.label_tokens = c.h.stats.label_tokens = 5);
    REFUSED(c.place.documents = ZF_ROW_TARGETS);
    REFUSED(c.place.documents = 3 | ZF_ROW_TARGETS);
    REFUSED(c.place.documents = UINT32_MAX);
    REFUSED(c.place.documents = 2);
    REFUSED(c.place.check = 1);
#undef REFUSED
}

static void test_changed_while_open(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_row row;
    struct zf_row_buffer b = {0};
    struct sample s[2];
    make_sample(&s[0], 20);
    make_sample(&s[1], 20);
    const char *path = in_folder("open.rows");
    struct zf_rows r = write_rows(path, s, 2);
    int fd = open(path, O_RDWR);
    uint32_t huge = UINT32_MAX;
    assert_int_equal(pwrite(fd, &huge, 4, (off_t)r.index + 8), 4); /* the length of row 0 */
    assert_int_equal(zf_rows_read(&r, 0, &b, &row, &e), ZF_IO);
    assert_non_null(strstr(e.where, "open.rows"));
    assert_int_equal(zf_rows_read(&r, 1, &b, &row, &e), ZF_OK);
    assert_int_equal(ftruncate(fd, (off_t)r.index), 0);
    assert_int_equal(zf_rows_read(&r, 1, &b, &row, &e), ZF_IO);
    assert_non_null(strstr(e.message, "it ends after"));
    close(fd);
    zf_rows_close(&r);
    zf_row_buffer_free(&b);
}

/* The whole of a writer's life with room for `limit` bytes in a file. */
static enum zf_status write_within(rlim_t limit, const char *path, size_t rows, const struct sample *s, struct zf_err *e)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit small = {.rlim_cur = limit, .rlim_max = old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN); /* the write fails instead */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct zf_rows_writer *w;
    struct zf_rows r = {.fd = -1};
    const struct zf_data_stats stats = {0};
    enum zf_status status = zf_rows_create(&w, path, key, e);
    assert_int_equal(status, ZF_OK);
    for (size_t i = 0; !status && i < rows; i++) {
        status = zf_rows_add(w, s->tokens, NULL, s->length, s->sources, s->documents, e);
        if (!status) status = zf_rows_document(w, i, e);
    }
    if (status)
        zf_rows_discard(w);
    else
        status = zf_rows_finish(w, &stats, &r, e);
    assert_int_equal(r.fd >= 0, status == ZF_OK);
    zf_rows_close(&r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    return status;
}

static void test_full_disk(void **state)
{
    enum { ROWS = 20000 };
    (void)state;
    struct sample s;
    make_sample(&s, 100);
    s.own = false;
    size_t files = files_in_folder(), row_bytes = s.length * 4 + s.documents * sizeof *s.sources;
    const rlim_t rows_end = ZF_ROWS_HEADER + ROWS * row_bytes, end = rows_end + ROWS * sizeof(struct zf_row_place);
    const rlim_t limits[] = {0, 100, 8 * ROWS - 1, 24 * ROWS - 1, 1 << 20, rows_end - 1, rows_end + 100, end - 1};
    const char *path = in_folder("full.rows");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        for (int memory = 0; memory < 2; memory++) {
            struct zf_err e = {0};
            assert_int_equal(write_within(limits[i], memory ? NULL : path, ROWS, &s, &e), ZF_IO);
            assert_non_null(strstr(e.message, strerror(EFBIG)));
            assert_int_equal(files_in_folder(), files);
        }
    }
    struct zf_err e = {0};
    assert_int_equal(write_within(end, path, ROWS, &s, &e), ZF_OK);
    assert_int_equal(files_in_folder(), files + 1);
}

static void test_memory_stays(void **state)
{
    enum { ROWS = 300000 };
    (void)state;
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_rows r;
    const uint32_t tokens[2] = {ZF_TOKEN_FIRST, 1};
    const struct zf_source source = {.line = 1, .tokens = 2};
    const struct zf_data_stats stats = {0};
    assert_int_equal(zf_rows_create(&w, in_folder("many.rows"), key, &e), ZF_OK);
    size_t before = mallinfo2().uordblks;
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_int_equal(zf_rows_add(w, tokens, NULL, 2, &source, 1, &e), ZF_OK);
        assert_int_equal(zf_rows_document(w, i * 0x9E3779B97F4A7C15u, &e), ZF_OK);
    }
    assert_int_equal(mallinfo2().uordblks, before);
    assert_int_equal(zf_rows_finish(w, &stats, &r, &e), ZF_OK);
    assert_int_equal(r.stats.duplicates, 0);
    zf_rows_close(&r);
    bool damaged;
    assert_int_equal(zf_rows_open(&r, in_folder("many.rows"), key, &damaged, &e), ZF_OK); /* an index of many blocks */
    assert_int_equal(r.rows, ROWS);
    zf_rows_close(&r);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_duplicates(void **state)
{
    enum { MOST_HASHES = 30000 };
    static const struct {
        size_t count;
        uint64_t mask, set;
    } cases[] = {
        {0, 0, 0},
        {1, 0, 0},
        {2, 0, 0}, /* two zeros */
        {20000, 0, 0},
        {20000, 0, UINT64_MAX},
        {MOST_HASHES, UINT64_MAX, 0},
        {20000, 0xFFF, 0},                       /* all at one end */
        {20000, 0xFFF, ~(uint64_t)0xFFF},        /* and at the other */
        {20000, 0x3FFF, (uint64_t)0x1234 << 40}, /* in a narrow range */
        {20000, (uint64_t)0xFFF << 52, 0},       /* equal low bits */
    };
    static uint64_t hashes[MOST_HASHES];
    static const size_t memory[] = {0, 1000, 30000, 60 << 20};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *path = in_folder("hashes");
        struct zf_err e = {0};
        size_t n = cases[c].count;
        uint64_t expected = 0, found;
        for (size_t i = 0; i < n; i++) {
            struct zf_u32x4 r = zf_philox(3, c, draw(2) ? i : i / 2);
            hashes[i] = (((uint64_t)r.v[1] << 32 | r.v[0]) & cases[c].mask) | cases[c].set;
        }
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, hashes, n * sizeof *hashes), n * sizeof *hashes);
        qsort(hashes, n, sizeof *hashes, compare);
        for (size_t i = 1; i < n; i++) expected += hashes[i] == hashes[i - 1];
        for (size_t m = 0; m < sizeof memory / sizeof *memory; m++) {
            if (!memory[m] && n > 1000 && cases[c].mask == UINT64_MAX) continue; /* thousands of passes */
            assert_int_equal(zf_rows_duplicates(fd, n, memory[m], &found, &e), ZF_OK);
            assert_int_equal(found, expected);
        }
        assert_int_equal(zf_rows_duplicates(fd, n + 2, 1000, &found, &e), ZF_IO);
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_same_calls_same_bytes),
        cmocka_unit_test(test_long_row),   cmocka_unit_test(test_what_is_no_row),
        cmocka_unit_test(test_absent),     cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_changed_while_open),
        cmocka_unit_test(test_full_disk),  cmocka_unit_test(test_memory_stays),
        cmocka_unit_test(test_duplicates), cmocka_unit_test(test_content),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
