/* What a seed draws before its world begins. Each kind of fault is on in about half of the seeds and has a strength of
 * its own: a world with everything at once hides what a world with one strong fault shows (Groce et al., "Swarm
 * testing", ISSTA 2012). */
#include "world.h"

/* One clock may be 1.11 / 0.89 times as fast as another, just under the quarter that leases bear. */
#define MOST_DRIFT_PPM 110000

static uint64_t below(struct sim_world *w, uint64_t n)
{
    return cl_random_below(&w->random[SIM_R_SWARM], n);
}

/* 0 in half of the seeds, else 1..most. */
static uint32_t sometimes(struct sim_world *w, uint32_t most)
{
    return below(w, 2) ? 1 + (uint32_t)below(w, most) : 0;
}

static uint64_t one_of(struct sim_world *w, const uint64_t *values, uint64_t n)
{
    return values[below(w, n)];
}
#define ONE_OF(w, ...) one_of(w, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8)

static void draw_network(struct sim_world *w, struct sim_swarm *s)
{
    s->link = (struct sim_link){
        .loss_ppm = sometimes(w, 200000),
        .duplicate_ppm = sometimes(w, 100000),
        .slow_ppm = sometimes(w, 20000),
        .base_ns = ONE_OF(w, 10000, 50000, 200000, 1000000),
        .spread_ns = ONE_OF(w, 1000, 100000, 1000000, 5000000),
        .slow_ns = ONE_OF(w, 2000000, 10000000),
    };
    s->partition = sometimes(w, 10);
    s->one_way = sometimes(w, 10);
    s->cut_link = sometimes(w, 10);
}

static void draw_faults(struct sim_world *w, struct sim_swarm *s)
{
    s->fault_gap_ns = ONE_OF(w, 5, 15, 50) * SIM_MS;
    s->crash = sometimes(w, 20);
    s->crash_many = sometimes(w, 3);
    s->crash_point_ppm = sometimes(w, 3000);
    s->restart_ms = (uint32_t)ONE_OF(w, 1, 10, 60);
    s->stall = sometimes(w, 8);
    s->transfer = sometimes(w, 8);
    s->members = sometimes(w, 10);
    s->slow_disk = sometimes(w, 8);
    s->fail_disk = sometimes(w, 4);
    s->rot = sometimes(w, 6);
    s->depose = sometimes(w, 6);
    s->hang = sometimes(w, 4);
    s->wall = sometimes(w, 4);
    s->vote_crash_ppm = below(w, 2) ? (uint32_t)ONE_OF(w, 10000, 100000, 500000) : 0;
    s->drift_ppm = below(w, 2) ? (uint32_t)ONE_OF(w, 100, 10000, 80000, MOST_DRIFT_PPM) : 0;
}

static void draw_clients(struct sim_world *w, struct sim_swarm *s)
{
    s->clients = 1 + (uint32_t)below(w, SIM_CLIENTS);
    s->patience_ns = (uint32_t)ONE_OF(w, 500000, 3000000);
    s->think_ns = (uint32_t)ONE_OF(w, 100000, 1000000, 5000000);
    s->get_ppm = (uint32_t)ONE_OF(w, 200000, 500000);
    s->by_log_ppm = (uint32_t)ONE_OF(w, 0, 200000);
    s->readers = (uint32_t)below(w, 2);
    s->give_up = (uint32_t)ONE_OF(w, 10, 40, 1000);
    s->client_loss_ppm = sometimes(w, 150000);
}

static void draw_core(struct sim_world *w, struct sim_swarm *s)
{
    struct cl_raft_config *c = &s->config;
    *c = (struct cl_raft_config){
        .election_ticks = (uint32_t)ONE_OF(w, 5, 10, 20),
        .heartbeat_ticks = (uint32_t)ONE_OF(w, 0, 1, 2),
        .disk_ticks = (uint32_t)ONE_OF(w, 0, 10, 25),
        .inflight_messages = (uint32_t)ONE_OF(w, 1, 3, 16, 64),
        .message_bytes = (uint32_t)ONE_OF(w, 300, 1000, 60000),
        .entry_bytes = 512,
        .log_entries = (uint32_t)ONE_OF(w, 64, 256, 1024),
        .log_bytes = 65536,
        .pending_reads = (uint32_t)ONE_OF(w, 4, 64),
        .cluster = 7,
        .seed = cl_random_next(&w->random[SIM_R_CORE]),
    };
    s->lease_reads = c->lease_reads = (uint32_t)below(w, 2);
    s->snapshot_entries = (uint32_t)ONE_OF(w, 6, 20, 40);
    if (c->log_entries == 1024 && below(w, 2))
        s->snapshot_entries = 0;
    c->trailing_entries = (uint32_t)ONE_OF(w, 0, 1, 5);
    c->members.n_voters = w->options.nodes;
    for (uint32_t i = 0; i < w->options.nodes; i++)
        c->members.voters[i] = i + 1;
}

/* A tick is 1 ms, and in three of four worlds longer where the shortest election timeout would else be less than four
 * times as long as a datagram and a write may take: without that every second such world is busy with elections
 * alone. */
