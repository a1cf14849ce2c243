/* A run directory that is made by hand: a journal, and small checkpoints. */
#ifndef ZF_TESTS_RUN_SUPPORT_H
#define ZF_TESTS_RUN_SUPPORT_H

#include "tests/session/support.h"

#include "core/run/saves.h"
#include <sys/stat.h>
#include <jansson.h>

static struct zf_err e;
static int seconds; /* of the made-up clock: it goes on with every entry and every file */

#define ok(call) \
    do { \
        if ((call) != ZF_OK) fail_msg("%s: %s", e.where, e.message); \
    } while (0)

static inline const char *now_text(void)
{
    static char text[40];
    snprintf(text, sizeof text, "2026-01-01T%02d:%02d:%02d.000Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
    seconds++;
    return text;
}

/* Takes what it is given. */
static inline void write_entry(json_t *o)
{
    FILE *f = fopen(at("run/journal.jsonl"), "a");
    assert_true(f && o && !json_object_set_new(o, "time", json_string(now_text())));
    assert_int_equal(json_dumpf(o, f, JSON_COMPACT), 0);
    fputs("\n", f);
    fclose(f);
    json_decref(o);
}

static inline void write_start(void)
{
    remove_root(NULL);
    assert_int_equal(make_root(NULL), 0);
    assert_int_equal(mkdir(at("run"), 0777) | mkdir(at("run/checkpoints"), 0777), 0);
    seconds = 0;
    write_entry(json_pack("{ss ss ss sI}", "type", "start", "run", "abc", "seed", "1", "steps", (json_int_t)100));
}

/* Takes info. A tensor of masters, one of moments. */
static inline void write_checkpoint(const char *name, json_t *info)
{
    static const float x[64] = {1, 2, 3};
    struct zf_ckpt_writer *w;
    ok(zf_ckpt_create(&w, at(name), &(struct zf_ckpt_options){.level = 1}, &e));
    ok(zf_ckpt_begin(w, "w:master", ZF_CKPT_F32, 2, (const uint64_t[]){4, 16}, &e));
    ok(zf_ckpt_put(w, x, sizeof x, &e));
    ok(zf_ckpt_begin(w, "w:m", ZF_CKPT_F32, 2, (const uint64_t[]){4, 16}, &e));
    ok(zf_ckpt_put(w, x, sizeof x, &e));
    ok(zf_ckpt_finish(w, info, &e));
}

#endif
