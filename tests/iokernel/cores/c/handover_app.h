/* The applications' side of the model: one kthread each, and all of their own code that lets go of a core and waits for
 * one.
 *
 * Its own: drivers/port/cores.c, and of libos/sched cede.c, interrupt.c and idle.c. The model's: what a uthread does,
 * a scheduler's turn, the switch from a uthread to the loop (a call). A wait by sched_yield() comes back after the
 * other one ran, or sixteen times at once in one go: then nobody else takes a step in between, which would be as if the
 * sixteen had begun later. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_APP_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_APP_H

#include "handover_iokernel.h"

#include "drivers/port/internal.h"
#include <corelane/libos/complete.h>
#include "libos/sched/runq.h"

#include <corelane/libos/probe.h>

#include <signal.h>
#include <ucontext.h>

/* How the batch application's code lets go of its core. */
enum manner {
    IN_PLACE,  /* by probes, where stacks cannot be switched */
    BY_LOOP,   /* by probes, through the scheduler's loop */
    BY_SIGNAL, /* it has no probes */
    DEAF,      /* it has none, and blocks the signal */
};

static struct port ports[2];
static struct port_arena port_arenas[2];
static struct port_waiter waiters[2];
static struct cl_parker parkers[2]; /* of no event loop */
static struct cl_sched scheds[2];
static struct cl_kthread kthreads[2];
static struct cl_uthread batch;
static bool late[2]; /* its time is over, in a wait that has one */
static bool switched;

static struct cl_kthread *model_self(void)
{
    return il.running > 0 ? &kthreads[il.running - 1] : NULL;
}

/* A handler lets its own signal through meanwhile, or no longer. */
static void model_sigmask(int how)
{
    il.thread[il.running].in_handler = how == SIG_BLOCK;
}

static void model_dispatch(struct cl_kthread *k, struct cl_uthread *t)
{
    k->current = t;
}

bool cl_cede(struct cl_kthread *k);
struct cl_uthread *cl_take_front(struct cl_kthread *v);

static int model_to_loop(struct cl_kthread *k, enum cl_after_op op)
{
    if (op != CL_AFTER_FRONT)
        return 0;
    k->front = k->current;
    k->current = NULL;
    if (!cl_preempt_needed(k) || !cl_cede(k))
        model_dispatch(k, cl_take_front(k));
    return 0;
}

#ifndef PORT_CORES_C
#define PORT_CORES_C "drivers/port/cores.c"
#endif
#ifndef CEDE_C
#define CEDE_C "libos/sched/cede.c"
#endif
#ifndef INTERRUPT_C
#define INTERRUPT_C "libos/sched/interrupt.c"
#endif
#ifndef SCHED_IDLE_C
#define SCHED_IDLE_C "libos/sched/idle.c"
#endif

/* clang-format off */
#pragma push_macro("__x86_64__")
#undef __x86_64__ /* plain C, and code that is interrupted waits in place */
#define port_give_back(port, k) ((void)(port))
#define cl_help_ring(bell) ((void)(bell)) /* it only has the loop decide sooner: here it decides each round */
#define slot_of port_slot_of
#include PORT_CORES_C
#undef slot_of
#define cl_kthread_self model_self
#define cl_dispatch model_dispatch
#define cl_block_to_loop model_to_loop
#define cl_flush(k) ((void)(k))
#define cl_traces_waits(k, t) ((void)(k), (void)(t), setting.manner == BY_LOOP) /* else it waits where it is */
#define cl_requeue(k) ((void)(k))
#define cl_note_ready(k) ((void)(k))
#define cl_note_taken(k) ((void)(k))
#define cl_timers_export(k) ((void)(k))
#define cl_completions_export(k) ((void)(k))
#define pthread_sigmask(how, set, old) model_sigmask(how)
#include CEDE_C
#include INTERRUPT_C
#pragma pop_macro("__x86_64__")
#include SCHED_IDLE_C
/* clang-format on */

