/* See lock.h. */
#include "core/session/lock.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/session/lock_impl.h"
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD = 2048 }; /* one page at most: a reader on the same machine sees the old or the new one */

static void read_word(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f || !fgets(out, (int)size, f)) *out = 0;
    if (f) fclose(f);
    out[strcspn(out, "\n")] = 0;
}

/* Goes into the record as it is: no character that JSON would escape. */
static void printable(char *out, size_t size, const char *s)
{
    snprintf(out, size, "%s", s);
    for (; *out; out++)
        if (*out <= ' ' || *out > '~' || *out == '"' || *out == '\\') *out = '?';
}

void zf_lock_read_host(struct zf_lock_record *r)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    printable(r->host, sizeof r->host, name[0] ? name : "localhost");
    read_word("/proc/sys/kernel/random/boot_id", r->boot_id, sizeof r->boot_id);
}

/* Field 22 of /proc/PID/stat; 0: no such process. The name in parentheses may contain anything. */
static long long start_of(long long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    read_word(path, text, sizeof text);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

static const struct zf_lock_record nobody = {.peak_bytes = -1, .limit_bytes = -1, .resident_bytes = -1, .oom_kills = -1};

static void describe_me(struct zf_lock_record *r, const struct zf_lock_options *o)
{
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID", "JOB_ID"};
    *r = nobody;
    r->pid = getpid();
    r->started = zf_wall_clock();
    zf_lock_read_host(r);
    r->pid_start = start_of(r->pid);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs && !r->job[0]; i++)
        if (getenv(jobs[i])) printable(r->job, sizeof r->job, getenv(jobs[i]));
    if (o->memory_limit && o->memory_limit != SIZE_MAX) r->limit_bytes = (double)o->memory_limit;
    size_t kills = zf_memory_oom_kills("/");
    if (kills != SIZE_MAX) r->oom_kills = (double)kills;
}

static double resident(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages ? (double)pages * (double)sysconf(_SC_PAGESIZE) : -1;
}

static int write_record(struct zf_lock *l)
{
    struct zf_lock_record *r = &l->me;
    struct rusage use;
    char text[RECORD + 1], head[ZF_LOCK_HEAD + 1] = "";
    r->heartbeat = zf_wall_clock();
    r->resident_bytes = resident();
    if (!getrusage(RUSAGE_SELF, &use)) r->peak_bytes = (double)use.ru_maxrss * 1024;
    int n = snprintf(
        text, sizeof text,
        "%s\"host\":\"%s\",\"pid\":%lld,\"pid_start\":%lld,\"boot_id\":\"%s\",\"job\":\"%s\",\"started\":%.3f,\"heartbeat\":%.3f,"
        "\"step\":%llu,\"peak_bytes\":%.0f,\"resident_bytes\":%.0f,\"limit_bytes\":%.0f,\"oom_kills\":%.0f,\"file_lock\":%s,\"paused\":%s,"
        "\"socket\":\"%s\"}",
        zf_lock_head(head, r->signal, r->signal ? r->step : 0), r->host, r->pid, r->pid_start, r->boot_id, r->job, r->started, r->heartbeat,
        (unsigned long long)r->step, r->peak_bytes, r->resident_bytes, r->limit_bytes, r->oom_kills, r->file_lock ? "true" : "false",
        r->paused ? "true" : "false", r->socket);
    memset(text + n, ' ', (size_t)(RECORD - n));
    text[RECORD - 1] = '\n';
    ssize_t put = pwrite(l->fd, text, RECORD, 0);
    if (put >= 0 && put < RECORD) errno = ENOSPC;
    return put == RECORD ? 0 : -1;
}

enum content { EMPTY, OURS, FOREIGN };

