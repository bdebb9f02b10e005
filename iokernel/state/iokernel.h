/* The iokernel: polls uplink NICs and the rings of its applications, and switches frames between them.
 *
 * One thread of control owns an iokernel (creates it, registers and removes applications, reads statistics); n_loops
 * threads run the loops. Between the two: a command ring a loop (app.c), and statistics with one writer each.
 *
 * A round of a loop (round.c):
 *
 *   commands    register or remove an application
 *   uplinks     rx_burst -> steer.c: by destination MAC or IPv4 to an application, RSS hash to one of its kthreads,
 *   copy
 *   loops       frames that other loops handed over
 *   apps        tx rings, round robin, weighted by what a frame costs (limits.c) -> switch.c: check, copy, to a local
 *               application, another loop, or an uplink
 *   uplinks     tx_burst of what was collected; it waits for more for 10 us at most where that spares system calls
 *   (nic.h, tx_joins)
 *   wake-ups    of kthreads that parked (wake.c)
 *   idle        spin, then pause, yielding the CPU now and then, then sleep (idle.c)
 *
 * Invariants. A loop never blocks but in idle.c, never allocates, and reads each word of an arena once (shm.h). An
 * application is homed on one loop, which alone touches its arena, its free list and its counters. Every frame ends in
 * exactly one counter:
 *
 *   application, sending    tx_taken    = tx_local + tx_remote + tx_uplink + tx_flooded + tx_answered + tx_handed_on +
 *                                         tx_dropped_*
 *   application, receiving  rx_offered  = rx_delivered + rx_dropped_*
 *   loop, uplink in         up_received = up_local + up_remote + up_flooded + up_answered + up_dropped_*
 *   loop, uplink out        out_offered = out_sent + out_dropped_* + out_staged
 *   between loops           sum of loop_out = sum of loop_in, and what is in the rings
 *   buffers                 n_rx        = buffers_free + buffers_lent, at every moment
 *
 * where "local", "remote", "uplink" say where a frame was handed on to: whether it was taken there, that place counts.
 *
 * Start reading at loop.c. Tests: tests/iokernel/. */
#ifndef CORELANE_IOKERNEL_STATE_IOKERNEL_H
#define CORELANE_IOKERNEL_STATE_IOKERNEL_H

#include <corelane/drivers/nic.h>
#include "../../runtime/hist.h"
#include "../../runtime/memory.h"
#include "../../runtime/shm.h"
#include "../policy/host.h"

// cffi: begin
#define CL_IO_SPIN 0     /* polls for ever */
#define CL_IO_ADAPTIVE 1 /* polls and yields for spin_us after the last work, more slowly for pause_us, then sleeps */
#define CL_IO_BLOCK 2    /* sleeps as soon as a round found nothing */
#define CL_IO_MAX_APPS 256
#define CL_IO_NO_TIME 0xffffffff
#define CL_IO_NO_LIMIT 0xffffffff
#define CL_IO_MAX_UPLINKS 4
#define CL_IO_MAX_MEMBERS 16 /* of a group */

struct cl_io;

