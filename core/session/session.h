/* A run under way, as it is steered: what commands do. Between two steps the trainer calls zf_session_before_step, which carries out the
 * commands of [at], of clients and of files, one after the other.
 *
 * A change is checked as a whole, made durable in the journal with its step and author, carried out, and answered, in this order; a journal
 * that cannot be written refuses changes, and training goes on. Journal entries:
 *   {"type":"change","step":completed,"from_step":…,"command":…,"changes":[{"option","old","new"}…],"by","user"}
 *   {"type":"command","step","from_step","command","by","user"}    what else was done
 *   {"type":"at","step","from_step","command","by","user"}         what was put off until from_step; when it is done it is one of the
 * others The `command` of a change stands for itself: `FROM_STEP = COMMAND` lines in [at] of another run do the same again.
 *
 * Ownership: the options, the journal and the trainer's functions must stay until zf_session_close. Every function but the answers to
 * read-only commands runs in the trainer's thread. */
#ifndef ZF_SESSION_SESSION_H
#define ZF_SESSION_SESSION_H

#include "core/config/options.h"
#include "core/session/commands.h"
#include "core/session/journal.h"

#include <jansson.h>

struct zf_session;

/* What the trainer gives. */
struct zf_session_trainer {
    void *ctx;
    /* Would it be possible? Called before anything is written; ZF_DIFFERENT or ZF_MEMORY and why not. NULL: always. */
    enum zf_status (*check)(void *ctx, const struct zf_options *now, const struct zf_options *wanted, uint64_t from_step, struct zf_err *e);
    /* The options have changed: `before` is what they were. A failure here ends the run. */
    enum zf_status (*apply)(void *ctx, const struct zf_options *before, uint64_t from_step, struct zf_err *e);
    double (*rate)(void *ctx, const struct zf_options *o, uint64_t step); /* the learning rate of a step */
    /* Commands that only it can do (export, eval, sample, select, score, trace, watch, save, load, checkpoints): can it, here and now? */
    bool (*can)(void *ctx, enum zf_command_id id);
    /* Does it; text: the answer. ZF_STOPPED and ZF_BUSY end the run, and whatever comes after zf_session_breaks; any other failure is an
     * answer. `load` writes its own entry into the journal. */
    enum zf_status (*act)(void *ctx, const struct zf_command *c, char *text, size_t room, struct zf_err *e);
    /* Of what it does and asks about (the ASKS of the table): what would be lost or replaced; false: nothing. NULL: nothing ever. */
    bool (*ask)(void *ctx, const struct zf_command *c, char *text, size_t room);
    void (*record)(void *ctx, json_t *stolen); /* a line of metrics.jsonl */
    /* While paused, a few times a second: a sign of life, an ear for signals. What fails ends the waiting. */
    enum zf_status (*idle)(void *ctx, struct zf_err *e);
    /* While paused: gives the GPU's memory to others; takes it again, before the run goes on, which it does not where that fails. text: the
     * answer; of take empty where nothing was to do. NULL: it has no GPU. */
    enum zf_status (*release)(void *ctx, char *text, size_t room, struct zf_err *e);
    enum zf_status (*take)(void *ctx, char *text, size_t room, struct zf_err *e);
};

/* Where the run stands, for those who ask. */
struct zf_session_facts {
    uint64_t step, steps; /* completed, of how many */
    double loss, learning_rate, tokens_per_s, eta;
    uint32_t interval; /* what update_interval = auto is; 0: not known */
};

/* o: the live options; they change here and nowhere else. Reads [at]: what cannot be understood is ZF_USAGE. run: for advice. */
enum zf_status zf_session_open(struct zf_session **out, const char *run, struct zf_options *o, struct zf_journal *journal,
                               const struct zf_session_trainer *trainer, struct zf_err *e);
/* Opens the socket. ZF_IO: then the run is steered by [at] alone. */
enum zf_status zf_session_listen(struct zf_session *s, struct zf_err *e);
const char *zf_session_socket(const struct zf_session *s); /* "": it does not listen */
void zf_session_close(struct zf_session *s);               /* NULL is fine; clients get what is queued for them */

/* Before step `next` is issued; waits here while the run is paused. *stop: a client asked to end. */
enum zf_status zf_session_before_step(struct zf_session *s, uint64_t next, bool *stop, struct zf_err *e);
/* For a run that goes on: a command to be done before that step, as it was done before or as somebody has asked for. written: it is in the
 * journal already. Before the first step. */
enum zf_status zf_session_repeat(struct zf_session *s, uint64_t step, const char *command, const char *by, const char *user, bool written,
                                 struct zf_err *e);
/* What a checkpoint keeps of it: what undo would take back, and, where one is written between the commands of a step, how far those had
 * come. NULL: no memory. Restored into a session that has just been opened, for a run of which `step` steps are taken. */
json_t *zf_session_state(const struct zf_session *s);
enum zf_status zf_session_restore(struct zf_session *s, const json_t *state, uint64_t step, struct zf_err *e);
/* Restored within the commands of the step that is next: those of them that had been done by then are not to be done again. */
bool zf_session_has_begun(const struct zf_session *s);
/* The run goes to the state of another step, by the command that is being done. What fails from here on ends the run, until it has
 * succeeded. */
void zf_session_breaks(struct zf_session *s, bool breaks);
/* Its options become c's, what can be undone and what was put off is forgotten, and it is paused before the step after `step`. [at] counts
 * from there; then zf_session_restore and zf_session_repeat as for a run that goes on. who asked: as in the command. */
struct zf_changes;
enum zf_status zf_session_go_to(struct zf_session *s, const struct zf_changes *c, uint64_t step, uint64_t steps,
                                const struct zf_command *who, struct zf_err *e);
/* After the last step was taken: commands that wait are carried out where they still can be (`steps` may be raised). */
enum zf_status zf_session_at_end(struct zf_session *s, bool *stop, struct zf_err *e);

/* Called from `act`: the answer to whoever asked for this comes with zf_session_answered; nobody may be waiting (a command of [at]).
 * answered: false if nobody was. ticket: not 0, each once. */
void zf_session_answer_with(struct zf_session *s, uint64_t ticket);
bool zf_session_answered(struct zf_session *s, uint64_t ticket, bool ok, const char *text);

void zf_session_told(struct zf_session *s, const struct zf_session_facts *f); /* after every step */
void zf_session_doing(struct zf_session *s, const char *what);                /* "training", "validating", ...; a constant */
void zf_session_pause(struct zf_session *s, const char *why);          /* before the next step; why: a constant, NULL: by a command */
void zf_session_publish(void *session, const char *line, size_t size); /* a telemetry line, to all clients */
unsigned zf_session_clients(struct zf_session *s);
bool zf_session_has_client(struct zf_session *s, uint64_t client); /* is it still there? */

/* Before a step: the run itself has chosen another value of an option that is `auto` and stays so. Journalled as by `auto` with its reasons
 * (stolen) unless it was written by an earlier attempt, and recorded; the caller has checked it and acts when this has succeeded. ZF_IO: it
 * is not to be done. */
enum zf_status zf_session_decided(struct zf_session *s, enum zf_option_id id, int64_t old, int64_t now, json_t *why, bool written,
                                  struct zf_err *e);

/* The lines of [at], as far as they can be checked before a start; errors with their places. */
void zf_session_check_at(const struct zf_options *o, struct zf_err_list *errors);

#endif
