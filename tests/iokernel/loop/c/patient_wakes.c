/* A frame for everybody finds everybody asleep: two are woken in each round, and all in the end; who gets a frame of
 * its own does not wait with them.
 *
 *   patient_wakes
 *
 * Deterministic: one thread, a clock of its own. */
#include "tests/support/c/check.h"

#include <corelane/drivers/memory.h>
#include "../../../../iokernel/state/iokernel.h"
#include "../../../../runtime/net.h"

#include <stdio.h>
#include <sys/mman.h>

#define APPS 9
#define SLOTS 16
#define BUFFERS 16
#define BUFFER_BYTES 256

struct app {
    uint32_t id;
    uint8_t mac[6], *base;
    uint64_t bytes;
    uint32_t *park;
};

static struct cl_io *io;
static struct cl_nic *ends[2];
static struct app apps[APPS];

static void add(struct app *a, uint8_t number)
{
    struct cl_io_app_config c = {.layout = {1, SLOTS, SLOTS, BUFFERS, BUFFERS, BUFFER_BYTES}};
    struct cl_io_app_grant g;
    char err[256] = "";
    snprintf(c.name, sizeof c.name, "app-%u", number);
    memcpy(c.mac, (uint8_t[]){2, 0, 0, 0, 0, number}, 6);
    c.ipv4 = 0x0a4d0000u + number;
    CHECK_EQ(cl_io_app_add(io, &c, &g, err), 0);
    *a = (struct app){.id = g.app, .bytes = g.layout.total_bytes};
    memcpy(a->mac, c.mac, 6);
    a->base = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g.arena_fd, 0);
    CHECK(a->base != MAP_FAILED);
    a->park = &((struct cl_arena_kthread *)(a->base + g.layout.lines_offset))->park;
    *a->park = CL_KTHREAD_PARKED;
}

static void from_outside(const uint8_t *mac, uint32_t ip)
{
    struct cl_frame f;
    CHECK_EQ(ends[1]->ops->alloc(ends[1], 0, &f, 1), 1);
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    cl_udp_headers(u, (uint8_t[]){2, 9, 9, 9, 9, 9}, mac, 0x0a4d0909, ip, 9, 9, 4);
    memset(u->payload, 0, 4);
    f.len = CL_UDP_HEADERS + 4;
    CHECK_EQ(ends[1]->ops->tx_burst(ends[1], 0, &f, 1), 1);
}

static unsigned awake(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < APPS; i++)
        n += *apps[i].park == CL_KTHREAD_RUNNING;
    return n;
}

int main(void)
{
    struct cl_io_config config = {.tsc_hz = 1000000000, .mtu = BUFFER_BYTES - CL_ETH_HLEN};
    const uint8_t everybody[6] = {255, 255, 255, 255, 255, 255};
    char err[256] = "";
    uint64_t now = 0;
    CHECK_EQ(cl_memory_link_new(&(struct cl_memory_config){.ring_slots = 64}, ends, err), 0);
    CHECK_EQ(cl_io_new(&config, &io, err), 0);
    CHECK_EQ(cl_io_add_uplink(io, ends[0], false, err), 0);
    for (uint8_t i = 0; i < APPS; i++)
        add(&apps[i], (uint8_t)(i + 1));
    from_outside(everybody, 0xffffffff);
    for (unsigned round = 1; round <= 3; round++) {
        cl_io_step(io, 0, now += 1000);
        CHECK_EQ(awake(), 2 * round);
    }
    from_outside(apps[APPS - 1].mac, 0x0a4d0000u + APPS);
    cl_io_step(io, 0, now += 1000);
    CHECK_EQ(*apps[APPS - 1].park, CL_KTHREAD_RUNNING);
    CHECK_EQ(awake(), APPS); /* it, and the last two */
    struct cl_io_app_final final;
    for (unsigned i = 0; i < APPS; i++) {
        CHECK_EQ(cl_io_app_remove(io, apps[i].id, &final, err), 0);
        CHECK_EQ(final.stats.wakes, 1);
        munmap(apps[i].base, apps[i].bytes);
    }
    cl_io_delete(io);
    ends[1]->ops->close(ends[1]);
    ends[0]->ops->close(ends[0]);
    puts("ok");
    return 0;
}
