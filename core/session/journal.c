/* See journal.h. */
#include "core/session/journal.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ENTRIES = 1000000 };

struct zf_journal {
    struct zf_jsonl file;
    char *path;
    pthread_mutex_t lock; /* over the file and count */
    size_t count;
};

enum zf_status zf_journal_open(struct zf_journal **out, const char *run, struct zf_err *e)
{
    *out = NULL;
    struct zf_journal *j = calloc(1, sizeof *j);
    if (!j || !(j->path = zf_path_join(run, "journal.jsonl"))) {
        free(j);
        return zf_fail_memory(e, run);
    }
    json_t *entries;
    pthread_mutex_init(&j->lock, NULL);
    enum zf_status s = zf_jsonl_open(&j->file, j->path, e);
    if (!s) s = zf_file_sync_directory(run, e); /* the file itself must survive, too */
    if (!s && !(s = zf_journal_read(&entries, run, NULL, e))) {
        j->count = json_array_size(entries);
        json_decref(entries);
    }
    if (s)
        zf_journal_close(j);
    else
        *out = j;
    return s;
}

void zf_journal_close(struct zf_journal *j)
{
    if (!j) return;
    zf_jsonl_close(&j->file);
    pthread_mutex_destroy(&j->lock);
    free(j->path);
    free(j);
}

const char *zf_time_text(double wall, char *buffer, size_t size)
{
    long long ms = (long long)(wall * 1000);
    time_t s = (time_t)(ms / 1000);
    struct tm t;
    char date[64] = "";
    if (gmtime_r(&s, &t)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(buffer, size, "%s.%03dZ", date, (int)(ms % 1000));
    return buffer;
}

size_t zf_journal_count(struct zf_journal *j)
{
    pthread_mutex_lock(&j->lock);
    size_t count = j->count;
    pthread_mutex_unlock(&j->lock);
    return count;
}

static enum zf_status append(struct zf_journal *j, const char *text, size_t size, struct zf_err *e)
{
    errno = zf_jsonl_append(&j->file, text, size);
    if (errno) return zf_fail_errno(e, j->path, "cannot write to the journal");
    j->count++;
    if (fdatasync(j->file.fd) && errno != EINVAL && errno != ENOSYS) return zf_fail_errno(e, j->path, "cannot sync the journal");
    return ZF_OK;
}

enum zf_status zf_journal_append(struct zf_journal *j, json_t *stolen, struct zf_err *e)
{
    char now[96];
    size_t size;
    bool stamped = stolen && !json_object_set_new(stolen, "time", json_string(zf_time_text(zf_wall_clock(), now, sizeof now)));
    char *text = stamped ? zf_jsonl_text(stolen, &size) : NULL;
    json_decref(stolen);
    if (!text) return zf_fail_memory(e, j->path);
    pthread_mutex_lock(&j->lock);
    enum zf_status s = append(j, text, size, e);
    pthread_mutex_unlock(&j->lock);
    free(text);
    return s;
}

bool zf_journal_is_load(const json_t *entry)
{
    return zf_json_is(entry, "resume") && json_object_get(entry, "journal");
}

enum zf_status zf_journal_read(json_t **out, const char *run, size_t *bad, struct zf_err *e)
{
    struct zf_lines lines;
    json_t *entry;
    *out = NULL;
    char *path = zf_path_join(run, "journal.jsonl");
    json_t *all = json_array();
    enum zf_status s = path && all ? zf_lines_open(&lines, path, e) : zf_fail_memory(e, run);
    if (!s) {
        while (!s && (entry = zf_lines_next(&lines))) {
            if (json_array_size(all) >= MOST_ENTRIES)
                s = zf_fail(e, ZF_FORMAT, path, "it has more than %d entries; no journal of ours", MOST_ENTRIES);
            if (s)
                json_decref(entry);
            else if (json_array_append_new(all, entry))
                s = zf_fail_memory(e, path);
        }
        if (bad) *bad = lines.bad;
        zf_lines_close(&lines);
    }
    if (s)
        json_decref(all);
    else
        *out = all;
    free(path);
    return s;
}
