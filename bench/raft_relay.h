/* Three bare relays on the virtual switch: what a replicated put takes without protocol, logs, a store and a transport. The
 * leader passes a client's datagram on to two followers; each copies it into memory and says so; after the first answer the
 * leader copies it, too, and answers the client. As many datagrams as a put in memory has, and as many hand-overs of a core. */
#ifndef CORELANE_BENCH_RAFT_RELAY_H
#define CORELANE_BENCH_RAFT_RELAY_H

#include "../libos/runtime.h"

// cffi: begin
struct cl_bench_relay;

/* Serve on a runtime of one kthread that was not started. client_port: the leader's for clients, who send what
 * apps/kv/udp.h frames and hear "STORED" of each; 0: a follower. port: of relays among each other. followers: IPv4
 * addresses of two, in host byte order; of the leader only. -errno and a reason in err (256 bytes). */
CL_API int cl_bench_relay_serve(struct cl_runtime *rt, uint16_t client_port, uint16_t port, const uint32_t *followers,
                                struct cl_bench_relay **out, char *err);
/* After the runtime has stopped. */
CL_API void cl_bench_relay_delete(struct cl_bench_relay *r);
// cffi: end

#endif
