/* When an application's frames were taken from its tx ring, and given on (stamps.c): of those that ask for it, in their
 * order; by the round that took them, and by that in which the NIC has taken what was collected until then, also where
 * it is full all the time. Who asks for more than there is room for harms nobody, and who goes leaves nothing behind.
 *
 *   stamps
 *
 * Deterministic: one thread, a clock of its own. */
#include "tests/support/c/arena.h"

#include <corelane/drivers/memory.h>

#define SLOTS 256
#define BUFFERS 256
#define BUFFER_BYTES 512

static struct cl_io *io;
static struct cl_nic *ends[2];
static struct cl_nic_ops slow;
static unsigned (*really)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
static unsigned room; /* frames that the NIC takes yet */
static uint64_t now;
static struct arena a, b;
static uint32_t next;

static unsigned as_many(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    n = cl_min(n, room);
    room -= n;
    return n ? really(nic, queue, frames, n) : 0;
}

/* From a, beyond the uplink; or to b. */
static void send_one(bool stamp, bool outside)
{
    uint32_t buffer = a.l.n_rx + next++ % a.l.n_tx;
    struct cl_udp_frame *f = (struct cl_udp_frame *)arena_buffer(&a, buffer);
    cl_udp_headers(f, a.mac, outside ? arena_world_mac : b.mac, a.ip, outside ? ARENA_WORLD_IP : b.ip, 1, 1, 8);
    CHECK(cl_ring_push(&a.tx[0], cl_tx_word(CL_TX_SEND, buffer, 0, CL_UDP_HEADERS + 8),
                       cl_tx_payload(CL_SHM_NO_BUFFER, CL_SHM_NO_BUFFER) | (stamp ? CL_TX_STAMP : 0)));
    cl_doorbell_set(a.bell, 0);
}

static uint64_t step(void)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned n;
    cl_io_step(io, 0, now += 1000);
    while ((n = ends[1]->ops->rx_burst(ends[1], 0, frames, CL_NIC_BURST)))
        ends[1]->ops->free(ends[1], 0, frames, n);
    return now;
}

static uint32_t told(void)
{
    return a.lines[0].tx_stamped;
}

static void check(uint32_t i, uint64_t taken, uint64_t given)
{
    CHECK_EQ(a.lines[0].tx_stamps[i % CL_SHM_TX_STAMPS].taken, taken);
    CHECK_EQ(a.lines[0].tx_stamps[i % CL_SHM_TX_STAMPS].given, given);
}

/* Who does not ask has none; one that does has both in the round that takes it, also for a local application. */
static void in_one_round(void)
{
    for (unsigned i = 0; i < 5; i++)
        send_one(false, i & 1);
    step();
    CHECK_EQ(told(), 0);
    for (unsigned i = 0; i < 3; i++)
        send_one(i == 2, true);
    uint64_t at = step();
    CHECK_EQ(told(), 1);
    check(0, at, at);
    send_one(true, false);
    send_one(true, false);
    at = step();
    CHECK_EQ(told(), 3);
    check(1, at, at);
    check(2, at, at);
}

/* Given on when the NIC has taken it. */
static void behind_a_full_nic(void)
{
    room = 0;
    send_one(true, true);
    uint64_t first = step();
    step();
    CHECK_EQ(told(), 3);
    send_one(false, true);
    send_one(true, true);
    uint64_t second = step();
    CHECK_EQ(told(), 3);
    room = 1;
    uint64_t given = step();
    CHECK_EQ(told(), 4);
    check(3, first, given);
    room = 1;
    step();
    CHECK_EQ(told(), 4);
    room = 1;
    given = step();
    CHECK_EQ(told(), 5);
    check(4, second, given);
}

/* It takes less than comes, so something is always left. */
static void behind_a_nic_that_is_never_empty(void)
{
    uint32_t before = told();
    for (unsigned i = 0; i < 100; i++) {
        room = 1;
        send_one(true, true);
        if (i % 10 == 0)
            send_one(true, true);
        step();
    }
    CHECK(told() - before >= 80);
    for (uint32_t i = before; i != told(); i++) {
        const struct cl_arena_tx_stamp *s = &a.lines[0].tx_stamps[i % CL_SHM_TX_STAMPS];
        CHECK(s->taken && s->taken <= s->given && s->given <= now);
    }
    room = UINT32_MAX;
    while (told() - before < 110)
        step();
}

/* Each of many: only the newest of a round have room. Words that an application writes there are its own affair. */
static void asked_too_often(void)
{
    uint32_t before = told();
    memset(a.lines[0].tx_stamps, 0xff, sizeof a.lines[0].tx_stamps);
    a.lines[0].tx_stamped = 0x80000000;
    for (unsigned i = 0; i < 200; i++)
        send_one(true, false);
    while (told() - before != 200)
        step();
    for (unsigned i = 0; i < CL_SHM_TX_STAMPS; i++) {
        const struct cl_arena_tx_stamp *s = &a.lines[0].tx_stamps[i];
        CHECK(s->taken == s->given && s->taken <= now);
    }
    CHECK_EQ(b.lines[0].tx_stamped, 0);
    for (unsigned i = 0; i < CL_SHM_TX_STAMPS; i++)
        CHECK_EQ(b.lines[0].tx_stamps[i].taken | b.lines[0].tx_stamps[i].given, 0);
}

int main(void)
{
    char err[256] = "";
    CHECK_EQ(cl_memory_link_new(&(struct cl_memory_config){.ring_slots = 256}, ends, err), 0);
    const struct cl_nic_ops *before = ends[0]->ops;
    slow = *before;
    really = slow.tx_burst;
    slow.tx_burst = as_many;
    ends[0]->ops = &slow;
    room = UINT32_MAX;
    io = arena_io(BUFFER_BYTES);
    CHECK_EQ(cl_io_add_uplink(io, ends[0], false, err), 0);
    arena_add(&a, io, 1, (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES});
    arena_add(&b, io, 2, (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES});
    in_one_round();
    behind_a_full_nic();
    behind_a_nic_that_is_never_empty();
    asked_too_often();
    room = 0; /* it goes while a stamp of its waits */
    send_one(true, true);
    step();
    arena_remove(&a, io);
    room = UINT32_MAX;
    step();
    arena_remove(&b, io);
    cl_io_delete(io);
    ends[0]->ops = before;
    ends[1]->ops->close(ends[1]);
    ends[0]->ops->close(ends[0]);
    puts("ok");
    return 0;
}
