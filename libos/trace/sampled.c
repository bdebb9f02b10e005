/* Where kthreads are, for who asks, where the kernel lets nobody sample them (perf_event_open(2),
 * kernel.perf_event_paranoid): by a signal, which each kthread's own CPU time sends it.
 *
 * Whoever may signal the process, its user and root, asks by SIGPROF with a value (cl_trace_ask_samples): so often a
 * second, for so long. The handler, on whichever thread it runs, sets the timers of all kthreads. Each timer's signal
 * comes to its kthread, whose handler notes where that was interrupted, and stops the timer when the time is over.
 * Nothing runs, and nothing is asked for, while nobody samples.
 *
 * What the handler notes is a record, in memory of the tracer's. The kthread puts it into its ring at its next look,
 * for the handler may have come in the middle of another record. Both are of one thread: the compiler's order is
 * enough.
 *
 * Callers are found by frame pointers, as far as there are any. The kernel copies them, so that what is none is no
 * fault.
 *
 * Linux looks at timers of CPU time at its tick, so there are 100 to 1000 samples a second at most; each says for how
 * many it stands of those that were asked for. */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define TIMERS 256

/* Timers of kthreads that run, + 1; 0: free. Writers: their kthreads (RMW); readers: handlers (relaxed). */
static int32_t timers[TIMERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the disposition of the signal */

static int set(int32_t timer, uint32_t hz)
{
    long ns = hz ? 1000000000l / (long)hz : 0;
    struct itimerspec spec = {.it_interval.tv_nsec = ns, .it_value.tv_nsec = ns};
    return (int)syscall(SYS_timer_settime, timer, 0, &spec, NULL);
}

/* Program counters of where a thread was interrupted and of its callers, the innermost first. */
static uint32_t chain(const ucontext_t *context, uint64_t out[CL_TRACE_CHAIN])
{
#if defined(__x86_64__)
    uint64_t pc = (uint64_t)context->uc_mcontext.gregs[REG_RIP], frame = (uint64_t)context->uc_mcontext.gregs[REG_RBP];
#else
    uint64_t pc = context->uc_mcontext.pc, frame = context->uc_mcontext.regs[29];
#endif
    uint32_t n = 0;
    out[n++] = pc;
    while (n < CL_TRACE_CHAIN && frame && frame % sizeof frame == 0) {
        uint64_t there[2]; /* the caller's frame; where it goes on */
        struct iovec to = {there, sizeof there}, from = {(void *)(uintptr_t)frame, sizeof there};
        if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)sizeof there || !there[1])
            break;
        out[n++] = there[1];
        frame = there[0] > frame ? there[0] : 0;
    }
    return n;
}

static void sample(struct cl_tracer *t, const siginfo_t *info, const ucontext_t *context)
{
    struct cl_tracer_samples *s = t->samples;
    uint64_t now = cl_tracer_stamp(t);
    uint32_t n = cl_load_relaxed(&s->n);
    if (now > cl_load_relaxed(&s->until)) {
        (void)set(info->si_timerid, 0);
        return;
    }
    if (n == CL_TRACER_SAMPLES)
        return; /* of a kthread that has found nothing to do for long: nobody misses it */
    struct cl_trace_sample *r = &s->of[n];
    *r = (struct cl_trace_sample){.kind = CL_TRACE_SAMPLE,
                                  .kthread = (uint8_t)t->index,
                                  .stands = (uint16_t)(1 + cl_min(cl_max(info->si_overrun, 0), 1000)),
                                  .begin = now};
    r->n = chain(context, r->chain);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the record, before it counts */
    cl_store_relaxed(&s->n, n + 1);
    cl_store_relaxed(&t->look_at, 0); /* the next poll puts it into the ring */
}

static struct cl_tracer *all[TIMERS]; /* by the place of its timer; relaxed */

static void arm(uint32_t asked)
{
    uint32_t hz = asked & CL_TRACE_ASK_HZ, ms = asked >> CL_TRACE_ASK_MS_SHIFT;
    for (unsigned i = 0; i < TIMERS; i++) {
        int32_t timer = cl_load_relaxed(&timers[i]);
        struct cl_tracer *t = cl_load_relaxed(&all[i]);
        if (!timer || !t || !hz)
            continue;
        cl_store_relaxed(&t->samples->until, cl_tracer_stamp(t) + ms * t->ticks_per_ms);
        (void)set(timer - 1, hz);
    }
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int before = errno;
    (void)signal;
    if (info->si_code == SI_TIMER)
        sample(info->si_value.sival_ptr, info, context);
    else if (info->si_code == SI_QUEUE && (info->si_uid == 0 || info->si_uid == geteuid()))
        arm((uint32_t)info->si_value.sival_int);
    errno = before;
}

static int install(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART}, had;
    int rc = 0;
    sigfillset(&action.sa_mask); /* a core is not taken in the middle of it */
    pthread_mutex_lock(&lock);
    if (sigaction(SIGPROF, NULL, &had))
        rc = -errno;
    else if (had.sa_sigaction != on_signal && had.sa_handler != SIG_DFL)
        rc = -EBUSY; /* somebody else's */
    else if (sigaction(SIGPROF, &action, NULL))
        rc = -errno;
    pthread_mutex_unlock(&lock);
    return rc;
}

int cl_tracer_sampled(struct cl_tracer *t)
{
    int rc = t->samples ? 0 : install();
    if (rc == 0 && !t->samples && !(t->samples = calloc(1, sizeof *t->samples)))
        rc = -ENOMEM;
    return rc;
}

void cl_tracer_sample_thread(struct cl_tracer *t)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF, .sigev_value.sival_ptr = t};
    int32_t id;
    if (!t->samples)
        return;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &id))
        return;
    for (unsigned i = 0; i < TIMERS; i++) {
        int32_t none = 0;
        if (!__atomic_compare_exchange_n(&timers[i], &none, id + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        cl_store_relaxed(&all[i], t);
        t->samples->place = i + 1;
        return;
    }
    (void)syscall(SYS_timer_delete, id);
}

void cl_tracer_sample_ends(struct cl_tracer *t)
{
    uint32_t i = t->samples ? t->samples->place : 0;
    if (!i)
        return;
    t->samples->place = 0;
    cl_store_relaxed(&all[i - 1], NULL);
    int32_t timer = cl_exchange(&timers[i - 1], 0);
    (void)syscall(SYS_timer_delete, timer - 1);
}

void cl_tracer_tell_samples(struct cl_tracer *t)
{
    struct cl_tracer_samples *s = t->samples;
    uint32_t told = 0, n = cl_load_relaxed(&s->n);
    if (!n)
        return;
    do {
        for (; told < n; told++)
            cl_tracer_put(t, &s->of[told]);
    } while (!__atomic_compare_exchange_n(&s->n, &n, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
