/* Private to core/world. */
#ifndef ZF_WORLD_WORLD_IMPL_H
#define ZF_WORLD_WORLD_IMPL_H

#include "core/world/world.h"

#include <pthread.h>
#include <stdatomic.h>

enum zf_frame_kind {
    ZF_FRAME_HELLO,   /* JSON: who comes */
    ZF_FRAME_WELCOME, /* JSON: who else is there, and where */
    ZF_FRAME_BEAT,    /* struct zf_beat */
    ZF_FRAME_FATE,    /* JSON: what ends all */
    ZF_FRAME_SIGNAL,  /* a signal has asked this rank to end */
    ZF_FRAME_BYE,     /* its work is done */
    ZF_FRAME_MESSAGE,
    ZF_FRAME_KINDS
};

struct zf_frame_head {
    uint32_t kind, size;
};
enum { ZF_FRAME_MOST = 64 << 20 };

/* All machines that this runs on have the same order of bytes. */
struct zf_beat {
    uint64_t step;
    double since; /* seconds */
    char doing[48];
};

struct zf_message {
    struct zf_message *next;
    size_t size;
    char bytes[];
};

/* Another process. Rank 0 has them all, the others rank 0; of the rest they know the names. */
struct zf_peer {
    int fd, bulk; /* -1: not (yet, any more) */
    char *in;     /* of a frame that has not come to its end */
    size_t used, room;
    json_t *hello;
    char host[65];
    long long pid, pid_start;
    bool come, bye, lost, told; /* told: the fate */
    double heard;
    struct zf_beat beat;
    struct zf_message *first, **last; /* what nobody has received yet */
    pthread_mutex_t sending;          /* over what is written to fd */
};

struct zf_fate {
    enum zf_status code;
    int rank, from;  /* that was lost, -1: none was; that said so, or itself */
    double at;       /* clock */
    bool quiet;      /* somebody else says it to the user */
    char text[1200]; /* "": none yet */
};

struct zf_world {
    struct zf_launch launch;
    char *run, *place; /* place: the file that says where rank 0 listens; NULL: it is gone */
    char *made;        /* a folder that was made for it */
    char token[33], machine[128], mask[1100], version[64];
    volatile int *stop;
    json_t *hello;
    int listener, wake[2];
    struct zf_world_place where;
    pthread_t thread;
    bool runs, signalled;
    struct zf_peer *peer; /* [ranks] */
    /* under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct zf_fate fate;
    bool ending, finished;
    struct zf_beat own;
    double own_since;
    struct zf_waiting { /* a connection that has not said who it is */
        int fd;
        double since;
    } * waiting;
    size_t waitings;
    pthread_mutex_t hooks; /* over these: they are not called any more once they are taken away */
    void (*lost)(void *ctx, int rank, const char *text);
    void (*last)(void *ctx, enum zf_status code, const char *text);
    void *lost_ctx;
    enum zf_status (*tick)(void *ctx, struct zf_err *e);
    void *tick_ctx;
    int slow_told; /* the thread's own */
};

/* link.c: sockets and frames. */
void zf_link_prepare(int fd); /* non-blocking, no delay, closed on exec */
/* Waits as long as `seconds`, and while *over is false. false: gone, or not in time. */
bool zf_link_write(int fd, const void *bytes, size_t size, double seconds, const struct zf_world *w);
bool zf_link_read(int fd, void *bytes, size_t size, double seconds, const struct zf_world *w);
/* A frame, whole, to be freed; false: gone, not in time, or none of ours. */
bool zf_link_frame(int fd, struct zf_frame_head *head, char **bytes, double seconds);
/* To a peer, in one piece among what other threads send. */
bool zf_peer_send(struct zf_world *w, struct zf_peer *p, enum zf_frame_kind kind, const void *bytes, size_t size, double seconds);
/* The same by the world's thread, which does not wait: false if it cannot be now. */
bool zf_peer_try(struct zf_peer *p, enum zf_frame_kind kind, const void *bytes, size_t size);
bool zf_peer_json(struct zf_world *w, struct zf_peer *p, enum zf_frame_kind kind, const json_t *o, double seconds);

/* meet.c: how they find each other. */
enum zf_status zf_meet_listen(struct zf_world *w, struct zf_err *e);
enum zf_status zf_meet_find(struct zf_world *w, struct zf_err *e);
void zf_meet_remove(struct zf_world *w); /* the file */
void zf_meet_accept(struct zf_world *w);
void zf_meet_hello(struct zf_world *w, size_t waiting); /* one that waits has said something, or nothing for too long */
bool zf_meet_welcome(struct zf_world *w, const json_t *o);
void zf_meet_places(struct zf_world *w);
json_t *zf_meet_list(const struct zf_world *w);
void zf_meet_self(struct zf_world *w);
json_t *zf_meet_addresses(void); /* of this machine, those that others may reach it at */
enum zf_status zf_meet_listener(int *out, int *port, struct zf_err *e);
int zf_meet_connect(const char *address, int port); /* -1: nobody listens there, in time */

/* watch.c: the thread. */
void *zf_world_thread(void *world);
void zf_world_set_fate(struct zf_world *w, enum zf_status code, int rank, int from, const char *text, bool quiet);
void zf_world_wake(struct zf_world *w);

#endif
