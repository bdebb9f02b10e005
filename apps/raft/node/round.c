/* When a leader's next batch of commands goes (raft.h: cl_raft_let_go). To the disk and to the others a batch costs
 * about the same whether it holds one command or a hundred, so commands gather; but while they do, disks and processors
 * may have nothing to do.
 *
 * All commands that are there, in a batch on its way or gathering, go in so many parts (parts.c finds out how many are
 * best): the next batch goes when it has its part of them. Those that clients are about to send count, too: who has an
 * answer is expected to send its next command, for EXPECT times as long as the batch took, and no longer than a part of
 * that once others of it have come. Without that, clients that wait for their answers fall into groups of any size.
 *
 * Parts go evenly: where several are on their way, the next one goes no sooner after the last one than a batch takes,
 * over the number of parts, and what has gathered beyond a part is the next one's. Two that go right behind each other
 * are in each other's way at each step, and clients that are answered at once would come back at once for ever.
 *
 * A command that comes alone goes at once. After a tick another batch goes in any case. No time is configured or
 * assumed: how long a batch takes, and how many are there, is seen. */
#include "internal.h"

#define EXPECT 2
#define GAP_PART 4
#define MEAN_PART 8 /* weight of the newest batch in the mean */

/* The i-th oldest of those that are kept. */
static struct node_batch *batch_at(struct node_round *b, uint32_t i)
{
    return &b->out[(b->head + i) % NODE_ROUNDS];
}

static struct node_batch *newest(struct node_round *b)
{
    return batch_at(b, b->back + b->count - 1);
}

static void forget_oldest(struct node_round *b)
{
    b->expected -= batch_at(b, 0)->entries;
    b->head = (b->head + 1) % NODE_ROUNDS;
    b->back--;
}

/* Time has gone by: clients that did not come back are expected no more. */
static void advance(struct node_round *b, uint64_t let_go, uint64_t now)
{
    uint64_t gathered = b->seen - cl_min(b->seen, let_go);
    for (bool ends = true; ends;) {
        ends = b->back && batch_at(b, 0)->until_ns <= now;
        uint64_t to = ends ? cl_max(batch_at(b, 0)->until_ns, b->seen_ns) : now,
                 all = b->flying + b->expected + gathered;
        b->area_ns += all * (to - b->seen_ns);
        b->busy_ns += all ? to - b->seen_ns : 0;
        b->seen_ns = to;
        if (ends)
            forget_oldest(b);
    }
}

/* New commands: as many of those that were expected are there, first those that were longest. */
static void take_arrivals(struct node_round *b, uint64_t last, uint64_t now)
{
    uint64_t come = last - cl_min(b->seen, last);
    b->seen = last;
    while (come && b->back) {
        struct node_batch *of = batch_at(b, 0);
        uint64_t n = cl_min(come, of->entries);
        come -= n;
        of->entries -= n;
        b->expected -= n;
        of->until_ns = cl_min(of->until_ns, now + of->took_ns / GAP_PART);
        if (!of->entries)
            forget_oldest(b);
    }
}

/* Batches up to `commit` are on their way no more: their clients are expected. */
static void take_committed(struct node_round *b, uint64_t commit, uint64_t now)
{
    while (b->count && batch_at(b, b->back)->last <= commit) {
        struct node_batch *of = batch_at(b, b->back);
        of->took_ns = cl_max(now - of->begun_ns, 1ull);
        of->until_ns = now + EXPECT * of->took_ns;
        b->took_ns += b->took_ns ? of->took_ns / MEAN_PART - b->took_ns / MEAN_PART : of->took_ns;
        cl_raft_chooser_took(&b->chooser, of->counts, of->took_ns);
        b->flying -= of->entries;
        b->expected += of->entries;
        b->done += of->entries;
        b->count--;
        b->back++;
    }
}

/* A round of `parts` ends: all that was there when it began is committed. */
static void end_round(struct node_round *b, uint64_t commit, uint64_t last)
{
    if (!b->done || commit < b->end)
        return;
    cl_raft_parts_round(&b->parts, b->area_ns, b->busy_ns, b->done);
    b->area_ns = b->busy_ns = b->done = 0;
    b->end = last;
}

