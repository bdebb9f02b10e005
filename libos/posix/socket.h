/* A socket of ours: what stands behind one or several descriptors.
 *
 * It begins FRESH, when nobody knows whose it will be; bind and connect decide. A listener has no stream until there is
 * a runtime. Fields that change after that do so under `lock`, or are words that anybody may read. */
#ifndef CORELANE_LIBOS_POSIX_SOCKET_H
#define CORELANE_LIBOS_POSIX_SOCKET_H

#include <corelane/libos/runtime.h>
#include <corelane/libos/spin.h>
#include <corelane/libos/stream.h>

#include "table.h"

/* Of cl_tcp_info.state: those of RFC 9293 in order. */
enum {
    CL_POSIX_TCP_CLOSED = 0,
    CL_POSIX_TCP_ESTABLISHED = 4,
    CL_POSIX_TCP_FIN_WAIT_1,
    CL_POSIX_TCP_FIN_WAIT_2,
    CL_POSIX_TCP_CLOSE_WAIT,
    CL_POSIX_TCP_CLOSING,
    CL_POSIX_TCP_LAST_ACK,
    CL_POSIX_TCP_TIME_WAIT
};

enum cl_posix_state { CL_POSIX_FRESH = 0, CL_POSIX_BOUND, CL_POSIX_LISTENS, CL_POSIX_OPENS, CL_POSIX_CONNECTED };

struct cl_posix_watch;

/* A stream that is closed, while others may still be in a call on it. */
struct cl_posix_shut {
    struct cl_stream *stream;
    struct cl_posix_shut *next;
};

struct cl_posix_socket {
    struct cl_posix_object object; /* first */
    struct cl_spin lock;
    uint32_t state;           /* enum cl_posix_state; release once what belongs to it is there */
    struct cl_stream *stream; /* NULL: none yet */
    struct cl_posix_watch *watches;
    uint32_t non_blocking;      /* as of the open file description: all descriptors of it */
    uint32_t error_taken;       /* why the connection is over was told: from now on it is just over */
    uint32_t stuck;             /* it could not be opened, and was shut then: it is to be given up before a connect
                                 * (net/ipv4/af_inet.c: inet_shutdown) */
    uint32_t left_error;        /* of a connection that it had: an errno, told once. RMW */
    uint32_t resets;            /* SO_LINGER 0 */
    uint32_t claimed;           /* somebody opens the listener, or has: RMW */
    uint32_t ended;             /* the stream is closed, and held until the socket ends: RMW */
    struct cl_posix_shut *shut; /* streams that it had before. Under `lock` */
    int domain;                 /* AF_INET, or AF_INET6 whose addresses are IPv4 ones in disguise */
    struct cl_tcp_addr own;     /* as bound, or found */
    uint32_t backlog;
    uint32_t poller; /* the kthread that the thread keeps which was told of it last, and 1; 0: none. Relaxed: a hint */
    uint32_t home;   /* the same, as the connection has it (cl_stream_set_home) */
    uint32_t sides_shut; /* CL_STREAM_READ, _WRITE. RMW */
    uint32_t shut_early; /* the same, of what the stream does not know: by a shutdown that failed as there was no
                          * connection (as Linux has it, that of a later one is shut for us, and its peer does not hear
                          * of it: net/ipv4/af_inet.c), and of reading. RMW */
    bool reuse_port, reuse_address;
    bool placed;               /* it, or its listener, was bound to an address, which it keeps */
    bool found;                /* a connect found the port, as nobody had bound the socket */
    bool chosen;               /* the port is one that we chose */
    bool rebound;              /* bound once more, after the connection was over */
    bool within;               /* of a connection: its peer is a socket of this program; a listener: always */
    bool datagram;             /* of UDP: FRESH or BOUND; constant. Then: */
    bool any;                  /* the address is what a connect found. Under `lock`, as the peer */
    struct cl_udp_socket *udp; /* NULL: not opened yet. Release */
    struct cl_tcp_addr peer;   /* port 0: it is connected to nobody */
    uint32_t tells;            /* of each datagram, as bits (control.c). Written by setsockopt, read by who receives */
    int64_t receive_ns, send_ns; /* SO_RCVTIMEO, SO_SNDTIMEO; -1: for ever */
    bool lingers;                /* SO_LINGER is on, */
    int64_t linger_ns;           /* ... with a time; 0: none */
    uint32_t options;            /* bit 1 << CL_STREAM_*: set before there was a stream */
    int32_t option[CL_STREAM_OPTIONS];
    char congestion[16];          /* TCP_CONGESTION, as cl_stream_set_congestion has it; empty: none was set */
    uint32_t first_ttl;           /* IP_MULTICAST_TTL of what was accepted; 0: the placeholder's is right */
    struct cl_posix_given *given; /* begins.c: options that its connections begin with; NULL: none. Under `lock` */
};

