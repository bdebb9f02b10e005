/* The port's side of docs/cores.md: where the words are, waiting for a core, telling the iokernel who the kthreads are.
 *
 * Waiting (wait_core) is async-signal-safe, since a kthread that is interrupted in the middle of foreign code waits
 * inside the handler: it stores words, yields, sleeps on a futex, and calls nothing else.
 *
 * Getting a waiter out when the iokernel has died, or the kthreads are to end: its condition is changed first
 * (`managed`, `released`), then its futex is woken until it says that it waits no more. Once would not do: it may be
 * between the last check of the condition and its sleep, and the futex's value is not ours to change. */
#include "internal.h"

#include <corelane/runtime/clock.h>

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define YIELDS_ALONE 16       /* yields in a row that came back at once: nobody else is runnable here */
#define YIELD_AT_ONCE_NS 1500 /* less than two switches */
#define END_WAIT_US 50
#define UNSIGNALLED_NS 4000000 /* less than the iokernel waits for one to begin (start_us) */

static struct port *port_of_cores(struct cl_cores *c)
{
    return cl_container_of(c, struct port, cores);
}

static void wake_futex(const uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static const struct cl_state_kthread *slot_of(const struct port_arena *a, unsigned k)
{
    return &a->slots[a->slot + k];
}

/* The core that k is to run on; NULL if the iokernel has not given it any. */
static const struct cl_state_core *core_of(const struct port_arena *a, unsigned k)
{
    /* Acquire: the core's owner was stored before it. */
    uint32_t cpu = (uint32_t)cl_load_acquire(&slot_of(a, k)->cpu);
    return cpu < a->n_cores ? &a->cores[cpu] : NULL;
}

static bool is_owned(const struct port_arena *a, unsigned k, const struct cl_state_core *core)
{
    return core && cl_load_acquire(&core->owner) == a->slot + k + 1;
}

static bool owns(const struct port_arena *a, unsigned k)
{
    return is_owned(a, k, core_of(a, k));
}

/* Whether it still makes sense to wait for this iokernel. */
static bool waits_for(struct port *port, const struct port_arena *a)
{
    /* Acquire: with `managed` comes the mapping behind `view`. */
    return cl_load_acquire(&port->managed) == a && !cl_load_acquire(&port->released);
}

/* Wake the owner for whom k ceded, if it sleeps. Returns whether a wake was made. */
static bool wake_owner(const struct port_arena *a, unsigned k)
{
    const struct cl_state_core *core = core_of(a, k);
    if (!core || !cl_load_acquire(&core->wake))
        return false;
    uint32_t owner = cl_load_acquire(&core->owner);
    if (owner == 0 || owner > CL_SHM_MAX_SLOTS || owner == a->slot + k + 1)
        return false;
    wake_futex(&a->slots[owner - 1].grant);
    return true;
}

/* Lines that the iokernel has read since k wrote them, and that k writes when it cedes a core or begins: their way
 * here takes as long as that to the other core and back, each, and k waits for it at its fences. */
static void fetch_lines(struct port_arena *a, unsigned k)
{
    cl_prefetch_write(&port_lines(a, k)->park);
    cl_prefetch_write(&port_lines(a, k)->signals);
}

static void say(struct port_arena *a, unsigned k, uint32_t state)
{
    cl_store_relaxed(&port_lines(a, k)->park, state);
    cl_fence_seq_cst(); /* before owner and grant are read, see docs/cores.md, lost wake-ups */
}

/* sched_yield() without libc's page of code and the page of its address: right after a switch of address spaces each
 * page that is touched costs a walk of the page tables, on both sides. */
static void yield_now(void)
{
#if defined(__x86_64__)
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "0"((long)SYS_sched_yield) : "rcx", "r11", "memory");
#else
    sched_yield();
#endif
}

/* The loop sleeps when it knows of nothing to do; the caller has stored what it is to see, and fenced. */
static void rouse_loop(struct port_arena *a)
{
    if (a->never_sleeps || !cl_load_relaxed(&a->loop->sleeping))
        return;
    cl_store_relaxed(&port_lines(a, 0)->rung_tsc, cl_tsc());
    uint64_t one = 1;
    ssize_t ignored = write(a->doorbell, &one, sizeof one); /* EAGAIN: a ring is pending anyway */
    (void)ignored;
}

