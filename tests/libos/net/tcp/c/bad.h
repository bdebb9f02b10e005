/* Connections of an attacker's own. */
#ifndef TESTS_LIBOS_TCP_BAD_H
#define TESTS_LIBOS_TCP_BAD_H

#include "wire.h"

#define BAD 0x0a4e0001u

struct bad {
    uint32_t ip;
    uint16_t port;
    uint32_t seq, ack; /* its next; the runtime's */
};

static struct bad open_bad(uint32_t i, uint16_t window)
{
    struct bad b = {.ip = BAD + i / 60000, .port = (uint16_t)(1024 + i % 60000), .seq = 1000};
    say(b.ip, b.port, (struct cl_tcp_segment){.seq = b.seq, .flags = CL_TCPF_SYN, .window = window}, NULL, 0);
    uint64_t before = n_heard;
    awaited_ip = b.ip;
    awaited_port = b.port;
    while (n_heard == before)
        run_for(MS / 10);
    CHECK((heard.flags & (CL_TCPF_SYN | CL_TCPF_ACK)) == (CL_TCPF_SYN | CL_TCPF_ACK));
    b.seq++;
    b.ack = heard.seq + 1;
    say(b.ip, b.port, (struct cl_tcp_segment){.seq = b.seq, .ack = b.ack, .flags = CL_TCPF_ACK, .window = window}, NULL,
        0);
    return b;
}

static void send_bad(const struct bad *b, uint32_t at, const void *data, unsigned len, uint16_t window)
{
    struct cl_tcp_segment s = {.seq = b->seq + at, .ack = b->ack, .flags = CL_TCPF_ACK | CL_TCPF_PSH, .window = window};
    say(b->ip, b->port, s, data, len);
}

#endif
