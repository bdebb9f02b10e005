/* IPv4 as an end host: validation of what comes in, headers of what goes out.
 *
 * Implemented: RFC 791 header validation (version, IHL, total length, checksum, TTL), options skipped, RFC 1122 section
 * 3.2.1.3 source addresses that no host may have, limited and subnet broadcast as destination; headers with DF set and
 * identification 0 (RFC 6864: an atomic datagram needs none).
 * Not implemented: fragments and reassembly (refused, counted apart: ip_fragment, ip_reassembly), forwarding, options
 * of our own, multicast, path MTU discovery but for connections (tcp/path.c; we never send more than the NIC's MTU). */
#ifndef CORELANE_LIBOS_NET_IPV4_H
#define CORELANE_LIBOS_NET_IPV4_H

#include "ethernet.h"

/* Validate the packet of `len` bytes at `ip`. CL_DROP_NONE with *hlen, *total set; or the reason. Slow path: every
 * case. */
unsigned cl_ipv4_check(const struct cl_net_self *self, const uint8_t *ip, unsigned len, unsigned *hlen, unsigned *total,
                       uint8_t *broadcast);

/* Whether no host may send from this address (network byte order), or it is our own or our subnet's broadcast. */
bool cl_ipv4_martian(const struct cl_net_self *self, uint32_t src_be);

/* Whether it is ours, or one of 127.0.0.0/8: such a packet never leaves (RFC 1122, section 3.2.1.3 (g)). */
static inline bool cl_ipv4_is_own(const struct cl_net_self *self, uint32_t dst_be)
{
    return dst_be == self->ip_be || cl_be32(dst_be) >> 24 == 127;
}

/* What a packet to there comes from: 127.0.0.1 talks with itself. */
static inline uint32_t cl_ipv4_source(const struct cl_net_self *self, uint32_t dst_be)
{
    return cl_be32(dst_be) >> 24 == 127 ? cl_be32(0x7f000001u) : self->ip_be;
}

/* The address to ask ARP for: the destination on the local subnet, else the gateway; 0 if there is no way. */
static inline uint32_t cl_ipv4_next_hop(const struct cl_net_self *self, uint32_t dst_be)
{
    if (((dst_be ^ self->ip_be) & self->mask_be) == 0)
        return dst_be;
    return self->gateway_be;
}

/* Header of a packet that we send, `payload_len` bytes behind it. The sum is built from its few variable words. */
static inline void cl_ipv4_fill(struct cl_ipv4 *ip, uint32_t src_be, uint32_t dst_be, uint8_t proto,
                                unsigned payload_len)
{
    uint16_t total_be = cl_be16(CL_IPV4_HLEN + payload_len);
    ip->version_ihl = 0x45;
    ip->tos = 0;
    ip->total_len_be = total_be;
    ip->id_be = 0;
    ip->frag_be = cl_be16(CL_IPV4_DF);
    ip->ttl = 64;
    ip->proto = proto;
    ip->src_be = src_be;
    ip->dst_be = dst_be;
    uint64_t sum =
        (uint64_t)cl_be16(0x4500) + total_be + cl_be16(CL_IPV4_DF) + cl_be16(0x4000 | proto) + src_be + dst_be;
    ip->check = cl_csum_finish(sum);
}

/* Set the ECN field of a header that cl_ipv4_fill has filled. */
static inline void cl_ipv4_mark(struct cl_ipv4 *ip, uint8_t ecn)
{
    ip->tos = ecn;
    ip->check = 0;
    ip->check = cl_csum(ip, sizeof *ip);
}

#endif
