/* A baseline of `corelane bench raft`: one server of a cluster of three made of the C raft library that distributions
 * ship (libraft and libuv; its own disk format, TCP on loopback). The benchmark compiles this file by itself with
 * -DCORELANE_LIBRAFT and links both libraries; in libcorelane it is empty.
 *
 *     libraft_put ID FOLDER FIRST_PORT BYTES OUTSTANDING
 *
 * Server 1 gets a shorter election timeout and becomes the leader. For each line "MILLISECONDS" of its stdin it then
 * puts commands of BYTES bytes for so long, OUTSTANDING at a time, and writes to stdout, as 64-bit words: how many it
 * put, the nanoseconds from the first one's begin to the last one's end, and their latencies in nanoseconds. Between
 * lines it is idle but for its heartbeats. It ends with its stdin, the others run until they are killed. */
#ifdef CORELANE_LIBRAFT

#include "load.h"
#include <raft.h>
#include <raft/uv.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static struct uv_pipe_s input;
static struct put *slots;
static unsigned long outstanding, in_flight;
static size_t bytes;
static char line[32];
static size_t line_bytes;
static bool leading;
/* Of a turn; asked_ms 0: none is asked for. */
static unsigned long asked_ms;
static uint64_t begun_ns, end_ns, done_ns;
static uint64_t *latencies_ns;
static size_t done, room;

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

static void note(uint64_t latency_ns)
{
    if (done == room) {
        room = room ? 2 * room : 1 << 16;
        latencies_ns = realloc(latencies_ns, room * sizeof *latencies_ns);
        if (!latencies_ns)
            die("note a latency", "out of memory");
    }
    latencies_ns[done++] = latency_ns;
}

static void turn_over(void)
{
    uint64_t head[2] = {done, done_ns - begun_ns};
    fwrite(head, sizeof head, 1, stdout);
    fwrite(latencies_ns, sizeof *latencies_ns, done, stdout);
    fflush(stdout);
    asked_ms = 0;
}

static void put_done(struct raft_apply *req, int status, void *result)
{
    struct put *put = (struct put *)req;
    (void)result;
    if (status)
        die("put", raft_strerror(status));
    done_ns = now_ns();
    note(done_ns - put->begun_ns);
    in_flight--;
    if (done_ns < end_ns)
        put_next(put);
    else if (!in_flight)
        turn_over();
}

static void put_next(struct put *put)
{
    struct raft_buffer buf = {.base = raft_malloc(bytes), .len = bytes};
    memset(buf.base, (int)done, bytes);
    in_flight++;
    put->begun_ns = now_ns();
    int rc = raft_apply(&raft, &put->req, &buf, 1, put_done);
    if (rc)
        die("put", raft_errmsg(&raft));
}

static void begin_turn(void)
{
    if (!leading || !asked_ms || in_flight)
        return;
    done = 0;
    begun_ns = now_ns();
    end_ns = begun_ns + asked_ms * 1000000;
    for (unsigned long i = 0; i < outstanding; i++)
        put_next(&slots[i]);
}

/* The leader begins a while after its election, when the others have caught up. */
static void on_timer(struct uv_timer_s *t)
{
    if (raft_state(&raft) != RAFT_LEADER)
        return;
    uv_timer_stop(t);
    leading = true;
    begin_turn();
}

static void line_room(struct uv_handle_s *handle, size_t wanted, struct uv_buf_t *buf)
{
    (void)handle, (void)wanted;
    *buf = uv_buf_init(line + line_bytes, (unsigned)(sizeof line - 1 - line_bytes));
}

/* One line at a time: the next one comes when the answer to this one is there. */
static void on_line(struct uv_stream_s *stream, ssize_t got, const struct uv_buf_t *buf)
{
    (void)stream, (void)buf;
    if (got < 0)
        exit(0);
    line_bytes += (size_t)got;
    line[line_bytes] = 0;
    if (!strchr(line, '\n')) {
        if (line_bytes == sizeof line - 1)
            die("read a line", "it is too long");
        return;
    }
    line_bytes = 0;
    asked_ms = strtoul(line, NULL, 10);
    if (!asked_ms)
        die("read a line", "expected a number of milliseconds");
    begin_turn();
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
    if (argc != 6)
        die("usage", "ID FOLDER FIRST_PORT BYTES OUTSTANDING");
    unsigned id = (unsigned)atoi(argv[1]), first_port = (unsigned)atoi(argv[3]);
    bytes = (strtoul(argv[4], NULL, 10) + 7) / 8 * 8; /* the library wants whole words */
    outstanding = strtoul(argv[5], NULL, 10);
    slots = calloc(outstanding ? outstanding : 1, sizeof *slots);
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
    if (id == 1) {
        uv_pipe_init(&loop, &input, 0);
        if (uv_pipe_open(&input, 0) || uv_read_start((struct uv_stream_s *)&input, line_room, on_line))
            die("init", "stdin is no pipe");
        uv_timer_start(&timer, on_timer, 1500, 100);
    }
    return uv_run(&loop, UV_RUN_DEFAULT);
}

#else
typedef int cl_libraft_put_is_compiled_by_itself;
#endif
