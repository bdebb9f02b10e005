/* uthreads: switching, and what happens between one context and the next; spawn, join, yield, exit.
 *
 * A switch never goes through the loop if another uthread is ready and the budget lasts: the one that leaves picks the
 * next and says in k->after what has to be done once its own context is saved (be queued, release a lock, be joined, be
 * recycled). The one that arrives does it first of all. */
#include "runq.h"
#include "scope.h"
#include "wait.h"

#include <corelane/libos/uthread.h>

/* Take one of the budget. While something is in flight, what is left of it is negative, and time ends the run, too. */
static bool may_go_on(struct cl_kthread *k)
{
    if (k->budget > 0) {
        k->budget--;
        return true;
    }
    if (k->budget == 0 || cl_sched_clock(k->sched) - k->looked_ns >= CL_COMPLETIONS_NS)
        return false;
    k->budget++;
    return true;
}

/* Where an iokernel reads our signals, or has set our preemption flag, or something is in flight, or the budget is
 * spent. */
static CL_NOINLINE struct cl_uthread *pick_with_care(struct cl_kthread *k)
{
    struct cl_uthread *t = !cl_preempt_needed(k) && may_go_on(k) ? cl_runq_pop(&k->runq) : NULL;
    if (!t)
        return &k->loop;
    cl_note_taken(k);
    cl_note_switch(k);
    return t;
}

/* The uthread to run when the current one leaves: the oldest ready one, if the budget lasts; or the loop. */
static inline struct cl_uthread *pick_next(struct cl_kthread *k)
{
    if (cl_unlikely(k->watched || k->budget <= 0))
        return pick_with_care(k);
    struct cl_uthread *t = cl_runq_pop(&k->runq);
    if (!t)
        return &k->loop;
    k->budget--;
    cl_count(&k->stats.switches, 1);
    return t;
}

/* Make t runnable on k, and fetch help if that is more than k can do at once. */
static inline void ready_here(struct cl_kthread *k, struct cl_uthread *t)
{
    if (cl_unlikely(t->ready_tsc))
        t->ready_tsc = cl_clock_stamp(k->sched->clock);
    uint32_t len = cl_runq_push(&k->runq, t);
    cl_note_ready(k);
    if (len > 1 && k->sched->helped)
        cl_wake_one(k->sched, k);
}

static struct cl_uthread *joiner_of(uint64_t join)
{
    return (struct cl_uthread *)(uintptr_t)(join & ~CL_JOIN_IN_SCOPE);
}

