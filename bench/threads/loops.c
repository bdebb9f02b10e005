/* See loops.h. */
#include "loops.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/sync.h>
#include <corelane/runtime/clock.h>
#include "../harness/pinned.h"

#include <semaphore.h>
#include <sys/resource.h>

#define STACK_BYTES 65536

/* One measured run. `rc` and `switches` are written by the thread that the loop starts on. */
struct run {
    uint32_t what;
    uint64_t n, start, end, switches;
    int rc;
    struct cl_mutex mutex;
    struct cl_cond cond[2];
    struct cl_sem sem[2];
    pthread_mutex_t pmutex;
    pthread_cond_t pcond[2];
    sem_t psem[2];
    int turn;
    int cpu, other_cpu;
};

/* Both sides of a two-thread loop: `me` is 0 or 1. */
struct side {
    struct run *run;
    int me;
};

static void start(struct run *r)
{
    r->start = cl_tsc_ordered();
}

static void stop(struct run *r)
{
    r->end = cl_tsc_ordered();
}

static void nothing(void *arg)
{
    (void)arg;
}

static void u_yield(struct side *s)
{
    for (uint64_t i = s->run->n / 2; i; i--)
        cl_uthread_yield();
}

static void u_condvar(struct side *s)
{
    struct run *r = s->run;
    for (uint64_t i = r->n / 2; i; i--) {
        cl_mutex_lock(&r->mutex);
        while (r->turn != s->me)
            cl_cond_wait(&r->cond[s->me], &r->mutex);
        r->turn = !s->me;
        cl_cond_signal(&r->cond[!s->me]);
        cl_mutex_unlock(&r->mutex);
    }
}

static void u_semaphore(struct side *s)
{
    struct run *r = s->run;
    for (uint64_t i = r->n / 2; i; i--) {
        cl_sem_wait(&r->sem[s->me]);
        cl_sem_post(&r->sem[!s->me]);
    }
}

static void u_side(void *arg)
{
    struct side *s = arg;
    if (s->run->what == CL_BENCH_THREADS_YIELD)
        u_yield(s);
    else if (s->run->what == CL_BENCH_THREADS_CONDVAR)
        u_condvar(s);
    else
        u_semaphore(s);
}

static void u_root(void *arg)
{
    struct run *r = arg;
    struct side sides[2] = {{r, 0}, {r, 1}};
    cl_uthread_id id = 0;
    start(r);
    if (r->what == CL_BENCH_THREADS_SPAWN) {
        for (uint64_t i = r->n; i && !r->rc; i--) {
            r->rc = cl_uthread_spawn(nothing, NULL, &id);
            if (!r->rc)
                cl_uthread_join(id);
        }
    } else if (r->what == CL_BENCH_THREADS_MUTEX) {
        for (uint64_t i = r->n; i; i--) {
            cl_mutex_lock(&r->mutex);
            cl_mutex_unlock(&r->mutex);
        }
    } else {
        if (r->other_cpu < 0)
            r->rc = cl_uthread_spawn(u_side, &sides[1], &id);
        if (!r->rc)
            u_side(&sides[0]);
        if (id)
            cl_uthread_join(id);
    }
    stop(r);
}

static int new_sched(struct cl_sched **out, int cpu, char *err)
{
    struct cl_sched_config c;
    int32_t cpus[1] = {cpu};
    cl_sched_config_init(&c);
    c.poll = CL_SCHED_SPIN;
    c.stack_bytes = STACK_BYTES;
    c.cpus = cpus;
    int rc = cl_sched_new(&c, out, err);
    if (rc == 0 && (rc = cl_sched_start(*out, err))) {
        cl_sched_delete(*out);
        *out = NULL;
    }
    return rc;
}

static int run_ours(struct run *r, char *err)
{
    struct cl_sched *a = NULL, *b = NULL;
    struct cl_sched_stats stats;
    struct side other = {r, 1};
    int rc = new_sched(&a, r->cpu, err);
    if (rc == 0 && r->other_cpu >= 0 && (rc = new_sched(&b, r->other_cpu, err)) == 0)
        rc = cl_sched_spawn(b, u_side, &other);
    if (rc == 0)
        rc = cl_sched_run(a, u_root, r);
    if (a)
        cl_sched_stop(a, -1);
    if (b)
        cl_sched_stop(b, rc ? 0 : -1);
    if (a && cl_sched_stats(a, 0, &stats) == 0)
        r->switches = stats.switches;
    cl_sched_delete(a);
    cl_sched_delete(b);
    return rc ? rc : r->rc;
}

