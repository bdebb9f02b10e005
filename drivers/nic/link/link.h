/* What networks do to frames: a rate with a queue in front of it, priorities, ECN marks, loss in bursts, delay with
 * jitter, reordering. A path is one direction of a link:
 *
 *   offered -> class (mark.h) -> queue, tail drop, ECN mark (queue.c) -> the line, at its rate -> loss (loss.h)
 *           -> delay, jitter, reordering (flight.c) -> delivered
 *
 * A path copies what it is offered into memory of its own (store.h). So a long delay at a high rate takes no buffers
 * from a NIC. Every frame is delivered, in the path, or dropped under a reason:
 *
 *   offered = delivered + dropped_tail + dropped_lost + dropped_store + dropped_long + held
 *
 * All is decided by the path's clock, its seed and what is offered when: by a virtual clock equal runs are equal to the
 * byte. What is due is computed from when frames came, not from when somebody looked: a path that is polled late
 * delivers late, and yet holds its rate.
 *
 * Two users: the link NIC (nic.c) puts a path in each direction of another NIC; a wire (wire.c) joins two NICs by two
 * paths. fault.h adds duplicates and flipped bits, if they are wanted.
 * Does not deal with: queues that drop early (RED, CoDel), rates that change, links that several senders share.
 * Tests: tests/drivers/nic/link/. */
#ifndef CORELANE_DRIVERS_NIC_LINK_LINK_H
#define CORELANE_DRIVERS_NIC_LINK_LINK_H

#include <corelane/drivers/nic.h>

// cffi: begin
#define CL_LINK_PRIORITIES 8

/* A path. Zero means the default, given in brackets; all zero passes every frame on at once. */
struct cl_link_config {
    uint64_t seed;
    uint64_t rate_bps; /* bits a second, of frames and their overhead [no limit] */
    uint32_t
        overhead_bytes;   /* that a frame takes on the line beside its own bytes; Ethernet: 24 for FCS, preamble, gap */
    uint32_t priorities;  /* 1..8: queues, of which the highest that holds a frame is served first [1] */
    uint64_t queue_bytes; /* longest queue, for each priority, without the frame on the line [1 MiB] */
    uint64_t ecn_bytes;   /* a frame that finds its queue so long or longer is marked, if it may be [never] */
    /* Gilbert and Elliott's two states: a frame is lost with loss_good or loss_bad, then the state changes from good to
     * bad with probability to_bad, from bad to good with to_good (Hasslinger, Hohlfeld, MMB 2008). */
    double to_bad, to_good, loss_good, loss_bad;
    uint64_t delay_ns,
        jitter_ns;       /* a frame takes delay_ns and up to jitter_ns more, uniformly; at most a minute each */
    double reorder;      /* probability that a frame is held back until ... */
    uint32_t reorder_by; /* ... so many others have passed it, 1..1024 [3]; nothing else changes the order */
    uint32_t frames;     /* room for so many, 2..2^20 [16384] */
};

/* Writer: who uses the path; readers: anybody. */
struct cl_link_counts {
    uint64_t offered, delivered, delivered_bytes;
    uint64_t dropped_tail;                /* the queue was full */
    uint64_t dropped_lost;                /* on the line */
    uint64_t dropped_store;               /* the path had no room: `frames` */
    uint64_t dropped_long;                /* longer than the receiving NIC takes */
    uint64_t marked;                      /* ECN: congestion experienced, by this path */
    uint64_t reordered;                   /* held back */
    uint64_t held;                        /* in the path now */
    uint64_t sent_of[CL_LINK_PRIORITIES]; /* that went over the line, by priority, 0 the lowest */
    uint64_t tail_of[CL_LINK_PRIORITIES]; /* dropped_tail, by priority */
};

#define CL_LINK_RX 0
#define CL_LINK_TX 1

/* Put paths around `inner`, which then belongs to the link NIC: paths[CL_LINK_RX] for what it receives, [CL_LINK_TX]
 * for what is sent. NULL: that direction is passed through. -errno with a reason in err[256]; inner is then
 * untouched. */
CL_API int cl_link_nic_new(struct cl_nic *inner, const struct cl_link_config *const paths[2], struct cl_nic **out,
                           char *err);
/* Of CL_LINK_RX or _TX. */
CL_API void cl_link_nic_counts(struct cl_nic *nic, unsigned direction, struct cl_link_counts *out);

/* A wire between two NICs: what one receives the other sends, in whole frames, whatever their addresses are. Queue q of
 * one goes to queue q modulo the other's queues. It owns both NICs, whose clock has to be the same. It is moved by
 * cl_wire_step, or by a thread of its own (cl_wire_start). */
struct cl_wire;
/* paths[0]: from nics[0] to nics[1]; paths[1]: back. -errno with a reason in err[256]; the NICs are then untouched. */
CL_API int cl_wire_new(struct cl_nic *const nics[2], const struct cl_link_config *const paths[2], struct cl_wire **out,
                       char *err);
/* Move what can be moved. Returns how many frames were taken from or given to a NIC. One thread, and not while the wire
 * has one of its own. */
CL_API unsigned cl_wire_step(struct cl_wire *wire);
/* The stamp from which on a step finds something that no NIC announces; UINT64_MAX: nothing. As cl_wire_step. */
CL_API uint64_t cl_wire_next_tsc(struct cl_wire *wire);
/* Start a thread that moves the wire, and sleeps while there is nothing. -EINVAL: the clock is virtual; -EALREADY: it
 * has one.
 * -errno. */
CL_API int cl_wire_start(struct cl_wire *wire, char *err);
CL_API void cl_wire_counts(const struct cl_wire *wire, unsigned path, struct cl_link_counts *out);
/* End the thread, and close both NICs. */
CL_API void cl_wire_close(struct cl_wire *wire);
// cffi: end

#endif
