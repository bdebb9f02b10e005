/* See stages.h. */
#include "internal.h"
#include <string.h>

static struct node_mark *newest(struct node_marks *m)
{
    return m->head == m->tail ? NULL : &m->of[(m->tail - 1) % NODE_MARKS];
}

static struct node_mark *note(struct node_marks *m, uint64_t last, uint64_t ns, uint32_t node)
{
    const struct node_mark *before = newest(m);
    if (!last || (before && before->last >= last))
        return NULL;
    m->head += m->tail - m->head == NODE_MARKS;
    struct node_mark *mark = &m->of[m->tail++ % NODE_MARKS];
    *mark = (struct node_mark){.last = last, .ns = ns, .node = node};
    return mark;
}

/* The mark of an entry; a zero one: there is none. */
static struct node_mark mark_of(struct node_marks *m, uint64_t index)
{
    while (m->head != m->tail && m->of[m->head % NODE_MARKS].last < index)
        m->head++;
    return m->head == m->tail ? (struct node_mark){0} : m->of[m->head % NODE_MARKS];
}

static bool notes(const struct cl_raft_node *node)
{
    return node->stages.on && node->leading;
}

static uint64_t now_of(const struct cl_raft_node *node)
{
    return node->config.env.now_ns(node->config.env.arg);
}

/* What the others have, and what is committed by now. */
static void look(struct cl_raft_node *node, uint64_t ns, uint32_t from)
{
    struct cl_raft_gathering g;
    cl_raft_gathering(node->raft, &g);
    note(&node->stages.others, cl_raft_others(node->raft), ns, from);
    note(&node->stages.agreed, g.commit, ns, from);
}

void node_stages_gone(struct cl_raft_node *node, uint64_t last, uint64_t ns)
{
    if (!notes(node))
        return;
    note(&node->stages.gone, last, ns, 0);
    look(node, ns, 0); /* of a group of one the others have it */
}

void node_stages_sent(struct cl_raft_node *node, uint64_t last)
{
    struct node_mark *before = newest(&node->stages.sent);
    if (notes(node) && last && !(before && before->last >= last))
        note(&node->stages.sent, last, now_of(node), 0);
}

void node_stages_durable(struct cl_raft_node *node, uint64_t index, const uint64_t log[2])
{
    struct node_mark *mark = newest(&node->stages.durable);
    if (!notes(node))
        return;
    if (mark && !mark->ns && mark->log[0] == log[0] && mark->log[1] == log[1]) { /* of the same flush */
        mark->last = cl_max(mark->last, index);
        return;
    }
    if ((mark = note(&node->stages.durable, index, 0, 0)))
        memcpy(mark->log, log, sizeof mark->log);
}

void node_stages_pumped(struct cl_raft_node *node)
{
    struct node_marks *m = &node->stages.durable;
    uint64_t now = 0;
    for (uint64_t i = m->tail; i > m->head && !m->of[(i - 1) % NODE_MARKS].ns; i--) {
        now = now ? now : now_of(node);
        m->of[(i - 1) % NODE_MARKS].ns = now;
    }
    if (now && notes(node))
        look(node, now, 0);
}

void node_stages_agreed(struct cl_raft_node *node)
{
    const struct node_mark *before = newest(&node->stages.agreed);
    if (notes(node) && !(before && before->last >= node->committed))
        note(&node->stages.agreed, node->committed, now_of(node), 0);
}

void node_stages_heard(struct cl_raft_node *node, uint32_t from)
{
    if (notes(node))
        look(node, node->now_ns, from);
}

void node_stages_forget(struct cl_raft_node *node)
{
    struct node_stages *s = &node->stages;
    struct node_marks *all[] = {&s->gone, &s->sent, &s->durable, &s->others, &s->agreed};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i]->head = all[i]->tail = 0;
}

static void stages_of(struct cl_raft_node *node, uint64_t index, struct cl_raft_stages *out)
{
    struct node_stages *s = &node->stages;
    struct node_mark durable = mark_of(&s->durable, index), others = mark_of(&s->others, index),
                     agreed = mark_of(&s->agreed, index);
    out->gone_ns = mark_of(&s->gone, index).ns;
    out->sent_ns = mark_of(&s->sent, index).ns;
    out->others_ns = others.ns;
    out->agreed_ns = agreed.ns;
    out->node = durable.ns ? others.node : agreed.node; /* without its own log more of the others were needed */
    out->durable_ns = node->disk ? durable.ns : out->gone_ns;
    memcpy(out->log, durable.log, sizeof out->log);
}

void cl_raft_node_stages(struct cl_raft_node *node, struct cl_raft_stages *out)
{
    const struct node_stages *s = &node->stages;
    *out = (struct cl_raft_stages){0};
    if (s->answers == NODE_ANSWERS_OTHER || !s->on)
        return;
    out->index = s->index;
    out->read = s->answers == NODE_ANSWERS_READ;
    out->forwarded = s->answers == NODE_ANSWERS_FORWARD;
    out->gone_ns = s->asked_ns;
    out->others_ns = out->agreed_ns = s->known_ns;
    if (s->answers == NODE_ANSWERS_COMMAND)
        stages_of(node, s->index, out);
}
