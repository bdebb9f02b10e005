/* See batched.h. */
#include "netif.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 64
#define PLACES CL_UDP_BATCH_QUEUE
#define MASK (PLACES - 1)
_Static_assert((PLACES & MASK) == 0, "a power of two");

/* So many of the first are due, and shown at the kthreads that received them, from now on. Under the lock. */
static void set_due(struct cl_batched *b, uint32_t due)
{
    struct cl_batches *all = b->nif->batches;
    for (uint32_t i = b->due; i < due; i++) {
        struct cl_netq *home = &b->nif->queues[b->home[(b->first + i) & MASK]];
        __atomic_fetch_add(&home->batched_put, 1, __ATOMIC_RELAXED); /* counts, which order nothing, as below */
        cl_netq_note_inbox(home);
    }
    for (uint32_t i = due; i < b->due; i++) {
        struct cl_netq *home = &b->nif->queues[b->home[(b->first + i) & MASK]];
        __atomic_fetch_add(&home->batched_taken, 1, __ATOMIC_RELAXED);
        cl_netq_note_inbox(home);
    }
    if (due != b->due)
        __atomic_fetch_add(&all->due, due - b->due, __ATOMIC_RELEASE); /* the requests are there; readers look again */
    b->due = due;
}

/* The first is no longer in the queue. Under the lock; its buffer is the caller's. */
static void remove_first(struct cl_batched *b)
{
    struct cl_batches *all = b->nif->batches;
    if (b->due) {
        struct cl_netq *home = &b->nif->queues[b->home[b->first & MASK]];
        __atomic_fetch_add(&home->batched_taken, 1, __ATOMIC_RELAXED);
        cl_netq_note_inbox(home);
        __atomic_fetch_sub(&all->due, 1, __ATOMIC_RELAXED);
        b->due--;
    }
    b->first++;
    b->n--;
    __atomic_fetch_sub(&all->waiting, 1, __ATOMIC_RELAXED);
}

/* Those of them that are due, by now; else the timer is set for when they are. Under the lock, on a kthread. */
static void look(struct cl_batched *b, uint64_t now)
{
    const struct cl_batch_rule *r = &b->rule;
    if (b->n == 0)
        return;
    if (r->wait_ticks == 0 || b->n >= r->batch) {
        set_due(b, b->n);
        return;
    }
    uint64_t by = cl_batch_start_by(r, &b->model, b->since[b->first & MASK], b->n);
    if ((int64_t)(by - now) <= 0) {
        set_due(b, b->n);
        return;
    }
    set_due(b, 0);
    uint64_t at_ns = cl_sched_now_ns(b->nif->sched) + (uint64_t)cl_ticks_to_ns(b->nif->clock, (int64_t)(by - now));
    if (b->armed_ns && b->armed_ns <= at_ns)
        return; /* it comes, and looks again */
    if (cl_timer_arm(&b->timer, at_ns))
        set_due(b, b->n); /* no room for a timer: then nobody waits */
    else
        b->armed_ns = at_ns;
}

static void timer_over(struct cl_timer *timer, void *arg)
{
    struct cl_batched *b = arg;
    (void)timer;
    cl_spin_lock(&b->lock);
    b->armed_ns = 0;
    if (b->due == 0)
        look(b, cl_clock_stamp(b->nif->clock));
    cl_spin_unlock(&b->lock);
}

static void drop(struct cl_netq *q, struct cl_batched *b, unsigned reason)
{
    const struct cl_frame *f = &b->items[b->first & MASK].frame;
    cl_netq_drop(q, reason);
    cl_netq_done(q, f);
    remove_first(b);
}

void cl_batched_put(struct cl_netq *q, struct cl_batched *b, const struct cl_rx_item *item, uint64_t since)
{
    cl_spin_lock(&b->lock);
    if (b->n >= b->room && b->rule.drops) {
        drop(q, b, CL_DROP_BATCH_FULL); /* the oldest has the least chance to be in time */
    } else if (b->n >= b->room) {
        cl_spin_unlock(&b->lock);
        cl_netq_drop(q, CL_DROP_BATCH_FULL);
        cl_netq_done(q, &item->frame);
        return;
    }
    uint32_t at = (b->first + b->n) & MASK;
    b->items[at] = *item;
    b->since[at] = since;
    b->home[at] = (uint8_t)q->index;
    b->n++;
    __atomic_fetch_add(&b->nif->batches->waiting, 1, __ATOMIC_RELAXED);
    if (b->due)
        set_due(b, b->n); /* a batch is about to be taken: as large as may be */
    else
        look(b, cl_stamp(q->time));
    cl_spin_unlock(&b->lock);
}

