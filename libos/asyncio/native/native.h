/* corelane.libos._asyncio: what the loop does in C, against CPython's limited API. Read this page first.
 *
 *   _run_once (loop.c)
 *     |--> poller_wait (poller.c): serve who has something to send, a turn of the kthread, epoll
 *     |                               |
 *     |                               +--> callbacks of connections (endpoint.c): bytes are taken, the endpoint is put
 *     |                                    on the list of those that are ready
 *     |--> deliver (deliver.c): calls the protocols of all that are ready
 *     +--> handles (handles.c) that are ready (ready.c) or due (timers.c): coroutines, and what else is to be called
 *   both --> transport (transport.c): what is written is kept, the endpoint put on the list of those to serve
 *
 * Callbacks run on uthreads, on whose small stacks nothing of Python's may run that could run more of it: they make
 * bytes objects and plain ones, and drop them. All else of Python runs on the thread's own stack, between two turns.
 *
 * The interpreter's lock. The first turn of a wait is made with it, those that follow without: the first callback that
 * needs it takes it, for the rest of that turn. A callback outside of our turns (a runtime that is stopped by somebody)
 * takes it for itself. All that is here is guarded by it.
 *
 * Objects. An endpoint is a connection, from its beginning to its end, and the object that people get as "socket". It
 * owns its transport while the connection lives, and the connection owns the endpoint; both end when `ended` was
 * called, or the connection goes on alone (endpoint_leave). It is of no interest to the collector of cycles, which must
 * not run where endpoints are made; the cycle with its transport is broken when connection_lost is called, or the loop
 * closes.
 *
 * One runtime, one kthread, one loop, one thread. With a free-threaded interpreter: a poller and its endpoints are used
 * by the loop's thread alone, so there is nothing to lock but the module's constants; the limited API does not exist
 * there yet. */
#ifndef CORELANE_LIBOS_ASYNCIO_NATIVE_H
#define CORELANE_LIBOS_ASYNCIO_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <corelane/libos/adopt.h>
#include <corelane/libos/runtime.h>
#include <corelane/libos/stream.h>
#include <corelane/libos/tcp.h>
#include <corelane/libos/udp.h>

#include <stdbool.h>
#include <time.h>

#if Py_LIMITED_API < 0x030C0000
/* Of the limited API since 3.12; exported with these signatures since 3.9 (PEP 590). */
PyAPI_FUNC(PyObject *)
    PyObject_Vectorcall(PyObject *callable, PyObject *const *args, size_t n_and_flag, PyObject *names);
PyAPI_FUNC(PyObject *)
    PyObject_VectorcallMethod(PyObject *name, PyObject *const *args, size_t n_and_flag, PyObject *names);
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#endif

/* endpoint.told: what the protocol is to hear of, in this order. */
#define TOLD_OPENED 1  /* it is established */
#define TOLD_DATA 2    /* bytes have come, and were taken */
#define TOLD_WAITING 4 /* bytes have come, and wait for a buffer */
#define TOLD_ROOM 8    /* what was written has gone, as far as the low-water mark */
#define TOLD_EOF 16    /* nothing more comes */
#define TOLD_SENT 32   /* all that was written has gone */
#define TOLD_OVER 64   /* the connection is over, or was left: connection_lost */

#define SERVE_MOST 32 /* endpoints with something to send, beyond which it leaves before the loop waits */

/* endpoint.wants: what the next turn of it does. */
#define WANTS_SEND 1
#define WANTS_OFFER 2 /* what waits is to be offered again */

struct datagrams;
struct endpoint;
struct transport;

struct list {
    struct endpoint *first, *last;
};

/* What a port has of listeners. Never freed while the runtime exists: connections that open point to it. */
struct port {
    struct poller *poller; /* NULL: the loop is closed */
    struct port *next;
    uint16_t number;
    uint32_t n;          /* of listeners that are open */
    PyObject *listeners; /* {address as int: callable(endpoint)}, 0 is any address; NULL: nobody listens */
};

