/* A thread that drives the client over a queue of a NIC, in bursts of what is due. What finds no place in the NIC's
 * queue waits, and nothing more is generated meanwhile: what becomes due then is late, and charged. */
#include "engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define REST_NS 2000000
#define LAST_TURNS 10000 /* for resets to leave before the thread ends */

struct cl_tcpload_client {
    struct cl_tcpload *load;
    struct cl_nic *nic;
    uint32_t stop; /* writer: cl_tcpload_client_stop; reader: the thread. Relaxed: it guards nothing */
    pthread_t thread;
    struct cl_parker own; /* where the thread sleeps between runs, so that the queue itself never sleeps */
    uint32_t word;
    struct cl_frame waiting[CL_NIC_BURST]; /* generated, and not taken by the NIC yet */
    unsigned n_waiting;
};

static unsigned receive(struct cl_tcpload_client *c)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned got = c->nic->ops->rx_burst(c->nic, 0, frames, CL_NIC_BURST);
    if (got) {
        cl_tcpload_receive(c->load, cl_tsc(), frames, got);
        c->nic->ops->free(c->nic, 0, frames, got);
    }
    return got;
}

static void send_waiting(struct cl_tcpload_client *c)
{
    unsigned taken = c->nic->ops->tx_burst(c->nic, 0, c->waiting, c->n_waiting);
    c->n_waiting -= taken;
    if (cl_unlikely(c->n_waiting))
        memmove(c->waiting, c->waiting + taken, c->n_waiting * sizeof *c->waiting);
}

static unsigned generate(struct cl_tcpload_client *c)
{
    if (cl_unlikely(c->n_waiting)) {
        send_waiting(c);
        if (c->n_waiting)
            return 0;
    }
    uint64_t now = cl_tsc();
    unsigned due = cl_tcpload_due(c->load, now, CL_NIC_BURST);
    if (!due)
        return 0;
    if (due == 1)
        cl_nic_prepare(c->nic, 0);
    unsigned got = c->nic->ops->alloc(c->nic, 0, c->waiting, due);
    c->n_waiting = cl_tcpload_generate(c->load, now, c->waiting, got);
    if (cl_unlikely(c->n_waiting < got))
        c->nic->ops->free(c->nic, 0, c->waiting + c->n_waiting, got - c->n_waiting);
    if (c->n_waiting)
        send_waiting(c);
    return c->n_waiting ? 0 : due;
}

static bool rests(const struct cl_tcpload *load)
{
    return state_of(load) == CL_TCPLOAD_IDLE || state_of(load) == CL_TCPLOAD_FAILED;
}

/* Between runs: sleep until one is asked for, and look now and then at what comes for nobody. */
static void rest(struct cl_tcpload_client *c)
{
    cl_park_begin(&c->own);
    generate(c);
    if (cl_load_relaxed(&c->stop) || !rests(c->load))
        cl_park_cancel(&c->own);
    else
        cl_park_wait(&c->own, REST_NS);
}

static void *client_main(void *arg)
{
    struct cl_tcpload_client *c = arg;
    while (!cl_load_relaxed(&c->stop)) {
        /* Bitwise: both are done at every turn. No pause instruction: it would blur the stamps by what it takes. */
        if (receive(c) | generate(c))
            continue;
        if (cl_unlikely(rests(c->load)))
            rest(c);
    }
    cl_tcpload_abort(c->load);
    for (unsigned i = 0; i < LAST_TURNS && (i < 2 || !rests(c->load)); i++) /* a run that has not begun: begins, ends */
        receive(c), generate(c);
    cl_tcpload_reset(c->load, true); /* what was kept */
    for (unsigned i = 0; i < LAST_TURNS && (c->n_waiting || ring_len(&c->load->out)); i++)
        receive(c), generate(c);
    c->nic->ops->free(c->nic, 0, c->waiting, c->n_waiting);
    return NULL;
}

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

static int start_thread(struct cl_tcpload_client *c, int cpu)
{
    pthread_attr_t attr;
    int rc = 0;
    pthread_attr_init(&attr);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
        rc = cpu < CPU_SETSIZE ? pthread_attr_setaffinity_np(&attr, sizeof set, &set) : EINVAL;
    }
    if (!rc)
        rc = pthread_create(&c->thread, &attr, client_main, c);
    pthread_attr_destroy(&attr);
    return rc;
}

int cl_tcpload_client_start(struct cl_tcpload *load, struct cl_nic *nic, int cpu, struct cl_tcpload_client **out,
                            char *err)
{
    if (load->config.mtu > nic->mtu || load->config.mtu + CL_ETH_HLEN > nic->buffer_bytes)
        return refuse(err, -EINVAL, "the client's MTU is larger than the NIC's, or than its buffers");
    if (load->wake)
        return refuse(err, -EBUSY, "the client already has a NIC");
    struct cl_tcpload_client *c = calloc(1, sizeof *c);
    if (!c)
        return refuse(err, -ENOMEM, "out of memory");
    c->load = load;
    c->nic = nic;
    c->own = (struct cl_parker){.word = &c->word, .event_fd = -1};
    load->wake = &c->own;
    int rc = start_thread(c, cpu);
    if (rc) {
        load->wake = NULL;
        free(c);
        return refuse(err, -rc, "cannot start a thread on that cpu");
    }
    *out = c;
    return 0;
}

void cl_tcpload_client_stop(struct cl_tcpload_client *c)
{
    cl_store_relaxed(&c->stop, 1);
    cl_park_wake(&c->own);
    pthread_join(c->thread, NULL);
    c->load->wake = NULL;
    free(c);
}
