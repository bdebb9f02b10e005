/* See corelane/libos/elastic.h. The word is in the arena's first page, beside the preemption flag (runtime/shm.h),
 * which lies at one address whichever iokernel there is. What is held goes to the iokernel as counters, four times a
 * second. */
#include "elastic.h"
#include "internal.h"
#include "../runtime/shm.h"

#include <corelane/runtime/cores.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define NAP_MS 20    /* between two looks of who shrinks by a function */
#define AGAIN_MS 250 /* and after that function has not shrunk it */

/* Who looks at the limit for a function of the user's. */
struct shrinker {
    cl_elastic_shrink shrink; /* NULL: there is none, nor a thread */
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; /* under the lock, as is the next: the function let the memory go, and its thread is the last that has
               * it */
    bool last;
};

/* Between two pages that cannot be touched, so that Linux keeps it as a mapping of its own: what it takes can then be
 * seen from outside (iokernel/control/elastic.py). */
struct cl_elastic {
    struct cl_runtime *rt; /* NULL: it is gone */
    uint8_t *base;
    uint64_t bytes, least;
    uint64_t held;        /* writer: who uses it (relaxed); readers: anybody */
    const uint64_t *word; /* the iokernel's; of `nowhere`: there is none */
    struct shrinker shrinker;
};

static const uint64_t nowhere = 0;

static uint64_t in_pages(uint64_t bytes)
{
    return (bytes + CL_SHM_PAGE - 1) / CL_SHM_PAGE * CL_SHM_PAGE;
}

/* Where the iokernel says how much it may hold, if it manages the cores. */
static const uint64_t *word_of(const struct cl_runtime *rt)
{
    if (!rt->own_nic || !rt->nic->cores)
        return &nowhere;
    return &cl_container_of(rt->nic->cores->preempt, const struct cl_arena_preempt, preempt)->memory_bytes;
}

static uint8_t *reserve(uint64_t bytes)
{
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *p = mmap(NULL, bytes + 2 * CL_SHM_PAGE, PROT_NONE, how, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (mprotect(p + CL_SHM_PAGE, bytes, PROT_READ | PROT_WRITE) == 0)
        return p + CL_SHM_PAGE;
    munmap(p, bytes + 2 * CL_SHM_PAGE);
    return NULL;
}

static void let_go(struct cl_elastic *e)
{
    munmap(e->base - CL_SHM_PAGE, in_pages(e->bytes) + 2 * CL_SHM_PAGE);
    free(e);
}

int cl_elastic_new(struct cl_runtime *rt, uint64_t bytes, uint64_t least, struct cl_elastic **out, char err[256])
{
    if (bytes == 0 || least > bytes || bytes > UINT64_MAX / 2)
        return cl_refuse(err, -EINVAL, "give the most bytes that it uses, and the least that it can do with");
    struct cl_elastic *e = malloc(sizeof *e);
    uint8_t *base = e ? reserve(in_pages(bytes)) : NULL;
    if (!base) {
        free(e);
        return cl_refuse(err, -ENOMEM, "there are no addresses for so many bytes: ask for fewer");
    }
    *e = (struct cl_elastic){.rt = rt, .base = base, .bytes = bytes, .least = least, .word = word_of(rt)};
    cl_spin_lock(&rt->elastic_lock);
    bool first = rt->elastic == NULL;
    if (first)
        rt->elastic = e;
    cl_spin_unlock(&rt->elastic_lock);
    if (!first) {
        let_go(e);
        return cl_refuse(err, -EEXIST, "the runtime has elastic memory already: divide that");
    }
    *out = e;
    return 0;
}

void cl_elastic_leave(struct cl_runtime *rt)
{
    cl_spin_lock(&rt->elastic_lock);
    if (rt->elastic) {
        cl_store_relaxed(&rt->elastic->word, &nowhere); /* relaxed: its kthreads have ended */
        rt->elastic->rt = NULL;
        rt->elastic = NULL;
    }
    cl_spin_unlock(&rt->elastic_lock);
}

void *cl_elastic_base(const struct cl_elastic *e)
{
    return e->base;
}

uint64_t cl_elastic_limit(const struct cl_elastic *e)
{
    /* Relaxed: seen late, it is heeded late. */
    uint64_t allowed = cl_load_relaxed(cl_load_relaxed(&e->word));
    return allowed == 0 ? e->bytes : cl_min(cl_max(allowed, e->least), e->bytes);
}

static void hold(struct cl_elastic *e, uint64_t now)
{
    uint64_t before = cl_load_relaxed(&e->held);
    if (in_pages(now) < in_pages(before))
        (void)madvise(e->base + in_pages(now), in_pages(before) - in_pages(now), MADV_DONTNEED);
    cl_store_relaxed(&e->held, now);
}

uint64_t cl_elastic_use(struct cl_elastic *e, uint64_t bytes)
{
    /* What a function is to choose about goes by no other way. */
    uint64_t kept = e->shrinker.shrink ? cl_load_relaxed(&e->held) : 0;
    uint64_t now = cl_min(bytes, cl_max(cl_elastic_limit(e), kept));
    hold(e, now);
    return now;
}

uint64_t cl_elastic_held(const struct cl_elastic *e)
{
    return cl_load_relaxed(&e->held);
}

static void destroy(struct shrinker *s)
{
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
}

/* Wait so long, or until it is to stop. The lock is held. Returns whether it goes on. */
static bool nap(struct shrinker *s, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!s->stop && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0)
        ;
    return !s->stop;
}