static void finish_join(struct cl_kthread *k, struct cl_uthread *joiner, struct cl_uthread *t)
{
    uint64_t old = 0, in_scope = joiner->in_scope;
    joiner->result = 0;
    /* Release: the joiner's saved context; acquire: all that the ended uthread did. */
    bool waits = __atomic_compare_exchange_n(&t->join, &old, (uint64_t)(uintptr_t)joiner | in_scope, false,
                                             __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (!waits && old == CL_JOIN_DONE)
        cl_store_relaxed(&t->join, CL_JOIN_CLAIMED);
    else if (!waits)
        joiner->result = -EINVAL;
    if (in_scope)
        cl_spin_unlock(&joiner->join_guard);
    if (!waits)
        ready_here(k, joiner);
}

static void finish_exit(struct cl_kthread *k, struct cl_uthread *t)
{
    /* Release: what it did; acquire: the joiner's saved context. */
    uint64_t old = __atomic_exchange_n(&t->join, CL_JOIN_DONE, __ATOMIC_ACQ_REL);
    if (old == CL_JOIN_DETACHED)
        cl_stack_put(k, t);
    else if (old != 0)
        ready_here(k, joiner_of(old));
}

static CL_NOINLINE void after_rare(struct cl_kthread *k, enum cl_after_op op)
{
    switch (op) {
    case CL_AFTER_JOIN:
        finish_join(k, k->after.t, k->after.p);
        break;
    case CL_AFTER_EXIT:
        finish_exit(k, k->after.t);
        break;
    case CL_AFTER_FREE:
        cl_stack_put(k, k->after.t);
        break;
    case CL_AFTER_OVER:
        k->over = k->after.t;
        break;
    case CL_AFTER_FRONT:
        if (cl_load_relaxed(&k->front))
            ready_here(k, k->after.t);
        else
            cl_store_release(&k->front, k->after.t); /* release: its saved context */
        /* The loop is to see to it, whatever the preemption flag is by then. Last: an interrupt just now would cede,
         * and take this back (cl_cede_in_place). */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        k->preempt_pending = 1;
        break;
    case CL_AFTER_CALL: /* the loop sees to it, see cl_dispatch */
        k->after.op = op;
        break;
    default:
        break;
    }
}

/* What the next context does. Fields are written one by one, to which relaxed stores keep the compiler: it would make
 * one wide store of two, which waits for both its halves, and all of the next uthread with it. */
static inline void set_after(struct cl_kthread *k, enum cl_after_op op, struct cl_uthread *t, void *p)
{
    k->after.op = op;
    cl_store_relaxed(&k->after.t, t);
    cl_store_relaxed(&k->after.p, p);
}

/* They are read one by one, too: a wider load would wait for the stores to drain. */
static inline void after_switch(struct cl_kthread *k)
{
    enum cl_after_op op = k->after.op;
    k->after.op = CL_AFTER_NOTHING;
    if (op == CL_AFTER_READY)
        ready_here(k, k->after.t);
    else if (op == CL_AFTER_UNLOCK)
        cl_spin_unlock(k->after.p);
    else if (op != CL_AFTER_NOTHING)
        after_rare(k, op);
}

/* Before a switch: tell the sanitizers. `fake_stack`: where ASan keeps the leaver's, NULL if it ends. Always inline,
 * like all between it and the switch: TSan would take the end of a function for one of the next uthread's. */
static inline __attribute__((always_inline)) void announce(struct cl_uthread *next, void **fake_stack)
{
#if CL_TSAN
    __tsan_switch_to_fiber(next->fiber, 0);
#endif
#if CL_ASAN
    __sanitizer_start_switch_fiber(fake_stack, next->stack_lo, (size_t)(next->stack_top - next->stack_lo));
#endif
    (void)next;
    (void)fake_stack;
}

/* After a switch: do what the one that left asked for. */
static inline __attribute__((always_inline)) void arrive(void *fake_stack)
{
#if CL_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
    (void)fake_stack;
    struct cl_kthread *k = cl_kthread_self(); /* not the one that we left, perhaps */
    after_switch(k);
}

/* Not inlined: see switch.h. */
CL_NOINLINE void cl_switch_to(struct cl_kthread *k, struct cl_uthread *me, struct cl_uthread *next)
{
    k->current = next;
    announce(next, &me->fake_stack);
    cl_context_switch(&me->context, &next->context);
    arrive(me->fake_stack);
}

/* Switch away, and note how long that took: until it was made ready, and from then on. One that gives way is ready at
 * once. */
static CL_NOINLINE void switch_traced(struct cl_kthread *k, struct cl_uthread *me, enum cl_after_op op, void *p,
                                      bool to_loop)
{
    const struct cl_work_source *source = &k->sched->source;
    struct cl_trace_open *o = me->runner && source->message ? source->message(source->arg, k->index, me->runner) : NULL;
    bool gives_way = op != CL_AFTER_UNLOCK && op != CL_AFTER_JOIN;
    bool noted = o || k->trace->mode == CL_TRACE_FULL;
    struct cl_trace_wait w = {.what = k->waits_for.what,
                              .object = (uint64_t)(uintptr_t)k->waits_for.object,
                              .holder = k->waits_for.holder,
                              .uthread = (uint64_t)(uintptr_t)me,
                              .begin = cl_tracer_stamp(k->trace)};
    const uint64_t *stages = k->waits_for.stages;
    k->waits_for = (struct cl_waits_for){0};
    me->ready_tsc = noted && !gives_way ? CL_READY_ASKED : 0;
    set_after(k, op, me, p);
    cl_switch_to(k, me, to_loop ? &k->loop : pick_next(k));
    if (!noted)
        return;
    k = cl_kthread_self(); /* not the one that we left, perhaps */
    uint64_t now = cl_tracer_stamp(k->trace);
    uint64_t ready = gives_way ? w.begin : me->ready_tsc > CL_READY_ASKED ? me->ready_tsc : now;
    me->ready_tsc = 0;
    if (stages)
        cl_tracer_parts(&w, stages, ready);
    cl_tracer_waited(k->trace, o, &w, ready, now);
}

int cl_block_to_loop(struct cl_kthread *k, enum cl_after_op op)
{
    struct cl_uthread *me = k->current;
    if (cl_unlikely(cl_traces_waits(k, me))) {
        switch_traced(k, me, op, NULL, true);
        return 0;
    }
    set_after(k, op, me, NULL);
    cl_switch_to(k, me, &k->loop);
    return 0;
}

/* Inline here: it is most of what a yield or a join is. */
inline __attribute__((always_inline)) int cl_block(struct cl_kthread *k, enum cl_after_op op, void *p)
{
    struct cl_uthread *me = k->current;
    if (cl_unlikely(cl_traces_waits(k, me))) {
        switch_traced(k, me, op, p, false);
        return 0;
    }
    set_after(k, op, me, p);
    cl_switch_to(k, me, pick_next(k));
    return 0;
}

/* Somebody sleeps in a join of t, whose function has returned. Whether he is ours to go to: a cancel may take back who
 * is in a scope, nobody else may touch another one. */
static inline __attribute__((always_inline)) bool claim_joiner(struct cl_uthread *t, uint64_t join)
{
    if (cl_unlikely(join & CL_JOIN_IN_SCOPE))
        return __atomic_compare_exchange_n(&t->join, &join, CL_JOIN_CLAIMED, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    cl_store_relaxed(&t->join, CL_JOIN_CLAIMED);
    return true;
}

/* The end of every uthread. Runs on its stack; does not come back, so it must not be called either: see switch.h. */
static inline __attribute__((always_inline)) void leave(void)
{
    struct cl_kthread *k = cl_kthread_self();
    struct cl_uthread *me = k->current, *next;
    cl_count_finished(k);
    uint64_t join = cl_load_acquire(&me->join); /* acquire: the joiner's saved context */
    if (join > CL_JOIN_CLAIMED && k->budget > 0 && claim_joiner(me, join)) {
        /* Go straight to the joiner, which recycles us. */
        next = joiner_of(join);
        k->budget--;
        cl_note_switch(k);
        k->after.op = CL_AFTER_NOTHING;
    } else {
        next = pick_next(k);
        set_after(k, join == CL_JOIN_DETACHED ? CL_AFTER_FREE : CL_AFTER_EXIT, me, NULL);
    }
    k->current = next;
    announce(next, NULL);
    cl_context_switch(&me->context, &next->context);
    __builtin_unreachable();
}

/* Where a fresh context starts. */
static void enter(void)
{
    arrive(NULL);
    struct cl_uthread *me = cl_kthread_self()->current;
    if (cl_likely(!me->home))
        me->fn(me->arg);
    else
        cl_scope_run_member(me);
    if (cl_unlikely(me->scope))
        cl_scope_end(me, 0);
    leave();
}

void cl_uthread_prepare(struct cl_uthread *t, cl_uthread_fn fn, void *arg, uint64_t join)
{
    t->fn = fn;
    t->arg = arg;
    t->local = t->memory = NULL;
    t->runner = NULL;
    cl_store_relaxed(&t->doing, NULL);
    t->preemptible = false;
    t->scope = t->home = NULL;
    t->shields = 0;
#if CL_ASAN
    t->fake_stack = NULL;
#endif
    cl_store_relaxed(&t->join, join); /* published with the id, or by the run queue */
    cl_context_prepare(&t->context, t->stack_top, enter, t->sched->fp_control);
#if CL_TSAN
    t->fiber = __tsan_create_fiber(0);
#endif
}

void *cl_uthread_take_stack(struct cl_uthread *t, uint32_t bytes)
{
    char *top = t->stack_top - (((uint64_t)bytes + 63) & ~63ull);
    t->arg = top;
    cl_context_prepare(&t->context, top, enter, t->sched->fp_control);
    return top;
}

static cl_uthread_id id_of(const struct cl_uthread *t)
{
    return (uint64_t)cl_load_relaxed(&t->gen) << 32 | (t->index + 1);
}

int cl_uthread_spawn(cl_uthread_fn fn, void *arg, cl_uthread_id *out)
{
    struct cl_kthread *k = cl_kthread_self();
    if (cl_unlikely(!k))
        return -EPERM;
    struct cl_uthread *t = cl_stack_get(k);
    if (cl_unlikely(!t))
        return -EAGAIN;
    cl_uthread_prepare(t, fn, arg, out ? 0 : CL_JOIN_DETACHED);
    if (out)
        *out = id_of(t);
    cl_uthread_start(k, t);
    return 0;
}

void cl_uthread_start(struct cl_kthread *k, struct cl_uthread *t)
{
    cl_count(&k->stats.spawned, 1);
    uint32_t len = cl_runq_push(&k->runq, t);
    cl_note_ready(k);
    if (k->sched->helped) {
        if (len > 1)
            cl_wake_one(k->sched, k);
        else
            cl_wake_for_lone(k);
    }
}

/* The live object that an id names, or NULL. */
static struct cl_uthread *find(struct cl_sched *s, cl_uthread_id id)
{
    uint32_t index = (uint32_t)id - 1;
    if (index >= cl_load_relaxed(&s->created))
        return NULL;
    struct cl_uthread *t = &s->uthreads[index];
    return cl_load_relaxed(&t->gen) == (uint32_t)(id >> 32) ? t : NULL;
}

/* Sleep until t ends. 0; else t was not joined. */
static inline int sleep_in_join(struct cl_kthread *k, struct cl_uthread *t)
{
    struct cl_uthread *me = k->current;
    cl_waits_for(k, CL_TRACE_WAITS_JOIN, t, 0);
    cl_block(k, CL_AFTER_JOIN, t);
    return me->result;
}

/* The same where a cancel may end it. */
static CL_NOINLINE int sleep_in_join_in_scope(struct cl_kthread *k, struct cl_uthread *t)
{
    struct cl_uthread *me = k->current;
    struct cl_waiter w;
    cl_waiter_init(&w, me, &me->join_guard);
    w.joins = t;
    int rc = cl_wait_register(&w);
    if (rc)
        return rc;
    cl_spin_lock(&me->join_guard);
    if (w.cancelled) {
        cl_spin_unlock(&me->join_guard);
        rc = -ECANCELED;
    } else {
        me->in_scope = CL_JOIN_IN_SCOPE;
        rc = sleep_in_join(k, t);
        me->in_scope = 0;
    }
    cl_wait_end(&w);
    return w.result ? w.result : rc;
}

bool cl_join_withdraw(struct cl_waiter *w)
{
    /* With the joiner's guard and cancel_lock: it is still in this very join, if t names it. */
    uint64_t join = (uint64_t)(uintptr_t)w->t | CL_JOIN_IN_SCOPE;
    return __atomic_compare_exchange_n(&w->joins->join, &join, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

int cl_uthread_join(cl_uthread_id id)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    struct cl_uthread *t = find(k->sched, id);
    if (!t)
        return -ESRCH;
    if (t == k->current)
        return -EDEADLK;
    uint64_t join = cl_load_acquire(&t->join); /* acquire: all that it did */
    if (join == CL_JOIN_DONE) {
        /* The CAS lets one of several joiners, which is misuse, have it. */
        if (!__atomic_compare_exchange_n(&t->join, &join, CL_JOIN_CLAIMED, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return -ESRCH;
    } else if (join != 0) {
        return -EINVAL;
    } else {
        int rc = cl_may_be_cancelled(k->current) ? sleep_in_join_in_scope(k, t) : sleep_in_join(k, t);
        if (cl_unlikely(rc))
            return rc;
        k = cl_kthread_self();
    }
    cl_stack_put(k, t);
    return 0;
}

int cl_uthread_detach(cl_uthread_id id)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k)
        return -EPERM;
    struct cl_uthread *t = find(k->sched, id);
    if (!t)
        return -ESRCH;
    uint64_t join = 0;
    if (__atomic_compare_exchange_n(&t->join, &join, CL_JOIN_DETACHED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return 0;
    if (join == CL_JOIN_DONE &&
        __atomic_compare_exchange_n(&t->join, &join, CL_JOIN_CLAIMED, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        cl_stack_put(k, t);
        return 0;
    }
    return -EINVAL;
}

bool cl_uthread_others_ready(void)
{
    const struct cl_kthread *k = cl_kthread_self();
    return k && k->budget > 0 && cl_runq_len(&k->runq) != 0;
}

int cl_uthread_yield(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    cl_waits_for(k, CL_TRACE_WAITS_YIELD, NULL, 0);
    return cl_block(k, CL_AFTER_READY, NULL);
}

int cl_uthread_exit(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    if (cl_unlikely(k->current->scope))
        cl_scope_end(k->current, 0);
    leave();
    return 0;
}

struct cl_uthread *cl_uthread_self(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k ? k->current : NULL;
}

cl_uthread_id cl_uthread_id_of(const struct cl_uthread *t)
{
    return t ? id_of(t) : 0;
}

void *cl_uthread_local(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k && k->current ? k->current->local : NULL;
}

void **cl_uthread_memory(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k && k->current ? &k->current->memory : NULL;
}

int cl_uthread_set_local(void *local)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k || !k->current)
        return -EPERM;
    k->current->local = local;
    return 0;
}

uint64_t cl_uthread_stack_left_bytes(void)
{
    struct cl_kthread *k = cl_kthread_self();
    char *here = __builtin_frame_address(0);
    return k && k->current && !k->on_loop_stack ? (uint64_t)(here - k->current->stack_lo) : 0;
}

int cl_sched_block(struct cl_spin *held)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    cl_waits_for(k, CL_TRACE_WAITS_OTHER, held, 0);
    return cl_block(k, CL_AFTER_UNLOCK, held);
}

void cl_uthread_ready(struct cl_uthread *t)
{
    struct cl_kthread *k = cl_kthread_self();
    if (cl_likely(k && k->sched == t->sched)) {
        ready_here(k, t);
    } else {
        if (cl_unlikely(t->ready_tsc))
            t->ready_tsc = cl_clock_stamp(t->sched->clock);
        cl_inject(t->sched, t, false);
    }
}

void cl_uthread_doing(const struct cl_doing *doing)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k)
        cl_store_release(k->current ? &k->current->doing : &k->doing, doing); /* release: what it points to */
}

void *cl_runner_local(void)
{
    const struct cl_kthread *k = cl_kthread_self();
    return k && k->current ? k->current->runner : NULL;
}

void cl_runner_set_local(void *local)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k && k->current)
        k->current->runner = local;
}
