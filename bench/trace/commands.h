/* A group of two Raft nodes whose commands are delayed at a known stage, in virtual time: that part of delays.h.
 *
 * The first node leads, the second has to agree to all, and its runtime is the client's, too. Both have logs in memory,
 * whose devices take 1 us a request.
 * Threads: the caller's, alone. */
#ifndef CORELANE_BENCH_TRACE_COMMANDS_H
#define CORELANE_BENCH_TRACE_COMMANDS_H

#include "delays.h"

/* As cl_bench_delays, of what the first node has written down: its commands are of service 1. */
int64_t cl_bench_commands(const struct cl_bench_delays *config, void *out, uint32_t room, char err[256]);

#endif