/* Zero means the default, given in brackets. */
struct cl_io_config {
    uint32_t n_loops;  /* 1..CL_SHM_MAX_LOOPS [1] */
    uint32_t poll;     /* what a loop without work does: CL_IO_... */
    uint32_t spin_us;  /* [50]; CL_IO_NO_TIME: not at all */
    uint32_t pause_us; /* [200]; CL_IO_NO_TIME: not at all */
    uint32_t mtu;      /* [1500]; no more than every uplink's */
    uint32_t ipv4;     /* host byte order: the subnet of the applications, for ACCEPT */
    uint32_t ipv4_prefix;
    uint32_t memory_flags;       /* of arenas: CL_MEMORY_HUGE, CL_MEMORY_THP, CL_MEMORY_PREFAULT. Huge pages only for
                            * applications that are trusted: one could give pages back that the loop then misses */
    uint64_t rss_key;            /* [CL_RSS_KEY] */
    uint64_t generation;         /* [random] */
    uint64_t tsc_hz;             /* of the stamps given to cl_io_step [the process's clock] */
    uint32_t command_timeout_ms; /* how long a loop may take to admit or forget an application [5000] */
    int32_t cpus[16];            /* where loop l runs; -1: anywhere */
    /* Managed cores (docs/cores.md). Worker CPU i is managed by loop i % n_loops, for the applications homed there. */
    uint32_t manage_cores; /* 1: kthreads run only while they own one of the worker CPUs */
    uint32_t n_worker_cpus;
    int32_t worker_cpus[256];
    uint32_t interval_us;   /* from one decision to the next [5] */
    uint32_t cede_us;       /* how long an owner may take to cede until it is interrupted [10] */
    uint32_t interrupt_us;  /* and from then on until it is evicted [50] */
    uint32_t start_us;      /* how long a new owner may take to begin until its core is taken back [5000] */
    uint32_t yield_wait_us; /* how long after a move a core counts as changing hands often [50000] */
    uint32_t blocked_us;    /* how long an owner may sleep in the kernel, or be stopped, beside one that waits [1000] */
    /* Frames for everybody (broadcast, multicast) that each uplink may bring a second, and at once after a pause; all
     * loops together. */
    uint32_t floods_per_s; /* [250] of an uplink and of an application; CL_IO_NO_LIMIT: as many as come */
    uint32_t floods_burst; /* [64] */
    uint64_t flow_key;     /* of the hashes that choose a member of a group [random] */
    uint32_t scan_only;    /* 1: calls for help are found when the interval is over, whoever rings */
    uint32_t pad;
};

/* Limits of what an application may send. 0: no limit. */
struct cl_io_limits {
    uint64_t frames_per_s, bytes_per_s;
    uint64_t burst_frames, burst_bytes; /* what it may send at once after a pause [64 frames, 64 KiB] */
};

struct cl_io_app_config {
    char name[32];
    struct cl_arena_layout layout; /* its first six fields */
    uint32_t loop;
    uint32_t ipv4; /* host byte order */
    uint8_t mac[6];
    uint8_t pad[2];
    struct cl_io_limits limits;
    /* Where cores are managed; the meaning is that of struct cl_policy_app and cl_control_hello. */
    uint32_t kind;           /* CL_POLICY_LATENCY, CL_POLICY_BATCH */
    uint32_t guaranteed;     /* cores */
    uint32_t maximum;        /* cores; 0: as many as kthreads */
    uint32_t weight;         /* 0: 1 */
    uint32_t deadline_us;    /* 0: nothing asked */
    uint32_t quantum_us;     /* 0: never */
    uint32_t quantum_signal; /* 1: by the signal, too */

    uint32_t any_ethertype; /* 1: it may send frames that are neither IPv4 nor ARP */
    /* How many applications may have these addresses at the same time, as a group (iokernel/switch/members.h) [1: it is
     * none]. All are of one loop. */
    uint32_t members;
    uint32_t place; /* in its group that it would like to have, + 1 [any] */
    uint32_t pad2;
};

/* What the control server needs to answer an application. The descriptors are the iokernel's. */
struct cl_io_app_grant {
    uint32_t app; /* id, counts up from 1 */
    int arena_fd, doorbell_fd;
    struct cl_arena_layout layout;
    uint32_t slot;  /* of kthread 0 in the state segment; kthread k has slot + k. Where cores are managed */
    uint32_t place; /* in its group; 0, if it is of none */
};

/* A copy. Numbers and the name are whatever the application has written; each number of a kthread's is at most
 * CL_IO_SERVICE_MOST, so that no sum of them overflows. */
#define CL_IO_SERVICE_MOST 0xffffffffffff
struct cl_io_service {
    char name[32]; /* zero-terminated */
    uint64_t requests, sum_ns;
    uint64_t counts[CL_LATENCY_BUCKETS];
};

