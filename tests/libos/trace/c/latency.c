/* Latency of services, as a kthread records it and as others are told: how many, of which, and that requests never
 * fall. Usage: latency SEED */
#include "libos/trace/trace.h"
#include "runtime/latency.h"

#include "tests/support/c/check.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGES 16000

static uint64_t now = 1000000000;
static struct cl_trace *trace;
static struct cl_tracer *t;
static uint8_t *told;

static struct cl_latency *of(uint32_t service)
{
    return cl_latency_of(told, 0, service);
}

static void tell(uint64_t requests, uint16_t service)
{
    struct cl_trace_serving serving[1] = {{requests, service}};
    cl_trace_tell_latency(trace, told, 1, serving);
}

static void mode(uint32_t mode)
{
    CHECK_EQ(cl_trace_set_mode(trace, mode), 0);
    now += 2000000;
    cl_tracer_poll(t, now, now);
}

/* Messages that take 1 to 2 us until they are sent, of which `answered` have a doorbell. */
static void messages(uint16_t service, bool answered, uint64_t *seed)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct cl_trace_open o = {.drawn = cl_tracer_draws(t)};
        uint64_t took = 1000 + next_random(seed) % 1000;
        struct cl_trace_end e = {.begin = now, .pickup = now, .start = now + 100, .end = now + (answered ? 200 : took)};
        e.service = service;
        e.shared = 1;
        e.flags = answered ? CL_TRACE_ANSWERED : 0;
        if (o.drawn)
            cl_tracer_message(t, &o, &e);
        cl_tracer_sent(t, now + took);
        now += 10;
    }
}

/* The same of handlers that are written down together. in_row: each has its own start and end. */
static void groups(uint16_t service, bool in_row, bool answered, uint64_t *seed)
{
    for (unsigned left = MESSAGES; left;) {
        unsigned n = 3 + (unsigned)(next_random(seed) % 18);
        n = cl_min(n, left);
        uint64_t start = now, rang = now + 900;
        t->open.start = start;
        for (unsigned i = 0; i < n; i++) {
            uint64_t took = 1000 + next_random(seed) % 1000, from = in_row ? start + 10 * i : start;
            uint64_t end = in_row ? from + 10 : start + 200, waited = took - ((answered ? rang : end) - from);
            struct cl_trace_plain m =
                cl_trace_plain(waited, waited, service, answered ? CL_TRACE_ANSWERED : 0, i, (uint16_t)i);
            if (in_row)
                cl_tracer_follow(t, m, from, end);
            else
                cl_tracer_open(t, m);
        }
        now = start + 200;
        cl_tracer_end_open(t, now);
        cl_tracer_sent(t, rang);
        now = rang;
        left -= n;
    }
}

static void expect(uint32_t service, uint64_t least, uint64_t most)
{
    tell(0, 0);
    uint64_t n = cl_hist_count(&of(service)->hist);
    CHECK(n >= least && n <= most, "%lu of service %u", (unsigned long)n, service);
    CHECK(cl_hist_percentile(&of(service)->hist, 50) >= 1400 && cl_hist_percentile(&of(service)->hist, 50) <= 1700);
    CHECK(of(service)->hist.min >= 1000 && of(service)->hist.max < 2000);
}

static void names(void)
{
    const struct cl_latency_names *n = (const struct cl_latency_names *)told;
    for (unsigned port = 1; port < 2 * CL_LATENCY_SERVICES; port++)
        CHECK_EQ(cl_trace_service_of(trace, port % 2 ? CL_TRACE_UDP : CL_TRACE_TCP, (uint16_t)port), port);
    tell(0, 0);
    CHECK_EQ(n->n, CL_LATENCY_SERVICES);
    CHECK(!strcmp(n->service[0].text, "udp:1") && !strcmp(n->service[7].text, "tcp:8"));
}

static void requests(void)
{
    cl_tracer_served(t, 2, 10);
    cl_tracer_served(t, 0, 5);
    cl_tracer_served(t, CL_LATENCY_SERVICES + 1, 5); /* of one that is not told of */
    tell(3, 2);
    CHECK_EQ(of(1)->requests, 13);
    tell(0, 1); /* another one's turn, and what was counted is not there yet */
    CHECK(of(1)->requests == 13 && of(0)->requests == 0);
    cl_tracer_served(t, 2, 3);
    tell(4, 1);
    CHECK(of(1)->requests == 13 && of(0)->requests == 4);
}

int main(int argc, char **argv)
{
    struct cl_clock clock;
    char err[256] = "";
    struct cl_trace_config config = {.n_rings = 1, .mode = CL_TRACE_FULL, .one_in = 20};
    CHECK(argc == 2);
    uint64_t seed = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    told = calloc(1, cl_latency_bytes(1));
    cl_clock_virtual(&clock, &now);
    CHECK(told && cl_trace_new(&config, &clock, "latency", &trace, err) == 0, "%s", err);
    t = cl_trace_tracer(trace, 0);
    names();
    requests();
    mode(CL_TRACE_FULL);
    messages(1, true, &seed);
    expect(0, MESSAGES / 32 * 8 / 10, MESSAGES / 32 * 12 / 10);
    messages(3, false, &seed);
    expect(2, MESSAGES / 32 * 8 / 10, MESSAGES / 32 * 12 / 10);
    for (unsigned i = 0; i < 4; i++) {
        groups((uint16_t)(5 + i), i & 1, i & 2, &seed);
        expect(4 + i, MESSAGES / 32 * 8 / 10, MESSAGES / 32 * 12 / 10);
    }
    mode(CL_TRACE_SAMPLED);
    messages(4, true, &seed);
    expect(3, MESSAGES / 20 * 8 / 10, MESSAGES / 20 * 12 / 10);
    mode(CL_TRACE_OFF);
    uint64_t before = cl_hist_count(&of(4)->hist);
    messages(5, true, &seed);
    tell(0, 0);
    CHECK_EQ(cl_hist_count(&of(4)->hist), before);
    cl_trace_delete(trace);
    free(told);
    puts("ok");
    return 0;
}
