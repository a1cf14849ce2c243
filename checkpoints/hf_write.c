/* A Hugging Face model folder, writing: everything goes into OUT.tmp-PID, which becomes OUT by one rename that replaces nothing.
 * Whatever fails, that folder is removed. Its lock says that somebody writes it: one without is left by a process that was killed, and
 * removed by the next that writes OUT. One thread per OUT. */
#include "checkpoints/hf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_LIMIT 5000000000u

/* Copied byte for byte, where they exist. */
static const char *const companions[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "added_tokens.json",       "chat_template.jinja",    "chat_template.json",
    "vocab.txt",      "spiece.model",          "sentencepiece.bpe.model",
};

struct plan {
    const struct zf_hf_write *w;
    struct zf_arena arena;
    size_t *first; /* shard s has the entries first[s] .. first[s + 1] */
    size_t shards;
    json_t *map; /* tensor name -> file name; refuses a name that comes twice */
    uint64_t total;
    const char *out, *parent, *folder; /* folder: what is renamed to out */
};

static const char *type_key(enum zf_st_type t)
{
    switch ((int)t) {
    case ZF_ST_F32: return "float32";
    case ZF_ST_BF16: return "bfloat16";
    case ZF_ST_F16: return "float16";
    }
    return NULL;
}

/* config.json and tensors must agree on the type; integer tensors may be there as well. */
static enum zf_status check_type(const struct zf_hf_write *w, const struct zf_st_entry *t, struct zf_err *e)
{
    char shown[160];
    if (!type_key(t->type) || t->type == w->type) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, w->out, "tensor \"%s\" is %s, but the folder is to be %s", zf_st_escape(shown, sizeof shown, t->name),
                   zf_st_type_name(t->type), zf_st_type_name(w->type));
}

/* Greedy, in the order of the entries: a shard is closed when the next tensor would pass the limit. */
static enum zf_status plan_shards(struct plan *p, struct zf_err *e)
{
    const struct zf_hf_write *w = p->w;
    uint64_t limit = w->shard_limit ? w->shard_limit : SHARD_LIMIT, used = 0;
    size_t bytes = 0;
    p->first = w->count < SIZE_MAX / sizeof *p->first - 2 ? zf_arena_alloc(&p->arena, (w->count + 2) * sizeof *p->first) : NULL;
    if (!p->first) return zf_fail_memory(e, w->out);
    p->shards = 1;
    for (size_t i = 0; i < w->count; i++) {
        ZF_TRY(check_type(w, &w->entries[i], e));
        ZF_TRY(zf_st_entry_bytes(&bytes, &w->entries[i], e));
        if (__builtin_add_overflow(p->total, bytes, &p->total))
            return zf_fail(e, ZF_FORMAT, w->out, "the tensors are too big to be written");
        if (i > p->first[p->shards - 1] && (bytes > limit || used > limit - bytes)) {
            p->first[p->shards++] = i;
            used = 0;
        }
        used += bytes;
    }
    p->first[p->shards] = w->count;
    return ZF_OK;
}

static void shard_name(char *to, size_t room, const struct plan *p, size_t shard)
{
    if (p->shards == 1)
        snprintf(to, room, "model.safetensors");
    else
        snprintf(to, room, "model-%05zu-of-%05zu.safetensors", shard + 1, p->shards);
}

static enum zf_status plan_map(struct plan *p, struct zf_err *e)
{
    char name[96], shown[160];
    p->map = json_object();
    if (!p->map) return zf_fail_memory(e, p->w->out);
    for (size_t s = 0; s < p->shards; s++) {
        shard_name(name, sizeof name, p, s);
        for (size_t i = p->first[s]; i < p->first[s + 1]; i++) {
            const char *tensor = p->w->entries[i].name;
            zf_st_escape(shown, sizeof shown, tensor);
            if (json_object_get(p->map, tensor))
                return zf_fail(e, ZF_FORMAT, p->w->out, "two tensors have the name \"%s\"; names must be unique", shown);
            if (json_object_set_new(p->map, tensor, json_string(name)))
                return zf_fail(e, ZF_FORMAT, p->w->out, "tensor \"%s\" cannot be written: its name is not UTF-8, or there is no memory",
                               shown);
        }
    }
    return ZF_OK;
}

