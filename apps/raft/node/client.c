/* Requests of clients: commands through the log, queries once they may be answered. */
#include "internal.h"
#include "../core/bytes.h"
#include "frame.h"
#include <errno.h>

/* The answer says how much is taken. */
static void answer_too_large(struct cl_raft_node *node, const struct node_requester *requester, uint32_t most)
{
    uint8_t reply[4];
    put32(reply, most);
    node_answer(node, requester, CL_RAFT_TOO_LARGE, reply, sizeof(reply));
}

static int status_of(int rc)
{
    return rc == -ENOSPC || rc == -EAGAIN || rc == -EBUSY ? CL_RAFT_BUSY : CL_RAFT_RETRY;
}

/* What the state machine answered, which had so much room: n >= 0, or with CL_RAFT_REFUSES. */
static int take_reply(struct cl_raft_node *node, int64_t n, uint32_t room, uint32_t *bytes)
{
    int status = n & CL_RAFT_REFUSES ? CL_RAFT_REFUSED : CL_RAFT_OK;
    n &= ~CL_RAFT_REFUSES;
    cl_count(&node->count.replies_refused, status == CL_RAFT_REFUSED);
    *bytes = (uint32_t)n;
    if (n <= (int64_t)room)
        return status;
    cl_count(&node->count.replies_too_large, 1);
    *bytes = 0;
    return status == CL_RAFT_OK ? CL_RAFT_REPLY_TOO_LARGE : status;
}

/* Why the state machine could not, for the reply: its bytes. */
static uint32_t reply_why(struct cl_raft_node *node, int64_t rc)
{
    const char *why = node_machine_why(node, (int)rc);
    uint32_t bytes = (uint32_t)cl_min((uint64_t)strlen(why), (uint64_t)node->config.reply_bytes);
    memcpy(node->reply, why, bytes);
    return bytes;
}

/* Whether the state machine will not have a command in the log: then it is answered. */
static bool is_refused(struct cl_raft_node *node, const uint8_t *data, uint32_t bytes,
                       const struct node_requester *requester)
{
    const struct cl_raft_machine *m = &node->config.machine;
    uint32_t reply;
    int64_t n = m->check ? m->check(m->arg, data, bytes, node->reply, node->config.reply_bytes) : 0;
    if (!n)
        return false;
    if (n < 0)
        reply = reply_why(node, n);
    else
        take_reply(node, n | CL_RAFT_REFUSES, node->config.reply_bytes, &reply);
    cl_count(&node->count.commands_refused, 1);
    node_answer(node, requester, CL_RAFT_REFUSED, node->reply, reply);
    return true;
}

/* Before the first command of a group a leader draws its random word. Of several that are in the log the first
 * counts. */
static int draw_seed(struct cl_raft_node *node)
{
    uint8_t entry[CL_RAFT_COMMAND_HEADER] = {0};
    uint64_t index, term = cl_raft_term(node->raft);
    if (node->seeded || node->seed_term == term)
        return 0;
    uint64_t now_ns = node->config.env.now_ns(node->config.env.arg);
    put64(entry, node_kind_word(node, CL_RAFT_SEED));
    put64(entry + 16, node_digest(node_digest(node->config.incarnation, now_ns), term) | 1);
    put64(entry + 24, node_clock_stamp(node));
    int rc = cl_raft_propose(node->raft, entry, sizeof(entry), &index, &term);
    if (!rc)
        node->seed_term = term;
    return rc;
}

