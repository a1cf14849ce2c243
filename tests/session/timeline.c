/* Files for other programs: the trace, read back as JSON; TensorBoard's events, against the bytes that the format's description gives and
 * by a reader of their own. */
#include "tests/session/support.h"

#include "core/telemetry/tensorboard.h"
#include "core/telemetry/trace.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct zf_err e;

static void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

/* ---- trace ---- */

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void a_trace(void **state)
{
    (void)state;
    struct zf_trace *t;
    ok(zf_trace_open(&t, at("trace.json"), 100, &e));
    assert_int_not_equal(access(at("trace.json"), F_OK), 0); /* not before it is complete */
    zf_trace_track(t, 1, "compute");
    zf_trace_track(t, 4, "a \"quoted\" \\ name\n");
    zf_trace_span(t, 1, "matmul", "forward", false, 100.5, 100.501, 0.001);
    zf_trace_span(t, 1, "wait", "forward", true, 100.501, 100.504, 0);
    zf_trace_span(t, 4, "serve_rows", "other", false, 100.5, 100.75, 0.2);
    zf_trace_mark(t, "step 7", 101);
    ok(zf_trace_close(t, &e));

    json_error_t error;
    json_t *all = json_load_file(at("trace.json"), JSON_REJECT_DUPLICATES, &error), *list = json_object_get(all, "traceEvents");
    if (!all) fail_msg("%s", error.text);
    assert_int_equal(json_array_size(list), 8);
    json_t *v = json_array_get(list, 0);
    assert_string_equal(text_of(v, "ph"), "M");
    assert_string_equal(text_of(v, "name"), "thread_name");
    assert_string_equal(text_of(json_object_get(v, "args"), "name"), "compute");
    assert_string_equal(text_of(json_object_get(json_array_get(list, 2), "args"), "name"), "a \"quoted\" \\ name\n");
    v = json_array_get(list, 4);
    assert_string_equal(text_of(v, "ph"), "X");
    assert_string_equal(text_of(v, "name"), "matmul");
    assert_string_equal(text_of(v, "cat"), "forward");
    assert_true(fabs(number_of(v, "ts") - 5e5) < 1e-2 && fabs(number_of(v, "dur") - 1e3) < 1e-2 && number_of(v, "tid") == 1);
    assert_null(json_object_get(v, "cname"));
    assert_null(json_object_get(v, "args"));
    v = json_array_get(list, 5);
    assert_string_equal(text_of(v, "cat"), "wait");
    assert_string_equal(text_of(v, "cname"), "terrible");
    v = json_array_get(list, 6);
    assert_true(number_of(v, "tid") == 4 && fabs(number_of(json_object_get(v, "args"), "work_us") - 2e5) < 1e-2);
    v = json_array_get(list, 7);
    assert_string_equal(text_of(v, "ph"), "i");
    assert_string_equal(text_of(v, "s"), "g");
    assert_true(number_of(v, "ts") == 1e6);
    json_decref(all);

    ok(zf_trace_open(&t, at("other.json"), 0, &e));
    zf_trace_mark(t, "step 1", 1);
    zf_trace_discard(t);
    assert_int_not_equal(access(at("other.json"), F_OK), 0);
    assert_int_not_equal(zf_trace_open(&t, at("nowhere/trace.json"), 0, &e), ZF_OK);
    assert_null(t);
    ok(zf_trace_open(&t, at("empty.json"), 0, &e));
    ok(zf_trace_close(t, &e));
    all = json_load_file(at("empty.json"), 0, &error);
    assert_int_equal(json_array_size(json_object_get(all, "traceEvents")), 0);
    json_decref(all);
}

/* ---- TensorBoard ---- */

