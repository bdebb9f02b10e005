/* See serve.h. */
#include "internal.h"
#include <corelane/libos/log.h>
#include "../core/bytes.h"
#include "../node/session.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define REPLY_BYTES 16384
#define REPLY_BYTES_MOST 65536   /* a client's socket takes so much at once */
#define STOPPED_LOOK_NS 20000000 /* until a node that has stopped checks for orders again */
#define FRAME_EXTRA 1024         /* headers and a configuration, beside the largest entry or piece of a snapshot */

/* False: the runtime has ended, and what its log's last writes bring is of no use to anybody outside. */
static bool runs(void)
{
    return cl_kthread_index() >= 0;
}

static uint64_t env_wall(void *arg)
{
    struct timespec t;
    (void)arg;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool env_send(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    struct cl_raft_service *s = arg;
    return runs() && raft_channel_send(&s->channel, to, data, bytes, lasting, s->now_ns);
}

static int64_t send_to_peer(void *arg, uint32_t index, const uint8_t *datagram, uint32_t bytes)
{
    struct cl_raft_service *s = arg;
    const struct cl_raft_address *a = &s->config.peers[index];
    return cl_udp_sendto(s->out, datagram, bytes, &(struct cl_udp_addr){a->ipv4, a->port, 0});
}

/* Answer a client's frame. One that is longer than any answer may be is not sent, and counted. */
static void frame_answer(struct cl_raft_service *s, const struct cl_udp_addr *to, uint64_t ticket, int status,
                         const uint8_t *reply, uint32_t bytes)
{
    struct node_frame frame = {.answer = true,
                               .kind = status,
                               .from = s->config.node.raft.id,
                               .ticket = ticket,
                               .session = cl_raft_leader(cl_raft_node_core(s->node)),
                               .data = reply,
                               .bytes = bytes};
    if (bytes > s->frame_room - NODE_FRAME_HEADER) {
        cl_count(&s->count.not_sent, 1);
        return;
    }
    uint32_t all = node_frame_encode(s->config.node.raft.cluster, &frame, s->frame);
    raft_link_send(&s->link, s->out, to, s->frame, all);
}

static void env_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    struct cl_raft_service *s = arg;
    if (!runs())
        return;
    cl_raft_in_call_answered(&s->in_call, cl_sched_turn());
    if (token->words[0] == SERVE_STREAM_CLIENT) {
        serve_stream_answer(s, token, status, reply, bytes);
        return;
    }
    if (token->words[0] == SERVE_RESP_CLIENT) {
        serve_resp_answer(s, token, status, reply, bytes);
        return;
    }
    if (token->words[0] == SERVE_KV_CLIENT) {
        serve_kv_answer(s, token, status, reply, bytes);
        return;
    }
    struct cl_udp_addr to = {(uint32_t)(token->words[1] >> 16), (uint16_t)token->words[1], 0};
    serve_traced(s, s->traced.port, token->words[3], true); /* before: to send may be to ring the doorbell */
    frame_answer(s, &to, token->words[2], status, reply, bytes);
}

/* Not inlined: its buffer is no part of the stack below a client's frame. */
static CL_NOINLINE void on_operator(struct cl_raft_service *s, const struct node_frame *f,
                                    const struct cl_udp_addr *from)
{
    char answer[SERVE_STATUS_BYTES];
    uint32_t n = serve_admin(s, f, answer);
    frame_answer(s, from, f->ticket, CL_RAFT_OK, (const uint8_t *)answer, n);
}

/* The entries of a group with RESP are made by the node that leads. One of a stranger would depose it, or stop all
 * nodes by what nobody can apply. */
static void refuse_entry(struct cl_raft_service *s, const struct node_frame *f, const struct cl_udp_addr *from)
{
    static const char why[] = "commands of this group come over RESP, at its port";
    cl_count(&s->count.resp_refused, 1);
    frame_answer(s, from, f->ticket, CL_RAFT_REFUSED, (const uint8_t *)why, sizeof why - 1);
}

/* A client's frame. */
static void on_client(struct cl_raft_service *s, const struct node_frame *f, const struct cl_udp_addr *from)
{
    uint64_t client = (uint64_t)from->ipv4 << 16 | from->port;
    struct cl_raft_token token = {{SERVE_FRAME_CLIENT, client, f->ticket, s->now_ns}};
    if (f->kind == NODE_FRAME_QUERY)
        cl_raft_node_query(s->node, f->data, f->bytes, &token);
    else if (f->kind == CL_RAFT_APPLY && s->resp)
        refuse_entry(s, f, from);
    else if (f->kind <= CL_RAFT_CLOSE)
        cl_raft_node_submit(s->node, f->kind, f->session, f->sequence, f->data, f->bytes, &token);
    else if (f->kind <= NODE_FRAME_LAST)
        on_operator(s, f, from);
    else
        cl_count(&s->count.malformed, 1);
}