static void draw_pace(struct sim_world *w, struct sim_swarm *s)
{
    uint64_t way_ns = s->link.base_ns + s->link.spread_ns + s->write_ns + s->write_spread_ns;
    s->tick_ns = SIM_MS;
    if (below(w, 4))
        s->tick_ns = cl_max(SIM_MS, 4 * way_ns / s->config.election_ticks);
    uint64_t scale = s->tick_ns / SIM_MS;
    s->fault_gap_ns *= scale;
    s->patience_ns *= (uint32_t)scale;
}

/* Leases at the edge of what they promise to bear: one clock as slow and all others as fast as they may be, its node
 * made the leader and cut off again and again, and everything else so quick that the next leader commits as soon as the
 * promises to the old one are over. Clocks that are drawn evenly are almost never so far apart, and bear a margin that
 * is too small. */
static void draw_race(struct sim_world *w, struct sim_swarm *s)
{
    if (!s->lease_reads || below(w, 5))
        return;
    s->outrun = 20;
    s->slow_node = 1 + (uint32_t)below(w, w->options.nodes);
    s->drift_ppm = MOST_DRIFT_PPM;
    s->config.election_ticks = (uint32_t)ONE_OF(w, 10, 20, 20);
    s->link.base_ns = 10000;
    s->link.spread_ns = ONE_OF(w, 1000, 1000, 50000);
    s->write_ns = 10000;
    s->write_spread_ns = 1000;
    s->tick_ns = SIM_MS;
    s->fault_gap_ns = ONE_OF(w, 5, 15, 30) * SIM_MS;
    s->patience_ns = 500000;
    s->think_ns = (uint32_t)ONE_OF(w, 100000, 1000000);
    s->readers = 1;
}

/* Leaders that lose their place while clients ask them, and do not know yet: what must not be told is told within
 * milliseconds or never, so everything else is quick. */
static void draw_deposed(struct sim_world *w, struct sim_swarm *s)
{
    if (w->options.mode != CL_RAFT_SIM_RESP || below(w, 2))
        return;
    s->depose = s->transfer = 20;
    s->crash_many = s->members = s->rot = s->fail_disk = s->logless = 0;
    s->crash_point_ppm = s->vote_crash_ppm = s->disk_error_ppm = s->no_space_ppm = 0;
    s->link = (struct sim_link){
        .base_ns = 10000, .spread_ns = ONE_OF(w, 1000, 50000, 300000), .loss_ppm = s->link.loss_ppm / 10};
    s->write_ns = 10000;
    s->write_spread_ns = 1000;
    s->config.election_ticks = (uint32_t)ONE_OF(w, 10, 20);
    s->tick_ns = SIM_MS;
    s->fault_gap_ns = 15 * SIM_MS;
    s->clients = SIM_CLIENTS;
    s->readers = 1;
    s->loyal = 0;
    s->patience_ns = 500000;
    s->think_ns = (uint32_t)ONE_OF(w, 50000, 200000);
    s->client_loss_ppm = 0;
}

void sim_swarm_draw(struct sim_world *w)
{
    struct sim_swarm *s = &w->swarm;
    *s = (struct sim_swarm){0};
    draw_network(w, s);
    draw_faults(w, s);
    draw_clients(w, s);
    draw_core(w, s);
    s->write_ns = ONE_OF(w, 10000, 100000, 1000000);
    s->write_spread_ns = ONE_OF(w, 1000, 100000, 3000000);
    draw_pace(w, s);
    s->torn = (uint32_t)below(w, 2);
    s->disk_error_ppm = sometimes(w, 500);
    s->no_space_ppm = sometimes(w, 500);
    s->disk_size = (uint32_t)below(w, 3);
    s->forget = s->lease_reads ? (uint32_t)below(w, 12) : 0; /* nothing but a lease suffers from it */
    s->session_ms = ONE_OF(w, 50, 500, 3600000);
    s->prefix_ppm = sometimes(w, 100000);
    s->max_sessions = (uint32_t)ONE_OF(w, 8, SIM_SESSIONS);
    /* Few: slots are used again while what is slow, as a superblock, is under way. */
    s->log_requests = (uint32_t)ONE_OF(w, 0, 3, 6, 24);
    s->batches = (uint32_t)ONE_OF(w, 0, 1, 2, 4);
    s->loyal = !below(w, 3);
    s->logless = w->options.mode != CL_RAFT_SIM_CORE && !below(w, 8);
    s->channel = w->options.mode != CL_RAFT_SIM_CORE && !below(w, 4);
    s->other_peers = w->options.mode != CL_RAFT_SIM_CORE && below(w, 2);
    if (w->options.mode != CL_RAFT_SIM_CORE && !s->logless)
        s->remade_ppm = (uint32_t)ONE_OF(w, 0, 0, 20000, 200000);
    s->replicate = (uint32_t)ONE_OF(w, CL_RAFT_TO_ALL, CL_RAFT_TO_MAJORITY, CL_RAFT_TO_AUTO);
    if (w->options.mode != CL_RAFT_SIM_CORE && !s->logless) {
        s->kill_ppm = (uint32_t)ONE_OF(w, 0, 200000, 500000, 800000);
        s->power_ppm = (uint32_t)ONE_OF(w, 0, 200000, 800000);
    }
    draw_race(w, s);
    draw_deposed(w, s);
}
