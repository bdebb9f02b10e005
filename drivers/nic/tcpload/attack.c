/* An attacker on the client's link: it sees no answers, and sends what it may guess. */
#include "engine.h"

#define DATA_BYTES 1400

int cl_tcpload_attack(struct cl_tcpload *load, uint32_t kind, double rate)
{
    if (kind > CL_TCPLOAD_ATTACK_BLIND_ACK || (kind && !(rate >= 1 && rate <= 1e9)))
        return -EINVAL;
    load->attack = (struct attack){.kind = kind, .random = {load->config.seed ^ 0x61747461636bull}};
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
    uint32_t ip = load->config.ip + ATTACKERS_FROM + (uint32_t)(r >> 48) % ATTACKERS;
    uint16_t port = (uint16_t)(1024 + (r & 0x7fff));
    uint8_t flags = load->attack.kind == CL_TCPLOAD_ATTACK_SYN ? SYN : ACK;
    cl_tcpload_write_attack(load, ip, port, flags, (uint32_t)(r >> 16), flags & ACK ? (uint32_t)(r >> 8) : 0, 0, frame);
}

static void write_blind(struct cl_tcpload *load, const struct conn *victim, uint64_t r, struct cl_frame *frame)
{
    static const uint8_t flags[] = {[CL_TCPLOAD_ATTACK_BLIND_RST] = RST,
                                    [CL_TCPLOAD_ATTACK_BLIND_SYN] = SYN,
                                    [CL_TCPLOAD_ATTACK_BLIND_DATA] = ACK | PSH,
                                    [CL_TCPLOAD_ATTACK_BLIND_ACK] = ACK};
    uint32_t kind = load->attack.kind, seq = (uint32_t)r, ack = flags[kind] & ACK ? (uint32_t)(r >> 32) : 0;
    uint32_t len = kind == CL_TCPLOAD_ATTACK_BLIND_DATA ? cl_min(DATA_BYTES, load->config.mtu - 40) : 0;
    cl_tcpload_write_attack_on(load, victim, flags[kind], seq, ack, len, frame);
}

unsigned cl_tcpload_attack_now(struct cl_tcpload *load, uint64_t now, struct cl_frame *frames, unsigned n)
{
    struct attack *a = &load->attack;
    unsigned due = cl_tcpload_attack_due(load, now, n);
    for (unsigned i = 0; i < due; i++) {
        uint64_t r = cl_random_next(&a->random);
        const struct conn *victim = &load->conns[cl_random_below(&a->random, load->config.connections)];
        a->next_tsc = (a->next_tsc ? a->next_tsc : now) + a->gap;
        if (a->kind <= CL_TCPLOAD_ATTACK_ACK)
            write_flood(load, r, &frames[i]);
        else
            write_blind(load, victim, r, &frames[i]);
    }
    cl_count(&load->other.attacks, due);
    return due;
}
