/* What each replica has to make of a log like all others: its clock, its random word, its version. Step by step.
 * Usage: alike_scenarios NAME, one of those at the end */
#include "../../c/no_state.h"
#include "../../c/scenarios.h"
#include "apps/raft/core/bytes.h"
#include "apps/raft/core/wire.h"
#include "apps/raft/node/node.h"
#include "drivers/blk/memory.h"
#include <corelane/libos/log.h>

#define YEAR_MS (365ul * 24 * 3600 * 1000)
#define WALL_MS (50 * YEAR_MS)

enum { COMMAND_HEADER = 32 /* apps/raft/node/internal.h */, ENTRIES = 64 };

static uint64_t wall_now_ms = WALL_MS;
static uint8_t reply_bytes[64];
static int told = -1;

/* The state of every machine: which word it was given how often. */
static uint64_t words, last_word;

static uint64_t now_of(void *arg)
{
    (void)arg;
    return 1000000000;
}

static uint64_t wall_of(void *arg)
{
    (void)arg;
    return wall_now_ms;
}

static bool send_nothing(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    (void)arg, (void)to, (void)data, (void)bytes, (void)lasting;
    return true;
}

static void take_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg, (void)token;
    told = status;
    memcpy(reply_bytes, reply, cl_min(bytes, (uint32_t)sizeof(reply_bytes)));
}

static void take_word(void *arg, uint64_t word)
{
    (void)arg;
    words++;
    last_word = word;
}

/* Node 1 of so many voters, in memory or with a log. */
static struct cl_raft_node *new_node(uint32_t voters, struct cl_log *log)
{
    struct cl_raft_node_config config = {
        .raft = {.id = 1, .log_entries = ENTRIES, .log_bytes = 32768, .entry_bytes = 1024, .election_ticks = 1000},
        .env = {.now_ns = now_of, .wall_ms = wall_of, .send = send_nothing, .answer = take_answer},
        .machine = {.apply = apply_anything, .save = save_nothing, .load = load_anything, .seed = take_word},
        .log = log,
    };
    struct cl_raft_node *node;
    config.raft.members = (struct cl_raft_members){.n_voters = voters, .voters = {1, 2, 3}};
    CHECK(!cl_raft_node_new(&config, &node, err), "%s\n", err);
    for (int i = 0; i < 50 && cl_raft_node_state(node) == CL_RAFT_RECOVERING; i++)
        cl_raft_node_poll(node);
    return node;
}

/* The only voter leads. */
static struct cl_raft_node *new_leader(struct cl_log *log)
{
    struct cl_raft_node *node = new_node(1, log);
    cl_raft_campaign(cl_raft_node_core(node));
    for (int i = 0; i < 50 && !cl_raft_node_led_ns(node); i++)
        cl_raft_node_poll(node);
    CHECK(cl_raft_node_led_ns(node), "does not lead with all votes: %s\n", cl_raft_node_why(node));
    return node;
}

/* Node 2, the leader of term 1, has entry `index`: a command of this kind, with this word in the place of its
 * sequence. */
static void follow(struct cl_raft_node *node, uint64_t index, uint64_t commit, int kind, uint64_t word,
                   uint64_t stamp_ms)
{
    uint8_t entry[RAFT_ENTRY_HEADER + COMMAND_HEADER] = {0};
    put64(entry, 1);
    put32(entry + 8, COMMAND_HEADER);
    put32(entry + 12, CL_RAFT_COMMAND);
    put64(entry + RAFT_ENTRY_HEADER, (uint64_t)kind);
    put64(entry + RAFT_ENTRY_HEADER + 16, word);
    put64(entry + RAFT_ENTRY_HEADER + 24, stamp_ms);
    struct cl_raft_msg append = {.type = CL_RAFT_APPEND, .from = 2, .term = 1, .index = index - 1, .commit = commit};
    append.log_term = index > 1;
    append.data = entry;
    append.data_bytes = sizeof(entry);
    append.n_entries = 1;
    step(cl_raft_node_core(node), append);
    cl_raft_node_poll(node);
}

/* Two commands of the leader before have these stamps, and it is known of the first one alone that it is committed.
 * Returns the stamp of the next leader's first command. */
