/* Packing against a reference that is written to be seen through: rows are lists of pieces, looked at from the oldest open one on. */
#include "tests/data/support.h"

#include "core/base/rng.h"
#include "core/data/pack.h"

#include <malloc.h>

static const unsigned char key[16] = "sixteen bytes.."; /* any */

static uint64_t drawn;
static uint32_t draw(uint32_t below)
{
    return zf_philox(11, 1, drawn++).v[0] % below;
}

struct documents { /* tokens of document d: all[begin[d]] .. all[begin[d + 1]] */
    uint32_t *all;
    size_t *begin, count;
};

static struct zf_source source_of(size_t document)
{
    return (struct zf_source){.line = 10 * document + 3, .file = (uint32_t)(document % 3)};
}

static struct documents make_documents(size_t count, size_t longest)
{
    struct documents d = {calloc(count * longest, sizeof *d.all), calloc(count + 1, sizeof *d.begin), count};
    for (size_t i = 0; i < count; i++) {
        uint32_t *t = d.all + d.begin[i];
        size_t n = 1 + draw(draw(4) ? (uint32_t)longest / 3 : (uint32_t)longest);
        unsigned trained = draw(5); /* of 4; 0: none at all */
        if (i && !draw(6)) {        /* the one before once more */
            n = d.begin[i] - d.begin[i - 1];
            memcpy(t, d.all + d.begin[i - 1], n * sizeof *t);
        } else {
            for (size_t k = 0; k < n; k++) t[k] = draw(1000) | (k && draw(4) < trained ? (uint32_t)ZF_TOKEN_TRAINED : 0);
            t[0] |= ZF_TOKEN_FIRST;
        }
        d.begin[i + 1] = d.begin[i] + n;
    }
    return d;
}

static void free_documents(struct documents *d)
{
    free(d->all);
    free(d->begin);
}

static void add_documents(struct zf_packer *p, const struct documents *d)
{
    struct zf_err e = {0};
    for (size_t i = 0; i < d->count; i++) {
        struct zf_source source = source_of(i);
        assert_int_equal(zf_packer_add(p, d->all + d->begin[i], d->begin[i + 1] - d->begin[i], &source, &e), ZF_OK);
    }
}

static struct zf_rows pack_all(const struct documents *d, size_t length, enum zf_long_rows policy, bool pack, struct zf_data_stats *stats)
{
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_packer *p;
    struct zf_rows r;
    *stats = (struct zf_data_stats){0};
    assert_int_equal(zf_rows_create(&w, NULL, key, &e), ZF_OK);
    assert_int_equal(zf_packer_new(&p, w, length, policy, pack, stats, &e), ZF_OK);
    add_documents(p, d);
    assert_int_equal(zf_packer_flush(p, &e), ZF_OK);
    zf_packer_free(p);
    assert_int_equal(zf_rows_finish(w, stats, &r, &e), ZF_OK);
    *stats = r.stats;
    return r;
}

struct piece {
    size_t document, at, length; /* tokens at .. at+length of the document */
    size_t row;
};

/* The rule, the slow way: which row each piece goes to. Returns the rows. */
static size_t reference(const struct documents *d, size_t length, enum zf_long_rows policy, bool pack, struct piece *out, size_t *pieces)
{
    size_t n = 0, rows = 0, first_open = 0, *used = calloc(d->all ? d->begin[d->count] : 1, sizeof *used);
    for (size_t i = 0; i < d->count; i++) {
        size_t size = d->begin[i + 1] - d->begin[i];
        if (size > length && (policy == ZF_LONG_ERROR || policy == ZF_LONG_DROP)) continue;
        for (size_t at = 0; at < size; at += length) {
            if (at && policy != ZF_LONG_SPLIT) break;
            size_t take = size - at > length ? length : size - at, row = rows;
            for (size_t k = rows; pack && k-- > first_open;) {
                if (used[k] + take <= length) row = k; /* the oldest is looked at last, and stays */
            }
            if (row == rows) {
                rows++;
                if (rows - first_open > ZF_PACK_WINDOW) first_open++;
            }
            used[row] += take;
            out[n++] = (struct piece){.document = i, .at = at, .length = take, .row = row};
        }
    }
    free(used);
    *pieces = n;
    return rows;
}

