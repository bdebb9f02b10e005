/* A segment: its header and options, as bytes and as fields (RFC 9293, section 3.1 and 3.2).
 *
 * Options known: end, no-operation, maximum segment size (9293), window scale and timestamps (7323), SACK permitted and
 * SACK (2018). Others are skipped by their length (9293, MUST-6). An option whose length is wrong ends the parsing:
 * what before it counts, the rest is ignored (MUST-7), and `malformed` says so.
 *
 * Pure functions of bytes. They read nothing beyond `len` and do not check ports, checksum or addresses: tcp.c does. */
#ifndef CORELANE_LIBOS_NET_SEGMENT_H
#define CORELANE_LIBOS_NET_SEGMENT_H

#include "../../runtime/net.h"

#define CL_TCP_MAX_SACKS 4 /* that fit into the room for options; 3 beside timestamps */
#define CL_TCP_MAX_OPTIONS 40
#define CL_TCP_MAX_WSCALE 14 /* RFC 7323, section 2.3 */

// cffi: begin
#define CL_TCPF_FIN 0x01
#define CL_TCPF_SYN 0x02
#define CL_TCPF_RST 0x04
#define CL_TCPF_PSH 0x08
#define CL_TCPF_ACK 0x10
#define CL_TCPF_URG 0x20
#define CL_TCPF_ECE 0x40
#define CL_TCPF_CWR 0x80

/* cl_tcp_segment.ecn (RFC 3168, section 5) */
#define CL_TCP_ECT0 2
#define CL_TCP_CE 3

/* cl_tcp_options.has */
#define CL_TCPO_MSS 1
#define CL_TCPO_WSCALE 2
#define CL_TCPO_SACK_OK 4
#define CL_TCPO_TIMES 8

struct cl_tcp_range {
    uint32_t from, to; /* sequence numbers; `to` is behind the last byte */
};

struct cl_tcp_options {
    uint8_t has; /* CL_TCPO_* */
    uint8_t wscale;
    uint8_t n_sack;
    uint8_t malformed; /* an option's length was wrong; options behind it are not here */
    uint16_t mss;
    uint32_t ts_val, ts_ecr; /* with CL_TCPO_TIMES */
    struct cl_tcp_range sack[4];
};

struct cl_tcp_segment {
    uint32_t seq, ack;
    uint16_t window; /* as it stands in the header, not scaled */
    uint16_t urgent;
    uint8_t flags;      /* CL_TCPF_* */
    uint8_t header_len; /* bytes, options included */
    uint16_t len;       /* bytes of data */
    uint8_t ecn;        /* of the IP header, and neither read nor written here */
    struct cl_tcp_options options;
};

/* The fields of a segment of `len` bytes, header included. False: its header is shorter than 20 bytes or longer than
 * the segment, and *out is not set. */
CL_API bool cl_tcp_segment_read(const uint8_t *bytes, unsigned len, struct cl_tcp_segment *out);
/* Write the header, with its options, for data of s->len bytes behind it. The checksum field is 0. Returns the header's
 * length, at most 60, a multiple of 4. SACK ranges that do not fit are left out, the last first. */
CL_API unsigned cl_tcp_segment_write(const struct cl_tcp_segment *s, uint16_t from_port, uint16_t to_port,
                                     uint8_t *bytes);
/* The reset that answers a segment of no connection (RFC 9293, sections 3.5.2 and 3.10.7.1). False: it is a reset
 * itself, which nothing answers. */
CL_API bool cl_tcp_segment_refuse(const struct cl_tcp_segment *s, struct cl_tcp_segment *reset);
// cffi: end

/* Nearly all headers have timestamps and nothing else: they take so many bytes, ... */
#define CL_TCP_USUAL_BYTES 32
#define CL_TCP_USUAL_OPTIONS 0x0101080au /* ... and then stand so: two fillers, the option (RFC 7323, appendix A) */

/* cl_tcp_segment_read, of a usual header in line. */
static inline bool cl_tcp_segment_take(const uint8_t *bytes, unsigned len, struct cl_tcp_segment *out)
{
    bool usual = len >= CL_TCP_USUAL_BYTES && bytes[12] >> 4 == CL_TCP_USUAL_BYTES / 4 &&
                 cl_get32(bytes + 20) == cl_be32(CL_TCP_USUAL_OPTIONS);
    if (cl_unlikely(!usual))
        return cl_tcp_segment_read(bytes, len, out);
    out->seq = cl_be32(cl_get32(bytes + 4));
    out->ack = cl_be32(cl_get32(bytes + 8));
    out->window = cl_be16(cl_get16(bytes + 14));
    out->urgent = cl_be16(cl_get16(bytes + 18));
    out->flags = bytes[13];
    out->header_len = CL_TCP_USUAL_BYTES;
    out->len = (uint16_t)(len - CL_TCP_USUAL_BYTES);
    out->ecn = 0;
    out->options.has = CL_TCPO_TIMES;
    out->options.wscale = out->options.n_sack = out->options.malformed = 0;
    out->options.mss = 0;
    out->options.ts_val = cl_be32(cl_get32(bytes + 24));
    out->options.ts_ecr = cl_be32(cl_get32(bytes + 28));
    return true;
}

/* cl_tcp_segment_write, of a usual header in line, from ports as they lie in one. *sum: the partial sum (runtime/net.h)
 * of the header, from the values and not from the bytes just stored, so that no narrow store is read back by a wider
 * load. */
static inline unsigned cl_tcp_segment_put(const struct cl_tcp_segment *s, uint16_t from_port_be, uint16_t to_port_be,
                                          uint8_t *bytes, uint64_t *sum)
{
    const struct cl_tcp_options *o = &s->options;
    if (cl_unlikely(o->has != CL_TCPO_TIMES || o->n_sack || s->urgent)) {
        unsigned len = cl_tcp_segment_write(s, cl_be16(from_port_be), cl_be16(to_port_be), bytes);
        *sum = cl_csum_add(0, bytes, len);
        return len;
    }
    const uint32_t words[8] = {cl_be32((uint32_t)cl_be16(from_port_be) << 16 | cl_be16(to_port_be)),
                               cl_be32(s->seq),
                               cl_be32(s->ack),
                               cl_be32(CL_TCP_USUAL_BYTES / 4u << 28 | (uint32_t)s->flags << 16 | s->window),
                               0, /* checksum, urgent pointer */
                               cl_be32(CL_TCP_USUAL_OPTIONS),
                               cl_be32(o->ts_val),
                               cl_be32(o->ts_ecr)};
    uint64_t all = 0;
#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; i++) {
        cl_put32(bytes + 4 * i, words[i]);
        all += words[i];
    }
    *sum = all;
    return CL_TCP_USUAL_BYTES;
}

/* How far a segment reaches in sequence numbers: SYN and FIN take one each (RFC 9293, section 3.3.1, SEG.LEN). */
static inline uint32_t cl_tcp_segment_space(const struct cl_tcp_segment *s)
{
    return s->len + !!(s->flags & CL_TCPF_SYN) + !!(s->flags & CL_TCPF_FIN);
}

#endif
