/* ARP: who has which MAC address; a bounded cache, and the datagrams that wait for an answer.
 *
 * Implemented: RFC 826 requests, replies and the merge rule (an entry is updated by any valid request of its owner,
 * created only by one aimed at us); of replies only the first to a question of ours, within CL_ARP_RETRY_NS, confirms
 * anything; announcements and conflict detection with one defence in 10 s (RFC 5227,
 * sections 2.3 and 2.4); retries at most once a second (RFC 1122, section 2.3.2.1), at most CL_ARP_TRIES of them;
 * entries are asked about again by unicast when they near their age limit; static entries; CL_ARP_HELD frames wait for
 * each unresolved neighbour, as many as open connections at one time as a rule, and CL_ARP_HELD_ALL for all of them,
 * since they are buffers of the NIC; of one neighbour's the oldest gives way.
 * Not implemented: probing before an address is taken (it is given by the iokernel, the device or the user), proxy ARP,
 * RARP.
 *
 * Memory is bounded: CL_ARP_SETS sets of CL_ARP_WAYS entries. A full set gives up its least recently confirmed entry,
 * never a static one, so a flood of forged senders costs at most re-resolution.
 * Pure state machine: time is passed in, frames to send are handed to the caller. Threads: every call under
 * cache->lock, taken inside. */
#ifndef CORELANE_LIBOS_NET_ARP_H
#define CORELANE_LIBOS_NET_ARP_H

#include <corelane/drivers/nic.h>
#include "ethernet.h"
#include <corelane/libos/spin.h>

#define CL_ARP_SETS 64
#define CL_ARP_WAYS 4
#define CL_ARP_HELD 64
#define CL_ARP_HELD_ALL 256
#define CL_ARP_TRIES 4
#define CL_ARP_RETRY_NS 1000000000ull
#define CL_ARP_REFRESH_NS 45000000000ull /* ask again from this age on */
#define CL_ARP_EXPIRE_NS 60000000000ull  /* do not use beyond it */
#define CL_ARP_DEFEND_NS 10000000000ull  /* RFC 5227: DEFEND_INTERVAL */

enum cl_arp_state { CL_ARP_FREE = 0, CL_ARP_PENDING, CL_ARP_KNOWN, CL_ARP_STATIC };

struct cl_arp_entry {
    uint32_t ip_be;
    uint8_t mac[6];
    uint8_t state;
    uint8_t tries; /* requests sent since the last answer; known: 1 if there was one */
    uint8_t n_held;
    uint64_t confirmed_ns; /* last answer; pending: when it was created */
    uint64_t asked_ns;     /* last request */
    struct cl_frame held[CL_ARP_HELD];
};

struct cl_arp_cache {
    struct cl_spin lock;
    uint32_t epoch;     /* bumped at every change of a mapping: validates the one-entry route cache of each kthread */
    uint32_t n_pending; /* written under the lock, also read without it (the timer, netq.c) */
    uint32_t n_held;    /* frames, of all entries. Under the lock */
    uint64_t defended_ns;
    struct cl_arp_entry entries[CL_ARP_SETS * CL_ARP_WAYS];
};

/* What the caller must do after a call, outside the lock. */
struct cl_arp_todo {
    bool reply;       /* answer the request */
    bool announce;    /* defend our address */
    bool learned;     /* the message changed or confirmed an entry */
    bool conflict;    /* somebody claims our address */
    bool unsolicited; /* an answer to no question of ours */
    unsigned n_out;   /* frames that waited and can now be sent to `mac`, or (after cl_arp_tick) must be freed */
    uint8_t mac[6];
    struct cl_frame out[CL_ARP_HELD];
};

enum cl_arp_result { CL_ARP_FOUND, CL_ARP_RESOLVE_UNICAST, CL_ARP_RESOLVE, CL_ARP_WAIT };

/* Whether `len` bytes are an ARP message for IPv4 over Ethernet from a possible sender. CL_DROP_NONE or the reason.
 * Pure. */
unsigned cl_arp_check(const uint8_t *arp, unsigned len);

/* Take in a checked message. */
void cl_arp_input(struct cl_arp_cache *cache, const struct cl_net_self *self, const struct cl_arp *arp, uint64_t now_ns,
                  struct cl_arp_todo *todo);

/* MAC of a neighbour. FOUND: mac is set. RESOLVE_UNICAST: the same, and the caller should send a request to it. ASK,
 * WAIT: unknown; `held` (if not NULL) was taken over to wait, *dropped says whether `*evicted` now is the caller's to
 * free; ASK: send a broadcast request. */
enum cl_arp_result cl_arp_lookup(struct cl_arp_cache *cache, uint32_t ip_be, uint64_t now_ns, uint8_t mac[6],
                                 const struct cl_frame *held, struct cl_frame *evicted, bool *dropped);

/* One step of the retries: returns true with *resolve_be set to an address to ask for again, or with todo->n_out frames
 * whose neighbour did not answer; false when nothing is due. Call until false. */
bool cl_arp_tick(struct cl_arp_cache *cache, uint64_t now_ns, uint32_t *resolve_be, struct cl_arp_todo *todo);

/* Enter a static mapping. -ENOSPC if its set is full of static ones. */
int cl_arp_add_static(struct cl_arp_cache *cache, uint32_t ip_be, const uint8_t mac[6]);

/* The link is another one, behind which neighbours may have other addresses: ask for each anew. Static ones stay. */
void cl_arp_forget(struct cl_arp_cache *cache);

/* Take back one datagram that still waits, for shutting down. False: none. */
bool cl_arp_drain(struct cl_arp_cache *cache, struct cl_frame *out);

/* Write an ARP frame (42 bytes). */
void cl_arp_fill(const struct cl_net_self *self, uint8_t *frame, uint16_t op, const uint8_t *eth_dst,
                 const uint8_t *target_mac, uint32_t target_ip_be);

#define CL_ARP_FRAME_BYTES (CL_ETH_HLEN + 28)

#endif
