/* A handler that sorts its requests, from the wire to the reply: every request is answered once, whatever its handler
 * does, and with a quantum a long one lets a short one behind it go first, again and again.
 *
 * Two runtimes on the ends of a memory link. A client sends a request that runs long, and with it a short, one that
 * sleeps, and one whose type does not exist; the long one ends, with a quantum, only when a later short one was
 * handled. Usage: typed_serve KTHREADS QUANTUM_US ROUNDS. Prints "ok". Run plain, under ASan and under TSan. */
#include <corelane/libos/probe.h>

#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS 6
#define SENT 4 /* by a client at a time */

enum { SHORT, SLEEPS, LONG, TYPES };

static unsigned rounds;
static bool quantum;
static uint32_t shorts; /* handled; by addition */

static int64_t classify(const uint8_t *request, int64_t len, void *arg)
{
    CHECK(len == 8 && arg == &shorts);
    return request[0];
}

static int64_t handle(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    uint32_t before = cl_load_acquire(&shorts);
    CHECK(room >= len && arg == &all);
    switch (request[0]) {
    case SHORT:
        __atomic_fetch_add(&shorts, 1, __ATOMIC_RELEASE);
        break;
    case SLEEPS:
        CHECK(cl_uthread_sleep_ns(1000) == 0);
        break;
    case LONG:
        /* Whoever was short before may be the one of our client: wait for one that comes once we run, or will. */
        while (quantum && cl_load_acquire(&shorts) == before && request[1])
            CL_PROBE();
        break;
    }
    CHECK(cl_current_request()->data == request);
    memcpy(reply, request, (size_t)len);
    return len;
}

/* Sends a long request and, once it runs for sure or is about to, one of each other kind; reads all the answers. */
static void client(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg, got[4];
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9000, 0};
    uint8_t data[8] = {0}, back[8];
    static const uint8_t kinds[SENT] = {LONG, SLEEPS, TYPES, SHORT}; /* TYPES is none: it goes to the last, as LONG */
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    for (unsigned i = 0; i < rounds; i++) {
        memset(got, 0, sizeof got);
        for (unsigned j = 0; j < SENT; j++) {
            data[0] = kinds[j];
            data[1] = id == 0; /* one at a time waits, and all others are there to let it end */
            data[2] = (uint8_t)i;
            CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
        }
        for (unsigned j = 0; j < SENT; j++) {
            CHECK(cl_udp_recvfrom(s, back, sizeof back, NULL, 60000 * MS) == sizeof back);
            CHECK(back[0] <= TYPES && back[2] == (uint8_t)i);
            got[back[0]]++;
        }
        CHECK(got[0] == 1 && got[1] == 1 && got[2] == 1 && got[3] == 1);
    }
    CHECK(cl_udp_close(s) == 0);
    cl_wait_group_done(&all);
}

/* Shorts until the others are through, so that a long one never waits for none. */
static uint32_t over;

static void background(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9000, 0};
    uint8_t data[8] = {SHORT};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    while (!cl_load_acquire(&over)) {
        CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
        CHECK(cl_udp_recvfrom(s, data, sizeof data, NULL, 60000 * MS) == sizeof data);
    }
    CHECK(cl_udp_close(s) == 0);
}

/* One exchange, which resolves the address: other datagrams would be lost meanwhile. */
static void meet(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9000, 0};
    uint8_t data[8] = {SHORT};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
    CHECK(cl_udp_recvfrom(s, data, sizeof data, NULL, 60000 * MS) == sizeof data);
    CHECK(cl_udp_close(s) == 0);
}

static void run_all(void *arg)
{
    cl_uthread_id id;
    (void)arg;
    CHECK(cl_uthread_spawn(background, NULL, &id) == 0);
    cl_wait_group_wait(&all);
    cl_store_release(&over, 1);
    CHECK(cl_uthread_join(id) == 0);
}

/* One that is always the next holds the kthread, again after each quantum, while more come of the other type than its
 * queue takes: the rest is dropped and counted, and what waits is handled in the end. */
#define TOO_MANY 556
#define FULL 512
static uint32_t held, let_go;

static int64_t first_is_held(const uint8_t *request, int64_t len, void *arg)
{
    (void)len, (void)arg;
    return request[0];
}

static int64_t hold(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)len, (void)reply, (void)room, (void)arg;
    cl_store_release(&held, 1);
    while (request[0] == 0 && !cl_load_acquire(&let_go))
        CL_PROBE();
    return 0;
}