/* One wait. It ends when k owns its core and its grant has changed from `seen`: the grant follows the owner, and
 * without it the iokernel would not know which of its words we act on. */
struct wait {
    bool parked; /* without work */
    bool lost;   /* k was not the owner some time since `seen`: only a new grant ends it */
    uint32_t seen;
    uint64_t deadline_tsc;             /* or this, if k owned its core all the time; UINT64_MAX: never, 0: at once */
    const struct cl_park_poll *polled; /* NULL: none */
    bool done;                         /* it has seen something */
    uint64_t yield_until_tsc;          /* yield-wait for what it polls for, as long as k owns its core */
    unsigned alone;                    /* yields in a row that came back at once */
    uint64_t back_tsc;                 /* the last yield or sleep came back */
    bool woke;                         /* the owner for whom we ceded */
};

static void sleep_on_grant(const struct port_arena *a, unsigned k, const struct wait *w, uint32_t grant,
                           int64_t timeout_ns)
{
    const uint32_t *word = &slot_of(a, k)->grant;
    struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    if (w->polled && !w->done && w->polled->sleep(w->polled->arg, word, grant, timeout_ns))
        return;
    /* EAGAIN, EINTR, ETIMEDOUT: re-check. */
    syscall(SYS_futex, word, FUTEX_WAIT, grant, timeout_ns < 0 ? NULL : &ts, NULL, 0);
}

/* What one says that waits so. */
static uint32_t state_of(const struct wait *w, bool yielding)
{
    if (w->parked)
        return yielding ? CL_KTHREAD_PARKED_YIELDING : CL_KTHREAD_PARKED;
    return yielding ? CL_KTHREAD_CEDED_YIELDING : CL_KTHREAD_CEDED;
}

/* Wait once, by a yield or asleep. `grant` was read before the condition was checked. To yield-wait for something on a
 * core that is another's would take half of it from that one. */
static void wait_once(struct port_arena *a, unsigned k, struct wait *w, uint32_t grant,
                      const struct cl_state_core *core, bool mine, uint32_t *said)
{
    bool yielding = (cl_load_relaxed(&slot_of(a, k)->yield_wait) && w->alone < YIELDS_ALONE) ||
                    (mine && cl_tsc() < w->yield_until_tsc);
    uint32_t state = state_of(w, yielding);
    if (state != *said) {
        say(a, k, state);
        *said = state;
        return; /* re-check after the fence */
    }
    uint64_t now = cl_tsc();
    const struct cl_clock *clock = cl_clock_default();
    cl_store_relaxed(&port_lines(a, k)->signals.left_tsc, (uint32_t)now); /* see cl_signals, as the other two */
    if (yielding) {
        yield_now();
        /* All lines that are read next come together: which one the owner's is stands in the slot, and is as a rule
         * what it was. */
        cl_prefetch(core);
        cl_prefetch(slot_of(a, k));
        fetch_lines(a, k);
        w->back_tsc = cl_tsc();
        bool at_once = cl_ticks_to_ns(clock, (int64_t)(w->back_tsc - now)) < YIELD_AT_ONCE_NS;
        w->alone = at_once ? w->alone + 1 : 0;
    } else if (!mine || w->lost || now < w->deadline_tsc) { /* else it is time, since it was checked */
        /* One that was stopped, and evicted, cedes when nobody polls any more; one that parks is not to be charged
         * for the time from here on. */
        rouse_loop(a);
        /* A timer that is due brings no core: the iokernel sees it in the signals and decides. */
        bool timed = w->deadline_tsc != UINT64_MAX && w->deadline_tsc > now;
        int64_t ns = timed ? cl_ticks_to_ns(clock, (int64_t)(w->deadline_tsc - now)) + 1 : -1;
        sleep_on_grant(a, k, w, grant, a->most_sleep_ns && (ns < 0 || ns > a->most_sleep_ns) ? a->most_sleep_ns : ns);
        w->back_tsc = cl_tsc();
    }
}

