/* Flows, their ready queues and the order of bursts (libos/net/{flow,ready}.h, {order,ordered,receive,handler}.c),
 * explored: kthreads that poll their queues, take from each other, look whether they may sleep, and run flows, in all
 * interleavings (explore.h) with frames that come. The code is the library's as it is; NIC, pools and handler are the
 * model's.
 *
 *   flow_model SCENARIO [mutant=N]
 *
 * Shown: a flow's frames are handled in order and by one kthread at a time; a flow is where its state says, once; from
 * every state all frames come to be handled.
 * Not covered: more kthreads and frames than a scenario has; uthreads that go on elsewhere, and frames that are
 * dropped, which flow_order.c has. */
#include "explore.h"

#ifndef FLOW_H
#define FLOW_H "libos/net/flow.h"
#define ORDER_C "libos/net/order.c"
#define ORDERED_C "libos/net/ordered.c"
#define RECEIVE_C "libos/net/receive.c"
#define HANDLER_C "libos/net/handler.c"
#endif

static unsigned mutant; /* the fault that is in; 0: none (tests/libos/net/test_flow_model.py) */

#include <corelane/runtime/clock.h>
#define cl_stamp(time) ((void)(time), 0ull)
#define cl_pool_get model_get
#define cl_pool_put model_put
#include "runtime/pool.h"
#define cl_pool_get_one(pool, cache, out) (model_get(pool, cache, out, 1) == 1)
#define cl_pool_put_one(pool, cache, index) model_put(pool, cache, &(uint32_t){index}, 1)
#include FLOW_H
#undef CL_FLOW_BURST
#define CL_FLOW_BURST turn_of_a_flow()
static unsigned turn_of_a_flow(void);
#include "libos/net/netif.h"
#define cl_netq_self model_self
static struct cl_netq *model_self(struct cl_netif *nif);
#include ORDER_C
#include ORDERED_C
#include RECEIVE_C
#include HANDLER_C

#define FRAMES 8
#define FLOWS 4
#define PORT 9000
#define WAKES 4 /* of a flow that is kept */

struct coming {
    uint8_t flow, queue, number; /* number: of its steering */
};

static const struct scenario {
    const char *name;
    unsigned queues, kthreads; /* queues from the number of kthreads on are of kthreads that are away */
    unsigned sleep, burst;     /* sleep: 1: they look whether they may */
    unsigned turn, n;          /* frames of a flow that a holder handles at most; frames in all */
    struct coming frames[FRAMES];
} scenarios[] = {
    /* Consecutive bursts of one queue, in whosever hands. */
    {"bursts", 2, 2, 1, 1, 16, 3, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
    {"longer_bursts", 2, 2, 0, 2, 1, 4, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
    {"two_flows", 2, 2, 0, 2, 16, 4, {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}, {1, 0, 0}}},
    {"two_queues", 2, 2, 0, 1, 16, 4, {{0, 0, 0}, {1, 1, 0}, {0, 0, 0}, {1, 1, 0}}},
    {"three_kthreads", 3, 3, 0, 1, 16, 2, {{0, 0, 0}, {0, 0, 0}}},
    /* A flow that goes to another queue, and back; and on. */
    {"steered", 2, 2, 1, 1, 16, 3, {{0, 0, 0}, {0, 1, 1}, {0, 0, 2}}},
    {"steered_in_bursts", 2, 2, 0, 2, 1, 4, {{0, 0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 1, 1}}},
    {"steered_on", 3, 2, 0, 1, 16, 3, {{0, 0, 0}, {0, 1, 1}, {0, 2, 2}}},
    /* A flow that is kept, and woken for something else than frames. */
    {"woken", 2, 2, 0, 1, 16, 0, {{0, 0, 0}}},
};

static struct {
    const struct scenario *s;
    struct cl_netif nif;
    struct cl_nic nic;
    struct cl_udp_socket socket;
    struct cl_udp_socket *ports[CL_UDP_PORTS];
    uint8_t bytes[FRAMES][128], spare[128];
} fixed;

static unsigned turn_of_a_flow(void)
{
    return fixed.s->turn;
}

/* What the state is of, besides the queues' receive sides. */
static struct {
    uint32_t published, head[EX_THREADS]; /* of the frames; of those a queue's next is sought from here */
    uint32_t in_use[2];                   /* of flows; of items: a bit each */
    uint8_t busy[FLOWS], last[FLOWS];     /* a handler is in it; the number of its last frame */
    uint8_t asked, answered; /* of a flow that is kept: how often it was woken, and its holder has seen that */
    struct cl_flows flows;
    struct cl_flow_bucket buckets[2];
    struct cl_flow flow[FLOWS];
    struct cl_flow_item items[FRAMES];
    struct cl_ready ready[EX_THREADS];
} now;

/* The model's NIC. */

static const struct coming *next_of(unsigned queue)
{
    for (uint32_t i = now.head[queue]; i < now.published; i++)
        if (fixed.s->frames[i].queue == queue)
            return &fixed.s->frames[i];
    return NULL;
}

static bool nic_steering(struct cl_nic *nic, unsigned queue, uint32_t *number)
{
    (void)nic;
    const struct coming *c = next_of(queue);
    *number = c ? c->number : 0;
    return c != NULL;
}

static unsigned nic_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    unsigned got = 0;
    int number = -1;
    (void)nic;
    ex_pause(NULL, 1);
    for (const struct coming *c; got < cl_min(n, fixed.s->burst) && (c = next_of(queue));) {
        if (number >= 0 && c->number != number)
            break;
        number = c->number;
        unsigned i = (unsigned)(c - fixed.s->frames);
        frames[got++] = (struct cl_frame){.data = fixed.bytes[i], .buf = i, .len = CL_UDP_HEADERS + 2};
        now.head[queue] = i + 1;
    }
    return got;
}

