/* See delays.h. */
#include "delays.h"
#include "commands.h"
#include "holding.h"
#include "virtual.h"

#include <corelane/drivers/memory.h>
#include <corelane/libos/channel.h>
#include <corelane/libos/log_shared.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/uthread.h>
#include "../../drivers/random.h"
#include "../../libos/internal.h"

#include <errno.h>

#define IP_CLIENT 0x0a4d0001u
#define IP_SERVER 0x0a4d0002u
#define PORT 9000
#define OTHER 9001
#define THINKER 9002 /* at the client */
#define MARKED 2     /* the first byte of what the NIC holds */
#define DISK_BYTES (4 << 20)
#define AFTER_NS 10000000 /* in which the last are answered */

/* What both ends of a run share: one thread has all of it. */
struct world {
    const struct cl_bench_delays *config;
    uint64_t now_ns;
    struct cl_clock clock;
    struct cl_stepper *stepper;
    struct cl_nic *ends[2];
    struct cl_runtime *client, *server;
    struct cl_udp_socket *sock;
    struct cl_random random;
    uint32_t asked;
    /* What delays a request. */
    struct cl_mutex mutex;
    struct cl_cond cond;
    struct cl_channel *channel;
    struct cl_bench_holding nic;
    struct cl_udp_socket *asks; /* the server's */
    struct cl_bench_virtual_log disk;
    struct cl_log_shared log;
};

/* A uthread for one delayed request, and how it tells that it is over. */
struct helper {
    struct world *w;
    struct cl_sem done;
    uint32_t over;
};

static void compute(struct world *w, uint64_t ns)
{
    w->now_ns += ns; /* a stepper takes the clock as it finds it */
}

/* What the request waits for comes a delay later. */
static void help(void *arg)
{
    struct helper *h = arg;
    struct world *w = h->w;
    uint32_t byte = 1;
    if (w->config->where == CL_BENCH_DELAY_QUEUED) {
        compute(w, w->config->delay_ns);
        cl_sem_post(&h->done);
        return;
    }
    if (w->config->where == CL_BENCH_DELAY_MUTEX)
        cl_mutex_lock(&w->mutex);
    cl_uthread_sleep_ns(w->config->delay_ns);
    switch (w->config->where) {
    case CL_BENCH_DELAY_MUTEX:
        cl_mutex_unlock(&w->mutex);
        cl_sem_post(&h->done);
        break;
    case CL_BENCH_DELAY_COND:
        cl_mutex_lock(&w->mutex);
        h->over = 1;
        cl_cond_broadcast(&w->cond);
        cl_mutex_unlock(&w->mutex);
        break;
    case CL_BENCH_DELAY_SEM:
        cl_sem_post(&h->done);
        break;
    case CL_BENCH_DELAY_CHANNEL:
        cl_channel_send(w->channel, &byte, -1);
        break;
    default: /* it is joined */
        break;
    }
}

static void wait_for(struct world *w, struct helper *h, cl_uthread_id id)
{
    uint32_t byte;
    switch (w->config->where) {
    case CL_BENCH_DELAY_QUEUED:
        cl_uthread_yield();
        cl_sem_wait(&h->done); /* posted by then */
        break;
    case CL_BENCH_DELAY_MUTEX:
        cl_uthread_yield(); /* it takes the mutex */
        cl_mutex_lock(&w->mutex);
        cl_mutex_unlock(&w->mutex);
        cl_sem_wait(&h->done);
        break;
    case CL_BENCH_DELAY_COND:
        cl_mutex_lock(&w->mutex);
        while (!h->over)
            cl_cond_wait(&w->cond, &w->mutex);
        cl_mutex_unlock(&w->mutex);
        break;
    case CL_BENCH_DELAY_SEM:
        cl_sem_wait(&h->done);
        break;
    case CL_BENCH_DELAY_CHANNEL:
        cl_channel_receive(w->channel, &byte, -1);
        break;
    default:
        break;
    }
    cl_uthread_join(id);
}

static void ask_thinker(struct world *w)
{
    struct cl_udp_addr to = {.ipv4 = IP_CLIENT, .port = THINKER};
    uint8_t byte = 1;
    if (cl_udp_sendto(w->asks, &byte, 1, &to) == 1)
        cl_udp_recvfrom(w->asks, &byte, 1, NULL, -1);
}

static void delay(struct world *w)
{
    struct helper h = {.w = w};
    uint64_t from = w->now_ns, delay_ns = w->config->delay_ns;
    cl_uthread_id id;
    switch (w->config->where) {
    case CL_BENCH_DELAY_RUNS:
        compute(w, delay_ns);
        break;
    case CL_BENCH_DELAY_SLEEP:
        cl_uthread_sleep_ns(delay_ns);
        break;
    case CL_BENCH_DELAY_READ:
        ask_thinker(w);
        break;
    case CL_BENCH_DELAY_LOG:
        cl_log_append_wait(&w->log, &from, sizeof from, 0, NULL);
        break;
    case CL_BENCH_DELAY_CORE: /* as the scheduler tells of it (libos/sched/cede.c) */
        compute(w, delay_ns);
        cl_tracer_away(cl_trace_tracer(w->server->trace, 0), &(struct cl_trace_taken){.begin = from, .end = w->now_ns});
        break;
    case CL_BENCH_DELAY_REPLY:
        w->nic.refuse_until = w->now_ns + delay_ns;
        break;
    default:
        cl_sem_init(&h.done, 0);
        if (cl_uthread_spawn(help, &h, &id) == 0)
            wait_for(w, &h, id);
    }
}

