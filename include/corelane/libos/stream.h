/* Stream sockets: connections of TCP for code that blocks a uthread. Part of the C API. The event form: tcp.h.
 *
 *   static void serve(void *arg)
 *   {
 *       struct cl_stream *listener = arg, *s;
 *       char data[4096];
 *       int64_t n;
 *       while (cl_stream_accept(listener, -1, &s) == 0) {
 *           while ((n = cl_stream_read(s, data, sizeof data, -1)) > 0)
 *               cl_stream_write(s, data, n, -1);
 *           cl_stream_close(s, 0);
 *       }
 *   }
 *
 * Time-outs are in ns: < 0 for ever, 0 not at all. Unless said otherwise calls are for a uthread of the socket's
 * runtime, and return -errno:
 *   -EAGAIN (time-out 0), -ETIMEDOUT    it cannot go on yet
 *   -EPERM    the caller is on no kthread of the runtime
 *   -EDEADLK  it would have to wait, and may not here (uthread.h)
 *   -EBADF    the socket was closed
 *   -EINVAL   it is a listener and should be a connection, or the other way round; a length below 0
 *   -ESHUTDOWN  it would have to wait, and the runtime stops; or it has stopped
 * Of a connection that is over, with the reason each time:
 *   -ECONNRESET, -ECONNREFUSED, -ETIMEDOUT (the peer answers no more), -EPIPE (writing), -EHOSTUNREACH, ...
 *
 * Any number of uthreads may use one socket. Readers, and writers, take turns in no order that they could rely on; what
 * one write is given may be mixed with that of another if it does not fit at once. A call that waits in a socket that
 * is closed meanwhile returns -EBADF. As with a descriptor of Linux, nobody may begin a call on a socket after its
 * close has returned: its memory may be another one's by then. */
#ifndef CORELANE_LIBOS_STREAM_H
#define CORELANE_LIBOS_STREAM_H

#include <corelane/libos/poll.h>
#include <corelane/libos/tcp.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_STREAMS CL_TCP_CONNECTIONS /* of a runtime at one time, listeners included */
#define CL_STREAM_VECTORS 1024        /* of one readv or writev */

/* cl_stream_shutdown */
#define CL_STREAM_READ 1
#define CL_STREAM_WRITE 2
#define CL_STREAM_RESET 4

/* cl_stream_set and cl_stream_get. Those of a listener are what its connections begin with. */
#define CL_STREAM_NO_DELAY 0       /* 1: small segments leave at once, whatever is under way (no Nagle) */
#define CL_STREAM_KEEP_ALIVE 1     /* 1: the peer is asked now and then whether it lives */
#define CL_STREAM_SEND_BUFFER 2    /* bytes that may be written and not acknowledged */
#define CL_STREAM_RECEIVE_BUFFER 3 /* bytes that may wait to be read: the window offered to the peer */
/* How long the peer may answer nothing; 0: as retransmissions go. Of one that keeps alive, from when it was heard of
 * last, in place of CL_STREAM_KEEP_PROBES: it ends with the first probe that is due then. */
#define CL_STREAM_USER_TIMEOUT_MS 4
#define CL_STREAM_KEEP_FRAMES 5 /* 1: what comes stays in its frame if it can, for cl_stream_lease (lease.h) */
/* Of a connection that keeps alive: silence in s until the first probe, 1 to 32767; between probes, the same; how many
 * are not answered, 1 to 127. -ENOBUFS: connections of the runtime have 32 other sets of these three already. */
#define CL_STREAM_KEEP_IDLE_S 6
#define CL_STREAM_KEEP_INTERVAL_S 7
#define CL_STREAM_KEEP_PROBES 8
#define CL_STREAM_CORK 9 /* 1: full segments only (cl_tcp_cork) */
#define CL_STREAM_OPTIONS 10
#define CL_STREAM_BUFFER_LEAST 4096 /* of both buffers, in bytes */
#define CL_STREAM_BUFFER_MOST 268435456

struct cl_stream;

struct cl_iovec {
    void *base;
    int64_t len;
};

