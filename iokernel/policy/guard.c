/* See guard.h. */
#include "guard.h"

#include <corelane/runtime/clock.h>

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLICY_SIGNAL (SIGRTMIN + 7)
#define PAGE 4096u
#define TABLE_BYTES (CL_POLICY_MAX_APPS * sizeof(struct cl_policy_app))
#define STACK_BYTES 65536u
#define ERR_BYTES 256
#ifndef sigev_notify_thread_id /* glibc has no name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Whether the jump brings the signal mask back. It needs not, see SA_NODEFER, and it would be a system call a decision;
 * ThreadSanitizer blocks all signals in handlers all the same. */
#if defined(__SANITIZE_THREAD__)
#define RESTORE_MASK 1
#else
#define RESTORE_MASK 0
#endif

/* Layout of the mapping: guard page, table, guard page, view, guard page, signal stack. */
#define TABLE_AT PAGE
#define VIEW_AT (TABLE_AT + TABLE_BYTES + PAGE)
#define STACK_AT (VIEW_AT + PAGE + PAGE)
#define MAP_BYTES (STACK_AT + STACK_BYTES)

_Static_assert(TABLE_BYTES % PAGE == 0, "the guard page begins where a full table ends");
_Static_assert(sizeof(struct cl_policy_view) <= PAGE, "the view fits its page");

/* The timers. */
enum {
    TICK,  /* of the CPU time of the loop's thread, again and again: is a call late? */
    AGAIN, /* once, after one was found so: is it still? By the clock: Linux looks at the other one at its ticks only */
};

/* All of it is the loop thread's own, in calls and in the handler, but for making and deleting. */
struct cl_policy_guard {
    CL_ALIGNED(CL_CACHELINE) uint64_t entered; /* stamp at which the call under way began */
    uint64_t limit_ticks;
    bool ticking; /* the timer runs, for this thread */

    uint8_t *map;
    uint64_t id; /* of all guards ever made: a thread remembers by it for which it is armed */
    uint64_t watch_ns, again_ns;
    uint32_t n_timers;
    timer_t timers[2]; /* TICK, AGAIN */

    /* In the handler and after the jump. */
    uint64_t warned_for, warned_ns; /* `entered` of the call that a first signal found late, and the CPU time then */
    int signal;
    uintptr_t address;
    sigjmp_buf way_out;
    stack_t stack_before; /* of the thread that calls */
};

/* The guard that this thread is in a call of; NULL outside of one. Read by the handler. */
static __thread struct cl_policy_guard *volatile in_call;
/* The guard that this thread's signals were prepared for, by its id. */
static __thread uint64_t armed_for;

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_FAULTS (sizeof fault_signals / sizeof *fault_signals)

/* Signals are the process's, and so is what was there before. Written under the lock before our handler is
 * installed. */
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;
static struct sigaction previous[N_FAULTS + 1];

static void pass_on(int number, siginfo_t *info, void *context)
{
    unsigned i = 0;
    while (i < N_FAULTS && fault_signals[i] != number)
        i++;
    const struct sigaction *before = &previous[i];
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else if (i < N_FAULTS) {
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigaction(number, &dfl, NULL); /* the instruction runs again, and the process dies as it should */
    }                                  /* our own signal, sent by a stranger or late: nothing */
}

static int set_timer(struct cl_policy_guard *g, unsigned which, uint64_t ns)
{
    struct timespec in = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    struct itimerspec when = {.it_value = in};
    if (which == TICK)
        when.it_interval = in;
    return timer_settime(g->timers[which], 0, &when, NULL) < 0 ? -errno : 0;
}

/* Of the calling thread. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether the call under way is to be left. Not at the first signal: the host, or the kernel, may have had the core
 * meanwhile. From there on its own time counts: a policy that is well is through before it has had half of again_ns. */
static bool late(struct cl_policy_guard *g)
{
    if (cl_tsc() - g->entered <= g->limit_ticks)
        return false;
    bool first = g->warned_for != g->entered;
    if (first || cpu_ns() - g->warned_ns <= g->again_ns / 2) {
        g->warned_ns = first ? cpu_ns() : g->warned_ns;
        g->warned_for = g->entered;
        set_timer(g, AGAIN, g->again_ns); /* if it fails, the next tick does */
        return false;
    }
    return true;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    struct cl_policy_guard *g = in_call;
    if (g && number == POLICY_SIGNAL && !late(g))
        return;
    if (!g || (number != POLICY_SIGNAL && info->si_code <= 0)) { /* not in a call; or sent, not raised by it */
        pass_on(number, info, context);
        return;
    }
    in_call = NULL;
    g->signal = number;
    g->address = number == POLICY_SIGNAL ? 0 : (uintptr_t)info->si_addr;
    siglongjmp(g->way_out, 1);
}

int cl_policy_guard_prepare(char *err)
{
    int rc = 0;
    pthread_mutex_lock(&install_lock);
    /* SA_NODEFER: we may leave by a jump, which does not bring the signal mask back. */
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART};
    for (unsigned i = 0; !installed && rc == 0 && i <= N_FAULTS; i++) {
        int number = i < N_FAULTS ? fault_signals[i] : POLICY_SIGNAL;
        if (sigaction(number, NULL, &previous[i]) || sigaction(number, &action, NULL))
            rc = -errno;
    }
    installed = installed || rc == 0;
    pthread_mutex_unlock(&install_lock);
    if (rc < 0)
        snprintf(err, ERR_BYTES, "cannot install the handlers that leave a policy: %s", strerror(-rc));
    return rc;
}

