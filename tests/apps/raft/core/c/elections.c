/* How long a group is without a leader after its leader died, in virtual time: cores alone with ticks of their own
 * phases, links and disks that take their time. Each run elects a leader, lets it lead for a while, stops it, and looks
 * when the next one is there and how many terms that took. Prints, over all runs: how many needed more than one term,
 * and percentiles of the time in us.
 *
 * Usage: elections RUNS SEED NODES LINK_US LINK_SPREAD_US WRITE_US WRITE_SPREAD_US FAST RATIO: the first FAST nodes
 * write RATIO times as fast. */
#include "apps/raft/core/raft.h"
#include "apps/raft/core/wire.h"

#include "tests/support/c/check.h"

#include <string.h>

#define MOST_NODES 7
#define TICK_US 1000u
#define ELECTION_TICKS 10u
#define EVENTS 4096u
#define MESSAGE_BYTES 2048u
#define PATIENCE_US 20000000u

enum kind { DELIVER, TICK, ENTRY_WRITTEN, HARD_WRITTEN };

struct event {
    uint64_t at_us, order;
    enum kind kind;
    unsigned node;
    uint64_t index, term; /* ENTRY_WRITTEN; HARD_WRITTEN: index is the sequence */
    uint32_t generation, bytes;
    uint8_t message[MESSAGE_BYTES];
};

static struct event *events[EVENTS];
static unsigned n_events, nodes, fast, ratio;
static uint64_t now_us, order, state;
static uint64_t link_us, link_spread_us, write_us, write_spread_us;
static struct cl_raft *cores[MOST_NODES];
static uint64_t disk_free_us[MOST_NODES];

static uint64_t upto(uint64_t spread)
{
    return spread ? next_random(&state) % spread : 0;
}

static struct event *later(uint64_t after_us, enum kind kind, unsigned node)
{
    CHECK(n_events < EVENTS);
    struct event *e = calloc(1, sizeof(*e));
    *e = (struct event){.at_us = now_us + after_us, .order = order++, .kind = kind, .node = node};
    return events[n_events++] = e;
}

static struct event *take(void)
{
    unsigned best = 0;
    for (unsigned i = 1; i < n_events; i++) {
        const struct event *a = events[i], *b = events[best];
        if (a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order))
            best = i;
    }
    struct event *e = events[best];
    events[best] = events[--n_events];
    now_us = e->at_us;
    return e;
}

/* One disk a node, which does one write after the other: when one that is asked for now is done, from now. */
static uint64_t written_in(unsigned node)
{
    uint64_t takes = (write_us + upto(write_spread_us)) / (node < fast ? ratio : 1);
    disk_free_us[node] = cl_max(disk_free_us[node], now_us) + takes;
    return disk_free_us[node] - now_us;
}

/* The driver's loop (raft.h). What is handed over at once is one write. */
static void drive(unsigned node)
{
    struct cl_raft *core = cores[node];
    struct cl_raft_ready ready;
    struct cl_raft_msg m;
    while (cl_raft_ready(core, &ready)) {
        uint64_t takes = ready.first || ready.hard ? written_in(node) : 0;
        struct cl_raft_entry last;
        if (ready.first && !cl_raft_entry(core, ready.last, &last)) {
            struct event *e = later(takes, ENTRY_WRITTEN, node);
            e->index = last.index;
            e->term = last.term;
            e->generation = last.generation;
        }
        if (ready.hard)
            later(takes, HARD_WRITTEN, node)->index = ready.hard_seq;
        if (ready.apply_first)
            cl_raft_applied(core, ready.apply_last);
    }
    while (cl_raft_poll_message(core, &m)) {
        struct event *e = later(link_us + upto(link_spread_us), DELIVER, m.to - 1);
        int64_t bytes = cl_raft_encode(core, &m, e->message, MESSAGE_BYTES);
        CHECK(bytes > 0);
        e->bytes = (uint32_t)bytes;
    }
}

