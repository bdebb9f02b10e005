/* What requests and connections wait for on a log and on the network, by virtual time, and what is written down of it.
 *
 * Usage: waits WHAT FILE, where WHAT is log, streams or stalls. Writes all records of the server to FILE, and prints
 * what the client has measured itself, in ns. */
#include "tests/libos/storage/log/c/support.h"

#include <corelane/drivers/memory.h>
#include "drivers/nic/fault.h"
#include "drivers/nic/link/link.h"
#include <corelane/libos/libos.h>
#include <corelane/libos/log_shared.h>
#include <corelane/libos/stepper.h>
#include <corelane/libos/stream.h>
#include <corelane/libos/uthread.h>
#include "libos/internal.h"

#include <inttypes.h>

#define IP_CLIENT 0x0a4d0001u
#define IP_SERVER 0x0a4d0002u
#define PORT 9001
#define STREAM_PORT 7000
#define WRITE_NS 50000 /* of the log's device */
#define PATH_NS 10000  /* of the link, one way */
#define THINKS_NS 30000
#define WRITTEN (4 << 20)
#define STAYS_AWAY_NS 5000000
#define ROUNDS 40

static struct cl_stepper *stepper;
static struct cl_runtime *client, *server;
static struct cl_nic *ends[2];
static struct cl_log_shared shared;
static bool over;

static struct cl_runtime *host(unsigned end, uint32_t ipv4, uint32_t trace)
{
    struct cl_runtime_config c = {
        .nic = ends[end], .ipv4 = ipv4, .ipv4_prefix = 24, .name = "waits", .trace = trace, .trace_records = 65536};
    struct cl_runtime *rt;
    char err[256] = "";
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    return rt;
}

static void dump(const char *path)
{
    static uint8_t records[65536 * CL_TRACE_RECORD];
    const struct cl_tracer *t = cl_trace_tracer(server->trace, 0);
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(65536, 0);
    uint64_t next = 0, lost = 0, garbage = 0;
    uint32_t n = cl_trace_read(segment, (uint64_t)cl_trace_bytes(1, 65536), 0, &next, records, 65536, &lost, &garbage);
    CHECK(lost == 0 && garbage == 0);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(records, CL_TRACE_RECORD, n, f) == n && fclose(f) == 0);
}

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

/* The log: one request alone; then two, of which the second comes while the first one's flush is in flight. */

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

static void make_hosts(void)
{
    static struct cl_clock clock;
    struct cl_memory_config m = {.clock = &clock};
    struct cl_link_config path = {.delay_ns = PATH_NS};
    const struct cl_link_config *paths[2] = {&path, &path};
    struct cl_fault_config faults = {.adjustable = 1};
    char err[256] = "";
    now_ns = 1000000000;
    cl_clock_virtual(&clock, &now_ns);
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    CHECK(cl_link_nic_new(ends[0], paths, &ends[0], err) == 0, "%s", err);
    CHECK(cl_fault_nic_new(ends[1], &faults, &ends[1], err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    client = host(0, IP_CLIENT, CL_RUNTIME_TRACE_OFF);
    server = host(1, IP_SERVER, CL_RUNTIME_TRACE_FULL);
}

static struct cl_blk *make_log(void)
{
    char err[256] = "";
    struct cl_blk_fault_config slow = {.latency_min_ns = WRITE_NS, .latency_max_ns = WRITE_NS};
    static const struct cl_stepped part = {.step = nothing, .next_ns = log_next_ns};
    struct cl_log_layout layout = {.flush_bytes = 65536};
    struct cl_blk *memory = memory_disk(16 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    struct cl_blk *disk = bad_disk(memory, slow);
    struct cl_log *log =
        open_log(&(struct cl_log_config){.blk = disk, .in_flight = 1, .confirm_ns = UINT64_MAX}, 0, NULL);
    CHECK(cl_log_share(&shared, log, server->sched, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add(stepper, &part), 0);
    return disk;
}

int main(int argc, char **argv)
{
    char err[256] = "";
    struct cl_udp_socket *sock;
    struct cl_stream *listener;
    struct cl_blk *disk = NULL;
    CHECK(argc == 3);
    bool log = !strcmp(argv[1], "log"), streams = !strcmp(argv[1], "streams");
    make_hosts();
    CHECK_EQ(cl_udp_open(client, 0, 64, &sock), 0);
    if (log)
        disk = make_log();
    CHECK_EQ(cl_runtime_bind_udp(server, PORT, log ? append : asks_other, NULL), 0);
    CHECK_EQ(cl_stream_listen(streams ? client : server, STREAM_PORT, 8, &listener), 0);
    if (streams)
        CHECK_EQ(cl_runtime_spawn(client, other, listener), 0);
    else if (!log)
        CHECK_EQ(cl_runtime_spawn(server, serve_stream, listener), 0);
    CHECK_EQ(cl_runtime_spawn(client, log ? ask_log : streams ? ask_twice : stall, sock), 0);
    for (unsigned i = 0; i < 5000 && !over; i++)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    CHECK(over);
    CHECK(cl_stepper_run(stepper, now_ns + 10000000, err) == 0, "%s", err);
    dump(argv[2]);
    struct cl_tcp_counts counts;
    cl_runtime_tcp_counts(server, &counts);
    printf("%" PRIu64 "\n", counts.resent);
    cl_runtime_stop(client, 0);
    cl_runtime_stop(server, 0);
    cl_stepper_delete(stepper);
    if (log) {
        cl_log_unshare(&shared);
        CHECK_EQ(close_log(shared.log), 0);
        cl_blk_close(disk);
    }
    cl_runtime_delete(client);
    cl_runtime_delete(server);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    return 0;
}
