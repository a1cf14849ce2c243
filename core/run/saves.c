/* See saves.h. */
#include "core/run/saves.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/session/journal.h"
#include "core/telemetry/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum form { UNKNOWN, WHOLE, WEIGHTS, BROKEN };

struct save {
    char name[256];
    char *elsewhere; /* its path, where it is not in RUN/checkpoints; owned */
    size_t rank;     /* when its state was taken, by the journal: the higher the newer; 0: not known, it is not of this run */
    uint64_t step;   /* where rank is not 0 */
    bool own_name;   /* step-NUMBER.zfc, of that step */
    bool left;       /* of another course */
    bool foreign;    /* of another run, whatever its name */
    uint64_t fork;   /* the step up to which that was this one; where it is not left its own */
    size_t link;     /* of the course: the newest with its name; 0: none */
    size_t before;   /* without an entry: how many entries there were when its state was taken */
    enum form form;
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

bool zf_saves_is_weights(const json_t *info)
{
    return json_is_true(json_object_get(info, "weights_only"));
}

double zf_saves_step(const char *path)
{
    struct zf_ckpt c;
    struct zf_err ignored;
    if (zf_ckpt_open(&c, path, &ignored)) return -1;
    double step = zf_json_number(c.info, "step", -1);
    zf_ckpt_close(&c);
    return step;
}

static bool is_own_name(const char *name, uint64_t step)
{
    char own[64];
    snprintf(own, sizeof own, "step-%08" PRIu64 ".zfc", step);
    return !strcmp(name, own);
}

bool zf_saves_is_own_name(const char *path, uint64_t *step)
{
    const char *name = zf_path_name(path);
    return sscanf(name, "step-%20" SCNu64 ".zfc", step) == 1 && is_own_name(name, *step);
}

static enum zf_saves_of of(const struct save *x)
{
    return x->foreign ? ZF_SAVES_FOREIGN : x->left ? ZF_SAVES_LEFT : ZF_SAVES_OURS;
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

/* ---- which course they are of ---- */

/* What was written, each on the one before it: the run as it went in the end is what comes before its head. */
struct link {
    size_t before; /* links are counted from 1; 0: the run's beginning */
    bool counts;   /* of the run as it went in the end */
    uint64_t step;
    const char *name;
    struct save *file; /* NULL: it is gone */
};

struct course {
    struct link *list;
    size_t count, head;
};

static void add_link(struct course *c, struct save *file, const char *name, uint64_t step, size_t rank)
{
    c->list[c->count++] = (struct link){.before = c->head, .step = step, .name = name, .file = file};
    c->head = c->count;
    if (!file) return;
    file->link = c->head;
    file->rank = rank;
    file->step = step;
    file->own_name = is_own_name(file->name, step);
}

/* Taken to a checkpoint, of whatever course, or to a step of this one. */
static void go_to(struct course *c, const char *name, uint64_t step)
{
    for (size_t i = c->count; i && name; i--)
        if (c->list[i - 1].step == step && !strcmp(c->list[i - 1].name, name)) {
            c->head = i;
            return;
        }
    while (c->head && c->list[c->head - 1].step > step) c->head = c->list[c->head - 1].before;
}

size_t zf_saves_written(const json_t *entries, const char *path, const json_t *info)
{
    size_t n = json_array_size(entries), i = n;
    const json_t *told = json_object_get(info, "journal");
    const char *time = zf_json_text(info, "time", "");
    if (json_is_integer(told) && json_integer_value(told) >= 0)
        return (uint64_t)json_integer_value(told) < n ? (size_t)json_integer_value(told) : n;
    for (; i; i--) {
        const json_t *v = json_array_get(entries, i - 1);
        if (zf_json_is(v, "checkpoint") && zf_json_count(v, "step") == zf_json_count(info, "step") &&
            !strcmp(zf_path_name(zf_json_text(v, "file", "")), zf_path_name(path)))
            return i - 1;
    }
    for (i = n; *time && i && strcmp(zf_json_text(json_array_get(entries, i - 1), "time", ""), time) > 0;) i--;
    return i;
}

/* One that no entry tells of: its trainer died before it could write one. By what is in the file. */
static void place(const struct saves *s, struct save *x, const json_t *entries)
{
    struct zf_ckpt c;
    struct zf_err ignored;
    const char *run = zf_json_text(json_array_get(entries, 0), "run", NULL);
    char *path = zf_path_join(s->folder, x->name);
    if (path && run && !zf_ckpt_open(&c, path, &ignored)) {
        x->form = zf_saves_is_weights(c.info) ? WEIGHTS : WHOLE;
        if (!strcmp(zf_json_text(c.info, "run", ""), run) && json_is_number(json_object_get(c.info, "step"))) {
            x->before = zf_saves_written(entries, path, c.info);
            x->step = zf_json_count(c.info, "step");
            x->rank = 1; /* it has a place: add_placed says which */
        }
        zf_ckpt_close(&c);
    }
    free(path);
}

static void add_placed(struct saves *s, struct course *c, size_t before)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->list[i].rank && !s->list[i].link && s->list[i].before == before)
            add_link(c, &s->list[i], s->list[i].name, s->list[i].step, 2 * before + 1);
}

