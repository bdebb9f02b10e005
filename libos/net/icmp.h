/* ICMP: echo replies and "port unreachable".
 *
 * Implemented: RFC 792 echo and echo reply (identifier, sequence and data returned as they came); destination
 * unreachable, code 3, with the offending header and 8 bytes, limited to a rate, and never about an ICMP message, a
 * broadcast or a fragment (RFC 1122, section 3.2.2). Errors that come (destination unreachable, time exceeded,
 * parameter problem) are told to the connected socket that has sent such a datagram, once, by errno: ports and
 * addresses of the header that they quote must be those of the socket (RFC 1122, section 4.1.3.3; RFC 5927, section 4).
 * Those about segments go to their connection (tcp/path.c).
 * Not implemented: sending echo requests, redirects, source quench (RFC 6633), timestamp; path MTU discovery for
 * datagrams beyond the errno; errors about datagrams of sockets that are not connected, and about segments of no
 * connection, which are counted (icmp_error) and dropped. */
#ifndef CORELANE_LIBOS_NET_ICMP_H
#define CORELANE_LIBOS_NET_ICMP_H

#include "ipv4.h"

#define CL_ICMP_UNREACHABLE 3
#define CL_ICMP_CODE_PORT 3
#define CL_ICMP_EXCEEDED 11
#define CL_ICMP_PARAMETER 12
#define CL_ICMP_PER_S 1000 /* errors a second and kthread, bursts of CL_ICMP_BURST (the order of Linux' own limit) */
#define CL_ICMP_BURST 50

/* Token bucket. Owner: one kthread. */
struct cl_icmp_limit {
    uint64_t last_ns;
    uint32_t tokens;
};

/* What an error message says of a datagram or segment that we sent. Addresses and ports as in memory. */
struct cl_icmp_about {
    uint32_t src_be, dst_be;
    uint16_t src_port_be, dst_port_be;
    int32_t error;      /* errno */
    uint16_t total_len; /* of the packet that it quotes */
    uint16_t mtu;       /* with EMSGSIZE: of the link that it does not fit into (RFC 1191, section 4); 0: not told */
    uint32_t seq;       /* of a segment */
    uint8_t protocol;   /* CL_IPPROTO_UDP, _TCP */
};

/* Validate an ICMP message. CL_DROP_NONE: an echo request to answer, or (*error) an error to look at; else the reason.
 * looped: we sent it ourselves. Only then it can be about a datagram to ourselves, for none of those ever leaves. */
unsigned cl_icmp_check(const struct cl_net_self *self, const uint8_t *icmp, unsigned len, bool broadcast, bool looped,
                       bool *error);

/* What a message says that cl_icmp_check called an error. */
void cl_icmp_read(const uint8_t *icmp, struct cl_icmp_about *out);

/* Whether an error may be sent now. */
bool cl_icmp_allow(struct cl_icmp_limit *limit, uint64_t now_ns);

/* Write the answer to the echo request in `frame` (parsed: info) into out (room bytes). Returns its length, 0 if it
 * does not fit. */
unsigned cl_icmp_echo_reply(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                            uint8_t *out, unsigned room);

/* Write "port unreachable" about the datagram in `frame` into out. Returns its length, 0 if it does not fit. */
unsigned cl_icmp_port_unreachable(const struct cl_net_self *self, const uint8_t *frame, const struct cl_rx_info *info,
                                  uint8_t *out, unsigned room);

#endif