static enum content parse_record(struct zf_lock_record *r, const char *text, size_t size)
{
    *r = nobody;
    size_t used = 0;
    while (used < size && (!text[used] || strchr(" \n\t\r", text[used]))) used++;
    if (used == size) return EMPTY; /* zeros after a power cut, too */
    json_t *v = json_loadb(text, size, 0, NULL);
    double pid = zf_json_number(v, "pid", -1);
    enum content c = v && zf_json_text(v, "host", NULL) && pid >= 1 && pid < 1e15 ? OURS : FOREIGN;
    if (c == OURS) {
        double step = fmax(zf_json_number(v, "step", 0), zf_json_number(v, "died_at", 0)), start = zf_json_number(v, "pid_start", 0),
               number = zf_json_number(v, "signal", 0);
        snprintf(r->host, sizeof r->host, "%s", zf_json_text(v, "host", ""));
        snprintf(r->boot_id, sizeof r->boot_id, "%s", zf_json_text(v, "boot_id", ""));
        snprintf(r->job, sizeof r->job, "%s", zf_json_text(v, "job", ""));
        r->pid = (long long)pid;
        r->pid_start = start > 0 && start < 1e18 ? (long long)start : 0;
        r->started = zf_json_number(v, "started", 0);
        r->heartbeat = zf_json_number(v, "heartbeat", 0);
        r->step = step > 0 && step < 1e18 ? (uint64_t)step : 0;
        r->peak_bytes = zf_json_number(v, "peak_bytes", -1);
        r->limit_bytes = zf_json_number(v, "limit_bytes", -1);
        r->resident_bytes = zf_json_number(v, "resident_bytes", -1);
        r->oom_kills = zf_json_number(v, "oom_kills", -1);
        r->signal = number >= 1 && number < 1000 ? (int)number : 0;
        r->file_lock = json_is_true(json_object_get(v, "file_lock"));
        r->paused = json_is_true(json_object_get(v, "paused"));
        snprintf(r->socket, sizeof r->socket, "%s", zf_json_text(v, "socket", ""));
    }
    json_decref(v);
    return c;
}

/* A record seen while it is written on another machine may be torn: look again before believing that. */
static enum content read_record(int fd, struct zf_lock_record *r)
{
    char text[RECORD];
    for (int attempt = 0;; attempt++) {
        ssize_t n = pread(fd, text, sizeof text, 0);
        enum content c = parse_record(r, text, n > 0 ? (size_t)n : 0);
        if (c != FOREIGN || attempt == 3) return c;
        usleep(20000);
    }
}

static bool same(const struct zf_lock_record *a, const struct zf_lock_record *b)
{
    return a->pid == b->pid && a->pid_start == b->pid_start && !strcmp(a->host, b->host) && !strcmp(a->boot_id, b->boot_id);
}

/* The record's opinion, where no file lock speaks. */
static bool record_alive(const struct zf_lock_record *r, bool file_locks_work)
{
    struct zf_lock_record here = {0};
    zf_lock_read_host(&here);
    bool same_kernel = here.boot_id[0] && !strcmp(here.boot_id, r->boot_id);
    if (same_kernel && file_locks_work && r->file_lock) return false; /* a holder would hold the lock */
    if (same_kernel && !strcmp(here.host, r->host)) {
        long long start = start_of(r->pid);
        if (start || kill((pid_t)r->pid, 0) == 0 || errno == EPERM) return !r->pid_start || !start || start == r->pid_start;
        return false;
    }
    return zf_wall_clock() - r->heartbeat < ZF_LOCK_FRESH;
}

bool zf_lock_elsewhere(const struct zf_lock_record *r)
{
    struct zf_lock_record here = {0};
    zf_lock_read_host(&here);
    bool same_kernel = here.boot_id[0] && !strcmp(here.boot_id, r->boot_id);
    return r->pid && !same_kernel && (r->boot_id[0] || strcmp(here.host, r->host));
}

void zf_lock_socket(struct zf_lock *l, const char *path)
{
    char kept[sizeof l->me.socket];
    printable(kept, sizeof kept, path);
    if (strcmp(kept, path) != 0) return; /* it cannot be named */
    memcpy(l->me.socket, kept, sizeof kept);
    write_record(l);
}

