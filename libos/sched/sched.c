/* The scheduler as an object: new, start, stop, delete, work from foreign threads, statistics. */
#include "runq.h"
#include "scope.h"

#include <corelane/runtime/clock.h>

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_SPIN_NS 2000 /* adaptive with more kthreads than CPUs */
#define LOOK_NS 1000000    /* how often a stop looks whether an adopted kthread's turn has ended */
#define STEPS_OUT 1000000  /* turns for what is left when a stepped scheduler stops */
#define AGAIN_NS 100000000 /* how long a stop waits that comes after one that has waited in vain */

void cl_sched_config_init(struct cl_sched_config *config)
{
    *config = (struct cl_sched_config){
        .n_kthreads = 1,
        .poll = CL_SCHED_ADAPTIVE,
        .stack_bytes = 65536,
        .max_uthreads = 65536,
        .spin_ns = 20000,
        .watch_ns = 1000000,
        .stop_ns = CL_SCHED_STOP_NS,
    };
}

static int check(const struct cl_sched_config *c, char err[256])
{
    const struct cl_work_source *source = c->source;
    if (c->n_kthreads < 1 || c->n_kthreads > CL_SCHED_MAX_KTHREADS)
        snprintf(err, 256, "n_kthreads is %u: expected 1 to %u", c->n_kthreads, CL_SCHED_MAX_KTHREADS);
    else if (c->poll > CL_SCHED_BLOCK)
        snprintf(err, 256, "poll is %u: expected 0 (spin), 1 (adaptive) or 2 (block)", c->poll);
    else if (source && !(source->poll && source->ready && source->pending && source->run))
        snprintf(err, 256, "the work source lacks one of poll, ready, pending, run");
    else if (c->adopted > c->n_kthreads)
        snprintf(err, 256, "adopted is %u: expected at most the %u kthreads", c->adopted, c->n_kthreads);
    else
        return 0;
    return -EINVAL;
}

static uint32_t cpus_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

/* Preemption flags without an iokernel: never set; or with a quantum always set, so that each probe reads the clock. */
static const uint64_t no_preempt = 0, always_preempt = UINT64_MAX;

static int init_kthread(struct cl_sched *s, uint32_t index, const struct cl_sched_config *c)
{
    struct cl_kthread *k = &s->kthreads[index];
    k->sched = s;
    k->index = index;
    k->cpu = c->cpus ? c->cpus[index] : -1;
    k->watch_ns = s->watch_ns;
    k->retry_ns = CL_RETRY_NS;
    k->budget = CL_BUDGET;
    k->trace = cl_trace_tracer(c->trace, index);
    if (k->trace)
        k->trace->cores = c->cores;
    k->lone_wake_ns = 50000;
    k->runq.shared = s->n_kthreads > 1;
    k->own_parker = (struct cl_parker){.word = &k->park_word, .event_fd = -1};
    k->parker = s->source.parker ? s->source.parker(s->source.arg, index) : NULL;
    if (!k->parker)
        k->parker = &k->own_parker;
    struct cl_cores *cores = s->cores;
    k->preempt = cores ? cores->preempt : &no_preempt;
    k->preempt_bit = 1ull << index;
    k->signals = cores ? cores->ops->signals(cores, index) : &k->own_signals;
    k->quantum_ticks = s->quantum_ticks;
    k->watched = cores || k->quantum_ticks;
    cl_wheel_init(k);
    return cl_timers_new(&k->timers);
}

