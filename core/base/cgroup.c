/* Walks up from the process's group in each hierarchy that /proc/self/mountinfo shows, or in the usual places where it cannot be read. */
#include "core/base/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_under(const char *directory, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* A line without its newline; of one that is too long only the beginning. */
static bool next_line(FILE *f, char *line, size_t size)
{
    if (!fgets(line, (int)size, f)) return false;
    size_t n = strlen(line);
    if (n && line[n - 1] == '\n') {
        line[n - 1] = 0;
    } else {
        for (int c = getc(f); c != EOF && c != '\n';) c = getc(f);
    }
    return true;
}

static bool parse_number(const char *s, unsigned long long *out)
{
    char *end;
    while (*s == ' ' || *s == '\t') s++;
    if (!isdigit((unsigned char)*s)) return false;
    errno = 0;
    *out = strtoull(s, &end, 10);
    return !errno && (!*end || isspace((unsigned char)*end));
}

bool zf_cgroup_number(const char *directory, const char *file, const char *key, unsigned long long *out)
{
    char line[512];
    size_t n = strlen(key);
    bool found = false;
    FILE *f = open_under(directory, file);
    if (!f) return false;
    while (!found && next_line(f, line, sizeof line)) {
        if (!strncmp(line, key, n) && (!n || line[n] == ' ' || line[n] == ':')) found = parse_number(line + n + (line[n] == ':'), out);
        if (!n) break;
    }
    fclose(f);
    return found;
}

/* Below `mount`, where the tree begins at `base`: `group` and its ancestors. A group that is not below base (another
 * namespace's) leaves the mount point alone. */
static void walk_up(const char *root, const char *mount, const char *base, const char *group, enum zf_cgroup_version version,
                    zf_cgroup_fn *fn, void *ctx)
{
    size_t n = strcmp(base, "/") ? strlen(base) : 0;
    const char *below = !strncmp(group, base, n) && (group[n] == '/' || !group[n]) && !strstr(group, "/..") ? group + n : "";
    char path[PATH_MAX];
    int top = snprintf(path, sizeof path, "%s%s", root, mount);
    if (top <= 0 || (size_t)top >= sizeof path || strlen(below) >= sizeof path - (size_t)top) return;
    strcpy(path + top, below);
    for (;;) {
        size_t end = strlen(path);
        while (end > (size_t)top && path[end - 1] == '/') path[--end] = 0;
        fn(ctx, version, path);
        if (end <= (size_t)top) return;
        *strrchr(path, '/') = 0;
    }
}

static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ',') && (!p[n] || p[n] == ',')) return true;
    return false;
}

/* "id parent dev ROOT MOUNT options ... - TYPE source SUPER": is it a hierarchy of this version that has the controller? */
static bool parse_mount(char *line, enum zf_cgroup_version version, const char *controller, char **base, char **mount)
{
    char *fields[6], *save, *dash = strstr(line, " - ");
    if (!dash) return false;
    *dash = 0;
    for (int i = 0; i < 6; i++)
        if (!(fields[i] = strtok_r(i ? NULL : line, " ", &save))) return false;
    char *type = strtok_r(dash + 3, " ", &save), *source = strtok_r(NULL, " ", &save), *super = strtok_r(NULL, " ", &save);
    if (!type || !source || strcmp(type, version == ZF_CGROUP_V2 ? "cgroup2" : "cgroup")) return false;
    if (version == ZF_CGROUP_V1 && (!super || !has_word(super, controller))) return false;
    *base = fields[3];
    *mount = fields[4];
    unescape(*base);
    unescape(*mount);
    return true;
}

static void walk_hierarchy(const char *root, enum zf_cgroup_version version, const char *controller, const char *group, zf_cgroup_fn *fn,
                           void *ctx)
{
    char line[8192], own[96], *base, *mount;
    bool found = false;
    FILE *f = open_under(root, "proc/self/mountinfo");
    while (f && next_line(f, line, sizeof line)) {
        if (!parse_mount(line, version, controller, &base, &mount)) continue;
        walk_up(root, mount, base, group, version, fn, ctx);
        found = true;
    }
    if (f) fclose(f);
    snprintf(own, sizeof own, "/sys/fs/cgroup/%s", controller);
    const char *const usual[2][2] = {{own, NULL}, {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}};
    for (int i = 0; !found && i < 2 && usual[version][i]; i++) walk_up(root, usual[version][i], "/", group, version, fn, ctx);
}

void zf_cgroup_walk(const char *root, const char *controller, zf_cgroup_fn *fn, void *ctx)
{
    char line[PATH_MAX + 512];
    if (!strcmp(root, "/")) root = ""; /* the same: paths below begin with a slash */
    FILE *f = open_under(root, "proc/self/cgroup");
    while (f && next_line(f, line, sizeof line)) { /* "4:memory:/a/b", "0::/a/b" */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (!*++controllers)
            walk_hierarchy(root, ZF_CGROUP_V2, controller, group, fn, ctx);
        else if (has_word(controllers, controller))
            walk_hierarchy(root, ZF_CGROUP_V1, controller, group, fn, ctx);
    }
    if (f) fclose(f);
}

/* v2: "QUOTA PERIOD" in one file; v1: two files. "max" and -1 are no numbers, and no limit. */
static void take_quota(void *ctx, enum zf_cgroup_version version, const char *directory)
{
    double *least = ctx;
    unsigned long long quota = 0, period = 0;
    if (version == ZF_CGROUP_V2) {
        char line[64] = "";
        FILE *f = open_under(directory, "cpu.max");
        bool have = f && next_line(f, line, sizeof line);
        if (f) fclose(f);
        char *space = have ? strchr(line, ' ') : NULL;
        if (!space || !parse_number(line, &quota) || !parse_number(space, &period)) return;
    } else if (!zf_cgroup_number(directory, "cpu.cfs_quota_us", "", &quota) ||
               !zf_cgroup_number(directory, "cpu.cfs_period_us", "", &period)) {
        return;
    }
    if (!quota || !period) return;
    double processors = (double)quota / (double)period;
    if (!*least || processors < *least) *least = processors;
}

double zf_cgroup_processors(const char *root)
{
    double least = 0;
    zf_cgroup_walk(root, "cpu", take_quota, &least);
    return least;
}