static uint64_t next_stamp(uint64_t first_ms, int kind, uint64_t second_ms)
{
    struct cl_raft_token token = {{1}};
    struct cl_raft_node *node = new_node(3, NULL);
    struct cl_raft *raft = cl_raft_node_core(node);
    struct cl_raft_status s;
    struct cl_raft_entry e;
    follow(node, 1, 1, CL_RAFT_APPLY, 0, first_ms);
    follow(node, 2, 1, kind, 0, second_ms);
    CHECK(cl_raft_node_clock_ms(node) == first_ms, "the clock is at %lu\n", cl_raft_node_clock_ms(node));
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_TIMEOUT_NOW, .from = 2, .term = 1});
    cl_raft_node_poll(node);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_VOTE_REPLY, .from = 2, .term = 2});
    cl_raft_node_poll(node);
    CHECK(cl_raft_node_led_ns(node), "does not lead with two votes of three\n");
    cl_raft_node_submit(node, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"mine", 4, &token);
    cl_raft_status(raft, &s);
    CHECK(!cl_raft_entry(raft, s.last, &e) && e.bytes == COMMAND_HEADER + 4, "the command is not in the log\n");
    uint64_t stamp_ms = get64(e.data + 24);
    cl_raft_node_delete(node);
    return stamp_ms;
}

/* A leader's stamps go on from the newest in its log, committed or not. */
static void reign(void)
{
    enum { AHEAD_MS = 60000 };
    uint64_t stamp_ms = next_stamp(WALL_MS, CL_RAFT_APPLY, WALL_MS + AHEAD_MS);
    CHECK(stamp_ms >= WALL_MS + AHEAD_MS,
          "a leader's command is of %lu ms before one in its log: the clock stands still\n",
          WALL_MS + AHEAD_MS - stamp_ms);
    stamp_ms = next_stamp(WALL_MS + YEAR_MS, CL_RAFT_CLOCK_SET, WALL_MS);
    CHECK(stamp_ms < WALL_MS + AHEAD_MS, "the next leader takes back what the clock was set to: it is %lu ms ahead\n",
          stamp_ms - WALL_MS);
}

/* An operator sets the clock: sessions are as old as before. */
static void set(void)
{
    struct cl_raft_token token = {{1}};
    struct cl_raft_node *node = new_leader(NULL);
    cl_raft_node_submit(node, CL_RAFT_OPEN, 0, 0, NULL, 0, &token);
    cl_raft_node_poll(node);
    CHECK(told == CL_RAFT_OK, "cannot open a session: %d\n", told);
    wall_now_ms = WALL_MS + YEAR_MS;
    CHECK(!cl_raft_node_set_clock(node, wall_now_ms), "cannot set the clock\n");
    cl_raft_node_poll(node);
    CHECK(cl_raft_node_clock_ms(node) == wall_now_ms, "the clock is at %lu\n", cl_raft_node_clock_ms(node));
    cl_raft_node_submit(node, CL_RAFT_APPLY, get64(reply_bytes), 1, (const uint8_t *)"x", 1, &token);
    cl_raft_node_poll(node);
    CHECK(told == CL_RAFT_OK, "a session ends because the clock is set: %d\n", told);
    cl_raft_node_delete(node);
}

/* The leader's snapshot, given to a new node as node 2's of term 1; its index. */
static uint64_t install(struct cl_raft_node *from, struct cl_raft_node *to)
{
    uint64_t index, term, bytes;
    cl_raft_node_compact(from);
    cl_raft_node_poll(from);
    const uint8_t *data = cl_raft_node_snapshot(from, &index, &term, &bytes);
    CHECK(data, "there is no snapshot\n");
    struct cl_raft_msg chunk = {.type = CL_RAFT_SNAPSHOT, .from = 2, .term = 1, .index = index, .log_term = 1};
    chunk.total = bytes;
    chunk.data = data;
    chunk.data_bytes = (uint32_t)bytes;
    chunk.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    step(cl_raft_node_core(to), chunk);
    cl_raft_node_poll(to);
    struct cl_raft_status s;
    cl_raft_status(cl_raft_node_core(to), &s);
    CHECK(s.last == index, "takes up to entry %lu for the log, and the snapshot is of %lu\n", s.last, index);
    return index;
}

/* Whoever was made of a snapshot gives the machine the same word as the others: the first of the log, and none if the
 * snapshot has it already. */
