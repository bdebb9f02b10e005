/* A connection that has a home (cl_stream_set_home). One thread turns two adopted kthreads, which steal nothing: what
 * comes by the queue of the one is told of at the home alone, which is woken for it; in order, wherever the home is
 * meanwhile.
 *
 * Usage: homes SEED. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/adopt.h>
#include <corelane/libos/libos.h>

#include "tests/support/c/check.h"

#include <errno.h>
#include <poll.h>

#define IP 0x0a4d0001u
#define PORT 7
#define PIECES 400
#define PIECE_MOST 300

static struct cl_nic *ends[2];
static struct cl_runtime *rt;
static struct cl_sched *sched;
static struct cl_stream *listener, *client, *server;
static int told_on;       /* the kthread on which the server's end was told of something last; -1: none */
static uint8_t sent, got; /* the next byte, which counts */

static void on_told(void *arg)
{
    (void)arg;
    told_on = cl_kthread_index();
}

static void settle(unsigned k)
{
    int rc;
    while ((rc = cl_kthread_borrow_turn(sched, k)) > 0)
        ;
    CHECK_EQ(rc, 0);
}

static bool is_called(unsigned k)
{
    struct pollfd p = {cl_kthread_fd(sched, k), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

static uint64_t sent_home(void)
{
    struct cl_net_stats stats;
    CHECK_EQ(cl_runtime_net_stats(rt, -1, &stats), 0);
    return stats.flows_sent_home;
}

static void connect_now(void *arg)
{
    struct cl_tcp_addr to = {IP, PORT, 0};
    (void)arg;
    CHECK_EQ(cl_stream_connect(rt, NULL, &to, 0, &client), -EINPROGRESS);
}

static void accept_now(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_stream_accept(listener, 0, &server), 0);
    CHECK_EQ(cl_stream_set(client, CL_STREAM_NO_DELAY, 1), 0);
    cl_stream_watch(server, on_told, NULL);
}

struct piece {
    int64_t len, wrote;
};

static void write_now(void *arg)
{
    struct piece *p = arg;
    uint8_t data[PIECE_MOST];
    for (int64_t i = 0; i < p->len; i++)
        data[i] = (uint8_t)(sent + i);
    p->wrote = cl_stream_write(client, data, p->len, 0);
    if (p->wrote == p->len)
        sent += (uint8_t)p->len;
    else /* something is to be done for it on the other kthread */
        CHECK(p->wrote == -EAGAIN || p->wrote == -EDEADLK, "%lld", (long long)p->wrote);
}

/* All that has come, if nothing is to be done for it on the other kthread. */
static void read_now(void *arg)
{
    uint8_t data[PIECE_MOST];
    int64_t n, *sum = arg;
    while ((n = cl_stream_read(server, data, sizeof data, 0)) > 0) {
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ(data[i], got++);
        *sum += n;
    }
    CHECK(n == -EAGAIN || n == -EDEADLK, "%lld", (long long)n);
}

static void close_now(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_stream_close(client, 0), 0);
    CHECK_EQ(cl_stream_close(server, 0), 0);
    CHECK_EQ(cl_stream_close(listener, 0), 0);
}

static void on(unsigned k, void (*fn)(void *arg), void *arg)
{
    CHECK_EQ(cl_kthread_borrow(sched, k, fn, arg), 0);
}

static void settle_both(void)
{
    for (unsigned i = 0; i < 4; i++)
        settle(i % 2);
}

static int64_t write_on(unsigned k, int64_t len)
{
    struct piece p = {len, 0};
    on(k, write_now, &p);
    if (p.wrote < 0) {
        settle_both();
        on(k, write_now, &p);
    }
    CHECK_EQ(p.wrote, len);
    return len;
}

/* One byte, written on kthread 0: on which one the server's end is told of it, while only kthread 0 turns, and when the
 * other one has turned, too. */
static void one(int at_first, int at_last)
{
    int64_t read = 0;
    settle_both();
    told_on = -1;
    write_on(0, 1);
    settle(0);
    CHECK_EQ(told_on, at_first);
    CHECK(at_first == at_last || is_called(1));
    settle_both();
    CHECK_EQ(told_on, at_last);
    on(0, read_now, &read);
    CHECK_EQ(read, 1);
}

static void anywhere(uint64_t seed)
{
    int64_t wrote = 0, read = 0;
    for (unsigned i = 0; i < PIECES; i++) {
        uint64_t random = next_random(&seed);
        if (random >> 16 & 1)
            CHECK_EQ(cl_stream_set_home(server, (int)((random >> 17) % 3) - 1), 0);
        wrote += write_on((unsigned)(random >> 24) & 1, 1 + (int64_t)(random % PIECE_MOST));
        settle((unsigned)(random >> 25) & 1);
        if (random >> 26 & 1)
            on((unsigned)(random >> 27) & 1, read_now, &read);
        if (wrote - read > 20 * PIECE_MOST)
            settle_both(), on(0, read_now, &read);
    }
    settle_both();
    on(1, read_now, &read);
    CHECK_EQ(read, wrote);
}

int main(int argc, char **argv)
{
    struct cl_memory_config link = {.queues = {2, 1}};
    char err[256] = "";
    CHECK(argc == 2);
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    struct cl_runtime_config c = {.nic = ends[0],
                                  .ipv4 = IP,
                                  .ipv4_prefix = 24,
                                  .kthreads = 2,
                                  .adopted = 2,
                                  .poll = CL_SCHED_BLOCK,
                                  .poll_set = 1,
                                  .no_steal = 1};
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_runtime_start(rt, err) == 0, "%s", err);
    sched = cl_runtime_sched(rt);
    CHECK_EQ(cl_stream_listen(rt, PORT, 1, &listener), 0);
    on(0, connect_now, NULL);
    settle_both();
    on(0, accept_now, NULL);
    one(0, 0);
    CHECK_EQ(sent_home(), 0);
    CHECK_EQ(cl_stream_set_home(server, 1), 0);
    one(-1, 1);
    CHECK(sent_home() > 0);
    CHECK_EQ(cl_stream_set_home(server, 0), 0);
    one(0, 0);
    CHECK_EQ(cl_stream_set_home(server, -1), 0);
    one(0, 0);
    CHECK_EQ(cl_stream_set_home(server, 2), -EINVAL);
    CHECK_EQ(cl_stream_set_home(listener, 1), -ENOTCONN);
    anywhere(strtoull(argv[1], NULL, 0) | 1);
    cl_stream_hold(server);
    on(1, close_now, NULL);
    CHECK_EQ(cl_stream_set_home(server, 1), -ENOTCONN);
    cl_stream_let_go(server);
    settle_both();
    CHECK_EQ(cl_runtime_stop(rt, 0), 0);
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
