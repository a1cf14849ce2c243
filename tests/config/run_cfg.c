/* The reader of run.cfg: tables of text and what must come of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/config/run_cfg.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct read {
    struct zf_options o;
    struct zf_err_list errors;
    enum zf_status status;
};

static struct read *read_bytes(const char *text, size_t size)
{
    struct zf_err e;
    struct read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(zf_options_init(&r->o, &e), ZF_OK);
    r->status = zf_run_cfg_read_memory(&r->o, text, size, "f.cfg", "/base", &r->errors);
    return r;
}

static struct read *read_text(const char *text)
{
    return read_bytes(text, strlen(text));
}

static void done(struct read *r)
{
    zf_err_list_free(&r->errors);
    zf_options_free(&r->o);
    free(r);
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("`%s` is not in `%s`", part, text);
}

/* One error each: where it is, and what the message must say. */
static const struct {
    const char *text, *where, *says;
} wrong[] = {
    {"[train]\nlerning_rate = 1\n", "f.cfg:2:1", "nearest is `learning_rate`"},
    {"[train]\n  learning-rate = 1\n", "f.cfg:2:3", "nearest is `learning_rate`"},
    {"[train]\nBatch_Size = 1\n", "f.cfg:2:1", "nearest is `batch_size`"},
    {"[train]\nbathc_size = 1\n", "f.cfg:2:1", "nearest is `batch_size`"},
    {"[train]\nxyzzy = 1\n", "f.cfg:2:1", "`zenflow-console options` lists all"},
    {"[train]\nmax_grad_norm = 1\n", "f.cfg:2:1", "`clip_norm`"},
    {"[train]\ngradient_accumulation_steps = 4\n", "f.cfg:2:1", "`micro_batch`"},
    {"[train]\ngradient_accumulation_steps = 4\n", "f.cfg:2:1", "batch_size"},
    {"[train]\nnum_train_epochs = 3\n", "f.cfg:2:1", "`epochs`"},
    {"[train]\nsave_steps = 3\n", "f.cfg:2:1", "`save_every`"},
    {"[train]\nsave_steps = 3\n", "f.cfg:2:1", "[checkpoint]"},
    {"[train]\nmax_steps = 3\n", "f.cfg:2:1", "`steps`"},
    {"[train]\nper_device_train_batch_size = 3\n", "f.cfg:2:1", "`batch_size`"},
    {"[train]\nwarmup_ratio = 0.1\n", "f.cfg:2:1", "`warmup_steps`"},
    {"[train]\nlearning_rate = fast\n", "f.cfg:2:17", "a number, above 0, is expected"},
    {"[train]\nlearning_rate =   fast\n", "f.cfg:2:19", "learning_rate is `fast`"},
    {"[train]\nlearning_rate = 0\n", "f.cfg:2:17", "above 0"},
    {"[train]\nlr = -1\n", "f.cfg:2:6", "learning_rate is `-1`"},
    {"[train]\nlr = nan\n", "f.cfg:2:6", "above 0"},
    {"[train]\nlr = inf\n", "f.cfg:2:6", "above 0"},
    {"[train]\nlr = 1e999\n", "f.cfg:2:6", "finite"},
    {"[train]\nlr = 0x1p3\n", "f.cfg:2:6", "a number"},
    {"[train]\nlr = 1,5\n", "f.cfg:2:6", "a number"},
    {"[train]\nlr =\n", "f.cfg:2:5", "has no value"},
    {"[train]\nlr = 1e-4 # peak\n", "f.cfg:2:6", "`1e-4 # peak`"},
    {"[train]\nbeta1 = 1\n", "f.cfg:2:9", "0 <= x < 1"},
    {"[train]\nbatch_size = 0\n", "f.cfg:2:14", "the nearest is 1"},
    {"[train]\nbatch_size = 8.5\n", "f.cfg:2:14", "a whole number"},
    {"[train]\nsteps = 99999999999999999999\n", "f.cfg:2:9", "below 2^63"},
    {"[train]\nmicro_batch = 0\n", "f.cfg:2:15", "auto or 1 <= x"},
    {"[train]\nschedule = cosin\n", "f.cfg:2:12", "the nearest is cosine"},
    {"[train]\nschedule = wsd\n", "f.cfg:2:12", "cosine|linear|constant"},
    {"[train]\nkeep_best = maybe\n", "f.cfg:2:13", "yes or no"},
    {"[run]\nmemory_limit = 16X\n", "f.cfg:2:16", "powers of 1024"},
    {"[run]\nmemory_limit = 16GiB\n", "f.cfg:2:16", "powers of 1024"},
    {"[run]\nmemory_limit = 9999999999G\n", "f.cfg:2:16", "below 2^63"},
    {"[run]\nmemory_limit = 0.3\n", "f.cfg:2:16", "a whole number of bytes"},
    {"[run]\nmax_time = 3 days\n", "f.cfg:2:12", "a duration such as"},
    {"[run]\ngrace = -1s\n", "f.cfg:2:9", "0 or more"},
    {"[zenflow]\ntopk_ratio = 1.5\n", "f.cfg:2:14", "the nearest is 1"},
    {"[zenflow]\ntopk_ratio = 1\n\n\ntopk_ratio = 0.5\n", "f.cfg:5:1", "the first is f.cfg:2:1"},
    {"[train]\nlearning_rate = 1\n lr = 2\n", "f.cfg:3:2", "the first is f.cfg:2:1"},
    {"[model]\nlearning_rate = 1\n", "f.cfg:2:1", "it belongs to [train]"},
    {"lr = 1\n", "f.cfg:1:1", "it belongs to [train]"},
    {"[trian]\n", "f.cfg:1:1", "the nearest is [train]"},
    {"[optimizer]\nlr = 1\n", "f.cfg:1:1", "the nearest is [train]"},
    {" [nothing-like-it]\n", "f.cfg:1:2", "run, model, data, train"},
    {"[train\n", "f.cfg:1:1", "without `]`"},
    {"[train] lr = 1\n", "f.cfg:1:9", "text behind a section"},
    {"[train] # comment\n", "f.cfg:1:9", "a comment begins its line"},
    {"[]\n", "f.cfg:1:1", "there is no section []"},
    {"[train]\nlr\n", "f.cfg:2:1", "`name = value` is expected"},
    {"[train]\n = 4\n", "f.cfg:2:2", "add the name"},
    {"[run]\nnote = \"a\n", "f.cfg:2:8", "without an end"},
    {"[run]\nnote = \"a\\\"\n", "f.cfg:2:8", "without an end"},
    {"[run]\nnote = \"a\" b\n", "f.cfg:2:12", "text behind a quoted string"},
    {"[run]\nnote = \"a\\qb\"\n", "f.cfg:2:10", "`\\q`"},
    {"[run]\nnote = \"one\n\xc3\xa4 \\q\"\n", "f.cfg:3:3", "`\\q`"},
    {"[run]\nnote = \"one\ntwo\" three\n", "f.cfg:3:6", "the end of the line"},
    {"[data]\ntrain = a, , b\n", "f.cfg:2:12", "empty name"},
    {"[data]\ntrain = a,\n", "f.cfg:2:11", "empty name"},
    {"[data]\ntrain = \"a\" b\n", "f.cfg:2:13", "a comma or the end"},
    {"[run]\nnote = \xc3\xa4\xc3\xa4\xff\n", "f.cfg:2:10", "0xff"},
    {"[run]\nnote = \xed\xa0\x80\n", "f.cfg:2:8", "0xed"},
    {"[at]\nsoon = stop\n", "f.cfg:2:1", "a step, 1 or more"},
    {"[at]\n0 = stop\n", "f.cfg:2:1", "a step, 1 or more"},
    {"[at]\n 40 = \n", "f.cfg:2:2", "has no command"},
    {"[at]\nstop\n", "f.cfg:2:1", "`name = value`"},
    {"\xff\xfe[\0r\0", "f.cfg", "UTF-16"},
};

