/* Stream sockets (corelane/libos/stream.h): what stands between a uthread that blocks and a connection.
 *
 *   uthread --> a call (stream.c) --> visit --> its flow is idle: take it, a turn of our own (turns.c)
 *                      |                 \----> somebody holds it: leave word, wake it, and wait; the holder runs the
 * visit                      |
 *                      +--> nothing there: wait <--- posted by the callbacks, inside of turns (sockets.c)
 *
 * Three locks, taken in this order: a socket's `guard`, the bucket's of its flow, a poll set's. Nothing waits with one
 * held, and uthreads are posted without. Of a listener the guard is its port's, which all listeners of a port share.
 *
 * Visit. Code that needs the connection itself (its buffers, its state) runs inside of a turn. Under the guard the
 * caller looks at `conn`: NULL, the connection is over, and there is nothing to visit. Else its block cannot go away
 * while the guard is held, for whoever ends it takes the guard first (on_ended). So the caller may look at the flow:
 *   IDLE              it becomes RUNNING, and is the caller's. It lets the guard go, and does its turn; or without one
 *                     what leaves nothing for the end of a turn to do (cl_visit.quietly).
 *   READY             someone will take the flow out of its queue and run it.
 *   RUNNING, AGAIN    someone works on it; it becomes AGAIN, so that it is run once more.
 * The visit is on the socket's list before the flow is looked at, and comes off again if that was idle. Else the next
 * turn begins after that (it takes the bucket's lock, in which we were), and looks at the list (cl_streams_turn). So
 * each visit is run, once, by a turn that begins after it was put there; or on_ended finds it on the list, and fails
 * it. No turn of a stream socket blocks, so neither does a visit for longer than kthreads run.
 *
 * Waiting. What a connection has told lies in `told`, which changes under the guard only. A call that needs a bit that
 * is not set counts itself in `waiting` in the same section in which it has looked, and then sleeps on the semaphore of
 * its side. Who sets the bit takes the count to 0 in the same section, and posts as often when it has let the guard go.
 * So either the waiter sees the bit, or it is posted for. One that wakes by its time-out and finds itself still counted
 * takes itself out; else the post is there or on its way, and it takes that, and looks again. A bit is cleared only
 * inside of a turn, or between two, after looking at the connection, and the callbacks that set it run in turns of the
 * same connection:
 *   DATA   set by `data`, cleared by a read that leaves nothing. It may be set with nothing there (`data` is called
 *          before the bytes are kept, and memory may be short); never the other way round.
 *   ROOM   set by `opened` and `writable`, cleared by a write that took less than it was given: of which the machine
 *          promises `writable`.
 *   RELEASED  set by `released`, cleared by cl_stream_released, under the guard. Its waiters go by the count.
 *   EOF, OVER, and those of the user's, are set once.
 *
 * Life. `refs` counts the user until it closes, the connection until it is over or let go of, and each call that is
 * inside. Memory is recycled, never freed while the runtime exists. Sockets are of a pool like blocks are; pages that
 * are never needed are never touched.
 *
 * Tests: tests/libos/net/tcp/test_sockets.py, test_kernel_sockets.py; test_sockets_model.py (all interleavings). */
#ifndef CORELANE_LIBOS_NET_TCP_SOCKETS_H
#define CORELANE_LIBOS_NET_TCP_SOCKETS_H

#include <corelane/libos/stream.h>
#include <corelane/libos/sync.h>
#include "../netif.h"
#include "conn.h"
#include "listen.h"

/* cl_stream.told */
#define CL_STREAM_DATA 0x1       /* something can be read; of a listener: accepted */
#define CL_STREAM_ROOM 0x2       /* something can be written */
#define CL_STREAM_OPENED 0x4     /* it was established */
#define CL_STREAM_EOF 0x8        /* all was read, and nothing more comes */
#define CL_STREAM_OVER 0x10      /* it has ended, with `error` */
#define CL_STREAM_FLUSHED 0x20   /* all that was written is acknowledged, and the FIN behind it */
#define CL_STREAM_READ_OFF 0x40  /* the user reads no more */
#define CL_STREAM_WRITE_OFF 0x80 /* the user writes no more */
#define CL_STREAM_CLOSED 0x100   /* the user has closed it */
#define CL_STREAM_LAST 0x400     /* nothing comes behind what waits */
#define CL_STREAM_RELEASED 0x200 /* some of what was lent was released since the user asked */

