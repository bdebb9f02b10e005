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

unsigned cl_tcp_answer(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                       const struct cl_tcp_segment *answer, uint8_t *out)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    const struct cl_tcp *got = (const struct cl_tcp *)(frame + info->l4);
    struct cl_tcp *tcp = (struct cl_tcp *)(out + CL_ETH_HLEN + CL_IPV4_HLEN);
    unsigned len = cl_tcp_segment_write(answer, cl_be16(got->dst_port_be), cl_be16(got->src_port_be), (uint8_t *)tcp);
    cl_eth_fill((struct cl_eth *)out, eth->src, self->mac, CL_ETHERTYPE_IPV4);
    cl_ipv4_fill((struct cl_ipv4 *)(out + CL_ETH_HLEN), ip->dst_be, ip->src_be, CL_IPPROTO_TCP, len);
    uint64_t pseudo = cl_csum_pseudo(ip->dst_be, ip->src_be, CL_IPPROTO_TCP, (uint16_t)len);
    tcp->check = cl_csum_finish(cl_csum_add(pseudo, tcp, len));
    return CL_ETH_HLEN + CL_IPV4_HLEN + len;
}

unsigned cl_tcp_reset(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out)
{
    struct cl_tcp_segment s, reset;
    if (info->broadcast || !cl_tcp_segment_read(frame + info->l4, info->l4_len, &s) ||
        !cl_tcp_segment_refuse(&s, &reset))
        return 0;
    return cl_tcp_answer(self, frame, info, &reset, out);
}
