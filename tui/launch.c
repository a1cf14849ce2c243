/* See launch.h. */
#include "tui/launch.h"

#include "core/world/launch.h"
#include "core/base/args.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/config/options.h"
#include "core/session/locate.h"
#include "core/session/lock.h"
#include "core/session/rundir.h"
#include "tui/app_impl.h"
#include "tui/tables.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRAINER "zenflow-trainer"
enum { SILENT_MS = 700 }; /* of a start, before it is said that one goes on */

const char *const zf_trainer_commands[] = {
#define ZF_CLI(name, function, usage, text) #name,
#include "core/run/cli.def"
#undef ZF_CLI
    "plan", "help", NULL};

enum zf_status zf_become_trainer(char **argv, struct zf_err *e)
{
    char path[PATH_MAX + sizeof TRAINER];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (slash) {
        strcpy(slash + 1, TRAINER);
        execv(path, argv);
    }
    if (!slash || errno == ENOENT) execvp(TRAINER, argv);
    return zf_fail_errno(e, TRAINER, "it belongs beside this program, or on PATH");
}

static bool on_terminal(void)
{
    const char *term = getenv("TERM");
    struct zf_launch l; /* of several ranks none has a screen, whatever their launcher gives them as stdout */
    struct zf_err ignored;
    if (zf_launch_find(&l, &ignored) || l.launcher) return false;
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static bool any_of(int argc, char **argv, const char *const *names)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        for (size_t k = 0; names[k]; k++)
            if (!strcmp(argv[i], names[k])) return true;
    return false;
}

static bool is_run_cfg(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; zf_trainer_commands[i]; i++)
        if (!strcmp(name, zf_trainer_commands[i])) return false;
    return name[0] == '-' || strchr(name, '/') || (n > 4 && !strcmp(name + n - 4, ".cfg")) || access(name, F_OK) == 0;
}

/* What is the screen's own is taken out, whoever does the rest. */
static enum zf_status take_looks(struct zf_args *a, struct zf_console_options *o, struct zf_err *e)
{
    const struct {
        const char *flag, *const *names;
        size_t count;
        const char **to;
    } looks[] = {{"--theme", zf_scheme_names, ZF_SCHEMES, &o->theme}, {"--glyphs", zf_glyph_names, ZF_GLYPH_SETS, &o->glyphs}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        ZF_TRY(zf_args_value(a, looks[i].flag, looks[i].to, e));
        if (!*looks[i].to || zf_name_index(*looks[i].to, looks[i].names, looks[i].count) < looks[i].count) continue;
        char list[128] = "";
        for (size_t k = 0; k < looks[i].count; k++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", k ? "|" : "", looks[i].names[k]);
        return zf_fail(e, ZF_USAGE, looks[i].flag, "it is `%s`; %s is expected", *looks[i].to, list);
    }
    return ZF_OK;
}

/* --- the screen of a run --- */

/* A path with .. in it as one is named from here; to be freed, NULL: as it is. */
static char *plain_path(const char *run)
{
    char *whole = strstr(run, "/../") ? realpath(run, NULL) : NULL, *here = whole ? getcwd(NULL, 0) : NULL;
    size_t n = here ? strlen(here) : 0;
    if (n && !strncmp(whole, here, n) && whole[n] == '/' && whole[n + 1]) memmove(whole, whole + n + 1, strlen(whole + n + 1) + 1);
    free(here);
    return whole;
}

/* Live, from files, or as a recording: whatever the run is now. ours: it was started from here, so its exit code is ours. */
static enum zf_status show_run(const char *run, struct zf_console_options *o, bool ours, int *code, struct zf_err *e)
{
    struct zf_lock_record holder;
    struct zf_feed *feed = NULL;
    char notice[1024] = "", *outcome = NULL;
    enum zf_status s = ZF_BUSY;
    bool live = zf_lock_look(run, &holder) == ZF_LOCK_LIVE;
    o->run = run;
    o->elsewhere = live && zf_lock_elsewhere(&holder);
    if (o->elsewhere) {
        char *real = realpath(run, NULL);
        snprintf(notice, sizeof notice,
                 "its trainer is on %s, and this console follows its files; to steer it: ssh %s zenflow-console attach %s", holder.host,
                 holder.host, real ? real : run);
        free(real);
        s = zf_feed_files(&feed, run, e);
    } else if (live) {
        s = zf_feed_live(&feed, run, e);
    }
    bool recording = s == ZF_BUSY && zf_lock_look(run, NULL) != ZF_LOCK_LIVE;
    int how = ZF_OK;
    if (recording) {
        outcome = zf_outcome(run, false, 0, &how);
        if (outcome) snprintf(notice, sizeof notice, "%.1000s", outcome);
        free(outcome);
        s = zf_feed_replay(&feed, run, INFINITY, e);
    }
    if (s) return s;
    if (notice[0]) o->notice = notice;
    s = zf_console(feed, o, code, e);
    if (!s && recording && ours) *code = how;
    feed->type->close(feed);
    return s;
}

/* --- starting --- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number; /* the trainer, in the same terminal, has it as well and ends its start in order */
    interrupted = 1;
}