static void find_left(struct saves *s, struct course *c)
{
    for (size_t i = c->head; i; i = c->list[i - 1].before) c->list[i - 1].counts = true;
    for (size_t k = 0; k < s->count; k++) {
        struct save *x = &s->list[k];
        size_t i = x->link;
        x->left = i && !c->list[i - 1].counts;
        while (i && !c->list[i - 1].counts) i = c->list[i - 1].before;
        x->fork = i ? c->list[i - 1].step : 0;
    }
}

static void take_journal(struct saves *s, const json_t *entries)
{
    size_t n = json_array_size(entries);
    struct course c = {.list = calloc(n + s->count + 1, sizeof *c.list)};
    bool *known = calloc(s->count + 1, sizeof *known);
    if (!c.list || !known) goto end;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(entries, i);
        struct save *x = zf_json_is(v, "checkpoint") ? find(s, zf_path_name(zf_json_text(v, "file", ""))) : NULL;
        if (x) known[x - s->list] = true;
    }
    for (size_t i = 0; i < s->count; i++)
        if (!known[i]) place(s, &s->list[i], entries);
    for (size_t i = 0; i <= n; i++) {
        const json_t *v = json_array_get(entries, i);
        const char *name = zf_path_name(zf_json_text(v, "file", ""));
        add_placed(s, &c, i);
        if (zf_json_is(v, "checkpoint")) add_link(&c, find(s, name), name, zf_json_count(v, "step"), 2 * i + 2);
        const char *from = zf_json_text(v, "checkpoint", NULL);
        if (zf_json_is(v, "resume")) go_to(&c, from ? zf_path_name(from) : NULL, zf_json_count(v, "step"));
    }
    find_left(s, &c);
end:
    free(known);
    free(c.list);
}

static void saves_free(struct saves *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->list[i].elsewhere);
    free(s->folder);
    free(s->list);
    *s = (struct saves){0};
}

static struct save *add(struct saves *s, const char *name, const struct stat *st)
{
    struct save *grown = strlen(name) < sizeof grown->name ? realloc(s->list, (s->count + 1) * sizeof *grown) : NULL;
    if (!grown) return NULL;
    s->list = grown;
    struct save *x = &s->list[s->count++];
    *x = (struct save){.bytes = (uint64_t)st->st_size, .time = st->st_mtim};
    strcpy(x->name, name);
    return x;
}

