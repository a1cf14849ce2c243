/* A Hugging Face model folder, reading: config.json, then model.safetensors or the shards that model.safetensors.index.json names.
 * Everything hangs off struct zf_hf and is released by zf_hf_close. Read-only after opening: any thread. */
#include "checkpoints/hf.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_LIMIT = 16 << 20, INDEX_LIMIT = 256 << 20 };

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

enum presence { ABSENT, THERE, DANGLING };

static char *inside(struct zf_hf *h, const char *name)
{
    return zf_arena_printf(&h->arena, "%s/%s", h->path, name);
}

static enum presence look_up(struct zf_hf *h, const char *name)
{
    struct stat st;
    char *path = inside(h, name);
    if (!path) return ABSENT;
    if (!stat(path, &st)) return THERE;
    return lstat(path, &st) ? ABSENT : DANGLING;
}

static void add_note(struct zf_hf *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(struct zf_hf *h, const char *fmt, ...)
{
    size_t n = strlen(h->note);
    va_list ap;
    if (n + 3 >= sizeof h->note) return;
    if (n) n += (size_t)sprintf(h->note + n, "; ");
    va_start(ap, fmt);
    vsnprintf(h->note + n, sizeof h->note - n, fmt, ap);
    va_end(ap);
}

static enum zf_status open_folder(struct zf_hf *h, const char *path, struct zf_err *e)
{
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    h->path = zf_arena_strndup(&h->arena, path, n);
    if (!h->path) return zf_fail_memory(e, path);
    if (stat(path, &st)) {
        if (errno != ENOENT && errno != ENOTDIR) return zf_fail_errno(e, path, "cannot look at the model folder");
        return zf_fail(e, ZF_FORMAT, path,
                       "the model folder does not exist; a folder with config.json and model.safetensors is expected: check the path "
                       "(nothing is downloaded)");
    }
    if (!S_ISDIR(st.st_mode))
        return zf_fail(e, ZF_FORMAT, path,
                       "it is not a folder; a folder with config.json and model.safetensors is expected: give the folder, not a file "
                       "in it");
    return ZF_OK;
}

static enum zf_status read_config(struct zf_hf *h, struct zf_err *e)
{
    const char *path = inside(h, "config.json");
    if (!path) return zf_fail_memory(e, h->path);
    switch (look_up(h, "config.json")) {
    case ABSENT:
        return zf_fail(
            e, ZF_FORMAT, h->path, "the folder has no config.json; a Hugging Face model folder has one that describes the model%s",
            look_up(h, "adapter_config.json") == THERE ? ". There is an adapter_config.json: this is an adapter (LoRA), merge it into its "
                                                         "base model first"
                                                       : ": download it from the same place as the weights");
    case DANGLING: return zf_fail(e, ZF_FORMAT, path, "it is a link to a file that does not exist: the download is incomplete, repeat it");
    case THERE: break;
    }
    if (zf_json_file(&h->config, path, CONFIG_LIMIT, e) != ZF_OK) return zf_unreadable(e);
    if (json_is_object(h->config)) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, path, "it is JSON, but no object in braces; the description of a model is expected");
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_pickle_name(const char *name)
{
    static const char *const ends[] = {".bin", ".bin.index.json", ".pt", ".pth", ".ckpt"};
    if (!strcmp(name, "training_args.bin")) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return false;
}

/* Neither weights nor an index: what is there instead? */
static enum zf_status no_weights(struct zf_hf *h, struct zf_err *e)
{
    char pickle[160] = "", other[160] = "";
    DIR *d = opendir(h->path);
    if (!d) return zf_fail_errno(e, h->path, "cannot list the folder");
    for (struct dirent *f; (f = readdir(d));) {
        if (is_pickle_name(f->d_name) && (!*pickle || !strcmp(f->d_name, "pytorch_model.bin")))
            zf_st_escape(pickle, sizeof pickle, f->d_name);
        if (ends_with(f->d_name, ".safetensors")) zf_st_escape(other, sizeof other, f->d_name);
    }
    closedir(d);
    if (*other)
        return zf_fail(e, ZF_FORMAT, h->path,
                       "the folder has neither " SINGLE " nor " INDEX ", only others such as %s: if that is the model, rename it; if "
                       "it is one of several shards, download the index",
                       other);
    if (!*pickle)
        return zf_fail(e, ZF_FORMAT, h->path,
                       "the folder has neither " SINGLE " nor " INDEX "; the weights are missing: download them into it");
    return zf_fail(e, ZF_FORMAT, h->path,
                   "the folder has its weights only as a pickle (%s), which this program does not read, as a pickle can run code; " SINGLE
                   " is expected. Download a revision of the model that has it (often the branch refs/pr/N that the safetensors bot made), "
                   "or convert: "
                   "python -c \"from transformers import AutoModelForCausalLM as M; M.from_pretrained('IN').save_pretrained('OUT')\"",
                   pickle);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name from the index becomes part of a path: it must stay in the folder. */
static bool is_plain_name(const json_t *v)
{
    const char *s = json_string_value(v);
    if (!s || !*s || strlen(s) != json_string_length(v) || strlen(s) > 255) return false;
    if (strpbrk(s, "/\\") || strstr(s, "..") || !strcmp(s, ".")) return false;
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) return false;
    return true;
}

/* The distinct file names of weight_map, sorted, into h->file_names. */
static enum zf_status collect_shards(struct zf_hf *h, json_t *map, const char *index_path, struct zf_err *e)
{
    size_t n = json_object_size(map), i = 0;
    const char *key;
    json_t *v;
    char shown[160], file[300];
    if (!n)
        return zf_fail(e, ZF_FORMAT, index_path,
                       "\"weight_map\" is missing or empty; an object from tensor names to shard files is expected");
    h->file_names = zf_arena_alloc(&h->arena, n * sizeof *h->file_names);
    if (!h->file_names) return zf_fail_memory(e, index_path);
    json_object_foreach(map, key, v)
    {
        if (!is_plain_name(v))
            return zf_fail(e, ZF_FORMAT, index_path,
                           "tensor \"%s\" is mapped to %s%s%s; the plain name of a file in the same folder is expected (no path, "
                           "no \"..\")",
                           zf_st_escape(shown, sizeof shown, key), json_is_string(v) ? "\"" : "",
                           json_is_string(v) ? zf_st_escape(file, sizeof file, json_string_value(v)) : "something that is no string",
                           json_is_string(v) ? "\"" : "");
        h->file_names[i++] = json_string_value(v);
    }
    qsort(h->file_names, n, sizeof *h->file_names, by_text);
    h->file_count = 0;
    for (i = 0; i < n; i++)
        if (!i || strcmp(h->file_names[i], h->file_names[h->file_count - 1])) h->file_names[h->file_count++] = h->file_names[i];
    for (i = 0; i < h->file_count; i++) /* the index is released before the names */
        if (!(h->file_names[i] = zf_arena_strdup(&h->arena, h->file_names[i]))) return zf_fail_memory(e, index_path);
    return ZF_OK;
}

static enum zf_status check_shards_there(struct zf_hf *h, json_t *map, const char *index_path, struct zf_err *e)
{
    char shown[160], file[300];
    size_t missing = 0, first = 0;
    for (size_t i = h->file_count; i-- > 0;) {
        if (look_up(h, h->file_names[i]) == THERE) continue;
        missing++;
        first = i;
    }
    if (!missing) return ZF_OK;
    const char *key, *tensor = "";
    json_t *v;
    json_object_foreach(map, key, v)
    {
        if (strcmp(json_string_value(v), h->file_names[first])) continue;
        tensor = key;
        break;
    }
    return zf_fail(e, ZF_FORMAT, index_path,
                   "shard %s is missing (%zu of %zu shards are); the index maps tensor \"%s\" to it, among others: download it "
                   "into the folder again",
                   zf_st_escape(file, sizeof file, h->file_names[first]), missing, h->file_count,
                   zf_st_escape(shown, sizeof shown, tensor));
}

static enum zf_status open_files(struct zf_hf *h, struct zf_err *e)
{
    h->files = zf_arena_alloc(&h->arena, h->file_count * sizeof *h->files);
    if (!h->files) return zf_fail_memory(e, h->path);
    for (size_t i = 0; i < h->file_count; i++) {
        const char *path = inside(h, h->file_names[i]);
        if (!path) return zf_fail_memory(e, h->path);
        ZF_TRY(zf_st_open(&h->files[i], path, e));
    }
    return ZF_OK;
}

static size_t file_by_name(const struct zf_hf *h, const char *name)
{
    const char **at = bsearch(&name, h->file_names, h->file_count, sizeof *h->file_names, by_text);
    return at ? (size_t)(at - h->file_names) : h->file_count;
}

static enum zf_status check_mapped(struct zf_hf *h, json_t *map, const char *index_path, struct zf_err *e)
{
    char shown[160], file[300], where[300];
    const char *key;
    json_t *v;
    json_object_foreach(map, key, v)
    {
        size_t f = file_by_name(h, json_string_value(v)), other = 0;
        if (zf_st_find(&h->files[f], key)) continue;
        while (other < h->file_count && !zf_st_find(&h->files[other], key)) other++;
        return zf_fail(e, ZF_FORMAT, index_path,
                       "shard %s lacks tensor \"%s\", which the index maps to it%s%s; index and shards are of different versions: "
                       "download all of them again",
                       zf_st_escape(file, sizeof file, h->file_names[f]), zf_st_escape(shown, sizeof shown, key),
                       other < h->file_count ? "; it is in " : " and no other shard has it",
                       zf_st_escape(where, sizeof where, other < h->file_count ? h->file_names[other] : ""));
    }
    return ZF_OK;
}

struct place {
    const char *name;
    size_t file;
};

static int by_place_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

/* No name may be in two shards: which one counts would be chance. */
static enum zf_status check_unique(struct zf_hf *h, struct zf_err *e)
{
    size_t n = zf_hf_tensor_count(h), k = 0;
    enum zf_status s = ZF_OK;
    char shown[160], one[300], two[300];
    if (!n) return ZF_OK;
    struct place *all = malloc(n * sizeof *all);
    if (!all) return zf_fail_memory(e, h->path);
    for (size_t f = 0; f < h->file_count; f++)
        for (size_t i = 0; i < h->files[f].count; i++) all[k++] = (struct place){h->files[f].list[i].name, f};
    qsort(all, n, sizeof *all, by_place_name);
    for (size_t i = 1; i < n && !s; i++)
        if (!strcmp(all[i - 1].name, all[i].name))
            s = zf_fail(e, ZF_FORMAT, h->path,
                        "tensor \"%s\" is in two shards, %s and %s; one of them is of another version: download them again",
                        zf_st_escape(shown, sizeof shown, all[i].name), zf_st_escape(one, sizeof one, h->file_names[all[i - 1].file]),
                        zf_st_escape(two, sizeof two, h->file_names[all[i].file]));
    free(all);
    return s;
}

static void note_sizes(struct zf_hf *h, json_t *index, json_t *map)
{
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    unsigned long long sum = 0, unmapped = 0;
    char shown[160] = "";
    for (size_t f = 0; f < h->file_count; f++) {
        for (size_t i = 0; i < h->files[f].count; i++) {
            const struct zf_st_tensor *t = &h->files[f].list[i];
            sum += t->bytes;
            if (json_object_get(map, t->name)) continue;
            if (!unmapped++) zf_st_escape(shown, sizeof shown, t->name);
        }
    }
    if (unmapped) add_note(h, "%llu tensors in the shards are not in the index, the first is \"%s\"", unmapped, shown);
    if (json_is_number(total) && json_number_value(total) != (double)sum)
        add_note(h, "the index says total_size %.0f, the tensors have %llu bytes", json_number_value(total), sum);
}

/* Other *.safetensors files in the folder. */
static enum zf_status note_extra_files(struct zf_hf *h, struct zf_err *e)
{
    size_t extra = 0;
    char shown[160] = "";
    DIR *d = opendir(h->path);
    if (!d) return zf_fail_errno(e, h->path, "cannot list the folder");
    for (struct dirent *f; (f = readdir(d));) {
        if (!ends_with(f->d_name, ".safetensors") || file_by_name(h, f->d_name) < h->file_count) continue;
        if (!extra++) zf_st_escape(shown, sizeof shown, f->d_name);
    }
    closedir(d);
    if (extra == 1)
        add_note(h, "%s is ignored: it is not part of the model", shown);
    else if (extra)
        add_note(h, "%s and %zu more safetensors files are ignored: they are not part of the model", shown, extra - 1);
    return ZF_OK;
}

static enum zf_status open_single(struct zf_hf *h, struct zf_err *e)
{
    h->file_names = zf_arena_alloc(&h->arena, sizeof *h->file_names);
    if (!h->file_names) return zf_fail_memory(e, h->path);
    h->file_names[0] = SINGLE;
    h->file_count = 1;
    if (look_up(h, INDEX) == THERE) add_note(h, INDEX " is ignored, as " SINGLE " is there");
    return open_files(h, e);
}

static enum zf_status open_sharded(struct zf_hf *h, struct zf_err *e)
{
    const char *path = inside(h, INDEX);
    json_t *index = NULL;
    enum zf_status s;
    if (!path) return zf_fail_memory(e, h->path);
    if (zf_json_file(&index, path, INDEX_LIMIT, e) != ZF_OK) return zf_unreadable(e);
    json_t *map = json_object_get(index, "weight_map");
    ZF_GOTO(done, s, collect_shards(h, map, path, e));
    ZF_GOTO(done, s, check_shards_there(h, map, path, e));
    ZF_GOTO(done, s, open_files(h, e));
    ZF_GOTO(done, s, check_mapped(h, map, path, e));
    ZF_GOTO(done, s, check_unique(h, e));
    note_sizes(h, index, map);
done:
    json_decref(index);
    return s;
}

enum zf_status zf_hf_open_config(struct zf_hf *out, const char *path, struct zf_err *e)
{
    *out = (struct zf_hf){0};
    enum zf_status s = open_folder(out, path, e);
    if (!s) s = read_config(out, e);
    if (s) zf_hf_close(out);
    return s;
}

enum zf_status zf_hf_open(struct zf_hf *out, const char *path, struct zf_err *e)
{
    enum zf_status s;
    ZF_TRY(zf_hf_open_config(out, path, e));
    enum presence single = look_up(out, SINGLE), index = look_up(out, INDEX);
    if (single == THERE)
        s = open_single(out, e);
    else if (single == DANGLING)
        s = zf_fail(e, ZF_FORMAT, out->path, SINGLE " is a link to a file that does not exist: the download is incomplete, repeat it");
    else if (index != ABSENT)
        s = open_sharded(out, e);
    else
        s = no_weights(out, e);
    if (!s) s = note_extra_files(out, e);
    if (s) zf_hf_close(out);
    return s;
}

void zf_hf_close(struct zf_hf *h)
{
    for (size_t i = 0; h->files && i < h->file_count; i++) zf_st_close(&h->files[i]);
    json_decref(h->config);
    zf_arena_free(&h->arena);
    *h = (struct zf_hf){0};
}

size_t zf_hf_tensor_count(const struct zf_hf *h)
{
    size_t n = 0;
    for (size_t i = 0; h->files && i < h->file_count; i++) n += h->files[i].count;
    return n;
}

const struct zf_st_tensor *zf_hf_tensor(const struct zf_hf *h, size_t i, const char **file_name)
{
    for (size_t f = 0; h->files && f < h->file_count; i -= h->files[f++].count) {
        if (i >= h->files[f].count) continue;
        if (file_name) *file_name = h->file_names[f];
        return &h->files[f].list[i];
    }
    return NULL;
}

void zf_hf_pages(const struct zf_hf *h, const unsigned char *data, size_t bytes, bool done)
{
    for (size_t i = 0; i < h->file_count; i++) {
        const struct zf_map *m = &h->files[i].map;
        if (!data)
            zf_map_pages(m, m->data, m->size, done);
        else if (m->data && data >= m->data && data < m->data + m->size)
            zf_map_pages(m, data, bytes, done);
    }
}