/* Writer: the home loop. Readers: anybody (relaxed). */
struct cl_io_app_stats {
    uint64_t tx_taken, tx_bytes; /* SEND descriptors read, and the bytes of those that were passed on */
    uint64_t tx_local, tx_remote, tx_uplink, tx_flooded, tx_answered;
    uint64_t tx_handed_on;           /* sent back as they came: their flows are of other members of its group */
    uint64_t tx_dropped_descriptor;  /* no such buffer, not its own, or a length that cannot be */
    uint64_t tx_dropped_malformed;   /* is not what its type says */
    uint64_t tx_dropped_ethertype;   /* neither IPv4 nor ARP, and it may not send others */
    uint64_t tx_dropped_spoofed;     /* another's MAC or IPv4 address as source */
    uint64_t tx_dropped_flood;       /* for everybody, above what an application may send a second */
    uint64_t tx_dropped_no_route;    /* no application of that address, and no uplink */
    uint64_t tx_dropped_uplink_full; /* its share of the uplink's queue was used up */
    uint64_t tx_dropped_loop_full;   /* the ring to another loop was full */
    uint64_t tx_throttled;           /* rounds in which a limit left frames in the rings */
    uint64_t rx_offered, rx_delivered, rx_bytes;
    uint64_t rx_dropped_ring_full; /* the kthread does not keep up, or is stopped */
    uint64_t rx_dropped_no_buffer; /* it holds all its buffers */
    uint64_t rx_dropped_too_long;
    uint64_t lies;  /* descriptors and ring words that no honest application writes */
    uint64_t frees; /* buffers given back */
    uint64_t wakes, wakes_delayed;
    uint64_t buffers_free, buffers_lent;
    uint64_t backlogged; /* rounds that left frames in its rings because its share was used up */
};

/* Writer: the loop. Readers: anybody (relaxed). */
struct cl_io_loop_stats {
    uint64_t rounds, busy_rounds, busy_ticks; /* ticks of rounds that did something */
    uint64_t sleeps, syscalls, commands;
    uint64_t up_received, up_bytes;
    uint64_t up_local, up_remote, up_flooded, up_answered;
    uint64_t up_dropped_not_ours, up_dropped_malformed, up_dropped_loop_full;
    uint64_t up_dropped_spoofed; /* a local application's MAC or IPv4 address as source, also in ARP; or a tag */
    uint64_t up_dropped_flood;   /* for everybody, above what the uplink may bring a second */
    uint64_t out_offered, out_sent, out_bytes, out_staged;
    uint64_t out_dropped_no_buffer, out_dropped_full, out_dropped_too_long, out_dropped_no_uplink;
    uint64_t loop_in, loop_in_gone;           /* from other loops: all, and those whose application had left */
    uint64_t loop_out, loop_out_dropped_full; /* to other loops: handed over, and lost since the ring there was full */
};