void node_submit(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                 uint32_t bytes, const struct node_requester *requester)
{
    if (bytes > node->config.raft.entry_bytes - CL_RAFT_COMMAND_HEADER) {
        answer_too_large(node, requester, node->config.raft.entry_bytes - CL_RAFT_COMMAND_HEADER);
        return;
    }
    if (node->state == CL_RAFT_RUNNING && node_forward(node, kind, session, sequence, data, bytes, requester))
        return;
    /* The rest is for entries that come before any snapshot can make room. */
    if (node_disk_low(node, 8) || node_disk_crowded(node)) {
        cl_count(&node->count.log_full, 1);
        node_answer(node, requester, CL_RAFT_BUSY, NULL, 0);
        return;
    }
    if (kind == CL_RAFT_APPLY && is_refused(node, data, bytes, requester))
        return;
    int rc = draw_seed(node);
    if (rc) {
        node_answer(node, requester, status_of(rc), NULL, 0);
        return;
    }
    uint8_t *p = node->scratch;
    put64(p, node_kind_word(node, kind));
    put64(p + 8, session);
    put64(p + 16, sequence);
    put64(p + 24, node_clock_stamp(node));
    if (bytes)
        memcpy(p + CL_RAFT_COMMAND_HEADER, data, bytes);
    uint64_t index, term;
    rc = cl_raft_propose(node->raft, p, CL_RAFT_COMMAND_HEADER + bytes, &index, &term);
    if (rc) {
        node_answer(node, requester, status_of(rc), NULL, 0);
        return;
    }
    /* What was there is applied, or was answered when this node last ceased to lead. */
    *node_pending_at(node, index) = (struct node_pending){index, term, *requester};
    node->pending_last = index;
}

void cl_raft_node_submit(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                         uint32_t bytes, const struct cl_raft_token *token)
{
    struct node_requester requester = {.token = *token};
    cl_count(&node->count.commands, 1);
    node_submit(node, kind, session, sequence, data, bytes, &requester);
}

/* Whether somebody has to be told of the entry that was applied at `index`: it is the one that was proposed here. */
static bool take_pending(struct cl_raft_node *node, uint64_t index, uint64_t term, struct node_requester *requester)
{
    struct node_pending *p = node_pending_at(node, index);
    if (p->index != index)
        return false;
    p->index = 0;
    *requester = p->requester;
    if (p->term == term)
        return true;
    node_answer(node, requester, CL_RAFT_RETRY, NULL, 0); /* another leader's entry is there instead */
    return false;
}

/* Not the index alone: a group without logs counts its entries anew when it begins again, and clients of before still
 * ask in the sessions that they had. 0 is none. */
static uint64_t session_number(const struct cl_raft_node *node, uint64_t index, uint64_t word)
{
    uint64_t id = node_digest(node_digest(0, word), index);
    while (!id || raft_session_find(&node->sessions, id) != RAFT_NO_SESSION)
        id = node_digest(id, index);
    return id;
}

/* word: as cl_raft_node_submit's `sequence`. */
static int apply_open(struct cl_raft_node *node, uint64_t index, uint64_t word, uint8_t *reply, uint32_t *bytes)
{
    uint32_t i = word ? raft_session_opened(&node->sessions, word) : RAFT_NO_SESSION;
    *bytes = 8;
    if (i != RAFT_NO_SESSION) {
        cl_count(&node->count.duplicates, 1);
        put64(reply, node->sessions.all[i].id);
        return CL_RAFT_OK;
    }
    uint64_t id = session_number(node, index, word);
    if (raft_session_open(&node->sessions, id, word, node->clock_ms))
        cl_count(&node->count.sessions_expired, 1);
    cl_count(&node->count.sessions_opened, 1);
    put64(reply, id);
    return CL_RAFT_OK;
}

static int run_machine(struct cl_raft_node *node, uint64_t index, const uint8_t *data, uint32_t bytes, uint32_t room,
                       uint32_t *reply_bytes)
{
    const struct cl_raft_machine *m = &node->config.machine;
    node->seeded = 1;
    int64_t n = m->apply(m->arg, index, node->clock_ms, data, bytes, node->reply, room);
    cl_count(&node->count.applied, 1);
    if (n >= 0)
        return take_reply(node, n, room, reply_bytes);
    if (m->atomic && n != -ENOTRECOVERABLE) {
        cl_count(&node->count.applies_failed, 1);
        *reply_bytes = reply_why(node, n);
        return CL_RAFT_APPLY_FAILED;
    }
    node_stop(node, "the state machine could not apply entry %llu: %s", (unsigned long long)index,
              node_machine_why(node, (int)n));
    return CL_RAFT_RETRY;
}