/* Wait until k owns a core of `a`, as `w` says; false: there is nothing to wait for any more. */
static bool wait_owner(struct port *port, struct port_arena *a, unsigned k, struct wait *w, uint32_t said)
{
    for (;;) {
        if (!waits_for(port, a))
            return false;
        uint32_t grant = cl_load_acquire(&slot_of(a, k)->grant); /* before the owner: see sleep_on_grant */
        const struct cl_state_core *core = core_of(a, k);
        bool mine = is_owned(a, k, core);
        w->lost |= !mine;
        if (w->polled && !w->done && w->polled->done(w->polled->arg)) {
            w->done = true;
            cl_fence_seq_cst(); /* what it said in the signals before the loop's flag */
            rouse_loop(a);
        }
        bool up = w->done || cl_tsc() >= w->deadline_tsc;
        if (mine && (grant != w->seen || (!w->lost && up)))
            return true;
        /* Not before it has said that it waits: the wake takes some microseconds, or lets the other one run at once,
         * and the iokernel would interrupt a kthread that is about to be out of the way. */
        if (!mine && !w->woke && said != CL_KTHREAD_RUNNING)
            w->woke = wake_owner(a, k);
        wait_once(a, k, w, grant, core, mine, &said);
    }
}

/* k runs: say which grant it acts on. */
static void act(struct port_arena *a, unsigned k)
{
    uint32_t grant = cl_load_acquire(&slot_of(a, k)->grant), *acted = &port_lines(a, k)->signals.acted;
    if (grant != cl_load_relaxed(acted))
        cl_store_release(acted, grant); /* release: whoever sees it sees RUNNING */
}

/* The whole of a wait. The iokernel may take the core from one that it sees parked while that one gets up by itself, so
 * the owner's word is re-checked after RUNNING was said. */
static void wait_core(struct port *port, struct port_arena *a, unsigned k, struct wait *w)
{
    struct port_waiter *me = &port->waiters[k];
    uint32_t said = cl_load_relaxed(&port_lines(a, k)->park);
    cl_store_relaxed(&me->waiting, 1); /* and a fence before `managed` and `released` are read, see end_waits */
    if (said == CL_KTHREAD_RUNNING) {  /* the core waits for that word, too, and a fence for lines that are far away */
        said = state_of(w, cl_load_relaxed(&slot_of(a, k)->yield_wait));
        say(a, k, said);
    } else {
        cl_fence_seq_cst();
    }
    while (wait_owner(port, a, k, w, said)) {
        cl_store_relaxed(&port_lines(a, k)->signals.back_tsc, (uint32_t)w->back_tsc);
        say(a, k, CL_KTHREAD_RUNNING);
        act(a, k);
        if (owns(a, k))
            break;
        *w = (struct wait){.lost = true, .seen = port_lines(a, k)->signals.acted};
        said = CL_KTHREAD_RUNNING;
    }
    cl_store_relaxed(&port_lines(a, k)->park,
                     CL_KTHREAD_RUNNING); /* relaxed: no iokernel reads it, if it ended early */
    me->noticed = false;
    cl_store_release(&me->waiting, 0);
}

static bool cores_managed(struct cl_cores *c)
{
    return cl_load_acquire(&port_of_cores(c)->managed) != NULL;
}

/* Async-signal-safe: k's own words. */
static void note_lost(struct port *port, struct port_arena *a, unsigned k)
{
    if (port->waiters[k].noticed)
        return;
    port->waiters[k].noticed = true;
    cl_store_relaxed(&port_lines(a, k)->signals.lost_tsc, (uint32_t)cl_tsc());
}

static bool cores_lost(struct cl_cores *c, unsigned k)
{
    struct port *port = port_of_cores(c);
    struct port_arena *a = cl_load_acquire(&port->managed);
    if (!a)
        return false;
    fetch_lines(a, k); /* as a rule it is lost: they come while the owner's line does */
    if (!owns(a, k)) {
        note_lost(port, a, k);
        return waits_for(port, a);
    }
    if (cl_load_relaxed(&port_lines(a, k)->park) != CL_KTHREAD_RUNNING)
        return false; /* a signal found k waiting, which acts itself */
    act(a, k);        /* a grant that came while k got up by itself */
    return false;
}

