#include "kernels/comm/jobs.h"

#include <stdlib.h>
#include <string.h>

void zf_comm_jobs_init(struct zf_comm_jobs *all)
{
    pthread_mutex_init(&all->lock, NULL);
    all->first = NULL;
}

void zf_comm_jobs_free(struct zf_comm_jobs *all)
{
    while (all->first) {
        struct zf_comm_job *j = all->first;
        all->first = j->next;
        free(j);
    }
    pthread_mutex_destroy(&all->lock);
}

struct zf_comm_job *zf_comm_job_new(struct zf_comm_jobs *all, struct zf_comm *c, bool sum, const struct zf_comm_rows *list, size_t count)
{
    size_t ends = (size_t)c->ranks + 1, rows = sizeof(struct zf_comm_job) + count * sizeof *list;
    struct zf_comm_job *j = malloc(rows + count * ends * sizeof(size_t));
    if (!j) return NULL;
    *j = (struct zf_comm_job){.comm = c, .sum = sum, .count = count, .list = (void *)(j + 1)};
    for (size_t i = 0; i < count; i++) {
        size_t *first = (size_t *)(void *)((char *)j + rows) + i * ends;
        memcpy(first, list[i].first, ends * sizeof *first);
        j->list[i] = list[i];
        j->list[i].first = first;
    }
    pthread_mutex_lock(&all->lock);
    j->next = all->first;
    all->first = j;
    pthread_mutex_unlock(&all->lock);
    return j;
}

void zf_comm_job_done(struct zf_comm_jobs *all, struct zf_comm_job *j)
{
    pthread_mutex_lock(&all->lock);
    for (struct zf_comm_job **at = &all->first; *at; at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            break;
        }
    pthread_mutex_unlock(&all->lock);
    free(j);
}
