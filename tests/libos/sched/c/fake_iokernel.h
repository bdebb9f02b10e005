/* An iokernel that only moves cores: it registers one application at a time over a real socket, and the test writes the
 * words of docs/cores.md. CPUs are numbers here: no thread is pinned. */
#ifndef TESTS_FAKE_IOKERNEL_H
#define TESTS_FAKE_IOKERNEL_H

#include "check.h"

#include "drivers/port/port.h"
#include <corelane/runtime/cores.h>
#include "runtime/memory.h"
#include "runtime/shm.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define FAKE_CPUS 4
#define FAKE_SLOT 5 /* of kthread 0 */

struct fake {
    char path[108];
    int listener, socket;
    struct cl_memory arena, state;
    struct cl_control_hello hello;
    struct cl_control_kthreads kthreads;
    struct cl_arena_layout layout;
    int doorbell;
    uint64_t generation;
    uint32_t managed; /* KTHREADS was answered: release/acquire */
    bool yield_wait;
    pthread_t thread;
};

static inline struct cl_state_core *fake_core(struct fake *f, unsigned cpu)
{
    const struct cl_state_header *h = f->state.base;
    return (struct cl_state_core *)((uint8_t *)f->state.base + h->cores_offset) + cpu;
}

static inline struct cl_state_kthread *fake_slot(struct fake *f, unsigned k)
{
    const struct cl_state_header *h = f->state.base;
    return (struct cl_state_kthread *)((uint8_t *)f->state.base + h->kthreads_offset) + FAKE_SLOT + k;
}

static inline struct cl_arena_kthread *fake_lines(struct fake *f, unsigned k)
{
    return (struct cl_arena_kthread *)((uint8_t *)f->arena.base + f->layout.lines_offset) + k;
}

static inline uint32_t *fake_rung(struct fake *f)
{
    return &cl_arena_doorbell_of(f->arena.base)->help_rung;
}

static inline uint64_t *fake_preempt(struct fake *f)
{
    return (uint64_t *)((uint8_t *)f->arena.base + CL_ARENA_PREEMPT_OFFSET);
}

static inline void fake_receive(int fd, void *to, size_t n)
{
    CHECK_EQ(recv(fd, to, n, MSG_WAITALL), n);
}

static inline void fake_segments(struct fake *f)
{
    char err[256];
    f->layout = (struct cl_arena_layout){.n_kthreads = f->hello.n_kthreads,
                                         .rx_slots = f->hello.rx_slots ? f->hello.rx_slots : 64,
                                         .tx_slots = f->hello.tx_slots ? f->hello.tx_slots : 64,
                                         .n_rx = f->hello.n_rx ? f->hello.n_rx : 64,
                                         .n_tx = f->hello.n_tx ? f->hello.n_tx : 64,
                                         .buffer_bytes = f->hello.buffer_bytes ? f->hello.buffer_bytes : 512};
    CHECK_EQ(cl_arena_layout_init(&f->layout), 0);
    CHECK_EQ(cl_memory_create("fake-arena", f->layout.total_bytes, 0, &f->arena, err), 0);
    uint64_t cores = 4096, slots = cores + FAKE_CPUS * sizeof(struct cl_state_core);
    uint64_t bytes = slots + CL_SHM_MAX_SLOTS * sizeof(struct cl_state_kthread);
    CHECK_EQ(cl_memory_create("fake-state", bytes, CL_MEMORY_PEERS_READ, &f->state, err), 0);
    f->generation++;
    *(struct cl_state_header *)f->state.base = (struct cl_state_header){.magic = CL_STATE_MAGIC,
                                                                        .version = CL_SHM_VERSION,
                                                                        .n_loops = 1,
                                                                        .generation = f->generation,
                                                                        .never_sleeps = 1,
                                                                        .loops_offset = 2048,
                                                                        .cores_offset = cores,
                                                                        .total_bytes = f->state.bytes,
                                                                        .n_cores = FAKE_CPUS,
                                                                        .manages_cores = 1,
                                                                        .kthreads_offset = slots};
    struct cl_arena_header *h = f->arena.base;
    *h = (struct cl_arena_header){.magic = CL_ARENA_MAGIC,
                                  .version = CL_SHM_VERSION,
                                  .n_kthreads = f->layout.n_kthreads,
                                  .total_bytes = f->layout.total_bytes,
                                  .generation = f->generation,
                                  .doorbell_offset = cl_doorbell_offset(1)};
    for (unsigned k = 0; k < f->layout.n_kthreads; k++)
        fake_slot(f, k)->cpu = -1;
}

