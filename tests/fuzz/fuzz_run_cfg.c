/* run.cfg from any bytes: read or refused with places; checked; written and read back to the same options. */
#include "core/config/run_cfg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zf_options o, back;
    struct zf_err_list errors = {0};
    struct zf_err e;
    char *text = NULL;
    size_t text_size = 0;
    if (zf_options_init(&o, &e) || zf_options_init(&back, &e)) abort();
    zf_run_cfg_read_memory(&o, (const char *)data, size, "f.cfg", "/base", &errors);
    for (size_t i = 0; i < errors.count; i++)
        if (strncmp(errors.list[i].where, "f.cfg", 5) || !errors.list[i].message[0] || errors.list[i].code == ZF_OK) abort();
    zf_options_validate(&o, size & 1, &errors);
    zf_err_list_free(&errors);
    FILE *f = open_memstream(&text, &text_size);
    if (!f || zf_options_write(&o, f, &e)) abort();
    fclose(f);
    if (zf_run_cfg_read_memory(&back, text, text_size, "run.cfg", "/elsewhere", &errors)) abort();
    if (!zf_options_equal(&o, &back)) abort();
    json_t *j = zf_options_json(&o);
    if (!j) abort();
    json_decref(j);
    free(text);
    zf_err_list_free(&errors);
    zf_options_free(&o);
    zf_options_free(&back);
    return 0;
}
