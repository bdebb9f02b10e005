/* The one vtable that every NIC implements, and what its user may rely on.
 *
 * A NIC has n_queues receive and as many transmit queues and one set of packet buffers for all of them. Frames are
 * passed by value in bursts; a frame names its buffer, and whoever holds the frame owns the buffer:
 *
 *   rx_burst  gives frames to the caller.
 *   tx_burst  takes the first `returned` frames from the caller; the rest stay the caller's (the queue is full). One
 *             call is one doorbell. The NIC frees the buffers when the frames have left.
 *   alloc     gives empty buffers (data = start of the payload area, len = 0, room = bytes available from data on).
 *   free      takes frames back unsent.
 *
 * Queue q is used by one thread at a time (its owner, or the holder of the owner's lock when a sibling steals rx). A
 * frame received on one queue may be sent or freed on another. No call blocks, allocates or makes more than one system
 * call a burst, but for `wait`.
 *
 * Sleeping: the thread that polls queue q owns the parker ops->parker(nic, q). After cl_park_begin it must poll its
 * queues once more, then call wait, which returns when a frame has come, when somebody called cl_park_wake on that
 * parker, or at the timeout. Who sleeps in another way must have set the parker's event_fd before. Whoever puts a frame
 * into a queue calls cl_park_wake on that queue's parker, or lets the kernel's poll() do so; a NIC may leave it out for
 * a queue that has neither called wait nor an event_fd.
 *
 * Every frame is counted: what a NIC received is what it delivered plus what it dropped, by reason. */
#ifndef CORELANE_DRIVERS_NIC_H
#define CORELANE_DRIVERS_NIC_H

#include <corelane/runtime/base.h>
#include <corelane/runtime/clock.h>
#include <corelane/runtime/cores.h>
#include <corelane/runtime/park.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_NIC_MAX_QUEUES 64
#define CL_NIC_BURST 64 /* largest burst that a caller may ask for */

/* A frame in flight: an owned buffer and the bytes in it. */
struct cl_frame {
    uint8_t *data; /* first byte of the Ethernet header */
    uint32_t buf;  /* buffer index, meaningful to the NIC alone */
    uint16_t len;  /* bytes of the frame, without FCS */
    uint16_t room; /* alloc: bytes that may be written from data on */
    uint32_t hash; /* RSS hash, 0 if the NIC computes none */
    uint32_t tag;  /* NIC's own: carried unchanged by the user from rx to tx or free */
};

/* Per-queue counters. Writer: the thread that uses the queue; readers: anybody (relaxed). */
struct cl_nic_stats {
    uint64_t rx_frames, rx_bytes;
    uint64_t tx_frames, tx_bytes;
    uint64_t rx_dropped_no_buffer; /* arrived, and the pool was empty */
    uint64_t rx_dropped_ring_full; /* arrived, and the queue was full */
    uint64_t rx_dropped_malformed; /* arrived, and too short, too long, or refused by the NIC */
    uint64_t tx_dropped_malformed; /* given to tx_burst with an impossible length */
    uint64_t tx_dropped_error;     /* the device refused it for another reason */
    uint64_t tx_full;              /* times that tx_burst took fewer frames than offered */
    uint64_t alloc_short;          /* times that alloc gave fewer buffers than asked for */
    uint64_t syscalls;             /* system calls made by rx_burst, tx_burst and wait */
};

/* For who traces: when bursts went on behind their doorbell. Private to the thread that sends on the queue. */
#define CL_NIC_TX_STAMPS 128 /* bursts under way; a power of two */
struct cl_nic_tx_stamps {
    uint32_t asked;                  /* bursts of which that was asked, ever, modulo 2^32. Writer: tx_burst */
    uint32_t told;                   /* and of which it is known. Writer: tx_stamps_read */
    uint8_t wanted;                  /* the next tx_burst is to ask for it, if there is room. Writer: the sender */
    uint8_t stamped;                 /* the last tx_burst has: its stamp goes to rang[(asked - 1) % CL_NIC_TX_STAMPS] */
    uint64_t rang[CL_NIC_TX_STAMPS]; /* writer: the sender, of its own use */
};

/* Of one burst. */
struct cl_nic_tx_stamp {
    uint64_t rang;
    uint64_t taken; /* out of the queue, by who polls it */
    uint64_t given; /* by that one to its NIC, or whatever it is for */
};

struct cl_nic;

