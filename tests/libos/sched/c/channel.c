/* Channels: the contract of every call, and many senders, receivers and selects at once.
 * Usage: channel KTHREADS MODE ELEMENTS SEED */
#include "check.h"

#include <corelane/libos/channel.h>
#include <corelane/libos/scope.h>

#define FOREVER CL_SCOPE_FOREVER

struct element {
    uint64_t from, number, check;
};

static uint64_t elements, seed;

static int send_number(struct cl_channel *c, uint64_t number, int64_t timeout_ns)
{
    struct element e = {1, number, ~number};
    return cl_channel_send(c, &e, timeout_ns);
}

static int64_t receive_number(struct cl_channel *c, int64_t timeout_ns)
{
    struct element e;
    int rc = cl_channel_receive(c, &e, timeout_ns);
    if (rc)
        return rc;
    CHECK_EQ(e.check, ~e.number);
    return (int64_t)e.number;
}

/* What does not wait works on any thread. */
static void without_waiting(void)
{
    struct cl_channel *c;
    CHECK_EQ(cl_channel_new(1, 0, &c), -EINVAL);
    CHECK_EQ(cl_channel_new(1, CL_CHANNEL_ELEMENT_BYTES + 1, &c), -EINVAL);
    CHECK_EQ(cl_channel_new(UINT32_MAX, 4096, &c), -EINVAL);
    CHECK_EQ(cl_channel_new(3, sizeof(struct element), &c), 0);
    CHECK_EQ(cl_channel_capacity(c), 3);
    CHECK_EQ(cl_channel_element_bytes(c), sizeof(struct element));
    CHECK_EQ(receive_number(c, 0), -EAGAIN);
    for (uint64_t round = 0; round < 5; round++) { /* round the ring */
        for (uint64_t i = 0; i < 3; i++)
            CHECK_EQ(send_number(c, 10 * round + i, 0), 0);
        CHECK_EQ(send_number(c, 99, 0), -EAGAIN);
        CHECK_EQ(cl_channel_count(c), 3);
        for (uint64_t i = 0; i < 2; i++)
            CHECK_EQ(receive_number(c, 0), (int64_t)(10 * round + i));
        CHECK_EQ(receive_number(c, 0), (int64_t)(10 * round + 2));
    }
    CHECK_EQ(send_number(c, 5, 0), 0);
    CHECK_EQ(cl_channel_closed(c), false);
    CHECK_EQ(cl_channel_close(c), 0);
    CHECK_EQ(cl_channel_close(c), -EALREADY);
    CHECK_EQ(cl_channel_closed(c), true);
    CHECK_EQ(send_number(c, 6, 0), -EPIPE);
    CHECK_EQ(receive_number(c, 0), 5); /* what is in it comes out */
    CHECK_EQ(receive_number(c, 0), -EPIPE);
    struct cl_channel_stats stats;
    cl_channel_stats(c, &stats);
    CHECK_EQ(stats.sent, 16);
    CHECK_EQ(stats.received, 16);
    CHECK_EQ(stats.waits, 0);
    CHECK_EQ(stats.refused, 8);
    struct element e;
    struct cl_channel_case bad = {c, &e, 2, 0};
    CHECK_EQ(cl_channel_select(&bad, 1, NULL, 0), -EINVAL);
    CHECK_EQ(cl_channel_select(&bad, 0, NULL, 0), -EINVAL);
    CHECK_EQ(cl_channel_select(&bad, CL_CHANNEL_CASES + 1, NULL, 0), -EINVAL);
    CHECK_EQ(cl_channel_delete(c), 0);
    CHECK_EQ(cl_channel_delete(NULL), 0);
}

static int64_t send_in_order(void *arg)
{
    for (uint64_t i = 0; i < 10; i++)
        CHECK_EQ(send_number(arg, i, -1), 0);
    return 0;
}

static int64_t wait_for_ever(void *arg)
{
    return receive_number(arg, -1);
}

