/* What clients of RESP see of three nodes when leadership moves, step by step. Usage: ahead_scenarios NAME, one of
 * those at the end */
#include "ahead_group.h"

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

/* Between MULTI and EXEC: the connection ends, nothing of it was done, and no other one goes on with it. And after
 * EXEC, at a leader that is cut off: no answer, and none of it is there. */
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

/* Who blocks is not served by the next leader, so nothing is lost to it; who was served at a leader that is cut off is
 * not told. */
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

/* With a lease a read takes no message, without one it does. A leader that is cut off answers reads as long as nobody
 * else can lead, and then no more. */
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

/* A leader that lost its place and has it again, between two of its turns, notices by the answers: what another one has
 * done meanwhile is not in its engine. */
static void unseen(void)
{
    struct member *leader = begin(false), *other = &members[leader->id % NODES];
    struct client *c = connect_to(leader);
    expect(c, "SET k old\r\n", "+OK\r\n");
    hand_over_unseen(leader, other);
    turn_until_it_leads(other);
    expect(connect_to(other), "SET k new\r\n", "+OK\r\n");
    hand_over_unseen(other, leader);
    CHECK(leader->ahead.state == RAFT_AHEAD_LEADS && !c->ended, "it has looked\n");
    expect(c, "GET k\r\n", "");
    raft_ahead_turn(&leader->ahead);
    CHECK(c->ended, "its connections outlive its epoch\n");
    turn_until_it_leads(leader);
    expect(connect_to(leader), "GET k\r\n", "$3\r\nnew\r\n");
    end();
}

/* An epoch that was opened is over when another one's was: nobody executes commands in it. */
static void overtaken(void)
{
    struct member *leader = begin(false), *other = &members[leader->id % NODES];
    hand_over_unseen(leader, other);
    raft_ahead_turn(&leader->ahead);
    raft_ahead_turn(&other->ahead);
    work(other);
    deliver();
    CHECK(other->ahead.state == RAFT_AHEAD_OPENS && other->ahead.opened, "its epoch is not opened\n");
    uint64_t epoch = other->ahead.epoch;
    hand_over_unseen(other, leader);
    turn_until_it_leads(leader);
    expect(connect_to(leader), "SET k v\r\n", "+OK\r\n");
    hand_over_unseen(leader, other);
    CHECK(other->ahead.epoch == epoch, "it has looked\n");
    turn_until_it_leads(other);
    CHECK(other->ahead.epoch == other->values.epoch, "it executes commands in an epoch that is over\n");
    expect(connect_to(other), "GET k\r\n", "$1\r\nv\r\n");
    end();
}

/* An answer of a former epoch, however late, is none to what was asked in this one. */
static void late(void)
{
    struct member *leader = begin(false);
    uint64_t former = leader->ahead.epoch;
    struct member *next = hand_over(leader);
    while (next != leader)
        next = hand_over(next);
    struct client *c = connect_to(leader);
    expect(c, "SET k 1\r\n", "+OK\r\n");
    send(c, "SET k 2\r\n");
    const struct cl_raft_token token = {{0, former, leader->ahead.next - 1, 0}};
    uint64_t before = leader->ahead.count.late;
    raft_ahead_answer(&leader->ahead, &token, CL_RAFT_OK, (const uint8_t *)"", 0);
    expect_nothing(c);
    raft_ahead_answer(&leader->ahead, &token, CL_RAFT_RETRY, (const uint8_t *)"", 0);
    CHECK(!leader->ahead.lost, "a refusal of a former epoch ends this one\n");
    CHECK(leader->ahead.count.late == before + 2, "late answers are not counted\n");
    deliver();
    CHECK(!strcmp(read_all(c), "+OK\r\n"), "%s\n", c->got);
    end();
}

/* A snapshot that is taken while the engine is made has the same pass over the values: the engine is begun anew. */
static void snapshot(void)
{
    struct member *leader = begin(false), *next = &members[leader->id % NODES];
    struct client *c = connect_to(leader);
    for (char key = 'a'; key <= 'e'; key++) { /* so much that an engine is made of it in several turns */
        char line[64];
        snprintf(line, sizeof line, "SETRANGE %c 149999 x\r\n", key);
        expect(c, line, ":150000\r\n");
    }
    hand_over_unseen(leader, next);
    for (int t = 0; t < PATIENCE && next->ahead.state != RAFT_AHEAD_MAKES; t++) {
        raft_ahead_turn(&next->ahead);
        work(next);
        deliver();
    }
    raft_ahead_turn(&next->ahead);
    CHECK(next->ahead.state == RAFT_AHEAD_MAKES, "it was made at once\n");
    uint64_t images = next->values.images;
    cl_raft_node_compact(next->node);
    work(next);
    deliver();
    CHECK(next->values.images > images, "no snapshot was taken\n");
    turn_until_it_leads(next);
    struct client *d = connect_to(next);
    expect(d, "DBSIZE\r\n", ":5\r\n");
    end();
}

static const struct scenario all[] = {
    {"moved", moved},       {"multi", multi},   {"blocked", blocked},     {"watch", watch}, {"lease", lease},
    {"no_lease", no_lease}, {"unseen", unseen}, {"overtaken", overtaken}, {"late", late},   {"snapshot", snapshot}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}
