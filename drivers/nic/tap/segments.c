/* See segments.h. */
#include "segments.h"

#define ETHERTYPE_IPV6 0x86dd
#define IPV6_HLEN 40
#define GSO_UDP_L4 5     /* VIRTIO_NET_HDR_GSO_UDP_L4, which headers before Linux 6.2 do not have */
#define SUPER_MOST 65535 /* of an IP packet */

static inline bool is_ipv4(const uint8_t *frame)
{
    return cl_get16(frame + 12) == cl_be16(CL_ETHERTYPE_IPV4);
}

bool tap_super_begin(struct tap_super *s, uint32_t len, const struct virtio_net_hdr *h, uint32_t most)
{
    uint32_t udp = h->csum_start, size = h->gso_size, least = CL_ETH_HLEN + CL_IPV4_HLEN;
    s->at = s->len = 0;
    if (h->gso_type != GSO_UDP_L4 || !(h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || len > TAP_SUPER_BYTES ||
        udp < least || udp + CL_UDP_HLEN >= len || !size || udp + CL_UDP_HLEN + size > most)
        return false;
    bool right = is_ipv4(s->data) ? udp <= CL_ETH_HLEN + 60
                                  : udp == CL_ETH_HLEN + IPV6_HLEN && cl_get16(s->data + 12) == cl_be16(ETHERTYPE_IPV6);
    if (!right)
        return false;
    *s = (struct tap_super){.data = s->data, .len = len, .at = udp + CL_UDP_HLEN, .size = size, .udp = udp};
    return true;
}

/* Lengths, identification and checksums of a frame whose UDP datagram begins at `udp` and has `bytes` bytes. */
static void own_headers(uint8_t *frame, uint32_t udp, uint32_t bytes, uint32_t number)
{
    uint64_t sum = (uint64_t)cl_be16(CL_IPPROTO_UDP) + cl_be16(bytes);
    struct cl_udp *header = (struct cl_udp *)(frame + udp);
    if (is_ipv4(frame)) {
        struct cl_ipv4 *ip = (struct cl_ipv4 *)(frame + CL_ETH_HLEN);
        ip->total_len_be = cl_be16(udp - CL_ETH_HLEN + bytes);
        ip->id_be = cl_be16(cl_be16(ip->id_be) + number);
        ip->check = 0;
        ip->check = cl_csum(ip, udp - CL_ETH_HLEN);
        sum += cl_csum_add(0, &ip->src_be, 8);
    } else {
        cl_put16(frame + CL_ETH_HLEN + 4, cl_be16(bytes));
        sum += cl_csum_add(0, frame + CL_ETH_HLEN + 8, 32);
    }
    header->len_be = cl_be16(bytes);
    header->check = 0;
    uint16_t check = cl_csum_finish(cl_csum_add(sum, header, bytes));
    header->check = check ? check : 0xffff;
}

uint32_t tap_super_next(struct tap_super *s, uint8_t *out)
{
    uint32_t n = cl_min(s->size, s->len - s->at), headers = s->udp + CL_UDP_HLEN;
    memcpy(out, s->data, headers);
    memcpy(out + headers, s->data + s->at, n);
    own_headers(out, s->udp, CL_UDP_HLEN + n, s->number++);
    s->at += n;
    return headers + n;
}

bool tap_checksum(uint8_t *frame, uint32_t len, const struct virtio_net_hdr *h)
{
    uint32_t start = h->csum_start, field = start + h->csum_offset;
    if (field + 2 > len || start > field)
        return false;
    uint16_t check = cl_csum(frame + start, len - start); /* the field has the sum of the pseudo-header */
    cl_put16(frame + field, check ? check : 0xffff);
    return true;
}

/* Whether a frame is an unfragmented datagram of at least a byte, of IPv4 without options, and all of it is right. */
static bool is_right(const struct cl_frame *f)
{
    const struct cl_udp_frame *u = (const struct cl_udp_frame *)f->data;
    return f->len > CL_UDP_HEADERS && is_ipv4(f->data) && u->ip.version_ihl == 0x45 && u->ip.proto == CL_IPPROTO_UDP &&
           !(u->ip.frag_be & ~cl_be16(CL_IPV4_DF)) && cl_be16(u->ip.total_len_be) == f->len - CL_ETH_HLEN &&
           cl_be16(u->udp.len_be) == f->len - CL_ETH_HLEN - CL_IPV4_HLEN && u->udp.check &&
           cl_csum(&u->ip, sizeof u->ip) == 0 &&
           cl_udp_checksum_ok(u->ip.src_be, u->ip.dst_be, &u->udp, cl_be16(u->udp.len_be));
}

/* Whether a right frame, the number-th behind `a`, differs from it in nothing but what each may have of its own. The
 * identification of one that may not be fragmented means nothing (RFC 6864); Linux counts it up. */
static bool is_alike(const struct cl_frame *a, const struct cl_frame *b, unsigned number)
{
    const struct cl_udp_frame *x = (const struct cl_udp_frame *)a->data, *y = (const struct cl_udp_frame *)b->data;
    bool id_is_free = x->ip.frag_be & cl_be16(CL_IPV4_DF) || y->ip.id_be == cl_be16(cl_be16(x->ip.id_be) + number);
    return id_is_free && !memcmp(&x->eth, &y->eth, sizeof x->eth) && x->ip.tos == y->ip.tos &&
           x->ip.frag_be == y->ip.frag_be && x->ip.ttl == y->ip.ttl && x->ip.src_be == y->ip.src_be &&
           x->ip.dst_be == y->ip.dst_be && x->udp.src_port_be == y->udp.src_port_be &&
           x->udp.dst_port_be == y->udp.dst_port_be;
}

unsigned tap_joinable(const struct cl_frame *frames, unsigned n)
{
    unsigned joined = 1;
    n = cl_min(n, (unsigned)TAP_JOIN_MAX);
    if (n < 2 || frames[1].len > frames[0].len || !is_right(&frames[0])) /* before what costs more */
        return 1;
    uint32_t bytes = frames[0].len;
    for (; joined < n; joined++) {
        const struct cl_frame *f = &frames[joined];
        if (f->len > frames[0].len || frames[joined - 1].len < frames[0].len || !is_right(f) ||
            !is_alike(&frames[0], f, joined) || bytes + f->len > SUPER_MOST)
            break;
        bytes += f->len - CL_UDP_HEADERS;
    }
    return joined;
}

void tap_join(const struct cl_frame *frames, unsigned n, struct virtio_net_hdr *h, struct cl_udp_frame *headers)
{
    uint32_t bytes = CL_UDP_HLEN;
    for (unsigned i = 0; i < n; i++)
        bytes += frames[i].len - CL_UDP_HEADERS;
    *h = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                 .gso_type = GSO_UDP_L4,
                                 .hdr_len = CL_UDP_HEADERS,
                                 .gso_size = (uint16_t)(frames[0].len - CL_UDP_HEADERS),
                                 .csum_start = CL_ETH_HLEN + CL_IPV4_HLEN,
                                 .csum_offset = offsetof(struct cl_udp, check)};
    memcpy(headers, frames[0].data, CL_UDP_HEADERS);
    headers->ip.total_len_be = cl_be16(CL_IPV4_HLEN + bytes);
    headers->ip.check = 0;
    headers->ip.check = cl_csum(&headers->ip, sizeof headers->ip);
    headers->udp.len_be = cl_be16(bytes);
    uint64_t sum = cl_csum_pseudo(headers->ip.src_be, headers->ip.dst_be, CL_IPPROTO_UDP, (uint16_t)bytes);
    headers->udp.check =
        (uint16_t)~cl_csum_finish(sum); /* of the pseudo-header; the rest is added by whoever needs it */
}
