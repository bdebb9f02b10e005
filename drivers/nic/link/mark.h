/* What a link reads and writes in a frame: its class, and the mark of congestion. Pure.
 *
 * Class, 0..7: the priority code point of a VLAN tag (IEEE 802.1Q), else the class selector of the IP header, its first
 * three bits (RFC 2474, section 4.2.2). A frame without either, such as ARP, is of class 7: the control of a network
 * comes first. Mark: RFC 3168, section 5; of IPv4 and IPv6, behind one VLAN tag at most. */
#ifndef CORELANE_DRIVERS_NIC_LINK_MARK_H
#define CORELANE_DRIVERS_NIC_LINK_MARK_H

#include "../../../runtime/net.h"

#define CL_LINK_CONTROL 7u
#define CL_ETHERTYPE_VLAN 0x8100
#define CL_ECN_MASK 3u
#define CL_ECN_CE 3u

/* Where the IP header is, and its version. 0: there is none, or no whole one. */
static inline unsigned cl_link_ip(const uint8_t *frame, unsigned len, unsigned *at)
{
    unsigned tag = len >= CL_ETH_HLEN + 4 && cl_get16(frame + 12) == cl_be16(CL_ETHERTYPE_VLAN) ? 4 : 0;
    *at = CL_ETH_HLEN + tag;
    if (len < *at + CL_IPV4_HLEN)
        return 0;
    uint16_t type_be = cl_get16(frame + 12 + tag);
    if (type_be == cl_be16(CL_ETHERTYPE_IPV4) && frame[*at] >> 4 == 4)
        return 4;
    return type_be == cl_be16(0x86dd) && frame[*at] >> 4 == 6 ? 6 : 0;
}

static inline unsigned cl_link_class(const uint8_t *frame, unsigned len)
{
    unsigned at, version = cl_link_ip(frame, len, &at);
    if (at != CL_ETH_HLEN)
        return frame[14] >> 5;
    if (version == 4)
        return frame[at + 1] >> 5;
    return version == 6 ? (frame[at] & 0xf) >> 1 : CL_LINK_CONTROL;
}

/* Say that congestion was experienced. False: the sender does not understand it, or it was said before. */
static inline bool cl_link_mark(uint8_t *frame, unsigned len)
{
    unsigned at, version = cl_link_ip(frame, len, &at);
    unsigned ecn = version == 4 ? frame[at + 1] & CL_ECN_MASK : version == 6 ? frame[at + 1] >> 4 & CL_ECN_MASK : 0;
    if (ecn == 0 || ecn == CL_ECN_CE)
        return false;
    if (version == 6) {
        frame[at + 1] |= CL_ECN_CE << 4;
        return true;
    }
    uint16_t was = cl_get16(frame + at);
    frame[at + 1] |= CL_ECN_CE;
    cl_put16(frame + at + 10, cl_csum_update16(cl_get16(frame + at + 10), was, cl_get16(frame + at)));
    return true;
}

#endif