/* The cores of one application. Writer: the home loop. Readers: anybody (relaxed). */
struct cl_io_app_cores {
    uint64_t core_ns;           /* core time that it held with work to do */
    uint64_t checks, congested; /* decisions that read it, and those that found something waiting in it */
    uint64_t moves_in, moves_out;
    uint64_t wakes;       /* of kthreads that had parked and kept their core */
    uint64_t asked;       /* as old owner: preemption requests, by the flag in its arena */
    uint64_t interrupted; /* by signal, since it did not answer */
    uint64_t evicted;     /* by demotion, since it did not answer that either */
    uint64_t starved;     /* not evicted when it was time, since it had not had the CPU for as long as that */
    uint64_t blocked;     /* as owner: found asleep in the kernel, or stopped, beside one that waited */
    uint64_t overruns;    /* demoted since a kthread used a core that was another's, whatever it said */
    uint64_t not_started; /* as new owner: did not begin in time, so that the core was taken back */
    uint64_t roused;      /* as new owner: sent the signal, since no wake had reached it in time */
    uint64_t late;    /* as new owner: times that it had not begun, but was in line for the CPU, and was waited for */
    uint64_t delayed; /* decisions in which it got no core, since it had used up its system calls */
    uint64_t quantum; /* uthreads, or requests of one, told that they had run for long enough */
    uint64_t quantum_signals; /* signals sent for that */
    uint64_t lies;            /* positions that no honest application writes */
    uint64_t rings;           /* calls for help that were decided about at once, as it rang */
    uint64_t rings_delayed;   /* rang too soon after others: heard later, or by the next decision */
    uint64_t promised_ns;     /* core time that it was promised (cl_io_app_promise) while it had work */
    uint64_t cores;           /* held now */
    uint64_t waiting;         /* things that waited in it at the last decision */
    uint64_t packet_age_ns, thread_age_ns, timer_age_ns,
        storage_age_ns; /* of the oldest of each, then; 0: none waited */
};

/* The steps by which a kthread got its core: the last one that was taken. */
#define CL_IO_STEP_IDLE 0      /* nobody had it */
#define CL_IO_STEP_WAKE 1      /* it had kept it while parked */
#define CL_IO_STEP_PARKED 2    /* its owner had parked, was blocked in the kernel, or had not begun */
#define CL_IO_STEP_REQUEST 3   /* its owner ceded at the preemption request */
#define CL_IO_STEP_INTERRUPT 4 /* when it got the signal */
#define CL_IO_STEP_EVICT 5     /* it did not, and was demoted */
#define CL_IO_STEPS 6

/* The allocator of one loop. Writer: the loop. Readers: anybody (relaxed). */
struct cl_io_cores_stats {
    uint64_t decisions, decisions_timed, decision_ns; /* all; those timed, and the sum of their times */
    uint64_t urgent;                                  /* of the decisions: before the interval was over */
    /* Spells of more than an interval in which a core was idle beside one that waited, and the loop decided and left it
     * so. Sleeps of the loop in which a core was so, since one had said that it waits and nobody had woken the loop for
     * that. Decisions more than an interval late: the loop was kept from running, or by a call of its own. And of
     * these, those that found a core idle beside one that waited. */
    uint64_t violations, violations_asleep, late_decisions, violations_late;
    uint64_t crossings, crossing_ns; /* moves between batch and latency applications, and core time that they took */
    uint64_t moves, wakes, asked, interrupted, evicted, not_started;
    uint64_t died;   /* owners whose thread was found to have ended, while their process lived */
    uint64_t roused; /* new owners that were sent the signal, since no wake had reached them in time */
    uint64_t late;   /* times that a new owner had not begun, but was in line for the CPU, and was waited for */
    /* Of those evicted: the new owner ran already, or there was none; and the new owner did not begin either. The
     * others are the moves that ended by that step, or have not ended. */
    uint64_t evicted_late, evicted_void;
    uint64_t starved;        /* not evicted when it was time, since it had not had the CPU for as long as that */
    uint64_t dying;          /* threads of killed applications that were demoted since they were in a new owner's way */
    uint64_t blocked;        /* owners found asleep in the kernel, or stopped, beside one that waited */
    uint64_t overruns;       /* demoted since they used a core that was another's, and did not say so */
    uint64_t overrun_unread; /* reads of the CPU time of a kthread that failed: its use of cores is not watched */
    uint64_t blocked_unread; /* reads of the CPU time or state of an owner that failed: asleep, it would not be found */
    uint64_t affinities;     /* kthreads moved to another CPU first */
    uint64_t affinities_failed;  /* sched_setaffinity refused */
    uint64_t affinities_changed; /* kthreads that somebody else had bound elsewhere */
    uint64_t evictions_failed;   /* sched_setscheduler refused: EPERM as a rule */
    uint64_t quantum_signals;    /* sent since a quantum was over */
    uint64_t interrupts_failed;  /* tgkill refused */
    uint64_t interrupts_limited; /* not sent: the application's system calls are limited, and it had made as many */
    uint64_t syscalls;           /* made to move cores, failed ones and futex wakes included */
    uint64_t steers;             /* times that an application's flows were spread anew */
};

