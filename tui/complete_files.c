/* See complete.h. Names of files: text from others, so that what is no text is left out. */
#include "tui/complete.h"
#include "core/base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

enum { FILES_MOST = 10000 };

bool zf_is_text(const char *name)
{
    utf8proc_int32_t code;
    for (size_t i = 0, n = strlen(name); i < n;) {
        utf8proc_ssize_t size = utf8proc_iterate((const utf8proc_uint8_t *)name + i, (utf8proc_ssize_t)(n - i), &code);
        if (size <= 0 || code < ' ' || (code >= 0x7f && code < 0xa0)) return false;
        i += (size_t)size;
    }
    return true;
}

void zf_complete_saves(struct zf_candidates *c, const char *run, const char *typed, size_t size)
{
    static const char ending[] = ".zfc";
    char *folder = zf_path_join(run, "checkpoints");
    DIR *d = folder ? opendir(folder) : NULL;
    size_t seen = 0;
    for (struct dirent *entry; d && seen < FILES_MOST && (entry = readdir(d)); seen++) {
        const char *name = entry->d_name, *dot = strrchr(name, '.');
        size_t n = dot && dot > name && !strcmp(dot, ending) ? (size_t)(dot - name) : 0;
        if (!n || n < size || strncmp(name, typed, size) != 0 || name[0] == '.' || !zf_is_text(name)) continue;
        char *word = strndup(name, n);
        if (word) zf_candidates_add(c, word);
    }
    if (d) closedir(d);
    free(folder);
}

void zf_complete_files(struct zf_candidates *c, const char *typed)
{
    const char *slash = strrchr(typed, '/'), *begun = slash ? slash + 1 : typed;
    size_t folder_size = (size_t)(begun - typed), begun_size = strlen(begun), seen = 0;
    char *folder = folder_size ? strndup(typed, folder_size) : strdup(".");
    DIR *d = folder && folder_size < FILENAME_MAX ? opendir(folder) : NULL;
    for (struct dirent *entry; d && seen < FILES_MOST && (entry = readdir(d)); seen++) {
        struct stat st;
        const char *name = entry->d_name;
        if (strncmp(name, begun, begun_size) != 0 || (name[0] == '.' && begun[0] != '.') || !zf_is_text(name)) continue;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        bool is_folder = fstatat(dirfd(d), name, &st, 0) == 0 && S_ISDIR(st.st_mode);
        char *whole;
        if (asprintf(&whole, "%.*s%s%s", (int)folder_size, typed, name, is_folder ? "/" : "") >= 0) zf_candidates_add(c, whole);
    }
    if (d) closedir(d);
    free(folder);
}
