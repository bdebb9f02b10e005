/* UDP for applications: request handlers, and sockets that block a uthread. Part of the C API (libos.h).
 *
 * A handler is called on a uthread for each datagram of its port, in no order that it could rely on: siblings steal.
 * One that is bound as ordered (cl_runtime_bind_udp_ordered) gets the datagrams of a flow, which is the two addresses
 * and ports, in the order in which the NIC gave them, one at a time. It may block (sleep, lock, send, receive): the
 * rest of the kthread's requests then goes on on another uthread. `request` and `reply` are different memory; `reply`
 * already lies in the NIC's buffer, behind room for the headers, so that nothing is copied afterwards. The reply goes
 * to where the request came from, by the request's own headers.
 *
 * What a handler returns: > 0 length of the reply; 0 no reply; < 0 an error, or more than `room`: counted in
 * handler_errors, nothing is sent.
 *
 * Datagrams to the runtime's own address and to 127.0.0.0/8 do not reach the NIC. They come in at the kthread's next
 * poll, for sockets and handlers alike, a handler's own port included; 256 of a kthread may wait, then sending answers
 * -ENOBUFS. Those for an ordered handler go to their flow at once, in the order in which they are sent, and within its
 * bounds.
 *
 * Implemented: one datagram in, any number out; broadcast requests; checksums; connected sockets, ICMP errors told to
 * them; several sockets a port, by flow. Not implemented: multicast, datagrams above the MTU (-EMSGSIZE). Waiting for
 * many sockets: poll.h. */
#ifndef CORELANE_LIBOS_UDP_H
#define CORELANE_LIBOS_UDP_H

#include <corelane/drivers/nic.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_UDP_TYPES 16              /* types that all handlers of a runtime have together at most */
#define CL_UDP_BURST 32              /* most requests that a burst handler gets at a time */
#define CL_UDP_TYPE_QUEUE 512        /* requests of a type that wait on a kthread at most: what it gets in some ms */
#define CL_UDP_FLOWS 4096            /* flows of ordered handlers that have something at one time, at most */
#define CL_UDP_FLOW_QUEUE 64         /* datagrams of one flow that wait at most */
#define CL_UDP_BATCHED 16            /* handlers of a runtime whose requests wait for each other, at most */
#define CL_UDP_BATCH_QUEUE 512       /* requests that wait so for one handler, at most */
#define CL_UDP_SOCKET_QUEUE 256      /* datagrams that may wait for a socket, unless it is opened with another number */
#define CL_UDP_MAX_SOCKET_QUEUE 4096 /* such a number at most */
#define CL_UDP_MAX_SOCKETS 4096      /* open at one time */
#define CL_HANDLER_ERROR -1
#define CL_HANDLER_RAISED -2 /* a compiled Python handler raised: counted as a fault too */

struct cl_runtime;
struct cl_udp_socket;

/* An address of UDP over IPv4, both in host byte order. */
struct cl_udp_addr {
    uint32_t ipv4;
    uint16_t port;
    uint16_t pad;
};

/* One request, valid until its handler returns. */
struct cl_udp_req {
    const uint8_t *data;          /* in: the payload */
    int64_t len;                  /* in: its bytes */
    uint8_t *reply;               /* in: where the reply goes; moved on by cl_udp_reply_more */
    int64_t room;                 /* in: bytes that fit there; 0 when no buffer was free */
    int64_t reply_len;            /* out (burst handlers): 0 no reply, < 0 error; is 0 at entry */
    struct cl_udp_addr peer;      /* in: who asked */
    uint16_t port;                /* in: our port */
    uint8_t broadcast;            /* in: it was sent to a broadcast address */
    uint8_t faulted;              /* set by cl_handler_fault */
    uint8_t looped;               /* in: it comes from this runtime itself */
    uint64_t rx_tsc;              /* in: the stamp of the NIC's clock when it was taken from the NIC */
    uint32_t type;                /* libos' own, as the rest: in the runtime's table of types */
    struct cl_udp_socket *socket; /* the rest is libos' own */
    struct cl_frame rx, tx;
};

/* Handler of one request; `arg` as bound. */
typedef int64_t (*cl_udp_handler)(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg);
/* Handler of 1..CL_UDP_BURST requests of one port at a time, for applications that prefetch. It sets reply_len of each.
 * If it blocks or takes long, all of its requests wait. */