/* Relaxed, behind the owner: what is told of a core that moves meanwhile may be of two moves. */
static bool cores_owners(struct cl_cores *c, unsigned k, struct cl_core_owners *out)
{
    struct port_arena *a = cl_load_acquire(&port_of_cores(c)->managed);
    const struct cl_state_core *core = a ? core_of(a, k) : NULL;
    if (!core)
        return false;
    *out = (struct cl_core_owners){.cpu = (uint32_t)(core - a->cores), .owner = cl_load_acquire(&core->owner)};
    out->before = cl_load_relaxed(&core->before);
    out->decided_tsc = cl_load_relaxed(&core->decided_tsc);
    out->before_tsc = cl_load_relaxed(&core->before_tsc);
    out->lost_tsc = cl_load_relaxed(&slot_of(a, k)->lost_tsc);
    out->mine = out->owner == a->slot + k + 1;
    return true;
}

static bool cores_wanted(struct cl_cores *c, unsigned k)
{
    struct port_arena *a = cl_load_acquire(&port_of_cores(c)->managed);
    if (!a)
        return false;
    if (owns(a, k))
        act(a, k); /* as in cores_lost */
    const struct cl_state_core *core = core_of(a, k);
    if (!core || !cl_load_relaxed(&core->wanted)) /* relaxed: a hint */
        return false;
    fetch_lines(a, k); /* it is about to park */
    return true;
}

static void cores_cede(struct cl_cores *c, unsigned k)
{
    struct port *port = port_of_cores(c);
    struct port_arena *a = cl_load_acquire(&port->managed);
    if (!a)
        return;
    struct wait w = {.lost = true, .seen = port_lines(a, k)->signals.acted};
    cl_count(&port_lines(a, k)->signals.preempted, 1);
    wait_core(port, a, k, &w);
}

/* Whether k sleeps in an epoll of its own (herald.c). */
static bool is_adopted(const struct port *port, unsigned k)
{
    return port->parkers[k].given;
}

static bool cores_park_begin(struct cl_cores *c, unsigned k)
{
    struct port *port = port_of_cores(c);
    struct port_arena *a = cl_load_acquire(&port->managed);
    if (!a || cl_load_acquire(&port->released))
        return false;
    port_give_back(port, k);
    port->waiters[k].arena = a;
    /* Not the grant as it is: one that came since k's last check, for which the iokernel waits, would never be acted
     * on. */
    port->waiters[k].seen = port_lines(a, k)->signals.acted;
    port->waiters[k].lost = !owns(a, k);
    /* Whether it yield-waits or not: who reads PARKED wakes the futex, which costs a call if nobody sleeps there
     * yet. */
    bool yields = !is_adopted(port, k) && cl_load_relaxed(&slot_of(a, k)->yield_wait);
    say(a, k, yields ? CL_KTHREAD_PARKED_YIELDING : CL_KTHREAD_PARKED);
    return true;
}

static void cores_park_leave(struct cl_cores *c, unsigned k)
{
    struct port *port = port_of_cores(c);
    struct port_arena *a = port->waiters[k].arena;
    if (!owns(a, k))
        wake_owner(a, k);
    cl_store_relaxed(&port_lines(a, k)->signals.left_tsc, (uint32_t)cl_tsc());
    rouse_loop(a);
}

static bool cores_park_try(struct cl_cores *c, unsigned k, bool called)
{
    struct port *port = port_of_cores(c);
    struct port_waiter *me = &port->waiters[k];
    struct port_arena *a = me->arena;
    if (waits_for(port, a)) {
        uint32_t grant = cl_load_acquire(&slot_of(a, k)->grant); /* before the owner, as in wait_owner */
        bool mine = owns(a, k);
        me->lost |= !mine;
        if (!mine || (grant == me->seen && (me->lost || !called)))
            return false;
        cl_store_relaxed(&port_lines(a, k)->signals.back_tsc, (uint32_t)cl_tsc());
        say(a, k, CL_KTHREAD_RUNNING);
        act(a, k);
        if (!owns(a, k)) { /* taken while it got up */
            me->lost = true;
            me->seen = port_lines(a, k)->signals.acted;
            say(a, k, CL_KTHREAD_PARKED);
            cores_park_leave(c, k);
            return false;
        }
    }
    cl_store_relaxed(&port_lines(a, k)->park, CL_KTHREAD_RUNNING); /* as in wait_core */
    me->noticed = false;
    return true;
}

static void cores_park_cancel(struct cl_cores *c, unsigned k)
{
    struct port *port = port_of_cores(c);
    struct port_waiter *me = &port->waiters[k];
    struct wait w = {.lost = me->lost, .seen = me->seen};
    wait_core(port, me->arena, k, &w);
}