/* One worker CPU. Writer: its loop. Readers: anybody (relaxed). */
struct cl_io_core_stats {
    uint32_t cpu, loop;
    uint32_t owner;   /* slot + 1; 0: nobody */
    uint32_t app;     /* the owner's application; 0: nobody */
    uint32_t kthread; /* the owner's number in it */
    uint32_t busy;    /* 1: the owner has work, or is on its way */
    uint64_t moves, busy_ns;
};

#define CL_IO_MOVES_LOG 65536 /* entries that a loop's log of moves has room for */

/* Why an entry was written. */
#define CL_IO_LOG_WANTED 1       /* owner changed: an application should have more cores */
#define CL_IO_LOG_DONE 2         /* the new owner runs; step says how it came to that */
#define CL_IO_LOG_STALLED 3      /* owner changed: the new owner did not begin, nobody has the core */
#define CL_IO_LOG_DIED 4         /* owner changed: its thread does not exist any more */
#define CL_IO_LOG_LEFT 5         /* owner changed: its application was removed */
#define CL_IO_LOG_WOKEN 6        /* a parked owner was given work */
#define CL_IO_LOG_EVICTED 7      /* the owner before did not cede, and was demoted */
#define CL_IO_LOG_CEDED 8        /* the owner before ceded, after the new one was seen to run, or there was none */
#define CL_IO_LOG_OVERRUN 9      /* a kthread that had this core last used it without owning one, and was demoted */
#define CL_IO_LOG_BLOCKED 10     /* the owner sleeps in the kernel, or was stopped, while somebody waits for a core */
#define CL_IO_LOG_INTERRUPTED 11 /* the owner before did not cede at the request, and was sent the signal */

/* One entry of a loop's log of moves. From WOKEN on, and in DONE, from and to are the owner. What an entry tells of
 * happened before tsc + after; a new owner was decided on at tsc or later. */
struct cl_io_move {
    uint64_t tsc;      /* of the round */
    uint32_t core;     /* CPU id */
    uint16_t from, to; /* slot + 1; 0: nobody */
    uint8_t what, step;
    uint8_t leaving; /* 1: the owner before may still run here, also in DONE: its steps are not over */
    uint8_t pad;
    uint32_t after; /* ticks */
    /* Low words of cl_tsc() at the steps of the core's last hand-over, those up to here: the loop has decided; its
     * words are stored and seen by all. And in DONE, as the two applications say (cl_signals): the old owner has seen
     * it; it yields; the new owner's first instruction. 0: unknown. */
    uint32_t decided, stored, lost, left, back;
    uint16_t about; /* EVICTED, CEDED, INTERRUPTED: slot + 1 of the owner before; OVERRUN: of the offender; else 0 */
    uint16_t pad2;
};

/* What an application that was removed had, for the record and for the leak check. */
struct cl_io_app_final {
    struct cl_io_app_stats stats;
    uint32_t buffers_lost; /* receive buffers neither free nor lent: 0, or the iokernel has a fault */
};

/* New iokernel, not running. -errno with a reason in err[256]. */
CL_API int cl_io_new(const struct cl_io_config *config, struct cl_io **out, char *err);
/* Give it an uplink, before start. The NIC stays the caller's, and open until cl_io_delete. share_mac: applications
 * appear outside under the NIC's own MAC address (for networks that admit one address a port); frames that come in are
 * then steered by IPv4 address. */
