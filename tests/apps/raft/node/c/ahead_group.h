/* Three nodes with RESP's engines ahead of their logs, in memory and one thread: frames that arrive at once or not at
 * all, a clock that a tick moves, and clients. */
#ifndef CORELANE_TESTS_APPS_RAFT_NODE_C_AHEAD_GROUP_H
#define CORELANE_TESTS_APPS_RAFT_NODE_C_AHEAD_GROUP_H

#include "../../c/scenarios.h"
#include "apps/raft/node/ahead.h"

enum { NODES = 3, ELECTION_TICKS = 10, CLIENTS = 8, FRAMES = 4096, FRAME_BYTES = 8192, PATIENCE = 2000 };

#define TICK_NS 1000000ull
#define MEMORY (2u << 20)

struct member {
    uint32_t id;
    bool cut; /* from the others; clients reach it */
    struct cl_raft_node *node;
    struct raft_resp values;
    struct raft_ahead ahead;
};

/* A connection, and what has come on it. */
struct client {
    struct member *at;
    struct cl_resp_client *c;
    bool ended;
    char got[1024];
    uint32_t bytes;
};

static struct member members[NODES];
static struct client clients[CLIENTS];
static unsigned n_clients;
static uint64_t now_ns = 1000000000, words = 1;
static struct frame {
    uint32_t from, to, bytes;
    uint8_t data[FRAME_BYTES];
} frames[FRAMES];
static unsigned n_frames;

static uint64_t clock_of(void *arg)
{
    (void)arg;
    return now_ns;
}

static uint64_t wall_of(void *arg)
{
    (void)arg;
    return now_ns / 1000000;
}

static bool post(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    const struct member *m = arg;
    (void)lasting;
    if (m->cut || members[to - 1].cut)
        return true;
    CHECK(n_frames < FRAMES && bytes <= FRAME_BYTES, "too many frames, or one of %u bytes\n", bytes);
    struct frame *f = &frames[n_frames++];
    f->from = m->id;
    f->to = to;
    f->bytes = bytes;
    memcpy(f->data, data, bytes);
    return true;
}

static void answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    raft_ahead_answer(&((struct member *)arg)->ahead, token, status, reply, bytes);
}

static uint64_t word_of(void *arg)
{
    (void)arg;
    return words += 2;
}

static uint32_t address_of(void *arg, uint32_t id)
{
    (void)arg;
    return 10u << 24 | id;
}

static void end_connections(void *arg, struct cl_resp *r)
{
    (void)r;
    for (unsigned i = 0; i < n_clients; i++)
        if (clients[i].at == arg && !clients[i].ended) {
            cl_resp_disconnect(clients[i].c);
            clients[i].ended = true;
        }
}

static void make(struct member *m, uint32_t id, bool lease)
{
    const struct cl_resp_settings settings = {.memory_bytes = MEMORY, .seed = id, .manual_ms = 1000};
    struct cl_raft_node_config config = {
        .raft =
            {.id = id, .log_entries = 256, .log_bytes = 65536, .entry_bytes = 1024, .election_ticks = ELECTION_TICKS},
        .env = {m, clock_of, wall_of, post, answer},
        .incarnation = id,
        .tick_ns = TICK_NS,
    };
    config.raft.lease_reads = lease;
    config.raft.seed = id;
    config.raft.members = (struct cl_raft_members){.n_voters = NODES, .voters = {1, 2, 3}};
    m->id = id;
    CHECK(!raft_resp_new(&m->values, &settings, &config.machine, err), "%s\n", err);
    CHECK(!cl_raft_node_new(&config, &m->node, err), "%s\n", err);
    const struct raft_ahead_config ahead = {.node = m->node,
                                            .values = &m->values,
                                            .settings = settings,
                                            .entry_bytes = config.raft.entry_bytes,
                                            .ipv4 = address_of(NULL, id),
                                            .port = 6379,
                                            .arg = m,
                                            .random = word_of,
                                            .address = address_of,
                                            .become = end_connections};
    CHECK(!raft_ahead_new(&m->ahead, &ahead, err), "%s\n", err);
}

static void work(struct member *m)
{
    raft_ahead_give(&m->ahead, now_ns);
    cl_raft_node_poll(m->node);
}

