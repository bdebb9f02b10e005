/* What a frame is, as far as the switch looks: by its type, and by the addresses of its sender that are in it.
 *
 * `header` is what struct io_frame says: the first min(len, IO_HEADER) bytes. */
#ifndef CORELANE_IOKERNEL_SWITCH_KIND_H
#define CORELANE_IOKERNEL_SWITCH_KIND_H

#include "../state/internal.h"

enum io_kind {
    IO_KIND_IPV4,
    IO_KIND_ARP,    /* for IPv4 over Ethernet: a request or a reply (RFC 826) */
    IO_KIND_BROKEN, /* says that it is one of these, and is not */
    IO_KIND_TAGGED, /* a tag hides the type and so the sender's address (802.1Q, 802.1ad, QinQ) */
    IO_KIND_ANOTHER /* IPv6, spanning tree, ... */
};

static inline const struct cl_arp *io_arp_in(const uint8_t *header)
{
    return (const struct cl_arp *)(header + CL_ETH_HLEN);
}

static inline bool io_is_whole_arp(const uint8_t *header, uint32_t len)
{
    const struct cl_arp *arp = io_arp_in(header);
    return len >= CL_ETH_HLEN + sizeof *arp && arp->htype_be == cl_be16(1) &&
           arp->ptype_be == cl_be16(CL_ETHERTYPE_IPV4) && arp->hlen == 6 && arp->plen == 4 &&
           !cl_mac_is_group(arp->sender_mac) &&
           (arp->op_be == cl_be16(CL_ARP_REQUEST) || arp->op_be == cl_be16(CL_ARP_REPLY));
}

static inline bool io_is_whole_ipv4(const uint8_t *header, uint32_t len)
{
    return cl_get16(header + 12) == cl_be16(CL_ETHERTYPE_IPV4) && len >= CL_ETH_HLEN + CL_IPV4_HLEN &&
           header[CL_ETH_HLEN] >> 4 == 4;
}

/* len: at least CL_ETH_HLEN. */
static inline enum io_kind io_kind_of(const uint8_t *header, uint32_t len)
{
    if (io_is_whole_ipv4(header, len))
        return IO_KIND_IPV4;
    uint16_t type = cl_get16(header + 12);
    if (type == cl_be16(CL_ETHERTYPE_IPV4))
        return IO_KIND_BROKEN;
    if (type == cl_be16(CL_ETHERTYPE_ARP))
        return io_is_whole_arp(header, len) ? IO_KIND_ARP : IO_KIND_BROKEN;
    bool tagged = type == cl_be16(0x8100) || type == cl_be16(0x88a8) || type == cl_be16(0x9100);
    return tagged ? IO_KIND_TAGGED : IO_KIND_ANOTHER;
}

static inline uint32_t io_ipv4_source(const uint8_t *header)
{
    return cl_get32(header + CL_ETH_HLEN + offsetof(struct cl_ipv4, src_be));
}

static inline uint32_t io_ipv4_target(const uint8_t *header)
{
    return cl_get32(header + CL_ETH_HLEN + offsetof(struct cl_ipv4, dst_be));
}

#endif
