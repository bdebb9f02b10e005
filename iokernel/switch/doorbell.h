/* Which tx rings a round polls: those of kthreads that have said of late that there is something in theirs.
 *
 * Each application has a word in its arena, a bit a kthread (runtime/shm.h). A kthread sets its bit when it has put
 * something into its ring, if it is not set. From then on the loop polls that ring, each round, as long as anything
 * comes, and for QUIET_NS after that; then it takes the bit back. So whoever sends a lot pays for a load, and whoever
 * is idle costs a round one word, whatever the number of kthreads.
 *
 * Nothing is lost. A kthread that saw its bit set, although the loop was about to take it back, has stored its
 * descriptor before it looked, but perhaps not for all to see: a fence for each burst would be dear. So a ring whose
 * bit was taken back is polled for QUIET_NS more, in which every store of that time has long become visible. A loop
 * that goes to sleep has its own hand-shake (idle.c).
 *
 * Nothing is believed. A bit that is set for nothing costs its setter's neighbours a look: EMPTY_LOOKS of an
 * application a round at most. A bit that is never set costs its owner time: one kthread a round, whosever turn it is,
 * is looked at without having said anything. */
#ifndef CORELANE_IOKERNEL_SWITCH_DOORBELL_H
#define CORELANE_IOKERNEL_SWITCH_DOORBELL_H

#include "../state/internal.h"

#define EMPTY_LOOKS 8 /* rings that a round finds empty in one application; the next one goes on with the others */

/* The ring of k, which is polled, is empty. */
static inline void io_heard_nothing(struct io_loop *loop, struct io_doorbell *bell, struct io_kthread *k, uint64_t bit)
{
    if (cl_likely(loop->now - k->heard < loop->io->quiet_ticks))
        return;
    k->heard = loop->now;
    bell->seen &= ~bit;
    if (cl_load_relaxed(bell->rung) & bit)
        __atomic_fetch_and(bell->rung, ~bit, __ATOMIC_RELAXED); /* relaxed: time is what orders it, see above */
    else
        bell->polled &= ~bit;
}

static inline uint64_t io_rotate(uint64_t bits, uint32_t n)
{
    return bits >> n | bits << (-n & 63);
}

/* Those of `bits` whose rings have something; `*looks` at empty ones are made, from kthread `first` on. */
static inline uint64_t io_look(struct io_loop *loop, struct io_app *app, struct io_doorbell *bell, uint64_t bits,
                               uint32_t first, uint32_t *looks)
{
    uint64_t ready = 0;
    for (uint64_t left = io_rotate(bits, first); left && *looks; left &= left - 1) {
        uint32_t k = ((uint32_t)__builtin_ctzll(left) + first) & 63;
        if (cl_ring_ready(&app->kthreads[k].tx)) {
            ready |= 1ull << k;
            continue;
        }
        io_heard_nothing(loop, bell, &app->kthreads[k], 1ull << k);
        if (--*looks == 0)
            app->next_look = k + 1 == app->n_kthreads ? 0 : k + 1;
    }
    return ready;
}

/* Of more than EMPTY_LOOKS kthreads: those that have just rung first. */
static CL_NOINLINE uint64_t io_ready_of_many(struct io_loop *loop, struct io_app *app, struct io_doorbell *bell,
                                             uint64_t rung)
{
    uint64_t fresh = rung & ~bell->seen;
    bell->seen = rung;
    /* The last round before a sleep leaves nothing out. */
    uint32_t looks = cl_load_relaxed(&loop->state->sleeping) ? CL_SHM_MAX_KTHREADS + 1 : EMPTY_LOOKS;
    uint64_t ready = io_look(loop, app, bell, fresh, 0, &looks);
    return ready | io_look(loop, app, bell, bell->polled & ~fresh, app->next_look, &looks);
}

/* The kthreads of an application, a bit each, whose rings have something. */
static inline uint64_t io_ready(struct io_loop *loop, struct io_app *app, struct io_doorbell *bell)
{
    uint64_t rung = cl_load_relaxed(bell->rung) & ~0ull >> (64 - app->n_kthreads), ready = 0;
    bell->polled |= rung;
    if (cl_unlikely(app->n_kthreads > EMPTY_LOOKS))
        return io_ready_of_many(loop, app, bell, rung);
    for (uint64_t left = bell->polled; left; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left);
        if (cl_ring_ready(&app->kthreads[k].tx))
            ready |= 1ull << k;
        else
            io_heard_nothing(loop, bell, &app->kthreads[k], 1ull << k);
    }
    return ready;
}

/* Whether it has called for help: in the line that is read anyway. */
static inline bool io_help_rung(const struct io_doorbell *bell)
{
    return cl_load_relaxed(&cl_container_of(bell->rung, const struct cl_arena_doorbell, rung)->help_rung) != 0;
}

/* Once a round, where there are applications: the next kthread's ring, whether it has said anything or not. */
static inline void io_look_around(struct io_loop *loop)
{
    struct io_app *app = loop->apps[loop->look_app];
    if (cl_unlikely(cl_ring_ready(&app->kthreads[loop->look_kthread].tx)))
        loop->doorbells[loop->look_app].polled |= 1ull << loop->look_kthread;
    if (++loop->look_kthread < app->n_kthreads) {
        cl_prefetch(&app->kthreads[loop->look_kthread].tx);
        return;
    }
    loop->look_kthread = 0;
    loop->look_app = loop->look_app + 1 < loop->n_apps ? loop->look_app + 1 : 0;
}

#endif
