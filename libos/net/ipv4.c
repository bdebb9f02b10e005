/* IPv4 validation, every case; the common case is decided in input.c without coming here. */
#include "ipv4.h"

bool cl_ipv4_martian(const struct cl_net_self *self, uint32_t src_be)
{
    uint32_t src = cl_be32(src_be);
    return src >> 24 == 0           /* "this network" */
           || src >> 24 == 127      /* loopback */
           || src >= 0xe0000000u    /* multicast, reserved, limited broadcast */
           || src_be == self->ip_be /* somebody speaks in our name */
           || (src_be == self->broadcast_be && self->broadcast_be);
}

unsigned cl_ipv4_check(const struct cl_net_self *self, const uint8_t *packet, unsigned len, unsigned *hlen,
                       unsigned *total, uint8_t *broadcast)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)packet;
    if (len < CL_IPV4_HLEN)
        return CL_DROP_IP_SHORT;
    if (ip->version_ihl >> 4 != 4)
        return CL_DROP_IP_VERSION;
    *hlen = (ip->version_ihl & 15) * 4u;
    if (*hlen < CL_IPV4_HLEN || *hlen > len)
        return CL_DROP_IP_IHL;
    *total = cl_be16(ip->total_len_be);
    if (*total < *hlen || *total > len)
        return CL_DROP_IP_LENGTH;
    if (cl_csum(packet, *hlen) != 0)
        return CL_DROP_IP_CHECKSUM;
    if (ip->ttl == 0)
        return CL_DROP_IP_TTL;
    if (cl_ipv4_martian(self, ip->src_be))
        return CL_DROP_IP_MARTIAN;
    if (ip->dst_be == 0xffffffffu || (ip->dst_be == self->broadcast_be && self->broadcast_be))
        *broadcast = 1;
    else if (ip->dst_be != self->ip_be)
        return CL_DROP_IP_NOT_OURS;
    if (ip->frag_be & cl_be16(CL_IPV4_OFFSET_MASK))
        return CL_DROP_IP_FRAGMENT;
    if (ip->frag_be & cl_be16(CL_IPV4_MF))
        return CL_DROP_IP_REASSEMBLY;
    return CL_DROP_NONE;
}