static void deliver(void)
{
    for (unsigned i = 0; i < n_frames; i++) {
        const struct frame *f = &frames[i];
        struct member *to = &members[f->to - 1];
        if (to->cut || members[f->from - 1].cut)
            continue;
        cl_raft_node_receive(to->node, f->data, f->bytes);
        work(to);
    }
    n_frames = 0;
}

static void tick(void)
{
    now_ns += TICK_NS;
    for (unsigned i = 0; i < NODES; i++) {
        raft_ahead_turn(&members[i].ahead);
        work(&members[i]);
    }
    deliver();
}

/* Who executes commands; another one than `not`. */
static struct member *await_leader(const struct member *other)
{
    for (int t = 0; t < PATIENCE; t++, tick())
        for (unsigned i = 0; i < NODES; i++)
            if (&members[i] != other && members[i].ahead.state == RAFT_AHEAD_LEADS)
                return &members[i];
    CHECK(0, "nobody else executes commands\n");
    return NULL;
}

/* Leadership goes to another one, and all know of each other. */
static struct member *hand_over(struct member *from)
{
    struct member *to = &members[from->id % NODES];
    CHECK(!cl_raft_transfer(cl_raft_node_core(from->node), to->id), "cannot hand over\n");
    cl_raft_node_poll(from->node);
    deliver();
    CHECK(await_leader(from) == to, "another one leads\n");
    tick();
    return to;
}

static struct member *begin(bool lease)
{
    for (uint32_t id = 1; id <= NODES; id++)
        make(&members[id - 1], id, lease);
    struct member *m = await_leader(NULL);
    for (int t = 0; t < 2 * ELECTION_TICKS; t++)
        tick();
    return m;
}

static void end(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        cl_raft_node_delete(members[i].node);
        raft_ahead_delete(&members[i].ahead);
        raft_resp_delete(&members[i].values);
    }
}

static struct client *connect_to(struct member *m)
{
    CHECK(n_clients < CLIENTS, "too many clients\n");
    struct client *c = &clients[n_clients++];
    *c = (struct client){.at = m, .c = cl_resp_connect(m->ahead.front, "10.0.1.1:1", "10.0.0.1:1")};
    CHECK(c->c, "no connection\n");
    return c;
}

/* Send commands, a line each. */
static void send(struct client *c, const char *lines)
{
    CHECK(!c->ended, "its connection has ended\n");
    CHECK(cl_resp_feed(c->c, (const uint8_t *)lines, strlen(lines)) == strlen(lines), "%s is not taken\n", lines);
    work(c->at);
}

/* What has come since the last call. */
static const char *read_all(struct client *c)
{
    uint64_t len;
    c->bytes = 0;
    for (const uint8_t *at; !c->ended && (at = cl_resp_out(c->c, &len)); cl_resp_taken(c->c, len)) {
        CHECK(c->bytes + len < sizeof c->got, "a long reply\n");
        memcpy(c->got + c->bytes, at, len);
        c->bytes += (uint32_t)len;
    }
    c->got[c->bytes] = 0;
    return c->got;
}

static void expect(struct client *c, const char *lines, const char *reply)
{
    send(c, lines);
    deliver();
    const char *got = read_all(c);
    CHECK(!strcmp(got, reply), "%s is answered %s and not %s\n", lines, got, reply);
}

static void expect_nothing(struct client *c)
{
    const char *got = read_all(c);
    CHECK(!*got, "is told %s before it is committed\n", got);
}

/* Leadership goes to another one, and only that one has turns: the former does not look meanwhile. */
static void hand_over_unseen(struct member *from, struct member *to)
{
    CHECK(!cl_raft_transfer(cl_raft_node_core(from->node), to->id), "cannot hand over\n");
    cl_raft_node_poll(from->node);
    deliver();
    CHECK(cl_raft_node_led_ns(to->node), "node %u does not lead\n", to->id);
}

static void turn_until_it_leads(struct member *m)
{
    for (int t = 0; t < PATIENCE && m->ahead.state != RAFT_AHEAD_LEADS; t++) {
        raft_ahead_turn(&m->ahead);
        work(m);
        deliver();
    }
    CHECK(m->ahead.state == RAFT_AHEAD_LEADS, "node %u does not execute commands\n", m->id);
}

#endif
