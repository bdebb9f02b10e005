/* What operators ask of a node, from the outside (apps/raft/service/operate.py, `corelane raft`), and what memcached's
 * `stats` says of it.
 *
 *   status     no data. Answer: a JSON object.
 *   members    u64 entry that the configuration to be changed came with, u32 voters, u32 learners, u32 1: whoever is
 *              heard from (cl_raft_force_members), u32[] their ids. Refused with ESTALE if another one is in force: two
 *              operators who both began with the same one do not undo each other.
 *   transfer   u32 id
 *   clock      u64 ms since 1970, which the log's clock is set to
 *   snapshot   u64 offset; 2^64 - 1: have one made. Answer: u64 index, u64 term, u64 bytes of a snapshot, 0 if there is
 *              none, and of it what lies there, as much as an answer holds. At offset 0 it is the newest one, which is
 *              held from then on until it was not asked for in HOLD_NS; at later ones it is the one that is held.
 *              The answer of members, transfer and clock: u32 errno, 0 if it was begun. Only the leader does them
 *              (EPERM). */
#include "../core/bytes.h"
#include "../node/frame.h"
#include "internal.h"
#include <corelane/libos/log.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HOLD_NS 30000000000ull

static const char *const roles[] = {"follower", "pre-candidate", "candidate", "leader", "failed"};
static const char *const states[] = {"recovering", "running", "stopped"};
static const char *const peer_states[] = {"probe", "replicate", "snapshot"};

struct text {
    char *at;
    uint64_t room;
};

static void CL_PRINTF(2, 3) say(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->room, format, args);
    va_end(args);
    uint64_t used = cl_min((uint64_t)cl_max(n, 0), t->room - 1);
    t->at += used;
    t->room -= used;
}

static void say_ids(struct text *t, const char *name, const uint32_t *ids, uint32_t n)
{
    say(t, "\"%s\": [", name);
    for (uint32_t i = 0; i < n; i++)
        say(t, i ? ", %u" : "%u", ids[i]);
    say(t, "]");
}

static void say_peers(struct text *t, const struct cl_raft_status *s)
{
    say(t, ", \"peers\": [");
    for (uint32_t i = 0; i < s->n_peers; i++) {
        const struct cl_raft_peer *p = &s->peers[i];
        say(t, "%s{\"id\": %u, \"state\": \"%s\", \"active\": %s, \"voter\": %s, \"front\": %s, \"match\": %lu}",
            i ? ", " : "", p->id, peer_states[p->state], p->active ? "true" : "false", p->voter ? "true" : "false",
            p->front ? "true" : "false", p->match);
    }
    say(t, "]");
}

/* To whom entries go at once while it leads, and what came of it since it was started. */
static void say_replicate(struct text *t, const struct cl_raft_node *node, const struct cl_raft *raft)
{
    static const char *const ways[] = {"", "all", "majority", "auto"};
    struct cl_raft_counters c;
    struct cl_raft_replicate r;
    cl_raft_counters(raft, &c);
    cl_raft_node_replicate(node, &r);
    say(t, ", \"replicate\": {\"option\": \"%s\", \"to\": \"%s\", \"all_us\": %.1f, \"majority_us\": %.1f",
        ways[r.asked], ways[r.to], (double)r.all_ns / 1e3, (double)r.majority_ns / 1e3);
    say(t, ", \"thrifty_batches\": %lu, \"spreads\": %lu, \"hedges\": %lu, \"overtaken\": %lu}", c.thrifty_batches,
        c.spreads, c.hedges, c.overtaken);
}

/* The channels to the other nodes. */
static void say_links(struct text *t, const struct raft_channel *ch)
{
    say(t, ", \"links\": [");
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        const struct raft_channel_peer *p = &ch->peers[i];
        const struct raft_channel_counters *c = &p->count;
        say(t, "%s{\"id\": %u, \"known\": %s, \"rtt_us\": %.1f, \"timeout_us\": %.1f, \"under_way\": %lu",
            i ? ", " : "", p->id, p->theirs ? "true" : "false", (double)p->rtt.smooth_ns / 1e3,
            (double)raft_channel_timeout_ns(p) / 1e3, p->next - p->first);
        say(t, ", \"sent\": %lu, \"received\": %lu, \"retransmitted\": %lu, \"timeouts\": %lu, \"probes\": %lu",
            c->datagrams_out, c->datagrams_in, c->retransmitted, c->timeouts, c->probes);
        say(t,
            ", \"duplicates\": %lu, \"stale\": %lu, \"no_room\": %lu, \"malformed\": %lu, \"window_full\": %lu, "
            "\"given_up\": %lu",
            c->duplicates, c->stale, c->no_room, c->malformed, c->window_full, c->given_up);
        say(t, ", \"reset\": %lu, \"not_sent\": %lu}", c->reset, c->not_sent);
    }
    say(t, "]");
}

