/* The four lists of components of a tokenizer.json -> steps and template. Each has a table of what we have; anything else is refused by
 * its name. */
#include "core/tokenizer/load.h"

#include <stdio.h>
#include <string.h>

static enum zf_status get_count(struct zf_loader *l, const json_t *j, const char *key, size_t *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return zf_load_fail(l, "'%s' is missing or no count; expected 0 or more", key);
    *out = (size_t)json_integer_value(v);
    return ZF_OK;
}

/* One of several words; -1 in *out if the key is absent. */
static enum zf_status get_choice(struct zf_loader *l, const json_t *j, const char *key, const char *const *words, size_t count, int *out)
{
    const json_t *v = json_object_get(j, key);
    *out = -1;
    if (!v || json_is_null(v)) return ZF_OK;
    for (size_t i = 0; json_is_string(v) && i < count; i++) {
        if (!strcmp(json_string_value(v), words[i])) *out = (int)i;
    }
    if (*out >= 0) return ZF_OK;
    char have[128] = "";
    for (size_t i = 0, n = 0; i < count && n < sizeof have; i++)
        n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", i ? ", " : "", words[i]);
    return zf_load_fail(l, "'%s' is '%.64s'; expected one of %s", key, json_is_string(v) ? json_string_value(v) : "no text", have);
}

