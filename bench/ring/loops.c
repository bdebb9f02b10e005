/* See loops.h. A carrier is a pair of burst functions; the loops do not know which one they use, so all carriers pay
 * the same indirect call a burst. Both functions return 0 at once when nothing goes, but for the mutex queue, which
 * sleeps (and returns 0 when the run is stopped). */
#include "loops.h"

#include <corelane/drivers/memory.h>
#include "../../runtime/ring.h"
#include "../harness/pinned.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS CL_BENCH_RING_SLOTS
#define MAX_BURST 64
#define PATIENCE 4096 /* turns in vain between looks at the clock */

struct message {
    uint64_t number, mixed;
};

struct carrier {
    unsigned (*send)(struct carrier *c, const struct message *m, unsigned n);
    unsigned (*receive)(struct carrier *c, struct message *m, unsigned n);
    void (*stop)(struct carrier *c);
    void (*end)(struct carrier *c);
    /* ring */
    struct cl_desc *slots;
    uint32_t *head;
    struct cl_ring_tx tx CL_ALIGNED(128);
    struct cl_ring_rx rx CL_ALIGNED(128);
    /* nic */
    struct cl_nic *ends[2];
    /* mutex */
    pthread_mutex_t lock CL_ALIGNED(128);
    pthread_cond_t filled, emptied;
    struct message queue[SLOTS];
    unsigned first, count;
    bool stopped;
    /* pipe */
    int fds[2];
};

