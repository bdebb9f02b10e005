/* The event form from outside of its callbacks, by the thread that has adopted the kthread: an own end is chosen,
 * options are set and asked for, and what is written in a turn that the caller asks for comes back.
 *
 * Usage: called. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/adopt.h>
#include <corelane/libos/libos.h>

#include "tests/support/c/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OWN 0x0a4d0001u
#define LOOPBACK 0x7f000001u
#define PORT 7
#define OWN_PORT 4711

static struct cl_runtime *rt;
static struct cl_sched *s;
static struct cl_tcp_conn *made, *accepted;
static unsigned opened, woken, ended;
static char came[64];
static int64_t n_came;

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    CHECK(arg == &opened && c == made);
    opened++;
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c, (void)arg;
    CHECK(n_came + len <= (int64_t)sizeof came);
    memcpy(came + n_came, data, (size_t)len);
    n_came += len;
    return len;
}

static void on_woken(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    CHECK(c == made);
    woken++;
    CHECK_EQ(cl_tcp_write(c, "later", 5), 5);
    CHECK(!cl_tcp_call(c, NULL, NULL)); /* somebody works on it: we do */
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c, (void)arg;
    CHECK_EQ(error, ECONNABORTED);
    ended++;
}

static const struct cl_tcp_events client = {.opened = on_opened, .data = on_data, .woken = on_woken, .ended = on_ended};

static int64_t echo(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    accepted = c;
    return cl_tcp_write(c, data, len);
}

static const struct cl_tcp_events server = {.data = echo};

static void keep(struct cl_tcp_conn *c, void *arg)
{
    CHECK(arg == &opened && opened == 0);
    made = c;
}

static void connect_from(void *arg)
{
    struct cl_tcp_addr from = {LOOPBACK, OWN_PORT, 0}, to = {LOOPBACK, PORT, 0}, not_ours = {0x08080808, 0, 0};
    (void)arg;
    CHECK_EQ(cl_runtime_open_tcp(rt, &not_ours, &to, &client, &opened, NULL), -EADDRNOTAVAIL);
    CHECK_EQ(cl_runtime_open_tcp(rt, NULL, &to, NULL, &opened, NULL), -EINVAL);
    CHECK_EQ(cl_runtime_open_tcp(rt, &from, &to, &client, &opened, keep), 0);
    CHECK(made);
    CHECK_EQ(cl_runtime_open_tcp(rt, &from, &to, &client, &opened, NULL), -EADDRINUSE);
}

static void write_now(struct cl_tcp_conn *c, void *arg)
{
    struct cl_tcp_addr own, peer;
    cl_tcp_addresses(c, &own, &peer);
    CHECK(own.ipv4 == LOOPBACK && own.port == OWN_PORT && peer.ipv4 == LOOPBACK && peer.port == PORT);
    cl_tcp_answers_later(c);
    CHECK_EQ(cl_tcp_option(c, CL_STREAM_NO_DELAY), 0);
    CHECK_EQ(cl_tcp_set_option(c, CL_STREAM_NO_DELAY, 1), 0);
    CHECK_EQ(cl_tcp_option(c, CL_STREAM_NO_DELAY), 1);
    CHECK_EQ(cl_tcp_set_option(c, CL_STREAM_NO_DELAY, 2), -EINVAL);
    CHECK_EQ(cl_tcp_set_option(c, CL_STREAM_OPTIONS, 1), -ENOPROTOOPT);
    CHECK_EQ(cl_tcp_option(c, -1), -ENOPROTOOPT);
    CHECK_EQ(cl_tcp_write(c, arg, 3), 3);
}

static void abort_now(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_abort(c);
}

static void call(void *arg)
{
    CHECK(cl_tcp_call(made, write_now, arg));
}

#define EACH 20 /* calls one after the other: more than go without a look at the clock */

static unsigned given, called;

static struct cl_tcp_conn *next(void *arg)
{
    CHECK(arg == &given && called == given);
    return given < EACH ? (given++, made) : NULL;
}

static struct cl_tcp_conn *next_woken(void *arg)
{
    unsigned *left = arg;
    return (*left)-- ? made : NULL;
}

static void write_one(struct cl_tcp_conn *c, void *arg)
{
    CHECK(arg == &given && c == made);
    CHECK_EQ(cl_tcp_write(c, "e", 1), 1);
    called++;
}

static void call_each(void *arg)
{
    (void)arg;
    cl_tcp_call_each(next, write_one, &given);
    CHECK_EQ(called, EACH);
}

static void call_inside(struct cl_tcp_conn *c, void *arg)
{
    unsigned once = 1;
    (void)c, (void)arg;
    cl_tcp_call_each(next_woken, write_one, &once); /* we work on it: it is woken instead */
}

static void call_busy(void *arg)
{
    (void)arg;
    CHECK(cl_tcp_call(made, call_inside, NULL));
    CHECK_EQ(called, EACH);
}

static void wake(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_tcp_wake(made), 0);
}

static void end(void *arg)
{
    (void)arg;
    CHECK_EQ(ended, 0);
    CHECK(cl_tcp_call(made, abort_now, NULL));
    CHECK_EQ(ended, 1); /* in that turn */
}

static void turn_until(const char *what, int64_t n)
{
    for (unsigned i = 0; i < 100000 && n_came < n; i++)
        CHECK(cl_kthread_turn(s, 0) >= 0);
    CHECK_EQ(n_came, n);
    CHECK(memcmp(came, what, (size_t)n) == 0);
}

int main(void)
{
    struct cl_memory_config m = {.queues = {1, 1}};
    struct cl_nic *ends[2];
    char err[256] = "";
    CHECK(cl_memory_link_new(&m, ends, err) == 0, "%s", err);
    struct cl_runtime_config c = {.nic = ends[0], .ipv4 = OWN, .ipv4_prefix = 24, .kthreads = 1, .adopted = 1};
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_runtime_start(rt, err) == 0, "%s", err);
    s = cl_runtime_sched(rt);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt, PORT, 16, &server, NULL), 0);
    CHECK_EQ(cl_kthread_borrow(s, 0, connect_from, NULL), 0);
    for (unsigned i = 0; i < 100000 && !opened; i++)
        CHECK(cl_kthread_turn(s, 0) >= 0);
    CHECK_EQ(opened, 1);
    CHECK_EQ(cl_kthread_borrow(s, 0, call, "now"), 0);
    turn_until("now", 3);
    CHECK_EQ(cl_kthread_borrow_more(s, 0, wake, NULL), 0);
    turn_until("nowlater", 8);
    CHECK_EQ(woken, 1);
    CHECK_EQ(cl_kthread_borrow_more(s, 0, call_each, NULL), 0);
    turn_until("nowlatereeeeeeeeeeeeeeeeeeee", 8 + EACH);
    CHECK_EQ(cl_kthread_borrow(s, 0, call_busy, NULL), 0);
    turn_until("nowlatereeeeeeeeeeeeeeeeeeeelater", 8 + EACH + 5);
    CHECK_EQ(woken, 2);
    CHECK(accepted != NULL);
    CHECK_EQ(cl_kthread_borrow(s, 0, end, NULL), 0);
    CHECK_EQ(cl_runtime_stop(rt, 1000000000), 0);
    CHECK_EQ(cl_kthread_borrow(s, 0, end, NULL), -ESHUTDOWN);
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    puts("ok");
    return 0;
}
