/* See queue_loops.h. */
#include "queue_loops.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/timer.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAD_NS 2000000 /* before the first arrival: threads start, stacks are touched */
#define RETRY_NS 1000   /* after no uthread was to be had */

/* When a kthread was last seen to run. Writer and reader: it. */
struct sight {
    uint64_t last_ns;
} CL_ALIGNED(CL_CACHELINE);

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
    struct cl_bench_gaps *gaps;
    struct sight sight[64];
};

struct request {
    struct queue *queue;
    uint64_t index;
};

static uint64_t since(const struct queue *q)
{
    return cl_sched_now_ns(q->sched) - q->origin_ns;
}

/* Kthread k runs now: notes a gap if it did not for long. Returns how long it has run since the last look. */
static inline uint64_t seen(struct queue *q, unsigned k, uint64_t now)
{
    struct sight *s = &q->sight[k];
    uint64_t ns = now - s->last_ns, at = s->last_ns;
    s->last_ns = now;
    if (cl_likely(ns < CL_BENCH_GAP_NS))
        return ns;
    struct cl_bench_gaps *g = q->gaps;
    if (at && (int64_t)at > 0 && g->n[k] < g->room)
        g->gaps[k * g->room + g->n[k]++] = (struct cl_bench_gap){at, ns};
    return 0;
}

static void serve(void *arg)
{
    const struct request *r = arg;
    struct queue *q = r->queue;
    unsigned k = (unsigned)cl_kthread_index();
    uint64_t begun = since(q), ended = begun;
    seen(q, k, begun);
    for (uint64_t spent = 0; spent < q->length_ns[r->index]; spent += seen(q, k, ended))
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
    seen(q, (unsigned)cl_kthread_index(), now);
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
    struct cl_sched *s = cl_sched_self();
    q->origin_ns = cl_sched_now_ns(s) + LEAD_NS;
    cl_store_release(&q->sched, s); /* release: the origin */
    cl_timer_arm(&q->timer, q->origin_ns + q->at_ns[0]);
    cl_sem_wait(&q->done);
}

/* A source that never has anything: the scheduler asks it in each turn, and so a kthread's idle time is seen. */
static unsigned poll(void *arg, unsigned self, unsigned queue)
{
    struct queue *q = arg;
    (void)queue;
    if (cl_load_acquire(&q->sched)) /* acquire: the origin */
        seen(q, self, since(q));
    return 0;
}

static bool ready(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return false;
}

static unsigned pending(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return 0;
}

static void nothing(void *arg, unsigned self)
{
    (void)arg, (void)self;
}

static int run(struct queue *q, uint32_t kthreads, const int32_t *cpus, char *err)
{
    struct cl_sched *s = NULL;
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.n_kthreads = kthreads;
    c.poll = CL_SCHED_SPIN;
    c.cpus = cpus;
    const struct cl_work_source source = {.arg = q, .poll = poll, .ready = ready, .pending = pending, .run = nothing};
    c.source = &source;
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
                   uint64_t *begun_ns, uint64_t *ended_ns, struct cl_bench_gaps *gaps, char err[256])
{
    if (n == 0)
        return 0;
    struct queue q = {.n = n,
                      .at_ns = at_ns,
                      .length_ns = length_ns,
                      .begun_ns = begun_ns,
                      .ended_ns = ended_ns,
                      .left = n,
                      .gaps = gaps};
    memset(gaps->n, 0, sizeof gaps->n);
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
