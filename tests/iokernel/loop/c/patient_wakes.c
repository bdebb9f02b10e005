/* A frame for everybody finds everybody asleep: two are woken in each round, and all in the end; who gets a frame of
 * its own does not wait with them.
 *
 *   patient_wakes
 *
 * Deterministic: one thread, a clock of its own. */
#include "tests/support/c/arena.h"

#include <corelane/drivers/memory.h>

#define APPS 9
#define SLOTS 16
#define BUFFERS 16
#define BUFFER_BYTES 256

static struct cl_io *io;
static struct cl_nic *ends[2];
static struct arena apps[APPS];

static void from_outside(const uint8_t *mac, uint32_t ip)
{
    struct cl_frame f;
    CHECK_EQ(ends[1]->ops->alloc(ends[1], 0, &f, 1), 1);
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    cl_udp_headers(u, arena_world_mac, mac, ARENA_WORLD_IP, ip, 9, 9, 4);
    memset(u->payload, 0, 4);
    f.len = CL_UDP_HEADERS + 4;
    CHECK_EQ(ends[1]->ops->tx_burst(ends[1], 0, &f, 1), 1);
}

static unsigned awake(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < APPS; i++)
        n += apps[i].lines->park == CL_KTHREAD_RUNNING;
    return n;
}

int main(void)
{
    const uint8_t everybody[6] = {255, 255, 255, 255, 255, 255};
    char err[256] = "";
    uint64_t now = 0;
    CHECK_EQ(cl_memory_link_new(&(struct cl_memory_config){.ring_slots = 64}, ends, err), 0);
    io = arena_io(BUFFER_BYTES);
    CHECK_EQ(cl_io_add_uplink(io, ends[0], false, err), 0);
    for (uint8_t i = 0; i < APPS; i++) {
        arena_add(&apps[i], io, (uint8_t)(i + 1), (struct arena_size){1, SLOTS, BUFFERS, BUFFER_BYTES});
        apps[i].lines->park = CL_KTHREAD_PARKED;
    }
    from_outside(everybody, 0xffffffff);
    for (unsigned round = 1; round <= 3; round++) {
        cl_io_step(io, 0, now += 1000);
        CHECK_EQ(awake(), 2 * round);
    }
    from_outside(apps[APPS - 1].mac, ARENA_IP(APPS));
    cl_io_step(io, 0, now += 1000);
    CHECK_EQ(apps[APPS - 1].lines->park, CL_KTHREAD_RUNNING);
    CHECK_EQ(awake(), APPS); /* it, and the last two */
    for (unsigned i = 0; i < APPS; i++)
        CHECK_EQ(arena_remove(&apps[i], io).wakes, 1);
    cl_io_delete(io);
    ends[1]->ops->close(ends[1]);
    ends[0]->ops->close(ends[0]);
    puts("ok");
    return 0;
}
