/* zenflow-trainer: the command table. Everything but the screen; zenflow-console hands over to it. */
#include "core/config/run_cfg.h"
#include "core/base/plural.h"
#include "core/run/check.h"
#include "core/run/commands_model.h"
#include "core/run/data.h"
#include "core/run/detach.h"
#include "core/run/generate.h"
#include "core/run/profile.h"
#include "core/run/ranks.h"
#include "core/run/remote.h"
#include "core/run/saves.h"
#include "core/run/setup.h"
#include "core/run/train.h"
#include "core/run/verify.h"
#include "core/session/commands.h"
#include "core/session/inspect_run.h"
#include "core/session/locate.h"
#include "core/session/lock.h"
#include "core/session/rundir.h"
#include "core/session/session.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "kernels/cuda/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop; /* signals that asked to end */
static struct zf_launch launch;    /* which rank this is, of a run or its check */
static bool told;                  /* the error is on stderr already, or another rank says it */

/* The first asks, and says so at once; another interrupt ends without saving, but not if it comes so soon that it is the same keystroke.
 * SIGTERM may come as often as it likes: batch systems send it more than once. */
static void on_stop(int number)
{
    static const char text[] = "zenflow-console: ending in order; Ctrl-C in two seconds or later ends at once, without saving\n";
    static volatile double first;
    int saved = errno;
    double now = zf_clock();
    if (!stop) {
        first = now;
        stop = 1;
        if (!launch.rank && write(STDERR_FILENO, text, sizeof text - 1) < 0) stop = 1; /* nobody listens: fine */
    } else if (number == SIGINT && now - first >= 2) {
        zf_lock_died(number);
        _exit(128 + number);
    }
    errno = saved;
}

static volatile sig_atomic_t usr1; /* how often it came */

static void on_usr1(int number)
{
    (void)number;
    usr1 = usr1 < 1000000 ? usr1 + 1 : 0;
}

/* For a run and its check: a closed terminal, a closed pipe or a full file must not end it, and an interrupt ends it in order. Other
 * commands die of these signals as everybody expects. */