static bool no_file_locks(int error)
{
    return error == ENOLCK || error == ENOSYS || error == EINVAL || error == EOPNOTSUPP;
}

enum zf_lock_state zf_lock_look(const char *run, struct zf_lock_record *out)
{
    struct zf_lock_record r;
    struct stat st;
    char *path = zf_path_join(run, "lock");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    free(path);
    if (fd < 0) return ZF_LOCK_NONE;
    enum zf_lock_state state = ZF_LOCK_NONE;
    enum content c = !fstat(fd, &st) && S_ISREG(st.st_mode) ? read_record(fd, &r) : FOREIGN;
    if (c != FOREIGN) {
        struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        bool works = !fcntl(fd, F_OFD_GETLK, &f);
        if (works && f.l_type != F_UNLCK)
            state = ZF_LOCK_LIVE;
        else if (c == OURS)
            state = record_alive(&r, works) ? ZF_LOCK_LIVE : ZF_LOCK_DEAD;
        if (out) *out = r;
    }
    close(fd);
    return state;
}

static enum zf_status busy(const char *path, const struct zf_lock_record *r, bool known, bool locked, struct zf_err *e)
{
    if (!known)
        return zf_fail(e, ZF_BUSY, path,
                       "another trainer holds this run and is just starting; wait for it, or give the new run another `dir`");
    char job[80] = "";
    if (r->job[0]) snprintf(job, sizeof job, ", job %s", r->job);
    if (locked)
        return zf_fail(
            e, ZF_BUSY, path,
            "a trainer (pid %lld on host %s%s) holds this run; one at a time is possible: watch it with `status`, stop it, or give the "
            "new run another `dir`",
            r->pid, r->host, job);
    return zf_fail(
        e, ZF_BUSY, path,
        "a trainer (pid %lld on host %s%s) holds this run; its last sign of life is %.0f s old; stop it, or, if it is dead for certain, "
        "wait until that is %d s old, or take the run over with --takeover",
        r->pid, r->host, job, zf_wall_clock() - r->heartbeat, ZF_LOCK_FRESH);
}

/* The last step that the log has: the record may be some seconds older. */
static uint64_t last_logged_step(const char *run)
{
    char *path = zf_path_join(run, "metrics.jsonl");
    json_t *v = path ? zf_jsonl_last(path, "step") : NULL;
    uint64_t step = zf_json_count(v, "step");
    json_decref(v);
    free(path);
    return step;
}

/* Opens and locks the file that is under this name now, not one that its holder has just removed. */
static enum zf_status open_locked(struct zf_lock *l, const struct zf_lock_options *o, bool *works, struct zf_err *e)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        struct stat here, there;
        struct zf_lock_record r;
        l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
        if (l->fd < 0) return zf_fail_errno(e, l->path, "cannot open the lock");
        if (fstat(l->fd, &here) || !S_ISREG(here.st_mode)) return zf_fail(e, ZF_IO, l->path, "it is no regular file; move it away");
        struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        *works = !o->without_file_lock;
        if (*works && fcntl(l->fd, F_OFD_SETLK, &f)) {
            if (errno == EAGAIN || errno == EACCES) {
                enum content c = read_record(l->fd, &r);
                return busy(l->path, &r, c == OURS, true, e);
            }
            if (!no_file_locks(errno)) return zf_fail_errno(e, l->path, "cannot lock it");
            *works = false;
        }
        if (!stat(l->path, &there) && here.st_ino == there.st_ino && here.st_dev == there.st_dev) return ZF_OK;
        close(l->fd);
        l->fd = -1;
    }
    return zf_fail(e, ZF_BUSY, l->path, "other trainers keep taking and leaving this run; try again");
}

