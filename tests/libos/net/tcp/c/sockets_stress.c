/* Stream sockets under stress: many uthreads on several kthreads that steal, each waiting for an answer to what it
 * sent, so that a wake-up or a visit that is lost hangs; several uthreads in one socket; short time-outs; connections
 * whose home changes; sockets that are closed under readers. argv: kthreads, clients, connections of each, seed. Prints
 * "ok". */
#include "tests/libos/net/c/pair.h"

#include <errno.h>
#include <string.h>

#define PORT 7
#define WAIT (60000 * MS)
#define MOST 20000

static unsigned rounds, kthreads;
static uint64_t seed, served, opened;
static struct cl_stream *listener[2];

static uint8_t pattern(uint64_t number, uint64_t at)
{
    return (uint8_t)(number * 31 + at * 7 + (at >> 9));
}

/* Another home, or none, now and then. */
static void move(struct cl_stream *s, uint64_t *state)
{
    if (next_random(state) % 8)
        return;
    int rc = cl_stream_set_home(s, (int)(next_random(state) % (kthreads + 1)) - 1);
    CHECK(rc == 0 || rc == -ENOTCONN, "%d", rc);
}

/* The server: sends back what comes, until the end or a reset, or until all stops: nobody waits for the last FIN of who
 * has closed, and a reset that found no buffer does not come again. */
static void serve(void *arg)
{
    struct cl_stream *s = arg;
    uint64_t state = seed + (uintptr_t)s;
    char data[3000];
    int64_t n;
    while ((n = cl_stream_read(s, data, sizeof data, WAIT)) > 0) {
        move(s, &state);
        int64_t wrote = cl_stream_write(s, data, n, WAIT);
        int error = wrote < n ? cl_stream_error(s) : 0; /* 0: sockets are shut first when all stops */
        CHECK(wrote <= n && (error == 0 || error == -ECONNRESET || error == -ESHUTDOWN), "wrote %lld, error %d",
              (long long)wrote, error);
        if (wrote < n)
            break;
    }
    CHECK(n >= 0 || n == -ECONNRESET || n == -ESHUTDOWN, "read %lld", (long long)n);
    CHECK_EQ(cl_stream_close(s, 0), 0);
    __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
}

static void acceptor(void *arg)
{
    struct cl_stream *s;
    int rc;
    while ((rc = cl_stream_accept(arg, -1, &s)) == 0)
        CHECK_EQ(cl_uthread_spawn(serve, s, NULL), 0);
    CHECK_EQ(rc, -EBADF);
    cl_wait_group_done(&all);
}

/* What a client writes while it reads. */
struct sending {
    struct cl_stream *s;
    uint64_t number, bytes, state;
    struct cl_wait_group over;
};

static void send_all(void *arg)
{
    struct sending *w = arg;
    uint8_t data[2000];
    for (uint64_t at = 0; at < w->bytes;) {
        uint64_t n = 1 + next_random(&w->state) % sizeof data;
        n = cl_min(n, w->bytes - at);
        for (uint64_t i = 0; i < n; i++)
            data[i] = pattern(w->number, at + i);
        struct cl_iovec half[2] = {{data, (int64_t)(n / 2)}, {data + n / 2, (int64_t)(n - n / 2)}};
        CHECK_EQ(cl_stream_writev(w->s, half, 2, WAIT), (int64_t)n);
        at += n;
    }
    cl_wait_group_done(&w->over);
}

/* Read with time-outs that are mostly too short. */
static int64_t read_some(struct cl_stream *s, void *data, int64_t room, uint64_t *state)
{
    for (;;) {
        int64_t wait = next_random(state) % 3 ? WAIT : (int64_t)(next_random(state) % 50000);
        int64_t n = cl_stream_read(s, data, room, wait);
        if (n != -ETIMEDOUT && n != -EAGAIN)
            return n;
        CHECK(wait != WAIT, "waited in vain");
    }
}

