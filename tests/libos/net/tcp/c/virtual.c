/* Connections between two runtimes on a virtual clock, over a link that loses, delays and reorders. Equal seeds do the
 * same: the time at which all were over is printed.
 *
 * argv: seed, kthreads of each, connections, bytes of each, loss in 1/1000, delay in us; and perhaps a rule of
 * congestion, with ECN, on a link in order, whose queue is so many bytes long, and marks from so many on. */
#include <corelane/drivers/memory.h>
#include "drivers/nic/link/link.h"
#include "tests/libos/net/tcp/c/endpoints.h"
#include "tests/libos/net/tcp/c/stepped.h"

#include <inttypes.h>

#define IP_A 0x0a4d0001u
#define IP_B 0x0a4d0002u

static struct fetch fetches[256];
static unsigned n_fetches;

static void connect_all(void *arg)
{
    for (unsigned i = 0; i < n_fetches; i++)
        CHECK_EQ(cl_runtime_connect_tcp(arg, IP_B, 7, &fetch_events, &fetches[i]), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 7 || argc == 10);
    uint64_t now_ns = 1000000000;
    struct cl_clock clock;
    struct cl_nic *ends[2];
    struct cl_stepper *stepper;
    char err[256] = "";
    uint32_t kthreads = (uint32_t)atoi(argv[2]);
    n_fetches = (unsigned)atoi(argv[3]);
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock, .queues = {kthreads, kthreads}};
    struct cl_link_config path = {.seed = strtoull(argv[1], NULL, 0), .rate_bps = 1000000000};
    path.delay_ns = strtoull(argv[6], NULL, 0) * 1000;
    path.jitter_ns = path.delay_ns / 4;
    path.reorder = argc == 7 ? 0.01 : 0;
    path.loss_good = atof(argv[5]) / 1000;
    if (argc == 10) {
        path.queue_bytes = strtoull(argv[8], NULL, 0);
        path.ecn_bytes = strtoull(argv[9], NULL, 0);
    }
    const struct cl_link_config *paths[2] = {&path, &path};
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    CHECK(cl_link_nic_new(ends[0], paths, &ends[0], err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    struct cl_runtime *a = stepped_host(ends[0], IP_A, 0, stepper), *b = stepped_host(ends[1], IP_B, 0, stepper);
    for (unsigned r = 0; argc == 10 && r < 2; r++)
        CHECK_EQ(cl_runtime_tcp_congestion(r ? b : a, argv[7], 1), 0);
    CHECK_EQ(cl_runtime_listen_tcp(b, 7, 512, &echo_events, NULL), 0);
    for (unsigned i = 0; i < n_fetches; i++)
        fetches[i] = (struct fetch){.number = i, .bytes = strtoull(argv[4], NULL, 0)};
    CHECK_EQ(cl_runtime_spawn(a, connect_all, a), 0);
    uint64_t until_ns = now_ns + 3600000000000ull;
    while (fetched < n_fetches && now_ns < until_ns)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    uint64_t took_ns = now_ns - 1000000000;
    for (unsigned i = 0; i < n_fetches; i++)
        CHECK(fetches[i].ended && fetches[i].error == 0 && fetches[i].read == fetches[i].bytes, "connection %u: %d", i,
              fetches[i].error);
    CHECK(cl_stepper_run(stepper, now_ns + 300000000000ull, err) == 0, "%s", err); /* TIME_WAIT is over */
    struct cl_chunk_stats send, receive;
    for (unsigned r = 0; r < 2; r++) {
        CHECK_EQ(cl_runtime_chunk_stats(r ? b : a, CL_CHUNKS_TCP_SEND, &send), 0);
        CHECK_EQ(cl_runtime_chunk_stats(r ? b : a, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
        CHECK_EQ(send.held_bytes + receive.held_bytes, 0);
    }
    CHECK_EQ(echo_errors, 0);
    struct cl_tcp_counts counts, theirs;
    cl_runtime_tcp_counts(a, &counts);
    cl_runtime_tcp_counts(b, &theirs);
    stepped_end(stepper, a, b, ends);
    printf("%" PRIu64 " us, %" PRIu64 " resent, %" PRIu64 " timeouts, %" PRIu64 " marks\n", took_ns / 1000,
           counts.resent, counts.timeouts, counts.marks_in + theirs.marks_in);
    return 0;
}
