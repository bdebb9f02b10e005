/* Stream sockets, one thing after the other: opening, waiting, time-outs, half-close, linger, options, several
 * listeners on a port, poll sets, and the end of the runtime. argv: kthreads of each of the two runtimes.
 * Prints "ok". */
#include "tests/libos/net/c/pair.h"

#include <errno.h>
#include <string.h>

#define PORT 7
#define WAIT (20000 * MS)
#define MIB (1 << 20)
#define TRICKLES 1000

/* Both are opened on the runtime A, to itself: the same kthreads turn both ends. Or between A and B. */
struct two {
    struct cl_stream *ours, *theirs;
};

static struct cl_stream *listener;

static struct two two_ends(void)
{
    struct cl_tcp_addr to = {IP_A, PORT, 0};
    struct two t;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &t.ours), 0);
    CHECK_EQ(cl_stream_accept(listener, WAIT, &t.theirs), 0);
    return t;
}

static void close_two(struct two t)
{
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
}

static void opening(void)
{
    struct cl_tcp_addr to = {IP_A, PORT + 1, 0}, from = {0, 4711, 0}, own, peer;
    struct cl_stream *s, *other;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), -ECONNREFUSED);
    CHECK_EQ(cl_stream_accept(listener, 0, &s), -EAGAIN);
    CHECK_EQ(cl_stream_accept(listener, MS, &s), -ETIMEDOUT);
    to.port = PORT;
    CHECK_EQ(cl_stream_connect(rt_a, &from, &to, WAIT, &s), 0);
    CHECK_EQ(cl_stream_connect(rt_a, &from, &to, WAIT, &other), -EADDRINUSE);
    from.ipv4 = 0x01020304;
    CHECK_EQ(cl_stream_connect(rt_a, &from, &to, WAIT, &other), -EADDRNOTAVAIL);
    CHECK_EQ(cl_stream_accept(listener, WAIT, &other), 0);
    CHECK_EQ(cl_stream_ends(s, &own, &peer), 0);
    CHECK(own.ipv4 == IP_A && own.port == 4711 && peer.ipv4 == IP_A && peer.port == PORT);
    CHECK_EQ(cl_stream_ends(other, &own, &peer), 0);
    CHECK(own.port == PORT && peer.port == 4711);
    CHECK_EQ(cl_stream_ends(listener, &own, &peer), 0);
    CHECK(own.port == PORT && peer.port == 0);
    CHECK_EQ(cl_stream_accept(s, 0, &other), -EINVAL);
    CHECK_EQ(cl_stream_read(listener, &own, 1, 0), -EINVAL);
    close_two((struct two){s, other});
    to.ipv4 = 0x08080808;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), -EHOSTUNREACH);
    to.port = 0;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), -EINVAL);
    /* Nobody answers there: no host has this address. */
    to = (struct cl_tcp_addr){IP_A + 77, PORT, 0};
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, 5 * MS, &s), -ETIMEDOUT);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, 0, &s), -EINPROGRESS);
    CHECK_EQ(cl_stream_error(s), -EINPROGRESS);
    CHECK_EQ(cl_stream_wait_open(s, 0), -EINPROGRESS);
    CHECK_EQ(cl_stream_wait_open(s, MS), -ETIMEDOUT);
    CHECK_EQ(cl_stream_write(s, "x", 1, 0), -EAGAIN);
    CHECK_EQ(cl_stream_shutdown(s, CL_STREAM_WRITE), -ENOTCONN);
    CHECK_EQ(cl_stream_close(s, 0), 0);
}

