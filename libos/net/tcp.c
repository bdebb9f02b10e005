/* TCP segments that are of no connection. */
#include "tcp.h"

unsigned cl_tcp_check(const struct cl_net_self *self, const struct cl_ipv4 *ip, const uint8_t *segment, unsigned len)
{
    const struct cl_tcp *tcp = (const struct cl_tcp *)segment;
    if (len < CL_TCP_HLEN || 4u * (tcp->offset >> 4) < CL_TCP_HLEN || 4u * (tcp->offset >> 4) > len)
        return CL_DROP_TCP_SHORT;
    uint64_t pseudo = cl_csum_pseudo(ip->src_be, ip->dst_be, CL_IPPROTO_TCP, (uint16_t)len);
    return cl_csum_finish(cl_csum_add(pseudo, segment, len)) == 0 || !self->verify_udp ? CL_DROP_NONE
                                                                                       : CL_DROP_TCP_CHECKSUM;
}

unsigned cl_tcp_reset(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out,
                      unsigned room)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    const struct cl_tcp *got = (const struct cl_tcp *)(frame + info->l4);
    const unsigned len = CL_ETH_HLEN + CL_IPV4_HLEN + CL_TCP_HLEN;
    if (info->broadcast || (got->flags & CL_TCP_RST) || room < len)
        return 0;
    cl_eth_fill((struct cl_eth *)out, eth->src, self->mac, CL_ETHERTYPE_IPV4);
    cl_ipv4_fill((struct cl_ipv4 *)(out + CL_ETH_HLEN), ip->dst_be, ip->src_be, CL_IPPROTO_TCP, CL_TCP_HLEN);
    struct cl_tcp *reset = (struct cl_tcp *)(out + CL_ETH_HLEN + CL_IPV4_HLEN);
    *reset = (struct cl_tcp){
        .src_port_be = got->dst_port_be,
        .dst_port_be = got->src_port_be,
        .offset = CL_TCP_HLEN / 4 << 4,
        .flags = CL_TCP_RST,
    };
    if (got->flags & CL_TCP_ACK) {
        reset->seq_be = got->ack_be;
    } else {
        uint32_t used = info->l4_len - 4u * (got->offset >> 4); /* SEG.LEN counts SYN and FIN */
        used += !!(got->flags & CL_TCP_SYN) + !!(got->flags & CL_TCP_FIN);
        reset->ack_be = cl_be32(cl_be32(got->seq_be) + used);
        reset->flags |= CL_TCP_ACK;
    }
    uint64_t pseudo = cl_csum_pseudo(ip->dst_be, ip->src_be, CL_IPPROTO_TCP, CL_TCP_HLEN);
    reset->check = cl_csum_finish(cl_csum_add(pseudo, reset, CL_TCP_HLEN));
    return len;
}
