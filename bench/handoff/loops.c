/* See loops.h. */
#include "loops.h"

#include <corelane/runtime/clock.h>
#include "../harness/pinned.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OLD 0u
#define NEW 1u
#define MISSED_NS 20000000
#define SETTLED_NS 500000000 /* the longest that a round may take to begin */
#define WORK_NS 1000
#define LOOK_TURNS 100 /* of an empty loop: about 100 ns */

/* Shared by the three. Each word has one writer at a time: the decider sets `owner` to NEW, the new owner back to
 * OLD. */
struct board {
    /* Who has the core. Release and acquire: what was stamped before it changes is seen by who sees the change. */
    uint32_t owner CL_ALIGNED(128);
    /* When the new owner began; 0: not yet. Writers: the decider (0), the new owner. */
    uint64_t began_tsc CL_ALIGNED(128);
    /* Turns of the old owner's loop: it computes if this changes; and when it saw the flag last. Writer: the old owner
     * (relaxed: it is on the new owner's core, and stored the stamp before it let that one run). */
    uint64_t turns CL_ALIGNED(128);
    uint64_t seen_tsc;
    /* 1: the process waits, or is about to. Writers: each its own (release). */
    uint32_t waits[2] CL_ALIGNED(128);
    /* Futexes, bumped by whoever wakes. */
    uint32_t futex[2] CL_ALIGNED(128);
    int event[2]; /* eventfds; constant */
    uint64_t work_ticks;
    uint32_t way;
};

struct bout {
    const struct cl_handoff_config *config;
    struct board *board;
    pid_t pid[2];
};

/* The old owner's, for its signal handler. One bout a process at a time: the handler's process is a child of it. */
static struct board *signalled;

/* A child that cannot play its part ends; rounds then do not begin. Not by exit(): what the parent registered is its
 * own. */
static _Noreturn void give_up(void)
{
    for (;;)
        kill(getpid(), SIGKILL);
}

static void futex_wake(struct board *b, uint32_t who)
{
    __atomic_fetch_add(&b->futex[who], 1, __ATOMIC_RELEASE); /* release: the owner, stored before */
    syscall(SYS_futex, &b->futex[who], FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void futex_wait_until(struct board *b, uint32_t who)
{
    for (;;) {
        uint32_t seen = cl_load_acquire(&b->futex[who]); /* read before the look: a wake-up in between changes it */
        if (cl_load_acquire(&b->owner) == who)
            return;
        cl_store_release(&b->waits[who], 1);
        syscall(SYS_futex, &b->futex[who], FUTEX_WAIT, seen, NULL, NULL, 0);
    }
}

static void yield_until(struct board *b, uint32_t who)
{
    cl_store_release(&b->waits[who], 1);
    while (cl_load_acquire(&b->owner) != who)
        sched_yield();
}

static void event_wait_until(struct board *b, uint32_t who)
{
    uint64_t value;
    while (cl_load_acquire(&b->owner) != who) {
        cl_store_release(&b->waits[who], 1);
        if (read(b->event[who], &value, sizeof value) < 0 && errno != EINTR)
            give_up();
    }
}

/* The signal is blocked, and stays pending if it comes before the wait. */
static void signal_wait_until(struct board *b, uint32_t who)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (cl_load_acquire(&b->owner) != who) {
        cl_store_release(&b->waits[who], 1);
        if (sigwaitinfo(&set, NULL) < 0 && errno != EINTR)
            give_up();
    }
}

static void wait_until_owner(struct board *b, uint32_t who)
{
    switch (b->way) {
    case CL_HANDOFF_YIELD:
    case CL_HANDOFF_SIGNAL:
    case CL_HANDOFF_IDLE_YIELD:
        yield_until(b, who);
        break;
    case CL_HANDOFF_EVENTFD:
    case CL_HANDOFF_IDLE_EVENTFD:
        event_wait_until(b, who);
        break;
    case CL_HANDOFF_IDLE_SIGNAL:
        signal_wait_until(b, who);
        break;
    default:
        futex_wait_until(b, who);
    }
    cl_store_release(&b->waits[who], 0);
}

static void on_signal(int number)
{
    (void)number;
    if (cl_load_acquire(&signalled->owner) != OLD)
        wait_until_owner(signalled, OLD);
}

/* Computes for ever, and cedes as the way says. */
static void be_old(struct board *b)
{
    bool looks = b->way == CL_HANDOFF_YIELD || b->way == CL_HANDOFF_FUTEX;
    if (b->way == CL_HANDOFF_WAKE_IDLE) {
        struct sched_param zero = {0};
        if (sched_setscheduler(0, SCHED_IDLE, &zero))
            give_up();
    }
    signalled = b;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    for (uint64_t turns = 1;; turns++) {
        for (int i = 0; i < LOOK_TURNS; i++)
            __asm__ volatile("");
        cl_store_relaxed(&b->turns, turns);
        if (looks && cl_unlikely(cl_load_acquire(&b->owner) != OLD)) {
            cl_store_relaxed(&b->seen_tsc, cl_tsc());
            if (b->way == CL_HANDOFF_FUTEX)
                futex_wake(b, NEW);
            wait_until_owner(b, OLD);
        }
    }
}

/* Waits, works for a microsecond, gives the core back; for ever. */
static void be_new(struct board *b)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        give_up();
    for (;;) {
        wait_until_owner(b, NEW);
        uint64_t began = cl_tsc();
        cl_store_release(&b->began_tsc, began); /* the decider waits for it; nothing else is stored before */
        while (cl_tsc() - began < b->work_ticks)
            ;
        cl_store_release(&b->owner, OLD);
        if (b->way == CL_HANDOFF_FUTEX)
            futex_wake(b, OLD);
    }
}