static void reading_and_writing(void)
{
    struct two t = two_ends();
    char data[32];
    struct cl_iovec out[3] = {{"one", 3}, {NULL, 0}, {"two", 3}}, in[2] = {{data, 2}, {data + 2, 8}};
    CHECK_EQ(cl_stream_read(t.theirs, data, 32, 0), -EAGAIN);
    CHECK_EQ(cl_stream_read(t.theirs, data, 32, MS), -ETIMEDOUT);
    CHECK_EQ(cl_stream_read(t.theirs, data, 0, -1), 0);
    CHECK_EQ(cl_stream_read(t.theirs, data, -1, -1), -EINVAL);
    CHECK_EQ(cl_stream_readv(t.theirs, in, CL_STREAM_VECTORS + 1, 0), -EINVAL);
    CHECK_EQ(cl_stream_writev(t.ours, out, 3, WAIT), 6);
    while (cl_stream_peek(t.theirs, data, 32, WAIT) < 6)
        cl_uthread_yield();
    CHECK(memcmp(data, "onetwo", 6) == 0);
    CHECK_EQ(cl_stream_readv(t.theirs, in, 2, WAIT), 6);
    CHECK(memcmp(data, "onetwo", 6) == 0);
    CHECK_EQ(cl_stream_peek(t.theirs, data, 32, 0), -EAGAIN);
    CHECK_EQ(cl_stream_write(t.ours, data, 0, 0), 0);
    close_two(t);
}

static void half_close(void)
{
    struct two t = two_ends();
    char data[8];
    CHECK_EQ(cl_stream_write(t.ours, "last", 4, WAIT), 4);
    CHECK_EQ(cl_stream_shutdown(t.ours, 0), -EINVAL);
    CHECK_EQ(cl_stream_shutdown(t.ours, CL_STREAM_WRITE), 0);
    CHECK_EQ(cl_stream_write(t.ours, "x", 1, WAIT), -EPIPE);
    CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 4);
    CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 0);
    CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 0);
    CHECK_EQ(cl_stream_write(t.theirs, "answer", 6, WAIT), 6);
    CHECK_EQ(cl_stream_read(t.ours, data, 8, WAIT), 6);
    CHECK_EQ(cl_stream_shutdown(t.theirs, CL_STREAM_WRITE | CL_STREAM_READ), 0);
    CHECK_EQ(cl_stream_read(t.ours, data, 8, WAIT), 0);
    close_two(t);
}

static void resets(void)
{
    struct two t = two_ends();
    char data[8];
    CHECK_EQ(cl_stream_abort(t.theirs), 0);
    CHECK_EQ(cl_stream_read(t.ours, data, 8, WAIT), -ECONNRESET);
    CHECK_EQ(cl_stream_write(t.ours, data, 8, WAIT), -ECONNRESET);
    CHECK_EQ(cl_stream_error(t.ours), -ECONNRESET);
    struct cl_tcp_info info;
    CHECK_EQ(cl_stream_info(t.ours, &info), -ENOTCONN);
    CHECK_EQ(cl_stream_set(t.ours, CL_STREAM_NO_DELAY, 1), -ENOTCONN);
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    /* Closed with something unread. */
    t = two_ends();
    CHECK_EQ(cl_stream_write(t.ours, "unread", 6, WAIT), 6);
    CHECK_EQ(cl_stream_peek(t.theirs, data, 1, WAIT), 1);
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
    CHECK_EQ(cl_stream_read(t.ours, data, 8, WAIT), -ECONNRESET);
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
}

/* The end of a stream stays that, whatever comes behind it; without all before it, it is none. */
static void reset_behind_the_end(void)
{
    for (unsigned reads = 0; reads < 2; reads++) {
        struct two t = two_ends();
        char data[8];
        CHECK_EQ(cl_stream_write(t.ours, "last", 4, WAIT), 4);
        CHECK_EQ(cl_stream_shutdown(t.ours, CL_STREAM_WRITE), 0);
        CHECK_EQ(cl_stream_peek(t.theirs, data, 8, WAIT), 4);
        if (reads) {
            CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 4);
            CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 0);
        }
        CHECK_EQ(cl_stream_abort(t.ours), 0);
        while (cl_stream_error(t.theirs) == 0)
            cl_uthread_yield();
        if (reads)
            CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 0);
        else
            CHECK(cl_stream_read(t.theirs, data, 8, WAIT) < 0);
        CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
    }
}

/* Write until nothing was taken for a while that is long also for a slow build on a busy machine. Returns how much. */
static int64_t fill(struct cl_stream *s, const uint8_t *data, int64_t len)
{
    int64_t sum = 0;
    for (int64_t n; (n = cl_stream_write(s, data, len, 100 * MS)) > 0;)
        sum += n;
    return sum;
}

