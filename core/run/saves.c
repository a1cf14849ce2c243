/* See saves.h. */
#include "core/run/saves.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/session/journal.h"
#include "core/telemetry/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct save {
    char name[256];
    long rank;     /* when it was written, by the journal: the higher the newer; 0: not there */
    bool own_name; /* step-NUMBER.zfc */
    bool left;     /* of another course */
    uint64_t bytes;
    struct timespec time;
};

struct saves {
    char *folder;
    struct save *list;
    size_t count;
};

bool zf_saves_is_file(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".zfc");
}

static bool is_own_name(const char *name)
{
    size_t digits = strncmp(name, "step-", 5) ? 0 : strspn(name + 5, "0123456789");
    return digits >= 8 && !strcmp(name + 5 + digits, ".zfc");
}

static int newest_first(const void *a, const void *b)
{
    const struct save *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? 1 : -1;
    if (x->time.tv_sec != y->time.tv_sec) return x->time.tv_sec < y->time.tv_sec ? 1 : -1;
    return -strcmp(x->name, y->name);
}

static struct save *find(const struct saves *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->list[i].name, name)) return &s->list[i];
    return NULL;
}

static void take_journal(struct saves *s, const json_t *entries)
{
    uint64_t *step = calloc(s->count + 1, sizeof *step);
    for (size_t i = 0; step && i < json_array_size(entries); i++) {
        const json_t *v = json_array_get(entries, i);
        const char *type = zf_json_text(v, "type", ""), *file = zf_json_text(v, "file", "");
        double at = zf_json_number(v, "step", 0);
        const char *slash = strrchr(file, '/');
        struct save *x = !strcmp(type, "checkpoint") ? find(s, slash ? slash + 1 : file) : NULL;
        if (x) {
            x->rank = (long)i + 1;
            x->left = false;
            step[x - s->list] = at >= 0 && at < 9e15 ? (uint64_t)at : 0;
        }
        for (size_t k = 0; k < s->count && !strcmp(type, "resume"); k++)
            if (s->list[k].rank && (double)step[k] > at) s->list[k].left = true;
    }
    free(step);
}

static void saves_free(struct saves *s)
{
    free(s->folder);
    free(s->list);
    *s = (struct saves){0};
}

/* What cannot be read is not there. */
static enum zf_status saves_open(struct saves *s, const char *run, struct zf_err *e)
{
    struct zf_err ignored;
    json_t *entries;
    *s = (struct saves){.folder = zf_path_join(run, "checkpoints")};
    if (!s->folder) return zf_fail_memory(e, run);
    DIR *d = opendir(s->folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        struct stat st;
        if (!zf_saves_is_file(f->d_name) || strlen(f->d_name) >= sizeof s->list->name) continue;
        if (fstatat(dirfd(d), f->d_name, &st, 0) || !S_ISREG(st.st_mode)) continue;
        struct save *grown = realloc(s->list, (s->count + 1) * sizeof *grown);
        if (!grown) {
            closedir(d);
            saves_free(s);
            return zf_fail_memory(e, run);
        }
        s->list = grown;
        struct save *x = &s->list[s->count++];
        *x = (struct save){.own_name = is_own_name(f->d_name), .bytes = (uint64_t)st.st_size, .time = st.st_mtim};
        strcpy(x->name, f->d_name);
    }
    if (d) closedir(d);
    if (!zf_journal_read(&entries, run, NULL, &ignored)) {
        take_journal(s, entries);
        json_decref(entries);
    }
    if (s->count) qsort(s->list, s->count, sizeof *s->list, newest_first);
    return ZF_OK;
}

enum zf_status zf_saves_newest(struct zf_ckpt *out, char **path, const char *run, void (*note)(void *ctx, const struct zf_err *why),
                               void *ctx, struct zf_err *e)
{
    struct saves s;
    struct zf_err why;
    *path = NULL;
    ZF_TRY(saves_open(&s, run, e));
    for (size_t i = 0; i < s.count && !*path; i++) {
        char *at = s.list[i].left ? NULL : zf_path_join(s.folder, s.list[i].name);
        if (!at) continue;
        enum zf_status bad = zf_ckpt_open(out, at, &why);
        if (!bad && (bad = zf_ckpt_verify(out, NULL, NULL, &why))) zf_ckpt_close(out);
        if (bad && note) note(ctx, &why);
        if (bad)
            free(at);
        else
            *path = at;
    }
    saves_free(&s);
    return ZF_OK;
}

void zf_saves_warn(void *ctx, const struct zf_err *why)
{
    struct zf_err told = *why;
    size_t n = strlen(told.message);
    (void)ctx;
    snprintf(told.message + n, sizeof told.message - n, "; it is passed over");
    zf_err_print("warning", &told);
}

enum zf_status zf_saves_each(const char *run, zf_saves_visit *visit, void *ctx, struct zf_err *e)
{
    struct saves s;
    enum zf_status status = saves_open(&s, run, e);
    for (size_t i = 0; i < s.count && !status; i++) {
        char *path = zf_path_join(s.folder, s.list[i].name);
        status = path ? visit(ctx, path, s.list[i].left, e) : zf_fail_memory(e, run);
        free(path);
    }
    saves_free(&s);
    return status;
}

/* NAME.zfc.tmp-PID, as zf_file_begin calls what is not yet whole. */
static bool is_unfinished(const char *name)
{
    static const char sign[] = ".zfc.tmp-";
    const char *at = strstr(name, sign), *digits = at ? at + sizeof sign - 1 : "";
    return at && at > name && *digits && !digits[strspn(digits, "0123456789")];
}

void zf_saves_sweep(const char *run)
{
    char *folder = zf_path_join(run, "checkpoints");
    DIR *d = folder ? opendir(folder) : NULL;
    for (struct dirent *f; d && (f = readdir(d));)
        if (is_unfinished(f->d_name)) unlinkat(dirfd(d), f->d_name, 0);
    if (d) closedir(d);
    free(folder);
}

void zf_saves_keep(const char *run, size_t keep)
{
    struct saves s;
    struct zf_err ignored;
    if (saves_open(&s, run, &ignored)) return;
    size_t kept[2] = {0}; /* of this course; of those that the run was taken back from: somebody may want to see them again */
    for (size_t i = 0; i < s.count; i++) {
        const struct save *x = &s.list[i];
        if (!x->own_name || !x->rank || kept[x->left]++ < keep) continue;
        char *path = zf_path_join(s.folder, x->name);
        if (path) unlink(path);
        free(path);
    }
    saves_free(&s);
}

char *zf_saves_list(const char *run)
{
    struct saves s;
    struct zf_err ignored;
    char *text = NULL, bytes[32], when[64];
    size_t size;
    struct tm t;
    if (saves_open(&s, run, &ignored)) return NULL;
    FILE *to = open_memstream(&text, &size);
    for (size_t i = 0; to && i < s.count; i++) {
        const struct save *x = &s.list[i];
        if (!localtime_r(&x->time.tv_sec, &t) || !strftime(when, sizeof when, "%F %T", &t)) when[0] = 0;
        fprintf(to, "%s%s  %s  %s%s", i ? "\n" : "", x->name, zf_bytes_text(x->bytes, bytes, sizeof bytes), when,
                x->left ? "  (of steps that the run was taken back from)" : "");
    }
    if (to && fclose(to)) {
        free(text);
        text = NULL;
    }
    saves_free(&s);
    return text;
}