static void init_fields(struct cl_sched *s, const struct cl_sched_config *c)
{
    s->n_kthreads = c->n_kthreads;
    s->poll = c->poll;
    s->adopted = c->adopted ? UINT64_MAX >> (64 - c->adopted) : 0;
    s->sleeps = c->poll != CL_SCHED_SPIN;
    s->helped = s->sleeps && c->n_kthreads > 1;
    s->oversubscribed = c->n_kthreads > cpus_allowed();
    s->spin_ns = s->oversubscribed ? cl_min(c->spin_ns, SHORT_SPIN_NS) : c->spin_ns;
    s->watch_ns = c->watch_ns;
    s->stop_ns = c->stop_ns ? c->stop_ns : CL_SCHED_STOP_NS;
    s->clock = c->clock ? c->clock : cl_clock_default();
    s->fp_control = cl_context_fp_control();
    s->has_source = c->source != NULL;
    s->cores = c->cores;
    s->trace = c->trace;
    s->quantum_ticks = (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)c->quantum_ns);
    s->let_go_ticks = (uint64_t)cl_ns_to_ticks(s->clock, CL_LET_GO_NS);
    s->linger_ticks = (uint64_t)cl_ns_to_ticks(s->clock, CL_LINGER_NS);
    s->probe_word = c->cores ? c->cores->preempt : c->quantum_ns ? &always_preempt : &no_preempt;
    if (c->source)
        s->source = *c->source;
}

int cl_sched_new(const struct cl_sched_config *config, struct cl_sched **out, char err[256])
{
    int rc = check(config, err);
    if (rc)
        return rc;
    struct cl_sched *s = aligned_alloc(128, (sizeof *s + 127) & ~127ul);
    struct cl_kthread *kthreads = aligned_alloc(128, config->n_kthreads * sizeof *kthreads);
    if (!s || !kthreads) {
        snprintf(err, 256, "out of memory for %u kthreads", config->n_kthreads);
        free(s);
        free(kthreads);
        return -ENOMEM;
    }
    memset(s, 0, sizeof *s);
    memset(kthreads, 0, config->n_kthreads * sizeof *kthreads);
    s->kthreads = kthreads;
    init_fields(s, config);
    rc = cl_stacks_new(s, config, err);
    for (uint32_t k = 0; k < s->n_kthreads && rc == 0; k++) {
        rc = init_kthread(s, k, config);
        if (rc)
            snprintf(err, 256, "no address space for the timers of kthread %u", k);
    }
    if (rc == 0)
        rc = cl_adopt_init(s, err);
    if (rc) {
        cl_sched_delete(s);
        return rc;
    }
    cl_order_init(s);
    *out = s;
    return 0;
}

/* All signals but those that a fault of the running code raises. */
static void signals_to_block(sigset_t *set)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF, CL_SCHED_SIGNAL};
    sigfillset(set);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        sigdelset(set, kept[i]);
}

static int start_kthread(struct cl_kthread *k, char err[256])
{
    pthread_attr_t attr;
    cpu_set_t cpus;
    char name[16];
    pthread_attr_init(&attr);
    CPU_ZERO(&cpus);
    if (k->cpu >= 0) {
        if (k->cpu < CPU_SETSIZE)
            CPU_SET(k->cpu, &cpus);
        pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus);
    }
    int rc = pthread_create(&k->thread, &attr, cl_kthread_main, k);
    pthread_attr_destroy(&attr);
    if (rc == EINVAL && k->cpu >= 0) {
        snprintf(err, 256, "kthread %u cannot run on CPU %d: it does not exist, or this process may not use it",
                 k->index, k->cpu);
        return -rc;
    }
    if (rc) {
        snprintf(err, 256, "kthread %u on cpu %d cannot start: %s", k->index, k->cpu, strerror(rc));
        return -rc;
    }
    snprintf(name, sizeof name, "cl-kthread-%u", k->index);
    pthread_setname_np(k->thread, name);
    return 0;
}

