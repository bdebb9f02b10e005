/* Clients that speak RESP: no session, so what may have been done is not asked for again. A client has a connection to
 * one node; one that ended, or whose patience did, leaves the outcome of a write unknown. A read, and what was refused
 * as another node leads, is asked again elsewhere. A swap is WATCH and GET, and then MULTI, SET and EXEC on the same
 * connection, so it is in the history as a read until EXEC has left, and is one again if that refused: somebody else
 * may have written what was there. */
#include "world.h"
#include <stdio.h>

#define MOST_TURNS 16 /* of patience, for one operation; for a read that is asked for again in a calm world */
#define MOST_APPENDS 5
#define TEXT_BYTES 17

/* Of appends of unknown outcome any may have come, in any order: with many the check of the history would have no
 * end. */
static bool many_appends(const struct sim_world *w, uint64_t key)
{
    uint32_t unknown = 0;
    for (uint64_t i = 0; i < w->n_ops; i++)
        unknown +=
            w->ops[i].key == key && w->ops[i].kind == CL_HISTORY_APPEND && w->ops[i].returned == CL_HISTORY_UNKNOWN;
    return unknown > MOST_APPENDS;
}

void sim_resp_begin(struct sim_world *w, struct sim_client *c)
{
    struct cl_history_op *op = &w->ops[c->op];
    struct sim_request *q = &c->request;
    char text[TEXT_BYTES];
    if (q->command.kind == CL_HISTORY_APPEND && many_appends(w, op->key))
        q->command.kind = op->kind = CL_HISTORY_PUT;
    uint8_t kind = q->command.kind;
    snprintf(text, sizeof text, "%016lx", q->text = w->values);
    c->told_no = false;
    q->part = kind == CL_HISTORY_CAS ? SIM_LOOK : SIM_WHOLE;
    if (kind == CL_HISTORY_PUT || kind == CL_HISTORY_CAS) {
        op->input = cl_history_digest((const uint8_t *)text, TEXT_BYTES - 1);
    } else if (kind == CL_HISTORY_APPEND) {
        op->input = cl_history_piece((const uint8_t *)text, TEXT_BYTES - 1);
        op->other = cl_history_factor(TEXT_BYTES - 1);
    }
    if (q->part == SIM_LOOK)
        op->kind = CL_HISTORY_GET;
}

static bool is_read(const struct sim_client *c)
{
    return c->request.part == SIM_LOOK || c->request.command.kind == CL_HISTORY_GET;
}

void sim_resp_link(struct sim_world *w, struct sim_client *c)
{
    c->request.opens = c->linked != c->target + 1;
    if (c->request.opens)
        c->session = w->sessions++;
    c->linked = c->target + 1;
    c->request.command.session = c->session;
    c->request.command.sequence = c->sequence;
}

void sim_resp_turn(struct sim_world *w, uint32_t client)
{
    struct sim_client *c = &w->clients[client];
    uint32_t turns = ++c->attempts, most = cl_min(w->swarm.give_up, (uint32_t)MOST_TURNS);
    bool harmless = is_read(c) || c->told_no;
    bool waited = (turns & (turns - 1)) == 0 || turns % 4 == 0; /* else its answer may be on its way */
    bool again = c->told_no || !c->linked || waited;
    if (turns >= most && !(w->calm && harmless)) {
        sim_client_give_up(w, client);
    } else if (harmless && again) {
        w->result->ops_retried++;
        c->told_no = false;
        c->linked = 0;
        sim_client_turn_away(w, client);
        sim_client_send(w, client);
    } else {
        sim_client_wait(w, client);
    }
}

/* What WATCH and GET have said: go on with it, on this connection. */
static void swap(struct sim_world *w, uint32_t client, uint64_t found)
{
    struct sim_client *c = &w->clients[client];
    struct cl_history_op *op = &w->ops[c->op];
    c->request.part = SIM_SWAP;
    op->kind = CL_HISTORY_CAS;
    op->other = found;
    w->result->swaps++;
    sim_client_send(w, client);
}

static void complete(struct sim_world *w, uint32_t client, const struct sim_outcome *outcome)
{
    struct sim_client *c = &w->clients[client];
    struct cl_history_op *op = &w->ops[c->op];
    struct sim_outcome out = *outcome;
    if (c->request.part == SIM_SWAP && out.refused) {
        w->result->swaps_refused++;
        op->kind = CL_HISTORY_GET;
        out = (struct sim_outcome){.value = op->other};
    }
    sim_client_complete(w, client, &out);
}

/* Nothing was done. */
static void told_no(struct sim_world *w, uint32_t client, uint32_t leader)
{
    struct sim_client *c = &w->clients[client];
    c->told_no = !leader || leader > w->n_nodes || leader - 1 == c->target;
    if (c->told_no) /* its patience will run out */
        return;
    c->target = leader - 1;
    sim_client_send(w, client);
}

void sim_resp_answer(struct sim_world *w, uint32_t client, const struct sim_reply *reply)
{
    struct sim_client *c = &w->clients[client];
    bool awaited = c->op != SIM_OPS && reply->sequence == c->sequence;
    if (reply->session != c->session)
        return;
    if (reply->status == SIM_ENDED) {
        c->linked = 0;
        if (awaited && !is_read(c))
            sim_client_give_up(w, client);
    } else if (!awaited) {
        return;
    } else if (reply->status == SIM_ELSEWHERE) {
        told_no(w, client, reply->leader);
    } else if (c->request.part == SIM_LOOK) {
        swap(w, client, reply->outcome.value);
    } else {
        complete(w, client, &reply->outcome);
    }
}