/* With the fewest digits that read back to the same numbers. */
static enum zf_status write_json(const struct plan *p, const char *name, const json_t *v, size_t flags, struct zf_err *e)
{
    char *path = zf_path_join(p->folder, name), *text = NULL;
    for (size_t digits = 15; digits <= 17; digits++) {
        free(text);
        text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(digits) | flags);
        json_t *back = text && digits < 17 ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
        bool same = back && json_equal(back, v);
        json_decref(back);
        if (same || !text) break;
    }
    size_t n = text ? strlen(text) : 0;
    if (text) text[n] = '\n'; /* in place of the end */
    enum zf_status s = path && text ? zf_file_write_atomic(path, text, n + 1, e) : zf_fail_memory(e, name);
    free(path);
    free(text);
    return s;
}

/* The folder that the tokenizer comes from may have a config.json that says the same: then it stays as it is, to the byte. */
static enum zf_status copy_config(const struct plan *p, const json_t *config, bool *copied, struct zf_err *e)
{
    enum { LIMIT = 16 << 20 };
    char *from = p->w->tokenizer_from ? zf_path_join(p->w->tokenizer_from, "config.json") : NULL;
    char *to = zf_path_join(p->folder, "config.json");
    struct zf_err ignored;
    json_t *theirs = NULL;
    enum zf_status s = ZF_OK;
    *copied = from && to && !zf_json_file(&theirs, from, LIMIT, &ignored) && json_equal(theirs, config);
    if (*copied) s = zf_file_copy(from, to, e);
    json_decref(theirs);
    free(from);
    free(to);
    return s;
}

/* The type key that the source has, old or new, or both. The old one if it has none, as every version of transformers reads that; but f32
 * is what it takes without one. */
static enum zf_status write_config(const struct plan *p, struct zf_err *e)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    json_t *config = json_deep_copy(p->w->config);
    enum zf_status s = ZF_OK;
    bool any = json_object_get(config, "dtype") || json_object_get(config, "torch_dtype"), copied = false;
    for (size_t i = 0; i < 2 && !s; i++) {
        if (any ? !json_object_get(config, keys[i]) : i == 0 || p->w->type == ZF_ST_F32) continue;
        if (json_object_set_new(config, keys[i], json_string(type_key(p->w->type)))) s = zf_fail_memory(e, "config.json");
    }
    if (!s) s = copy_config(p, config, &copied, e);
    if (!s && !copied) s = write_json(p, "config.json", config, 0, e);
    json_decref(config);
    return s;
}

static enum zf_status write_index(const struct plan *p, struct zf_err *e)
{
    json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)p->total, "weight_map", p->map);
    if (!index) return zf_fail_memory(e, "the index of the shards");
    enum zf_status s = write_json(p, "model.safetensors.index.json", index, JSON_SORT_KEYS, e);
    json_decref(index);
    return s;
}

struct shard_source {
    const struct plan *p;
    size_t first;
};

static enum zf_status from_shard(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct shard_source *s = ctx;
    return s->p->w->source(s->p->w->ctx, s->first + index, sink, e);
}

static enum zf_status copy_companions(const struct plan *p, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    for (size_t i = 0; i < sizeof companions / sizeof *companions && p->w->tokenizer_from && !s; i++) {
        char *from = zf_path_join(p->w->tokenizer_from, companions[i]), *to = zf_path_join(p->folder, companions[i]);
        if (!from || !to)
            s = zf_fail_memory(e, companions[i]);
        else if (zf_file_exists(from))
            s = zf_file_copy(from, to, e);
        free(from);
        free(to);
    }
    return s;
}

static enum zf_status fill_folder(const struct plan *p, struct zf_err *e)
{
    char name[96];
    ZF_TRY(write_config(p, e));
    ZF_TRY(copy_companions(p, e)); /* small files first: what fails soon should not fail after an hour */
    for (size_t s = 0; s < p->shards; s++) {
        struct shard_source source = {p, p->first[s]};
        shard_name(name, sizeof name, p, s);
        char *path = zf_path_join(p->folder, name);
        enum zf_status status = path ? zf_st_write(path, p->w->entries + p->first[s], p->first[s + 1] - p->first[s], from_shard, &source, e)
                                     : zf_fail_memory(e, name);
        free(path);
        ZF_TRY(status);
    }
    if (p->shards > 1) ZF_TRY(write_index(p, e));
    return zf_file_sync_directory(p->folder, e);
}

/* The folder holds plain files only: ours, or those of an earlier process that was killed. Takes fd. */
static void remove_folder(int parent, const char *name, int fd)
{
    DIR *d = fdopendir(fd);
    if (!d) close(fd);
    for (struct dirent *f; d && (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) unlinkat(fd, f->d_name, 0);
    if (d) closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* OUT.tmp-NUMBER of those that write OUT no more. */
static void remove_left(const struct plan *p)
{
    const char *base = zf_path_name(p->out);
    size_t n = strlen(base);
    DIR *d = opendir(p->parent);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *end = f->d_name + n;
        if (strncmp(f->d_name, base, n) || strncmp(end, ".tmp-", 5) || !end[5] || end[5 + strspn(end + 5, "0123456789")]) continue;
        int fd = openat(dirfd(d), f->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB))
            close(fd);
        else
            remove_folder(dirfd(d), f->d_name, fd);
    }
    if (d) closedir(d);
}

