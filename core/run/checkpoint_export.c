/* `export`: a Hugging Face folder made from a run's masters, as its checkpoints have them, or from another such folder. */
#include "core/run/commands_model.h"

#include "checkpoints/hf.h"
#include "core/base/show.h"
#include "core/run/checkpoint_model.h"
#include "core/run/save_file.h"
#include "core/run/steer.h"
#include "core/telemetry/jsonl.h"
#include "core/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 };

/* ---- of a folder ---- */

struct conversion {
    const struct zf_hf *from;
    enum zf_st_type type;
    const struct zf_st_tensor **tensors;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Floats to the file, in its type. */
static enum zf_status put_floats(struct zf_st_sink *sink, float *x, size_t n, enum zf_st_type type, const char *name, struct zf_err *e)
{
    ZF_TRY(zf_narrow(x, n, type, name, e));
    return zf_st_put(sink, x, n * (type == ZF_ST_F32 ? 4 : 2), e);
}

/* Buffers of masks and positions, which some folders have beside the weights, stay what they are. */
static bool is_float(const struct zf_st_tensor *t)
{
    static const bool is_whole[ZF_ST_TYPES] = {
        [ZF_ST_BOOL] = true, [ZF_ST_U8] = true,  [ZF_ST_I8] = true,  [ZF_ST_I16] = true, [ZF_ST_U16] = true,
        [ZF_ST_I32] = true,  [ZF_ST_U32] = true, [ZF_ST_I64] = true, [ZF_ST_U64] = true};
    return !is_whole[t->type];
}

static enum zf_status convert_tensor(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct conversion *c = ctx;
    const struct zf_st_tensor *t = c->tensors[index];
    if (!is_float(t)) return zf_st_put(sink, t->data, t->bytes, e);
    size_t each = zf_st_type_bits(t->type) / 8;
    float *piece = malloc(PIECE * sizeof *piece);
    if (!piece) return zf_fail_memory(e, t->name);
    enum zf_status s = ZF_OK;
    for (size_t at = 0, n; !s && at < t->elements; at += n) {
        n = least(PIECE, t->elements - at);
        s = zf_st_floats(piece, t, at, n, e);
        if (!s) s = put_floats(sink, piece, n, c->type, t->name, e);
        zf_hf_pages(c->from, t->data + at * each, n * each, true); /* else all of the folder counts as memory of this process */
    }
    free(piece);
    return s;
}

static enum zf_status write_folder(const struct zf_hf *from, const char *out, enum zf_st_type type, struct zf_err *e)
{
    size_t n = zf_hf_tensor_count(from);
    struct zf_st_entry *entries = calloc(n ? n : 1, sizeof *entries);
    struct conversion c = {from, type, calloc(n ? n : 1, sizeof *c.tensors)};
    enum zf_status s = entries && c.tensors ? ZF_OK : zf_fail_memory(e, out);
    for (size_t i = 0; !s && i < n; i++) {
        const char *file;
        const struct zf_st_tensor *t = c.tensors[i] = zf_hf_tensor(from, i, &file);
        entries[i] = (struct zf_st_entry){.name = t->name, .type = is_float(t) ? type : t->type, .rank = t->rank};
        memcpy(entries[i].shape, t->shape, sizeof entries[i].shape);
    }
    if (!s)
        s = zf_hf_write(&(struct zf_hf_write){.out = out,
                                              .config = from->config,
                                              .type = type,
                                              .entries = entries,
                                              .count = n,
                                              .source = convert_tensor,
                                              .ctx = &c,
                                              .tokenizer_from = from->path},
                        e);
    free(entries);
    free(c.tensors);
    return s;
}

/* ---- of a checkpoint ---- */

struct saved_export {
    const struct zf_saved_model *from;
    struct zf_pipeline *drained; /* has the masters; NULL: the file has */
    enum zf_st_type type;
};

/* A tensor at a time, as the folder has it. */
static enum zf_status put_masters(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct saved_export *x = ctx;
    const struct zf_params *list = x->drained ? &x->drained->model->params : &x->from->params;
    const struct zf_param *p = &list->list[index];
    size_t all = p->rows * p->cols;
    float *masters = malloc(all * sizeof *masters), *piece = malloc(PIECE * sizeof *piece);
    enum zf_status s = masters && piece ? ZF_OK : zf_fail_memory(e, p->name);
    if (!s) s = x->drained ? zf_pipeline_masters(x->drained, p, masters, e) : zf_saved_model_masters(x->from, p, masters, e);
    for (size_t at = 0, n; !s && at < all; at += n) {
        n = least(PIECE, all - at);
        for (size_t i = 0; i < n; i++)
            piece[i] = p->transposed ? masters[(at + i) % p->rows * p->cols + (at + i) / p->rows] : masters[at + i];
        s = put_floats(sink, piece, n, x->type, p->name, e);
    }
    free(masters);
    free(piece);
    return s;
}

static enum zf_status write_saved(const struct saved_export *x, const char *out, struct zf_err *e)
{
    const struct zf_saved_model *m = x->from;
    const struct zf_params *p = &m->params;
    const char *tokenizer = zf_saved_model_tokenizer(m);
    struct zf_st_entry *entries = calloc(p->count, sizeof *entries);
    if (!entries) return zf_fail_memory(e, out);
    for (size_t i = 0; i < p->count; i++) {
        entries[i] = (struct zf_st_entry){.name = p->list[i].name, .type = x->type};
        entries[i].rank = zf_param_file_shape(&p->list[i], entries[i].shape);
    }
    enum zf_status s = zf_hf_write(&(struct zf_hf_write){.out = out,
                                                         .config = json_object_get(m->file.info, "config"),
                                                         .type = x->type,
                                                         .entries = entries,
                                                         .count = p->count,
                                                         .source = put_masters,
                                                         .ctx = (void *)(uintptr_t)x,
                                                         .tokenizer_from = tokenizer},
                                   e);
    free(entries);
    if (!s && !tokenizer) s = zf_tokenizer_write_bytes(out, m->config.eos_count > 0, e);
    if (!s && tokenizer && !zf_directory_exists(tokenizer))
        fprintf(stderr, "zenflow-console: note: the tokenizer was in %s, which is not there any more: %s has none\n", tokenizer, out);
    return s;
}

/* Matrices with gradients that are no part of their masters yet. */
static size_t pending(const struct zf_saved_model *m)
{
    const json_t *all = json_object_get(json_object_get(m->file.info, "pipeline"), "matrices");
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *x = json_array_get(all, i), *w = json_object_get(x, "window");
        bool up = json_is_true(json_object_get(w, "up")) && !json_is_true(json_object_get(w, "served"));
        count += up || zf_json_number(json_object_get(x, "open"), "count", 0) > 0;
    }
    return count;
}

