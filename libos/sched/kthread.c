/* A kthread: the scheduler loop. One turn: timers that are due, completions, uthreads woken from outside, at most
 * CL_BUDGET uthreads from the run queue, the own network queue, a runner for what it brought. A turn without any of
 * these is idle (idle.c). */
#include "runq.h"

#include <corelane/libos/probe.h>

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_attribute)
#if __has_attribute(noipa)
#define CL_NOIPA __attribute__((noipa))
#endif
#endif
#ifndef CL_NOIPA
#define CL_NOIPA
#endif

#define INJECT_BATCH 64
#define SLICE_NS 100000 /* the shortest that Linux gives */

static __thread struct cl_kthread *this_kthread __attribute__((tls_model("initial-exec")));

CL_PROBE_TEXT CL_NOINLINE CL_NOIPA struct cl_kthread *cl_kthread_self(void)
{
    struct cl_kthread *k = this_kthread;
    __asm__ volatile("" : "+r"(k)); /* not a constant of the thread, whatever the compiler thinks of threads */
    return k;
}

CL_NOINLINE CL_NOIPA void cl_kthread_bind(struct cl_kthread *k)
{
    this_kthread = k;
    cl_probe_bind(k ? k->sched->probe_word : NULL);
}

void cl_dispatch(struct cl_kthread *k, struct cl_uthread *t)
{
    /* Before it runs, which may take long: while we count as searching nobody is woken. */
    if (cl_unlikely(k->idle_turns || k->searching))
        cl_idle_over(k);
    cl_note_switch(k);
    cl_store_relaxed(&k->signals->in_uthread, 1);
    k->ran = true;
    for (;;) {
        cl_switch_to(k, &k->loop, t);
        k->current = NULL;
        if (cl_likely(k->after.op != CL_AFTER_CALL)) {
            cl_store_relaxed(&k->signals->in_uthread, 0);
            return;
        }
        /* The uthread asked for a call on this stack, see cl_kthread_call. */
        struct cl_after call = k->after;
        k->after.op = CL_AFTER_NOTHING;
        k->current = t = call.t;
        k->no_switch++;
        k->on_loop_stack = true;
        k->call_fn(call.p);
        k->on_loop_stack = false;
        k->no_switch--;
    }
}

int cl_kthread_call(void (*fn)(void *arg), void *arg)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k)
        return -EPERM;
    if (!k->current || k->on_loop_stack) { /* there already */
        fn(arg);
        return 0;
    }
    if (k->no_switch)
        return -EDEADLK;
    k->call_fn = fn;
    k->after = (struct cl_after){CL_AFTER_CALL, k->current, arg};
    cl_switch_to(k, k->current, &k->loop);
    return 0;
}

void cl_sched_no_switch_enter(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k)
        k->no_switch++;
}

void cl_sched_no_switch_leave(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k && k->no_switch)
        k->no_switch--;
}

struct cl_sched *cl_sched_self(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k ? k->sched : NULL;
}

const struct cl_work_source *cl_sched_source(const struct cl_sched *sched)
{
    return sched->has_source ? &sched->source : NULL;
}

int cl_kthread_index(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k ? (int)k->index : -1;
}

/* The getter once more and not a call of it: this is on the way of every request. */
CL_NOINLINE CL_NOIPA int cl_kthread_index_in(const struct cl_sched *s)
{
    const struct cl_kthread *k = this_kthread;
    __asm__ volatile("" : "+r"(k));
    return k && k->sched == s ? (int)k->index : -1;
}

static void inject_push(struct cl_sched *s, struct cl_uthread *t, bool spawned)
{
    t->next = NULL;
    cl_spin_lock(&s->inject_lock);
    if (s->inject_last)
        s->inject_last->next = t;
    else
        s->inject_first = t;
    s->inject_last = t;
    cl_store_relaxed(&s->n_inject, s->n_inject + 1);
    if (spawned)
        cl_count(&s->foreign_spawned, 1);
    cl_spin_unlock(&s->inject_lock);
}

void cl_inject(struct cl_sched *s, struct cl_uthread *t, bool spawned)
{
    inject_push(s, t, spawned);
    cl_wake_one(s, NULL);
}

/* Move uthreads that foreign threads made ready to the run queue. */
static unsigned take_injected(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    struct cl_uthread *batch[INJECT_BATCH];
    unsigned n = 0;
    uint32_t len = 0;
    cl_spin_lock(&s->inject_lock);
    for (; n < INJECT_BATCH && s->inject_first; n++) {
        batch[n] = s->inject_first;
        s->inject_first = batch[n]->next;
    }
    if (!s->inject_first)
        s->inject_last = NULL;
    cl_store_relaxed(&s->n_inject, s->n_inject - n);
    cl_spin_unlock(&s->inject_lock);
    for (unsigned i = 0; i < n; i++)
        len = cl_runq_push(&k->runq, batch[i]);
    cl_note_ready(k);
    cl_count(&k->stats.injected, n);
    if (len > 1 && s->helped)
        cl_wake_one(s, k);
    return n;
}

void cl_flush(struct cl_kthread *k)
{
    const struct cl_work_source *source = &k->sched->source;
    if (!k->ran)
        return;
    k->ran = source->flush && source->flush(source->arg, k->index);
    if (!k->ran)
        k->retry_ns = CL_RETRY_NS;
}

