/* What a handler waits for, by virtual time, and what is written down of it: its request's byte says for what. Usage:
 * kinds FILE. Writes all records of the server to FILE. */
#include "hosts.h"

#include <corelane/libos/poll.h>
#include <corelane/libos/probe.h>
#include "libos/storage/io.h"

#define PORT 9001
#define THINKER 9002
#define STREAM_PORT 7000
#define WRITE_NS 50000
#define THINKS_NS 30000
#define QUANTUM_US 20

static struct cl_blk *disk;
static struct cl_storage *storage;
static struct cl_stream *listens;
static struct cl_udp_socket *asks;
static struct cl_poll *set;

static int64_t thinks(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)request, (void)len, (void)room, (void)arg;
    cl_uthread_sleep_ns(THINKS_NS);
    reply[0] = 1;
    return 1;
}

static void runs(void *arg)
{
    (void)arg;
    now_ns += THINKS_NS;
}

static void writes_to_disk(void)
{
    static uint8_t block[4096] CL_ALIGNED(4096);
    CHECK_EQ(cl_storage_write(storage, 0, block, sizeof block, 0), 0);
}

static void polls(void)
{
    struct cl_udp_addr to = {.ipv4 = IP_CLIENT, .port = THINKER};
    struct cl_poll_event e;
    CHECK_EQ(cl_udp_sendto(asks, "x", 1, &to), 1);
    CHECK_EQ(cl_poll_wait(set, &e, 1, -1), 1);
}

static void accepts(void)
{
    struct cl_stream *s;
    CHECK_EQ(cl_stream_accept(listens, -1, &s), 0);
    CHECK_EQ(cl_stream_close(s, 0), 0);
}

/* For a quantum, while another uthread is ready. */
static void computes(void)
{
    CHECK_EQ(cl_uthread_spawn(runs, NULL, NULL), 0);
    now_ns += QUANTUM_US * 1000;
    CL_PROBE();
}

static int64_t waits_for(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)room, (void)arg;
    reply[0] = request[0];
    switch (request[0]) {
    case 'd':
        writes_to_disk();
        break;
    case 'p':
        polls();
        break;
    case 'a':
        accepts();
        break;
    default:
        computes();
    }
    return 1;
}

static void ask_each(void *arg)
{
    struct cl_udp_addr to = {.ipv4 = IP_SERVER, .port = PORT};
    struct cl_tcp_addr stream = {.ipv4 = IP_SERVER, .port = STREAM_PORT};
    struct cl_stream *s;
    char answer;
    for (const char *what = "dpaq"; *what; what++) {
        CHECK_EQ(cl_udp_sendto(arg, what, 1, &to), 1);
        if (*what == 'a') {
            cl_uthread_sleep_ns(THINKS_NS);
            CHECK_EQ(cl_stream_connect(client, NULL, &stream, -1, &s), 0);
            CHECK_EQ(cl_stream_close(s, 0), 0);
        }
        CHECK_EQ(cl_udp_recvfrom(arg, &answer, 1, NULL, -1), 1);
        CHECK_EQ(answer, *what);
    }
    over = true;
}

static unsigned nothing(void *arg)
{
    (void)arg;
    return 0;
}

static uint64_t disk_next_ns(void *arg)
{
    (void)arg;
    return disk->ops->next_ns(disk, 0);
}

static void make_storage(void)
{
    static const struct cl_stepped part = {.step = nothing, .next_ns = disk_next_ns};
    char err[256] = "";
    disk = bad_disk(memory_disk(1 << 20),
                    (struct cl_blk_fault_config){.latency_min_ns = WRITE_NS, .latency_max_ns = WRITE_NS});
    CHECK(cl_storage_new(server->sched, disk, &storage, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add(stepper, &part), 0);
    CHECK_EQ(cl_runtime_bind_udp(client, THINKER, thinks, NULL), 0);
    CHECK_EQ(cl_udp_open(server, 0, 64, &asks), 0);
    CHECK_EQ(cl_poll_new(server, &set), 0);
    CHECK_EQ(cl_poll_add(set, asks, CL_POLL_LEVEL, 0), 0);
}

int main(int argc, char **argv)
{
    struct cl_udp_socket *sock;
    CHECK(argc == 2);
    make_hosts(CL_RUNTIME_TRACE_FULL, QUANTUM_US);
    make_storage();
    CHECK_EQ(cl_udp_open(client, 0, 64, &sock), 0);
    CHECK_EQ(cl_runtime_bind_udp(server, PORT, waits_for, NULL), 0);
    CHECK_EQ(cl_stream_listen(server, STREAM_PORT, 8, &listens), 0);
    CHECK_EQ(cl_runtime_spawn(client, ask_each, sock), 0);
    run_to_the_end(argv[1]);
    stop_hosts();
    CHECK_EQ(cl_poll_remove(set, asks), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
    cl_storage_delete(storage);
    cl_blk_close(disk);
    delete_hosts();
    return 0;
}
