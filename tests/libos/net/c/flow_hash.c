/* The inline functions of net/flow_hash.h for tests/libos/net/test_flow_hash.py. */
#include "libos/net/flow_hash.h"

static struct cl_flow_key key_of(uint32_t peer, uint16_t peer_port, uint32_t own, uint16_t own_port, uint32_t protocol)
{
    return (struct cl_flow_key){.peer_be = cl_be32(peer),
                                .own_be = cl_be32(own),
                                .peer_port_be = cl_be16(peer_port),
                                .own_port_be = cl_be16(own_port),
                                .protocol = protocol};
}

/* Addresses and ports in host byte order. */
CL_API uint64_t flow_hash(uint64_t k0, uint64_t k1, uint32_t peer, uint16_t peer_port, uint32_t own, uint16_t own_port,
                          uint32_t protocol)
{
    const struct cl_flow_secret secret = {k0, k1};
    const struct cl_flow_key key = key_of(peer, peer_port, own, own_port, protocol);
    return cl_flow_hash(&secret, &key);
}

CL_API uint64_t flow_hash_in(uint64_t k0, uint64_t k1, uint32_t peer, uint16_t peer_port, uint32_t own,
                             uint16_t own_port, uint32_t protocol)
{
    const struct cl_flow_secret secret = {k0, k1};
    const struct cl_flow_key key = key_of(peer, peer_port, own, own_port, protocol);
    return cl_flow_hash_in(&secret, &key);
}