/* A command of a session, once. */
static int apply_once(struct cl_raft_node *node, uint64_t index, const uint8_t *p, uint32_t bytes,
                      uint32_t *reply_bytes)
{
    uint64_t session = get64(p + 8), sequence = get64(p + 16);
    uint32_t i = raft_session_find(&node->sessions, session);
    if (i == RAFT_NO_SESSION)
        return CL_RAFT_EXPIRED;
    if (node_kind(get64(p)) == CL_RAFT_CLOSE) {
        raft_session_close(&node->sessions, i);
        cl_count(&node->count.sessions_closed, 1);
        return CL_RAFT_OK;
    }
    uint64_t before = node->sessions.all[i].sequence;
    if (!sequence || sequence < before)
        return CL_RAFT_OUT_OF_ORDER;
    if (sequence == before) {
        cl_count(&node->count.duplicates, 1);
        const uint8_t *reply = raft_session_reply(&node->sessions, i, reply_bytes);
        memcpy(node->reply, reply, *reply_bytes);
        return node->sessions.all[i].status;
    }
    int status = run_machine(node, index, p + CL_RAFT_COMMAND_HEADER, bytes - CL_RAFT_COMMAND_HEADER,
                             node->config.reply_bytes, reply_bytes);
    if (node->state != CL_RAFT_STOPPED)
        raft_session_used(&node->sessions, i, sequence, node->clock_ms, status, node->reply, *reply_bytes);
    return status;
}

static int apply_command(struct cl_raft_node *node, const struct cl_raft_entry *e, uint32_t *reply_bytes)
{
    if (e->bytes < CL_RAFT_COMMAND_HEADER)
        return CL_RAFT_OK; /* no node writes such an entry; every replica passes over it alike */
    const uint8_t *p = e->data;
    int kind = node_kind(get64(p));
    if (kind == CL_RAFT_CLOCK_SET) {
        node_clock_put(node, get64(p + 24));
        return CL_RAFT_OK;
    }
    node_clock_advance(node, get64(p + 24));
    if (node->clock_ms > node->config.session_ms)
        cl_count(&node->count.sessions_expired,
                 raft_sessions_expire(&node->sessions, node->clock_ms - node->config.session_ms));
    if (kind == CL_RAFT_CLOCK)
        return CL_RAFT_OK;
    if (kind == CL_RAFT_SEED) {
        if (!node->seeded)
            node->config.machine.seed(node->config.machine.arg, get64(p + 16));
        node->seeded = 1;
        return CL_RAFT_OK;
    }
    if (kind == CL_RAFT_OPEN)
        return apply_open(node, e->index, get64(p + 16), node->reply, reply_bytes);
    if (get64(p + 8))
        return apply_once(node, e->index, p, e->bytes, reply_bytes);
    uint32_t room = get64(p + 16) == CL_RAFT_LONG_ANSWER ? node->answer_room : node->config.reply_bytes;
    return run_machine(node, e->index, p + CL_RAFT_COMMAND_HEADER, e->bytes - CL_RAFT_COMMAND_HEADER, room,
                       reply_bytes);
}

void node_apply(struct cl_raft_node *node, uint64_t first, uint64_t last)
{
    for (uint64_t i = first; i <= last; i++) {
        struct cl_raft_entry e;
        uint32_t bytes = 0;
        if (node->state == CL_RAFT_STOPPED)
            return;
        if (cl_raft_entry(node->raft, i, &e)) {
            node_stop(node, "committed entry %llu is not in the log", (unsigned long long)i);
            return;
        }
        int status = e.kind == CL_RAFT_COMMAND ? apply_command(node, &e, &bytes) : CL_RAFT_RETRY;
        node->applied = i;
        struct node_requester requester;
        node->stages.index = i;
        if (take_pending(node, i, e.term, &requester)) {
            node->stages.answers = NODE_ANSWERS_COMMAND;
            node_answer(node, &requester, status, node->reply, bytes);
            node->stages.answers = NODE_ANSWERS_OTHER;
        }
    }
    cl_raft_applied(node->raft, last);
}

