/* Files -> records: every format, its broken forms, and that nothing depends on how the bytes arrive. */
#include "tests/data/support.h"
#include "tests/data/reader_log.h"

#include <sys/stat.h>
#include <time.h>

/* save() waits for the disk. */
static const char *put(const char *name, const char *text, size_t size)
{
    const char *path = in_folder(name);
    FILE *f = fopen(path, "w");
    assert_true(f && fwrite(text, 1, size, f) == size && !fclose(f));
    return path;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static const size_t blocks[] = {1, 2, 3, 5, 8, 64, 4096};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

static void sizes(size_t block, size_t limit, size_t piece)
{
    zf_reader_head = block < 1024 ? 10 : 1024;
    zf_reader_block = block;
    zf_reader_limit = limit;
    zf_reader_piece = piece;
}

static struct zf_reader_options options(enum zf_data_format format, const char *documents, const char *const *files, size_t count)
{
    return (struct zf_reader_options){.files = files, .file_count = count, .format = format, .documents = documents, .cut = cut_at_space};
}

/* Whatever the size of the reads. */
static void expect_files(const struct zf_reader_options *o, size_t limit, size_t piece, const char *expected)
{
    for (size_t b = 0; b < BLOCKS; b++) {
        struct zf_err e;
        sizes(blocks[b], limit, piece);
        char *said = reader_log(o, &e);
        assert_non_null(said);
        assert_string_equal(said, expected);
        free(said);
    }
}

static void expect_limited(enum zf_data_format format, const char *documents, const char *text, size_t size, size_t limit, size_t piece,
                           const char *expected)
{
    const char *file = put("x", text, size);
    const struct zf_reader_options o = options(format, documents, &file, 1);
    expect_files(&o, limit, piece, expected);
}

#define EXPECT(format, documents, text, expected) \
    expect_limited(ZF_DATA_##format, documents, text, sizeof(text) - 1, ZF_RECORD_LIMIT, ZF_TEXT_PIECE, expected)

static void test_lines(void **state)
{
    (void)state;
    EXPECT(JSONL, NULL, "{\"a\":1}\n{\"b\":2}\n", "1[{\"a\":1}]\n2[{\"b\":2}]\n");
    EXPECT(JSONL, NULL, "\xEF\xBB\xBF{}\r\n\r\n \t\n\n[1]\r\nx", "1[{}]\n5[[1]]\n6[x]\n");
    EXPECT(JSONL, NULL, "{}\r", "1[{}]\n");
    EXPECT(JSONL, NULL, "a\0b\n\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\n", "1[a\\x00b]\n2[\\xC3\\xA4\\xE2\\x82\\xAC\\xF0\\x9F\\x98\\x80]\n");
    EXPECT(JSONL, NULL, "", "empty files: 1\n");
    EXPECT(JSONL, NULL, "\xEF\xBB\xBF", "empty files: 1\n");
    EXPECT(JSONL, NULL, "\n \n\r\n", "empty files: 1\n");
    EXPECT(JSONL, NULL, "a\n\xC3\xA4 \xFF z\nb\n", "1[a]\n!x:2:3 byte 0xFF at offset 5 is no UTF-8\n3[b]\n");
    EXPECT(JSONL, NULL, "a\xE2\x82", "!x:1:2 byte 0xE2 at offset 1 is no UTF-8\n");
    EXPECT(JSONL, NULL, "a\xE2\x82\nb", "!x:1:2 byte 0xE2 at offset 1 is no UTF-8\n2[b]\n");
}

static void test_long_lines(void **state)
{
    (void)state;
    static const char *const said = "1[12345678]\n!x:2 the record has more than 0 MiB\n3[b]\n!x:4 the record has more than 0 MiB\n";
    static const char text[] = "12345678\r\n123456789\r\nb\n1234567890123456789012345678901234567890";
    expect_limited(ZF_DATA_JSONL, NULL, text, sizeof text - 1, 8, 8, said);
    static const char table[] = "a,b\n1,2\n\"123456789\n,\",2\n3,4\n\"12345678\n3,4\n";
    expect_limited(ZF_DATA_CSV, NULL, table, sizeof table - 1, 8, 8,
                   "2[1|2]\n!x:3 the record has more than 0 MiB\n5[3|4]\n!x:6 the record has more than 0 MiB\n");
    static const char header[] = "aaaaaaaaa,b\n1,2\n";
    expect_limited(ZF_DATA_CSV, NULL, header, sizeof header - 1, 8, 8, "!x:1 the record has more than 0 MiB\n");
    static const char array[] = "[1,\n\"123456789,]\\\"012345678\",\n{\"a\":\n[0,1,2,3,4]},123456789012345,3]";
    expect_limited(ZF_DATA_JSON, NULL, array, sizeof array - 1, 8, 8,
                   "1[1]\n!x:2 the record has more than 0 MiB\n!x:3 the record has more than 0 MiB\n!x:4 the record has more than 0 MiB\n"
                   "4[3]\n");
    static const char unended[] = "[[1,2,3,4,5,6,7";
    expect_limited(ZF_DATA_JSON, NULL, unended, sizeof unended - 1, 8, 8, "!x:1 the record has more than 0 MiB\n");
}

static void test_array(void **state)
{
    (void)state;
    EXPECT(JSON, NULL, "[]", "");
    EXPECT(JSON, NULL, " \n", "empty files: 1\n");
    EXPECT(JSON, NULL, "\xEF\xBB\xBF [\n {\"a\": \"]}\\\"\\\\\"},\r\n\n[[1], {}] ,\"x,y\", 12 ,null]\n\n",
           "2[{\"a\": \"]}\\\"\\\\\"}]\n4[[[1], {}]]\n4[\"x,y\"]\n4[12]\n4[null]\n");
    EXPECT(JSON, NULL, "[{\n\"a\":\n1},{}]", "1[{\\n\"a\":\\n1}]\n3[{}]\n");
    EXPECT(JSON, NULL, "{\"a\": 1}", "!x:1:1 the file begins with an object\n");
    EXPECT(JSON, NULL, "\n <!DOCTYPE html>", "!x:2:2 this is no data\n");
    EXPECT(JSON, NULL, "nothing", "!x:1:1 no `[` here\n");
    EXPECT(JSON, NULL, "[1\n2 {} \"a\"\"b\"]",
           "1[1]\n!x:2:1 expected `,` or `]` here: is a comma missing?\n2[2]\n"
           "!x:2:3 expected `,` or `]` here: is a comma missing?\n2[{}]\n"
           "!x:2:6 expected `,` or `]` here: is a comma missing?\n2[\"a\"]\n"
           "!x:2:9 expected `,` or `]` here: is a comma missing?\n2[\"b\"]\n");
    EXPECT(JSON, NULL, "[,1,\n,2,]",
           "!x:1:2 expected a record, found `,`: a comma too many\n1[1]\n"
           "!x:2:1 expected a record, found `,`: a comma too many\n2[2]\n"
           "!x:2:4 expected a record, found `]`: a comma too many before it\n");
    EXPECT(JSON, NULL, "[{\"a\":1}}, 2]", "1[{\"a\":1}]\n!x:1:9 expected `,` or `]`, found `}`: is a `{` missing before it?\n1[2]\n");
    EXPECT(JSON, NULL, "[1] x", "1[1]\n!x:1:5 text follows the array's end\n");
    EXPECT(JSON, NULL, "[1][2]", "1[1]\n!x:1:4 text follows the array's end\n");
    EXPECT(JSON, NULL, "[1,\n", "1[1]\n!x:2:1 the file ends inside its array\n");
    EXPECT(JSON, NULL, "[1,\n{\"a\": [1}", "1[1]\n!x:2:1 the file ends inside the record that begins here\n");
    EXPECT(JSON, NULL, "[1, \"abc", "1[1]\n!x:1:5 the file ends inside the record that begins here\n");
    EXPECT(JSON, NULL, "[tru", "1[tru]\n!x:1:5 the file ends inside its array\n");
    EXPECT(JSON, NULL, "[\"\xC3\xA4\xFF\",\n1]", "!x:1:4 byte 0xFF at offset 4 is no UTF-8\n2[1]\n");
}

static void test_tsv(void **state)
{
    (void)state;
    EXPECT(TSV, NULL, "\xEF\xBB\xBFsentence\tlabel\r\na \"b\t1\r\n\n\"c\"\t\n \t \n\t", "2[a \"b|1]\n4[\"c\"|]\n5[ | ]\n6[|]\n");
    EXPECT(TSV, NULL, "sentence\tlabel\na\tb\tc\nd\ne\tf\n",
           "!x:2 it has 3 fields, the header has 2 (sentence, label)\n!x:3 it has 1 field, the header has 2 (sentence, label)\n4[e|f]\n");
    EXPECT(TSV, NULL, "a\n x \n  \n\nb", "2[ x ]\n5[b]\n");
    EXPECT(TSV, NULL, "a\tb\n", "");
    EXPECT(TSV, NULL, "a\t\n1\t2\n", "!x:1 column 2 of the header has no name\n");
    EXPECT(TSV, NULL, "a\tb\ta\n1\t2\t3\n", "!x:1 two columns have the name 'a'\n");
    EXPECT(TSV, NULL, "a\0\tb\n1\t2\n", "!x:1 the name of column 1 has a NUL byte\n");
    EXPECT(TSV, NULL, "a\xFF\tb\n1\t2\n", "!x:1:2 byte 0xFF at offset 1 is no UTF-8\n");
    EXPECT(TSV, NULL, "\n\r\n", "empty files: 1\n");
}

static void test_csv(void **state)
{
    (void)state;
    EXPECT(CSV, NULL, "\xEF\xBB\xBF\"te\"\"xt\",label\r\n\"a,\r\n\"\"b\"\"\",\"\"\r\nc\"d\"\"\" , e \r\n\r\n\"\",",
           "2[a,\\r\\n\"b\"|]\n4[c\"d\"\"\" | e ]\n6[|]\n");
    EXPECT(CSV, NULL, "a\n\"\"\n \t\n\"\"\"\"\"\"\n\"x\"\r", "2[]\n4[\"\"]\n5[x]\n");
    EXPECT(CSV, NULL, "a,b\n\"x\"y,\"1\"\n\n\"1\" ,2\n\"1\"\r,2\n3,\"4\"\r\n",
           "!x:2:4 text follows a closed quote\n!x:4:4 text follows a closed quote\n!x:5:5 text follows a closed quote\n6[3|4]\n");
    EXPECT(CSV, NULL, "a,b\n\"x\"y \"z,\"1\n2\"\n5,6\n", "!x:2:4 text follows a closed quote\n4[5|6]\n");
    EXPECT(CSV, NULL, "a,b\n1,2\n\"x\n,y\",\"z\n3,4\n",
           "2[1|2]\n!x:4:5 the quote that opens here is never closed, and the file ends inside "
           "it\n");
    EXPECT(CSV, NULL, "a,b\n1,2,3\n4\n5,\"6,\n7\"\n",
           "!x:2 it has 3 fields, the header has 2 (a, b)\n!x:3 it has 1 field, the header has 2 (a, b)\n4[5|6,\\n7]\n");
    EXPECT(CSV, NULL, ",text\n0,a\n", "!x:1 column 1 of the header has no name\n");
    EXPECT(CSV, NULL, "\"a\",\"b\n\"", "");
    EXPECT(CSV, NULL, "\"a", "!x:1:1 the quote that opens here is never closed, and the file ends inside it\n");
    EXPECT(CSV, NULL, "\"a\"b,c\n1,2\n", "!x:1:4 text follows a closed quote\n");
    EXPECT(CSV, NULL, "<!DOCTYPE html>\n<html>", "!x:1:1 this is no data\n");
}

static void test_columns(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_text header = {0}, into = {0};
    for (int i = 0; i <= ZF_COLUMNS_MOST; i++) {
        char name[16];
        assert_int_equal(zf_text_add(&header, name, (size_t)sprintf(name, "%sc%d", i ? "," : "", i), &e), ZF_OK);
    }
    EXPECT(CSV, NULL, "one", "");
    const char *files[] = {put("many", header.data, header.size), put_text("a", "x,y\n1,2\n"), put_text("b", "x,y\n3,4\n"),
                           put_text("c", "y\n5\n")};
    sizes(4096, ZF_RECORD_LIMIT, ZF_TEXT_PIECE);
    const struct zf_reader_options o = options(ZF_DATA_CSV, NULL, files, 4);
    struct zf_reader *r;
    struct zf_record record[4];
    bool more;
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_OK);
    assert_int_equal(zf_reader_next(r, &into, &record[0], &more, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "4097 columns"));
    for (int i = 1; i < 4; i++) {
        assert_int_equal(zf_reader_next(r, &into, &record[i], &more, &e), ZF_OK);
        assert_true(more);
        assert_int_equal(record[i].file, i);
    }
    assert_int_equal(record[1].columns->count, 2);
    assert_ptr_equal(record[1].columns, record[2].columns);
    assert_string_equal(record[1].columns->names[1], "y");
    assert_int_equal(record[3].columns->count, 1);
    assert_int_equal(zf_reader_next(r, &into, &record[0], &more, &e), ZF_OK);
    assert_false(more);
    assert_int_equal(zf_reader_bytes(r), header.size + 8 + 8 + 4);
    zf_reader_close(r);
    free(header.data);
    free(into.data);
}

static void test_fields_that_no_reader_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a", "a,b,c", "\"a,b", "\"a\"x,b", "a,\"", "a,b,"};
    const char *texts[2];
    size_t lengths[2];
    char room[8];
    struct zf_err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(zf_csv_fields(ZF_DATA_CSV, bad[i], strlen(bad[i]), 2, texts, lengths, room, &e), ZF_FORMAT);
}

