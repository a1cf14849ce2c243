/* Which checkpoints are of the run as it went in the end, in which order, and which of them stay. */
#include "tests/run/support.h"

#include <errno.h>
#include <sys/stat.h>

/* A word of a script: c4 a checkpoint of step 4, c4=mine under that name, o4 one without an entry (o4@2: when there were two; x4: of
 * another run), b4 one that is damaged; r4 a start goes on from step 4, l4 it is loaded. */
static void do_word(const char *word)
{
    unsigned step = 0, before = 0;
    char kind = word[0], name[64] = "", path[128];
    assert_true(sscanf(word + 1, "%u", &step) == 1);
    const char *equals = strchr(word, '='), *at_sign = strchr(word, '@');
    snprintf(name, sizeof name, "step-%08u", step);
    if (equals) snprintf(name, sizeof name, "%.*s", (int)strcspn(equals + 1, "@"), equals + 1);
    if (at_sign) before = (unsigned)atoi(at_sign + 1);
    snprintf(path, sizeof path, "run/checkpoints/%s.zfc", name);
    if (strchr("coxb", kind)) {
        json_t *info = json_pack("{ss sI ss}", "run", kind == 'x' ? "other" : "abc", "step", (json_int_t)step, "time", now_text());
        if (at_sign) json_object_set_new(info, "journal", json_integer(before));
        write_checkpoint(path, info);
    }
    if (kind == 'b') assert_int_equal(truncate(at(path), 100), 0);
    if (strchr("cb", kind)) write_entry(json_pack("{ss sI ss}", "type", "checkpoint", "step", (json_int_t)step, "file", at(path)));
    if (kind == 'r') write_entry(json_pack("{ss sI ss}", "type", "resume", "step", (json_int_t)step, "checkpoint", at(path)));
    if (kind == 'l')
        write_entry(
            json_pack("{ss sI ss sI}", "type", "resume", "step", (json_int_t)step, "checkpoint", at(path), "journal", (json_int_t)1));
}

static void play(const char *script)
{
    char words[256], *rest = NULL;
    write_start();
    snprintf(words, sizeof words, "%s", script);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) do_word(w);
}

static enum zf_status note(void *ctx, const char *path, enum zf_saves_of of, struct zf_err *why)
{
    (void)why;
    char *to = ctx, name[64];
    struct zf_ckpt c;
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    name[strlen(name) - 4] = 0;
    bool damaged = zf_ckpt_open(&c, path, &e) != ZF_OK, weights = !damaged && zf_saves_is_weights(c.info);
    if (!damaged) zf_ckpt_close(&c);
    const char *short_name = strncmp(name, "step-0000000", 12) ? name : name + 12;
    sprintf(to + strlen(to), "%s%s%s%s%s", *to ? " " : "",
            of == ZF_SAVES_LEFT      ? "("
            : of == ZF_SAVES_FOREIGN ? "["
                                     : "",
            short_name,
            weights   ? "w"
            : damaged ? "!"
                      : "",
            of == ZF_SAVES_LEFT      ? ")"
            : of == ZF_SAVES_FOREIGN ? "]"
                                     : "");
    return ZF_OK;
}

static const char *listed(void)
{
    static char text[512];
    text[0] = 0;
    ok(zf_saves_each(at("run"), note, text, &e));
    return text;
}

