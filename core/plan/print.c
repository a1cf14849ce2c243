/* The memory plan for people and for scripts. */
#include "core/plan/memory.h"

#include <stdint.h>
#include <stdio.h>

const char *zf_plan_row_name(enum zf_plan_row r)
{
    static const char *const names[ZF_PLAN_ROWS] = {"weights", "gradients", "moments", "CPU half", "slots", "activations",
                                                    "logits",  "cache",     "batch",   "data",     "other"};
    return (unsigned)r < ZF_PLAN_ROWS ? names[r] : "?";
}

const char *zf_bytes_text(size_t bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double x = (double)bytes;
    while (x >= 1024 && unit < 6) {
        x /= 1024;
        unit++;
    }
    snprintf(buffer, size, unit ? "%.2f %s" : "%.0f %s", x, units[unit]);
    return buffer;
}

struct limit_row {
    const char *name;
    size_t bytes;
};

enum { LIMITS = 4 };

static void limit_rows(struct limit_row rows[LIMITS], const struct zf_memory_limits *l)
{
    rows[0] = (struct limit_row){"MemAvailable", l->available};
    rows[1] = (struct limit_row){"cgroup limit", l->cgroup};
    rows[2] = (struct limit_row){"memory_limit", l->option};
    rows[3] = (struct limit_row){"ulimit -v", l->address};
}

static void print_device(FILE *to, const struct zf_memory_plan *p, const struct zf_memory_limits *l)
{
    char text[32], more[32], others[32];
    size_t rows = 0;
    fprintf(to, "gpu memory     bytes\n");
    for (int i = 0; i < ZF_PLAN_ROWS; rows += p->device[i++])
        if (p->device[i])
            fprintf(to, "  %-12s %s\n", zf_plan_row_name((enum zf_plan_row)i), zf_bytes_text(p->device[i], text, sizeof text));
    fprintf(to, "  %-12s %s\n", "CUDA's own", zf_bytes_text(p->device_total - rows, text, sizeof text));
    fprintf(to, "  %-12s %s\n", "total", zf_bytes_text(p->device_total, text, sizeof text));
    if (!l || l->device == SIZE_MAX) return;
    fprintf(to, "  %-12s %s left of %s of %s; others and CUDA have %s%s\n", "gpu", zf_bytes_text(l->device, text, sizeof text),
            zf_bytes_text(l->device_total, more, sizeof more), l->device_name,
            zf_bytes_text(l->device_total - l->device, others, sizeof others), l->device_option ? ", or memory_limit leaves no more" : "");
    if (p->device_total <= l->device)
        fprintf(to, "  fits\n");
    else
        fprintf(to, "  does not fit: %s more than the GPU has left\n", zf_bytes_text(p->device_total - l->device, text, sizeof text));
}

void zf_memory_plan_print(FILE *to, const struct zf_memory_plan *p, const struct zf_memory_limits *l)
{
    char text[32];
    fprintf(to, "memory         bytes\n");
    for (int i = 0; i < ZF_PLAN_ROWS; i++)
        if (p->bytes[i]) fprintf(to, "  %-12s %s\n", zf_plan_row_name((enum zf_plan_row)i), zf_bytes_text(p->bytes[i], text, sizeof text));
    fprintf(to, "  %-12s %s (micro_batch %zu, %zu tokens%s)\n", "total", zf_bytes_text(p->total, text, sizeof text), p->micro_batch,
            p->tokens, p->recompute ? ", recompute" : "");
    if (!l) {
        if (p->device_total) print_device(to, p, l);
        return;
    }
    struct limit_row rows[LIMITS];
    limit_rows(rows, l);
    for (int i = 0; i < LIMITS; i++) {
        if (rows[i].bytes == SIZE_MAX) continue;
        fprintf(to, "  %-12s %s left", rows[i].name, zf_bytes_text(rows[i].bytes, text, sizeof text));
        if (i == 1) fprintf(to, " of %s", l->cgroup_path);
        fputc('\n', to);
    }
    if (p->total <= l->least)
        fprintf(to, "  fits\n");
    else
        fprintf(to, "  does not fit: %s more than %s\n", zf_bytes_text(p->total - l->least, text, sizeof text), l->least_name);
    if (p->device_total) print_device(to, p, l);
}

static json_t *bytes_json(size_t bytes)
{
    return bytes > INT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *device_json(const struct zf_memory_plan *p, const struct zf_memory_limits *l)
{
    json_t *rows = json_object(), *out = json_object();
    int bad = !rows || !out;
    for (int i = 0; i < ZF_PLAN_ROWS; i++)
        bad |= json_object_set_new(rows, zf_plan_row_name((enum zf_plan_row)i), bytes_json(p->device[i]));
    bad |= json_object_set_new(out, "bytes", rows);
    bad |= json_object_set_new(out, "total", bytes_json(p->device_total));
    bad |= json_object_set_new(out, "pinned", bytes_json(p->pinned));
    if (l) {
        bad |= json_object_set_new(out, "left", bytes_json(l->device));
        bad |= json_object_set_new(out, "size", bytes_json(l->device_total));
    }
    if (!bad) return out;
    json_decref(out);
    return NULL;
}

json_t *zf_memory_plan_json(const struct zf_memory_plan *p, const struct zf_memory_limits *l)
{
    json_t *rows = json_object(), *out = json_object();
    int bad = !rows || !out;
    for (int i = 0; i < ZF_PLAN_ROWS; i++) bad |= json_object_set_new(rows, zf_plan_row_name((enum zf_plan_row)i), bytes_json(p->bytes[i]));
    bad |= json_object_set_new(out, "bytes", rows);
    bad |= json_object_set_new(out, "total", bytes_json(p->total));
    bad |= json_object_set_new(out, "micro_batch", bytes_json(p->micro_batch));
    bad |= json_object_set_new(out, "tokens", bytes_json(p->tokens));
    bad |= json_object_set_new(out, "recompute", json_boolean(p->recompute));
    if (p->device_total) bad |= json_object_set_new(out, "device", device_json(p, l));
    if (l) {
        json_t *limits = json_object(), *path = json_string(l->cgroup_path); /* NULL: a path that is no UTF-8 */
        bad |= json_object_set_new(limits, "available", bytes_json(l->available));
        bad |= json_object_set_new(limits, "cgroup", bytes_json(l->cgroup));
        bad |= json_object_set_new(limits, "cgroup_path", path ? path : json_null());
        bad |= json_object_set_new(limits, "memory_limit", bytes_json(l->option));
        bad |= json_object_set_new(limits, "address_space", bytes_json(l->address));
        bad |= json_object_set_new(limits, "least", bytes_json(l->least));
        bad |= json_object_set_new(limits, "least_name", json_string(l->least_name));
        bad |= json_object_set_new(out, "limits", limits);
        bad |= json_object_set_new(out, "fits", json_boolean(p->total <= l->least && p->device_total <= l->device));
    }
    if (!bad) return out;
    json_decref(out);
    return NULL;
}
