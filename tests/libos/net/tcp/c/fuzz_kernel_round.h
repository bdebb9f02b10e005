/* A round of fuzz_kernel.c: a host of ours, Linux' end, the wire between them, and a user at each. */
#ifndef TESTS_LIBOS_TCP_FUZZ_KERNEL_ROUND_H
#define TESTS_LIBOS_TCP_FUZZ_KERNEL_ROUND_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t now_ns, round_seed;
#define CHECK_CONTEXT "round %llu", (unsigned long long)round_seed
#include "tests/support/c/check.h"

#include <netinet/tcp.h>
#include "libos/net/tcp/host.h"
#include "libos/net/tcp/machine.h"
#include "tests/libos/net/tcp/c/kernel_end.h"
#include "tests/libos/net/tcp/c/packet.h"

#define IP_LINUX 0x0a400001u /* 10.64.0.1 of 10.64.0.0/10, where all hosts of ours are */
#define MASK 0xffc00000u
#define HOSTS (1u << 21)
#define PORT_OURS 1000
#define MOST_AT_ONCE 256
#define MOST_UNDER_WAY 1024
#define LIMIT_NS (120 * SECOND) /* of a clean round */
#define MS 1000000ull
#define SECOND 1000000000ull

struct packet {
    uint64_t at_ns, order;
    bool to_us;
    uint32_t len;
    uint8_t bytes[PACKET_MOST];
};

/* One end's user: what it has written and read of this connection. */
struct app {
    uint64_t wants, wrote, read; /* bytes */
    uint64_t slow;               /* it reads once in so many turns */
    bool open, shut, eof, over;
};

/* What the wire has seen of a direction. */
struct way {
    bool opened, any;
    uint32_t isn, edge; /* number of the SYN; behind the last byte that was sent */
    struct cl_tcp_segment last;
};

/* In 1/1000 of packets, and ns. */
struct wire {
    unsigned loss, twice, late, flip, cut, mark, urgent, shrink, lie;
    uint64_t delay_ns, jitter_ns, late_ns;
    bool spares_syns; /* Linux waits a second for an answer to one */
};

struct round {
    uint64_t seed, dice, skew_ns, began_ns, next_act_ns, until_ns, n_flown;
    bool lives, clean;
    enum { WE_OPEN, LINUX_OPENS, BOTH_OPEN } how;
    uint32_t ip;
    uint16_t port; /* of Linux */
    struct wire wire;
    struct way ways[2]; /* to Linux, to us */
    struct packet *flying[MOST_UNDER_WAY];
    unsigned n_flying;
    struct cl_tcp_host *host;
    int listener, sock;     /* ours; -1: none */
    int linux_listener, fd; /* Linux' */
    struct app ours, theirs;
};

static struct round rounds[MOST_AT_ONCE];
static uint64_t only_seed, most_bytes, n_clean, n_bytes, n_lost, n_forged, n_resets, longest_ns;

static unsigned chance(struct round *r)
{
    return (unsigned)(next_random(&r->dice) >> 11) % 1000;
}

static uint64_t below(struct round *r, uint64_t n)
{
    return n ? (next_random(&r->dice) >> 11) % n : 0;
}

static uint8_t byte_of(bool of_linux, uint64_t at)
{
    return (uint8_t)((uint32_t)(at * 2654435761u + (of_linux ? 77 : 0)) >> 24);
}

static uint64_t our_time(const struct round *r)
{
    return now_ns + r->skew_ns;
}

#endif
