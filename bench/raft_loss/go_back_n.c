/* Go-back-N, as good as it can be: what Raft's channel is compared with. It has the channel's window, header bytes,
 * acknowledgements' times and timers (rtt.h). The receiver takes datagrams in order only and says what it misses; the
 * sender then goes back to that one.
 *
 * Each time that the sender goes back a pass begins, and every datagram has its number. A receiver that misses one says
 * in every acknowledgement in which pass: so a lost one is said again, one that is late does not make the sender go
 * back twice, and one that was lost in the new pass, too, is missed as soon as the next one comes. No implementation of
 * hardware knows that much.
 *
 *     0  u64 number; 0: an acknowledgement   8  u64 all up to this number were received   16  u32 pass   20  u32 the
 *     pass in which the next
 *    one is missed; 0: none is   24  u32 bytes of the frame; up to the channel's header there is nothing */
#include "side.h"
#include "../../apps/raft/transport/channel.h"
#include "../../apps/raft/core/bytes.h"
#include <stdlib.h>

#define HEADER RAFT_CHANNEL_HEADER
#define WINDOW RAFT_CHANNEL_WINDOW

struct slot {
    uint64_t at_ns; /* last */
    uint32_t bytes; /* of the frame */
    uint32_t times;
    uint8_t data[LOSS_DATAGRAM_BYTES];
};

struct go_back_n {
    struct loss_side side;
    /* Sending: first..next - 1 are kept, cursor is the next to go. */
    uint64_t first, next, cursor;
    uint32_t pass, probed; /* probed: since something was acknowledged */
    uint64_t sent_ns;      /* last */
    struct raft_rtt rtt;
    struct slot *slots;
    /* Receiving. */
    uint64_t got;       /* all up to it */
    uint32_t missed;    /* pass; 0: none */
    uint32_t unsaid;    /* datagrams since the last acknowledgement */
    uint64_t ack_at_ns; /* 0: none is due */
    struct loss_side_counts count;
};

static struct go_back_n *of(struct loss_side *side)
{
    return cl_container_of(side, struct go_back_n, side);
}

static struct slot *slot_of(const struct go_back_n *g, uint64_t number)
{
    return &g->slots[number % WINDOW];
}

static void emit(struct go_back_n *g, uint8_t *datagram, uint64_t number, uint32_t bytes, uint64_t now_ns)
{
    put64(datagram, number);
    put64(datagram + 8, g->got);
    put32(datagram + 16, g->pass);
    put32(datagram + 20, g->missed);
    put32(datagram + 24, bytes);
    loss_link_send(g->side.out, datagram, HEADER + bytes, now_ns);
    g->unsaid = 0;
    g->ack_at_ns = 0;
}

/* As much as the link has room for. */
static void fill_link(struct go_back_n *g, uint64_t now_ns)
{
    for (; g->cursor < g->next && loss_link_room_ns(g->side.out) <= now_ns; g->cursor++) {
        struct slot *s = slot_of(g, g->cursor);
        g->count.sent_again += s->times > 0;
        s->times++;
        s->at_ns = g->sent_ns = now_ns;
        emit(g, s->data, g->cursor, s->bytes, now_ns);
    }
}

static bool side_send(struct loss_side *side, const uint8_t *frame, uint32_t bytes, uint64_t now_ns)
{
    struct go_back_n *g = of(side);
    if (g->next - g->first == WINDOW)
        return false;
    struct slot *s = slot_of(g, g->next++);
    s->bytes = bytes;
    s->times = 0;
    memcpy(s->data + HEADER, frame, bytes);
    fill_link(g, now_ns);
    return true;
}

static void go_back(struct go_back_n *g)
{
    g->cursor = g->first;
    g->pass++;
}

