/* memcached's protocol on TCP in front of a node: connections of ../../kv/stream, whose commands go through the log or
 * are queries, as those of datagrams do (kv.c).
 *
 * A connection has one turn under way: the commands that have come, as many as one entry takes, or as one query takes
 * if they all read; and whose answers have room for sure. So its commands are done in their order, also where a
 * follower passes them on, and what comes meanwhile makes the next turn. A get, gets, gat or gats that asks for more is
 * done in parts, the keys of a turn each.
 * What is the same on all nodes and touches nothing is answered here at once: refusals, mn, version; and this node's
 * stats. If the outcome of a turn is not known, or it was not done, the client is told so, and the connection ends: it
 * could not tell which of its commands that is about. */
#include "internal.h"
#include "../../kv/stream/tcp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TURN_BYTES 16384u /* of commands in one entry; one that is longer goes alone */
#define QUERY_BYTES 1400  /* as a datagram has */
#define STATS_BYTES 512   /* of lines about the group */
#define END_BYTES 5
#define END "END\r\n"

/* What to do with an answer: bits of a token's third word. */
#define READS 1u /* nothing was changed, whatever became of it */
#define PART 2u  /* more of the same retrieval follows: without its END */

struct turn {
    uint64_t bytes, answer;
    uint64_t most;      /* bytes of an entry */
    bool writes, reads; /* some of its commands do; the second but for retrievals */
};

/* Whether a command can be done in the turn, behind what it has. Reads are done by the log, too, but for me. */
static bool joins(const struct turn *t, const struct cl_kv_extent *e)
{
    bool writes = t->writes || e->does == CL_KV_WRITES;
    if (!t->bytes)
        return true;
    if (e->does > CL_KV_WRITES || t->answer + e->answer > CL_KV_ANSWER_ROOM)
        return false;
    if (writes && (t->reads || e->does == CL_KV_READS) && (!t->writes || !e->keys))
        return false;
    return t->bytes + (e->to - e->from) <= (writes ? t->most : QUERY_BYTES);
}

/* Gather commands from in on, of which the first is `e`, measured: how many bytes; session is as it will be behind
 * them. */
static void gather(struct cl_kv_session *session, const uint8_t *in, uint64_t len, struct cl_kv_extent e,
                   struct turn *t)
{
    for (;;) {
        t->bytes += e.to - e.from;
        t->answer += e.answer;
        t->writes |= e.does == CL_KV_WRITES;
        t->reads |= e.does == CL_KV_READS && !e.keys;
        if (e.swallow)
            return;
        struct cl_kv_session before = *session;
        bool ends = cl_kv_measure(session, in + t->bytes, len - t->bytes, &e) == CL_KV_QUIT;
        if (ends || e.to == e.from || !joins(t, &e)) {
            *session = before;
            return;
        }
    }
}

static struct cl_raft_token token_of(const struct kv_conn *c, uint64_t bits, uint64_t now_ns)
{
    return (struct cl_raft_token){{SERVE_STREAM_CLIENT, (uint64_t)c->serial << 32 | c->number, bits, now_ns}};
}

/* Give the group a turn. Its answer may come before this returns. */
static void send_turn(struct cl_raft_service *s, struct kv_conn *c, const uint8_t *text, uint64_t bytes, bool writes,
                      uint32_t bits)
{
    c->waits = true;
    cl_count(&s->count.tcp_turns, 1);
    serve_begin(s);
    struct cl_raft_token token = token_of(c, bits | (writes ? 0 : READS), s->now_ns);
    if (writes)
        cl_raft_node_submit(s->node, CL_RAFT_APPLY, 0, CL_RAFT_LONG_ANSWER, text, (uint32_t)bytes, &token);
    else
        cl_raft_node_query(s->node, text, (uint32_t)bytes, &token);
    serve_poll(s);
    cl_raft_in_call_work(&s->in_call, s->now_ns, cl_sched_turn());
}

/* Where the word at p, or the next one, ends; p itself at the end of the line. */
static const uint8_t *word_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *word = p;
    while (word < end && *word == ' ')
        word++;
    if (word == end || *word == '\r' || *word == '\n' || !*word)
        return p;
    while (word < end && *word != ' ' && *word != '\r' && *word != '\n' && *word)
        word++;
    return word;
}

/* The next part of a retrieval of many keys, of which session.skip bytes are done. Returns how many bytes of the input
 * are done with: the whole line with the last part. */
static uint64_t go_through(struct cl_raft_service *s, struct kv_conn *c, const uint8_t *line, uint64_t len)
{
    uint8_t text[QUERY_BYTES + 2];
    const uint8_t *end = line + len, *at = word_end(line, end);
    bool touches = at - line > 2 && at[-1 - (at[-1] == 's')] == 't' && at[-2 - (at[-1] == 's')] == 'a';
    if (touches)
        at = word_end(at, end);
    uint64_t n = (uint64_t)(at - line), most = CL_KV_ANSWER_ROOM / (s->kv.store->item_max_bytes + KV_VALUE_LINE_MAX);
    memcpy(text, line, n);
    at = c->session.skip ? line + c->session.skip : at;
    for (const uint8_t *next; most-- && (next = word_end(at, end)) != at; at = next) {
        while (*at == ' ')
            at++;
        uint64_t word = (uint64_t)(next - at);
        if (n + 1 + word > QUERY_BYTES) {
            at--;
            break;
        }
        text[n] = ' ';
        memcpy(text + n + 1, at, word);
        n += 1 + word;
    }
    bool last = word_end(at, end) == at;
    memcpy(text + n, "\r\n", 2);
    c->session.skip = last ? 0 : (uint32_t)(at - line);
    send_turn(s, c, text, n + 2, touches, last ? 0 : PART);
    return last ? len : 0;
}

