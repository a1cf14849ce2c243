#include "core/run/profile.h"
#include "core/run/trainer.h"

#include "checkpoints/safetensors.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/telemetry/jsonl.h"

#include <stdlib.h>
#include <string.h>

void zf_profile_see(struct zf_trainer *t)
{
    const struct zf_device_type *d = t->device->type;
    struct zf_profile *p = &t->profile;
    size_t n = d->lane_profile ? d->lane_profile(t->model.lane, p->last, ZF_PROFILE_ROWS) : 0;
    p->last_count = n < ZF_PROFILE_ROWS ? n : ZF_PROFILE_ROWS;
}

void zf_profile_step(struct zf_trainer *t, double seconds)
{
    struct zf_profile *p = &t->profile;
    zf_profile_see(t);
    if (t->step == 1 && t->setup->steps > 1) {
        memcpy(p->first, p->last, p->last_count * sizeof *p->first);
        p->first_count = p->last_count;
    } else {
        p->steps++;
        p->seconds += seconds;
    }
}

/* A row minus the same row of the first step. */
static struct zf_profile_row without_first(const struct zf_profile *p, struct zf_profile_row r)
{
    for (size_t k = 0; k < p->first_count; k++) {
        const struct zf_profile_row *f = &p->first[k];
        if (f->phase != r.phase || strcmp(f->op, r.op)) continue;
        r.calls -= f->calls;
        r.seconds -= f->seconds;
        r.flops -= f->flops;
        r.bytes -= f->bytes;
    }
    return r;
}

void zf_record_profile(struct zf_trainer *t)
{
    struct zf_profile *p = &t->profile;
    if (!p->steps || !p->last_count) return;
    json_t *list = json_array();
    for (size_t i = 0; i < p->last_count; i++) {
        struct zf_profile_row r = without_first(p, p->last[i]);
        if (r.calls)
            json_array_append_new(list, json_pack("{s:s s:s s:I s:f s:f s:f}", "phase", zf_phase_name(r.phase), "op", r.op, "calls",
                                                  (json_int_t)r.calls, "seconds", r.seconds, "flops", r.flops, "bytes", r.bytes));
    }
    zf_metrics_write(t->metrics, json_pack("{s:s s:I s:I s:f s:f s:f s:o}", "type", "profile", "step", (json_int_t)t->step, "steps",
                                           (json_int_t)p->steps, "seconds", p->seconds, "cpu_seconds", zf_clock_cpu(), "data_cpu_seconds",
                                           p->data_cpu + zf_loader_cpu(t->loader), "rows", list));
}

/* What stands in a file is read with care: absent and negative numbers are 0. */
static double number(const json_t *o, const char *key)
{
    double x = zf_json_number(o, key, 0);
    return x > 0 && x < 1e300 ? x : 0;
}

static void print_row(FILE *to, const char *phase, const char *op, const json_t *row, double steps, double whole)
{
    char shown[64];
    double seconds = number(row, "seconds"), flops = number(row, "flops"), bytes = number(row, "bytes"),
           per = seconds > 0 ? 1e-9 / seconds : 0;
    fprintf(to, "%-14.40s %-22.40s %8.0f %11.2f %6.1f%% %9.1f %8.1f\n", phase, zf_st_escape(shown, sizeof shown, op),
            number(row, "calls") / steps, 1e3 * seconds / steps, 100 * seconds / whole, flops * per, bytes * per);
}

/* The rows of a phase, and their sum where there are several. What is not part of a step has no share of one. */
static double print_phase(FILE *to, const json_t *rows, const char *phase, double steps, double whole)
{
    size_t i, count = 0;
    json_t *row, *sum = json_pack("{s:f s:f s:f s:f}", "calls", 0.0, "seconds", 0.0, "flops", 0.0, "bytes", 0.0);
    json_array_foreach(rows, i, row)
    {
        const char *key;
        json_t *value;
        if (strcmp(zf_json_text(row, "phase", ""), phase)) continue;
        print_row(to, count++ ? "" : phase, zf_json_text(row, "op", "?"), row, steps, whole);
        json_object_foreach(sum, key, value) json_real_set(value, json_real_value(value) + number(row, key));
    }
    double seconds = number(sum, "seconds");
    if (count > 1) print_row(to, "", "all", sum, steps, whole);
    json_decref(sum);
    return seconds;
}

static void print_table(FILE *to, const json_t *o)
{
    double steps = number(o, "steps"), whole = number(o, "seconds"), known = 0, cpu = number(o, "cpu_seconds"),
           data = number(o, "data_cpu_seconds");
    const json_t *rows = json_object_get(o, "rows");
    if (steps < 1) steps = 1;
    if (whole <= 0) whole = 1e-9;
    fprintf(to, "%-14s %-22s %8s %11s %7s %9s %8s\n", "phase", "op", "calls", "ms a step", "share", "GFLOP/s", "GB/s");
    for (int p = 0; p < ZF_PHASES; p++) {
        bool within = p != ZF_PHASE_VALIDATION && p != ZF_PHASE_OTHER && p != ZF_PHASE_GENERATION;
        double seconds = print_phase(to, rows, zf_phase_name((enum zf_phase)p), steps, whole);
        if (within) known += seconds;
    }
    double rest = whole > known ? whole - known : 0;
    fprintf(to, "%-14s %-22s %8s %11.2f %6.1f%%\n", "between", "waiting, issuing", "", 1e3 * rest / steps, 100 * rest / whole);
    fprintf(to, "%-14s %-22s %8s %11.2f\n", "step", "", "", 1e3 * whole / steps);
    fprintf(to, "mean of %.0f step%s%s; calls, ms are of one step; GFLOP/s and GB/s count each operand once\n", steps, steps > 1 ? "s" : "",
            number(o, "step") > steps ? ", the first left out" : "");
    if (cpu > 0)
        fprintf(to, "processor time of the run %.1f s; reading, checking, tokenising and packing the data %.2f s of it (%.2f %%)\n", cpu,
                data, 100 * data / cpu);
}

enum zf_status zf_profile_print(FILE *to, const char *run, bool json, struct zf_err *e)
{
    char *path = zf_path_join(run, "metrics.jsonl");
    if (!path) return zf_fail_memory(e, "a path");
    json_t *o = zf_jsonl_last(path, "profile");
    free(path);
    if (!o)
        return zf_fail(
            e, ZF_USAGE, run,
            "there is no account of its time; a run writes it when it ends, into metrics.jsonl, as do runs of this version only");
    if (json) {
        json_dumpf(o, to, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
        fputc('\n', to);
    } else {
        print_table(to, o);
    }
    json_decref(o);
    return ZF_OK;
}