/* Every row against its pieces: nothing is missing, nothing comes twice, all in order. */
static void assert_rows(const struct zf_rows *r, const struct documents *d, const struct piece *pieces, size_t count, size_t length,
                        size_t rows)
{
    struct zf_err e = {0};
    struct zf_row_buffer b = {0};
    size_t seen = 0;
    assert_int_equal(r->rows, rows);
    for (size_t i = 0; i < rows; i++) {
        struct zf_row row;
        size_t at = 0, documents = 0;
        assert_int_equal(zf_rows_read(r, i, &b, &row, &e), ZF_OK);
        assert_true(row.length <= length);
        for (size_t k = 0; k < count; k++) {
            const struct piece *p = &pieces[k];
            if (p->row != i) continue;
            const uint32_t *t = d->all + d->begin[p->document] + p->at;
            struct zf_source source = source_of(p->document);
            source.tokens = (uint32_t)p->length;
            assert_true(documents < row.documents && at + p->length <= row.length);
            assert_memory_equal(&row.sources[documents], &source, sizeof source);
            for (size_t j = 0; j < p->length; j++) {
                bool scored = j + 1 < p->length && t[j + 1] & ZF_TOKEN_TRAINED; /* never the first of the next document */
                assert_int_equal(row.ids[at + j], t[j] & ZF_TOKEN_ID);
                assert_int_equal(row.target[at + j], scored ? (int64_t)(t[j + 1] & ZF_TOKEN_ID) : -1);
                assert_int_equal(row.document ? row.document[at + j] : 0, documents);
            }
            at += p->length;
            documents++;
            seen++;
        }
        assert_int_equal(at, row.length);
        assert_int_equal(documents, row.documents);
    }
    assert_int_equal(seen, count);
    zf_row_buffer_free(&b);
}

/* Counted anew from the documents and the pieces. */
static void assert_stats(const struct zf_data_stats *got, const struct documents *d, const struct piece *pieces, size_t count,
                         size_t length, enum zf_long_rows policy)
{
    struct zf_data_stats s = {.documents = d->count, .rows = got->rows, .longest_row = got->longest_row};
    uint64_t *counters[] = {&s.dropped, &s.truncated, &s.split, &s.dropped}, in = 0;
    for (size_t i = 0, k = 0; i < d->count; i++) {
        size_t size = d->begin[i + 1] - d->begin[i], bin = 0, labels = 0, kept = 0;
        struct zf_source at = source_of(i);
        while (size >> (bin + 1)) bin++;
        s.lengths[bin]++;
        in += size;
        if (size > s.longest_document) s.longest_document = size;
        if (size > length && !(*counters[policy])++) s.first_long = at;
        for (; k < count && pieces[k].document == i; k++) {
            for (size_t j = 1; j < pieces[k].length; j++) labels += (d->all[d->begin[i] + pieces[k].at + j] & ZF_TOKEN_TRAINED) != 0;
            kept += pieces[k].length;
        }
        if (kept && !labels && !s.unlabelled++) s.first_unlabelled = at;
        s.tokens += kept;
        s.label_tokens += labels;
        for (size_t j = 0; j < i; j++) {
            if (d->begin[j + 1] - d->begin[j] != size) continue;
            if (memcmp(d->all + d->begin[j], d->all + d->begin[i], size * sizeof *d->all)) continue;
            s.duplicates++;
            break;
        }
    }
    s.cut_tokens = in - s.tokens;
    assert_memory_equal(got, &s, sizeof s);
}

static void test_against_reference(void **state)
{
    static const struct {
        size_t count, longest, length;
    } cases[] = {{0, 10, 10}, {400, 40, 16}, {600, 12, 64}, {300, 30, 1}, {500, 100, 100}, {200, 500, 129}, {500, 64, 63}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct documents d = make_documents(cases[c].count, cases[c].longest);
        size_t length = cases[c].length, count;
        struct piece *pieces = calloc(d.begin[d.count] + 1, sizeof *pieces);
        for (enum zf_long_rows policy = ZF_LONG_ERROR; policy <= ZF_LONG_DROP; policy++) {
            for (int pack = 0; pack < 2; pack++) {
                struct zf_data_stats stats;
                struct zf_rows r = pack_all(&d, length, policy, pack, &stats);
                size_t rows = reference(&d, length, policy, pack, pieces, &count);
                assert_rows(&r, &d, pieces, count, length, rows);
                assert_stats(&stats, &d, pieces, count, length, policy);
                zf_rows_close(&r);
            }
        }
        free(pieces);
        free_documents(&d);
    }
}