static unsigned nic_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    (void)nic, (void)queue, (void)n;
    frames[0] = (struct cl_frame){.data = fixed.spare, .room = sizeof fixed.spare};
    return 1;
}

static void nic_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    (void)nic, (void)queue, (void)frames, (void)n;
}

static const struct cl_nic_ops nic_ops = {
    .name = "model", .rx_burst = nic_rx, .alloc = nic_alloc, .free = nic_free, .steering = nic_steering};

/* The model's pools: the lowest that is free, and what is free is zero. */

static uint32_t *mask_of(const struct cl_pool *pool)
{
    return &now.in_use[pool == now.flows.item_pool];
}

unsigned model_get(struct cl_pool *pool, unsigned cache, uint32_t *out, unsigned n)
{
    uint32_t *mask = mask_of(pool);
    (void)cache, (void)n;
    *out = (uint32_t)__builtin_ctz(~*mask);
    if (*out >= (pool == now.flows.item_pool ? FRAMES : FLOWS))
        return 0;
    *mask |= 1u << *out;
    return 1;
}

void model_put(struct cl_pool *pool, unsigned cache, const uint32_t *in, unsigned n)
{
    (void)cache, (void)n;
    *mask_of(pool) &= ~(1u << *in);
    if (pool == now.flows.item_pool)
        memset(&now.items[*in], 0, sizeof now.items[*in]);
    else
        memset(&now.flow[*in], 0, sizeof now.flow[*in]);
}

static int64_t handle(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    uint8_t flow = request[0], number = request[1];
    (void)len, (void)reply, (void)room, (void)arg;
    if (now.busy[flow])
        ex_fail("two handlers of one flow run at the same time");
    if (number != now.last[flow] + 1)
        ex_fail("a frame is handled out of order");
    now.busy[flow] = 1;
    ex_pause(NULL, 1);
    now.last[flow] = number;
    now.busy[flow] = 0;
    return 0;
}

static struct cl_netq *model_self(struct cl_netif *nif)
{
    return &nif->queues[ex.running];
}

/* How often a flow is in ready queues. */
static unsigned times_ready(const struct cl_flow *f)
{
    unsigned times = 0;
    for (unsigned k = 0; k < fixed.s->queues; k++)
        for (const struct cl_flow *at = now.ready[k].first; at; at = at->next_ready)
            times += at == f;
    return times;
}

/* While this kthread rests, all locks that it took are free; others may be in the middle of something. */
static void check_flows(void)
{
    for (unsigned i = 0; i < FLOWS; i++) {
        const struct cl_flow *f = &now.flow[i];
        unsigned times = times_ready(f);
        if (times > 1)
            ex_fail("a flow is in two ready queues, or twice in one");
        if (times && f->state != CL_FLOW_READY)
            ex_fail("a flow is in a ready queue, and its state says that it is not");
    }
}

/* A kthread that would find nothing does nothing, here: it would only hold a lock for a moment. */
static bool finds_something(unsigned self, unsigned queue)
{
    return next_of(queue) || fixed.nif.queues[queue].n_stash || (queue != self && now.ready[queue].first);
}

/* What a connection would do that is woken by a timer or a write: flow 0. */
static void wake_kept(struct cl_netq *q)
{
    struct cl_ready_list one = {0};
    struct cl_flow *f = &now.flow[0];
    struct cl_flow_bucket *bucket = cl_flow_bucket(&now.flows.table, f->hash);
    now.asked++;
    cl_spin_lock(&bucket->lock);
    if (cl_flow_wake(f))
        cl_ready_add(&one, f);
    cl_spin_unlock(&bucket->lock);
    cl_ordered_publish(q, &one);
}

static void run_kept(struct cl_netq *q)
{
    struct cl_ready_list one = {0};
    struct cl_flow *f = cl_ordered_first(q);
    if (!f)
        return;
    cl_ordered_hold(q, f);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&now.flows.table, f->hash);
    if (now.busy[0])
        ex_fail("two kthreads work on one flow");
    now.busy[0] = 1;
    uint8_t seen = now.asked;
    ex_pause(NULL, 1);
    now.answered = seen;
    now.busy[0] = 0;
    cl_spin_lock(&bucket->lock);
    if (cl_flow_release(f, 0))
        cl_ready_add(&one, f);
    cl_spin_unlock(&bucket->lock);
    cl_ordered_publish(q, &one);
}

static bool kept(void)
{
    return fixed.s->n == 0;
}