CL_API int cl_io_add_uplink(struct cl_io *io, struct cl_nic *nic, bool share_mac, char *err);
CL_API int cl_io_start(struct cl_io *io, char *err);
/* Stop the loops; idempotent. */
CL_API void cl_io_stop(struct cl_io *io);
/* Stop the loops for good, and give the kthreads whose cores were managed back the scheduling class, nice value and
 * CPUs that they had when they were named. Before their applications learn of the end: they do the same then.
 * Idempotent. */
CL_API void cl_io_give_back(struct cl_io *io);
/* Give back, remove all applications, free everything. */
CL_API void cl_io_delete(struct cl_io *io);

/* Register an application. -EEXIST: MAC or address in use; -ENOSPC: too many; -EINVAL; -ENOMEM. -EBUSY, -ETIMEDOUT: a
 * loop did not answer; if grant->app is then not 0, that application cannot be used, but must be removed. */
CL_API int cl_io_app_add(struct cl_io *io, const struct cl_io_app_config *config, struct cl_io_app_grant *grant,
                         char *err);
/* Remove it: its rings are read no more, its memory goes when it, too, lets go. final may be NULL. -EBUSY, -ETIMEDOUT:
 * a loop did not answer; call again later, which does not wait. Its address is taken until then. */
CL_API int cl_io_app_remove(struct cl_io *io, uint32_t app, struct cl_io_app_final *final, char *err);
/* A member of a group is ready, or drains (CL_MEMBER_...). When this returns 0, frames that come find it so. Of one
 * that is of no group: nothing. -ENOENT, -EINVAL; -EBUSY, -ETIMEDOUT: its loop did not answer, it is so when that
 * does. */
CL_API int cl_io_app_state(struct cl_io *io, uint32_t app, uint32_t state, char *err);
/* Tell an application that it is to drain, by a word in its arena. -ENOENT. */
CL_API int cl_io_app_ask_drain(struct cl_io *io, uint32_t app);
/* The same: trace your requests in that way (cl_arena_preempt.trace, its lowest byte). */
CL_API int cl_io_app_ask_trace(struct cl_io *io, uint32_t app, uint32_t how);
/* Tell an application how many bytes it may hold of memory that it can give back; 0: as many as it likes. -ENOENT. */
CL_API int cl_io_app_memory(struct cl_io *io, uint32_t app, uint64_t bytes);
CL_API int cl_io_app_stats(const struct cl_io *io, uint32_t app, struct cl_io_app_stats *out);
/* What the application says of itself (shm.h). Numbers and names are whatever it has written. */
CL_API int cl_io_app_counters(const struct cl_io *io, uint32_t app, struct cl_arena_counters *out);
/* What it says of its service number `service`, over all kthreads (runtime/latency.h). -ENOENT: it has no such one. */
CL_API int cl_io_app_service(const struct cl_io *io, uint32_t app, uint32_t service, struct cl_io_service *out);
CL_API int cl_io_loop_stats(const struct cl_io *io, uint32_t loop, struct cl_io_loop_stats *out);
/* The state segment's descriptor and size, for ACCEPT. */
CL_API int cl_io_state_fd(const struct cl_io *io);
CL_API uint64_t cl_io_state_bytes(const struct cl_io *io);
CL_API uint64_t cl_io_generation(const struct cl_io *io);
CL_API uint32_t cl_io_mtu(const struct cl_io *io);

/* Managed cores: who the kthreads of an application are. From here on they are given cores; without it none is. The
 * caller has made sure that the threads are the application's own. signal: makes a kthread cede; 0: it has no handler,
 * so that step is left out. -EINVAL: cores are not managed, n is not its number of kthreads, told before; -EBUSY,
 * -ETIMEDOUT as cl_io_app_add. */
CL_API int cl_io_app_threads(struct cl_io *io, uint32_t app, int32_t pid, const int32_t *tids, uint32_t n,
                             int32_t signal, char *err);
/* Promise an application a share of the cores of its loop, in millionths of a core, from now on; 0: none. It has that
 * core time whenever it has work, whatever else wants it and whatever policy decides, as far as the cores are
 * guaranteed to nobody (iokernel/cores/promise.c). The caller sees to it that no more is promised than there is.
 * -ENOENT; -EINVAL: more than its maximum, or cores are not managed. The loops do not wait. */
