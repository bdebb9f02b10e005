/* A NIC that steers flows anew while frames are under way, as an iokernel does where cores move: it only receives. One
 * producer, a ring for each queue, each frame with the number of the steering by which it was put there. */
#ifndef TESTS_LIBOS_STEERING_NIC_H
#define TESTS_LIBOS_STEERING_NIC_H

#include <corelane/drivers/nic.h>
#include "runtime/net.h"
#include "runtime/pool.h"
#include "runtime/ring.h"

#include "tests/support/c/check.h"

#define SN_QUEUES 8
#define SN_SLOTS 256
#define SN_BUFFERS 4096
#define SN_BYTES 128
#define SN_STEER 16 /* entries of the table, by flow */

struct sn_queue {
    struct cl_ring_tx tx; /* the producer's */
    struct cl_ring_rx rx CL_ALIGNED(CL_CACHELINE);
    struct cl_desc slots[SN_SLOTS];
    uint32_t head CL_ALIGNED(CL_CACHELINE);
    uint32_t park;
    struct cl_parker parker;
};

struct steering_nic {
    struct cl_nic nic;
    struct sn_queue queues[SN_QUEUES];
    struct cl_pool *pool; /* caches: the queues', and the producer's */
    uint8_t (*bytes)[SN_BYTES];
    uint8_t steer[SN_STEER]; /* the producer's, as the next */
    uint32_t number;
};

static inline struct steering_nic *sn_of(struct cl_nic *nic)
{
    return cl_container_of(nic, struct steering_nic, nic);
}

static bool sn_steering(struct cl_nic *nic, unsigned queue, uint32_t *number)
{
    struct cl_desc next;
    if (!cl_ring_next(&sn_of(nic)->queues[queue].rx, &next))
        return false;
    *number = (uint32_t)next.payload & 0xffffff;
    return true;
}

static unsigned sn_rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct steering_nic *s = sn_of(nic);
    struct cl_ring_rx *rx = &s->queues[queue].rx;
    struct cl_desc d[CL_NIC_BURST];
    unsigned got = cl_ring_pop(rx, d, cl_min(n, (unsigned)CL_NIC_BURST)), i = 0;
    for (; i < got && d[i].payload == d[0].payload; i++)
        frames[i] = (struct cl_frame){.data = s->bytes[(uint32_t)d[i].word],
                                      .buf = (uint32_t)d[i].word,
                                      .len = (uint16_t)(d[i].word >> 32),
                                      .room = SN_BYTES};
    cl_ring_unpop(rx, got - i);
    cl_ring_publish(rx);
    return i;
}

static unsigned sn_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct steering_nic *s = sn_of(nic);
    uint32_t index[CL_NIC_BURST];
    unsigned got = cl_pool_get(s->pool, queue, index, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < got; i++)
        frames[i] = (struct cl_frame){.data = s->bytes[index[i]], .buf = index[i], .room = SN_BYTES};
    return got;
}

static void sn_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        cl_pool_put(sn_of(nic)->pool, queue, &frames[i].buf, 1);
}

static unsigned sn_tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    sn_free(nic, queue, frames, n);
    return n;
}

static struct cl_parker *sn_parker(struct cl_nic *nic, unsigned queue)
{
    return &sn_of(nic)->queues[queue].parker;
}

static int sn_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    cl_park_wait(sn_parker(nic, queue), timeout_ns);
    return 0;
}

static const struct cl_nic_ops sn_ops = {.name = "steering",
                                         .rx_burst = sn_rx_burst,
                                         .tx_burst = sn_tx_burst,
                                         .alloc = sn_alloc,
                                         .free = sn_free,
                                         .parker = sn_parker,
                                         .wait = sn_wait,
                                         .steering = sn_steering};

static inline void sn_init(struct steering_nic *s, unsigned queues)
{
    s->nic = (struct cl_nic){.ops = &sn_ops,
                             .n_queues = queues,
                             .n_buffers = SN_BUFFERS,
                             .buffer_bytes = SN_BYTES,
                             .mtu = SN_BYTES - CL_ETH_HLEN,
                             .mac = {2, 0, 0, 0, 0, 1}};
    s->pool = cl_pool_new(0, SN_BUFFERS, queues + 1);
    s->bytes = calloc(SN_BUFFERS, SN_BYTES);
    CHECK(s->pool && s->bytes);
    for (unsigned q = 0; q < queues; q++) {
        struct sn_queue *queue = &s->queues[q];
        CHECK(cl_ring_tx_init(&queue->tx, queue->slots, &queue->head, SN_SLOTS) == 0);
        CHECK(cl_ring_rx_init(&queue->rx, queue->slots, &queue->head, SN_SLOTS) == 0);
        queue->parker = (struct cl_parker){.word = &queue->park, .event_fd = CL_PARK_FUTEX_PRIVATE};
    }
    for (unsigned i = 0; i < SN_STEER; i++)
        s->steer[i] = (uint8_t)(i % queues);
}

static inline void sn_delete(struct steering_nic *s)
{
    cl_pool_delete(s->pool);
    free(s->bytes);
}

/* Producer: steer some flows to other queues from now on. */
static inline void sn_steer_anew(struct steering_nic *s, uint64_t random)
{
    for (unsigned i = 0; i < SN_STEER; i++, random >>= 4)
        if (random & 1)
            s->steer[i] = (uint8_t)((random >> 1 & 7) % s->nic.n_queues);
    s->number = (s->number + 1) & 0xffffff;
}

/* Producer: a datagram of 8 bytes from one of many ports to `to_port`. False: no room at this moment. */
static inline bool sn_send(struct steering_nic *s, unsigned flow, uint16_t to_port, uint64_t payload)
{
    struct sn_queue *q = &s->queues[s->steer[flow % SN_STEER]];
    static const uint8_t peer[6] = {2, 0, 0, 0, 0, 9};
    uint32_t buf;
    if (cl_ring_tx_space(&q->tx, 1) == 0 || cl_pool_get(s->pool, s->nic.n_queues, &buf, 1) == 0)
        return false;
    struct cl_udp_frame *u = (struct cl_udp_frame *)s->bytes[buf];
    memcpy(u->payload, &payload, sizeof payload);
    cl_udp_fill(u, s->nic.mac, peer, cl_be32(0x0a4d0002), cl_be32(0x0a4d0001), cl_be16((uint16_t)(20000 + flow)),
                cl_be16(to_port), sizeof payload, true);
    cl_ring_push(&q->tx, buf | (uint64_t)(CL_UDP_HEADERS + sizeof payload) << 32, s->number);
    cl_park_wake(&q->parker);
    return true;
}

#endif