static enum zf_status behavior(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    static const char *const words[] = {[ZF_REMOVED] = "Removed",
                                        [ZF_ISOLATED] = "Isolated",
                                        [ZF_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [ZF_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [ZF_CONTIGUOUS] = "Contiguous"};
    int n;
    ZF_TRY(get_choice(l, j, "behavior", words, 5, &n));
    step->behavior = n < 0 ? ZF_ISOLATED : (enum zf_behavior)n;
    return ZF_OK;
}

/* {"String": text} or {"Regex": text}. */
static enum zf_status get_pattern(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    const json_t *pattern = json_object_get(j, "pattern");
    step->has_regex = json_object_get(pattern, "Regex") != NULL;
    return zf_load_piece(l, pattern, step->has_regex ? "Regex" : "String", false, &step->pattern);
}

/* Normalizers. */

static enum zf_status prepend(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    return zf_load_piece(l, j, "prepend", true, &step->content);
}

static enum zf_status replace(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    ZF_TRY(get_pattern(l, j, step));
    return zf_load_piece(l, j, "content", true, &step->content);
}

static enum zf_status strip_space(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    ZF_TRY(zf_load_bool(l, j, "strip_left", true, &step->left));
    return zf_load_bool(l, j, "strip_right", true, &step->right);
}

/* Pre-tokenizers. */

static enum zf_status split(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    ZF_TRY(get_pattern(l, j, step));
    ZF_TRY(behavior(l, j, step));
    return zf_load_bool(l, j, "invert", false, &step->invert);
}

static enum zf_status digits(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    return zf_load_bool(l, j, "individual_digits", false, &step->individual);
}

static enum zf_status byte_level(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    ZF_TRY(zf_load_bool(l, j, "add_prefix_space", true, &step->prefix_space));
    return zf_load_bool(l, j, "use_regex", true, &step->use_regex);
}

/* Older files have add_prefix_space, newer ones prepend_scheme, some both: then the scheme counts. */
static enum zf_status metaspace(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    static const char *const schemes[] = {[ZF_PREPEND_ALWAYS] = "always", [ZF_PREPEND_FIRST] = "first", [ZF_PREPEND_NEVER] = "never"};
    bool prefix;
    int scheme;
    ZF_TRY(zf_load_piece(l, j, "replacement", false, &step->content));
    if (zf_utf8_only(step->content.text, step->content.size) == ZF_NO_CHARACTER)
        return zf_load_fail(l, "Metaspace replaces by '%.64s'; expected a single character", step->content.text);
    ZF_TRY(zf_load_bool(l, j, "add_prefix_space", true, &prefix));
    ZF_TRY(get_choice(l, j, "prepend_scheme", schemes, 3, &scheme));
    if (scheme >= 0 && scheme != ZF_PREPEND_NEVER && !prefix)
        return zf_load_fail(l, "Metaspace has add_prefix_space false and prepend_scheme '%s', which contradict each other",
                            schemes[scheme]);
    step->prepend = scheme >= 0 ? (enum zf_prepend)scheme : prefix ? ZF_PREPEND_ALWAYS : ZF_PREPEND_NEVER;
    return zf_load_bool(l, j, "split", true, &step->split);
}

/* Post-processors. */

static enum zf_status begin_template(struct zf_loader *l, const char *name)
{
    if (l->has_template) return zf_load_fail(l, "post_processor has %s behind another template; expected one that adds tokens", name);
    l->has_template = true;
    return ZF_OK;
}

static enum zf_status push_template(struct zf_loader *l, bool behind, const json_t *id, const char *name)
{
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v < 0 || v > INT32_MAX) return zf_load_fail(l, "post_processor: '%.64s' has an id that is none", name);
    return zf_ids_push(behind ? &l->t->after : &l->t->before, (int32_t)v, l->e);
}

static enum zf_status fill_template(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    (void)step;
    const json_t *single = json_object_get(j, "single"), *specials = json_object_get(j, "special_tokens"), *item;
    size_t i;
    bool seen = false;
    ZF_TRY(begin_template(l, "TemplateProcessing"));
    if (!json_is_array(single)) return zf_load_fail(l, "TemplateProcessing has no list 'single'");
    json_array_foreach(single, i, item)
    {
        const char *sequence = json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
        const char *name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (sequence) {
            if (strcmp(sequence, "A") || seen)
                return zf_load_fail(l, "the template 'single' has sequence %.16s at place %zu; expected A, once", sequence, i);
            seen = true;
            continue;
        }
        if (!name) return zf_load_fail(l, "the template 'single' has an item %zu that is neither Sequence nor SpecialToken", i);
        const json_t *ids = json_object_get(json_object_get(specials, name), "ids"), *id;
        size_t k;
        if (!json_is_array(ids)) return zf_load_fail(l, "the template names '%.64s', which special_tokens does not list", name);
        json_array_foreach(ids, k, id) ZF_TRY(push_template(l, seen, id, name));
    }
    return seen ? ZF_OK : zf_load_fail(l, "the template 'single' has no sequence A");
}

static enum zf_status cls_sep(struct zf_loader *l, const json_t *j, struct zf_step *step) /* BERT's and RoBERTa's: CLS text SEP */
{
    (void)step;
    static const char *const keys[] = {"cls", "sep"};
    ZF_TRY(begin_template(l, "a template"));
    for (int k = 0; k < 2; k++) {
        const json_t *pair = json_object_get(j, keys[k]);
        if (json_array_size(pair) != 2) return zf_load_fail(l, "post_processor: '%s' is no pair of a token and its id", keys[k]);
        ZF_TRY(push_template(l, k, json_array_get(pair, 1), keys[k]));
    }
    return ZF_OK;
}

/* Decoders. */

static enum zf_status strip(struct zf_loader *l, const json_t *j, struct zf_step *step)
{
    ZF_TRY(zf_load_piece(l, j, "content", false, &step->content));
    ZF_TRY(get_count(l, j, "start", &step->start));
    return get_count(l, j, "stop", &step->stop);
}

enum { COMPONENTS = 10 };

struct section {
    const char *name, *list; /* list: the member of a Sequence that holds its parts */
    size_t steps;            /* where in the tokenizer they go; 0: nowhere, they fill the template */
    struct component {
        const char *type;
        enum zf_step_kind kind;
        enum zf_status (*settings)(struct zf_loader *l, const json_t *j, struct zf_step *step); /* NULL: it has none */
    } components[COMPONENTS];
};

static const struct section sections[] = {
    {"normalizer",
     "normalizers",
     offsetof(struct zf_tokenizer, normalizer),
     {{"Prepend", ZF_STEP_PREPEND, prepend},
      {"Replace", ZF_STEP_REPLACE, replace},
      {"NFC", ZF_STEP_NFC, NULL},
      {"NFD", ZF_STEP_NFD, NULL},
      {"NFKC", ZF_STEP_NFKC, NULL},
      {"NFKD", ZF_STEP_NFKD, NULL},
      {"Lowercase", ZF_STEP_LOWERCASE, NULL},
      {"Strip", ZF_STEP_STRIP_SPACE, strip_space},
      {"StripAccents", ZF_STEP_STRIP_ACCENTS, NULL}}},
    {"pre_tokenizer",
     "pretokenizers",
     offsetof(struct zf_tokenizer, pre_tokenizer),
     {{"Split", ZF_STEP_SPLIT, split},
      {"Digits", ZF_STEP_DIGITS, digits},
      {"Punctuation", ZF_STEP_PUNCTUATION, behavior},
      {"WhitespaceSplit", ZF_STEP_WHITESPACE_SPLIT, NULL},
      {"ByteLevel", ZF_STEP_BYTE_LEVEL, byte_level},
      {"Metaspace", ZF_STEP_METASPACE, metaspace}}},
    {"post_processor",
     "processors",
     0,
     {{"ByteLevel", 0, NULL}, /* changes offsets only */
      {"TemplateProcessing", 0, fill_template},
      {"RobertaProcessing", 0, cls_sep},
      {"BertProcessing", 0, cls_sep}}},
    {"decoder",
     "decoders",
     offsetof(struct zf_tokenizer, decoder),
     {{"ByteLevel", ZF_STEP_BYTE_LEVEL, NULL},
      {"Replace", ZF_STEP_REPLACE, replace},
      {"ByteFallback", ZF_STEP_BYTE_FALLBACK, NULL},
      {"Fuse", ZF_STEP_FUSE, NULL},
      {"Strip", ZF_STEP_STRIP, strip},
      {"Metaspace", ZF_STEP_METASPACE, metaspace}}},
};

/* What ByteLevel makes stands for bytes: later parts may split it, not add to it. */
static enum zf_status check_order(struct zf_loader *l, enum zf_step_kind kind)
{
    bool adds = kind == ZF_STEP_BYTE_LEVEL || kind == ZF_STEP_METASPACE;
    if (l->t->byte_level && adds)
        return zf_load_fail(
            l, "pre_tokenizer has ByteLevel or Metaspace behind ByteLevel; expected it once, and behind it only parts that split");
    l->t->byte_level |= kind == ZF_STEP_BYTE_LEVEL;
    return ZF_OK;
}

/* The list takes the step, and its compiled pattern. */
static enum zf_status add_step(struct zf_loader *l, struct zf_steps *to, const struct zf_step *step)
{
    void *p = to->list;
    enum zf_status s = zf_grow(&p, &to->room, to->count + 1, sizeof *to->list, l->e);
    to->list = p;
    if (s != ZF_OK) return s;
    struct zf_step *at = &to->list[to->count++];
    *at = *step;
    if (step->use_regex) return zf_splitter_init_gpt2(&at->regex, l->e);
    if (!step->has_regex) return ZF_OK;
    s = zf_splitter_init(&at->regex, step->pattern.text, step->pattern.size, l->e);
    return s == ZF_FORMAT ? zf_load_fail(l, "the pattern '%.200s' cannot be used: %s", step->pattern.text, l->e->message) : s;
}

static enum zf_status load_component(struct zf_loader *l, const struct section *s, const struct component *c, const json_t *j)
{
    struct zf_step step = {.kind = c->kind};
    struct zf_steps *to = (void *)((char *)l->t + s->steps);
    if (c->settings) ZF_TRY(c->settings(l, j, &step));
    if (!s->steps) return ZF_OK;
    if (to == &l->t->pre_tokenizer) ZF_TRY(check_order(l, step.kind));
    return add_step(l, to, &step);
}

static enum zf_status refuse_type(struct zf_loader *l, const struct section *s, const char *type)
{
    char have[256] = "";
    for (size_t i = 0, n = 0; i < COMPONENTS && s->components[i].type && n < sizeof have; i++)
        n += (size_t)snprintf(have + n, sizeof have - n, "%s, ", s->components[i].type);
    return zf_load_fail(l,
                        "%s '%.64s' is not supported by this version, which has: %sand Sequence of these; use a tokenizer of the GPT-2, "
                        "Llama or Qwen kind, or `bytes`",
                        s->name, type, have);
}

/* `depth` bounds the recursion: a file nests as it likes. */
static enum zf_status load_section(struct zf_loader *l, const struct section *s, const json_t *j, int depth)
{
    if (!j || json_is_null(j)) return ZF_OK;
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!type) return zf_load_fail(l, "%s is no object with a 'type'", s->name);
    if (!strcmp(type, "Sequence")) {
        const json_t *list = json_object_get(j, s->list), *item;
        size_t i;
        if (!json_is_array(list)) return zf_load_fail(l, "%s is a Sequence without a list '%s'", s->name, s->list);
        if (depth > 8) return zf_load_fail(l, "%s has Sequences within each other, more than 8 deep", s->name);
        json_array_foreach(list, i, item) ZF_TRY(load_section(l, s, item, depth + 1));
        return ZF_OK;
    }
    for (size_t i = 0; i < COMPONENTS && s->components[i].type; i++) {
        if (!strcmp(type, s->components[i].type)) return load_component(l, s, &s->components[i], j);
    }
    return refuse_type(l, s, type);
}

enum zf_status zf_load_components(struct zf_loader *l, const json_t *root)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        ZF_TRY(load_section(l, &sections[i], json_object_get(root, sections[i].name), 0));
    /* A decoder without parts joins the tokens; where there is none at all, spaces go between. */
    const json_t *decoder = json_object_get(root, "decoder");
    if (!decoder || json_is_null(decoder) || l->t->decoder.count) return ZF_OK;
    return add_step(l, &l->t->decoder, &(struct zf_step){.kind = ZF_STEP_FUSE});
}
