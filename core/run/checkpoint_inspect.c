/* `inspect` of a checkpoint, and of a run by its checkpoints. All of a file is verified. */
#include "core/run/commands_model.h"

#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/base/show.h"
#include "core/config/run_cfg.h"
#include "core/plan/memory.h"
#include "core/run/checkpoint_model.h"
#include "core/run/saves.h"
#include "core/session/rundir.h"
#include "core/telemetry/jsonl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_json(json_t *o)
{
    json_dumpf(o, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(o);
}

/* ---- a checkpoint ---- */

struct sizes {
    uint64_t raw, stored;
};

static struct sizes sizes_of(const struct zf_ckpt *c)
{
    struct sizes n = {0};
    for (size_t i = 0; i < c->count; i++) n.raw += c->list[i].bytes, n.stored += c->list[i].stored;
    return n;
}

/* What the run's options were, if this program understands them. To be freed with zf_options_free; false: nothing is there. */
static bool read_options(struct zf_options *o, const struct zf_ckpt *c)
{
    const char *text = zf_json_text(c->info, "run_cfg", NULL);
    struct zf_err ignored;
    return text && !zf_run_cfg_options(o, text, c->path, &ignored);
}

static json_t *options_json(const struct zf_options *o)
{
    json_t *all = zf_options_json(o);
    for (int i = 0; i < ZF_OPTIONS; i++)
        if (zf_options_is_default(o, (enum zf_option_id)i)) json_object_del(all, zf_option_table[i].name);
    return all;
}

static json_t *tensor_json(const struct zf_ckpt_tensor *t)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s s:s s:o s:I s:I s:I}", "name", t->name, "type", zf_ckpt_type_name(t->type), "shape", shape, "offset",
                     (json_int_t)t->offset, "bytes", (json_int_t)t->bytes, "stored", (json_int_t)t->stored);
}

static void put_checkpoint_json(const struct zf_ckpt *c, const struct zf_ckpt_damage *damage, bool valid)
{
    static const char *const copied[] = {"step", "steps", "time", "program", "dtype", "machine", "trainer", "weights_only"};
    struct sizes n = sizes_of(c);
    struct zf_options options;
    json_t *tensors = json_array(), *damaged = json_array();
    for (size_t i = 0; i < c->count; i++) json_array_append_new(tensors, tensor_json(&c->list[i]));
    for (size_t i = 0; i < damage->count && i < ZF_CKPT_DAMAGES; i++)
        json_array_append_new(damaged, json_string(damage->list[i].tensor->name));
    json_t *o = json_pack("{s:s s:b s:o s:I s:I s:I}", "path", c->path, "valid", valid, "damaged", damaged, "file_bytes",
                          (json_int_t)c->size, "bytes", (json_int_t)n.raw, "stored", (json_int_t)n.stored);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (json_object_get(c->info, copied[i])) json_object_set(o, copied[i], json_object_get(c->info, copied[i]));
    if (json_object_get(c->info, "config")) json_object_set(o, "model", json_object_get(c->info, "config"));
    if (read_options(&options, c)) {
        json_object_set_new(o, "run", json_string(options.dir));
        json_object_set_new(o, "options", options_json(&options));
        zf_options_free(&options);
    }
    json_object_set_new(o, "tensors", tensors);
    print_json(o);
}

static void put_options(const struct zf_options *o)
{
    zf_show_line(stdout, "  %-10s %s", "run", o->dir);
    printf("  %-10s those that are not at their default:\n", "options");
    for (int i = 0; i < ZF_OPTIONS; i++) {
        char *text = zf_options_get_text(o, (enum zf_option_id)i);
        if (text && i != ZF_OPT_dir && !zf_options_is_default(o, (enum zf_option_id)i))
            zf_show_line(stdout, "    %s = %s", zf_option_table[i].name, text);
        free(text);
    }
    for (size_t i = 0; i < o->at_count; i++) zf_show_line(stdout, "    at %lld = %s", (long long)o->at[i].step, o->at[i].command);
}