/* Where records begin, so that whoever parses them can say where they are broken; what is left out of a document that was begun. */
static void test_columns_of_records(void **state)
{
    (void)state;
    static const struct {
        enum zf_data_format format;
        const char *text, *columns;
    } cases[] = {{ZF_DATA_JSON, "[{}, {\"\xC3\xA4\":1},{}\n,  {}]", "1:2 1:6 1:14 2:4 "},
                 {ZF_DATA_JSONL, "{}\n {}\n", "1:1 2:1 "},
                 {ZF_DATA_TEXT, "ab cd ef gh", "1:1 1:7 "}};
    struct zf_err e;
    sizes(4, ZF_RECORD_LIMIT, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_reader *r;
        struct zf_record record;
        struct zf_text into = {0};
        bool more = true;
        char said[64];
        size_t n = 0;
        const char *file = put_text("x", cases[i].text);
        const struct zf_reader_options o = options(cases[i].format, "file", &file, 1);
        assert_int_equal(zf_reader_open(&r, &o, &e), ZF_OK);
        while (zf_reader_next(r, &into, &record, &more, &e) == ZF_OK && more)
            n += (size_t)snprintf(said + n, sizeof said - n, "%d:%d ", (int)record.line, (int)record.column);
        assert_false(more);
        assert_string_equal(said, cases[i].columns);
        zf_reader_close(r);
        free(into.data);
    }
    static const char *const broken[] = {"ab cd ef\xFF", "ab\xFF"}, *const left[] = {"to leave the rest of the document out",
                                                                                     "to leave the document out"};
    for (size_t i = 0; i < 2; i++) {
        const char *file = put_text("x", broken[i]);
        const struct zf_reader_options o = options(ZF_DATA_TEXT, "file", &file, 1);
        char *said = reader_log(&o, &e);
        assert_non_null(strstr(e.message, left[i]));
        free(said);
    }
}

