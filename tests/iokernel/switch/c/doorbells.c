/* Who is polled: kthreads that rang, until they have been quiet for long; all others now and then; and a liar no more
 * than a few at a time. A round costs what those who have something cost, however many others there are.
 *
 *   doorbells
 *
 * Deterministic but for the last part, which compares the shortest of several times with each other: one thread, a
 * clock of its own. */
#include "tests/support/c/check.h"

#include "../../../../iokernel/state/iokernel.h"
#include "../../../../runtime/net.h"

#include <corelane/runtime/clock.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST CL_SHM_MAX_KTHREADS
#define SLOTS 16
#define BUFFERS 64
#define BUFFER_BYTES 256
#define ROUND_NS 1000
#define QUIET_NS 1000000 /* iokernel/loop/setup.c */

struct app {
    uint32_t id, n;
    struct cl_arena_layout l;
    uint8_t mac[6], *base;
    struct cl_arena_doorbell *bell;
    struct cl_ring_tx tx[MOST];
};

static struct cl_io *io;
static uint64_t now;

static void add(struct app *a, uint8_t number, uint32_t kthreads)
{
    struct cl_io_app_config c = {.layout = {kthreads, SLOTS, SLOTS, BUFFERS, BUFFERS, BUFFER_BYTES}};
    struct cl_io_app_grant g;
    char err[256] = "";
    snprintf(c.name, sizeof c.name, "app-%u", number);
    memcpy(c.mac, (uint8_t[]){2, 0, 0, 0, 0, number}, 6);
    c.ipv4 = 0x0a4d0000u + number;
    CHECK_EQ(cl_io_app_add(io, &c, &g, err), 0);
    *a = (struct app){.id = g.app, .n = kthreads, .l = g.layout};
    memcpy(a->mac, c.mac, 6);
    a->base = mmap(NULL, a->l.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g.arena_fd, 0);
    CHECK(a->base != MAP_FAILED);
    a->bell = cl_arena_doorbell_of(a->base);
    struct cl_arena_kthread *lines = (struct cl_arena_kthread *)(a->base + a->l.lines_offset);
    for (uint32_t k = 0; k < kthreads; k++)
        CHECK_EQ(cl_ring_tx_init(&a->tx[k], (struct cl_desc *)(a->base + a->l.tx_offset) + k * SLOTS, &lines[k].tx_head,
                                 SLOTS),
                 0);
}

static void drop(struct app *a)
{
    struct cl_io_app_final final;
    char err[256];
    CHECK_EQ(cl_io_app_remove(io, a->id, &final, err), 0);
    CHECK_EQ(final.buffers_lost, 0);
    munmap(a->base, a->l.total_bytes);
}

/* A frame to nobody, from kthread k; without a word. */
static void put(struct app *a, uint32_t k)
{
    uint32_t b = BUFFERS + k % BUFFERS;
    struct cl_udp_frame *f = (struct cl_udp_frame *)(a->base + a->l.buffers_offset + (size_t)b * a->l.buffer_stride);
    cl_udp_headers(f, a->mac, (uint8_t[]){2, 9, 9, 9, 9, 9}, 0x0a4d0000u + a->mac[5], 0x0a4d0909, 9, 9, 4);
    memset(f->payload, 0, 4);
    CHECK(cl_ring_push(&a->tx[k], cl_tx_word(CL_TX_SEND, b, 0, CL_UDP_HEADERS + 4),
                       cl_tx_payload(CL_SHM_NO_BUFFER, CL_SHM_NO_BUFFER)));
}

static void send_one(struct app *a, uint32_t k)
{
    put(a, k);
    cl_doorbell_set(a->bell, k);
}

static void step(void)
{
    cl_io_step(io, 0, now += ROUND_NS);
}

static uint64_t taken(const struct app *a)
{
    struct cl_io_app_stats s;
    CHECK_EQ(cl_io_app_stats(io, a->id, &s), 0);
    return s.tx_taken;
}

/* Rounds until `n` frames of a's were taken. */
static unsigned rounds_until(const struct app *a, uint64_t n)
{
    unsigned rounds = 0;
    for (; taken(a) < n; rounds++) {
        CHECK(rounds < 10000);
        step();
    }
    return rounds;
}

