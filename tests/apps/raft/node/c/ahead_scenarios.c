/* What clients of RESP see of three nodes when leadership moves, step by step: nodes in memory, frames that arrive at once or not at
 * all, a clock that a tick moves. Usage: ahead_scenarios NAME, one of those at the end */
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

/* Who follows names the leader; who was elected, and who knows of none, says so. Nothing is done then. */
static void moved(void)
{
    struct member *leader = begin(false), *other = &members[leader->id % NODES];
    char where[64];
    snprintf(where, sizeof where, "-MOVED 0 10.0.0.%u:6379\r\n", leader->id);
    struct client *c = connect_to(other);
    expect(c, "PING\r\n", "+PONG\r\n");
    expect(c, "SET k v\r\n", where);
    expect(c, "GET k\r\n", where);
    expect(c, "WATCH k\r\n", where);
    expect(c, "BLPOP k 0\r\n", where);
    send(c, "MULTI\r\nSET k v\r\nEXEC\r\n");
    CHECK(strstr(read_all(c), where) && strstr(c->got, "-EXECABORT"), "MULTI is answered %s\n", c->got);
    struct client *l = connect_to(leader);
    expect(l, "EXISTS k\r\n", ":0\r\n");

    CHECK(!cl_raft_transfer(cl_raft_node_core(leader->node), other->id), "cannot hand over\n");
    cl_raft_node_poll(leader->node);
    deliver();
    for (int t = 0; t < PATIENCE && other->ahead.state == RAFT_AHEAD_FOLLOWS; t++)
        tick();
    send(c, "GET k\r\n");
    CHECK(!strncmp(read_all(c), "-LOADING ", 9), "who was elected says %s\n", c->got);
    CHECK(await_leader(leader) == other, "another one leads\n");
    CHECK(c->ended && l->ended, "connections outlive the engines that they were on\n");
    tick();
    snprintf(where, sizeof where, "-MOVED 0 10.0.0.%u:6379\r\n", other->id);
    expect(connect_to(leader), "GET k\r\n", where);

    for (unsigned i = 0; i < NODES; i++)
        members[i].cut = true;
    for (int t = 0; t < 5 * ELECTION_TICKS; t++)
        tick();
    for (unsigned i = 0; i < NODES; i++) {
        struct client *alone = connect_to(&members[i]);
        send(alone, "GET k\r\n");
        CHECK(!strncmp(read_all(alone), "-CLUSTERDOWN ", 13), "a node without a leader says %s\n", alone->got);
    }
    end();
}

/* Between MULTI and EXEC: the connection ends, nothing of it was done, and no other one goes on with it. And after EXEC, at a leader
 * that is cut off: no answer, and none of it is there. */
static void multi(void)
{
    struct member *leader = begin(false);
    struct client *c = connect_to(leader);
    expect(c, "MULTI\r\n", "+OK\r\n");
    expect(c, "SET x 1\r\nSET y 1\r\n", "+QUEUED\r\n+QUEUED\r\n");
    struct member *next = hand_over(leader);
    CHECK(c->ended, "its transaction has outlived its leader\n");
    struct client *d = connect_to(next);
    expect(d, "EXEC\r\n", "-ERR EXEC without MULTI\r\n");
    expect(d, "EXISTS x y\r\n", ":0\r\n");

    next->cut = true;
    send(d, "MULTI\r\nSET x 2\r\nSET y 2\r\nEXEC\r\n");
    expect_nothing(d);
    struct member *third = await_leader(next);
    CHECK(!*read_all(d), "is told %s of what nobody else has\n", d->got);
    struct client *e = connect_to(third);
    expect(e, "EXISTS x y\r\n", ":0\r\n");
    expect(e, "MULTI\r\nSET x 3\r\nSET y 3\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n");
    next->cut = false;
    for (int t = 0; t < 3 * ELECTION_TICKS; t++)
        tick();
    CHECK(d->ended, "its connection has outlived its leader\n");
    expect(connect_to(await_leader(NULL)), "MGET x y\r\n", "*2\r\n$1\r\n3\r\n$1\r\n3\r\n");
    end();
}