/* Let the kthreads that wait for it begin. */
static void begin(struct cl_sched *s)
{
    cl_store_release(&s->go, 1); /* release: what cl_sched_start has done */
    syscall(SYS_futex, &s->go, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Tell the iokernel who the kthreads are. They begin when it knows. */
static int tell_kthreads(struct cl_sched *s, char err[256])
{
    int32_t tids[CL_SCHED_MAX_KTHREADS];
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        while ((tids[k] = cl_load_acquire(&s->kthreads[k].tid)) == 0) /* acquire: nothing else, it runs */
            syscall(SYS_futex, &s->kthreads[k].tid, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return s->cores->ops->threads(s->cores, tids, s->n_kthreads, CL_SCHED_SIGNAL, err);
}

int cl_sched_register(struct cl_sched *s, char err[256])
{
    int rc = tell_kthreads(s, err);
    if (rc == 0)
        begin(s);
    return rc;
}

/* Sleep on a futex while it has `value`, until cl_monotonic_raw_ns() is `until`. False: the time is over. */
static bool sleep_until(const uint32_t *word, uint32_t value, uint64_t until)
{
    int64_t left = (int64_t)(until - cl_monotonic_raw_ns());
    struct timespec ts = {left / 1000000000, left % 1000000000};
    if (left <= 0)
        return false;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &ts, NULL, 0);
    return true;
}

/* End and join n kthreads. False: after stop_ns some have not come back to the loop. */
static bool join_kthreads(struct cl_sched *s, uint32_t n)
{
    uint64_t until = cl_monotonic_raw_ns() + (s->overdue ? AGAIN_NS : s->stop_ns);
    uint32_t ended;
    cl_store_release(&s->ending, 1);
    begin(s);
    if (s->cores)
        s->cores->ops->release(s->cores);
    cl_wake_all(s);
    while (cl_adopted_end(s), (ended = cl_load_acquire(&s->n_ended)) < n) { /* acquire: what they did */
        uint64_t soon = s->adopted ? cl_min(until, cl_monotonic_raw_ns() + LOOK_NS) : until;
        if (!sleep_until(&s->n_ended, ended, soon) && soon == until) {
            s->overdue = true;
            return false;
        }
    }
    for (uint32_t k = 0; k < n; k++)
        if (!(s->adopted & 1ull << k))
            pthread_join(s->kthreads[k].thread, NULL);
    return true;
}

int cl_sched_start(struct cl_sched *s, char err[256])
{
    sigset_t block, before;
    if (s->started || s->stopped) {
        snprintf(err, 256, "the scheduler was started already");
        return -EALREADY;
    }
    int rc = s->cores ? cl_interrupt_install(CL_SCHED_SIGNAL, err) : 0;
    if (rc)
        return rc;
    CPU_ZERO(&s->allowed);
    (void)sched_getaffinity(0, sizeof s->allowed, &s->allowed);
    signals_to_block(&block);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    uint32_t k = 0;
    for (; k < s->n_kthreads; k++)
        if (!(s->adopted & 1ull << k) && (rc = start_kthread(&s->kthreads[k], err)))
            break;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0 && s->cores && !s->adopted)
        rc = tell_kthreads(s, err);
    if (rc) {
        join_kthreads(s, k);
        s->stopped = 1;
        return rc;
    }
    s->started = true;
    if (!s->cores || !s->adopted) /* else when the last was adopted */
        begin(s);
    return 0;
}

unsigned cl_sched_place(struct cl_sched *s, const int32_t *cpus)
{
    unsigned failed = 0;
    for (uint32_t k = 0; k < s->n_kthreads; k++) {
        cpu_set_t set = s->allowed;
        if (cpus && cpus[k] >= 0) {
            CPU_ZERO(&set);
            if (cpus[k] < CPU_SETSIZE)
                CPU_SET(cpus[k], &set);
        }
        if (!(s->adopted & 1ull << k)) /* an adopted one runs where its thread is */
            failed += pthread_setaffinity_np(s->kthreads[k].thread, sizeof set, &set) != 0;
    }
    return failed;
}

/* Wait until a kthread has seen that nothing is alive, or the time is over. */
static void wait_drained(struct cl_sched *s, int64_t timeout_ns)
{
    uint64_t start = cl_monotonic_raw_ns();
    /* Managed: only the thread that the iokernel knows may run it. */
    if (s->adopted && (!s->cores || cl_adopts(s)))
        cl_adopted_drain(s, timeout_ns < 0 ? start + INT64_MAX : start + (uint64_t)timeout_ns);
    while (!cl_load_acquire(&s->drained)) {
        int64_t left = timeout_ns - (int64_t)(cl_monotonic_raw_ns() - start);
        if (timeout_ns >= 0 && left <= 0)
            return;
        struct timespec ts = {left / 1000000000, left % 1000000000};
        syscall(SYS_futex, &s->drained, FUTEX_WAIT_PRIVATE, 0, timeout_ns < 0 ? NULL : &ts, NULL, 0);
    }
}

/* Stepped: uthreads go on here. A bound for those that never come to an end. */
static void step_out(struct cl_sched *s)
{
    unsigned k = 0, idle = 0;
    for (unsigned turns = 0; turns < STEPS_OUT && idle < s->n_kthreads && cl_sched_live(s); turns++) {
        idle = cl_sched_step(s, k) > 0 ? 0 : idle + 1;
        k = k + 1 == s->n_kthreads ? 0 : k + 1;
    }
}

int cl_sched_stop(struct cl_sched *s, int64_t timeout_ns)
{
    struct cl_kthread *self = cl_kthread_self();
    if (self && self->sched == s)
        return -EDEADLK;
    if (s->stopped)
        return s->stopped - 1;
    cl_store_relaxed(&s->stopping, 1); /* relaxed: cl_wake_all begins with a fence */
    if (s->started) {
        for (uint32_t k = 0; k < s->n_kthreads; k++)
            cl_timers_end_sleeps(&s->kthreads[k].timers);
        cl_wake_all(s);
        if (s->cores)
            cl_drain_check(s); /* kthreads without a core are not woken by that, and check no more */
        if (!s->overdue)
            wait_drained(s, timeout_ns);
        if (!join_kthreads(s, s->n_kthreads))
            return -ETIMEDOUT;
    } else if (s->clock->word) {
        for (uint32_t k = 0; k < s->n_kthreads; k++)
            cl_timers_end_sleeps(&s->kthreads[k].timers);
        step_out(s);
    }
    s->stopped = (int)cl_sched_live(s) + 1;
    return s->stopped - 1;
}

void cl_sched_delete(struct cl_sched *s)
{
    if (!s)
        return;
    if (s->started && cl_sched_stop(s, 0) == -ETIMEDOUT)
        return;
    cl_watcher_stop(s);
    cl_adopt_delete(s);
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        cl_timers_delete(&s->kthreads[k].timers);
    cl_stacks_delete(s);
    cl_scopes_delete(s);
    free(s->kthreads);
    free(s);
}

int cl_sched_spawn(struct cl_sched *s, cl_uthread_fn fn, void *arg)
{
    if (cl_load_relaxed(&s->stopping))
        return -ESHUTDOWN;
    if (cl_kthread_index_in(s) >= 0) /* a stack that is warm, and no lock that all share */
        return cl_uthread_spawn(fn, arg, NULL);
    if (cl_managed(s) && s->cores->ops->help_soon)
        s->cores->ops->help_soon(s->cores); /* as cl_inject does below */
    struct cl_uthread *t = cl_stack_get_foreign(s);
    if (!t)
        return -EAGAIN;
    cl_uthread_prepare(t, fn, arg, CL_JOIN_DETACHED);
    cl_inject(s, t, true);
    return 0;
}

struct run {
    cl_uthread_fn fn;
    void *arg;
    uint32_t done;
};

static void run_and_tell(void *arg)
{
    struct run *run = arg;
    run->fn(run->arg);
    cl_store_release(&run->done, 1);
    /* `run` may be gone by now; a wake of nobody does no harm. */
    syscall(SYS_futex, &run->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

int cl_sched_run(struct cl_sched *s, cl_uthread_fn fn, void *arg)
{
    struct run run = {fn, arg, 0};
    if (cl_kthread_self() || cl_adopts(s))
        return -EDEADLK;
    if (!s->started)
        return -EINVAL;
    int rc = cl_sched_spawn(s, run_and_tell, &run);
    while (rc == 0 && !cl_load_acquire(&run.done)) /* acquire: what fn did */
        syscall(SYS_futex, &run.done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return rc;
}

int cl_sched_step(struct cl_sched *s, unsigned index)
{
    if (index >= s->n_kthreads)
        return -EINVAL;
    if (s->started || s->stopped)
        return -EBUSY;
    if (cl_kthread_self())
        return -EDEADLK;
    struct cl_kthread *k = &s->kthreads[index];
    bool promising;
    cl_kthread_bind(k);
    cl_loop_stack_bounds(k);
    unsigned work = cl_turn(k);
    if (work == 0 && s->n_kthreads > 1)
        work = cl_steal(k, &promising);
    cl_kthread_bind(NULL);
    return (int)work;
}

uint64_t cl_sched_next_ns(const struct cl_sched *s)
{
    uint64_t next = CL_NEVER;
    for (uint32_t i = 0; i < s->n_kthreads; i++) {
        const struct cl_kthread *k = &s->kthreads[i];
        next = cl_min(next, cl_load_relaxed(&k->timers.next_ns)); /* relaxed: the caller is who steps it */
        if (k->ran)
            next = cl_min(next, cl_sched_clock(s) + k->retry_ns);
    }
    return next;
}

int cl_uthread_stopping(void)
{
    struct cl_kthread *k = cl_kthread_self();
    return k && cl_load_relaxed(&k->sched->stopping); /* relaxed: it says that something was asked, no more */
}

int cl_sched_stats(const struct cl_sched *s, unsigned k, struct cl_sched_stats *out)
{
    if (k >= s->n_kthreads)
        return -EINVAL;
    const uint64_t *from = (const uint64_t *)&s->kthreads[k].stats;
    uint64_t *to = (uint64_t *)out;
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++)
        to[i] = cl_load_relaxed(&from[i]);
    out->overflowed = cl_load_relaxed(&s->kthreads[k].runq.overflowed);
    if (k == 0)
        out->spawned += cl_load_relaxed(&s->foreign_spawned);
    return 0;
}

bool cl_sched_running(const struct cl_sched *s, unsigned index, struct cl_sched_running *out)
{
    if (index >= s->n_kthreads || !s->started)
        return false;
    const struct cl_kthread *k = &s->kthreads[index];
    if (cl_load_acquire(&k->ended))
        return false;
    /* Relaxed, and of uthreads that are never freed: right of a kthread that is stuck, a guess of others. */
    const struct cl_uthread *t = cl_load_relaxed(&k->current);
    *out = (struct cl_sched_running){.kthread = index, .tid = cl_load_relaxed(&k->tid)};
    if (t) {
        out->fn = cl_load_relaxed(&t->fn);
        out->arg = cl_load_relaxed(&t->arg);
        out->runner = cl_load_relaxed(&t->runner);
    }
    out->doing = cl_load_acquire(t ? &t->doing : &k->doing); /* acquire: what it points to */
    return true;
}

uint64_t cl_sched_live(const struct cl_sched *s)
{
    /* Ends are summed before starts. If both sums are equal, then as many had started as had ended at the instant in
     * between, so nothing was alive then. Acquire: see cl_count_finished. */
    uint64_t finished = 0, spawned = 0;
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        finished += cl_load_acquire(&s->kthreads[k].stats.finished);
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        spawned += cl_load_acquire(&s->kthreads[k].stats.spawned);
    return spawned + cl_load_relaxed(&s->foreign_spawned) - finished;
}

uint64_t cl_sched_now_ns(const struct cl_sched *s)
{
    return cl_sched_clock(s);
}

bool cl_sched_has_ceded(const struct cl_sched *s, unsigned k)
{
    return cl_load_relaxed(&s->kthreads[k].ceded) != 0;
}

unsigned cl_sched_kthreads(const struct cl_sched *s)
{
    return s->n_kthreads;
}
