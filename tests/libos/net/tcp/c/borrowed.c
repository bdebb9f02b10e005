/* What a borrowed kthread sends on several connections, on a NIC whose doorbell is a system call: one doorbell a call;
 * none by cl_kthread_borrow_more, and one for all of them by the next call without it, or the next turn. One for all
 * that cl_tcp_call_each calls.
 *
 * Usage: borrowed. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/adopt.h>
#include <corelane/libos/libos.h>
#include <corelane/libos/tcp.h>

#include "tests/support/c/check.h"

#include <stdio.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define PORT 7
#define EVENT_PORT 8 /* of the event form */
#define CONNECTIONS 10
#define ANSWERS 4 /* on each */

static struct cl_nic *ends[2];
static unsigned doorbells; /* of the server, by the thread that borrows its kthread */
static struct cl_stream *listener, *streams[CONNECTIONS];
static struct cl_tcp_conn *conns[CONNECTIONS];
static unsigned accepted, n_conns;
static uint32_t all_read;
static unsigned (*send_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);

static unsigned counted(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    doorbells++;
    return send_burst(nic, queue, frames, n);
}

static void ask(void *arg)
{
    static struct cl_stream *s[CONNECTIONS], *events[CONNECTIONS];
    struct cl_tcp_addr to = {IP_SERVER, PORT, 0}, to_events = {IP_SERVER, EVENT_PORT, 0};
    char data;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        CHECK_EQ(cl_stream_connect(arg, NULL, &to, -1, &s[i]), 0);
        CHECK_EQ(cl_stream_connect(arg, NULL, &to_events, -1, &events[i]), 0);
    }
    for (unsigned answer = 0; answer < ANSWERS; answer++)
        for (unsigned i = 0; i < CONNECTIONS; i++) {
            CHECK_EQ(cl_stream_read(s[i], &data, 1, -1), 1);
            CHECK_EQ(data, 'a' + (char)answer);
        }
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        CHECK_EQ(cl_stream_read(events[i], &data, 1, -1), 1);
        CHECK_EQ(data, 'e');
        CHECK_EQ(cl_stream_close(events[i], 0), 0);
        CHECK_EQ(cl_stream_close(s[i], 0), 0);
    }
    cl_store_release(&all_read, 1);
}

static void accept_some(void *arg)
{
    (void)arg;
    while (accepted < CONNECTIONS && cl_stream_accept(listener, 0, &streams[accepted]) == 0)
        CHECK_EQ(cl_stream_set(streams[accepted++], CL_STREAM_NO_DELAY, 1), 0);
}

struct answer {
    unsigned on;
    char data;
};

static void write_one(void *arg)
{
    const struct answer *a = arg;
    CHECK_EQ(cl_stream_write(streams[a->on], &a->data, 1, 0), 1);
}

static void turn(struct cl_sched *s)
{
    CHECK(cl_kthread_borrow_turn(s, 0) >= 0);
}

/* Quiet again: what it has sent is acknowledged, and nothing of that is under way. */
static void settle(struct cl_sched *s)
{
    for (unsigned quiet = 0; quiet < 200; quiet++) {
        unsigned before = doorbells;
        turn(s);
        quiet = doorbells == before ? quiet : 0;
    }
}

static void more(struct cl_sched *s)
{
    struct answer a;
    a.data = 'a';
    doorbells = 0;
    for (a.on = 0; a.on < CONNECTIONS; a.on++)
        CHECK_EQ(cl_kthread_borrow(s, 0, write_one, &a), 0);
    CHECK_EQ(doorbells, CONNECTIONS);
    for (a.data = 'b'; a.data <= 'c'; a.data++) {
        settle(s);
        doorbells = 0;
        for (a.on = 0; a.on < CONNECTIONS; a.on++)
            CHECK_EQ(cl_kthread_borrow_more(s, 0, write_one, &a), 0);
        CHECK_EQ(doorbells, 0);
        CHECK(!cl_kthread_more_follows());
        CHECK(cl_kthread_gathered_ns(s, 0) && cl_kthread_gathered_ns(s, 0) <= cl_sched_now_ns(s));
        turn(s);
        CHECK_EQ(cl_kthread_gathered_ns(s, 0), 0);
        CHECK_EQ(doorbells, 1);
    }
    settle(s);
    doorbells = 0;
    for (a.on = 0; a.on < CONNECTIONS; a.on++)
        CHECK_EQ((a.on + 1 < CONNECTIONS ? cl_kthread_borrow_more : cl_kthread_borrow)(s, 0, write_one, &a), 0);
    CHECK_EQ(doorbells, 1);
    CHECK_EQ(cl_kthread_gathered_ns(s, 0), 0);
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_no_delay(c, true);
    conns[n_conns++] = c;
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static const struct cl_tcp_events events = {.opened = on_opened, .eof = on_eof};

static struct cl_tcp_conn *next(void *arg)
{
    unsigned *called = arg;
    return *called < n_conns ? conns[(*called)++] : NULL;
}

static void write_event(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    CHECK_EQ(cl_tcp_write(c, "e", 1), 1);
}

static void call_each(void *arg)
{
    cl_tcp_call_each(next, write_event, arg);
}

static void each(struct cl_sched *s)
{
    unsigned called = 0;
    settle(s);
    doorbells = 0;
    CHECK_EQ(cl_kthread_borrow(s, 0, call_each, &called), 0);
    CHECK_EQ(called, CONNECTIONS);
    CHECK_EQ(doorbells, 1);
}

static void close_one(void *arg)
{
    CHECK_EQ(cl_stream_close(arg, 0), 0);
}

int main(void)
{
    struct cl_memory_config m = {.queues = {1, 1}};
    char err[256] = "";
    CHECK(cl_memory_link_new(&m, ends, err) == 0, "%s", err);
    struct cl_nic_ops ops = *ends[0]->ops;
    send_burst = ops.tx_burst;
    ops.tx_burst = counted;
    ends[0]->ops = &ops;
    ends[0]->tx_calls = 1;
    struct cl_runtime_config c = {.nic = ends[0], .ipv4 = IP_SERVER, .ipv4_prefix = 24, .kthreads = 1, .adopted = 1};
    struct cl_runtime_config of_client = {.nic = ends[1], .ipv4 = IP_CLIENT, .ipv4_prefix = 24, .kthreads = 1};
    struct cl_runtime *server, *client;
    CHECK(cl_runtime_new(&c, &server, err) == 0, "%s", err);
    CHECK(cl_runtime_new(&of_client, &client, err) == 0, "%s", err);
    CHECK(cl_runtime_start(server, err) == 0 && cl_runtime_start(client, err) == 0, "%s", err);
    struct cl_sched *s = cl_runtime_sched(server);
    CHECK_EQ(cl_stream_listen(server, PORT, CONNECTIONS, &listener), 0);
    CHECK_EQ(cl_runtime_listen_tcp(server, EVENT_PORT, CONNECTIONS, &events, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(client, ask, client), 0);
    while (accepted < CONNECTIONS || n_conns < CONNECTIONS) {
        turn(s);
        CHECK_EQ(cl_kthread_borrow(s, 0, accept_some, NULL), 0);
    }
    settle(s);
    more(s);
    each(s);
    while (!cl_load_acquire(&all_read))
        turn(s);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(cl_kthread_borrow(s, 0, close_one, streams[i]), 0);
    CHECK_EQ(cl_kthread_borrow(s, 0, close_one, listener), 0);
    CHECK_EQ(cl_runtime_stop(client, 0), 0);
    CHECK_EQ(cl_runtime_stop(server, 0), 0);
    cl_runtime_delete(client);
    cl_runtime_delete(server);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