/* Whoever rings is heard in the next round, whoever it is, also after it was quiet for so long that its bit was taken
 * back. */
static void who_rings_is_heard_at_once(void)
{
    struct app a, b;
    uint64_t sent = 0;
    add(&a, 1, MOST);
    add(&b, 2, 3);
    for (unsigned lap = 0; lap < 3; lap++) {
        for (uint32_t k = 0; k < MOST; k++) {
            send_one(&a, k);
            sent++;
            CHECK_EQ(rounds_until(&a, sent), 1);
            CHECK(a.bell->rung >> k & 1);
        }
        now += QUIET_NS;
        for (unsigned i = 0; i < MOST; i++)
            step();
        CHECK_EQ(a.bell->rung, 0);
    }
    drop(&a);
    send_one(&b, 2); /* whose place in the loop's table has changed */
    CHECK_EQ(rounds_until(&b, 1), 1);
    drop(&b);
}

/* A kthread that looked at its bit just before that was taken back is polled for as long again. */
static void who_saw_the_bit_is_heard(void)
{
    struct app a;
    add(&a, 1, 1);
    send_one(&a, 0);
    step();
    now += QUIET_NS;
    step();
    CHECK_EQ(a.bell->rung, 0);
    for (uint64_t n = 2; n < 1000; n++) { /* it has not seen that, so it does not ring; and is active all the while */
        now += QUIET_NS / 2;
        put(&a, 0);
        step();
        CHECK_EQ(taken(&a), n);
    }
    drop(&a);
}

/* Who never rings is found by and by, and polled from then on. */
static void who_never_rings_is_found(void)
{
    struct app a, b;
    add(&a, 1, MOST);
    add(&b, 2, MOST);
    put(&b, MOST - 1);
    CHECK(rounds_until(&b, 1) <= 2 * MOST);
    put(&b, MOST - 1);
    CHECK_EQ(rounds_until(&b, 2), 1);
    drop(&a);
    drop(&b);
}

/* Bits for nothing, of kthreads that exist and of others: a few rings are looked at, and nobody is forgotten behind
 * them. */
static void who_rings_for_nothing_delays_himself(void)
{
    struct app liar, a;
    uint64_t sent = 0;
    add(&liar, 1, MOST - 1);
    add(&a, 2, 1);
    for (unsigned i = 0; i < 2000; i++) {
        liar.bell->rung = ~0ull;
        send_one(&a, 0);
        CHECK_EQ(rounds_until(&a, ++sent), 1);
    }
    for (uint32_t k = 0; k < MOST - 1; k++) {
        put(&liar, k);
        CHECK(rounds_until(&liar, k + 1) <= (MOST + 7) / 8);
    }
    drop(&liar);
    drop(&a);
}

/* The shortest time of many rounds, in ticks. */
static uint64_t shortest(void)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t begin = cl_tsc();
        for (unsigned r = 0; r < 1000; r++)
            step();
        least = cl_min(least, cl_tsc() - begin);
    }
    return least;
}

static void idle_neighbours_cost_little(void)
{
    static struct app apps[64];
    add(&apps[0], 1, 1);
    uint64_t alone = shortest();
    for (unsigned i = 1; i < 64; i++)
        add(&apps[i], (uint8_t)(i + 1), MOST);
    uint64_t beside = shortest();
    printf("a round: %llu ticks alone, %llu beside 63 idle applications of %d kthreads each\n",
           (unsigned long long)alone / 1000, (unsigned long long)beside / 1000, MOST);
    CHECK(beside < 60 * alone); /* some 5; a look at each ring makes it some 500 */
    for (unsigned i = 0; i < 64; i++)
        drop(&apps[i]);
}

int main(void)
{
    struct cl_io_config config = {.tsc_hz = 1000000000, .mtu = BUFFER_BYTES - CL_ETH_HLEN};
    char err[256] = "";
    CHECK_EQ(cl_io_new(&config, &io, err), 0);
    who_rings_is_heard_at_once();
    who_saw_the_bit_is_heard();
    who_never_rings_is_found();
    who_rings_for_nothing_delays_himself();
    idle_neighbours_cost_little();
    cl_io_delete(io);
    puts("ok");
    return 0;
}
