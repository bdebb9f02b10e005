/* One direction of a link, in virtual time: datagrams leave one after the other at its rate, and arrive in order, each
 * a fixed time after its last bit has left. Whether the n-th one is lost follows from the seed and n alone: so whoever
 * sends has the same losses. */
#ifndef CORELANE_BENCH_RAFT_LOSS_LINK_H
#define CORELANE_BENCH_RAFT_LOSS_LINK_H

#include <corelane/runtime/base.h>

#define LOSS_DATAGRAM_BYTES 1472      /* an MTU of 1500 less IPv4 and UDP */
#define LOSS_OVERHEAD_BYTES (28 + 38) /* IPv4 and UDP; Ethernet with preamble, frame check sequence and gap */
#define LOSS_FLYING 8192              /* sent and not arrived */
#define LOSS_NIC_QUEUE 32             /* datagrams that wait to leave: a sender that can wait has no more of them */

struct loss_datagram {
    uint64_t at_ns;
    uint32_t bytes;
    uint8_t data[LOSS_DATAGRAM_BYTES];
};

struct loss_link {
    uint64_t seed, ps_per_byte, delay_ns;
    double loss;
    uint64_t number, lost; /* of datagrams sent */
    uint64_t free_ps;      /* when the last one has left */
    uint64_t head, tail;   /* flying: head..tail - 1 */
    struct loss_datagram *flying;
    uint8_t *fates; /* of the first n_fates datagrams, the caller's: 1 lost, 0 not */
    uint64_t n_fates;
};

/* Whether the link loses its n-th datagram; n from 0. */
bool loss_link_loses(uint64_t seed, uint64_t n, double loss);
/* 0 or -ENOMEM. Nothing is lost until the caller sets `loss`. */
int loss_link_init(struct loss_link *link, uint64_t seed, uint64_t bits_per_s, uint64_t delay_ns);
void loss_link_free(struct loss_link *link);
/* From now on with these losses, beginning with the seed's first. */
void loss_link_begin(struct loss_link *link, double loss);
/* `bytes`, or -ENOBUFS: LOSS_FLYING are there. */
int64_t loss_link_send(struct loss_link *link, const uint8_t *data, uint32_t bytes, uint64_t now_ns);
/* When fewer than LOSS_NIC_QUEUE of full length wait to leave. */
uint64_t loss_link_room_ns(const struct loss_link *link);
/* When the next one arrives; UINT64_MAX: none is under way. */
uint64_t loss_link_next_ns(const struct loss_link *link);
/* The next one, good until something is sent. */
const struct loss_datagram *loss_link_take(struct loss_link *link);

#endif