/* Take connections to a port. At most backlog of them are half open or wait to be accepted; SYNs beyond are
 * answered by cookies (libos/net/tcp/cookie.h), and as many again may open so.
 * Several sockets may listen on one port: each connection goes to one of them, by a secret hash of its ends, or to the
 * next if that one's backlog is full. -EADDRINUSE: the port has a listener of the event form. -EINVAL (port or backlog
 * 0), -ENOMEM, -EMFILE (CL_STREAMS exist). Any thread. */
CL_API int cl_stream_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, struct cl_stream **out);
/* The oldest connection that waits. */
CL_API int cl_stream_accept(struct cl_stream *listener, int64_t timeout_ns, struct cl_stream **out);
/* Open a connection. from: the own end, or NULL; its ipv4 0: the runtime's, its port 0: any free one. 0;
 * timeout_ns 0: -EINPROGRESS, and *out tells how it went by cl_stream_wait_open, a poll set (CL_POLL_OUT), or whatever
 * is called. Else nothing is left of it: -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH (no route), -EADDRNOTAVAIL (not ours,
 * or no port is free), -EADDRINUSE (that pair of ends is in use), -ENOBUFS (as many exist as may), -EMFILE. */
CL_API int cl_stream_connect(struct cl_runtime *rt, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                             int64_t timeout_ns, struct cl_stream **out);
/* Wait until one that was -EINPROGRESS is open: 0, -EINPROGRESS (timeout_ns 0), -ETIMEDOUT, or why it is over. The
 * socket stays the caller's to close. */
CL_API int cl_stream_wait_open(struct cl_stream *s, int64_t timeout_ns);
/* 0: it is open, or was and is over without an error; -EINPROGRESS: it is being opened; -errno: why it is over. Any
 * thread. */
CL_API int cl_stream_error(struct cl_stream *s);

/* Take what has come, at least one byte and at most `room`. 0: the peer has sent its FIN and all was taken, whatever
 * became of the connection then; or the side was shut; or room is 0. A reset before that drops what was not taken, and
 * is an error. */
CL_API int64_t cl_stream_read(struct cl_stream *s, void *data, int64_t room, int64_t timeout_ns);
/* The same into n pieces, one after the other. -EINVAL: n is not in 0..CL_STREAM_VECTORS. */
CL_API int64_t cl_stream_readv(struct cl_stream *s, const struct cl_iovec *to, int64_t n, int64_t timeout_ns);
/* Look at what has come, and leave it. */
CL_API int64_t cl_stream_peek(struct cl_stream *s, void *data, int64_t room, int64_t timeout_ns);
/* Write len bytes; waits while the buffer is full. Returns how many were taken, len or fewer if the time was over or
 * the connection ended meanwhile; the next call says which. -errno: none was. */
CL_API int64_t cl_stream_write(struct cl_stream *s, const void *data, int64_t len, int64_t timeout_ns);
CL_API int64_t cl_stream_writev(struct cl_stream *s, const struct cl_iovec *from, int64_t n, int64_t timeout_ns);
/* The same, and more is written soon: what fills no segment waits for it (cl_tcp_more). */
CL_API int64_t cl_stream_writev_more(struct cl_stream *s, const struct cl_iovec *from, int64_t n, int64_t timeout_ns);

/* Take what has come, as much as lies in one piece, without a copy (lease.h). 0: *out is the caller's, to be returned;
 * of length 0: no more comes, and there is nothing to return. -ENOBUFS: there is no memory, or so much is out as may
 * be: return some, or read. */
CL_API int cl_stream_lease(struct cl_stream *s, struct cl_lease *out, int64_t timeout_ns);
/* As cl_stream_write, `len` bytes of a region from `offset` on, without a copy: they stay as they are until they are
 * released. -EINVAL: they are not in it. */
CL_API int64_t cl_stream_write_from(struct cl_stream *s, struct cl_region *region, int64_t offset, int64_t len,
                                    int64_t timeout_ns);
