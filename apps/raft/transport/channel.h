/* Frames between two nodes over datagrams that may be lost, doubled, overtaken and late: what is sent as lasting
 * arrives at most once, and is sent again until it is acknowledged; in no order. It has no clock, no socket and no
 * thread: time is passed in, datagrams go out by a callback. One thread at a time.
 *
 * A datagram holds a frame or a piece of one, behind 64 bytes, little endian:
 *
 *     0  u32 magic "CLRT"   4  u32 CRC32C of the header from 8 on   8  u8 version 1, u8 flags, u16 kept   12  u32 id of
 *     the sender
 *    16  u64 sender's incarnation   24  u64 receiver's, as far as the sender knows; 0: it does not
 *    32  u64 number, or, where it has none (flag 1 not set), that of the next one
 *    40  u64 all up to this number were received   48  u64 bit i: so was this number + 2 + i
 *    56  u32 bytes of the frame (0: none, an acknowledgement)   60  u16 number of the piece   62  u16 bytes of every
 *    piece but the last
 *
 * Behind the header of an acknowledgement are more words of bits, as many as tell all that has come.
 *
 * What is behind the header has UDP's checksum, and its own CRC in the frame: one that UDP's does not see is refused
 * there, as if lost.
 *
 * Incarnations. A process draws one at its start. What is numbered is taken only if it names the present ones of both
 * sides, so what was sent to or by a former incarnation is dropped (`stale`). Another incarnation than the known one is
 * sent a hello (flag 2: 40 is a random word to be given back and 48 one given back). It is believed when it gives the
 * word back: only a running one can. Both sides' numbers begin again at 1 then, and what was sent to the former one and
 * not acknowledged is dropped (`reset`), for it may have been done or not. Before the first hello was answered, what is
 * to last waits.
 *
 * Sending. Each numbered datagram is kept, in RAFT_CHANNEL_WINDOW buffers that each peer has; with none left
 * raft_channel_send refuses (`window_full`), and the caller knows. Every sending to a peer has a place in one order
 * (RFC 9002, section 6.1; RFC 8985). One that is kept goes again, each time, when a later sending was acknowledged. If
 * within a second something came that had been taken for overtaken, the network reorders: then it must have gone once
 * and three places before, or so long ago that it would be acknowledged, had it come. When nothing was sent or
 * acknowledged for two round trips, half a millisecond at least, the oldest goes again for an acknowledgement
 * (`probes`), and after twice the time again. If that is of no use, all goes again that was not acknowledged within a
 * timeout, which follows the round trips (RFC 6298 with Karn's rule; 5 ms at least, doubled up to 200 ms). After
 * RAFT_CHANNEL_SILENT timeouts in a row, about a second, all that is kept is given up (`given_up`); `kept` tells the
 * receiver which numbers are not to be waited for.
 *
 * Receiving. Every datagram carries an acknowledgement; one goes by itself 0.25 ms after a numbered datagram when
 * nothing else did, at the next poll if something is missing, came twice, or RAFT_CHANNEL_ACK_EVERY have come. Frames
 * of several datagrams are put together from pieces (pieces.h), all that a window can hold: each piece in the window is
 * taken, whatever was lost before it (`no_room` counts those for which there is no memory: they are not acknowledged).
 *
 * Frames that are not lasting have no number and no copy: they may be lost, or come twice. Longer ones than a datagram
 * always last. Does not deal with: order, congestion (a window, and the doubled timeout, are all), authentication. */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_CHANNEL_H
#define CORELANE_APPS_RAFT_TRANSPORT_CHANNEL_H

#include "numbers.h"
#include "pieces.h"
#include "rtt.h"
#include "../core/raft.h"

#define RAFT_CHANNEL_HEADER 64
#define RAFT_CHANNEL_PARTIAL                                                                                           \
    (RAFT_CHANNEL_WINDOW / 2 + 1) /* frames of two pieces and more in a window, and the end of one */
#define RAFT_CHANNEL_ACK_EVERY 16
#define RAFT_CHANNEL_SILENT 10

