/* Cores that others may take (docs/cores.md): polling the flag, ceding, exporting positions; and the quantum.
 *
 * A kthread polls its preemption flag (cl_preempt_needed) wherever it chooses what runs next, and uthreads do by
 * probes. If its core is lost:
 *   in the loop          it cedes the core there (cl_cede)
 *   on a uthread         that one is switched away from, put in front, and the loop cedes; without siblings, who
 *                        could go on with it, the kthread waits where it is (cede_here)
 *   where that may not   the kthread waits in place (cl_cede_in_place): the caller has frames of another language
 *   switch stacks        run-time on the stack, or was interrupted in the middle of foreign code
 *
 * Siblings may take what a kthread that has ceded has ready, its inbox, its frames and its timers at once (steal.c),
 * but not the uthread that it waits in. The uthread in front is the first to run when the core comes back. It is not at
 * the head of the run queue's ring, since a thief that has copied slots relies on head never going back.
 *
 * Tests: tests/libos/sched/c/cede.c. */
#include "runq.h"

#include <corelane/libos/probe.h>

void cl_export(struct cl_kthread *k)
{
    const struct cl_work_source *source = &k->sched->source;
    cl_note_ready(k);
    cl_note_taken(k);
    cl_timers_export(k);
    cl_completions_export(k);
    if (source->export_positions)
        source->export_positions(source->arg, k->index);
}

struct cl_uthread *cl_take_front(struct cl_kthread *v)
{
    if (!cl_load_relaxed(&v->front))
        return NULL;
    /* Acquire: its saved context. */
    return __atomic_exchange_n(&v->front, NULL, __ATOMIC_ACQ_REL);
}

void cl_taken_begin(struct cl_kthread *k, struct cl_trace_taken *taken)
{
    struct cl_cores *c = k->sched->cores;
    struct cl_core_owners o;
    *taken = (struct cl_trace_taken){.begin = cl_tracer_stamp(k->trace)};
    if (!c->ops->owners || !c->ops->owners(c, k->index, &o))
        return;
    struct cl_trace_taken unseen;
    if (cl_tracer_lost(k->trace, &o, &unseen)) /* it was, and is ours by now */
        cl_tracer_away(k->trace, &unseen);
    if (!o.mine && o.lost_tsc > cl_load_relaxed(&k->trace->had)) /* k may have had no CPU since */
        taken->begin = cl_min(taken->begin, o.lost_tsc);
    taken->cpu = o.cpu + 1;
    taken->by = o.mine ? 0 : o.owner;
}

/* Tell siblings that what we have is theirs to take, and wait for a core. Async-signal-safe. */
static void cede_core(struct cl_kthread *k)
{
    struct cl_cores *c = k->sched->cores;
    bool one = k->current || cl_load_relaxed(&k->front), was_away = k->away;
    k->away = true;
    cl_store_relaxed(&k->ceded, 1);
    if (one) { /* the uthread that ran waits for a core, like those in the queue: let the iokernel see it */
        cl_store_relaxed(&k->runq.beyond, k->runq.beyond + 1); /* relaxed: only we change it */
        cl_note_ready(k);
    }
    struct cl_trace_taken taken = {0};
    if (k->trace)
        cl_taken_begin(k, &taken);
    c->ops->cede(c, k->index);
    if (k->trace) {
        taken.end = cl_tracer_stamp(k->trace);
        cl_tracer_away(k->trace, &taken);
    }
    if (one) {
        __atomic_fetch_add(&k->runq.passed, 1, __ATOMIC_RELAXED); /* thieves add to it, too */
        cl_note_taken(k);
    }
    cl_store_relaxed(&k->ceded, 0);
    cl_store_relaxed(&k->sched->help_asked, 0);
    k->away = was_away;
}

void cl_cede_in_place(struct cl_kthread *k)
{
    struct cl_cores *c = k->sched->cores;
    do {
        k->preempt_pending = 0;
        cede_core(k);
    } while (k->preempt_pending &&
             c->ops->lost(c, k->index)); /* another iokernel came just when we got up: see on_interrupt */
    /* In the handler of an interrupt that found the loop between a uthread that was put in front and the look at that:
     * the loop has not seen to it yet. */
    if (cl_load_relaxed(&k->front))
        k->preempt_pending = 1;
}

/* Something that only a kthread with a core gets done. */
static bool has_work(struct cl_kthread *k)
{
    const struct cl_sched *s = k->sched;
    return cl_load_relaxed(&k->front) || cl_runq_len(&k->runq) ||
           (s->has_source && s->source.pending(s->source.arg, k->index));
}

