/* A host of connections without a NIC, a thread or a clock: sockets that never wait, packets in and out as bytes, and a
 * time that its owner moves. For scripts of packets, fuzzers and the model checker: what runs is the machine (conn.h).
 *
 * Sockets are numbers from 0 on. A call that would have to wait is -EAGAIN. Packets are IPv4 with their checksums; what
 * is neither a segment to this host nor an ICMP error about one of its own is ignored. Packets that were sent are kept
 * until they are taken, each with its time.
 * Threads: one at a time. Tests: tests/libos/net/tcp/test_host.py. */
#ifndef CORELANE_LIBOS_NET_TCP_HOST_H
#define CORELANE_LIBOS_NET_TCP_HOST_H

#include "listen.h"

// cffi: begin
#define CL_TCP_HOST_SOCKETS 64

struct cl_tcp_host;

/* What of a host can be set before its first socket, or of a connection (it counts from now on). Times in ms. */
enum cl_tcp_host_option {
    CL_TCP_SET_SEND_LIMIT = 0,
    CL_TCP_SET_RECEIVE_LIMIT,
    CL_TCP_SET_NO_DELAY,
    CL_TCP_SET_KEEP_ALIVE,
    CL_TCP_SET_USER_TIMEOUT,
    CL_TCP_SET_QUICK_ACK, /* of a socket only: acknowledge the next segments at once, or none */
    CL_TCP_SET_WSCALE,
    CL_TCP_SET_OPTIONS, /* CL_TCPO_* */
    CL_TCP_SET_KEEP_IDLE,
    CL_TCP_SET_KEEP_INTERVAL,
    CL_TCP_SET_KEEP_PROBES,
    CL_TCP_SET_FIN_WAIT,
    CL_TCP_SET_RTO_LEAST,
    CL_TCP_SET_DELAYED_ACK,
    CL_TCP_SET_TAIL_PROBES,
    CL_TCP_SET_BLACK_HOLES,
    CL_TCP_SET_ECN,
    CL_TCP_SET_RULE, /* of congestion: 0 cubic, 1 newreno, 2 dctcp */
    CL_TCP_SET_SYN_RETRIES,
    CL_TCP_SET_SYN_ACK_RETRIES,
    CL_TCP_SET_KEEPS_WINDOW, /* of congestion, while idle */
    CL_TCP_SET_CORK,         /* of a socket only */
    CL_TCP_SET_MSS           /* what is taken, and no more than the MTU leaves */
};

/* cl_tcp_host_ready */
#define CL_TCP_READABLE 1 /* bytes, an end or an error; of a listener: a connection */
#define CL_TCP_WRITABLE 2
#define CL_TCP_PEER_SHUT 4
#define CL_TCP_OVER 8    /* both directions, or an error */
#define CL_TCP_FAILED 16 /* an error is to be told */

/* What has gone over the wire for a connection, of which its block keeps no count. Segments, bytes of data, ns. */
struct cl_tcp_host_traffic {
    uint64_t segs_in, segs_out, data_segs_in, data_segs_out;
    uint64_t bytes_acked, bytes_received, bytes_sent, bytes_resent;
    uint64_t busy_ns;    /* something was written and not acknowledged */
    uint64_t limited_ns; /* of that: something was not sent, and the peer's window had no room for it */
    uint64_t mss_offered;
    uint64_t out_of_order; /* segments with data that lay beyond a gap */
    uint64_t again;        /* segments under way that were sent more than once, and are not taken for lost since */
    uint64_t data_sent_ns, data_came_ns, ack_came_ns; /* the last time, by the host's; 0: never */
};

/* New host with an address (host byte order), whose time is now_ns. -ENOMEM. */
CL_API int cl_tcp_host_new(uint32_t ipv4, uint32_t mtu, uint64_t now_ns, struct cl_tcp_host **out);
CL_API void cl_tcp_host_delete(struct cl_tcp_host *h);
CL_API int cl_tcp_host_set(struct cl_tcp_host *h, int option, uint32_t value);
/* Let the time pass up to now_ns; what is due meanwhile happens when it is due. */
CL_API void cl_tcp_host_run(struct cl_tcp_host *h, uint64_t now_ns);
/* When something is due; UINT64_MAX: nothing is. */
CL_API uint64_t cl_tcp_host_due_ns(const struct cl_tcp_host *h);
/* A packet comes in. */
CL_API void cl_tcp_host_take(struct cl_tcp_host *h, const uint8_t *packet, uint32_t len);
/* The next packet that it sent. Returns its length, and when; 0: none. */
CL_API uint32_t cl_tcp_host_next(struct cl_tcp_host *h, uint8_t *packet, uint32_t room, uint64_t *at_ns);

/* A socket that listens. -EMFILE, -EADDRINUSE. */
CL_API int cl_tcp_host_listen(struct cl_tcp_host *h, uint16_t port, uint32_t backlog);
/* The next connection. -EAGAIN, -EINVAL: it does not listen. */
CL_API int cl_tcp_host_accept(struct cl_tcp_host *h, int s, uint32_t *peer, uint16_t *peer_port);
/* Begin to connect. */
CL_API int cl_tcp_host_connect(struct cl_tcp_host *h, uint16_t own_port, uint32_t ipv4, uint16_t port);
/* How that went: 0, -EINPROGRESS, or the error. */
CL_API int cl_tcp_host_connected(const struct cl_tcp_host *h, int s);
/* The error of a connection, once; 0: there is none. -EBADF. */
CL_API int cl_tcp_host_error(struct cl_tcp_host *h, int s);
/* 0: the end. -EAGAIN, or the error of the connection, once. */
CL_API int64_t cl_tcp_host_read(struct cl_tcp_host *h, int s, void *data, int64_t room);
/* The same, and what is read stays. */
CL_API int64_t cl_tcp_host_peek(struct cl_tcp_host *h, int s, void *data, int64_t room);
/* -EAGAIN: there is no room; -EPIPE, or the error of the connection, once. more: more is written soon (cl_tcp_more). */
CL_API int64_t cl_tcp_host_write(struct cl_tcp_host *h, int s, const void *data, int64_t len);
CL_API int64_t cl_tcp_host_send(struct cl_tcp_host *h, int s, const void *data, int64_t len, bool more);
CL_API int cl_tcp_host_shutdown(struct cl_tcp_host *h, int s);
/* The socket is gone; with `abort` by a reset. */
CL_API int cl_tcp_host_close(struct cl_tcp_host *h, int s, bool abort);
CL_API int cl_tcp_host_set_socket(struct cl_tcp_host *h, int s, int option, uint32_t value);
/* CL_TCP_READABLE, ...; -EBADF. */
CL_API int cl_tcp_host_ready(const struct cl_tcp_host *h, int s);
/* -EBADF, -ENOTCONN: none was opened. */
CL_API int cl_tcp_host_info(const struct cl_tcp_host *h, int s, struct cl_tcp_info *out);
/* -EBADF, -ENOTCONN. */
CL_API int cl_tcp_host_traffic(const struct cl_tcp_host *h, int s, struct cl_tcp_host_traffic *out);
/* Bytes of chunks that connections hold. */
CL_API uint64_t cl_tcp_host_held(const struct cl_tcp_host *h);
CL_API void cl_tcp_host_counts(const struct cl_tcp_host *h, struct cl_tcp_counts *out);
// cffi: end

#endif
