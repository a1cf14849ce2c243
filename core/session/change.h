/* Changes of options while a run goes on: from words to a new, checked set of options, and the sentences about it. Pure. */
#ifndef ZF_SESSION_CHANGE_H
#define ZF_SESSION_CHANGE_H

#include "core/config/options.h"

/* Where the run stands. */
struct zf_change_place {
    uint64_t step, steps; /* completed; of how many, which is what `steps` is where the file gives epochs */
    double (*rate)(void *ctx, const struct zf_options *o, uint64_t step); /* NULL: the answer shows no learning rate */
    void *ctx;
    const char *run;   /* the run directory, for advice */
    uint32_t interval; /* what update_interval = auto is; 0: not known */
    bool bare;         /* the answer does not say what becomes of what is pending: all else changes, too */
};

struct zf_change {
    enum zf_option_id id;
    char *before, *after; /* value texts */
};

struct zf_changes {
    struct zf_options wanted; /* all options as they would be */
    struct zf_change *list;
    size_t count;
    char ask[512]; /* not empty: what needs a yes */
};

/* words: NAME VALUE NAME VALUE... ZF_USAGE or ZF_DIFFERENT: refused, and why. `count` 0: nothing would change. Free it whatever came. */
enum zf_status zf_changes_make(struct zf_changes *out, const struct zf_options *now, const char *const *words, size_t count,
                               const struct zf_change_place *place, struct zf_err *e);
/* What makes `now` into `wanted`, which were checked before. */
enum zf_status zf_changes_between(struct zf_changes *out, const struct zf_options *now, const struct zf_options *wanted,
                                  const struct zf_change_place *place, struct zf_err *e);
/* The steps after `step` that the schedule, which has ended by then, leaves at a learning rate of 0, and what to do; false: there are
 * none. steps: of how many, where the options give epochs. */
bool zf_schedule_leaves(const struct zf_options *o, uint64_t step, uint64_t steps, char *text, size_t room);
void zf_changes_free(struct zf_changes *c);

/* "learning_rate 2e-5 -> 1e-5, from step 41 (lr(41) 1.9e-5 -> 9.5e-6)", a line a change; of what does not change "NAME is VALUE already".
 * To be freed; NULL: no memory. */
char *zf_changes_text(const struct zf_changes *c, const struct zf_options *now, const char *const *words, size_t count,
                      const struct zf_change_place *place);
/* The command that makes the same change from anywhere: `set! learning_rate 1e-5`. back: the one that takes it back. To be freed. */
char *zf_changes_command(const struct zf_changes *c, bool back);

enum zf_status zf_options_copy(struct zf_options *to, const struct zf_options *from, struct zf_err *e);

#endif
