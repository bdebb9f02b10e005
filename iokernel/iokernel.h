/* The iokernel: polls uplink NICs and the rings of its applications, and switches frames between them.
 *
 * One thread of control owns an iokernel (creates it, registers and removes applications, reads statistics); n_loops
 * threads run the loops. Between the two: a command ring a loop (app.c), and statistics with one writer each.
 *
 * A round of a loop (loop.c):
 *
 *   commands    register or remove an application
 *   uplinks     rx_burst -> steer.c: by destination MAC or IPv4 to an application, RSS hash to one of its kthreads, copy
 *   loops       frames that other loops handed over
 *   apps        tx rings, round robin, weighted by what a frame costs (limits.c) -> switch.c: check, copy, to a local
 *               application, another loop, or an uplink
 *   uplinks     tx_burst of what was collected
 *   wake-ups    of kthreads that parked (wake.c)
 *   idle        spin, then pause, then sleep (idle.c)
 *
 * Invariants. A loop never blocks but in idle.c, never allocates, and reads each word of an arena once (shm.h). An
 * application is homed on one loop, which alone touches its arena, its free list and its counters. Every frame ends in
 * exactly one counter:
 *
 *   application, sending    tx_taken    = tx_local + tx_remote + tx_uplink + tx_flooded + tx_answered + tx_dropped_*
 *   application, receiving  rx_offered  = rx_delivered + rx_dropped_*
 *   loop, uplink in         up_received = up_local + up_remote + up_flooded + up_answered + up_dropped_*
 *   loop, uplink out        out_offered = out_sent + out_dropped_* + out_staged
 *   between loops           sum of loop_out = sum of loop_in, and what is in the rings
 *   buffers                 n_rx        = buffers_free + buffers_lent, at every moment
 *
 * where "local", "remote", "uplink" say where a frame was handed on to: whether it was taken there, that place counts.
 *
 * Start reading at loop.c. Tests: tests/iokernel/. */
#ifndef CORELANE_IOKERNEL_IOKERNEL_H
#define CORELANE_IOKERNEL_IOKERNEL_H

#include "../drivers/nic.h"
#include "../runtime/memory.h"
#include "../runtime/shm.h"

// cffi: begin
#define CL_IO_SPIN 0     /* polls for ever */
#define CL_IO_ADAPTIVE 1 /* polls for spin_us after the last work, more slowly for pause_us, then sleeps */
#define CL_IO_BLOCK 2    /* sleeps as soon as a round found nothing */
#define CL_IO_MAX_APPS 256
#define CL_IO_NO_TIME 0xffffffff
#define CL_IO_MAX_UPLINKS 4

struct cl_io;

/* Zero means the default, given in brackets. */
struct cl_io_config {
    uint32_t n_loops;  /* 1..CL_SHM_MAX_LOOPS [1] */
    uint32_t mode;     /* CL_IO_... */
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
};

/* What the control server needs to answer an application. The descriptors are the iokernel's. */
struct cl_io_app_grant {
    uint32_t app; /* id, counts up from 1 */
    int arena_fd, doorbell_fd;
    struct cl_arena_layout layout;
};

/* Writer: the home loop. Readers: anybody (relaxed). */
struct cl_io_app_stats {
    uint64_t tx_taken, tx_bytes; /* SEND descriptors read, and the bytes of those that were passed on */
    uint64_t tx_local, tx_remote, tx_uplink, tx_flooded, tx_answered;
    uint64_t tx_dropped_descriptor;  /* no such buffer, not its own, or a length that cannot be */
    uint64_t tx_dropped_malformed;   /* too short for what it says it is */
    uint64_t tx_dropped_spoofed;     /* another's MAC or IPv4 address as source */
    uint64_t tx_dropped_no_route;    /* no application of that address, and no uplink */
    uint64_t tx_dropped_uplink_full; /* its share of the uplink's queue was used up */
    uint64_t tx_dropped_loop_full;   /* the ring to another loop was full */
    uint64_t tx_held_back;           /* rounds in which a limit left frames in the rings */
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
    uint64_t out_offered, out_sent, out_bytes, out_staged;
    uint64_t out_dropped_no_buffer, out_dropped_full, out_dropped_too_long, out_dropped_no_uplink;
    uint64_t loop_in, loop_in_gone;           /* from other loops: all, and those whose application had left */
    uint64_t loop_out, loop_out_dropped_full; /* to other loops: handed over, and lost since the ring there was full */
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
/* Stop, remove all applications, free everything. */
CL_API void cl_io_delete(struct cl_io *io);

/* Register an application. -EEXIST: MAC or address in use; -ENOSPC: too many; -EINVAL; -ENOMEM. -EBUSY, -ETIMEDOUT: a loop
 * did not answer; if grant->app is then not 0, that application cannot be used, but must be removed. */
CL_API int cl_io_app_add(struct cl_io *io, const struct cl_io_app_config *config, struct cl_io_app_grant *grant,
                         char *err);
/* Remove it: its rings are read no more, its memory goes when it, too, lets go. final may be NULL. -EBUSY, -ETIMEDOUT: a
 * loop did not answer; call again later, which does not wait. Its address is taken until then. */
CL_API int cl_io_app_remove(struct cl_io *io, uint32_t app, struct cl_io_app_final *final, char *err);
CL_API int cl_io_app_stats(const struct cl_io *io, uint32_t app, struct cl_io_app_stats *out);
CL_API int cl_io_loop_stats(const struct cl_io *io, uint32_t loop, struct cl_io_loop_stats *out);
/* The state segment's descriptor and size, for ACCEPT. */
CL_API int cl_io_state_fd(const struct cl_io *io);
CL_API uint64_t cl_io_state_bytes(const struct cl_io *io);
CL_API uint64_t cl_io_generation(const struct cl_io *io);
CL_API uint32_t cl_io_mtu(const struct cl_io *io);

/* One round of a loop that is not running, at stamp `now`: for tests with a clock of their own. Returns whether it did
 * something. */
CL_API bool cl_io_step(struct cl_io *io, uint32_t loop, uint64_t now);
// cffi: end

_Static_assert(CL_IO_MAX_APPS == CL_SHM_MAX_APPS, "what the configuration allows");

#endif