static void courses(void **state)
{
    (void)state;
    static const struct {
        const char *script, *list;
    } cases[] = {
        {"c2 c4 c6", "6 4 2"},
        {"c2 c4 c6 r6", "6 4 2"},
        {"c2 c4 c6 r4", "(6) 4 2"},
        {"c2 c4 c6 l4", "(6) 4 2"},
        {"c2 c4 c6 l4 c5", "5 (6) 4 2"},
        {"c2 c4 c6 l4 c5 l6", "(5) 6 4 2"}, /* forward again: 5 is of the other course, though it is older */
        {"c2 c4 c6 l4 c5 l6 c8", "8 (5) 6 4 2"},
        {"c2 c4 c6 l4 c5 l6 l5", "5 (6) 4 2"},
        {"c2 c4 c6 l2 c4", "4 (6) 2"}, /* written anew */
        {"c2 c4 c6 l2 c4 l6", "(4) 6 2"},
        {"c2 c4 c6 r0", "(6) (4) (2)"},
        {"c2 c4=mine c4 r4=mine", "(4) mine 2"},
        {"c2 c4=mine c4 r4=elsewhere", "4 mine 2"},
        {"c2 c4 o6", "6 4 2"}, /* killed before its entry */
        {"c2 c4 o6 r6", "6 4 2"},
        {"c2 c4 o6 r4", "(6) 4 2"},
        {"c2 c4 o6 r4 c5", "5 (6) 4 2"},
        {"c2 c4 c6 o4=copy@1", "6 4 2 copy"}, /* as the file says */
        {"c2 c4 c6 o5=copy@3", "6 copy 4 2"},
        {"c2 c4 l2 o5@4", "5 (4) 2"},
        {"c2 c4 l2 o5@999999", "5 (4) 2"},
        {"x9 c2 c4", "4 2 [9]"},
        {"c2 c4 c6 x6", "4 2 [6]"}, /* put in its place */
        {"c2 c4 r4 x2", "4 [2]"},
        {"c2 b4", "4! 2"},
        {"c2 b4 r2", "(4!) 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        play(cases[i].script);
        if (strcmp(listed(), cases[i].list)) fail_msg("%s: %s, and not %s", cases[i].script, listed(), cases[i].list);
    }
}

static void which_stay(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        size_t keep, weights;
        const char *list;
    } cases[] = {
        {"c1 c2 c3 c4 c5", 2, 0, "5 4"},
        {"c1 c2 c3 c4 c5", 2, 1, "5 4 3w"},
        {"c1 c2 c3 c4 c5", 1, 9, "5 4w 3w 2w 1w"},
        {"c1 c2=mine c3 c3=step-3 c4 c5", 1, 1, "5 4w step-3 mine"},
        {"c1 c2 c3 c4 l2 c3", 1, 0, "3 (4)"},
        {"c1 c2 c3 c4 l2", 1, 1, "(4) (3w) 2 1w"},
        {"c1 c2 b3", 1, 0, "3! 2"}, /* the damaged one is no reason to go for the whole one */
        {"b1 c2 b3 c4", 1, 0, "4"},
        {"b1 c2 b3 c4", 2, 0, "4 3! 2"},
        {"c1 c2 b3 l2", 1, 0, "(3!) 2"},
        {"c1 c2 r1 b3", 1, 0, "3! (2) 1"},
        {"b1 c2 c3 r1", 1, 0, "(3) (2) 1!"}, /* none to go on from: nothing is touched */
        {"c1 c2 o3", 1, 1, "3 2w"},
        {"c1 c2 x3", 1, 0, "2 [3]"},
        {"c1 c2 c3 x3", 1, 0, "2 [3]"},            /* it is not the newest, and not ours to remove */
        {"c1 c2 o2=step-00000009@3", 1, 0, "9 2"}, /* its name is not its own */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        play(cases[i].script);
        for (int turn = 0; turn < 2; turn++) { /* and nothing more the second time */
            zf_saves_keep(at("run"), cases[i].keep, cases[i].weights);
            if (strcmp(listed(), cases[i].list)) fail_msg("%s: %s, and not %s", cases[i].script, listed(), cases[i].list);
        }
    }
    play("c1 c2 c3 c4"); /* fewer with their weights only, then more whole ones: those stay what they are */
    zf_saves_keep(at("run"), 1, 2);
    assert_string_equal(listed(), "4 3w 2w");
    do_word("c5");
    do_word("c6");
    zf_saves_keep(at("run"), 5, 2);
    assert_string_equal(listed(), "6 5 4 3w 2w");
    zf_saves_keep(at("run"), 1, 0);
    assert_string_equal(listed(), "6");
}

static void what_is_left_of_one(void **state)
{
    (void)state;
    struct zf_ckpt c;
    struct stat before, after;
    char *path, *list;
    play("c1 c2");
    stat(at("run/checkpoints/step-00000001.zfc"), &before);
    zf_saves_keep(at("run"), 1, 1);
    stat(at("run/checkpoints/step-00000001.zfc"), &after);
    assert_true(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    ok(zf_ckpt_open(&c, at("run/checkpoints/step-00000001.zfc"), &e));
    ok(zf_ckpt_verify(&c, NULL, NULL, &e));
    assert_int_equal(c.count, 1);
    assert_string_equal(c.list[0].name, "w:master");
    assert_int_equal(json_integer_value(json_object_get(c.info, "step")), 1);
    zf_ckpt_close(&c);
    ok(zf_saves_newest(&c, &path, at("run"), NULL, false, NULL, &e));
    assert_non_null(strstr(path, "step-00000002.zfc"));
    zf_ckpt_close(&c);
    unlink(path);
    free(path);
    ok(zf_saves_newest(&c, &path, at("run"), NULL, false, NULL, &e));
    assert_null(path);
    list = zf_saves_list(at("run"));
    assert_non_null(strstr(list, "(weights only)"));
    free(list);
}

static void by_name(void **state)
{
    (void)state;
    static const struct {
        const char *word, *file;
        uint64_t fork;
    } cases[] = {
        {"4", "step-00000004.zfc", 4},
        {"mine", "mine.zfc", 4},
        {"mine.zfc", "mine.zfc", 4},
        {"step-00000002", "step-00000002.zfc", 2},
        {"300", "300.zfc", 7},
        {"5", "five.zfc", 5},
        {"6", "step-00000006.zfc", 4},
        {"3", "mine.zfc", 4},
        {"", NULL, 0},
        {"99999999999999999999999", NULL, 0},
        {"-4", NULL, 0},
        {"step-4", NULL, 0},
    };
    play("c2 c4 c3=mine c6 l4 c5=five c7=300");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path;
        uint64_t fork;
        enum zf_status s = zf_saves_find(&path, &fork, at("run"), cases[i].word, &e);
        const char *found = path ? strrchr(path, '/') + 1 : NULL;
        assert_int_equal(s, cases[i].file ? ZF_OK : ZF_USAGE);
        if (!s) assert_string_equal(found, cases[i].file);
        if (!s) assert_int_equal(fork, cases[i].fork);
        free(path);
    }
    char *path;
    uint64_t fork;
    assert_int_equal(zf_saves_find(&path, &fork, at("run"), "nothing", &e), ZF_USAGE);
    assert_non_null(strstr(e.message, "step-00000004"));
    assert_int_equal(zf_saves_find(&path, &fork, at("run"), "/no/where.zfc", &e), ZF_USAGE);
    ok(zf_saves_find(&path, &fork, at("run"), at("run/checkpoints/mine.zfc"), &e));
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(courses), T(which_stay), T(what_is_left_of_one), T(by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
