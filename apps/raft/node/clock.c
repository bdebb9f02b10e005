/* The log's clock: of sessions, and of what the state machine lets expire. A leader stamps each command, and applying
 * it moves the clock on to the stamp, never back.
 *
 * A stamp is what the leader's wall clock says, but no more than twice, and no less than half, of what its monotonic
 * clock counted since the stamp before. So a wall clock that is wrong, or jumps, makes time pass twice or half as fast
 * for as long as it is off, and not all at once: a session lasts for half of session_ms at least. Only the first stamp
 * of a group is taken as it is; if it was wrong, an operator sets the clock by an entry of its own, also back.
 *
 * The stamp before is the leader's own; in the beginning the newest in its log, which was given when it was applied
 * here at the latest. What the log holds and is not applied counts, too: a stamp that is older than one of those moves
 * nothing on, and one that does not know what an operator set the clock to takes it back.
 *
 * Where nothing is written the clock would stand still, and nothing would expire. So for a state machine that ages a
 * leader that is asked for a read proposes an entry of its own when its newest stamp is older than ages_ms, and the
 * read waits for that. Where the log takes none the read is answered by the clock as it is. */
#include "disk.h"
#include "../core/bytes.h"
#include <errno.h>

#define MS 1000000u
#define FASTER 2

static uint64_t stamp_of(const struct cl_raft_entry *e)
{
    return e->kind == CL_RAFT_COMMAND && e->bytes >= CL_RAFT_COMMAND_HEADER ? get64(e->data + 24) : 0;
}

uint64_t cl_raft_node_clock_ms(const struct cl_raft_node *node)
{
    return node->clock_ms;
}

void node_clock_advance(struct cl_raft_node *node, uint64_t stamp_ms)
{
    if (stamp_ms <= node->clock_ms)
        return;
    node->clock_ms = stamp_ms;
    node->clock_ns = node->config.env.now_ns(node->config.env.arg);
}

void node_clock_put(struct cl_raft_node *node, uint64_t stamp_ms)
{
    raft_sessions_shift(&node->sessions, node->clock_ms, stamp_ms);
    cl_count(&node->count.clock_sets, 1);
    node->clock_ms = stamp_ms;
    node->clock_ns = node->config.env.now_ns(node->config.env.arg);
}

/* What the wall clock says, as far as it may be believed that long after a stamp. */
static uint64_t stamp_after(uint64_t stamp_ms, uint64_t passed_ms, uint64_t wall_ms)
{
    return cl_min(cl_max(wall_ms, stamp_ms + passed_ms / FASTER), stamp_ms + passed_ms * FASTER);
}

int64_t cl_raft_node_clock_ahead_ms(const struct cl_raft_node *node)
{
    const struct cl_raft_env *env = &node->config.env;
    uint64_t now_ns = env->now_ns(env->arg), wall_ms = env->wall_ms(env->arg);
    uint64_t passed = now_ns > node->clock_ns ? (now_ns - node->clock_ns) / MS : 0;
    return node->clock_ms ? (int64_t)(stamp_after(node->clock_ms, passed, wall_ms) - wall_ms) : 0;
}

int cl_raft_node_set_clock(struct cl_raft_node *node, uint64_t ms)
{
    uint64_t index, term;
    uint8_t entry[CL_RAFT_COMMAND_HEADER] = {0};
    if (!ms)
        return -EINVAL;
    put64(entry, node_kind_word(node, CL_RAFT_CLOCK_SET));
    put64(entry + 24, ms);
    int rc = cl_raft_propose(node->raft, entry, sizeof(entry), &index, &term);
    if (!rc)
        node->stamp = (struct node_stamp){ms, node->config.env.now_ns(node->config.env.arg)};
    return rc;
}

void node_clock_lead(struct cl_raft_node *node)
{
    struct node_stamp *s = &node->stamp;
    struct cl_raft_entry e;
    *s = (struct node_stamp){node->clock_ms, node->clock_ns};
    for (uint64_t i = node->applied + 1; !cl_raft_entry(node->raft, i, &e); i++)
        if (stamp_of(&e) > s->ms || (stamp_of(&e) && node_kind(get64(e.data)) == CL_RAFT_CLOCK_SET))
            *s = (struct node_stamp){stamp_of(&e), node->config.env.now_ns(node->config.env.arg)};
}

uint64_t node_clock_stamp(struct cl_raft_node *node)
{
    const struct cl_raft_env *env = &node->config.env;
    struct node_stamp *s = &node->stamp;
    uint64_t now_ns = env->now_ns(env->arg), ms = env->wall_ms(env->arg);
    uint64_t passed = now_ns > s->ns ? (now_ns - s->ns) / MS : 0; /* clocks that step back exist, by nanoseconds too */
    if (s->ms)
        ms = stamp_after(s->ms, passed, ms);
    if (ms > s->ms)
        *s = (struct node_stamp){ms, now_ns};
    return s->ms;
}

uint64_t node_clock_young(struct cl_raft_node *node)
{
    uint64_t now_ns = node->config.env.now_ns(node->config.env.arg), index, term;
    uint8_t entry[CL_RAFT_COMMAND_HEADER] = {0};
    uint64_t ages_ns = node->config.machine.ages_ms * (uint64_t)MS;
    if (!ages_ns)
        return 0;
    if (node->stamp.ms && now_ns >= node->stamp.ns + ages_ns && !node_disk_low(node, 8) && !node_disk_crowded(node)) {
        put64(entry, node_kind_word(node, CL_RAFT_CLOCK));
        put64(entry + 24, node_clock_stamp(node));
        if (!cl_raft_propose(node->raft, entry, sizeof(entry), &index, &term))
            node->clock_index = index;
    }
    return node->clock_index > node->applied ? node->clock_index : 0;
}
