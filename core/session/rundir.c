/* See rundir.h. */
#include "core/session/rundir.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/session/journal.h"
#include "core/session/lock.h"
#include "core/telemetry/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

json_t *zf_run_start_entry(const struct zf_run_identity *who, uint64_t steps)
{
    unsigned char random[8];
    char id[20], seed[24];
    double now = zf_wall_clock();
    if (getrandom(random, sizeof random, 0) != sizeof random) memcpy(random, &now, sizeof random);
    for (int i = 0; i < 8; i++) sprintf(id + 2 * i, "%02x", random[i]);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)who->seed); /* a text: JSON's numbers end at 2^63 */
    return json_pack("{ss ss ss* ss* ss sI}", "type", "start", "run", id, "model", who->model, "data", who->data, "seed", seed, "steps",
                     (json_int_t)(steps < INT64_MAX ? steps : INT64_MAX));
}

/* What else is in the directory than a start leaves behind that died before its first entry? true: out->what names it. */
static enum zf_status look_for_foreign(struct zf_run_facts *out, const char *run, bool journal_too, struct zf_err *e)
{
    DIR *d = opendir(run);
    struct dirent *item;
    if (!d) return errno == ENOENT ? ZF_OK : zf_fail_errno(e, run, "cannot read the directory");
    while ((item = readdir(d)) && !out->what[0]) {
        const char *n = item->d_name;
        struct stat st;
        /* an empty log, or a device that was linked there */
        bool empty_log = !strcmp(n, "metrics.jsonl") && !fstatat(dirfd(d), n, &st, 0) && !st.st_size;
        bool known = empty_log || !strcmp(n, ".") || !strcmp(n, "..") || !strcmp(n, "lock") || !strcmp(n, "trainer.log") ||
                     (journal_too && !strcmp(n, "journal.jsonl"));
        if (!known && strcmp(out->what, "journal.jsonl")) snprintf(out->what, sizeof out->what, "%s", n);
    }
    closedir(d);
    if (!out->what[0]) return ZF_OK;
    char first[256];
    snprintf(first, sizeof first, "%.255s", out->what);
    if (!strcmp(first, "journal.jsonl"))
        snprintf(out->what, sizeof out->what, "a journal.jsonl that is damaged or not ours");
    else
        snprintf(out->what, sizeof out->what, "files that no run wrote (%s)", first);
    out->state = ZF_RUNDIR_FOREIGN;
    return ZF_OK;
}

static void compare(struct zf_run_facts *out, const json_t *start, const char *key, const char *now)
{
    const char *then = zf_json_text(start, key, NULL);
    if (!now || !then || !strcmp(now, then)) return;
    size_t n = strlen(out->what);
    snprintf(out->what + n, sizeof out->what - n, "%s%s %.200s there, %.200s here", n ? ", " : "", key, then, now);
    out->state = ZF_RUNDIR_OTHER;
}

static void read_entries(struct zf_run_facts *out, const json_t *entries)
{
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *v = json_array_get(entries, i);
        uint64_t step = zf_json_count(v, "step"), steps = zf_json_count(v, "steps");
        if (zf_json_is(v, "start") || zf_json_is(v, "resume")) {
            out->attempts += !zf_journal_is_load(v);
            out->last_step = 0;
            out->ended[0] = 0;
        }
        if (zf_json_is(v, "end")) snprintf(out->ended, sizeof out->ended, "%s", zf_json_text(v, "reason", "?"));
        if (zf_json_is(v, "export")) {
            const char *file = zf_json_text(v, "file", zf_json_text(v, "path", ""));
            snprintf(out->last_export, sizeof out->last_export, "%s", file);
        }
        if (zf_json_is(v, "checkpoint")) snprintf(out->last_checkpoint, sizeof out->last_checkpoint, "%s", zf_json_text(v, "file", ""));
        if (step > out->last_step) out->last_step = step;
        if (steps) out->steps = steps;
        snprintf(out->last_time, sizeof out->last_time, "%s", zf_json_text(v, "time", ""));
    }
    out->finished = !strcmp(out->ended, "done");
}

