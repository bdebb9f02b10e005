/* Applications of an iokernel without a port: a test maps their arenas, and writes what they have to say by hand.
 *
 * Number N has the MAC address 02:00:00:00:00:N and the IPv4 address 10.77.0.N. */
#ifndef TESTS_SUPPORT_ARENA_H
#define TESTS_SUPPORT_ARENA_H

#include "check.h"

#include "../../../iokernel/state/iokernel.h"
#include "../../../runtime/net.h"

#include <string.h>
#include <sys/mman.h>

#define ARENA_IP(number) (0x0a4d0000u + (number))

struct arena {
    uint32_t id, ip;
    uint8_t mac[6], *base;
    struct cl_arena_layout l;
    struct cl_arena_kthread *lines;
    struct cl_arena_doorbell *bell;
    struct cl_ring_tx tx[CL_SHM_MAX_KTHREADS];
    struct cl_ring_rx rx[CL_SHM_MAX_KTHREADS];
};

/* Somebody beyond the uplink: an address for frames to and from there. */
static const uint8_t arena_world_mac[6] = {2, 9, 9, 9, 9, 9};
#define ARENA_WORLD_IP ARENA_IP(0x909u)

/* An iokernel whose rounds and clock, of a tick a nanosecond, are the test's (cl_io_step). */
static inline struct cl_io *arena_io(uint32_t buffer_bytes)
{
    struct cl_io_config config = {.tsc_hz = 1000000000, .mtu = buffer_bytes - CL_ETH_HLEN};
    struct cl_io *io;
    char err[256] = "";
    CHECK(cl_io_new(&config, &io, err) == 0, "%s", err);
    return io;
}

/* The same number of slots in each ring, and of buffers for each direction. */
struct arena_size {
    uint32_t kthreads, slots, buffers, buffer_bytes;
};

/* Register application `number`, one of a group of at most `members` with this number, if that is more than 1. */
static inline void arena_add_member(struct arena *a, struct cl_io *io, uint8_t number, struct arena_size s,
                                    uint32_t members)
{
    struct cl_io_app_config c = {.layout = {s.kthreads, s.slots, s.slots, s.buffers, s.buffers, s.buffer_bytes},
                                 .mac = {2, 0, 0, 0, 0, number},
                                 .ipv4 = ARENA_IP(number),
                                 .members = members};
    struct cl_io_app_grant g;
    char err[256] = "";
    snprintf(c.name, sizeof c.name, "app-%u", number);
    CHECK(cl_io_app_add(io, &c, &g, err) == 0, "%s", err);
    *a = (struct arena){.id = g.app, .ip = c.ipv4, .l = g.layout};
    memcpy(a->mac, c.mac, 6);
    a->base = mmap(NULL, a->l.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g.arena_fd, 0);
    CHECK(a->base != MAP_FAILED);
    a->bell = cl_arena_doorbell_of(a->base);
    a->lines = (struct cl_arena_kthread *)(a->base + a->l.lines_offset);
    struct cl_desc *rx = (struct cl_desc *)(a->base + a->l.rx_offset),
                   *tx = (struct cl_desc *)(a->base + a->l.tx_offset);
    for (size_t k = 0; k < a->l.n_kthreads; k++) {
        CHECK_EQ(cl_ring_rx_init(&a->rx[k], rx + k * a->l.rx_slots, &a->lines[k].rx_head, a->l.rx_slots), 0);
        CHECK_EQ(cl_ring_tx_init(&a->tx[k], tx + k * a->l.tx_slots, &a->lines[k].tx_head, a->l.tx_slots), 0);
    }
}

/* Register application `number`. */
static inline void arena_add(struct arena *a, struct cl_io *io, uint8_t number, struct arena_size s)
{
    arena_add_member(a, io, number, s, 1);
}

/* Its connection has ended. Returns what the iokernel counted. */
static inline struct cl_io_app_stats arena_remove(struct arena *a, struct cl_io *io)
{
    struct cl_io_app_final final;
    char err[256] = "";
    CHECK(cl_io_app_remove(io, a->id, &final, err) == 0, "%s", err);
    CHECK_EQ(final.buffers_lost, 0);
    munmap(a->base, a->l.total_bytes);
    return final.stats;
}

static inline uint8_t *arena_buffer(const struct arena *a, uint32_t i)
{
    return a->base + a->l.buffers_offset + (size_t)i * a->l.buffer_stride;
}

/* A descriptor of kthread k for the iokernel, without a word. */
static inline bool arena_push(struct arena *a, uint32_t k, uint32_t kind, uint32_t buffer, unsigned len)
{
    return cl_ring_push(&a->tx[k], cl_tx_word(kind, buffer, 0, len), cl_tx_payload(CL_SHM_NO_BUFFER, CL_SHM_NO_BUFFER));
}

/* A datagram with `number` in it, from kthread k and in its `nth` buffer for sending; without a word. */
static inline void arena_put(struct arena *a, uint32_t k, uint32_t nth, const uint8_t *mac, uint32_t ip,
                             uint32_t number)
{
    uint32_t buffer = a->l.n_rx + nth % a->l.n_tx;
    struct cl_udp_frame *f = (struct cl_udp_frame *)arena_buffer(a, buffer);
    cl_udp_headers(f, a->mac, mac, a->ip, ip, 9000, 9000, sizeof number);
    memcpy(f->payload, &number, sizeof number);
    CHECK(arena_push(a, k, CL_TX_SEND, buffer, CL_UDP_HEADERS + sizeof number));
}

#endif
