/* Flows in parts (parts.h): while a sibling steals, each kthread works on flows of its own; nothing waits for a thief
 * that has gone, nor for a kthread that does not turn; and one flow alone is worked on by both. Two kthreads, stepped;
 * all requests come by the first one's queue. At last they are traced: what the second one handled was stolen.
 *
 * With more kthreads than 0 these run instead, and all requests of bursts are answered, some of which take long.
 *
 * Usage: parts SEED [KTHREADS ROUNDS]. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include "libos/internal.h"
#include "libos/net/parts.h"

#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define FLOWS 32
#define BURST 16 /* requests a round: a kthread that gets as many by each poll falls behind */
#define SETTLE 300
#define ROUNDS 300

static struct cl_nic *ends[2];
static struct cl_sched *sched;
static uint16_t ports[FLOWS];
static unsigned by[2][FLOWS], asked, answered; /* by: requests of a flow that a kthread has handled */

static int64_t handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room;
    (void)arg;
    by[cl_kthread_index()][request[0]]++;
    memcpy(reply, request, (size_t)len);
    return len;
}

static void ask(unsigned flow)
{
    struct cl_frame f;
    while (cl_nic_alloc(ends[1], 0, &f, 1) == 0)
        ;
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    u->payload[0] = (uint8_t)flow;
    cl_udp_fill(u, ends[0]->mac, ends[1]->mac, cl_be32(IP_CLIENT), cl_be32(IP_SERVER), cl_be16(ports[flow]),
                cl_be16(9000), 1, true);
    f.len = CL_UDP_HEADERS + 1;
    while (cl_nic_tx(ends[1], 0, &f, 1) == 0)
        ;
    asked++;
}

/* Client ports whose frames the link gives to the first kthread. */
static void choose_ports(unsigned kthreads)
{
    struct cl_frame f;
    uint16_t port = 20000;
    for (unsigned flow = 0; flow < FLOWS; port++) {
        ports[flow] = port;
        ask(flow);
        for (unsigned q = 0; q < kthreads; q++)
            if (cl_nic_rx(ends[0], q, &f, 1)) {
                cl_nic_free(ends[0], q, &f, 1);
                flow += q == 0;
            }
    }
    asked = 0;
}

static void step(unsigned k)
{
    struct cl_frame f;
    CHECK(cl_sched_step(sched, k) >= 0);
    for (; cl_nic_rx(ends[1], 0, &f, 1); answered++)
        cl_nic_free(ends[1], 0, &f, 1);
}

/* Rounds of a burst of so many flows, each with a turn of the first kthread and `steps` of the second one: it steals in
 * one turn and handles that in the next. */
static void serve(unsigned rounds, unsigned flows, unsigned steps, uint64_t *state)
{
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned n = 0, first = (unsigned)(next_random(state) % FLOWS); n < BURST; n++) {
            if (n == BURST / 2)
                step(0);
            ask((first + n) % flows); /* what is behind is in the NIC's queue when the second one looks */
        }
        for (unsigned n = 0; n < steps; n++)
            step(1);
    }
}

/* Until all is answered, by turns of kthread k alone. */
static void finish(unsigned k, unsigned most)
{
    for (unsigned n = 0; answered != asked; n++) {
        CHECK(n < most, "%u of %u answered after %u turns of kthread %u", answered, asked, n, k);
        step(k);
    }
}

static void forget(void)
{
    memset(by, 0, sizeof by);
}

static unsigned handled(unsigned k)
{
    unsigned sum = 0;
    for (unsigned flow = 0; flow < FLOWS; flow++)
        sum += by[k][flow];
    return sum;
}

/* Each flow is one kthread's, and both have some. Once in a while a poll brings nothing of its kthread's own, and this
 * takes half of what it has put apart. */
static void check_parts(void)
{
    unsigned strays = 0;
    for (unsigned flow = 0; flow < FLOWS; flow++)
        strays += cl_min(by[0][flow], by[1][flow]);
    CHECK(100 * strays <= ROUNDS * BURST, "%u of %u requests were not by whom the flow's others were", strays,
          ROUNDS * BURST);
    CHECK(handled(0) && handled(1), "%u by its kthread, %u by the thief", handled(0), handled(1));
}