static void waiting(void)
{
    struct cl_channel *c, *full;
    struct cl_scope *scope;
    for (uint32_t capacity = 0; capacity < 3; capacity++) {
        CHECK_EQ(cl_channel_new(capacity, sizeof(struct element), &c), 0);
        CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
        CHECK_EQ(cl_scope_spawn(scope, send_in_order, c), 0);
        for (int64_t i = 0; i < 10; i++)
            CHECK_EQ(receive_number(c, -1), i);
        CHECK_EQ(cl_scope_close(scope), 0);
        CHECK_EQ(receive_number(c, 20000), -ETIMEDOUT);
        CHECK_EQ(cl_channel_delete(c), 0);
    }
    CHECK_EQ(cl_channel_new(1, sizeof(struct element), &full), 0);
    CHECK_EQ(send_number(full, 1, -1), 0);
    CHECK_EQ(send_number(full, 2, 20000), -ETIMEDOUT);
    CHECK_EQ(cl_channel_new(0, sizeof(struct element), &c), 0);
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    CHECK_EQ(cl_scope_spawn(scope, wait_for_ever, c), 0);
    struct cl_channel_stats stats = {0};
    while (!stats.waits) {
        cl_uthread_yield();
        cl_channel_stats(c, &stats);
    }
    CHECK_EQ(cl_channel_delete(c), -EBUSY);
    cl_scope_cancel(scope);
    CHECK_EQ(receive_number(full, -1), 1); /* need not wait */
    CHECK_EQ(receive_number(full, -1), -ECANCELED);
    CHECK_EQ(cl_scope_close(scope), -ECANCELED);
    CHECK_EQ(cl_channel_delete(c), 0);
    CHECK_EQ(cl_channel_delete(full), 0);
    cl_sched_no_switch_enter();
    CHECK_EQ(cl_channel_new(1, sizeof(struct element), &c), 0);
    CHECK_EQ(receive_number(c, -1), -EDEADLK);
    CHECK_EQ(send_number(c, 1, -1), 0);
    CHECK_EQ(cl_channel_delete(c), 0);
    cl_sched_no_switch_leave();
}

/* All that can be done are done in turn, and a closed one counts as done. */
static void selecting(void)
{
    struct cl_channel *c[3];
    struct element e[3];
    struct cl_channel_case cases[3];
    uint32_t next = 0;
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(cl_channel_new(4, sizeof(struct element), &c[i]), 0);
        cases[i] = (struct cl_channel_case){c[i], &e[i], CL_CHANNEL_RECEIVE, 1};
    }
    CHECK_EQ(cl_channel_select(cases, 3, &next, 0), -EAGAIN);
    CHECK_EQ(cl_channel_select(cases, 3, &next, 20000), -ETIMEDOUT);
    for (uint64_t i = 0; i < 12; i++)
        CHECK_EQ(send_number(c[i % 3], i, 0), 0);
    for (int i = 0; i < 12; i++) {
        CHECK_EQ(cl_channel_select(cases, 3, &next, -1), i % 3);
        CHECK_EQ(cases[i % 3].rc, 0);
        CHECK_EQ(e[i % 3].number, (uint64_t)i);
    }
    CHECK_EQ(send_number(c[1], 7, 0), 0);
    CHECK_EQ(cl_channel_close(c[2]), 0);
    CHECK_EQ(cl_channel_select(cases, 3, NULL, -1), 1);
    CHECK_EQ(cl_channel_select(cases, 3, NULL, -1), 2);
    CHECK_EQ(cases[2].rc, -EPIPE);
    cases[0].how = CL_CHANNEL_SEND;
    e[0] = (struct element){1, 8, ~8ull};
    cases[1] = cases[0]; /* twice the same */
    CHECK_EQ(cl_channel_select(cases, 2, NULL, -1), 0);
    CHECK_EQ(receive_number(c[0], 0), 8);
    CHECK_EQ(receive_number(c[0], 0), -EAGAIN);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(cl_channel_delete(c[i]), 0);
}

static void contract(void *arg)
{
    (void)arg;
    waiting();
    selecting();
}

/* Stress: senders, each with a number of its own, send by send and by select, with time-outs that come; receivers count
 * what they get from each, in order. */
