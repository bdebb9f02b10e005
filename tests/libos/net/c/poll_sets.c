/* Poll sets: level and edge, timeouts, errors, several waiters, sockets that are closed while they are waited for, the
 * end of the runtime; and a stress in which many sockets get datagrams from senders that wait for each answer, so that
 * a wake-up that is lost hangs. argv[1]: kthreads; argv[2]: rounds. Prints "ok". */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WAIT (20000 * MS)
#define SOCKETS 16
#define SENDERS 8
#define SERVERS 3

static unsigned rounds;
static struct cl_udp_socket *sockets[SOCKETS];
static struct cl_poll *shared, *last;
static uint64_t served;
static struct cl_wait_group senders;

static void send_to(struct cl_udp_socket *from, struct cl_udp_socket *to)
{
    struct cl_udp_addr at = {IP_A, cl_udp_port(to), 0};
    CHECK_EQ(cl_udp_sendto(from, "x", 1, &at), 1);
}

/* It waits in the socket. */
static void settle(struct cl_udp_socket *s, struct cl_udp_socket *from)
{
    struct cl_net_stats before, after;
    cl_runtime_net_stats(rt_a, -1, &before);
    send_to(from, s);
    do {
        cl_uthread_sleep_ns(MS / 20);
        cl_runtime_net_stats(rt_a, -1, &after);
    } while (after.to_sockets == before.to_sockets);
}

static void level_and_edge(void)
{
    struct cl_udp_socket *a, *b, *from;
    struct cl_poll *set;
    struct cl_poll_event e[4];
    char data;
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &a), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &b), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &from), 0);
    settle(a, from); /* before it is in a set: told at once */
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add(set, a, CL_POLL_LEVEL, 1), 0);
    CHECK_EQ(cl_poll_add(set, b, CL_POLL_EDGE, 2), 0);
    CHECK_EQ(cl_poll_add(set, a, CL_POLL_LEVEL, 3), -EBUSY);
    CHECK_EQ(cl_poll_add(set, from, 9, 3), -EINVAL);
    CHECK_EQ(cl_poll_remove(set, from), -ENOENT);
    CHECK_EQ(cl_poll_delete(set), -EBUSY);
    for (unsigned i = 0; i < 3; i++) { /* level: for as long as it is ready */
        CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 1);
        CHECK(e[0].data == 1 && e[0].ready == CL_POLL_IN);
    }
    settle(b, from);
    settle(b, from);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 2);
    CHECK_EQ(e[0].data + e[1].data, 3);
    CHECK_EQ(cl_udp_recvfrom(a, &data, 1, NULL, 0), 1);
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 0); /* edge: told, whether it was read or not */
    uint64_t before = cl_sched_now_ns(cl_runtime_sched(rt_a));
    CHECK_EQ(cl_poll_wait(set, e, 4, 5 * MS), 0);
    CHECK(cl_sched_now_ns(cl_runtime_sched(rt_a)) - before >= 5 * MS);
    settle(b, from);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 1);
    CHECK_EQ(e[0].data, 2);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(cl_udp_recvfrom(b, &data, 1, NULL, 0), 1);
    CHECK_EQ(cl_poll_wait(set, e, 0, 0), -EINVAL);
    cl_sched_no_switch_enter();
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 0);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), -EDEADLK);
    cl_sched_no_switch_leave();
    /* Turns: of two that are ready one event at a time tells of both. */
    CHECK_EQ(cl_poll_remove(set, b), 0);
    CHECK_EQ(cl_poll_add(set, b, CL_POLL_LEVEL, 2), 0);
    settle(a, from);
    settle(b, from);
    uint64_t sum = 0;
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(cl_poll_wait(set, e, 1, WAIT), 1);
        sum += e[0].data;
    }
    CHECK_EQ(sum, 6);
    CHECK_EQ(cl_udp_close(a), 0); /* it leaves the set */
    CHECK_EQ(cl_udp_recvfrom(b, &data, 1, NULL, 0), 1);
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 0);
    /* An error that comes by ICMP. */
    struct cl_udp_addr nobody = {IP_A, 1, 0};
    CHECK_EQ(cl_udp_connect(b, &nobody), 0);
    CHECK_EQ(cl_udp_send(b, "x", 1), 1);
    CHECK_EQ(cl_poll_wait(set, e, 4, WAIT), 1);
    CHECK_EQ(e[0].ready, CL_POLL_ERROR);
    CHECK_EQ(cl_udp_recvfrom(b, &data, 1, NULL, 0), -ECONNREFUSED);
    CHECK_EQ(cl_poll_wait(set, e, 4, 0), 0);
    CHECK_EQ(cl_udp_close(b), 0);
    CHECK_EQ(cl_udp_close(from), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
}

