/* A runtime under attack, on a virtual clock. The other end of its NIC's link is the wire: there is an attacker, who
 * says whatever it wants from any address and hears what is answered; and a peer that behaves, a host of the machine
 * alone (libos/net/tcp/host.h) with a connection to the runtime's echo, over which it asks every PING_NS. */
#ifndef TESTS_LIBOS_TCP_WIRE_H
#define TESTS_LIBOS_TCP_WIRE_H

#include <corelane/drivers/memory.h>
#include <corelane/libos/stepper.h>
#include "libos/net/tcp.h"
#include "libos/net/icmp.h"
#include "libos/net/tcp/host.h"
#include "tests/libos/net/tcp/c/endpoints.h"

#define MS 1000000ull
#define SECOND 1000000000ull
#define OURS 0x0a4d0002u
#define GOOD 0x0a4d0001u
#define GOOD_PORT 40000
#define ECHO_PORT 7
#define BACKLOG 64
#define PING_NS (10 * MS)
#define PING_BYTES 100

static uint64_t now_ns = SECOND;
static uint64_t wire_random = 88172645463325252ull;
static struct cl_stepper *stepper;
static struct cl_runtime *victim;
static const struct cl_tcp_events *victim_events = &echo_events; /* of the case */
static struct cl_nic *ends[2];
static struct cl_tcp_host *good;
static int good_socket = -1;
static uint64_t pings, pongs, next_ping_ns;
static uint8_t victim_mac[6];
static uint8_t attacker_mac[6]; /* from which the attacker's frames come */
static uint8_t heard_mac[6];    /* to which the runtime's latest packet went */
static bool arp_waits;          /* ARP is not answered, but asked, ... */
static unsigned arp_asked;      /* ... so often, the last time with: */
static struct cl_arp arp_question;
/* Of the case: sees what is sent to others than the good peer, peer and port: to whom. NULL: none. */
static void (*hears)(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data);
static uint32_t awaited_ip; /* whose segments are `heard` */
static uint16_t awaited_port;
static struct cl_tcp_segment heard; /* the latest of them, without its data */
static uint64_t n_heard;

static inline uint32_t below(uint32_t n)
{
    return n ? (uint32_t)(next_random(&wire_random) >> 20) % n : 0;
}

static void run_for(uint64_t ns)
{
    char err[256] = "";
    CHECK(cl_stepper_run(stepper, now_ns + ns, err) == 0, "%s", err);
}

/* Of a link that is full a frame is lost. */
static void put_frame(const void *bytes, unsigned len)
{
    struct cl_frame f;
    if (cl_nic_alloc(ends[1], 0, &f, 1) == 0)
        return;
    memcpy(f.data, bytes, len);
    f.len = (uint16_t)len;
    if (cl_nic_tx(ends[1], 0, &f, 1) == 0)
        cl_nic_free(ends[1], 0, &f, 1);
}

/* A packet of the wire. */
static void put_packet(const void *packet, unsigned len)
{
    uint8_t frame[2048];
    cl_eth_fill((struct cl_eth *)frame, victim_mac, attacker_mac, CL_ETHERTYPE_IPV4);
    memcpy(frame + CL_ETH_HLEN, packet, len);
    put_frame(frame, CL_ETH_HLEN + len);
}

static void put_ipv4(uint32_t peer, uint8_t protocol, const uint8_t *payload, unsigned len)
{
    uint8_t packet[2048];
    cl_ipv4_fill((struct cl_ipv4 *)packet, cl_be32(peer), cl_be32(OURS), protocol, len);
    memcpy(packet + CL_IPV4_HLEN, payload, len);
    put_packet(packet, CL_IPV4_HLEN + len);
}

/* The attacker says a segment, to the echo. */
static void say(uint32_t peer, uint16_t port, struct cl_tcp_segment s, const void *data, unsigned len)
{
    uint8_t bytes[2048];
    s.len = (uint16_t)len;
    unsigned header = cl_tcp_segment_write(&s, port, ECHO_PORT, bytes);
    if (len)
        memcpy(bytes + header, data, len);
    uint64_t pseudo = cl_csum_pseudo(cl_be32(peer), cl_be32(OURS), CL_IPPROTO_TCP, (uint16_t)(header + len));
    cl_put16(bytes + 16, cl_csum_finish(cl_csum_add(pseudo, bytes, header + len)));
    put_ipv4(peer, CL_IPPROTO_TCP, bytes, header + len);
}

