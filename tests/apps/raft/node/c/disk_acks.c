/* What a node takes for durable, on the real log and the node's real side of it (apps/raft/node/disk.c); the rest of
 * the node is stubs that keep what they are told. The device holds back writes of the superblocks, of flushes, or both,
 * so that they are durable in another order than the one in which they were begun.
 * Usage: disk_acks trim|order */
#include "apps/raft/node/disk.h"

#include "tests/libos/storage/log/c/support.h"

#include <stdarg.h>

#define RING 64u /* requests in flight at most */
#define MOST_HELD 256

/* The node's other half. */

static uint64_t persisted; /* the last entry that the core was told of */
static uint8_t body[64];

void node_stop(struct cl_raft_node *node, const char *why, ...)
{
    va_list args;
    va_start(args, why);
    vsnprintf(node->why, sizeof(node->why), why, args);
    va_end(args);
    node->state = CL_RAFT_STOPPED;
}

void cl_raft_persisted(struct cl_raft *raft, uint64_t index, uint64_t term, uint32_t generation)
{
    (void)raft, (void)term, (void)generation;
    persisted = cl_max(persisted, index);
}

void cl_raft_hard_persisted(struct cl_raft *raft, uint64_t hard_seq)
{
    (void)raft, (void)hard_seq;
}

int cl_raft_entry(const struct cl_raft *raft, uint64_t index, struct cl_raft_entry *out)
{
    (void)raft;
    *out = (struct cl_raft_entry){.index = index, .term = 1, .data = body, .bytes = sizeof(body)};
    return 0;
}

void cl_raft_room(const struct cl_raft *raft, struct cl_raft_room *out)
{
    (void)raft;
    *out = (struct cl_raft_room){0};
}

void node_first_put(const struct cl_raft_node *node, uint8_t out[NODE_FIRST_BYTES])
{
    (void)node;
    memset(out, 0, NODE_FIRST_BYTES);
}

uint64_t node_incarnations_put(struct cl_raft_node *node, uint8_t out[NODE_LOGS_BYTES])
{
    (void)node;
    memset(out, 0, NODE_LOGS_BYTES);
    return 1;
}

void node_incarnations_saved(struct cl_raft_node *node, uint64_t put)
{
    (void)node;
    (void)put;
}

void node_stages_durable(struct cl_raft_node *node, uint64_t index, const uint64_t log[2])
{
    (void)node;
    (void)index;
    (void)log;
}

void node_stages_pumped(struct cl_raft_node *node)
{
    (void)node;
}

uint64_t node_digest(uint64_t digest, uint64_t word)
{
    return digest ^ word;
}

bool node_save_step(struct node_disk *d)
{
    (void)d;
    return false;
}

/* The device. */

static struct cl_blk *memory, device;
static struct cl_blk_req *held[MOST_HELD];
static unsigned n_held;
static bool hold_supers, hold_flushes;

static bool of_super(const struct cl_blk_req *r)
{
    return r->offset < 2 * CL_LOG_BLOCK_BYTES;
}

static unsigned hold_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    (void)blk;
    for (unsigned i = 0; i < n; i++) {
        struct cl_blk_req *r = reqs[i];
        if (r->op == CL_BLK_WRITE && (of_super(r) ? hold_supers : hold_flushes)) {
            CHECK(n_held < MOST_HELD, "held %u", n_held);
            held[n_held++] = r;
        } else {
            memory->ops->submit(memory, queue, &r, 1);
        }
    }
    return n;
}

static unsigned hold_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    (void)blk;
    return memory->ops->poll(memory, queue, done, n);
}

static int hold_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    (void)blk, (void)queue, (void)timeout_ns;
    return 0;
}

static void let_go(void)
{
    hold_supers = hold_flushes = false;
    for (unsigned i = 0; i < n_held; i++)
        memory->ops->submit(memory, 0, &held[i], 1);
    n_held = 0;
}