/* All of a run's state comes into memory, as if it went on. */
static enum zf_status check_memory(const struct zf_saved_model *m, struct zf_err *e)
{
    struct zf_memory_limits limits;
    char need[32], have[32];
    size_t bytes = 0;
    for (size_t i = 0; i < m->file.count; i++) bytes += m->file.list[i].bytes;
    zf_memory_limits_read(&limits, "/", 0);
    if (bytes <= limits.least) return ZF_OK;
    return zf_fail(e, ZF_MEMORY, m->path,
                   "to apply what is pending all of its state is needed, %s, and there are %s (%s); without --drain a tensor at a time is",
                   zf_bytes_text(bytes, need, sizeof need), zf_bytes_text(limits.least, have, sizeof have), limits.least_name);
}

/* A run's model and what trains it, as long as it takes to apply what is pending. */
struct trained {
    struct zf_device *device;
    struct zf_model model;
    struct zf_pipeline pipeline;
};

/* Applies what is pending, as the run's own end does. */
static enum zf_status drain(struct trained *t, const struct zf_saved_model *m, struct zf_err *e)
{
    const struct zf_options *o = &m->options;
    bool bf16 = !strcmp(zf_json_text(m->file.info, "dtype", ""), zf_dtype_name(ZF_BF16));
    struct zf_policy policy = zf_policy_of(o, bf16 ? ZF_BF16 : ZF_F32, zf_saved_interval(&m->file, o));
    struct zf_adam_rule rule = zf_rule_of(o);
    ZF_TRY(check_memory(m, e));
    ZF_TRY(zf_device_open(&t->device, "host", &(struct zf_device_options){0}, e));
    ZF_TRY(zf_model_open_blank(&t->model, &m->config, bf16 ? ZF_BF16 : ZF_F32, true, t->device, e));
    ZF_TRY(zf_setup_freeze(&t->model.params, &o->freeze, e));
    ZF_TRY(zf_pipeline_open(&t->pipeline, &t->model, NULL, NULL, &policy, &rule, e));
    ZF_TRY(zf_saved_state(&m->file, &t->pipeline, NULL, NULL, e));
    return zf_pipeline_drain(&t->pipeline, e);
}

