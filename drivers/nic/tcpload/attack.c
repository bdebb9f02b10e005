/* An attacker on the client's link: when it sends, and what, if it sees no answers and sends what it may guess.
 * One with connections of its own: attackers.c. */
#include "engine.h"

#define DATA_BYTES 1400

int cl_tcpload_attack(struct cl_tcpload *load, uint32_t kind, double rate, uint32_t connections)
{
    bool has_own = kind >= CL_TCPLOAD_ATTACK_ZERO_WINDOW;
    if (kind > CL_TCPLOAD_NEIGHBOUR || (kind && !(rate >= 1 && rate <= 1e9)) ||
        (has_own && (connections < 1 || connections > ATTACKERS_MOST)))
        return -EINVAL;
    cl_tcpload_attackers_free(&load->attack);
    load->attack.random.state = load->config.seed ^ 0x61747461636bull;
    if (has_own && !cl_tcpload_attackers_new(&load->attack, connections))
        return -ENOMEM;
    load->attack.kind = kind;
    if (kind)
        load->attack.gap = (uint64_t)((double)load->clock->hz / rate);
    return 0;
}

unsigned cl_tcpload_attack_due(const struct cl_tcpload *load, uint64_t now, unsigned n)
{
    const struct attack *a = &load->attack;
    if (state_of(load) != CL_TCPLOAD_RUNNING || now < a->next_tsc)
        return 0;
    return a->next_tsc == 0 ? 1 : (unsigned)cl_min((now - a->next_tsc) / a->gap + 1, (uint64_t)n);
}

static void write_flood(struct cl_tcpload *load, uint64_t r, struct cl_frame *frame)
{
    struct forged f = {.ip = load->config.ip + ATTACKERS_FROM + (uint32_t)(r >> 48) % ATTACKERS,
                       .port = (uint16_t)(1024 + (r & 0x7fff)),
                       .flags = load->attack.kind == CL_TCPLOAD_ATTACK_SYN ? SYN : ACK,
                       .window = 65535,
                       .seq = (uint32_t)(r >> 16)};
    f.ack = f.flags & ACK ? (uint32_t)(r >> 8) : 0;
    cl_tcpload_write_forged(load, &f, frame);
}

static void write_blind(struct cl_tcpload *load, uint64_t r, struct cl_frame *frame)
{
    static const uint8_t flags[] = {[CL_TCPLOAD_ATTACK_BLIND_RST] = RST,
                                    [CL_TCPLOAD_ATTACK_BLIND_SYN] = SYN,
                                    [CL_TCPLOAD_ATTACK_BLIND_DATA] = ACK | PSH,
                                    [CL_TCPLOAD_ATTACK_BLIND_ACK] = ACK};
    uint32_t kind = load->attack.kind;
    uint32_t flow = load->conns[cl_random_below(&load->attack.random, load->config.connections)].flow;
    struct forged f = {.ip = cl_tcpload_ip_of(load, flow),
                       .port = cl_tcpload_port_of(load, flow),
                       .flags = flags[kind],
                       .window = 65535,
                       .seq = (uint32_t)r};
    f.ack = f.flags & ACK ? (uint32_t)(r >> 32) : 0;
    if (kind == CL_TCPLOAD_ATTACK_BLIND_DATA)
        f.len = (uint16_t)cl_min(DATA_BYTES, load->config.mtu - 40);
    cl_tcpload_write_forged(load, &f, frame);
}

unsigned cl_tcpload_attack_now(struct cl_tcpload *load, uint64_t now, struct cl_frame *frames, unsigned n)
{
    struct attack *a = &load->attack;
    unsigned k = 0, due = cl_tcpload_attack_due(load, now, n);
    for (unsigned i = 0; i < due; i++) {
        a->next_tsc = (a->next_tsc ? a->next_tsc : now) + a->gap;
        if (a->own)
            k += cl_tcpload_attackers_turn(load, &frames[k]);
        else if (a->kind <= CL_TCPLOAD_ATTACK_ACK)
            write_flood(load, cl_random_next(&a->random), &frames[k++]);
        else
            write_blind(load, cl_random_next(&a->random), &frames[k++]);
    }
    cl_count(&load->other.attacks, k);
    return k;
}
