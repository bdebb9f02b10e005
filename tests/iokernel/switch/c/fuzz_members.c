/* What members of a group may do to each other: they send segments back that they were asked about, as they came or
 * changed, keep them, give them back twice, and send from buffers that they do not have, while others come, are ready,
 * drain and go.
 *
 *   fuzz_members SEED STEPS
 *
 * A client sends TCP segments of FLOWS flows. Whatever members do: what comes to a member as the client's is of one of
 * these flows and has the client's addresses, every frame is in one counter, and no buffer is lost. Run under ASan by
 * `make test-asan`. Deterministic: one thread, a clock of its own. */
#include <stdint.h>

static uint64_t first_seed;

#define CHECK_CONTEXT "(seed %llu)", (unsigned long long)first_seed
#include "tests/support/c/arena.h"

#define MEMBERS 3
#define FLOWS 32
#define FIRST_PORT 20000u
#define SLOTS 64
#define BUFFERS 64
#define BUFFER_BYTES 512
#define SEGMENT 74 /* bytes of a frame */
#define CLIENT 1
#define GROUP 2
#define HELD 8

struct held {
    uint32_t buffer, len;
};

struct member {
    bool here;
    struct arena a;
    struct held held[HELD]; /* taken, and not sent or given back yet */
    unsigned n_held;
    bool twice[2 * BUFFERS]; /* sent or freed while it was not its own: another frame may lie there at any time */
};

static uint64_t state;
static struct cl_io *io;
static struct member members[MEMBERS];
static struct arena client;
static uint64_t handed_on, refused;

static uint32_t rnd(uint32_t n)
{
    return (uint32_t)(next_random(&state) >> 32) % n;
}

static void check_balance(uint32_t id)
{
    struct cl_io_app_stats s;
    CHECK(cl_io_app_stats(io, id, &s) == 0);
    CHECK_EQ(s.tx_taken, s.tx_local + s.tx_remote + s.tx_uplink + s.tx_flooded + s.tx_answered + s.tx_handed_on +
                             s.tx_dropped_descriptor + s.tx_dropped_malformed + s.tx_dropped_spoofed +
                             s.tx_dropped_no_route + s.tx_dropped_uplink_full + s.tx_dropped_loop_full +
                             s.tx_dropped_ethertype + s.tx_dropped_flood);
    CHECK_EQ(s.rx_offered, s.rx_delivered + s.rx_dropped_ring_full + s.rx_dropped_no_buffer + s.rx_dropped_too_long);
    CHECK_EQ(s.buffers_free + s.buffers_lent, BUFFERS);
}

static void send_segment(void)
{
    static uint32_t nth;
    uint32_t buffer = BUFFERS + nth++ % BUFFERS;
    uint8_t *frame = arena_buffer(&client, buffer);
    const uint8_t mac[6] = {2, 0, 0, 0, 0, GROUP};
    cl_udp_headers((struct cl_udp_frame *)frame, client.mac, mac, client.ip, ARENA_IP(GROUP),
                   (uint16_t)(FIRST_PORT + rnd(FLOWS)), 9000, SEGMENT - CL_UDP_HEADERS);
    ((struct cl_ipv4 *)(frame + CL_ETH_HLEN))->proto = CL_IPPROTO_TCP; /* ports are at the same place */
    if (arena_push(&client, 0, CL_TX_SEND, buffer, SEGMENT))
        cl_doorbell_set(client.bell, 0);
}

/* A frame that has come to a member. */
static void check_came(const uint8_t *frame, uint32_t len)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    if (!cl_mac_equal(frame + 6, client.mac))
        return; /* a member's own, which its group may get */
    CHECK(len >= CL_ETH_HLEN + CL_IPV4_HLEN + 4, "who sends it back may have cut it, but not its ports");
    CHECK_EQ(cl_be32(ip->src_be), client.ip);
    CHECK_EQ(cl_be32(ip->dst_be), ARENA_IP(GROUP));
    CHECK_EQ(ip->proto, CL_IPPROTO_TCP);
    uint32_t from = cl_be16(cl_get16(frame + CL_ETH_HLEN + CL_IPV4_HLEN));
    CHECK(from >= FIRST_PORT && from < FIRST_PORT + FLOWS);
    CHECK_EQ(cl_be16(cl_get16(frame + CL_ETH_HLEN + CL_IPV4_HLEN + 2)), 9000);
}