void node_ask(struct cl_raft_node *node, const uint8_t *data, uint32_t bytes, const struct node_requester *requester)
{
    struct node_query *q = node_query_at(node, node->query_next);
    if (bytes > NODE_QUERY_BYTES) {
        answer_too_large(node, requester, NODE_QUERY_BYTES);
        return;
    }
    if (q->context) {
        node_answer(node, requester, CL_RAFT_BUSY, NULL, 0);
        return;
    }
    if (node->state == CL_RAFT_RUNNING && node_forward(node, NODE_FRAME_QUERY, 0, 0, data, bytes, requester))
        return;
    /* A former leader does not ask the next one: what got lost on that way would keep the query's place for ever. */
    bool leads = cl_raft_leader(node->raft) == node->config.raft.id;
    if (leads && node->config.raft.lease_reads)
        node_advance_ticks(node); /* the lease may have run out while this process did not run */
    int rc = leads ? cl_raft_read_index(node->raft, node->query_next) : -EPERM;
    if (rc) {
        node_answer(node, requester, status_of(rc), NULL, 0);
        return;
    }
    q->context = node->query_next++;
    q->index = 0;
    q->clock = node_clock_young(node);
    q->bytes = bytes;
    q->requester = *requester;
    q->asked_ns = node->now_ns;
    q->known_ns = 0;
    memcpy(q->data, data, bytes);
}

void cl_raft_node_query(struct cl_raft_node *node, const uint8_t *data, uint32_t bytes,
                        const struct cl_raft_token *token)
{
    struct node_requester requester = {.token = *token};
    cl_count(&node->count.queries, 1);
    node_ask(node, data, bytes, &requester);
}

/* The state machine's answer to a read. */
static int run_query(struct cl_raft_node *node, const struct node_query *q, uint32_t *bytes)
{
    const struct cl_raft_machine *m = &node->config.machine;
    int64_t n = m->query(m->arg, node->clock_ms, q->data, q->bytes, node->reply, node->answer_room);
    if (n >= 0)
        return take_reply(node, n, node->answer_room, bytes);
    *bytes = reply_why(node, n);
    cl_count(&node->count.queries_failed, 1);
    return CL_RAFT_QUERY_FAILED;
}

static void end_query(struct cl_raft_node *node, struct node_query *q, int status)
{
    uint32_t bytes = 0;
    if (status == CL_RAFT_OK)
        status = run_query(node, q, &bytes);
    q->context = 0;
    node->stages.answers = NODE_ANSWERS_READ;
    node->stages.index = q->index;
    node->stages.asked_ns = q->asked_ns;
    node->stages.known_ns = q->known_ns;
    node_answer(node, &q->requester, status, node->reply, bytes);
    node->stages.answers = NODE_ANSWERS_OTHER;
}

/* Reads become ready in the order in which they were requested, but for those that a lease lets pass. */
void node_answer_reads(struct cl_raft_node *node)
{
    struct cl_raft_read read;
    uint64_t known_ns = 0;
    while (cl_raft_poll_read(node->raft, &read)) {
        struct node_query *q = node_query_at(node, read.context);
        if (q->context != read.context)
            continue;
        q->index = read.index ? cl_max(read.index, q->clock) : 0;
        if (node->stages.on && !known_ns)
            known_ns = node->config.env.now_ns(node->config.env.arg);
        q->known_ns = known_ns;
        if (!q->index)
            end_query(node, q, CL_RAFT_RETRY);
        else if (q->index <= node->applied)
            end_query(node, q, CL_RAFT_OK);
    }
    for (; node->query_oldest < node->query_next; node->query_oldest++) {
        struct node_query *q = node_query_at(node, node->query_oldest);
        if (q->context != node->query_oldest)
            continue; /* answered already */
        if (!q->index || q->index > node->applied)
            break;
        end_query(node, q, CL_RAFT_OK);
    }
}

bool node_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    struct node_frame frame;
    if (!node_frame_is(data, bytes))
        return false;
    bool good = node_frame_decode(node->config.raft.cluster, data, bytes, &frame) && frame.from &&
                frame.to == node->config.raft.id && (frame.answer || frame.kind <= NODE_FRAME_QUERY);
    if (!good) {
        cl_count(&node->count.frames_refused, 1);
        return true;
    }
    struct node_requester requester = {.from = frame.from, .ticket = frame.ticket};
    if (node->stages.on && !frame.answer)
        requester.token.words[0] = node->config.env.now_ns(node->config.env.arg); /* for env.passed */
    if (frame.answer) {
        node_on_answer(node, &frame);
    } else if (frame.kind == NODE_FRAME_QUERY) {
        cl_count(&node->count.queries, 1);
        node_ask(node, frame.data, frame.bytes, &requester);
    } else {
        cl_count(&node->count.commands, 1);
        node_submit(node, frame.kind, frame.session, frame.sequence, frame.data, frame.bytes, &requester);
    }
    return true;
}