struct poller {
    PyObject_HEAD struct cl_runtime *runtime;
    struct cl_sched *sched;
    int kthread_fd, timer_fd;
    uint64_t timer_ns; /* that is set, by CLOCK_MONOTONIC; 0: none */
    int64_t looked_ns; /* when other descriptors were last looked at */
    /* The lock, and who is inside: see above. */
    unsigned long thread; /* that is inside of the runtime; 0: none. Also read by others, relaxed */
    bool locked;
    bool dead; /* the runtime has stopped */
    PyThreadState *state;
    struct list ready, serve; /* by next_ready, next_served; each entry a reference */
    struct endpoint *serving; /* a reference, while others follow it; else NULL */
    size_t n_ready, n_serve;
    struct endpoint *all; /* that have a connection, or a transport */
    struct port *ports;
    struct datagrams *came;    /* a stack: pushed inside of turns, taken whole by the loop's thread */
    struct datagrams *sockets; /* of UDP, that are open */
    PyObject *endpoint_type;
    uint64_t turns, bursts, told; /* `told`: transports, in so many bursts */
    uint64_t given;               /* pieces of data, to protocols */
};

struct endpoint {
    PyObject_HEAD struct poller *poller; /* a reference */
    struct cl_tcp_conn *conn;            /* NULL: over, or left */
    struct port *port;                   /* at which it came in, or NULL */
    struct cl_tcp_addr own, peer;
    struct endpoint *next_ready, *next_served;
    struct endpoint *after, **at; /* of all */
    struct transport *transport;  /* a reference; NULL: it has none yet, or no more */
    PyObject *opened;             /* a future of who connects, or NULL */
    uint8_t told, wants;
    bool is_ready, is_served;
    bool paused;  /* what comes waits */
    bool buffers; /* ... for a buffer of the protocol's */
    bool has_opened, closing, shuts, left, reset;
    int error;
    /* What has come and was taken: `got` bytes of an object that may be longer. */
    PyObject *data;
    Py_ssize_t got;
    /* What is to be sent: bytes objects from out[first] on, of the first of which `done` have gone. */
    PyObject **out;
    uint32_t first, n_out, room;
    Py_ssize_t done, out_bytes;
};

/* A UDP socket. */
struct datagrams {
    PyObject_HEAD struct poller *poller; /* a reference */
    struct cl_udp_socket *udp;           /* NULL: closed */
    struct datagrams *next_came;         /* written by who sets `came` */
    struct datagrams *after, **at;       /* of all that are open */
    uint16_t port;
    uint32_t came; /* it is on the stack. Set by who turns the kthread, cleared by `deliver` */
};

struct transport { /* behind what its base has */
    PyObject *loop, *protocol, *server, *extra, *waiter, *run;
    PyObject *data_received, *get_buffer, *buffer_updated; /* of the protocol */
    PyObject *reader;        /* what a StreamReader of ../streams.py has, its dictionary, that is fed; or NULL */
    Py_ssize_t reader_limit; /* bytes beyond which asyncio's own feeds it */
    struct endpoint *endpoint;
    Py_ssize_t high_water, low_water;
    long lost; /* connection_lost was called for, and writes since */
    bool closing, paused, eof, writing_paused, connected;
    bool made;
};

#define SPARE_HANDLES 128

struct handle { /* behind what its base has */
    PyObject *callback, *args, *context, *loop;
    PyObject *repr, *trace; /* in debug mode */
    double when;            /* of a timer, by time.monotonic() */
    bool cancelled;
    bool scheduled; /* it is in the heap */
};

struct ready {
    PyObject_HEAD PyObject **at; /* a ring: n references from `first` on */
    uint32_t first, n, room;
};

struct timer {
    double when;
    uint64_t number;
    PyObject *handle; /* a reference */
};

struct timers {
    struct timer *at; /* a heap */
    size_t n, room, n_cancelled;
    uint64_t made;
};

struct loop {
    PyObject_HEAD struct poller *poller; /* a reference; NULL: it has not begun */
    int epoll;
    struct ready *ready; /* a reference */
    struct timers timers;
    PyObject *interrupts;           /* what signals have raised: ../../handlers/interrupts.py */
    PyObject *future_keywords;      /* {"loop": itself} */
    PyObject *spare[SPARE_HANDLES]; /* n_spare handles that nobody has any more, without their parts */
    unsigned n_spare;
    bool closed, stopping, debug;
};

