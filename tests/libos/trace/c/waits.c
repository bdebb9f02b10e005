/* What requests and connections wait for on a log and on the network, by virtual time, and what is written down of it.
 *
 * Usage: waits WHAT FILE, where WHAT is log, appends, sampled, streams or stalls. Writes all records of the server to
 * FILE, and prints what the client has measured itself, in ns. */
#include "hosts.h"

#include <corelane/libos/log_shared.h>

#include <inttypes.h>

#define PORT 9001
#define STREAM_PORT 7000
#define APPENDS 300
#define SLOW_ONE_IN 15
#define SLOWER 10      /* times */
#define WRITE_NS 50000 /* of the log's device */
#define THINKS_NS 30000
#define WRITTEN (4 << 20)
#define STAYS_AWAY_NS 5000000
#define ROUNDS 40

static struct cl_log_shared shared;
static struct cl_blk *disk;

static void rates(double received, double sent)
{
    struct cl_fault_rates both[2] = {[CL_FAULT_RX].loss = received, [CL_FAULT_TX].loss = sent};
    char err[256] = "";
    CHECK(cl_fault_nic_set(ends[1], both, err) == 0, "%s", err);
}

static void ask(struct cl_udp_socket *s)
{
    struct cl_udp_addr to = {.ipv4 = IP_SERVER, .port = PORT};
    CHECK_EQ(cl_udp_sendto(s, "x", 1, &to), 1);
}

static void hear(struct cl_udp_socket *s)
{
    char byte;
    CHECK_EQ(cl_udp_recvfrom(s, &byte, 1, NULL, -1), 1);
}

/* The log: one request alone; then two, of which the second comes while the first one's flush is in flight; and one of
 * which nothing is written down. */

static int64_t append(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room, (void)arg;
    CHECK_EQ(cl_log_append_wait(&shared, request, (uint32_t)len, 0, NULL), 0);
    reply[0] = 1;
    return 1;
}

static void ask_log(void *arg)
{
    struct cl_udp_socket *s = arg;
    ask(s); /* it is resolved by then */
    hear(s);
    cl_uthread_sleep_ns(1000000);
    ask(s);
    hear(s);
    cl_uthread_sleep_ns(1000000);
    ask(s);
    cl_uthread_sleep_ns(10000);
    ask(s);
    hear(s);
    hear(s);
    CHECK_EQ(cl_runtime_trace(server, CL_RUNTIME_TRACE_OFF), CL_RUNTIME_TRACE_FULL);
    cl_uthread_sleep_ns(2000000);
    ask(s);
    hear(s);
    over = true;
}

/* Appends of no request: three of which the last is waited for, then one at a time, some of which the device is slow
 * with. */

static void write_takes(uint64_t ns)
{
    struct cl_blk_fault_config c = {.latency_min_ns = ns, .latency_max_ns = ns};
    char err[256] = "";
    CHECK(cl_blk_fault_set(disk, &c, err) == 0, "%s", err);
}

static void append_alone(void *arg)
{
    struct cl_log_future three[3];
    (void)arg;
    for (unsigned i = 0; i < 3; i++) {
        three[i] = (struct cl_log_future){.op = {.data = "x", .bytes = 1}};
        CHECK_EQ(cl_log_begin(&shared, &three[i]), 0);
        cl_uthread_sleep_ns(1000);
    }
    CHECK_EQ(cl_log_future_wait(&three[2]), 0);
    CHECK(three[0].op.result == 0 && three[1].op.result == 0);
    for (unsigned i = 1; i <= APPENDS; i++) {
        write_takes(i % SLOW_ONE_IN ? WRITE_NS : SLOWER * WRITE_NS);
        CHECK_EQ(cl_log_append_wait(&shared, "x", 1, 0, NULL), 0);
    }
    over = true;
}

static unsigned nothing(void *arg)
{
    (void)arg;
    return 0;
}

static uint64_t log_next_ns(void *arg)
{
    (void)arg;
    return cl_log_next_ns(shared.log);
}

/* Streams: the handler asks another server, which thinks for a while. */

static int64_t asks_other(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct cl_tcp_addr to = {.ipv4 = IP_CLIENT, .port = STREAM_PORT};
    struct cl_stream *s;
    (void)len, (void)room, (void)arg;
    CHECK_EQ(cl_stream_connect(server, NULL, &to, -1, &s), 0);
    CHECK_EQ(cl_stream_write(s, request, 1, -1), 1);
    CHECK_EQ(cl_stream_read(s, reply, 1, -1), 1);
    CHECK_EQ(cl_stream_close(s, 0), 0);
    return 1;
}

static void other(void *arg)
{
    struct cl_stream *listener = arg, *s;
    char byte;
    while (!over && cl_stream_accept(listener, -1, &s) == 0) {
        CHECK_EQ(cl_stream_read(s, &byte, 1, -1), 1);
        cl_uthread_sleep_ns(THINKS_NS);
        CHECK_EQ(cl_stream_write(s, &byte, 1, -1), 1);
        CHECK_EQ(cl_stream_read(s, &byte, 1, -1), 0);
        cl_stream_close(s, 0);
    }
}

static void ask_twice(void *arg)
{
    for (unsigned i = 0; i < 2; i++) {
        ask(arg);
        hear(arg);
    }
    over = true;
}

