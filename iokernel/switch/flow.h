/* The flow of a frame, by which a group's switch chooses a member (members.h); and a note of what a member is asked. */
#ifndef CORELANE_IOKERNEL_SWITCH_FLOW_H
#define CORELANE_IOKERNEL_SWITCH_FLOW_H

#include "members.h"

#define ICMP_ECHO 8 /* RFC 792 */

/* Every bit of the result depends on every bit of x (the finalizer of MurmurHash3, Appleby). */
static inline uint64_t io_mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

/* What of a frame decides who gets it. */
struct io_flow {
    uint64_t hash;
    uint32_t from_be, ports; /* source address; both ports as in the header, 0: it has none */
    bool for_all, tcp;
};

static inline struct io_flow io_flow_of(const struct io_group *group, const uint8_t *header, uint32_t len)
{
    struct io_flow flow = {.for_all = true};
    len = cl_min(len, (uint32_t)IO_HEADER);
    if (cl_get16(header + 12) != cl_be16(CL_ETHERTYPE_IPV4) || len < CL_ETH_HLEN + CL_IPV4_HLEN)
        return flow;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(header + CL_ETH_HLEN);
    uint32_t l4 = CL_ETH_HLEN + (ip->version_ihl & 15) * 4u;
    bool whole = (ip->frag_be & cl_be16(CL_IPV4_MF | CL_IPV4_OFFSET_MASK)) == 0;
    if (ip->proto == CL_IPPROTO_ICMP && whole && (l4 >= len || header[l4] != ICMP_ECHO))
        return flow;
    flow.for_all = false;
    flow.from_be = ip->src_be;
    if (whole && (ip->proto == CL_IPPROTO_UDP || ip->proto == CL_IPPROTO_TCP) && l4 + 4 <= len) {
        flow.ports = cl_get32(header + l4);
        flow.tcp = ip->proto == CL_IPPROTO_TCP;
    }
    /* All of them are to one address. */
    flow.hash = io_mix(io_mix(group->key ^ ((uint64_t)flow.from_be << 32 | flow.ports)) + ip->proto);
    return flow;
}

/* The receiver of a frame is asked about it, and has it in this buffer now. */
static inline void io_note_asking(struct io_app *app, uint32_t buffer, const struct io_frame *f)
{
    const struct io_flow flow = io_flow_of(app->group, f->header, f->len);
    app->asking[buffer] = (struct io_asking){
        .from = io_mac(f->header + 6) | (uint64_t)f->asked << 48, .from_be = flow.from_be, .ports = flow.ports};
    app->lent[buffer] = IO_LENT_ASKS;
}

#endif
