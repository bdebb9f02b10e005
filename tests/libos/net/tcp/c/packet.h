/* Packets of IPv4 with a segment, as bytes, for fuzzers: their sums, and headers of such as nobody sent. */
#ifndef TESTS_LIBOS_TCP_PACKET_H
#define TESTS_LIBOS_TCP_PACKET_H

#include "libos/net/segment.h"
#include "runtime/net.h"

#include <string.h>

#define HEADERS 20 /* of IPv4 */
#define PACKET_MOST 2048

static inline uint64_t packet_sum(const uint8_t *packet, uint32_t len)
{
    struct cl_ipv4 ip;
    memcpy(&ip, packet, sizeof ip);
    uint64_t sum = cl_csum_pseudo(ip.src_be, ip.dst_be, CL_IPPROTO_TCP, (uint16_t)(len - HEADERS));
    return cl_csum_add(sum, packet + HEADERS, len - HEADERS);
}

/* The segment's checksum is right. */
static inline bool packet_is_whole(const uint8_t *packet, uint32_t len)
{
    return cl_csum_finish(packet_sum(packet, len)) == 0;
}

/* Make it right. */
static inline void packet_fix(uint8_t *packet, uint32_t len)
{
    cl_put16(packet + HEADERS + 16, 0);
    cl_put16(packet + HEADERS + 16, cl_csum_finish(packet_sum(packet, len)));
}

/* Its length and marks have changed: the fields that depend on them, too. */
static inline void packet_refresh(uint8_t *packet, uint32_t len)
{
    cl_put16(packet + 2, cl_be16((uint16_t)len));
    cl_put16(packet + 10, 0);
    cl_put16(packet + 10, cl_csum_finish(cl_csum_add(0, packet, HEADERS)));
    packet_fix(packet, len);
}

/* An IPv4 header before the segment in a packet of len bytes, and both sums. Addresses in host byte order. */
static inline void packet_head(uint8_t *packet, uint32_t len, uint32_t from, uint32_t to)
{
    struct cl_ipv4 ip = {.version_ihl = 0x45, .ttl = 64, .proto = CL_IPPROTO_TCP};
    ip.total_len_be = cl_be16((uint16_t)len);
    ip.src_be = cl_be32(from);
    ip.dst_be = cl_be32(to);
    ip.check = cl_csum_finish(cl_csum_add(0, &ip, sizeof ip));
    memcpy(packet, &ip, sizeof ip);
    packet_fix(packet, len);
}

#endif
