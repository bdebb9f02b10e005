/* Which port a connection goes out from (RFC 6056, section 3.3.3: a hash of where it goes, and a counter): of one peer
 * ports come one after the other and so rest as long as can be, and what is used for one tells nothing about
 * another. */
#ifndef CORELANE_LIBOS_NET_TCP_PORTS_H
#define CORELANE_LIBOS_NET_TCP_PORTS_H

#include "../flow_hash.h"

#define CL_TCP_FIRST_PORT 32768u
#define CL_TCP_PORTS 28232u /* up to 60999, as Linux has them */

/* The n-th port to try for the peer of key, one of `ports` from `from` on. Host byte order. */
static inline uint16_t cl_tcp_port_for(const struct cl_flow_secret *secret, const struct cl_flow_key *key, uint32_t n,
                                       uint32_t from, uint32_t ports)
{
    uint64_t first = (uint64_t)key->peer_be << 32 | key->own_be;
    uint64_t offset = cl_sip_two(secret, first, key->peer_port_be | 10ull << 56);
    return (uint16_t)(from + ((uint32_t)offset + (uint64_t)n) % ports);
}

#endif