static void kthread(void)
{
    unsigned self = (unsigned)ex.running, n = fixed.s->queues;
    struct cl_running running;
    memset(&running, 0, sizeof running);
    for (;;) {
        struct cl_netq *q = &fixed.nif.queues[self];
        unsigned what = ex_pause(NULL, n + 2), queue = (self + what) % n;
        check_flows();
        if (what < n && finds_something(self, queue))
            cl_netif_poll(&fixed.nif, self, queue);
        else if (what == n && now.ready[self].first && kept())
            run_kept(q);
        else if (what == n && now.ready[self].first)
            run_flow(&fixed.nif, &q, &running, &(struct cl_pace){0, 0}, &(unsigned){1});
        else if (what == n + 1 && fixed.s->sleep && next_of(self))
            cl_netif_ready(&fixed.nif, self);
        else if (what == n + 1 && kept() && now.asked < WAKES)
            wake_kept(q);
        memset(&running, 0, sizeof running);
    }
}

static bool ex_outside(unsigned which)
{
    if (which || now.published == fixed.s->n)
        return false;
    now.published++;
    return true;
}

static bool ex_done(void)
{
    uint8_t last[FLOWS] = {0};
    if (kept())
        return now.asked == WAKES && now.answered == WAKES && now.flow[0].state == CL_FLOW_IDLE;
    for (unsigned i = 0; i < fixed.s->n; i++)
        last[fixed.s->frames[i].flow]++;
    return memcmp(last, now.last, sizeof last) == 0 && now.in_use[0] == 0 && now.in_use[1] == 0;
}

/* Flows go back and forth between thieves without end; only the difference is ever looked at. */
static void ex_canonical(void)
{
    for (unsigned k = 0; k < EX_THREADS; k++) {
        now.ready[k].put -= now.ready[k].taken;
        now.ready[k].taken = 0;
    }
}

static void begin_queue(unsigned k)
{
    struct cl_netq *q = &fixed.nif.queues[k];
    q->nif = &fixed.nif;
    q->nic = &fixed.nic;
    q->index = k;
    q->flush_at = 1;
    q->signals = &q->own_signals;
    q->inbox = cl_inbox_new(CL_INBOX_ITEMS);
    now.ready[k].shared = true;
    q->ready = &now.ready[k];
    ex_region(&q->rx_lock, (size_t)((char *)(q->loop + CL_NETQ_LOOP) - (char *)&q->rx_lock));
}

static void begin_all(void)
{
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1}, peer[6] = {2, 0, 0, 0, 0, 2};
    uint8_t number[FLOWS] = {0};
    struct cl_netif *nif = &fixed.nif;
    unsigned n = fixed.s->queues;
    fixed.nic = (struct cl_nic){.ops = &nic_ops, .n_queues = n, .n_buffers = FRAMES, .mtu = 100};
    *nif = (struct cl_netif){.nic = &fixed.nic, .n_queues = n, .mtu = 100, .steal = true, .ports = fixed.ports};
    nif->queues = calloc(n, sizeof *nif->queues);
    nif->flows = &now.flows;
    cl_net_self_set(&nif->self, mac, 0x0a000001, 24, 0);
    fixed.socket = (struct cl_udp_socket){.port = PORT, .kind = CL_UDP_ORDERED, .fn.plain = handle, .nif = nif};
    fixed.ports[cl_be16(PORT)] = &fixed.socket;
    now.flows = (struct cl_flows){.table = {.secret = {1, 2}, .mask = 1, .shared = true, .buckets = now.buckets},
                                  .flow_pool = (struct cl_pool *)&now.in_use[0],
                                  .item_pool = (struct cl_pool *)&now.in_use[1],
                                  .flows = now.flow,
                                  .items = now.items,
                                  .ready = now.ready};
    for (unsigned i = 0; i < fixed.s->n; i++) {
        struct cl_udp_frame *u = (struct cl_udp_frame *)fixed.bytes[i];
        uint8_t flow = fixed.s->frames[i].flow;
        u->payload[0] = flow;
        u->payload[1] = ++number[flow];
        cl_udp_fill(u, mac, peer, cl_be32(0x0a000002), cl_be32(0x0a000001), cl_be16((uint16_t)(2000 + flow)),
                    cl_be16(PORT), 2, false);
    }
    ex_region(&now, sizeof now);
    for (unsigned k = 0; k < n; k++)
        begin_queue(k);
    ex.n_threads = fixed.s->kthreads;
    for (unsigned k = 0; k < fixed.s->kthreads; k++)
        ex_thread_new(k, kthread);
}

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0)
            fixed.s = &scenarios[i];
    if (argc > 2 && strncmp(argv[2], "mutant=", 7) == 0)
        mutant = (unsigned)atoi(argv[2] + 7);
    if (!fixed.s) {
        fprintf(stderr, "usage: flow_model SCENARIO [mutant=N]\n");
        return 1;
    }
    ex.blob_slots = calloc(EX_SLOTS, sizeof *ex.blob_slots);
    ex.state_slots = calloc(EX_SLOTS, sizeof *ex.state_slots);
    begin_all();
    ex_explore(30000000);
    return 0;
}
