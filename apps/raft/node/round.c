/* When a leader's next batch of commands goes (raft.h: cl_raft_let_go). To the disk and to the others a batch costs about the same
 * whether it holds one command or a hundred, so what comes while a batch costs them gathers; but where batches wait for the
 * network, several are on their way.
 *
 * What a batch costs shows in how long the own disk takes over it, since the others' are at work at the same time; how long it
 * waits for the network shows in the fastest batch of the last seconds, since what a busy processor adds is not in that. Batches
 * go SPACING times as far apart as the disk takes, SPACING_NS at least, and as many are on their way as go into the fastest one's
 * time: one where the disk or the processor is what takes it, config.batches at most. After a tick another one goes in any case.
 *
 * A command that comes alone goes at once. But when the only batch on its way, one of several, is committed, clients are about
 * to hear of it and to send their next commands: those are waited for until as many have come as were answered, a quarter of
 * the time that the batch took since the last one came, and half of it in all at most. Without that, clients that wait for their
 * answers fall into two groups that take turns, and batches have half the size; and so do they where they come one by one from
 * further away than the wait for the first is long. */
#include "internal.h"

#define WAIT_PART 4
#define WAIT_MOST_PART 2
#define SPACING 3
#define SPACING_NS 300000u
#define LEAST_SPAN_NS 10000000000ull

static struct node_batch *newest(struct node_round *b)
{
    return &b->out[(b->head + b->count - 1) % NODE_ROUNDS];
}

static void note_time(struct node_round *b, uint64_t took, uint64_t now)
{
    if (now >= b->least_end_ns) {
        b->least_ns[1] = b->least_ns[0];
        b->least_ns[0] = 0;
        b->least_end_ns = now + LEAST_SPAN_NS;
    }
    b->least_ns[0] = b->least_ns[0] ? cl_min(b->least_ns[0], took) : took;
}

/* How many batches so far apart may be on their way. */
static uint64_t window_of(const struct cl_raft_node *node, uint64_t spacing)
{
    const uint64_t *least = node->round.least_ns;
    uint64_t fastest = least[1] ? cl_min(least[0], least[1]) : least[0];
    return cl_min(cl_max(fastest / spacing, 1ull), (uint64_t)node->config.batches);
}

/* Batches up to `commit` are out no more. Whether the last one was among them; then its clients are waited for. */
static void take_committed(struct cl_raft_node *node, const struct cl_raft_gathering *g, uint64_t now)
{
    struct node_round *b = &node->round;
    struct node_batch last = {0};
    while (b->count && b->out[b->head].last <= g->commit) {
        last = b->out[b->head];
        note_time(b, cl_max(now - last.begun_ns, 1ull), now);
        cl_raft_chooser_took(&b->chooser, last.counts, now - last.begun_ns);
        b->head = (b->head + 1) % NODE_ROUNDS;
        b->count--;
    }
    if (b->count || !last.last)
        return;
    b->wait_for = g->entries + last.entries;
    uint64_t took = now - last.begun_ns;
    b->wait_had = g->entries;
    b->wait_gap_ns = cl_min(took / WAIT_PART, node->config.tick_ns);
    b->wait_most_ns = now + cl_min(took / WAIT_MOST_PART, node->config.tick_ns);
    b->wait_until_ns = b->wait_for > 1 ? now + b->wait_gap_ns : 0;
}

/* Somebody has come while the next ones were waited for: so are those behind him. */
static void wait_on(struct node_round *b, uint64_t entries, uint64_t now)
{
    if (entries <= b->wait_had || now >= b->wait_until_ns)
        return;
    b->wait_had = entries;
    b->wait_until_ns = cl_min(now + b->wait_gap_ns, b->wait_most_ns);
}

/* Until when the next batch waits for those that are out; UINT64_MAX: for something to happen. */
static uint64_t spaced_until(struct cl_raft_node *node, const struct cl_raft_gathering *g, uint64_t now)
{
    struct node_round *b = &node->round;
    const struct node_batch *last = newest(b);
    if (b->count == node->config.batches)
        return UINT64_MAX;
    if (!b->durable_ns && g->durable >= last->last)
        b->durable_ns = cl_max(now - last->begun_ns, 1ull);
    uint64_t tick = last->begun_ns + node->config.tick_ns;
    uint64_t spacing = cl_max(SPACING * b->durable_ns, (uint64_t)SPACING_NS);
    if (!b->durable_ns || b->count >= window_of(node, spacing))
        return tick;
    return cl_min(last->begun_ns + spacing, tick);
}

/* With fixed_commands: whether the next batch goes now. Whoever is committed next, or the end of the wait, asks again. */
static bool fixed_goes(struct cl_raft_node *node, const struct cl_raft_gathering *g, uint64_t now)
{
    const struct cl_raft_node_config *c = &node->config;
    struct node_round *b = &node->round;
    bool full = b->count == c->batches;
    b->first_ns = !g->entries ? 0 : b->first_ns ? b->first_ns : now;
    b->wait_until_ns = g->entries && !full ? b->first_ns + c->fixed_wait_ns : 0;
    if (!g->entries || full || (g->entries < c->fixed_commands && now < b->wait_until_ns))
        return false;
    b->first_ns = 0;
    return true;
}

/* The same by what batches cost, and by who is about to come. */
static bool goes(struct cl_raft_node *node, const struct cl_raft_gathering *g, uint64_t now)
{
    struct node_round *b = &node->round;
    if (b->count) {
        uint64_t until = spaced_until(node, g, now);
        b->wait_until_ns = g->entries && until != UINT64_MAX ? until : 0;
        return now >= until;
    }
    if (b->wait_until_ns && g->entries < b->wait_for) {
        wait_on(b, g->entries, now);
        return now >= b->wait_until_ns;
    }
    return true;
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

void node_round(struct cl_raft_node *node)
{
    struct node_round *b = &node->round;
    struct cl_raft_gathering g;
    cl_raft_gathering(node->raft, &g);
    if (!b->count && !g.entries && !b->wait_until_ns)
        return;
    uint64_t now = node->config.env.now_ns(node->config.env.arg);
    take_committed(node, &g, now);
    if (!(node->config.fixed_commands ? fixed_goes(node, &g, now) : goes(node, &g, now)))
        return;
    b->wait_until_ns = 0;
    if (!g.entries)
        return;
    cl_count(&node->count.batches, 1);
    cl_count(&node->count.batches_ahead, b->count > 0);
    uint8_t counts = choose_way(node);
    cl_raft_let_go(node->raft);
    b->count++;
    *newest(b) =
        (struct node_batch){.last = g.last + g.entries, .entries = g.entries, .begun_ns = now, .counts = counts};
    b->durable_ns = 0;
}
