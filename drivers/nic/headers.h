/* The headers of a TCP segment as one overlay, for who loads or answers without a stack; and how a frame is turned
 * round. */
#ifndef CORELANE_DRIVERS_NIC_HEADERS_H
#define CORELANE_DRIVERS_NIC_HEADERS_H

#include "../../runtime/net.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10
#define NOPS_TIMES 0x0101080au /* two fillers, kind and length of timestamps */
#define PLAIN_BYTES 54         /* Ethernet, IPv4, TCP without options */
#define TIMES_BYTES 12         /* options of a segment with timestamps */

struct head {
    struct cl_eth eth;
    struct cl_ipv4 ip;
    uint16_t src_be, dst_be;
    uint32_t seq_be, ack_be;
    uint16_t offset_be; /* and flags */
    uint16_t window_be, check, urgent_be;
    uint8_t options[20]; /* room for those of a SYN */
} CL_PACKED;
_Static_assert(offsetof(struct head, options) == PLAIN_BYTES, "as on the wire");

/* The addresses of a frame, and the ports, which of a datagram stand at the same place, change places. */
static inline void turn_addresses(void *frame)
{
    struct head *h = frame;
    uint8_t mac[6];
    memcpy(mac, h->eth.dst, 6);
    memcpy(h->eth.dst, h->eth.src, 6);
    memcpy(h->eth.src, mac, 6);
    uint32_t ip_be = h->ip.src_be;
    h->ip.src_be = h->ip.dst_be;
    h->ip.dst_be = ip_be;
    uint16_t port_be = h->src_be;
    h->src_be = h->dst_be;
    h->dst_be = port_be;
}

#endif