/* The attacker complains by ICMP of a segment of the runtime's. */
static inline void complain(uint32_t peer, uint16_t port, uint8_t type, uint8_t code, uint16_t mtu, uint32_t seq)
{
    struct {
        struct cl_icmp icmp;
        struct cl_ipv4 ip;
        uint16_t from_be, to_be;
        uint32_t seq_be;
    } CL_PACKED m = {.icmp = {.type = type, .code = code, .seq_be = cl_be16(mtu)},
                     .from_be = cl_be16(ECHO_PORT),
                     .to_be = cl_be16(port),
                     .seq_be = cl_be32(seq)};
    cl_ipv4_fill(&m.ip, cl_be32(OURS), cl_be32(peer), CL_IPPROTO_TCP, 1480);
    m.icmp.check = cl_csum(&m, sizeof m);
    put_ipv4(GOOD + 100, CL_IPPROTO_ICMP, (const uint8_t *)&m, sizeof m); /* a router */
}

static void answer_arp(const struct cl_arp *asked)
{
    struct {
        struct cl_eth eth;
        struct cl_arp arp;
    } CL_PACKED f = {.arp = *asked};
    cl_eth_fill(&f.eth, asked->sender_mac, ends[1]->mac, CL_ETHERTYPE_ARP);
    f.arp.op_be = cl_be16(CL_ARP_REPLY);
    memcpy(f.arp.target_mac, asked->sender_mac, 6);
    memcpy(f.arp.sender_mac, ends[1]->mac, 6);
    f.arp.sender_ip_be = asked->target_ip_be;
    f.arp.target_ip_be = asked->sender_ip_be;
    put_frame(&f, sizeof f);
}

static void take_frame(const uint8_t *frame)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    unsigned total = cl_be16(ip->total_len_be), tcp = CL_ETH_HLEN + CL_IPV4_HLEN;
    if (((const struct cl_eth *)frame)->type_be == cl_be16(CL_ETHERTYPE_ARP)) {
        const struct cl_arp *arp = (const struct cl_arp *)(frame + CL_ETH_HLEN);
        if (arp->op_be != cl_be16(CL_ARP_REQUEST) || arp->target_ip_be == cl_be32(OURS))
            return;
        arp_question = *arp;
        arp_asked++;
        if (!arp_waits)
            answer_arp(arp);
        return;
    }
    memcpy(heard_mac, frame, 6);
    if (ip->dst_be == cl_be32(GOOD)) {
        cl_tcp_host_take(good, frame + CL_ETH_HLEN, total);
    } else if (ip->proto == CL_IPPROTO_TCP) {
        struct cl_tcp_segment s;
        CHECK(cl_tcp_segment_read(frame + tcp, total - CL_IPV4_HLEN, &s));
        uint32_t peer = cl_be32(ip->dst_be);
        uint16_t port = cl_be16(cl_get16(frame + tcp + 2));
        if (peer == awaited_ip && port == awaited_port) {
            heard = s;
            n_heard++;
        }
        if (hears)
            hears(peer, port, &s, frame + tcp + s.header_len);
    }
}

/* The good peer asks, and looks at each answer. */
static unsigned ping(void)
{
    uint8_t data[PING_BYTES];
    unsigned did = 0;
    if (good_socket < 0 || cl_tcp_host_connected(good, good_socket))
        return 0;
    for (int64_t n; (n = cl_tcp_host_read(good, good_socket, data, sizeof data)) > 0; did++)
        for (int64_t i = 0; i < n; i++)
            CHECK(data[i] == pattern(1, pongs++));
    if (now_ns >= next_ping_ns) {
        for (unsigned i = 0; i < PING_BYTES; i++)
            data[i] = pattern(1, pings + i);
        int64_t took = cl_tcp_host_write(good, good_socket, data, PING_BYTES);
        CHECK(took > 0 || took == -EAGAIN, "the good one ended: %lld", (long long)took);
        pings += took > 0 ? (uint64_t)took : 0;
        next_ping_ns = now_ns + PING_NS;
        did++;
    }
    return did;
}

