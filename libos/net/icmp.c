/* ICMP messages that we answer and send. */
#include "icmp.h"
#include "../../runtime/csum_copy.h"

#include <errno.h>

/* Whether it quotes the header of a packet that we may have sent, and the first 8 bytes behind: ports, and of a segment
 * its number. */
static bool quotes_ours(const struct cl_net_self *self, const uint8_t *message, unsigned len, bool looped)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(message + sizeof(struct cl_icmp));
    if (len < sizeof(struct cl_icmp) + CL_IPV4_HLEN + CL_UDP_HLEN)
        return false;
    /* We send no options. */
    return ip->version_ihl == 0x45 && (ip->proto == CL_IPPROTO_UDP || ip->proto == CL_IPPROTO_TCP) &&
           cl_ipv4_source(self, ip->dst_be) == ip->src_be && cl_ipv4_is_own(self, ip->dst_be) == looped &&
           (ip->frag_be & cl_be16(CL_IPV4_OFFSET_MASK)) == 0;
}

unsigned cl_icmp_check(const struct cl_net_self *self, const uint8_t *message, unsigned len, bool broadcast,
                       bool looped, bool *error)
{
    const struct cl_icmp *icmp = (const struct cl_icmp *)message;
    *error = false;
    if (len < sizeof *icmp)
        return CL_DROP_ICMP_SHORT;
    if (cl_csum(message, len) != 0)
        return CL_DROP_ICMP_CHECKSUM;
    switch (icmp->type) {
    case CL_ICMP_ECHO:
        if (icmp->code != 0)
            return CL_DROP_ICMP_TYPE;
        return broadcast ? CL_DROP_ICMP_BROADCAST : CL_DROP_NONE;
    case CL_ICMP_UNREACHABLE:
    case CL_ICMP_EXCEEDED:
    case CL_ICMP_PARAMETER:
        *error = !broadcast && quotes_ours(self, message, len, looped);
        return *error ? CL_DROP_NONE : CL_DROP_ICMP_ERROR;
    case 4: /* source quench */
    case 5: /* redirect */
        return CL_DROP_ICMP_ERROR;
    default:
        return CL_DROP_ICMP_TYPE;
    }
}

/* As Linux maps them, for connected sockets. */
static int32_t error_of(const struct cl_icmp *icmp)
{
    static const int32_t unreachable[] = {
        [0] = ENETUNREACH, [1] = EHOSTUNREACH, [2] = ENOPROTOOPT,   [3] = ECONNREFUSED,
        [4] = EMSGSIZE,    [5] = EOPNOTSUPP,   [6] = ENETUNREACH,   [7] = EHOSTDOWN,
        [8] = ENONET,      [9] = ENETUNREACH,  [10] = EHOSTUNREACH, [11] = ENETUNREACH,
    };
    if (icmp->type == CL_ICMP_PARAMETER)
        return EPROTO;
    if (icmp->type == CL_ICMP_UNREACHABLE && icmp->code < sizeof unreachable / sizeof *unreachable)
        return unreachable[icmp->code];
    return EHOSTUNREACH;
}

void cl_icmp_read(const uint8_t *message, struct cl_icmp_about *out)
{
    const struct cl_icmp *icmp = (const struct cl_icmp *)message;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(icmp + 1);
    const struct cl_udp *udp = (const struct cl_udp *)(ip + 1);
    *out = (struct cl_icmp_about){.src_be = ip->src_be,
                                  .dst_be = ip->dst_be,
                                  .src_port_be = udp->src_port_be,
                                  .dst_port_be = udp->dst_port_be,
                                  .error = error_of(icmp),
                                  .total_len = cl_be16(ip->total_len_be),
                                  .mtu = cl_be16(icmp->seq_be), /* the field's place in these messages */
                                  .seq = cl_be32(cl_get32((const uint8_t *)udp + 4)),
                                  .protocol = ip->proto};
}

bool cl_icmp_allow(struct cl_icmp_limit *limit, uint64_t now_ns)
{
    const uint64_t per_token_ns = 1000000000ull / CL_ICMP_PER_S;
    uint64_t earned = (now_ns - limit->last_ns) / per_token_ns;
    if (limit->last_ns == 0 || earned >= CL_ICMP_BURST) {
        limit->tokens = CL_ICMP_BURST;
        limit->last_ns = now_ns;
    } else {
        limit->tokens = cl_min(limit->tokens + (uint32_t)earned, (uint32_t)CL_ICMP_BURST);
        limit->last_ns += earned * per_token_ns;
    }
    if (limit->tokens == 0)
        return false;
    limit->tokens--;
    return true;
}

unsigned cl_icmp_echo_reply(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                            uint8_t *out, unsigned room)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    unsigned len = CL_ETH_HLEN + CL_IPV4_HLEN + info->l4_len;
    if (len > room)
        return 0;
    cl_eth_fill((struct cl_eth *)out, eth->src, self->mac, CL_ETHERTYPE_IPV4);
    cl_ipv4_fill((struct cl_ipv4 *)(out + CL_ETH_HLEN), self->ip_be, ip->src_be, CL_IPPROTO_ICMP, info->l4_len);
    struct cl_icmp *reply = (struct cl_icmp *)(out + CL_ETH_HLEN + CL_IPV4_HLEN);
    const struct cl_icmp *request = (const struct cl_icmp *)(frame + info->l4);
    /* Summed anew: an incremental update (RFC 1624) cannot tell the two zeros of ones' complement apart, and a message
     * of nothing but zeros needs the one that it would not give. Type, code and checksum of a reply are zeros. */
    *reply = (struct cl_icmp){.type = CL_ICMP_ECHO_REPLY, .id_be = request->id_be, .seq_be = request->seq_be};
    uint64_t sum = (uint64_t)request->id_be + request->seq_be;
    reply->check = cl_csum_finish(cl_csum_copy(sum, reply + 1, request + 1, info->l4_len - sizeof *reply));
    return len;
}

unsigned cl_icmp_port_unreachable(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                                  uint8_t *out, unsigned room)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    unsigned quoted = info->l4 - CL_ETH_HLEN + cl_min(info->l4_len, 8u); /* header with options, and 8 bytes */
    unsigned icmp_len = (unsigned)sizeof(struct cl_icmp) + quoted, len = CL_ETH_HLEN + CL_IPV4_HLEN + icmp_len;
    if (len > room)
        return 0;
    cl_eth_fill((struct cl_eth *)out, eth->src, self->mac, CL_ETHERTYPE_IPV4);
    cl_ipv4_fill((struct cl_ipv4 *)(out + CL_ETH_HLEN), self->ip_be, ip->src_be, CL_IPPROTO_ICMP, icmp_len);
    struct cl_icmp *error = (struct cl_icmp *)(out + CL_ETH_HLEN + CL_IPV4_HLEN);
    *error = (struct cl_icmp){.type = CL_ICMP_UNREACHABLE, .code = CL_ICMP_CODE_PORT};
    memcpy(error + 1, ip, quoted);
    error->check = cl_csum(error, icmp_len);
    return len;
}