/* Of one peer. datagrams_in = accepted + unnumbered + control + duplicates + stale + no_room + malformed. */
struct raft_channel_counters {
    uint64_t datagrams_out, datagrams_in, frames_out, frames_in;
    uint64_t accepted, unnumbered, control; /* taken; control: acknowledgements and hellos */
    uint64_t duplicates;                    /* numbered, and received before */
    uint64_t stale;                         /* numbered, of or for a former incarnation */
    uint64_t no_room;                       /* pieces that there is no memory for */
    uint64_t malformed;
    uint64_t retransmitted, timeouts, probes;
    uint64_t window_full; /* frames refused */
    uint64_t given_up, reset;
    uint64_t not_sent; /* datagrams that the NIC had no room for */
};

struct raft_sent {
    uint64_t at_ns; /* last */
    uint32_t place; /* last, in the order of all sendings to the peer */
    uint16_t bytes, buffer;
    uint8_t kept;
    uint8_t times;
    bool overtaken; /* it went again for that, last */
};

struct raft_channel_peer {
    uint32_t id, index; /* index: for the callback */
    uint64_t theirs;    /* incarnation; 0: not known */
    uint64_t word;      /* of a hello that was not answered; 0: none */
    uint64_t asked_ns;

    uint64_t first, next; /* numbers: the oldest that is not acknowledged, and the next one */
    struct raft_rtt rtt;
    uint32_t silent, probed; /* timeouts, and probes, since something was acknowledged */
    uint32_t place;          /* of the last sending */
    uint32_t came_place;     /* the latest that is known to have come */
    uint64_t again_until;    /* no higher number was sent again */
    uint64_t sent_ns;        /* last */
    uint64_t reorders_until_ns;
    bool look;              /* for what was overtaken: acknowledgements came since */
    bool tried;             /* at once, since it was heard after the last timeout */
    struct raft_sent *sent; /* by number */
    uint8_t *buffers;
    uint16_t *free; /* last freed, first used: it is in the cache */
    uint32_t n_free;

    struct raft_numbers came;
    uint32_t unacknowledged;
    uint64_t ack_at_ns; /* 0: none is due */
    struct raft_pieces pieces;

    struct raft_channel_counters count;
};

struct raft_channel {
    uint32_t id;
    uint64_t incarnation, random;
    uint32_t piece, buffer_bytes;
    int64_t (*send)(void *arg, uint32_t index, const uint8_t *datagram, uint32_t bytes); /* < 0: not sent */
    void *arg;
    uint64_t next_ns; /* when to poll next, if nothing comes before */
    uint64_t malformed, unknown_peer;
    uint32_t n_peers;
    struct raft_channel_peer peers[CL_RAFT_MAX_NODES];
};

/* incarnation: random, not 0. mtu: of IP. The callback is called inside calls on the channel. */
void raft_channel_init(struct raft_channel *channel, uint32_t id, uint64_t incarnation, uint32_t mtu);
/* Call it before anything else. frame_max: the longest frame from it. 0 or -ENOMEM. */
int raft_channel_add(struct raft_channel *channel, uint32_t id, uint32_t frame_max);
void raft_channel_free(struct raft_channel *channel);
/* False: refused, counted; nothing of it was or will be sent. */
bool raft_channel_send(struct raft_channel *channel, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting,
                       uint64_t now_ns);
/* Whether `data` begins like a datagram of a channel. */
bool raft_channel_is(const uint8_t *data, int64_t len);
/* Returns the frame that a datagram completes (its bytes in *bytes, good until the next call), or NULL. */
const uint8_t *raft_channel_receive(struct raft_channel *channel, const uint8_t *data, int64_t len, uint64_t now_ns,
                                    uint32_t *bytes);
/* Send what is due. Call it after each burst of datagrams, and when the time that it returned last has come. */
uint64_t raft_channel_poll(struct raft_channel *channel, uint64_t now_ns);
/* When the oldest datagram that is kept for the peer would be sent again, after its last sending. */
uint64_t raft_channel_timeout_ns(const struct raft_channel_peer *peer);

#endif