static enum zf_status make_folder(const struct plan *p, int *fd, struct zf_err *e)
{
    remove_left(p);
    if (mkdir(p->folder, 0777)) return zf_fail_errno(e, p->folder, "cannot make the directory");
    *fd = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) {
        enum zf_status s = zf_fail_errno(e, p->folder, "cannot open the directory");
        rmdir(p->folder);
        return s;
    }
    flock(*fd, LOCK_EX | LOCK_NB); /* there are file systems that have none */
    return ZF_OK;
}

/* A disk that is too small is told before hours of writing. */
static enum zf_status check_room(const struct plan *p, struct zf_err *e)
{
    uint64_t room = zf_file_room(p->parent);
    if (p->total <= room) return ZF_OK;
    return zf_fail(e, ZF_IO, p->out, "%" PRIu64 " MB are needed, and %" PRIu64 " are free there; make room, or choose another disk",
                   p->total / 1000000 + 1, room / 1000000);
}

enum zf_status zf_hf_check_free(const char *out, struct zf_err *e)
{
    struct stat st;
    if (!lstat(out, &st)) return zf_fail(e, ZF_IO, out, "it exists already, and nothing is overwritten: choose another name, or remove it");
    return errno == ENOENT ? ZF_OK : zf_fail_errno(e, out, "cannot write there");
}

static enum zf_status publish(const struct plan *p, struct zf_err *e)
{
    if (renameat2(AT_FDCWD, p->folder, AT_FDCWD, p->out, RENAME_NOREPLACE)) {
        if (errno == EEXIST) return zf_fail(e, ZF_IO, p->out, "it exists now, and nothing is overwritten: choose another name");
        if (errno != EINVAL && errno != ENOSYS) return zf_fail_errno(e, p->out, "cannot rename %s to it", p->folder);
        ZF_TRY(zf_hf_check_free(p->out, e)); /* a file system without that flag */
        if (rename(p->folder, p->out)) return zf_fail_errno(e, p->out, "cannot rename %s to it", p->folder);
    }
    return zf_file_sync_directory(p->parent, e);
}

static enum zf_status plan_paths(struct plan *p, struct zf_err *e)
{
    size_t n = strlen(p->w->out);
    while (n > 1 && p->w->out[n - 1] == '/') n--;
    if (!n) return zf_fail(e, ZF_IO, NULL, "the name of the folder to write is empty");
    p->out = zf_arena_strndup(&p->arena, p->w->out, n);
    char *parent = p->out ? zf_path_directory(p->out) : NULL;
    p->parent = parent ? zf_arena_strdup(&p->arena, parent) : NULL;
    p->folder = p->out ? zf_arena_printf(&p->arena, "%s.tmp-%ld", p->out, (long)getpid()) : NULL;
    free(parent);
    return p->parent && p->folder ? ZF_OK : zf_fail_memory(e, p->w->out);
}

static enum zf_status write_plan(struct plan *p, struct zf_err *e)
{
    ZF_TRY(plan_paths(p, e));
    ZF_TRY(zf_hf_check_free(p->out, e));
    ZF_TRY(plan_shards(p, e));
    ZF_TRY(plan_map(p, e));
    ZF_TRY(zf_directory_make(p->parent, 0777, e));
    ZF_TRY(check_room(p, e));
    int fd = -1;
    ZF_TRY(make_folder(p, &fd, e));
    enum zf_status s = fill_folder(p, e);
    if (!s) s = publish(p, e);
    if (s)
        remove_folder(AT_FDCWD, p->folder, fd);
    else
        close(fd);
    return s;
}

enum zf_status zf_hf_write(const struct zf_hf_write *w, struct zf_err *e)
{
    struct plan p = {.w = w};
    if (!json_is_object(w->config)) return zf_fail(e, ZF_FORMAT, w->out, "there is no config.json for the folder, which must have one");
    if (!type_key(w->type))
        return zf_fail(e, ZF_FORMAT, w->out, "type %s is not one that a model is written in: F32, BF16, F16", zf_st_type_name(w->type));
    enum zf_status s = write_plan(&p, e);
    json_decref(p.map);
    zf_arena_free(&p.arena);
    return s;
}