static void cores_park_wait(struct cl_cores *c, unsigned k, int64_t timeout_ns, const struct cl_park_poll *polled)
{
    struct port *port = port_of_cores(c);
    struct port_waiter *me = &port->waiters[k];
    struct wait w = {.parked = true, .lost = me->lost, .seen = me->seen, .deadline_tsc = UINT64_MAX, .polled = polled};
    const struct cl_clock *clock = cl_clock_default();
    uint64_t now = cl_tsc();
    if (timeout_ns >= 0)
        w.deadline_tsc = now + (uint64_t)cl_ns_to_ticks(clock, timeout_ns);
    if (polled)
        w.yield_until_tsc = now + (uint64_t)cl_ns_to_ticks(clock, polled->yield_ns);
    wait_core(port, me->arena, k, &w);
}

/* The loop reads both lines: without this each takes as long as the way to the other core and back, at its store. */
static void cores_help_soon(struct cl_cores *c)
{
    struct port_arena *a = cl_load_acquire(&port_of_cores(c)->managed);
    if (!a)
        return;
    cl_prefetch_write(&port_lines(a, 0)->help);
    cl_prefetch_write(a->bell);
}

static void cores_help(struct cl_cores *c)
{
    struct port *port = port_of_cores(c);
    struct port_arena *a = cl_load_acquire(&port->managed);
    if (!a)
        return;
    cores_help_soon(c);
    cl_store_relaxed(&port_lines(a, 0)->help_tsc, cl_tsc());
    __atomic_fetch_add(&port_lines(a, 0)->help, 1, __ATOMIC_RELEASE); /* release: the stamp */
    cl_fence_seq_cst(); /* as in announce() of port.c: our word before its flag */
    cl_help_ring(a->bell);
    rouse_loop(a);
}

static struct cl_signals *cores_signals(struct cl_cores *c, unsigned k)
{
    return &((struct cl_arena_kthread *)(port_of_cores(c)->view + CL_SHM_PAGE))[k].signals;
}

static void interrupt_kthread(const struct port *port, unsigned k)
{
    if (port->kthreads.signal && k < port->kthreads.n)
        syscall(SYS_tgkill, getpid(), port->kthreads.tids[k], port->kthreads.signal);
}

/* Wake waiters of `a` until none waits; their condition has been changed. By the signal too, where a wake was not
 * enough: another process can move them away from their futex (steps.c). */
static void end_waits(struct port *port, struct port_arena *a)
{
    cl_fence_seq_cst(); /* after the change, before `waiting` is read */
    port_herald_look(port);
    for (unsigned k = 0; k < port->nic.n_queues; k++)
        port_herald_wake(port, k);
    for (unsigned k = 0; k < port->nic.n_queues; k++)
        /* Acquire: what it did while it waited is done. */
        for (bool again = false; cl_load_acquire(&port->waiters[k].waiting); again = true) {
            wake_futex(&slot_of(a, k)->grant);
            if (again)
                interrupt_kthread(port, k);
            usleep(END_WAIT_US);
        }
}

static void cores_release(struct cl_cores *c)
{
    struct port *port = port_of_cores(c);
    pthread_mutex_lock(&port->lock); /* the watcher may be about to exchange the arena */
    struct port_arena *a = port->managed;
    cl_store_release(&port->released, 1);
    if (a)
        end_waits(port, a);
    pthread_mutex_unlock(&port->lock);
}

static int cores_threads(struct cl_cores *c, const int32_t *tids, unsigned n, int signal, char err[256])
{
    struct port *port = port_of_cores(c);
    struct cl_scheduling *before = calloc(n, sizeof *before);
    if (!before) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "out of memory for %u kthreads", n);
        return -ENOMEM;
    }
    for (unsigned k = 0; k < n; k++)
        cl_scheduling_read(tids[k], &before[k]);
    pthread_mutex_lock(&port->lock);
    free(port->before);
    port->before = before;
    port->kthreads.n = n;
    port->kthreads.signal = signal;
    memcpy(port->kthreads.tids, tids, n * sizeof *tids);
    int rc = port->current->managed && port->control_fd >= 0 ? port_cores_manage(port, err) : 0;
    pthread_mutex_unlock(&port->lock);
    return rc;
}