static void happen(const struct event *e)
{
    struct cl_raft *core = cores[e->node];
    struct cl_raft_wire_counters wire = {0};
    struct cl_raft_msg m;
    if (!core) /* dead */
        return;
    if (e->kind == TICK) {
        cl_raft_tick(core);
        later(TICK_US, TICK, e->node);
    } else if (e->kind == DELIVER) {
        CHECK(!cl_raft_decode(0, e->message, e->bytes, &m, &wire));
        cl_raft_step(core, &m);
    } else if (e->kind == ENTRY_WRITTEN) {
        cl_raft_persisted(core, e->index, e->term, e->generation);
    } else {
        cl_raft_hard_persisted(core, e->index);
    }
    drive(e->node);
}

static bool leads(unsigned node)
{
    return cores[node] && cl_raft_leader(cores[node]) == node + 1;
}

static unsigned await_leader(void)
{
    for (uint64_t until = now_us + PATIENCE_US;;) {
        for (unsigned i = 0; i < nodes; i++)
            if (leads(i))
                return i;
        CHECK(now_us < until, "(no leader)");
        struct event *e = take();
        happen(e);
        free(e);
    }
}

static void pass(uint64_t us)
{
    later(us, TICK, MOST_NODES); /* nobody's */
    for (bool done = false; !done;) {
        struct event *e = take();
        done = e->node == MOST_NODES;
        if (!done)
            happen(e);
        free(e);
    }
}

static void begin(uint64_t seed)
{
    state = (seed + 1) * 0x9e3779b97f4a7c15ull;
    struct cl_raft_config config = {.election_ticks = ELECTION_TICKS, .log_entries = 64, .log_bytes = 32768};
    config.entry_bytes = 1024;
    config.seed = next_random(&state);
    config.members.n_voters = nodes;
    for (unsigned i = 0; i < nodes; i++)
        config.members.voters[i] = i + 1;
    for (unsigned i = 0; i < nodes; i++) {
        char err[256];
        config.id = i + 1;
        CHECK(!cl_raft_new(&config, &cores[i], err), "%s", err);
        later(upto(TICK_US), TICK, i);
    }
}

static void end(void)
{
    for (unsigned i = 0; i < nodes; i++) {
        cl_raft_delete(cores[i]);
        cores[i] = NULL;
        disk_free_us[i] = 0;
    }
    while (n_events)
        free(events[--n_events]);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    CHECK(argc == 10);
    uint64_t runs = strtoull(argv[1], NULL, 0), seed = strtoull(argv[2], NULL, 0), several = 0;
    nodes = (unsigned)atoi(argv[3]);
    link_us = strtoull(argv[4], NULL, 0);
    link_spread_us = strtoull(argv[5], NULL, 0);
    write_us = strtoull(argv[6], NULL, 0);
    write_spread_us = strtoull(argv[7], NULL, 0);
    fast = (unsigned)atoi(argv[8]);
    ratio = (unsigned)atoi(argv[9]);
    CHECK(runs && ratio && nodes >= 3 && nodes <= MOST_NODES);
    uint64_t *times = calloc(runs, sizeof(*times));
    for (uint64_t i = 0; i < runs; i++) {
        begin(seed + i);
        unsigned leader = await_leader();
        pass(30000 + upto(20000));
        leader = await_leader();
        uint64_t term = cl_raft_term(cores[leader]), began = now_us;
        cl_raft_delete(cores[leader]);
        cores[leader] = NULL;
        unsigned next = await_leader();
        times[i] = now_us - began;
        several += cl_raft_term(cores[next]) > term + 1;
        end();
    }
    qsort(times, runs, sizeof(*times), by_size);
    printf("several_terms %lu p50_us %lu p99_us %lu p999_us %lu worst_us %lu\n", several, times[runs / 2],
           times[runs * 99 / 100], times[runs * 999 / 1000], times[runs - 1]);
    free(times);
    return 0;
}
