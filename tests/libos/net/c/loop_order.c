/* Numbered datagrams of uthreads to an ordered handler of their own runtime, by its own address and by 127.0.0.1: those
 * of one sender are handled in order and one at a time, though senders and handlers change their kthreads all the
 * while, and none is lost. The handler sends to itself, too.
 *
 * Usage: loop_order KTHREADS DATAGRAMS. It goes on for a while until senders have changed kthreads. Prints "ok". */
#include "pair.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCAL 0x7f000001u
#define SENDERS 8
/* Datagrams under way of a sender, and of the handler to itself: so few that no bound of ordered.h is met. A flow holds
 * CL_UDP_FLOW_QUEUE, handled ones of the turn included. All flows hold a quarter of the NIC's buffers, which are 288
 * items for two kthreads, of which one may have 72 unused in its cache while the other one needs them. */
#define AHEAD 16
#define ORDERED 9000
#define MOVES 5

struct sender {
    uint32_t sent, handled, busy;
} CL_ALIGNED(CL_CACHELINE);

static struct sender senders[SENDERS];
static struct cl_udp_socket *own; /* of the handler */
static uint32_t datagrams, moves, repeated, to_itself;

static void compute(uint64_t ns)
{
    for (uint64_t end = cl_sched_now_ns(cl_sched_self()) + ns; cl_sched_now_ns(cl_sched_self()) < end;)
        cl_relax();
}

static void take_time(uint32_t by)
{
    switch (by * 0x9e3779b1u >> 28) {
    case 0:
        compute(30000);
        break;
    case 1:
    case 2:
        cl_uthread_yield();
        break;
    case 3:
        cl_uthread_sleep_ns(10000);
        break;
    default:
        break;
    }
}

static int64_t in_order(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    uint32_t payload[2];
    (void)reply, (void)room, (void)arg;
    CHECK_EQ(len, sizeof payload);
    CHECK(cl_current_request()->looped);
    memcpy(payload, request, sizeof payload);
    if (payload[0] == SENDERS) {
        __atomic_fetch_add(&to_itself, 1, __ATOMIC_RELEASE);
        return 0;
    }
    struct sender *s = &senders[payload[0]];
    CHECK_EQ(__atomic_exchange_n(&s->busy, 1, __ATOMIC_RELAXED), 0);
    CHECK_EQ(payload[1], s->handled + 1);
    take_time(payload[1] * SENDERS + payload[0]);
    /* Each handler may see room for the same one: SENDERS more than AHEAD at most. A kthread that the kernel puts aside
     * in the middle of this flow keeps it, while others go on. */
    if (payload[1] % 64 == 0 && cl_load_relaxed(&repeated) - __atomic_load_n(&to_itself, __ATOMIC_ACQUIRE) < AHEAD) {
        __atomic_fetch_add(&repeated, 1, __ATOMIC_RELAXED);
        struct cl_udp_addr to = {LOCAL, ORDERED, 0};
        uint32_t once[2] = {SENDERS, 0};
        CHECK_EQ(cl_udp_sendto(own, once, sizeof once, &to), sizeof once);
    }
    cl_store_relaxed(&s->busy, 0);
    cl_store_release(&s->handled, payload[1]);
    return 0;
}

static bool go_on(const struct sender *s)
{
    return s->sent < datagrams || (cl_load_relaxed(&moves) < MOVES && s->sent < 20 * datagrams);
}

static void send_numbers(void *arg)
{
    struct sender *s = arg;
    struct cl_udp_socket *socket;
    struct cl_udp_addr to = {(s - senders) % 2 ? LOCAL : IP_A, ORDERED, 0};
    int at = cl_kthread_index();
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &socket), 0);
    while (go_on(s)) {
        uint32_t payload[2] = {(uint32_t)(s - senders), s->sent + 1};
        while (s->sent - cl_load_acquire(&s->handled) >= AHEAD)
            cl_uthread_sleep_ns(5000);
        CHECK_EQ(cl_udp_sendto(socket, payload, sizeof payload, &to), sizeof payload);
        s->sent++;
        if (cl_kthread_index() != at) {
            at = cl_kthread_index();
            __atomic_fetch_add(&moves, 1, __ATOMIC_RELAXED);
        }
        take_time(~payload[1]);
        if (s->sent % 64 == 0)
            compute(200000); /* siblings come and steal */
    }
    while (cl_load_acquire(&s->handled) != s->sent)
        cl_uthread_sleep_ns(50000);
    while (cl_load_relaxed(&repeated) != cl_load_relaxed(&to_itself)) /* of others, too, if they are still sending */
        cl_uthread_sleep_ns(50000);
    CHECK_EQ(cl_udp_close(socket), 0);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    struct cl_net_stats s;
    datagrams = argc > 2 ? (uint32_t)atoi(argv[2]) : 2000;
    if (kthreads == 1)
        moves = MOVES;
    alarm(100);
    pair_new(kthreads, 1, 0);
    CHECK_EQ(cl_runtime_bind_udp_ordered(rt_a, ORDERED, in_order, NULL), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &own), 0);
    pair_start();
    cl_wait_group_add(&all, SENDERS);
    for (unsigned i = 0; i < SENDERS; i++)
        CHECK_EQ(cl_runtime_spawn(rt_a, send_numbers, &senders[i]), 0);
    pair_wait();
    pair_stop();
    uint64_t sent = 0;
    for (unsigned i = 0; i < SENDERS; i++)
        sent += senders[i].sent;
    cl_runtime_net_stats(rt_a, -1, &s);
    CHECK_EQ(s.dropped[CL_DROP_FLOW_FULL] + s.dropped[CL_DROP_FLOW_BUDGET] + s.dropped[CL_DROP_FLOW_TABLE], 0);
    CHECK(repeated > 0);
    CHECK_EQ(to_itself, repeated);
    CHECK_EQ(s.looped, sent + repeated);
    CHECK_EQ(s.rx_frames, s.looped + s.dropped[CL_DROP_ARP_UNSOLICITED] + s.dropped[CL_DROP_ARP_NOT_OURS]); /* B's */
    CHECK_EQ(s.handled, s.looped);
    CHECK_EQ(s.delivered, s.looped);
    pair_delete();
    printf("ok\n");
    return 0;
}
