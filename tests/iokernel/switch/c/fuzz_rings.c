/* The iokernel's reading of an arena that a hostile application writes: random bytes, near-valid descriptors, lies in
 * every shared word, while two honest applications and an uplink exchange frames that must arrive unharmed.
 *
 *   fuzz_rings SEED STEPS
 *
 * Run under ASan by `make test-asan`. Deterministic: one thread, a clock of its own. */
#include <stdint.h>

static uint64_t first_seed;

#define CHECK_CONTEXT "(seed %llu)", (unsigned long long)first_seed
#include "tests/support/c/arena.h"

#include <corelane/drivers/memory.h>

#define KTHREADS 2
#define SLOTS 64
#define BUFFERS 64
#define BUFFER_BYTES 512

static uint64_t state;

static uint32_t rnd(uint32_t n) /* xorshift64*: Vigna 2016 */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

static struct cl_io *io;

static void add(struct arena *a, uint8_t number)
{
    arena_add(a, io, number, (struct arena_size){KTHREADS, SLOTS, BUFFERS, BUFFER_BYTES});
}

/* A frame that carries a checksum of its payload. */
static unsigned make_frame(uint8_t *to, const struct arena *from, const uint8_t *mac, uint32_t ip)
{
    unsigned payload = 8 + rnd(400);
    struct cl_udp_frame *f = (struct cl_udp_frame *)to;
    cl_udp_headers(f, from->mac, mac, from->ip, ip, (uint16_t)rnd(64), 9000, (uint16_t)payload);
    for (unsigned i = 2; i < payload; i++)
        f->payload[i] = (uint8_t)rnd(256);
    cl_put16(f->payload, cl_csum(f->payload + 2, payload - 2));
    return CL_UDP_HEADERS + payload;
}

static bool intact(const uint8_t *frame, unsigned len)
{
    const struct cl_udp_frame *f = (const struct cl_udp_frame *)frame;
    return len >= CL_UDP_HEADERS + 8 && cl_get16(f->payload) == cl_csum(f->payload + 2, len - CL_UDP_HEADERS - 2);
}

static void honest_send(struct arena *a, const uint8_t *mac, uint32_t ip)
{
    unsigned k = rnd(KTHREADS);
    if (cl_ring_tx_space(&a->tx[k], SLOTS) < SLOTS)
        return; /* only with the ring empty, so that the one buffer a kthread is free */
    uint32_t b = BUFFERS + k;
    unsigned len = make_frame(arena_buffer(a, b), a, mac, ip);
    arena_push(a, k, CL_TX_SEND, b, len);
    cl_doorbell_set(a->bell, k);
}

/* Returns how many frames it got. */
static unsigned honest_receive(struct arena *a, const struct arena *hostile)
{
    struct cl_desc d[8];
    unsigned got = 0;
    for (unsigned k = 0; k < KTHREADS; k++) {
        unsigned n = cl_ring_pop(&a->rx[k], d, 8);
        cl_ring_publish(&a->rx[k]);
        for (unsigned i = 0; i < n; i++) {
            uint32_t b = d[i].payload & 0xffffff;
            unsigned len = (d[i].word >> 32) & 0xffff;
            CHECK(b < BUFFERS && len <= BUFFER_BYTES);
            const uint8_t *src = arena_buffer(a, b) + 6;
            /* Frames of the hostile one may come, but under its own name; those of the honest are whole. */
            CHECK(cl_mac_equal(src, hostile->mac) || intact(arena_buffer(a, b), len));
            got++;
            while (!arena_push(a, k, CL_TX_FREE, b, 0))
                cl_io_step(io, 0, 0);
            cl_doorbell_set(a->bell, k);
        }
    }
    return got;
}

static uint32_t close_to(uint32_t limit) /* around a bound, or anything */
{
    switch (rnd(4)) {
    case 0:
        return limit - 1 + rnd(3);
    case 1:
        return rnd(0x1000000);
    default:
        return rnd(limit + 1);
    }
}

/* A descriptor at the place where the iokernel looks next. */
static void near_valid(struct arena *h)
{
    unsigned k = rnd(KTHREADS);
    uint32_t head = cl_load_relaxed(&h->lines[k].tx_head), n = 1 + rnd(SLOTS);
    struct cl_desc *slots = (struct cl_desc *)(h->base + h->l.tx_offset) + k * SLOTS;
    for (uint32_t pos = head; pos != head + n; pos++) {
        uint32_t kind = rnd(10) < 7 ? CL_TX_SEND : rnd(10) < 8 ? CL_TX_FREE : rnd(128);
        uint64_t word = cl_tx_word(kind, close_to(2 * BUFFERS), rnd(4) ? 0 : close_to(BUFFER_BYTES) & 0xffff,
                                   close_to(BUFFER_BYTES) & 0xffff);
        slots[pos & (SLOTS - 1)].payload =
            cl_tx_payload(close_to(BUFFERS), close_to(BUFFERS)) | (uint64_t)rnd(3) << 60 | (rnd(2) ? CL_TX_STAMP : 0);
        slots[pos & (SLOTS - 1)].word = (word & ~CL_RING_PHASE) | cl_ring_phase(SLOTS, pos);
    }
}