/* Stalls: the server's answer is lost; the client's request is lost, and what it sends behind it is not; the client
 * reads nothing for a while. */

static void serve_stream(void *arg)
{
    static char many[WRITTEN];
    struct cl_stream *s;
    char byte;
    CHECK_EQ(cl_stream_accept(arg, -1, &s), 0);
    CHECK_EQ(cl_stream_set(s, CL_STREAM_NO_DELAY, 1), 0);
    while (cl_stream_read(s, &byte, 1, -1) == 1)
        CHECK(byte == 'm' ? cl_stream_write(s, many, WRITTEN, -1) == WRITTEN : cl_stream_write(s, &byte, 1, -1) == 1);
    cl_stream_close(s, 0);
}

static void echo_once(struct cl_stream *s)
{
    char byte = 'x';
    CHECK_EQ(cl_stream_write(s, &byte, 1, -1), 1);
    CHECK_EQ(cl_stream_read(s, &byte, 1, -1), 1);
}

static void stall(void *arg)
{
    struct cl_tcp_addr to = {.ipv4 = IP_SERVER, .port = STREAM_PORT};
    static char many[65536];
    struct cl_stream *s;
    int64_t left, n;
    (void)arg;
    CHECK_EQ(cl_stream_connect(client, NULL, &to, -1, &s), 0);
    CHECK_EQ(cl_stream_set(s, CL_STREAM_NO_DELAY, 1), 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        echo_once(s);
    uint64_t from = now_ns;
    rates(0, 1);
    CHECK_EQ(cl_stream_write(s, "x", 1, -1), 1);
    cl_uthread_sleep_ns(PATH_NS + 5000);
    rates(0, 0);
    CHECK_EQ(cl_stream_read(s, many, 1, -1), 1);
    printf("%" PRIu64 "\n", now_ns - from);
    cl_uthread_sleep_ns(10000000);
    rates(1, 0);
    CHECK_EQ(cl_stream_write(s, "x", 1, -1), 1);
    cl_uthread_sleep_ns(PATH_NS + 5000);
    rates(0, 0);
    from = now_ns;
    CHECK_EQ(cl_stream_write(s, "x", 1, -1), 1);
    for (left = 2; left; left -= n)
        CHECK((n = cl_stream_read(s, many, left, -1)) > 0);
    printf("%" PRIu64 "\n", now_ns - from);
    cl_uthread_sleep_ns(10000000);
    CHECK_EQ(cl_stream_write(s, "m", 1, -1), 1);
    cl_uthread_sleep_ns(STAYS_AWAY_NS);
    for (left = WRITTEN; left; left -= n)
        CHECK((n = cl_stream_read(s, many, cl_min(left, (int64_t)sizeof many), -1)) > 0);
    cl_stream_close(s, 0);
    over = true;
}

static void make_log(void)
{
    char err[256] = "";
    struct cl_blk_fault_config slow = {.latency_min_ns = WRITE_NS, .latency_max_ns = WRITE_NS};
    static const struct cl_stepped part = {.step = nothing, .next_ns = log_next_ns};
    struct cl_log_layout layout = {.flush_bytes = 65536};
    struct cl_blk *memory = memory_disk(16 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    disk = bad_disk(memory, slow);
    struct cl_log *log =
        open_log(&(struct cl_log_config){.blk = disk, .in_flight = 1, .confirm_ns = UINT64_MAX}, 0, NULL);
    CHECK(cl_log_share(&shared, log, server->sched, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add(stepper, &part), 0);
}

int main(int argc, char **argv)
{
    struct cl_udp_socket *sock;
    struct cl_stream *listener;
    CHECK(argc == 3);
    bool sampled = !strcmp(argv[1], "sampled"), alone = sampled || !strcmp(argv[1], "appends");
    bool log = alone || !strcmp(argv[1], "log"), streams = !strcmp(argv[1], "streams");
    make_hosts(sampled ? CL_RUNTIME_TRACE_SAMPLED : CL_RUNTIME_TRACE_FULL, 0);
    CHECK_EQ(cl_udp_open(client, 0, 64, &sock), 0);
    if (log)
        make_log();
    CHECK_EQ(cl_runtime_bind_udp(server, PORT, log ? append : asks_other, NULL), 0);
    CHECK_EQ(cl_stream_listen(streams ? client : server, STREAM_PORT, 8, &listener), 0);
    if (streams)
        CHECK_EQ(cl_runtime_spawn(client, other, listener), 0);
    else if (!log)
        CHECK_EQ(cl_runtime_spawn(server, serve_stream, listener), 0);
    CHECK_EQ(alone ? cl_runtime_spawn(server, append_alone, NULL)
                   : cl_runtime_spawn(client,
                                      log       ? ask_log
                                      : streams ? ask_twice
                                                : stall,
                                      sock),
             0);
    run_to_the_end(argv[2]);
    struct cl_tcp_counts counts;
    cl_runtime_tcp_counts(server, &counts);
    printf("%" PRIu64 "\n", counts.resent);
    stop_hosts();
    if (log) {
        cl_log_unshare(&shared);
        CHECK_EQ(close_log(shared.log), 0);
        cl_blk_close(disk);
    }
    delete_hosts();
    return 0;
}
