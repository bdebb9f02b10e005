/* corelane's C API for custom servers: include this one header, link with `corelane config --cflags --libs`.
 *
 *   static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg) { ... }
 *
 *   struct cl_runtime_config config = {.socket_path = "/run/corelane.sock", .kthreads = 2};
 *   struct cl_runtime *rt;
 *   char err[256];
 *   cl_runtime_new(&config, &rt, err);
 *   cl_runtime_bind_udp(rt, 9000, echo, NULL);
 *   cl_runtime_start(rt, err);
 *
 * Everything returns -errno; calls with `err` leave one line there that says what, why, and what to do. Nothing prints,
 * aborts or exits. docs/examples of the repository: examples/c_echo.c.
 *
 *   runtime.h  create, bind, start, stop, statistics      udp.h    handlers, requests, sockets
 *   uthread.h  user-level threads                         sync.h   mutex, condition variable, semaphore, wait group
 *   channel.h  channels between uthreads, and select
 *   scope.h    uthreads that end together; cancelling and deadlines
 *   state.h    state that uthreads share: counter, rate limiter, LRU table
 *   probe.h    ceding a core in long loops
 *   timer.h    timers                                     sched.h  the scheduler alone
 *   adopt.h    kthreads that an event loop of yours turns
 *   wheel.h    alarms: deadlines that mostly move on      poll.h   waiting for many sockets
 *   lease.h    TCP's bytes without a copy
 *   elastic.h  memory of batch work that can be given back
 *   tcp.h      connections: callbacks for what happens   stream.h stream sockets: connections that block a uthread
 *
 * Not included here: log.h, the persistent log, and log_shared.h, which appends to it on uthreads (the runtime's
 * scheduler is cl_runtime_sched); corelane/drivers: NICs and block devices. */
#ifndef CORELANE_LIBOS_LIBOS_H
#define CORELANE_LIBOS_LIBOS_H

#include <corelane/libos/adopt.h>
#include <corelane/libos/channel.h>
#include <corelane/libos/elastic.h>
#include <corelane/libos/lease.h>
#include <corelane/libos/poll.h>
#include <corelane/libos/probe.h>
#include <corelane/libos/runtime.h>
#include <corelane/libos/scope.h>
#include <corelane/libos/state.h>
#include <corelane/libos/stream.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/tcp.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/udp.h>
#include <corelane/libos/uthread.h>
#include <corelane/libos/wheel.h>

#endif