/* Who blocks is not served by the next leader, so nothing is lost to it; who was served at a leader that is cut off is not told. */
static void blocked(void)
{
    struct member *leader = begin(false);
    struct client *c = connect_to(leader);
    expect(c, "BLPOP list 0\r\n", "");
    struct member *next = hand_over(leader);
    CHECK(c->ended, "it blocks at who does not lead\n");
    struct client *d = connect_to(next), *e = connect_to(next);
    expect(d, "RPUSH list v\r\n", ":1\r\n");
    expect(d, "LLEN list\r\n", ":1\r\n");
    expect(d, "BLPOP list 0\r\n", "*2\r\n$4\r\nlist\r\n$1\r\nv\r\n");

    expect(d, "BLPOP list 0\r\n", "");
    expect(e, "RPUSH list w\r\n", ":1\r\n");
    CHECK(!strcmp(read_all(d), "*2\r\n$4\r\nlist\r\n$1\r\nw\r\n"), "who blocks is told %s\n", d->got);
    expect(d, "BLPOP list 0\r\n", "");
    next->cut = true;
    send(e, "RPUSH list lost\r\n");
    expect_nothing(d);
    expect_nothing(e);
    struct member *third = await_leader(next);
    expect_nothing(d);
    expect_nothing(e);
    expect(connect_to(third), "EXISTS list\r\n", ":0\r\n");
    end();
}

/* WATCH does not outlive its leader, though that leads again and nothing has touched the key since. */
static void watch(void)
{
    struct member *leader = begin(false);
    struct client *c = connect_to(leader), *same = connect_to(leader);
    expect(c, "SET k 1\r\n", "+OK\r\n");
    expect(c, "WATCH k\r\n", "+OK\r\n");
    expect(same, "SET k 2\r\n", "+OK\r\n");
    expect(c, "MULTI\r\nSET k mine\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*-1\r\n");
    expect(c, "WATCH k\r\n", "+OK\r\n");
    struct member *next = hand_over(leader);
    CHECK(c->ended, "what it watches is written by another node\n");
    expect(connect_to(next), "SET k 3\r\n", "+OK\r\n");
    struct member *third = hand_over(next), *again = third == leader ? third : hand_over(third);
    CHECK(again == leader, "the first one does not lead again\n");
    struct client *d = connect_to(leader);
    expect(d, "MULTI\r\nGET k\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n$1\r\n3\r\n");
    expect(d, "WATCH k\r\n", "+OK\r\n");
    expect(d, "MULTI\r\nSET k mine\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    end();
}

/* With a lease a read takes no message, without one it does. A leader that is cut off answers reads as long as nobody else can lead,
 * and then no more. */
static void lease(void)
{
    struct member *leader = begin(true);
    struct client *c = connect_to(leader);
    expect(c, "SET k old\r\n", "+OK\r\n");
    n_frames = 0;
    send(c, "GET k\r\n");
    CHECK(!n_frames && !strcmp(read_all(c), "$3\r\nold\r\n"), "a read by lease took %u messages\n", n_frames);
    send(c, "SET k new\r\n");
    CHECK(n_frames && !*read_all(c), "a write by lease took no message\n");
    deliver();
    CHECK(!strcmp(read_all(c), "+OK\r\n"), "%s\n", c->got);

    leader->cut = true;
    unsigned answered = 0, ticks = 0;
    struct member *next = NULL;
    for (; !next; tick(), ticks++) {
        CHECK(ticks < PATIENCE, "nobody else leads\n");
        for (unsigned i = 0; i < NODES; i++)
            if (&members[i] != leader && members[i].ahead.state == RAFT_AHEAD_LEADS)
                next = &members[i];
        if (c->ended || next)
            continue;
        send(c, "GET k\r\n");
        answered += *read_all(c) == '$';
    }
    CHECK(answered && answered < ELECTION_TICKS, "%u reads by a lease of %u ticks\n", answered, ELECTION_TICKS);
    expect(connect_to(next), "SET k newer\r\n", "+OK\r\n");
    struct client *late = connect_to(leader);
    send(late, "GET k\r\n");
    CHECK(*read_all(late) != '$', "the former leader answers %s\n", late->got);
    end();
}

/* Without a lease no read is answered by who reaches no majority. */
static void no_lease(void)
{
    struct member *leader = begin(false);
    struct client *c = connect_to(leader);
    expect(c, "SET k old\r\n", "+OK\r\n");
    n_frames = 0;
    send(c, "GET k\r\n");
    CHECK(n_frames && !*read_all(c), "a read took no message\n");
    deliver();
    CHECK(!strcmp(read_all(c), "$3\r\nold\r\n"), "%s\n", c->got);
    leader->cut = true;
    send(c, "GET k\r\n");
    await_leader(leader);
    expect_nothing(c);
    end();
}

static const struct scenario all[] = {{"moved", moved}, {"multi", multi}, {"blocked", blocked},
                                      {"watch", watch}, {"lease", lease}, {"no_lease", no_lease}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}