static void lingering(void)
{
    struct two t = two_ends();
    static uint8_t data[4 * MIB];
    CHECK_EQ(cl_stream_write(t.ours, "bytes", 5, WAIT), 5);
    CHECK_EQ(cl_stream_close(t.ours, WAIT), 0); /* acknowledged, though nobody has read them */
    CHECK_EQ(cl_stream_read(t.theirs, data, 8, WAIT), 5);
    CHECK_EQ(cl_stream_close(t.theirs, WAIT), 0);
    /* More than the two buffers take. */
    t = two_ends();
    int64_t took = fill(t.ours, data, sizeof data), rest = took;
    CHECK(took > 0 && took < (int64_t)sizeof data);
    CHECK_EQ(cl_stream_write(t.ours, data, 1, 0), -EAGAIN);
    CHECK_EQ(cl_stream_write(t.ours, data, 1, MS), -ETIMEDOUT);
    CHECK_EQ(cl_stream_close(t.ours, 5 * MS), -ETIMEDOUT);
    for (int64_t n; (n = cl_stream_read(t.theirs, data, sizeof data, WAIT)) > 0;)
        rest -= n;
    CHECK_EQ(rest, 0);
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
}

static void options(void)
{
    static uint8_t data[MIB];
    struct cl_tcp_info info;
    CHECK_EQ(cl_stream_set(listener, CL_STREAM_NO_DELAY, 1), 0);
    CHECK_EQ(cl_stream_set(listener, CL_STREAM_SEND_BUFFER, 8192), 0);
    CHECK_EQ(cl_stream_set_congestion(listener, "newreno"), 0);
    CHECK_EQ(cl_stream_set_congestion(listener, "vegas"), -ENOENT);
    struct two t = two_ends();
    CHECK_EQ(cl_stream_get(t.theirs, CL_STREAM_NO_DELAY), 1);
    CHECK_EQ(cl_stream_get(t.ours, CL_STREAM_NO_DELAY), 0);
    CHECK_EQ(cl_stream_get(t.theirs, CL_STREAM_SEND_BUFFER), 8192);
    CHECK_EQ(cl_stream_get(listener, CL_STREAM_SEND_BUFFER), 8192);
    CHECK(strcmp(cl_stream_congestion(t.theirs), "newreno") == 0);
    CHECK(strcmp(cl_stream_congestion(t.ours), "cubic") == 0);
    CHECK_EQ(cl_stream_set_congestion(t.ours, "newreno"), 0);
    CHECK_EQ(cl_stream_set_congestion(t.ours, "dctcp"), -EOPNOTSUPP); /* nobody has offered ECN */
    CHECK(strcmp(cl_stream_congestion(t.ours), "newreno") == 0);
    for (int option = 0; option < CL_STREAM_OPTIONS; option++) {
        bool flag = option < CL_STREAM_SEND_BUFFER || option == CL_STREAM_KEEP_FRAMES || option == CL_STREAM_CORK;
        int64_t value = flag ? 1 : option == CL_STREAM_KEEP_PROBES ? 100 : 30000;
        CHECK_EQ(cl_stream_set(t.ours, option, value), 0);
        CHECK_EQ(cl_stream_get(t.ours, option), value);
        CHECK_EQ(cl_stream_set(t.ours, option, -1), -EINVAL);
    }
    CHECK_EQ(cl_stream_set(t.ours, CL_STREAM_OPTIONS, 1), -ENOPROTOOPT);
    CHECK_EQ(cl_stream_get(t.ours, -1), -ENOPROTOOPT);
    CHECK_EQ(cl_stream_info(t.ours, &info), 0);
    CHECK(info.state == 4 && info.snd_mss > 500 && info.scales && info.cwnd >= 2);
    /* A smaller receive buffer holds the writer back; a larger send buffer gives it room at once. */
    int64_t took = cl_stream_write(t.theirs, data, sizeof data, 5 * MS);
    CHECK(took > 0 && took < MIB);
    CHECK_EQ(cl_stream_write(t.theirs, data, 1, 0), -EAGAIN);
    CHECK_EQ(cl_stream_set(t.theirs, CL_STREAM_SEND_BUFFER, MIB), 0);
    CHECK_EQ(cl_stream_write(t.theirs, data, 1, 0), 1);
    CHECK_EQ(cl_stream_abort(t.theirs), 0);
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    CHECK_EQ(cl_stream_set(listener, CL_STREAM_SEND_BUFFER, 262144), 0);
}

