/* See policy_guard.h. */
#include "policy_guard.h"

#include "../runtime/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POLICY_SIGNAL (SIGRTMIN + 7)
#define PAGE 4096u
#define TABLE_BYTES (CL_POLICY_MAX_APPS * sizeof(struct cl_policy_app))
#define STACK_BYTES 65536u
#define ERR_BYTES 256

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

struct cl_policy_guard {
    /* Writer: the loop (release, after tid; 0 again after the call). Reader: the watch (acquire). The handler, which
     * runs in the loop's thread, needs no order. Stamp at which the call under way began. */
    CL_ALIGNED(CL_CACHELINE) uint64_t entered;
    int32_t tid; /* of the thread that calls; see entered */

    CL_ALIGNED(CL_CACHELINE) uint8_t *map;
    uint64_t id; /* of all guards ever made: a thread remembers by it for which it is armed */
    uint64_t limit_ticks, watch_ns;

    /* The loop's thread alone, in the handler and after the jump. */
    uint64_t warned_for, warned; /* `entered` of the call that a first signal found late, and when */
    int signal;
    uintptr_t address;
    sigjmp_buf way_out;
    stack_t stack_before; /* of the thread that calls */

    pthread_mutex_t lock; /* of what follows: the controlling thread's and the watch's */
    pthread_cond_t changed;
    pthread_t watch;
    bool has_watch, watching, stop;
};

/* The guard that this thread is in a call of; NULL outside of one. Read by the handler. */
static __thread struct cl_policy_guard *volatile in_call;
/* The guard that this thread's signals were prepared for, by its id. */
static __thread uint64_t armed_for;

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_FAULTS (sizeof fault_signals / sizeof *fault_signals)

/* Signals are the process's, and so is what was there before. Written under the lock before our handler is installed. */
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

/* Whether the call under way is to be left. Not at the first signal: the host, or the kernel, may have had the core
 * meanwhile. That this handler runs shows that the thread runs; a policy that is well is through before the next one. */
static bool late(struct cl_policy_guard *g)
{
    uint64_t now = cl_tsc();
    if (now - g->entered <= g->limit_ticks)
        return false;
    if (g->warned_for != g->entered) {
        g->warned_for = g->entered;
        g->warned = now;
        return false;
    }
    return now - g->warned > g->limit_ticks;
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

static int install(char *err)
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
    g->limit_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)(limit_ns ? limit_ns : CL_POLICY_LIMIT_NS));
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
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &attr);
    pthread_condattr_destroy(&attr);
    *out = g;
    return 0;
}

void cl_policy_guard_delete(struct cl_policy_guard *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->has_watch)
        pthread_join(g->watch, NULL);
    stack_t stack;
    if (sigaltstack(NULL, &stack) == 0 && stack.ss_sp == g->map + STACK_AT)
        sigaltstack(&g->stack_before, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    munmap(g->map, MAP_BYTES);
    free(g);
}

/* Leave the loop's CPU to the loop, if there is another. */
static void stay_off(pid_t tid)
{
    cpu_set_t own, theirs;
    if (sched_getaffinity(0, sizeof own, &own) || sched_getaffinity(tid, sizeof theirs, &theirs))
        return;
    cpu_set_t rest;
    CPU_XOR(&rest, &own, &theirs);
    CPU_AND(&rest, &rest, &own);
    if (CPU_COUNT(&rest))
        sched_setaffinity(0, sizeof rest, &rest);
}

/* Acquire: pairs with the release of `entered`, so that tid is the caller's. */
static void look(struct cl_policy_guard *g)
{
    uint64_t entered = cl_load_acquire(&g->entered);
    int32_t tid = cl_load_relaxed(&g->tid);
    if (entered && cl_tsc() - entered > g->limit_ticks)
        syscall(SYS_tgkill, getpid(), tid, POLICY_SIGNAL);
}

static void *watch_main(void *arg)
{
    struct cl_policy_guard *g = arg;
    int32_t seen = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->stop) {
        if (!g->watching) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + g->watch_ns;
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&g->changed, &g->lock, &until);
        int32_t tid = cl_load_relaxed(&g->tid);
        if (tid != seen)
            stay_off(seen = tid);
        look(g);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

int cl_policy_guard_watch(struct cl_policy_guard *g, bool on, char *err)
{
    int rc = on ? install(err) : 0;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&g->lock);
    g->watching = on;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (on && !g->has_watch) {
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = -pthread_create(&g->watch, NULL, watch_main, g);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc < 0)
            return snprintf(err, ERR_BYTES, "cannot start the thread that watches policies: %s", strerror(-rc)), rc;
        pthread_setname_np(g->watch, "cl-policy-watch");
        g->has_watch = true;
    }
    return 0;
}

struct cl_policy_app *cl_policy_guard_table(struct cl_policy_guard *g, uint32_t n)
{
    return (struct cl_policy_app *)(g->map + TABLE_AT + TABLE_BYTES) - n;
}

/* Once a thread: a stack for the handler, since the policy may have used up the thread's own, and the signals let
 * through, since loop threads begin with all of them blocked. */
static void arm(struct cl_policy_guard *g)
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
    cl_store_relaxed(&g->tid, (int32_t)syscall(SYS_gettid));
    armed_for = g->id;
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
    if (cl_unlikely(armed_for != g->id))
        arm(g);
    struct cl_policy_view *copy = (struct cl_policy_view *)(g->map + VIEW_AT);
    *copy = *view;
    if (sigsetjmp(g->way_out, RESTORE_MASK)) {
        uint32_t reason = describe(g, table, event);
        cl_store_relaxed(&g->entered, 0);
        return reason;
    }
    cl_store_release(&g->entered, cl_tsc()); /* after tid */
    in_call = g;
    /* The compiler must neither begin the call before nor finish it after: the handler reads in_call in this thread. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    fn(copy, table);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    in_call = NULL;
    cl_store_relaxed(&g->entered, 0); /* the watch may see it late, and the handler then finds in_call empty */
    return 0;
}