static void exchange(struct cl_stream *s, uint64_t number, uint64_t bytes, uint64_t *state)
{
    struct sending w = {.s = s, .number = number, .bytes = bytes, .state = next_random(state)};
    uint8_t data[1500];
    cl_wait_group_add(&w.over, 1);
    if (next_random(state) % 2)
        CHECK_EQ(cl_uthread_spawn(send_all, &w, NULL), 0);
    else
        send_all(&w);
    for (uint64_t at = 0; at < bytes;) {
        int64_t n = read_some(s, data, 1 + (int64_t)(next_random(state) % sizeof data), state);
        CHECK(n > 0, "read %lld", (long long)n);
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ(data[i], pattern(number, at + (uint64_t)i));
        at += (uint64_t)n;
    }
    cl_wait_group_wait(&w.over);
}

static void finish(struct cl_stream *s, uint64_t how)
{
    char data;
    switch (how) {
    case 0:
        CHECK_EQ(cl_stream_close(s, 0), 0);
        return;
    case 1:
        CHECK_EQ(cl_stream_shutdown(s, CL_STREAM_WRITE), 0);
        CHECK_EQ(cl_stream_read(s, &data, 1, WAIT), 0);
        CHECK_EQ(cl_stream_close(s, 0), 0);
        return;
    case 2:
        CHECK_EQ(cl_stream_close(s, WAIT), 0);
        return;
    default:
        CHECK_EQ(cl_stream_abort(s), 0);
    }
}

static void client(void *arg)
{
    uint64_t number = (uintptr_t)arg, state = seed + number;
    for (unsigned i = 0; i < rounds; i++) {
        struct cl_tcp_addr to = {next_random(&state) % 2 ? IP_B : IP_A, PORT, 0};
        struct cl_stream *s;
        CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), 0);
        __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
        for (uint64_t n = next_random(&state) % 4; n--;)
            exchange(s, number, 1 + next_random(&state) % (next_random(&state) % 4 ? 200 : MOST), &state);
        finish(s, next_random(&state) % 4);
    }
    cl_wait_group_done(&all);
}

/* Several readers in one socket: each byte goes to one of them, and all hear of the end. */
static struct cl_stream *crowd[2];
static uint64_t crowd_read;

static void crowd_reader(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg;
    char data[7];
    int64_t n;
    while ((n = read_some(crowd[0], data, 1 + (int64_t)(next_random(&state) % 7), &state)) > 0)
        __atomic_fetch_add(&crowd_read, (uint64_t)n, __ATOMIC_RELAXED);
    CHECK_EQ(n, 0);
    cl_wait_group_done(&all);
}

static void crowd_writer(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg;
    for (unsigned i = 0; i < 50 * rounds; i++) {
        CHECK_EQ(cl_stream_write(crowd[1], "0123456789", 10, WAIT), 10);
        if (next_random(&state) % 8 == 0)
            cl_uthread_sleep_ns(next_random(&state) % 20000);
    }
    CHECK_EQ(cl_stream_shutdown(crowd[1], CL_STREAM_WRITE), 0);
    cl_wait_group_done(&all);
}

/* A socket that is closed under one that reads in vain, or writes more than fits. */
static struct cl_stream *victim;
static uint32_t begun;
static struct cl_wait_group victims;

static void victim_reader(void *arg)
{
    char data;
    (void)arg;
    cl_store_release(&begun, 1);
    CHECK_EQ(cl_stream_read(victim, &data, 1, WAIT), -EBADF);
    cl_wait_group_done(&victims);
}

static void victim_writer(void *arg)
{
    static const char data[8 << 20];
    (void)arg;
    cl_store_release(&begun, 1);
    int64_t n = cl_stream_write(victim, data, sizeof data, WAIT);
    CHECK(n == -EBADF || (n > 0 && n < (int64_t)sizeof data), "wrote %lld", (long long)n);
    cl_wait_group_done(&victims);
}

static void closer(void *arg)
{
    uint64_t state = seed;
    (void)arg;
    for (unsigned i = 0; i < rounds; i++) {
        struct cl_tcp_addr to = {IP_B, PORT, 0};
        CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &victim), 0);
        __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
        cl_wait_group_add(&victims, 1);
        cl_store_relaxed(&begun, 0);
        CHECK_EQ(cl_uthread_spawn(i % 3 ? victim_reader : victim_writer, NULL, NULL), 0);
        do /* it is inside of its call by then: nobody may begin one once the socket is closed */
            cl_uthread_sleep_ns(MS + (int64_t)(next_random(&state) % 100000));
        while (!cl_load_acquire(&begun));
        CHECK_EQ(i % 2 ? cl_stream_abort(victim) : cl_stream_close(victim, 0), 0);
        cl_wait_group_wait(&victims);
    }
    cl_wait_group_done(&all);
}

