/* A Raft node on a libos runtime: its peers and clients over UDP, its log on a block device or in memory.
 *
 * Two ports. On `port`, frames of other nodes (channel.h) and of clients (link.h): a client's are those of
 * apps/raft/node/frame.h with `from` 0, and it gets its answer in the same form (client.py). On `kv_port`, if it is not
 * 0, memcached's protocol over UDP as kv speaks it, and on `kv_tcp_port` over TCP (stream.c), for the built-in state
 * machine; any node may be asked.
 *
 * Or, with resp.port, Redis' protocols over TCP in front of typed values (resp.c): the node that leads executes them,
 * the others say who that is.
 *
 * Everything happens on the runtime's one kthread, in handlers and timer callbacks that do not block, so there are no
 * locks: a frame that comes is handled to its end, its answers sent, in the same burst. A log's device is polled after
 * each burst, and by the scheduler while writes are in flight (corelane/libos/complete.h). A lone write may be the
 * kthread's own (in_call.h). */
#ifndef CORELANE_APPS_RAFT_SERVICE_SERVE_H
#define CORELANE_APPS_RAFT_SERVICE_SERVE_H

#include <corelane/libos/runtime.h>
#include <corelane/drivers/blk.h>
#include "../node/node.h"

// cffi: begin
/* Another node. */
struct cl_raft_address {
    uint32_t id;
    uint32_t ipv4; /* host byte order */
    uint16_t port;
    uint16_t pad;
};

struct cl_raft_serve_config {
    struct cl_raft_node_config node; /* env is filled in; machine.apply NULL: the key-value store */
    struct cl_raft_address peers[CL_RAFT_MAX_NODES];
    uint32_t n_peers;
    uint16_t port;        /* of frames */
    uint16_t kv_port;     /* 0: none */
    uint16_t kv_tcp_port; /* 0: none */
    uint16_t pad2;
    uint32_t kv_connections, kv_backlog; /* at most, ... that are being opened; 0: as kv (kv/stream/front.h) */
    uint64_t kv_held_bytes;              /* that connections may hold; 0: as kv */
    uint32_t foreign;                    /* 1: the state machine is in Python (cl_runtime_bind_udp_foreign) */
    uint32_t pad;
    struct cl_blk *blk; /* that node.log is on, and its queue: nobody else uses it */
    uint32_t blk_queue;
    uint32_t in_call;         /* 1: a lone durable write may be carried out by the kthread itself (in_call.c) */
    uint64_t kv_memory_bytes; /* [64 MiB] of the store, or of the values */
    /* Redis' protocols over TCP, and typed values in the store's place (resp.c); kv_port and kv_tcp_port are 0 then. */
    struct cl_raft_resp_config {
        uint16_t port; /* 0: none */
        uint16_t pad;
        uint32_t backlog;     /* connections that are being opened at one time */
        const char *policy;   /* maxmemory-policy; NULL: noeviction */
        const char *password; /* NULL: none */
    } resp;
};

/* Writer: the kthread; readers: anybody (relaxed). */
struct cl_raft_serve_counters {
    uint64_t frames_in, frames_out, datagrams_in, datagrams_out;
    uint64_t malformed; /* datagrams that are no piece of a frame, and frames of a kind that there is not */
    uint64_t too_long;  /* datagrams of frames longer than any that is taken; the first of a request is answered */
    uint64_t given_up;  /* frames of which a piece never came */
    uint64_t not_sent;  /* datagrams that the NIC did not take: no room, or longer than its MTU */
    uint64_t unknown_peer;
    /* Between nodes (channel.h): datagrams sent again, and timeouts; received twice, of or for a former incarnation of
     * a node, and pieces that there was no place for (they come again); frames refused for a full window; datagrams
     * dropped that were never acknowledged. */
    uint64_t retransmitted, timeouts, duplicates, stale, no_room, window_full, unacknowledged;
    uint64_t in_call, in_call_late,
        in_call_long;   /* lone writes by the kthread; work came meanwhile; too long (in_call.h) */
    uint64_t tcp_turns; /* of connections: commands that went to the group together */
    uint64_t tcp_late;  /* answers whose connection was closed */
    /* Of RESP: times that this node became who executes commands, and ceased to be; entries of units, and their bytes;
     * replies that were confirmed by a query; times that the group took no entry yet; answers of a former epoch. */
    uint64_t resp_opened, resp_lost, resp_entries, resp_bytes, resp_queries, resp_put_off, resp_late;
    uint64_t resp_refused; /* commands that came to the nodes' port: they would not be what RESP's clients did */
    uint64_t resp_leads;   /* not counted, but as of now: 1 while this node executes commands */
    uint64_t kv_requests, kv_answers, kv_refused; /* refused: too short, of several datagrams, or an answer itself */
};

struct cl_raft_service;
struct cl_kv_front;
struct cl_resp_service;

/* Bind the ports on a runtime of one kthread that has not started. -EINVAL, -EADDRINUSE, -ENOMEM with a reason in
 * err. */
CL_API int cl_raft_serve(struct cl_runtime *rt, const struct cl_raft_serve_config *config, struct cl_raft_service **out,
                         char err[256]);
/* The runtime must have stopped, and may be deleted; or it never started, and is deleted next. A log is closed before,
 * by its owner: what its last writes make the node answer goes nowhere. */
CL_API void cl_raft_service_delete(struct cl_raft_service *service);
CL_API struct cl_raft_node *cl_raft_service_node(struct cl_raft_service *service);
/* Connections of kv_tcp_port; NULL: it has none. */
CL_API struct cl_kv_front *cl_raft_service_front(struct cl_raft_service *service);
/* The port of RESP; NULL: it has none. */
CL_API struct cl_resp_service *cl_raft_service_resp(struct cl_raft_service *service);
CL_API void cl_raft_service_counters(const struct cl_raft_service *service, struct cl_raft_serve_counters *out);
/* Ask for a change of members, or, with n_voters 0, to hand leadership to learners[0]: it is done on the kthread at the
 * next tick. From any thread. cl_raft_service_asked says how it ended: -EINPROGRESS until then. */
CL_API int cl_raft_service_ask(struct cl_raft_service *service, const uint32_t *voters, uint32_t n_voters,
                               const uint32_t *learners, uint32_t n_learners);
CL_API int cl_raft_service_asked(const struct cl_raft_service *service);
/* State as of the last tick. From any thread; whole but for fields of different ticks. */
CL_API void cl_raft_service_status(const struct cl_raft_service *service, struct cl_raft_status *out);
/* For how many ns it has been leading; UINT64_MAX: as of the last tick it does not. From any thread. */
CL_API uint64_t cl_raft_service_leads_for_ns(const struct cl_raft_service *service);
// cffi: end

#endif
