#include "core/run/locate.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/session/locate.h"
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

/* The export that `step` ("last", "best", a number) means: RUN/exports/NAME of the newest such line of the journal whose folder is there.
 * The journal's path may be an older one: a run can be moved. To be freed; NULL: none. */
static char *journalled(const char *run, const char *step)
{
    char *path = zf_path_join(run, "journal.jsonl"), *found = NULL;
    bool best = !strcmp(step, "best"), last = !strcmp(step, "last");
    struct zf_lines lines;
    struct zf_err ignored;
    json_t *line;
    if (path && !zf_lines_open(&lines, path, &ignored)) {
        while ((line = zf_lines_next(&lines))) {
            const char *file = zf_json_text(line, "file", ""), *slash = strrchr(file, '/');
            bool meant =
                !strcmp(zf_json_text(line, "type", ""), "export") && slash &&
                (last || (best ? json_is_true(json_object_get(line, "best")) : zf_json_number(line, "step", -1) == strtod(step, NULL)));
            char *here = NULL;
            if (meant && asprintf(&here, "%s/exports%s", run, slash) >= 0 && zf_directory_exists(here)) {
                free(found);
                found = here;
            } else if (meant) {
                free(here);
            }
            json_decref(line);
        }
        zf_lines_close(&lines);
    }
    free(path);
    return found;
}

enum zf_status zf_locate_model(char **out, const char *argument, const char *step, struct zf_err *e)
{
    char *config = zf_path_join(argument, "config.json"), *run = NULL, *end;
    bool model = config && zf_file_exists(config), named = !strcmp(step, "last") || !strcmp(step, "best");
    free(config);
    *out = NULL;
    if (model) return (*out = strdup(argument)) ? ZF_OK : zf_fail_memory(e, argument);
    if (!named && (strtoull(step, &end, 10) == 0 || *end))
        return zf_fail(e, ZF_USAGE, "--step", "`%s` is neither a step nor `last` nor `best`", step);
    ZF_TRY(zf_locate_run(&run, argument, e));
    *out = journalled(run, step);
    enum zf_status s = ZF_OK;
    if (!*out && !named)
        s = zf_fail(e, ZF_FORMAT, run, "there is neither a checkpoint nor an export of step %s; `inspect %s` lists the checkpoints", step,
                    run);
    if (!*out && named)
        s = zf_fail(e, ZF_FORMAT, run, "it has %s",
                    !strcmp(step, "best")
                        ? "no export that was the best; keep_best = yes makes one"
                        : "neither config.json (a model) nor a checkpoint that is whole nor an export; a run writes both when "
                          "it ends");
    free(run);
    return s;
}