static inline void fake_accept(struct fake *f)
{
    struct cl_control_accept a = {
        .header = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_ACCEPT, sizeof a, 0},
        .app = 1,
        .layout = f->layout,
        .generation = f->generation,
        .state_bytes = f->state.bytes,
        .mac = {2, 0, 0, 0, 0, 1},
        .managed = 1,
        .ipv4 = 0x0a4d0001,
        .ipv4_prefix = 24,
        .mtu = 400,
        .slot = FAKE_SLOT,
    };
    memset(a.cpus, 0xff, sizeof a.cpus);
    int fds[CL_CONTROL_FDS] = {f->arena.fd, f->state.fd, f->doorbell};
    CHECK_EQ(cl_fds_send(f->socket, &a, sizeof a, fds, CL_CONTROL_FDS), sizeof a);
}

/* Accept one application and manage it. */
static inline void *fake_serve(void *arg)
{
    struct fake *f = arg;
    f->socket = accept(f->listener, NULL, NULL);
    CHECK(f->socket >= 0);
    fake_receive(f->socket, &f->hello, sizeof f->hello);
    CHECK_EQ(f->hello.header.type, CL_CONTROL_HELLO);
    fake_segments(f);
    fake_accept(f);
    fake_receive(f->socket, &f->kthreads, sizeof f->kthreads);
    CHECK_EQ(f->kthreads.header.type, CL_CONTROL_KTHREADS);
    CHECK_EQ(f->kthreads.n, f->hello.n_kthreads);
    struct cl_control_header ok = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_KTHREADS_OK, sizeof ok, 0};
    cl_store_release(&f->managed, 1);
    CHECK_EQ(send(f->socket, &ok, sizeof ok, 0), sizeof ok);
    return NULL;
}

