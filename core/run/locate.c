#include "core/run/locate.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/session/journal.h"
#include "core/telemetry/jsonl.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *zf_export_path(const char *run, uint64_t step)
{
    char *path = NULL;
    return asprintf(&path, "%s/exports/step-%08llu", run, (unsigned long long)step) < 0 ? NULL : path;
}

enum zf_status zf_locate_step(uint64_t *out, const char *text, struct zf_err *e)
{
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 15 || text[digits]) return zf_fail(e, ZF_USAGE, "--step", "`%s` is neither a step nor `last` nor `best`", text);
    *out = strtoull(text, NULL, 10);
    return ZF_OK;
}

static bool is_export(const json_t *entry)
{
    return zf_json_is(entry, "export") && strchr(zf_json_text(entry, "file", ""), '/');
}

/* RUN/exports/NAME. The journal's path may be an older one: a run can be moved. *out NULL: it is not there. */
static enum zf_status export_of(char **out, const char *run, const json_t *entry, struct zf_err *e)
{
    *out = NULL;
    if (asprintf(out, "%s/exports%s", run, strrchr(zf_json_text(entry, "file", ""), '/')) < 0) return zf_fail_memory(e, run);
    if (!zf_directory_exists(*out)) free(*out), *out = NULL;
    return ZF_OK;
}

enum zf_status zf_locate_export(char **out, const char *run, const uint64_t *step, struct zf_err *e)
{
    struct zf_err ignored;
    json_t *entries = NULL; /* a run without a journal has no exports */
    enum zf_status s = ZF_OK;
    *out = NULL;
    zf_journal_read(&entries, run, NULL, &ignored);
    for (size_t i = json_array_size(entries); !s && !*out && i-- > 0;) {
        const json_t *x = json_array_get(entries, i);
        if (is_export(x) && (!step || zf_json_number(x, "step", -1) == (double)*step)) s = export_of(out, run, x, e);
    }
    json_decref(entries);
    if (s || *out) return s;
    if (!step)
        return zf_fail(e, ZF_FORMAT, run,
                       "it has neither config.json (a model) nor a checkpoint that is whole nor an export; a run writes both when it ends");
    return zf_fail(e, ZF_FORMAT, run, "there is neither a checkpoint nor an export of step %llu; `inspect %s` lists the checkpoints",
                   (unsigned long long)*step, run);
}

enum zf_status zf_locate_best(char **out, uint64_t *step, const char *run, struct zf_err *e)
{
    struct zf_err ignored;
    json_t *entries = NULL;
    enum zf_status s = ZF_OK;
    double limit = 9e15; /* the run was taken back to this step afterwards: what is beyond it is of another course */
    bool found = false;
    *out = NULL;
    zf_journal_read(&entries, run, NULL, &ignored);
    for (size_t i = json_array_size(entries); !found && i-- > 0;) {
        const json_t *x = json_array_get(entries, i);
        double at = zf_json_number(x, "step", -1);
        if (zf_json_is(x, "resume") && at >= 0 && at < limit) limit = at;
        if (!is_export(x) || !json_is_true(json_object_get(x, "best")) || at < 0 || at > limit) continue;
        found = true;
        *step = (uint64_t)at;
        s = export_of(out, run, x, e);
    }
    json_decref(entries);
    return s || found ? s : zf_fail(e, ZF_FORMAT, run, "it has no export that was the best; keep_best = yes makes one");
}