static void expect_record(const unsigned char *event, size_t size, const char *hex)
{
    unsigned char record[128];
    char text[257] = "";
    size_t n = zf_event_frame(record, event, size);
    assert_true(n == size + ZF_EVENT_FRAME && n <= sizeof record);
    for (size_t i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", record[i]);
    assert_string_equal(text, hex);
}

static void event_bytes(void **state)
{
    (void)state;
    unsigned char event[128];
    assert_true(zf_crc32c("123456789", 9) == 0xe3069283u);
    expect_record(event, zf_event_version(event, 1), "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
    expect_record(event, zf_event_scalars(event, 1, 5, &(struct zf_scalar){"loss", 2.5f}, 1),
                  "1a00000000000000129bd82d09000000000000f03f10052a0d0a0b0a046c6f737315000020401f0ddde3");
    expect_record(event, zf_event_restart(event, 1, 100), "0f000000000000006d532b0909000000000000f03f10643a02080155fcc295");
}

struct reader {
    const unsigned char *p, *end;
};

static uint64_t read_little(struct reader *r, int bytes)
{
    uint64_t x = 0;
    assert_true(r->end - r->p >= bytes);
    for (int i = 0; i < bytes; i++) x |= (uint64_t)*r->p++ << 8 * i;
    return x;
}

static uint64_t read_varint(struct reader *r)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char b = (unsigned char)read_little(r, 1);
        x |= (uint64_t)(b & 127) << shift;
        if (b < 128) return x;
    }
}

static struct reader read_bytes(struct reader *r)
{
    uint64_t n = read_varint(r);
    assert_true((uint64_t)(r->end - r->p) >= n);
    struct reader part = {r->p, r->p + n};
    r->p += n;
    return part;
}

static struct reader read_record(struct reader *r)
{
    const unsigned char *head = r->p;
    uint64_t n = read_little(r, 8);
    for (int part = 0; part < 2; part++) {
        const unsigned char *data = part ? r->p : head;
        if (part) r->p += n;
        uint32_t c = zf_crc32c(data, part ? n : 8);
        assert_int_equal((uint32_t)((c >> 15 | c << 17) + 0xa282ead8u), read_little(r, 4));
    }
    return (struct reader){r->p - 4 - n, r->p - 4};
}

struct event {
    uint64_t step;
    char version[32];
    bool start;
    size_t count;
    struct {
        char tag[64];
        float value;
    } scalar[8];
};

static void read_value(struct event *v, struct reader r)
{
    assert_true(v->count < 8);
    while (r.p < r.end) {
        uint64_t key = read_varint(&r);
        if (key == 0x0a) {
            struct reader tag = read_bytes(&r);
            snprintf(v->scalar[v->count].tag, 64, "%.*s", (int)(tag.end - tag.p), (const char *)tag.p);
        } else {
            assert_int_equal(key, 0x15);
            uint32_t bits = (uint32_t)read_little(&r, 4);
            memcpy(&v->scalar[v->count].value, &bits, sizeof bits);
        }
    }
    v->count++;
}

static struct event read_event(struct reader *file)
{
    struct event v = {0};
    struct reader r = read_record(file);
    while (r.p < r.end) {
        uint64_t key = read_varint(&r);
        if (key == 0x09) {
            uint64_t bits = read_little(&r, 8);
            double wall;
            memcpy(&wall, &bits, sizeof wall);
            assert_true(wall > 1.6e9);
        } else if (key == 0x10) {
            v.step = read_varint(&r);
        } else if (key == 0x1a) {
            struct reader text = read_bytes(&r);
            snprintf(v.version, sizeof v.version, "%.*s", (int)(text.end - text.p), (const char *)text.p);
        } else if (key == 0x3a) {
            struct reader log = read_bytes(&r);
            v.start = log.end - log.p == 2 && log.p[0] == 0x08 && log.p[1] == 1;
        } else {
            assert_int_equal(key, 0x2a);
            for (struct reader summary = read_bytes(&r); summary.p < summary.end;) {
                assert_int_equal(read_varint(&summary), 0x0a);
                read_value(&v, read_bytes(&summary));
            }
        }
    }
    return v;
}

