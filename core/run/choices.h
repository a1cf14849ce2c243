/* Classification by choices: how often the likeliest of a record's possible responses is its own.
 *
 * A choice's score is the sum of the log-probabilities of its trained tokens after the prompt: a sum also where choices differ in tokens,
 * for that is the probability of the whole response. The highest score is the prediction; of equal ones the first in the order of the
 * option. A record with a choice that has no token left (cut off) or whose loss is not finite has no prediction, and counts as wrong. */
#ifndef ZF_RUN_CHOICES_H
#define ZF_RUN_CHOICES_H

#include "core/data/dataset.h"
#include "core/model/model.h"

struct zf_choices {
    const struct zf_dataset *data; /* with every_choice: row i*count + k is record i with choice k */
    size_t count;
    uint64_t most;   /* records to look at; 0: all */
    int rank, ranks; /* of them this share; 0, 0: all */
    size_t micro_batch, room_tokens;
    enum zf_status (*between)(void *context, struct zf_err *e); /* after each micro-batch; what it returns ends the scoring */
    void *context;
};

struct zf_choices_found {
    uint64_t records, right, commonest; /* commonest: of how many the most frequent choice is the right one */
};

/* What is counted, as doubles that ranks can add: records, right ones, then how often each choice is the right one. */
enum { ZF_CHOICE_COUNTS = 2 };

/* Adds to counts[ZF_CHOICE_COUNTS + count]. Reads, computes, waits; takes less memory than a loader. ZF_FORMAT: the rows are not `count` of
 * each record. */
enum zf_status zf_choices_score(const struct zf_choices *c, struct zf_model *m, double *counts, struct zf_err *e);
void zf_choices_sum(struct zf_choices_found *out, const double *counts, size_t count);

#endif
