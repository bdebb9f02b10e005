/* See queue_loops.h. */
#include "queue_loops.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/timer.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAD_NS 2000000 /* before the first arrival: threads start, stacks are touched */
#define RETRY_NS 1000   /* after no uthread was to be had */

struct queue {
    uint64_t n, next; /* next: not yet spawned; the timer's own */
    const uint64_t *at_ns, *length_ns;
    uint64_t *begun_ns, *ended_ns;
    const struct cl_sched *sched;
    uint64_t origin_ns; /* on the scheduler's clock */
    uint64_t left;      /* requests not ended; writers: all, atomic */
    struct request *requests;
    struct cl_timer timer;
    struct cl_sem done;
};

struct request {
    struct queue *queue;
    uint64_t index;
};

static uint64_t since(const struct queue *q)
{
    return cl_sched_now_ns(q->sched) - q->origin_ns;
}

static void serve(void *arg)
{
    const struct request *r = arg;
    struct queue *q = r->queue;
    uint64_t begun = since(q), ended = begun;
    while (ended - begun < q->length_ns[r->index])
        ended = since(q);
    q->begun_ns[r->index] = begun;
    q->ended_ns[r->index] = ended;
    /* Release: the last one's post is after all stamps. */
    if (__atomic_sub_fetch(&q->left, 1, __ATOMIC_ACQ_REL) == 0)
        cl_sem_post(&q->done);
}

static void arrive(struct cl_timer *timer, void *arg)
{
    struct queue *q = arg;
    uint64_t now = since(q);
    while (q->next < q->n && q->at_ns[q->next] <= now) {
        q->requests[q->next] = (struct request){q, q->next};
        if (cl_uthread_spawn(serve, &q->requests[q->next], NULL) < 0) {
            cl_timer_arm(timer, q->origin_ns + now + RETRY_NS);
            return;
        }
        q->next++;
    }
    if (q->next < q->n)
        cl_timer_arm(timer, q->origin_ns + q->at_ns[q->next]);
}

static void root(void *arg)
{
    struct queue *q = arg;
    cl_timer_init(&q->timer, arrive, q);
    q->sched = cl_sched_self();
    q->origin_ns = cl_sched_now_ns(q->sched) + LEAD_NS;
    cl_timer_arm(&q->timer, q->origin_ns + q->at_ns[0]);
    cl_sem_wait(&q->done);
}

static int run(struct queue *q, uint32_t kthreads, const int32_t *cpus, char *err)
{
    struct cl_sched *s = NULL;
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.n_kthreads = kthreads;
    c.poll = CL_SCHED_SPIN;
    c.cpus = cpus;
    int rc = cl_sched_new(&c, &s, err);
    if (rc == 0)
        rc = cl_sched_start(s, err);
    if (rc == 0)
        rc = cl_sched_run(s, root, q);
    if (s)
        cl_sched_stop(s, -1);
    cl_sched_delete(s);
    return rc;
}

int cl_bench_queue(uint32_t kthreads, const int32_t *cpus, uint64_t n, const uint64_t *at_ns, const uint64_t *length_ns,
                   uint64_t *begun_ns, uint64_t *ended_ns, char err[256])
{
    if (n == 0)
        return 0;
    struct queue q = {
        .n = n, .at_ns = at_ns, .length_ns = length_ns, .begun_ns = begun_ns, .ended_ns = ended_ns, .left = n};
    q.requests = calloc(n, sizeof *q.requests);
    if (!q.requests) {
        snprintf(err, 256, "out of memory for %llu requests", (unsigned long long)n);
        return -ENOMEM;
    }
    cl_sem_init(&q.done, 0);
    int rc = run(&q, kthreads, cpus, err);
    free(q.requests);
    return rc;
}
