/* A thread that drives the engine over a queue of a NIC.
 *
 * It sends in bursts of what is due, and never generates more while frames wait for a place in the NIC's queue: what
 * then becomes due is generated later, counted as late, and charged. */
#include "engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEEP 4
#define REST_NS 2000000
#define WORTH_SLEEPING_NS 50000 /* less than what a sleep and a wake-up take on an idle machine, with a margin */

struct cl_loadgen_client {
    struct cl_loadgen *lg;
    struct cl_nic *nic;
    unsigned queue;
    bool spin;
    uint32_t stop; /* writer: cl_loadgen_client_stop; reader: the thread. Relaxed: it guards nothing */
    pthread_t thread;
    uint64_t cpu_ns;
    /* spin: where the thread sleeps between runs, so that the queue itself never sleeps: senders to a queue that never
     * sleeps need not look (corelane/drivers/memory.h) */
    struct cl_parker own;
    uint32_t word;
    struct cl_frame waiting[CL_NIC_BURST]; /* generated, and not taken by the NIC yet */
    unsigned n_waiting;
    struct cl_frame
        spare[KEEP]; /* empty, and their lines already ours: taken in idle turns, as a NIC posts its buffers */
    unsigned n_spare;
};

static unsigned receive(struct cl_loadgen_client *c)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned got = c->nic->ops->rx_burst(c->nic, c->queue, frames, CL_NIC_BURST);
    if (got) {
        cl_loadgen_receive(c->lg, cl_tsc(), frames, got);
        c->nic->ops->free(c->nic, c->queue, frames, got);
    }
    return got;
}

static void send_waiting(struct cl_loadgen_client *c)
{
    unsigned taken = c->nic->ops->tx_burst(c->nic, c->queue, c->waiting, c->n_waiting);
    c->n_waiting -= taken;
    if (cl_unlikely(c->n_waiting))
        memmove(c->waiting, c->waiting + taken, c->n_waiting * sizeof(*c->waiting));
}

static unsigned generate(struct cl_loadgen_client *c)
{
    if (cl_unlikely(c->n_waiting)) {
        send_waiting(c);
        if (c->n_waiting)
            return 0;
    }
    uint64_t now = cl_tsc();
    unsigned due = cl_loadgen_due(c->lg, now, CL_NIC_BURST);
    if (!due) {
        if (cl_unlikely(c->n_spare < KEEP))
            c->n_spare += c->nic->ops->alloc(c->nic, c->queue, c->spare + c->n_spare, KEEP - c->n_spare);
        return 0;
    }
    if (due == 1)
        cl_nic_prepare(c->nic, c->queue);
    unsigned got = 0;
    while (got < due && c->n_spare)
        c->waiting[got++] = c->spare[--c->n_spare];
    if (got < due)
        got += c->nic->ops->alloc(c->nic, c->queue, c->waiting + got, due - got);
    c->n_waiting = cl_loadgen_generate(c->lg, now, c->waiting, got);
    if (cl_unlikely(c->n_waiting < got))
        c->nic->ops->free(c->nic, c->queue, c->waiting + c->n_waiting, got - c->n_waiting);
    if (c->n_waiting)
        send_waiting(c);
    return due;
}

/* Between the runs of a spinning client: sleep until one is asked for, and answer ARP now and then. */
static void rest(struct cl_loadgen_client *c)
{
    cl_park_begin(&c->own);
    generate(c);
    uint32_t state = cl_state(c->lg);
    if (cl_load_relaxed(&c->stop) || (state != CL_LOAD_IDLE && state != CL_LOAD_FAILED))
        cl_park_cancel(&c->own);
    else
        cl_park_wait(&c->own, REST_NS);
}

