/* Runs a body in a process of its own and keeps what it said: for what ends a process, or must be the first to speak to the device. */
#ifndef CHILD_H
#define CHILD_H

struct child {
    int status;       /* as wait() tells it */
    char text[16384]; /* what it wrote to stderr and stdout */
};

/* environment: pairs NAME, VALUE, NULL; may be NULL. The body's result is the exit status. */
void child_run(struct child *c, const char *const *environment, int (*body)(void *arg), void *arg);

#endif