/* The only file in a folder, whose name sorts last, whole. */
static size_t read_folder(const char *folder, unsigned char *out, size_t room, size_t *files)
{
    char newest[512] = "";
    DIR *d = opendir(folder);
    assert_non_null(d);
    *files = 0;
    for (struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] == '.') continue;
        assert_non_null(strstr(f->d_name, "tfevents"));
        ++*files;
        if (strcmp(f->d_name, newest) > 0) snprintf(newest, sizeof newest, "%s", f->d_name);
    }
    closedir(d);
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, newest);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, room, f);
    assert_true(n < room);
    fclose(f);
    return n;
}

static void events(void **state)
{
    (void)state;
    struct zf_tensorboard *t;
    unsigned char bytes[65536];
    size_t files;
    char long_tag[40];
    memset(long_tag, 'x', sizeof long_tag - 1);
    long_tag[sizeof long_tag - 1] = 0;
    ok(zf_tensorboard_open(&t, at("tb"), 1, &e));
    for (uint64_t step = 1; step <= 300; step++) {
        const struct zf_scalar s[] = {{"loss", 1.0f / (float)step}, {long_tag, step == 2 ? NAN : (float)step}};
        zf_tensorboard_write(t, step, s, 2);
    }
    assert_int_equal(zf_tensorboard_dropped(t), 0);
    zf_tensorboard_close(t);
    size_t n = read_folder(at("tb"), bytes, sizeof bytes, &files);
    struct reader r = {bytes, bytes + n};
    struct event v = read_event(&r);
    assert_string_equal(v.version, "brain.Event:2");
    for (uint64_t step = 1; step <= 300; step++) {
        v = read_event(&r);
        assert_true(v.step == step && v.count == 2 && !v.start);
        assert_string_equal(v.scalar[0].tag, "loss");
        assert_true(v.scalar[0].value == 1.0f / (float)step);
        assert_string_equal(v.scalar[1].tag, long_tag);
        assert_true(step == 2 ? isnan(v.scalar[1].value) : v.scalar[1].value == (float)step);
    }
    assert_true(r.p == r.end);
    assert_int_equal(files, 1);

    ok(zf_tensorboard_open(&t, at("tb"), 101, &e)); /* goes on: a file of its own, which says from where */
    zf_tensorboard_close(t);
    n = read_folder(at("tb"), bytes, sizeof bytes, &files);
    assert_int_equal(files, 2);
    r = (struct reader){bytes, bytes + n};
    read_event(&r);
    v = read_event(&r);
    assert_true(v.start && v.step == 101 && r.p == r.end);
}

/* A disk that is full costs records, counted, and leaves none torn. */
static void a_full_disk(void **state)
{
    (void)state;
    struct zf_tensorboard *t;
    unsigned char bytes[4096];
    size_t files;
    struct rlimit old, small = {.rlim_cur = 500, .rlim_max = RLIM_INFINITY};
    ok(zf_tensorboard_open(&t, at("tb"), 1, &e));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t step = 1; step <= 100; step++) zf_tensorboard_write(t, step, &(struct zf_scalar){"loss", 1}, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    size_t dropped = zf_tensorboard_dropped(t);
    assert_true(dropped > 80 && dropped < 100);
    zf_tensorboard_write(t, 101, &(struct zf_scalar){"loss", 2}, 1); /* there is room again */
    assert_int_equal(zf_tensorboard_dropped(t), dropped);
    zf_tensorboard_close(t);
    size_t n = read_folder(at("tb"), bytes, sizeof bytes, &files), count = 0;
    struct event v = {0};
    for (struct reader r = {bytes, bytes + n}; r.p < r.end; count++) v = read_event(&r);
    assert_true(v.step == 101 && v.scalar[0].value == 2);
    assert_int_equal(count, 1 + (100 - dropped) + 1);
    zf_tensorboard_write(NULL, 1, NULL, 0);
    zf_tensorboard_close(NULL);
    write_text("file", "x");
    assert_int_not_equal(zf_tensorboard_open(&t, at("file"), 1, &e), ZF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(a_trace), T(event_bytes), T(events), T(a_full_disk)};
    return cmocka_run_group_tests_name("session/timeline", tests, NULL, NULL);
}