/* NULL if it is none of ours. The caller puts it. */
struct cl_posix_socket *cl_posix_socket_of(int fd);
/* Then the error: -ENOTSOCK of an epoll descriptor, -EBADF of what has gone. */
int cl_posix_no_socket(int fd);
void cl_posix_socket_put(struct cl_posix_socket *s);
/* A new one with its descriptor; type: as given to socket(). -ENOMEM, -EMFILE. */
int cl_posix_socket_new(int fd, int domain, int type, struct cl_posix_socket **out);
/* bind.c: it gets the address, port 0: any free one. -EADDRINUSE; -EINVAL: it has one. */
int cl_posix_bind_ours(struct cl_posix_socket *s, const struct cl_tcp_addr *at);
/* It is bound, and listens from now on. -EADDRINUSE: another one does. */
int cl_posix_bind_listener(struct cl_posix_socket *s);
/* It has a stream from now on. */
void cl_posix_socket_has(struct cl_posix_socket *s, struct cl_stream *stream, enum cl_posix_state state);
/* A listener has its stream from now on. */
int cl_posix_listener_open(struct cl_posix_socket *s, struct cl_runtime *rt);
/* linger.c: it is about to be closed; with SO_LINGER wait until the peer has all that was written, or so long. */
void cl_posix_linger(struct cl_posix_socket *s);
/* begins.c: an option was set of what is no connection, and may become a listener. -ENOMEM. */
int cl_posix_begins_with(struct cl_posix_socket *s, int level, int name, const void *value, socklen_t len);
void cl_posix_begins_end(struct cl_posix_socket *s);
/* s, of the descriptor fd, has come from a listener: it has its options. */
void cl_posix_inherit(struct cl_posix_socket *l, int fd, struct cl_posix_socket *s);
/* What was written with MSG_MORE waits for no more. */
void cl_posix_no_more(int fd);
/* A datagram socket is bound: have it receive. -EADDRINUSE, -EMFILE, -ENOMEM. */
int cl_posix_datagram_open(struct cl_posix_socket *s, struct cl_runtime *rt);
/* What a connection that it had has left to be told: an errno, once; 0: nothing. */
static inline int cl_posix_socket_left(struct cl_posix_socket *s)
{
    return cl_unlikely(cl_load_relaxed(&s->left_error)) ? (int)__atomic_exchange_n(&s->left_error, 0, __ATOMIC_RELAXED)
                                                        : 0;
}
/* Its stream is closed, or reset: calls on it say -EBADF from now on. */
void cl_posix_socket_end(struct cl_posix_socket *s);
/* Of one that has sent something: if it was to ourselves, it comes now. */
void cl_posix_socket_sent(const struct cl_posix_socket *s);
/* A listener is closed, and may listen again. -ENOMEM */
int cl_posix_socket_shut(struct cl_posix_socket *s);
/* Something comes from the network for it but connections: who waits for it keeps a kthread. */
bool cl_posix_socket_carries(const struct cl_posix_socket *s);
/* Of a connection: the numbers of it. -ENOTCONN: it is over. */
int cl_posix_socket_info(const struct cl_posix_socket *s, struct cl_tcp_info *out);
/* numbers.c: of any socket of TCP, as Linux' TCP_INFO, so much of it as goes into so many bytes. Returns how many. */
uint32_t cl_posix_socket_numbers(struct cl_posix_socket *s, void *out, uint32_t bytes);
/* Of any socket: it was a connection, and that is over as Linux sees it, where TIME_WAIT is nobody's. */
bool cl_posix_socket_is_over(struct cl_posix_socket *s);
/* cl_stream_error of its connection; -ENOTCONN: another thread has given that up meanwhile. */
int cl_posix_socket_error(const struct cl_posix_socket *s);
/* What is ready of it: CL_POLL_* and CL_STREAM_READY_*. */
uint32_t cl_posix_socket_ready(const struct cl_posix_socket *s);

/* start.c */
/* The runtime; NULL with *rc: there is none to be had, and `failed` has said so. */
struct cl_runtime *cl_posix_start(int *rc);
/* Whether there is one, though it may still open what was bound before it was made: cl_posix_start waits for that. */
bool cl_posix_started(void);
/* Our own address. There is a runtime. */
uint32_t cl_posix_address(void);
/* The index that Linux knows the runtime's interface by; 1 if it knows none, as for what does not leave the machine. */
int cl_posix_interface(void);
/* This process was forked from the one that has the sockets. The second says so, once. */
bool cl_posix_is_forked(void);
bool cl_posix_is_child(void);
/* Whether the address is ours to listen at, or to connect to. */
bool cl_posix_listens_at(uint32_t ipv4, uint16_t port);
bool cl_posix_reaches(uint32_t ipv4);
/* It is of 127.0.0.0/8, and that is the program's own: ours to connect to where one of ours listens. */
bool cl_posix_loops(uint32_t ipv4);
/* Whether the address is one of this program's. */
bool cl_posix_is_own(uint32_t ipv4);
/* bind.c: whether one does, there or at all addresses. */
bool cl_posix_has_listener(const struct cl_tcp_addr *at);
void cl_posix_say(const char *sentence);
/* If calls are traced: the socket's call with an address has made it ours, or Linux'. */
void cl_posix_trace(int fd, const char *call, uint32_t ipv4, uint16_t port, bool ours);
/* Something is not as on Linux: say so once, and count each time. */
static inline void cl_posix_say_once(const char *sentence)
{
    (void)cl_posix_refuse(sentence, 0);
}

#endif
