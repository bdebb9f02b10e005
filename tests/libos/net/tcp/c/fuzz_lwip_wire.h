/* The wire of fuzz_lwip.c, and its time. */
#ifndef TESTS_LIBOS_TCP_FUZZ_LWIP_WIRE_H
#define TESTS_LIBOS_TCP_FUZZ_LWIP_WIRE_H

#include "tests/libos/net/tcp/c/fuzz_lwip_round.h"

static void show(const char *what, const uint8_t *packet, uint32_t len)
{
    struct cl_tcp_segment s;
    if (!verbose || !cl_tcp_segment_read(packet + HEADERS, len - HEADERS, &s))
        return;
    printf("%10.6f %-12s flags %02x seq %u len %u ack %u win %u\n", (double)now_ns / 1e9, what, s.flags, s.seq, s.len,
           s.ack, s.window);
}

static void fly(bool to_us, const uint8_t *bytes, uint32_t len, uint64_t in_ns)
{
    struct packet *p = malloc(sizeof *p);
    CHECK(p && n_flying < MOST_UNDER_WAY && len <= PACKET_MOST);
    p->at_ns = now_ns + in_ns;
    p->order = n_flown++;
    p->to_us = to_us;
    p->len = len;
    memcpy(p->bytes, bytes, len);
    if (chance() < wire.flip)
        p->bytes[HEADERS + below(len - HEADERS)] ^= (uint8_t)(1u << below(8));
    flying[n_flying++] = p;
}

/* What a peer may do, and lwIP does not. */
static void change(uint8_t *packet, uint32_t len)
{
    uint8_t *tcp = packet + HEADERS;
    if (chance() < wire.urgent) {
        tcp[13] |= CL_TCPF_URG;
        cl_put16(tcp + 18, cl_be16((uint16_t)below(2000)));
    }
    if (chance() < wire.shrink && !(tcp[13] & CL_TCPF_SYN))
        cl_put16(tcp + 14, cl_be16((uint16_t)below(cl_be16(cl_get16(tcp + 14)) + 1u)));
    packet_fix(packet, len);
}

static void carry(bool to_us, const uint8_t *packet, uint32_t len)
{
    uint8_t copy[PACKET_MOST];
    uint64_t in_ns = wire.delay_ns + below(wire.jitter_ns);
    CHECK(len <= sizeof copy);
    memcpy(copy, packet, len);
    show(to_us ? "lwIP sends" : "we send", packet, len);
    if (chance() < wire.loss)
        return;
    if (to_us)
        change(copy, len);
    if (chance() < wire.late)
        in_ns += below(wire.late_ns);
    fly(to_us, copy, len, in_ns);
    if (chance() < wire.twice)
        fly(to_us, copy, len, in_ns + below(wire.late_ns + 1));
}

static void from_lwip(const uint8_t *packet, uint32_t len)
{
    lwip_said_ns = now_ns;
    carry(true, packet, len);
}

static void send_ours(void)
{
    uint8_t packet[PACKET_MOST];
    uint64_t at_ns;
    for (uint32_t len; (len = cl_tcp_host_next(host, packet, sizeof packet, &at_ns));)
        carry(false, packet, len);
}

static void note(const struct packet *p)
{
    struct cl_tcp_segment s;
    if (!packet_is_whole(p->bytes, p->len) || !cl_tcp_segment_read(p->bytes + HEADERS, p->len - HEADERS, &s))
        return;
    if ((s.flags & CL_TCPF_SYN) && !irs_known) {
        irs = s.seq;
        irs_known = true;
    }
}

static void arrive(struct packet *p)
{
    show(p->to_us ? "we take" : "lwIP takes", p->bytes, p->len);
    if (p->to_us) {
        note(p);
        cl_tcp_host_take(host, p->bytes, p->len);
        send_ours();
    } else {
        lwip_take(p->bytes, p->len);
    }
    free(p);
}

/* Time. */

static unsigned next_packet(void)
{
    unsigned next = 0;
    for (unsigned i = 1; i < n_flying; i++)
        if (flying[i]->at_ns < flying[next]->at_ns ||
            (flying[i]->at_ns == flying[next]->at_ns && flying[i]->order < flying[next]->order))
            next = i;
    return next;
}

static void run_until(uint64_t until_ns)
{
    for (;;) {
        unsigned next = next_packet();
        uint64_t due_ns = cl_tcp_host_due_ns(host), at_ns = cl_min(due_ns, tmr_ns);
        bool packet = n_flying && flying[next]->at_ns <= at_ns;
        at_ns = packet ? flying[next]->at_ns : at_ns;
        if (at_ns > until_ns)
            break;
        now_ns = cl_max(now_ns, at_ns);
        cl_tcp_host_run(host, now_ns);
        send_ours();
        if (packet) {
            struct packet *p = flying[next];
            flying[next] = flying[--n_flying];
            arrive(p);
        } else if (at_ns == tmr_ns) {
            tmr_ns += LWIP_TMR_NS;
            tcp_tmr();
        }
    }
    now_ns = cl_max(now_ns, until_ns);
    cl_tcp_host_run(host, now_ns);
    send_ours();
}

#endif
