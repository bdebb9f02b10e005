/* The loops behind the rows `turn` of `corelane bench ground`: a thread that turns an adopted kthread, and a client
 * that asks the runtime over a memory link. */
#ifndef CORELANE_BENCH_GROUND_TURN_H
#define CORELANE_BENCH_GROUND_TURN_H

#include <corelane/drivers/nic.h>
#include <corelane/libos/adopt.h>

// cffi: begin
/* `n` turns of kthread 0 by the calling thread, which has adopted it, pinned to `cpu`: ns in all. Before it is measured
 * it is turned until it sleeps, or 1000 times. */
CL_API int64_t cl_bench_turns(struct cl_sched *sched, int cpu, uint64_t n);
/* Be an event loop on `cpu` that drives kthread 0 until the scheduler has stopped: turns, and a look at its epoll after
 * each `look`th turn in a row, or asleep in it when there is nothing to do. -errno. */
CL_API int cl_bench_drive(struct cl_sched *sched, int cpu, unsigned look);
/* Send `frame` n times on queue 0 of `nic`, from `cpu`, each time when pause_ns have passed since the last answer, and
 * poll for the answer. out[i]: ns from before the frame is sent until the answer is there. -ETIMEDOUT: one took longer
 * than 1 s. */
CL_API int cl_bench_ask(struct cl_nic *nic, int cpu, const uint8_t *frame, uint32_t len, uint64_t n, uint64_t pause_ns,
                        uint32_t *out);
// cffi: end

#endif