/* Wait until the first `bytes` of all that this socket has written from regions are released; < 0: all so far. 0: the
 * peer has acknowledged them. Of a connection that is over, why: then they are released, too. */
CL_API int cl_stream_wait_released(struct cl_stream *s, int64_t bytes, int64_t timeout_ns);
/* How many bytes of all that this socket has written from regions are released; CL_POLL_RELEASED is over with that,
 * until more are. Any thread. */
CL_API int64_t cl_stream_released(struct cl_stream *s);

/* CL_STREAM_WRITE: a FIN follows what was written, and reading goes on. CL_STREAM_READ: reads return 0 from now on;
 * what comes waits unread. CL_STREAM_RESET, with or behind CL_STREAM_WRITE: what comes from now on resets the
 * connection, as on Linux where both sides were shut; what has come is read still. -ENOTCONN: it is not open. Of a
 * listener, CL_STREAM_WRITE alone: connections that open from now on send nothing but their FIN, as those of a socket
 * of Linux that was shut and listens then. */
CL_API int cl_stream_shutdown(struct cl_stream *s, int sides);
/* The socket is gone. What was written is still sent; but if something was not read, or comes, the connection is reset
 * (RFC 2525, section 2.17). linger_ns: wait so long until the peer has acknowledged all of it, the FIN included: 0 it
 * has, -ETIMEDOUT the connection goes on alone, or the error with which it ended. Of a listener: who waits to be
 * accepted is reset. On a uthread, or while the runtime does not run. */
CL_API int cl_stream_close(struct cl_stream *s, int64_t linger_ns);
/* The socket is gone, and the connection is reset. As SO_LINGER of 0 does. */
CL_API int cl_stream_abort(struct cl_stream *s);
/* Keep a socket that is open: once it has gone, calls on it answer -EBADF, and it is not made anew, until it is let go,
 * once for each hold. For who cannot know whether another thread closes it. Any thread. */
CL_API void cl_stream_hold(struct cl_stream *s);
CL_API void cl_stream_let_go(struct cl_stream *s);

/* -ENOPROTOOPT: there is no such option; -EINVAL: no such value. -ENOTCONN: the connection is over. */
CL_API int cl_stream_set(struct cl_stream *s, int option, int64_t value);
CL_API int64_t cl_stream_get(struct cl_stream *s, int option);
/* Congestion control: "cubic", "newreno", or "dctcp" (RFC 8257). -ENOENT: there is no such. DCTCP needs ECN, which the
 * two ends agree on in their SYNs: the end that connects must offer it (cl_runtime_tcp_congestion with ecn 1, before),
 * the other take it, as is the default; switches between must mark, and all that share them should go by marks.
 * -EOPNOTSUPP: it was not agreed, or the connection is not open yet. Connections of a listener for which it was not
 * have the rule of the runtime. */
CL_API int cl_stream_set_congestion(struct cl_stream *s, const char *name);
/* Its name; NULL: the connection is over, or s is a listener that sets none. */
CL_API const char *cl_stream_congestion(struct cl_stream *s);
/* Its ends, also when it is over. A listener has no peer, and its own ipv4 is 0. Either may be NULL. Any thread. */
CL_API int cl_stream_ends(struct cl_stream *s, struct cl_tcp_addr *own, struct cl_tcp_addr *peer);
/* -ENOTCONN: it is over. */
CL_API int cl_stream_info(struct cl_stream *s, struct cl_tcp_info *out);

/* As cl_poll_add, of those of CL_POLL_IN (something can be read or accepted, or the end has come), CL_POLL_OUT (there
 * is room to write, or it is open at last) and CL_POLL_RELEASED that `events` has; CL_POLL_ERROR (it is over with an
 * error) and CL_POLL_END are always told. Readiness is a hint: a call with time-out 0 may still say -EAGAIN, if memory
 * for what came was short. Edge: told for what has come since, and for room after a write that took less than it was
 * given. Any thread. */
CL_API int cl_poll_add_stream(struct cl_poll *set, struct cl_stream *s, uint32_t events, uint32_t how, uint64_t data);
/* -ENOENT: it is not in. Any thread. */
CL_API int cl_poll_remove_stream(struct cl_poll *set, struct cl_stream *s);

