/* TCP for applications: the event form. Part of the C API (libos.h).
 *
 * What happens to a connection calls its user, run to completion on the kthread that works on it. Callbacks of one
 * connection run one at a time, on whatever kthread, in this order: `opened`; then `data`, `writable`, `eof`, `due`
 * as it comes; `ended` once and last. They may call everything below for their own connection, and may block like other
 * code of a uthread; the connection waits meanwhile, others go on. What they write leaves when they have returned, with
 * the acknowledgement of what came.
 *
 *   static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
 *   {
 *       return cl_tcp_write(c, data, len);
 *   }
 *   static void on_eof(struct cl_tcp_conn *c, void *arg) { cl_tcp_close(c); }
 *   static void on_writable(struct cl_tcp_conn *c, void *arg) { cl_tcp_resume(c); }
 *   static const struct cl_tcp_events echo = {.data = on_data, .eof = on_eof, .writable = on_writable};
 *   cl_runtime_listen_tcp(rt, 7, 128, &echo, NULL);
 *
 * What is implemented of which RFC, and what is not: libos/net/tcp/conn.h. When a runtime stops its connections end
 * with ESHUTDOWN, in the thread that stops it, and their peers hear nothing. */
#ifndef CORELANE_LIBOS_TCP_H
#define CORELANE_LIBOS_TCP_H

#include <corelane/libos/lease.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_TCP_CONNECTIONS 131072 /* of a runtime at one time, those in TIME_WAIT included */

struct cl_runtime;
struct cl_tcp_conn;

/* An end of a connection, in host byte order. */
struct cl_tcp_addr {
    uint32_t ipv4;
    uint16_t port;
    uint16_t pad;
};

/* Callbacks; NULL: not wanted. A listener's connections have the listener's, and its arg until cl_tcp_set_user. */
struct cl_tcp_events {
    /* It is established. */
    void (*opened)(struct cl_tcp_conn *c, void *arg);
    /* The next bytes. Returns how many it took, 0..len. They lie in the frame or in a chunk, and are gone when it
     * returns or calls cl_tcp_abort. What it does not take waits, and is offered again when more comes, or the FIN, or
     * the user calls cl_tcp_resume; the peer is held back when so much waits as may. NULL: all waits, for
     * cl_tcp_read. */
    int64_t (*data)(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg);
    /* There is room again since cl_tcp_write took less than it was given. */
    void (*writable)(struct cl_tcp_conn *c, void *arg);
    /* The peer has sent its FIN, and all before it was taken. */
    void (*eof)(struct cl_tcp_conn *c, void *arg);
    /* It is over, and no longer the user's. error 0: all that was written is acknowledged, and all that came was taken
     * or refused; else the errno: what was written last may be lost. Also of one that never opened. */
    void (*ended)(struct cl_tcp_conn *c, int error, void *arg);
    /* The next `bytes` bytes of what cl_tcp_write_from took are the user's again. Before `ended` for the last. */
    void (*released)(struct cl_tcp_conn *c, int64_t bytes, void *arg);
    /* The time of cl_tcp_set_timer has come. */
    void (*timer)(struct cl_tcp_conn *c, void *arg);
    /* Somebody has called cl_tcp_wake. */
    void (*woken)(struct cl_tcp_conn *c, void *arg);
    /* Of a listener's events: data has come for one of its connections, for which `data` will be called soon, as a rule
     * on this kthread and after all of a burst were seen here. So memory that they will need can be sent for together.
     * A hint: these bytes may still turn out to be dropped, or out of order. It runs where frames are received: it may
     * not block, take locks, or call anything of this API; some 50 ns are all right. arg: the listener's. */
    void (*ahead)(const uint8_t *data, int64_t len, void *arg);
};