CL_API int cl_io_app_promise(struct cl_io *io, uint32_t app, uint32_t share_ppm);
/* Have an application go last from now on, or no longer: it has only what nobody else can use, and a turn now and then
 * (iokernel/cores/denied.c). -ENOENT; -EINVAL: cores are not managed. The loops do not wait. */
CL_API int cl_io_app_deny(struct cl_io *io, uint32_t app, bool denied);
/* Have another policy decide, on all loops, from their next decision on (iokernel/policy/host.h). -errno with a reason.
 * Returns a ticket (> 0) for cl_io_policy_taken: then no older function is called any more. */
CL_API int64_t cl_io_policy_set(struct cl_io *io, const struct cl_policy_setting *setting, char *err);
CL_API bool cl_io_policy_taken(struct cl_io *io, int64_t ticket);
/* A loop's host, for what iokernel/policy/host.h tells of it. NULL: no such loop, or cores are not managed. */
CL_API struct cl_policy_host *cl_io_policy_host(struct cl_io *io, uint32_t loop);

CL_API int cl_io_app_cores(const struct cl_io *io, uint32_t app, struct cl_io_app_cores *out);
CL_API int cl_io_cores_stats(const struct cl_io *io, uint32_t loop, struct cl_io_cores_stats *out);
/* Worker CPU `index` of the configuration. */
CL_API int cl_io_core_stats(const struct cl_io *io, uint32_t index, struct cl_io_core_stats *out);
/* Histograms, ns; to be copied (hist.h) as they are being written. Those of an application live until it is removed,
 * those of a loop as long as the iokernel. NULL: there is none. */
/* From the moment that the oldest thing began to wait, as far as the loop knows it, to the decision to give a core. Of
 * those of latency class: what waits in batch work waits for its turn. */
CL_API const struct cl_hist *cl_io_detection(const struct cl_io *io, uint32_t app);
/* From the decision to the moment that the loop saw the new owner run, by application and by step. */
CL_API const struct cl_hist *cl_io_app_actuation(const struct cl_io *io, uint32_t app);
CL_API const struct cl_hist *cl_io_actuation(const struct cl_io *io, uint32_t loop, uint32_t step);
/* Time of a decision (one in sixteen is timed). */
CL_API const struct cl_hist *cl_io_decision_time(const struct cl_io *io, uint32_t loop);
/* Time of reading the lines that a decision over the same applications reads, before another one in sixteen: what of
 * its time is that of the caches. */
CL_API const struct cl_hist *cl_io_reading_time(const struct cl_io *io, uint32_t loop);
/* Time between two decisions, of the late ones (late_decisions): how long nobody decided. */
CL_API const struct cl_hist *cl_io_late_decision(const struct cl_io *io, uint32_t loop);
/* Entries of a loop's log from number *next on, at most n. Returns how many, and moves *next behind the last; *lost
 * grows by those that had been overwritten, which came before the first of them. The loop does not wait. */
CL_API uint32_t cl_io_moves(struct cl_io *io, uint32_t loop, uint64_t *next, struct cl_io_move *out, uint32_t n,
                            uint64_t *lost);
/* The number that the next entry will have. */
CL_API uint64_t cl_io_moves_end(const struct cl_io *io, uint32_t loop);

/* One round of a loop that is not running, at stamp `now`: for tests with a clock of their own. Returns whether it did
 * something. */
CL_API bool cl_io_step(struct cl_io *io, uint32_t loop, uint64_t now);
// cffi: end

_Static_assert(CL_IO_MAX_APPS == CL_SHM_MAX_APPS, "what the configuration allows");
_Static_assert(CL_IO_MAX_MEMBERS == CL_SHM_MAX_MEMBERS, "what the configuration allows");

#endif
