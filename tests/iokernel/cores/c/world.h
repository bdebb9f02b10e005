/* An iokernel that manages cores, stepped on a clock of its own, and applications whose kthreads are words that the
 * test writes. Each kthread has a real thread behind it, asleep, so that signals, affinities and demotions go
 * somewhere. */
#ifndef CORES_WORLD_H
#define CORES_WORLD_H

#include "../../../../iokernel/state/iokernel.h"
#include "../../../../runtime/net.h"
#include "scenarios.h"
#include "tests/support/c/asleep.h"

#include <corelane/runtime/clock.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define US 1000ull /* the clock counts nanoseconds */
#define MS 1000000ull
#define MAX_KTHREADS 4 /* as a rule */
#define MOST_KTHREADS 12
#define MAX_APPS 16
#define SLOTS 64
#define BUFFERS 64
#define SIGNAL SIGURG

struct kthread {
    volatile sig_atomic_t interrupted;
    struct cl_arena_kthread *line;
    struct cl_state_kthread *state;
    uint32_t slot;
    pthread_t thread;
    int32_t tid;
    sem_t born, may_end;
    bool blocks; /* the signal */
    bool ended;
    uint64_t burn_ns; /* CPU time that it is to use before it waits again */
    bool spins;       /* and longer, as long as this is set; atomic */
};

struct app {
    uint32_t id, n, ip;
    uint8_t mac[6];
    struct cl_arena_layout l;
    uint8_t *base;
    uint64_t *preempt;
    struct kthread k[MOST_KTHREADS];
    struct cl_ring_tx tx;
    struct cl_ring_rx rx[MOST_KTHREADS];
};

struct world {
    struct cl_io *io;
    uint64_t now;
    uint8_t *state;
    struct cl_state_core *cores; /* by CPU */
    uint32_t n_cores, n_loops;
    struct app apps[MAX_APPS];
    uint32_t n_apps;
    uint64_t log_next, log_lost;
    uint64_t roused; /* new owners sent the signal, as of the last step */
};

static sem_t signalled;
static volatile sig_atomic_t signals_seen;

static __thread struct kthread *self;

static inline int seen_signals(void)
{
    return __atomic_load_n(&signals_seen, __ATOMIC_RELAXED);
}

static inline void on_signal(int s)
{
    (void)s;
    if (self)
        __atomic_store_n(&self->interrupted, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&signals_seen, 1, __ATOMIC_RELAXED);
    sem_post(&signalled);
}

static inline uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void *sleeper(void *arg)
{
    struct kthread *k = self = arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGNAL);
    pthread_sigmask(k->blocks ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
    k->tid = (int32_t)syscall(SYS_gettid);
    sem_post(&k->born);
    for (;;) {
        while (sem_wait(&k->may_end) < 0)
            continue;
        if (k->burn_ns == 0)
            return NULL;
        for (uint64_t end = thread_ns() + k->burn_ns;
             thread_ns() < end || __atomic_load_n(&k->spins, __ATOMIC_RELAXED);)
            continue;
        sem_post(&k->born);
    }
}

/* Have k's thread use the CPU for so long, which takes that long by the clock of the wall. */
static inline void burn(struct kthread *k, uint64_t ns)
{
    k->burn_ns = ns;
    sem_post(&k->may_end);
    while (sem_wait(&k->born) < 0)
        continue;
    k->burn_ns = 0;
    await_sleep(k->tid);
}

/* Have k's thread use the CPU, or wait for it, until end_spin. */
static inline void spin(struct kthread *k)
{
    __atomic_store_n(&k->spins, true, __ATOMIC_RELAXED);
    k->burn_ns = 1;
    sem_post(&k->may_end);
}

static inline void end_spin(struct kthread *k)
{
    __atomic_store_n(&k->spins, false, __ATOMIC_RELAXED);
    while (sem_wait(&k->born) < 0)
        continue;
    k->burn_ns = 0;
}

/* A thread in a call of the kernel that no signal ends (state D): it waits for a child that shares its fate as of
 * vfork(2). */
struct in_call {
    pthread_t thread;
    int32_t tid;
    int end[2]; /* pipe: closed, it ends */
    _Alignas(16) char stack[65536];
};

static inline int wait_for_end(void *arg)
{
    struct in_call *c = arg;
    char byte;
    close(c->end[1]);
    while (read(c->end[0], &byte, 1) < 0)
        continue;
    _exit(0);
}

