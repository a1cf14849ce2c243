/* The state of a run that is steered. Private to session.c (the course), execute.c (what commands do), answer.c (what is known at once). */
#ifndef ZF_SESSION_SESSION_IMPL_H
#define ZF_SESSION_SESSION_IMPL_H

#include "core/session/change.h"
#include "core/session/control.h"
#include "core/session/session.h"

#include <pthread.h>

struct zf_author {
    char by[16], user[64];
    uint64_t client; /* of control.h; 0: none */
};

struct zf_later {
    uint64_t step;
    char *command;
    struct zf_author author;
    bool written; /* in the journal, by an earlier attempt */
};

struct zf_session {
    char *run;
    struct zf_options *o;
    struct zf_journal *journal;
    struct zf_session_trainer trainer;
    struct zf_control *control;
    char **undo; /* commands that take the changes back, the newest last */
    size_t undo_count, undo_room;
    uint64_t next;    /* the step that is not yet issued */
    bool written;     /* what is being done is in the journal already */
    bool begun;       /* restored from within the commands of a step */
    bool breaks;      /* what fails ends the run */
    uint64_t granted; /* steps that may be taken although it is paused */
    bool stop;
    uint64_t ticket; /* what the answer to the present request comes with; 0: with its end */
    struct zf_owed_answer {
        uint64_t ticket;
        struct zf_request *request;
        struct zf_owed_answer *next;
    } * owed;
    unsigned depth; /* of files that name files */
    /* Under the lock for the control thread, which reads: the options while they change, and these while they do. */
    pthread_mutex_t lock;
    struct zf_session_facts facts;
    const char *doing, *why;
    bool paused;
    size_t changes;
    struct zf_later *later; /* by step; of one step in the order in which they came */
    size_t later_count, later_room;
};

/* What is answered. text: owned. */
struct zf_verdict {
    bool ok, ask;
    bool placed; /* the text says already in which line of which file */
    char *text;
};

/* execute.c. Fails only with what ends the run; a refusal is a verdict. */
enum zf_status zf_session_execute(struct zf_session *s, const char *line, const struct zf_author *who, bool yes, struct zf_verdict *v,
                                  struct zf_err *e);
enum zf_status zf_session_later(struct zf_session *s, uint64_t step, const char *command, const struct zf_author *who, bool written,
                                struct zf_err *e);
/* [at]: what is put off from the start on. */
enum zf_status zf_session_read_at(struct zf_session *s, struct zf_err *e);
/* The step and the command are such as can be put off. */
enum zf_status zf_session_may_wait(const struct zf_command *c, struct zf_err *e);
void zf_session_say(struct zf_session *s, const char *kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void zf_verdict_set(struct zf_verdict *v, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void zf_verdict_refuse(struct zf_verdict *v, const struct zf_err *e);
bool zf_session_push_undo(struct zf_session *s, char *stolen); /* false: no memory */
struct zf_change_place zf_session_place(struct zf_session *s);

/* answer.c. In the control thread: the hook of control.h. */
char *zf_session_answer(void *session, const struct zf_request *r, bool *ok);

#endif