struct cl_nic_ops {
    const char *name;
    unsigned (*rx_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
    unsigned (*tx_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
    unsigned (*alloc)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
    void (*free)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
    struct cl_parker *(*parker)(struct cl_nic *nic, unsigned queue);
    int (*wait)(struct cl_nic *nic, unsigned queue, int64_t timeout_ns);
    void (*stats)(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out);
    /* Buffers neither in flight nor held by the user; with all queues idle and all frames returned, all of them. */
    uint32_t (*buffers_free)(struct cl_nic *nic);
    /* A descriptor that poll() reports readable when a frame waits, or -1 if the NIC sleeps on a futex. */
    int (*fd)(struct cl_nic *nic, unsigned queue);
    void (*close)(struct cl_nic *nic);
    /* The stamp of the NIC's clock from which on rx_burst may have frames that no wake-up announces, or wants to be
     * called for what is still to be sent; UINT64_MAX: none is known. NULL for devices that need no such call. By the
     * thread that uses the queue. */
    uint64_t (*next_tsc)(struct cl_nic *nic, unsigned queue);
    /* The caller will send a frame on this queue in some 20 to 50 ns: take what that needs away from the other cores
     * now. Not earlier, a receiver that polls fetches it back. A hint; NULL for devices that have no use for it. */
    void (*prepare)(struct cl_nic *nic, unsigned queue);
    /* The number of the steering by which the frame that rx_burst would give next was put into the queue. False: none
     * waits. For a NIC that changes the queues of flows under way, NULL for others. A burst is of one steering then.
     * Numbers of a queue never decrease, and who sees a frame of a number sees those of all lower ones in all queues:
     * libos/net/order.c, which says how they are compared. By the thread that uses the queue. */
    bool (*steering)(struct cl_nic *nic, unsigned queue, uint32_t *number);
    /* Whether a TCP segment that came may be of a connection of another user of this address: whoever knows nothing of
     * it sends it back as it came, in its own buffer. Else he answers it. NULL for a NIC whose addresses have one
     * user. */
    bool (*may_be_anothers)(const struct cl_frame *frame);
    /* The stamps of a queue, for the NIC's life; and what of them has become known since the last call, n at most, in
     * order. NULL for a NIC of which nobody takes what was sent, or does not say when. By the thread that uses the
     * queue. */
    struct cl_nic_tx_stamps *(*tx_stamps)(struct cl_nic *nic, unsigned queue);
    unsigned (*tx_stamps_read)(struct cl_nic *nic, unsigned queue, struct cl_nic_tx_stamp *out, unsigned n);
    /* The caller works on a burst, has no use for the memory at this moment, and will ask for a burst again: send for
     * the lines of the frame that waits `at` places behind the next one. A hint; NULL for devices that have no use for
     * it. Another thread may receive on the queue meanwhile. */
    void (*ahead)(struct cl_nic *nic, unsigned queue, unsigned at);
};

/* What every NIC begins with. Constant after creation. */
struct cl_nic {
    const struct cl_nic_ops *ops;
    uint32_t n_queues;
    uint32_t n_buffers;
    uint32_t buffer_bytes; /* room of a fresh buffer */
    uint32_t mtu;          /* largest IP packet: a frame is at most mtu + 14 bytes */
    uint8_t mac[6];
    uint8_t gone;     /* set by the NIC when its peer or device has vanished; rx then stays empty. Only a port that
                      * attaches again (port.h) clears it */
    uint8_t tx_joins; /* tx_burst takes several frames of a flow by one system call: worth gathering some */
    uint8_t tx_calls; /* a doorbell is a system call, of any number of frames: worth waiting for what is at hand */
    uint8_t
        rx_stamped; /* behind a received frame (cl_nic_stamp_offset) is when it was first seen, a stamp of the clock */
    uint32_t ipv4;  /* host byte order; 0 if none is given by the device */
    uint32_t ipv4_prefix; /* bits */
    struct cl_cores
        *cores; /* who owns the cores of those that use the queues, kthread k queue k; NULL: nobody manages */
    const struct cl_clock *clock; /* of its stamps, and of whatever is made on it; NULL: the machine's (cl_nic_clock) */
};

/* The same operations as functions, for callers from Python and for tests; C loops call the ops straight. */
CL_API unsigned cl_nic_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
CL_API unsigned cl_nic_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
CL_API unsigned cl_nic_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
CL_API void cl_nic_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
CL_API int cl_nic_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns);
CL_API void cl_nic_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out);
CL_API uint32_t cl_nic_buffers_free(struct cl_nic *nic);
CL_API void cl_nic_close(struct cl_nic *nic);
// cffi: end

/* Another thread's counters: whole values, in no order between them. */
static inline void cl_nic_stats_read(const struct cl_nic_stats *from, struct cl_nic_stats *out)
{
    const uint64_t *words = &from->rx_frames;
    for (unsigned i = 0; i < sizeof *out / sizeof *words; i++)
        (&out->rx_frames)[i] = cl_load_relaxed(&words[i]);
}

/* Where a NIC, and a runtime on it, takes its time from; never NULL. */
static inline const struct cl_clock *cl_nic_clock(const struct cl_nic *nic)
{
    return nic->clock ? nic->clock : cl_clock_default();
}

/* Where that stamp is, 8 bytes from the frame's first byte on, of a frame of len bytes as it came. */
static inline uint32_t cl_nic_stamp_offset(uint32_t len)
{
    return (len + 7) & ~7u;
}

static inline void cl_nic_ahead(struct cl_nic *nic, unsigned queue, unsigned at)
{
    if (nic->ops->ahead)
        nic->ops->ahead(nic, queue, at);
}

static inline void cl_nic_prepare(struct cl_nic *nic, unsigned queue)
{
    if (nic->ops->prepare)
        nic->ops->prepare(nic, queue);
}

_Static_assert(sizeof(struct cl_frame) == 32 || sizeof(struct cl_frame) == 24, "a burst of frames stays in L1");

CL_EXTERN_C_END
#endif