static void test_files(void **state)
{
    (void)state;
    EXPECT(TEXT, "file", "a\r\n\n b\n", "1[a\\r\\n\\n b\\n]\n");
    EXPECT(TEXT, "file", "\xEF\xBB\xBF", "empty files: 1\n");
    EXPECT(TEXT, "file", " \n", "1[ \\n]\n");
    EXPECT(TEXT, "file", "ab\n\xC3\xA4\xC3", "!x:2:2 byte 0xC3 at offset 5 is no UTF-8\n");
    const char *files[] = {put_text("a", "x"), put_text("b", ""), put_text("c", "\xEF\xBB\xBFy\n")};
    struct zf_reader_options o = options(ZF_DATA_TEXT, "file", files, 3);
    expect_files(&o, ZF_RECORD_LIMIT, ZF_TEXT_PIECE, "1[x]\n1[y\\n]\nempty files: 1\n");
    files[0] = put("a", "\xFF\xFE\x00z", 4);
    o.file_count = 1;
    o.any_bytes = true;
    expect_files(&o, ZF_RECORD_LIMIT, ZF_TEXT_PIECE, "1[\\xFF\\xFE\\x00z]\n");
}

static void test_paragraphs(void **state)
{
    (void)state;
    EXPECT(TEXT, "blank", "\n \t\r\n  a\r\nb \r\n\r\n\n\nc\nd", "3[  a\\r\\nb ]\n8[c\\nd]\n");
    EXPECT(TEXT, "blank", "a\n \n\n \n", "1[a]\n");
    EXPECT(TEXT, "blank", "a\r", "1[a]\n");
    EXPECT(TEXT, "blank", " \n\n", "empty files: 1\n");
    EXPECT(TEXT, "blank", "a\n\n\xFF\nb\n\nc\n", "1[a]\n!x:3:1 byte 0xFF at offset 3 is no UTF-8\n6[c]\n");
}