/* A request that is longer than the longest frame: who asks again would do so until its patience is over. */
static void refuse_too_long(struct cl_raft_service *s, const struct cl_udp_req *req)
{
    uint32_t bytes;
    struct node_frame f;
    const uint8_t *data = raft_link_too_long(&s->link, req->data, req->len, &bytes);
    uint64_t there = (uint64_t)req->len - RAFT_LINK_HEADER;
    if (data && node_frame_begins(s->config.node.raft.cluster, data, there, bytes, &f) && !f.answer && !f.from &&
        f.kind <= NODE_FRAME_QUERY)
        on_client(s, &f, &req->peer); /* the node refuses it by its length, and does not read the data */
}

static void from_client(struct cl_raft_service *s, const struct cl_udp_req *req)
{
    uint32_t bytes;
    struct node_frame f;
    const uint8_t *data = raft_link_receive(&s->link, &req->peer, req->data, req->len, &bytes);
    if (!data) {
        refuse_too_long(s, req);
        return;
    }
    if (node_frame_decode(s->config.node.raft.cluster, data, bytes, &f) && !f.answer && !f.from)
        on_client(s, &f, &req->peer);
    else
        cl_count(&s->count.malformed, 1);
}

static void frames_burst(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_raft_service *s = arg;
    bool clients = false;
    serve_begin(s);
    for (unsigned i = 0; i < n; i++) {
        uint32_t bytes;
        reqs[i].reply_len = 0;
        if (!raft_channel_is(reqs[i].data, reqs[i].len)) {
            from_client(s, &reqs[i]);
            clients = true;
            continue;
        }
        const uint8_t *data = raft_channel_receive(&s->channel, reqs[i].data, reqs[i].len, s->now_ns, &bytes);
        if (data)
            cl_raft_node_receive(s->node, data, bytes);
    }
    serve_poll(s);
    if (clients || serve_disk_busy(s))
        cl_raft_in_call_work(&s->in_call, s->now_ns, cl_sched_turn());
}

