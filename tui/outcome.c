/* How a run ended, as its directory tells it: the journal's last entry, else the lock of a trainer that died, and what that printed last.
 */
#include "tui/app_impl.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/show.h"
#include "core/session/journal.h"
#include "core/session/lock.h"
#include "core/telemetry/jsonl.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAIL = 8192, TAIL_LINES = 4 };

/* The last lines of trainer.log. */
static void put_log(FILE *to, const char *run)
{
    char text[TAIL + 1], *path = zf_path_join(run, "trainer.log");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t n = end > 0 ? pread(fd, text, TAIL, end > TAIL ? end - TAIL : 0) : 0;
    if (fd >= 0) close(fd);
    while (n > 0 && text[n - 1] == '\n') n--;
    if (n > 0) {
        char *from = text + n;
        text[n] = 0;
        for (int lines = 0; from > text && (lines += from[-1] == '\n') < TAIL_LINES; from--) continue;
        fprintf(to, "\n%s ends:\n%s", path, from);
    }
    free(path);
}

/* The newest line of this type, of one of the run's files. */
static json_t *last_in(const char *run, const char *file, const char *type)
{
    char *path = zf_path_join(run, file);
    json_t *line = path ? zf_jsonl_last(path, type) : NULL;
    free(path);
    return line;
}

/* Of the journal or else of the metrics. */
static json_t *last_of(const char *run, const char *type)
{
    json_t *line = last_in(run, "journal.jsonl", type);
    return line ? line : last_in(run, "metrics.jsonl", type);
}

/* How the newest attempt ended: an end before a resume is that of an older one. The metrics have it before the journal. */
static json_t *last_end(const char *run)
{
    struct zf_err ignored;
    json_t *entries = NULL, *end = NULL;
    size_t n = zf_journal_read(&entries, run, NULL, &ignored) ? 0 : json_array_size(entries);
    for (bool begun = false; n && !end && !begun; n--) {
        const char *type = zf_json_text(json_array_get(entries, n - 1), "type", "");
        if (!strcmp(type, "end")) end = json_incref(json_array_get(entries, n - 1));
        begun = !strcmp(type, "resume");
    }
    json_decref(entries);
    return end ? end : last_in(run, "metrics.jsonl", "end");
}

/* The last `error` of the journal or the metrics, whichever has one. */
static void put_error(FILE *to, const char *run, const json_t *end)
{
    const char *text = zf_json_text(end, "text", NULL);
    json_t *error = text ? NULL : last_in(run, "metrics.jsonl", "error");
    if (error) text = zf_json_text(error, "text", NULL);
    if (text) fprintf(to, "\n%s", text);
    json_decref(error);
}

static const struct ending {
    const char *reason, *text;
    int code;
} endings[] = {{"done", "it has reached its last step, or `patience` was over", ZF_OK},
               {"stopped", "its time was over (max_time, or that of its job)", ZF_STOPPED},
               {"signal", "a signal asked it to end", ZF_STOPPED}};

/* NULL: another one, an error. */
static const struct ending *ending_of(const char *reason)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strcmp(reason, endings[i].reason)) return &endings[i];
    return NULL;
}

static void put_why(FILE *to, const char *run, const json_t *end, const struct ending *how, int code)
{
    json_t *command = how && !strcmp(how->reason, "stopped") ? last_of(run, "command") : NULL;
    const char *user = zf_json_text(command, "user", ""), *by = zf_json_text(command, "by", "");
    bool asked =
        !strcmp(zf_json_text(command, "command", ""), "stop") && zf_json_number(command, "step", -1) == zf_json_number(end, "step", -2);
    if (asked)
        fprintf(to, "%s%s%s%s stopped it", user, *user ? " (" : "", by, *user ? ")" : "");
    else
        fputs(how ? how->text : zf_status_text((enum zf_status)code), to);
    json_decref(command);
}

/* FOLDER/NAME of the newest line of this type, below the run wherever that is now; "": none. */
static const char *newest(const char *run, const char *type, const char *folder, char *name, size_t size)
{
    json_t *line = last_of(run, type);
    const char *file = zf_json_text(line, "file", ""), *slash = strrchr(file, '/');
    int n = slash ? snprintf(name, size, "%s%s", folder, slash) : -1;
    char *path = n > 0 && (size_t)n < size ? zf_path_join(run, name) : NULL;
    if (!path || access(path, F_OK)) *name = 0;
    free(path);
    json_decref(line);
    return name;
}

