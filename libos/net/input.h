/* The frame parser: bytes in, verdict out; pure, and one pass for what nearly every frame is.
 *
 * cl_rx_parse decides the common case (unicast Ethernet, IPv4 without options or fragments, UDP) in line from a few
 * loads and leaves every other frame to cl_rx_parse_slow, which names the reason of a refusal. Both agree on every
 * frame (tests/libos/net/test_input.py compares them on random and mutated frames). Fuzzed by
 * tests/libos/net/c/fuzz_input.c (libFuzzer entry, and a seeded mutator of its own). */
#ifndef CORELANE_LIBOS_NET_INPUT_H
#define CORELANE_LIBOS_NET_INPUT_H

#include "udp.h"

// cffi: begin
/* Parse a frame completely. Never reads beyond len. */
CL_API void cl_rx_parse_slow(const struct cl_net_self *self, const uint8_t *frame, unsigned len,
                             struct cl_rx_info *out);
/* The same through the fast path, as the receive loop does it. */
CL_API void cl_rx_parse_any(const struct cl_net_self *self, const uint8_t *frame, unsigned len, struct cl_rx_info *out);
/* The same of a frame that we sent to ourselves (loop.c): what only a stranger can have wrong is not looked at. */
CL_API void cl_rx_parse_looped(const struct cl_net_self *self, const uint8_t *frame, unsigned len,
                               struct cl_rx_info *out);
/* Whether a frame that was dropped for its UDP or TCP checksum was left unfinished: the field holds the sum of the
 * pseudo-header alone, as Linux hands it to a device that computes the rest (CHECKSUM_PARTIAL). */
CL_API bool cl_rx_unfinished(const uint8_t *frame, const struct cl_rx_info *info);
/* Fill in a self from a MAC, an IPv4 address, prefix and gateway (host byte order). */
CL_API void cl_net_self_set(struct cl_net_self *self, const uint8_t *mac, uint32_t ipv4, unsigned prefix,
                            uint32_t gateway);
// cffi: end

/* What nearly every frame of TCP is, as below, which has looked at all but the sums and the segment. `total` of the IP
 * packet, which the frame has, is CL_IPV4_HLEN at least. False: the slow path says. */
bool cl_rx_parse_segment(const struct cl_net_self *self, const uint8_t *frame, unsigned total, struct cl_rx_info *out);

static inline void cl_rx_parse(const struct cl_net_self *self, const uint8_t *frame, unsigned len,
                               struct cl_rx_info *out)
{
    const struct cl_udp_frame *f = (const struct cl_udp_frame *)frame;
    if (cl_unlikely(len < CL_UDP_HEADERS))
        goto slow;
    /* Each condition below is one that the slow path would also pass; anything else is decided there. `|` on purpose:
     * one branch, no chain of predictions. */
    uint32_t src = cl_be32(f->ip.src_be);
    /* The destination and the first byte of the source behind it, in memory order: ours, and no group's. */
    uint64_t macs = (cl_get64(f->eth.dst) ^ cl_get64(self->mac)) & cl_be64(0xffffffffffff0100u);
    unsigned total = cl_be16(f->ip.total_len_be), udp_len = cl_be16(f->udp.len_be);
    bool odd = (f->eth.type_be != cl_be16(CL_ETHERTYPE_IPV4)) | (f->ip.version_ihl != 0x45) |
               ((f->ip.frag_be & cl_be16(CL_IPV4_MF | CL_IPV4_OFFSET_MASK)) != 0) | (f->ip.ttl == 0) |
               (f->ip.dst_be != self->ip_be) | (macs != 0) | (total > len - CL_ETH_HLEN) |
               (src - 0x01000000u >= 0xdf000000u) | (src >> 24 == 127) | (f->ip.src_be == self->ip_be) |
               (f->ip.src_be == self->broadcast_be);
    if (cl_unlikely(f->ip.proto == CL_IPPROTO_TCP)) {
        if (!odd && cl_rx_parse_segment(self, frame, total, out))
            return;
        goto slow;
    }
    odd |= (f->ip.proto != CL_IPPROTO_UDP) | (total < CL_IPV4_HLEN + CL_UDP_HLEN) | (udp_len < CL_UDP_HLEN) |
           (udp_len > total - CL_IPV4_HLEN) | (f->udp.src_port_be == 0) | (f->udp.dst_port_be == 0);
    if (cl_unlikely(odd))
        goto slow;
    uint64_t a = cl_get64(&f->ip), b = cl_get64((const uint8_t *)&f->ip + 8);
    uint64_t sum = (a & 0xffffffffu) + (a >> 32) + (b & 0xffffffffu) + (b >> 32) + f->ip.dst_be;
    if (cl_unlikely(cl_csum_finish(sum) != 0))
        goto slow;
    if (f->udp.check != 0 && self->verify_udp &&
        cl_unlikely(!cl_udp_checksum_ok(f->ip.src_be, f->ip.dst_be, &f->udp, (uint16_t)udp_len)))
        goto slow;
    *out = (struct cl_rx_info){.verdict = CL_RX_UDP,
                               .l4 = CL_ETH_HLEN + CL_IPV4_HLEN,
                               .l4_len = (uint16_t)udp_len,
                               .payload = CL_UDP_HEADERS,
                               .payload_len = (uint16_t)(udp_len - CL_UDP_HLEN)};
    return;
slow:
    cl_rx_parse_slow(self, frame, len, out);
}

#endif