/* One waits in a socket that another one closes. */
static struct cl_stream *waited_for;
static struct cl_wait_group over;

static void waits_to_read(void *arg)
{
    char data;
    (void)arg;
    CHECK_EQ(cl_stream_read(waited_for, &data, 1, -1), -EBADF);
    cl_wait_group_done(&over);
}

static void waits_to_accept(void *arg)
{
    struct cl_stream *s;
    CHECK_EQ(cl_stream_accept(arg, -1, &s), -EBADF);
    cl_wait_group_done(&over);
}

static void closed_under_waiters(void)
{
    struct two t = two_ends();
    struct cl_stream *l, *s;
    waited_for = t.ours;
    CHECK_EQ(cl_stream_listen(rt_a, PORT + 2, 8, &l), 0);
    cl_wait_group_add(&over, 3);
    CHECK_EQ(cl_uthread_spawn(waits_to_read, NULL, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(waits_to_accept, l, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(waits_to_accept, l, NULL), 0);
    cl_uthread_sleep_ns(2 * MS);
    close_two(t);
    struct cl_tcp_addr to = {IP_A, PORT + 2, 0};
    CHECK_EQ(cl_stream_close(l, 0), 0);
    cl_wait_group_wait(&over);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), -ECONNREFUSED);
}

/* Three listeners share a port; one that goes takes what waits for it with it. */
static void shared_port(void)
{
    enum { LISTENERS = 3, CONNECTIONS = 48 };
    struct cl_stream *l[LISTENERS], *s[CONNECTIONS], *got;
    struct cl_tcp_addr to = {IP_A, PORT + 3, 0};
    unsigned accepted = 0, used = 0, reset = 0;
    char data;
    for (unsigned i = 0; i < LISTENERS; i++)
        CHECK_EQ(cl_stream_listen(rt_a, PORT + 3, CONNECTIONS, &l[i]), 0);
    CHECK_EQ(cl_stream_listen(rt_a, PORT + 4, 0, &got), -EINVAL);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[i]), 0);
    CHECK_EQ(cl_stream_write(s[0], "x", 1, WAIT), 1);
    cl_uthread_sleep_ns(5 * MS); /* the last handshakes may not be over at the other end */
    CHECK_EQ(cl_stream_close(l[0], 0), 0);
    for (unsigned i = 1; i < LISTENERS; i++) {
        unsigned before = accepted;
        for (; cl_stream_accept(l[i], 0, &got) == 0; accepted++)
            CHECK_EQ(cl_stream_close(got, 0), 0);
        used += accepted > before;
    }
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        int64_t n = cl_stream_read(s[i], &data, 1, WAIT);
        CHECK(n == 0 || n == -ECONNRESET, "%lld", (long long)n);
        reset += n < 0;
        CHECK_EQ(cl_stream_close(s[i], 0), 0);
    }
    CHECK(used == 2 && accepted < CONNECTIONS && accepted + reset >= CONNECTIONS);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[0]), 0);
    CHECK_EQ(cl_stream_close(s[0], 0), 0);
    CHECK_EQ(cl_stream_close(l[1], 0), 0);
    CHECK_EQ(cl_stream_close(l[2], 0), 0);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[0]), -ECONNREFUSED);
}