/* Of a runtime. Writers: kthreads, each for itself; readers: anybody. */
struct cl_tcp_counts {
    uint64_t segments_in, segments_out, bytes_in, bytes_out;
    uint64_t resent;           /* segments */
    uint64_t timeouts;         /* RTO, all of them */
    uint64_t fast_retransmits; /* recoveries that began before a time-out: by SACK or duplicates */
    uint64_t tail_probes;      /* tail loss probes */
    uint64_t dsacks;           /* reports of what came twice */
    uint64_t undone;           /* recoveries that were a mistake */
    uint64_t refused_records;  /* segments that waited, since there was no memory to remember them */
    uint64_t probes;           /* zero-window and keep-alive probes */
    uint64_t opened, accepted; /* active, passive */
    uint64_t begun, over;      /* blocks of connections taken and given back: the difference exists now */
    uint64_t out_of_order;     /* segments that were put aside */
    uint64_t refused_memory;   /* segments with data for which there was none */
    uint64_t urgent;           /* segments with an urgent pointer, which means nothing here */
    uint64_t resets_in, resets_out;
    uint64_t challenges, challenges_limited;
    uint64_t dropped_paws, dropped_window, dropped_ack, dropped_flags;
    uint64_t dropped_backlog;        /* what would have opened one, and found too many that wait to be accepted */
    uint64_t dropped_table;          /* the same: as many connections exist as may */
    uint64_t marks_in;               /* segments with data that met congestion (ECN) */
    uint64_t ecn_reductions;         /* of windows, since peers echoed such marks */
    uint64_t icmp_errors;            /* about segments of connections, ... */
    uint64_t icmp_ignored;           /* ... and of them those about nothing that was under way, or of a wrong MTU */
    uint64_t mtu_shrunk;             /* paths that took smaller segments than were sent */
    uint64_t paths_tried, mtu_grown; /* packets sent to find out whether they take larger ones; that came */
    uint64_t cookies_sent;           /* SYNs that found the backlog full, and were answered without a trace */
    uint64_t cookies_right, cookies_wrong; /* segments of no connection that acknowledge such an answer, or none */
    uint64_t leased, unleased;             /* leases given out and returned: the difference is out now (lease.h) */
    uint64_t frames_kept;                  /* that were not copied, since they are leased or may be */
    uint64_t frames_refused;               /* that were copied, since as many were kept as may be */
    uint64_t bytes_lent;                   /* written from regions */
    uint64_t rests, rested; /* came to TIME_WAIT, and were over from there: the difference is there now */
};

/* Numbers of a connection. Times in us; windows in bytes but for cwnd and ssthresh, in segments, as Linux has them. */
struct cl_tcp_info {
    uint32_t state; /* enum cl_tcp_state (libos/net/tcp/conn.h), in the order of RFC 9293: 4 is ESTABLISHED */
    uint32_t times, sacks, scales, ecn;
    uint32_t snd_scale, rcv_scale;
    uint32_t rto_us, rtt_us, rtt_var_us;
    uint32_t snd_mss, rcv_mss;
    uint32_t cwnd, ssthresh; /* UINT32_MAX: none yet */
    uint32_t snd_wnd, rcv_wnd;
    uint32_t unacked; /* segments under way */
    uint32_t retries, backoff, probes;
    uint32_t resent;
    uint32_t sacked, lost; /* segments under way that the peer has beyond a gap; that are to be sent again */
    uint32_t dsacks;       /* reports of what came twice */
    uint32_t reordered;    /* segments have passed each other */
    uint32_t rtt_least_us;
    /* 1: from duplicates; 2: from a time-out; 3: none, but an echo of a mark has reduced the window */
    uint32_t recovering;
    uint32_t to_read, unsent; /* bytes */
    uint32_t unacked_bytes;   /* written and not acknowledged, */
    uint32_t send_limit;      /* ... and of those at most */
    /* Bytes a second that have come at the peer, within a sixteenth: in the last round trip with more than one segment
     * under way that was not held back by the application, or more, if one that was had more. 0: there was none. */
    uint64_t delivery_rate;
};

/* Take connections to a port; at most backlog are being opened at one time, and SYNs beyond are answered by cookies,
 * which take no memory. Any thread.
 * -EADDRINUSE, -EINVAL, -ENOMEM. */
CL_API int cl_runtime_listen_tcp(struct cl_runtime *rt, uint16_t port, uint32_t backlog,
                                 const struct cl_tcp_events *events, void *arg);
/* Take no more connections to a port: SYNs are answered by a reset from now on. Those that are open, or being opened,
 * go on; the port may be listened to again. Any thread, while the runtime exists. -ENOENT: it has no listener of the
 * event form. */