/* The queue whose oldest request is to be handled first, of those where one is due; NULL: none is. */
static struct cl_batched *choose(const struct cl_batches *all)
{
    struct cl_batched *best = NULL;
    uint64_t earliest = 0;
    uint32_t n = cl_load_acquire(&all->n);
    for (uint32_t i = 0; i < n; i++) {
        struct cl_batched *b = all->of[i];
        cl_spin_lock(&b->lock);
        uint64_t at = b->due ? b->since[b->first & MASK] + b->rule.limit_ticks : 0;
        bool due = b->due;
        cl_spin_unlock(&b->lock);
        if (due && (!best || (int64_t)(at - earliest) < 0)) {
            best = b;
            earliest = at;
        }
    }
    return best;
}

unsigned cl_batched_take(struct cl_netq *q, struct cl_rx_item *items, struct cl_batched **of)
{
    struct cl_batched *b;
    while ((b = choose(q->nif->batches))) {
        struct cl_batch_choice choice = {0, 0};
        cl_spin_lock(&b->lock);
        uint64_t now = cl_stamp(q->time);
        if (b->due) /* else a sibling was faster */
            choice =
                cl_batch_choose(&b->rule, &b->model, &(struct cl_batch_queue){b->since, b->first, MASK, b->n}, now);
        for (unsigned i = 0; i < choice.drop; i++)
            drop(q, b, CL_DROP_BATCH_LATE);
        for (unsigned i = 0; i < choice.take; i++) {
            items[i] = b->items[b->first & MASK];
            items[i].stolen = b->home[b->first & MASK] != q->index;
            remove_first(b);
        }
        look(b, now);
        cl_spin_unlock(&b->lock);
        *of = b;
        if (choice.take) {
            cl_count(&q->stats.delivered, choice.take);
            return choice.take;
        }
    }
    return 0;
}

void cl_batched_took(struct cl_batched *b, unsigned n, uint64_t ticks)
{
    cl_spin_lock(&b->lock);
    cl_batch_learn(&b->model, n, (double)ticks);
    cl_spin_unlock(&b->lock);
}

static int refuse(char *err, int rc, const char *why)
{
    snprintf(err, 256, "%s", why);
    return rc;
}

static int check_rule(const struct cl_udp_batching *how, char err[256])
{
    if (how->batch < 1 || how->batch > CL_UDP_BURST) {
        snprintf(err, 256, "a batch of %u requests: give 1 to %u", how->batch, CL_UDP_BURST);
        return -EINVAL;
    }
    if (how->queue && (how->queue < how->batch || how->queue > CL_UDP_BATCH_QUEUE)) {
        snprintf(err, 256, "a queue for %u requests: give %u, which are a batch, to %u", how->queue, how->batch,
                 CL_UDP_BATCH_QUEUE);
        return -EINVAL;
    }
    return 0;
}

static int check(const struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, const struct cl_udp_batching *how,
                 char err[256])
{
    if (port == 0 || !fn)
        return refuse(err, -EINVAL, port ? "the handler is NULL" : "port 0: UDP ports are 1 to 65535");
    if (nif->batches && nif->batches->n == CL_UDP_BATCHED) {
        snprintf(err, 256, "%u handlers of this runtime get their requests in batches, which is the most",
                 CL_UDP_BATCHED);
        return -ENOSPC;
    }
    return check_rule(how, err);
}

static void delete (struct cl_batched *b)
{
    if (!b)
        return;
    free(b->items);
    free(b->since);
    free(b->home);
    free(b);
}

/* Buffers of the NIC that wait here are not there to receive into: a quarter of them at most. */
static uint32_t room_of(const struct cl_netif *nif, const struct cl_udp_batching *how)
{
    if (how->queue)
        return how->queue;
    return cl_min((uint32_t)CL_UDP_BATCH_QUEUE, cl_max(nif->nic->n_buffers / 4, (uint32_t)LEAST_ROOM));
}

static void set_rule(struct cl_batched *b, const struct cl_udp_batching *how)
{
    const struct cl_clock *clock = b->nif->clock;
    b->room = room_of(b->nif, how);
    b->rule = (struct cl_batch_rule){
        .batch = how->batch,
        .drops = how->limit_us && !(how->flags & CL_UDP_BATCH_KEEP_LATE),
        .limit_ticks = (uint64_t)cl_ns_to_ticks(clock, how->limit_us * 1000ll),
        .wait_ticks = (uint64_t)cl_ns_to_ticks(clock, how->wait_us * 1000ll),
    };
}

