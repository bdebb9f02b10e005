/* Which of an application's kthreads its flows go to: those that have cores.
 *
 * Frames of a flow that is steered away are still in the ring of the kthread that it leaves. Each frame has the number
 * of steerings before it with it, so that libos can keep them in order (libos/net/order.c).
 *
 * Tests: tests/iokernel/cores/c/order.c, tests/iokernel/cores/c/sibling.c. */
#include "../state/internal.h"

static inline bool may_take_frames(const struct io_kthread *k)
{
    return k->member.core && !k->blocked;
}

/* Where none may take frames: the one that ran last runs next as a rule, unless it is known that it cannot. */
static uint8_t next_to_run(const struct io_app *app)
{
    const struct io_kthread *last = app->cores.last_run ? app->cores.last_run : app->kthreads, *k = last;
    for (uint32_t i = 0; (k->blocked || k->member.dead) && i < app->n_kthreads; i++)
        k = &app->kthreads[i];
    return (uint8_t)((k->blocked || k->member.dead ? last : k) - app->kthreads);
}

void io_steer(struct io_loop *loop, struct io_app *app)
{
    struct io_allotment *a = &app->cores;
    uint8_t active[CL_SHM_MAX_KTHREADS];
    uint32_t n = 0;
    if (app->n_kthreads == 1)
        return;
    for (uint32_t k = 0; k < app->n_kthreads; k++)
        if (may_take_frames(&app->kthreads[k]))
            active[n++] = (uint8_t)k;
    if (n == 0)
        active[n++] = next_to_run(app);
    bool changed = !a->steered;
    for (uint32_t i = 0; i < IO_STEER; i++) {
        /* A flow stays with its kthread as long as that one has a core. */
        uint32_t home = i * app->n_kthreads / IO_STEER;
        uint8_t to = may_take_frames(&app->kthreads[home]) ? (uint8_t)home : active[i % n];
        changed |= a->steer[i] != to;
        a->steer[i] = to;
    }
    a->steered = true;
    a->steerings += changed;
    io_count(loop->cores.stats.steers, 1);
}
