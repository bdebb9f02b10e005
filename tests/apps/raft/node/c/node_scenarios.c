/* Situations of a node, with its log and its clients, that seeds seldom make, step by step. Usage: node_scenarios NAME,
 * one of those at the end */
#include "../../c/no_state.h"
#include "../../c/scenarios.h"
#include "apps/raft/core/bytes.h"
#include "apps/raft/node/node.h"
#include "drivers/blk/memory.h"
#include <corelane/libos/log.h>

enum { ELECTION_TICKS = 10 };

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

static struct cl_log *open_log(struct cl_blk *blk)
{
    struct cl_log_config config = {.blk = blk};
    struct cl_log *log;
    CHECK(!cl_log_open_wait(&config, &log, NULL, err), "%s\n", err);
    return log;
}

/* A log of five entries of which the last three, of terms 1, 3 and 3, are not what was committed, and the snapshot that
 * a leader sent: of the first three, the last of which is of term 2. The power fails before the log is cut. */
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
    put32(blob, 0x53524c43u); /* apps/raft/node/snapshot.c */
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
    cl_log_close(log, NULL);
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
    cl_log_close(log, NULL);
    log = open_log(blk);
    CHECK(cl_log_durable_index(log) == 3, "entry %lu is still there\n", cl_log_durable_index(log));
    cl_log_close(log, NULL);
    cl_blk_close(blk);
}

static int answered_with = -1;
static unsigned answers;
static int told_of_command = -1;

static void take_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg, (void)reply, (void)bytes;
    if (token->words[0] == 1)
        told_of_command = status;
    answered_with = status;
    answers++;
}

static int64_t reply_one(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                         uint8_t *reply, uint32_t room)
{
    (void)arg, (void)index, (void)clock_ms, (void)command, (void)bytes, (void)room;
    reply[0] = 1;
    return 1;
}

/* A leader's client waits for entry 2. The leader hears of the next one only by what that one committed as entry 2. */
static void slot(void)
{
    struct cl_raft_node_config config = {
        .raft = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024, .election_ticks = 1000},
        .env = {.now_ns = clock_of, .wall_ms = clock_of, .send = send_nothing, .answer = take_answer},
        .machine = {.apply = reply_one, .load = load_anything},
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
    uint8_t entries[16 + 16 + 32 + 6] = {
        0}; /* two headers (wire.h); the second entry is a command (apps/raft/node/internal.h) */
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

/* The time of a leader that nobody answers is up when it is asked to read: who waits for a command there is told in
 * that call, and not when the node is polled again. */
static void asked(void)
{
    struct cl_raft_node_config config = {
        .raft = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024, .election_ticks = ELECTION_TICKS},
        .env = {.now_ns = clock_of, .wall_ms = clock_of, .send = send_nothing, .answer = take_answer},
        .machine = {.apply = reply_one, .load = load_anything},
    };
    struct cl_raft_token command = {{1}}, query = {{2}};
    struct cl_raft_node *node;
    config.raft.lease_reads = 1;
    config.raft.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_node_new(&config, &node, err), "%s\n", err);
    struct cl_raft *raft = cl_raft_node_core(node);
    cl_raft_node_poll(node);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_TIMEOUT_NOW, .from = 2, .term = 1});
    cl_raft_node_poll(node);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_VOTE_REPLY, .from = 2, .term = 2});
    cl_raft_node_poll(node);
    cl_raft_node_submit(node, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"mine", 4, &command);
    cl_raft_node_poll(node);
    CHECK(cl_raft_node_led_ns(node) && !answers, "does not lead\n");
    for (int i = 0; i < 3 * ELECTION_TICKS && cl_raft_leader(raft) == 1; i++) {
        now_ns += 1000000;
        cl_raft_node_query(node, (const uint8_t *)"read", 4, &query);
    }
    CHECK(cl_raft_leader(raft) == 0, "leads on, and nobody answers\n");
    CHECK(!cl_raft_node_led_ns(node), "says that it leads, and is no leader's node any more\n");
    CHECK(told_of_command == CL_RAFT_RETRY, "who waits is not told that this node is no leader's any more\n");
    cl_raft_node_delete(node);
}

static const struct scenario all[] = {{"snapshot", snapshot}, {"slot", slot}, {"asked", asked}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}
