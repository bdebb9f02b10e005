/* A round of fuzz_lwip.c: a host of ours, lwIP, what flies between them, and a user at each. */
#ifndef TESTS_LIBOS_TCP_FUZZ_LWIP_ROUND_H
#define TESTS_LIBOS_TCP_FUZZ_LWIP_ROUND_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t now_ns = 1000000000, round_seed;
#define CHECK_CONTEXT "round %llu, at %.6f s", (unsigned long long)round_seed, (double)now_ns / 1e9
#include "tests/support/c/check.h"

#include <corelane/libos/tcp.h>
#include "libos/net/tcp/host.h"
#include "libos/net/tcp/machine.h"
#include "tests/libos/net/tcp/c/lwip_end.h"
#include "tests/libos/net/tcp/c/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IP_OURS 0x0a4d0001u
#define IP_LWIP 0x0a4d0002u
#define PORT_OURS 1000
#define PORT_LWIP 2000
#define MS 1000000ull
#define SECOND 1000000000ull
#define MOST_UNDER_WAY 65536

struct packet {
    uint64_t at_ns, order;
    bool to_us;
    uint32_t len;
    uint8_t bytes[PACKET_MOST];
};

/* One end's user: what it has written and read of this connection. */
struct app {
    uint64_t wants, wrote, read, unread; /* bytes; unread: of lwIP's, taken and not told */
    uint64_t slow;                       /* it reads once in so many turns */
    bool shut, eof, over;
};

/* In 1/1000 of packets, and ns. */
static struct {
    unsigned loss, twice, late, flip, urgent, shrink, lie;
    uint64_t delay_ns, jitter_ns, late_ns;
} wire;

static uint64_t dice;
static struct packet *flying[MOST_UNDER_WAY];
static unsigned n_flying;
static uint64_t n_flown, tmr_ns, lwip_said_ns;
static struct cl_tcp_host *host;
static int listener, sock; /* ours; -1: none */
static struct tcp_pcb *pcb, *lwip_listener;
static struct app ours, theirs;
static bool clean, verbose;
static uint32_t irs; /* number of lwIP's SYN */
static bool irs_known;

static unsigned chance(void)
{
    return (unsigned)(next_random(&dice) >> 11) % 1000;
}

static uint64_t below(uint64_t n)
{
    return n ? (next_random(&dice) >> 11) % n : 0;
}

static uint8_t byte_of(bool lwip, uint64_t at)
{
    return (uint8_t)((uint32_t)(at * 2654435761u + (lwip ? 77 : 0)) >> 24);
}

#endif
