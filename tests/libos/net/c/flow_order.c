/* Numbered datagrams of many flows to an ordered handler: those of one flow come in order and one at a time, and none
 * is lost but those that are counted as dropped, while
 *
 *   siblings steal        handlers take long now and then, so that their kthread is stuck
 *   handlers block        and go on elsewhere
 *   flows are steered     to other queues while older frames are in the old ones (steering_nic.h)
 *   kthreads are away     a signal puts each aside for a while, wherever it is: in the middle of a burst, too
 *   others are served     a plain handler gets a part of what comes
 *
 * Usage: flow_order KTHREADS MODE DATAGRAMS SEED. It goes on until flows were stolen. Prints "ok". Run plain and under
 * TSan. */
#include <corelane/libos/libos.h>
#include "libos/net/udp.h"
#include "libos/sched/internal.h"
#include "steering_nic.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FLOWS 48
#define ORDERED 9000
#define PLAIN 9001
#define WINDOW 1500 /* under way at most: more than what all flows may hold, so that some are dropped */

struct flow {
    uint32_t busy; /* a handler is in it */
    uint32_t last; /* number of its last datagram, from 1 */
    uint64_t handled;
} CL_ALIGNED(CL_CACHELINE);

static struct flow flows[FLOWS];
static uint64_t plain_handled;
static const char *wrong;
static struct steering_nic nic;
static struct cl_runtime *rt;
static uint32_t over, hurry; /* hurry: handlers do nothing else */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 29;
}

static void compute(uint64_t ns)
{
    for (uint64_t end = cl_sched_now_ns(cl_sched_self()) + ns; cl_sched_now_ns(cl_sched_self()) < end;)
        cl_relax();
}

/* What a handler does besides, by the datagram alone. */
static void take_time(uint64_t random)
{
    if (random % 64 == 0)
        cl_uthread_yield();
    else if (random % 64 == 1)
        cl_uthread_sleep_ns(20000);
    else if (random % 64 == 2)
        compute(30000);
    else if (random % 512 == 3)
        compute(300000);
}

static int64_t in_order(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    uint64_t payload;
    (void)reply, (void)room, (void)arg;
    memcpy(&payload, request, sizeof payload);
    struct flow *f = &flows[payload >> 32];
    uint32_t number = (uint32_t)payload;
    /* Plain words: what one handler of a flow wrote the next one sees by the stack's own locks. TSan would tell. */
    if (cl_load_relaxed(&f->busy))
        cl_store_relaxed(&wrong, "two handlers of one flow run at the same time");
    cl_store_relaxed(&f->busy, 1);
    if (number <= f->last || len != sizeof payload)
        cl_store_relaxed(&wrong, "datagrams of one flow are out of order");
    f->last = number;
    if (!cl_load_relaxed(&hurry))
        take_time(mix(payload));
    f->handled++;
    cl_store_relaxed(&f->busy, 0);
    return 0;
}

static int64_t any_order(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)request, (void)len, (void)reply, (void)room, (void)arg;
    __atomic_fetch_add(&plain_handled, 1, __ATOMIC_RELAXED);
    return 0;
}

/* SIGPROF reaches kthreads wherever they are. */
static void be_away(int signal)
{
    static const struct timespec away = {0, 200000};
    (void)signal;
    nanosleep(&away, NULL);
}