#define CL_STREAM_READY_LAST 16 /* nothing comes behind what waits */
#define CL_STREAM_READY_OVER 32 /* both sides have ended */
/* What holds of the socket now: CL_POLL_IN, _OUT, _ERROR, _END and the two above. A hint, as of poll sets. Any thread,
 * while the socket is open. */
CL_API uint32_t cl_stream_ready(const struct cl_stream *s);
/* Have fn(arg) called whenever that may have changed for the better, on the kthread that finds it, under a lock of the
 * socket: fn blocks not, and calls nothing of this header but cl_stream_ready. NULL: no more, and it does not run when
 * this returns. It ends with the close. Any thread, while the socket is open. */
CL_API void cl_stream_watch(struct cl_stream *s, void (*fn)(void *arg), void *arg);

/* Have a connection's home be kthread k, whose thread waits for it (-1: none, as in the beginning): what comes for it
 * by another kthread's queue is handed there whole, in order, and it is woken for that, so that watchers are called on
 * it as a rule. Siblings take it from there if that one does not get on. `flows_sent_home` counts how often one was
 * handed over. Not where an iokernel manages the cores: k may be without one. -EINVAL: there is no such kthread;
 * -ENOTCONN: the connection is over, or s is a listener. Any thread, while the socket is open or held. */
CL_API int cl_stream_set_home(struct cl_stream *s, int k);

/* Handler of a byte stream: `len` bytes that have come in order and wait, in one piece; it writes an answer of up to
 * `room` bytes to `reply`, and its length to *answered (0 at entry). Returns how many of them it took:
 *   > 0  the rest, if any, is given to it at once
 *   0    it needs more: it is called again when more has come, with what waits by then
 *   -1   the answer is sent, and the connection is closed; what waits is dropped
 * Anything else is an error, and so is a fault (cl_handler_fault), a stream that ends or fills the window in the middle
 * of what it takes: the connection is reset, and handler_errors counts it. On a uthread; it may block, and then the
 * connection waits, no other. cl_current_request says who asks: its peer and port. */
typedef int64_t (*cl_tcp_handler)(const uint8_t *data, int64_t len, uint8_t *reply, int64_t room, int64_t *answered,
                                  void *arg);
#define CL_TCP_WINDOW 16384 /* most bytes that a handler is given at a time, unless it is bound with another number */
#define CL_TCP_WINDOW_MOST 65536 /* such a number at most */
/* Give a TCP port to a handler. window 0: CL_TCP_WINDOW. It stays until cl_runtime_delete. As
 * cl_runtime_listen_tcp. */
CL_API int cl_runtime_serve_tcp(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t window,
                                cl_tcp_handler fn, void *arg);

#define CL_TCP_ITEMS 32        /* connections that a burst handler is given at a time, at most */
#define CL_TCP_ITEM_ROOM 65536 /* for what it answers to one of them at a time */
/* What has come for one of them. */
struct cl_tcp_item {
    const uint8_t *data;     /* in: what waits, from its first byte on */
    int64_t len;             /* in: its bytes; 0: the connection is over, and this its last call */
    uint8_t *reply;          /* in: where the answer goes */
    int64_t room;            /* in: bytes that fit there */
    int64_t took;            /* out: as cl_tcp_handler returns it; 0 at entry */
    int64_t answered;        /* out: the same */
    uint64_t connection;     /* in: names it among those of the port, never again another one */
    struct cl_tcp_addr peer; /* in */
};
typedef void (*cl_tcp_burst_handler)(struct cl_tcp_item *items, unsigned n, void *arg);
/* The same for many connections at once, called on a kthread's own large stack under the no-switch rule (sched.h): for
 * callbacks into language run-times. No two calls overlap. */
CL_API int cl_runtime_serve_tcp_foreign(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t window,
                                        cl_tcp_burst_handler fn, void *arg);
// cffi: end

CL_EXTERN_C_END
#endif
