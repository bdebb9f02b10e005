/* The delivery rate: bytes a second that have come at the peer, measured over a round trip while more than one segment
 * is under way (Cheng, Cardwell, Hassas Yeganeh and Jacobson, draft-cheng-iccrg-delivery-rate-estimation-02, whose
 * samples are of each acknowledgement: here one is taken when all is acknowledged that was under way when the one
 * before was, so that no segment has to remember more).
 *
 * What the application held back says nothing of the path: such a round trip counts only if its rate is higher. A
 * connection has a byte for it, since an idle one is to take no more: a number of four bits, and how far it is
 * shifted. */
#include "machine.h"

#define NS_PER_S 1000000000ull
#define LEAST 8 /* the first of the four bits is always set */

/* The nearest of the rates that a byte tells, and not 0. */
static uint8_t packed(uint64_t rate)
{
    unsigned shift = 0;
    while (rate >> shift >= 2 * LEAST)
        shift++;
    uint64_t bits = shift ? ((rate >> (shift - 1)) + 1) / 2 : cl_max(rate, (uint64_t)LEAST);
    if (bits == 2 * LEAST) {
        bits = LEAST;
        shift++;
    }
    return (uint8_t)cl_min(cl_max(LEAST * shift + (unsigned)bits - LEAST, 1u), (unsigned)UINT8_MAX);
}

uint64_t cl_tcp_delivery_rate(const struct cl_tcp_conn *c)
{
    return c->delivery ? (LEAST + c->delivery % LEAST + 0ull) << c->delivery / LEAST : 0;
}

static uint32_t delivered(const struct cl_tcp_conn *c)
{
    return c->una + cl_tcp_board_sacked(c);
}

struct cl_tcp_round cl_tcp_round_now(struct cl_tcp_conn *c, uint32_t before)
{
    struct cl_tcp_walk w;
    if (!c->board || c->board->all.round.since_ns)
        return c->board ? c->board->all.round : (struct cl_tcp_round){0};
    const struct cl_tcp_record *oldest = cl_tcp_walk_first(c, &w);
    if (oldest->flags & CL_TCP_RECORD_AGAIN) /* when it left first nobody knows any more */
        return (struct cl_tcp_round){0};
    return (struct cl_tcp_round){
        .since_ns = oldest->sent_ns, .delivered = before, .end = c->nxt, .limited = cl_tcp_has_left(c)};
}

/* What is quicker than the path has ever been was sent again, and what came is the first copy. */
static void measure(struct cl_tcp_conn *c, const struct cl_tcp_round *round)
{
    uint64_t took_ns = c->turn->now_ns - round->since_ns;
    int32_t came = (int32_t)(delivered(c) - round->delivered); /* below 0: the peer has thrown something away */
    if (came <= 0 || took_ns == 0 || took_ns < c->rtt.least_ns)
        return;
    uint8_t rate = packed((uint64_t)came * NS_PER_S / took_ns);
    if (rate > c->delivery || !(round->limited || cl_tcp_has_left(c)))
        c->delivery = rate;
}

void cl_tcp_round_acked(struct cl_tcp_conn *c, const struct cl_tcp_round *round)
{
    if (round->since_ns == 0)
        return;
    bool over = cl_seq_upto(round->end, c->una);
    if (over)
        measure(c, round);
    if (!c->board)
        return;
    c->board->all.round =
        !over
            ? *round
            : (struct cl_tcp_round){
                  .since_ns = c->turn->now_ns, .delivered = delivered(c), .end = c->nxt, .limited = cl_tcp_has_left(c)};
}
