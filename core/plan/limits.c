/* What memory there is: procfs and every ancestor's cgroup limit, v1 and v2. Reads files only; what is missing or garbled is "no such
 * limit".
 *
 * Inside a container procfs shows the host's memory; the group's limit is what kills. So the least of all counts. */
#include "core/plan/memory.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* v1 says "none" with a number just below 2^63. */
#define HUGE_LIMIT ((unsigned long long)1 << 62)

static const struct layout {
    const char *limit, *usage, *inactive, *oom;
} layouts[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control"},
    {"memory.max", "memory.current", "inactive_file", "memory.events"},
};
enum { V1, V2 };

/* Calls fn for every directory from the process's group up to the mount point. */
typedef void group_fn(void *ctx, const struct layout *layout, const char *directory);

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

/* The number after `key` at the beginning of a line; the whole first line if key is "". */
static bool read_number(const char *directory, const char *name, const char *key, unsigned long long *out)
{
    char line[512];
    size_t n = strlen(key);
    bool found = false;
    FILE *f = open_under(directory, name);
    if (!f) return false;
    while (!found && next_line(f, line, sizeof line)) {
        if (!strncmp(line, key, n) && (!n || line[n] == ' ' || line[n] == ':')) found = parse_number(line + n + (line[n] == ':'), out);
        if (!n) break;
    }
    fclose(f);
    return found;
}

static size_t read_kilobytes(const char *root, const char *file, const char *key, size_t absent)
{
    unsigned long long k;
    if (!read_number(root, file, key, &k) || k > SIZE_MAX / 1024) return absent;
    return (size_t)k * 1024;
}

/* Below `mount`, where the tree begins at `base`: `group` and its ancestors. A group that is not below base (another
 * namespace's) leaves the mount point alone. */
static void walk_up(const char *root, const char *mount, const char *base, const char *group, const struct layout *layout, group_fn *fn,
                    void *ctx)
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
        fn(ctx, layout, path);
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

/* "id parent dev ROOT MOUNT options ... - TYPE source SUPER": is it a hierarchy that limits memory, of this version? */
static bool parse_mount(char *line, int version, char **base, char **mount)
{
    char *fields[6], *save, *dash = strstr(line, " - ");
    if (!dash) return false;
    *dash = 0;
    for (int i = 0; i < 6; i++)
        if (!(fields[i] = strtok_r(i ? NULL : line, " ", &save))) return false;
    char *type = strtok_r(dash + 3, " ", &save), *source = strtok_r(NULL, " ", &save), *super = strtok_r(NULL, " ", &save);
    if (!type || !source || strcmp(type, version == V2 ? "cgroup2" : "cgroup")) return false;
    if (version == V1 && (!super || !has_word(super, "memory"))) return false;
    *base = fields[3];
    *mount = fields[4];
    unescape(*base);
    unescape(*mount);
    return true;
}

static void walk_hierarchy(const char *root, int version, const char *group, group_fn *fn, void *ctx)
{
    static const char *const usual[2][2] = {{"/sys/fs/cgroup/memory", NULL}, {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}};
    char line[8192], *base, *mount;
    bool found = false;
    FILE *f = open_under(root, "proc/self/mountinfo");
    while (f && next_line(f, line, sizeof line)) {
        if (!parse_mount(line, version, &base, &mount)) continue;
        walk_up(root, mount, base, group, &layouts[version], fn, ctx);
        found = true;
    }
    if (f) fclose(f);
    for (int i = 0; !found && i < 2 && usual[version][i]; i++) walk_up(root, usual[version][i], "/", group, &layouts[version], fn, ctx);
}

static void walk_groups(const char *root, group_fn *fn, void *ctx)
{
    char line[PATH_MAX + 512];
    FILE *f = open_under(root, "proc/self/cgroup");
    while (f && next_line(f, line, sizeof line)) { /* "4:memory:/a/b", "0::/a/b" */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (!*++controllers)
            walk_hierarchy(root, V2, group, fn, ctx);
        else if (has_word(controllers, "memory"))
            walk_hierarchy(root, V1, group, fn, ctx);
    }
    if (f) fclose(f);
}

static void take_tightest(void *ctx, const struct layout *layout, const char *directory)
{
    struct zf_memory_limits *out = ctx;
    unsigned long long limit, used = 0, inactive = 0;
    if (!read_number(directory, layout->limit, "", &limit) || limit >= HUGE_LIMIT) return;
    read_number(directory, layout->usage, "", &used);
    read_number(directory, "memory.stat", layout->inactive, &inactive);
    used = used > inactive ? used - inactive : 0;
    size_t left = limit > used ? (size_t)(limit - used) : 0;
    if (left >= out->cgroup) return;
    out->cgroup = left;
    snprintf(out->cgroup_path, sizeof out->cgroup_path, "%s", directory);
}

static void count_kills(void *ctx, const struct layout *layout, const char *directory)
{
    size_t *out = ctx;
    unsigned long long n;
    if (read_number(directory, layout->oom, "oom_kill", &n) && (*out == SIZE_MAX || n > *out)) *out = (size_t)n;
}

/* "/" and "" are the same root: paths below begin with a slash. */
static const char *plain_root(const char *root)
{
    return strcmp(root, "/") ? root : "";
}

size_t zf_memory_oom_kills(const char *root)
{
    size_t kills = SIZE_MAX;
    walk_groups(plain_root(root), count_kills, &kills);
    return kills;
}

void zf_memory_limits_read(struct zf_memory_limits *out, const char *root, size_t memory_limit)
{
    root = plain_root(root);
    *out = (struct zf_memory_limits){.cgroup = SIZE_MAX, .option = SIZE_MAX, .address = SIZE_MAX};
    out->available = read_kilobytes(root, "proc/meminfo", "MemAvailable", SIZE_MAX);
    out->resident = read_kilobytes(root, "proc/self/status", "VmRSS", 0);
    walk_groups(root, take_tightest, out);
    struct rlimit address;
    if (!getrlimit(RLIMIT_AS, &address) && address.rlim_cur != RLIM_INFINITY) {
        size_t mapped = read_kilobytes(root, "proc/self/status", "VmSize", 0);
        out->address = address.rlim_cur > mapped ? (size_t)address.rlim_cur - mapped : 0;
    }
    if (memory_limit) out->option = memory_limit > out->resident ? memory_limit - out->resident : 0;

    const struct {
        size_t bytes;
        const char *name;
    } all[] = {{out->available, "MemAvailable"}, {out->cgroup, "cgroup limit"}, {out->option, "memory_limit"}, {out->address, "ulimit -v"}};
    out->least = SIZE_MAX;
    out->least_name = "no limit";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].bytes >= out->least) continue;
        out->least = all[i].bytes;
        out->least_name = all[i].name;
    }
}