static enum zf_status acquire(struct zf_lock *l, const char *run, const struct zf_lock_options *o, char *note, size_t note_size,
                              struct zf_err *e)
{
    struct zf_lock_record before;
    bool works = false;
    ZF_TRY(open_locked(l, o, &works, e));
    enum content c = read_record(l->fd, &before);
    if (c == FOREIGN)
        return zf_fail(e, ZF_IO, l->path,
                       "it is no lock of a trainer and would be overwritten; move it away, or give the run another `dir`");
    bool taken = o->take_over && c == OURS && zf_lock_elsewhere(&before);
    if (c == OURS && !taken && record_alive(&before, works)) return busy(l->path, &before, true, false, e);
    describe_me(&l->me, o);
    l->me.file_lock = works;
    if (c == OURS && note) zf_lock_explain(&before, last_logged_step(run), note, note_size);
    if (write_record(l) || ftruncate(l->fd, RECORD)) return zf_fail_errno(e, l->path, "cannot write the lock");
    if (!works) usleep(100000); /* nothing keeps another one from taking it at the same moment: the last writer wins */
    if (read_record(l->fd, &before) != OURS || !same(&before, &l->me)) return busy(l->path, &before, true, false, e);
    l->last_beat = zf_clock();
    return ZF_OK;
}

enum zf_status zf_lock_acquire(struct zf_lock **out, const char *run, const struct zf_lock_options *o, char *note, size_t note_size,
                               struct zf_err *e)
{
    *out = NULL;
    if (note && note_size) *note = 0;
    struct zf_lock *l = calloc(1, sizeof *l);
    if (!l || !(l->path = zf_path_join(run, "lock"))) {
        free(l);
        return zf_fail_memory(e, run);
    }
    l->fd = -1;
    enum zf_status s = acquire(l, run, o, note, note_size, e);
    if (!s) {
        *out = l;
        return s;
    }
    if (l->fd >= 0) close(l->fd);
    free(l->path);
    free(l);
    return s;
}

/* Somebody removed the file, or the whole directory, and a trainer that could not know of this one has begun there. */
static bool is_replaced(const struct zf_lock *l, struct zf_lock_record *by)
{
    struct stat here;
    if (fstat(l->fd, &here) || here.st_nlink) return false;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool other = fd >= 0 && read_record(fd, by) == OURS && !same(by, &l->me);
    if (fd >= 0) close(fd);
    return other;
}

enum zf_status zf_lock_beat(struct zf_lock *l, uint64_t step, struct zf_err *e)
{
    struct zf_lock_record now;
    l->me.step = step;
    if (!l->due && zf_clock() - l->last_beat < ZF_LOCK_BEAT) return ZF_OK;
    l->due = false;
    l->last_beat = zf_clock();
    l->lost = (read_record(l->fd, &now) == OURS && !same(&now, &l->me)) || is_replaced(l, &now);
    if (l->lost) return busy(l->path, &now, true, false, e);
    write_record(l);
    return ZF_OK;
}

void zf_lock_paused(struct zf_lock *l, bool paused)
{
    l->due |= l->me.paused != paused;
    l->me.paused = paused;
}

void zf_lock_release(struct zf_lock *l)
{
    struct stat here, there;
    struct zf_lock_record now;
    if (!l) return;
    zf_lock_no_death(l);
    bool mine = read_record(l->fd, &now) == OURS && same(&now, &l->me) && !fstat(l->fd, &here) && !stat(l->path, &there);
    if (mine && here.st_ino == there.st_ino && here.st_dev == there.st_dev) unlink(l->path);
    close(l->fd);
    free(l->path);
    free(l);
}

char *zf_lock_where(const char *run, const struct zf_lock_record *r)
{
    struct stat st;
    char *usual = zf_path_join(run, "control.sock");
    if (!usual || !r->socket[0] || (!lstat(usual, &st) && S_ISSOCK(st.st_mode))) return usual;
    free(usual);
    return strdup(r->socket);
}
