/* Frames of the load generator: prebuilt requests, and ARP for its own addresses and for the server's (RFC 826). */
#include "engine.h"

#include "arp.h"

#include <stdlib.h>

int cl_shape_build(struct cl_loadgen *lg, struct cl_shape *shape, const uint8_t *payload, uint32_t payload_len)
{
    const struct cl_loadgen_config *c = &lg->config;
    shape->len = CL_UDP_HEADERS + payload_len;
    shape->tail_lines = shape->len > 64 ? (shape->len - 1) / 64 : 0;
    size_t padded = 64 * ((size_t)shape->tail_lines + 1);
    uint8_t *whole = aligned_alloc(64, padded);
    shape->heads = aligned_alloc(64, (size_t)c->flows * 64);
    shape->sums = malloc(c->flows * sizeof(*shape->sums));
    shape->tail = aligned_alloc(64, padded);
    if (!whole || !shape->heads || !shape->sums || !shape->tail) {
        free(whole);
        cl_shape_free(shape);
        return -ENOMEM;
    }
    memset(whole, 0, padded);
    memcpy(whole + CL_UDP_HEADERS, payload, payload_len);
    for (uint32_t flow = 0; flow < c->flows; flow++) {
        struct cl_udp_frame *f = (struct cl_udp_frame *)whole;
        cl_udp_headers(f, c->mac, c->server_mac, lg->ip + (flow & (c->ips - 1)), c->server_ip,
                       (uint16_t)(c->first_port + flow), c->server_port, (uint16_t)payload_len);
        memcpy(shape->heads[flow], whole, 64);
        uint64_t pseudo =
            cl_csum_pseudo(f->ip.src_be, f->ip.dst_be, CL_IPPROTO_UDP, (uint16_t)(payload_len + CL_UDP_HLEN));
        shape->sums[flow] = cl_csum_add(pseudo, &f->udp, CL_UDP_HLEN);
    }
    memcpy(shape->tail, whole + 64, padded - 64);
    free(whole);
    return 0;
}

void cl_shape_resolve(struct cl_loadgen *lg, struct cl_shape *shape)
{
    for (uint32_t flow = 0; shape->heads && flow < lg->config.flows; flow++)
        memcpy(shape->heads[flow], lg->config.server_mac, 6);
}

void cl_shape_free(struct cl_shape *shape)
{
    free(shape->heads);
    free(shape->sums);
    free(shape->tail);
    *shape = (struct cl_shape){0};
}

/* Answers owed, and the question for the server's address when its time has come. */
unsigned cl_wire_arp(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n)
{
    unsigned k = 0;
    while (k < n && lg->n_arp) {
        const struct cl_arp_answer *a = &lg->arp[--lg->n_arp];
        cl_load_arp_write(&frames[k++], lg->config.mac, CL_ARP_REPLY, a->mac, a->ip_be, a->own_ip_be);
        cl_count(&lg->other.arp_answered, 1);
    }
    if (k < n && cl_state(lg) == CL_LOAD_RESOLVING && now >= lg->arp_next_tsc) {
        cl_load_arp_write(&frames[k++], lg->config.mac, CL_ARP_REQUEST, NULL, lg->server_ip_be, cl_be32(lg->ip));
        cl_count(&lg->other.arp_requests, 1);
        lg->arp_next_tsc =
            now + (uint64_t)cl_ns_to_ticks(lg->clock, 100000000); /* RFC 1122, 2.3.2.1 allows one a second */
        lg->arp_next_tsc = cl_min(lg->arp_next_tsc, lg->arp_until_tsc);
    }
    return k;
}

static void server_found(struct cl_loadgen *lg, const uint8_t *mac)
{
    memcpy(lg->config.server_mac, mac, 6);
    cl_shape_resolve(lg, &lg->echo.request);
    cl_shape_resolve(lg, &lg->memcached.get);
    cl_shape_resolve(lg, &lg->memcached.set);
    lg->resolved = true;
}

static bool take_arp(struct cl_loadgen *lg, const struct cl_frame *frame)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame->data;
    const struct cl_arp *arp = (const struct cl_arp *)(eth + 1);
    if (frame->len < sizeof(*eth) + sizeof(*arp) || eth->type_be != cl_be16(CL_ETHERTYPE_ARP) ||
        arp->htype_be != cl_be16(1) || arp->ptype_be != cl_be16(CL_ETHERTYPE_IPV4) || arp->hlen != 6 || arp->plen != 4)
        return false;
    uint32_t mine = cl_be32(arp->target_ip_be) - lg->ip;
    if (arp->sender_ip_be == lg->server_ip_be && !lg->resolved && !cl_mac_is_group(arp->sender_mac))
        server_found(lg, arp->sender_mac);
    if (arp->op_be == cl_be16(CL_ARP_REQUEST) && mine < lg->config.ips && lg->n_arp < CL_ARP_QUEUE) {
        struct cl_arp_answer *a = &lg->arp[lg->n_arp++];
        memcpy(a->mac, arp->sender_mac, 6);
        a->ip_be = arp->sender_ip_be;
        a->own_ip_be = arp->target_ip_be;
    }
    return true;
}

void cl_wire_other(struct cl_loadgen *lg, const struct cl_frame *frame)
{
    if (!take_arp(lg, frame))
        cl_count(&lg->other.foreign, 1);
}
