/* See turn.h. */
#include "turn.h"

#include "../harness/pinned.h"

#include <corelane/runtime/clock.h>

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define WARM 1000
#define LONGEST_NS 1000000000ull

static int pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return -pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int64_t cl_bench_turns(struct cl_sched *sched, int cpu, uint64_t n)
{
    int rc = pin(cpu);
    for (unsigned i = 0; rc >= 0 && i < WARM && (i == 0 || rc > 0); i++)
        rc = cl_kthread_turn(sched, 0);
    uint64_t begin = cl_tsc();
    for (uint64_t i = 0; rc >= 0 && i < n; i++)
        rc = cl_kthread_turn(sched, 0);
    return rc < 0 ? rc : cl_ticks_to_ns(cl_clock_default(), (int64_t)(cl_tsc() - begin));
}

static int drive(struct cl_sched *sched, int epoll, unsigned look)
{
    struct epoll_event events[4];
    for (unsigned i = 1;; i++) {
        int rc = cl_kthread_turn(sched, 0);
        if (rc < 0)
            return rc == -ESHUTDOWN ? 0 : rc;
        if ((rc == 0 || i % look == 0) && epoll_wait(epoll, events, 4, rc ? 0 : -1) < 0 && errno != EINTR)
            return -errno;
    }
}

int cl_bench_drive(struct cl_sched *sched, int cpu, unsigned look)
{
    char err[256];
    struct epoll_event readable = {.events = EPOLLIN};
    int rc = pin(cpu), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        return -errno;
    if (rc == 0)
        rc = cl_kthread_adopt(sched, 0, err);
    if (rc == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, cl_kthread_fd(sched, 0), &readable))
        rc = -errno;
    if (rc == 0)
        rc = drive(sched, epoll, look);
    close(epoll);
    return rc;
}

/* Ticks from before a frame is sent until the answer is there; 0: none comes. */
static uint64_t ask(struct cl_nic *nic, const uint8_t *frame, uint32_t len, uint64_t longest)
{
    struct cl_frame f;
    uint64_t begin = cl_tsc();
    if (!nic->ops->alloc(nic, 0, &f, 1))
        return 0;
    memcpy(f.data, frame, len);
    f.len = (uint16_t)len;
    if (nic->ops->tx_burst(nic, 0, &f, 1) != 1)
        return 0;
    while (!nic->ops->rx_burst(nic, 0, &f, 1))
        if (cl_tsc() - begin > longest)
            return 0;
    uint64_t took = cl_tsc() - begin;
    nic->ops->free(nic, 0, &f, 1);
    return took;
}

int cl_bench_ask(struct cl_nic *nic, int cpu, const uint8_t *frame, uint32_t len, uint64_t n, uint64_t pause_ns,
                 uint32_t *out)
{
    const struct cl_clock *clock = cl_clock_default();
    uint64_t pause = (uint64_t)cl_ns_to_ticks(clock, (int64_t)pause_ns);
    uint64_t longest = (uint64_t)cl_ns_to_ticks(clock, (int64_t)LONGEST_NS);
    int rc = pin(cpu);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        for (uint64_t begin = cl_tsc(); cl_tsc() - begin < pause;)
            cl_relax();
        uint64_t took = ask(nic, frame, len, longest);
        if (!took)
            return -ETIMEDOUT;
        out[i] = (uint32_t)cl_ticks_to_ns(clock, (int64_t)took);
    }
    return rc;
}