static void each_error_has_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct read *r = read_text(wrong[i].text);
        print_message("%s", wrong[i].text);
        assert_int_equal(r->status, ZF_USAGE);
        assert_int_equal(r->errors.count, 1);
        assert_string_equal(r->errors.list[0].where, wrong[i].where);
        assert_contains(r->errors.list[0].message, wrong[i].says);
        done(r);
    }
}

/* Text without errors, an option, and its value as text. */
static const struct {
    const char *text, *name, *value;
} right[] = {
    {"[train]\nlr=1e-4\n", "learning_rate", "0.0001"},
    {"\xef\xbb\xbf[train]\r\n\tlearning_rate\t=\t1e-4 \r\n", "learning_rate", "0.0001"},
    {"[train]\nsteps = 12", "steps", "12"},
    {"# c\n; c\n  # c\n\n[ train ]\n[model]\n[train]\nsteps = 12\n", "steps", "12"},
    {"[train]\nsteps = \"12\"\n", "steps", "12"},
    {"[train]\nmicro_batch = auto\n", "micro_batch", "auto"},
    {"[train]\nmicro_batch = 4\n", "micro_batch", "4"},
    {"[train]\nschedule_steps = steps\n", "schedule_steps", "steps"},
    {"[zenflow]\nupdate_interval = auto\n", "update_interval", "auto"},
    {"[zenflow]\noptimistic = off\n", "optimistic", "no"},
    {"[zenflow]\noptimistic = true\n", "optimistic", "yes"},
    {"[run]\nmemory_limit = 1.5G\n", "memory_limit", "1536M"},
    {"[run]\nmemory_limit = 4g\n", "memory_limit", "4G"},
    {"[run]\nmemory_limit = 9223372036854775807\n", "memory_limit", "9223372036854775807"},
    {"[run]\nseed = 9223372036854775807\n", "seed", "9223372036854775807"},
    {"[run]\nmax_time = 90m\n", "max_time", "90m"},
    {"[run]\nmax_time = 1.5h\n", "max_time", "90m"},
    {"[run]\nmax_time = 7200\n", "max_time", "2h"},
    {"[run]\nmax_time = 0.25s\n", "max_time", "0.25s"},
    {"[run]\nnote = a \"quoted\" word # and this\n", "note", "a \"quoted\" word # and this"},
    {"[run]\nnote = a=b\n", "note", "a=b"},
    {"[run]\nnote = \"  a\\tb\\\\\\\"\\n\"\n", "note", "\"  a\\tb\\\\\\\"\\n\""},
    {"[run]\nnote = \"one\r\ntwo # no comment\n[no section]\"\nseed = 2\n", "note", "\"one\\ntwo # no comment\\n[no section]\""},
    {"[run]\nnote = \"one\ntwo\"\nseed = 2\n", "seed", "2"},
    {"[run]\nnote = C:\\temp\\new\n", "note", "C:\\temp\\new"},
    {"[run]\nnote = \n", "note", "\"\""},
    {"[data]\ntrain = a.txt, ../b c.txt ,/d.txt\n", "train", "/base/a.txt, /base/../b c.txt, /d.txt"},
    {"[data]\ntrain = \"a,b.txt\", c.txt\n", "train", "\"/base/a,b.txt\", /base/c.txt"},
    {"[data]\ntrain = \"a\" ,\t\"b\"\n", "train", "/base/a, /base/b"},
    {"[data]\ntrain = a\"b, c\n", "train", "/base/a\"b, /base/c"},
    {"[data]\nvalid =\n", "valid", "\"\""},
    {"[data]\ndocuments = \"<|end|>\"\n", "documents", "<|end|>"},
    {"[data]\nvalid_split = .5\n", "valid_split", "0.5"},
    {"[model]\npath = ./m\n", "path", "/base/m"},
    {"[model]\npath = .\n", "path", "/base"},
    {"[model]\ntokenizer = bytes\n", "tokenizer", "bytes"},
    {"[model]\ntokenizer = ./bytes\n", "tokenizer", "/base/bytes"},
    {"[model]\nfreeze = *.bias, wte*\n", "freeze", "*.bias, wte*"},
};