/* With fixed_commands: how many go now, all or none. Whoever is committed next, or the end of the wait, asks again. */
static uint64_t fixed_goes(struct cl_raft_node *node, uint64_t gathered, uint64_t now)
{
    const struct cl_raft_node_config *c = &node->config;
    struct node_round *b = &node->round;
    bool full = b->count == c->batches;
    b->first_ns = !gathered ? 0 : b->first_ns ? b->first_ns : now;
    b->wait_until_ns = gathered && !full ? b->first_ns + c->fixed_wait_ns : 0;
    if (full || (gathered < c->fixed_commands && now < b->wait_until_ns))
        return 0;
    b->first_ns = 0;
    return gathered;
}

/* The same by how many there are, and in how many parts they go. */
static uint64_t part_goes(struct cl_raft_node *node, uint64_t gathered, uint64_t now)
{
    struct node_round *b = &node->round;
    uint64_t parts = cl_raft_parts_now(&b->parts);
    b->wait_until_ns = 0;
    if (!gathered || b->count == node->config.batches)
        return 0;
    uint64_t part = (b->flying + b->expected + gathered + parts - 1) / parts;
    uint64_t tick = b->count ? newest(b)->begun_ns + node->config.tick_ns : UINT64_MAX, until = tick;
    if (gathered >= part)
        until = b->count ? cl_min(newest(b)->begun_ns + b->took_ns / parts, tick) : now;
    if (now >= until)
        return cl_min(part, gathered);
    b->wait_until_ns = gathered < part && b->back ? cl_min(batch_at(b, 0)->until_ns, until) : until;
    return 0;
}

/* To whom the next batch goes at once. Returns for which way its time counts. */
static uint8_t choose_way(struct cl_raft_node *node)
{
    int counts = 0;
    if (node->config.replicate == CL_RAFT_TO_AUTO)
        cl_raft_thrifty(node->raft, cl_raft_chooser_next(&node->round.chooser, &counts));
    return (uint8_t)counts;
}

void cl_raft_node_replicate(const struct cl_raft_node *node, struct cl_raft_replicate *out)
{
    const struct cl_raft_chooser *c = &node->round.chooser;
    uint32_t asked = node->config.replicate;
    *out = (struct cl_raft_replicate){.asked = asked, .to = asked};
    if (asked != CL_RAFT_TO_AUTO)
        return;
    out->to = c->way ? CL_RAFT_TO_MAJORITY : CL_RAFT_TO_ALL;
    out->all_ns = c->mean_ns[0];
    out->majority_ns = c->mean_ns[1];
}

static void let_go(struct cl_raft_node *node, uint64_t last, uint64_t entries, uint64_t now)
{
    struct node_round *b = &node->round;
    cl_count(&node->count.batches, 1);
    cl_count(&node->count.batches_ahead, b->count > 0);
    uint8_t counts = choose_way(node);
    cl_raft_let_go(node->raft, entries);
    node_stages_gone(node, last, now);
    if (b->back + b->count == NODE_ROUNDS)
        forget_oldest(b);
    b->flying += entries;
    b->count++;
    *newest(b) = (struct node_batch){.last = last, .begun_ns = now, .entries = entries, .counts = counts};
}

void node_round(struct cl_raft_node *node)
{
    struct node_round *b = &node->round;
    struct cl_raft_gathering g;
    cl_raft_gathering(node->raft, &g);
    if (!b->count && !g.entries && !b->back)
        return;
    uint64_t now = node->config.env.now_ns(node->config.env.arg), last = g.last + g.entries;
    advance(b, g.last, now);
    take_arrivals(b, last, now);
    take_committed(b, g.commit, now);
    end_round(b, g.commit, last);
    for (uint64_t n; (n = node->config.fixed_commands ? fixed_goes(node, last - g.last, now)
                                                      : part_goes(node, last - g.last, now));) {
        g.last += n;
        let_go(node, g.last, n, now);
    }
}
