/* A segment: its header and options, as bytes and as fields (RFC 9293, section 3.1 and 3.2).
 *
 * Options known: end, no-operation, maximum segment size (9293), window scale and timestamps (7323), SACK permitted and
 * SACK (2018). Others are skipped by their length (9293, MUST-6). An option whose length is wrong ends the parsing:
 * what before it counts, the rest is ignored (MUST-7), and `malformed` says so.
 *
 * Pure functions of bytes. They read nothing beyond `len` and do not check ports, checksum or addresses: tcp.c does. */
#ifndef CORELANE_LIBOS_NET_SEGMENT_H
#define CORELANE_LIBOS_NET_SEGMENT_H

#include <corelane/runtime/base.h>

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

/* The same from ports as they lie in a header, and *sum: the partial sum (runtime/net.h) of the header, from the values
 * and not from the bytes just stored, so that no narrow store is read back by a wider load. */
unsigned cl_tcp_segment_write_summed(const struct cl_tcp_segment *s, uint16_t from_port_be, uint16_t to_port_be,
                                     uint8_t *bytes, uint64_t *sum);

/* How far a segment reaches in sequence numbers: SYN and FIN take one each (RFC 9293, section 3.3.1, SEG.LEN). */
static inline uint32_t cl_tcp_segment_space(const struct cl_tcp_segment *s)
{
    return s->len + !!(s->flags & CL_TCPF_SYN) + !!(s->flags & CL_TCPF_FIN);
}

#endif
