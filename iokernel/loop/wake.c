/* Waking kthreads that parked, and loops that sleep.
 *
 * Park's handshake (park.h) needs a seq_cst fence between publishing work and reading the park word. The fence waits
 * until all stores to lines of other cores are done, too much for every round of a few frames. So a busy loop reads the
 * park words without one, and wakes the kthreads that it sees parked. It keeps the others on its list until it has
 * re-checked behind a fence: at the next round without work, or after fence_ticks at the latest. A sleeper that the
 * first check missed is woken that much later, and never lost.
 *
 * A frame for everybody may find everybody asleep: PATIENT_WAKES of those are woken a round, lest the others wait
 * meanwhile.
 *
 * The word is the application's to write: one that says PARKED all the time would cost a system call a delivery. A
 * bucket an application bounds that; beyond it wake-ups are delayed, not dropped. */
#include "../state/internal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATIENT_WAKES 2

/* Wake one. Returns false if it must wait for tokens. */
static bool wake_one(struct io_loop *loop, struct io_kthread *k)
{
    struct io_app *app = k->app;
    cl_bucket_refill(&app->wakes, loop->now);
    if (!cl_bucket_open(&app->wakes)) {
        io_count(app->stats.wakes_delayed, 1);
        return false;
    }
    /* Acquire-release: whoever sees RUNNING sees our descriptors; and of several wakers one makes the call. */
    if (cl_exchange(k->park, CL_PARK_RUNNING) != CL_PARK_PARKED)
        return true;
    cl_bucket_take(&app->wakes, 1);
    syscall(SYS_futex, k->park, FUTEX_WAKE, 1, NULL, NULL, 0);
    io_count(app->stats.wakes, 1);
    io_count(loop->stats.syscalls, 1);
    return true;
}

/* Where cores are managed: frames for a kthread without a core, or asleep on it, are the allocator's business, at once
 * if none of its siblings runs; one that has a core and parked is given its work. Returns false if it must be checked
 * again. */
static bool wake_managed(struct io_loop *loop, struct io_kthread *k, bool fence)
{
    const struct io_core *core = k->member.core;
    if (!core || k->blocked) {
        if (k->app->cores.told && (k->app->cores.held == 0 || k->blocked))
            loop->cores.urgent = true;
        return true;
    }
    if (!core->busy && k->app->cores.held >= k->app->cores.maximum)
        return true;  /* it has as many as it may: a sibling takes the frames, or k gets its turn by a decision */
    if (core->moving) /* it may poll its queues, and park again, before we see that it began */
        return false;
    if (cl_load_relaxed(k->park) == CL_KTHREAD_RUNNING)
        return fence;
    if (loop->cores.contested) { /* it has parked, and others wait: the policy says who has the core next */
        loop->cores.urgent = true;
        return false;
    }
    return io_move_wake(loop, k, loop->now);
}

/* Where cores are not managed. Returns false if it must be checked again. `patient`: as many may be woken yet that have
 * time. */
static bool wake_unmanaged(struct io_loop *loop, struct io_kthread *k, bool fence, int32_t *patient)
{
    if (cl_load_relaxed(k->park) != CL_PARK_PARKED)
        return fence;
    if (cl_unlikely(k->touched == IO_TOUCHED_BY_FLOOD) && --*patient < 0)
        return false;
    return wake_one(loop, k);
}

/* Whether any of them may be about to park. Those without a core are the allocator's business, which has fences of its
 * own: to wait here for their frames to get there would only make its decision later. */
static bool any_may_park(const struct io_loop *loop)
{
    for (uint32_t i = 0; i < loop->n_touched; i++)
        if (!loop->cores.n || loop->touched[i]->member.core)
            return true;
    return false;
}

void io_wake(struct io_loop *loop, bool idle)
{
    if (loop->n_touched == 0)
        return;
    bool due = idle || loop->now - loop->last_fence >= loop->io->fence_ticks, fence = due && any_may_park(loop);
    if (fence) {
        cl_fence_seq_cst();
        loop->last_fence = loop->now;
    }
    uint32_t keep = 0;
    int32_t patient = PATIENT_WAKES;
    for (uint32_t i = 0; i < loop->n_touched; i++) {
        struct io_kthread *k = loop->touched[i];
        bool done;
        if (cl_unlikely(loop->cores.n))
            done = wake_managed(loop, k, fence);
        else
            done = wake_unmanaged(loop, k, fence, &patient);
        if (done)
            k->touched = IO_NOT_TOUCHED;
        else
            loop->touched[keep++] = k;
    }
    loop->n_touched = keep;
}

void io_wake_loops(struct io_loop *loop)
{
    bool fenced = false;
    for (uint32_t l = 0; l < loop->io->config.n_loops; l++) {
        if (!loop->handed[l])
            continue;
        loop->handed[l] = false;
        if (!fenced)
            cl_fence_seq_cst(); /* our descriptors before its flag; idle.c has the other half */
        fenced = true;
        struct io_loop *other = &loop->io->loops[l];
        if (!cl_load_relaxed(&other->state->sleeping))
            continue;
        uint64_t one = 1;
        ssize_t ignored = write(other->event_fd, &one, sizeof one); /* EAGAIN: it is being woken anyway */
        (void)ignored;
        io_count(loop->stats.syscalls, 1);
    }
}
