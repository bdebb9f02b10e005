/* Requests that one runner handles one after another are told apart by the word that says what runs
 * (cl_signals.switches): a quantum that is over is that of one request, not of those before it, and what is meant for
 * one preempts no other.
 *
 * The first request holds the kthread until all others wait, so that one runner handles them in a row.
 *
 * Usage: each_request TYPED. Prints "ok". */
#include "tests/libos/net/c/pair.h"

#include "runtime/shm.h"
#include <corelane/runtime/cores.h>

#include <unistd.h>

#define REQUESTS 16

static struct cl_signals signals;
static uint64_t preempt;
static uint32_t seen[REQUESTS], n_seen, sent;

static bool never(struct cl_cores *c)
{
    (void)c;
    return false;
}

static bool no(struct cl_cores *c, unsigned k)
{
    (void)c, (void)k;
    return false;
}

static void nothing(struct cl_cores *c, unsigned k)
{
    (void)c, (void)k;
}

static void no_help(struct cl_cores *c)
{
    (void)c;
}

static struct cl_signals *signals_of(struct cl_cores *c, unsigned k)
{
    (void)c, (void)k;
    return &signals;
}

static int threads(struct cl_cores *c, const int32_t *tids, unsigned n, int signal, char text[256])
{
    (void)c, (void)tids, (void)n, (void)signal, (void)text;
    return 0;
}

/* Of an iokernel that is away, and whose words are still read. */
static const struct cl_cores_ops ops = {.managed = never,
                                        .lost = no,
                                        .wanted = no,
                                        .cede = nothing,
                                        .park_begin = no,
                                        .park_cancel = nothing,
                                        .help = no_help,
                                        .signals = signals_of,
                                        .threads = threads,
                                        .quantum_over = no,
                                        .signalled = nothing,
                                        .release = no_help};
static struct cl_cores cores = {.ops = &ops, .preempt = &preempt};

static int64_t handle(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)request, (void)reply, (void)room, (void)arg;
    CHECK(n_seen < REQUESTS && len == 8);
    seen[n_seen] = cl_load_relaxed(&signals.switches);
    cl_store_release(&n_seen, n_seen + 1);
    while (cl_load_acquire(&sent) < REQUESTS)
        cl_relax();
    return 0;
}

static int64_t classify(const uint8_t *request, int64_t len, void *arg)
{
    (void)len, (void)arg;
    return request[0] & 1;
}

static void send_all(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9000, 0};
    uint8_t data[8] = {0};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
    while (!cl_load_acquire(&n_seen))
        cl_uthread_sleep_ns(MS / 10);
    for (unsigned i = 1; i < REQUESTS; i++) {
        data[0] = (uint8_t)i;
        CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
    }
    cl_uthread_yield(); /* they leave */
    cl_store_release(&sent, REQUESTS);
    while (cl_load_acquire(&n_seen) < REQUESTS)
        cl_uthread_sleep_ns(MS / 10);
    CHECK(cl_udp_close(s) == 0);
}

int main(int argc, char **argv)
{
    struct cl_memory_config link = {.queues = {1, 1}, .ipv4 = {IP_A, IP_B}, .ipv4_prefix = 16};
    struct cl_udp_types types = {.n = 2, .target_us = {10, 10}, .classify = classify};
    struct cl_sched_stats st;
    alarm(60);
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    buffers = cl_nic_buffers_free(ends[0]) + cl_nic_buffers_free(ends[1]);
    ends[1]->cores = &cores;
    rt_a = pair_end(0, 1, 0);
    rt_b = pair_end(1, 1, 0);
    if (argc > 1 && atoi(argv[1]))
        CHECK(cl_runtime_bind_udp_typed(rt_b, 9000, handle, NULL, &types, err) == 0);
    else
        CHECK(cl_runtime_bind_udp(rt_b, 9000, handle, NULL) == 0);
    pair_start();
    CHECK(cl_sched_run(cl_runtime_sched(rt_a), send_all, NULL) == 0);
    pair_stop();
    CHECK_EQ(cl_sched_stats(cl_runtime_sched(rt_b), 0, &st), 0);
    for (unsigned i = 1; i < REQUESTS; i++)
        CHECK(seen[i] != seen[i - 1]);
    CHECK(st.switches < REQUESTS); /* else each had a runner of its own, and nothing was tested */
    pair_delete();
    printf("ok\n");
    return 0;
}