/* Of a backlog of 2 two get in, and a third at most, if SYNs beyond are answered by cookies. */
static void full_backlog(void)
{
    struct cl_stream *l, *s[3], *got;
    int accepted = 0;
    struct cl_tcp_addr to = {IP_A, PORT + 5, 0};
    CHECK_EQ(cl_stream_listen(rt_a, PORT + 5, 2, &l), 0);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[0]), 0);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[1]), 0);
    int rc = cl_stream_connect(rt_a, NULL, &to, 10 * MS, &s[2]);
    CHECK(rc == 0 || rc == -ETIMEDOUT, "%d", rc);
    if (rc == 0)
        CHECK_EQ(cl_stream_abort(s[2]), 0);
    for (; cl_stream_accept(l, 5 * MS, &got) == 0; accepted++)
        CHECK_EQ(cl_stream_close(got, 0), 0);
    CHECK(accepted >= 2 && accepted <= 3, "%d", accepted);
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s[2]), 0); /* there is room again */
    CHECK_EQ(cl_stream_accept(l, WAIT, &got), 0);
    CHECK_EQ(cl_stream_close(got, 0), 0);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(cl_stream_close(s[i], 0), 0);
    CHECK_EQ(cl_stream_close(l, 0), 0);
}

static void poll_sets(void)
{
    struct cl_poll *set;
    struct cl_poll_event e[4];
    struct cl_stream *got;
    static uint8_t data[4 * MIB];
    struct two t = two_ends();
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, 0, CL_POLL_LEVEL, 1), -EINVAL);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, CL_POLL_OUT, CL_POLL_LEVEL, 1), 0);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, CL_POLL_OUT, CL_POLL_LEVEL, 1), -EBUSY);
    CHECK_EQ(cl_poll_add_stream(set, t.theirs, CL_POLL_IN, CL_POLL_EDGE, 2), 0);
    CHECK_EQ(cl_poll_add_stream(set, listener, CL_POLL_IN, CL_POLL_LEVEL, 3), 0);
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 1);
    CHECK(e[0].data == 1 && e[0].ready == CL_POLL_OUT);
    (void)fill(t.ours, data, sizeof data);
    /* What comes is told of once, and there is no room: when all is still, nothing is told although something waits. */
    unsigned told = 0, came = 0;
    for (int n; (n = cl_poll_wait(set, e, 4, 10 * MS)) > 0; told++) {
        CHECK(told < 1000, "an edge is told of again and again");
        for (int i = 0; i < n; i++)
            came += e[i].data == 2;
    }
    CHECK(came > 0);
    while (cl_stream_read(t.theirs, data, sizeof data, 5 * MS) > 0)
        ;
    CHECK_EQ(cl_poll_remove_stream(set, t.theirs), 0);
    CHECK_EQ(cl_poll_remove_stream(set, t.theirs), -ENOENT);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 1);
    CHECK(e[0].data == 1 && e[0].ready == CL_POLL_OUT);
    CHECK_EQ(cl_stream_abort(t.theirs), 0);
    CHECK_EQ(cl_stream_read(t.ours, data, 1, WAIT), -ECONNRESET);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 1);
    CHECK(e[0].data == 1 && e[0].ready == (CL_POLL_OUT | CL_POLL_ERROR));
    CHECK_EQ(cl_stream_close(t.ours, 0), 0); /* it leaves the set */
    struct cl_tcp_addr to = {IP_A, PORT, 0};
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, 0, &t.ours), -EINPROGRESS);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, CL_POLL_OUT, CL_POLL_EDGE, 4), 0);
    for (unsigned seen = 0; seen != 0x18; seen |= 1u << e[0].data) /* both are told of */
        CHECK_EQ(cl_poll_wait(set, e, 1, WAIT), 1);
    CHECK_EQ(cl_stream_error(t.ours), 0);
    CHECK_EQ(cl_stream_accept(listener, 0, &got), 0);
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 0);
    CHECK_EQ(cl_poll_remove_stream(set, listener), 0);
    close_two((struct two){t.ours, got});
    CHECK_EQ(cl_poll_delete(set), 0);
}

/* Where nothing may block. */
static void may_not_wait(void)
{
    struct two t = two_ends();
    struct cl_stream *s;
    char data;
    cl_sched_no_switch_enter();
    CHECK_EQ(cl_stream_read(t.ours, &data, 1, WAIT), -EDEADLK);
    CHECK_EQ(cl_stream_read(t.ours, &data, 1, 0), -EAGAIN);
    CHECK_EQ(cl_stream_accept(listener, WAIT, &s), -EDEADLK);
    cl_sched_no_switch_leave();
    close_two(t);
}

