/* TCP without connections: what is looked at in every segment, and the answer to those that are of none. Connections:
 * tcp/.
 *
 * Implemented: validation of a segment's header and checksum; the reset that answers one to a closed connection (RFC
 * 9293, section 3.10.7.1 and 3.5.2), limited to a rate, and never to a reset, a broadcast or a segment that is
 * wrong. */
#ifndef CORELANE_LIBOS_NET_TCP_H
#define CORELANE_LIBOS_NET_TCP_H

#include "ipv4.h"
#include "segment.h"

#define CL_TCP_HLEN 20
#define CL_TCP_ANSWER_MOST (CL_ETH_HLEN + CL_IPV4_HLEN + CL_TCP_HLEN + CL_TCP_MAX_OPTIONS)
#define CL_TCP_FIN 0x01
#define CL_TCP_SYN 0x02
#define CL_TCP_RST 0x04
#define CL_TCP_ACK 0x10

struct cl_tcp {
    uint16_t src_port_be, dst_port_be;
    uint32_t seq_be, ack_be;
    uint8_t offset; /* of the data, in words of 4 bytes, in the upper half */
    uint8_t flags;
    uint16_t window_be, check, urgent_be;
} CL_PACKED;
_Static_assert(sizeof(struct cl_tcp) == CL_TCP_HLEN, "RFC 9293, section 3.1");

/* Validate the segment of `len` bytes (IP payload). CL_DROP_NONE, or the reason. */
unsigned cl_tcp_check(const struct cl_net_self *self, const struct cl_ipv4 *ip, const uint8_t *segment, unsigned len);

/* Write a segment without data that answers the one in `frame` (parsed: info) into out, of CL_TCP_ANSWER_MOST bytes.
 * Returns the length of the frame. */
unsigned cl_tcp_answer(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                       const struct cl_tcp_segment *answer, uint8_t *out);
/* The same of the reset to a segment of no connection. 0: nothing may answer that one. */
unsigned cl_tcp_reset(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                      uint8_t *out);

#endif
