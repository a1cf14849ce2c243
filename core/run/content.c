/* See content.h. */
#include "core/run/content.h"

#include "core/data/rows.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both have files of their own; with valid_split the validation rows are among the others. */
static const struct part {
    const char *name;
    enum zf_option_id files;
    size_t data; /* where struct zf_setup has them */
} parts[] = {{"train", ZF_OPT_train, offsetof(struct zf_setup, all)}, {"valid", ZF_OPT_valid, offsetof(struct zf_setup, valid)}};
enum { PARTS = sizeof parts / sizeof *parts };

/* NULL: there are no such files. */
static const struct zf_rows *rows_of(const struct zf_setup *s, const struct part *p)
{
    const struct zf_dataset *d = (const void *)((const char *)s + p->data);
    return d->slice ? NULL : d->store;
}

static json_t *hex(const unsigned char *bytes, size_t count)
{
    char text[2 * 16 + 1] = "";
    for (size_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_string(text);
}

json_t *zf_content_of(const struct zf_setup *s)
{
    json_t *o = json_object();
    for (size_t i = 0; i < PARTS; i++) {
        const struct zf_rows *r = rows_of(s, &parts[i]);
        char digest[17];
        if (!r) continue;
        snprintf(digest, sizeof digest, "%016" PRIx64, r->content);
        json_object_set_new(o, parts[i].name,
                            json_pack("{sI sI ss}", "rows", (json_int_t)r->rows, "tokens", (json_int_t)r->stats.tokens, "xxh3", digest));
    }
    if (s->tokenizer) json_object_set_new(o, "tokenizer", hex(zf_tokenizer_hash(s->tokenizer), 16));
    return o;
}

static bool differs(const json_t *then, const json_t *now, const char *name)
{
    const json_t *was = json_object_get(then, name), *is = json_object_get(now, name);
    return was && is && !json_equal(was, is);
}

/* Of which data, and how. The tokenizer is part of what makes tokens of it. */
static enum zf_status refuse(const struct zf_setup *s, const struct part *p, const json_t *then, const json_t *now, struct zf_err *e)
{
    char how[160] = "the content differs", *files = zf_options_get_text(s->o, p->files);
    double was = zf_json_number(json_object_get(then, p->name), "rows", 0), is = (double)rows_of(s, p)->rows;
    bool tokenizer = differs(then, now, "tokenizer");
    if (was != is) snprintf(how, sizeof how, "%.15g rows then, %.15g now; the content differs", was, is);
    enum zf_status failed =
        files
            ? zf_fail(e, ZF_DIFFERENT, "data",
                      "%.600s is not what the run began with (%s%s%.200s): put it back, or begin another run with --set path=EXPORT --set "
                      "dir=NAME",
                      files, how, tokenizer ? ", and so does the tokenizer that makes tokens of it, " : "",
                      !tokenizer            ? ""
                      : s->tokenizer_folder ? s->tokenizer_folder
                                            : "bytes")
            : zf_fail_memory(e, "the data's names");
    free(files);
    return failed;
}

enum zf_status zf_content_check(const struct zf_setup *s, const json_t *then, struct zf_err *e)
{
    json_t *now = zf_content_of(s);
    enum zf_status failed = now ? ZF_OK : zf_fail_memory(e, "the data");
    for (size_t i = 0; !failed && i < PARTS; i++)
        if (differs(then, now, parts[i].name)) failed = refuse(s, &parts[i], then, now, e);
    json_decref(now);
    return failed;
}