static struct two trickle;
static uint32_t bytes_read;

static void byte_by_byte(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < TRICKLES; i++) {
        CHECK_EQ(cl_stream_write(trickle.ours, "x", 1, WAIT), 1);
        while (cl_load_acquire(&bytes_read) <= i)
            cl_uthread_yield();
    }
    cl_wait_group_done(&all);
}

/* Who may not wait for the turn that an edge came from is told again. */
static void edges_where_nothing_may_block(void)
{
    struct cl_poll *set;
    struct cl_poll_event e;
    char data[8];
    trickle = two_ends();
    CHECK_EQ(cl_stream_set(trickle.ours, CL_STREAM_NO_DELAY, 1), 0);
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add_stream(set, trickle.theirs, CL_POLL_IN, CL_POLL_EDGE, 1), 0);
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_uthread_spawn(byte_by_byte, NULL, NULL), 0);
    while (bytes_read < TRICKLES) {
        CHECK_EQ(cl_poll_wait(set, &e, 1, WAIT), 1);
        cl_sched_no_switch_enter();
        for (int64_t n; (n = cl_stream_read(trickle.theirs, data, 8, 0)) > 0;)
            cl_store_release(&bytes_read, bytes_read + (uint32_t)n);
        cl_sched_no_switch_leave();
    }
    CHECK_EQ(cl_poll_remove_stream(set, trickle.theirs), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
    close_two(trickle);
}

static void root(void *arg)
{
    (void)arg;
    opening();
    reading_and_writing();
    half_close();
    resets();
    reset_behind_the_end();
    lingering();
    options();
    closed_under_waiters();
    shared_port();
    full_backlog();
    poll_sets();
    may_not_wait();
    edges_where_nothing_may_block();
    cl_wait_group_done(&all);
}

/* The end of the runtime. */

static struct two last;

static void until_the_end(void *arg)
{
    char data;
    (void)arg;
    CHECK_EQ(cl_stream_read(last.ours, &data, 1, -1), -ESHUTDOWN);
}

static void acceptor_until_the_end(void *arg)
{
    struct cl_stream *s;
    (void)arg;
    CHECK_EQ(cl_stream_accept(listener, WAIT, &s), -ESHUTDOWN);
}

static void leave_two(void *arg)
{
    (void)arg;
    last = two_ends();
    CHECK_EQ(cl_uthread_spawn(until_the_end, NULL, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(acceptor_until_the_end, NULL, NULL), 0);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    pair_new(kthreads, 1, 0);
    static const struct cl_tcp_events nothing;
    struct cl_stream *refused;
    CHECK_EQ(cl_stream_listen(rt_a, PORT, 128, &listener), 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt_a, PORT, 8, &nothing, NULL), -EADDRINUSE);
    CHECK_EQ(cl_runtime_listen_tcp(rt_a, PORT + 9, 8, &nothing, NULL), 0);
    CHECK_EQ(cl_stream_listen(rt_a, PORT + 9, 8, &refused), -EADDRINUSE);
    CHECK_EQ(cl_stream_accept(listener, 0, &refused), -EPERM);
    pair_start();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, root, NULL), 0);
    pair_wait();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, leave_two, NULL), 0);
    pair_wait();
    pair_stop();
    CHECK_EQ(cl_stream_error(last.ours), -ESHUTDOWN);
    close_two(last);
    CHECK_EQ(cl_stream_close(listener, 0), 0);
    struct cl_chunk_stats send, receive;
    CHECK_EQ(cl_runtime_chunk_stats(rt_a, CL_CHUNKS_TCP_SEND, &send), 0);
    CHECK_EQ(cl_runtime_chunk_stats(rt_a, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
    CHECK_EQ(send.held_bytes + receive.held_bytes, 0);
    pair_delete();
    printf("ok\n");
    return 0;
}
