/* Clients: each has a session, one operation at a time, and tries again, elsewhere, until there is an answer or it has
 * had enough. Then the outcome stays unknown and it goes on under a new session. */
#include "world.h"
#include <stdlib.h>
#include <string.h>

static uint64_t below(struct sim_world *w, uint64_t n)
{
    return cl_random_below(&w->random[SIM_R_CLIENT], n);
}

static uint64_t client_delay(struct sim_world *w)
{
    return 20000 + below(w, w->swarm.link.base_ns + w->swarm.link.spread_ns);
}

static bool only_reads(const struct sim_world *w, uint32_t client)
{
    return w->swarm.readers && client % 2;
}

/* Whether it sends to a node that has been left alone: a client that only reads, or every one. */
static bool stays(const struct sim_world *w, uint32_t client)
{
    return w->swarm.loyal || only_reads(w, client);
}

void sim_clients_stay(struct sim_world *w, uint32_t slot)
{
    for (uint32_t i = 0; i < w->swarm.clients; i++)
        if (stays(w, i))
            w->clients[i].target = slot;
}

static void turn_at(struct sim_world *w, uint64_t delay_ns, uint32_t client)
{
    sim_at(w, w->queue.now_ns + delay_ns, SIM_CLIENT, client, w->clients[client].attempt);
}

void sim_clients_begin(struct sim_world *w)
{
    w->n_ops = 0;
    w->sessions = 0;
    w->values = 0;
    for (uint32_t i = 0; i < w->swarm.clients; i++) {
        w->clients[i] = (struct sim_client){.op = SIM_OPS, .session = w->sessions++};
        turn_at(w, below(w, 40 * SIM_MS), i);
    }
}

void sim_client_wait(struct sim_world *w, uint32_t client)
{
    w->clients[client].attempt++;
    turn_at(w, w->swarm.patience_ns + below(w, w->swarm.patience_ns), client);
}

void sim_client_send(struct sim_world *w, uint32_t client)
{
    struct sim_client *c = &w->clients[client];
    if (sim_speaks_resp(w))
        sim_resp_link(w, c);
    struct sim_packet *p = sim_packet(w, sizeof(c->request));
    sim_client_wait(w, client);
    if (!p)
        return;
    memcpy(p->data, &c->request, sizeof(c->request));
    if (sim_chance(&w->random[SIM_R_CLIENT], (uint32_t)w->swarm.client_loss_ppm))
        sim_packet_drop(p);
    else
        sim_at(w, w->queue.now_ns + client_delay(w), SIM_REQUEST, c->target, (uint64_t)(uintptr_t)p);
}

/* Keys: one is a number to add to, the others hold texts. */
static void draw_command(struct sim_world *w, uint32_t client, struct sim_command *c)
{
    uint64_t number = ++w->values;
    c->key = (uint8_t)below(w, SIM_KEYS);
    if (sim_chance(&w->random[SIM_R_CLIENT], only_reads(w, client) ? 1000000 : w->swarm.get_ppm)) {
        c->kind = CL_HISTORY_GET;
    } else if (c->key == 0) {
        c->kind = CL_HISTORY_ADD;
        c->input = 1 + below(w, 3);
    } else {
        static const uint8_t kinds[] = {CL_HISTORY_PUT, CL_HISTORY_PUT,    CL_HISTORY_CAS,
                                        CL_HISTORY_CAS, CL_HISTORY_APPEND, CL_HISTORY_DELETE};
        c->kind = kinds[below(w, sizeof(kinds))];
        uint8_t text[8];
        memcpy(text, &number, sizeof(text));
        c->input =
            c->kind == CL_HISTORY_APPEND ? cl_history_piece(text, sizeof(text)) : cl_history_digest(text, sizeof(text));
        if (c->kind == CL_HISTORY_APPEND)
            c->other = cl_history_factor(sizeof(text));
    }
}

/* A CAS expects what was last seen of the key, by anybody: so that some succeed. */
static uint64_t last_seen(const struct sim_world *w, uint32_t key)
{
    for (uint64_t i = w->n_ops; i--;) {
        const struct cl_history_op *op = &w->ops[i];
        if (op->key == key && op->returned != CL_HISTORY_UNKNOWN) {
            if (op->kind == CL_HISTORY_GET)
                return op->output;
            if (op->kind == CL_HISTORY_PUT || (op->kind == CL_HISTORY_CAS && !(op->flags & CL_HISTORY_REFUSED)))
                return op->input;
        }
    }
    return CL_HISTORY_ABSENT;
}

/* Ask the real node for a session: the outcome of that does not belong into the history. */
static void open_session(struct sim_world *w, uint32_t client)
{
    struct sim_client *c = &w->clients[client];
    c->opening = true;
    c->request = (struct sim_request){.client = client, .open = 1, .by_log = 1};
    c->request.command.session = c->session;
    c->attempts = 0;
    sim_client_send(w, client);
}

static bool needs_session(const struct sim_world *w, uint32_t client)
{
    return w->options.mode != CL_RAFT_SIM_CORE && !sim_speaks_resp(w) && !w->clients[client].number;
}