static void clients_over(void *arg)
{
    (void)arg;
    cl_wait_group_wait(&all);
}

static void close_listener(void *arg)
{
    CHECK_EQ(cl_stream_close(arg, 0), 0);
}

static void start_crowd(void *arg)
{
    struct cl_tcp_addr to = {IP_A, PORT + 1, 0};
    struct cl_stream *l;
    (void)arg;
    CHECK_EQ(cl_stream_listen(rt_a, PORT + 1, 1, &l), 0);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &crowd[1]), 0);
    CHECK_EQ(cl_stream_accept(l, WAIT, &crowd[0]), 0);
    CHECK_EQ(cl_stream_close(l, 0), 0);
    for (uintptr_t i = 0; i < 3; i++)
        CHECK_EQ(cl_uthread_spawn(crowd_reader, (void *)i, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(crowd_writer, NULL, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(closer, NULL, NULL), 0);
}

static void close_crowd(void *arg)
{
    (void)arg;
    CHECK_EQ(crowd_read, 500ull * rounds);
    CHECK_EQ(cl_stream_close(crowd[0], 0), 0);
    CHECK_EQ(cl_stream_close(crowd[1], 0), 0);
}

static struct cl_runtime *runtime(unsigned r)
{
    return r ? rt_b : rt_a;
}

int main(int argc, char **argv)
{
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    CHECK(argc == 5);
    kthreads = (unsigned)atoi(argv[1]);
    unsigned clients = (unsigned)atoi(argv[2]);
    rounds = (unsigned)atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 0);
    pair_new(kthreads, kthreads, 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_a, IP_B, macs[1]), 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_b, IP_A, macs[0]), 0);
    pair_start();
    for (unsigned r = 0; r < 2; r++)
        CHECK_EQ(cl_stream_listen(runtime(r), PORT, 4096, &listener[r]), 0);
    cl_wait_group_add(&all, clients + 5);
    for (unsigned i = 0; i < 4; i++) /* they wait until the listeners go */
        CHECK_EQ(cl_runtime_spawn(runtime(i % 2), acceptor, listener[i % 2]), 0);
    CHECK_EQ(cl_runtime_spawn(rt_a, start_crowd, NULL), 0);
    for (uintptr_t i = 0; i < clients; i++)
        CHECK_EQ(cl_runtime_spawn(rt_a, client, (void *)(i + 1)), 0);
    CHECK_EQ(cl_sched_run(cl_runtime_sched(rt_a), clients_over, NULL), 0);
    cl_wait_group_add(&all, 4);
    CHECK_EQ(cl_sched_run(cl_runtime_sched(rt_a), close_crowd, NULL), 0);
    for (unsigned r = 0; r < 2; r++)
        CHECK_EQ(cl_sched_run(cl_runtime_sched(runtime(r)), close_listener, listener[r]), 0);
    pair_wait();
    pair_stop(); /* no uthread is left: those that serve have ended, too */
    CHECK(served <= opened);
    struct cl_net_stats stats[2];
    for (unsigned r = 0; r < 2; r++) {
        struct cl_chunk_stats send, receive;
        CHECK_EQ(cl_runtime_net_stats(runtime(r), -1, &stats[r]), 0);
        CHECK_EQ(cl_runtime_chunk_stats(runtime(r), CL_CHUNKS_TCP_SEND, &send), 0);
        CHECK_EQ(cl_runtime_chunk_stats(runtime(r), CL_CHUNKS_TCP_RECEIVE, &receive), 0);
        CHECK_EQ(send.held_bytes + receive.held_bytes, 0);
    }
    CHECK_EQ(stats[0].flows_sent_home + stats[1].flows_sent_home > 0, kthreads > 1);
    pair_delete();
    printf("ok\n");
    return 0;
}