enum cl_stream_kind { CL_STREAM_FREE = 0, CL_STREAM_LISTENER, CL_STREAM_CONNECTION };
enum cl_stream_side { CL_STREAM_IN = 0, CL_STREAM_OUT = 1 };
enum cl_stream_ending { CL_STREAM_STAYS = 0, CL_STREAM_CLOSES, CL_STREAM_LINGERS, CL_STREAM_ABORTS };

#define CL_STREAM_LARGE_OPTIONS 3 /* whose values are beyond 32767 */

/* Options that were set, of those that a listener hands on: bit `1 << option`; and the congestion control if
 * not NULL. */
struct cl_stream_options {
    uint16_t set;
    uint16_t shut; /* for writing, from the beginning */
    int16_t small[CL_STREAM_OPTIONS - CL_STREAM_LARGE_OPTIONS];
    int32_t large[CL_STREAM_LARGE_OPTIONS]; /* from CL_STREAM_SEND_BUFFER on */
    const struct cl_tcp_cc_ops *cc;
};

/* Work on a connection inside of a turn, and what it brings. On the stack of who waits for it. */
struct cl_visit {
    struct cl_visit *next;
    void (*fn)(struct cl_visit *v, struct cl_tcp_conn *c);
    /* Tried first where nobody works on the connection: between two turns, and under the guard, with which whoever says
     * that something has come is in order, as he does so in a turn. False: it has done nothing. Or NULL. */
    bool (*quietly)(struct cl_visit *v, struct cl_tcp_conn *c);
    struct cl_stream *s;
    int64_t result;
    struct cl_sem done; /* posted when fn has returned, or the connection is over */
};

struct cl_port;

struct cl_stream {
    struct cl_spin lock;
    uint32_t kind;         /* enum cl_stream_kind; also read without the guard, acquire */
    uint32_t life;         /* how often it was made: under `lock`, whatever the guard is; also read without, relaxed */
    struct cl_spin *guard; /* &lock, or that of the port: of all that follows */
    struct cl_netif *nif;
    uint32_t refs;
    uint32_t told; /* CL_STREAM_*; poll sets read it without the guard, relaxed */
    int32_t error;
    uint32_t waiting[2]; /* by side: who sleeps or is about to, and was not posted for */
    struct cl_sem wake[2];
    struct cl_tcp_conn *conn;       /* NULL: over, or let go of */
    struct cl_visit *visits, *last; /* `visits` is also read by the holder without the guard, acquire */
    struct cl_pollable watch;
    void (*told_fn)(void *arg); /* called when something is told, under the guard; NULL: nobody watches */
    void *told_arg;
    uint32_t wants;  /* CL_POLL_*: what its set asks for */
    uint32_t ending; /* enum cl_stream_ending: what the next turn does; also read by the holder, relaxed */
    bool lingers;    /* the holder's: tell when all is acknowledged */
    bool gave_up;    /* a visitor who could not wait: the next turn tells its poll set; also read without the guard */
    struct cl_port *port; /* constant: at which it listens, or came in; NULL: it was opened actively */
    /* Under the port's lock: in whose queue it waits to be accepted, NULL in none; its neighbours there. Of a listener
     * `next` is that of its port. */
    struct cl_stream *home, *next, *prev;
    union {
        struct cl_tcp_addr ends[2]; /* constant: own, peer */
        struct {
            uint32_t backlog, n_queued;
            struct cl_stream *first, *newest; /* that wait to be accepted */
        };
    };
    union {
        struct cl_stream_options options; /* of a listener */
        struct {
            int64_t lent, released; /* of a connection: bytes written from regions, and back, ever */
        };
    };
};
_Static_assert(sizeof(struct cl_stream) <= 320, "a socket of a connection, beside its block");

/* A port with listeners, now or once: never freed while the runtime exists, since half-open connections point to it. */
struct cl_port {
    struct cl_tcp_listener listener; /* first */
    struct cl_spin lock;
    struct cl_streams *streams;
    struct cl_stream *listeners; /* by `next` */
    uint32_t n_listeners;
    uint16_t number;
};

