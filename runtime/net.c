/* See net.h: the inline functions, callable from outside. */
#include "net.h"

uint16_t cl_net_checksum(const uint8_t *data, size_t n)
{
    return cl_csum(data, n);
}

uint16_t cl_net_checksum_update16(uint16_t check, uint16_t was, uint16_t is)
{
    return cl_csum_update16(check, was, is);
}

uint16_t cl_net_checksum_update32(uint16_t check, uint32_t was, uint32_t is)
{
    return cl_csum_update32(check, was, is);
}

bool cl_net_udp_checksum_ok(uint32_t src, uint32_t dst, const uint8_t *udp, uint16_t len)
{
    return cl_udp_checksum_ok(cl_be32(src), cl_be32(dst), (const struct cl_udp *)udp, len);
}

uint32_t cl_net_rss_frame(const uint8_t *frame, unsigned len)
{
    return cl_rss_frame(CL_RSS_KEY, frame, len);
}

unsigned cl_net_rss_queue(uint32_t hash, unsigned n)
{
    return cl_rss_queue(hash, n);
}

void cl_net_udp_headers(uint8_t *frame, const uint8_t *src_mac, const uint8_t *dst_mac, uint32_t src, uint32_t dst,
                        uint16_t src_port, uint16_t dst_port, uint16_t payload_len, bool with_checksum)
{
    struct cl_udp_frame *f = (struct cl_udp_frame *)frame;
    cl_udp_headers(f, src_mac, dst_mac, src, dst, src_port, dst_port, payload_len);
    if (with_checksum)
        f->udp.check = cl_udp_checksum(f->ip.src_be, f->ip.dst_be, &f->udp, CL_UDP_HLEN + payload_len);
}
