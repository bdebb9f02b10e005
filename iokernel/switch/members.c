/* See members.h. */
#include "members.h"

#include "flow.h"
#include "kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

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
    app->asking = calloc(app->n_rx, sizeof *app->asking);
    return app->asking ? 0 : (snprintf(err, IO_ERR_BYTES, "out of memory for a member's buffers"), -ENOMEM);
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
        uint8_t had = group->slots[slot];
        for (uint32_t m = 0; m < CL_IO_MAX_MEMBERS; m++) {
            const struct io_app *app = group->members[m];
            if (!app || rank_of(app) != best)
                continue;
            uint64_t weight = io_mix(group->key ^ ((uint64_t)app->id << 32 | slot)) | 1;
            if (weight > most) {
                most = weight;
                group->slots[slot] = (uint8_t)m;
            }
        }
        if (had != group->slots[slot] && group->members[had])
            group->before[slot] |= (uint16_t)(1u << had);
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
    for (uint32_t slot = 0; slot < IO_GROUP_SLOTS; slot++)
        app->group->before[slot] &= (uint16_t) ~(1u << app->place);
    deal(app->group);
}

void io_member_say(struct io_app *app, uint32_t state)
{
    app->ready |= state == CL_MEMBER_READY;
    app->draining = state == CL_MEMBER_DRAINING;
    deal(app->group);
}

static inline uint32_t slot_of(const struct io_flow *flow)
{
    return (uint32_t)(flow->hash >> 56);
}
_Static_assert(IO_GROUP_SLOTS == 256, "eight bits of a hash");

/* Whose answer it is, by the port that he has chosen; NULL: nobody's. */
static inline struct io_app *asker_of(const struct io_group *group, const struct io_flow *flow)
{
    uint32_t to_port = cl_be16((uint16_t)(flow->ports >> 16)); /* the second in the header */
    return cl_unlikely(to_port >= CL_SHM_OWN_PORTS) ? group->members[(to_port - CL_SHM_OWN_PORTS) / CL_SHM_MEMBER_PORTS]
                                                    : NULL;
}

/* To the member with this place, which is one of those that were asked; 0: it is not. */
static void deliver_to(struct io_loop *loop, const struct io_group *group, uint32_t place, const struct io_frame *f,
                       uint32_t asked)
{
    struct io_frame it = *f;
    it.asked = (uint16_t)asked;
    io_deliver(loop, group->members[place], &it);
}

CL_HOT void io_deliver_to_group(struct io_loop *loop, const struct io_group *group, const struct io_frame *f)
{
    const struct io_flow flow = io_flow_of(group, f->header, f->len);
    uint32_t slot = slot_of(&flow), place = group->slots[slot];
    struct io_app *asker = asker_of(group, &flow);
    if (cl_unlikely(flow.for_all)) {
        for (uint32_t m = 0; m < CL_IO_MAX_MEMBERS; m++)
            if (group->members[m])
                io_deliver(loop, group->members[m], f);
    } else if (asker) {
        io_deliver(loop, asker, f);
    } else {
        bool others = flow.tcp && group->before[slot] & ~(1u << place);
        deliver_to(loop, group, place, f, cl_unlikely(others) ? 1u << place : 0);
    }
}

bool io_hand_on(struct io_loop *loop, struct io_app *app, uint32_t buffer, const struct io_frame *f)
{
    struct io_group *group = app->group;
    const struct io_asking *asking = &app->asking[buffer];
    const struct io_flow flow = io_flow_of(group, f->header, f->len);
    uint64_t from = io_mac(f->header + 6);
    if (io_mac(f->header) != app->mac || from != (asking->from & IO_BROADCAST) || !flow.tcp ||
        flow.from_be != asking->from_be || flow.ports != asking->ports || io_ipv4_target(f->header) != app->ip_be)
        return false;
    uint32_t slot = slot_of(&flow), place = group->slots[slot], asked = (uint32_t)(asking->from >> 48);
    uint32_t left = (group->before[slot] | 1u << place) & ~asked;
    if (left && !(left >> place & 1))
        place = (uint32_t)__builtin_ctz(left);
    deliver_to(loop, group, place, f, left ? asked | 1u << place : 0);
    io_count(app->stats.tx_handed_on, 1);
    io_count(app->stats.tx_bytes, f->len);
    return true;
}
