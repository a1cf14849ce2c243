/* How a run ended, as its directory tells it: the journal's last entry, else the lock of a trainer that died, and what that printed last.
 */
#include "tui/app_impl.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/session/lock.h"
#include "core/telemetry/jsonl.h"

#include <fcntl.h>
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

/* The last `error` of the journal or the metrics, whichever has one. */
static void put_error(FILE *to, const char *run, const json_t *end)
{
    const char *text = zf_json_text(end, "text", NULL);
    char *path = zf_path_join(run, "metrics.jsonl");
    json_t *error = path && !text ? zf_jsonl_last(path, "error") : NULL;
    if (error) text = zf_json_text(error, "text", NULL);
    if (text) fprintf(to, "\n%s", text);
    json_decref(error);
    free(path);
}

static const struct ending {
    const char *reason, *text;
    int code;
} endings[] = {{"done", "it has reached its last step", ZF_OK},
               {"stopped", "it was asked to end, or its time was over", ZF_STOPPED},
               {"signal", "a signal asked it to end", ZF_STOPPED}};

/* NULL: another one, an error. */
static const struct ending *ending_of(const char *reason)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strcmp(reason, endings[i].reason)) return &endings[i];
    return NULL;
}

static json_t *last_end(const char *run)
{
    static const char *const files[] = {"journal.jsonl", "metrics.jsonl"};
    json_t *end = NULL;
    for (size_t i = 0; !end && i < sizeof files / sizeof *files; i++) {
        char *path = zf_path_join(run, files[i]);
        if (path) end = zf_jsonl_last(path, "end");
        free(path);
    }
    return end;
}

char *zf_outcome(const char *run, bool ended, uint64_t step, int *code)
{
    struct zf_lock_record holder;
    enum zf_lock_state state = zf_lock_look(run, &holder);
    char *text = NULL, why[768];
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
        fprintf(to, "The run has ended at step %.0f: %s.", zf_json_number(end, "step", 0),
                how ? how->text : zf_status_text((enum zf_status) * code));
        if (*code != ZF_OK && *code != ZF_STOPPED) put_error(to, run, end);
    } else {
        *code = ZF_BUSY;
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
