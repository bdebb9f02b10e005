/* Situations that seeds seldom make, step by step. Each is run as it is, and with the mistake that it is there to find (test_mistakes.py).
 * Usage: scenarios commit|snapshot|lease|slot */
#include "apps/raft/bytes.h"
#include "apps/raft/node.h"
#include "drivers/blk_memory.h"
#include "libos/storage/log.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond, ...)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s: ", #cond);                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char err[256] = "no memory";

static void done_at_once(struct cl_raft *raft)
{
    struct cl_raft_ready ready;
    struct cl_raft_entry e;
    while (cl_raft_ready(raft, &ready)) {
        if (ready.first && !cl_raft_entry(raft, ready.last, &e))
            cl_raft_persisted(raft, e.index, e.term, e.generation);
        if (ready.hard)
            cl_raft_hard_persisted(raft, ready.hard_seq);
    }
}

/* Entries 1 and 2 came from a leader that nobody else followed. The next one has the first of them, and committed another second. */
static void commit(void)
{
    struct cl_raft_config config = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024};
    struct cl_raft *raft = NULL;
    struct cl_raft_status s;
    uint8_t entries[2][16] = {0};
    config.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_new(&config, &raft, err), "%s\n", err);
    for (int i = 0; i < 2; i++)
        put64(entries[i], 1); /* of term 1, empty */
    struct cl_raft_msg old = {.type = CL_RAFT_APPEND, .from = 2, .to = 1, .term = 1};
    old.data = entries[0];
    old.n_entries = 2;
    old.data_bytes = sizeof(entries);
    CHECK(!cl_raft_step(raft, &old), "an append of two entries is refused\n");
    done_at_once(raft);
    struct cl_raft_msg heartbeat = {
        .type = CL_RAFT_APPEND, .from = 3, .to = 1, .term = 2, .index = 1, .log_term = 1, .commit = 2};
    CHECK(!cl_raft_step(raft, &heartbeat), "a heartbeat is refused\n");
    done_at_once(raft);
    cl_raft_status(raft, &s);
    CHECK(s.last == 2 && s.commit == 1, "commits up to %lu of %lu entries, and only the first is the leader's\n",
          s.commit, s.last);
    struct cl_raft_msg m;
    bool told = false;
    while (cl_raft_poll_message(raft, &m))
        if (m.type == CL_RAFT_APPEND_REPLY && (told = true))
            CHECK(m.index == 1 && m.received == 1, "acknowledges entry %lu, which is not the leader's\n", m.index);
    CHECK(told, "the heartbeat is not answered\n");
    cl_raft_delete(raft);
}

enum { ELECTION_TICKS = 10, OLD_LEADER = 1, CANDIDATE = 3 };

static struct cl_raft *voter_with_leases(void)
{
    struct cl_raft_config config = {.id = 2, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024};
    struct cl_raft *raft = NULL;
    config.lease_reads = 1;
    config.election_ticks = ELECTION_TICKS;
    config.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_new(&config, &raft, err), "%s\n", err);
    return raft;
}

/* Whether it votes for the candidate of term 2. */
static bool votes(struct cl_raft *raft, uint8_t flags)
{
    struct cl_raft_msg m = {.type = CL_RAFT_VOTE, .from = CANDIDATE, .to = 2, .term = 2, .flags = flags};
    bool granted = false;
    cl_raft_step(raft, &m);
    done_at_once(raft);
    while (cl_raft_poll_message(raft, &m))
        granted |= m.type == CL_RAFT_VOTE_REPLY && !(m.flags & CL_RAFT_REJECT);
    return granted;
}

/* A leader did not run for a while, and others asked for pre-votes. One of them hears it again, and then what the other, a candidate by
 * now, had said before to its own pre-vote: no, this is term 2. Or it is started again after that. */
