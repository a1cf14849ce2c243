/* The names that people give to checkpoints. See save.h. */
#include "core/run/save.h"

#include "core/base/file.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/run/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* NAME.zfc */
static void file_name(const char *name, char *out, size_t room)
{
    snprintf(out, room, "%s%s", name, zf_saves_is_file(name) ? "" : ".zfc");
}

enum zf_status zf_save_check_name(const char *name, struct zf_err *e)
{
    char file[256];
    uint64_t step;
    if (!name) return ZF_OK;
    if (!name[0] || strchr(name, '/') || name[0] == '.' || strlen(name) > 200)
        return zf_fail(e, ZF_USAGE, name, "a checkpoint's name has no / in it, does not begin with a dot and has 1 to 200 bytes");
    file_name(name, file, sizeof file);
    if (!zf_saves_is_own_name(file, &step)) return ZF_OK;
    return zf_fail(e, ZF_USAGE, name, "the run itself calls its checkpoints so, and removes old ones; take another name, or none");
}

/* Is it being written, or does it wait for its turn? */
static bool is_coming(const struct zf_trainer *t, const char *file)
{
    bool coming = t->save.now && !strcmp(zf_path_name(t->save.now->path), file);
    for (size_t i = 0; i < t->save.wishes; i++) {
        char one[sizeof t->save.wish->name + 8];
        file_name(t->save.wish[i].name, one, sizeof one);
        coming |= t->save.wish[i].named && !strcmp(one, file);
    }
    return coming;
}

bool zf_save_replaces(const struct zf_trainer *t, const char *name, bool scripted, char *text, size_t room)
{
    struct zf_err ignored;
    char file[256], of[64] = " and cannot be read";
    if (!name || zf_save_check_name(name, &ignored)) return false;
    file_name(name, file, sizeof file);
    char *run = zf_trainer_place(t), *folder = run ? zf_path_join(run, "checkpoints") : NULL,
         *path = folder ? zf_path_join(folder, file) : NULL;
    struct stat st;
    bool coming = is_coming(t, file), there = path && !lstat(path, &st);
    bool same = there && zf_save_is_done(t) && !strcmp(path, t->save.path); /* the very same */
    double step = there ? zf_saves_step(path) : -1;
    free(path);
    free(folder);
    free(run);
    if (step >= 0) snprintf(of, sizeof of, ", of step %.0f", step);
    snprintf(text, room, "%s is %s%s: save would replace it", file, coming ? "being written" : "there already", coming ? "" : of);
    return coming || (there && !same && !(scripted && step == (double)t->step));
}