/* What needs nobody else: all of it, or, where it ends the stream, all that there is. */
static void answer_here(struct cl_raft_service *s, struct kv_conn *c, struct kv_side *side, const uint8_t *in,
                        uint64_t len, bool shows)
{
    struct cl_kv_session session = {.thread = side->thread, .protocol = c->session.protocol, .replicated = !shows};
    uint64_t at = 0, n, begun = 0;
    int rc;
    if (shows && (len == 6 || len == 7) && (!memcmp(in, "stats\n", 6) || !memcmp(in, "stats\r\n", len)))
        begun = serve_admin_stats(s, (char *)side->scratch, STATS_BYTES);
    do {
        struct cl_kv_out out = {.data = side->scratch, .len = begun, .room = CL_KV_ANSWER_ROOM};
        rc = cl_kv_process(&session, in + at, len - at, &n, &out);
        at += n;
        kv_conn_say(c, side, out.data, out.len);
        begun = 0;
    } while (rc == CL_KV_FULL && !c->over);
}

static uint64_t run(void *arg, struct kv_conn *c, struct kv_side *side, const uint8_t *in, uint64_t len)
{
    struct cl_raft_service *s = arg;
    uint64_t at = 0;
    if (c->session.skip)
        return go_through(s, c, in, len); /* the line is kept */
    while (!c->over && !c->waits && !c->out.len) {
        struct cl_kv_extent e;
        struct turn t = {.most = cl_min(s->config.node.raft.entry_bytes - CL_RAFT_COMMAND_HEADER, TURN_BYTES)};
        bool ends = cl_kv_measure(&c->session, in + at, len - at, &e) == CL_KV_QUIT;
        const uint8_t *from = in + at + e.from;
        if (ends) {
            answer_here(s, c, side, from, len - at - e.from, false);
            c->over = true;
            return len;
        }
        if (e.to == e.from) /* the rest of a command is still to come */
            return at + e.to;
        if (e.keys > 1 && (e.answer > CL_KV_ANSWER_ROOM || e.to - e.from > QUERY_BYTES))
            return at + e.from + go_through(s, c, from, e.to - e.from);
        if (e.does == CL_KV_READS || e.does == CL_KV_WRITES) {
            gather(&c->session, from, len - at - e.from, e, &t);
            at += e.from + t.bytes;
            send_turn(s, c, from, t.bytes, t.writes, 0);
            continue;
        }
        answer_here(s, c, side, from, e.to - e.from, e.does == CL_KV_SHOWS);
        at += e.to;
    }
    return at;
}

void serve_stream_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                         uint32_t bytes)
{
    struct kv_conn *c = &s->front->conns[(uint32_t)token->words[1]];
    uint32_t bits = (uint32_t)token->words[2];
    serve_traced(s, s->traced.kv_tcp, token->words[3], false);
    if (c->state == KV_CONN_CLOSED || c->serial != token->words[1] >> 32 || !c->waits) {
        cl_count(&s->count.tcp_late, 1);
        return;
    }
    bool ends = status != CL_RAFT_OK && status != CL_RAFT_TOO_LARGE;
    if (status != CL_RAFT_OK) {
        reply = (const uint8_t *)serve_kv_error(status, bits & READS);
        bytes = c->session.protocol == CL_KV_TEXT ? (uint32_t)strlen((const char *)reply) : 0;
    } else if ((bits & PART) && bytes >= END_BYTES && !memcmp(reply + bytes - END_BYTES, END, END_BYTES)) {
        bytes -= END_BYTES;
    }
    kv_conn_answered(c, reply, bytes, ends);
}

int serve_stream_bind(struct cl_raft_service *s, char err[256])
{
    const struct cl_raft_serve_config *c = &s->config;
    struct cl_runtime_info info;
    cl_runtime_info(s->rt, &info);
    if (!s->kv.store) {
        snprintf(err, 256, "memcached's protocol is the key-value store's, and another state machine is served");
        return -EINVAL;
    }
    struct cl_kv_front_config front = {.max_connections = c->kv_connections,
                                       .backlog = c->kv_backlog,
                                       .ipv4 = info.ipv4,
                                       .tcp_port = c->kv_tcp_port,
                                       .udp_port = c->kv_port,
                                       .kthreads = 1,
                                       .budget_bytes = c->kv_held_bytes};
    int rc = cl_kv_front_new(s->kv.store, &front, &s->front);
    if (rc) {
        snprintf(err, 256, "no memory for %u connections", c->kv_connections);
        return rc;
    }
    s->elsewhere = (struct kv_elsewhere){s, run};
    s->front->elsewhere = &s->elsewhere;
    rc = cl_kv_listen_tcp(s->front, s->rt);
    if (rc)
        snprintf(err, 256, "cannot serve TCP port %u: %s", c->kv_tcp_port, strerror(-rc));
    return rc;
}