static void set_signals(void)
{
    struct sigaction ask = {.sa_handler = on_stop}, save = {.sa_handler = on_usr1, .sa_flags = SA_RESTART},
                     ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ask, NULL);
    sigaction(SIGTERM, &ask, NULL);
    sigaction(SIGUSR1, &save, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

static enum zf_status print_all(const struct zf_err_list *l, struct zf_err *e)
{
    enum { MOST = 20 };
    for (size_t i = 0; !launch.rank && i + 1 < l->count && i < MOST; i++) zf_err_print(NULL, &l->list[i]);
    if (!launch.rank && l->count + l->dropped > MOST + 1)
        fprintf(stderr, "zenflow-console: and %zu more error%s like these; is this a run.cfg?\n", l->count + l->dropped - MOST - 1,
                zf_plural(l->count + l->dropped - MOST - 1));
    *e = l->list[l->count - 1]; /* the last is printed by main */
    return e->code = zf_err_list_status(l);
}

/* What is named must be there: found with the other errors, not one by one. */
static void check_files(const struct zf_options *o, struct zf_err_list *errors)
{
    const struct {
        enum zf_option_id id;
        struct zf_strings files;
        bool folder;
    } rows[] = {{ZF_OPT_path, {(char *[]){(char *)(size_t)o->path}, o->path[0] != 0}, true},
                {ZF_OPT_tokenizer, {(char *[]){(char *)(size_t)o->tokenizer}, !o->path[0] && strcmp(o->tokenizer, "bytes") != 0}, true},
                {ZF_OPT_train, o->train, false},
                {ZF_OPT_valid, o->valid, false},
                {ZF_OPT_prompt_file, {(char *[]){(char *)(size_t)o->prompt_file}, o->prompt_file[0] != 0}, false},
                {ZF_OPT_response_file, {(char *[]){(char *)(size_t)o->response_file}, o->response_file[0] != 0}, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < rows[i].files.count; k++) {
            const char *name = rows[i].files.list[k];
            struct zf_err e;
            char place[600];
            if (rows[i].folder ? zf_directory_exists(name) : access(name, F_OK) == 0) continue;
            zf_fail(&e, ZF_FORMAT, zf_origin_text(&o->origin[rows[i].id], zf_option_table[rows[i].id].name, place, sizeof place),
                    "%s: there is no such %s", name, rows[i].folder ? "folder; a Hugging Face model with config.json is expected" : "file");
            zf_err_list_add(errors, &e);
        }
}

/* A file; else what the run's own is called, as `load` takes it. */
static enum zf_status find_checkpoint(const char **word, struct zf_options *o, struct zf_err *e)
{
    char *path = NULL;
    uint64_t fork;
    if (zf_file_exists(*word)) return ZF_OK;
    if (!strchr(*word, '/') && !zf_directory_exists(o->dir))
        return zf_fail(e, ZF_USAGE, "--resume", "%s: there is no such file, and no run in %s; a checkpoint, or never, is expected", *word,
                       o->dir);
    ZF_TRY(zf_saves_find(&path, &fork, o->dir, *word, e));
    *word = zf_arena_strdup(&o->arena, path);
    free(path);
    return *word ? ZF_OK : zf_fail_memory(e, "--resume");
}

/* run.cfg, then --set, then what only all options together can tell. Every error is reported. */
static enum zf_status read_options(struct zf_options *o, struct zf_args *a, const char *path, const char **checkpoint, struct zf_err *e)
{
    struct zf_err_list errors = {0};
    const char *set, *resume;
    ZF_TRY(zf_options_init(o, e));
    if (access(path, R_OK) || zf_directory_exists(path))
        return zf_fail(e, ZF_USAGE, path,
                       access(path, F_OK)          ? "there is no such file; a run.cfg is expected (init writes one)"
                       : zf_directory_exists(path) ? "it is a directory; a run.cfg is expected"
                                                   : "it cannot be read");
    zf_run_cfg_read(o, path, &errors);
    for (set = ""; set;) {
        struct zf_err one;
        enum zf_status bad = zf_args_value(a, "--set", &set, &one);
        if (!bad && set) bad = zf_options_set_argument(o, set, &one);
        if (bad) zf_err_list_add(&errors, &one);
    }
    struct zf_err one;
    enum zf_status bad = zf_args_value(a, "--resume", &resume, &one);
    if (!bad && resume && strcmp(resume, "never") != 0) bad = find_checkpoint(&resume, o, &one);
    if (bad)
        zf_err_list_add(&errors, &one);
    else if (resume && !strcmp(resume, "never"))
        o->resume = ZF_RESUME_NEVER;
    *checkpoint = resume && strcmp(resume, "never") != 0 ? resume : NULL;
    zf_options_validate(o, false, &errors);
    zf_policy_check(o, &errors);
    if (!errors.count) zf_session_check_at(o, &errors);
    enum zf_train_start what = ZF_TRAIN_BEGIN;
    if (!errors.count) zf_train_look(o, false, &what, &one); /* a run that is over needs its files no more */
    if (what != ZF_TRAIN_OVER) check_files(o, &errors);
    enum zf_status s = errors.count ? print_all(&errors, e) : ZF_OK;
    zf_err_list_free(&errors);
    return s;
}

static void print_help(FILE *to);

static void started(void *ctx, const char *run)
{
    char *log = zf_path_join(run, "trainer.log");
    zf_detach_started(ctx, log ? log : "/dev/null");
    free(log);
}

/* For scripts, which need its very bytes. */
static void print_run(const char *run)
{
    zf_show_terminal(stdout, run, strlen(run));
    putchar('\n');
}

/* A trainer is at work on it already: to be watched. */
static enum zf_status watch(const struct zf_options *o, bool detach, struct zf_err *e)
{
    if (!detach) return zf_follow(o->dir, o->plain_every, e);
    zf_show_line(stderr, "zenflow-console: note: %s: a trainer is at work on it already", o->dir);
    print_run(o->dir);
    return ZF_OK;
}

static enum zf_status start(struct zf_options *o, struct zf_train_how *how, bool detach, struct zf_err *e)
{
    struct zf_detach d = {.pipe = -1};
    enum zf_train_start what;
    if (launch.launcher && detach)
        return zf_fail(e, ZF_USAGE, "--detach", "%s waits for its processes; leave --detach out, and put %s itself into the background",
                       launch.launcher, launch.launcher);
    if (launch.launcher) return zf_ranks_run(o, how, &launch, &told, e);
    enum zf_status s = zf_train_look(o, how->take_over, &what, e);
    if (s == ZF_BUSY) return watch(o, detach, e);
    if (s) return s;
    bool over = what == ZF_TRAIN_OVER && !how->checkpoint;
    if (detach && !over) {
        s = zf_detach(&d, &stop, e);
        if (d.parent) {
            if (!s) print_run(o->dir);
            return s;
        }
        how->started = started;
        how->ctx = &d;
    }
    s = zf_train_run(o, how, e);
    if (!s && detach && over) print_run(o->dir);
    if (d.pipe >= 0) { /* the start has failed, and the parent says why */
        zf_detach_failed(&d, e);
        fflush(stdout);
        _exit((int)s);
    }
    return s;
}

static enum zf_status run(struct zf_args *a, struct zf_err *e)
{
    struct zf_options o;
    const char *path, *checkpoint;
    double began = zf_clock();
    if (zf_args_flag(a, "--help")) return print_help(stdout), ZF_OK;
    zf_args_flag(a, "--plain"); /* here always: the screen is the console's */
    bool detach = zf_args_flag(a, "--detach"), take_over = zf_args_flag(a, "--takeover");
    ZF_TRY(zf_args_need(a, "run.cfg", &path, e));
    ZF_TRY(zf_launch_find(&launch, e));
    set_signals();
    enum zf_status s = read_options(&o, a, path, &checkpoint, e);
    if (!s) s = zf_args_done(a, e);
    if (!s)
        s = start(&o,
                  &(struct zf_train_how){.stop = &stop, .usr1 = &usr1, .began = began, .checkpoint = checkpoint, .take_over = take_over},
                  detach, e);
    signal(SIGINT, SIG_IGN); /* all is saved: impatience changes no exit code any more */
    signal(SIGTERM, SIG_IGN);
    zf_options_free(&o);
    return s;
}

static enum zf_status check(struct zf_args *a, struct zf_err *e)
{
    struct zf_options o;
    const char *path, *checkpoint;
    bool json = zf_args_flag(a, "--json");
    ZF_TRY(zf_args_need(a, "run.cfg", &path, e));
    set_signals();
    enum zf_status s = read_options(&o, a, path, &checkpoint, e);
    if (!s) s = zf_args_done(a, e);
    if (!s) s = zf_check_run(&o, json, &stop, e);
    zf_options_free(&o);
    return s;
}

/* Colour is for terminals, and for those who want it there. */
static bool color_wanted(void)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(none && *none) && term && strcmp(term, "dumb") != 0;
}

static enum zf_status data(struct zf_args *a, struct zf_err *e)
{
    struct zf_options o;
    struct zf_data_view v = {
        .rows = 5, .valid = zf_args_flag(a, "--valid"), .ids = zf_args_flag(a, "--ids"), .json = zf_args_flag(a, "--json")};
    const char *path, *checkpoint;
    v.color = !v.json && color_wanted();
    ZF_TRY(zf_args_integer(a, "--rows", 1, INT64_MAX, &v.rows, e));
    ZF_TRY(zf_args_integer(a, "--from", 0, INT64_MAX, &v.from, e));
    ZF_TRY(zf_args_need(a, "run.cfg", &path, e));
    set_signals();
    enum zf_status s = read_options(&o, a, path, &checkpoint, e);
    if (!s) s = zf_args_done(a, e);
    if (!s) s = zf_data_run(&o, &v, &stop, e);
    zf_options_free(&o);
    return s;
}

static enum zf_status init(struct zf_args *a, struct zf_err *e)
{
    const char *model = zf_args_next(a), *data = zf_args_next(a);
    ZF_TRY(zf_args_done(a, e));
    ZF_TRY(zf_init_check(model, data, e));
    return zf_init_write(stdout, model, data, e);
}

static enum zf_status options(struct zf_args *a, struct zf_err *e)
{
    bool markdown = zf_args_flag(a, "--markdown"), json = zf_args_flag(a, "--json"), live = zf_args_flag(a, "--commands");
    ZF_TRY(zf_args_done(a, e));
    if (live) return zf_commands_print(stdout, json ? ZF_TABLE_JSON : markdown ? ZF_TABLE_MARKDOWN : ZF_TABLE_PLAIN, e);
    return zf_options_print(stdout, json ? ZF_TABLE_JSON : markdown ? ZF_TABLE_MARKDOWN : ZF_TABLE_PLAIN, e);
}

static enum zf_status status(struct zf_args *a, struct zf_err *e)
{
    bool json = zf_args_flag(a, "--json");
    const char *name = zf_args_next(a);
    char *path = NULL;
    ZF_TRY(zf_args_done(a, e));
    if (name) ZF_TRY(zf_locate_run(&path, name, e));
    if (!path) path = zf_rundir_newest("runs", true);
    if (!path) path = zf_rundir_newest("runs", false);
    enum zf_status s = path ? zf_status_print(stdout, path, json, e)
                            : zf_fail(e, ZF_USAGE, "runs", "there is no run below this directory; name one: status RUN");
    free(path);
    return s;
}

static enum zf_status list(struct zf_args *a, struct zf_err *e)
{
    bool json = zf_args_flag(a, "--json");
    const char *directory = zf_args_next(a);
    ZF_TRY(zf_args_done(a, e));
    return zf_list_print(stdout, directory ? directory : "runs", json, e);
}

static enum zf_status log_table(struct zf_args *a, struct zf_err *e)
{
    const char *name, *fields;
    char *path;
    bool csv = zf_args_flag(a, "--csv"), json = zf_args_flag(a, "--json"), profile = zf_args_flag(a, "--profile");
    size_t bad = 0;
    ZF_TRY(zf_args_value(a, "--fields", &fields, e));
    ZF_TRY(zf_args_need(a, "RUN (a run directory or run.cfg)", &name, e));
    ZF_TRY(zf_args_done(a, e));
    ZF_TRY(zf_locate_run(&path, name, e));
    enum zf_status s = profile ? zf_profile_print(stdout, path, json, e)
                               : zf_log_print(stdout, path,
                                              json  ? ZF_LOG_JSON
                                              : csv ? ZF_LOG_CSV
                                                    : ZF_LOG_TABLE,
                                              fields, &bad, e);
    if (bad) fprintf(stderr, "zenflow-console: note: %zu line%s of metrics.jsonl could not be read\n", bad, zf_plural(bad));
    free(path);
    return s;
}

/* --device of a command that computes; `auto` where it is not there. */
static enum zf_status read_device(struct zf_args *a, const char **out, struct zf_err *e)
{
    const struct zf_option *row = &zf_option_table[ZF_OPT_device];
    struct zf_device_choice choice;
    const char *text;
    size_t i = 0; /* auto is the first */
    ZF_TRY(zf_args_value(a, "--device", &text, e));
    while (text && i < ZF_DEVICE_SIM && strcmp(text, row->choices[i])) i++;
    if (i == ZF_DEVICE_SIM) return zf_fail(e, ZF_USAGE, "--device", "`%s` is none of auto, host and cuda", text);
    if (zf_setup_device(&choice, (enum zf_choice_device)i, e)) return zf_fail(e, e->code, "--device", "%s", e->message);
    if (choice.ignored.code) zf_err_print("note", &choice.ignored);
    *out = choice.name;
    return ZF_OK;
}

/* --dtype of a command that computes; `fallback` where it is not there. */
static enum zf_status read_dtype(struct zf_args *a, enum zf_choice_dtype fallback, const char *device, enum zf_dtype *out, struct zf_err *e)
{
    const struct zf_option *row = &zf_option_table[ZF_OPT_dtype];
    const char *text;
    ZF_TRY(zf_args_value(a, "--dtype", &text, e));
    size_t i = text ? 0 : (size_t)fallback;
    while (text && i < row->choice_count && strcmp(text, row->choices[i])) i++;
    if (i == row->choice_count) return zf_fail(e, ZF_USAGE, "--dtype", "`%s` is none of auto, bf16 and f32", text);
    *out = zf_setup_dtype((enum zf_choice_dtype)i, device, NULL);
    return ZF_OK;
}

static enum zf_status generate(struct zf_args *a, struct zf_err *e)
{
    struct zf_generate g = {.tokens = 128, .top_p = 1, .json = zf_args_flag(a, "--json"), .time = zf_args_flag(a, "--time")};
    ZF_TRY(zf_args_value(a, "--prompt", &g.prompt, e));
    ZF_TRY(zf_args_value(a, "--ids", &g.ids, e));
    ZF_TRY(read_device(a, &g.device, e));
    ZF_TRY(read_dtype(a, ZF_DTYPE_AUTO, g.device, &g.dtype, e));
    ZF_TRY(zf_args_integer(a, "--tokens", 1, 1 << 24, &g.tokens, e));
    ZF_TRY(zf_args_integer(a, "--seed", 0, INT64_MAX, &g.seed, e));
    ZF_TRY(zf_args_integer(a, "--threads", 0, 4096, &g.threads, e));
    ZF_TRY(zf_args_real(a, "--temperature", 0, 1000, &g.temperature, e));
    ZF_TRY(zf_args_real(a, "--top-p", 1e-9, 1, &g.top_p, e));
    ZF_TRY(zf_args_need(a, "MODEL, RUN or CHECKPOINT", &g.model, e));
    ZF_TRY(zf_args_done(a, e));
    if (!g.prompt == !g.ids) return zf_fail(e, ZF_USAGE, NULL, "one of --prompt TEXT and --ids 1,2,3 is needed");
    return zf_generate_run(&g, stdout, e);
}

static enum zf_status verify(struct zf_args *a, struct zf_err *e)
{
    struct zf_verify v = {.tolerance = 1, .losses = zf_args_flag(a, "--losses")};
    int64_t threads = 0;
    ZF_TRY(read_device(a, &v.device, e));
    ZF_TRY(read_dtype(a, ZF_DTYPE_F32, v.device, &v.dtype, e));
    ZF_TRY(zf_args_real(a, "--tolerance", 0, 1e12, &v.tolerance, e));
    ZF_TRY(zf_args_integer(a, "--threads", 0, 4096, &threads, e));
    ZF_TRY(zf_args_need(a, "MODEL (a folder)", &v.model, e));
    ZF_TRY(zf_args_need(a, "GOLDEN.safetensors", &v.golden, e));
    ZF_TRY(zf_args_done(a, e));
    v.threads = (int)threads;
    return zf_verify_run(&v, stdout, e);
}

static enum zf_status doctor(struct zf_args *a, struct zf_err *e)
{
    ZF_TRY(zf_args_done(a, e));
    return zf_doctor_run(e);
}

static enum zf_status of_console(struct zf_args *a, struct zf_err *e)
{
    (void)a;
    return zf_fail(
        e, ZF_USAGE, NULL,
        "this is the trainer, which has no screen and no words for shells; zenflow-console has (and `log RUN` prints the steps of a run)");
}

static const struct command {
    const char *name;
    enum zf_status (*run)(struct zf_args *, struct zf_err *);
    const char *usage, *text;
} commands[] = {
#define ZF_CLI(name, run, usage, text) {#name, run, usage, text},
#include "core/run/cli.def"
#undef ZF_CLI
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Commands of the interface that this version does not have, each with what to do instead. */
static const struct {
    const char *name, *instead;
} later[] = {
    {"plan", "`check` plans memory"},
};

static void print_help(FILE *to)
{
    fprintf(to, "zenflow-console %s: fine-tunes language models\n\n", ZF_VERSION);
    for (size_t i = 0; i < COMMANDS; i++) fprintf(to, "  zenflow-console %s\n      %s\n", commands[i].usage, commands[i].text);
    fprintf(to, "  zenflow-console --help | --version | COMMAND --help\n\n");
    fprintf(to, "exit codes:\n");
#define X(name, code, text) fprintf(to, "  %d  %s\n", code, text);
    ZF_STATUS_MAP(X)
#undef X
}

static enum zf_status unknown(const char *name, struct zf_err *e)
{
    const char *names[COMMANDS];
    for (size_t i = 1; i < COMMANDS; i++) names[i] = commands[i].name;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (!strcmp(name, later[i].name)) return zf_fail(e, ZF_USAGE, name, "this version does not have it yet; %s", later[i].instead);
    const char *near = zf_nearest(name, names + 1, COMMANDS - 1);
    return zf_fail(e, ZF_USAGE, name, "there is no such command and no such run.cfg%s%s%s; --help lists the commands",
                   near ? "; did you mean `" : "", near ? near : "", near ? "`" : "");
}

/* A first argument that is no command is a run.cfg if it is a file or looks like one. */
static bool is_run_cfg(const char *name)
{
    size_t n = strlen(name);
    return name[0] == '-' || strchr(name, '/') || (n > 4 && !strcmp(name + n - 4, ".cfg")) || access(name, F_OK) == 0;
}

static void print_version(void)
{
    printf("zenflow-console %s%s\n", ZF_VERSION, zf_cuda_doctor ? "" : " (built without the CUDA toolkit: it computes on the CPU alone)");
}

static enum zf_status dispatch(int argc, char **argv, struct zf_err *e)
{
    if (argc < 2) {
        print_help(stderr);
        return zf_fail(e, ZF_USAGE, NULL, "a run.cfg or a command is missing");
    }
    struct zf_args all = {argc - 1, argv + 1};
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) return print_help(stdout), ZF_OK;
    if (!strcmp(argv[1], "--version")) return print_version(), ZF_OK;
    for (size_t i = 1; i < COMMANDS; i++) { /* [0] is that of a run.cfg */
        if (strcmp(argv[1], commands[i].name)) continue;
        struct zf_args rest = {argc - 2, argv + 2};
        if (zf_args_flag(&rest, "--help")) return printf("zenflow-console %s\n  %s\n", commands[i].usage, commands[i].text), ZF_OK;
        return commands[i].run(&rest, e);
    }
    return is_run_cfg(argv[1]) ? run(&all, e) : unknown(argv[1], e);
}

int main(int argc, char **argv)
{
    struct zf_err e = {0};
    mallopt(M_ARENA_MAX, 1); /* an arena a thread takes address space that the memory plan does not know */
    for (int fd = open("/dev/null", O_RDWR); fd >= 0 && fd <= 2; fd = dup(fd))
        continue; /* a closed stdout must not become one of our files */
    enum zf_status s = dispatch(argc, argv, &e);
    /* Results that cannot be written are an error, but for progress lines: those are counted where they are lost. */
    if (fflush(stdout) && s == ZF_OK) s = zf_fail_errno(&e, "stdout", "cannot write the result");
    if (s && !told) zf_err_print(NULL, &e);
    return (int)s;
}