static void stepped(const struct cl_runtime *rt, uint64_t *state)
{
    serve(SETTLE, FLOWS, 2, state);
    forget();
    serve(ROUNDS, FLOWS, 2, state);
    check_parts();

    /* The kthread does not turn: the thief takes the rest, after some looks. */
    for (unsigned n = 0; n < BURST; n++)
        ask(n);
    finish(1, 2 * CL_PARTS_LOOKS);

    /* The thief has gone: what was put apart for it is not left there, and soon nothing is put there. */
    serve(1, FLOWS, 0, state);
    finish(0, 10);
    serve(2 * CL_PARTS_POLLS + 1, FLOWS, 0, state);
    finish(0, 1);
    forget();
    serve(1, FLOWS, 0, state);
    finish(0, 1);
    CHECK_EQ(handled(0), BURST);
    CHECK(!rt->nif->queues[0].parts.divided);

    /* One flow, of whosever part: both work on it. */
    for (unsigned flow = 1; flow <= 2; flow++) {
        serve(SETTLE, flow, 8, state);
        forget();
        for (unsigned i = 0; i < ROUNDS; i++) {
            for (unsigned n = 0; n < BURST; n++)
                ask(flow - 1);
            step(0);
            ask(flow - 1);
            step(1);
        }
        CHECK(handled(0) && handled(1), "%u by its kthread, %u by the thief", handled(0), handled(1));
        finish(0, 10);
    }
}

/* Of requests that were handled one after the other, by each kthread: whether they were stolen. */
static void check_traced(struct cl_runtime *rt, uint64_t *state)
{
    static struct cl_trace_message got[2 * CL_TRACE_GROUP_MOST];
    uint64_t next[2] = {0}, lost = 0, garbage = 0;
    const struct cl_tracer *t = cl_trace_tracer(rt->trace, 0);
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(t->records, 0);
    uint64_t bytes = (uint64_t)cl_trace_bytes(2, t->records);
    unsigned seen[2] = {0}, own = 0;
    CHECK_EQ(cl_runtime_trace(rt, CL_RUNTIME_TRACE_FULL), CL_RUNTIME_TRACE_OFF);
    for (uint64_t end = cl_sched_now_ns(sched) + 5000000; cl_sched_now_ns(sched) < end;) { /* they look at it */
        step(0);
        step(1);
    }
    forget();
    serve(10, FLOWS, 2, state);
    for (unsigned n = 0; answered != asked; n++) {
        CHECK(n < 1000, "%u of %u answered", answered, asked);
        step(n % 2);
    }
    for (unsigned k = 0; k < 2; k++) {
        for (uint32_t n; (n = cl_trace_read(segment, bytes, k, &next[k], got, 64, &lost, &garbage)) > 0;)
            for (uint32_t i = 0; i < n; i++)
                if (got[i].kind == CL_TRACE_MESSAGE) {
                    CHECK(got[i].flags & CL_TRACE_STOLEN || k == 0, "by the thief alone");
                    own += !(got[i].flags & CL_TRACE_STOLEN);
                    seen[k]++;
                }
        CHECK_EQ(seen[k], handled(k));
    }
    CHECK(lost == 0 && garbage == 0 && seen[1] > 0 && own > 0);
}

/* Byte 0: how many microseconds it takes. */
static int64_t takes(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room;
    (void)arg;
    for (uint64_t end = cl_sched_now_ns(cl_sched_self()) + 1000ull * request[0];
         cl_sched_now_ns(cl_sched_self()) < end;)
        cl_relax();
    memcpy(reply, request, (size_t)len);
    return len;
}

static void threaded(struct cl_runtime *rt, unsigned rounds, uint64_t *state)
{
    struct cl_frame f;
    char err[256];
    CHECK(cl_runtime_start(rt, err) == 0, "%s", err);
    alarm(100);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned n = 1 + (unsigned)(next_random(state) % 100);
        while (n--)
            ask(next_random(state) % 64 ? (unsigned)(next_random(state) % 4) : 31);
        while (answered != asked)
            for (; cl_nic_rx(ends[1], 0, &f, 1); cl_nic_free(ends[1], 0, &f, 1))
                answered += f.data[12] == 8 && f.data[13] == 0; /* no ARP */
    }
    CHECK(cl_runtime_stop(rt, -1) == 0);
}

int main(int argc, char **argv)
{
    uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    unsigned kthreads = argc > 2 ? (unsigned)atoi(argv[2]) : 0, n = kthreads ? kthreads : 2;
    struct cl_memory_config link = {.queues = {n, 1}, .ipv4 = {IP_SERVER, IP_CLIENT}, .ipv4_prefix = 16};
    struct cl_runtime *rt;
    char err[256];
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    choose_ports(n);
    uint32_t buffers = cl_nic_buffers_free(ends[0]);
    struct cl_runtime_config config = {.nic = ends[0], .kthreads = n, .seed = state};
    CHECK(cl_runtime_new(&config, &rt, err) == 0, "%s", err);
    CHECK(kthreads || cl_runtime_trace(rt, CL_RUNTIME_TRACE_OFF) > 0);
    sched = cl_runtime_sched(rt);
    CHECK(cl_runtime_bind_udp(rt, 9000, kthreads ? takes : handler, NULL) == 0);
    if (kthreads)
        threaded(rt, argc > 3 ? (unsigned)atoi(argv[3]) : 100, &state);
    else
        stepped(rt, &state), check_traced(rt, &state);
    cl_runtime_delete(rt);
    CHECK_EQ(cl_nic_buffers_free(ends[0]), buffers);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
