/* The model that is in a checkpoint: its configuration, and its masters, which are read a tensor at a time. What trains it is not read. */
#ifndef ZF_RUN_CHECKPOINT_MODEL_H
#define ZF_RUN_CHECKPOINT_MODEL_H

#include "checkpoints/container.h"
#include "checkpoints/safetensors.h"
#include "core/config/options.h"
#include "core/model/model.h"

struct zf_saved_model {
    struct zf_ckpt file; /* info has the config.json, and what else the run knew */
    char *path;          /* of it; NULL: there is none */
    uint64_t step;
    struct zf_options options; /* under which it was written */
    struct zf_model_config config;
    struct zf_params params; /* none of them frozen */
    struct zf_arena arena;
    struct zf_pool *pool; /* NULL: this thread alone */
};

/* A pool of so many threads, 0: all that this process may use, to verify and read with; NULL: there are no means for it, this thread is
 * enough. To be freed. */
struct zf_pool *zf_pool_to_read(int64_t threads);

/* A file that is a checkpoint, or should be one: by its name, or by how it begins. */
bool zf_is_checkpoint(const char *path);

enum zf_status zf_saved_model_open(struct zf_saved_model *out, const char *path, struct zf_err *e);
void zf_saved_model_close(struct zf_saved_model *m); /* zeroed is fine */

/* What an argument of a command stands for. A folder with config.json: itself, in *folder. A checkpoint: that. A run, or its run.cfg: its
 * newest checkpoint that is whole (`step` NULL or "last"), the one of a step, or else such an export; "best": the export that keep_best
 * kept, or else a checkpoint of its step. All of a run's checkpoint is verified. *folder, to be freed, or NULL and *saved is open. */
enum zf_status zf_find_model(char **folder, struct zf_saved_model *saved, const char *argument, const char *step, struct zf_err *e);

/* The masters of a parameter, all of it, [rows][cols]. Verified as they are read. */
enum zf_status zf_saved_model_masters(const struct zf_saved_model *m, const struct zf_param *p, float *out, struct zf_err *e);
/* f32 values as `type` (F32, BF16, F16), in place of the floats they were. Out of f16's range is an error, never an infinity nobody asked
 * for. */
enum zf_status zf_narrow(float *x, size_t n, enum zf_st_type type, const char *name, struct zf_err *e);
/* As visible weights into a model that was opened blank. */
enum zf_status zf_saved_model_load(const struct zf_saved_model *m, struct zf_model *to, struct zf_err *e);

/* The folder with the run's tokenizer; NULL: it is `bytes`. */
const char *zf_saved_model_tokenizer(const struct zf_saved_model *m);

#endif