CL_API int cl_runtime_unlisten_tcp(struct cl_runtime *rt, uint16_t port);
/* How connections of the runtime answer congestion, from now on; before the first of them. rule: "cubic", "newreno" or
 * "dctcp" (RFC 8257: for a data centre whose switches mark, and whose hosts all do this). ecn (RFC 3168): 0 no, 1 offer
 * and take it, 2 take it where a peer offers it, the default. -EINVAL, -ENOMEM. */
CL_API int cl_runtime_tcp_congestion(struct cl_runtime *rt, const char *rule, uint32_t ecn);
/* Connections of the runtime that begin from now on probe a peer of which nothing was heard for idle_ms, each
 * interval_ms, and end with ETIMEDOUT when `probes` of these were not answered (RFC 9293, section 3.8.4). So a
 * connection whose peer's reset was lost ends. idle_ms 0: none probes, the default. Before the first of them.
 * -EINVAL: interval_ms or probes is 0 and idle_ms is not; -ENOMEM. */
CL_API int cl_runtime_tcp_keep_alive(struct cl_runtime *rt, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes);
/* Open a connection; `opened` or `ended` tells how that went. On a kthread. Callbacks may come before this returns.
 * -EPERM: not on a kthread, -EHOSTUNREACH, -EADDRNOTAVAIL: no port is free, -ENOBUFS: as many exist as may. */
CL_API int cl_runtime_connect_tcp(struct cl_runtime *rt, uint32_t ipv4, uint16_t port,
                                  const struct cl_tcp_events *events, void *arg);
/* The same from an own end: NULL, or its ipv4 0: the runtime's; its port 0: any free one. made(c, arg), if it is not
 * NULL, is called before all callbacks, when the ends are known: it may keep c, and set options. -EADDRINUSE: that pair
 * of ends is in use; -EADDRNOTAVAIL: the address is not ours, or no port is free. */
CL_API int cl_runtime_open_tcp(struct cl_runtime *rt, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                               const struct cl_tcp_events *events, void *arg,
                               void (*made)(struct cl_tcp_conn *c, void *arg));
/* Call fn(c, arg), in which all below may be called, in a turn of the connection, which ends before this returns:
 * callbacks run in it, `ended` perhaps. False: somebody works on the connection, or is about to; cl_tcp_wake reaches
 * him. For who has something to do with a connection outside of its callbacks, on a kthread. As for cl_tcp_wake,
 * `ended` has not returned. */
CL_API bool cl_tcp_call(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg);
/* The same for each connection that `next` gives until it gives NULL, all of one runtime, at less cost for each: the
 * clock is read once for several, so not for callbacks that block, and what they send leaves together. One that
 * somebody works on is woken instead (cl_tcp_wake). */
CL_API void cl_tcp_call_each(struct cl_tcp_conn *(*next)(void *arg), void (*fn)(struct cl_tcp_conn *c, void *arg),
                             void *arg);
/* Have `woken` called, once for all calls before it, in a turn of the connection that begins after this: for who has
 * something to be written to a connection whose callback does not run. On a kthread, whatever runs there; does not
 * block. The caller sees to it that `ended` has not returned: as a rule by a lock of its own that `ended` takes, too.
 * -EPERM: not on a kthread. */
CL_API int cl_tcp_wake(struct cl_tcp_conn *c);
/* The sum over all kthreads. */
CL_API void cl_runtime_tcp_counts(const struct cl_runtime *rt, struct cl_tcp_counts *out);

/* Of the connection whose callback runs, and inside of that, all that follows. */

