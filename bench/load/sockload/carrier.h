/* What carries the bytes of connections: sockets of Linux (sockets.c), or corelane's own stack (dataplane.c). The rest
 * of the engine is the same over both.
 *
 * Nothing blocks but `poll`. All calls but `run` are made where `run` runs. */
#ifndef CORELANE_BENCH_LOAD_SOCKLOAD_CARRIER_H
#define CORELANE_BENCH_LOAD_SOCKLOAD_CARRIER_H

#include <corelane/runtime/base.h>

struct cl_conn;
struct cl_sockload;
struct cl_worker;

struct cl_carrier {
    /* What a worker has of its own. 0, -errno. */
    int (*init)(struct cl_worker *w);
    void (*free)(struct cl_worker *w);
    /* Begin to open c. 0: it is open; -EINPROGRESS: it will be writable, and `opened` says how that went; -errno. */
    int (*open)(struct cl_worker *w, struct cl_conn *c);
    int (*opened)(struct cl_worker *w, struct cl_conn *c);
    void (*close)(struct cl_worker *w, struct cl_conn *c);
    /* How many bytes were taken, 0: there is no room; -errno. A datagram is taken whole, or -EAGAIN. */
    int64_t (*send)(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n);
    /* Be told when there is room to send, or no more (TCP). 0, -errno. */
    int (*want_room)(struct cl_worker *w, struct cl_conn *c, bool wanted);
    /* Bytes that have come (TCP), and when they did: w->came; 0: the peer has ended it, -EAGAIN, -errno. */
    int64_t (*receive)(struct cl_worker *w, struct cl_conn *c, uint8_t *data, uint64_t room);
    /* Send n datagrams of `each` bytes that lie behind one another: how many were sent, or -errno if none was. */
    int (*send_together)(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, unsigned n, uint32_t each);
    /* Take up to CL_SOCKLOAD_DATAGRAMS into the worker's inbox, with the times when they came: how many, -EAGAIN for
     * none, -errno. */
    int (*receive_datagrams)(struct cl_worker *w, struct cl_conn *c);
    /* Look which connections have something, and call cl_sockload_worker_event for each; wait for it `ms` at most. */
    void (*poll)(struct cl_worker *w, int ms);
    /* Run fn(w) on a thread of its own that may do all of the above: 0, or a positive errno. `join` waits for its
     * end. */
    int (*start)(struct cl_worker *w, void *(*fn)(void *w));
    void (*join)(struct cl_worker *w);
    /* The same, and wait for its result; on the calling thread where that may. */
    int (*call)(struct cl_worker *w, int (*fn)(struct cl_worker *w, uint64_t arg), uint64_t arg);
};

extern const struct cl_carrier cl_sockload_sockets, cl_sockload_dataplane;

#endif
