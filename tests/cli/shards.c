/* shards MODEL OUT BYTES: a model folder anew, with shards of at most so many bytes. What a user gets with models of more than 5 GB. */
#include "checkpoints/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum zf_status give(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const char *file;
    const struct zf_st_tensor *t = zf_hf_tensor(ctx, index, &file);
    return zf_st_put(sink, t->data, t->bytes, e);
}

static enum zf_status shards(const char *model, const char *out, size_t limit, struct zf_err *e)
{
    struct zf_hf hf;
    const char *file;
    ZF_TRY(zf_hf_open(&hf, model, e));
    size_t n = zf_hf_tensor_count(&hf);
    struct zf_st_entry *entries = calloc(n + 1, sizeof *entries);
    enum zf_status s = entries ? ZF_OK : zf_fail_memory(e, out);
    for (size_t i = 0; !s && i < n; i++) {
        const struct zf_st_tensor *t = zf_hf_tensor(&hf, i, &file);
        entries[i] = (struct zf_st_entry){.name = t->name, .type = t->type, .rank = t->rank};
        memcpy(entries[i].shape, t->shape, sizeof t->shape);
    }
    if (!s)
        s = zf_hf_write(&(struct zf_hf_write){.out = out,
                                              .config = hf.config,
                                              .type = entries[0].type,
                                              .entries = entries,
                                              .count = n,
                                              .source = give,
                                              .ctx = &hf,
                                              .tokenizer_from = model,
                                              .shard_limit = limit},
                        e);
    free(entries);
    zf_hf_close(&hf);
    return s;
}

int main(int argc, char **argv)
{
    struct zf_err e;
    if (argc != 4) return fprintf(stderr, "usage: shards MODEL OUT BYTES\n"), ZF_USAGE;
    enum zf_status s = shards(argv[1], argv[2], strtoull(argv[3], NULL, 10), &e);
    if (s) zf_err_print("error", &e);
    return (int)s;
}
