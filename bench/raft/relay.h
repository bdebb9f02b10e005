/* Raw relays on the virtual switch: what a replicated put takes without protocol, logs, a store and a transport. The
 * leader passes a client's datagram on; who gets it keeps it and says so; the leader answers the client when it and one
 * more have it.
 *
 * In memory: on to two followers, each of which copies it; the leader copies it after the first answer. As many
 * datagrams as a put in memory has, and as many hand-overs of a core. On a disk: on to one follower, as a majority
 * first is (apps/raft/core/pace.c), and both write 4 KiB to a file of their own in the calling thread, as a node writes
 * a lone put. The third replica, which trails, is left out: it has nothing to do while a put is under way. */
#ifndef CORELANE_BENCH_RAFT_RELAY_H
#define CORELANE_BENCH_RAFT_RELAY_H

#include <corelane/libos/runtime.h>

// cffi: begin
struct cl_bench_relay;

struct cl_bench_relay_config {
    uint16_t
        client_port; /* the leader's for clients, who send what apps/kv/udp.h frames and hear "STORED" of each; 0: a
                      * follower */
    uint16_t port;   /* of relays among each other */
    uint32_t followers[2]; /* IPv4 addresses in host byte order; of the leader only */
    int32_t fd;            /* -1: in memory. Else its file, the caller's, open for direct writes if it can be */
    uint64_t file_bytes;   /* which are there already; written round and round */
};

/* Serve on a runtime of one kthread that was not started. -errno and a reason in err (256 bytes). */
CL_API int cl_bench_relay_serve(struct cl_runtime *rt, const struct cl_bench_relay_config *config,
                                struct cl_bench_relay **out, char *err);
/* errno of a write that failed, after which it answers nothing; 0: none did. From any thread. */
CL_API int cl_bench_relay_failed(const struct cl_bench_relay *r);
/* After the runtime has stopped. */
CL_API void cl_bench_relay_delete(struct cl_bench_relay *r);
// cffi: end

#endif