/* What the start says goes on as it comes; the last line is the run directory. */
static enum zf_status read_start(int fd, char **run, struct zf_err *e)
{
    char *line = NULL, *last = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return zf_fail_errno(e, TRAINER, "cannot read what it says");
    }
    while ((n = getline(&line, &room, from)) > 0) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        if (last) puts(last);
        free(last);
        last = strdup(line);
        fflush(stdout);
    }
    free(line);
    fclose(from);
    *run = last;
    return ZF_OK;
}

/* As a child, so that its refusals are on this terminal: `--detach` returns once the run has begun. *code: its exit code. */
static enum zf_status start_trainer(char **argv, const char *cfg, char **run, int *code, struct zf_err *e)
{
    int ends[2], status = 0;
    struct sigaction wait = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    if (pipe(ends)) return zf_fail_errno(e, TRAINER, "cannot make a pipe");
    fflush(stdout);
    sigaction(SIGINT, &wait, &before);
    pid_t child = fork();
    if (child < 0) {
        sigaction(SIGINT, &before, NULL);
        close(ends[0]);
        close(ends[1]);
        return zf_fail_errno(e, TRAINER, "cannot start another process");
    }
    if (!child) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        sigaction(SIGINT, &before, NULL);
        zf_become_trainer(argv, e);
        zf_err_print(NULL, e);
        _exit(ZF_IO);
    }
    close(ends[1]);
    if (!poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, SILENT_MS))
        fprintf(stderr, "zenflow-console: starting %s ...\n", cfg); /* large models take a while; one that is there already does not */
    enum zf_status s = read_start(ends[0], run, e);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    sigaction(SIGINT, &before, NULL);
    if (s) return s;
    if (!WIFEXITED(status)) return zf_fail(e, ZF_IO, TRAINER, "it was killed by signal %d while it started", WTERMSIG(status));
    *code = WEXITSTATUS(status);
    if (*code && *run) puts(*run);
    if (!*code && (!*run || !**run))
        return zf_fail(e, ZF_IO, TRAINER, "it has not said where the run is; do both programs belong together?");
    return ZF_OK;
}

static enum zf_status launch_run(int argc, char **argv, struct zf_console_options *o, int *code, struct zf_err *e)
{
    struct zf_surroundings around;
    const char *cfg = "run.cfg";
    char word[ZF_SHELL_WORD], *run = NULL, **with = calloc((size_t)argc + 2, sizeof *with);
    if (!with) return zf_fail_memory(e, "arguments");
    memcpy(with, argv, (size_t)argc * sizeof *with);
    with[1] = (char *)(size_t) "--detach"; /* before a `--` */
    for (int i = 1; i < argc; i++) {
        with[i + 1] = argv[i];
        if (argv[i][0] != '-' && (i == 1 || (strcmp(argv[i - 1], "--set") && strcmp(argv[i - 1], "--resume")))) cfg = argv[i];
    }
    zf_surroundings_read(&around);
    char *warning = zf_surroundings_warning(&around, cfg);
    if (warning) fprintf(stderr, "zenflow-console: note: %s\n", warning);
    enum zf_status s = start_trainer(with, cfg, &run, code, e);
    o->notice = warning;
    if (!s && !*code && interrupted) {
        *code = ZF_STOPPED;
        s = zf_fail(e, ZF_STOPPED, run, "interrupted while it started; its trainer ends in order: `zenflow-console status %s`",
                    zf_shell_word(word, run));
    } else if (!s && !*code) {
        char *plain = plain_path(run);
        s = show_run(plain ? plain : run, o, true, code, e);
        free(plain);
    }
    free(warning);
    free(with);
    free(run);
    return s;
}

static enum zf_status attach(struct zf_args *a, struct zf_console_options *o, int *code, struct zf_err *e)
{
    char *run = NULL;
    o->read_only = zf_args_flag(a, "--read-only");
    const char *name = zf_args_next(a);
    ZF_TRY(zf_args_done(a, e));
    if (name) ZF_TRY(zf_locate_run(&run, name, e));
    if (!name && !(run = zf_rundir_newest("runs", true)))
        return zf_fail(e, ZF_BUSY, "runs",
                       "there is no run below this directory whose trainer is alive; name one: a run directory or its run.cfg");
    enum zf_status s = show_run(run, o, false, code, e);
    free(run);
    return s;
}