static void until(uint64_t handled, uint64_t dropped)
{
    struct cl_net_stats s;
    do {
        cl_uthread_sleep_ns(MS / 10);
        cl_runtime_net_stats(rt_b, -1, &s);
    } while (s.unanswered < handled || s.dropped[CL_DROP_TYPE_FULL] < dropped);
    CHECK(s.unanswered == handled && s.dropped[CL_DROP_TYPE_FULL] == dropped);
}

static void fill(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9001, 0};
    uint8_t data[8] = {0};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
    while (!cl_load_acquire(&held))
        cl_uthread_sleep_ns(MS / 10);
    data[0] = 1;
    for (unsigned i = 0; i < TOO_MANY; i++) {
        CHECK(cl_udp_sendto(s, data, sizeof data, &to) == sizeof data);
        if (i % 16 == 15)
            cl_uthread_sleep_ns(MS / 10); /* the link holds fewer */
    }
    until(0, TOO_MANY - FULL);
    cl_store_release(&let_go, 1);
    until(1 + FULL, TOO_MANY - FULL);
    CHECK(cl_udp_close(s) == 0);
}

static void refusals(void)
{
    struct cl_udp_types types = {.n = 2, .target_us = {10, 1000}, .classify = classify};
    types.n = 17;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, handle, NULL, &types, err) == -EINVAL && strstr(err, "17 types"));
    types.n = 0;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, handle, NULL, &types, err) == -EINVAL && strstr(err, "0 types"));
    types.n = 3;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, handle, NULL, &types, err) == -EINVAL && strstr(err, "of type 2 is 0"));
    types.n = 2;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 0, handle, NULL, &types, err) == -EINVAL && strstr(err, "port 0"));
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9000, handle, NULL, &types, err) == -EADDRINUSE && strstr(err, "in use"));
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, NULL, NULL, &types, err) == -EINVAL && strstr(err, "handler is NULL"));
    types.classify = NULL;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, handle, NULL, &types, err) == -EINVAL && strstr(err, "classifier"));
    types.classify = classify;
    for (uint32_t i = 0; i < 16; i++)
        types.target_us[i] = 1;
    types.n = 14;
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, handle, NULL, &types, err) == -ENOSPC && strstr(err, "has 13 left"));
}

static void stats_are_right(bool filled)
{
    struct cl_net_stats s;
    uint64_t dropped = 0, sent = (uint64_t)CLIENTS * rounds;
    cl_runtime_net_stats(rt_b, -1, &s);
    for (unsigned r = 1; r < CL_DROP_REASONS; r++)
        dropped += s.dropped[r];
    CHECK(s.dropped[CL_DROP_TYPE_FULL] == (filled ? TOO_MANY - FULL : 0));
    CHECK(s.rx_frames == s.delivered + s.answered + dropped);
    CHECK(s.delivered == s.handled + s.learned);
    CHECK(s.replied == 3 * sent + cl_load_relaxed(&shorts) && s.unanswered == (filled ? 1 + FULL : 0));
    CHECK(s.handled == s.replied + s.unanswered);
    CHECK(s.type_errors == sent);
    CHECK(quantum ? s.requeued > 0 : s.requeued == 0);
    CHECK(s.requeue_full == 0 && s.unhandled == 0);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    uint32_t quantum_us = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 1000;
    quantum = quantum_us != 0;
    struct cl_udp_types types = {.n = TYPES, .target_us = {5, 20, 1000}, .classify = classify, .arg = &shorts};
    alarm(120); /* a long one that nobody lets go hangs: die and say so by the signal */
    pair_new(1, kthreads, quantum_us);
    CHECK(cl_runtime_bind_udp_typed(rt_b, 9000, handle, &all, &types, err) == 0);
    refusals();
    pair_start();
    CHECK(cl_sched_run(cl_runtime_sched(rt_a), meet, NULL) == 0);
    cl_wait_group_add(&all, CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK(cl_runtime_spawn(rt_a, client, (void *)(uintptr_t)i) == 0);
    CHECK(cl_sched_run(cl_runtime_sched(rt_a), run_all, NULL) == 0);
    bool filled = quantum && kthreads == 1;
    if (filled) {
        struct cl_udp_types two = {.n = 2, .target_us = {1, UINT32_MAX}, .classify = first_is_held};
        CHECK(cl_runtime_bind_udp_typed(rt_b, 9001, hold, NULL, &two, err) == 0); /* while it runs */
        CHECK(cl_sched_run(cl_runtime_sched(rt_a), fill, NULL) == 0);
    }
    pair_stop();
    stats_are_right(filled);
    pair_delete();
    printf("ok\n");
    return 0;
}
