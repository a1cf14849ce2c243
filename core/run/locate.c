#include "core/run/locate.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/config/run_cfg.h"
#include "core/telemetry/jsonl.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *zf_export_path(const char *run, uint64_t step)
{
    char *path = NULL;
    return asprintf(&path, "%s/exports/step-%08llu", run, (unsigned long long)step) < 0 ? NULL : path;
}

enum zf_status zf_locate_run(char **out, const char *argument, struct zf_err *e)
{
    *out = NULL;
    if (zf_directory_exists(argument)) return (*out = strdup(argument)) ? ZF_OK : zf_fail_memory(e, argument);
    if (!zf_file_exists(argument)) return zf_fail(e, ZF_USAGE, argument, "there is no such run directory and no such run.cfg");
    struct zf_options o;
    struct zf_err_list errors = {0};
    ZF_TRY(zf_options_init(&o, e));
    enum zf_status s = zf_run_cfg_read(&o, argument, &errors);
    if (errors.count) {
        *e = errors.list[0];
        s = e->code;
    } else if (!s) {
        *out = strdup(o.dir);
        s = *out ? ZF_OK : zf_fail_memory(e, argument);
    }
    zf_err_list_free(&errors);
    zf_options_free(&o);
    return s;
}

/* The step of the best validation, as the journal has it; -1: none. */
static long long best_step(const char *run)
{
    char *path = zf_path_join(run, "journal.jsonl");
    struct zf_lines lines;
    struct zf_err ignored;
    long long best = -1;
    if (path && !zf_lines_open(&lines, path, &ignored)) {
        json_t *line;
        while ((line = zf_lines_next(&lines))) {
            if (!strcmp(zf_json_text(line, "type", ""), "export") && json_is_true(json_object_get(line, "best")))
                best = (long long)zf_json_number(line, "step", -1);
            json_decref(line);
        }
        zf_lines_close(&lines);
    }
    free(path);
    return best;
}

static long long last_step(const char *run)
{
    char *path = zf_path_join(run, "exports");
    DIR *d = path ? opendir(path) : NULL;
    long long last = -1;
    for (struct dirent *f; d && (f = readdir(d));) {
        long long step;
        int used = 0;
        if (sscanf(f->d_name, "step-%lld%n", &step, &used) == 1 && !f->d_name[used] && step > last) last = step;
    }
    if (d) closedir(d);
    free(path);
    return last;
}

enum zf_status zf_locate_model(char **out, const char *argument, const char *step, struct zf_err *e)
{
    char *config = zf_path_join(argument, "config.json"), *run = NULL, *end;
    bool model = config && zf_file_exists(config);
    free(config);
    *out = NULL;
    if (model) return (*out = strdup(argument)) ? ZF_OK : zf_fail_memory(e, argument);
    ZF_TRY(zf_locate_run(&run, argument, e));
    long long at = !strcmp(step, "last") ? last_step(run) : !strcmp(step, "best") ? best_step(run) : strtoll(step, &end, 10);
    enum zf_status s = ZF_OK;
    if (strcmp(step, "last") && strcmp(step, "best") && (end == step || *end || at < 0))
        s = zf_fail(e, ZF_USAGE, "--step", "`%s` is neither a step nor `last` nor `best`", step);
    else if (at < 0)
        s = zf_fail(e, ZF_FORMAT, run, "it has neither config.json (a model) nor an export%s%s",
                    !strcmp(step, "best") ? " that was the best; keep_best = yes makes one" : "",
                    strcmp(step, "best") ? " in exports/; a run writes one when it ends" : "");
    else if (!(*out = zf_export_path(run, (uint64_t)at)))
        s = zf_fail_memory(e, run);
    else if (!zf_directory_exists(*out)) {
        s = zf_fail(e, ZF_FORMAT, *out, "there is no export of step %lld", at);
        free(*out);
        *out = NULL;
    }
    free(run);
    return s;
}
