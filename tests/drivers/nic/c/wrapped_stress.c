/* A recorder around a bad wire around a memory link, with all that touches them at once: both queues of both ends send
 * and receive, siblings receive for each other, another thread reads statistics and asks for flushes. Frames are lost,
 * doubled, late and out of order, but whole; every one is accounted for, every buffer comes back, and the file replays
 * what it says it holds. Run plain, under ASan and under TSan.
 * Usage: wrapped_stress FILE FRAMES_PER_QUEUE SEED */
#include "drivers/nic/fault.h"
#include "drivers/random.h"
#include <corelane/drivers/memory.h>
#include "drivers/nic/pcap.h"
#include "runtime/net.h"

#include "tests/support/c/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define QUEUES 2
static struct cl_nic *ends[2], *wire; /* ends[0] is the recorder; wire: the bad one below it */
static pthread_mutex_t rx_locks[2][QUEUES];
static uint64_t per_queue, sent[2], received[2]; /* relaxed counters: only their final values matter */
static uint32_t finished;

struct worker {
    unsigned end, queue;
    struct cl_random random;
    uint64_t sent;
    pthread_t thread;
};

static bool whole(const struct cl_frame *f)
{
    const struct cl_udp_frame *u = (const struct cl_udp_frame *)f->data;
    return f->len > CL_UDP_HEADERS + 2 &&
           cl_get16(u->payload) == cl_csum(u->payload + 2, (unsigned)f->len - CL_UDP_HEADERS - 2);
}

static void receive(struct worker *w, unsigned queue)
{
    struct cl_frame f[CL_NIC_BURST];
    struct cl_nic *nic = ends[w->end];
    if (pthread_mutex_trylock(&rx_locks[w->end][queue]))
        return;
    unsigned n = nic->ops->rx_burst(nic, queue, f, 1 + (unsigned)cl_random_below(&w->random, CL_NIC_BURST));
    pthread_mutex_unlock(&rx_locks[w->end][queue]);
    for (unsigned i = 0; i < n; i++)
        CHECK(whole(&f[i]));
    nic->ops->free(nic, w->queue, f, n);
    __atomic_fetch_add(&received[w->end], n, __ATOMIC_RELAXED);
}

static void send_some(struct worker *w)
{
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};
    struct cl_frame f[CL_NIC_BURST];
    struct cl_nic *nic = ends[w->end];
    uint64_t want = 1 + cl_random_below(&w->random, cl_min(per_queue - w->sent, (uint64_t)CL_NIC_BURST));
    unsigned n = nic->ops->alloc(nic, w->queue, f, (unsigned)want);
    for (unsigned i = 0; i < n; i++) {
        struct cl_udp_frame *u = (struct cl_udp_frame *)f[i].data;
        unsigned len = 4 + (unsigned)cl_random_below(&w->random, 400);
        cl_udp_headers(u, mac, mac, (uint32_t)cl_random_next(&w->random), 2, 9, 9, (uint16_t)len);
        for (unsigned j = 2; j < len; j++)
            u->payload[j] = (uint8_t)(w->sent + i + j);
        cl_put16(u->payload, cl_csum(u->payload + 2, len - 2));
        f[i].len = (uint16_t)(CL_UDP_HEADERS + len);
    }
    unsigned taken = n ? nic->ops->tx_burst(nic, w->queue, f, n) : 0;
    nic->ops->free(nic, w->queue, f + taken, n - taken);
    w->sent += taken;
    __atomic_fetch_add(&sent[w->end], taken, __ATOMIC_RELAXED);
    if (taken < want)
        sched_yield();
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cl_nic *nic = ends[w->end];
    struct cl_parker *parker = nic->ops->parker(nic, w->queue);
    while (!cl_load_relaxed(&finished)) {
        if (w->sent < per_queue)
            send_some(w);
        receive(w, w->queue);
        receive(w, 1 - w->queue);
        if (w->sent < per_queue)
            continue;
        cl_park_begin(parker);
        receive(w, w->queue);
        nic->ops->wait(nic, w->queue, 100000);
    }
    return NULL;
}

static void direction(unsigned d, struct cl_fault_counts *sum)
{
    struct cl_fault_counts one;
    *sum = (struct cl_fault_counts){0};
    for (unsigned q = 0; q < QUEUES; q++) {
        cl_fault_counts(wire, q, d, &one);
        for (unsigned i = 0; i < sizeof one / sizeof one.seen; i++)
            (&sum->seen)[i] += (&one.seen)[i];
    }
}