static void put_facts(const struct zf_ckpt *c)
{
    const json_t *info = c->info, *machine = json_object_get(info, "machine");
    double step = zf_json_number(info, "step", -1), steps = zf_json_number(info, "steps", 0);
    struct zf_options options;
    struct zf_model_config config;
    struct zf_err ignored;
    if (step >= 0) printf("  %-10s %.0f of %.0f\n", "step", step, steps);
    if (zf_saves_is_weights(info)) printf("  %-10s the weights only (keep_weights): to be exported, not to go on from\n", "has");
    if (zf_json_text(info, "time", NULL))
        zf_show_line(stdout, "  %-10s %s, %s", "written", zf_json_text(info, "time", ""), zf_json_text(info, "program", ""));
    if (machine)
        zf_show_line(stdout, "  %-10s %s, %s, %s", "machine", zf_json_text(machine, "device", "?"),
                     zf_json_text(machine, "instructions", "?"), zf_json_text(machine, "products", "?"));
    if (json_object_get(info, "config") && !zf_model_config_read(&config, json_object_get(info, "config"), c->path, &ignored)) {
        printf("  %-10s ", "model");
        zf_print_model(&config);
    }
    if (read_options(&options, c)) {
        put_options(&options);
        zf_options_free(&options);
    }
}

static void put_checkpoint(const struct zf_ckpt *c, const struct zf_ckpt_damage *damage, bool valid)
{
    struct sizes n = sizes_of(c);
    char raw[32], stored[32];
    zf_show_line(stdout, "%s", c->path);
    put_facts(c);
    for (size_t i = 0; i < c->count; i++) {
        const struct zf_ckpt_tensor *t = &c->list[i];
        zf_show(stdout, t->name);
        printf("  %s [", zf_ckpt_type_name(t->type));
        for (size_t k = 0; k < t->rank; k++) printf("%s%llu", k ? ", " : "", (unsigned long long)t->shape[k]);
        printf("]  %llu bytes in %llu\n", (unsigned long long)t->bytes, (unsigned long long)t->stored);
    }
    printf("%zu tensor%s, %s in %s (%.1f %%)", c->count, zf_plural(c->count), zf_bytes_text(n.raw, raw, sizeof raw),
           zf_bytes_text(n.stored, stored, sizeof stored), n.raw ? 100 * (double)n.stored / (double)n.raw : 0);
    if (valid)
        puts("; all of it is whole");
    else
        printf("; %zu damaged\n", damage->count);
}

enum zf_status zf_inspect_checkpoint(const char *path, bool json, struct zf_err *e)
{
    struct zf_ckpt c;
    struct zf_ckpt_damage damage = {0};
    ZF_TRY(zf_ckpt_open(&c, path, e));
    struct zf_pool *pool = zf_pool_to_read(0);
    enum zf_status s = zf_ckpt_verify(&c, pool, &damage, e);
    if (s == ZF_OK || s == ZF_FORMAT) json ? put_checkpoint_json(&c, &damage, !s) : put_checkpoint(&c, &damage, !s);
    zf_pool_free(pool);
    zf_ckpt_close(&c);
    return s;
}

/* ---- a run ---- */

struct overview {
    json_t *list;
    char *next; /* which one a start goes on from; NULL: none so far */
    struct zf_pool *pool;
    size_t damaged;
    struct zf_err first; /* of the damaged ones */
};