static void each_value_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct read *r = read_text(right[i].text);
        print_message("%s", right[i].text);
        if (r->errors.count) fail_msg("%s: %s", r->errors.list[0].where, r->errors.list[0].message);
        assert_int_equal(r->status, ZF_OK);
        char *text = zf_options_get_text(&r->o, zf_option_id(zf_option_find(right[i].name)));
        assert_string_equal(text, right[i].value);
        free(text);
        done(r);
    }
}

static void all_errors_at_once_in_order(void **state)
{
    (void)state;
    static const char text[] =
        "[run]\nsed = 1\nthreads = many\n[modle]\npath = x\n[train]\nlr = 0\nlr = 1\n\nbeta2 = 2\nnote = \xff\nkeep = 2\nepochs = 1\n";
    static const char *const places[] = {"f.cfg:2:1", "f.cfg:3:11", "f.cfg:4:1",  "f.cfg:7:6",
                                         "f.cfg:8:1", "f.cfg:10:9", "f.cfg:11:8", "f.cfg:12:1"};
    struct read *r = read_text(text);
    assert_int_equal(r->status, ZF_USAGE);
    for (size_t i = 0; i < r->errors.count; i++) print_message("%s: %s\n", r->errors.list[i].where, r->errors.list[i].message);
    assert_int_equal(r->errors.count, sizeof places / sizeof *places);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) assert_string_equal(r->errors.list[i].where, places[i]);
    done(r);
}

