/* One round of a loop. iokernel.h says what it does. */
#include "../state/internal.h"

CL_HOT bool io_round(struct io_loop *loop, uint64_t now)
{
    if (loop->was_busy)
        io_count(loop->stats.busy_ticks, now - loop->now);
    loop->now = now;
    io_commands(loop);
    bool busy = io_poll_uplinks(loop);
    busy |= io_poll_handovers(loop);
    busy |= io_poll_apps(loop);
    io_flush_uplinks(loop);
    if (cl_unlikely(loop->stamping != NULL))
        io_stamp_given(loop);
    if (cl_unlikely(loop->io->config.n_loops > 1))
        io_wake_loops(loop);
    io_wake(loop, !busy);
    io_cores_round(loop, now);
    io_count(loop->stats.rounds, 1);
    io_count(loop->stats.busy_rounds, busy);
    loop->was_busy = busy;
    if (now - loop->last_heartbeat >= loop->io->heartbeat_ticks) {
        loop->last_heartbeat = now;
        cl_store_relaxed(&loop->state->heartbeat_tsc, now);
    }
    return busy;
}
