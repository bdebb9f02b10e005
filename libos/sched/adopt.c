/* Adopted kthreads: see corelane/libos/adopt.h.
 *
 * Who runs one at a time is decided by `turning`: its adopter takes it from OUTSIDE to INSIDE for each turn, and who
 * stops the scheduler takes it from OUTSIDE for good. So a runtime can be stopped whatever the adopter does: asleep in
 * its epoll, ended, or the one who stops. A turn that does not come back is what a handler that does not come back is
 * to an ordinary kthread: the stop says so.
 *
 * A kthread without an adopter is borrowed in the same way, for one turn or one call; and by its adopter for a call.
 *
 * A thread keeps a record of each kthread that it has adopted. By it the end of the thread lets go of them, and the
 * handler of the preemption signal finds them outside of a turn. A scheduler that ends takes itself out of the records
 * first, and waits for a handler that is inside. */
#include "wakefd.h"

#include <corelane/libos/adopt.h>

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CL_TURN_OUTSIDE 0u
#define CL_TURN_INSIDE 1u
#define CL_TURN_TAKEN 2u /* by who stops; it stays */

#define DRAIN_LOOK_MS 1 /* who stops looks again whether others have drained */

/* Written by its thread under the lock; `kthread` and `next` are read by that thread's handler too. */
struct cl_adopter {
    struct cl_kthread *kthread; /* NULL: it has ended. Writers: under the lock */
    struct cl_adopter *next;    /* of the same thread */
    uint32_t in_handler;        /* writer: the thread's handler; reader: who sets kthread to NULL */
    uint32_t forks;             /* as many as there had been */
    void *signal_stack;         /* that the thread has been given, or NULL */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* adopting, letting go: seldom */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_ends;
static uint32_t forks; /* between this process and the first that used this; written in the child, while it is alone */
static __thread struct cl_adopter *mine __attribute__((tls_model("initial-exec")));

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    forks++;
    pthread_mutex_unlock(&lock);
}

