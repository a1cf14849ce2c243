/* The steps of the normalizer. */
#ifndef ZF_NORMALIZE_H
#define ZF_NORMALIZE_H

#include "core/tokenizer/tokenizer_impl.h"

/* Scratch of one thread; zeroed = empty. */
struct zf_normal_work {
    struct zf_text text[2]; /* a step writes from one to the other */
    int32_t *characters;
    size_t character_room;
    struct re_registers *region;
    bool front_lost; /* of the last text: its first characters fell away */
};
void zf_normal_work_free(struct zf_normal_work *w);

/* Places in a text, ascending, that a step moves to where the same text then is. A place inside something that is rewritten as one moves to
 * its front; a place at the very front stays there, before anything that is put in front. */
struct zf_places {
    size_t *list, count, first, next; /* first: those before it stay out of this; next: the one that the step at work moves next */
};
/* in_begin .. in_end of the old text is at out_begin now, as it was or rewritten. */
void zf_places_pass(struct zf_places *p, size_t in_begin, size_t in_end, size_t out_begin, bool same);
void zf_places_end(struct zf_places *p, size_t out_size); /* of a step */

/* *text (valid UTF-8) after all steps: either where it was, or in *w, until its next use. `continues`: nothing is put in front. places may
 * be NULL. */
enum zf_status zf_normalize(const struct zf_steps *steps, const char **text, size_t *size, bool continues, struct zf_places *places,
                            struct zf_normal_work *w, struct zf_err *e);

/* For a single short text (an added token's content): appends it, normalised. */
enum zf_status zf_normalize_text(const struct zf_steps *steps, const char *text, size_t size, struct zf_text *out, struct zf_err *e);

/* Whether a text may be cut between these characters and its parts be normalised each on its own (the second with `continues`), `left`
 * even alone. */
bool zf_normalizer_parts(const struct zf_steps *steps, uint32_t left, uint32_t right);

/* How much of a text that goes on is normalised the same whatever comes. */
size_t zf_normalizer_settled(const struct zf_steps *steps, const char *text, size_t size);

#endif