int cl_policy_guard_new(uint64_t limit_ns, uint64_t watch_ns, struct cl_policy_guard **out, char *err)
{
    static uint64_t ids;
    struct cl_policy_guard *g = aligned_alloc(CL_CACHELINE, sizeof *g);
    if (!g)
        return snprintf(err, ERR_BYTES, "out of memory for a policy's guard"), -ENOMEM;
    memset(g, 0, sizeof *g);
    g->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED); /* only to be unique */
    g->again_ns = limit_ns ? limit_ns : CL_POLICY_LIMIT_NS;
    g->limit_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)g->again_ns);
    g->watch_ns = watch_ns ? watch_ns : CL_POLICY_WATCH_NS;
    g->map = mmap(NULL, MAP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int rc = g->map == MAP_FAILED ? -errno : 0;
    if (rc == 0 && (mprotect(g->map + TABLE_AT, TABLE_BYTES, PROT_READ | PROT_WRITE) ||
                    mprotect(g->map + VIEW_AT, PAGE, PROT_READ | PROT_WRITE) ||
                    mprotect(g->map + STACK_AT, STACK_BYTES, PROT_READ | PROT_WRITE)))
        rc = -errno;
    if (rc < 0) {
        snprintf(err, ERR_BYTES, "cannot map the table that policies see: %s", strerror(-rc));
        if (g->map != MAP_FAILED)
            munmap(g->map, MAP_BYTES);
        free(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void delete_timers(struct cl_policy_guard *g)
{
    while (g->n_timers)
        timer_delete(g->timers[--g->n_timers]);
    g->ticking = false;
}

void cl_policy_guard_delete(struct cl_policy_guard *g)
{
    if (!g)
        return;
    delete_timers(g);
    stack_t stack;
    if (sigaltstack(NULL, &stack) == 0 && stack.ss_sp == g->map + STACK_AT)
        sigaltstack(&g->stack_before, NULL);
    munmap(g->map, MAP_BYTES);
    free(g);
}

struct cl_policy_app *cl_policy_guard_table(struct cl_policy_guard *g, uint32_t n)
{
    return (struct cl_policy_app *)(g->map + TABLE_AT + TABLE_BYTES) - n;
}

/* Once a thread: a stack for the handler, since the policy may have used up the thread's own; the signals let through,
 * since loop threads begin with all of them blocked; timers whose signal comes to this thread. */
static int arm(struct cl_policy_guard *g)
{
    stack_t stack = {.ss_sp = g->map + STACK_AT, .ss_size = STACK_BYTES};
    /* One that is there may be too small for a frame with AVX-512 registers (CPython's faulthandler makes such). */
    if (sigaltstack(NULL, &g->stack_before) == 0 &&
        ((g->stack_before.ss_flags & SS_DISABLE) || g->stack_before.ss_size < STACK_BYTES))
        sigaltstack(&stack, NULL);
    sigset_t set;
    sigemptyset(&set);
    for (unsigned i = 0; i < N_FAULTS; i++)
        sigaddset(&set, fault_signals[i]);
    sigaddset(&set, POLICY_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    delete_timers(g); /* another thread's */
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = POLICY_SIGNAL};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    static const clockid_t clocks[] = {[TICK] = CLOCK_THREAD_CPUTIME_ID, [AGAIN] = CLOCK_MONOTONIC};
    for (; g->n_timers < sizeof clocks / sizeof *clocks; g->n_timers++)
        if (timer_create(clocks[g->n_timers], &event, &g->timers[g->n_timers]) < 0)
            return -errno;
    armed_for = g->id;
    return 0;
}

static CL_NOINLINE int start_ticking(struct cl_policy_guard *g)
{
    int rc = armed_for != g->id ? arm(g) : 0;
    if (rc == 0)
        rc = set_timer(g, TICK, g->watch_ns);
    g->ticking = rc == 0;
    return rc;
}

void cl_policy_guard_rest(struct cl_policy_guard *g)
{
    if (g->ticking && armed_for == g->id)
        set_timer(g, TICK, 0);
    g->ticking = false;
}

static CL_NOINLINE uint32_t describe(struct cl_policy_guard *g, const struct cl_policy_app *table,
                                     struct cl_policy_event *event)
{
    uintptr_t at = g->address, lo = (uintptr_t)g->map, hi = lo + STACK_AT;
    bool memory = g->signal == SIGSEGV || g->signal == SIGBUS;
    *event = (struct cl_policy_event){.signal = (uint32_t)g->signal, .ticks = cl_tsc() - g->entered};
    if (g->signal == POLICY_SIGNAL) {
        event->reason = CL_POLICY_LATE;
    } else if (memory && at >= lo && at < hi) {
        event->reason = CL_POLICY_OUTSIDE;
        event->offset = (int64_t)(at - (uintptr_t)table);
    } else {
        event->reason = CL_POLICY_FAULT;
    }
    return event->reason;
}

uint32_t cl_policy_guard_call(struct cl_policy_guard *g, cl_policy_fn fn, const struct cl_policy_view *view,
                              struct cl_policy_app *table, struct cl_policy_event *event)
{
    if (cl_unlikely(armed_for != g->id || !g->ticking) && start_ticking(g) < 0) {
        *event = (struct cl_policy_event){.reason = CL_POLICY_UNWATCHED};
        return CL_POLICY_UNWATCHED;
    }
    struct cl_policy_view *copy = (struct cl_policy_view *)(g->map + VIEW_AT);
    *copy = *view;
    if (sigsetjmp(g->way_out, RESTORE_MASK))
        return describe(g, table, event);
    g->entered = cl_tsc();
    in_call = g;
    /* The compiler must neither begin the call before nor finish it after: the handler reads both in this thread. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    fn(copy, table);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    in_call = NULL;
    return 0;
}