static void *look(void *arg)
{
    struct cl_elastic *e = arg;
    struct shrinker *s = &e->shrinker;
    unsigned ms = NAP_MS;
    pthread_mutex_lock(&s->lock);
    while (nap(s, ms)) {
        if (cl_load_relaxed(&e->word) == &nowhere)
            break; /* there is no limit, and there will be none */
        uint64_t limit = cl_elastic_limit(e);
        ms = NAP_MS;
        if (cl_elastic_held(e) <= limit)
            continue;
        pthread_mutex_unlock(&s->lock);
        uint64_t kept = s->shrink(s->arg, limit);
        if (kept <= limit)
            hold(e, kept); /* the limit may be lower by now: then it is asked again */
        else
            ms = AGAIN_MS;
        pthread_mutex_lock(&s->lock);
    }
    bool last = s->last;
    pthread_mutex_unlock(&s->lock);
    if (last) {
        destroy(s);
        let_go(e);
    }
    return NULL;
}

static void end_shrinker(struct shrinker *s)
{
    if (!s->shrink)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    destroy(s);
    s->shrink = NULL;
}

/* Its thread takes no signal: those are the application's. */
static int begin_shrinker(struct cl_elastic *e)
{
    struct shrinker *s = &e->shrinker;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&s->thread, NULL, look, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pthread_setname_np(s->thread, "cl-elastic");
        return 0;
    }
    destroy(s);
    return -rc;
}

static bool shrinks_now(const struct cl_elastic *e)
{
    return e->shrinker.shrink && pthread_equal(e->shrinker.thread, pthread_self());
}

int cl_elastic_on_shrink(struct cl_elastic *e, cl_elastic_shrink shrink, void *arg, char err[256])
{
    if (shrinks_now(e))
        return cl_refuse(err, -EDEADLK, "the function that shrinks cannot be replaced by itself: do so elsewhere");
    end_shrinker(&e->shrinker);
    if (!shrink)
        return 0;
    e->shrinker = (struct shrinker){.shrink = shrink, .arg = arg};
    int rc = begin_shrinker(e);
    if (rc < 0) {
        e->shrinker.shrink = NULL;
        return cl_refuse(err, rc, "there is no thread that could call it");
    }
    return 0;
}

void cl_elastic_delete(struct cl_elastic *e)
{
    if (!e)
        return;
    if (e->rt) {
        cl_spin_lock(&e->rt->elastic_lock);
        e->rt->elastic = NULL;
        cl_spin_unlock(&e->rt->elastic_lock);
    }
    if (shrinks_now(e)) { /* as where a view that was the last one goes in Python's */
        pthread_mutex_lock(&e->shrinker.lock);
        e->shrinker.stop = e->shrinker.last = true;
        pthread_mutex_unlock(&e->shrinker.lock);
        pthread_detach(e->shrinker.thread);
        return;
    }
    end_shrinker(&e->shrinker);
    let_go(e);
}

unsigned cl_elastic_counters(struct cl_runtime *rt, struct cl_counter *out, unsigned room)
{
    static const char *const names[] = {"elastic_held_bytes", "elastic_least_bytes", "elastic_most_bytes"};
    unsigned n = 0;
    cl_spin_lock(&rt->elastic_lock);
    const struct cl_elastic *e = rt->elastic;
    if (e && room >= 3) {
        const uint64_t values[] = {cl_elastic_held(e), e->least, e->bytes};
        for (; n < 3; n++) {
            out[n] = (struct cl_counter){.value = values[n]};
            snprintf(out[n].name, sizeof out[n].name, "%s", names[n]);
        }
    }
    cl_spin_unlock(&rt->elastic_lock);
    return n;
}