static void test_separators(void **state)
{
    (void)state;
    EXPECT(TEXT, "<|end|>", "a\n<|end|>b<|end<|end|>\n<|end|><|end|>c<|end|>\n", "1[a\\n]\n2[b<|end]\n2[]\n3[]\n3[c]\n");
    EXPECT(TEXT, "--", "--a---b", "1[]\n1[a]\n1[-b]\n");
    EXPECT(TEXT, "--", "a-", "1[a-]\n");
    EXPECT(TEXT, "--", "a--", "1[a]\n");
    EXPECT(TEXT, "--", "--", "1[]\n");
    EXPECT(TEXT, "--", " \n", "empty files: 1\n");
    EXPECT(TEXT, "aab", "aaab", "1[a]\n");
}

static void test_pieces(void **state)
{
    (void)state;
    /* The aim is 8 bytes: a document of at most so many is whole. */
    static const struct {
        const char *documents, *text, *expected;
    } cases[] = {
        {"file", "1234 678", "1[1234 678]\n"},
        {"file", "1234 6789", "1[1234 >\n1<6789]\n"},
        {"file", "12\n4 678 a bcde\nfg", "1[12\\n4 >\n2<678 a >\n2<bcde\\nfg]\n"},
        {"file", "123456789012345 ab", "1[123456789012345 >\n1<ab]\n"},
        {"file", "12345678901234567890123456789012", "1[12345678901234567890123456789012]\n"},
        {"file", "1 345678901234567890123456789012345 7",
         "1[1 >\n!x:1:3 more than 0 MiB of text without a place to cut it (white space, mostly)\n"},
        {"--", "1 345678901234567890123456789012345 7-8--b",
         "1[1 >\n!x:1:3 more than 0 MiB of text without a place to cut it (white "
         "space, mostly)\n1[b]\n"},
        {"--", "ab cd ef--12345678--gh ij kl-mn---", "1[ab cd ef]\n1[12345678]\n1[gh ij >\n1<kl-mn]\n1[-]\n"},
        {"--", "          --a", "1[        >\n1<  ]\n1[a]\n"},
        {"blank", "ab\ncd efg\r\n \r\n\n12345678\n\n1234 678\nb\r\n", "1[ab\\ncd >\n2<efg]\n5[12345678]\n7[1234 >\n7<678\\nb]\n"},
        {"blank", "a\n          \nb", "1[a\\n      >\n2<    \\nb]\n"},
        {"blank", "ab cd ef\n\xFFg\nh i\n\nj", "1[ab cd >\n!x:2:1 byte 0xFF at offset 9 is no UTF-8\n5[j]\n"},
        {"file", "ab cd \xE2\x82\xAC\xE2\x82\xAC x", "1[ab cd >\n1<\\xE2\\x82\\xAC\\xE2\\x82\\xAC x]\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limited(ZF_DATA_TEXT, cases[i].documents, cases[i].text, strlen(cases[i].text), 32, 8, cases[i].expected);
}

static void test_other_kinds(void **state)
{
    (void)state;
    EXPECT(JSONL, NULL, "\xFF\xFE{\0", "!x:1:1 the file is UTF-16 text\n");
    EXPECT(JSONL, NULL, "\0{\0}\0\n", "!x:1:1 every other byte is 0: the file looks like UTF-16\n");
    EXPECT(CSV, NULL, "a\0,\0b\0", "!x:1:1 every other byte is 0: the file looks like UTF-16\n");
    EXPECT(TSV, NULL, "\x1F\x8B\x08", "!x:1:1 the file is compressed by gzip\n");
    EXPECT(JSON, NULL, "PAR1....", "!x:1:1 the file is a Parquet file\n");
    /* A pointer is told by the whole of a short file. */
    struct zf_err e;
    sizes(1024, ZF_RECORD_LIMIT, ZF_TEXT_PIECE);
    const char *pointer = put_text("x", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
    const struct zf_reader_options text = options(ZF_DATA_TEXT, "file", &pointer, 1);
    char *said = reader_log(&text, &e);
    assert_string_equal(said, "!x:1:1 this is no data\n");
    assert_non_null(strstr(e.message, "git lfs pull"));
    free(said);
    /* The next file is read all the same. */
    const char *files[] = {put("a", "\xFE\xFF\0{", 4), put_text("b", "{}")};
    const struct zf_reader_options o = options(ZF_DATA_JSONL, NULL, files, 2);
    expect_files(&o, ZF_RECORD_LIMIT, ZF_TEXT_PIECE, "!a:1:1 the file is UTF-16 text\n1[{}]\n");
}

static void test_refused_files(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_reader *r;
    char link_name[512];
    const char *files[] = {put_text("a", "{}"), in_folder("none")};
    struct zf_reader_options o = options(ZF_DATA_JSONL, NULL, files, 2);
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_FORMAT);
    assert_string_equal(e.where, files[1]);
    assert_null(r);
    files[1] = folder;
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "a directory"));
    files[1] = in_folder("fifo");
    assert_int_equal(mkfifo(files[1], 0600), 0);
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_FORMAT);
    snprintf(link_name, sizeof link_name, "%s", in_folder("link"));
    assert_int_equal(symlink(files[0], link_name), 0);
    files[1] = link_name;
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_USAGE);
    assert_non_null(strstr(e.message, "given twice"));
    o.file_count = 0;
    char *said = reader_log(&o, &e);
    assert_string_equal(said, "");
    free(said);
}

