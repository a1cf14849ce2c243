/* See checkpoint_model.h. */
#include "core/run/checkpoint_model.h"

#include "checkpoints/container_file.h"
#include "core/base/floats.h"
#include "core/config/run_cfg.h"
#include "core/run/locate.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/session/locate.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool zf_is_checkpoint(const char *path)
{
    unsigned char begin[8 + sizeof ZF_ZFC_MAGIC - 1];
    if (!zf_file_exists(path)) return false;
    if (zf_saves_is_file(path)) return true;
    FILE *f = fopen(path, "re");
    bool is = f && fread(begin, 1, sizeof begin, f) == sizeof begin && !memcmp(begin + 8, ZF_ZFC_MAGIC, sizeof begin - 8);
    if (f) fclose(f);
    return is;
}

/* ---- opening ---- */

static enum zf_status read_options(struct zf_saved_model *m, struct zf_err *e)
{
    const char *text = zf_json_text(m->file.info, "run_cfg", NULL);
    if (!text) return zf_fail(e, ZF_FORMAT, m->path, "it does not say under which options it was written: it is no checkpoint of a run");
    return zf_run_cfg_options(&m->options, text, m->path, e) ? e->code = ZF_FORMAT : ZF_OK;
}

struct zf_pool *zf_pool_to_read(int64_t threads)
{
    struct zf_device_info host;
    struct zf_pool *pool = NULL;
    struct zf_err ignored;
    if (!threads && zf_device_survey("host", &host)) threads = host.threads;
    if (threads) zf_pool_new(&pool, (int)threads, &ignored);
    return pool;
}

/* m->file and m->path are there. */
static enum zf_status read_model(struct zf_saved_model *m, struct zf_err *e)
{
    const json_t *config = json_object_get(m->file.info, "config");
    double step = zf_json_number(m->file.info, "step", -1);
    if (step < 0 || step > 9e15 || !json_is_object(config))
        return zf_fail(e, ZF_FORMAT, m->path, "it does not say which model it has, or of which step: it is no checkpoint of a run");
    m->step = (uint64_t)step;
    ZF_TRY(read_options(m, e));
    ZF_TRY(zf_model_config_read(&m->config, config, m->path, e));
    return zf_params_build(&m->params, &m->config, &m->arena, e);
}

enum zf_status zf_saved_model_open(struct zf_saved_model *out, const char *path, struct zf_err *e)
{
    *out = (struct zf_saved_model){0};
    ZF_TRY(zf_ckpt_open(&out->file, path, e));
    if (!(out->path = strdup(path))) {
        zf_ckpt_close(&out->file);
        return zf_fail_memory(e, path);
    }
    enum zf_status s = read_model(out, e);
    out->pool = zf_pool_to_read(0);
    if (s) zf_saved_model_close(out);
    return s;
}

void zf_saved_model_close(struct zf_saved_model *m)
{
    if (m->path) zf_ckpt_close(&m->file);
    zf_options_free(&m->options);
    zf_arena_free(&m->arena);
    zf_pool_free(m->pool);
    free(m->path);
    *m = (struct zf_saved_model){0};
}

/* ---- which one ---- */

/* The newest of a step, or of any (NULL). ZF_OK with m->path NULL: there is none. */
static enum zf_status find_saved(struct zf_saved_model *m, const char *run, const uint64_t *step, struct zf_err *e)
{
    m->pool = zf_pool_to_read(0);
    enum zf_status s = zf_saves_newest(&m->file, &m->path, run, step, true, m->pool, e);
    if (!s && m->path) s = read_model(m, e);
    if (s || !m->path) zf_saved_model_close(m);
    return s;
}

/* keep_best kept nothing; what was the best may be known all the same: to the newest checkpoint. e: that nothing was kept. */
static enum zf_status best_not_kept(const char *run, struct zf_err *e)
{
    struct zf_saved_model m = {0};
    struct zf_err ignored;
    char *folder = NULL;
    uint64_t step = 0;
    if (!find_saved(&m, run, NULL, &ignored) && m.path)
        step = zf_json_count(json_object_get(json_object_get(m.file.info, "trainer"), "best"), "step");
    zf_saved_model_close(&m);
    if (!step) return e->code;
    bool there = !find_saved(&m, run, &step, &ignored) && m.path;
    if (!there) there = !zf_locate_export(&folder, run, &step, &ignored);
    zf_saved_model_close(&m);
    free(folder);
    if (!there)
        return zf_fail(e, ZF_FORMAT, run,
                       "its best step was %" PRIu64 ", of which nothing is left: keep_best = yes keeps an export of the best", step);
    return zf_fail(e, ZF_FORMAT, run,
                   "its best step was %" PRIu64 ", and keep_best is no: no export of it was kept; `--step %" PRIu64 "` is there", step,
                   step);
}

