/* From options to everything a run needs but the device: model configuration, tokenizer, datasets, memory plan. Shared by `check` and
 * training.
 *
 * Stages, so that what cannot work is said early and nothing is written before all is known:
 *
 * - zf_setup_model: config.json (or the from-scratch options), tokenizer, parameter list, freeze
 *
 * - zf_setup_data: estimates what rows will need and refuses what cannot fit, then reads the data, then plans exactly; tells on stderr how
 *   far it is when that takes long */
#ifndef ZF_RUN_SETUP_H
#define ZF_RUN_SETUP_H

#include "checkpoints/hf.h"
#include "core/config/options.h"
#include "core/data/dataset.h"
#include "core/model/model.h"
#include "core/pipeline/policy.h"
#include "core/plan/memory.h"

/* Where to compute, the option's `auto` resolved. */
struct zf_device_choice {
    enum zf_choice_device device;
    const char *name;      /* of the backend */
    char description[256]; /* of a GPU; empty: it is none */
    struct zf_err ignored; /* why a GPU that is there is not used; code ZF_OK: there is none, or it is used */
};

struct zf_setup {
    const struct zf_options *o;
    struct zf_device_choice device;
    struct zf_err no_device; /* why that cannot be opened; code ZF_OK: it can. Who only looks at rows does not need it */
    struct zf_model_config config;
    struct zf_params params;             /* with `frozen` marked */
    enum zf_dtype dtype;                 /* of weights and activations: the option, `auto` resolved */
    struct zf_hf hf;                     /* config only until zf_setup_weights; zeroed from scratch */
    json_t *config_json;                 /* what an export's config.json is made from */
    struct zf_tokenizer *tokenizer;      /* NULL: the model folder has none that can be read; enough for `tokens` */
    struct zf_err tokenizer_error;       /* why not; code ZF_OK: it was not looked for or is there */
    const char *tokenizer_folder;        /* NULL: `bytes` or none */
    size_t sequence_length;              /* tokens that a row may have; `tokens` files bring their own rows */
    size_t longest_row;                  /* the longest there is, validation and choices included */
    struct zf_dataset all, train, valid; /* train is all, or the part of it that valid_split leaves; rows == 0: there is none */
    struct zf_dataset choices;           /* of the validation files: each record with each of the choices; rows == 0: there are none */
    struct zf_choice *choice;            /* [choice_count], of the option */
    size_t choice_count;
    char *prompt, *response;    /* the templates, where files hold them */
    uint64_t steps, total_rows; /* total_rows: rows the run will take; less than steps * batch_size if the last step is smaller */
    int ranks, neighbours;      /* that take part in the run, of them on this machine: set at first; 0: this one alone */
    size_t micro_batch;         /* likewise: what rank 0 has chosen; 0: the option */
    bool rows_only;             /* set it before zf_setup_data to look at rows only: then what training needs may be more than there is */
    struct zf_memory_limits limits;
    struct zf_memory_plan plan;
    struct zf_memory_request request;
    struct zf_plan_choice choice_of_memory[4]; /* what might be changed where it does not fit a GPU */
    enum zf_choice_strategy strategy;          /* the option, `auto` resolved */
    struct zf_policy policy;                   /* what it stands for at the start */
    double told;                               /* when progress was last told */
    double data_cpu;                           /* processor seconds that zf_setup_data took */
    struct zf_err_list notes;
    struct zf_arena arena;
};

/* The device that the option stands for on this machine: auto is a GPU that can be opened, else the host. ZF_USAGE: what was asked for by
 * name cannot be opened. */
enum zf_status zf_setup_device(struct zf_device_choice *out, enum zf_choice_device wanted, struct zf_err *e);
/* The dtype that the option stands for on a device; *native (may be NULL): the hardware multiplies bf16. */
enum zf_dtype zf_setup_dtype(enum zf_choice_dtype choice, const char *device, bool *native);

enum zf_status zf_setup_model(struct zf_setup *s, const struct zf_options *o, struct zf_err *e);
enum zf_status zf_setup_data(struct zf_setup *s, const volatile int *stop, struct zf_err *e);
/* The options' steps or epochs have changed: how many that is. */
enum zf_status zf_setup_steps(struct zf_setup *s, struct zf_err *e);
/* Opens the weight files, verifies their headers, and that every parameter's tensor is there. */
enum zf_status zf_setup_weights(struct zf_setup *s, struct zf_err *e);
void zf_setup_free(struct zf_setup *s);

/* Marks what the patterns (shell-like, on names) match. A pattern that matches nothing is ZF_USAGE. */
enum zf_status zf_setup_freeze(struct zf_params *p, const struct zf_strings *patterns, struct zf_err *e);

/* What memory there is for this process: where others of the run are on the machine, its share. */
void zf_setup_limits(const struct zf_setup *s, struct zf_memory_limits *out);

/* A note to be shown before training. */
void zf_setup_note(struct zf_setup *s, const char *where, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