static inline void *caller(void *arg)
{
    struct in_call *c = arg;
    __atomic_store_n(&c->tid, (int32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    int pid = clone(wait_for_end, c->stack + sizeof c->stack, CLONE_VFORK | SIGCHLD, c);
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
    return NULL;
}

/* k is that thread from here on, until end_call: for an application that has not told its threads. */
static inline void begin_call(struct in_call *c, struct kthread *k)
{
    char path[64], text[256];
    c->tid = 0;
    CHECK(pipe(c->end) == 0 && pthread_create(&c->thread, NULL, caller, c) == 0);
    while (!__atomic_load_n(&c->tid, __ATOMIC_ACQUIRE))
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", c->tid);
    for (bool in = false; !in; sched_yield()) {
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        in = strstr(text, ") D ") != NULL;
    }
    k->tid = c->tid;
}

static inline void end_call(struct in_call *c)
{
    close(c->end[1]);
    pthread_join(c->thread, NULL);
    close(c->end[0]);
}

static inline void end_thread(struct kthread *k)
{
    if (k->ended)
        return;
    k->ended = true;
    /* One that was demoted gets a three-hundredth of a busy processor: on a machine full of tests it would take seconds
     * to end. May fail, without the right to: then it takes them. */
    sched_setscheduler(k->tid, SCHED_OTHER, &(struct sched_param){0});
    sem_post(&k->may_end);
    pthread_join(k->thread, NULL);
    while (syscall(SYS_tgkill, getpid(), k->tid, 0) ==
           0) /* the kernel says so a little earlier than the thread is gone */
        sched_yield();
}

struct setting { /* of a world; 0: what cl_io_config says */
    const char *policy;
    uint32_t cores, loops, cede_us, interrupt_us, start_us, yield_wait_us;
    uint32_t blocked_us; /* 0: never, since all threads here sleep */
    bool scan_only;
    uint64_t params[8];
};

static inline void set_policy(struct world *w, const char *name, const uint64_t *params)
{
    struct cl_policy_setting s = {.fn = cl_policy_find(name)};
    memcpy(s.params, params, sizeof s.params);
    CHECK(s.fn);
    CHECK(cl_io_policy_set(w->io, &s, err) > 0);
}

static inline void world_new(struct world *w, struct setting s)
{
    struct cl_io_config c = {.tsc_hz = 1000000000,
                             .poll = CL_IO_SPIN,
                             .mtu = 400,
                             .manage_cores = 1,
                             .n_loops = s.loops ? s.loops : 1,
                             .n_worker_cpus = s.cores ? s.cores : 1,
                             .cede_us = s.cede_us,
                             .interrupt_us = s.interrupt_us,
                             .start_us = s.start_us,
                             .yield_wait_us = s.yield_wait_us,
                             .scan_only = s.scan_only,
                             .blocked_us = s.blocked_us ? s.blocked_us : UINT32_MAX};
    for (uint32_t i = 0; i < c.n_worker_cpus; i++)
        c.worker_cpus[i] = (int32_t)i; /* CPUs that do not exist cannot be bound to, which is counted */
    memset(w, 0, sizeof *w);
    w->now = 1 * MS;
    w->n_cores = c.n_worker_cpus;
    w->n_loops = c.n_loops;
    CHECK(cl_io_new(&c, &w->io, err) == 0);
    w->state = mmap(NULL, cl_io_state_bytes(w->io), PROT_READ, MAP_SHARED, cl_io_state_fd(w->io), 0);
    CHECK(w->state != MAP_FAILED);
    const struct cl_state_header *h = (struct cl_state_header *)w->state;
    CHECK(h->manages_cores == 1);
    w->cores = (struct cl_state_core *)(w->state + h->cores_offset);
    set_policy(w, s.policy ? s.policy : "shenango", s.params);
    sem_init(&signalled, 0, 0);
    __atomic_store_n(&signals_seen, 0, __ATOMIC_RELAXED);
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGNAL, &sa, NULL);
}

struct wish { /* of an application */
    uint32_t loop, kind, kthreads, guaranteed, maximum, weight, quantum_us, quantum_signal;
    bool blocks, mute; /* mute: do not tell its threads */
};

static inline void tell_threads(struct world *w, struct app *a)
{
    int32_t tids[MOST_KTHREADS];
    for (uint32_t i = 0; i < a->n; i++)
        tids[i] = a->k[i].tid;
    CHECK(cl_io_app_threads(w->io, a->id, getpid(), tids, a->n, SIGNAL, err) == 0);
}

static inline struct app *app_at(struct world *w, uint32_t at, struct wish wish)
{
    const struct cl_state_header *h = (struct cl_state_header *)w->state;
    uint32_t n = wish.kthreads ? wish.kthreads : 1;
    struct cl_io_app_config c = {.layout = {n, SLOTS, SLOTS, BUFFERS, BUFFERS, 512},
                                 .loop = wish.loop,
                                 .ipv4 = 0x0a4d0001u + at,
                                 .mac = {2, 0, 0, 0, 0, (uint8_t)(at + 1)},
                                 .kind = wish.kind,
                                 .guaranteed = wish.guaranteed,
                                 .maximum = wish.maximum,
                                 .weight = wish.weight,
                                 .quantum_us = wish.quantum_us,
                                 .quantum_signal = wish.quantum_signal};
    struct cl_io_app_grant g;
    struct app *a = &w->apps[at];
    snprintf(c.name, sizeof c.name, "app%u", at);
    CHECK(cl_io_app_add(w->io, &c, &g, err) == 0);
    *a = (struct app){.id = g.app, .n = n, .ip = c.ipv4, .l = g.layout};
    memcpy(a->mac, c.mac, 6);
    a->base = mmap(NULL, a->l.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g.arena_fd, 0);
    CHECK(a->base != MAP_FAILED);
    a->preempt = (uint64_t *)(a->base + CL_ARENA_PREEMPT_OFFSET);
    struct cl_arena_kthread *lines = (struct cl_arena_kthread *)(a->base + a->l.lines_offset);
    struct cl_desc *rx = (struct cl_desc *)(a->base + a->l.rx_offset);
    cl_ring_tx_init(&a->tx, (struct cl_desc *)(a->base + a->l.tx_offset), &lines[0].tx_head, SLOTS);
    for (uint32_t i = 0; i < n; i++) {
        struct kthread *k = &a->k[i];
        k->line = &lines[i];
        k->slot = g.slot + i;
        k->state = (struct cl_state_kthread *)(w->state + h->kthreads_offset) + k->slot;
        k->line->park = CL_KTHREAD_PARKED; /* waits for its first grant */
        k->line->signals.timer_tsc = UINT64_MAX;
        k->line->signals.lost_tsc = (uint32_t)cl_tsc(); /* old at any move: 0 looks like a stamp of now at times */
        k->blocks = wish.blocks;
        cl_ring_rx_init(&a->rx[i], rx + (size_t)i * SLOTS, &lines[i].rx_head, SLOTS);
        sem_init(&k->born, 0, 0);
        sem_init(&k->may_end, 0, 0);
        CHECK(pthread_create(&k->thread, NULL, sleeper, k) == 0);
        sem_wait(&k->born);
        await_sleep(k->tid);
    }
    if (!wish.mute)
        tell_threads(w, a);
    return a;
}

static inline struct app *app_add(struct world *w, struct wish wish)
{
    return app_at(w, w->n_apps++, wish);
}

static inline void app_remove(struct world *w, struct app *a)
{
    struct cl_io_app_final final;
    CHECK(cl_io_app_remove(w->io, a->id, &final, err) == 0);
    CHECK(final.buffers_lost == 0);
    for (uint32_t i = 0; i < a->n; i++)
        end_thread(&a->k[i]);
    munmap(a->base, a->l.total_bytes);
    a->id = 0;
}

static inline void world_delete(struct world *w)
{
    for (uint32_t i = 0; i < w->n_apps; i++)
        if (w->apps[i].id)
            app_remove(w, &w->apps[i]);
    munmap(w->state, cl_io_state_bytes(w->io));
    cl_io_delete(w->io);
}

/* Rounds of each loop, a microsecond apart. */
static inline bool owns(const struct world *w, const struct kthread *k)
{
    return k->state->cpu >= 0 && w->cores[k->state->cpu].owner == k->slot + 1;
}

/* k's thread has taken its signal, and sleeps again. A thread of the test that comes before all others of its CPU lends
 * k's its right to it: else both would wait there until the kernel takes the CPU from the test, a second later. */
static inline void await_rest(const struct kthread *k)
{
    int policy = sched_getscheduler(0) == SCHED_FIFO ? sched_getscheduler(k->tid) : -1;
    if (policy >= 0)
        CHECK(sched_setscheduler(k->tid, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}) == 0);
    while (state_of_thread(k->tid) == 'R')
        sched_yield();
    if (policy >= 0)
        CHECK(sched_setscheduler(k->tid, policy, &(struct sched_param){0}) == 0);
}

