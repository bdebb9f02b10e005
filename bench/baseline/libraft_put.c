/* A baseline of `corelane bench raft`: one server of a cluster of three made of the C raft library that distributions ship
 * (libraft and libuv; its own disk format, TCP on loopback). The benchmark compiles this file by itself with
 * -DCORELANE_LIBRAFT and links both libraries; in libcorelane it is empty.
 *
 *     libraft_put ID FOLDER FIRST_PORT WARM COUNT BYTES OUTSTANDING
 *
 * Server 1 gets a shorter election timeout and becomes the leader; it then puts WARM + COUNT commands of BYTES bytes, OUTSTANDING
 * at a time, writes the COUNT last latencies as 64-bit nanoseconds to stdout and exits. The others run until they are killed. */
#ifdef CORELANE_LIBRAFT

#include <errno.h>
#include <raft.h>
#include <raft/uv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#define SERVERS 3

struct put {
    struct raft_apply req;
    uint64_t begun_ns;
};

static struct raft raft;
static struct raft_fsm fsm;
static struct raft_io io;
static struct raft_uv_transport transport;
static struct uv_loop_s loop;
static struct uv_timer_s timer;
static unsigned long warm, count, outstanding, begun, done;
static size_t bytes;
static uint64_t *latencies_ns;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "libraft_put: %s: %s\n", what, why);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int apply(struct raft_fsm *f, const struct raft_buffer *buf, void **result)
{
    (void)f;
    *result = buf->base;
    return 0;
}

/* Never called: the threshold below is out of reach. */
static int snapshot(struct raft_fsm *f, struct raft_buffer *bufs[], unsigned *n)
{
    (void)f, (void)bufs, (void)n;
    return RAFT_NOMEM;
}

static int restore(struct raft_fsm *f, struct raft_buffer *buf)
{
    (void)f;
    raft_free(buf->base);
    return 0;
}

static void put_next(struct put *put);

static void put_done(struct raft_apply *req, int status, void *result)
{
    struct put *put = (struct put *)req;
    (void)result;
    if (status)
        die("put", raft_strerror(status));
    if (done >= warm)
        latencies_ns[done - warm] = now_ns() - put->begun_ns;
    if (++done == warm + count) {
        fwrite(latencies_ns, sizeof *latencies_ns, count, stdout);
        fflush(stdout);
        exit(0);
    }
    put_next(put);
}

static void put_next(struct put *put)
{
    if (begun == warm + count)
        return;
    struct raft_buffer buf = {.base = raft_malloc(bytes), .len = bytes};
    memset(buf.base, (int)begun, bytes);
    begun++;
    put->begun_ns = now_ns();
    int rc = raft_apply(&raft, &put->req, &buf, 1, put_done);
    if (rc)
        die("put", raft_errmsg(&raft));
}

/* The leader begins a while after its election, when the others have caught up. */
static void on_timer(struct uv_timer_s *t)
{
    if (raft_state(&raft) != RAFT_LEADER || begun)
        return;
    uv_timer_stop(t);
    struct put *puts = calloc(outstanding, sizeof *puts);
    for (unsigned long i = 0; i < outstanding; i++)
        put_next(&puts[i]);
}

static void configure(unsigned first_port)
{
    struct raft_configuration configuration;
    char address[64];
    raft_configuration_init(&configuration);
    for (unsigned id = 1; id <= SERVERS; id++) {
        snprintf(address, sizeof address, "127.0.0.1:%u", first_port + id);
        if (raft_configuration_add(&configuration, id, address, RAFT_VOTER))
            die("configuration", address);
    }
    int rc = raft_bootstrap(&raft, &configuration);
    if (rc && rc != RAFT_CANTBOOTSTRAP)
        die("bootstrap", raft_errmsg(&raft));
    raft_configuration_close(&configuration);
}

int main(int argc, char **argv)
{
    char address[64];
    if (argc != 8)
        die("usage", "ID FOLDER FIRST_PORT WARM COUNT BYTES OUTSTANDING");
    unsigned id = (unsigned)atoi(argv[1]), first_port = (unsigned)atoi(argv[3]);
    warm = strtoul(argv[4], NULL, 10);
    count = strtoul(argv[5], NULL, 10);
    bytes = (strtoul(argv[6], NULL, 10) + 7) / 8 * 8; /* the library wants whole words */
    outstanding = strtoul(argv[7], NULL, 10);
    latencies_ns = calloc(count ? count : 1, sizeof *latencies_ns);
    snprintf(address, sizeof address, "127.0.0.1:%u", first_port + id);
    uv_loop_init(&loop);
    if (raft_uv_tcp_init(&transport, &loop) || raft_uv_init(&io, &loop, argv[2], &transport))
        die("init", io.errmsg);
    raft_uv_set_connect_retry_delay(&io, 50);
    fsm = (struct raft_fsm){.version = 1, .apply = apply, .snapshot = snapshot, .restore = restore};
    if (raft_init(&raft, &io, &fsm, id, address))
        die("init", raft_errmsg(&raft));
    configure(first_port);
    raft_set_snapshot_threshold(&raft, 1u << 30);
    raft_set_election_timeout(&raft, id == 1 ? 1000 : 5000);
    raft_set_heartbeat_timeout(&raft, 50);
    raft_set_pre_vote(&raft, true);
    if (raft_start(&raft))
        die("start", raft_errmsg(&raft));
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_timer, 1500, 100);
    return uv_run(&loop, UV_RUN_DEFAULT);
}

#else
typedef int cl_libraft_put_is_compiled_by_itself;
#endif