/* Acquire: `quantum_over` was stored before the flag. */
static bool cores_quantum_over(struct cl_cores *c, unsigned k)
{
    struct port_arena *a = cl_load_acquire(&port_of_cores(c)->managed);
    return a && cl_load_acquire(c->preempt) >> k & 1 &&
           cl_load_relaxed(&slot_of(a, k)->quantum_over) == cl_load_relaxed(&port_lines(a, k)->signals.switches);
}

static void cores_signalled(struct cl_cores *c, unsigned k)
{
    struct port_arena *a = cl_load_acquire(&port_of_cores(c)->managed);
    if (a)
        cl_store_relaxed(&port_lines(a, k)->quantum_seen, cl_load_relaxed(&slot_of(a, k)->quantum_signals));
}

static const struct cl_cores_ops cores_ops = {
    .managed = cores_managed,
    .lost = cores_lost,
    .owners = cores_owners,
    .wanted = cores_wanted,
    .cede = cores_cede,
    .park_begin = cores_park_begin,
    .park_cancel = cores_park_cancel,
    .park_wait = cores_park_wait,
    .park_leave = cores_park_leave,
    .park_try = cores_park_try,
    .help = cores_help,
    .help_soon = cores_help_soon,
    .signals = cores_signals,
    .threads = cores_threads,
    .quantum_over = cores_quantum_over,
    .signalled = cores_signalled,
    .release = cores_release,
};

int port_cores_new(struct port *port, char *err)
{
    unsigned n = port->nic.n_queues;
    port->view_bytes = port->current->layout.rx_offset;
    port->waiters = aligned_alloc(CL_CACHELINE, n * sizeof *port->waiters);
    int rc = port->waiters ? port_view_nothing(port) : -ENOMEM;
    if (rc < 0) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "no memory for a port of %u queues", n);
        return rc;
    }
    memset(port->waiters, 0, n * sizeof *port->waiters);
    port->cores.ops = &cores_ops;
    port->cores.preempt = &((const struct cl_arena_preempt *)(port->view + CL_ARENA_PREEMPT_OFFSET))->preempt;
    if (port->current->managed)
        port->nic.cores = &port->cores;
    return 0;
}

void port_cores_delete(struct port *port)
{
    port_view_delete(port);
    free(port->waiters);
    free(port->before);
}

static int tell_kthreads(struct port *port, char *err)
{
    struct cl_control_kthreads kthreads = port->kthreads;
    int fd = port_begin_telling(port, err);
    if (fd < 0)
        return fd;
    int rc = cl_control_kthreads(fd, &kthreads, (int)port->timeout_ms, err);
    port_end_telling(port);
    return rc;
}

int port_cores_manage(struct port *port, char *err)
{
    struct port_arena *a = port->current;
    a->most_sleep_ns = port->kthreads.signal ? 0 : UNSIGNALLED_NS;
    if (port->telling) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "another thread is telling the iokernel of the kthreads");
        return -EBUSY;
    }
    int rc = port_view_arena(port, a);
    if (rc < 0)
        snprintf(err, CL_CONTROL_ERR_BYTES, "cannot map the words by which cores move: %s", strerror(-rc));
    else
        rc = tell_kthreads(port, err);
    if (rc < 0)
        port_view_nothing(port);
    else
        cl_store_release(&port->managed, a); /* release: the mapping */
    port_herald_look(port);
    return rc;
}

/* Kthreads that end are left alone: a number may be a stranger's by now. */
static unsigned give_back(const struct port *port)
{
    unsigned stay = 0;
    for (unsigned k = 0; k < port->kthreads.n && !cl_load_relaxed(&port->released); k++)
        if (syscall(SYS_tgkill, getpid(), port->kthreads.tids[k], 0) == 0)
            stay += cl_scheduling_restore(port->kthreads.tids[k], &port->before[k]) == -EPERM;
    return stay;
}

unsigned port_cores_unmanage(struct port *port)
{
    struct port_arena *a = port->managed;
    if (!a)
        return 0;
    unsigned stay = give_back(port); /* first: those that wait need a CPU to see that it is over */
    cl_store_release(&port->managed, NULL);
    port_view_nothing(
        port); /* fails where address space does: then the dead arena's words stay, which nobody changes */
    end_waits(port, a);
    return stay;
}

void port_cores_interrupt(struct port *port)
{
    for (unsigned k = 0; k < port->kthreads.n; k++)
        interrupt_kthread(port, k);
}
