/* The floors under a durable put of replicas that share one core: what is left of them without protocol, packets and
 * logs. A client on a core of its own asks by a word in shared memory; the leader hands on by a word each, and all who
 * are sent the put write their own file and wait for their own completion. Who waits calls sched_yield, the cheapest
 * way to hand the core to the next one, the leader after it has looked for its client's next put for 2 us, as our nodes
 * do (libos/sched/linger.h). The put is answered when two of the writes are done.
 *
 * Sent to all: to two followers at once. To a majority first, as pace.c does it: to one follower at once, and the
 * second one trails: it is sent what it missed when that is so many puts, or so old, and writes it in one go; between
 * it sleeps, as a node does. */
#ifndef CORELANE_BENCH_RAFT_BOUND_H
#define CORELANE_BENCH_RAFT_BOUND_H

#include <corelane/drivers/blk.h>

// cffi: begin
struct cl_bench_raft_bound {
    int32_t
        client_cpu; /* where the client waits, yielding like the others, so that the kernel's worker gets it if it needs
                     * to */
    int32_t writers_cpu; /* of the three writers */
    uint32_t
        trail_puts; /* 0: sent to all. Else the second follower is sent what it missed when it is so many puts, ... */
    uint64_t trail_ns; /* ... or this much later than the last time */
    const int *
        fds; /* NULL: requests to blks, and looks. Else of the same three files: each writer calls pwritev2 (RWF_DSYNC),
              * which sleeps */
};

/* n puts. blks: of the leader and its two followers, each with queue 0 unused otherwise. Durable writes, one after the
 * other through each device, which goes round: of 4 KiB for a put, and of what the missed entries would take in our log
 * for who trails. put_ns[i]: from the client's word until it sees the answer. The next put begins when the writes of
 * all who were sent this one at once are done, too. Returns when the third has all, too. -errno and a reason in err. */
CL_API int cl_bench_raft_bound(struct cl_blk **blks, const struct cl_bench_raft_bound *how, uint32_t n,
                               uint64_t *put_ns, char err[256]);
// cffi: end

#endif