static enum zf_status best_in_run(char **folder, struct zf_saved_model *m, const char *run, struct zf_err *e)
{
    uint64_t step;
    if (zf_locate_best(folder, &step, run, e)) return best_not_kept(run, e);
    if (!*folder) ZF_TRY(find_saved(m, run, &step, e));
    if (*folder || m->path) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, run, "its best step was %" PRIu64 ", of which neither the export nor a checkpoint is there any more",
                   step);
}

static enum zf_status in_run(char **folder, struct zf_saved_model *m, const char *run, const char *step, struct zf_err *e)
{
    uint64_t number;
    bool last = !step || !strcmp(step, "last");
    if (step && !strcmp(step, "best")) return best_in_run(folder, m, run, e);
    if (!last) ZF_TRY(zf_locate_step(&number, step, e));
    const uint64_t *which = last ? NULL : &number;
    ZF_TRY(find_saved(m, run, which, e));
    return m->path ? ZF_OK : zf_locate_export(folder, run, which, e);
}

enum zf_status zf_find_model(char **folder, struct zf_saved_model *saved, const char *argument, const char *step, struct zf_err *e)
{
    char *config = zf_path_join(argument, "config.json"), *run = NULL;
    bool model = config && zf_file_exists(config);
    free(config);
    *folder = NULL;
    *saved = (struct zf_saved_model){0};
    if (step && (model || zf_is_checkpoint(argument)))
        return zf_fail(e, ZF_USAGE, "--step", "%s is %s, of one step; name the run to choose one of its steps", argument,
                       model ? "a model" : "a checkpoint");
    if (model) return (*folder = strdup(argument)) ? ZF_OK : zf_fail_memory(e, argument);
    if (zf_is_checkpoint(argument)) return zf_saved_model_open(saved, argument, e);
    if (zf_saves_is_file(argument) && !zf_directory_exists(argument)) return zf_saves_missing(argument, e);
    ZF_TRY(zf_locate_run(&run, argument, e));
    enum zf_status s = in_run(folder, saved, run, step, e);
    free(run);
    return s;
}

/* ---- weights ---- */

enum zf_status zf_saved_model_masters(const struct zf_saved_model *m, const struct zf_param *p, float *out, struct zf_err *e)
{
    const struct zf_ckpt_tensor *t;
    ZF_TRY(zf_saved_master(&t, &m->file, p, e));
    return zf_ckpt_read(&m->file, t, out, 0, t->bytes, m->pool, e);
}

enum zf_status zf_narrow(float *x, size_t n, enum zf_st_type type, const char *name, struct zf_err *e)
{
    for (size_t i = 0; i < n && type != ZF_ST_F32; i++) {
        float v;
        memcpy(&v, (const char *)x + i * sizeof v, sizeof v); /* read before the narrower value overwrites an earlier one */
        uint16_t h = type == ZF_ST_BF16 ? zf_f32_to_bf16(v) : zf_f32_to_f16(v);
        if (type == ZF_ST_F16 && isfinite(v) && (h & 0x7fff) == 0x7c00)
            return zf_fail(e, ZF_FORMAT, name, "the value %g is out of f16's range (65504); export as bf16 or f32", (double)v);
        memcpy((char *)x + i * sizeof h, &h, sizeof h);
    }
    return ZF_OK;
}

static enum zf_status load_one(const struct zf_saved_model *m, struct zf_model *to, const struct zf_param *p, float *pinned,
                               struct zf_err *e)
{
    const struct zf_device_type *t = to->device->type;
    size_t n = p->rows * p->cols, each = zf_dtype_size(to->dtype);
    ZF_TRY(zf_saved_model_masters(m, p, pinned, e));
    ZF_TRY(zf_narrow(pinned, n, to->dtype == ZF_F32 ? ZF_ST_F32 : ZF_ST_BF16, p->name, e));
    enum zf_status s = t->copy(to->lane, (char *)to->weights + p->offset * each, pinned, n * each);
    return s ? zf_lane_refused(to->device, to->lane, s, p->name, e) : t->lane_sync(to->lane, e);
}

enum zf_status zf_saved_model_load(const struct zf_saved_model *m, struct zf_model *to, struct zf_err *e)
{
    const struct zf_device_type *t = to->device->type;
    void *pinned = NULL;
    size_t most = 1;
    for (size_t i = 0; i < m->params.count; i++)
        if (m->params.list[i].rows * m->params.list[i].cols > most) most = m->params.list[i].rows * m->params.list[i].cols;
    enum zf_status s = t->alloc(to->device, ZF_MEM_PINNED, ZF_TAG_OTHER, most * sizeof(float), &pinned, e);
    for (size_t i = 0; !s && i < to->params.count; i++) s = load_one(m, to, &to->params.list[i], pinned, e);
    t->free(to->device, pinned);
    return s;
}

const char *zf_saved_model_tokenizer(const struct zf_saved_model *m)
{
    const struct zf_options *o = &m->options;
    return o->path[0] ? o->path : strcmp(o->tokenizer, "bytes") ? o->tokenizer : NULL;
}