static uint64_t mix(uint64_t x)
{
    return (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
}

/* Ring. */

static unsigned ring_send(struct carrier *c, const struct message *m, unsigned n)
{
    unsigned i = 0;
    while (i < n && cl_ring_push(&c->tx, m[i].number, m[i].mixed))
        i++;
    return i;
}

static unsigned ring_receive(struct carrier *c, struct message *m, unsigned n)
{
    struct cl_desc d[MAX_BURST];
    unsigned got = cl_ring_pop(&c->rx, d, n);
    if (got)
        cl_ring_publish(&c->rx);
    for (unsigned i = 0; i < got; i++)
        m[i] = (struct message){d[i].word, d[i].payload};
    return got;
}

static void ring_end(struct carrier *c)
{
    free(c->slots);
    free(c->head);
}

static bool ring_make(struct carrier *c)
{
    c->send = ring_send;
    c->receive = ring_receive;
    c->end = ring_end;
    c->slots = aligned_alloc(128, SLOTS * sizeof(*c->slots));
    c->head = aligned_alloc(128, 128);
    if (!c->slots || !c->head)
        return false;
    memset(c->slots, 0, SLOTS * sizeof(*c->slots));
    *c->head = 0;
    return !cl_ring_tx_init(&c->tx, c->slots, c->head, SLOTS) && !cl_ring_rx_init(&c->rx, c->slots, c->head, SLOTS);
}

/* Memory NIC. */

static unsigned nic_send(struct carrier *c, const struct message *m, unsigned n)
{
    struct cl_frame frames[MAX_BURST];
    unsigned got = c->ends[0]->ops->alloc(c->ends[0], 0, frames, n);
    for (unsigned i = 0; i < got; i++) {
        memcpy(frames[i].data, &m[i], sizeof m[i]);
        frames[i].len = 64;
    }
    unsigned taken = c->ends[0]->ops->tx_burst(c->ends[0], 0, frames, got);
    if (taken < got)
        c->ends[0]->ops->free(c->ends[0], 0, frames + taken, got - taken);
    return taken;
}

static unsigned nic_receive(struct carrier *c, struct message *m, unsigned n)
{
    struct cl_frame frames[MAX_BURST];
    unsigned got = c->ends[1]->ops->rx_burst(c->ends[1], 0, frames, n);
    for (unsigned i = 0; i < got; i++)
        memcpy(&m[i], frames[i].data, sizeof m[i]);
    if (got)
        c->ends[1]->ops->free(c->ends[1], 0, frames, got);
    return got;
}

static void nic_end(struct carrier *c)
{
    for (unsigned i = 0; i < 2; i++)
        if (c->ends[i])
            cl_nic_close(c->ends[i]);
}

static bool nic_make(struct carrier *c)
{
    struct cl_memory_config config = {.ring_slots = SLOTS, .buffers = 4 * SLOTS};
    c->send = nic_send;
    c->receive = nic_receive;
    c->end = nic_end;
    return !cl_memory_link_new(&config, c->ends, NULL);
}

static void nothing(struct carrier *c)
{
    (void)c;
}

/* The way back is the same link's, so that buffers come back as they do in a server. */
static void nic_turn_round(struct carrier *back, const struct carrier *there)
{
    nic_end(back);
    back->ends[0] = there->ends[1];
    back->ends[1] = there->ends[0];
    back->end = nothing;
}

/* Mutex and condition variables. */

static unsigned mutex_send(struct carrier *c, const struct message *m, unsigned n)
{
    pthread_mutex_lock(&c->lock);
    while (c->count == SLOTS && !c->stopped)
        pthread_cond_wait(&c->emptied, &c->lock);
    unsigned take = c->stopped ? 0 : cl_min(n, SLOTS - c->count);
    for (unsigned i = 0; i < take; i++)
        c->queue[(c->first + c->count++) % SLOTS] = m[i];
    pthread_mutex_unlock(&c->lock);
    pthread_cond_signal(&c->filled);
    return take;
}

static unsigned mutex_receive(struct carrier *c, struct message *m, unsigned n)
{
    pthread_mutex_lock(&c->lock);
    while (c->count == 0 && !c->stopped)
        pthread_cond_wait(&c->filled, &c->lock);
    unsigned take = cl_min(n, c->count);
    for (unsigned i = 0; i < take; i++)
        m[i] = c->queue[c->first++ % SLOTS];
    c->count -= take;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_signal(&c->emptied);
    return take;
}

static void mutex_stop(struct carrier *c)
{
    pthread_mutex_lock(&c->lock);
    c->stopped = true;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_broadcast(&c->filled);
    pthread_cond_broadcast(&c->emptied);
}

static void mutex_end(struct carrier *c)
{
    pthread_cond_destroy(&c->filled);
    pthread_cond_destroy(&c->emptied);
    pthread_mutex_destroy(&c->lock);
}

static bool mutex_make(struct carrier *c)
{
    c->send = mutex_send;
    c->receive = mutex_receive;
    c->stop = mutex_stop;
    c->end = mutex_end;
    return !pthread_mutex_init(&c->lock, NULL) && !pthread_cond_init(&c->filled, NULL) &&
           !pthread_cond_init(&c->emptied, NULL);
}

/* Pipe: not blocking, so that both sides can be stopped; the loops come again. Writes below PIPE_BUF are whole. */

static unsigned pipe_send(struct carrier *c, const struct message *m, unsigned n)
{
    ssize_t done = write(c->fds[1], m, n * sizeof(*m));
    return done > 0 ? (unsigned)done / sizeof(*m) : 0;
}

static unsigned pipe_receive(struct carrier *c, struct message *m, unsigned n)
{
    ssize_t done = read(c->fds[0], m, n * sizeof(*m));
    return done > 0 ? (unsigned)done / sizeof(*m) : 0;
}

static void pipe_end(struct carrier *c)
{
    close(c->fds[0]);
    close(c->fds[1]);
}

static bool pipe_make(struct carrier *c)
{
    c->send = pipe_send;
    c->receive = pipe_receive;
    c->end = pipe_end;
    return !pipe2(c->fds, O_CLOEXEC | O_NONBLOCK);
}

/* The loops. */

struct run {
    struct carrier *there, *back;
    uint64_t n, limit_wall_ns;
    uint32_t burst;
    uint64_t started_ns, ended_ns, done; /* done: messages received, or round trips */
    uint32_t stop;                       /* writers: both threads, once. Relaxed: it guards nothing */
    bool torn;
    pthread_t a, b;
};

static void stop_run(struct run *r)
{
    cl_store_relaxed(&r->stop, 1);
    if (r->there->stop)
        r->there->stop(r->there);
    if (r->back->stop)
        r->back->stop(r->back);
}

/* After a turn in vain: whether to give up. Looks at the clock now and then. */
static bool give_up(struct run *r, unsigned *vain)
{
    if (++*vain % PATIENCE == 0 && cl_bench_wall_ns() > r->limit_wall_ns)
        stop_run(r);
    return cl_load_relaxed(&r->stop);
}

static void *stream_out(void *arg)
{
    struct run *r = arg;
    struct message m[MAX_BURST];
    unsigned vain = 0;
    r->started_ns = cl_bench_wall_ns();
    for (uint64_t next = 0; next < r->n;) {
        unsigned want = (unsigned)cl_min((uint64_t)r->burst, r->n - next);
        for (unsigned i = 0; i < want; i++)
            m[i] = (struct message){next + i, mix(next + i)};
        unsigned sent = r->there->send(r->there, m, want);
        next += sent;
        if (!sent && give_up(r, &vain))
            break;
    }
    return NULL;
}

static void *stream_in(void *arg)
{
    struct run *r = arg;
    struct message m[MAX_BURST];
    unsigned vain = 0;
    while (r->done < r->n) {
        unsigned got = r->there->receive(r->there, m, MAX_BURST);
        for (unsigned i = 0; i < got; i++)
            r->torn |= m[i].number != r->done + i || m[i].mixed != mix(m[i].number);
        r->done += got;
        if (!got && give_up(r, &vain))
            break;
        /* A carrier that always has something must not run beyond the limit either. */
        if (got && r->done % (1 << 20) < got && cl_bench_wall_ns() > r->limit_wall_ns) {
            stop_run(r);
            break;
        }
    }
    r->ended_ns = cl_bench_wall_ns();
    stop_run(r);
    return NULL;
}

static bool one(struct run *r, struct carrier *c, bool send, struct message *m)
{
    unsigned vain = 0;
    while (!(send ? c->send(c, m, 1) : c->receive(c, m, 1)))
        if (give_up(r, &vain))
            return false;
    return true;
}

static void *ping(void *arg)
{
    struct run *r = arg;
    r->started_ns = cl_bench_wall_ns();
    while (r->done < r->n) {
        struct message m = {r->done, mix(r->done)};
        if (!one(r, r->there, true, &m) || !one(r, r->back, false, &m))
            break;
        r->torn |= m.number != r->done || m.mixed != mix(r->done);
        r->done++;
        if (r->done % PATIENCE == 0 && cl_bench_wall_ns() > r->limit_wall_ns)
            break;
    }
    r->ended_ns = cl_bench_wall_ns();
    stop_run(r);
    return NULL;
}

static void *pong(void *arg)
{
    struct run *r = arg;
    struct message m;
    while (one(r, r->there, false, &m) && one(r, r->back, true, &m))
        ;
    return NULL;
}

static bool (*const makers[CL_BENCH_CARRIERS])(struct carrier *) = {ring_make, nic_make, mutex_make, pipe_make};

static struct carrier *carrier_new(uint32_t kind)
{
    struct carrier *c = aligned_alloc(128, sizeof(*c));
    if (!c)
        return NULL;
    memset(c, 0, sizeof(*c));
    if (makers[kind](c))
        return c;
    free(c);
    return NULL;
}

static void carrier_delete(struct carrier *c)
{
    if (c)
        c->end(c);
    free(c);
}

static int run_threads(struct run *r, int cpu_a, int cpu_b, char *err)
{
    bool stream = r->burst > 0;
    int rc = cl_bench_start_pinned(&r->b, cpu_b, stream ? stream_in : pong, r, err);
    if (rc)
        return rc;
    rc = cl_bench_start_pinned(&r->a, cpu_a, stream ? stream_out : ping, r, err);
    if (rc)
        stop_run(r);
    else
        pthread_join(r->a, NULL);
    pthread_join(r->b, NULL);
    return rc;
}

int cl_bench_ring(uint32_t carrier, int cpu_a, int cpu_b, uint64_t n, uint32_t burst, uint64_t limit_ns,
                  struct cl_bench_ring_result *out, char err[256])
{
    if (carrier >= CL_BENCH_CARRIERS || cpu_a == cpu_b || n == 0 || burst > MAX_BURST) {
        snprintf(err, CL_BENCH_ERR_BYTES,
                 "two different cpus, at least one message and a burst of at most 64 are needed");
        return -EINVAL;
    }
    struct run r = {.there = carrier_new(carrier), .back = carrier_new(carrier), .n = n, .burst = burst};
    r.limit_wall_ns = cl_bench_wall_ns() + limit_ns;
    int rc = r.there && r.back ? 0 : -ENOMEM;
    if (rc)
        snprintf(err, CL_BENCH_ERR_BYTES, "cannot make the carrier");
    if (!rc && carrier == CL_BENCH_CARRIER_NIC)
        nic_turn_round(r.back, r.there);
    if (!rc)
        rc = run_threads(&r, cpu_a, cpu_b, err);
    carrier_delete(r.there);
    carrier_delete(r.back);
    if (!rc && r.torn) {
        snprintf(err, CL_BENCH_ERR_BYTES, "a message was lost, torn or out of order");
        rc = -EPROTO;
    } else if (!rc && r.done == 0) {
        snprintf(err, CL_BENCH_ERR_BYTES, "cpus %d and %d did not run together within the time given", cpu_a, cpu_b);
        rc = -ETIMEDOUT;
    }
    *out = (struct cl_bench_ring_result){r.ended_ns - r.started_ns, r.done};
    return rc;
}