/* New owners that were sent the signal have taken it, and sleep again: the clock of the world does not run
 * meanwhile. */
static inline void settle(struct world *w)
{
    struct cl_io_cores_stats s;
    uint64_t roused = 0;
    for (uint32_t l = 0; l < w->n_loops; l++) {
        CHECK(cl_io_cores_stats(w->io, l, &s) == 0);
        roused += s.roused;
    }
    if (roused == w->roused)
        return;
    w->roused = roused;
    for (uint32_t i = 0; i < w->n_apps; i++)
        for (uint32_t k = 0; k < w->apps[i].n; k++)
            if (owns(w, &w->apps[i].k[k]) && !w->apps[i].k[k].ended && !w->apps[i].k[k].spins)
                await_rest(&w->apps[i].k[k]);
}

static inline void run(struct world *w, uint64_t ns)
{
    for (uint64_t end = w->now + ns; w->now < end;) {
        w->now += US;
        for (uint32_t l = 0; l < w->n_loops; l++)
            cl_io_step(w->io, l, w->now);
        settle(w);
    }
}

/* What an honest kthread does when it looks: runs if it has its core, cedes if not. */
static inline bool acts(struct world *w, struct kthread *k)
{
    if (owns(w, k)) {
        k->line->signals.acted = k->state->grant;
        k->line->park = CL_KTHREAD_RUNNING;
        return true;
    }
    if (k->line->park == CL_KTHREAD_RUNNING)
        k->line->park = k->state->yield_wait ? CL_KTHREAD_CEDED_YIELDING : CL_KTHREAD_CEDED;
    return false;
}

