/* Load against the reference server by two threads, or over corelane's own stack against an echo at the other end of a
 * memory link by one; over UDP and TCP: several runs on the same connections, one of them
 * aborted, progress read all the while, connections made anew for each request, and an end in the middle of a run. What
 * is offered, sent and answered must balance.
 * Usage: loaded UDP(0|1) FRESH(0|1) RATE OVER(0|1) */
#include "bench/load/reference/reference.h"
#include "bench/load/sockload/sockload.h"

#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 9000

static char err[256];

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("line %d: %s (%s)\n", __LINE__, #what, err);                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void watch(struct cl_sockload *s, uint64_t until)
{
    uint64_t sent = 0, answered = 0, before = 0;
    while (!cl_sockload_done(s) && sent < until) {
        cl_sockload_progress(s, &sent, &answered);
        CHECK(sent >= before && cl_sockload_open(s) <= 16);
        before = sent;
        sched_yield();
    }
}

static void settle(struct cl_sockload *s, bool whole)
{
    struct cl_sockload_counts c;
    struct cl_sockload_record records[4096];
    CHECK(!cl_sockload_wait(s, err));
    cl_sockload_counts(s, &c);
    CHECK(c.offered == c.sent + c.dropped && c.answered <= c.sent);
    CHECK(cl_hist_count(cl_sockload_hist(s, CL_SOCKLOAD_LATENCY)) == c.offered);
    CHECK(cl_hist_count(cl_sockload_hist(s, CL_SOCKLOAD_FROM_SEND)) == c.answered);
    CHECK(!whole || (c.offered && c.answered == c.offered));
    uint64_t n = cl_sockload_records(s, records, 4096);
    CHECK(!whole || n == c.sent);
}

static int64_t echo_datagram(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    CHECK(len <= room);
    memcpy(reply, request, (size_t)len);
    return len;
}

static int64_t echo_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    return cl_tcp_write(c, data, len);
}

static void echo_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static const struct cl_tcp_events echo = {.data = echo_data, .eof = echo_eof};

/* ends[0]: the load's, 10.0.0.1; ends[1]: the server's, 10.0.0.2. */
static void join(struct cl_nic **ends, struct cl_runtime **runtimes)
{
    struct cl_memory_config link = {.ipv4 = {0x0a000001, 0x0a000002}, .ipv4_prefix = 24};
    CHECK(!cl_memory_link_new(&link, ends, err));
    for (unsigned i = 0; i < 2; i++) {
        struct cl_runtime_config config = {.nic = ends[i], .poll = CL_SCHED_ADAPTIVE, .poll_set = 1};
        CHECK(!cl_runtime_new(&config, &runtimes[i], err));
    }
    CHECK(!cl_runtime_bind_udp(runtimes[1], PORT, echo_datagram, NULL));
    CHECK(!cl_runtime_listen_tcp(runtimes[1], PORT, 64, &echo, NULL));
    for (unsigned i = 0; i < 2; i++)
        CHECK(!cl_runtime_start(runtimes[i], err));
}

int main(int argc, char **argv)
{
    struct cl_reference *server = NULL;
    struct cl_sockload *s;
    struct cl_nic *ends[2];
    struct cl_runtime *runtimes[2] = {NULL, NULL};
    uint32_t over = argc > 4 && atoi(argv[4]), udp = argc > 1 && atoi(argv[1]), fresh = argc > 2 && atoi(argv[2]);
    double rate = argc > 3 ? atof(argv[3]) : 2000;
    uint16_t key_bytes = 17;
    uint32_t value_bytes = 64;
    uint64_t hold_ns[2] = {0, 500000};
    if (over)
        join(ends, runtimes);
    else
        CHECK(!cl_reference_start(udp, 0, -1, &server, err));
    struct cl_sockload_config config = {
        .transport = udp,
        .runtime = runtimes[0],
        .address = over ? "10.0.0.2" : "127.0.0.1",
        .port = over ? PORT : cl_reference_port(server),
        .threads = over ? 1 : 2,
        .connections = 16,
        .spin = 1,
        .fresh = fresh,
        .drain_ns = 20000000000,
        .key_bytes = &key_bytes,
        .n_key_bytes = 1,
        .value_bytes = &value_bytes,
        .n_value_bytes = 1,
        .hold_ns = hold_ns,
        .n_hold_ns = 2,
        .records = 4096,
    };
    CHECK(!cl_sockload_new(&config, &s, err));
    CHECK(!cl_sockload_connect(s, err));
    for (unsigned i = 0; i < 3; i++) {
        CHECK(!cl_sockload_run(s, rate, 10000000, 100000000, 0, err));
        CHECK(cl_sockload_run(s, rate, 0, 1000000, 0, err) < 0);
        watch(s, i == 1 ? 20 : UINT64_MAX);
        if (i == 1)
            cl_sockload_abort(s);
        settle(s, i != 1);
    }
    CHECK(!cl_sockload_run(s, rate, 0, 10000000000, 0, err));
    watch(s, 20);
    cl_sockload_delete(s);
    for (unsigned i = 0; over && i < 2; i++)
        cl_runtime_delete(runtimes[i]);
    for (unsigned i = 0; over && i < 2; i++)
        cl_nic_close(ends[i]);
    if (server)
        cl_reference_stop(server);
    printf("balanced\n");
    return 0;
}