typedef void (*cl_udp_burst_handler)(struct cl_udp_req *reqs, unsigned n, void *arg);

/* The type of a request, 0 to n - 1; anything else is counted in type_errors and means the last. Called when the
 * datagram arrives, on the kthread that received it, in its loop: it must not block and should be short. */
typedef int64_t (*cl_udp_classifier)(const uint8_t *request, int64_t len, void *arg);
/* Requests in queues by type. The next one is the head of the queue with the largest ratio of waiting time to target;
 * so a type of half the target waits half as long. A queue holds
 * CL_UDP_TYPE_QUEUE requests a kthread; what finds it full is dropped. */
struct cl_udp_types {
    uint32_t n;                       /* 1..CL_UDP_TYPES */
    uint32_t target_us[CL_UDP_TYPES]; /* how long requests of each type should wait at most; not 0 */
    cl_udp_classifier classify;
    void *arg; /* of classify */
};

/* Requests that wait for others, for a burst handler that gains from many at a time. It is given `batch` at most. One
 * waits for others no longer than wait_us, and only while a kthread would be free for it; with 0 never, and batches are
 * of those that came while the one before ran. limit_us is from when a request came (where the NIC knows it) to when
 * its answer is out: batches are made, by what those before took, so that all in it are answered in time, and who
 * cannot be is dropped before it costs others their time, unless CL_UDP_BATCH_KEEP_LATE says not to. */
#define CL_UDP_BATCH_KEEP_LATE 1u
struct cl_udp_batching {
    uint32_t batch;    /* 1..CL_UDP_BURST */
    uint32_t limit_us; /* 0: none */
    uint32_t wait_us;
    uint32_t queue; /* requests that may wait, batch..CL_UDP_BATCH_QUEUE; 0: that, or a quarter of the NIC's buffers */
    uint32_t flags; /* CL_UDP_BATCH_... */
};
/* What was measured of such a handler: a batch of n takes about fixed_us + n * each_us, by sizes that were seen
 * takes_us[n - 1], and usually spread_us more or less. */
struct cl_udp_batch_profile {
    uint64_t batches; /* that were measured */
    uint64_t waiting; /* requests, now */
    double fixed_us, each_us, spread_us;
    double takes_us[CL_UDP_BURST];
};

/* The request that the calling uthread is handling: peer, port, stamps. NULL outside a handler, and in burst handlers,
 * which hold theirs. */
CL_API struct cl_udp_req *cl_current_request(void);
/* Send `used` bytes of req->reply now as one datagram and get a fresh req->reply and req->room for the next. 0;
 * -EINVAL: used is not in 1..room; -ENOBUFS: sent, but there is no buffer for another (room is 0). */
CL_API int cl_udp_reply_more(struct cl_udp_req *req, int64_t used);
/* Mark the current request as faulted: whatever its handler returns, nothing is sent. Called by compiled handlers
 * that go beyond their views. Outside a handler: does nothing. */
CL_API void cl_handler_fault(void);
/* The same of whichever request of a burst has this address in its payload or in the room for its reply; if none has,
 * of all of them. */
CL_API void cl_handler_fault_at(const void *where);
/* A compiled handler of a burst raised: all of its requests are errors, whatever they were answered. */
CL_API void cl_handler_raised(struct cl_udp_req *reqs, unsigned n);

/* Open a UDP socket for recvfrom and sendto. port 0: any free one from 49152 on. queue: datagrams that may
 * wait, 1..CL_UDP_MAX_SOCKET_QUEUE (0: CL_UDP_SOCKET_QUEUE). -EADDRINUSE, -EINVAL, -ENOMEM, -EMFILE
 * (CL_UDP_MAX_SOCKETS are open). Any thread. */
CL_API int cl_udp_open(struct cl_runtime *rt, uint16_t port, uint32_t queue, struct cl_udp_socket **out);
/* The same on a port that is shared: any number of sockets may be opened so on one. A datagram goes to the socket that
 * is connected to its sender; else to one of those that are connected to nobody, the same for all of a flow as long as
 * no socket comes, goes or connects; else nobody listens. -EADDRINUSE: the port is not shared. */
