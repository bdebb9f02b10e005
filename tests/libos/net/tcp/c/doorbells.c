/* How many doorbells the answers of connections take on a NIC whose doorbell is a system call (nic.h, tx_calls): each
 * connection's turn is a request, so all that come together are answered by one, however long they take together; after
 * a turn that is slow itself, answers leave one by one for a while. On a virtual clock, which turns move.
 *
 * Usage: doorbells. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>

#include "tests/libos/net/tcp/c/stepped.h"

#include <stdio.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define PORT 7
#define CONNECTIONS 20
#define QUICK_NS 500
#define SLOW_NS 20000
#define ROUNDS 12
#define SLOW_ROUND 4
#define GATHERED_FROM 9 /* 64 requests after a slow one */

static uint64_t now_ns = 1000000000;
static struct cl_nic *ends[2];
static unsigned doorbells, rings[ROUNDS];
static bool slow, over;

static unsigned (*send_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);

static unsigned counted(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    doorbells++;
    return send_burst(nic, queue, frames, n);
}

static int64_t answer(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    now_ns += slow ? SLOW_NS : QUICK_NS;
    slow = false;
    CHECK_EQ(cl_tcp_write(c, data, len), len);
    return len;
}

static void ask_all(void *arg)
{
    static struct cl_stream *s[CONNECTIONS];
    struct cl_tcp_addr to = {IP_SERVER, PORT, 0};
    char data;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        CHECK_EQ(cl_stream_connect(arg, NULL, &to, -1, &s[i]), 0);
        CHECK_EQ(cl_stream_set(s[i], CL_STREAM_NO_DELAY, 1), 0);
    }
    for (unsigned r = 0; r < ROUNDS; r++) {
        cl_uthread_sleep_ns(1000000000); /* all is still: nothing is acknowledged late */
        doorbells = 0;
        slow = r == SLOW_ROUND;
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_write(s[i], "x", 1, -1), 1);
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_read(s[i], &data, 1, -1), 1);
        rings[r] = doorbells;
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(cl_stream_abort(s[i]), 0);
    over = true;
}

int main(void)
{
    static const struct cl_tcp_events events = {.data = answer};
    struct cl_clock clock;
    struct cl_stepper *stepper;
    char err[256] = "";
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock, .queues = {1, 1}};
    CHECK(cl_memory_link_new(&m, ends, err) == 0, "%s", err);
    struct cl_nic_ops ops = *ends[0]->ops;
    send_burst = ops.tx_burst;
    ops.tx_burst = counted;
    ends[0]->ops = &ops;
    ends[0]->tx_calls = 1;
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    struct cl_runtime *server = stepped_host(ends[0], IP_SERVER, 0, stepper),
                      *client = stepped_host(ends[1], IP_CLIENT, 0, stepper);
    CHECK_EQ(cl_runtime_listen_tcp(server, PORT, CONNECTIONS, &events, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(client, ask_all, client), 0);
    for (unsigned ms = 0; !over && ms < 60000; ms++)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    CHECK(over);
    for (unsigned r = 0; r < ROUNDS; r++) {
        if (r < SLOW_ROUND || r >= GATHERED_FROM)
            CHECK(rings[r] == 1, "round %u: %u doorbells", r, rings[r]);
        else if (r <= SLOW_ROUND + 1)
            CHECK(rings[r] > 1, "round %u: %u doorbells", r, rings[r]);
    }
    stepped_end(stepper, client, server, ends);
    printf("ok\n");
    return 0;
}
