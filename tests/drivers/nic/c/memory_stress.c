/* One thread a queue at both ends of a memory link: all send, receive, check and sleep at once. Every frame arrives
 * once and whole, or is counted as dropped; no buffer is lost. Sleepers have no time limit, so a lost wake-up hangs the
 * test. Usage: memory_stress QUEUES_A QUEUES_B FRAMES_PER_QUEUE SLOTS DROP SEED */
#include <corelane/drivers/memory.h>
#include "drivers/random.h"
#include "runtime/net.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 16

static struct cl_nic *ends[2];
static uint64_t per_queue, sent_all, received_all; /* relaxed counters: only their final values matter */
static uint32_t finished;
static bool drops;

struct worker {
    struct cl_nic *nic;
    unsigned queue, end;
    struct cl_random random;
    uint64_t sent;
    const char *failure;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

/* Payload: a random number, and words that follow from it to the end of the frame. */
static void write_frame(struct worker *w, struct cl_frame *f)
{
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};
    uint64_t value = cl_random_next(&w->random);
    unsigned words = 1 + (unsigned)cl_random_below(&w->random, 20);
    cl_udp_headers((struct cl_udp_frame *)f->data, mac, mac, (uint32_t)value, 2, (uint16_t)(value >> 32), 9,
                   (uint16_t)(words * 8));
    for (unsigned i = 0; i < words; i++, value = mix(value))
        cl_put64(f->data + CL_UDP_HEADERS + 8 * i, value);
    f->len = (uint16_t)(CL_UDP_HEADERS + 8 * words);
}

static bool whole(const struct worker *w, const struct cl_frame *f)
{
    uint64_t value = cl_get64(f->data + CL_UDP_HEADERS);
    for (unsigned i = CL_UDP_HEADERS; i < f->len; i += 8, value = mix(value))
        if (cl_get64(f->data + i) != value)
            return false;
    uint32_t hash = cl_rss_frame(CL_RSS_KEY, f->data, f->len);
    return w->nic->n_queues == 1 || (f->hash == hash && cl_rss_queue(hash, w->nic->n_queues) == w->queue);
}

static unsigned receive(struct worker *w)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned want = 1 + (unsigned)cl_random_below(&w->random, CL_NIC_BURST);
    unsigned n = w->nic->ops->rx_burst(w->nic, w->queue, frames, want);
    for (unsigned i = 0; i < n; i++)
        if (!whole(w, &frames[i]))
            w->failure = "a frame is torn, or on the wrong queue";
    w->nic->ops->free(w->nic, w->queue, frames, n);
    if (n)
        __atomic_fetch_add(&received_all, n, __ATOMIC_RELAXED);
    return n;
}

static void send_some(struct worker *w)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned want = 1 + (unsigned)cl_random_below(&w->random, cl_min(per_queue - w->sent, (uint64_t)CL_NIC_BURST));
    unsigned n = w->nic->ops->alloc(w->nic, w->queue, frames, want);
    for (unsigned i = 0; i < n; i++)
        write_frame(w, &frames[i]);
    unsigned taken = w->nic->ops->tx_burst(w->nic, w->queue, frames, n);
    w->nic->ops->free(w->nic, w->queue, frames + taken, n - taken);
    w->sent += taken;
    __atomic_fetch_add(&sent_all, taken, __ATOMIC_RELAXED);
    if (taken < want)
        sched_yield();
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cl_parker *parker = w->nic->ops->parker(w->nic, w->queue);
    while (!cl_load_relaxed(&finished)) {
        if (w->sent < per_queue)
            send_some(w);
        if (receive(w) || w->sent < per_queue)
            continue;
        cl_park_begin(parker);
        if (receive(w) || cl_load_relaxed(&finished))
            cl_park_cancel(parker);
        else
            w->nic->ops->wait(w->nic, w->queue, -1);
    }
    return NULL;
}

static uint64_t dropped(void)
{
    uint64_t sum = 0;
    struct cl_nic_stats s;
    for (unsigned e = 0; e < 2; e++)
        for (unsigned q = 0; q < ends[e]->n_queues; q++) {
            ends[e]->ops->stats(ends[e], q, &s);
            sum += s.rx_dropped_ring_full;
        }
    return sum;
}

static int report(struct worker *workers, unsigned n)
{
    struct cl_nic_stats s;
    uint64_t tx = 0, rx = 0;
    for (unsigned i = 0; i < n; i++) {
        if (workers[i].failure)
            return printf("%s\n", workers[i].failure), 1;
        workers[i].nic->ops->stats(workers[i].nic, workers[i].queue, &s);
        tx += s.tx_frames;
        rx += s.rx_frames;
    }
    uint64_t lost = dropped();
    uint32_t free_now = cl_nic_buffers_free(ends[0]);
    printf("%lu sent, %lu received, %lu dropped, %u of %u buffers free\n", tx, rx, lost, free_now, ends[0]->n_buffers);
    return tx != sent_all || rx != received_all || tx != rx + lost || (lost && !drops) ||
           free_now != ends[0]->n_buffers;
}

int main(int argc, char **argv)
{
    char err[256];
    if (argc != 7)
        return 2;
    struct cl_memory_config config = {.queues = {(uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2])},
                                      .ring_slots = (uint32_t)atoi(argv[4]),
                                      .drop_when_full = (uint32_t)atoi(argv[5])};
    per_queue = strtoull(argv[3], NULL, 10);
    drops = config.drop_when_full;
    if (cl_memory_link_new(&config, ends, err))
        return puts(err), 1;
    struct worker workers[MAX_THREADS] = {0};
    pthread_t threads[MAX_THREADS];
    unsigned n = 0;
    for (unsigned e = 0; e < 2; e++)
        for (unsigned q = 0; q < ends[e]->n_queues && n < MAX_THREADS; q++, n++)
            workers[n] =
                (struct worker){.nic = ends[e], .queue = q, .end = e, .random = {strtoull(argv[6], NULL, 10) + n}};
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, work, &workers[i]))
            return puts("cannot start a thread"), 1;
    while (cl_load_relaxed(&sent_all) < n * per_queue || cl_load_relaxed(&received_all) + dropped() < n * per_queue)
        sched_yield();
    cl_store_relaxed(&finished, 1);
    for (unsigned i = 0; i < n; i++) {
        cl_park_wake(workers[i].nic->ops->parker(workers[i].nic, workers[i].queue));
        pthread_join(threads[i], NULL);
    }
    int rc = report(workers, n);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    return rc;
}