static int64_t serve(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct world *w = arg;
    compute(w, (uint64_t)(w->config->service_ns * cl_random_exp(&w->random)) + 1);
    if (len == 1 && request[0] == 1)
        delay(w);
    if (room)
        reply[0] = 1;
    return room ? 1 : 0;
}

/* A long request. */
static int64_t compute_long(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct world *w = arg;
    (void)request, (void)len, (void)reply, (void)room;
    compute(w, w->config->delay_ns);
    return 0;
}

/* Another server, at the client. */
static int64_t think(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct world *w = arg;
    (void)request, (void)len;
    cl_uthread_sleep_ns(w->config->delay_ns);
    if (room)
        reply[0] = 1;
    return room ? 1 : 0;
}

static void ask(struct world *w, uint16_t port, uint8_t byte)
{
    struct cl_udp_addr to = {.ipv4 = IP_SERVER, .port = port};
    uint8_t answer;
    (void)cl_udp_sendto(w->sock, &byte, 1, &to);
    while (cl_udp_recvfrom(w->sock, &answer, 1, NULL, 0) >= 0)
        ;
}

static void ask_all(void *arg)
{
    struct world *w = arg;
    const struct cl_bench_delays *c = w->config;
    uint64_t next = w->now_ns;
    for (; w->asked < c->requests; w->asked++) {
        bool delayed = cl_random_below(&w->random, c->one_in) == 0;
        next += (uint64_t)(c->interval_ns * cl_random_exp(&w->random)) + 1;
        cl_uthread_sleep_until_ns(next);
        if (delayed && c->where == CL_BENCH_DELAY_INBOX)
            ask(w, OTHER, 1);
        if (delayed && c->where == CL_BENCH_DELAY_RING)
            ask(w, PORT, MARKED);
        else
            ask(w, PORT, delayed && c->where != CL_BENCH_DELAY_INBOX);
    }
}

/* A log whose device takes the delay for a write. */
static int make_log(struct world *w, char *err)
{
    int rc = cl_bench_virtual_log_open(&w->disk, w->stepper, &w->now_ns, DISK_BYTES, w->config->delay_ns, err);
    return rc ? rc : cl_log_share(&w->log, w->disk.log, w->server->sched, err);
}

static int make(struct world *w, char *err)
{
    struct cl_memory_config m = {.clock = &w->clock};
    cl_clock_virtual(&w->clock, &w->now_ns);
    cl_mutex_init(&w->mutex);
    cl_cond_init(&w->cond);
    int rc = cl_memory_link_new(&m, w->ends, err);
    w->nic.mark = MARKED;
    w->nic.for_ticks = w->config->delay_ns; /* of a virtual clock */
    if (rc == 0)
        cl_bench_hold(&w->nic, w->ends[1]);
    rc = rc ? rc : cl_stepper_new(&w->now_ns, &w->stepper);
    rc = rc ? rc : cl_channel_new(64, sizeof(uint32_t), &w->channel);
    w->client = cl_bench_virtual_host(w->stepper, w->ends[0], IP_CLIENT, CL_RUNTIME_TRACE_OFF, &rc, err);
    w->server = cl_bench_virtual_host(w->stepper, w->ends[1], IP_SERVER, CL_RUNTIME_TRACE_FULL, &rc, err);
    rc = rc ? rc : cl_udp_open(w->client, 0, 4096, &w->sock);
    rc = rc ? rc : cl_udp_open(w->server, 0, 4096, &w->asks);
    rc = rc ? rc : cl_runtime_bind_udp(w->client, THINKER, think, w);
    rc = rc ? rc : cl_runtime_bind_udp(w->server, PORT, serve, w);
    rc = rc ? rc : cl_runtime_bind_udp(w->server, OTHER, compute_long, w);
    if (rc == 0 && w->config->where == CL_BENCH_DELAY_LOG) /* last: services are numbered as they come */
        rc = make_log(w, err);
    return rc ? rc : cl_runtime_spawn(w->client, ask_all, w);
}

static void end(struct world *w)
{
    if (w->client)
        cl_runtime_stop(w->client, 0);
    if (w->server)
        cl_runtime_stop(w->server, 0);
    cl_stepper_delete(w->stepper);
    if (w->log.log)
        cl_log_unshare(&w->log);
    cl_bench_virtual_log_delete(&w->disk);
    cl_runtime_delete(w->client);
    cl_runtime_delete(w->server);
    if (w->channel)
        cl_channel_delete(w->channel);
    for (unsigned i = 0; i < 2; i++)
        if (w->ends[i])
            cl_nic_close(w->ends[i]);
}

int64_t cl_bench_delays(const struct cl_bench_delays *config, void *out, uint32_t room, char err[256])
{
    struct world w = {.config = config, .now_ns = 1000000000, .random = {config->seed}};
    if (config->where >= CL_BENCH_DELAYS || !config->one_in || config->requests > CL_BENCH_VIRTUAL_RECORDS / 8)
        return -EINVAL;
    if (config->where >= CL_BENCH_DELAY_OWN_LOG)
        return cl_bench_commands(config, out, room, err);
    int64_t rc = make(&w, err);
    while (rc == 0 && w.asked < config->requests)
        rc = cl_stepper_run(w.stepper, w.now_ns + AFTER_NS, err);
    rc = rc ? rc : cl_stepper_run(w.stepper, w.now_ns + AFTER_NS, err);
    rc = rc ? rc : cl_bench_virtual_records(w.server, out, room);
    end(&w);
    return rc;
}