static void test_shrinking_file(void **state)
{
    (void)state;
    sizes(16, ZF_RECORD_LIMIT, ZF_TEXT_PIECE);
    char text[4096];
    struct zf_err e;
    struct zf_reader *r;
    struct zf_record record;
    struct zf_text into = {0};
    bool more;
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 4 == 3 ? '\n' : 'x';
    const char *file = put("x", text, sizeof text);
    const struct zf_reader_options o = options(ZF_DATA_JSONL, NULL, &file, 1);
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_OK);
    assert_int_equal(zf_reader_next(r, &into, &record, &more, &e), ZF_OK);
    assert_int_equal(truncate(file, 0), 0);
    size_t records = 1;
    for (;; records++) {
        assert_int_equal(zf_reader_next(r, &into, &record, &more, &e), ZF_OK);
        if (!more) break;
        assert_int_equal(record.size, 3);
    }
    assert_true(records >= 4 && records < 1024);
    zf_reader_close(r);
    free(into.data);
}

static void test_empty_lines_and_stop(void **state)
{
    (void)state;
    enum { LINES = 10000000 };
    sizes(256 << 10, ZF_RECORD_LIMIT, ZF_TEXT_PIECE);
    struct zf_err e;
    char *text = malloc(LINES + 1);
    assert_non_null(text);
    memset(text, '\n', LINES);
    text[LINES] = 'x';
    const char *file = put("x", text, LINES + 1);
    free(text);
    static const enum zf_data_format formats[] = {ZF_DATA_JSONL, ZF_DATA_TSV, ZF_DATA_CSV, ZF_DATA_TEXT};
    for (size_t i = 0; i < 4; i++) {
        volatile int stop = 0;
        struct zf_reader_options o = options(formats[i], "blank", &file, 1);
        o.stop = &stop;
        clock_t begin = clock(); /* of this process: machines are busy */
        char *said = reader_log(&o, &e);
        assert_string_equal(said, formats[i] == ZF_DATA_TSV || formats[i] == ZF_DATA_CSV ? "" : "10000001[x]\n"); /* "x" is the header */
        assert_true(clock() - begin < 10 * CLOCKS_PER_SEC);
        free(said);
        stop = 1;
        said = reader_log(&o, &e);
        assert_string_equal(said, "!5\n");
        free(said);
    }
}