static enum zf_status export_saved(const struct zf_saved_model *m, const char *out, enum zf_st_type type, bool drains, struct zf_err *e)
{
    struct trained t = {0};
    struct saved_export x = {.from = m, .type = type};
    size_t waiting = pending(m);
    enum zf_status s = waiting && drains ? drain(&t, m, e) : ZF_OK;
    if (waiting && drains) x.drained = &t.pipeline;
    if (!s) s = write_saved(&x, out, e);
    if (!s && waiting && !drains)
        fprintf(stderr, "zenflow-console: note: gradients of %zu matrices are on their way, and not in it; --drain applies them\n",
                waiting);
    zf_pipeline_close(&t.pipeline);
    zf_model_close(&t.model);
    if (t.device) t.device->type->close(t.device);
    return s;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    enum zf_st_type type;
} types[] = {{"f32", ZF_ST_F32}, {"bf16", ZF_ST_BF16}, {"f16", ZF_ST_F16}};
enum { TYPES = sizeof types / sizeof *types };

static enum zf_status export_folder(const char *folder, const char *out, enum zf_st_type type, struct zf_err *e)
{
    struct zf_hf hf;
    ZF_TRY(zf_hf_open(&hf, folder, e));
    enum zf_status s = write_folder(&hf, out, type, e);
    zf_hf_close(&hf);
    return s;
}

enum zf_status zf_command_export(struct zf_args *a, struct zf_err *e)
{
    const char *run, *out, *dtype, *step;
    char *folder;
    struct zf_saved_model saved;
    size_t type = 0;
    bool drains = zf_args_flag(a, "--drain");
    ZF_TRY(zf_args_value(a, "--dtype", &dtype, e));
    ZF_TRY(zf_args_value(a, "--step", &step, e));
    ZF_TRY(zf_args_need(a, "RUN (a run directory or run.cfg) or CHECKPOINT", &run, e));
    ZF_TRY(zf_args_need(a, "OUT (the folder to be made)", &out, e));
    ZF_TRY(zf_args_done(a, e));
    if (!out[0]) return zf_fail(e, ZF_USAGE, "OUT", "it is empty; the name of the folder to be made is expected");
    while (dtype && type < TYPES && strcmp(dtype, types[type].name)) type++;
    if (type == TYPES) return zf_fail(e, ZF_USAGE, "--dtype", "`%s` is neither f32 nor bf16 nor f16", dtype);
    ZF_TRY(zf_hf_check_free(out, e));
    ZF_TRY(zf_find_model(&folder, &saved, run, step, e));
    enum zf_status s = !folder  ? export_saved(&saved, out, types[type].type, drains, e)
                       : drains ? zf_fail(e, ZF_USAGE, "--drain", "%s is no checkpoint: it has no gradients that could be applied", folder)
                                : export_folder(folder, out, types[type].type, e);
    if (!s && folder) zf_show_line(stdout, "%s: %s of %s", out, types[type].name, folder);
    if (!s && !folder) zf_show_line(stdout, "%s: %s of %s, step %" PRIu64, out, types[type].name, saved.path, saved.step);
    zf_saved_model_close(&saved);
    free(folder);
    return s;
}