char *zf_outcome(const char *run, bool ended, uint64_t step, int *code)
{
    struct zf_lock_record holder;
    enum zf_lock_state state = zf_lock_look(run, &holder);
    char *text = NULL, why[768], name[300] = "";
    size_t size;
    json_t *end = ended || state == ZF_LOCK_NONE ? last_end(run) : NULL;
    bool known = end || (!ended && state == ZF_LOCK_DEAD);
    FILE *to = known ? open_memstream(&text, &size) : NULL;
    if (!to) {
        json_decref(end);
        return NULL;
    }
    if (end) {
        const struct ending *how = ending_of(zf_json_text(end, "reason", "?"));
        double told = zf_json_number(end, "code", -1);
        *code = told >= 0 && told <= ZF_BUSY ? (int)told : how ? how->code : ZF_NUMERIC;
        fprintf(to, "The run has ended at step %.0f: ", zf_json_number(end, "step", 0));
        put_why(to, run, end, how, *code);
        putc('.', to);
        if (*newest(run, "export", "exports", name, sizeof name)) fprintf(to, " Its weights: %s.", name);
        if (*code != ZF_OK && *code != ZF_STOPPED) put_error(to, run, end);
    } else {
        *code = ZF_BUSY;
        json_t *newest = step ? NULL : last_in(run, "metrics.jsonl", "step"); /* the lock is some seconds behind */
        if (newest) step = (uint64_t)fmax(0, zf_json_number(newest, "step", 0));
        json_decref(newest);
        zf_lock_explain(&holder, step, why, sizeof why);
        if (why[0] >= 'a' && why[0] <= 'z') why[0] -= 32;
        fprintf(to, "%s.", why);
        put_error(to, run, NULL);
    }
    if (*code != ZF_OK && *code != ZF_STOPPED) put_log(to, run);
    json_decref(end);
    if (fclose(to)) {
        free(text);
        return NULL;
    }
    return text;
}

char *zf_outcome_told(const char *run, const struct zf_history *h, int *code)
{
    const struct ending *how = ending_of(h->end_reason);
    char *text = NULL;
    *code = how ? how->code : ZF_NUMERIC;
    if (asprintf(&text, "The run has ended at step %llu (%s).%s%s%s", (unsigned long long)h->step, h->end_reason,
                 zf_directory_exists(run) ? "" : " It is not in ", zf_directory_exists(run) ? "" : run,
                 zf_directory_exists(run) ? "" : " any more: renamed, or taken away.") < 0)
        return NULL;
    return text;
}

char *zf_farewell(const char *run, bool ended, uint64_t step, const char *known)
{
    int code = ZF_BUSY;
    size_t size;
    char name[300] = "", quoted[ZF_SHELL_WORD], *text = NULL, *outcome = zf_outcome(run, ended, step, &code);
    const char *word = zf_shell_word(quoted, run);
    newest(run, "checkpoint", "checkpoints", name, sizeof name);
    FILE *to = open_memstream(&text, &size);
    if (to) {
        zf_show(to, run);
        fprintf(to, ": %s\n", outcome ? outcome : known ? known : "its trainer is gone without a word");
        if (!zf_directory_exists(run))
            fputs("`zenflow-console list` shows the runs that are there\n", to);
        else if (code == ZF_OK)
            fprintf(to,
                    "`zenflow-console generate %s --prompt TEXT` lets its model speak; `zenflow-console replay %s` shows the run again\n",
                    word, word);
        else if ((code == ZF_STOPPED || code == ZF_BUSY) && *name)
            fprintf(to, "to go on from %s: `zenflow-console %s/run.cfg`\n", name, word);
        else
            fprintf(to, "`zenflow-console status %s` tells where it stands, `zenflow-console replay %s` shows how it came to that\n", word,
                    word);
    }
    free(outcome);
    if (!to || !fclose(to)) return text;
    free(text);
    return NULL;
}
