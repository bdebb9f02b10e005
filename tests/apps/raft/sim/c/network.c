/* The queue of events and the network: what they promise, and a digest of what a seed makes of them.
 * usage: network SEED ROUNDS */
#include "apps/raft/sim/network.h"
#include "apps/raft/sim/queue.h"
#include <stdio.h>
#include <stdlib.h>

static int failures;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        failures++;
    }
}

static uint64_t digest;

static void note(uint64_t value)
{
    digest = (digest ^ value) * 0x100000001b3ull;
}

/* Events come in order of time, those of one instant in the order in which they were put. */
static void queue_is_in_order(uint64_t seed, uint32_t rounds)
{
    struct cl_random r = {seed};
    struct sim_queue q = {0};
    uint64_t last_ns = 0, last_order = 0, put = 0, taken = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t n = cl_random_below(&r, 5);
        for (uint64_t k = 0; k < n; k++, put++)
            expect(!sim_queue_put(&q, (struct sim_event){.at_ns = q.now_ns + cl_random_below(&r, 50), .argument = put}),
                   "no memory");
        struct sim_event e;
        for (uint64_t k = cl_random_below(&r, 5); k && sim_queue_take(&q, &e); k--, taken++) {
            expect(e.at_ns > last_ns || (e.at_ns == last_ns && (e.order > last_order || !taken)), "out of order");
            last_ns = e.at_ns;
            last_order = e.order;
            note(e.at_ns + e.argument);
        }
    }
    for (struct sim_event e; sim_queue_take(&q, &e);)
        taken++;
    expect(put == taken, "an event was lost");
    uint64_t before_ns = q.now_ns;
    sim_queue_put(&q, (struct sim_event){.at_ns = 0});
    struct sim_event e;
    expect(sim_queue_take(&q, &e) && e.at_ns == before_ns, "time went back");
    sim_queue_free(&q);
}

static void balances(const struct sim_net *net)
{
    const struct sim_net_counts *c = &net->counts;
    expect(c->sent + c->duplicated == c->delivered + c->lost + c->cut, "the counts do not balance");
}

static void rates_are_kept(uint64_t seed, uint32_t rounds)
{
    struct sim_net net;
    struct sim_link link = {.loss_ppm = 100000,
                            .duplicate_ppm = 50000,
                            .slow_ppm = 10000,
                            .base_ns = 1000,
                            .spread_ns = 500,
                            .slow_ns = 10000};
    sim_net_init(&net, 5, seed, link);
    uint64_t delays[SIM_COPIES], last = 0, overtook = 0, slow = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t n = sim_net_send(&net, i % 5, (i + 1) % 5, delays);
        for (uint32_t k = 0; k < n; k++) {
            expect(delays[k] >= 1000 && delays[k] < 1500 + (10000ull << SIM_DOUBLINGS), "a delay out of bounds");
            overtook += delays[k] < last;
            slow += delays[k] >= 11000;
            last = delays[k];
            note(delays[k]);
        }
    }
    balances(&net);
    expect(net.counts.sent == rounds, "not all were counted");
    double all = (double)(net.counts.sent + net.counts.duplicated);
    expect((double)net.counts.lost > 0.08 * all && (double)net.counts.lost < 0.12 * all, "loss is not what was asked");
    expect((double)net.counts.duplicated > 0.04 * rounds && (double)net.counts.duplicated < 0.07 * rounds,
           "duplicates");
    expect(overtook > rounds / 4, "nothing was reordered");
    expect(slow > rounds / 200 && slow < rounds / 50, "slow datagrams");
}

static bool passes(struct sim_net *net, uint32_t from, uint32_t to)
{
    uint64_t delays[SIM_COPIES];
    return sim_net_send(net, from, to, delays) > 0;
}

static void cuts_cut(uint64_t seed)
{
    struct sim_net net;
    sim_net_init(&net, 5, seed, (struct sim_link){.base_ns = 1});
    sim_net_partition(&net, 0x3, SIM_CUT_OUT | SIM_CUT_IN);
    for (uint32_t from = 0; from < 5; from++)
        for (uint32_t to = 0; to < 5; to++)
            expect(passes(&net, from, to) == ((from < 2) == (to < 2)), "a partition of 2 and 3");
    sim_net_heal(&net);
    sim_net_partition(&net, 0x1, SIM_CUT_OUT);
    expect(!passes(&net, 0, 3) && passes(&net, 3, 0) && passes(&net, 1, 2), "a node that is heard no more, but hears");
    sim_net_heal(&net);
    sim_net_partition(&net, 0x1, SIM_CUT_IN);
    expect(passes(&net, 0, 3) && !passes(&net, 3, 0), "a node that is heard, but does not hear");
    sim_net_heal(&net);
    sim_net_cut(&net, 1, 4);
    expect(!passes(&net, 1, 4) && passes(&net, 4, 1) && passes(&net, 1, 3), "one link, one way");
    sim_net_heal(&net);
    expect(passes(&net, 1, 4), "a mended link");
    balances(&net);
}

static void clocks_drift(void)
{
    struct sim_clock fast = {.drift_ppm = 500, .offset_ns = 7}, slow = {.drift_ppm = -500};
    expect(sim_clock_read(&fast, 1000000000) == 1000500007, "a fast clock");
    expect(sim_clock_read(&slow, 1000000000) == 999500000, "a slow clock");
    expect(sim_clock_span(&fast, 1000500) == 1000000 && sim_clock_span(&slow, 999500) == 1000000, "spans");
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    uint32_t rounds = (uint32_t)atoi(argv[2]);
    queue_is_in_order(sim_stream(seed, 0), rounds);
    rates_are_kept(sim_stream(seed, 1), rounds);
    cuts_cut(sim_stream(seed, 2));
    clocks_drift();
    printf("%016lx\n", (unsigned long)digest);
    return failures != 0;
}