static void hostile_step(struct arena *h, const struct arena *a)
{
    uint32_t part;
    switch (rnd(8)) {
    case 0: /* anything anywhere */
        for (unsigned i = rnd(200); i; i--)
            h->base[rnd((uint32_t)h->l.total_bytes)] = (uint8_t)rnd(256);
        break;
    case 1: /* the shared words */
        part = rnd(KTHREADS);
        h->lines[part].park = rnd(3);
        h->lines[part].rx_head += rnd(3) ? rnd(2 * SLOTS) : rnd(0x7fffffff);
        if (rnd(4) == 0)
            h->lines[part].tx_head = rnd(0x7fffffff);
        break;
    case 2: /* the rings */
        for (unsigned i = rnd(400); i; i--)
            h->base[h->l.rx_offset + rnd((uint32_t)(h->l.buffers_offset - h->l.rx_offset))] = (uint8_t)rnd(256);
        break;
    case 3: /* frames that look right, with something changed */
        part = BUFFERS + rnd(BUFFERS);
        make_frame(arena_buffer(h, part), h, rnd(2) ? a->mac : (uint8_t[]){255, 255, 255, 255, 255, 255}, a->ip);
        for (unsigned i = rnd(4); i; i--)
            arena_buffer(h, part)[rnd(60)] = (uint8_t)rnd(256);
        if (rnd(4) == 0)
            cl_put16(arena_buffer(h, part) + 12, cl_be16(CL_ETHERTYPE_ARP));
        break;
    default:
        near_valid(h);
        if (rnd(2))
            cl_doorbell_set(h->bell, rnd(64)); /* a kthread that may not be there; or none says anything */
    }
}

static void check_balance(const struct arena *a)
{
    struct cl_io_app_stats s;
    struct cl_io_loop_stats l;
    CHECK(cl_io_app_stats(io, a->id, &s) == 0);
    CHECK(s.tx_taken == s.tx_local + s.tx_remote + s.tx_uplink + s.tx_flooded + s.tx_answered + s.tx_handed_on +
                            s.tx_dropped_descriptor + s.tx_dropped_malformed + s.tx_dropped_spoofed +
                            s.tx_dropped_no_route + s.tx_dropped_uplink_full + s.tx_dropped_loop_full +
                            s.tx_dropped_ethertype + s.tx_dropped_flood);
    CHECK(s.rx_offered == s.rx_delivered + s.rx_dropped_ring_full + s.rx_dropped_no_buffer + s.rx_dropped_too_long);
    CHECK(s.buffers_free + s.buffers_lent == BUFFERS);
    CHECK(cl_io_loop_stats(io, 0, &l) == 0);
    CHECK(l.up_received == l.up_local + l.up_remote + l.up_flooded + l.up_answered + l.up_dropped_not_ours +
                               l.up_dropped_malformed + l.up_dropped_spoofed + l.up_dropped_flood);
    CHECK(l.out_offered == l.out_sent + l.out_staged + l.out_dropped_no_buffer + l.out_dropped_full +
                               l.out_dropped_too_long + l.out_dropped_no_uplink);
}

static void world_step(struct cl_nic *world, const struct arena *to)
{
    struct cl_frame f[16];
    unsigned n = world->ops->rx_burst(world, 0, f, 16);
    world->ops->free(world, 0, f, n);
    if (rnd(4) == 0 && world->ops->alloc(world, 0, f, 1) == 1) {
        struct arena us = {.ip = ARENA_WORLD_IP};
        memcpy(us.mac, arena_world_mac, 6);
        f[0].len = (uint16_t)make_frame(f[0].data, &us, to->mac, to->ip);
        if (world->ops->tx_burst(world, 0, f, 1) == 0)
            world->ops->free(world, 0, f, 1);
    }
}

static void run(uint64_t steps)
{
    struct cl_nic *ends[2];
    struct arena a, b, h;
    uint64_t now = 0, got_a = 0, got_b = 0;
    char err[256] = "";
    CHECK(cl_memory_link_new(&(struct cl_memory_config){.ring_slots = 64}, ends, err) == 0);
    io = arena_io(BUFFER_BYTES);
    CHECK(cl_io_add_uplink(io, ends[0], false, err) == 0);
    add(&a, 1);
    add(&b, 2);
    add(&h, 3);
    for (uint64_t i = 0; i < steps; i++) {
        honest_send(&a, rnd(3) ? b.mac : h.mac, b.ip);
        honest_send(&b, a.mac, a.ip);
        hostile_step(&h, rnd(2) ? &a : &b);
        world_step(ends[1], rnd(2) ? &a : &h);
        cl_io_step(io, 0, now += rnd(2000));
        got_a += honest_receive(&a, &h);
        got_b += honest_receive(&b, &h);
        if (i % 997 == 0) {
            check_balance(&a);
            check_balance(&h);
        }
        if (rnd(5000) == 0) { /* it dies, and another comes */
            arena_remove(&h, io);
            add(&h, 3);
        }
    }
    CHECK(got_a > steps / 100 && got_b > steps / 100);
    printf("%llu and %llu frames arrived whole\n", (unsigned long long)got_a, (unsigned long long)got_b);
    arena_remove(&a, io);
    arena_remove(&b, io);
    arena_remove(&h, io);
    cl_io_delete(io);
    ends[1]->ops->close(ends[1]);
    ends[0]->ops->close(ends[0]);
}

int main(int argc, char **argv)
{
    first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    state = first_seed * 0x9e3779b97f4a7c15ull | 1;
    run(argc > 2 ? strtoull(argv[2], NULL, 0) : 100000);
    return 0;
}
