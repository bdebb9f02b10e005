/* The quantum: a uthread, or a request of one, that has run for so long while others wait is told to let them go first.
 *
 * By its kthread's preemption flag, for probes; and where that is wanted by the signal, too, for code that may be
 * interrupted and has no probes (libos/sched/interrupt.c). Both name what they are for (`quantum_over`), so that what
 * comes after it is not preempted in its place.
 *
 * A kthread has at most one signal of these that its handler has not seen, and gets the next one a quantum after that
 * at the earliest. So one that is kept from running, or blocks the signal, does not have the loop make calls on end.
 *
 * Tests: tests/iokernel/cores/c/choice.c, tests/libos/sched/c/signalled.c. */
#include "../state/internal.h"

/* Whether k may be sent a signal: it has seen the last one, and if that was for the same work, a quantum ago, since the
 * switch takes its time once the handler has begun. */
static bool may_signal(struct io_member *m, uint32_t seen, uint64_t quantum, uint64_t now)
{
    if (seen != m->quantum_signals)
        return false;
    if (m->signalled != m->switches)
        return true;
    if (m->next_quantum_signal == 0)
        m->next_quantum_signal = now + quantum;
    return (int64_t)(now - m->next_quantum_signal) >= 0;
}

static void send_signal(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_allotment *a = &k->app->cores;
    struct io_member *m = &k->member;
    if (!may_signal(m, cl_load_relaxed(&io_lines_of(k)->quantum_seen), a->quantum_ticks, now))
        return;
    cl_bucket_refill(&k->app->wakes, loop->now);
    if (!cl_bucket_open(&k->app->wakes)) {
        io_count(loop->cores.stats.interrupts_limited, 1);
        return;
    }
    m->signalled = m->switches;
    m->next_quantum_signal = 0;
    cl_store_relaxed(&m->state->quantum_signals,
                     m->quantum_signals + 1); /* its handler may run before the call returns */
    if (io_thread_signal(loop, k, a->signal) < 0) {
        cl_store_relaxed(&m->state->quantum_signals, m->quantum_signals);
        io_count(loop->cores.stats.interrupts_failed, 1);
        return;
    }
    m->quantum_signals++;
    io_count(loop->cores.stats.quantum_signals, 1);
    io_count(a->stats.quantum_signals, 1);
}

void io_check_quantum(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_allotment *a = &k->app->cores;
    struct io_member *m = &k->member;
    const struct cl_signals *s = m->signals.shared;
    uint32_t switches = cl_load_relaxed(&s->switches);
    if (switches != m->switches || !cl_load_relaxed(&s->in_uthread)) {
        m->switches = switches;
        m->switches_since = now;
        return;
    }
    if (m->signals.waiting == 0 || now - m->switches_since < a->quantum_ticks)
        return;
    if (!m->preempt_quantum) {
        m->preempt_quantum = true;
        c->n_quantum++;
        io_count(a->stats.quantum, 1);
        cl_store_relaxed(&m->state->quantum_over, switches);
        io_preempt_store(k);
    }
    if (a->quantum_signal && a->signal)
        send_signal(loop, k, now);
}

void io_watch_quanta(struct io_cores *c)
{
    for (uint32_t i = 0; i < c->n && c->n_quantum; i++) {
        struct io_kthread *k = c->core[i].owner;
        if (!k || !k->member.preempt_quantum)
            continue;
        const struct cl_signals *s = k->member.signals.shared;
        if (cl_load_relaxed(&s->switches) != k->member.switches || !cl_load_relaxed(&s->in_uthread))
            io_end_quantum(c, k);
    }
}

void io_end_quantum(struct io_cores *c, struct io_kthread *k)
{
    if (!k->member.preempt_quantum)
        return;
    k->member.preempt_quantum = false;
    c->n_quantum--;
    io_preempt_store(k);
}