static void p_condvar(struct side *s)
{
    struct run *r = s->run;
    for (uint64_t i = r->n / 2; i; i--) {
        pthread_mutex_lock(&r->pmutex);
        while (r->turn != s->me)
            pthread_cond_wait(&r->pcond[s->me], &r->pmutex);
        r->turn = !s->me;
        pthread_cond_signal(&r->pcond[!s->me]);
        pthread_mutex_unlock(&r->pmutex);
    }
}

static void *p_side(void *arg)
{
    struct side *s = arg;
    struct run *r = s->run;
    if (r->what == CL_BENCH_THREADS_YIELD) {
        for (uint64_t i = r->n / 2; i; i--)
            sched_yield();
    } else if (r->what == CL_BENCH_THREADS_CONDVAR) {
        p_condvar(s);
    } else {
        for (uint64_t i = r->n / 2; i; i--) {
            sem_wait(&r->psem[s->me]);
            sem_post(&r->psem[!s->me]);
        }
    }
    return NULL;
}

static void *p_nothing(void *arg)
{
    return arg;
}

static void p_spawn(struct run *r)
{
    pthread_attr_t attr; /* the affinity is inherited */
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (uint64_t i = r->n; i && !r->rc; i--) {
        r->rc = -pthread_create(&thread, &attr, p_nothing, NULL);
        if (!r->rc)
            pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&attr);
}

static uint64_t kernel_switches(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) ? 0 : (uint64_t)(u.ru_nvcsw + u.ru_nivcsw);
}

static void *p_root(void *arg)
{
    struct run *r = arg;
    struct side sides[2] = {{r, 0}, {r, 1}};
    char err[CL_BENCH_ERR_BYTES];
    pthread_t other;
    uint64_t before = kernel_switches();
    start(r);
    if (r->what == CL_BENCH_THREADS_SPAWN) {
        p_spawn(r);
    } else if (r->what == CL_BENCH_THREADS_MUTEX) {
        for (uint64_t i = r->n; i; i--) {
            pthread_mutex_lock(&r->pmutex);
            pthread_mutex_unlock(&r->pmutex);
        }
    } else {
        r->rc = cl_bench_start_pinned(&other, r->other_cpu < 0 ? r->cpu : r->other_cpu, p_side, &sides[1], err);
        if (!r->rc) {
            p_side(&sides[0]);
            pthread_join(other, NULL);
        }
    }
    stop(r);
    r->switches = kernel_switches() - before;
    return NULL;
}

static int run_theirs(struct run *r, char *err)
{
    pthread_t root;
    pthread_mutex_init(&r->pmutex, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_cond_init(&r->pcond[i], NULL);
        sem_init(&r->psem[i], 0, i == 0);
    }
    int rc = cl_bench_start_pinned(&root, r->cpu, p_root, r, err);
    if (rc == 0) {
        pthread_join(root, NULL);
        rc = r->rc;
    }
    for (int i = 0; i < 2; i++) {
        pthread_cond_destroy(&r->pcond[i]);
        sem_destroy(&r->psem[i]);
    }
    pthread_mutex_destroy(&r->pmutex);
    return rc;
}

int cl_bench_threads(uint32_t what, bool ours, int cpu, int other_cpu, uint64_t n, struct cl_bench_threads_result *out,
                     char err[256])
{
    if (what >= CL_BENCH_THREADS_LOOPS || n < 2 || n > 1ull << 40 ||
        (other_cpu >= 0 && what != CL_BENCH_THREADS_SEMAPHORE)) {
        snprintf(err, CL_BENCH_ERR_BYTES, "loop %u with %llu operations on cores %d and %d is not one of the loops",
                 what, (unsigned long long)n, cpu, other_cpu);
        return -EINVAL;
    }
    struct run r = {.what = what, .n = n & ~1ull, .cpu = cpu, .other_cpu = other_cpu};
    cl_sem_init(&r.sem[0], 1);
    err[0] = 0;
    int rc = ours ? run_ours(&r, err) : run_theirs(&r, err);
    if (rc) {
        if (!err[0])
            snprintf(err, CL_BENCH_ERR_BYTES, "a thread could not be started: %s", strerror(-rc));
        return rc;
    }
    int64_t ns = cl_ticks_to_ns(cl_clock_default(), (int64_t)(r.end - r.start));
    *out = (struct cl_bench_threads_result){(uint64_t)cl_max(ns, 0), r.n, r.switches};
    return 0;
}
