/* Situations of nodes whose logs' areas fill, step by step. Usage: area_scenarios NAME, one of those at the end */
#include "../../c/no_state.h"
#include "../../c/scenarios.h"
#include "apps/raft/core/bytes.h"
#include "apps/raft/node/node.h"
#include "drivers/blk/memory.h"
#include <corelane/libos/log.h>

#define MS 1000000u

enum {
    NODES = 3,
    LED_MS = 1000,
    COMMAND_HEADER = 32 /* apps/raft/node/internal.h */,
    FRAMES = 4096,
    FRAME_BYTES = 2304
};
#define LARGE 1900u /* bytes of a command */

struct member {
    struct cl_blk *blk;
    struct cl_log *log;
    struct cl_raft_node *node;
    uint32_t id;
};

static struct member group[NODES];
static uint64_t now_ns = 1000000000;
static int told[2] = {-1, -1}; /* of the commands whose tokens say so */

/* What is on its way, in order. */
static struct frame {
    uint32_t from, to, bytes;
    uint8_t data[FRAME_BYTES];
} frames[FRAMES];
static unsigned frames_head, frames_count;

static uint64_t clock_of(void *arg)
{
    (void)arg;
    return now_ns;
}

static bool send_frame(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    const struct member *m = arg;
    (void)lasting;
    CHECK(bytes <= FRAME_BYTES && frames_count < FRAMES, "a frame of %u bytes, and %u are on their way\n", bytes,
          frames_count);
    struct frame *f = &frames[(frames_head + frames_count++) % FRAMES];
    f->from = m->id;
    f->to = to;
    f->bytes = bytes;
    memcpy(f->data, data, bytes);
    return true;
}

static void take_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg, (void)reply, (void)bytes;
    told[token->words[0]] = status;
}

/* What begins with "n" is not for the log. */
static int64_t check_first(void *arg, const uint8_t *command, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg, (void)reply, (void)room;
    return bytes && *command == 'n' ? CL_RAFT_REFUSES : 0;
}

/* One of three voters, on a log with room for some thirty flushes of one block. Memory is no bound, and an entry goes
 * alone. */
static void start(struct member *m, uint32_t id, uint32_t election_ticks)
{
    struct cl_blk_memory_config memory = {.bytes = 256 << 10, .depth = 16};
    struct cl_log_layout layout = {.area_id = id, .snapshot_bytes = 32 << 10};
    struct cl_raft_node_config config = {
        .raft = {.id = id, .log_entries = 1024, .log_bytes = 1 << 20, .entry_bytes = 2048, .message_bytes = 64},
        .env = {.arg = m, .now_ns = clock_of, .wall_ms = clock_of, .send = send_frame, .answer = take_answer},
        .machine = {.apply = apply_anything, .save = save_nothing, .load = load_anything, .check = check_first},
    };
    struct cl_log_config log = {0};
    m->id = id;
    CHECK(!cl_blk_memory_new(&memory, &m->blk, err), "%s\n", err);
    CHECK(!cl_log_format(m->blk, 0, &layout, err), "%s\n", err);
    log.blk = m->blk;
    CHECK(!cl_log_open_wait(&log, &m->log, NULL, err), "%s\n", err);
    config.log = m->log;
    config.raft.election_ticks = election_ticks;
    config.raft.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_node_new(&config, &m->node, err), "%s\n", err);
    for (int i = 0; i < 50 && cl_raft_node_state(m->node) != CL_RAFT_RUNNING; i++)
        cl_raft_node_poll(m->node);
}

static void end(struct member *m)
{
    CHECK(cl_raft_node_state(m->node) == CL_RAFT_RUNNING, "%s\n", cl_raft_node_why(m->node));
    cl_raft_node_delete(m->node);
    cl_log_close(m->log, NULL);
    cl_blk_close(m->blk);
}

/* A follower that did not run for a while finds more in its queue than its area holds, and all of it is committed. */
static void ahead(void)
{
    enum { ENTRIES = 400, BYTES = 1024, HEADER = 16 /* wire.h */ };
    static uint8_t entry[HEADER + COMMAND_HEADER + BYTES];
    struct member *m = &group[0];
    start(m, 1, 1000);
    CHECK(cl_log_ring_bytes(m->log) < ENTRIES * BYTES, "has room for %lu bytes\n", cl_log_ring_bytes(m->log));
    put64(entry, 1);
    put32(entry + 8, sizeof(entry) - HEADER);
    put32(entry + 12, CL_RAFT_COMMAND);
    struct cl_raft_msg append = {.type = CL_RAFT_APPEND, .from = 2, .term = 1, .commit = ENTRIES};
    append.data = entry;
    append.data_bytes = sizeof(entry);
    append.n_entries = 1;
    for (; append.index < ENTRIES; append.index++, append.log_term = 1)
        step(cl_raft_node_core(m->node), append);
    for (int i = 0; i < 100; i++, now_ns += MS)
        cl_raft_node_poll(m->node);
    CHECK(cl_log_durable_index(m->log) == ENTRIES, "its area is full of what it applied: %lu of %d entries are there\n",
          cl_log_durable_index(m->log), ENTRIES);
    end(m);
}