static int pin(pid_t tid, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    return sched_setaffinity(tid, sizeof set, &set) ? -errno : 0;
}

/* Only system calls and plain loops from here on in the child: the parent may have had threads that held locks. */
static pid_t start(struct bout *h, uint32_t who)
{
    pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid < 0 ? -errno : pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || pin(0, h->config->worker_cpu))
        give_up();
    if (who == OLD)
        be_old(h->board);
    else
        be_new(h->board);
    give_up();
}

static void end(struct bout *h)
{
    for (int who = 0; who < 2; who++)
        if (h->pid[who] > 0) {
            kill(h->pid[who], SIGKILL);
            waitpid(h->pid[who], NULL, 0);
        }
    for (int who = 0; who < 2; who++)
        if (h->board->event[who] >= 0)
            close(h->board->event[who]);
    munmap(h->board, sizeof *h->board);
}

static bool has_old(const struct bout *h)
{
    return h->config->way < CL_HANDOFF_IDLE_YIELD;
}

/* Shenango's new owner is blocked when the core is decided on, and was put on the scheduler's core when it parked. The
 * old one, which blocks as well, is let go on. Off the measured path. */
static int rearm_events(struct bout *h)
{
    int rc = pin(h->pid[NEW], h->config->decider_cpu);
    uint64_t one = 1;
    if (!rc && has_old(h) && write(h->board->event[OLD], &one, sizeof one) < 0)
        rc = -errno;
    return rc;
}

static bool uses_events(const struct bout *h)
{
    return h->config->way == CL_HANDOFF_EVENTFD || h->config->way == CL_HANDOFF_IDLE_EVENTFD;
}

/* Wait until the new one waits and the old one computes, and then for settle_ns. -ETIMEDOUT: they do not get there. */
static int settle(struct bout *h, bool first)
{
    struct board *b = h->board;
    uint64_t limit = cl_bench_wall_ns() + SETTLED_NS;
    while (!cl_load_acquire(&b->waits[NEW]) || cl_load_acquire(&b->owner) != OLD)
        if (cl_bench_wall_ns() > limit)
            return -ETIMEDOUT;
    if (uses_events(h) && !first) {
        int rc = rearm_events(h);
        if (rc)
            return rc;
    }
    uint64_t turns = cl_load_relaxed(&b->turns);
    while (has_old(h) && cl_load_relaxed(&b->turns) == turns)
        if (cl_bench_wall_ns() > limit)
            return -ETIMEDOUT;
    uint64_t start_ns = cl_bench_wall_ns();
    while (cl_bench_wall_ns() - start_ns < h->config->settle_ns)
        cl_relax();
    return 0;
}

