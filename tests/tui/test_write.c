/* Panels into files: read back by others' readers (Python's csv, ast, struct, xml) and by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/tui/frame.h"

#include <math.h>
#include <unistd.h>

static struct zf_history h;
static char folder[64];
static bool python;

static void text(const char *line)
{
    zf_history_text(&h, line, strlen(line));
}

/* A history with everything in it, and words that make trouble in files. */
static int prepare(void **state)
{
    (void)state;
    static const char name[] = "m.1.it's \\\\ \\u001b \\\"odd\\\", é";
    char line[1500];
    python = !system("python3 -c '' 2>/dev/null");
    snprintf(folder, sizeof folder, "/tmp/zf-write-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    zf_history_open(&h);
    snprintf(line, sizeof line,
             "{\"type\":\"start\",\"steps\":50,\"options\":{\"learning_rate\":0.1,\"steps\":50,\"topk_ratio\":0.5},\"matrices\":[{\"name\":"
             "\"m.0.w\","
             "\"channels\":4,\"length\":8},{\"name\":\"%s\",\"channels\":4,\"length\":8}]}",
             name);
    text(line);
    zf_history_watch(&h, 0);
    for (int i = 1; i <= 50; i++) {
        char loss[40];
        snprintf(loss, sizeof loss, i == 20 ? "\"nan\"" : "%.17g", 2 + 1.0 / i);
        snprintf(line, sizeof line,
                 "{\"type\":\"step\",\"step\":%d,\"time\":%d.5,\"loss\":%s,\"grad_norm\":0.5,\"step_ms\":10.0,\"stall_ms\":1.0,\"busy\":{"
                 "\"compute\":0.5},"
                 "\"groups\":[{\"fill\":0.5,\"phase\":\"UP\",\"staleness\":2,\"due\":%d}],\"tokens_per_s\":1000.0}",
                 i, i, loss, i + 1);
        text(line);
        if (i % 10) continue;
        snprintf(line, sizeof line,
                 "{\"type\":\"score\",\"step\":%d,\"matrices\":[{\"name\":\"m.0.w\",\"bins\":[-1.0,-2.0,-3.0,-4.0],\"top\":[0.1,0.2,0.3,0."
                 "4,0.5,0.6],"
                 "\"selected_energy\":0.25},{\"name\":\"%s\",\"bins\":[-1.0,-2.0,-3.0,-4.0],\"top\":[0.1,0.2,0.3,0.4,0.5,0.6],\"selected_"
                 "energy\":0.75}]}",
                 i, name);
        text(line);
    }
    text("{\"type\":\"mark\",\"step\":7,\"text\":\"a \\\"word\\\", and\\na line <b>&amp;\\u001b[2J\"}");
    text("{\"type\":\"sample\",\"step\":9,\"text\":\"to be\"}");
    return 0;
}

static int clear(void **state)
{
    char command[100];
    (void)state;
    zf_history_close(&h);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void run_python(const char *program, const char *path)
{
    char command[4000];
    if (!python) {
        printf("skipped: python3 reads the file back\n");
        skip();
    }
    snprintf(command, sizeof command, "python3 - '%s' <<'END'\nimport sys\n%s\nEND", path, program);
    if (system(command)) fail_msg("%s", program);
}

static void written(struct zf_view *v, enum zf_panel_id id, const char *path)
{
    struct zf_err e;
    if (zf_write_panel(v, id, path, &e)) fail_msg("%s: %s", e.where, e.message);
}

static struct zf_view view(void)
{
    struct zf_view v;
    zf_view_init(&v, &h);
    return v;
}

static void csv_reads_back(void **state)
{
    (void)state;
    struct zf_view v = view();
    const char *path = path_of("loss.csv");
    written(&v, ZF_PANEL_LOSS, path);
    run_python("import csv, math\n"
               "rows = list(csv.DictReader(open(sys.argv[1], newline='')))\n"
               "assert len(rows) == 50, len(rows)\n"
               "for i, r in enumerate(rows, 1):\n"
               "    x = float(r['loss_mean'])\n"
               "    assert float(r['from_step']) == i == float(r['to_step'])\n"
               "    assert math.isnan(x) if i == 20 else abs(x - (2 + 1 / i)) < 1e-7, (i, x)\n",
               path);
    path = path_of("log.csv");
    written(&v, ZF_PANEL_LOG, path);
    run_python("import csv\n"
               "rows = list(csv.DictReader(open(sys.argv[1], newline='')))\n"
               "texts = [r['text'] for r in rows]\n"
               "assert 'a \"word\", and\\na line <b>&amp;\\x1b[2J' in texts, texts\n"
               "assert {r['kind'] for r in rows} == {'mark'}, rows\n",
               path);
    path = path_of("buffers.csv");
    written(&v, ZF_PANEL_BUFFERS, path);
    run_python("import csv\n"
               "rows = list(csv.DictReader(open(sys.argv[1], newline='')))\n"
               "assert len(rows) == 50 and {r['phase'] for r in rows} == {'UP'}, rows\n",
               path);
    path = path_of("options.csv");
    written(&v, ZF_PANEL_OPTIONS, path);
    run_python("import csv\n"
               "rows = list(csv.reader(open(sys.argv[1], newline='')))\n"
               "assert rows[0] == ['text'] and any(r[0].startswith('learning_rate = 0.1 ') for r in rows), rows\n",
               path);
}

static const char read_npy[] = "import ast, struct\n"
                               "b = open(sys.argv[1], 'rb').read()\n"
                               "assert b[:8] == b'\\x93NUMPY\\x01\\x00'\n"
                               "n = struct.unpack('<H', b[8:10])[0]\n"
                               "assert (10 + n) % 64 == 0 and b[9 + n:10 + n] == b'\\n'\n"
                               "d = ast.literal_eval(b[10:10 + n].decode('latin1'))\n"
                               "names = [x[0] for x in d['descr']]\n"
                               "assert all(x[1] == '<f8' for x in d['descr']) and not d['fortran_order']\n"
                               "rows = d['shape'][0]\n"
                               "assert len(names) == len(set(names)) and len(b) == 10 + n + 8 * rows * len(names)\n"
                               "data = [struct.unpack_from('<%dd' % len(names), b, 10 + n + 8 * len(names) * r) for r in range(rows)]\n";

static void npy_reads_back(void **state)
{
    (void)state;
    char program[3000];
    struct zf_view v = view();
    const char *path = path_of("channels.npy");
    written(&v, ZF_PANEL_CHANNELS, path);
    snprintf(program, sizeof program,
             "%s"
             "assert names[:2] == ['step', 'm.0.w'] and names[2].startswith(\"m.1.it's \\\\ \\x1b \\\"odd\\\", \"), names\n"
             "assert [r[0] for r in data] == [10, 20, 30, 40, 50] and all(r[1:] == (0.25, 0.75) for r in data), data\n"
             "try:\n"
             "    import numpy\n"
             "    a = numpy.load(sys.argv[1])\n"
             "    assert a['step'].tolist() == [10, 20, 30, 40, 50]\n"
             "except ImportError: pass\n",
             read_npy);
    run_python(program, path);
    v.matrix = 0;
    path = path_of("map.npy");
    written(&v, ZF_PANEL_CHANNELS, path);
    snprintf(program, sizeof program,
             "%s"
             "assert len(data) == 20 and data[0] == (10, 0, 0, -1, 0) and data[19][:4] == (50, 3, 3, -4), data\n",
             read_npy);
    run_python(program, path);
}

static void every_panel_every_ending(void **state)
{
    (void)state;
    static const char *const endings[] = {"csv", "npy", "svg", "txt"};
    struct zf_view v = view();
    struct zf_err e;
    for (int id = 0; id < ZF_PANELS; id++)
        for (int k = 0; k < 4; k++) {
            char name[40];
            snprintf(name, sizeof name, "%s.%s", zf_panel_words[id], endings[k]);
            enum zf_status s = zf_write_panel(&v, (enum zf_panel_id)id, path_of(name), &e);
            bool words = id == ZF_PANEL_OPTIONS && k == 1;
            assert_int_equal(s, words ? ZF_USAGE : ZF_OK);
            assert_int_equal(!access(path_of(name), F_OK), !words);
        }
    for (int id = 0; id < ZF_PANELS; id++) {
        char name[40];
        snprintf(name, sizeof name, "%s.svg", zf_panel_words[id]);
        run_python("import xml.dom.minidom\nassert xml.dom.minidom.parse(sys.argv[1]).documentElement.tagName == 'svg'", path_of(name));
        snprintf(name, sizeof name, "%s.txt", zf_panel_words[id]);
        run_python("t = open(sys.argv[1], encoding='utf-8').read()\n"
                   "assert len(t) > 100 and all(c == '\\n' or c >= ' ' for c in t)",
                   path_of(name));
    }
}

static void refused(void **state)
{
    (void)state;
    struct zf_view v = view();
    struct zf_history empty;
    struct zf_err e;
    static const char *const bad[] = {"x", "x.png", "x.csv.gz", "a.csv/x", ".svg/x", "x.", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(zf_write_panel(&v, ZF_PANEL_LOSS, path_of(bad[i]), &e), ZF_USAGE);
    assert_int_equal(zf_write_panel(&v, ZF_PANELS, path_of("x.csv"), &e), ZF_USAGE);
    assert_int_equal(zf_write_panel(&v, ZF_PANEL_LOSS, path_of("nowhere/x.csv"), &e), ZF_IO);
    assert_string_equal(e.where, path_of("nowhere/x.csv")); /* not the one beside it, that is written first */
    zf_history_open(&empty);
    zf_view_init(&v, &empty);
    for (int id = 0; id < ZF_PANELS; id++) {
        assert_int_equal(zf_write_panel(&v, (enum zf_panel_id)id, path_of("none.csv"), &e), ZF_USAGE);
        assert_int_equal(zf_write_panel(&v, (enum zf_panel_id)id, path_of("none.npy"), &e), ZF_USAGE);
        assert_int_not_equal(access(path_of("none.csv"), F_OK), 0);
    }
    zf_history_close(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_reads_back),
        cmocka_unit_test(npy_reads_back),
        cmocka_unit_test(every_panel_every_ending),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("write", tests, prepare, clear);
}