static uint64_t model_tsc(void)
{
    bool once = switched;
    switched = false;
    return NOW + 2 * once + (il.running > 0 && late[il.running - 1] ? 1u << 30 : 0);
}

/* The scheduler's time stands still; its stamps are the model's all the same (handover_words.h). */
static const struct cl_clock *model_time(void)
{
    static const uint64_t zero;
    static struct cl_clock clock;
    cl_clock_virtual(&clock, &zero);
    return &clock;
}

static const struct cl_clock *model_clock(void)
{
    static struct cl_clock clock;
    if (!clock.ns_per_tick)
        cl_clock_from_hz(&clock, 1000000, 0, 0);
    return &clock;
}

static void model_yield(void)
{
    unsigned bit = 1u << il.running;
    const struct cl_kthread *k = model_self();
    if (il.m.burst & bit)
        return;
    bool timed = setting.timer && k == &kthreads[0];
    unsigned how = il_choose(2 + timed, 0);
    if (how == 1)
        il.m.burst |= (uint8_t)bit;
    late[k - kthreads] |= how == 2;
    switched = how != 1;
}

static long model_syscall(long number, ...)
{
    va_list a;
    va_start(a, number);
    long result = 0;
    if (number == SYS_futex) {
        uint32_t *word = va_arg(a, uint32_t *);
        int op = va_arg(a, int);
        uint32_t value = va_arg(a, uint32_t);
        const struct timespec *ts = va_arg(a, const struct timespec *);
        if (op == FUTEX_WAKE && setting.stolen_from)
            il_call();
        else if (op == FUTEX_WAKE)
            result = il_futex_wake(word);
        else if (il_futex_wait(word, value, ts != NULL) == ETIMEDOUT)
            late[il.running - 1] = true;
    } else if (number == SYS_tgkill) {
        int pid = va_arg(a, int), t = va_arg(a, int), signal = va_arg(a, int);
        (void)pid;
        il_call();
        errno = ESRCH;
        result = il.m.dead[t] ? -1 : 0;
        if (signal && result == 0 && !(t == BATCH && setting.manner == DEAF))
            il.m.signal[t] = 1;
    } else if (number == SYS_sched_getattr || number == SYS_sched_setattr) {
        int t = va_arg(a, int);
        errno = ESRCH;
        result = number == SYS_sched_setattr ? model_scheduler(t, SCHED_OTHER, NULL) : il.m.dead[t] ? -1 : 0;
    } else if (number == SYS_epoll_pwait2) {
        (void)va_arg(a, int), (void)va_arg(a, void *), (void)va_arg(a, int);
        const struct timespec *ts = va_arg(a, const struct timespec *);
        il_call();
        il_say("sleeps", "", 0);
        il_pause(IL_EVENT, 1, ts != NULL);
        il.m.user[DOORBELL] = 0;
    } else {
        abort();
    }
    va_end(a);
    return result;
}

static ssize_t model_write(int fd, const void *from, size_t bytes)
{
    (void)fd, (void)from;
    il_call();
    il_say("rings", "", 0);
    il.m.user[DOORBELL] = 1;
    return (ssize_t)bytes;
}

static void il_on_signal(unsigned thread)
{
    static ucontext_t context;
    (void)thread;
    on_interrupt(SIGURG, NULL, &context);
}

static void il_on_store(unsigned t, const void *at, uint64_t value)
{
    if (t == LOOP || at != &shared.arena[t - 1].line.park)
        return;
    il.m.burst &= (uint8_t) ~(1u << t);
    if (value != CL_KTHREAD_RUNNING)
        il.m.user[INSIDE] &= (uint8_t) ~(1u << (t - 1));
}

static void inside(unsigned t)
{
    il.m.user[INSIDE] |= (uint8_t)(1u << (t - 1));
}

static unsigned frames_waiting(void *arg, unsigned k)
{
    (void)arg, (void)k;
    return cl_load_acquire(&shared.frames) - (uint32_t)il_peek(&shared.arena[0].line.rx_head, 4);
}