static unsigned wire_step(void *arg)
{
    struct cl_frame frames[32];
    uint8_t packet[2048];
    uint64_t at_ns;
    unsigned did = cl_nic_rx(ends[1], 0, frames, 32);
    (void)arg;
    for (unsigned i = 0; i < did; i++)
        take_frame(frames[i].data);
    cl_nic_free(ends[1], 0, frames, did);
    cl_tcp_host_run(good, now_ns);
    did += ping();
    for (uint32_t len; (len = cl_tcp_host_next(good, packet, sizeof packet, &at_ns)); did++)
        put_packet(packet, len);
    return did;
}

static uint64_t wire_next(void *arg)
{
    (void)arg;
    uint64_t due_ns = cl_tcp_host_due_ns(good);
    return good_socket >= 0 && next_ping_ns < due_ns ? next_ping_ns : due_ns;
}

/* One more connection of the good peer. Returns its socket, connected. */
static int connect_good(uint16_t port)
{
    int s = cl_tcp_host_connect(good, port, OURS, ECHO_PORT);
    CHECK(s >= 0);
    for (unsigned i = 0; i < 500 && cl_tcp_host_connected(good, s) == -EINPROGRESS; i++)
        run_for(10 * MS);
    CHECK_EQ(cl_tcp_host_connected(good, s), 0);
    return s;
}

/* kthreads: of the runtime; options: CL_TCPO_* of the good peer. */
static void wire_begin(uint64_t seed, uint32_t kthreads, uint8_t options)
{
    static struct cl_clock clock;
    char err[256] = "";
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock, .queues = {kthreads, 1}, .ring_slots = 4096, .buffers = 16384};
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    memcpy(victim_mac, ends[0]->mac, 6);
    memcpy(attacker_mac, ends[1]->mac, 6);
    struct cl_runtime_config c = {.nic = ends[0], .ipv4 = OURS, .ipv4_prefix = 8};
    CHECK(cl_runtime_new(&c, &victim, err) == 0, "%s", err);
    CHECK_EQ(cl_runtime_listen_tcp(victim, ECHO_PORT, BACKLOG, victim_events, NULL), 0);
    CHECK_EQ(cl_tcp_host_new(GOOD, 1500, now_ns, &good), 0);
    CHECK_EQ(cl_tcp_host_set(good, CL_TCP_SET_OPTIONS, options), 0);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    CHECK(cl_stepper_add_runtime(stepper, victim, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add(stepper, &(struct cl_stepped){wire_step, wire_next, &good}), 0);
    wire_random += seed * 0x9e3779b97f4a7c15ull;
    good_socket = connect_good(GOOD_PORT);
    run_for(100 * MS);
    CHECK(pongs > 0);
}

static struct cl_tcp_counts counts(void)
{
    struct cl_tcp_counts c;
    cl_runtime_tcp_counts(victim, &c);
    return c;
}

/* Connections that exist, in whatever state. */
static uint64_t alive(void)
{
    struct cl_tcp_counts c = counts();
    return c.begun - c.over;
}

/* Bytes of chunks that connections hold. */
static uint64_t held(void)
{
    struct cl_chunk_stats send, receive;
    CHECK_EQ(cl_runtime_chunk_stats(victim, CL_CHUNKS_TCP_SEND, &send), 0);
    CHECK_EQ(cl_runtime_chunk_stats(victim, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
    return send.held_bytes + receive.held_bytes;
}

/* A time in which the good peer asks nothing. */
static inline void rest_for(uint64_t ns)
{
    next_ping_ns = now_ns + ns + 1;
    run_for(ns);
}

/* The good connection answers as before. */
static inline void goes_on(void)
{
    uint64_t asked = pings, after_ns = now_ns + 5 * SECOND;
    while (pongs < asked + 10 * PING_BYTES && now_ns < after_ns)
        run_for(PING_NS);
    CHECK(pongs >= asked + 10 * PING_BYTES, "the good connection stands: %llu of %llu", (unsigned long long)pongs,
          (unsigned long long)asked);
}

static void wire_end(void)
{
    CHECK_EQ(cl_runtime_stop(victim, 0), 0);
    CHECK_EQ(held(), 0);
    CHECK_EQ(alive(), 0);
    cl_stepper_delete(stepper);
    cl_tcp_host_delete(good);
    cl_runtime_delete(victim);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

#endif