static void lease(void)
{
    struct cl_raft_msg heartbeat = {.type = CL_RAFT_APPEND, .from = OLD_LEADER, .to = 2, .term = 1};
    struct cl_raft_msg no = {.type = CL_RAFT_PREVOTE_REPLY, .from = CANDIDATE, .to = 2, .term = 2};
    no.flags = CL_RAFT_REJECT;
    for (int forced = 0; forced < 2; forced++) {
        struct cl_raft *raft = voter_with_leases();
        for (int i = 0; i < ELECTION_TICKS; i++)
            cl_raft_tick(raft);
        CHECK(!cl_raft_step(raft, &heartbeat), "a heartbeat is refused\n");
        done_at_once(raft);
        cl_raft_step(raft, &no);
        done_at_once(raft);
        CHECK(cl_raft_term(raft) == 2 && !cl_raft_leader(raft), "it did not hear of term 2\n");
        for (int i = 0; i < ELECTION_TICKS && !forced; i++) {
            CHECK(!votes(raft, 0), "votes %d ticks after it heard from a leader, that leader's lease is on\n", i);
            cl_raft_tick(raft);
        }
        CHECK(votes(raft, forced ? CL_RAFT_FORCE : 0), "does not vote, and the old leader's lease is over\n");
        cl_raft_delete(raft);
    }
    struct cl_raft *raft = voter_with_leases();
    CHECK(!cl_raft_restore(raft, 2, 0, 0, 0, 0, NULL), "cannot be restored\n");
    for (int i = 0; i < ELECTION_TICKS; i++) {
        CHECK(!votes(raft, 0), "votes %d ticks after its start, and a leader's lease may be on\n", i);
        cl_raft_tick(raft);
    }
    CHECK(votes(raft, 0), "does not vote, and any old leader's lease is over\n");
    cl_raft_delete(raft);
}

static uint64_t now_ns = 1000000000;

static uint64_t clock_of(void *arg)
{
    (void)arg;
    return now_ns;
}

static bool send_nothing(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    (void)arg, (void)to, (void)data, (void)bytes, (void)lasting;
    return true;
}

static int load_anything(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg, (void)at, (void)data, (void)bytes, (void)total;
    return 0;
}

static struct cl_log *open_log(struct cl_blk *blk)
{
    struct cl_log_config config = {.blk = blk};
    struct cl_log *log;
    CHECK(!cl_log_open_wait(&config, &log, NULL, err), "%s\n", err);
    return log;
}

/* A log of five entries of which the last three, of terms 1, 3 and 3, are not what was committed, and the snapshot that a leader sent:
 * of the first three, the last of which is of term 2. The power fails before the log is cut. */
static void write_log(struct cl_log *log)
{
    static const uint64_t terms[] = {1, 1, 1, 3, 3};
    struct cl_raft_members members = {.n_voters = 3, .voters = {1, 2, 3}};
    uint8_t blob[256] = {0}, members_bytes[CL_RAFT_MEMBERS_BYTES];
    struct cl_log_op op;
    for (int i = 0; i < 5; i++) {
        op = (struct cl_log_op){.data = blob, .tag = terms[i]};
        CHECK(!cl_log_append(log, &op) && !cl_log_wait(log, &op), "cannot append\n");
    }
    uint32_t n = (uint32_t)cl_raft_members_encode(&members, members_bytes);
    put32(blob, 0x53524c43u); /* node_snapshot.c */
    put32(blob + 4, 1);
    put64(blob + 16, n);
    memcpy(blob + 32, members_bytes, n);
    op = (struct cl_log_op){0};
    CHECK(!cl_log_snapshot_begin(log, 3, 2), "cannot begin a snapshot\n");
    CHECK(cl_log_snapshot_write(log, blob, 32 + n + 8) == 32 + n + 8, "cannot write a snapshot\n");
    CHECK(!cl_log_snapshot_commit(log, &op) && !cl_log_wait(log, &op), "cannot keep a snapshot\n");
}