static void begin(struct sim_world *w, uint32_t client, const struct sim_command *given)
{
    struct sim_client *c = &w->clients[client];
    if (w->n_ops == SIM_OPS)
        return;
    struct sim_command command = {.session = c->session};
    if (given)
        command = *given;
    else
        draw_command(w, client, &command);
    if (command.kind == CL_HISTORY_CAS)
        command.other = last_seen(w, command.key);
    c->request = (struct sim_request){.client = client, .command = command};
    bool by_log = sim_chance(&w->random[SIM_R_CLIENT], w->swarm.by_log_ppm) && !only_reads(w, client);
    c->request.by_log = command.kind != CL_HISTORY_GET || by_log;
    c->request.command.session = c->session;
    c->request.number = c->number;
    c->opening = false;
    c->request.command.sequence = ++c->sequence;
    c->attempts = 0;
    c->op = w->n_ops++;
    w->ops[c->op] = (struct cl_history_op){
        .key = command.key,
        .invoked = w->stamp++,
        .returned = CL_HISTORY_UNKNOWN,
        .input = command.input,
        .other = command.other,
        .client = client,
        .kind = command.kind,
    };
    if (sim_speaks_resp(w))
        sim_resp_begin(w, c);
    sim_client_send(w, client);
}

void sim_client_give_up(struct sim_world *w, uint32_t client)
{
    struct sim_client *c = &w->clients[client];
    w->result->ops_unknown++;
    c->op = SIM_OPS;
    c->attempt++;
    if (w->sessions == SIM_SESSIONS && !sim_speaks_resp(w)) /* no more names: this client stays away */
        return;
    c->session = w->sessions++;
    c->linked = 0;
    c->sequence = 0;
    c->number = 0;
    turn_at(w, below(w, w->swarm.think_ns), client);
}

void sim_client_turn_away(struct sim_world *w, uint32_t client)
{
    if (!stays(w, client) || below(w, 2))
        w->clients[client].target = (uint32_t)below(w, w->n_nodes);
}

void sim_client_turn(struct sim_world *w, uint32_t client, uint64_t attempt)
{
    struct sim_client *c = &w->clients[client];
    if (attempt != c->attempt)
        return;
    if (c->opening) {
        c->target = (uint32_t)below(w, w->n_nodes);
        if (w->calm)
            c->opening = false;
        else
            sim_client_send(w, client);
        return;
    }
    if (c->op == SIM_OPS) {
        if (!w->calm && needs_session(w, client))
            open_session(w, client);
        else if (!w->calm)
            begin(w, client, NULL);
        return;
    }
    if (sim_speaks_resp(w))
        return sim_resp_turn(w, client);
    if (++c->attempts >= w->swarm.give_up && !w->calm) {
        sim_client_give_up(w, client);
        return;
    }
    w->result->ops_retried++;
    sim_client_turn_away(w, client);
    sim_client_send(w, client);
}

void sim_answer(struct sim_world *w, const struct sim_reply *reply)
{
    if (sim_chance(&w->random[SIM_R_CLIENT], (uint32_t)w->swarm.client_loss_ppm))
        return;
    struct sim_packet *p = sim_packet(w, sizeof(*reply));
    if (!p)
        return;
    memcpy(p->data, reply, sizeof(*reply));
    sim_at(w, w->queue.now_ns + client_delay(w), SIM_ANSWER, reply->client, (uint64_t)(uintptr_t)p);
}

void sim_client_complete(struct sim_world *w, uint32_t client, const struct sim_outcome *outcome)
{
    struct sim_client *c = &w->clients[client];
    struct cl_history_op *op = &w->ops[c->op];
    op->returned = w->stamp++;
    if (outcome->refused)
        op->flags |= CL_HISTORY_REFUSED;
    op->output = outcome->value;
    if (op->kind == CL_HISTORY_ADD ||
        (op->kind == CL_HISTORY_APPEND && !sim_speaks_resp(w))) /* APPEND's says how long */
        op->flags |= CL_HISTORY_HAS_OUTPUT;
    w->result->ops_answered++;
    sim_say(w, "client %u: %u of session %u answered%s, value %016lx", client, c->sequence, c->session,
            outcome->refused ? " no" : "", outcome->value);
    c->op = SIM_OPS;
    c->attempt++;
    if (!w->calm)
        turn_at(w, below(w, w->swarm.think_ns), client);
}

void sim_client_answer(struct sim_world *w, uint32_t client, const struct sim_reply *reply)
{
    struct sim_client *c = &w->clients[client];
    if (sim_speaks_resp(w))
        return sim_resp_answer(w, client, reply);
    bool opened = c->opening && !reply->sequence;
    if (reply->session != c->session || !(opened || (c->op != SIM_OPS && reply->sequence == c->sequence)))
        return;
    if (reply->status == SIM_EXPIRED) { /* an earlier try may have been carried out all the same */
        sim_client_give_up(w, client);
        return;
    }
    if (reply->status != SIM_DONE) {
        if (reply->leader && reply->leader <= w->n_nodes && reply->leader - 1 != c->target) {
            c->target = reply->leader - 1;
            sim_client_send(w, client);
        }
        return; /* else its patience will run out */
    }
    if (opened) {
        c->opening = false;
        c->number = reply->outcome.value;
        c->attempt++;
        turn_at(w, below(w, w->swarm.think_ns), client);
        return;
    }
    sim_client_complete(w, client, &reply->outcome);
}

bool sim_clients_idle(const struct sim_world *w)
{
    for (uint32_t i = 0; i < w->swarm.clients; i++)
        if (w->clients[i].op != SIM_OPS)
            return false;
    return true;
}

void sim_clients_read(struct sim_world *w, uint8_t key)
{
    begin(w, 0, &(struct sim_command){.kind = CL_HISTORY_GET, .key = key});
}