/* Documents of the given lengths, each of them its number over and over; all trained. */
static struct documents documents_of(const char *lengths)
{
    int32_t n[256];
    struct documents d = {.count = numbers(lengths, n, 256)};
    d.begin = calloc(d.count + 1, sizeof *d.begin);
    for (size_t i = 0; i < d.count; i++) d.begin[i + 1] = d.begin[i] + (size_t)n[i];
    d.all = calloc(d.begin[d.count] + 1, sizeof *d.all);
    for (size_t i = 0; i < d.count; i++) {
        for (size_t k = d.begin[i]; k < d.begin[i + 1]; k++)
            d.all[k] = (uint32_t)i | (k == d.begin[i] ? ZF_TOKEN_FIRST : (uint32_t)ZF_TOKEN_TRAINED);
    }
    return d;
}

static void assert_packed(const char *lengths, enum zf_long_rows policy, bool pack, const char *const *rows, size_t count)
{
    struct zf_err e = {0};
    struct zf_row row;
    struct zf_row_buffer b = {0};
    struct zf_data_stats stats;
    struct documents d = documents_of(lengths);
    struct zf_rows r = pack_all(&d, 6, policy, pack, &stats);
    assert_int_equal(r.rows, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(zf_rows_read(&r, i, &b, &row, &e), ZF_OK);
        assert_numbers(row.ids, row.length, rows[i]);
    }
    zf_row_buffer_free(&b);
    zf_rows_close(&r);
    free_documents(&d);
}

#define ASSERT_PACKED(lengths, policy, pack, ...) \
    do { \
        const char *const rows_[] = {__VA_ARGS__}; \
        assert_packed(lengths, policy, pack, rows_, sizeof rows_ / sizeof *rows_); \
    } while (0)

static void test_by_hand(void **state)
{
    (void)state;
    ASSERT_PACKED("4 4 1 2 1 6 1", ZF_LONG_ERROR, true, "0 0 0 0 2 4", "1 1 1 1 3 3", "5 5 5 5 5 5", "6");
    ASSERT_PACKED("4 1 2", ZF_LONG_ERROR, false, "0 0 0 0", "1", "2 2");
    ASSERT_PACKED("3 8 3", ZF_LONG_ERROR, true, "0 0 0 2 2 2");
    ASSERT_PACKED("3 8 3", ZF_LONG_DROP, true, "0 0 0 2 2 2");
    ASSERT_PACKED("3 8 3", ZF_LONG_TRUNCATE, true, "0 0 0 2 2 2", "1 1 1 1 1 1");
    ASSERT_PACKED("3 8 3", ZF_LONG_SPLIT, true, "0 0 0 1 1", "1 1 1 1 1 1", "2 2 2");
    ASSERT_PACKED("3 8 3", ZF_LONG_SPLIT, false, "0 0 0", "1 1 1 1 1 1", "1 1", "2 2 2");
}

static void test_window(void **state)
{
    enum { FULL = ZF_PACK_WINDOW };
    char lengths[1024] = "";
    (void)state;
    /* Row 0 has room for one more until the window's last row is opened; then it is closed, and what would have fitted goes elsewhere. */
    for (int over = 0; over < 2; over++) {
        struct zf_err e = {0};
        struct zf_row row;
        struct zf_row_buffer b = {0};
        struct zf_data_stats stats;
        size_t n = 0;
        for (int i = 0; i < FULL + over; i++) n += (size_t)snprintf(lengths + n, sizeof lengths - n, "%d ", i ? 6 : 5);
        snprintf(lengths + n, sizeof lengths - n, "1");
        struct documents d = documents_of(lengths);
        struct zf_rows r = pack_all(&d, 6, ZF_LONG_ERROR, true, &stats);
        assert_int_equal(r.rows, FULL + 2 * over);
        assert_int_equal(zf_rows_read(&r, 0, &b, &row, &e), ZF_OK);
        assert_int_equal(row.length, 6 - over);
        zf_row_buffer_free(&b);
        zf_rows_close(&r);
        free_documents(&d);
    }
}