static void a_nul_is_an_error(void **state)
{
    (void)state;
    static const char text[] = "[run]\nnote = a\0b\nseed = x\n[train\0]\n";
    struct read *r = read_bytes(text, sizeof text - 1);
    assert_int_equal(r->errors.count, 3);
    assert_string_equal(r->errors.list[0].where, "f.cfg:2:9");
    assert_contains(r->errors.list[0].message, "0x00");
    assert_string_equal(r->errors.list[1].where, "f.cfg:3:8");
    assert_string_equal(r->errors.list[2].where, "f.cfg:4:7");
    done(r);
}

static void commands_are_kept_in_order(void **state)
{
    (void)state;
    struct read *r = read_text("[at]\n40 = set topk_ratio 0.05\n  40 = mark \"a # b\"\n3 = save # x\n");
    assert_int_equal(r->status, ZF_OK);
    assert_int_equal(r->o.at_count, 3);
    assert_int_equal(r->o.at[0].step, 40);
    assert_string_equal(r->o.at[0].command, "set topk_ratio 0.05");
    assert_int_equal(r->o.at[1].step, 40);
    assert_string_equal(r->o.at[1].command, "mark \"a # b\"");
    assert_int_equal(r->o.at[1].origin.line, 3);
    assert_int_equal(r->o.at[1].origin.column, 3);
    assert_int_equal(r->o.at[2].step, 3);
    assert_string_equal(r->o.at[2].command, "save # x");
    done(r);
}

static void origins_are_kept(void **state)
{
    (void)state;
    char place[600];
    struct zf_err e;
    struct read *r = read_text("[train]\n  steps = 12\n");
    assert_string_equal(zf_origin_text(&r->o.origin[ZF_OPT_steps], "steps", place, sizeof place), "f.cfg:2:11");
    assert_string_equal(zf_origin_text(&r->o.origin[ZF_OPT_seed], "seed", place, sizeof place), "");
    assert_int_equal(zf_options_set_argument(&r->o, "steps = 13 ", &e), ZF_OK);
    assert_string_equal(zf_origin_text(&r->o.origin[ZF_OPT_steps], "steps", place, sizeof place), "--set steps");
    assert_int_equal(r->o.steps, 13);
    done(r);
}

/* Long lines, many lines, more errors than the list holds. */
static void size_is_no_problem(void **state)
{
    (void)state;
    const size_t size = 4 << 20;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, 'a', size);
    memcpy(text, "[run]\nnote = ", 13);
    text[size] = 0;
    struct read *r = read_bytes(text, size);
    assert_int_equal(r->status, ZF_OK);
    assert_int_equal(strlen(r->o.note), size - 13);
    done(r);
    for (size_t i = 0; i + 4 <= size; i += 4) memcpy(text + i, "a=b\n", 4);
    r = read_bytes(text, size);
    assert_int_equal(r->status, ZF_USAGE);
    assert_int_equal(r->errors.count, ZF_ERR_LIST_MOST);
    assert_contains(r->errors.list[ZF_ERR_LIST_MOST - 1].message, "the rest was not read");
    done(r);
    memcpy(text, "[data]\ntrain=", 13);
    for (size_t i = 13; i < size; i++) text[i] = "\"\","[(i - 13) % 3];
    r = read_bytes(text, size);
    assert_int_equal(r->status, ZF_USAGE);
    assert_contains(r->errors.list[0].message, "at most 65536 names");
    done(r);
    memset(text, '"', size);
    memcpy(text, "[data]\ntrain=", 13);
    r = read_bytes(text, size);
    assert_int_equal(r->status, ZF_USAGE);
    done(r);
    for (size_t i = 0; i + 4 <= size; i += 4) memcpy(text + i, "1=b\n", 4);
    memcpy(text, "[at]\n1=\n", 8);
    r = read_bytes(text, size);
    assert_int_equal(r->status, ZF_USAGE);
    assert_int_equal(r->o.at_count, 65536);
    done(r);
    free(text);
}

static uint32_t random_at(uint64_t i, uint32_t below)
{
    return (uint32_t)(zf_uniform(7, ZF_STREAM_TEST, 0, i) * below);
}