static void test_format(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        enum zf_data_format format;
    } cases[] = {
        {"a.txt", "", ZF_DATA_TEXT},
        {"a.MD", "", ZF_DATA_TEXT},
        {"a.jsonl", "{}\n", ZF_DATA_JSONL},
        {"a.jsonl", "\xEF\xBB\xBF\n [1]", ZF_DATA_JSON},
        {"a.jsonl", "{\n\"a\":1}", ZF_DATA_JSONL},
        {"a.jsonl", "", ZF_DATA_JSONL},
        {"a.json", "[{}]", ZF_DATA_JSON},
        {"a.json", " {\"a\":1}\n{}", ZF_DATA_JSONL},
        {"a.json", "{ \r\n \"a\":1}\n", ZF_DATA_JSON},
        {"a.json", "<html>", ZF_DATA_JSON},
        {"a.b.tsv", "", ZF_DATA_TSV},
        {"a.csv", "", ZF_DATA_CSV},
        {"a.safetensors", "", ZF_DATA_TOKENS},
        {"a.parquet", "", ZF_DATA_AUTO},
        {"a.jsonl.gz", "", ZF_DATA_AUTO},
        {"a", "", ZF_DATA_AUTO},
    };
    struct zf_err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum zf_data_format f = ZF_DATA_AUTO;
        const char *file = put_text(cases[i].name, cases[i].text);
        assert_int_equal(zf_data_format_find(&f, file, &e), cases[i].format == ZF_DATA_AUTO ? ZF_USAGE : ZF_OK);
        assert_int_equal(f, cases[i].format);
    }
    enum zf_data_format f = ZF_DATA_AUTO;
    assert_int_equal(zf_data_format_find(&f, in_folder("none.json"), &e), ZF_FORMAT);
    assert_int_equal(zf_data_format_find(&f, "none.txt", &e), ZF_OK); /* only looked at where it matters */
    f = ZF_DATA_CSV;
    assert_int_equal(zf_data_format_find(&f, "a.txt", &e), ZF_OK);
    assert_int_equal(f, ZF_DATA_CSV);
    assert_string_equal(zf_data_format_name(ZF_DATA_AUTO), "auto");
    assert_string_equal(zf_data_format_name(ZF_DATA_TOKENS), "tokens");
}

