/* The doorbell of a port whose iokernel sleeps, against an iokernel whose words this test writes: rung once in each
 * sleep, by each queue that sends, and never while it is awake; anew after the next sleep has begun, and at another
 * iokernel. Also before buffers that are given back fill the ring, and when a frame finds it full. And how stamps are
 * asked for of what passes behind it.
 *
 *   port_doorbell */
#include "tests/support/c/check.h"

#include "../../../../drivers/port/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SLOTS 64
#define FRAME 64

static struct cl_state_loop loops[2];
static struct {
    struct cl_arena_kthread lines[2];
    struct cl_desc slots[2 * SLOTS];
} shared;
static struct port_counts counts[2];
static uint32_t shadows[2 * SLOTS], give_backs[2 * 16];
static uint8_t buffers[32 * FRAME];
static struct port_arena arenas[2];
static struct port_tx tx[2];
static struct port port;

/* How often it was rung since the last look. */
static uint64_t rings(void)
{
    uint64_t n = 0;
    if (read(arenas[0].doorbell, &n, sizeof n) < 0)
        CHECK_EQ(errno, EAGAIN);
    return n;
}

static void send_on(unsigned queue)
{
    struct cl_frame f = {.data = buffers, .len = FRAME, .room = FRAME, .tag = port.current->tag};
    CHECK_EQ(port_tx_burst(&port.nic, queue, &f, 1), 1);
}

/* A received frame is given back; nobody takes it out of the ring. */
static void give_back_on(unsigned queue)
{
    struct cl_frame f = {.data = buffers, .buf = 0, .len = FRAME, .room = FRAME, .tag = port.current->tag};
    port_free(&port.nic, queue, &f, 1);
}

static void world(void)
{
    int doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    for (unsigned i = 0; i < 2; i++) {
        arenas[i] = (struct port_arena){.base = (uint8_t *)&shared,
                                        .buffers = buffers,
                                        .loop = &loops[i],
                                        .doorbell = doorbell,
                                        .tag = i + 1,
                                        .max_frame = FRAME,
                                        .shadows = shadows,
                                        .give_backs = give_backs,
                                        .counts = counts};
        arenas[i].layout = (struct cl_arena_layout){.n_kthreads = 2,
                                                    .tx_slots = SLOTS,
                                                    .n_rx = 16,
                                                    .n_tx = 16,
                                                    .buffer_bytes = FRAME,
                                                    .buffer_stride = FRAME,
                                                    .tx_offset = sizeof shared.lines};
    }
    port.nic.n_queues = 2;
    port.current = &arenas[0];
    port.tx = tx;
}

static bool asks(unsigned slots_back)
{
    const struct port_tx *t = &tx[0];
    return shared.slots[(t->ring.tail - slots_back) % SLOTS].payload & CL_TX_STAMP;
}

/* The last frame of a burst asks for them, while there is room for as many; they come in order, never more than were
 * asked for, and none of an iokernel before. */
static void stamps(void)
{
    struct cl_nic_tx_stamps *s = port_tx_stamps(&port.nic, 0);
    struct cl_arena_kthread *lines = &shared.lines[0];
    struct cl_nic_tx_stamp out[CL_NIC_TX_STAMPS];
    struct cl_frame f = {.data = buffers, .len = FRAME, .room = FRAME, .tag = arenas[0].tag};
    struct cl_frame burst[3] = {f, f, f};
    port.current = &arenas[0];
    for (unsigned i = 0; i < CL_NIC_TX_STAMPS; i++) {
        CHECK_EQ(port_tx_burst(&port.nic, 0, burst, 3), 3);
        CHECK(!s->stamped && !asks(1));
        s->wanted = 1;
        CHECK_EQ(port_tx_burst(&port.nic, 0, burst, 3), 3);
        CHECK(s->stamped && asks(1) && !asks(2) && !asks(3));
        s->rang[(s->asked - 1) % CL_NIC_TX_STAMPS] = 100 + i;
        lines->tx_stamps[i] = (struct cl_arena_tx_stamp){1000 + i, 2000 + i};
        lines->tx_head = tx[0].ring.tail;
    }
    s->wanted = 1;
    send_on(0);
    CHECK(!s->stamped && !asks(1));
    CHECK_EQ(port_tx_stamps_read(&port.nic, 0, out, 8), 0);
    lines->tx_stamped = 5;
    CHECK_EQ(port_tx_stamps_read(&port.nic, 0, out, 3), 3);
    CHECK_EQ(port_tx_stamps_read(&port.nic, 0, out + 3, 8), 2);
    for (unsigned i = 0; i < 5; i++)
        CHECK(out[i].rang == 100 + i && out[i].taken == 1000 + i && out[i].given == 2000 + i);
    lines->tx_stamped = 4000;
    CHECK_EQ(port_tx_stamps_read(&port.nic, 0, out, CL_NIC_TX_STAMPS), CL_NIC_TX_STAMPS - 5);
    CHECK_EQ(port_tx_stamps_read(&port.nic, 0, out, 8), 0);
    struct cl_frame many[SLOTS + 1];
    for (unsigned i = 0; i < SLOTS + 1; i++)
        many[i] = f;
    s->wanted = 1;
    unsigned took = port_tx_burst(&port.nic, 0, many, SLOTS + 1);
    CHECK(took && took < SLOTS + 1 && !s->stamped); /* what is left goes by another doorbell, which asks */
    lines->tx_head = tx[0].ring.tail;
    s->wanted = 1;
    send_on(0);
    CHECK(s->stamped);
    port.current = &arenas[1];
    send_on(0);
    CHECK(!s->stamped && s->asked == s->told);
}

int main(void)
{
    world();
    send_on(0);
    CHECK_EQ(rings(), 0); /* it is awake */
    for (uint64_t sleep = 1; sleep < 4; sleep++) {
        loops[0].sleeping = sleep;
        send_on(0);
        CHECK_EQ(rings(), 1);
        send_on(0);
        CHECK_EQ(rings(), 0); /* it gets up */
        send_on(1);
        CHECK_EQ(rings(), 1); /* this one does not know that */
        if (sleep == 2) {     /* else it went back to sleep before anybody looked */
            loops[0].sleeping = 0;
            send_on(0);
            CHECK_EQ(rings(), 0);
        }
    }
    loops[1].sleeping = loops[0].sleeping;
    port.current = &arenas[1];
    send_on(0);
    CHECK_EQ(rings(), 1); /* another iokernel, which happens to have slept as often */
    CHECK_EQ(tx[0].syscalls, 4);
    loops[1].sleeping++;
    while (tx[1].ring.tail < SLOTS / 2) {
        give_back_on(1);
        CHECK_EQ(rings(), 0); /* it needs no buffers while nothing comes */
    }
    give_back_on(1);
    CHECK_EQ(rings(), 1);
    while (tx[1].ring.tail < SLOTS)
        give_back_on(1);
    CHECK_EQ(rings(), 0);
    loops[1].sleeping++; /* it slept again without having taken anything */
    struct cl_frame f = {.data = buffers, .len = FRAME, .room = FRAME, .tag = port.current->tag};
    CHECK_EQ(port_tx_burst(&port.nic, 1, &f, 1), 0);
    CHECK_EQ(rings(), 1);
    stamps();
    close(arenas[0].doorbell);
    puts("ok");
    return 0;
}