static void take(struct member *m)
{
    struct cl_desc d[HELD];
    unsigned n = cl_ring_pop(&m->a.rx[0], d, HELD - m->n_held);
    cl_ring_publish(&m->a.rx[0]);
    for (unsigned i = 0; i < n; i++) {
        struct held h = {d[i].payload & 0xffffff, (uint32_t)(d[i].word >> 32) & 0xffff};
        CHECK(h.buffer < BUFFERS && h.len <= BUFFER_BYTES);
        check_came(arena_buffer(&m->a, h.buffer), h.len);
        m->held[m->n_held++] = h;
    }
}

/* One thing that a member does with a frame that it has, or has had. */
static void act(struct member *m)
{
    if (m->n_held == 0)
        return;
    uint32_t which = rnd(m->n_held);
    struct held h = m->held[which];
    uint32_t kind = rnd(8) < 6 ? CL_TX_SEND : CL_TX_FREE;
    if (!m->twice[h.buffer] && rnd(3) == 0) /* headers, or what follows them */
        arena_buffer(&m->a, h.buffer)[rnd(SEGMENT)] ^= (uint8_t)(1 + rnd(255));
    if (rnd(50) == 0)
        h.buffer = rnd(2 * BUFFERS);
    if (arena_push(&m->a, 0, kind, h.buffer, rnd(20) ? h.len : rnd(SEGMENT + 8)))
        cl_doorbell_set(m->a.bell, 0);
    if (rnd(10) == 0 || h.buffer != m->held[which].buffer)
        m->twice[h.buffer] = true; /* it goes on with it, or has never had it */
    else
        m->held[which] = m->held[--m->n_held];
}

static void leave(struct member *m)
{
    const struct cl_io_app_stats s = arena_remove(&m->a, io);
    handed_on += s.tx_handed_on;
    refused += s.tx_dropped_spoofed;
    *m = (struct member){0};
}

static void come_or_go(struct member *m)
{
    char err[256] = "";
    if (!m->here) {
        arena_add_member(&m->a, io, GROUP, (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES}, MEMBERS);
        m->here = true;
    } else if (rnd(4) == 0) {
        leave(m);
    } else {
        uint32_t said = rnd(2) ? CL_MEMBER_READY : CL_MEMBER_DRAINING;
        CHECK(cl_io_app_state(io, m->a.id, said, err) == 0, "%s", err);
    }
}

static void run(uint64_t steps)
{
    uint64_t now = 0;
    io = arena_io(BUFFER_BYTES);
    arena_add(&client, io, CLIENT, (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES});
    for (uint64_t i = 0; i < steps; i++) {
        struct member *m = &members[rnd(MEMBERS)];
        send_segment();
        if (m->here) {
            take(m);
            act(m);
            act(m);
        }
        if (rnd(40) == 0)
            come_or_go(&members[rnd(MEMBERS)]);
        cl_io_step(io, 0, now += rnd(2000));
        for (unsigned k = 0; i % 997 == 0 && k < MEMBERS; k++)
            if (members[k].here)
                check_balance(members[k].a.id);
    }
    for (unsigned k = 0; k < MEMBERS; k++)
        if (members[k].here)
            leave(&members[k]);
    check_balance(client.id);
    arena_remove(&client, io);
    cl_io_delete(io);
}

int main(int argc, char **argv)
{
    first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    state = first_seed * 0x9e3779b97f4a7c15ull | 1;
    uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 0) : 30000;
    run(steps);
    printf("%llu handed on, %llu refused\n", (unsigned long long)handed_on, (unsigned long long)refused);
    CHECK(handed_on > steps / 100 && refused > steps / 100);
    return 0;
}