/* One that is gone by now was one too many for `keep`. */
static enum zf_status look(void *ctx, const char *path, enum zf_saves_of of, struct zf_err *e)
{
    struct overview *v = ctx;
    struct zf_ckpt c;
    struct zf_err why = {0};
    struct stat st;
    if (stat(path, &st)) return ZF_OK;
    enum zf_status bad = zf_ckpt_open(&c, path, &why);
    bool open = !bad;
    if (open) bad = zf_ckpt_verify(&c, v->pool, NULL, &why);
    bool weights = open && zf_saves_is_weights(c.info);
    json_t *o = json_pack("{s:s s:I s:b s:b s:b s:b}", "file", path, "bytes", (json_int_t)st.st_size, "left", of == ZF_SAVES_LEFT,
                          "foreign", of == ZF_SAVES_FOREIGN, "valid", !bad, "weights_only", weights);
    if (open && json_object_get(c.info, "step")) json_object_set(o, "step", json_object_get(c.info, "step"));
    if (open && json_object_get(c.info, "time")) json_object_set(o, "time", json_object_get(c.info, "time"));
    if (bad) json_object_set_new(o, "damage", json_string(why.message));
    if (open) zf_ckpt_close(&c);
    if (bad && !v->damaged++) v->first = why;
    if (json_array_append_new(v->list, o)) return zf_fail_memory(e, path);
    if (bad || of != ZF_SAVES_OURS || weights || v->next) return ZF_OK;
    return (v->next = strdup(path)) ? ZF_OK : zf_fail_memory(e, path);
}

static void put_overview(const char *run, const struct overview *v, const struct zf_run_facts *f)
{
    char bytes[32];
    size_t n = json_array_size(v->list);
    zf_show_line(stdout, "%s: %zu checkpoint%s%s", run, n, zf_plural(n), n > 1 ? ", the newest first" : "");
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(v->list, i);
        const char *damage = zf_json_text(o, "damage", NULL);
        zf_show_line(stdout, "  %s  step %.0f  %s  %s  %s%s%s", zf_path_name(zf_json_text(o, "file", "")), zf_json_number(o, "step", 0),
                     zf_bytes_text((size_t)zf_json_number(o, "bytes", 0), bytes, sizeof bytes), zf_json_text(o, "time", ""),
                     damage                                             ? "DAMAGED: "
                     : json_is_true(json_object_get(o, "weights_only")) ? "whole, its weights only"
                                                                        : "whole",
                     damage ? damage : "",
                     zf_saves_where(json_is_true(json_object_get(o, "foreign")) ? ZF_SAVES_FOREIGN
                                    : json_is_true(json_object_get(o, "left"))  ? ZF_SAVES_LEFT
                                                                                : ZF_SAVES_OURS));
    }
    if (v->next)
        zf_show_line(stdout, "%s from %s", f->finished ? "the run is over; more steps would go on" : "a start goes on",
                     zf_path_name(v->next));
    else
        puts("there is none that a start could go on from");
    if (f->last_export[0]) zf_show_line(stdout, "newest export: %s", f->last_export);
}

enum zf_status zf_inspect_run(const char *run, bool json, struct zf_err *e)
{
    struct zf_run_facts facts;
    ZF_TRY(zf_rundir_look(&facts, run, NULL, e));
    if (facts.state != ZF_RUNDIR_OURS)
        return zf_fail(e, ZF_FORMAT, run, "it has neither config.json (a model) nor a run; a model folder or a run directory is expected");
    struct overview v = {.list = json_array(), .pool = zf_pool_to_read(0)};
    enum zf_status s = v.list ? zf_saves_each(run, look, &v, e) : zf_fail_memory(e, run);
    if (!s && json) {
        json_t *o = json_pack("{s:s s:O s:s? s:s? s:b s:b}", "path", run, "checkpoints", v.list, "next", v.next, "last_export",
                              facts.last_export[0] ? facts.last_export : NULL, "finished", facts.finished, "valid", !v.damaged);
        print_json(o);
    } else if (!s) {
        put_overview(run, &v, &facts);
    }
    if (!s && v.damaged) *e = v.first, s = v.first.code;
    json_decref(v.list);
    zf_pool_free(v.pool);
    free(v.next);
    return s;
}