/* COLSxROWS */
static enum zf_status read_size(const char *text, int *cols, int *rows, struct zf_err *e)
{
    char *end;
    long x = strtol(text, &end, 10), y = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    if (*end || x < 1 || y < 1 || x > 1000 || y > 1000)
        return zf_fail(e, ZF_USAGE, "--snapshot", "`%s` is no size; COLSxROWS, as 80x24, up to 1000x1000, is expected", text);
    *cols = (int)x;
    *rows = (int)y;
    return ZF_OK;
}

static enum zf_status replay(struct zf_args *a, struct zf_console_options *o, int *code, struct zf_err *e)
{
    const char *name, *size;
    char *run = NULL;
    int64_t from = 0, at = 0;
    int cols = 0, rows = 0;
    struct zf_feed *feed;
    o->speed = 1;
    ZF_TRY(zf_args_real(a, "--speed", 0, INFINITY, &o->speed, e));
    ZF_TRY(zf_args_integer(a, "--from", 1, INT64_MAX, &from, e));
    ZF_TRY(zf_args_integer(a, "--at-step", 1, INT64_MAX, &at, e));
    ZF_TRY(zf_args_value(a, "--snapshot", &size, e));
    if (size) ZF_TRY(read_size(size, &cols, &rows, e));
    ZF_TRY(zf_args_need(a, "RUN (a run directory or run.cfg)", &name, e));
    ZF_TRY(zf_args_done(a, e));
    if (at && !size) return zf_fail(e, ZF_USAGE, "--at-step", "it belongs to --snapshot COLSxROWS; --from STEP begins a replay there");
    if (!size && !on_terminal())
        return zf_fail(
            e, ZF_USAGE, "replay",
            "it needs a terminal with a cursor (stdin and stdout; TERM is `%s`); `--snapshot 80x24` prints one frame, `log` the steps",
            getenv("TERM") ? getenv("TERM") : "");
    ZF_TRY(zf_locate_run(&run, name, e));
    o->run = run;
    o->from = (uint64_t)from;
    enum zf_status s;
    if (size) {
        s = zf_snapshot(run, cols, rows, (uint64_t)at, o, e);
    } else if (!(s = zf_feed_replay(&feed, run, o->speed, e))) {
        s = zf_console(feed, o, code, e);
        feed->type->close(feed);
    }
    free(run);
    return s;
}

enum zf_status zf_launch(int argc, char **argv, bool *handled, int *code, struct zf_err *e)
{
    static const char *const words[] = {"--plain", "--detach", "--help", "--version", "-h", NULL}, *const help[] = {"--help", NULL};
    struct zf_console_options o = {0};
    struct zf_err screen;
    *code = ZF_OK;
    *handled = false;
    if (argc < 2) return ZF_OK;
    ZF_TRY(zf_tables_launch(argc, argv, handled, e));
    if (*handled) return ZF_OK;
    bool attaches = !strcmp(argv[1], "attach"), replays = !strcmp(argv[1], "replay"), runs = !attaches && !replays && is_run_cfg(argv[1]);
    if (!attaches && !replays && !runs) return ZF_OK;
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    if (!rest) return zf_fail_memory(e, "arguments");
    memcpy(rest, argv + 1, ((size_t)argc - 1) * sizeof *rest);
    struct zf_args a = {argc - 1, rest};
    enum zf_status s = any_of(argc, argv, help) ? ZF_OK : take_looks(&a, &o, e);
    *handled = s != ZF_OK;
    int kept = 1; /* the trainer does not know looks */
    for (int i = 0; i < a.count && !s; i++)
        if (rest[i]) argv[kept++] = rest[i];
    if (!s) argv[kept] = NULL;
    a = (struct zf_args){kept - 1, rest};
    memcpy(rest, argv + 1, (size_t)kept * sizeof *rest);
    if (!s && replays && !any_of(kept, argv, help)) {
        *handled = true;
        a.list[0] = NULL;
        s = replay(&a, &o, code, e);
    } else if (!s && !replays && on_terminal() && !any_of(kept, argv, runs ? words : help)) {
        if (attaches) a.list[0] = NULL;
        *handled = true;
        s = runs ? launch_run(kept, argv, &o, code, &screen) : attach(&a, &o, code, &screen);
        if (s == ZF_USAGE && *code < 0) { /* this terminal cannot: lines will do */
            zf_err_print("note", &screen);
            *handled = false;
            s = ZF_OK;
        } else if (s) {
            *e = screen;
        }
    }
    free(rest);
    return s;
}