/* The run may have been taken to a checkpoint that lies elsewhere, a copy perhaps: it goes on from there until it writes one of its own. */
static void add_elsewhere(struct saves *s, const json_t *entries)
{
    const json_t *taken = NULL;
    size_t rank = 0;
    for (size_t i = 0; i < json_array_size(entries); i++)
        if (zf_json_is(json_array_get(entries, i), "resume")) taken = json_array_get(entries, i), rank = 2 * i + 2;
    const char *path = zf_json_text(taken, "checkpoint", NULL), *run = zf_json_text(json_array_get(entries, 0), "run", "");
    struct zf_ckpt c;
    struct zf_err ignored;
    struct stat st;
    if (!path || !strchr(path, '/') || find(s, zf_path_name(path)) || !zf_file_exists(path)) return;
    if (zf_ckpt_open(&c, path, &ignored)) return;
    bool ours =
        !strcmp(zf_json_text(c.info, "run", ""), run) && zf_json_count(c.info, "step") == zf_json_count(taken, "step") && !fstat(c.fd, &st);
    struct save *x = ours ? add(s, zf_path_name(path), &st) : NULL;
    zf_ckpt_close(&c);
    if (!x) return;
    x->elsewhere = strdup(path);
    x->rank = rank;
    x->step = zf_json_count(taken, "step");
    if (!x->elsewhere) s->count--;
}

static char *path_of(const struct saves *s, const struct save *x)
{
    return x->elsewhere ? strdup(x->elsewhere) : zf_path_join(s->folder, x->name);
}

/* A file may have been put under a name that the journal knows. */
static void find_foreign(struct saves *s, const json_t *entries)
{
    const char *run = zf_json_text(json_array_get(entries, 0), "run", NULL);
    struct zf_ckpt c;
    struct zf_err ignored;
    for (size_t i = 0; run && i < s->count; i++) {
        struct save *x = &s->list[i];
        char *path = path_of(s, x);
        if (path && !zf_ckpt_open(&c, path, &ignored)) {
            x->foreign = strcmp(zf_json_text(c.info, "run", run), run) != 0;
            zf_ckpt_close(&c);
        }
        free(path);
        if (!x->foreign) continue;
        x->rank = 0;
        x->own_name = x->left = false;
    }
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
        if (add(s, f->d_name, &st)) continue;
        closedir(d);
        saves_free(s);
        return zf_fail_memory(e, run);
    }
    if (d) closedir(d);
    if (!zf_journal_read(&entries, run, NULL, &ignored)) {
        take_journal(s, entries);
        add_elsewhere(s, entries);
        find_foreign(s, entries);
        json_decref(entries);
    }
    if (s->count) qsort(s->list, s->count, sizeof *s->list, newest_first);
    return ZF_OK;
}

const char *zf_saves_where(enum zf_saves_of of)
{
    static const char *const texts[] = {"", "  (of steps that the run was taken back from)", "  (of another run)"};
    return texts[of];
}

static void warn(const struct zf_err *why)
{
    struct zf_err told = *why;
    size_t n = strlen(told.message);
    snprintf(told.message + n, sizeof told.message - n, "; it is passed over");
    zf_err_print("warning", &told);
}

/* true: it is what is wanted, whole, and open. */
static bool open_wanted(struct zf_ckpt *out, const char *path, const uint64_t *step, bool weights, struct zf_pool *pool)
{
    struct zf_err why;
    if (!zf_file_exists(path)) return false; /* by now it was one too many for `keep` */
    if (zf_ckpt_open(out, path, &why)) {
        warn(&why);
        return false;
    }
    bool wanted = (weights || !zf_saves_is_weights(out->info)) && (!step || zf_json_number(out->info, "step", -1) == (double)*step);
    enum zf_status bad = wanted ? zf_ckpt_verify(out, pool, NULL, &why) : ZF_OK;
    if (bad) warn(&why);
    if (wanted && !bad) return true;
    zf_ckpt_close(out);
    return false;
}

enum zf_status zf_saves_newest(struct zf_ckpt *out, char **path, const char *run, const uint64_t *step, bool weights, struct zf_pool *pool,
                               struct zf_err *e)
{
    struct saves s;
    *path = NULL;
    enum zf_status status = saves_open(&s, run, e);
    for (size_t i = 0; i < s.count && !status && !*path; i++) {
        if (of(&s.list[i]) != ZF_SAVES_OURS) continue;
        char *at = path_of(&s, &s.list[i]);
        if (!at)
            status = zf_fail_memory(e, run);
        else if (open_wanted(out, at, step, weights, pool))
            *path = at;
        else
            free(at);
    }
    saves_free(&s);
    return status;
}