static void snapshot(void)
{
    struct cl_blk_memory_config memory = {.bytes = 1 << 20, .depth = 16};
    struct cl_log_layout layout = {.area_id = 1, .snapshot_bytes = 64 << 10};
    struct cl_raft_node_config config = {
        .raft = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024, .election_ticks = 1000},
        .env = {.now_ns = clock_of, .wall_ms = clock_of, .send = send_nothing},
        .machine = {.load = load_anything},
    };
    struct cl_blk *blk;
    struct cl_raft_node *node;
    struct cl_raft_status s;
    CHECK(!cl_blk_memory_new(&memory, &blk, err), "%s\n", err);
    CHECK(!cl_log_format(blk, 0, &layout, err), "%s\n", err);
    struct cl_log *log = config.log = open_log(blk);
    config.raft.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_node_new(&config, &node, err), "%s\n", err);
    for (int i = 0; i < 50 && cl_raft_node_state(node) != CL_RAFT_RUNNING; i++)
        cl_raft_node_poll(node); /* says in the log who votes first */
    cl_raft_node_delete(node);
    write_log(log);
    cl_log_close(log);
    log = config.log = open_log(blk);
    CHECK(!cl_raft_node_new(&config, &node, err), "%s\n", err);
    for (int i = 0; i < 50; i++, now_ns += 1000000)
        cl_raft_node_poll(node);
    CHECK(cl_raft_node_state(node) == CL_RAFT_RUNNING, "%s\n", cl_raft_node_why(node));
    cl_raft_status(cl_raft_node_core(node), &s);
    CHECK(s.last == 3 && s.commit == 3, "takes up to entry %lu for its log, and the snapshot's 3 is of another\n",
          s.last);
    CHECK(cl_raft_term_at(cl_raft_node_core(node), 3) == 2, "entry 3 is not the snapshot's\n");
    CHECK(cl_log_next_index(log) == 4, "the log goes on at %lu\n", cl_log_next_index(log));
    cl_raft_node_delete(node);
    cl_log_close(log);
    log = open_log(blk);
    CHECK(cl_log_durable_index(log) == 3, "entry %lu is still there\n", cl_log_durable_index(log));
    cl_log_close(log);
    cl_blk_close(blk);
}

static int answered_with = -1;
static unsigned answers;

static void take_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg, (void)token, (void)reply, (void)bytes;
    answered_with = status;
    answers++;
}

static int64_t apply_anything(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                              uint8_t *reply, uint32_t room)
{
    (void)arg, (void)index, (void)clock_ms, (void)command, (void)bytes, (void)room;
    reply[0] = 1;
    return 1;
}

static void step(struct cl_raft *raft, struct cl_raft_msg m)
{
    m.to = 1;
    CHECK(!cl_raft_step(raft, &m), "a message of type %u is refused\n", m.type);
}

/* A leader's client waits for entry 2. The leader hears of the next one only by what that one committed as entry 2. */
static void slot(void)
{
    struct cl_raft_node_config config = {
        .raft = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024, .election_ticks = 1000},
        .env = {.now_ns = clock_of, .wall_ms = clock_of, .send = send_nothing, .answer = take_answer},
        .machine = {.apply = apply_anything, .load = load_anything},
    };
    struct cl_raft_token token = {{1, 2, 3, 4}};
    struct cl_raft_node *node;
    config.raft.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_node_new(&config, &node, err), "%s\n", err);
    struct cl_raft *raft = cl_raft_node_core(node);
    cl_raft_node_poll(node);
    cl_raft_campaign(raft);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_PREVOTE_REPLY, .from = 2, .term = 1});
    cl_raft_node_poll(node);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_VOTE_REPLY, .from = 2, .term = 1});
    cl_raft_node_poll(node);
    CHECK(cl_raft_leader(raft) == 1, "does not lead with two votes of three\n");
    cl_raft_node_submit(node, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"mine", 4, &token);
    cl_raft_node_poll(node);
    CHECK(!answers, "is answered before anybody else has it\n");
    uint8_t entries[16 + 16 + 32 + 6] = {0}; /* two headers (wire.h); the second entry is a command (node_internal.h) */
    put64(entries, 2);
    put32(entries + 12, CL_RAFT_NOOP);
    put64(entries + 16, 2);
    put32(entries + 24, 32 + 6);
    put32(entries + 28, CL_RAFT_COMMAND);
    memcpy(entries + 64, "theirs", 6);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_APPEND,
                                    .from = 3,
                                    .term = 2,
                                    .commit = 2,
                                    .data = entries,
                                    .n_entries = 2,
                                    .data_bytes = sizeof(entries)});
    cl_raft_node_poll(node);
    CHECK(answers == 1, "has %u answers\n", answers);
    CHECK(answered_with == CL_RAFT_RETRY, "is told %d of its command, and the entry is another leader's\n",
          answered_with);
    cl_raft_node_delete(node);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "commit"))
        commit();
    else if (argc == 2 && !strcmp(argv[1], "snapshot"))
        snapshot();
    else if (argc == 2 && !strcmp(argv[1], "lease"))
        lease();
    else if (argc == 2 && !strcmp(argv[1], "slot"))
        slot();
    else
        return 2;
    printf("ok\n");
    return 0;
}
