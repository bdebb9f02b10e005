/* Who is polled: kthreads that rang, until they have been quiet for long; all others now and then; and a liar no more
 * than a few at a time. A round costs what those who have something cost, however many others there are.
 *
 *   doorbells
 *
 * Deterministic but for the last part, which compares the shortest of several times with each other: one thread, a
 * clock of its own. */
#include "tests/support/c/arena.h"

#include <corelane/runtime/clock.h>

#define MOST CL_SHM_MAX_KTHREADS
#define SLOTS 16
#define BUFFERS 64
#define BUFFER_BYTES 256
#define ROUND_NS 1000
#define QUIET_NS 1000000 /* iokernel/loop/setup.c */

static struct cl_io *io;
static uint64_t now;

static void add(struct arena *a, uint8_t number, uint32_t kthreads)
{
    arena_add(a, io, number, (struct arena_size){kthreads, SLOTS, BUFFERS, BUFFER_BYTES});
}

static void drop(struct arena *a)
{
    arena_remove(a, io);
}

/* A frame to nobody, from kthread k; without a word. */
static void put(struct arena *a, uint32_t k)
{
    arena_put(a, k, k, arena_world_mac, ARENA_WORLD_IP, 0);
}

static void send_one(struct arena *a, uint32_t k)
{
    put(a, k);
    cl_doorbell_set(a->bell, k);
}

static void step(void)
{
    cl_io_step(io, 0, now += ROUND_NS);
}

static uint64_t taken(const struct arena *a)
{
    struct cl_io_app_stats s;
    CHECK_EQ(cl_io_app_stats(io, a->id, &s), 0);
    return s.tx_taken;
}

/* Rounds until `n` frames of a's were taken. */
static unsigned rounds_until(const struct arena *a, uint64_t n)
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
    struct arena a, b;
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
    struct arena a;
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
    struct arena a, b;
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
    struct arena liar, a;
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
    static struct arena apps[64];
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
    io = arena_io(BUFFER_BYTES);
    who_rings_is_heard_at_once();
    who_saw_the_bit_is_heard();
    who_never_rings_is_found();
    who_rings_for_nothing_delays_himself();
    idle_neighbours_cost_little();
    cl_io_delete(io);
    puts("ok");
    return 0;
}