enum zf_status zf_saves_each(const char *run, zf_saves_visit *visit, void *ctx, struct zf_err *e)
{
    struct saves s;
    enum zf_status status = saves_open(&s, run, e);
    for (size_t i = 0; i < s.count && !status; i++) {
        char *path = path_of(&s, &s.list[i]);
        status = path ? visit(ctx, path, of(&s.list[i]), e) : zf_fail_memory(e, run);
        free(path);
    }
    saves_free(&s);
    return status;
}

/* By its name or its step. NULL: none. */
static const struct save *called(const struct saves *s, const char *word)
{
    char name[sizeof s->list->name];
    char *end;
    uint64_t step = strtoull(word, &end, 10);
    bool number = *word && strspn(word, "0123456789") == strlen(word) && !*end;
    const struct save *left = NULL, *x;
    if ((x = find(s, word))) return x;
    snprintf(name, sizeof name, "%.250s.zfc", word);
    if ((x = find(s, name))) return x;
    for (size_t i = 0; number && i < s->count; i++) {
        x = &s->list[i];
        if (!x->rank || x->step != step) continue;
        if (!x->left) return x;
        if (!left) left = x;
    }
    return left;
}

static void put_names(const struct saves *s, char *out, size_t room)
{
    snprintf(out, room, "none yet");
    for (size_t i = 0, n = 0; i < s->count && n + 260 < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%.*s", i ? ", " : "", (int)strlen(s->list[i].name) - 4, s->list[i].name);
}

char *zf_saves_names(const char *run)
{
    struct saves s;
    struct zf_err ignored;
    char text[800];
    if (saves_open(&s, run, &ignored)) return NULL;
    put_names(&s, text, sizeof text);
    saves_free(&s);
    return strdup(text);
}

enum zf_status zf_saves_missing(const char *path, struct zf_err *e)
{
    char *folder = zf_path_directory(path), *run = folder ? zf_path_directory(folder) : NULL, *names = NULL;
    if (folder && run && !strcmp(zf_path_name(folder), "checkpoints") && zf_directory_exists(folder)) names = zf_saves_names(run);
    if (names)
        zf_fail(e, ZF_USAGE, path, "there is no such checkpoint; %s has: %s", run, names);
    else
        zf_fail(e, ZF_USAGE, path, "there is no such file; a checkpoint is expected");
    free(names);
    free(run);
    free(folder);
    return e->code;
}

enum zf_status zf_saves_find(char **path, uint64_t *fork, const char *run, const char *word, struct zf_err *e)
{
    struct saves s;
    *path = NULL;
    *fork = UINT64_MAX;
    if (strchr(word, '/')) {
        if (!zf_file_exists(word)) return zf_saves_missing(word, e);
        return (*path = strdup(word)) ? ZF_OK : zf_fail_memory(e, word);
    }
    ZF_TRY(saves_open(&s, run, e));
    const struct save *x = called(&s, word);
    char there[800];
    put_names(&s, there, sizeof there);
    if (x) *path = path_of(&s, x);
    if (x && x->link) *fork = x->fork;
    enum zf_status status = *path ? ZF_OK
                            : x   ? zf_fail_memory(e, run)
                                  : zf_fail(e, ZF_USAGE, word, "there is no such checkpoint; there are: %s", there);
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

/* ---- which of them stay ---- */

static enum form form_of(const char *path)
{
    struct zf_ckpt c;
    struct zf_err ignored;
    if (zf_ckpt_open(&c, path, &ignored)) return BROKEN;
    enum form f = zf_saves_is_weights(c.info) ? WEIGHTS : WHOLE;
    zf_ckpt_close(&c);
    return f;
}

static enum zf_status copy_tensor(const struct zf_ckpt *c, const struct zf_ckpt_tensor *t, struct zf_ckpt_writer *w, void *buffer,
                                  size_t room, struct zf_err *e)
{
    ZF_TRY(zf_ckpt_begin(w, t->name, t->type, t->rank, t->shape, e));
    for (uint64_t at = 0; at < t->bytes; at += room) {
        size_t n = t->bytes - at < room ? (size_t)(t->bytes - at) : room;
        ZF_TRY(zf_ckpt_read(c, t, buffer, at, n, NULL, e));
        ZF_TRY(zf_ckpt_put(w, buffer, n, e));
    }
    return ZF_OK;
}

static bool is_master(const char *name)
{
    static const char sign[] = ":master";
    size_t n = strlen(name);
    return n >= sizeof sign && !strcmp(name + n - (sizeof sign - 1), sign);
}

/* In its place: until the last moment it is as it was. */
static enum zf_status reduce(const char *path, struct zf_err *e)
{
    enum { ROOM = 4 << 20 };
    struct zf_ckpt c;
    struct stat was;
    struct zf_ckpt_writer *w = NULL;
    ZF_TRY(zf_ckpt_open(&c, path, e));
    bool timed = !fstat(c.fd, &was);
    void *buffer = malloc(ROOM);
    json_t *info = json_copy(c.info);
    double level = zf_json_number(json_object_get(c.info, "options"), "compression_level", 1);
    bool told = info && !json_object_set_new(info, "weights_only", json_true());
    enum zf_status s = buffer && told ? ZF_OK : zf_fail_memory(e, path);
    struct zf_ckpt_options o = {.level = level >= 0 && level <= 22 ? (int)level : 1, .drop_pages = true};
    if (!s) s = zf_ckpt_create(&w, path, &o, e);
    for (size_t i = 0; !s && i < c.count; i++)
        if (is_master(c.list[i].name)) s = copy_tensor(&c, &c.list[i], w, buffer, ROOM, e);
    if (!s)
        s = zf_ckpt_finish(w, info, e);
    else
        zf_ckpt_abandon(w), json_decref(info);
    if (!s && timed) utimensat(AT_FDCWD, path, (struct timespec[]){was.st_atim, was.st_mtim}, 0); /* when it was saved */
    free(buffer);
    zf_ckpt_close(&c);
    return s;
}

static void look_at_own(struct saves *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct save *x = &s->list[i];
        char *path = x->form == UNKNOWN && x->own_name ? zf_path_join(s->folder, x->name) : NULL;
        if (path) x->form = form_of(path);
        free(path);
    }
}

void zf_saves_keep(const char *run, size_t keep, size_t keep_weights)
{
    struct saves s;
    struct zf_err ignored; /* what cannot be reduced stays as it is, and the next turn is the next checkpoint's */
    bool safe = false;
    if (saves_open(&s, run, &ignored)) return;
    look_at_own(&s);
    for (size_t i = 0; i < s.count; i++) safe |= s.list[i].own_name && !s.list[i].left && s.list[i].form == WHOLE;
    size_t whole[2] = {0}, weights[2] = {0}; /* of this course; of those that the run was taken back from: somebody may want to see them */
    for (size_t i = 0; safe && i < s.count; i++) {
        const struct save *x = &s.list[i];
        if (x->form == UNKNOWN || !x->own_name || whole[x->left] < keep) {
            whole[x->left] += x->own_name && x->form == WHOLE;
            continue;
        }
        char *path = zf_path_join(s.folder, x->name);
        bool stays = x->form != BROKEN && weights[x->left]++ < keep_weights;
        if (path && !stays) unlink(path);
        if (path && stays && x->form == WHOLE) reduce(path, &ignored);
        free(path);
    }
    saves_free(&s);
}

/* ---- the list ---- */

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
        char *path = path_of(&s, x);
        bool weights = path && form_of(path) == WEIGHTS;
        double step = path ? zf_saves_step(path) : -1;
        free(path);
        fprintf(to, "%s%s", i ? "\n" : "", x->name);
        if (step >= 0) fprintf(to, "  step %.0f", step);
        fprintf(to, "  %s  %s%s%s", zf_bytes_text(x->bytes, bytes, sizeof bytes), when, weights ? "  (weights only)" : "",
                zf_saves_where(of(x)));
    }
    if (to && fclose(to)) {
        free(text);
        text = NULL;
    }
    saves_free(&s);
    return text;
}