#define SENDERS 5
#define RECEIVERS 4
#define CHANNELS 3

static struct cl_channel *lanes[CHANNELS];
static uint64_t sums[SENDERS], sent_sums[SENDERS], n_received;

static int64_t sender(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg, state = seed + me + 1;
    uint32_t next = 0;
    for (uint64_t i = 0; i < elements;) {
        struct element e = {me, i, ~i};
        struct cl_channel_case cases[CHANNELS];
        uint32_t n = (uint32_t)(next_random(&state) % CHANNELS) + 1;
        for (uint32_t k = 0; k < n; k++)
            cases[k] = (struct cl_channel_case){lanes[(k + i) % CHANNELS], &e, CL_CHANNEL_SEND, 1};
        int64_t timeout_ns = next_random(&state) % 4 ? -1 : (int64_t)(next_random(&state) % 20000);
        int rc = cl_channel_select(cases, n, &next, timeout_ns);
        next = next < n ? next : 0;
        if (rc >= 0) {
            CHECK_EQ(cases[rc].rc, 0);
            sent_sums[me] += ++i;
        } else {
            CHECK(rc == -ETIMEDOUT || rc == -EAGAIN);
        }
    }
    return 0;
}

static int64_t receiver(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg + 100;
    bool open[CHANNELS] = {true, true, true};
    uint32_t n_open = CHANNELS, next = 0;
    while (n_open) {
        struct element e = {0};
        struct cl_channel_case cases[CHANNELS];
        uint32_t n = 0, which[CHANNELS];
        for (uint32_t k = 0; k < CHANNELS; k++)
            if (open[k]) {
                which[n] = k;
                cases[n++] = (struct cl_channel_case){lanes[k], &e, CL_CHANNEL_RECEIVE, 1};
            }
        next = next < n ? next : 0;
        int64_t timeout_ns = next_random(&state) % 4 ? -1 : (int64_t)(next_random(&state) % 20000);
        int rc = cl_channel_select(cases, n, &next, timeout_ns);
        if (rc < 0) {
            CHECK(rc == -ETIMEDOUT || rc == -EAGAIN);
        } else if (cases[rc].rc) {
            CHECK_EQ(cases[rc].rc, -EPIPE);
            open[which[rc]] = false;
            n_open--;
        } else {
            CHECK_EQ(e.check, ~e.number);
            __atomic_fetch_add(&sums[e.from], e.number + 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&n_received, 1, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static void stress(void *arg)
{
    struct cl_scope *senders, *receivers;
    (void)arg;
    CHECK_EQ(cl_scope_open(FOREVER, &receivers), 0);
    for (uintptr_t i = 0; i < RECEIVERS; i++)
        CHECK_EQ(cl_scope_spawn(receivers, receiver, (void *)i), 0);
    CHECK_EQ(cl_scope_open(FOREVER, &senders), 0);
    for (uintptr_t i = 0; i < SENDERS; i++)
        CHECK_EQ(cl_scope_spawn(senders, sender, (void *)i), 0);
    CHECK_EQ(cl_scope_close(senders), 0);
    for (unsigned i = 0; i < CHANNELS; i++)
        CHECK_EQ(cl_channel_close(lanes[i]), 0);
    CHECK_EQ(cl_scope_close(receivers), 0);
    CHECK_EQ(n_received, SENDERS * elements);
    for (unsigned i = 0; i < SENDERS; i++)
        CHECK_EQ(sums[i], sent_sums[i]);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    elements = argc > 3 ? strtoull(argv[3], NULL, 0) : 1000;
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    without_waiting();
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, contract, NULL), 0);
    for (uint32_t i = 0; i < CHANNELS; i++) /* one is a rendezvous */
        CHECK_EQ(cl_channel_new(i, sizeof(struct element), &lanes[i]), 0);
    CHECK_EQ(cl_sched_run(s, stress, NULL), 0);
    for (uint32_t i = 0; i < CHANNELS; i++)
        CHECK_EQ(cl_channel_delete(lanes[i]), 0);
    sched_stop_clean(s);
    return 0;
}