/* A turn that ends tells nobody: who stops looks again and again. */
static bool take(struct cl_kthread *k, uint32_t as)
{
    uint32_t outside = CL_TURN_OUTSIDE;
    return __atomic_compare_exchange_n(&k->turning, &outside, as, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Why k could not be taken. */
static int why_not(const struct cl_kthread *k)
{
    return cl_load_relaxed(&k->turning) == CL_TURN_TAKEN ? -ESHUTDOWN : -EBUSY;
}

/* By its adopter: one who wanted to borrow it may have it, and is about to find that he may not. False: who stops has
 * it, or the thread ends inside of a turn. */
static bool take_own(struct cl_kthread *k)
{
    while (!take(k, CL_TURN_INSIDE)) {
        if (why_not(k) == -ESHUTDOWN || cl_kthread_self() == k)
            return false;
        sched_yield();
    }
    return true;
}

/* Under the lock. Whoever watches the descriptor is to come and adopt it, if there is something to do. */
static void let_go(struct cl_adopter *a)
{
    struct cl_kthread *k = a->kthread;
    if (!k)
        return;
    bool taken = take_own(k);
    cl_store_relaxed(&a->kthread, NULL);
    cl_store_relaxed(&k->adopter, NULL);
    cl_store_relaxed(&k->tid, 0);
    if (!taken) /* who stops turns it himself; who ended inside is what a handler that does not come back is */
        return;
    bool asleep = k->asleep;
    k->offered = !asleep;
    cl_store_release(&k->turning, CL_TURN_OUTSIDE);
    if (!asleep)
        cl_wakefd_call(k);
}

/* Of the calling thread. Under the lock. */
static void drop(struct cl_adopter *a)
{
    struct cl_adopter **at = &mine;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    pthread_setspecific(thread_ends, mine);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a handler does not find it any more */
    cl_signal_stack_remove(a->signal_stack);
    free(a);
}

static void on_thread_end(void *arg)
{
    pthread_mutex_lock(&lock);
    for (struct cl_adopter *a = arg, *next; a; a = next) {
        next = a->next;
        if (a->forks == forks)
            let_go(a);
        cl_signal_stack_remove(a->signal_stack);
        free(a);
    }
    mine = NULL;
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    pthread_key_create(&thread_ends, on_thread_end);
    pthread_atfork(before_fork, after_fork, in_child);
}

int cl_adopt_init(struct cl_sched *s, char err[256])
{
    pthread_once(&once, set_up);
    s->forks = forks;
    int rc = 0;
    for (uint32_t k = 0; k < s->n_kthreads && rc == 0; k++)
        if (s->adopted & 1ull << k) {
            s->kthreads[k].offered = true;
            rc = cl_wakefd_new(&s->kthreads[k], err);
        }
    return rc;
}

/* The scheduler ends: nobody finds k by a thread's records any more. */
static void forget(struct cl_kthread *k)
{
    pthread_mutex_lock(&lock);
    struct cl_adopter *a = k->adopter;
    if (a) {
        cl_store_relaxed(&a->kthread, NULL);
        cl_store_relaxed(&k->adopter, NULL);
        cl_fence_seq_cst(); /* before in_handler is read; the handler stores it, fences, and reads kthread */
        while (cl_load_acquire(&a->in_handler))
            sched_yield();
    }
    pthread_mutex_unlock(&lock);
}

void cl_adopt_delete(struct cl_sched *s)
{
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        if (s->adopted & 1ull << k) {
            forget(&s->kthreads[k]);
            cl_wakefd_delete(&s->kthreads[k]);
        }
}

static int refuse(char err[256], int rc)
{
    snprintf(err, 256, "%s", cl_adopt_error(rc));
    return rc;
}

/* Where cores are managed: once all kthreads have their threads, say who they are. */
static int tell_iokernel(struct cl_sched *s, char err[256])
{
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        if (!cl_load_acquire(&s->kthreads[k].tid) && s->adopted & 1ull << k)
            return 0;
    return cl_sched_register(s, err);
}

/* The thread is about to be one of k. Under the lock. */
static int take_on(struct cl_kthread *k, struct cl_adopter *a, char err[256])
{
    struct cl_sched *s = k->sched;
    stack_t stack;
    bool none = sigaltstack(NULL, &stack) == 0 && stack.ss_flags & SS_DISABLE;
    *a = (struct cl_adopter){.next = mine, .forks = forks, .signal_stack = none ? cl_signal_stack_install() : NULL};
    cl_loop_stack_bounds(k);
    if (!k->asleep)
        cl_wakefd_up(k); /* it was readable for us */
    if (s->cores) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, CL_SCHED_SIGNAL);
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
        cl_rseq_give_up();
        cl_short_slices();
        k->preempt_pending = 1; /* nothing is ours yet */
    }
    pthread_sigmask(SIG_SETMASK, NULL, &k->signals_blocked);
    cl_store_relaxed(&a->kthread, k);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the handler finds it whole */
    mine = a;
    pthread_setspecific(thread_ends, a);
    k->thread = pthread_self();
    cl_store_relaxed(&k->adopter, a);
    cl_store_release(&k->tid, (int32_t)syscall(SYS_gettid));
    return s->cores ? tell_iokernel(s, err) : 0;
}

static int may_adopt(const struct cl_sched *s, unsigned index)
{
    if (index >= s->n_kthreads || !(s->adopted & 1ull << index))
        return -EINVAL;
    const struct cl_kthread *k = &s->kthreads[index];
    if (cl_kthread_self())
        return -EDEADLK;
    if (s->forks != forks)
        return -ECHILD;
    if (!s->started || cl_load_relaxed(&k->turning) == CL_TURN_TAKEN)
        return -ESHUTDOWN;
    if (!k->adopter)
        return 0;
    return pthread_equal(k->thread, pthread_self()) ? -EALREADY : -EBUSY;
}

/* Taken as for a turn: nobody who borrows it is inside, and who comes later finds that it is adopted. */
static int take_on_alone(struct cl_kthread *k, struct cl_adopter *a, char err[256])
{
    if (!take(k, CL_TURN_INSIDE)) {
        free(a);
        return refuse(err, why_not(k));
    }
    int rc = take_on(k, a, err);
    cl_store_release(&k->turning, CL_TURN_OUTSIDE); /* release: what take_on did, for who takes it next */
    if (rc) {
        let_go(a);
        drop(a);
    }
    return rc;
}

