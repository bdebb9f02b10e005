/* Frames to an uplink that takes several by one system call: those of an application whose turns end before its frames
 * do leave in large bursts, all and in order; who sends little beside it waits for a few rounds at most; and an uplink
 * without such a call gets what a round brings at its end.
 *
 *   uplink_gather
 *
 * Deterministic: one thread, a clock of its own. */
#include "tests/support/c/arena.h"

#include <corelane/drivers/memory.h>

#define SLOTS 256
#define BUFFERS 256
#define BUFFER_BYTES 512

struct app {
    struct arena arena;
    uint32_t next;
};

static struct cl_io *io;
static struct cl_nic_ops counting;
static unsigned (*really)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
static unsigned bursts, fullest;
static uint64_t now;

static unsigned counted_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    bursts++;
    fullest = cl_max(fullest, n);
    return really(nic, queue, frames, n);
}

static void add(struct app *a, uint8_t number)
{
    a->next = 0;
    arena_add(&a->arena, io, number, (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES});
}

static void send_to(struct app *a, uint32_t number, const uint8_t *mac, uint32_t ip)
{
    arena_put(&a->arena, 0, a->next++, mac, ip, number);
    cl_doorbell_set(a->arena.bell, 0);
}

/* To an address beyond the uplink. */
static void send_one(struct app *a, uint32_t number)
{
    send_to(a, number, arena_world_mac, ARENA_WORLD_IP);
}

/* Take what has left, of which that of the application `of`, if it is asked for, carries the numbers from `next` on.
 * Returns how many were its own. */
static uint32_t arrived(struct cl_nic *world, const struct app *of, uint32_t next)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned n;
    uint32_t own = 0;
    while ((n = world->ops->rx_burst(world, 0, frames, CL_NIC_BURST))) {
        for (unsigned i = 0; i < n; i++) {
            const struct cl_udp_frame *f = (const struct cl_udp_frame *)frames[i].data;
            uint32_t number;
            memcpy(&number, f->payload, 4);
            if (of && f->eth.src[5] == of->arena.mac[5])
                CHECK_EQ(number, next + own++);
        }
        world->ops->free(world, 0, frames, n);
    }
    return own;
}

static void step(void)
{
    cl_io_step(io, 0, now += 1000);
}

/* Rounds until `count` of a's frames have left. */
static unsigned rounds_for(struct cl_nic *world, const struct app *a, uint32_t count)
{
    uint32_t got = 0;
    unsigned rounds = 0;
    for (; got < count; rounds++) {
        CHECK(rounds < 1000);
        step();
        got += arrived(world, a, got);
    }
    CHECK_EQ(got, count);
    return rounds;
}

static void run(bool calls)
{
    struct cl_nic *ends[2];
    struct app a, b;
    char err[256] = "";
    CHECK_EQ(cl_memory_link_new(&(struct cl_memory_config){.ring_slots = 256}, ends, err), 0);
    counting = *ends[0]->ops;
    really = counting.tx_burst;
    counting.tx_burst = counted_burst;
    const struct cl_nic_ops *before = ends[0]->ops;
    ends[0]->ops = &counting;
    ends[0]->tx_joins = calls;
    io = arena_io(BUFFER_BYTES);
    CHECK_EQ(cl_io_add_uplink(io, ends[0], false, err), 0);
    add(&a, 1);
    add(&b, 2);
    /* Both have work, so turns are short: 8 small frames each. */
    send_one(&b, 0);
    for (uint32_t i = 0; i < 128; i++)
        send_one(&a, i);
    bursts = fullest = 0;
    unsigned rounds = rounds_for(ends[1], &a, 128);
    printf("calls %d: 128 frames in %u rounds, %u bursts of at most %u\n", calls, rounds, bursts, fullest);
    CHECK(rounds >= 8);
    if (calls)
        CHECK(bursts <= 5 && fullest >= 32); /* as many as one application may have wait for an uplink */
    else
        CHECK(bursts >= 8);
    /* Beside one who always has more a frame leaves soon. */
    for (uint32_t i = 0; i < 200; i++)
        send_one(&a, i);
    step();
    send_one(&b, 1);
    unsigned waited = 0;
    for (; !arrived(ends[1], &b, 1); waited++)
        step();
    CHECK(waited <= (calls ? 10 : 1));
    while (cl_io_step(io, 0, now += 1000))
        ;
    arrived(ends[1], NULL, 0);
    /* Who then floods somebody else holds nothing up. */
    send_one(&a, 0);
    for (uint32_t i = 0; i < 100; i++)
        send_to(&a, i, b.arena.mac, b.arena.ip);
    for (waited = 0; !arrived(ends[1], &a, 0); waited++)
        step();
    CHECK(waited <= 2);
    /* A single frame leaves in its round. */
    while (cl_io_step(io, 0, now += 1000))
        ;
    arrived(ends[1], NULL, 0);
    send_one(&a, 0);
    step();
    CHECK_EQ(arrived(ends[1], &a, 0), 1);
    arena_remove(&a.arena, io);
    arena_remove(&b.arena, io);
    cl_io_delete(io);
    ends[0]->ops = before;
    ends[1]->ops->close(ends[1]);
    ends[0]->ops->close(ends[0]);
}

int main(void)
{
    run(true);
    run(false);
    puts("ok");
    return 0;
}
