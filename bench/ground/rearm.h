/* The loops behind the rows `rearm` of `corelane bench ground`: one of many armed deadlines, chosen at random, is
 * moved.
 *
 * To now + 200 ms, as a retransmission's, so later each time; `sooner`: to a time before all others, so that the alarm
 * has to leave its slot. `store` only writes to the line, `look` reads it first. The loop yields each 1024 moves:
 * timers and alarms come due while it is measured, and what the wheel does then is a part of the time. */
#ifndef CORELANE_BENCH_GROUND_REARM_H
#define CORELANE_BENCH_GROUND_REARM_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_BENCH_REARM_TIMER 0  /* cl_timer_arm: the heap */
#define CL_BENCH_REARM_ALARM 1  /* cl_alarm_arm, later: a store */
#define CL_BENCH_REARM_SOONER 2 /* cl_alarm_arm, sooner: out of a slot and into another */
#define CL_BENCH_REARM_STORE 3  /* no deadline: a store into the line of one. Nothing waits for the line to come */
#define CL_BENCH_REARM_LOOK 4   /* no deadline: a look at that line, and a store: the least that a move can do */

/* ns: of all moves; called: timers or alarms whose callback ran meanwhile. */
struct cl_bench_rearm_result {
    uint64_t ns, moves, called;
};

/* About `n` moves among `armed` deadlines on core `cpu`. -errno and a reason in err. */
CL_API int cl_bench_rearm(uint32_t what, int cpu, uint32_t armed, uint64_t n, struct cl_bench_rearm_result *out,
                          char err[256]);
// cffi: end

#endif