/* Whether all that was sent has met its fate, and all that passed has been received. */
static bool settled(void)
{
    struct cl_fault_counts out, in;
    direction(CL_FAULT_TX, &out);
    direction(CL_FAULT_RX, &in);
    uint64_t all = QUEUES * per_queue;
    return cl_load_relaxed(&sent[0]) == all && cl_load_relaxed(&sent[1]) == all && out.seen == all && in.seen == all &&
           !out.held && !in.held && cl_load_relaxed(&received[1]) == out.passed &&
           cl_load_relaxed(&received[0]) == in.passed;
}

static void *look_on(void *arg)
{
    (void)arg;
    struct cl_pcap_counts counts;
    struct cl_nic_stats stats;
    while (!cl_load_relaxed(&finished)) {
        for (unsigned q = 0; q < QUEUES; q++)
            cl_nic_stats(ends[0], q, &stats);
        cl_pcap_counts(ends[0], &counts);
        CHECK(cl_pcap_flush(ends[0]) == 0);
        if (settled())
            cl_store_relaxed(&finished, 1);
        sched_yield();
    }
    return NULL;
}

static void make(const char *path, uint64_t seed)
{
    struct cl_memory_config link = {.queues = {QUEUES, QUEUES}, .ring_slots = 64};
    const struct cl_fault_rates rates = {.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .delay = 0.05};
    struct cl_fault_config bad = {.seed = seed, .rates = {rates, rates}, .delay_max_ns = 300000};
    struct cl_pcap_config record = {.path = path, .ring_bytes = 65536};
    char err[256] = "";
    CHECK(cl_memory_link_new(&link, ends, err) == 0);
    CHECK(cl_fault_nic_new(ends[0], &bad, &wire, err) == 0);
    CHECK(cl_pcap_nic_new(wire, &record, &ends[0], err) == 0);
}

static void check_counts(struct cl_pcap_counts *recorded)
{
    struct cl_fault_counts c;
    for (unsigned d = 0; d < 2; d++) {
        direction(d, &c);
        CHECK(c.seen + c.duplicated == c.passed + c.lost + c.held);
        CHECK(c.lost && c.duplicated && c.reordered && c.delayed && !c.corrupted);
    }
    CHECK(cl_pcap_flush(ends[0]) == 0);
    cl_pcap_counts(ends[0], recorded);
    CHECK(recorded->failed_errno == 0 && recorded->written == recorded->recorded);
    CHECK(recorded->recorded + recorded->missed == sent[0] + received[0]);
    CHECK(cl_nic_buffers_free(ends[1]) == ends[1]->n_buffers);
}

/* Twice, at once. */
static void replay(const char *path, uint64_t frames)
{
    struct cl_replay_config config = {.path = path, .loops = 2};
    struct cl_nic *nic;
    struct cl_frame f[CL_NIC_BURST];
    char err[256] = "";
    uint64_t got = 0;
    CHECK(cl_replay_nic_new(&config, &nic, err) == 0);
    while (!cl_replay_done(nic)) {
        unsigned n = cl_nic_rx(nic, 0, f, CL_NIC_BURST);
        for (unsigned i = 0; i < n; i++)
            CHECK(whole(&f[i]));
        cl_nic_free(nic, 0, f, n);
        got += n;
    }
    CHECK(got == 2 * frames);
    CHECK(cl_nic_buffers_free(nic) == nic->n_buffers);
    cl_nic_close(nic);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    uint64_t seed = strtoull(argv[3], NULL, 10);
    per_queue = strtoull(argv[2], NULL, 10);
    struct worker workers[2 * QUEUES] = {0};
    struct cl_pcap_counts recorded;
    pthread_t reader;
    make(argv[1], seed);
    for (unsigned i = 0; i < 2 * QUEUES; i++) {
        pthread_mutex_init(&rx_locks[i / QUEUES][i % QUEUES], NULL);
        workers[i] = (struct worker){.end = i / QUEUES, .queue = i % QUEUES, .random = {seed + i}};
    }
    for (unsigned i = 0; i < 2 * QUEUES; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    CHECK(pthread_create(&reader, NULL, look_on, NULL) == 0);
    pthread_join(reader, NULL);
    for (unsigned i = 0; i < 2 * QUEUES; i++)
        pthread_join(workers[i].thread, NULL);
    check_counts(&recorded);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    replay(argv[1], recorded.recorded);
    printf("%lu sent, %lu received, %lu recorded, %lu missed\n", sent[0] + sent[1], received[0] + received[1],
           recorded.recorded, recorded.missed);
    return 0;
}