/* The decision, and all that the decider does for it. */
static int decide(struct bout *h)
{
    struct board *b = h->board;
    uint64_t one = 1;
    cl_store_release(&b->owner, NEW);
    switch (h->config->way) {
    case CL_HANDOFF_YIELD:
    case CL_HANDOFF_FUTEX:
    case CL_HANDOFF_IDLE_YIELD:
        return 0;
    case CL_HANDOFF_SIGNAL:
        return syscall(SYS_tgkill, h->pid[OLD], h->pid[OLD], SIGUSR1) ? -errno : 0;
    case CL_HANDOFF_IDLE_SIGNAL:
        return syscall(SYS_tgkill, h->pid[NEW], h->pid[NEW], SIGUSR1) ? -errno : 0;
    case CL_HANDOFF_EVENTFD:
        if (syscall(SYS_tgkill, h->pid[OLD], h->pid[OLD], SIGUSR1))
            return -errno;
        for (uint64_t limit = cl_bench_wall_ns() + MISSED_NS; !cl_load_acquire(&b->waits[OLD]);)
            if (cl_bench_wall_ns() > limit)
                return 0; /* the round is missed */
        break;
    case CL_HANDOFF_IDLE_EVENTFD:
        break;
    default:
        futex_wake(b, NEW);
        return 0;
    }
    int rc = pin(h->pid[NEW], h->config->worker_cpu);
    return rc ? rc : write(b->event[NEW], &one, sizeof one) < 0 ? -errno : 0;
}

static double since(uint64_t start, uint64_t stamp)
{
    return (double)cl_ticks_to_ns(cl_clock_default(), (int64_t)(stamp - start));
}

/* One round. 1: done, 0: missed. Negative: -errno. */
static int one_round(struct bout *h, struct cl_handoff_times *out)
{
    struct board *b = h->board;
    cl_store_relaxed(&b->began_tsc, 0); /* ordered before `owner`, which is stored with release */
    uint64_t limit = cl_bench_wall_ns() + MISSED_NS;
    uint64_t start = cl_tsc();
    int rc = decide(h);
    if (rc)
        return rc;
    for (uint64_t began, n = 0;; n++) {
        if ((began = cl_load_acquire(&b->began_tsc))) {
            uint64_t seen = cl_load_relaxed(&b->seen_tsc);
            *out = (struct cl_handoff_times){since(start, began), (int64_t)(seen - start) > 0 ? since(start, seen) : 0};
            return 1;
        }
        if (n % 256 == 255 && cl_bench_wall_ns() > limit)
            return 0;
    }
}

static int rounds(struct bout *h, struct cl_handoff_times *times, struct cl_handoff_result *out)
{
    uint64_t limit = cl_bench_wall_ns() + h->config->limit_ns;
    while (out->rounds + out->missed < h->config->rounds && cl_bench_wall_ns() < limit) {
        int rc = settle(h, out->rounds + out->missed == 0);
        if (rc)
            return rc;
        rc = one_round(h, &times[out->rounds]);
        if (rc < 0)
            return rc;
        out->rounds += rc == 1;
        out->missed += rc == 0;
    }
    return 0;
}

static int prepare(struct bout *h)
{
    struct board *b = h->board;
    b->way = h->config->way;
    b->work_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), WORK_NS);
    for (int who = 0; who < 2; who++)
        if ((b->event[who] = eventfd(0, EFD_CLOEXEC)) < 0)
            return -errno;
    for (uint32_t who = has_old(h) ? OLD : NEW; who <= NEW; who++) {
        pid_t pid = start(h, who);
        if (pid < 0)
            return pid;
        h->pid[who] = pid;
    }
    return 0;
}

int cl_handoff_run(const struct cl_handoff_config *config, struct cl_handoff_times *times,
                   struct cl_handoff_result *out, char *err)
{
    struct bout h = {.config = config};
    cpu_set_t before;
    *out = (struct cl_handoff_result){0};
    if (config->way >= CL_HANDOFF_WAYS || config->decider_cpu < 0 || config->worker_cpu < 0 ||
        config->decider_cpu >= CPU_SETSIZE || config->worker_cpu >= CPU_SETSIZE ||
        config->decider_cpu == config->worker_cpu)
        return snprintf(err, CL_BENCH_ERR_BYTES, "a hand-over needs a known way and two different cores"), -EINVAL;
    sched_getaffinity(0, sizeof before, &before);
    h.board = mmap(NULL, sizeof *h.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h.board == MAP_FAILED)
        return snprintf(err, CL_BENCH_ERR_BYTES, "out of memory"), -ENOMEM;
    memset(h.board, 0, sizeof *h.board);
    h.board->event[0] = h.board->event[1] = -1;
    int rc = pin(0, config->decider_cpu);
    if (!rc)
        rc = prepare(&h);
    if (!rc)
        rc = rounds(&h, times, out);
    end(&h);
    sched_setaffinity(0, sizeof before, &before);
    if (rc == -ETIMEDOUT)
        snprintf(err, CL_BENCH_ERR_BYTES, "the two processes did not come to where a round begins");
    else if (rc)
        snprintf(err, CL_BENCH_ERR_BYTES, "hand over a core between processes: %s", strerror(-rc));
    return rc;
}
