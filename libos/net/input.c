/* The parser's slow path: every frame, every reason. */
#include "input.h"
#include "arp.h"
#include "icmp.h"
#include "tcp.h"

static unsigned parse_icmp(const struct cl_net_self *self, const uint8_t *frame, bool looped, struct cl_rx_info *out)
{
    bool error;
    unsigned reason = cl_icmp_check(self, frame + out->l4, out->l4_len, out->broadcast, looped, &error);
    out->verdict = error ? CL_RX_ICMP_ERROR : CL_RX_ICMP;
    return reason;
}

static unsigned parse_ipv4(const struct cl_net_self *self, const uint8_t *frame, unsigned len, struct cl_rx_info *out)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    unsigned hlen = 0, total = 0;
    unsigned reason = cl_ipv4_check(self, frame + CL_ETH_HLEN, len - CL_ETH_HLEN, &hlen, &total, &out->broadcast);
    if (reason != CL_DROP_NONE)
        return reason;
    out->l4 = (uint16_t)(CL_ETH_HLEN + hlen);
    out->l4_len = (uint16_t)(total - hlen);
    if (ip->proto == CL_IPPROTO_ICMP)
        return parse_icmp(self, frame, false, out);
    if (ip->proto == CL_IPPROTO_TCP) {
        out->verdict = CL_RX_TCP;
        return cl_tcp_check(self, ip, frame + out->l4, out->l4_len);
    }
    if (ip->proto != CL_IPPROTO_UDP)
        return CL_DROP_IP_PROTOCOL;
    unsigned udp_len = 0;
    reason = cl_udp_check(self, ip, frame + out->l4, out->l4_len, &udp_len);
    if (reason != CL_DROP_NONE)
        return reason;
    out->verdict = CL_RX_UDP;
    out->l4_len = (uint16_t)udp_len;
    out->payload = (uint16_t)(out->l4 + CL_UDP_HLEN);
    out->payload_len = (uint16_t)(udp_len - CL_UDP_HLEN);
    return CL_DROP_NONE;
}

void cl_rx_parse_slow(const struct cl_net_self *self, const uint8_t *frame, unsigned len, struct cl_rx_info *out)
{
    *out = (struct cl_rx_info){0};
    unsigned reason = CL_DROP_ETH_SHORT;
    if (len >= CL_ETH_HLEN) {
        const struct cl_eth *eth = (const struct cl_eth *)frame;
        reason = cl_eth_check(self, eth, &out->broadcast);
        if (reason == CL_DROP_NONE && eth->type_be == cl_be16(CL_ETHERTYPE_IPV4)) {
            reason = parse_ipv4(self, frame, len, out);
        } else if (reason == CL_DROP_NONE && eth->type_be == cl_be16(CL_ETHERTYPE_ARP)) {
            out->verdict = CL_RX_ARP;
            out->l4 = CL_ETH_HLEN;
            out->l4_len = (uint16_t)(len - CL_ETH_HLEN);
            reason = cl_arp_check(frame + CL_ETH_HLEN, len - CL_ETH_HLEN);
        } else if (reason == CL_DROP_NONE) {
            reason = CL_DROP_ETH_TYPE;
        }
    }
    if (reason != CL_DROP_NONE) {
        out->verdict = CL_RX_DROP;
        out->reason = (uint8_t)reason;
    }
}

CL_NOINLINE bool cl_rx_parse_segment(const struct cl_net_self *self, const uint8_t *frame, unsigned total,
                                     struct cl_rx_info *out)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    const struct cl_tcp *tcp = (const struct cl_tcp *)(ip + 1);
    unsigned l4_len = total - CL_IPV4_HLEN;
    if (cl_unlikely(l4_len < CL_TCP_HLEN || l4_len > UINT16_MAX))
        return false;
    unsigned header = 4u * (tcp->offset >> 4);
    if (cl_unlikely((header < CL_TCP_HLEN) | (header > l4_len)))
        return false;
    uint64_t of_ip = cl_csum_carry(cl_get64(ip), cl_get64((const uint8_t *)ip + 8));
    uint64_t pseudo = cl_csum_pseudo(ip->src_be, ip->dst_be, CL_IPPROTO_TCP, (uint16_t)l4_len);
    if (cl_unlikely(cl_csum_finish(cl_csum_halves(of_ip) + ip->dst_be) != 0))
        return false;
    if (self->verify_udp && cl_unlikely(cl_csum_finish(cl_csum_add(pseudo, tcp, l4_len)) != 0))
        return false;
    *out = (struct cl_rx_info){.verdict = CL_RX_TCP, .l4 = CL_ETH_HLEN + CL_IPV4_HLEN, .l4_len = (uint16_t)l4_len};
    return true;
}

void cl_rx_parse_looped(const struct cl_net_self *self, const uint8_t *frame, unsigned len, struct cl_rx_info *out)
{
    const struct cl_udp_frame *f = (const struct cl_udp_frame *)frame;
    unsigned reason = CL_DROP_NONE;
    *out =
        (struct cl_rx_info){.l4 = CL_ETH_HLEN + CL_IPV4_HLEN, .l4_len = (uint16_t)(len - CL_ETH_HLEN - CL_IPV4_HLEN)};
    if (f->ip.proto == CL_IPPROTO_UDP) {
        out->verdict = CL_RX_UDP;
        out->payload = CL_UDP_HEADERS;
        out->payload_len = (uint16_t)(out->l4_len - CL_UDP_HLEN);
    } else if (f->ip.proto == CL_IPPROTO_TCP) {
        out->verdict = CL_RX_TCP;
    } else if (f->ip.proto == CL_IPPROTO_ICMP) {
        reason = parse_icmp(self, frame, true, out);
    } else {
        reason = CL_DROP_IP_PROTOCOL;
    }
    if (reason != CL_DROP_NONE) {
        out->verdict = CL_RX_DROP;
        out->reason = (uint8_t)reason;
    }
}

bool cl_rx_unfinished(const uint8_t *frame, const struct cl_rx_info *info)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    uint16_t check;
    if (info->verdict != CL_RX_DROP)
        return false;
    if (info->reason == CL_DROP_UDP_CHECKSUM)
        check = ((const struct cl_udp *)(frame + info->l4))->check;
    else if (info->reason == CL_DROP_TCP_CHECKSUM)
        check = ((const struct cl_tcp *)(frame + info->l4))->check;
    else
        return false;
    uint16_t of_pseudo = (uint16_t)~cl_csum_finish(cl_csum_pseudo(ip->src_be, ip->dst_be, ip->proto, info->l4_len));
    return check == of_pseudo;
}

void cl_rx_parse_any(const struct cl_net_self *self, const uint8_t *frame, unsigned len, struct cl_rx_info *out)
{
    cl_rx_parse(self, frame, len, out);
}

void cl_net_self_set(struct cl_net_self *self, const uint8_t *mac, uint32_t ipv4, unsigned prefix, uint32_t gateway)
{
    uint32_t mask = prefix == 0 ? 0 : prefix >= 32 ? 0xffffffffu : ~(0xffffffffu >> prefix);
    *self = (struct cl_net_self){.ip_be = cl_be32(ipv4), .mask_be = cl_be32(mask), .gateway_be = cl_be32(gateway)};
    memcpy(self->mac, mac, 6);
    /* A /31 or /32 has no broadcast address (RFC 3021). */
    self->broadcast_be = prefix == 0 || prefix >= 31 ? 0 : cl_be32(ipv4 | ~mask);
    self->verify_udp = 1;
}