static void *disturb(void *arg)
{
    uint64_t state = *(const uint64_t *)arg;
    unsigned kthreads = nic.nic.n_queues;
    while (!cl_load_acquire(&over)) {
        const struct timespec pause = {0, (long)(50000 + next_random(&state) % 200000)};
        unsigned k = (unsigned)(next_random(&state) % kthreads);
        syscall(SYS_tgkill, getpid(), cl_load_relaxed(&cl_runtime_sched(rt)->kthreads[k].tid), SIGPROF);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Of those that were sent: handled, or dropped under a reason. */
static uint64_t settled(struct cl_net_stats *stats)
{
    uint64_t n = 0;
    cl_runtime_net_stats(rt, -1, stats);
    for (unsigned r = 0; r < CL_DROP_REASONS; r++)
        n += stats->dropped[r];
    return n + stats->unanswered; /* each handler says 0 */
}

static void drive(uint64_t datagrams, uint64_t *state)
{
    uint32_t number[FLOWS] = {0};
    struct cl_net_stats stats = {0};
    uint64_t sent = 0, seen = 0;
    for (; (sent < datagrams || (nic.nic.n_queues > 1 && stats.flows_stolen == 0)) && !cl_load_relaxed(&wrong);) {
        if (sent - seen >= WINDOW || sent % 64 == 0)
            while (sent - (seen = settled(&stats)) >= WINDOW)
                sched_yield();
        uint64_t random = next_random(state);
        unsigned flow = (unsigned)(random % FLOWS);
        if (random >> 8 & 1)
            flow %= 4; /* some have much, and their queues run over */
        bool plain = (random >> 16) % 8 == 0;
        if ((random >> 24) % 128 == 0)
            sn_steer_anew(&nic, next_random(state));
        if (sn_send(&nic, flow, plain ? PLAIN : ORDERED, (uint64_t)flow << 32 | (number[flow] + 1))) {
            number[flow]++;
            sent++;
        }
    }
    while (settled(&stats) != sent && !cl_load_relaxed(&wrong))
        sched_yield();
}

static void judge(void)
{
    struct cl_net_stats s;
    uint64_t handled = plain_handled, dropped = 0;
    cl_runtime_net_stats(rt, -1, &s);
    for (unsigned i = 0; i < FLOWS; i++)
        handled += flows[i].handled;
    for (unsigned r = 0; r < CL_DROP_REASONS; r++)
        dropped += s.dropped[r];
    CHECK_EQ(s.handled, handled);
    CHECK_EQ(s.rx_frames, s.delivered + dropped);
    CHECK_EQ(s.delivered, s.handled + s.unhandled);
    CHECK_EQ(dropped, s.dropped[CL_DROP_FLOW_FULL] + s.dropped[CL_DROP_FLOW_BUDGET] + s.dropped[CL_DROP_STOPPED]);
    printf("%llu handled, %llu dropped, %llu flows stolen\n", (unsigned long long)s.handled,
           (unsigned long long)dropped, (unsigned long long)s.flows_stolen);
}

/* It stops with datagrams in the NIC's queues, in flows, in hands: each is counted, and each buffer comes back. */
static void stop_in_the_middle(uint64_t *state)
{
    struct cl_net_stats stats;
    uint64_t sent = settled(&stats), left = 0;
    struct cl_frame f;
    cl_store_relaxed(&hurry, 1);
    for (unsigned i = 0; i < 500; i++) {
        uint64_t flow = next_random(state) % FLOWS;
        sent += sn_send(&nic, (unsigned)flow, ORDERED, flow << 32 | (UINT32_MAX - 500 + i));
    }
    CHECK(cl_runtime_stop(rt, 0) == 0);
    for (unsigned q = 0; q < nic.nic.n_queues; q++)
        while (sn_rx_burst(&nic.nic, q, &f, 1)) {
            left++;
            sn_free(&nic.nic, q, &f, 1);
        }
    CHECK_EQ(settled(&stats) + stats.unhandled + left, sent);
    CHECK(!wrong, "%s", wrong);
}

static void start(unsigned kthreads, const char *mode)
{
    struct cl_runtime_config config = {.nic = &nic.nic, .kthreads = kthreads, .ipv4 = 0x0a4d0001, .poll_set = 1};
    char err[256] = "";
    config.poll = strcmp(mode, "block") ? CL_SCHED_ADAPTIVE : CL_SCHED_BLOCK;
    CHECK(cl_runtime_new(&config, &rt, err) == 0, "%s", err);
    CHECK(cl_runtime_bind_udp(rt, PLAIN, any_order, NULL) == 0);
    CHECK(cl_runtime_bind_udp_ordered(rt, ORDERED, in_order, NULL) == 0);
    CHECK(cl_runtime_start(rt, err) == 0, "%s", err);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    uint64_t datagrams = argc > 3 ? strtoull(argv[3], NULL, 0) : 20000;
    uint64_t state = argc > 4 ? strtoull(argv[4], NULL, 0) | 1 : 1;
    pthread_t thread;
    struct sigaction away = {.sa_handler = be_away, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &away, NULL);
    sn_init(&nic, kthreads);
    start(kthreads, argc > 2 ? argv[2] : "adaptive");
    alarm(100);
    uint64_t other = next_random(&state);
    pthread_create(&thread, NULL, disturb, &other);
    drive(datagrams, &state);
    cl_store_release(&over, 1);
    pthread_join(thread, NULL);
    CHECK(!wrong, "%s", wrong);
    stop_in_the_middle(&state);
    judge();
    cl_runtime_delete(rt);
    CHECK(cl_pool_available(nic.pool) == SN_BUFFERS);
    sn_delete(&nic);
    printf("ok\n");
    return 0;
}