/* Give everybody what is on its way, until nothing is, but for what goes to `deaf`. After each frame who got it
 * writes. */
static void deliver(uint32_t deaf)
{
    while (frames_count) {
        struct frame *f = &frames[frames_head];
        struct cl_raft_node *node = group[f->to - 1].node;
        frames_head = (frames_head + 1) % FRAMES;
        frames_count--;
        if (f->to == deaf)
            continue;
        cl_raft_node_receive(node, f->data, f->bytes);
        cl_raft_node_poll(node);
    }
}

/* Let a millisecond pass. */
static void pass(uint32_t deaf)
{
    now_ns += MS;
    for (int i = 0; i < NODES; i++)
        cl_raft_node_poll(group[i].node);
    deliver(deaf);
}

static uint32_t leader(void)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (cl_raft_node_led_ns(group[i].node))
            return i + 1;
    return 0;
}

/* Have a node be asked for a command that begins with `first`. */
static void submit(uint32_t id, uint64_t word, char first, uint32_t bytes)
{
    uint8_t command[LARGE] = {(uint8_t)first};
    struct cl_raft_token token = {{word}};
    cl_raft_node_submit(group[id - 1].node, CL_RAFT_APPLY, 0, 0, command, bytes, &token);
}

/* Start all three, and let one of them lead for a while. */
static uint32_t elect(void)
{
    for (uint32_t id = 1; id <= NODES; id++)
        start(&group[id - 1], id, 10);
    for (int i = 0; i < LED_MS && !leader(); i++)
        pass(0);
    for (int i = 0; i < 10; i++)
        pass(0);
    CHECK(leader(), "nobody leads\n");
    return leader();
}

/* The others write each of a leader's commands in a flush of its own, and the leader does not hear of it. To the next
 * leader what they have is of an older term: it commits nothing before an entry of its own fits behind that. */
static void crowd(uint32_t bytes)
{
    enum { COMMANDS = 100 };
    uint32_t old = elect();
    uint64_t ring_bytes = cl_log_ring_bytes(group[0].log);
    CHECK(ring_bytes < COMMANDS * LARGE && ring_bytes < COMMANDS * CL_LOG_BLOCK_BYTES, "has room for all\n");
    for (int i = 0; i < COMMANDS; i++)
        submit(old, 0, 'x', bytes);
    for (int i = 0; i < LED_MS && (!leader() || leader() == old); i++)
        pass(old);
    CHECK(leader() && leader() != old, "nobody leads but who does not hear\n");
    for (int i = 0; i < LED_MS; i++)
        pass(0);
    CHECK(leader(), "nobody leads when all hear each other\n");
    told[1] = -1;
    submit(leader(), 1, 'x', 1);
    for (int i = 0; i < LED_MS; i++)
        pass(0);
    CHECK(told[1] == CL_RAFT_OK, "the areas are full of what cannot be committed: a command is told %d\n", told[1]);
    for (int i = 0; i < NODES; i++)
        end(&group[i]);
}

/* Of large commands a leader takes few; of small ones many, for which re-packing makes room. */
static void crowded(void)
{
    crowd(LARGE);
    crowd(1);
}

/* A command that the machine keeps out of the log is refused by the leader, whoever was asked. */
static void checked(void)
{
    struct cl_raft_status before, after;
    uint32_t leads = elect();
    cl_raft_status(cl_raft_node_core(group[leads - 1].node), &before);
    for (uint32_t id = 1; id <= NODES; id++) {
        told[1] = -1;
        submit(id, 1, 'n', 1);
        deliver(0);
        CHECK(told[1] == CL_RAFT_REFUSED, "node %u, led by %u, says %d to a command that is not for the log\n", id,
              leads, told[1]);
    }
    cl_raft_status(cl_raft_node_core(group[leads - 1].node), &after);
    CHECK(after.last == before.last, "what is not for the log is in it\n");
    for (int i = 0; i < NODES; i++)
        end(&group[i]);
}

static const struct scenario all[] = {{"ahead", ahead}, {"crowded", crowded}, {"checked", checked}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}
