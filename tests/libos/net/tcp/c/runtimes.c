/* Connections between two runtimes, and of one to itself: an echo, and many that fetch, on several kthreads that steal.
 *
 * argv: kthreads of each, connections, bytes of each. Prints "ok". */
#include "tests/libos/net/c/pair.h"
#include "tests/libos/net/tcp/c/endpoints.h"

#include <errno.h>

#define PORT 7

static struct fetch fetches[4096];
static unsigned n_fetches;

static void one_is_over(void)
{
    cl_wait_group_done(&all);
}

static void connect_all(void *arg)
{
    static const uint32_t where[] = {IP_B, IP_A, 0x7f000001u}; /* the other one, and itself by two names */
    struct cl_runtime *rt = arg;
    CHECK_EQ(cl_runtime_connect_tcp(rt, 0x08080808, PORT, &fetch_events, NULL), -EHOSTUNREACH);
    for (unsigned i = 0; i < n_fetches; i++)
        CHECK_EQ(cl_runtime_connect_tcp(rt, where[i % 3], PORT, &fetch_events, &fetches[i]), 0);
}

static uint64_t held(struct cl_runtime *rt)
{
    struct cl_chunk_stats send, receive;
    CHECK_EQ(cl_runtime_chunk_stats(rt, CL_CHUNKS_TCP_SEND, &send), 0);
    CHECK_EQ(cl_runtime_chunk_stats(rt, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
    return send.held_bytes + receive.held_bytes;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    unsigned kthreads = (unsigned)atoi(argv[1]);
    n_fetches = (unsigned)atoi(argv[2]);
    pair_new(kthreads, kthreads, 0);
    CHECK_EQ(cl_runtime_connect_tcp(rt_a, IP_B, PORT, &fetch_events, NULL), -EPERM);
    for (unsigned r = 0; r < 2; r++) {
        struct cl_runtime *rt = r ? rt_b : rt_a;
        CHECK_EQ(cl_runtime_listen_tcp(rt, PORT, 4096, &echo_events, NULL), 0);
        CHECK_EQ(cl_runtime_listen_tcp(rt, PORT, 4096, &echo_events, NULL), -EADDRINUSE);
        CHECK_EQ(cl_runtime_listen_tcp(rt, 0, 1, &echo_events, NULL), -EINVAL);
    }
    for (unsigned i = 0; i < n_fetches; i++)
        fetches[i] = (struct fetch){.number = i, .bytes = strtoull(argv[3], NULL, 0)};
    fetched_fn = one_is_over;
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    /* Else all but a few segments wait for the time-out of the first. */
    CHECK_EQ(cl_runtime_add_neighbour(rt_a, IP_B, macs[1]), 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_b, IP_A, macs[0]), 0);
    pair_start();
    cl_wait_group_add(&all, n_fetches);
    CHECK_EQ(cl_runtime_spawn(rt_a, connect_all, rt_a), 0);
    pair_wait();
    for (unsigned i = 0; i < n_fetches; i++) {
        const struct fetch *f = &fetches[i];
        CHECK(f->opened && f->eof && f->error == 0, "connection %u: error %d", i, f->error);
        CHECK_EQ(f->read, f->bytes);
    }
    pair_stop();
    CHECK_EQ(echo_errors, 0);
    for (unsigned r = 0; r < 2; r++) {
        struct cl_runtime *rt = r ? rt_b : rt_a;
        struct cl_net_stats s;
        uint64_t dropped = 0;
        cl_runtime_net_stats(rt, -1, &s);
        for (unsigned i = 1; i < CL_DROP_REASONS; i++)
            dropped += s.dropped[i];
        CHECK_EQ(s.rx_frames, s.delivered + s.answered + dropped);
        CHECK_EQ(s.delivered, s.tcp_segments + s.learned);
        CHECK_EQ(held(rt), 0);
    }
    struct cl_tcp_counts a, b;
    cl_runtime_tcp_counts(rt_a, &a);
    cl_runtime_tcp_counts(rt_b, &b);
    CHECK_EQ(a.opened, n_fetches);
    CHECK_EQ(a.accepted + b.accepted, n_fetches);
    CHECK_EQ(a.bytes_in + b.bytes_in, 2 * n_fetches * fetches[0].bytes);
    pair_delete();
    printf("ok\n");
    return 0;
}
