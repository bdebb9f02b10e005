/* What clients ask of a simulated driver of the core alone, and applying what is committed (see sim_core.h). */
#include "sim_core.h"
#include <string.h>

static void answer(struct sim_world *w, struct sim_node *n, const struct sim_request *q, uint8_t status,
                   struct sim_outcome outcome)
{
    struct sim_reply reply = {.client = q->client, .session = q->command.session, .sequence = q->command.sequence};
    reply.status = status;
    reply.outcome = outcome;
    reply.leader = n->watch.leader;
    sim_answer(w, &reply);
}

void sim_core_answer_reads(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    for (uint32_t i = 0; i < SIM_CORE_READS; i++) {
        struct sim_core_reading *r = &b->readings[i];
        if (!r->context || !r->index || (r->index > b->machine.applied && w->options.mutant != CL_RAFT_SIM_EARLY_READ))
            continue;
        answer(w, n, &r->request, SIM_DONE, sim_machine_execute(b->machine.registers, &r->request.command));
        r->context = 0;
    }
}

void sim_core_apply(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last)
{
    struct sim_core *b = sim_core_of(n);
    for (uint64_t i = first; i <= last && !w->stopped; i++) {
        struct cl_raft_entry e;
        if (cl_raft_entry(b->core, i, &e))
            return sim_fail(w, "#%u is to apply entry %lu and does not have it", n->id, i);
        struct sim_command command;
        bool is_command = e.kind == CL_RAFT_COMMAND && e.bytes == sizeof(command);
        if (is_command)
            memcpy(&command, e.data, sizeof(command));
        struct sim_outcome outcome = sim_machine_apply(&b->machine, i, is_command ? &command : NULL,
                                                       w->options.mutant == CL_RAFT_SIM_NO_SESSIONS);
        sim_check_applied(w, n, i, b->machine.digest);
        struct sim_core_proposal *p = &b->proposals[i & (SIM_CORE_PROPOSALS - 1)];
        if (p->index == i) {
            answer(w, n, &p->request, p->term == e.term ? SIM_DONE : SIM_ELSEWHERE, outcome);
            p->index = 0;
        }
    }
    cl_raft_applied(b->core, last);
    sim_core_answer_reads(w, n);
}

void sim_core_take_reads(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    struct cl_raft_read read;
    while (cl_raft_poll_read(b->core, &read)) {
        for (uint32_t i = 0; i < SIM_CORE_READS; i++) {
            struct sim_core_reading *r = &b->readings[i];
            if (r->context != read.context)
                continue;
            r->index = read.index;
            if (!read.index) {
                answer(w, n, &r->request, SIM_ELSEWHERE, (struct sim_outcome){0});
                r->context = 0;
            }
        }
    }
    sim_core_answer_reads(w, n);
}

static void read_request(struct sim_world *w, struct sim_node *n, const struct sim_request *q)
{
    struct sim_core *b = sim_core_of(n);
    if (w->options.mutant == CL_RAFT_SIM_UNASKED_READ && n->watch.role == CL_RAFT_LEADER) {
        answer(w, n, q, SIM_DONE, sim_machine_execute(b->machine.registers, &q->command));
        return;
    }
    uint64_t context = (uint64_t)n->epoch << 32 | ++b->contexts;
    uint64_t before = sim_lease_reads(w, n);
    int rc = cl_raft_read_index(b->core, context);
    sim_check_lease_reads(w, n, before);
    sim_say(w, "#%u is asked to read for client %u: %d", n->id, q->client, rc);
    if (rc) {
        answer(w, n, q, SIM_ELSEWHERE, (struct sim_outcome){0});
        return;
    }
    /* The oldest makes room: its question to the leader, or the answer, was lost. */
    b->readings[b->contexts % SIM_CORE_READS] = (struct sim_core_reading){.context = context, .request = *q};
}

void sim_core_request(struct sim_world *w, struct sim_node *n, const struct sim_request *q)
{
    struct sim_core *b = sim_core_of(n);
    uint64_t index = 0, term = 0;
    if (!q->by_log) {
        read_request(w, n, q);
        return;
    }
    int rc = cl_raft_propose(b->core, &q->command, sizeof(q->command), &index, &term);
    if (rc) {
        answer(w, n, q, SIM_ELSEWHERE, (struct sim_outcome){0});
        return;
    }
    sim_say(w, "#%u proposes %u of session %u as entry %lu of term %lu", n->id, q->command.sequence, q->command.session,
            index, term);
    b->proposals[index & (SIM_CORE_PROPOSALS - 1)] = (struct sim_core_proposal){index, term, *q};
    if (w->options.mutant == CL_RAFT_SIM_EARLY_ANSWER) {
        struct sim_machine ahead = b->machine;
        answer(w, n, q, SIM_DONE, sim_machine_execute(ahead.registers, &q->command));
    }
}
