/* DCTCP (RFC 8257): an estimate of how many bytes meet a mark, by windows; a window with marks falls by half of that
 * share. A loss falls by half, as ever. Integer arithmetic: alpha in 1/1024. */
#include "cc.h"

#define ONE 1024u
#define GAIN_BITS 4 /* g = 1/16 (section 4.2) */

static void init(struct cl_tcp_cc *cc)
{
    cc->watches = true;
    cc->of.dctcp.begun = false;
    cc->of.dctcp.acked = cc->of.dctcp.marked = 0;
    cc->of.dctcp.alpha = ONE; /* section 4.2: cautious until the first window was seen */
}

static void saw(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack)
{
    cc->of.dctcp.acked += ack->acked;
    cc->of.dctcp.marked += ack->marked;
    if ((cc->of.dctcp.begun && cl_seq_before(ack->una, cc->of.dctcp.until)) || cc->of.dctcp.acked == 0)
        return;
    uint32_t share = (uint32_t)((uint64_t)ONE * cc->of.dctcp.marked / cc->of.dctcp.acked), alpha = cc->of.dctcp.alpha;
    /* A decay that rounds to nothing would leave a rest for ever. */
    uint32_t decay = alpha >> GAIN_BITS ? alpha >> GAIN_BITS : alpha;
    cc->of.dctcp.alpha = cl_min(alpha - decay + (share >> GAIN_BITS), ONE);
    cc->of.dctcp.acked = cc->of.dctcp.marked = 0;
    cc->of.dctcp.until = ack->nxt;
    cc->of.dctcp.begun = true;
}

static void grow(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack)
{
    cl_tcp_newreno.grow(cc, ack);
}

static uint32_t fall(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn)
{
    (void)now_ns;
    return ecn ? cc->window - (uint32_t)((uint64_t)cc->window * cc->of.dctcp.alpha / (2 * ONE)) : cc->window / 2;
}

static void undo(struct cl_tcp_cc *cc)
{
    (void)cc;
}

const struct cl_tcp_cc_ops cl_tcp_dctcp = {"dctcp", init, saw, grow, fall, undo};