static void on_ack(struct go_back_n *g, uint64_t got, uint32_t missed, uint64_t now_ns)
{
    const struct slot *newest = got >= g->first && got < g->next ? slot_of(g, got) : NULL;
    if (newest) {
        if (newest->times == 1)
            raft_rtt_sample(&g->rtt, now_ns - newest->at_ns);
        g->first = got + 1;
        g->probed = 0;
        g->rtt.backoff = 0; /* of a number that went twice no round trip is known, but that it came */
        g->cursor = cl_max(g->cursor, g->first);
    }
    if (missed == g->pass && got + 1 == g->first && g->first < g->cursor)
        go_back(g);
}

static void ack_by(struct go_back_n *g, uint64_t at_ns)
{
    g->ack_at_ns = g->ack_at_ns ? cl_min(g->ack_at_ns, at_ns) : at_ns;
}

static const uint8_t *side_receive(struct loss_side *side, const uint8_t *data, uint32_t bytes, uint64_t now_ns,
                                   uint32_t *frame_bytes)
{
    struct go_back_n *g = of(side);
    uint64_t number = get64(data);
    uint32_t pass = get32(data + 16);
    (void)bytes;
    on_ack(g, get64(data + 8), get32(data + 20), now_ns);
    if (!number)
        return NULL;
    bool in_order = number == g->got + 1, twice = number <= g->got;
    g->count.duplicates += twice;
    g->got += in_order;
    if (!twice)
        g->missed = in_order ? 0 : pass;
    bool soon = ++g->unsaid >= RAFT_CHANNEL_ACK_EVERY || twice || g->missed;
    ack_by(g, soon ? now_ns : now_ns + RAFT_ACK_DELAY_NS);
    *frame_bytes = get32(data + 24);
    return in_order ? data + HEADER : NULL;
}

static uint64_t resend_at(const struct go_back_n *g)
{
    bool gone = g->first < g->cursor;
    return gone ? slot_of(g, g->first)->at_ns + raft_rtt_timeout_ns(&g->rtt) : UINT64_MAX;
}

static uint64_t probe_at(const struct go_back_n *g)
{
    uint64_t ns = raft_rtt_probe_ns(&g->rtt, g->probed);
    bool may = g->first < g->cursor && ns < raft_rtt_timeout_ns(&g->rtt);
    return may ? g->sent_ns + ns : UINT64_MAX;
}

static uint64_t side_poll(struct loss_side *side, uint64_t now_ns)
{
    struct go_back_n *g = of(side);
    if (now_ns >= resend_at(g)) {
        g->count.timeouts++;
        raft_rtt_double(&g->rtt);
        go_back(g);
    }
    if (now_ns >=
        probe_at(g)) { /* all of it: there may be nothing behind one, by which the receiver would miss the next */
        g->count.probes++;
        g->probed++;
        go_back(g);
    }
    fill_link(g, now_ns);
    if (g->ack_at_ns && now_ns >= g->ack_at_ns) {
        uint8_t datagram[HEADER] = {0};
        emit(g, datagram, 0, 0, now_ns);
    }
    uint64_t next = cl_min(resend_at(g), probe_at(g));
    if (g->cursor < g->next)
        next = cl_min(next, loss_link_room_ns(g->side.out));
    return g->ack_at_ns ? cl_min(next, g->ack_at_ns) : next;
}

static struct loss_side_counts side_counts(const struct loss_side *side)
{
    return cl_container_of(side, const struct go_back_n, side)->count;
}

static void side_end(struct loss_side *side)
{
    free(of(side)->slots);
    free(of(side));
}

struct loss_side *loss_go_back_n_new(struct loss_link *link)
{
    struct go_back_n *g = malloc(sizeof(*g));
    if (!g)
        return NULL;
    *g = (struct go_back_n){.side = {side_send, side_receive, side_poll, side_counts, side_end, link},
                            .first = 1,
                            .next = 1,
                            .cursor = 1,
                            .pass = 1};
    g->slots = calloc(WINDOW, sizeof(*g->slots));
    if (g->slots)
        return &g->side;
    side_end(&g->side);
    return NULL;
}
