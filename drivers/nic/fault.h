/* A NIC that wraps another one and is a bad wire: seeded loss, duplication, reordering, delay and corruption, each with
 * its own probability, for what is received and for what is sent.
 *
 * Every frame of a queue and direction takes the same number of draws from that queue's and direction's own generator,
 * so the n-th frame meets the same fate at every run with the same seed, whatever the other frames and rates are.
 *
 *   seen + duplicated = passed + lost + held        (for each queue and direction)
 *
 * A held frame (delayed, or waiting to be overtaken) is in flight: it comes out at a later rx_burst, tx_burst or wait
 * of its queue, in any case after `delay_max_ns` (reordering: 1 ms). With all probabilities of a direction zero that
 * direction is passed through untouched. With faults on the sending side, tx_burst takes frames into a queue of its own
 * and passes them on as the NIC below takes them.
 *
 * With `adjustable` every frame takes the wrapper's own path from the start, and cl_fault_nic_set changes the
 * probabilities at any time, from any thread: what a test needs to cut a running node off and let it back.
 *
 * The wrapper owns the wrapped NIC: closing it closes both. Statistics are the wrapped NIC's, but for frames, bytes and
 * tx_full, which are counted at the wrapper's own boundary.
 * Does not deal with: bandwidth limits, correlated (bursty) loss.
 * Tests: tests/drivers/nic/test_fault.py, c/wrapped_stress.c, and the common suite. */
#ifndef CORELANE_DRIVERS_NIC_FAULT_H
#define CORELANE_DRIVERS_NIC_FAULT_H

#include <corelane/drivers/nic.h>

// cffi: begin
#define CL_FAULT_RX 0
#define CL_FAULT_TX 1

/* Probabilities, 0..1, of one direction. */
struct cl_fault_rates {
    double loss;
    double duplicate; /* a copy follows at once */
    double reorder;   /* held back until `reorder_by` later frames have passed */
    double delay;     /* held back for delay_min_ns..delay_max_ns, uniformly */
    double corrupt;   /* one bit, anywhere in the frame, is flipped */
    uint32_t ipv4;    /* host byte order; not 0: only frames from (received) or to (sent) that address, others pass */
    uint32_t pad;
};

struct cl_fault_config {
    uint64_t seed;
    struct cl_fault_rates rates[2]; /* [CL_FAULT_RX], [CL_FAULT_TX] */
    uint64_t delay_min_ns, delay_max_ns;
    uint32_t reorder_by; /* 1..64; zero means 3 */
    uint32_t adjustable; /* 1: cl_fault_nic_set will be called */
};

/* Writer: the queue's user; readers: anybody. */
struct cl_fault_counts {
    uint64_t seen, passed, lost, duplicated, reordered, delayed, corrupted;
    uint64_t not_duplicated; /* there was no buffer for the copy */
    uint64_t not_held;       /* more frames were to be held than there is room for: passed at once */
    uint64_t held;           /* now */
};

/* Wrap `inner`, which then belongs to the wrapper. -errno with a reason in err[256]; inner is then untouched. */
CL_API int cl_fault_nic_new(struct cl_nic *inner, const struct cl_fault_config *config, struct cl_nic **out, char *err);
/* Other probabilities from now on, of [CL_FAULT_RX] and [CL_FAULT_TX]; frames that are held stay held. From any thread.
 * -EINVAL with a reason in err[256]: not a probability, or the NIC was not made adjustable. */
CL_API int cl_fault_nic_set(struct cl_nic *nic, const struct cl_fault_rates rates[2], char *err);
CL_API void cl_fault_counts(struct cl_nic *nic, unsigned queue, unsigned direction, struct cl_fault_counts *out);
// cffi: end

#endif