/* Any bytes: read or refused, never a crash; what was accepted is written and read back equal. */
static void random_text_never_crashes(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[train]\n",
                                         "[data]\n",
                                         "[run]\n",
                                         "[at]\n",
                                         "lr",
                                         "train",
                                         "note",
                                         "memory_limit",
                                         "=",
                                         " ",
                                         "\n",
                                         "\r\n",
                                         "\"",
                                         "\\",
                                         "\\n",
                                         ",",
                                         "#",
                                         ";",
                                         "1",
                                         "-",
                                         "e9",
                                         ".5",
                                         "auto",
                                         "k",
                                         "[",
                                         "]",
                                         "\xc3\xa4",
                                         "\xff",
                                         "a",
                                         "7 = stop",
                                         "batch_size = 4\n",
                                         "freeze=",
                                         "=\"x\ny\"\n",
                                         "valid = a,\"b,c\"\n",
                                         "\t"};
    uint64_t n = 0;
    for (int round = 0; round < 5000; round++) {
        char text[512];
        size_t size = 0, most = random_at(n++, 400);
        while (size < most) {
            if (!random_at(n++, 20)) {
                text[size++] = (char)random_at(n++, 256);
                continue;
            }
            const char *piece = pieces[random_at(n++, sizeof pieces / sizeof *pieces)];
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }
        struct read *r = read_bytes(text, size);
        for (size_t i = 0; i < r->errors.count; i++)
            assert_true(!strncmp(r->errors.list[i].where, "f.cfg", 5) && r->errors.list[i].message[0]);
        if (round % 8 == 0) {
            struct zf_err e;
            char *written = NULL;
            size_t written_size = 0;
            FILE *f = open_memstream(&written, &written_size);
            assert_non_null(f);
            assert_int_equal(zf_options_write(&r->o, f, &e), ZF_OK);
            fclose(f);
            struct read *again = read_bytes(written, written_size);
            if (again->errors.count) fail_msg("%s: %s\n%s", again->errors.list[0].where, again->errors.list[0].message, written);
            assert_true(zf_options_equal(&r->o, &again->o));
            done(again);
            free(written);
        }
        done(r);
    }
}

static struct read *read_file(const char *path)
{
    struct zf_err e;
    struct read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(zf_options_init(&r->o, &e), ZF_OK);
    r->status = zf_run_cfg_read(&r->o, path, &r->errors);
    return r;
}

static void files(void **state)
{
    (void)state;
    struct zf_err e;
    char folder[] = "/tmp/zf-config-XXXXXX", path[64], wanted[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/small.run.cfg", folder);
    assert_int_equal(zf_file_write_atomic(path, "[data]\ntrain = a.txt\n", 21, &e), ZF_OK);
    struct read *r = read_file(path);
    assert_int_equal(r->status, ZF_OK);
    snprintf(wanted, sizeof wanted, "%s/a.txt", folder);
    assert_string_equal(r->o.train.list[0], wanted);
    snprintf(wanted, sizeof wanted, "%s/runs/small.run", folder);
    assert_string_equal(r->o.dir, wanted);
    assert_string_equal(r->o.file, path);
    done(r);
    assert_int_equal(unlink(path), 0);
    r = read_file(path);
    assert_int_equal(r->status, ZF_USAGE);
    assert_contains(r->errors.list[0].message, "zenflow-console init");
    done(r);
    r = read_file(folder);
    assert_int_equal(r->status, ZF_USAGE);
    assert_contains(r->errors.list[0].message, "directory");
    done(r);
    assert_int_equal(rmdir(folder), 0);
}

static void init_is_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *model, *data;
    } cases[] = {{NULL, NULL}, {"models/smol", NULL}, {"/m/a, b", "a,b \"c\".txt"}, {NULL, "x.txt"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_err e;
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        assert_non_null(f);
        assert_int_equal(zf_init_write(f, cases[i].model, cases[i].data, &e), ZF_OK);
        fclose(f);
        struct read *r = read_bytes(text, size);
        zf_options_validate(&r->o, false, &r->errors);
        if (r->errors.count) fail_msg("%s: %s\n%s", r->errors.list[0].where, r->errors.list[0].message, text);
        assert_int_equal(r->o.train.count, 1);
        if (cases[i].model)
            assert_contains(r->o.path, cases[i].model);
        else
            assert_int_equal(r->o.layers, 4);
        assert_contains(r->o.train.list[0], cases[i].data ? cases[i].data : "data.txt");
        done(r);
        free(text);
    }
    struct zf_err e;
    assert_int_equal(zf_init_write(stdout, "", NULL, &e), ZF_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_place),
        cmocka_unit_test(each_value_is_read),
        cmocka_unit_test(all_errors_at_once_in_order),
        cmocka_unit_test(a_nul_is_an_error),
        cmocka_unit_test(commands_are_kept_in_order),
        cmocka_unit_test(origins_are_kept),
        cmocka_unit_test(size_is_no_problem),
        cmocka_unit_test(random_text_never_crashes),
        cmocka_unit_test(files),
        cmocka_unit_test(init_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
