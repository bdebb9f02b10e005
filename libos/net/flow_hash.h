/* Which flow a frame is of, and a hash of that which a peer cannot foresee.
 *
 * The hash is SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012) over the two ends of the flow and the protocol. A
 * table's hash is never told to anybody, so its fewer rounds are enough, as in the tables of Linux; what leaves in a
 * packet (sequence numbers, cookies) is of SipHash-2-4. cl_flow_hash takes the smaller end first, so both directions of
 * a flow have one hash. cl_flow_hash_in takes the peer's first: connections are only ever looked up by what comes in,
 * and so it costs no comparison. The key is the runtime's own and secret. Without it nobody can choose addresses and
 * ports that meet in one bucket of a table, or at one kthread, better than by chance; nor at one of several sockets
 * that share a port (ports.c). A NIC's RSS hash promises nothing of the kind: its key is known, or found out. So it
 * decides only which queue a frame comes by, and nothing here relies on that.
 *
 * Tests: tests/libos/net/test_flow_hash.py (against the definition, symmetry, spread, what the key changes). */
#ifndef CORELANE_LIBOS_NET_FLOW_HASH_H
#define CORELANE_LIBOS_NET_FLOW_HASH_H

#include "../../runtime/net.h"

struct cl_flow_secret {
    uint64_t k0, k1;
};

/* A flow as its frames name it when they come in. All in network byte order. */
struct cl_flow_key {
    uint32_t peer_be, own_be;
    uint16_t peer_port_be, own_port_be;
    uint32_t protocol; /* CL_IPPROTO_UDP, ... */
};
_Static_assert(sizeof(struct cl_flow_key) == 16, "no hidden padding: keys are compared as two words");

static inline bool cl_flow_key_equal(const struct cl_flow_key *a, const struct cl_flow_key *b)
{
    return ((cl_get64(a) ^ cl_get64(b)) | (cl_get64(&a->peer_port_be) ^ cl_get64(&b->peer_port_be))) == 0;
}

static inline uint64_t cl_rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

struct cl_sip {
    uint64_t v0, v1, v2, v3;
};

static inline void cl_sip_round(struct cl_sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = cl_rotate(s->v1, 13) ^ s->v0;
    s->v3 = cl_rotate(s->v3, 16) ^ s->v2;
    s->v0 = cl_rotate(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v1 = cl_rotate(s->v1, 17) ^ s->v2;
    s->v3 = cl_rotate(s->v3, 21) ^ s->v0;
    s->v2 = cl_rotate(s->v2, 32);
}

static inline void cl_sip_word(struct cl_sip *s, uint64_t word, unsigned rounds)
{
    s->v3 ^= word;
    for (unsigned i = 0; i < rounds; i++)
        cl_sip_round(s);
    s->v0 ^= word;
}

/* SipHash of a message of two words, the last of which has the length in its top byte: `each` rounds a word and
 * `at_end` more. */
static CL_ALWAYS_INLINE uint64_t cl_sip_rounds(const struct cl_flow_secret *secret, uint64_t first, uint64_t last,
                                               unsigned each, unsigned at_end)
{
    struct cl_sip s = {secret->k0 ^ 0x736f6d6570736575ull, secret->k1 ^ 0x646f72616e646f6dull,
                       secret->k0 ^ 0x6c7967656e657261ull, secret->k1 ^ 0x7465646279746573ull};
    cl_sip_word(&s, first, each);
    cl_sip_word(&s, last, each);
    s.v2 ^= 0xff;
    for (unsigned i = 0; i < at_end; i++)
        cl_sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* SipHash-2-4. */
static inline uint64_t cl_sip_two(const struct cl_flow_secret *secret, uint64_t first, uint64_t last)
{
    return cl_sip_rounds(secret, first, last, 2, 4);
}

/* The hash of a flow as its frames name it when they come in: of the first 15 bytes of the key as they lie in memory,
 * and a protocol is one byte. It saves cl_flow_hash's order of the ends. */
static CL_ALWAYS_INLINE uint64_t cl_flow_hash_in(const struct cl_flow_secret *secret, const struct cl_flow_key *key)
{
    uint64_t first = cl_get64(key), last = cl_get64(&key->peer_port_be);
    return cl_sip_rounds(secret, first, last | 15ull << 56, 1, 3);
}

/* The hash of a flow, and of its other direction. Some 6 ns. */
static inline uint64_t cl_flow_hash(const struct cl_flow_secret *secret, const struct cl_flow_key *key)
{
    uint64_t peer = (uint64_t)cl_be32(key->peer_be) << 16 | cl_be16(key->peer_port_be);
    uint64_t own = (uint64_t)cl_be32(key->own_be) << 16 | cl_be16(key->own_port_be);
    uint64_t low = cl_min(peer, own), high = cl_max(peer, own);
    /* 12 bytes of the ends, least significant first, the protocol as the 13th. */
    uint64_t last = high >> 16 | (uint64_t)(uint8_t)key->protocol << 32 | 13ull << 56;
    return cl_sip_rounds(secret, low | high << 48, last, 1, 3);
}

#endif