bool cl_cede(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    struct cl_cores *c = s->cores;
    k->preempt_pending = 0;
    if (c && c->ops->lost(c, k->index) && !cl_load_relaxed(&s->ending)) {
        cl_flush(k); /* what was sent before */
        if (cl_load_relaxed(&k->in_flight))
            cl_completions_poll(k, k);
        cl_requeue(k);
        cl_export(k);
        if (k->wakefd) { /* an adopted one does not wait here, but goes back to its caller */
            struct cl_uthread *front = cl_take_front(k);
            if (front)
                cl_uthread_ready(front);
            cl_park_kthread(k);
            if (k->asleep)
                return false;
        } else if (has_work(k)) {
            if (k->searching)
                cl_idle_over(k);
            cede_core(k);
        } else {
            cl_park_kthread(k);
        }
        cl_export(k); /* siblings may have taken what we had; perhaps to another iokernel */
    }
    struct cl_uthread *t = cl_take_front(k);
    if (t)
        cl_dispatch(k, t);
    return t != NULL;
}

/* Relaxed: advice to the iokernel, which loses nothing but time if it sees it late. */
static void note_call(uint32_t in_call)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k)
        cl_store_relaxed(&k->signals->in_call, in_call);
}

void cl_sched_call_begin(void)
{
    note_call(1);
}

void cl_sched_call_end(void)
{
    note_call(0);
}

/* Whether something waits for this kthread while its uthread runs. */
static bool others_wait(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    uint64_t next_ns = cl_load_relaxed(&k->timers.next_ns);
    if (cl_runq_len(&k->runq) || cl_load_relaxed(&s->n_inject) || (next_ns != CL_NEVER && next_ns <= cl_sched_clock(s)))
        return true;
    return s->has_source && (s->source.pending(s->source.arg, k->index) || s->source.ready(s->source.arg, k->index));
}

/* The uthread has run for a quantum: let others go first. The loop puts it behind all that is ready by then, what
 * timers and foreign threads have woken included (cl_requeue), so that those that run for long share the processor;
 * what comes from the network goes before it, since the loop polls that first. */
static void quantum_over(struct cl_kthread *k)
{
    if (!others_wait(k)) {
        k->switched_tsc += k->quantum_ticks / 4; /* a check of the queues costs more than a probe should */
        return;
    }
    k->network_first = true;
    cl_count(&k->stats.preempted, 1);
    cl_waits_for(k, CL_TRACE_WAITS_QUANTUM, NULL, 0);
    cl_block_to_loop(k, CL_AFTER_OVER);
}

/* Whether the way through the loop would serve nobody: there is no sibling, and nothing that only the loop sees to. */
static bool stays(const struct cl_kthread *k)
{
    bool awaits = k->wakefd || cl_load_relaxed(&k->in_flight);
    return k->sched->n_kthreads == 1 && !awaits && !cl_traces_waits(k, k->current);
}

/* The core waits for us to go; and what the loop touches is cold, there and back. */
static void cede_here(struct cl_kthread *k)
{
    cl_flush(k); /* what was sent before */
    cl_cede_in_place(k);
    k->ran = true; /* it goes on */
    cl_note_switch(k);
    cl_export(k); /* perhaps to another iokernel */
}

static CL_NOINLINE void look(struct cl_kthread *k)
{
    struct cl_cores *c = k->sched->cores;
    if (k->away)
        return;
    if (c && cl_preempt_needed(k) && c->ops->lost(c, k->index)) {
        cl_count(&k->stats.cedes, 1);
        if (k->no_switch) {
            cl_cede_in_place(k);
        } else if (stays(k)) {
            cede_here(k);
        } else {
            cl_waits_for(k, CL_TRACE_WAITS_CORE, NULL, 0);
            cl_block_to_loop(k, CL_AFTER_FRONT);
        }
        return;
    }
    /* Where an iokernel manages the core, it says when a quantum is over, and of what. */
    bool over = c && c->ops->managed(c)
                    ? c->ops->quantum_over(c, k->index)
                    : k->quantum_ticks && cl_clock_stamp(k->sched->clock) - k->switched_tsc >= k->quantum_ticks;
    if (over && !k->no_switch)
        quantum_over(k);
}

CL_PROBE_TEXT void cl_sched_preempt_poll(void)
{
    struct cl_kthread *k = cl_kthread_self();
    struct cl_uthread *me = k ? k->current : NULL;
    if (!me)
        return;
    bool marked = me->preemptible;
    me->preemptible = false; /* what follows may not be interrupted like the caller's code */
    look(k);
    me->preemptible = marked;
}

void cl_preempted(void)
{
    struct cl_kthread *k = cl_kthread_self();
    struct cl_uthread *me = k->current;
    struct cl_cores *c = k->sched->cores;
    bool marked = me->preemptible;
    me->preemptible = false;
    if (c->ops->lost(c, k->index))
        k->preempt_pending = 1; /* this does not depend on the preemption flag in the arena */
    look(k);
    me->preemptible = marked;
}

CL_PROBE_TEXT int cl_preemptible_begin(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k || !k->current || k->no_switch)
        return -EPERM;
    k->current->preemptible = true;
    return 0;
}

CL_PROBE_TEXT void cl_preemptible_end(void)
{
    struct cl_kthread *k = cl_kthread_self();
    if (k && k->current)
        k->current->preemptible = false;
}
