/* What turns of connections are written down as in mode full: those that run one after the other as a group, and yet
 * each as it was, also around one that waits in their middle. On a virtual clock, which turns move.
 *
 * Usage: traced. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>

#include "libos/internal.h"
#include "libos/trace/trace.h"
#include "tests/libos/net/tcp/c/stepped.h"

#include <stdio.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define PORT 7
#define CONNECTIONS 20
#define ROUNDS 8
#define ROUND_NS 1000000000ull /* all is still at its end: nothing is acknowledged late */
#define SLEEPS_ROUND 5
#define SLEEPS 11 /* the connection */
#define SLEEP_NS 50000
#define RING_NS 7
#define HEADER_BYTES 32 /* of a segment, with timestamps */

/* What became of the request of a connection in a round. */
struct asked {
    uint64_t began, ended, rang;
};

static uint64_t now_ns = 1000000000;
static struct cl_nic *ends[2];
static struct asked asked[ROUNDS][CONNECTIONS];
static unsigned round_at;
static bool over;
static const struct cl_tracer *tracer;
static uint64_t head; /* of its ring, when all are connected */
static struct cl_trace_message got[2 * ROUNDS * CONNECTIONS];

static unsigned (*send_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);

static unsigned rings(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    now_ns += RING_NS;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (asked[round_at][i].ended && !asked[round_at][i].rang)
            asked[round_at][i].rang = now_ns;
    return send_burst(nic, queue, frames, n);
}

/* Connection i asks by i + 1 bytes. */
static int64_t answer(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct asked *a = &asked[round_at][len - 1];
    (void)arg;
    a->began = now_ns;
    now_ns += 100 + 10 * (uint64_t)len;
    if (round_at == SLEEPS_ROUND && len - 1 == SLEEPS)
        CHECK_EQ(cl_uthread_sleep_ns(SLEEP_NS), 0);
    CHECK_EQ(cl_tcp_write(c, data, 1), 1);
    a->ended = now_ns;
    return len;
}

static void ask_all(void *arg)
{
    static struct cl_stream *s[CONNECTIONS];
    struct cl_tcp_addr to = {IP_SERVER, PORT, 0};
    char data[CONNECTIONS] = "";
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        CHECK_EQ(cl_stream_connect(arg, NULL, &to, -1, &s[i]), 0);
        CHECK_EQ(cl_stream_set(s[i], CL_STREAM_NO_DELAY, 1), 0);
    }
    for (unsigned r = 0; r < ROUNDS; r++) {
        cl_uthread_sleep_ns(ROUND_NS);
        round_at = r;
        head = r ? head : tracer->head;
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_write(s[i], data, i + 1, -1), i + 1);
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_read(s[i], data, 1, -1), 1);
    }
    cl_uthread_sleep_ns(ROUND_NS);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(cl_stream_abort(s[i]), 0);
    over = true;
}

/* Connections ask in each round once. */
static void compare(const struct cl_trace_message *m)
{
    static unsigned rounds[CONNECTIONS];
    unsigned i = m->bytes - HEADER_BYTES - 1u, r = rounds[i]++;
    CHECK(i < CONNECTIONS && r < ROUNDS);
    const struct asked *a = &asked[r][i];
    uint64_t start = m->begin + m->start;
    CHECK(start <= a->began && start + RING_NS >= a->began, "where the one before it ended");
    CHECK_EQ(m->begin + m->end, a->ended);
    CHECK_EQ(m->begin + m->sent, a->rang);
    CHECK(m->shared == 1 && m->flags == (CL_TRACE_DRAWN | CL_TRACE_ANSWERED | CL_TRACE_FROM_KTHREAD), "flags %x",
          m->flags);
    CHECK_EQ(m->blocked + m->ready > 0, r == SLEEPS_ROUND && i == SLEEPS);
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
    ops.tx_burst = rings;
    ends[0]->ops = &ops;
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    struct cl_runtime *server = stepped_host(ends[0], IP_SERVER, 0, stepper),
                      *client = stepped_host(ends[1], IP_CLIENT, 0, stepper);
    CHECK(cl_runtime_trace(server, CL_RUNTIME_TRACE_FULL) >= 0);
    tracer = cl_trace_tracer(server->trace, 0);
    CHECK_EQ(cl_runtime_listen_tcp(server, PORT, CONNECTIONS, &events, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(client, ask_all, client), 0);
    for (unsigned ms = 0; !over && ms < 60000; ms++)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    CHECK(over);
    const uint8_t *segment = (const uint8_t *)tracer->ring - cl_trace_ring_offset(tracer->records, 0);
    uint64_t bytes = (uint64_t)cl_trace_bytes(1, tracer->records), next = head, lost = 0, garbage = 0;
    uint32_t n = cl_trace_read(segment, bytes, 0, &next, got, 2 * ROUNDS * CONNECTIONS, &lost, &garbage), found = 0;
    CHECK(lost == 0 && garbage == 0);
    for (uint32_t i = 0; i < n; i++) {
        if (got[i].kind == CL_TRACE_MESSAGE && got[i].bytes > HEADER_BYTES) {
            compare(&got[i]);
            found++;
        }
    }
    CHECK_EQ(found, ROUNDS * CONNECTIONS);
    CHECK(tracer->head - head < found * 3 / 4, "%u messages have %u records", found, (unsigned)(tracer->head - head));
    stepped_end(stepper, client, server, ends);
    printf("ok\n");
    return 0;
}