static uint32_t others_ran;

static void run_once(void *arg)
{
    (void)arg;
    cl_store_release(&others_ran, 1);
}

/* Who waits for what is ready for ever, and never sleeps, still lets others run. */
static void ready_for_ever(void)
{
    struct cl_udp_socket *s;
    struct cl_poll *set;
    struct cl_poll_event e;
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &s), 0);
    settle(s, s);
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add(set, s, CL_POLL_LEVEL, 1), 0);
    CHECK_EQ(cl_uthread_spawn(run_once, NULL, NULL), 0);
    while (!cl_load_acquire(&others_ran))
        CHECK_EQ(cl_poll_wait(set, &e, 1, WAIT), 1);
    CHECK_EQ(cl_udp_close(s), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
}

/* Reads what is ready and answers it, until the socket that ends it is told of. */
static void server(void *arg)
{
    struct cl_poll_event e[3];
    struct cl_udp_addr from;
    (void)arg;
    for (;;) {
        int n = cl_poll_wait(shared, e, 3, WAIT);
        CHECK(n > 0, "waited in vain: %d", n);
        for (int i = 0; i < n; i++) {
            struct cl_udp_socket *s = sockets[e[i].data];
            char data;
            if (e[i].data == SOCKETS - 1) { /* stays ready: level */
                cl_wait_group_done(&all);
                return;
            }
            while (cl_udp_recvfrom(s, &data, 1, &from, 0) == 1) {
                __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
                CHECK_EQ(cl_udp_sendto(s, &data, 1, &from), 1);
            }
        }
    }
}

static void sender(void *arg)
{
    uint64_t state = (uintptr_t)arg + 1;
    struct cl_udp_socket *s;
    char data;
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &s), 0);
    for (unsigned i = 0; i < rounds; i++) {
        send_to(s, sockets[next_random(&state) % (SOCKETS - 1)]);
        CHECK_EQ(cl_udp_recvfrom(s, &data, 1, NULL, WAIT), 1);
        if (next_random(&state) % 16 == 0)
            cl_uthread_sleep_ns(next_random(&state) % 50000);
    }
    CHECK_EQ(cl_udp_close(s), 0);
    cl_wait_group_done(&senders);
}

static struct cl_udp_socket *mine;
static uint32_t impatient_over;

/* Waits where nothing may block: told at once that it cannot, or that something is there, also if that comes just
 * then. */
static void impatient(void *arg)
{
    struct cl_poll *set;
    struct cl_poll_event e;
    char data;
    (void)arg;
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add(set, mine, CL_POLL_EDGE, 0), 0);
    for (unsigned i = 0; i < 64 * rounds; i++) {
        cl_sched_no_switch_enter();
        int n = cl_poll_wait(set, &e, 1, WAIT);
        cl_sched_no_switch_leave();
        CHECK(n == 1 || n == -EDEADLK);
        while (n == 1 && cl_udp_recvfrom(mine, &data, 1, NULL, 0) == 1)
            ;
        if (i % 64 == 0)
            cl_uthread_yield();
    }
    cl_store_release(&impatient_over, 1);
    CHECK_EQ(cl_poll_remove(set, mine), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
    cl_wait_group_done(&senders);
}