/* Changes asked by other threads, and the status for them. The lock is never waited for here. */
static void exchange(struct cl_raft_service *s)
{
    if (pthread_mutex_trylock(&s->lock))
        return;
    struct cl_raft *raft = cl_raft_node_core(s->node);
    const struct cl_raft_members *m = &s->asked;
    bool stopped = cl_raft_node_state(s->node) == CL_RAFT_STOPPED;
    if (s->asked_result == -EINPROGRESS)
        s->asked_result = stopped ? -ESHUTDOWN
                          : m->n_voters
                              ? cl_raft_change_members(raft, m->voters, m->n_voters, m->learners, m->n_learners)
                              : cl_raft_transfer(raft, m->learners[0]);
    cl_raft_status(raft, &s->status);
    s->led_ns = cl_raft_node_led_ns(s->node);
    if (stopped) { /* whatever it was: it takes no part any more */
        s->status.role = CL_RAFT_FOLLOWER;
        s->status.leader = 0;
        s->led_ns = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

static void on_timer(struct cl_timer *timer, void *arg)
{
    struct cl_raft_service *s = arg;
    (void)timer;
    serve_begin(s);
    exchange(s);
    serve_admin_tick(s);
    bool more = s->resp && serve_resp_turn(s);
    serve_poll(s);
    if (more)
        cl_timer_arm(&s->timer, s->now_ns + 1);
    if (!s->timer.pos) /* it has stopped, and is asked all the same */
        cl_timer_arm(&s->timer, s->now_ns + STOPPED_LOOK_NS);
}

/* A timer is armed on a kthread. */
static void first_poll(void *arg)
{
    struct cl_raft_service *s = arg;
    cl_timer_arm(&s->timer, serve_now(s));
}

static int bind_all(struct cl_raft_service *s, char err[256])
{
    const struct cl_raft_serve_config *c = &s->config;
    int (*bind)(struct cl_runtime *, uint16_t, cl_udp_burst_handler, void *) =
        c->foreign ? cl_runtime_bind_udp_foreign : cl_runtime_bind_udp_burst;
    uint16_t port = c->port;
    int rc = bind(s->rt, port, frames_burst, s);
    if (!rc && c->kv_port) {
        port = c->kv_port;
        rc = bind(s->rt, port, serve_kv_burst, s);
    }
    if (!rc)
        rc = cl_udp_open(s->rt, 0, 1, &s->out);
    if (!rc)
        rc = cl_runtime_spawn(s->rt, first_poll, s);
    if (rc)
        snprintf(err, 256, "cannot serve UDP port %u: %s", port, strerror(-rc));
    if (!rc && c->resp.port)
        rc = serve_resp_bind(s, err);
    return !rc && c->kv_tcp_port ? serve_stream_bind(s, err) : rc;
}

/* Links to clients and to the other nodes, as long as the MTU and the longest frame ask for. */
static int make_links(struct cl_raft_service *s, uint32_t mtu, char err[256])
{
    const struct cl_raft_node_config *c = &s->config.node;
    uint32_t largest = cl_max(cl_max(c->raft.message_bytes, c->raft.entry_bytes), c->reply_bytes);
    largest = cl_max(largest, c->machine.answer_bytes);
    largest = cl_max(largest, (uint32_t)SERVE_STATUS_BYTES) + FRAME_EXTRA;
    raft_link_init(&s->link, mtu, largest);
    raft_channel_init(&s->channel, c->raft.id, c->incarnation, mtu);
    s->channel.send = send_to_peer;
    s->channel.arg = s;
    s->frame = malloc(largest);
    s->frame_room = largest;
    int rc = s->frame ? 0 : -ENOMEM;
    for (uint32_t i = 0; !rc && i < s->config.n_peers; i++)
        rc = raft_channel_add(&s->channel, s->config.peers[i].id, largest);
    if (rc)
        snprintf(err, 256, "no memory for the frames of a Raft node");
    return rc;
}

static int make_node(struct cl_raft_service *s, uint32_t mtu, char err[256])
{
    struct cl_raft_node_config *c = &s->config.node;
    if (getrandom(&c->incarnation, sizeof(c->incarnation), 0) != sizeof(c->incarnation)) {
        snprintf(err, 256, "the kernel has no random numbers (getrandom)");
        return -EIO;
    }
    c->incarnation |= 1; /* 0 is none */
    c->env = (struct cl_raft_env){s, serve_now, env_wall, env_send, env_answer, serve_passed};
    serve_trace(s);
    c->raft.message_bytes = c->raft.message_bytes ? c->raft.message_bytes : 16384;
    if (!c->raft.entry_bytes)
        c->raft.entry_bytes = c->log ? cl_min(65536u, cl_log_max_bytes(c->log)) : 65536;
    /* Entries under way take half of a channel's window at most, and leave the rest to answers. */
    c->raft.inflight_bytes = c->raft.inflight_bytes ? c->raft.inflight_bytes : RAFT_CHANNEL_WINDOW / 2 * (mtu - 200);
    c->reply_bytes = c->reply_bytes ? c->reply_bytes : REPLY_BYTES;
    if (c->reply_bytes > REPLY_BYTES_MOST) {
        snprintf(err, 256, "reply_bytes is %u, and may be %u at most", c->reply_bytes, REPLY_BYTES_MOST);
        return -EINVAL;
    }
    c->max_sessions = c->max_sessions ? c->max_sessions : 256;
    uint64_t memory = s->config.kv_memory_bytes ? s->config.kv_memory_bytes : 64 << 20;
    int rc = 0;
    if (c->machine.apply)
        serve_machine_wrap(&s->machine, &c->machine);
    else if (s->config.resp.port)
        rc = raft_resp_new(&s->values, &(struct cl_resp_settings){.memory_bytes = memory}, &c->machine, err);
    else
        rc = raft_kv_new(&s->kv, memory, &c->machine, err);
    uint64_t room = c->log ? cl_log_snapshot_room(c->log) : UINT64_MAX;
    if (!rc && s->kv.store)
        rc = raft_kv_fits(&s->kv, room, raft_sessions_most(c->max_sessions, c->reply_bytes), err);
    if (!rc && s->values.r)
        rc = raft_resp_fits(&s->values, room, raft_sessions_most(c->max_sessions, 0), err); /* no command is of one */
    rc = rc ? rc : cl_raft_node_new(c, &s->node, err);
    return rc ? rc : cl_raft_node_check_log(s->node, err);
}

int cl_raft_serve(struct cl_runtime *rt, const struct cl_raft_serve_config *config, struct cl_raft_service **out,
                  char err[256])
{
    struct cl_runtime_info info;
    cl_runtime_info(rt, &info);
    if (info.kthreads != 1 || config->n_peers > CL_RAFT_MAX_NODES || !config->port) {
        snprintf(err, 256, "a Raft node needs a runtime of one kthread, a port, and %u peers at most",
                 CL_RAFT_MAX_NODES);
        return -EINVAL;
    }
    struct cl_raft_service *s = calloc(1, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "no memory for a Raft node");
        return -ENOMEM;
    }
    s->config = *config;
    s->rt = rt;
    s->clock = cl_nic_clock(cl_runtime_nic(rt));
    pthread_mutex_init(&s->lock, NULL);
    cl_timer_init(&s->timer, on_timer, s);
    int rc = make_node(s, info.mtu, err);
    rc = rc ? rc : make_links(s, info.mtu, err);
    if (!rc) {
        rc = serve_watch_disk(s, err);
        rc = rc ? rc : bind_all(s, err);
        if (rc)
            cl_sched_completions_remove(cl_runtime_sched(rt), &s->completions);
    }
    if (rc)
        cl_raft_service_delete(s);
    else
        *out = s;
    return rc;
}

void cl_raft_service_delete(struct cl_raft_service *s)
{
    if (!s)
        return;
    cl_raft_node_delete(s->node);
    cl_kv_front_delete(s->front);
    serve_resp_delete(s->resp);
    raft_kv_delete(&s->kv);
    raft_resp_delete(&s->values);
    raft_link_free(&s->link);
    raft_channel_free(&s->channel);
    free(s->frame);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct cl_raft_node *cl_raft_service_node(struct cl_raft_service *s)
{
    return s->node;
}

struct cl_kv_front *cl_raft_service_front(struct cl_raft_service *s)
{
    return s->front;
}

void cl_raft_service_counters(const struct cl_raft_service *s, struct cl_raft_serve_counters *out)
{
    const struct raft_link *l = &s->link;
    const struct raft_channel *ch = &s->channel;
    cl_counts_copy(out, &s->count, sizeof *out);
    out->frames_in = cl_load_relaxed(&l->frames_in);
    out->frames_out = cl_load_relaxed(&l->frames_out);
    out->datagrams_in =
        cl_load_relaxed(&l->datagrams_in) + cl_load_relaxed(&ch->malformed) + cl_load_relaxed(&ch->unknown_peer);
    out->datagrams_out = cl_load_relaxed(&l->datagrams_out);
    out->malformed += cl_load_relaxed(&l->malformed) + cl_load_relaxed(&ch->malformed);
    out->too_long = cl_load_relaxed(&l->too_long);
    out->given_up = cl_load_relaxed(&l->given_up);
    out->not_sent += cl_load_relaxed(&l->not_sent);
    out->unknown_peer = cl_load_relaxed(&ch->unknown_peer);
    out->in_call = cl_load_relaxed(&s->in_call.calls);
    out->in_call_late = cl_load_relaxed(&s->in_call.late);
    out->in_call_long = cl_load_relaxed(&s->in_call.long_ones);
    serve_resp_counters(s, out);
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        struct raft_channel_counters c;
        cl_counts_copy(&c, &ch->peers[i].count, sizeof c);
        out->frames_in += c.frames_in;
        out->frames_out += c.frames_out;
        out->datagrams_in += c.datagrams_in;
        out->datagrams_out += c.datagrams_out;
        out->malformed += c.malformed;
        out->not_sent += c.not_sent;
        out->retransmitted += c.retransmitted;
        out->timeouts += c.timeouts;
        out->duplicates += c.duplicates;
        out->stale += c.stale;
        out->no_room += c.no_room;
        out->window_full += c.window_full;
        out->unacknowledged += c.given_up + c.reset;
    }
}

int cl_raft_service_ask(struct cl_raft_service *s, const uint32_t *voters, uint32_t n_voters, const uint32_t *learners,
                        uint32_t n_learners)
{
    if (n_voters > CL_RAFT_MAX_NODES || n_learners > CL_RAFT_MAX_NODES || (!n_voters && n_learners != 1))
        return -EINVAL;
    pthread_mutex_lock(&s->lock);
    int rc = s->asked_result == -EINPROGRESS ? -EBUSY : 0;
    if (!rc) {
        s->asked = (struct cl_raft_members){.n_voters = n_voters, .n_learners = n_learners};
        memcpy(s->asked.voters, voters, n_voters * sizeof(*voters));
        memcpy(s->asked.learners, learners, n_learners * sizeof(*learners));
        s->asked_result = -EINPROGRESS;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int cl_raft_service_asked(const struct cl_raft_service *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->lock;
    pthread_mutex_lock(lock);
    int rc = s->asked_result;
    pthread_mutex_unlock(lock);
    return rc;
}

void cl_raft_service_status(const struct cl_raft_service *s, struct cl_raft_status *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->lock;
    pthread_mutex_lock(lock);
    *out = s->status;
    pthread_mutex_unlock(lock);
}

uint64_t cl_raft_service_leads_for_ns(const struct cl_raft_service *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->lock;
    pthread_mutex_lock(lock);
    uint64_t led_ns = s->led_ns;
    pthread_mutex_unlock(lock);
    return led_ns ? (uint64_t)cl_clock_ns(s->clock) - led_ns : UINT64_MAX;
}