/* One document of `count` tokens, given in pieces of at most `most`, each of them as an encoder makes it. */
static void add_text(struct zf_packer *p, const uint32_t *ids, size_t count, uint32_t most, size_t document)
{
    struct zf_err e = {0};
    uint32_t *piece = calloc(count + 1, sizeof *piece);
    for (size_t at = 0, n; at < count || !count; at += n) {
        n = most ? draw(most + 1) : count;
        if (n > count - at) n = count - at;
        struct zf_source source = source_of(document);
        if (at) source.line += 100; /* where the piece begins; rows name the document */
        for (size_t i = 0; i < n; i++) piece[i] = ids[at + i] | (i ? (uint32_t)ZF_TOKEN_TRAINED : ZF_TOKEN_FIRST);
        bool last = at + n == count && (!most || draw(2));
        assert_int_equal(zf_packer_text(p, piece, n, last, &source, &e), ZF_OK);
        if (at + n == count && !last) assert_int_equal(zf_packer_text(p, NULL, 0, true, &source, &e), ZF_OK);
        if (!count) break;
    }
    free(piece);
}

static struct zf_rows pack_texts(const uint32_t *ids, const size_t *lengths, size_t count, size_t length, uint32_t most)
{
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_packer *p;
    struct zf_rows r;
    struct zf_data_stats stats = {0};
    assert_int_equal(zf_rows_create(&w, NULL, key, &e), ZF_OK);
    assert_int_equal(zf_packer_new(&p, w, length, ZF_LONG_ERROR, false, &stats, &e), ZF_OK);
    for (size_t i = 0; i < count; ids += lengths[i++]) add_text(p, ids, lengths[i], most, i);
    assert_int_equal(zf_packer_flush(p, &e), ZF_OK);
    zf_packer_free(p);
    assert_int_equal(zf_rows_finish(w, &stats, &r, &e), ZF_OK);
    return r;
}

static unsigned char *bytes_of(const struct zf_rows *r)
{
    unsigned char *data = malloc(r->bytes);
    assert_int_equal(pread(r->fd, data, r->bytes, 0), r->bytes);
    return data;
}

static void test_text(void **state)
{
    enum { LENGTH = 10 };
    static const size_t lengths[] = {25, 1, 0, 10, 11, 500, 25, 2};
    enum { COUNT = sizeof lengths / sizeof *lengths, ALL = 574 };
    (void)state;
    struct zf_err e = {0};
    struct zf_row row;
    struct zf_row_buffer b = {0};
    uint32_t ids[ALL];
    for (size_t i = 0; i < ALL; i++) ids[i] = draw(1000);
    memcpy(ids + 25 + 1 + 10 + 11 + 500, ids, 25 * sizeof *ids); /* document 6 is document 0 */
    struct zf_rows r = pack_texts(ids, lengths, COUNT, LENGTH, 0);
    size_t n = 0, at = 0;
    for (size_t i = 0; i < COUNT; at += lengths[i++]) {
        for (size_t k = 0; k < lengths[i]; k += LENGTH, n++) {
            size_t length = lengths[i] - k < LENGTH ? lengths[i] - k : LENGTH;
            assert_true(n < r.rows);
            assert_int_equal(zf_rows_read(&r, n, &b, &row, &e), ZF_OK);
            assert_int_equal(row.length, length);
            assert_int_equal(row.label_tokens, length - 1);
            assert_int_equal(row.documents, 1);
            assert_null(row.document);
            assert_int_equal(row.sources->line, source_of(i).line);
            assert_int_equal(row.sources->file, source_of(i).file);
            for (size_t j = 0; j < length; j++) {
                assert_int_equal(row.ids[j], ids[at + k + j]);
                assert_int_equal(row.target[j], j + 1 < length ? (int64_t)ids[at + k + j + 1] : -1);
            }
        }
    }
    assert_int_equal(r.rows, n);
    const struct zf_data_stats *s = &r.stats;
    assert_int_equal(s->documents, COUNT - 1);
    assert_int_equal(s->empty, 1);
    assert_int_equal(s->tokens, ALL);
    assert_int_equal(s->label_tokens, ALL - n);
    assert_int_equal(s->longest_document, 500);
    assert_int_equal(s->longest_row, LENGTH);
    assert_int_equal(s->duplicates, 1);
    assert_int_equal(s->unlabelled, 1);
    assert_int_equal(s->first_unlabelled.line, source_of(1).line);
    assert_int_equal(s->lengths[0], 1);
    assert_int_equal(s->lengths[3], 2);
    assert_int_equal(s->lengths[8], 1);
    assert_int_equal(s->truncated + s->split + s->dropped + s->cut_tokens, 0);
    unsigned char *whole = bytes_of(&r);
    for (uint32_t most = 1; most < 600; most = most * 2 + 1) { /* the same, however it comes */
        struct zf_rows other = pack_texts(ids, lengths, COUNT, LENGTH, most);
        assert_int_equal(other.bytes, r.bytes);
        unsigned char *bytes = bytes_of(&other);
        assert_memory_equal(bytes, whole, r.bytes);
        free(bytes);
        zf_rows_close(&other);
    }
    free(whole);
    zf_row_buffer_free(&b);
    zf_rows_close(&r);
}