static void word(void)
{
    struct cl_raft_token token = {{1}};
    struct cl_raft_node *node = new_node(3, NULL);
    follow(node, 1, 1, CL_RAFT_SEED, 7, WALL_MS);
    follow(node, 2, 2, CL_RAFT_SEED, 9, WALL_MS);
    CHECK(words == 1 && last_word == 7, "of two words %lu count, and the last is %lu\n", words, last_word);
    cl_raft_node_delete(node);
    struct cl_raft_node *leads = new_leader(NULL);
    node = new_node(3, NULL);
    words = 0;
    uint64_t index = install(leads, node);
    follow(node, index + 1, index + 1, CL_RAFT_SEED, 7, WALL_MS);
    CHECK(words == 1 && last_word == 7, "has not the group's word, by a snapshot of before: %lu words\n", words);
    cl_raft_node_delete(node);
    cl_raft_node_submit(leads, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"x", 1, &token);
    cl_raft_node_poll(leads);
    CHECK(words == 2 && told == CL_RAFT_OK, "a leader draws %lu words\n", words - 1);
    node = new_node(3, NULL);
    words = 0;
    index = install(leads, node);
    follow(node, index + 1, index + 1, CL_RAFT_SEED, 9, WALL_MS);
    CHECK(!words, "takes another word than the group's, by a snapshot that has it\n");
    cl_raft_node_delete(node);
    cl_raft_node_delete(leads);
}

/* Whoever was made of a snapshot goes on from the clock that the others had there. */
static void clock_of_snapshot(void)
{
    struct cl_raft_token token = {{1}};
    struct cl_raft_node *leads = new_leader(NULL), *node = new_node(3, NULL);
    cl_raft_node_submit(leads, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"x", 1, &token);
    cl_raft_node_poll(leads);
    install(leads, node);
    CHECK(cl_raft_node_clock_ms(node) == WALL_MS, "by the snapshot the log's clock is at %lu\n",
          cl_raft_node_clock_ms(node));
    cl_raft_node_delete(node);
    cl_raft_node_delete(leads);
}

static struct cl_log *open_log(struct cl_blk *blk)
{
    struct cl_log_config config = {.blk = blk};
    struct cl_log *log;
    CHECK(!cl_log_open_wait(&config, &log, NULL, err), "%s\n", err);
    return log;
}

/* Start a node on a log that says that it is of this version. Its state; in *now the version that the log says then. */
static int start_on(uint32_t version, uint32_t *now)
{
    struct cl_blk_memory_config memory = {.bytes = 1 << 20, .depth = 16};
    struct cl_log_layout layout = {.area_id = 1, .snapshot_bytes = 64 << 10};
    uint8_t meta[CL_LOG_META_BYTES];
    struct cl_blk *blk;
    CHECK(!cl_blk_memory_new(&memory, &blk, err), "%s\n", err);
    CHECK(!cl_log_format(blk, 0, &layout, err), "%s\n", err);
    struct cl_log *log = open_log(blk);
    struct cl_raft_node *node = new_leader(log);
    while (cl_log_busy(log))
        cl_raft_node_poll(node);
    cl_raft_node_delete(node);
    struct cl_log_op op = {.data = meta, .bytes = cl_log_meta_get(log, meta)};
    CHECK(get32(meta + 4) == CL_RAFT_NODE_VERSION, "writes version %u\n", get32(meta + 4)); /* disk.h */
    put32(meta + 4, version);
    CHECK(!cl_log_meta_set(log, &op) && !cl_log_wait(log, &op), "cannot change the version\n");
    CHECK(!cl_log_close(log, NULL), "cannot close the log\n");
    log = open_log(blk);
    node = new_node(1, log);
    int state = cl_raft_node_state(node);
    cl_log_meta_get(log, meta);
    *now = get32(meta + 4);
    cl_raft_node_delete(node);
    cl_log_close(log, NULL);
    cl_blk_close(blk);
    return state;
}

/* Entries of a newer version mean what this one does not know. And what this one writes to a log of the version before,
 * that one must not read again. */
static void version(void)
{
    static const uint32_t unknown[] = {CL_RAFT_NODE_VERSION_LEAST - 1, CL_RAFT_NODE_VERSION + 1};
    uint32_t now;
    for (int i = 0; i < 2; i++)
        CHECK(start_on(unknown[i], &now) == CL_RAFT_STOPPED && now == unknown[i],
              "takes a log of version %u for its own\n", unknown[i]);
    for (uint32_t v = CL_RAFT_NODE_VERSION_LEAST; v <= CL_RAFT_NODE_VERSION; v++) {
        CHECK(start_on(v, &now) == CL_RAFT_RUNNING, "does not start on a log of version %u\n", v);
        CHECK(now == CL_RAFT_NODE_VERSION, "runs on a log that is still said to be of version %u\n", now);
    }
}

static const struct scenario all[] = {
    {"reign", reign}, {"set", set}, {"word", word}, {"version", version}, {"clock", clock_of_snapshot}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}
