/* The simulated replicas' state machine (see machine.h). */
#include "machine.h"
#include <string.h>

#define PRIME ((1ull << 61) - 1)

void sim_machine_init(struct sim_machine *m)
{
    memset(m, 0, sizeof(*m));
    for (int i = 0; i < SIM_KEYS; i++)
        m->registers[i] = CL_HISTORY_ABSENT;
}

struct sim_outcome sim_machine_execute(uint64_t registers[SIM_KEYS], const struct sim_command *c)
{
    uint64_t *r = &registers[c->key % SIM_KEYS];
    struct sim_outcome out = {0};
    switch (c->kind) {
    case CL_HISTORY_PUT:
        *r = c->input;
        break;
    case CL_HISTORY_CAS:
        out.refused = *r != c->other;
        if (!out.refused)
            *r = c->input;
        break;
    case CL_HISTORY_APPEND: {
        unsigned __int128 wide = (unsigned __int128)(*r == CL_HISTORY_ABSENT ? 1 : *r % PRIME) * c->other + c->input;
        *r = (uint64_t)(wide % PRIME);
        break;
    }
    case CL_HISTORY_ADD:
        *r = (*r == CL_HISTORY_ABSENT ? 0 : *r) + c->input;
        break;
    case CL_HISTORY_DELETE:
        out.refused = *r == CL_HISTORY_ABSENT;
        *r = CL_HISTORY_ABSENT;
        break;
    default:
        break;
    }
    out.value = *r;
    return out;
}

struct sim_outcome sim_machine_apply(struct sim_machine *m, uint64_t index, const struct sim_command *c,
                                     bool no_sessions)
{
    struct sim_outcome out = {0};
    m->applied = index;
    if (c) {
        uint32_t s = c->session % SIM_SESSIONS;
        if (no_sessions || c->sequence > m->sessions[s].sequence) {
            out = sim_machine_execute(m->registers, c);
            m->sessions[s].sequence = c->sequence;
            m->sessions[s].outcome = out;
        } else {
            out = m->sessions[s].outcome;
        }
    }
    m->digest = sim_mix(m->digest ^ index * 0x9e3779b97f4a7c15ull) + sim_mix(out.value + 2 * out.refused);
    return out;
}