static unsigned look_at_network(struct cl_kthread *k)
{
    const struct cl_work_source *source = &k->sched->source;
    cl_flush(k);
    unsigned frames = source->poll(source->arg, k->index, k->index);
    cl_count(&k->stats.polls, 1);
    cl_count(&k->stats.frames, frames);
    if (k->sched->n_kthreads > 1)
        cl_store_relaxed(&k->behind, frames >= CL_BEHIND_FRAMES ? k->behind + (k->behind < CL_BEHIND_POLLS) : 0);
    if (frames)
        k->ran = true; /* it may have answered some at once */
    /* If the flag is set as a quantum is over, the kthread goes on: else nothing would switch, and it would stay
     * set. */
    bool lost = cl_preempt_needed(k) && k->sched->cores && k->sched->cores->ops->lost(k->sched->cores, k->index);
    if (source->pending(source->arg, k->index) == 0 || lost || !cl_run_runner(k))
        return frames;
    cl_flush(k);
    return frames + 1;
}

/* Not when it was switched away from, but after timers and foreign threads were polled: what they have woken waited
 * while it ran, and would wait for its next quantum, too. */
void cl_requeue(struct cl_kthread *k)
{
    struct cl_uthread *t = k->over;
    const struct cl_work_source *source = &k->sched->source;
    k->over = NULL;
    if (!t)
        return;
    if (t->runner && source->preempted && source->preempted(source->arg, k->index, t, t->runner)) {
        if (k->sched->sleeps && k->sched->n_kthreads > 1)
            cl_wake_one(k->sched, k); /* there is more than we can do at once */
    } else {
        cl_uthread_ready(t);
    }
}

unsigned cl_turn(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    unsigned work = 0;
    cl_count(&k->turns, 1);
    if (cl_preempt_needed(k)) {
        if (cl_cede(k))
            return 1;
        if (k->asleep)
            return 0;
    }
    if (cl_load_relaxed(&k->timers.next_ns) != CL_NEVER) /* relaxed: only we arm in our heap */
        work += cl_timers_run(k, k, cl_sched_clock(s));
    if (work)
        k->ran = true;
    if (cl_unlikely(cl_load_relaxed(&k->in_flight)))
        work += cl_completions_check(k);
    if (cl_load_relaxed(&s->n_inject)) /* relaxed: re-checked under the lock, and before sleeping */
        work += take_injected(k);
    if (cl_unlikely(k->over != NULL))
        cl_requeue(k);
    cl_budget(k);
    if (cl_unlikely(k->network_first) && s->has_source) {
        k->network_first = false;
        work += look_at_network(k);
        if (k->over) /* a handler's quantum: it is queued before anything else runs */
            return work;
    }
    struct cl_uthread *t = cl_runq_pop(&k->runq);
    if (t) {
        cl_note_taken(k);
        cl_dispatch(k, t);
        work++;
        if (cl_preempt_needed(k) || cl_unlikely(k->over != NULL))
            return work;
    }
    if (s->has_source)
        work += look_at_network(k);
    else
        k->ran = false; /* nothing can wait to be sent */
    return work;
}

void cl_round(struct cl_kthread *k)
{
    if (cl_turn(k))
        cl_idle_over(k);
    else if (!k->asleep)
        cl_idle(k);
    if (cl_unlikely(cl_load_relaxed(&k->sched->stopping)))
        cl_drain_check(k->sched);
}

void cl_kthread_ended(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    cl_store_release(&k->ended, 1);
    __atomic_fetch_add(&s->n_ended, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &s->n_ended, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Say who we are, and wait until the iokernel knows it, if there is one that manages cores; nothing is ours then. */
static void begin(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    if (s->cores)
        cl_rseq_give_up();
    cl_store_release(&k->tid, (int32_t)syscall(SYS_gettid));
    if (!s->cores)
        return;
    syscall(SYS_futex, &k->tid, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    while (!cl_load_acquire(&s->go)) /* acquire: pairs with cl_sched_start */
        syscall(SYS_futex, &s->go, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    cl_export(k);
    k->preempt_pending = 1;
}

/* What the kernel takes of a thread's turn when it yields is a slice of the thread, 3 ms as a rule: a kthread that
 * yield-waits for its core would come after everybody else on that CPU for as long, the exit of a process that was
 * killed included. So ask for the shortest (Linux 6.12; sched(7), sched_runtime). Before that, or for a real-time
 * thread, it changes nothing. */
void cl_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {.size = sizeof a};
    _Static_assert(sizeof a == 48, "struct sched_attr, first version");
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) < 0)
        return;
    if (a.policy != SCHED_OTHER && a.policy != SCHED_BATCH && a.policy != SCHED_IDLE)
        return;
    a.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &a, 0);
}

void *cl_kthread_main(void *arg)
{
    struct cl_kthread *k = arg;
    struct cl_sched *s = k->sched;
    cl_kthread_bind(k);
    cl_loop_stack_bounds(k);
    void *signal_stack = cl_signal_stack_install();
    pthread_sigmask(SIG_SETMASK, NULL, &k->signals_blocked);
    /* Sleeps end when a timer is due, not up to 50 us later. Failing costs only that. */
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    cl_short_slices();
    if (k->trace && !s->cores) /* else it is switched away from as cores move */
        cl_tracer_watch_thread(k->trace);
    if (k->trace)
        cl_tracer_sample_thread(k->trace);
    begin(k);
    while (!cl_load_acquire(&s->ending)) /* acquire: pairs with cl_sched_stop */
        cl_round(k);
    if (k->trace)
        cl_tracer_sample_ends(k->trace);
    cl_signal_stack_remove(signal_stack);
    cl_kthread_bind(NULL);
    cl_kthread_ended(k);
    return NULL;
}
