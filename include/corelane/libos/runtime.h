/* A runtime: scheduler + NIC + network stack, as one object. Part of the C API (libos.h).
 *
 * Two modes by one argument. Attached (`socket_path`): the runtime is an application of an iokernel; its NIC is the
 * `port` driver. Embedded (`nic`): the runtime's kthreads poll the given NIC themselves and run to completion. Kthread
 * k uses queue k of the NIC and sleeps on its parker.
 *
 * Threads: configure (bind, open) from any thread before cl_runtime_start; the calls below say what is allowed later.
 * The NIC given in embedded mode stays the caller's and must outlive the runtime. */
#ifndef CORELANE_LIBOS_RUNTIME_H
#define CORELANE_LIBOS_RUNTIME_H

#include <corelane/libos/reasons.h>
#include <corelane/libos/sched.h>
#include <corelane/libos/udp.h>
#include <corelane/runtime/counter.h>
#include <corelane/runtime/promise.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* Events, with one line for people. Called from a thread of the runtime that may not be blocked for long. */
#define CL_EVENT_ATTACHED 1   /* (again) attached to an iokernel */
#define CL_EVENT_STALLED 2    /* the iokernel answers no more, but its process exists */
#define CL_EVENT_GONE 3       /* the iokernel or the NIC went away; when a new iokernel comes, all goes on */
#define CL_EVENT_CONFLICT 4   /* another host on the link claims our address */
#define CL_EVENT_LIMITED 5    /* the iokernel does not grant all that was wished for; once, inside cl_runtime_new */
#define CL_EVENT_UNFINISHED 6 /* frames come whose checksum their sender left to a device; once */
#define CL_EVENT_DRAIN 7      /* attached: another member of the group has taken over: drain, then end. Once */
/* A compiled handler, or the like, raised an exception: which, where, and how often; of each place at most once a
 * second, and the rest inside cl_runtime_delete */
#define CL_EVENT_RAISED 8
typedef void (*cl_runtime_event)(void *arg, int event, const char *text);

/* Of cl_runtime_config.trace and cl_runtime_trace: what is written down of requests (docs/tracing.md). */
#define CL_RUNTIME_TRACE_OFF 1
#define CL_RUNTIME_TRACE_SAMPLED 2
#define CL_RUNTIME_TRACE_FULL 3

#define CL_RUNTIME_LATENCY 1
#define CL_RUNTIME_BATCH 2
#define CL_RUNTIME_BATCH_STACK_BYTES 8388608
#define CL_RUNTIME_CHUNK_BYTES 67108864 /* of which only what is needed is touched */

/* Zero means the default, given in brackets. Start from zeroed memory. */
struct cl_runtime_config {
    struct cl_nic *nic;      /* embedded mode: this NIC; or NULL */
    const char *socket_path; /* attached mode: the iokernel's socket; or NULL */
    const char *name;        /* attached: name of the application; [the program's] */
    uint32_t kthreads;       /* [1] embedded: as many as the NIC has queues */
    uint32_t adopted;        /* [0] the first so many kthreads are turned by threads of yours (adopt.h) */
    uint32_t
        adopted_unless_managed; /* 1: none is, where an iokernel manages the cores; they have threads of their own */
    uint32_t poll;              /* what a kthread without work does: CL_SCHED_SPIN, _ADAPTIVE, _BLOCK; see poll_set */
    uint32_t poll_set;          /* 0: `poll` is ignored and adaptive taken */
    uint32_t stack_bytes;       /* [65536; batch: 8 MiB, for what libraries do there; only what is touched is memory] */
    uint64_t spin_ns;           /* [scheduler's] */
    uint32_t stop_ms;           /* how long a stop waits for kthreads whose code does not come back [5000] */
    /* CPU of each kthread, -1 unpinned [attached: as the iokernel of today says, unpinned while there is none;
     * embedded: unpinned] */
    const int32_t *cpus;
    uint32_t ipv4;            /* host byte order [the NIC's] */
    uint32_t ipv4_prefix;     /* [the NIC's, else 24] */
    uint32_t gateway;         /* next hop beyond the subnet [attached: as the iokernel says; embedded: none] */
    uint32_t no_udp_checksum; /* do not generate UDP checksums (RFC 768 permits 0). For trusted links only */
    uint32_t no_steal;        /* siblings take nothing: each flow stays on its kthread */
    uint64_t chunk_bytes;     /* what waits for readers may take so much memory [CL_RUNTIME_CHUNK_BYTES] */
    uint64_t seed;            /* of the secrets of its hashes, to repeat a run [random; by a virtual clock 1] */
    /* What it wishes of the cores where an iokernel manages them (docs/cores.md). It gets of guaranteed, max_cores and
     * weight what the iokernel's configuration allows, which is no guarantee and weight 1 where that says nothing. */
    uint32_t kind;        /* CL_RUNTIME_LATENCY, _BATCH [latency] */
    uint32_t guaranteed;  /* cores that it gets whenever it has work for them [0] */
    uint32_t max_cores;   /* [as many as kthreads] */
    uint32_t weight;      /* among equals [1] */
    uint32_t deadline_us; /* what its tail should stay under [nothing asked] */
    uint32_t
        quantum_us; /* a uthread that ran for so long lets others go first at its next probe; in every mode [never] */
    /* 1: and it is sent the signal, for code that may be interrupted (cl_preemptible_add, cl_preemptible_begin) and has
     * no probes. Attached mode; granted if the iokernel's configuration says so [0] */
    uint32_t quantum_signal;
    /* CL_RUNTIME_TRACE_... [sampled]. With OFF there is no segment, and it cannot be traced later. Sampled: 1 of one_in
     * messages [1024], and about the slowest so many of each millisecond [4; at most 16]. records: that a kthread's
     * ring holds, of 64 bytes; a power of two from 256 on [4096] */
    uint32_t trace, trace_one_in, trace_slowest, trace_records;
    /* May be NULL: then nobody is told anything. cl_runtime_info has what was not granted (`note`), and `gone`. */
    cl_runtime_event on_event;
    void *event_arg;
};