static void tease(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr at = {IP_A, cl_udp_port(mine), 0};
    (void)arg;
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &s), 0);
    while (!cl_load_acquire(&impatient_over)) {
        int64_t rc = cl_udp_sendto(s, "x", 1, &at);
        CHECK(rc == 1 || rc == -ENOBUFS);
        cl_uthread_yield();
    }
    CHECK_EQ(cl_udp_close(s), 0);
    cl_wait_group_done(&senders);
}

static void where_nothing_may_block(void)
{
    CHECK_EQ(cl_udp_open(rt_a, 0, 8, &mine), 0);
    cl_wait_group_add(&senders, 2);
    CHECK_EQ(cl_uthread_spawn(impatient, NULL, NULL), 0);
    CHECK_EQ(cl_uthread_spawn(tease, NULL, NULL), 0);
    cl_wait_group_wait(&senders);
    cl_uthread_sleep_ns(MS); /* the loop polls: what was sent last may fill the way to ourselves */
    CHECK_EQ(cl_udp_close(mine), 0);
}

static void root(void *arg)
{
    (void)arg;
    level_and_edge();
    where_nothing_may_block();
    ready_for_ever();
    CHECK_EQ(cl_poll_new(rt_a, &shared), 0);
    for (unsigned i = 0; i < SOCKETS; i++) {
        bool edge = i % 2 && i != SOCKETS - 1;
        CHECK_EQ(cl_udp_open(rt_a, 0, 64, &sockets[i]), 0);
        CHECK_EQ(cl_poll_add(shared, sockets[i], edge ? CL_POLL_EDGE : CL_POLL_LEVEL, i), 0);
    }
    cl_wait_group_add(&all, SERVERS);
    for (unsigned i = 0; i < SERVERS; i++)
        CHECK_EQ(cl_uthread_spawn(server, NULL, NULL), 0);
    cl_wait_group_add(&senders, SENDERS);
    for (uintptr_t i = 0; i < SENDERS; i++)
        CHECK_EQ(cl_uthread_spawn(sender, (void *)i, NULL), 0);
    cl_wait_group_wait(&senders);
    CHECK_EQ(served, SENDERS * rounds);
    send_to(sockets[0], sockets[SOCKETS - 1]);
    cl_wait_group_done(&all);
}

/* Told of the end, then refused. */
static void until_the_end(void *arg)
{
    struct cl_poll_event e;
    (void)arg;
    CHECK_EQ(cl_poll_wait(last, &e, 1, -1), 1);
    CHECK(e.data == 5 && e.ready == CL_POLL_END);
    CHECK_EQ(cl_poll_wait(last, &e, 1, -1), -ESHUTDOWN);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    struct cl_udp_socket *s;
    struct cl_poll_event e;
    rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    pair_new(kthreads, 1, 0);
    CHECK_EQ(cl_poll_new(rt_a, &last), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &s), 0);
    CHECK_EQ(cl_poll_add(last, s, CL_POLL_EDGE, 5), 0);
    CHECK_EQ(cl_poll_wait(last, &e, 1, 0), -EPERM);
    pair_start();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, root, NULL), 0);
    pair_wait();
    CHECK_EQ(cl_runtime_spawn(rt_a, until_the_end, NULL), 0);
    pair_stop();
    for (unsigned i = 0; i < SOCKETS; i++)
        CHECK_EQ(cl_udp_close(sockets[i]), 0);
    CHECK_EQ(cl_udp_close(s), 0);
    CHECK_EQ(cl_poll_delete(shared), 0);
    CHECK_EQ(cl_poll_delete(last), 0);
    CHECK_EQ(cl_poll_delete(NULL), 0);
    pair_delete();
    printf("ok\n");
    return 0;
}