/* The reason of a stop is a sentence of ours, with a path or two in it: what JSON must not have goes. */
static void say_why(struct text *t, const char *why)
{
    say(t, ", \"why\": \"");
    for (; *why; why++)
        say(t, "%c", *why == '"' || *why == '\\' || (unsigned char)*why < ' ' ? ' ' : *why);
    say(t, "\"");
}

/* The log's clock beside the wall's, and how full the log's area is, of what. */
static void say_clock_and_log(struct text *t, struct cl_raft_service *svc)
{
    const struct cl_raft_env *env = &svc->config.node.env;
    struct cl_raft_node_counters c;
    struct cl_log_usage u;
    cl_raft_node_counters(svc->node, &c);
    say(t, ", \"clock\": {\"log_ms\": %lu, \"wall_ms\": %lu, \"ahead_ms\": %ld, \"sets\": %lu}",
        cl_raft_node_clock_ms(svc->node), env->wall_ms(env->arg), cl_raft_node_clock_ahead_ms(svc->node), c.clock_sets);
    if (!svc->config.node.log || cl_log_state(svc->config.node.log) != CL_LOG_READY)
        return;
    cl_log_usage(svc->config.node.log, &u);
    say(t, ", \"log\": {\"ring_bytes\": %lu, \"kept_bytes\": %lu, \"dead_bytes\": %lu, \"free_bytes\": %lu",
        u.ring_bytes, u.kept_bytes, u.dead_bytes, u.free_bytes);
    say(t, ", \"reserved_bytes\": %lu}", u.reserved_bytes);
}

static uint32_t status_text(struct cl_raft_service *svc, char out[SERVE_STATUS_BYTES])
{
    struct cl_raft_status s;
    uint32_t first[CL_RAFT_MAX_NODES];
    struct text t = {out, SERVE_STATUS_BYTES};
    cl_raft_status(cl_raft_node_core(svc->node), &s);
    say(&t, "{\"id\": %u, \"state\": \"%s\", \"role\": \"%s\", \"term\": %lu, \"leader\": %u", s.id,
        states[cl_raft_node_state(svc->node)], roles[s.role], s.term, s.leader);
    say(&t, ", \"commit\": %lu, \"applied\": %lu, \"first\": %lu, \"last\": %lu, \"durable\": %lu", s.commit, s.applied,
        s.first, s.last, s.durable);
    say(&t, ", \"snapshot_index\": %lu, \"disk_waits_ticks\": %lu, \"transfer_to\": %u, \"members_index\": %lu",
        s.snapshot_index, s.disk_waits_ticks, s.transfer_to, s.members_index);
    say(&t, ", \"in_call\": {\"writes\": %lu, \"late\": %lu, \"long\": %lu}", svc->in_call.calls, svc->in_call.late,
        svc->in_call.long_ones);
    say(&t, ", \"members\": {");
    say_ids(&t, "voters", s.members.voters, s.members.n_voters);
    say(&t, ", ");
    say_ids(&t, "outgoing", s.members.outgoing, s.members.n_outgoing);
    say(&t, ", ");
    say_ids(&t, "learners", s.members.learners, s.members.n_learners);
    say(&t, "}, ");
    say_ids(&t, "first_voters", first, cl_raft_node_first_voters(svc->node, first));
    say(&t, ", \"digests\": {\"version\": %u, \"settings\": \"%016lx\", \"first_voters\": \"%016lx\"}",
        CL_RAFT_NODE_VERSION, cl_raft_node_settings(svc->node), cl_raft_node_first_digest(svc->node));
    const struct cl_raft_node_config *c = &svc->config.node;
    say(&t, ", \"settings\": {\"cluster\": %lu, \"machine\": %lu, \"session_ms\": %lu", c->raft.cluster,
        c->machine.settings, c->session_ms ? c->session_ms : 3600000);
    say(&t, ", \"max_sessions\": %u, \"reply_bytes\": %u}", c->max_sessions, c->reply_bytes);
    say(&t, ", \"gone_back\": %u, \"contradicting\": %u", s.gone_back, s.contradicts);
    say_peers(&t, &s);
    say_replicate(&t, svc->node, cl_raft_node_core(svc->node));
    say_links(&t, &svc->channel);
    say_clock_and_log(&t, svc);
    say_why(&t, cl_raft_node_why(svc->node));
    say(&t, "}");
    return (uint32_t)(t.at - out);
}

