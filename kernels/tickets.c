/* See tickets.h. */
#include "kernels/tickets.h"

void zf_tickets_init(struct zf_tickets *t)
{
    *t = (struct zf_tickets){.holders = 1};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
}

uint64_t zf_tickets_record(struct zf_tickets *t)
{
    pthread_mutex_lock(&t->lock);
    t->holders++;
    uint64_t ticket = ++t->recorded;
    pthread_mutex_unlock(&t->lock);
    return ticket;
}

uint64_t zf_tickets_hold(struct zf_tickets *t, bool even_done)
{
    pthread_mutex_lock(&t->lock);
    uint64_t ticket = even_done || t->done < t->recorded ? t->recorded : 0;
    if (ticket) t->holders++;
    pthread_mutex_unlock(&t->lock);
    return ticket;
}

uint64_t zf_tickets_last(struct zf_tickets *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t ticket = t->recorded;
    pthread_mutex_unlock(&t->lock);
    return ticket;
}

bool zf_tickets_are_done(struct zf_tickets *t, uint64_t ticket)
{
    pthread_mutex_lock(&t->lock);
    bool done = t->done >= ticket;
    pthread_mutex_unlock(&t->lock);
    return done;
}

void zf_tickets_await(struct zf_tickets *t, uint64_t ticket)
{
    pthread_mutex_lock(&t->lock);
    while (t->done < ticket) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void zf_tickets_done(struct zf_tickets *t, uint64_t ticket)
{
    pthread_mutex_lock(&t->lock);
    t->done = ticket;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

bool zf_tickets_drop(struct zf_tickets *t)
{
    pthread_mutex_lock(&t->lock);
    bool last = --t->holders == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last) return false;
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    return true;
}