static void test_long_rows_in_bounded_memory(void **state)
{
    enum { LONG = 131072, DOCUMENTS = 90 };
    (void)state;
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_packer *p;
    struct zf_rows r;
    struct zf_row row;
    struct zf_row_buffer b = {0};
    struct zf_data_stats stats = {0};
    uint32_t *tokens = malloc(LONG * sizeof *tokens);
    for (size_t i = 0; i < LONG; i++) tokens[i] = (uint32_t)i | (i ? (uint32_t)ZF_TOKEN_TRAINED : ZF_TOKEN_FIRST);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    assert_int_equal(zf_rows_create(&w, in_folder("long.rows"), key, &e), ZF_OK);
    assert_int_equal(zf_packer_new(&p, w, LONG, ZF_LONG_ERROR, true, &stats, &e), ZF_OK);
    for (size_t i = 0; i < DOCUMENTS; i++) { /* too long for two in a row */
        struct zf_source source = source_of(i);
        assert_int_equal(zf_packer_add(p, tokens, LONG - i, &source, &e), ZF_OK);
        assert_true(mallinfo2().uordblks + mallinfo2().hblkhd - before < (size_t)(ZF_PACK_WINDOW + 8) * LONG * sizeof *tokens);
    }
    assert_int_equal(zf_packer_flush(p, &e), ZF_OK);
    zf_packer_free(p);
    assert_int_equal(zf_rows_finish(w, &stats, &r, &e), ZF_OK);
    assert_int_equal(r.rows, DOCUMENTS);
    for (size_t i = 0; i < DOCUMENTS; i += DOCUMENTS - 1) {
        assert_int_equal(zf_rows_read(&r, i, &b, &row, &e), ZF_OK);
        assert_int_equal(row.length, LONG - i);
        assert_int_equal(row.label_tokens, LONG - i - 1);
        assert_int_equal(row.sources->line, source_of(i).line);
    }
    zf_row_buffer_free(&b);
    zf_rows_close(&r);
    free(tokens);
}

static void test_odd_requests(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_rows_writer *w;
    struct zf_packer *p;
    struct zf_data_stats stats = {0};
    struct zf_source source = {.line = 4, .file = 1 | ZF_SOURCE_CHOSEN};
    uint32_t token = 5 | ZF_TOKEN_FIRST;
    assert_int_equal(zf_rows_create(&w, NULL, key, &e), ZF_OK);
    assert_int_equal(zf_packer_new(&p, w, 0, ZF_LONG_ERROR, true, &stats, &e), ZF_USAGE);
    assert_int_equal(zf_packer_new(&p, w, (size_t)1 << 31, ZF_LONG_ERROR, true, &stats, &e), ZF_USAGE);
    assert_null(p);
    assert_int_equal(zf_packer_new(&p, w, INT32_MAX, ZF_LONG_ERROR, true, &stats, &e), ZF_OK); /* takes what it needs, no more */
    assert_int_equal(zf_packer_add(p, NULL, 0, &source, &e), ZF_OK);
    assert_int_equal(stats.empty, 1);
    assert_int_equal(stats.documents, 0);
    assert_int_equal(zf_packer_add(p, &token, 1, &source, &e), ZF_OK);
    assert_int_equal(stats.unlabelled, 1);
    assert_int_equal(stats.first_unlabelled.file, 1); /* a file, and nothing else */
    assert_int_equal(stats.first_unlabelled.line, 4);
    zf_packer_free(p); /* with a row open */
    zf_packer_free(NULL);
    zf_rows_discard(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_long_rows_in_bounded_memory),
        cmocka_unit_test(test_odd_requests),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
