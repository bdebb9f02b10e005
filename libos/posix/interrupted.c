/* What ends a sleep before its time: the handler of a signal, which may leave the call by longjmp, and pthread_cancel.
 *
 * Our sleeps are ppoll and epoll_pwait, which no handler restarts. Whether Linux would have gone on with the call that
 * sleeps is in the flags of the handlers. Of those that would have ended it, it is noted when they run
 * (preload/signals.c), but for some that were set past sigaction: where there are such, each end is one of theirs.
 *
 * libc's own sleeps are points at which a thread may be cancelled; ours are not, as what a call of ours has begun is to
 * be undone first. So who cancels a thread (preload/cancel.c) says so here: its sleep ends, its call returns -ECANCELED
 * without having done anything, and libc is then asked to act. */
#include "kthreads.h"
#include "linux.h"
#include "waits.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* A thread that has slept for a set of ours, or was cancelled before. On the heap, until it ends. */
struct sleeper {
    pthread_t thread;
    struct sleeper *next;     /* under the list's lock */
    struct cl_spin lock;      /* after the list's, before the set's */
    struct cl_posix_set *set; /* for which it sleeps, or is about to; NULL. Under `lock` */
    uint32_t cancelled;       /* written under `lock`, or by the thread */
    /* The thread's, and its handlers': */
    struct cl_posix_object *held;
    volatile bool sleeps; /* it is in the call of Linux that sleeps, and holds no lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_ends;
static struct sleeper *all; /* under the lock. Those of threads that were cancelled and never slept stay */
static __thread struct sleeper *mine __attribute__((tls_model("initial-exec")));
static __thread volatile bool ended
    __attribute__((tls_model("initial-exec")));                      /* by a handler, since the sleep began */
static void (*noted_by)(int number, siginfo_t *info, void *context); /* relaxed */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void on_thread_end(void *arg)
{
    struct sleeper **at = &all;
    pthread_mutex_lock(&lock);
    while (*at && *at != arg)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
    pthread_mutex_unlock(&lock);
    mine = NULL;
    free(arg);
}

static void set_up(void)
{
    pthread_key_create(&thread_ends, on_thread_end);
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* Under the lock. NULL: it is not known, and there is no memory for it. */
static struct sleeper *of(pthread_t thread)
{
    struct sleeper *s = all;
    while (s && !pthread_equal(s->thread, thread))
        s = s->next;
    if (s || !(s = malloc(sizeof *s)))
        return s;
    *s = (struct sleeper){.thread = thread, .next = all};
    all = s;
    return s;
}

static bool may_be_cancelled(void)
{
    int state, unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, &unused);
    return state == PTHREAD_CANCEL_ENABLE;
}

bool cl_posix_is_cancelled(void)
{
    return cl_unlikely(mine && cl_load_relaxed(&mine->cancelled)) && may_be_cancelled();
}

void cl_posix_not_cancelled(void)
{
    if (mine)
        cl_store_relaxed(&mine->cancelled, 0);
}

static CL_NOINLINE void be_known(void)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    mine = of(pthread_self());
    pthread_mutex_unlock(&lock);
    if (mine)
        pthread_setspecific(thread_ends, mine);
}

static void sleep_for(struct cl_posix_set *set)
{
    if (cl_unlikely(!mine))
        return; /* there is no memory: what cancels it waits until it sleeps no more */
    cl_spin_lock(&mine->lock);
    mine->set = set;
    cl_spin_unlock(&mine->lock);
}

bool cl_posix_interrupted_begin(struct cl_posix_set *set, struct cl_posix_object *held)
{
    if (cl_unlikely(!mine))
        be_known();
    if (mine)
        mine->held = held;
    sleep_for(set); /* before the look whether it was cancelled */
    if (cl_unlikely(cl_posix_is_cancelled())) {
        sleep_for(NULL);
        return false;
    }
    ended = false;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (mine)
        mine->sleeps = true;
    return true;
}

void cl_posix_interrupted_end(void)
{
    if (mine)
        mine->sleeps = false;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    sleep_for(NULL);
}

bool cl_posix_leave_call(void)
{
    if (!mine || !mine->sleeps)
        return false;
    struct cl_posix_set *set = mine->set;
    cl_posix_interrupted_end();
    cl_posix_sleep_end();
    cl_posix_set_disarm(set);
    cl_posix_own_part();
    if (mine->held)
        cl_posix_put(mine->held);
    return true;
}

void cl_posix_cancel(pthread_t thread)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    struct sleeper *s = of(thread);
    if (s) {
        cl_spin_lock(&s->lock);
        cl_store_relaxed(&s->cancelled, 1);
        if (s->set)
            cl_posix_set_call(s->set);
        cl_spin_unlock(&s->lock);
    }
    pthread_mutex_unlock(&lock);
}

void cl_posix_ended_by_handler(void)
{
    ended = true;
}

void cl_posix_noted_by(void (*fn)(int number, siginfo_t *info, void *context))
{
    cl_store_relaxed(&noted_by, fn);
}

bool cl_posix_signal_is_fatal(int number)
{
    switch (number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
    case SIGABRT:
        return true;
    default:
        return false;
    }
}

bool cl_posix_handlers_restart(void)
{
    struct sigaction action;
    sigset_t blocked;
    bool some = false;
    if (ended)
        return false;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < NSIG; number++) {
        if (cl_posix_signal_is_fatal(number) || sigismember(&blocked, number) || sigaction(number, NULL, &action))
            continue; /* the last: it is libc's */
        bool handled = action.sa_flags & SA_SIGINFO || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
        bool noted = action.sa_sigaction == cl_load_relaxed(&noted_by);
        if (handled && !noted && !(action.sa_flags & SA_RESTART))
            return false;
        some |= handled && !noted;
    }
    return some;
}
