/* Kthreads that others bind: taskset, a cpuset, a CPU that went offline and came back.
 *
 * The loop binds a kthread to the CPU of the core that it is given (move.c) and knows by that where it runs. Somebody
 * else may change that at any time, and a job that was put on the loop's CPU would stay there, beside an idle core. So
 * once in OFTEN_NS the loop reads a kthread's affinity (a system call of half a microsecond), with the checks of
 * overrun.c. A kthread that is bound elsewhere is counted, and bound again: at once if it has a core, else when it gets
 * one. A bind that the kernel refused is tried again in the same way, and not counted. The check also finds an owner
 * whose thread has ended, if blocked.c has not.
 *
 * Tests: tests/iokernel/cores/c/affinity.c, tests/iokernel/cores/test_affinity.py. */
#include "../state/internal.h"

#define OFTEN_NS 50000000

static uint64_t next_look(const struct io_loop *loop)
{
    return loop->now + (uint64_t)cl_ns_to_ticks(loop->io->clock, OFTEN_NS);
}

void io_affinity_bind(struct io_loop *loop, struct io_kthread *k, const struct io_core *core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core->cpu, &set);
    k->member.bound = io_thread_bind(loop, k, &set);
    k->member.pinned = (int32_t)core->cpu; /* also if it failed: it runs where it is, until it is tried again */
    k->member.next_affinity = next_look(loop);
}

void io_affinity_check(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_member *m = &k->member;
    if (m->pinned < 0 || m->demoted || (m->dead && !m->core) || (int64_t)(now - m->next_affinity) < 0)
        return;
    m->next_affinity = next_look(loop);
    if (!io_thread_alive(loop, k)) { /* its number may be a stranger's by now */
        if (m->core)
            io_move_died(loop, m->core, now);
        return;
    }
    if (io_thread_is_bound(loop, k, m->pinned))
        return;
    io_count(loop->cores.stats.affinities_changed, m->bound);
    m->bound = false;
    if (!m->core) {
        m->pinned = -1;
        return;
    }
    cl_bucket_refill(&k->app->wakes, now);
    if (cl_bucket_open(&k->app->wakes))
        io_affinity_bind(loop, k, m->core);
}