static bool nothing_ready(void *arg, unsigned k)
{
    (void)arg, (void)k;
    return false;
}

/* Handles frames, and parks without any: a scheduler's turn. */
static void latency_main(void)
{
    struct cl_kthread *k = &kthreads[0];
    cl_park_kthread(k);
    for (;;) {
        late[0] = false;
        inside(LATENCY);
        if ((setting.timer || setting.fickle) && il_choose(1 + setting.endless, 0)) /* it computes */
            il.m.user[ENDLESS] = 1;
        if (cl_preempt_needed(k) && cl_cede(k))
            continue;
        if (il.m.user[ENDLESS])
            continue;
        inside(LATENCY);
        if (frames_waiting(NULL, 0))
            cl_store_release(&shared.arena[0].line.rx_head, (uint32_t)il_peek(&shared.arena[0].line.rx_head, 4) + 1);
        else
            cl_idle(k);
    }
}

/* A thread of the latency application that is none of its kthreads: it spawns, as cl_wake_one() has it. */
static void outside_main(void)
{
    for (;;) {
        il_choose(1, 0);
        uint32_t spawned = (uint32_t)il_peek(&shared.frames, 4);
        if (spawned == setting.frames)
            continue;
        cl_store_release(&shared.frames, spawned + 1);
        cl_fence_seq_cst();
        cores_help(&ports[0].cores);
    }
}

/* One uthread that never ends. */
static void batch_main(void)
{
    struct cl_kthread *k = &kthreads[1];
    if (setting.outside)
        outside_main();
    for (;;) {
        inside(BATCH);
        il_choose(1, 0);                                               /* it computes */
        if (setting.manner < BY_SIGNAL && cl_load_relaxed(k->preempt)) /* CL_PROBE */
            cl_sched_preempt_poll();
    }
}

static void begin_applications(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct port *port = &ports[i];
        struct port_arena *a = &port_arenas[i];
        struct cl_sched *s = &scheds[i];
        struct cl_kthread *k = &kthreads[i];
        *a = (struct port_arena){.base = (uint8_t *)&shared.arena[i],
                                 .layout.lines_offset = offsetof(struct arena, line),
                                 .loop = &shared.loop,
                                 .never_sleeps = !setting.sleeps,
                                 .managed = true,
                                 .slot = i,
                                 .n_cores = 1,
                                 .cores = &shared.core,
                                 .slots = shared.slot};
        port->managed = port->current = a;
        port->nic.n_queues = 1;
        port->waiters = &waiters[i];
        port->parkers = &parkers[i];
        port->cores = (struct cl_cores){.ops = &cores_ops, .preempt = &shared.arena[i].preempt.preempt};
        s->n_kthreads = 1;
        s->poll = CL_SCHED_BLOCK;
        s->sleeps = true;
        s->clock = model_time();
        s->cores = &port->cores;
        s->kthreads = k;
        k->sched = s;
        k->watched = true;
        k->preempt = port->cores.preempt;
        k->preempt_bit = 1;
        k->signals = &shared.arena[i].line.signals;
        k->timers.next_ns = setting.timer && i == 0 ? 1u << 30 : CL_NEVER;
        il_own(i + 1, &waiters[i], sizeof waiters[i]);
        il_own(i + 1, &s->parked, sizeof s->parked);
        il_own(i + 1, &s->help_asked, sizeof s->help_asked);
        il_own(i + 1, &k->current, offsetof(struct cl_kthread, preempt) - offsetof(struct cl_kthread, current));
        il_own(i + 1, &k->ceded, sizeof k->ceded);
        il_own(i + 1, &k->front, sizeof k->front);
        il_own(i + 1, &late[i], sizeof late[i]);
    }
    scheds[0].has_source = true;
    scheds[0].source = (struct cl_work_source){.pending = frames_waiting, .ready = nothing_ready};
    kthreads[1].current = &batch;
    kthreads[1].no_switch = setting.manner == IN_PLACE;
}

#endif
