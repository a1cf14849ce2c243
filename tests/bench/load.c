/* How fast and in how much memory a model is loaded: bench_load MODEL [f32|bf16] [THREADS] [inference] opens a Hugging Face folder as
 * training does (as generation does) and prints seconds, resident memory before and after, its peak, and what it may be: the final state
 * (weights, masters) and the largest tensor. A measurement, not a test. */
#include "checkpoints/hf.h"
#include "core/base/clock.h"
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_load: %s: %s\n", e->where, e->message);
    exit(1);
}

/* Megabytes of a line of /proc/self/status. */
static double status_mb(const char *name)
{
    char line[128];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) kib = strtoul(line + strlen(name), NULL, 10);
    if (f) fclose(f);
    return (double)kib / 1024;
}

int main(int argc, char **argv)
{
    struct zf_err e = {0};
    struct zf_hf hf;
    struct zf_model_config config;
    struct zf_model model;
    struct zf_device *device;
    enum zf_dtype dtype = argc > 2 && !strcmp(argv[2], "bf16") ? ZF_BF16 : ZF_F32;
    bool training = argc <= 4;
    if (argc < 2) return fprintf(stderr, "usage: bench_load MODEL [f32|bf16] [THREADS] [inference]\n"), 2;
    need(zf_device_open(&device, "host", &(struct zf_device_options){.threads = argc > 3 ? atoi(argv[3]) : 0}, &e), &e);
    need(zf_hf_open(&hf, argv[1], &e), &e);
    need(zf_model_config_read(&config, hf.config, argv[1], &e), &e);
    double before = status_mb("VmRSS:"), from = zf_clock(), cpu = zf_clock_cpu();
    need(zf_model_open(&model, &config, &hf, 0, dtype, training, device, &e), &e);
    double seconds = zf_clock() - from, after = status_mb("VmRSS:"), most = status_mb("VmHWM:");
    cpu = zf_clock_cpu() - cpu;
    double file = 0, largest = 0;
    for (size_t i = 0; i < zf_hf_tensor_count(&hf); i++) {
        const char *name;
        file += (double)zf_hf_tensor(&hf, i, &name)->bytes / (1 << 20);
    }
    for (size_t i = 0; i < model.params.count; i++) {
        double mb = 4.0 * (double)(model.params.list[i].rows * model.params.list[i].cols) / (1 << 20);
        if (mb > largest) largest = mb;
    }
    double each = (dtype == ZF_F32 ? 4 : training ? 6 : 2), state = each * (double)model.params.elements / (1 << 20);
    printf("{\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"gb_per_s\": %.2f, \"before_mb\": %.1f, \"after_mb\": %.1f, \"peak_mb\": %.1f, "
           "\"state_mb\": %.1f, \"largest_mb\": %.1f}\n",
           seconds, cpu, file / seconds / 1024, before, after, most, state, largest);
    zf_model_close(&model);
    zf_hf_close(&hf);
    device->type->close(device);
    return 0;
}