static enum zf_status look(struct zf_run_facts *out, const char *run, const struct zf_run_identity *who, struct zf_err *e)
{
    struct stat st;
    char seed[24];
    *out = (struct zf_run_facts){.state = ZF_RUNDIR_NEW};
    if (stat(run, &st)) return errno == ENOENT ? ZF_OK : zf_fail_errno(e, run, "cannot look at it");
    if (!S_ISDIR(st.st_mode)) {
        out->state = ZF_RUNDIR_FOREIGN;
        snprintf(out->what, sizeof out->what, "no directory but is a file");
        return ZF_OK;
    }
    char *journal = zf_path_join(run, "journal.jsonl"), *metrics = zf_path_join(run, "metrics.jsonl");
    json_t *entries = NULL, *last;
    enum zf_status s = journal && metrics ? ZF_OK : zf_fail_memory(e, run);
    if (!s && zf_file_exists(journal)) s = zf_journal_read(&entries, run, NULL, e);
    const json_t *start = json_array_get(entries, 0);
    if (s) {
        /* said already */
    } else if (!zf_json_is(start, "start") || !zf_json_text(start, "run", NULL)) {
        /* A journal without any whole entry may be the torn first line of ours. */
        bool torn = entries && !json_array_size(entries);
        s = look_for_foreign(out, run, torn && !stat(journal, &st) && st.st_size < 65536, e);
    } else {
        out->state = ZF_RUNDIR_OURS;
        snprintf(out->run, sizeof out->run, "%s", zf_json_text(start, "run", ""));
        read_entries(out, entries);
        if ((last = zf_jsonl_last(metrics, "step"))) {
            uint64_t step = zf_json_count(last, "step");
            if (step > out->last_step) out->last_step = step;
            json_decref(last);
        }
        if (who) {
            snprintf(seed, sizeof seed, "%llu", (unsigned long long)who->seed);
            compare(out, start, "model", who->model);
            compare(out, start, "data", who->data);
            compare(out, start, "seed", seed);
        }
    }
    json_decref(entries);
    free(journal);
    free(metrics);
    return s;
}

enum zf_status zf_rundir_look(struct zf_run_facts *out, const char *run, const struct zf_run_identity *who, struct zf_err *e)
{
    ZF_TRY(look(out, run, who, e));
    /* a trainer that has just begun there: its journal came after it was looked for, and before the directory was read */
    return out->state == ZF_RUNDIR_FOREIGN ? look(out, run, who, e) : ZF_OK;
}

enum zf_status zf_rundir_claim(struct zf_run_facts *out, const char *run, const struct zf_run_identity *who, struct zf_err *e)
{
    ZF_TRY(zf_rundir_look(out, run, who, e));
    switch (out->state) {
    case ZF_RUNDIR_FOREIGN:
        return zf_fail(e, ZF_DIFFERENT, run,
                       "it holds %s; a new or empty directory is needed, nothing is overwritten; set `dir` in [run] to another one",
                       out->what);
    case ZF_RUNDIR_OTHER:
        return zf_fail(e, ZF_DIFFERENT, run,
                       "it holds another run (%s); nothing is overwritten; set `dir` in [run] to another directory, or move this one away",
                       out->what);
    case ZF_RUNDIR_NEW:
    case ZF_RUNDIR_OURS: break;
    }
    return zf_directory_make(run, 0777, e);
}

static double changed(const char *run, const char *name)
{
    struct stat st;
    char *path = zf_path_join(run, name);
    double t = path && !stat(path, &st) ? (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec : 0;
    free(path);
    return t;
}

char *zf_rundir_newest(const char *runs, bool alive)
{
    char *best = NULL;
    double best_time = 0;
    struct dirent *item;
    DIR *d = opendir(runs);
    while (d && (item = readdir(d))) {
        char *run = item->d_name[0] == '.' ? NULL : zf_path_join(runs, item->d_name);
        double journal = run ? changed(run, "journal.jsonl") : 0, metrics = run ? changed(run, "metrics.jsonl") : 0;
        double t = journal > metrics ? journal : metrics;
        if (journal > 0 && t > best_time && (!alive || zf_lock_look(run, NULL) == ZF_LOCK_LIVE)) {
            free(best);
            best = run;
            best_time = t;
        } else {
            free(run);
        }
    }
    if (d) closedir(d);
    return best;
}
