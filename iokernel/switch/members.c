/* See members.h. */
#include "members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define ICMP_ECHO 8 /* RFC 792 */

/* Every bit of the result depends on every bit of x (the finalizer of MurmurHash3, Appleby). */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

int io_group_enter(struct cl_io *io, struct io_app *app, const struct cl_io_app_config *config, char *err)
{
    struct io_group *group = NULL;
    for (const struct io_app *a = io->apps; a && !group; a = a->next)
        if (a->group && a->mac == app->mac) {
            group = a->group;
            if (a->loop != app->loop)
                return snprintf(err, IO_ERR_BYTES, "the group is of loop %u", a->loop), -EINVAL;
        }
    if (!group) {
        group = calloc(1, sizeof *group);
        if (!group)
            return snprintf(err, IO_ERR_BYTES, "out of memory for a group"), -ENOMEM;
        group->key = io->config.flow_key;
        while (group->key == 0)
            if (getrandom(&group->key, sizeof group->key, 0) < 0 && errno != EINTR) {
                int code = errno;
                free(group);
                return snprintf(err, IO_ERR_BYTES, "getrandom: %s", strerror(code)), -code;
            }
    }
    uint32_t most = cl_min(config->members, (uint32_t)CL_IO_MAX_MEMBERS), place = config->place - 1;
    if (place >= most || group->taken >> place & 1)
        place = (uint32_t)__builtin_ctz(~group->taken);
    if (place >= most)
        return snprintf(err, IO_ERR_BYTES, "the group has %u members already, as many as it may", most), -ENOSPC;
    group->taken |= 1u << place;
    app->group = group;
    app->place = place;
    return 0;
}

void io_group_leave(struct io_app *app)
{
    app->group->taken &= ~(1u << app->place);
    if (app->group->taken == 0)
        free(app->group);
    app->group = NULL;
}

static unsigned rank_of(const struct io_app *app)
{
    return 2u * app->ready + !app->draining;
}

/* Deal the slots anew. Sixteen members take some 4000 hashes: ten microseconds, once in each change. */
static void deal(struct io_group *group)
{
    unsigned best = 0;
    for (uint32_t m = 0; m < CL_IO_MAX_MEMBERS; m++)
        if (group->members[m])
            best = cl_max(best, rank_of(group->members[m]));
    for (uint32_t slot = 0; slot < IO_GROUP_SLOTS; slot++) {
        uint64_t most = 0;
        for (uint32_t m = 0; m < CL_IO_MAX_MEMBERS; m++) {
            const struct io_app *app = group->members[m];
            if (!app || rank_of(app) != best)
                continue;
            uint64_t weight = mix(group->key ^ ((uint64_t)app->id << 32 | slot)) | 1;
            if (weight > most) {
                most = weight;
                group->slots[slot] = (uint8_t)m;
            }
        }
    }
}

void io_member_add(struct io_app *app)
{
    app->group->members[app->place] = app;
    deal(app->group);
}

void io_member_remove(struct io_app *app)
{
    app->group->members[app->place] = NULL;
    deal(app->group);
}

void io_member_say(struct io_app *app, uint32_t state)
{
    app->ready |= state == CL_MEMBER_READY;
    app->draining = state == CL_MEMBER_DRAINING;
    deal(app->group);
}

/* What of a frame decides who gets it. */
struct flow {
    uint64_t hash;
    uint16_t to_port; /* 0: it has none */
    bool for_all;
};

static inline struct flow flow_of(const struct io_group *group, const uint8_t *header, uint32_t len)
{
    struct flow flow = {.for_all = true};
    len = cl_min(len, (uint32_t)IO_HEADER);
    if (cl_get16(header + 12) != cl_be16(CL_ETHERTYPE_IPV4) || len < CL_ETH_HLEN + CL_IPV4_HLEN)
        return flow;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(header + CL_ETH_HLEN);
    uint32_t l4 = CL_ETH_HLEN + (ip->version_ihl & 15) * 4u, ports = 0;
    bool whole = (ip->frag_be & cl_be16(CL_IPV4_MF | CL_IPV4_OFFSET_MASK)) == 0;
    if (ip->proto == CL_IPPROTO_ICMP && whole && (l4 >= len || header[l4] != ICMP_ECHO))
        return flow;
    flow.for_all = false;
    if (whole && (ip->proto == CL_IPPROTO_UDP || ip->proto == CL_IPPROTO_TCP) && l4 + 4 <= len) {
        ports = cl_get32(header + l4);
        flow.to_port = cl_be16(cl_get16(header + l4 + 2));
    }
    /* All of them are to one address. */
    flow.hash = mix(group->key ^ ((uint64_t)ip->src_be << 32 | ports)) + ip->proto;
    return flow;
}

static inline struct io_app *member_of(const struct io_group *group, const struct flow *flow)
{
    uint32_t place = (uint32_t)(flow->to_port - CL_SHM_OWN_PORTS) / CL_SHM_MEMBER_PORTS;
    if (flow->to_port >= CL_SHM_OWN_PORTS && group->members[place])
        return group->members[place];
    return group->members[group->slots[mix(flow->hash) >> 56]];
}

CL_HOT void io_deliver_to_group(struct io_loop *loop, const struct io_group *group, const struct io_frame *f)
{
    const struct flow flow = flow_of(group, f->header, f->len);
    if (cl_likely(!flow.for_all)) {
        io_deliver(loop, member_of(group, &flow), f);
        return;
    }
    for (uint32_t m = 0; m < CL_IO_MAX_MEMBERS; m++)
        if (group->members[m])
            io_deliver(loop, group->members[m], f);
}
