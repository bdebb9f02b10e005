/* The load generator's client thread over a memory link, an echoing thread a queue at the other end, and a controller
 * that starts, ends and reads runs meanwhile. Usage: loadgen_client QUEUES RATE SPIN RUNS */
#include "drivers/nic/loadgen/loadgen.h"
#include <corelane/drivers/memory.h>
#include "runtime/net.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static struct cl_nic *ends[2];
static uint32_t finished;

static void turn_round(struct cl_frame *f)
{
    struct cl_udp_frame *u = (struct cl_udp_frame *)f->data;
    uint32_t ip = u->ip.src_be;
    uint16_t port = u->udp.src_port_be;
    u->ip.src_be = u->ip.dst_be;
    u->ip.dst_be = ip;
    u->udp.src_port_be = u->udp.dst_port_be;
    u->udp.dst_port_be = port;
}

static void *serve(void *arg)
{
    unsigned queue = (unsigned)(uintptr_t)arg;
    struct cl_nic *nic = ends[1];
    struct cl_parker *parker = nic->ops->parker(nic, queue);
    struct cl_frame frames[CL_NIC_BURST];
    while (!cl_load_relaxed(&finished)) {
        unsigned n = nic->ops->rx_burst(nic, queue, frames, CL_NIC_BURST);
        if (n == 0) {
            cl_park_begin(parker);
            n = nic->ops->rx_burst(nic, queue, frames, CL_NIC_BURST);
            if (n == 0 && !cl_load_relaxed(&finished)) {
                nic->ops->wait(nic, queue, -1);
                continue;
            }
            cl_park_cancel(parker);
        }
        for (unsigned i = 0; i < n; i++)
            turn_round(&frames[i]);
        for (unsigned sent = 0; sent < n;) {
            unsigned taken = nic->ops->tx_burst(nic, queue, frames + sent, n - sent);
            sent += taken;
            if (!taken && cl_load_relaxed(&finished)) { /* nobody receives any more */
                nic->ops->free(nic, queue, frames + sent, n - sent);
                break;
            }
            if (!taken)
                sched_yield();
        }
    }
    return NULL;
}

/* An ended run leaves requests and answers under way. */
static void empty(struct cl_nic *nic)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned n;
    for (unsigned q = 0; q < nic->n_queues; q++)
        while ((n = cl_nic_rx(nic, q, frames, CL_NIC_BURST)))
            cl_nic_free(nic, q, frames, n);
}

static int one_run(struct cl_loadgen *lg, double rate, bool abort)
{
    char err[256];
    struct cl_loadgen_phase phases[3] = {{5000000, rate, 0, 0}, {10000000, rate, 1, 0}, {5000000, rate / 2, 1, 0}};
    struct cl_loadgen_counts counts;
    if (cl_loadgen_run(lg, phases, 3, err))
        return puts(err), 1;
    for (unsigned looks = 0; cl_loadgen_state(lg) != CL_LOAD_IDLE; looks++) {
        cl_loadgen_counts(lg, looks % 3, &counts); /* reading meanwhile is allowed */
        if (abort && counts.sent > 10)
            cl_loadgen_abort(lg);
        sched_yield();
    }
    for (unsigned i = 0; i < 3; i++) {
        cl_loadgen_counts(lg, i, &counts);
        const struct cl_hist *h = cl_loadgen_latency(lg, i);
        printf("phase %u: %lu offered, %lu sent, %lu answered, %lu dropped\n", i, counts.offered, counts.sent,
               counts.answered, counts.dropped);
        if (counts.offered != counts.sent + counts.dropped || counts.wrong || counts.errors ||
            (h && cl_hist_count(h) != counts.offered) || (!abort && counts.answered + counts.dropped != counts.offered))
            return puts("the counts do not balance"), 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    char err[256];
    struct cl_loadgen *lg;
    struct cl_loadgen_client *client;
    if (argc != 5)
        return 2;
    struct cl_memory_config link = {.queues = {1, (uint32_t)atoi(argv[1])}};
    /* The drain is long: a machine that is busy with other things must not make an answer count as lost. */
    struct cl_loadgen_config config = {.seed = 1, .server_mac = {2, 0, 0, 0, 0, 2}, .drain_ns = 20000000000};
    if (cl_memory_link_new(&link, ends, err) || cl_loadgen_new(&config, &lg, err))
        return puts(err), 1;
    pthread_t servers[8];
    unsigned queues = cl_min(ends[1]->n_queues, 8u);
    for (unsigned q = 0; q < queues; q++)
        if (pthread_create(&servers[q], NULL, serve, (void *)(uintptr_t)q))
            return 1;
    if (cl_loadgen_client_start(lg, ends[0], 0, -1, (uint32_t)atoi(argv[3]), &client, err))
        return puts(err), 1;
    int rc = 0, runs = atoi(argv[4]);
    for (int i = 0; i < runs && !rc; i++)
        rc = one_run(lg, atof(argv[2]), i % 3 == 2);
    cl_loadgen_client_stop(client);
    cl_store_relaxed(&finished, 1);
    for (unsigned q = 0; q < queues; q++) {
        cl_park_wake(ends[1]->ops->parker(ends[1], q));
        pthread_join(servers[q], NULL);
    }
    empty(ends[0]);
    empty(ends[1]);
    printf("%u of %u buffers free\n", cl_nic_buffers_free(ends[0]), ends[0]->n_buffers);
    rc |= cl_nic_buffers_free(ends[0]) != ends[0]->n_buffers;
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    cl_loadgen_delete(lg);
    return rc;
}
