/* A Hugging Face model folder: config.json, one model.safetensors or shards with an index; and writing one. */
#ifndef ZF_CHECKPOINTS_HF_H
#define ZF_CHECKPOINTS_HF_H

#include "checkpoints/safetensors.h"
#include "core/base/json.h"

struct zf_hf {
    const char *path;
    json_t *config;               /* parsed config.json */
    struct zf_safetensors *files; /* the shards that the index names, in the order of their names; one without an index */
    const char **file_names;
    size_t file_count;
    struct zf_arena arena;
    char note[512]; /* what was ignored (extra files), stale total_size; empty if nothing */
};

/* Opens and verifies: every mapped name is in that shard's header, every shard exists, names are unique over shards, no path separators.
 * Messages apart: the folder is missing; has no config.json; holds only pytorch_model.bin (a pickle: how to convert); a shard is missing;
 * a shard lacks a tensor. ZF_FORMAT (ZF_IO if the system refuses). */
enum zf_status zf_hf_open(struct zf_hf *out, const char *path, struct zf_err *e);
/* config.json only: for checks that need no weights. files stay empty. */
enum zf_status zf_hf_open_config(struct zf_hf *out, const char *path, struct zf_err *e);
void zf_hf_close(struct zf_hf *h);

/* Tensor i of all files, 0 <= i < zf_hf_tensor_count. */
size_t zf_hf_tensor_count(const struct zf_hf *h);
const struct zf_st_tensor *zf_hf_tensor(const struct zf_hf *h, size_t i, const char **file_name);

/* The pages of the files behind `bytes` bytes from `data` on (inside a tensor; NULL: all of them): wanted soon, or done with. Done with,
 * they count no more as memory of this process; they can be read again all the same. */
void zf_hf_pages(const struct zf_hf *h, const unsigned char *data, size_t bytes, bool done);

/* Writes a folder that transformers loads: model.safetensors, or shards of at most shard_limit bytes (0: 5e9) with an index, config.json
 * (given, with its dtype key set to `type`; byte for byte that of tokenizer_from if that says the same), and a byte copy of the tokenizer
 * and generation files of tokenizer_from (may be NULL). The folder is built as OUT.tmp-PID and appears by rename; an existing OUT is ZF_IO.
 */
struct zf_hf_write {
    const char *out;
    const json_t *config;
    enum zf_st_type type; /* F32, BF16, F16: what the entries have */
    const struct zf_st_entry *entries;
    size_t count;
    zf_st_source *source;
    void *ctx;
    const char *tokenizer_from;
    size_t shard_limit;
};
enum zf_status zf_hf_write(const struct zf_hf_write *w, struct zf_err *e);
/* ZF_IO if there is something of that name; zf_hf_write looks for itself, this is for who has much to do before. */
enum zf_status zf_hf_check_free(const char *out, struct zf_err *e);

#endif
