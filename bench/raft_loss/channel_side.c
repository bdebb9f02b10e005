/* Raft's channel as a side. */
#include "side.h"
#include "../../apps/raft/transport/channel.h"
#include <stdlib.h>

#define MTU (LOSS_DATAGRAM_BYTES + 28)

struct channel_side {
    struct loss_side side;
    struct raft_channel channel;
    uint32_t other;
    uint64_t now_ns;
};

static struct channel_side *of(struct loss_side *side)
{
    return cl_container_of(side, struct channel_side, side);
}

static int64_t out(void *arg, uint32_t index, const uint8_t *datagram, uint32_t bytes)
{
    struct channel_side *c = arg;
    (void)index;
    return loss_link_send(c->side.out, datagram, bytes, c->now_ns);
}

static bool side_send(struct loss_side *side, const uint8_t *frame, uint32_t bytes, uint64_t now_ns)
{
    struct channel_side *c = of(side);
    c->now_ns = now_ns;
    return raft_channel_send(&c->channel, c->other, frame, bytes, true, now_ns);
}

static const uint8_t *side_receive(struct loss_side *side, const uint8_t *data, uint32_t bytes, uint64_t now_ns,
                                   uint32_t *frame_bytes)
{
    struct channel_side *c = of(side);
    c->now_ns = now_ns;
    return raft_channel_receive(&c->channel, data, bytes, now_ns, frame_bytes);
}

static uint64_t side_poll(struct loss_side *side, uint64_t now_ns)
{
    struct channel_side *c = of(side);
    c->now_ns = now_ns;
    return raft_channel_poll(&c->channel, now_ns);
}

static struct loss_side_counts side_counts(const struct loss_side *side)
{
    const struct raft_channel_counters *c =
        &cl_container_of(side, const struct channel_side, side)->channel.peers[0].count;
    return (struct loss_side_counts){.sent_again = c->retransmitted,
                                     .timeouts = c->timeouts,
                                     .probes = c->probes,
                                     .duplicates = c->duplicates,
                                     .given_up = c->given_up};
}

static void side_end(struct loss_side *side)
{
    raft_channel_free(&of(side)->channel);
    free(of(side));
}

struct loss_side *loss_channel_new(uint32_t id, struct loss_link *link)
{
    struct channel_side *c = malloc(sizeof(*c));
    if (!c)
        return NULL;
    *c = (struct channel_side){.side = {side_send, side_receive, side_poll, side_counts, side_end, link},
                               .other = 3 - id};
    raft_channel_init(&c->channel, id, id, MTU);
    c->channel.send = out;
    c->channel.arg = c;
    if (!raft_channel_add(&c->channel, c->other, LOSS_DATAGRAM_BYTES))
        return &c->side;
    side_end(&c->side);
    return NULL;
}