static inline void fake_up(struct fake *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", f->path);
    unlink(f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    f->doorbell = eventfd(0, EFD_CLOEXEC);
    CHECK_EQ(bind(f->listener, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(listen(f->listener, 1), 0);
    cl_store_relaxed(&f->managed, 0);
    CHECK_EQ(pthread_create(&f->thread, NULL, fake_serve, f), 0);
}

/* The iokernel dies; its memory stays with the application. */
static inline void fake_down(struct fake *f)
{
    pthread_join(f->thread, NULL);
    unlink(f->path);
    close(f->socket);
    close(f->listener);
    close(f->doorbell);
    cl_memory_close(&f->arena);
    cl_memory_close(&f->state);
}

static inline void fake_new(struct fake *f, bool yield_wait)
{
    memset(f, 0, sizeof *f);
    f->yield_wait = yield_wait;
    const char *dir = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/corelane-fake-%d.sock", dir ? dir : "/tmp", getpid());
    fake_up(f);
}

static inline struct cl_nic *fake_attach(struct fake *f, unsigned kthreads, uint32_t reattach_ms)
{
    struct cl_port_config c = {
        .socket_path = f->path, .name = "fake", .n_kthreads = kthreads, .reattach_ms = reattach_ms};
    struct cl_nic *nic;
    char err[256];
    int rc = cl_port_nic_new(&c, &nic, err);
    if (rc)
        fprintf(stderr, "%s\n", err);
    CHECK_EQ(rc, 0);
    CHECK(nic->cores != NULL);
    return nic;
}

/* Take the core `cpu` from k, without a word. */
static inline void fake_take(struct fake *f, unsigned k, unsigned cpu)
{
    cl_store_release(&fake_core(f, cpu)->owner, 0);
    __atomic_fetch_or(fake_preempt(f), 1ull << k, __ATOMIC_RELEASE);
}

static inline void fake_give(struct fake *f, unsigned k, unsigned cpu)
{
    struct cl_state_kthread *slot = fake_slot(f, k);
    cl_store_relaxed(&slot->yield_wait, f->yield_wait);
    cl_store_relaxed(&slot->cpu, (int32_t)cpu);
    cl_store_release(&fake_core(f, cpu)->owner, FAKE_SLOT + k + 1);
    __atomic_fetch_and(fake_preempt(f), ~(1ull << k), __ATOMIC_RELEASE);
    cl_store_release(&slot->grant, slot->grant + 1);
    cl_fence_seq_cst();
    syscall(SYS_futex, &slot->grant, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void fake_signal(struct fake *f, unsigned k)
{
    CHECK_EQ(syscall(SYS_tgkill, getpid(), f->kthreads.tids[k], f->kthreads.signal), 0);
}

/* What kthread k runs has run for its quantum, or what it ran `before` pieces of work ago. */
static inline void fake_over(struct fake *f, unsigned k, uint32_t before)
{
    uint32_t now = cl_load_acquire(&fake_lines(f, k)->signals.switches);
    cl_store_relaxed(&fake_slot(f, k)->quantum_over, now - before);
    __atomic_fetch_or(fake_preempt(f), 1ull << k, __ATOMIC_RELEASE);
}

static inline void fake_no_quantum(struct fake *f, unsigned k)
{
    __atomic_fetch_and(fake_preempt(f), ~(1ull << k), __ATOMIC_RELEASE);
}

/* The signal for that. */
static inline void fake_quantum_signal(struct fake *f, unsigned k)
{
    cl_store_relaxed(&fake_slot(f, k)->quantum_signals, fake_slot(f, k)->quantum_signals + 1);
    fake_signal(f, k);
}

static inline bool fake_saw_signal(struct fake *f, unsigned k)
{
    return cl_load_acquire(&fake_lines(f, k)->quantum_seen) == fake_slot(f, k)->quantum_signals;
}

static inline bool fake_runs(struct fake *f, unsigned k)
{
    return cl_load_acquire(&fake_lines(f, k)->signals.acted) == fake_slot(f, k)->grant &&
           cl_load_acquire(&fake_lines(f, k)->park) == CL_KTHREAD_RUNNING;
}

static inline bool fake_is_ceded(struct fake *f, unsigned k)
{
    uint32_t park = cl_load_acquire(&fake_lines(f, k)->park);
    return park == CL_KTHREAD_CEDED || park == CL_KTHREAD_CEDED_YIELDING;
}

static inline bool fake_is_parked(struct fake *f, unsigned k)
{
    uint32_t park = cl_load_acquire(&fake_lines(f, k)->park);
    return park == CL_KTHREAD_PARKED || park == CL_KTHREAD_PARKED_YIELDING;
}

/* It does not run, having seen that it has no core, or for want of work. */
static inline bool fake_is_away(struct fake *f, unsigned k)
{
    return fake_is_ceded(f, k) || fake_is_parked(f, k);
}

/* Have kthread k, whose core was taken, let go of it by the signal. One that comes at the wrong moment does nothing, so
 * there are more; but who gets one after the other gets to nothing else, least of all on a machine that is busy. */
static inline void fake_interrupt(struct fake *f, unsigned k)
{
    while (!fake_is_away(f, k)) {
        fake_signal(f, k);
        for (int i = 0; i < 20 && !fake_is_away(f, k); i++)
            sched_yield();
        if (!fake_is_away(f, k))
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        while (!(condition))                                                                                           \
            sched_yield();                                                                                             \
    } while (0)

#endif
