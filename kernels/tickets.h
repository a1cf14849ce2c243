/* The tickets of an event: each record takes the next one when it is issued, a wait remembers the last there was. Tickets are done in their
 * order: a record in a second lane waits for the record before it in the first. So an event may move from lane to lane.
 * Who is still to come back to an event (what lies in a queue, the event's owner) holds it: it may be freed before it is done. Any thread.
 */
#ifndef ZF_KERNELS_TICKETS_H
#define ZF_KERNELS_TICKETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_tickets {
    pthread_mutex_t lock; /* over all of it */
    pthread_cond_t changed;
    uint64_t recorded, done;
    size_t holders;
};

void zf_tickets_init(struct zf_tickets *t);
uint64_t zf_tickets_record(struct zf_tickets *t);               /* the next one, held */
uint64_t zf_tickets_hold(struct zf_tickets *t, bool even_done); /* the last one, held; 0, not held: there is none, or it is done */
uint64_t zf_tickets_last(struct zf_tickets *t);
bool zf_tickets_are_done(struct zf_tickets *t, uint64_t ticket); /* up to this one */
void zf_tickets_await(struct zf_tickets *t, uint64_t ticket);
void zf_tickets_done(struct zf_tickets *t, uint64_t ticket); /* the one before it has been awaited */
bool zf_tickets_drop(struct zf_tickets *t);                  /* one holder less; true: it was the last, and nothing is left of t */

#endif