static int change(struct cl_raft *raft, const struct node_frame *f)
{
    struct cl_raft_status s;
    uint32_t ids[2 * CL_RAFT_MAX_NODES];
    if (f->bytes < 20)
        return -EINVAL;
    uint32_t voters = get32(f->data + 8), learners = get32(f->data + 12);
    if (voters > CL_RAFT_MAX_NODES || learners > CL_RAFT_MAX_NODES || f->bytes != 20 + 4 * (voters + learners))
        return -EINVAL;
    for (uint32_t i = 0; i < voters + learners; i++)
        ids[i] = get32(f->data + 20 + 4 * i);
    cl_raft_status(raft, &s);
    if (s.role == CL_RAFT_LEADER && s.members_index != get64(f->data))
        return -ESTALE;
    return (get32(f->data + 16) ? cl_raft_force_members : cl_raft_change_members)(raft, ids, voters, ids + voters,
                                                                                  learners);
}

static uint32_t snapshot_piece(struct cl_raft_service *s, const struct node_frame *f, char out[SERVE_STATUS_BYTES])
{
    uint64_t index, term, bytes, at = f->bytes == 8 ? get64(f->data) : UINT64_MAX;
    if (at == UINT64_MAX)
        cl_raft_node_compact(s->node);
    else if (at == 0)
        cl_raft_node_hold(s->node, 1);
    s->hold_until_ns = s->now_ns + HOLD_NS;
    const uint8_t *data =
        (at == UINT64_MAX ? cl_raft_node_snapshot : cl_raft_node_held)(s->node, &index, &term, &bytes);
    put64((uint8_t *)out, index);
    put64((uint8_t *)out + 8, term);
    put64((uint8_t *)out + 16, bytes);
    uint64_t n = data && at < bytes ? cl_min(bytes - at, (uint64_t)SERVE_STATUS_BYTES - 24) : 0;
    if (n)
        memcpy(out + 24, data + at, n);
    return 24 + (uint32_t)n;
}

void serve_admin_tick(struct cl_raft_service *s)
{
    if (!s->hold_until_ns || s->now_ns < s->hold_until_ns)
        return;
    s->hold_until_ns = 0;
    cl_raft_node_hold(s->node, 0);
}

uint32_t serve_admin(struct cl_raft_service *s, const struct node_frame *f, char out[SERVE_STATUS_BYTES])
{
    struct cl_raft *raft = cl_raft_node_core(s->node);
    if (f->kind == NODE_FRAME_STATUS)
        return status_text(s, out);
    if (f->kind == NODE_FRAME_SNAPSHOT)
        return snapshot_piece(s, f, out);
    int rc = -EINVAL;
    if (f->kind == NODE_FRAME_MEMBERS)
        rc = change(raft, f);
    else if (f->kind == NODE_FRAME_TRANSFER && f->bytes == 4)
        rc = cl_raft_transfer(raft, get32(f->data));
    else if (f->kind == NODE_FRAME_CLOCK && f->bytes == 8)
        rc = cl_raft_node_set_clock(s->node, get64(f->data));
    put32((uint8_t *)out, (uint32_t)-rc);
    return 4;
}

uint32_t serve_admin_stats(struct cl_raft_service *svc, char *out, uint32_t room)
{
    struct cl_raft_status s;
    struct text t = {out, room};
    cl_raft_status(cl_raft_node_core(svc->node), &s);
    say(&t, "STAT raft_id %u\r\nSTAT raft_role %s\r\nSTAT raft_term %lu\r\nSTAT raft_leader %u\r\n", s.id,
        roles[s.role], s.term, s.leader);
    say(&t, "STAT raft_commit %lu\r\nSTAT raft_applied %lu\r\nSTAT raft_durable %lu\r\n", s.commit, s.applied,
        s.durable);
    return (uint32_t)(t.at - out);
}
