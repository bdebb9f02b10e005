/* Segments in their frames, for servers that answer in place. */
#ifndef CORELANE_BENCH_TCP_SEGMENTS_H
#define CORELANE_BENCH_TCP_SEGMENTS_H

#include "../../drivers/nic/headers.h"

#include <corelane/drivers/nic.h>

/* A segment's parts in bytes: its header, and the data behind it. */
struct parts {
    uint32_t flags, header, len;
};

/* False: it is no segment, or it is cut off. */
static inline bool part(const struct cl_frame *f, struct parts *p)
{
    const struct head *h = (const struct head *)f->data;
    if (f->len < PLAIN_BYTES || h->eth.type_be != cl_be16(CL_ETHERTYPE_IPV4) || h->ip.proto != CL_IPPROTO_TCP)
        return false;
    uint32_t total = cl_be16(h->ip.total_len_be), offset_flags = cl_be16(h->offset_be);
    p->header = offset_flags >> 12 << 2;
    p->flags = offset_flags & 0x3f;
    if (total + CL_ETH_HLEN > f->len || p->header < 20 || CL_IPV4_HLEN + p->header > total)
        return false;
    p->len = total - CL_IPV4_HLEN - p->header;
    return true;
}

/* Partial sum of a segment's header and of what goes before it into TCP's checksum. */
static inline uint64_t sum_header(const struct head *h, uint32_t header, uint32_t len)
{
    uint64_t sum = cl_csum_pseudo(h->ip.src_be, h->ip.dst_be, CL_IPPROTO_TCP, (uint16_t)(header + len));
    return cl_csum_add(sum, &h->src_be, header);
}

#endif