struct cl_runtime_info {
    uint8_t mac[6];
    uint16_t kthreads;
    uint32_t ipv4, ipv4_prefix;
    uint32_t mtu;
    uint32_t attached; /* 1: attached mode, 0: embedded */
    uint32_t running;
    uint32_t gone;   /* the NIC is gone at this moment */
    uint32_t member; /* attached: which one of its group it is, + 1; 0: it is of none */
    uint32_t pad;
    char note[320]; /* attached: what was wished for and is not granted, one line for people; empty: nothing */
};

/* New runtime, not running. -errno with one line in err. */
CL_API int cl_runtime_new(const struct cl_runtime_config *config, struct cl_runtime **out, char err[256]);
/* Give a port to a handler. -EADDRINUSE, -EINVAL (port 0), -ENOMEM, -EMFILE. Any thread, any time; it stays until
 * cl_runtime_delete. */
CL_API int cl_runtime_bind_udp(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg);
CL_API int cl_runtime_bind_udp_burst(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg);
/* The same with requests in queues by type (udp.h); -ENOSPC too. err says what is wrong. *types is copied. */
CL_API int cl_runtime_bind_udp_typed(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg,
                                     const struct cl_udp_types *types, char err[256]);
/* The same in order: of one flow (udp.h) the handler gets one datagram after the other, as the NIC gave them, the next
 * when it has returned, also where it blocks; of different flows it runs at the same time as always. What is more than
 * CL_UDP_FLOW_QUEUE in one flow, or too much in all, is dropped under its reason. */
CL_API int cl_runtime_bind_udp_ordered(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg);
/* As cl_runtime_bind_udp_burst, called on the kthread's own large stack under the no-switch rule (sched.h): for
 * callbacks into language run-times. Blocking calls inside answer -EDEADLK. */
CL_API int cl_runtime_bind_udp_foreign(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg);
/* As cl_runtime_bind_udp_burst, or with foreign != 0 as cl_runtime_bind_udp_foreign, for requests that wait for others
 * (udp.h). -EINVAL, -EADDRINUSE, -ENOSPC (CL_UDP_BATCHED), -ENOMEM, -EMFILE; err says what is wrong. *how is copied. */
CL_API int cl_runtime_bind_udp_batched(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg,
                                       uint32_t foreign, const struct cl_udp_batching *how, char err[256]);
/* Have the requests of such a port wait in another way from now on. -EINVAL with a reason; -ENOENT: there is none. Any
 * thread. */
CL_API int cl_runtime_set_batching(struct cl_runtime *rt, uint16_t port, const struct cl_udp_batching *how,
                                   char err[256]);
/* What was measured of the handler of such a port. -ENOENT: there is none. Any thread. */
CL_API int cl_runtime_batch_profile(const struct cl_runtime *rt, uint16_t port, struct cl_udp_batch_profile *out);
/* Enter a static ARP mapping. Host byte order. -ENOSPC, -EBUSY (being resolved). Any thread. */
CL_API int cl_runtime_add_neighbour(struct cl_runtime *rt, uint32_t ipv4, const uint8_t *mac);
/* Start a detached uthread. Any thread, also before start. -EAGAIN, -ESHUTDOWN. */
CL_API int cl_runtime_spawn(struct cl_runtime *rt, cl_uthread_fn fn, void *arg);
/* Trace requests in another way (CL_RUNTIME_TRACE_...) from about a millisecond on; 0: as before. Returns how until
 * then.
 * -EINVAL: there is no such way; -ENOENT: it was made with tracing off, which it stays. Any thread. */