extern const struct cl_tcp_events endpoint_events;

#define endpoint_of(o) ((struct endpoint *)(o))
#define loop_of(o) ((struct loop *)(o))
struct handle *handle_of(PyObject *self);
struct transport *transport_of(PyObject *self);
PyObject *transport_object(struct transport *t);
static inline bool has_waiter(const struct transport *t)
{
    return t->waiter && t->waiter != Py_None;
}

/* callable(first, second). Arguments may be NULL, the last ones. */
static inline PyObject *call_with(PyObject *callable, PyObject *first, PyObject *second)
{
    PyObject *args[] = {NULL, first, second}; /* the callee may use the first place */
    size_t n = (first ? 1 : 0) + (second ? 1 : 0);
    return PyObject_Vectorcall(callable, args + 1, n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* self.name(first, second, third), the same. */
static inline PyObject *call_method(PyObject *self, PyObject *name, PyObject *first, PyObject *second, PyObject *third)
{
    PyObject *args[] = {self, first, second, third};
    size_t n = 1 + (first ? 1 : 0) + (second ? 1 : 0) + (third ? 1 : 0);
    return PyObject_VectorcallMethod(name, args, n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* module.c: names of methods that are called from here. Interned, for the interpreter keeps each name that it is asked
 * for in its cache of types' attributes. */
extern struct names {
    PyObject *data_received, *get_buffer, *buffer_updated, *eof_received, *close, *fatal_error, *over, *all_sent,
        *resume, *pause, *after_end, *connected, *refused, *run, *context, *callback, *delay, *when, *loop,
        *look_closely, *trace, *callback_failed, *run_handle, *tell_descriptors, *interrupt, *buffer, *waiter, *eof,
        *paused, *transport, *exception, *own_loop, *cancelled, *set_result, *resume_reading, *create_future,
        *maybe_resume, *throw, *told, *transport_failed;
} names;
/* The same: what is called, or made, of other modules and of this. */
extern struct imported {
    PyObject *copy_context, *future, *no_arguments, *ready_type, *loop_type, *transport_type, *stream_read,
        *stream_write, *stream_drain;
} imported;

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* handles.c */
struct wanted {                                 /* borrowed, but for the trace */
    PyObject *callback, *const *args, *context; /* context may be NULL: the current one */
    PyObject *trace;                            /* NULL: it is not debug mode */
    Py_ssize_t n_args;
};
int handles_make_types(PyObject *module);
PyObject *handle_new(bool timer, PyObject *loop, const struct wanted *w);
/* It was called: the caller's reference goes, and the handle is kept for the next one if that was the last. */
void handle_done(struct loop *l, PyObject *self);
bool is_handle(PyObject *o);
/* Call it, if it is not cancelled. -1: the exception is for whoever runs the loop. */
int handle_run(PyObject *self);
/* The exception that is set, with its traceback, as an object; nothing is set then. NULL: it is SystemExit or
 * KeyboardInterrupt, which is for whoever runs the loop, and stays set. */
PyObject *take_exception(void);

/* ready.c */
extern PyType_Spec ready_spec;
/* -1 with an exception: no memory. */
int ready_put(struct ready *r, PyObject *handle);
/* The first, or NULL. The reference is the caller's. */
PyObject *ready_take(struct ready *r);

/* timers.c: of handles whose `when` is set */
int timers_put(struct timers *t, PyObject *handle);
void timers_drop_cancelled(struct timers *t);
/* Those before `end` are ready. */
int timers_take_due(struct timers *t, double end, struct ready *ready);
void timers_clear(struct timers *t);

/* loop.c */
extern PyType_Spec loop_spec;
/* loop.create_future(), of any loop. */
PyObject *loop_future(PyObject *loop);

/* poller.c */
extern PyType_Spec poller_spec;
/* Serve, turn, and wait for at most so many ns, < 0 for ever, until something is ready. *events: [(descriptor, events)]
 * of others' descriptors, or NULL: none. -1 with an exception: OSError, or what a signal raises. */
int poller_wait(struct poller *p, int epoll, int64_t timeout_ns, PyObject **events);
/* What is kept leaves now, if the kthread has a core: the loop stops, and may not turn for long; or many wait for
 * it. */
void poller_send(struct poller *p);
/* To be called between two callbacks: what a burst is answered begins to leave before the last of it is. */
static inline void poller_send_some(struct poller *p)
{
    if (cl_unlikely(p->n_serve >= SERVE_MOST))
        poller_send(p);
}
bool lock(struct poller *p, PyGILState_STATE *state);
void unlock(bool taken, PyGILState_STATE state);
/* Call fn(arg) on the kthread, the caller having the lock. -EAGAIN: it has no core at this moment; or what adopt.h
 * says. more: a turn follows soon. */
int on_kthread(struct poller *p, void (*fn)(void *arg), void *arg, bool more);
/* The same, or on a uthread when there is a core. arg stays until then: what it belongs to has been given a reference.
 * -errno: it will not be called. */
int post(struct poller *p, void (*fn)(void *arg), void *arg, bool more);
void put_ready(struct endpoint *e, unsigned told);
void put_served(struct endpoint *e, unsigned wants);
PyObject *poller_fail(int error, const char *what);

/* Whether `deliver` has something to do. */
static inline bool anything_ready(const struct poller *p)
{
    return p->ready.first || cl_load_relaxed(&p->came);
}

/* The next that is ready, or NULL. The reference is the caller's. */
struct endpoint *pop_ready(struct poller *p);

/* endpoint.c */
extern PyType_Spec endpoint_spec;
extern const struct cl_tcp_events port_events;
struct endpoint *endpoint_new(struct poller *p);
/* Inside of a turn. */
void endpoint_serve(struct cl_tcp_conn *c, void *arg);
/* Have a turn now that serves it. */
void endpoint_serve_now(struct endpoint *e);
/* Keep bytes to be sent. -1 with an exception. */
int endpoint_send(struct endpoint *e, PyObject *bytes);
void endpoint_drop_output(struct endpoint *e);
/* It has lost its connection, or its transport. If neither is left, nobody has to be able to forget it. */
void endpoint_lost_one(struct endpoint *e);
/* Its loop is closed: the connection is reset, and nobody hears of it. */
void endpoint_forget(struct endpoint *e);
/* What has come, as bytes of its own length. NULL with an exception: there was no memory for that. */
PyObject *endpoint_take_data(struct endpoint *e);
/* Read what waits, into a buffer. Returns how many bytes, or -1: later. */
Py_ssize_t endpoint_read(struct endpoint *e, void *data, Py_ssize_t room);

/* deliver.c */
/* Call the protocols of all that are ready. -1: SystemExit or KeyboardInterrupt; the others are called the next
 * time. */
int deliver(struct poller *p);

/* datagrams.c */
extern PyType_Spec datagrams_spec;
/* Call `told` of all that something has come for. -1 with an exception. */
int datagrams_deliver(struct poller *p);
void datagrams_close(struct datagrams *d);

/* transport.c */
PyObject *transport_make_type(PyObject *module);
/* Its method `write`. */
PyObject *transport_write(PyObject *self, PyObject *data);

/* streams.c */
PyObject *streams_make_type(PyObject *module);
/* Give bytes to a reader that has this, as its feed_data. 1; 0: asyncio's is to do it, nothing is done; -1 with an
 * exception. */
int stream_feed(PyObject *has, Py_ssize_t limit, PyObject *data);

/* ports.c */
PyObject *poller_listen(PyObject *self, PyObject *args);
PyObject *poller_unlisten(PyObject *self, PyObject *args);
PyObject *poller_connect(PyObject *self, PyObject *args);
PyObject *poller_outgoing(PyObject *self, PyObject *unused);
void ports_close(struct poller *p);
/* Call the listener that an endpoint has come for. -1 with an exception. */
int ports_accept(struct endpoint *e);

#endif
