/* The channel (../channel.h) between simulated real nodes, in those worlds that have it: what it gives to the network
 * is what is lost, doubled and late there. */
#include "real.h"
#include <errno.h>
#include <stdlib.h>

#define MTU 600         /* a frame of a few entries is in pieces */
#define FRAME_MAX 70000 /* message_bytes, and what is around it */

/* A node's datagram goes onto the network; also its frames, where there is no channel. */
bool real_post(struct real *r, uint32_t to, const uint8_t *data, uint32_t bytes)
{
    struct sim_packet *p = to && to <= r->world->n_nodes && to != r->owner->id ? sim_packet(r->world, bytes) : NULL;
    if (!p) {
        sim_fail(r->world, "#%u sends a frame to #%u", r->owner->id, to);
        return false;
    }
    memcpy(p->data, data, bytes);
    sim_send(r->world, r->owner->slot, to - 1, p);
    return true;
}

static int64_t post_datagram(void *arg, uint32_t index, const uint8_t *datagram, uint32_t bytes)
{
    struct real *r = arg;
    return real_post(r, r->channel->peers[index].id, datagram, bytes) ? (int64_t)bytes : -EIO;
}

int real_channel_new(struct real *r)
{
    struct sim_world *w = r->world;
    struct sim_node *n = r->owner;
    int rc = 0;
    r->channel = w->swarm.channel ? malloc(sizeof(*r->channel)) : NULL;
    if (!w->swarm.channel)
        return 0;
    if (!r->channel)
        return -ENOMEM;
    raft_channel_init(r->channel, n->id, sim_mix(w->swarm.config.seed ^ ((uint64_t)n->epoch * SIM_NODES + n->id)) | 1,
                      MTU);
    r->channel->send = post_datagram;
    r->channel->arg = r;
    for (uint32_t i = 0; !rc && i < w->n_nodes; i++)
        if (i != n->slot)
            rc = raft_channel_add(r->channel, i + 1, FRAME_MAX);
    return rc;
}

void real_channel_delete(struct real *r)
{
    if (!r->channel)
        return;
    for (uint32_t i = 0; i < r->channel->n_peers; i++)
        r->world->result->datagrams_sent_again += r->channel->peers[i].count.retransmitted;
    raft_channel_free(r->channel);
    free(r->channel);
    r->channel = NULL;
}