static void let_supers_go(void)
{
    unsigned kept = 0;
    hold_supers = false;
    for (unsigned i = 0; i < n_held; i++) {
        if (of_super(held[i]))
            memory->ops->submit(memory, 0, &held[i], 1);
        else
            held[kept++] = held[i];
    }
    n_held = kept;
}

static struct cl_log *open_held(void)
{
    static const struct cl_blk_ops ops = {.name = "hold", .submit = hold_submit, .poll = hold_poll, .wait = hold_wait};
    struct cl_log_layout layout = {.area_id = 1};
    struct cl_log_config log_config = {.blk = &device};
    struct cl_log *log;
    char err[256];
    memory = memory_disk(16 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    device = *memory;
    device.ops = &ops;
    CHECK(cl_log_open_wait(&log_config, &log, NULL, err) == 0, "%s", err);
    return log;
}

/* The node. */

static struct cl_raft_node node;
static uint64_t last;

static void pump(void)
{
    while (node_disk_pump(&node))
        CHECK(persisted <= cl_log_durable_index(node.config.log), "entry %lu is acknowledged, durable is %lu",
              persisted, cl_log_durable_index(node.config.log));
}

static void append(unsigned entries)
{
    struct cl_raft_ready ready = {.first = last + 1, .last = last + entries};
    last += entries;
    node_disk_write(&node, &ready);
    pump();
}

static void check_durable(uint64_t index)
{
    CHECK(node.state == CL_RAFT_RUNNING, "%s", node.why);
    CHECK(persisted == index, "entry %lu is acknowledged, not %lu", persisted, index);
    CHECK(cl_log_durable_index(node.config.log) == index, "durable is %lu, not %lu",
          cl_log_durable_index(node.config.log), index);
}

/* A trim is not durable while more requests come and go than the node can have in flight. */
static void trim_is_late(void)
{
    append(100);
    check_durable(100);
    hold_supers = true;
    node.disk->trim = 51;
    pump();
    pump(); /* what the first asked of the log goes to the device */
    CHECK(n_held == 1, "%u superblocks are held", n_held);
    for (unsigned i = 0; i < 2 * RING - RING / 8;
         i++) { /* so that a slot of the trim's would be in flight again below */
        append(1);
        check_durable(last);
    }
    uint64_t before = last;
    hold_flushes = true;
    append(RING / 4);
    append(RING / 4);
    check_durable(before);
    let_supers_go(); /* the trim is done; the flushes are not */
    pump();
    check_durable(before);
    let_go();
    pump();
    check_durable(last);
    CHECK(cl_log_first_index(node.config.log) == 51, "first is %lu", cl_log_first_index(node.config.log));
}

/* A log that broke its promise of order would have slots of the ring used twice. */
static void out_of_order_stops(void)
{
    hold_flushes = true;
    append(2);
    CHECK(node.disk->ops_count == 2, "%u in flight", node.disk->ops_count);
    struct cl_log_op wrong = node.disk->ops[1].op;
    node.disk->ops[1].op.result = 0;
    node.disk->ops[1].op.done(&node.disk->ops[1].op);
    CHECK(node.state == CL_RAFT_STOPPED && strstr(node.why, "not the oldest"), "%s", node.why);
    CHECK(persisted == 0, "entry %lu is acknowledged", persisted);
    node.disk->ops[1].op = wrong;
    let_go();
}

int main(int argc, char **argv)
{
    char err[256];
    node.config.log = open_held();
    node.config.raft.id = 1;
    node.config.log_requests = RING;
    node.state = CL_RAFT_RUNNING;
    CHECK(argc == 2, "usage: disk_acks trim|order");
    CHECK(node_disk_new(&node, err) == 0, "%s", err);
    node.disk->write_next = 1;
    if (strcmp(argv[1], "trim") == 0)
        trim_is_late();
    else
        out_of_order_stops();
    while (cl_log_busy(node.config.log))
        cl_log_pump(node.config.log);
    cl_log_close(node.config.log, NULL);
    node_disk_delete(&node);
    cl_blk_close(memory);
    puts("ok");
    return 0;
}