int cl_kthread_adopt(struct cl_sched *s, unsigned index, char err[256])
{
    struct cl_adopter *a = malloc(sizeof *a);
    if (!a)
        return refuse(err, -ENOMEM);
    pthread_mutex_lock(&lock);
    int rc = may_adopt(s, index);
    if (rc) {
        refuse(err, rc);
        free(a);
    } else {
        rc = take_on_alone(&s->kthreads[index], a, err);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* The calling thread's. NULL is nobody's. */
static bool is_mine(const struct cl_adopter *theirs)
{
    const struct cl_adopter *a = mine;
    while (a && a != theirs)
        a = a->next;
    return theirs && a;
}

/* The calling thread's own kthread, outside of a turn; or what is wrong. */
static int check_own(struct cl_sched *s, unsigned index, struct cl_kthread **out)
{
    if (cl_unlikely(index >= s->n_kthreads || !(s->adopted & 1ull << index)))
        return -EINVAL;
    struct cl_kthread *k = *out = &s->kthreads[index];
    if (cl_unlikely(cl_kthread_self() != NULL))
        return -EDEADLK;
    /* Relaxed: if the record is ours we have stored it ourselves. */
    if (cl_unlikely(!is_mine(cl_load_relaxed(&k->adopter))))
        return cl_load_relaxed(&k->turning) == CL_TURN_TAKEN ? -ESHUTDOWN : -EPERM;
    return cl_unlikely(s->forks != forks) ? -ECHILD : 0;
}

/* Have it for good, if nobody turns it at this moment. By who stops. */
static bool take_over(struct cl_kthread *k)
{
    if (cl_load_relaxed(&k->turning) == CL_TURN_TAKEN)
        return true;
    if (!take(k, CL_TURN_TAKEN))
        return false;
    cl_loop_stack_bounds(k);
    return true;
}

static void end(struct cl_kthread *k)
{
    cl_kthread_ended(k);
    cl_wakefd_call(k); /* a turn will say so */
}

/* What was sent inside of cl_kthread_borrow_more has left. */
static void has_left(struct cl_kthread *k)
{
    if (cl_unlikely(k->gathered_ns))
        cl_store_relaxed(&k->gathered_ns, 0);
}

/* Returns 1, or 0: k sleeps. A round that finds nothing, and does not sleep, is followed by another one: what a turn
 * takes besides is a third of a round. */
static int turn(struct cl_kthread *k)
{
    cl_kthread_bind(k);
    if (k->trace)
        k->trace->idle_at = 0; /* the thread has been at something else since the last turn */
    if (!k->asleep || cl_rise(k)) {
        cl_round(k);
        if (!k->asleep && k->idle_turns)
            cl_round(k);
    }
    if (!k->asleep && k->idle_turns == 0)
        cl_wakefd_worked(k);
    cl_kthread_bind(NULL);
    has_left(k);
    return !k->asleep;
}

int cl_kthread_turn(struct cl_sched *s, unsigned index)
{
    struct cl_kthread *k;
    int rc = check_own(s, index, &k);
    if (cl_unlikely(rc))
        return rc;
    if (cl_unlikely(!take(k, CL_TURN_INSIDE)))
        return why_not(k) == -EBUSY ? 1 : -ESHUTDOWN; /* who wanted to borrow it is about to find that it is ours */
    rc = turn(k);
    cl_store_release(&k->turning, CL_TURN_OUTSIDE); /* release: what the turn did, for who takes it over */
    return rc;
}

/* Have a kthread that has no adopter, or is our own, for a moment: it is ours until `turning` is OUTSIDE again. */
static int borrow(struct cl_sched *s, unsigned index, struct cl_kthread **out)
{
    if (cl_unlikely(index >= s->n_kthreads || !(s->adopted & 1ull << index)))
        return -EINVAL;
    struct cl_kthread *k = *out = &s->kthreads[index];
    if (cl_unlikely(cl_kthread_self() != NULL))
        return -EDEADLK;
    if (cl_unlikely(s->forks != forks))
        return -ECHILD;
    /* Relaxed: if the record is ours we have stored it ourselves. */
    if (cl_unlikely(s->cores && !is_mine(cl_load_relaxed(&k->adopter))))
        return -EOPNOTSUPP;
    if (cl_unlikely(!s->started))
        return -ESHUTDOWN;
    if (cl_unlikely(!take(k, CL_TURN_INSIDE)))
        return why_not(k);
    /* Once it is taken nobody adopts it. Its adopter, who comes meanwhile, waits or turns again. */
    const struct cl_adopter *adopter = cl_load_relaxed(&k->adopter);
    if (cl_unlikely(adopter && !is_mine(adopter))) {
        cl_store_release(&k->turning, CL_TURN_OUTSIDE);
        return -EBUSY;
    }
    cl_loop_stack_bounds(k);
    if (cl_unlikely(k->offered)) {
        k->offered = false;
        if (!k->asleep)
            cl_wakefd_up(k);
    }
    return 0;
}

int cl_kthread_borrow_turn(struct cl_sched *s, unsigned index)
{
    struct cl_kthread *k;
    int rc = borrow(s, index, &k);
    if (cl_unlikely(rc))
        return rc;
    rc = turn(k);
    cl_store_release(&k->turning, CL_TURN_OUTSIDE); /* release: for who borrows it next */
    return rc;
}

/* False: it sleeps, and its core is another's. */
static bool get_up(struct cl_kthread *k)
{
    if (k->asleep && k->sched->cores)
        return cl_rise(k);
    if (k->asleep)
        cl_get_up(k);
    return true;
}

static int borrow_call(struct cl_sched *s, unsigned index, void (*fn)(void *arg), void *arg, bool more)
{
    struct cl_kthread *k;
    int rc = borrow(s, index, &k);
    if (cl_unlikely(rc))
        return rc;
    cl_kthread_bind(k);
    if (get_up(k)) {
        k->more = more;
        fn(arg);
        k->more = false;
        k->ran = true;
        if (!more) {
            cl_flush(k);
            has_left(k);
        } else if (!k->gathered_ns) {
            cl_store_relaxed(&k->gathered_ns, cl_sched_clock(s)); /* a hint to others: cl_kthread_borrow_turn */
        }
    } else {
        rc = -EAGAIN;
    }
    cl_kthread_bind(NULL);
    cl_store_release(&k->turning, CL_TURN_OUTSIDE); /* release: for who borrows it next */
    return rc;
}

int cl_kthread_borrow(struct cl_sched *s, unsigned index, void (*fn)(void *arg), void *arg)
{
    return borrow_call(s, index, fn, arg, false);
}

int cl_kthread_borrow_more(struct cl_sched *s, unsigned index, void (*fn)(void *arg), void *arg)
{
    return borrow_call(s, index, fn, arg, true);
}

uint64_t cl_kthread_gathered_ns(const struct cl_sched *s, unsigned index)
{
    return index < s->n_kthreads ? cl_load_relaxed(&s->kthreads[index].gathered_ns) : 0;
}

bool cl_kthread_more_follows(void)
{
    const struct cl_kthread *k = cl_kthread_self();
    return k && k->more;
}

/* Of another one of the thread's: nobody else writes its trace meanwhile. */
static void tell_collects(struct cl_kthread *k, bool begins, uint32_t generation)
{
    if (!k || !k->trace || !take(k, CL_TURN_INSIDE))
        return;
    cl_tracer_collects(k->trace, begins, generation);
    cl_store_release(&k->turning, CL_TURN_OUTSIDE);
}

void cl_kthread_collects(bool begins, uint32_t generation)
{
    struct cl_kthread *self = cl_kthread_self();
    if (self && self->trace)
        cl_tracer_collects(self->trace, begins, generation);
    if (!mine)
        return;
    pthread_mutex_lock(&lock); /* none of them ends meanwhile */
    for (struct cl_adopter *a = mine; a; a = a->next)
        if (a->forks == forks && a->kthread != self)
            tell_collects(a->kthread, begins, generation);
    pthread_mutex_unlock(&lock);
}

int cl_kthread_let_go(struct cl_sched *s, unsigned index)
{
    struct cl_kthread *k;
    int rc = check_own(s, index, &k);
    if (rc)
        return rc;
    if (s->cores)
        return -EBUSY;
    pthread_mutex_lock(&lock);
    struct cl_adopter *a = k->adopter;
    if (a) {
        let_go(a);
        drop(a);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

bool cl_adopts(const struct cl_sched *s)
{
    for (const struct cl_adopter *a = mine; a; a = a->next)
        if (a->kthread && a->kthread->sched == s && a->forks == forks)
            return true;
    return false;
}

/* Have those that nobody turns, and turn them; returns those that sleep. */
static uint64_t drain_once(struct cl_sched *s, uint64_t *taken)
{
    uint64_t asleep = 0;
    for (uint32_t i = 0; i < s->n_kthreads; i++) {
        struct cl_kthread *k = &s->kthreads[i];
        uint64_t bit = 1ull << i;
        if (!(s->adopted & bit) || !take_over(k))
            continue;
        *taken |= bit;
        asleep |= turn(k) ? 0 : bit;
    }
    return asleep;
}

/* Until one of them has something to do, or a moment is over. */
static void rest(struct cl_sched *s, uint64_t asleep)
{
    struct pollfd fds[CL_SCHED_MAX_KTHREADS];
    nfds_t n = 0;
    for (; asleep; asleep &= asleep - 1)
        fds[n++] = (struct pollfd){cl_kthread_fd(s, (unsigned)__builtin_ctzll(asleep)), POLLIN, 0};
    poll(fds, n, DRAIN_LOOK_MS);
}

void cl_adopted_drain(struct cl_sched *s, uint64_t until)
{
    uint64_t taken = 0;
    while (!cl_load_acquire(&s->drained) && (int64_t)(until - cl_monotonic_raw_ns()) > 0) {
        uint64_t asleep = drain_once(s, &taken); /* more of them, perhaps: a turn has ended */
        if (asleep == taken)
            rest(s, asleep);
    }
}

void cl_adopted_end(struct cl_sched *s)
{
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        if (s->adopted & 1ull << k && !s->kthreads[k].ended && take_over(&s->kthreads[k]))
            end(&s->kthreads[k]);
}

void cl_adopted_interrupt(void (*wait)(struct cl_kthread *k, int signal), int signal)
{
    for (struct cl_adopter *a = mine; a; a = a->next) {
        cl_store_relaxed(&a->in_handler, 1);
        cl_fence_seq_cst(); /* before kthread is read, see forget */
        struct cl_kthread *k = cl_load_relaxed(&a->kthread);
        struct cl_cores *c = k && a->forks == forks ? k->sched->cores : NULL;
        if (c)
            c->ops->signalled(c, k->index);
        if (c && k->asleep) {
            cl_wakefd_call(k); /* the iokernel rouses it: no other wake has reached it, perhaps */
        } else if (c && c->ops->lost(c, k->index)) {
            cl_count(&k->stats.interrupts, 1);
            if (k->away)
                k->preempt_pending = 1;
            else
                wait(k, signal);
        }
        cl_store_release(&a->in_handler, 0);
    }
}

const char *cl_adopt_error(int error)
{
    switch (error) {
    case -EPERM:
        return "this thread has not adopted the kthread: adopt it here, or turn it on the thread that has";
    case -EDEADLK:
        return "the call comes from inside a turn, as from a handler: make it from the event loop";
    case -ECHILD:
        return "this process was forked from the one that runs the kthread: only exec and _exit are useful here";
    case -ESHUTDOWN:
        return "the scheduler does not run: it has stopped, or was not started; take its descriptor out of the loop";
    case -EBUSY:
        return "another thread has adopted or borrows the kthread, or an iokernel counts on its thread: end that first";
    case -EALREADY:
        return "this thread has adopted the kthread already: turn it";
    case -EOPNOTSUPP:
        return "an iokernel manages the cores, and knows one thread of each kthread: adopt it instead of borrowing it";
    case -EINVAL:
        return "no such kthread is to be adopted: say in the configuration how many are (`adopted`)";
    case -ENOMEM:
        return "out of memory";
    }
    return strerror(-error);
}
