/* Time that goes by, and who leads by then. */
#include "internal.h"

/* Whenever the core may have begun or ceased to lead, and before it can do either again or a snapshot can take the
 * place of what was proposed: whose commands are waited for is known by their places in the log. */
void node_note_leader(struct cl_raft_node *node)
{
    bool leads = cl_raft_leader(node->raft) == node->config.raft.id;
    if (node->leading && !leads)
        node_lost_leadership(node);
    if (leads != node->leading)
        node->led_ns = leads ? node->config.env.now_ns(node->config.env.arg) : 0;
    if (leads && !node->leading)
        node_clock_lead(node);
    if (leads != node->leading)
        node_stages_forget(node);
    node->leading = leads;
}

void node_advance_ticks(struct cl_raft_node *node)
{
    const struct cl_raft_node_config *c = &node->config;
    node->now_ns = c->env.now_ns(c->env.arg);
    if (!node->next_tick_ns)
        node->next_tick_ns = node->now_ns + c->tick_ns;
    if (node->now_ns >= node->next_tick_ns + c->tick_ns)
        node_disk_pump(node); /* it did not run for a while: what the disk did meanwhile is no hang */
    if (node->now_ns < node->next_tick_ns)
        return;
    uint64_t missed = (node->now_ns - node->next_tick_ns) / c->tick_ns;
    node->next_tick_ns += (missed + 1) * c->tick_ns;
    cl_raft_missed_ticks(node->raft, (uint32_t)cl_min(missed, 1ull << 20));
    cl_raft_tick(node->raft);
    node_note_leader(node);
    cl_store_relaxed(&node->count.clock_ahead_ms, cl_raft_node_clock_ahead_ms(node));
}