/* Other callbacks, another arg from now on. */
CL_API void cl_tcp_set_user(struct cl_tcp_conn *c, const struct cl_tcp_events *events, void *arg);
/* The ends, in host byte order. */
CL_API void cl_tcp_ends(const struct cl_tcp_conn *c, uint32_t *peer, uint16_t *peer_port, uint16_t *own_port);
/* The same with the own address, which a runtime has several of: its own, and 127.0.0.0/8. */
CL_API void cl_tcp_addresses(const struct cl_tcp_conn *c, struct cl_tcp_addr *own, struct cl_tcp_addr *peer);
/* Answers are not written inside of `data`, but soon after: acknowledgements wait for them all the same. */
CL_API void cl_tcp_answers_later(struct cl_tcp_conn *c);
/* Options, CL_STREAM_... (stream.h), as cl_stream_set and cl_stream_get have them. -ENOPROTOOPT, -EINVAL, -ENOBUFS. */
CL_API int cl_tcp_set_option(struct cl_tcp_conn *c, int option, int64_t value);
CL_API int64_t cl_tcp_option(const struct cl_tcp_conn *c, int option);
/* Write up to len bytes. Returns how many were taken, possibly 0: `writable` tells of more room. -EPIPE: after
 * shutdown, or when it is over. */
CL_API int64_t cl_tcp_write(struct cl_tcp_conn *c, const void *data, int64_t len);
/* Take up to `room` bytes out of what waits. 0: nothing does. Not inside `data`. */
CL_API int64_t cl_tcp_read(struct cl_tcp_conn *c, void *data, int64_t room);
/* Take what comes next, as much as lies in one piece, as a lease (lease.h). Inside `data` that is what the call was
 * given, all of it, and it counts as taken. -EAGAIN: nothing waits; -EALREADY: this call's bytes are leased; -ENOBUFS:
 * there is no memory, or so much is out as may be. */
CL_API int cl_tcp_lease(struct cl_tcp_conn *c, struct cl_lease *out);
/* What comes and is not taken at once may stay in its frame, for leases to come; else it is copied. */
CL_API void cl_tcp_keep_frames(struct cl_tcp_conn *c, bool on);
/* As cl_tcp_write, `len` bytes of a region from `offset` on, without a copy: `released` tells when they are free.
 * -EINVAL: they are not in it. */
CL_API int64_t cl_tcp_write_from(struct cl_tcp_conn *c, struct cl_region *region, int64_t offset, int64_t len);
/* Offer what waits to `data` again, when this callback has returned. */
CL_API void cl_tcp_resume(struct cl_tcp_conn *c);
/* Call `timer` in so many ns, and not at the time that was asked for before; UINT64_MAX: never. It comes once, and up
 * to 68 ms late: it is for states that last too long. */
CL_API void cl_tcp_set_timer(struct cl_tcp_conn *c, uint64_t in_ns);
/* Around a handler that the user calls in its callback: it may ask who is served (cl_current_request), and its views
 * may fault (cl_handler_fault). It may block. `end` returns whether it faulted. On a uthread. */
CL_API void cl_tcp_handler_begin(struct cl_tcp_conn *c);
CL_API bool cl_tcp_handler_end(struct cl_tcp_conn *c);
/* Send small segments at once, whatever is under way (no Nagle). What waits by now leaves, corked or not. */
CL_API void cl_tcp_no_delay(struct cl_tcp_conn *c, bool on);
/* Send full segments only, until it is off, which ends cl_tcp_more, too: TCP_CORK of Linux. What does not fill one
 * waits for 200 ms at most, or for as long as a retransmission takes if that is more, once nothing is under way. */
CL_API void cl_tcp_cork(struct cl_tcp_conn *c, bool on);
/* After a write: more is written soon. What fills no segment waits for it, as corked, but not beyond the next segment
 * that comes: MSG_MORE of Linux. */
CL_API void cl_tcp_more(struct cl_tcp_conn *c);
/* Probe the peer while it is silent: after 2 hours, or as cl_runtime_tcp_keep_alive says. */
CL_API void cl_tcp_keep_alive(struct cl_tcp_conn *c, bool on);
/* Write no more: a FIN follows what was written. Reading goes on. */
CL_API void cl_tcp_shutdown(struct cl_tcp_conn *c);
/* Neither write nor read any more. What was written is still sent; if something was not read, or comes, a reset says
 * so. `ended` tells when it is over. */
CL_API void cl_tcp_close(struct cl_tcp_conn *c);
/* End it now, with a reset if the peer may know of it. `ended` says ECONNABORTED. */
CL_API void cl_tcp_abort(struct cl_tcp_conn *c);
// cffi: end

CL_EXTERN_C_END
#endif
