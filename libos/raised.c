/* See raised.h. */
#include "raised.h"
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLACES 64
#define EVERY_NS 1000000000ull
#define END_S 5 /* for one that waits for a language's lock; where a run-time ends it waits for ever */

/* Where something raises. Who takes its turn (next_ns) writes name and place, then `due` (release). */
struct place {
    const char *what; /* its words, or `name` if it has none: set once by compare and exchange; NULL: it is free */
    const char *name, *at;
    uint64_t count;   /* of exceptions; added to by anybody */
    uint64_t told;    /* of these; the teller's */
    uint64_t next_ns; /* not told again before; moved on by compare and exchange */
    uint32_t due;
};

enum { NONE, STARTING, RUNNING };

struct cl_raises {
    cl_runtime_event tell;
    void *arg;
    sem_t work;
    pthread_t teller;
    uint32_t state;
    uint32_t over;
    struct place places[PLACES + 1]; /* the last one: of all that found no other */
};

static void tell(struct cl_raises *r, struct place *p)
{
    uint64_t count = cl_load_relaxed(&p->count), more = count - p->told - 1;
    const char *name = cl_load_relaxed(&p->name), *what = p->what, *at = "", *raised = "an exception";
    char text[1024], others[64] = "";
    if (count == p->told || !name)
        return;
    p->told = count;
    if (p == &r->places[PLACES])
        raised = "exceptions at too many places to tell of each";
    else if (what != name && (uint8_t)*what != CL_RAISED_UNSAID)
        at = (raised = what) + strlen(what) + 1;
    if (more)
        snprintf(others, sizeof others, "; %llu more since the last report", (unsigned long long)more);
    snprintf(text, sizeof text, "%.200s raised %.400s (%.300s)%s", name, raised, *at ? at : cl_load_relaxed(&p->at),
             others);
    r->tell(r->arg, CL_EVENT_RAISED, text);
}

static void tell_due(struct cl_raises *r, bool all)
{
    for (unsigned i = 0; i <= PLACES; i++)
        if (cl_exchange(&r->places[i].due, 0u) || all) /* acquire: its name and place */
            tell(r, &r->places[i]);
}

static void *run(void *arg)
{
    struct cl_raises *r = arg;
    bool over;
    do {
        while (sem_wait(&r->work) && errno == EINTR)
            ;
        over = cl_load_acquire(&r->over); /* all that was raised before */
        tell_due(r, over);
    } while (!over);
    return NULL;
}

/* On a large stack. It is to run wherever it may, not where the kthread that raised is pinned. */
static void start_teller(void *arg)
{
    struct cl_raises *r = arg;
    sigset_t all, before;
    cpu_set_t cpus;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = pthread_create(&r->teller, NULL, run, r) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) {
        memset(&cpus, 0xff, sizeof cpus);
        (void)pthread_setaffinity_np(r->teller, sizeof cpus, &cpus);
        pthread_setname_np(r->teller, "cl-raised");
    }
    cl_store_release(&r->state, runs ? RUNNING : NONE); /* its number; without one the next exception tries again */
}

static void wake_teller(struct cl_raises *r)
{
    uint32_t none = NONE;
    if (cl_load_relaxed(&r->state) == NONE &&
        __atomic_compare_exchange_n(&r->state, &none, STARTING, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
        cl_kthread_call(start_teller, r))
        start_teller(r);
    sem_post(&r->work);
}

/* The place of these words. A new one takes what is free, in order. */
static struct place *place_of(struct cl_raises *r, const char *what)
{
    for (unsigned i = 0; i < PLACES; i++) {
        const char *there = cl_load_relaxed(&r->places[i].what);
        if (!there)
            __atomic_compare_exchange_n(&r->places[i].what, &there, what, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        if (!there || there == what)
            return &r->places[i];
    }
    return &r->places[PLACES];
}

void cl_raised(const char *name, const char *place, const char *what)
{
    const struct cl_sched *sched = cl_sched_self();
    const struct cl_work_source *source = sched ? cl_sched_source(sched) : NULL;
    if (!source || source->poll != cl_netif_poll)
        return;
    struct cl_raises *r = ((struct cl_netif *)source->arg)->rt->raises;
    if (!r->tell)
        return;
    struct place *p = place_of(r, what ? what : name);
    uint64_t now = cl_sched_now_ns(sched), next = cl_load_relaxed(&p->next_ns);
    __atomic_add_fetch(&p->count, 1, __ATOMIC_RELAXED);
    if (now < next ||
        !__atomic_compare_exchange_n(&p->next_ns, &next, now + EVERY_NS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    cl_store_relaxed(&p->name, name);
    cl_store_relaxed(&p->at, place);
    cl_store_release(&p->due, 1);
    wake_teller(r);
}

struct cl_raises *cl_raises_new(cl_runtime_event tell, void *arg)
{
    struct cl_raises *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->tell = tell;
    r->arg = arg;
    sem_init(&r->work, 0, 0);
    return r;
}

void cl_raises_delete(struct cl_raises *r)
{
    struct timespec until;
    if (!r)
        return;
    if (cl_load_acquire(&r->state) == RUNNING) { /* acquire: its number */
        cl_store_release(&r->over, 1);
        sem_post(&r->work);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += END_S;
        if (pthread_timedjoin_np(r->teller, NULL, &until)) {
            pthread_detach(r->teller);
            return; /* it is in use */
        }
    } else {
        tell_due(r, true); /* no thread could be made */
    }
    sem_destroy(&r->work);
    free(r);
}
