/* The floor under a core that changes hands: two raw processes on it, and a third one that decides on another core.
 *
 * No packets, no iokernel, no policy, no uthreads. The generator (the calling thread, on the core that an iokernel
 * would have) draws arrivals as the load generator does and puts each one's due time into a shared log. The server
 * spends a service time on each, stamps its answer, and gives the core to the batch job when there is no more. The job
 * is the batch function with its probes, whose word is the owner of the core itself: the generator sets it for the
 * server when the oldest request is as old as it is told to let it grow, less what the first answer took after the last
 * decisions; the server clears it. The hand-over is sched_yield() by both, with restartable sequences given up, as
 * libos does it.
 *
 * A service time is spent in a loop that touches no memory. Or, in a turn that says so, the server does with each
 * request what kv does with it: its handler of datagrams, on a store of its own. Then both find their caches as the
 * other one left them, and what that takes is in the floor as well.
 *
 * One line has all that the two of the worker core hand over, and its writer is the generator only while it is the
 * job's. */
#ifndef CORELANE_BENCH_COLOCATE_RAW_H
#define CORELANE_BENCH_COLOCATE_RAW_H

#include "../../runtime/hist.h"
#include <corelane/libos/udp.h>

// cffi: begin
#define CL_RAW_MOST 1048576 /* requests a turn, at most */
#define CL_RAW_BATCH 0      /* `owner`: the job computes; the server waits */
#define CL_RAW_SERVER 1     /* and the other way round */
#define CL_RAW_STEPS 65536  /* hand-overs whose stamps are kept, at most */

struct cl_raw_board {
    /* Who has the core, and how many requests were answered when the server gave it away last. Writer: the generator
     * while it is CL_RAW_BATCH, the server while it is CL_RAW_SERVER (release: its answers). Readers: all three
     * (acquire). */
    uint64_t owner CL_ALIGNED(128);
    uint64_t served;
    uint64_t began; /* cl_tsc(): when the server saw that it has the core. Writer: the server; reader: the generator */
    /* Requests due so far. Writer: the generator (release: their times); reader: the server (acquire). */
    uint64_t due_n CL_ALIGNED(128);
    /* Odd: a turn, in which both run; each has a number of its own. Writer: who measures; readers: both (relaxed). */
    uint64_t turn CL_ALIGNED(128);
    uint64_t service_ticks; /* of a request. Written before a turn */
    uint64_t keeps;         /* 1: the server keeps the core all through the turn. Written before it */
    uint64_t computes; /* 1: a request is done by kv's handler, and takes no service_ticks besides. Written before it */
    /* The turn that the server is in; 0: none. Writer: the server (release); reader: who measures (acquire). */
    uint64_t ready CL_ALIGNED(128);
    /* Units of work done; cl_tsc(): when a probe of the job found that it has lost the core. Writer: the job (relaxed);
     * readers: who measures; the generator. */
    uint64_t work CL_ALIGNED(128);
    uint64_t seen;
    /* cl_tsc(): when each was due, and when it was answered (0: it was not). Writers: the generator; the server. */
    uint64_t due[1048576] CL_ALIGNED(128);
    uint64_t answered[1048576];
};

/* cl_tsc() of a hand-over to the server: the oldest request was due, the generator decided, the job saw it, the server
 * began, its first answer was ready. */
struct cl_raw_step {
    uint64_t due, decided, seen, began, answered;
};

/* Requests to be done in the server's turn, again and again: as many of kv's, with room for a reply in each. */
struct cl_raw_requests {
    struct cl_udp_req *each;
    uint64_t n;
    cl_udp_burst_handler handler;
    void *arg;
};

struct cl_raw_load {
    double rate; /* requests a second */
    uint64_t duration_ns;
    uint64_t target_ns; /* age at which the oldest is to be answered; 0: at once */
    uint64_t drain_ns;  /* how long answers are awaited afterwards */
    uint64_t seed;
    int32_t cpu;               /* the generator's */
    struct cl_raw_step *steps; /* NULL, or room for the first CL_RAW_STEPS */
};

struct cl_raw_result {
    uint64_t start_tsc, end_tsc; /* of the schedule */
    uint64_t requests;           /* due[] and answered[] of the board have as many entries */
    uint64_t moves;              /* to the server and back, of the schedule's time */
    uint64_t steps;              /* of load->steps that were written */
    uint64_t first_ticks;        /* from a decision to the first answer, of the last ones on average */
    uint64_t server_ticks;       /* from each decision for the server until it gave the core back */
    uint64_t work;               /* units that the job did in that time */
};

/* Forget the last load. Between turns. */
CL_API void cl_raw_reset(struct cl_raw_board *b, uint64_t keeps);
/* Offer a load in the calling thread, pinned meanwhile; the others are in their turn. -errno with a reason in
 * err[256]. */
CL_API int cl_raw_offer(struct cl_raw_board *b, const struct cl_raw_load *load, struct cl_raw_result *out, char *err);
/* Add the latencies, ns, of the requests due from one time to another; returns how many were due. Unanswered:
 * infinite. */
CL_API uint64_t cl_raw_latencies(const struct cl_raw_board *b, uint64_t requests, uint64_t from_tsc, uint64_t to_tsc,
                                 struct cl_hist *out);
/* Serve, in the calling thread, until the turn is over. requests: for turns that compute. */
CL_API void cl_raw_serve(struct cl_raw_board *b, uint64_t turn, const struct cl_raw_requests *requests);
/* Let probes of the calling thread look at this board from now on, and cl_raw_cede() wait there. */
CL_API void cl_raw_bind(struct cl_raw_board *b);
/* What a probe calls if the owner is not the job: waits until it is, or the turn is over. */
CL_API void cl_raw_cede(void);
// cffi: end

#endif
