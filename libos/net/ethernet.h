/* Ethernet II: is this frame for us, and what is in it.
 *
 * Implemented: IEEE 802.3 clause 3 addressing (unicast, broadcast), EtherType demultiplexing, trailing padding ignored.
 * Not implemented: VLAN tags (counted as eth_type), 802.2 LLC, multicast groups (none is joined), jumbo frames beyond
 * the NIC's MTU.
 *
 * The parser is a set of pure functions of the frame's bytes and of struct cl_net_self; it never writes, and reads no
 * byte beyond `len`. */
#ifndef CORELANE_LIBOS_NET_ETHERNET_H
#define CORELANE_LIBOS_NET_ETHERNET_H

#include "../../runtime/net.h"
#include <corelane/libos/reasons.h>

// cffi: begin
/* Who we are, as the parser needs it. Addresses in network byte order, as they lie in a frame. */
struct cl_net_self {
    uint8_t mac[6];
    uint16_t pad; /* 0: the fast path loads 8 bytes from mac on */
    uint32_t ip_be;
    uint32_t mask_be;      /* of the local subnet */
    uint32_t broadcast_be; /* of the local subnet */
    uint32_t gateway_be;   /* 0: none */
    uint32_t verify_udp;   /* check UDP checksums that are present */
};

enum cl_rx_verdict {
    CL_RX_DROP = 0, /* `reason` says why */
    CL_RX_UDP,
    CL_RX_ICMP,      /* an echo request to answer */
    CL_RX_ARP,       /* to be given to the ARP cache */
    CL_RX_TCP,       /* a segment, which nobody waits for */
    CL_RX_ICMP_ERROR /* an error about a datagram that we may have sent */
};

/* What the parser found. */
struct cl_rx_info {
    uint8_t verdict;
    uint8_t reason;
    uint8_t broadcast; /* the frame or the packet was sent to a broadcast address: no ICMP error may answer it */
    uint8_t pad;
    uint16_t l4;          /* offset of the UDP, ICMP or ARP header in the frame */
    uint16_t l4_len;      /* its length, header included */
    uint16_t payload;     /* UDP: offset of the payload */
    uint16_t payload_len; /* UDP: its length */
};
// cffi: end

/* Addressing of a frame of at least 14 bytes. CL_DROP_NONE, or why not ours; *broadcast is set for broadcasts. */
static inline unsigned cl_eth_check(const struct cl_net_self *self, const struct cl_eth *eth, uint8_t *broadcast)
{
    bool ours = cl_mac_equal(eth->dst, self->mac);
    if (!ours && !cl_mac_is_broadcast(eth->dst))
        return CL_DROP_ETH_NOT_OURS;
    *broadcast = !ours;
    /* A group is never the source of a frame (IEEE 802.3, 3.2.3), and an answer would go to all of it. */
    return cl_mac_is_group(eth->src) ? CL_DROP_ETH_SOURCE : CL_DROP_NONE;
}

/* Ethernet header of a frame that we send. */
static inline void cl_eth_fill(struct cl_eth *eth, const uint8_t *dst, const uint8_t *src, uint16_t type)
{
    memcpy(eth->dst, dst, 6);
    memcpy(eth->src, src, 6);
    eth->type_be = cl_be16(type);
}

#endif
