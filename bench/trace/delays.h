/* A server whose requests are delayed for a known reason, in virtual time, and what it has written down of them: for
 * `trace.blame_right`.
 *
 * One client asks at random times, by a seed; the server, with one kthread, takes a random time for each request. One
 * of `one_in` requests is delayed by delay_ns in one way. All of it, and so the records, is the same in each run of a
 * seed.
 * Threads: the caller's, alone. */
#ifndef CORELANE_BENCH_TRACE_DELAYS_H
#define CORELANE_BENCH_TRACE_DELAYS_H

#include "../../runtime/trace.h"

// cffi: begin
/* Where a request is delayed. */
#define CL_BENCH_DELAY_RUNS 0    /* its handler computes */
#define CL_BENCH_DELAY_INBOX 1   /* a long request of another port is in front of it */
#define CL_BENCH_DELAY_QUEUED 2  /* its handler gives way, and another uthread runs */
#define CL_BENCH_DELAY_SLEEP 3   /* its handler sleeps */
#define CL_BENCH_DELAY_MUTEX 4   /* somebody else has the mutex that it wants */
#define CL_BENCH_DELAY_COND 5    /* it waits for a condition */
#define CL_BENCH_DELAY_SEM 6     /* for a semaphore */
#define CL_BENCH_DELAY_JOIN 7    /* for a uthread to end */
#define CL_BENCH_DELAY_CHANNEL 8 /* for an element of a channel */
#define CL_BENCH_DELAY_READ 9    /* for a datagram of another server */
#define CL_BENCH_DELAY_LOG 10    /* for a record to be durable */
#define CL_BENCH_DELAY_CORE 11   /* its kthread loses its core in the middle of it */
#define CL_BENCH_DELAY_RING 12   /* the NIC has it, and the kthread does not */
#define CL_BENCH_DELAY_REPLY 13  /* the NIC takes no answers */
/* Commands of a group (commands.h). */
#define CL_BENCH_DELAY_OWN_LOG 14 /* the leader's log takes long to write it */
#define CL_BENCH_DELAY_OTHERS 15  /* the other node's does */
#define CL_BENCH_DELAY_APPLY 16   /* the state machine computes */
#define CL_BENCH_DELAYS 17

struct cl_bench_delays {
    uint32_t where; /* CL_BENCH_DELAY_* */
    uint32_t requests;
    uint32_t one_in;
    uint32_t interval_ns; /* between requests, mean */
    uint32_t service_ns;  /* what a handler takes, mean */
    uint32_t delay_ns;
    uint64_t seed;
};

/* Run it, and copy what was written down, up to room records of CL_TRACE_RECORD bytes, to out; stamps are ns. Requests
 * for port 9000, and commands, are of service 1. Returns how many. -errno with one line in err. */
CL_API int64_t cl_bench_delays(const struct cl_bench_delays *config, void *out, uint32_t room, char err[256]);
// cffi: end

#endif