CL_API int cl_udp_open_shared(struct cl_runtime *rt, uint16_t port, uint32_t queue, struct cl_udp_socket **out);
/* Send to `to` by cl_udp_send from now on, and receive from there only (what waits already stays). ICMP errors about
 * what was so sent come as -errno of the next call on the socket, once: -ECONNREFUSED (no such port), -EHOSTUNREACH,
 * -ENETUNREACH, -EMSGSIZE, ... NULL: to nobody again. -EINVAL (closed, a handler's, no address), -EHOSTUNREACH (no
 * route), -EADDRINUSE (another socket of a shared port is connected to it). Any thread. */
CL_API int cl_udp_connect(struct cl_udp_socket *s, const struct cl_udp_addr *to);
/* As cl_udp_sendto, to whom the socket is connected to. -EDESTADDRREQ: to nobody. */
CL_API int64_t cl_udp_send(struct cl_udp_socket *s, const void *data, int64_t len);
/* Close; waiters get -ESHUTDOWN, and it leaves its poll set. On a uthread, or while the runtime is stopped; else
 * -EPERM. */
CL_API int cl_udp_close(struct cl_udp_socket *s);
CL_API uint16_t cl_udp_port(const struct cl_udp_socket *s);
/* Send one datagram, at once. Returns len; -EMSGSIZE, -EHOSTUNREACH (no route), -ENOBUFS (no buffer, or to
 * ourselves and as many wait as may), -EPERM (not on a kthread), or what came by ICMP (cl_udp_connect). To a neighbour
 * not resolved yet the datagram waits, and may be lost (tx_dropped_arp). Does not block. */
CL_API int64_t cl_udp_sendto(struct cl_udp_socket *s, const void *data, int64_t len, const struct cl_udp_addr *to);
/* Receive one datagram: copies up to `room` bytes, returns the datagram's full length (more than room: it was cut).
 * Blocks the uthread while there is none: timeout_ns < 0 for ever, 0 not at all. -EAGAIN (timeout 0), -ETIMEDOUT,
 * -ESHUTDOWN (closed, or the runtime stops), -EDEADLK (not on a uthread, and it would have to wait), or what came by
 * ICMP (cl_udp_connect). `from` may be NULL. */
CL_API int64_t cl_udp_recvfrom(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_addr *from,
                               int64_t timeout_ns);
// cffi: end

/* For threads that are no uthreads, and sleep by means of their own (libos/posix). Any thread, while the socket is
 * open. */
/* What holds of the socket now: CL_POLL_IN, _ERROR, _END (poll.h). A hint. */
CL_API uint32_t cl_udp_socket_ready(const struct cl_udp_socket *s);
/* Have fn(arg) called whenever something has come, on the kthread that finds it, under a lock of the socket: fn blocks
 * not, and calls nothing of this header but cl_udp_socket_ready. NULL: no more, and it does not run when this returns.
 * It ends with the close. */
CL_API void cl_udp_watch(struct cl_udp_socket *s, void (*fn)(void *arg), void *arg);
/* Where a datagram comes from, and what its IP header says of how. */
struct cl_udp_origin {
    struct cl_udp_addr from;
    uint32_t to; /* our address as its sender gave it, or a broadcast one. Host byte order */
    uint8_t ttl, tos;
    uint8_t pad[2];
};
/* As cl_udp_recvfrom with a time-out of 0. `origin` may be NULL. */
CL_API int64_t cl_udp_receive(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_origin *origin);
/* The same from any thread, and the datagram stays, as does an error that came by ICMP. -EAGAIN. */
CL_API int64_t cl_udp_peek(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_origin *origin);
/* The error that came by ICMP, which is over with that: errno, or 0. */
CL_API int cl_udp_take_error(struct cl_udp_socket *s);

/* Whether a request comes from a server, by its source port: that is ours, too, or below 1024. A handler that answers
 * whatever it gets returns 0 then: else one datagram in the name of such a server makes the two answer each other for
 * ever (CERT CA-1996-01; inetd's echo has such a rule). NULL is no request: false. */
static inline bool cl_udp_from_server(const struct cl_udp_req *req)
{
    return req && (req->peer.port == req->port || req->peer.port < 1024);
}

CL_EXTERN_C_END
#endif