static inline void ready(struct kthread *k, uint32_t n) /* uthreads become ready on k */
{
    k->line->signals.runq_tail += n;
}

static inline void drain(struct kthread *k) /* everything that waited on k is taken */
{
    struct cl_signals *s = &k->line->signals;
    s->switches += s->runq_tail - s->runq_head;
    s->runq_head = s->runq_tail;
    s->inbox_head = s->inbox_tail;
    s->storage_seen = s->storage_done;
}

static inline void park(struct kthread *k)
{
    k->line->signals.in_uthread = 0;
    k->line->park = k->state->yield_wait ? CL_KTHREAD_PARKED_YIELDING : CL_KTHREAD_PARKED;
}

/* Get k running: work, a decision, its answer. */
static inline void start(struct world *w, struct kthread *k)
{
    ready(k, 1);
    run(w, 10 * US);
    CHECK(acts(w, k));
    k->line->signals.in_uthread = 1;
    drain(k);
    run(w, 2 * US);
}

static inline struct cl_io_app_cores cores_of(const struct world *w, const struct app *a)
{
    struct cl_io_app_cores s;
    CHECK(cl_io_app_cores(w->io, a->id, &s) == 0);
    return s;
}

static inline struct cl_io_cores_stats stats_of(const struct world *w)
{
    struct cl_io_cores_stats s;
    CHECK(cl_io_cores_stats(w->io, 0, &s) == 0);
    return s;
}

static inline uint64_t moves_by(const struct world *w, uint32_t step)
{
    return cl_hist_count(cl_io_actuation(w->io, 0, step));
}

/* A frame from `from` to `to`, by the first's first kthread. */
static inline void send_frame(struct app *from, const struct app *to, uint16_t port)
{
    uint32_t b = BUFFERS + (from->tx.tail & (SLOTS - 1));
    struct cl_udp_frame *f = (struct cl_udp_frame *)(from->base + from->l.buffers_offset + b * from->l.buffer_stride);
    cl_udp_headers(f, from->mac, to->mac, from->ip, to->ip, port, 9, 32);
    memset(f->payload, 0, 32);
    CHECK(cl_ring_push(&from->tx, cl_tx_word(CL_TX_SEND, b, 0, CL_UDP_HEADERS + 32),
                       cl_tx_payload(CL_SHM_NO_BUFFER, CL_SHM_NO_BUFFER)));
    cl_doorbell_set(cl_arena_doorbell_of(from->base), 0);
}

static inline unsigned receive(struct app *a, uint32_t k)
{
    struct cl_desc d[SLOTS];
    unsigned n = cl_ring_pop(&a->rx[k], d, SLOTS);
    cl_ring_publish(&a->rx[k]);
    return n;
}

#endif