/* Of a runtime. */
struct cl_streams {
    struct cl_netif *nif;
    struct cl_pool *pool;   /* a cache for each kthread, and one for all other threads */
    struct cl_spin outside; /* of the last */
    uint32_t n_used;        /* numbers below were used once; raised by exchange */
    struct cl_stream *all;  /* [CL_STREAMS] */
    struct cl_port **ports; /* [65536]; each set once (release) */
};

/* When a call gives up. */
struct cl_stream_until {
    int64_t timeout_ns;
    uint64_t deadline_ns;
};

extern const struct cl_tcp_events cl_stream_events;

/* sockets.c and visits.c */
struct cl_streams *cl_streams_of(struct cl_netif *nif); /* NULL: none was made */
int cl_streams_ensure(struct cl_netif *nif, struct cl_streams **out);
/* A socket with n references, that nobody else knows. NULL: as many exist as may. */
struct cl_stream *cl_stream_new(struct cl_streams *all, enum cl_stream_kind kind, struct cl_port *port, uint32_t refs);
/* Begin a call: the guard is held, and a reference, if it returns 0. */
int cl_stream_enter(struct cl_stream *s, enum cl_stream_kind kind);
/* The same for who does not know whether it is still the socket that it was made as: -EBADF if not. */
int cl_stream_keep(struct cl_stream *s, uint32_t life);
/* End it: the guard is let go. */
void cl_stream_leave(struct cl_stream *s);
/* Give up `refs` references, under the guard, which is let go. */
void cl_stream_unref(struct cl_stream *s, uint32_t refs);
struct cl_stream_until cl_stream_until(struct cl_stream *s, int64_t timeout_ns);
/* Under the guard, which is let go meanwhile: sleep until the side is told of. what: CL_TRACE_WAITS_*. 0: look
 * again. */
int cl_stream_wait(struct cl_stream *s, enum cl_stream_side side, uint16_t what, const struct cl_stream_until *until);
/* Set bits, under the guard, which is let go; wake whoever waits for them. The caller has a reference, or the turn. */
void cl_stream_tell(struct cl_stream *s, uint32_t bits);
/* Run a visit, under the guard, which is let go meanwhile. 0: v->result is its; -ENOTCONN: the connection is over;
 * -EDEADLK: somebody works on it, and the caller may not wait. */
int cl_stream_visit(struct cl_stream *s, struct cl_visit *v);
/* The user has no more to do with it: by a turn of ours, or by the next one of whoever works on the connection. Under
 * the guard, which is let go. CLOSED is told, and it is in no poll set. The caller has a reference. */
void cl_stream_end(struct cl_stream *s, enum cl_stream_ending how);
/* Before anybody else knows it: whose connection it is. */
void cl_stream_note_ends(struct cl_stream *s, const struct cl_flow *flow);
/* In a turn: the bit does not hold any more. */
void cl_stream_clear(struct cl_stream *s, uint32_t bit);
/* Why it is over: -errno, or `otherwise` if without an error. */
int cl_stream_why(const struct cl_stream *s, int otherwise);

/* sockopt.c: in a turn: what the listener has set. */
void cl_stream_apply(const struct cl_stream_options *o, struct cl_tcp_conn *c);

/* accept.c */
/* It is over, and perhaps nobody has accepted it. True: so it is, and the queue's reference is the caller's. */
bool cl_stream_unqueue(struct cl_stream *s);
/* Under the guard, which it lets go. */
int cl_stream_close_listener(struct cl_stream *l);

/* turns.c and flows.c call these: of a connection in whose turn something may be due for its socket; of all, when the
 * runtime stops, and when it is deleted. */
void cl_streams_turn(struct cl_tcp_conn *c);
void cl_streams_shut(struct cl_netif *nif);
void cl_streams_delete(struct cl_streams *all);

/* stream.h, of an interface. */
int cl_streams_listen(struct cl_netif *nif, uint16_t port, uint32_t backlog, struct cl_stream **out);
int cl_streams_connect(struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                       int64_t timeout_ns, struct cl_stream **out);

#endif
