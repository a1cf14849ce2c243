/* libFuzzer: bytes -> config.json -> flags -> parameters. What is accepted must be writable, and read back as the same model. */
#include "core/model/family.h"

#include <stdint.h>
#include <stdlib.h>

static void check(int true_)
{
    if (!true_) abort();
}

static void check_parameters(const struct zf_model_config *c)
{
    struct zf_arena a = {0};
    struct zf_params p;
    struct zf_err e;
    enum zf_status s = zf_params_build(&p, c, &a, &e);
    check(s == ZF_OK);
    for (size_t i = 0; i < p.count; i++) {
        char buffer[128];
        const struct zf_param *q = &p.list[i];
        check(zf_family_canonical(c, q->name, buffer, sizeof buffer) == q->name && zf_param_find(&p, q->name) == q);
        check(zf_param_at(&p, q->slot, q->layer) == q && q->rows * q->cols <= p.elements - q->offset);
    }
    zf_arena_free(&a);
}

static void check_written(const struct zf_model_config *c)
{
    struct zf_model_config again;
    struct zf_err e;
    json_t *one = zf_model_config_write(c), *two;
    check(one && zf_model_config_read(&again, one, "written", &e) == ZF_OK);
    two = zf_model_config_write(&again);
    check(two && json_equal(one, two));
    json_decref(one);
    json_decref(two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float table[3 * ZF_HEAD_DIM_MAX];
    struct zf_model_config c;
    struct zf_err e;
    json_t *config;
    if (zf_json_parse(&config, (const char *)data, size, "config.json", &e) != ZF_OK) return 0;
    if (zf_model_config_read(&c, config, "config.json", &e) == ZF_OK) {
        check_parameters(&c);
        check_written(&c);
        if (c.rope.kind != ZF_ROPE_NONE) zf_rope_table(table, &c.rope, 3, c.head_dim);
    } else {
        check(e.code == ZF_FORMAT && e.message[0]);
    }
    json_decref(config);
    return 0;
}