/* Anything at all gives the same records and the same errors, whatever the size of the reads. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char *const alphabet[] = {"\n",
                                           "\n",
                                           "\r\n",
                                           ",",
                                           ",",
                                           "\t",
                                           "\"",
                                           "\"",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           ":",
                                           "\\",
                                           " ",
                                           "a",
                                           "b",
                                           "c",
                                           "1",
                                           "-",
                                           "-",
                                           "\xC3\xA4",
                                           "\xF0\x9F\x98\x80",
                                           "\xFF"};
    uint32_t seed = 1;
    for (int round = 0; round < 1500; round++) {
        struct zf_text text = {0};
        struct zf_err e;
        assert_int_equal(zf_text_add(&text, " ", 1, &e), ZF_OK);
        if (round % 5 == 2) zf_text_add(&text, "[", 1, &e);
        if (round % 5 > 2) zf_text_add(&text, "x,\"y\t\"\tz\n", 9, &e);
        seed = seed * 1664525u + 1013904223u;
        for (uint32_t n = seed >> 24; n; n--) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t symbols = round % 3 ? sizeof alphabet / sizeof *alphabet : sizeof alphabet / sizeof *alphabet - 1;
            const char *s = alphabet[(seed >> 8) % symbols];
            assert_int_equal(zf_text_add(&text, s, strlen(s), &e), ZF_OK);
        }
        const char *file = put("x", text.data, text.size);
        free(text.data);
        static const enum zf_data_format formats[] = {ZF_DATA_TEXT, ZF_DATA_JSONL, ZF_DATA_JSON, ZF_DATA_TSV, ZF_DATA_CSV};
        static const char *const documents[] = {"file", "blank", "--"};
        const struct zf_reader_options o = options(formats[round % 5], documents[round / 5 % 3], &file, 1);
        size_t limit = round % 2 ? 24 : 4096, piece = round % 2 ? 8 : 40;
        sizes(1 << 16, limit, piece);
        char *expected = reader_log(&o, &e);
        assert_non_null(expected);
        expect_files(&o, limit, piece, expected);
        free(expected);
    }
}

static void test_real_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum zf_data_format format;
        size_t records;
        uint64_t last_line;
    } cases[] = {
        {"data/datasets/gsm8k/train.jsonl", ZF_DATA_JSONL, 7473, 7473},
        {"data/datasets/instruct/rasbt-instruction-data.json", ZF_DATA_JSON, 1100, 5497},
        {"data/datasets/glue/SST-2/train.tsv", ZF_DATA_TSV, 67349, 67350},
        {"data/datasets/glue/MRPC/msr_paraphrase_train.txt", ZF_DATA_TSV, 4076, 4077},
        {"data/datasets/tinyshakespeare/input.txt", ZF_DATA_TEXT, 2, 1},
    };
    sizes(256 << 10, ZF_RECORD_LIMIT, ZF_TEXT_PIECE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *file = shared_path(cases[i].name);
        if (!file) skip();
        const struct zf_reader_options o = options(cases[i].format, "file", &file, 1);
        struct zf_reader *r;
        struct zf_record record;
        struct zf_text into = {0};
        struct zf_err e;
        size_t records = 0;
        uint64_t line = 0;
        bool more;
        assert_int_equal(zf_reader_open(&r, &o, &e), ZF_OK);
        while (assert_int_equal(zf_reader_next(r, &into, &record, &more, &e), ZF_OK), more) {
            records++;
            line = record.line;
            into.size = 0;
        }
        assert_int_equal(records, cases[i].records);
        if (cases[i].format != ZF_DATA_TEXT) assert_int_equal(line, cases[i].last_line);
        zf_reader_close(r);
        free(into.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_tsv),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_fields_that_no_reader_checked),
        cmocka_unit_test(test_columns_of_records),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_paragraphs),
        cmocka_unit_test(test_separators),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_shrinking_file),
        cmocka_unit_test(test_empty_lines_and_stop),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