/* Sleep until a frame comes, something is due, or a run or the end is asked for. */
static void sleep_a_while(struct cl_loadgen_client *c)
{
    struct cl_parker *parker = c->nic->ops->parker(c->nic, c->queue);
    cl_park_begin(parker);
    if (receive(c) || generate(c) || c->n_waiting || cl_load_relaxed(&c->stop)) {
        cl_park_cancel(parker);
        return;
    }
    uint64_t next = cl_loadgen_next_tsc(c->lg), now = cl_tsc();
    int64_t left = -1;
    if (next != CL_NEVER)
        left = next > now ? cl_ticks_to_ns(c->lg->clock, (int64_t)(next - now)) : 0;
    if (left >= 0 && left < WORTH_SLEEPING_NS)
        cl_park_cancel(parker);
    else
        c->nic->ops->wait(c->nic, c->queue, left);
}

static void *client_main(void *arg)
{
    struct cl_loadgen_client *c = arg;
    struct timespec used;
    while (!cl_load_relaxed(&c->stop)) {
        /* The bitwise or: all are done at every turn. Received twice, since a look at the clock takes longer. No pause
         * instruction: it would blur the stamps by what it takes. */
        if (receive(c) | generate(c) | receive(c))
            continue;
        uint32_t state = cl_state(c->lg);
        if (!c->spin)
            sleep_a_while(c);
        else if (state == CL_LOAD_IDLE || state == CL_LOAD_FAILED)
            rest(c);
    }
    cl_loadgen_abort(c->lg);
    /* Obey the order: the results become final. Twice, for a run may have been asked for that has not begun. */
    cl_loadgen_due(c->lg, cl_tsc(), 0);
    cl_loadgen_due(c->lg, cl_tsc(), 0);
    c->nic->ops->free(c->nic, c->queue, c->waiting, c->n_waiting);
    c->nic->ops->free(c->nic, c->queue, c->spare, c->n_spare);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    c->cpu_ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    return NULL;
}

/* Whether the NIC's buffers hold the longest request, which is written in whole lines. */
static bool fits(const struct cl_loadgen *lg, const struct cl_nic *nic)
{
    uint32_t len = cl_max(lg->echo.request.len, cl_max(lg->memcached.get.len, lg->memcached.set.len));
    return len <= nic->mtu + CL_ETH_HLEN && ((len + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u)) <= nic->buffer_bytes;
}

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

int cl_loadgen_client_start(struct cl_loadgen *lg, struct cl_nic *nic, unsigned queue, int cpu, uint32_t spin,
                            struct cl_loadgen_client **out, char *err)
{
    if (queue >= nic->n_queues)
        return refuse(err, -EINVAL, "the NIC has no queue of that number");
    if (!fits(lg, nic))
        return refuse(err, -EINVAL, "the requests are longer than the NIC's buffers or MTU permit");
    if (lg->clock->word)
        return refuse(err, -EINVAL, "a client is a thread, which no virtual clock wakes: use the engine as a NIC");
    if (lg->wake)
        return refuse(err, -EBUSY, "the engine already has a NIC or a client");
    struct cl_loadgen_client *c = calloc(1, sizeof(*c));
    if (!c)
        return refuse(err, -ENOMEM, "out of memory");
    c->lg = lg;
    c->nic = nic;
    c->queue = queue;
    c->spin = spin;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    int rc = 0;
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
        rc = cpu < CPU_SETSIZE ? pthread_attr_setaffinity_np(&attr, sizeof set, &set) : EINVAL;
    }
    c->own = (struct cl_parker){.word = &c->word, .event_fd = -1};
    lg->wake = spin ? &c->own : nic->ops->parker(nic, queue);
    if (!rc)
        rc = pthread_create(&c->thread, &attr, client_main, c);
    pthread_attr_destroy(&attr);
    if (rc) {
        lg->wake = NULL;
        free(c);
        return refuse(err, -rc, "cannot start a thread on that cpu");
    }
    *out = c;
    return 0;
}

uint64_t cl_loadgen_client_stop(struct cl_loadgen_client *client)
{
    cl_store_relaxed(&client->stop, 1);
    cl_park_wake(client->lg->wake);
    pthread_join(client->thread, NULL);
    uint64_t cpu_ns = client->cpu_ns;
    client->lg->wake = NULL;
    free(client);
    return cpu_ns;
}