CL_API int cl_runtime_trace(struct cl_runtime *rt, uint32_t how);
/* Let whoever may signal the process sample where its kthreads are (cl_trace_ask_samples), where the kernel lets nobody
 * do so. Before start. -EBUSY: SIGPROF is somebody else's; -ENOENT: it is not traced; -ENOMEM. */
CL_API int cl_runtime_sample_by_signal(struct cl_runtime *rt);
/* For what no handler answers, but somebody later (a command of a Raft group): its number in the trace, of a kind
 * (CL_TRACE_RAFT) on a port; 0: nothing is traced, or there is no room. Any thread. */
CL_API uint32_t cl_runtime_trace_service(struct cl_runtime *rt, uint32_t kind, uint16_t port);
/* When a command of a group reached which stage, by the scheduler's clock; 0: it did not, or that is not known. */
struct cl_call_stages {
    uint64_t gone_ns;    /* its batch went: to the leader's log, and to the others; FORWARDED: to the leader */
    uint64_t sent_ns;    /* the first message with it */
    uint64_t flush_ns;   /* given to the leader's device, */
    uint64_t written_ns; /* which had written it, */
    uint64_t durable_ns; /* and all before it */
    uint64_t others_ns;  /* a majority had it, but for the leader's own log; READ: it was known that this node leads */
    uint64_t agreed_ns;  /* it was known to be committed; READ: the same */
    uint64_t index;      /* of its entry */
    uint32_t node;       /* the last of the others that the majority needed; 0: none, or not known */
    uint32_t flags;      /* CL_TRACE_COMMAND_READ, CL_TRACE_COMMAND_FORWARDED */
};
/* Such a one, which is answered now. */
struct cl_runtime_call {
    uint64_t since_ns; /* when it came, by the scheduler's clock */
    uint32_t service;  /* cl_runtime_trace_service */
    uint32_t what;     /* it has waited for: CL_TRACE_WAITS_COMMIT, say */
    uint32_t leaves;   /* 1: its answer is sent next, or waits for the doorbell already */
    uint32_t reserved;
    /* Asked for its stages if it is recorded; NULL: it has none. */
    void (*stages)(void *arg, struct cl_call_stages *out);
    void *arg;
};
/* Trace it. On a kthread; elsewhere it is not traced. */
CL_API void cl_runtime_trace_call(struct cl_runtime *rt, const struct cl_runtime_call *call);
/* Work to be done again and again; < 0: an error, counted. */
typedef int64_t (*cl_every_fn)(void *arg);
/* One such. Counters: written by its uthread, read by anybody (relaxed). */
struct cl_every {
    uint64_t period_ns;
    cl_every_fn fn;
    void *arg;
    uint64_t calls, skipped, errors; /* skipped: times that were over before the call before them had ended */
    uint32_t foreign;
    uint32_t pad;
    struct cl_every *next; /* of the same runtime */
};
/* Call fn(arg) every period_ns on a uthread of its own, first when one period is over, until the runtime stops. Calls
 * of one never overlap. foreign: on the kthread's own large stack under the no-switch rule, as
 * cl_runtime_bind_udp_foreign; else it may block. *out lives as long as the runtime. Any thread, before or after start.
 * -EINVAL (period_ns 0, no function), -ENOMEM, -EAGAIN, -ESHUTDOWN. */
CL_API int cl_runtime_every(struct cl_runtime *rt, uint64_t period_ns, cl_every_fn fn, void *arg, uint32_t foreign,
                            const struct cl_every **out);
/* Start the kthreads. Once. -EINVAL: the NIC's clock is virtual, by which no thread can sleep. */
CL_API int cl_runtime_start(struct cl_runtime *rt, char err[256]);
/* Instead of cl_runtime_start, where the NIC's clock is virtual: the runtime runs when it is stepped (stepper.h does
 * both). -EINVAL by another clock, -EALREADY. */
CL_API int cl_runtime_begin_steps(struct cl_runtime *rt, char err[256]);
/* One turn of each kthread, on the calling thread. Returns how many things were done; 0: there is nothing now. -EINVAL:
 * its steps have not begun. -EDEADLK on a kthread. One thread at a time. */
CL_API int cl_runtime_step(struct cl_runtime *rt);
/* When it will have something to do by itself: a timer, a frame that its NIC does not announce; UINT64_MAX: never. As
 * cl_runtime_step. */
CL_API uint64_t cl_runtime_next_ns(struct cl_runtime *rt);
/* Say what a function of the application is called that has no symbol, for cl_runtime_stuck; copied. What was said
 * first counts. -ENOMEM. Any thread. */