static struct cl_batched *make(struct cl_netif *nif, const struct cl_udp_batching *how)
{
    struct cl_batched *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->nif = nif;
    set_rule(b, how);
    b->items = calloc(PLACES, sizeof *b->items); /* pages that are never needed are never touched */
    b->since = calloc(PLACES, sizeof *b->since);
    b->home = calloc(PLACES, sizeof *b->home);
    cl_timer_init(&b->timer, timer_over, b);
    if (b->items && b->since && b->home)
        return b;
    delete (b);
    return NULL;
}

/* Under types_lock. */
static int bind(struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, void *arg, bool foreign,
                const struct cl_udp_batching *how, char err[256])
{
    int rc = check(nif, port, fn, how, err);
    if (rc)
        return rc;
    struct cl_batches *all = nif->batches;
    if (!all) {
        if (!(all = calloc(1, sizeof *all)))
            return refuse(err, -ENOMEM, "out of memory for the queues of batches");
        cl_store_release(&nif->batches, all); /* release: kthreads may run already */
    }
    struct cl_batched *b = make(nif, how);
    if (!b)
        return refuse(err, -ENOMEM, "out of memory for the queue of a handler's batches");
    all->of[all->n] = b; /* before the port is bound: whoever finds that finds the queue */
    cl_store_release(&all->n, all->n + 1);
    rc = cl_udp_publish_batched(nif, port, fn, arg, foreign, b);
    if (rc) {
        /* Nobody has put into it. It stays until the end: a kthread may look at it just now. */
        snprintf(err, 256, "UDP port %u: %s", port, strerror(-rc));
    }
    return rc;
}

int cl_udp_bind_batched(struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, void *arg, bool foreign,
                        const struct cl_udp_batching *how, char err[256])
{
    if (cl_load_relaxed(&nif->ports[cl_be16(port)])) { /* else a try would use one of the queues up */
        snprintf(err, 256, "UDP port %u is in use", port);
        return -EADDRINUSE;
    }
    pthread_mutex_lock(&nif->types_lock);
    int rc = bind(nif, port, fn, arg, foreign, how, err);
    pthread_mutex_unlock(&nif->types_lock);
    return rc;
}

/* The queue of that port; NULL: there is none. */
static struct cl_batched *of_port(const struct cl_netif *nif, uint16_t port)
{
    /* Acquire: its fields were written before it was published; its kind never changes. */
    const struct cl_udp_socket *s = cl_load_acquire(&nif->ports[cl_be16(port)]);
    return s && cl_load_relaxed(&s->kind) == CL_UDP_BATCHES ? s->batched : NULL;
}

int cl_batched_set(struct cl_netif *nif, uint16_t port, const struct cl_udp_batching *how, char err[256])
{
    struct cl_batched *b = of_port(nif, port);
    int rc = check_rule(how, err);
    if (rc || !b)
        return rc ? rc : -ENOENT;
    cl_spin_lock(&b->lock);
    set_rule(b, how);
    bool waiting = b->n != 0;
    if (waiting)
        set_due(b, b->n); /* who waits has waited long enough: no timer of the new rule runs for them */
    cl_spin_unlock(&b->lock);
    if (waiting && nif->sched)
        cl_sched_wake_kthread(nif->sched, 0); /* where cores are managed the iokernel sees it */
    return 0;
}

int cl_batched_profile(const struct cl_netif *nif, uint16_t port, struct cl_udp_batch_profile *out)
{
    struct cl_batched *b = of_port(nif, port);
    if (!b)
        return -ENOENT;
    double us = 1.0 / nif->ticks_per_us;
    cl_spin_lock(&b->lock);
    *out = (struct cl_udp_batch_profile){
        .batches = b->model.seen,
        .waiting = b->n,
        .fixed_us = b->model.fixed * us,
        .each_us = b->model.each * us,
        .spread_us = b->model.spread * us,
    };
    for (unsigned n = 1; n <= CL_UDP_BURST; n++)
        out->takes_us[n - 1] = b->model.takes[n] * us;
    cl_spin_unlock(&b->lock);
    return 0;
}

void cl_batched_drain(struct cl_netif *nif)
{
    struct cl_netq *q = &nif->queues[0];
    for (uint32_t i = 0; nif->batches && i < nif->batches->n; i++) {
        struct cl_batched *b = nif->batches->of[i];
        while (b->n) {
            cl_count(&q->stats.delivered, 1);
            cl_count(&q->stats.unhandled, 1);
            cl_netq_done(q, &b->items[b->first & MASK].frame);
            remove_first(b);
        }
    }
}

void cl_batched_delete(struct cl_netif *nif)
{
    for (uint32_t i = 0; nif->batches && i < nif->batches->n; i++)
        delete (nif->batches->of[i]);
    free(nif->batches);
}