CL_API int cl_runtime_name(struct cl_runtime *rt, const void *fn, const char *name);
/* Attached, as a member of a group (docs/groups.md): its ports are bound, new flows may come. replace: and the other
 * members of the same user get none from then on, and are told to drain. Returns how many were. Embedded, or of no
 * group: nothing, 0. -errno with one line in err. Not on a kthread. */
CL_API int cl_runtime_ready(struct cl_runtime *rt, bool replace, char err[256]);
/* Have new flows go to the other members, and wait up to timeout_ns until what came before that is with uthreads, which
 * cl_runtime_stop lets end. -ETIMEDOUT: something still waits. 0: nothing does, or the iokernel is gone, or it is of no
 * group. -errno with one line in err. Not on a kthread. */
CL_API int cl_runtime_drain(struct cl_runtime *rt, int64_t timeout_ns, char err[256]);
/* Wait up to timeout_ns until no TCP connection is open any more; those in TIME_WAIT, which both sides have closed, do
 * not count. Nothing ends them: their users or their peers do. -ETIMEDOUT. Not on a kthread. */
CL_API int cl_runtime_wait_closed(struct cl_runtime *rt, int64_t timeout_ns, char err[256]);
/* TCP connections that exist now, half open ones and those that are being closed, too, but for those in TIME_WAIT. Any
 * thread; of counters that grow meanwhile. */
CL_API uint64_t cl_runtime_connections(const struct cl_runtime *rt);
/* Stop receiving, wait up to timeout_ns (< 0: no limit) for uthreads, end the kthreads, give back every frame that is
 * not held by a uthread that was still alive. Returns the number of those. From a foreign thread. -ETIMEDOUT: stop_ms
 * later a kthread is still in code that does not come back. cl_runtime_stuck says in which; it may be called again. */
CL_API int cl_runtime_stop(struct cl_runtime *rt, int64_t timeout_ns);
/* A kthread that has not ended, and the code that it is in. */
struct cl_runtime_stuck {
    uint32_t kthread;
    int32_t tid;
    uint32_t port; /* of the handler; 0: it is in none */
    uint32_t pad;
    void *fn, *arg; /* the handler's, or the uthread's function; NULL: in neither, but in the scheduler's loop */
};
/* How many kthreads have not ended, and one of them, if possible one in a handler or a uthread, in words, too. For who
 * has stopped in vain; a guess while they run. Any thread. */
CL_API unsigned cl_runtime_stuck(const struct cl_runtime *rt, struct cl_runtime_stuck *out, char text[256]);
/* Stop if need be and free everything; attached: unregister. NULL is allowed. If the stop fails with -ETIMEDOUT nothing
 * is freed: it is in use. */
CL_API void cl_runtime_delete(struct cl_runtime *rt);
/* Counters of kthread k, or the sum for k = -1. Any thread. */
CL_API int cl_runtime_net_stats(const struct cl_runtime *rt, int k, struct cl_net_stats *out);
/* What a holder (CL_CHUNKS_...) has of the application's memory of bytes. -EINVAL: there is no such holder. Any
 * thread. */
CL_API int cl_runtime_chunk_stats(const struct cl_runtime *rt, unsigned holder, struct cl_chunk_stats *out);
CL_API int cl_runtime_sched_stats(const struct cl_runtime *rt, int k, struct cl_sched_stats *out);
/* The same under names, those that are not 0, summed over the kthreads: the fields of struct cl_net_stats, the reasons
 * as dropped_REASON, and sched_FIELD of struct cl_sched_stats. Returns how many of them are in `out`. Any thread. */
CL_API unsigned cl_runtime_counters(const struct cl_runtime *rt, struct cl_counter *out, unsigned room);
/* Attached: an iokernel shows these counters, some times a second, to whoever asks it (corelane ps). `more` adds
 * counters of the application's own; it is called by a thread of the runtime. NULL: no more; when this returns it is
 * not called any more. Any thread. */
CL_API void cl_runtime_publish(struct cl_runtime *rt, cl_counters_fn more, void *arg);
/* Attached, batch class: ask the iokernel to have so much work done by a deadline, or look what became of that. It is
 * measured first, then admitted or refused: look again after a while (CL_PROMISE_...). The counter is one of those that
 * cl_runtime_publish shows. -ENOTSUP: embedded; -ENOTCONN: no iokernel is there at this moment; -errno as it refuses,
 * with one line in err. From another thread than a kthread. */
CL_API int cl_runtime_promise(struct cl_runtime *rt, const struct cl_promise *ask, struct cl_promised *out,
                              char err[256]);
CL_API void cl_runtime_info(struct cl_runtime *rt, struct cl_runtime_info *out);
CL_API struct cl_nic *cl_runtime_nic(struct cl_runtime *rt);
CL_API struct cl_sched *cl_runtime_sched(struct cl_runtime *rt);
// cffi: end

CL_EXTERN_C_END
#endif
