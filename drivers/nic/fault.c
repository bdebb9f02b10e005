/* See fault.h. */
#include "fault.h"

#include <corelane/runtime/clock.h>
#include "../../runtime/net.h"
#include "../random.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define READY (4 * CL_NIC_BURST) /* frames that have met their fate and wait to go on */
#define HELD 512                 /* frames held back */
#define RETRY_NS 100000          /* a NIC says nothing when it has room again for what it did not take */
#define OVERTAKE_NS 1000000      /* a frame waiting to be overtaken goes on after this time all the same */

struct held {
    struct cl_frame frame;
    uint64_t until_tsc;
    uint32_t until_passed; /* reordered: goes on when this many frames have passed, modulo 2^32 */
    bool reordered;
};

/* One direction of one queue. */
struct side {
    struct cl_random random;
    struct cl_fault_counts counts;
    uint64_t frames, bytes, full; /* at the wrapper's boundary */
    uint32_t n_held, passed;
    uint32_t head, n_ready; /* FIFO in `ready` */
    struct cl_frame ready[READY];
    struct held held[HELD];
} CL_ALIGNED(CL_CACHELINE);

/* A queue. Losing a received frame frees a buffer and doubling one takes one, which a sibling that steals received
 * frames may not do beside the owner; so, with faults, every call on the queue is under its lock. */
struct fault_queue {
    uint32_t lock CL_ALIGNED(CL_CACHELINE);
    struct side side[2];
};

struct fault_nic {
    struct cl_nic nic;
    struct cl_nic *inner;
    struct cl_fault_config config; /* rates: written under the locks of all queues, read under that of one */
    bool faulty[2];                /* fixed once made, so it is read without a lock */
    struct fault_queue *queues;
};

static void lock_queue(struct fault_nic *f, unsigned queue)
{
    for (unsigned spins = 0; cl_exchange(&f->queues[queue].lock, 1); spins++)
        if (spins > 100)
            sched_yield();
}

static void unlock_queue(struct fault_nic *f, unsigned queue)
{
    cl_store_release(&f->queues[queue].lock, 0);
}

static struct side *side_of(struct cl_nic *nic, unsigned queue, unsigned direction)
{
    return &((struct fault_nic *)nic)->queues[queue].side[direction];
}

static void ready_push(struct side *s, const struct cl_frame *frame)
{
    s->ready[(s->head + s->n_ready++) % READY] = *frame;
    s->passed++;
    cl_count(&s->counts.passed, 1);
}

static void hold(struct side *s, const struct cl_frame *frame, uint64_t until_tsc, bool reordered, uint32_t by)
{
    s->held[s->n_held++] = (struct held){*frame, until_tsc, s->passed + by, reordered};
    cl_store_relaxed(&s->counts.held, s->n_held);
    cl_count(reordered ? &s->counts.reordered : &s->counts.delayed, 1);
}

/* Move on what was held long enough, in the order in which it was held. */
static void release(struct side *s, uint64_t now)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < s->n_held; i++) {
        struct held *h = &s->held[i];
        bool due = now >= h->until_tsc || (h->reordered && (int32_t)(s->passed - h->until_passed) >= 0);
        if (due && s->n_ready < READY)
            ready_push(s, &h->frame);
        else
            s->held[kept++] = *h;
    }
    s->n_held = kept;
    cl_store_relaxed(&s->counts.held, kept);
}

static void duplicate(struct fault_nic *f, struct side *s, unsigned queue, const struct cl_frame *frame)
{
    struct cl_frame copy;
    if (f->inner->ops->alloc(f->inner, queue, &copy, 1) != 1 || copy.room < frame->len) {
        cl_count(&s->counts.not_duplicated, 1);
        return;
    }
    memcpy(copy.data, frame->data, frame->len);
    copy.len = frame->len;
    copy.hash = frame->hash;
    cl_count(&s->counts.duplicated, 1);
    ready_push(s, &copy);
}

/* Whether faults are for this frame, too. */
static bool is_meant(const struct cl_fault_rates *rates, unsigned direction, const struct cl_frame *frame)
{
    const uint8_t *d = frame->data, *ip = d + CL_ETH_HLEN + (direction == CL_FAULT_RX ? 12 : 16);
    if (!rates->ipv4)
        return true;
    return frame->len >= CL_ETH_HLEN + 20u && d[12] == 8 && d[13] == 0 &&
           rates->ipv4 == ((uint32_t)ip[0] << 24 | (uint32_t)ip[1] << 16 | (uint32_t)ip[2] << 8 | ip[3]);
}

/* Decide on one frame, and do it. There is room for two in `ready`. */
static void judge(struct fault_nic *f, struct side *s, unsigned queue, unsigned direction, struct cl_frame *frame,
                  uint64_t now)
{
    const struct cl_fault_rates *rates = &f->config.rates[direction];
    struct cl_random *r = &s->random;
    /* All draws, in this order, for every frame: see fault.h. A unit is in (0, 1], so a rate of 0 never happens. */
    bool lost = cl_random_unit(r) <= rates->loss, twice = cl_random_unit(r) <= rates->duplicate;
    bool reordered = cl_random_unit(r) <= rates->reorder, delayed = cl_random_unit(r) <= rates->delay;
    bool corrupted = cl_random_unit(r) <= rates->corrupt;
    uint64_t where = cl_random_next(r), how_long = cl_random_next(r);
    cl_count(&s->counts.seen, 1);
    if (frame->len < CL_ETH_HLEN || frame->len > f->nic.mtu + CL_ETH_HLEN) {
        ready_push(s, frame); /* for the NIC below to refuse and count */
        return;
    }
    if (!is_meant(rates, direction, frame))
        lost = twice = reordered = delayed = corrupted = false;
    if (lost) {
        cl_count(&s->counts.lost, 1);
        f->inner->ops->free(f->inner, queue, frame, 1);
        return;
    }
    if (corrupted) {
        uint64_t bit = (uint64_t)(((unsigned __int128)where * (frame->len * 8u)) >> 64);
        frame->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        cl_count(&s->counts.corrupted, 1);
    }
    if ((delayed || reordered) && s->n_held == HELD) {
        cl_count(&s->counts.not_held, 1);
        delayed = reordered = false;
    }
    if (delayed) {
        uint64_t range = f->config.delay_max_ns - f->config.delay_min_ns + 1;
        uint64_t ns = f->config.delay_min_ns + (uint64_t)(((unsigned __int128)how_long * range) >> 64);
        hold(s, frame, now + (uint64_t)cl_ns_to_ticks(f->nic.clock, (int64_t)ns), false, 0);
    } else if (reordered) {
        uint64_t limit = (uint64_t)cl_ns_to_ticks(f->nic.clock, OVERTAKE_NS);
        hold(s, frame, now + limit, true, f->config.reorder_by);
    } else {
        ready_push(s, frame);
    }
    if (twice)
        duplicate(f, s, queue, frame);
}

static void count_burst(struct side *s, const struct cl_frame *frames, unsigned n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += frames[i].len;
    cl_count(&s->frames, n);
    cl_count(&s->bytes, bytes);
}

/* Pass on what is ready to be sent. */
static void tx_pump(struct fault_nic *f, struct side *s, unsigned queue, uint64_t now)
{
    struct cl_frame burst[CL_NIC_BURST];
    release(s, now);
    while (s->n_ready) {
        unsigned n = cl_min(s->n_ready, (unsigned)CL_NIC_BURST);
        for (unsigned i = 0; i < n; i++)
            burst[i] = s->ready[(s->head + i) % READY];
        unsigned taken = f->inner->ops->tx_burst(f->inner, queue, burst, n);
        s->head += taken;
        s->n_ready -= taken;
        if (taken < n)
            break;
    }
}

static unsigned rx_take(struct fault_nic *f, struct side *s, unsigned queue, struct cl_frame *frames, unsigned n,
                        uint64_t now)
{
    release(s, now);
    if (s->n_ready < n) {
        struct cl_frame fresh[CL_NIC_BURST];
        unsigned m = f->inner->ops->rx_burst(f->inner, queue, fresh, n - s->n_ready);
        for (unsigned i = 0; i < m; i++)
            judge(f, s, queue, CL_FAULT_RX, &fresh[i], now);
        release(s, now);
    }
    unsigned got = cl_min(n, s->n_ready);
    for (unsigned i = 0; i < got; i++)
        frames[i] = s->ready[s->head++ % READY];
    s->n_ready -= got;
    count_burst(s, frames, got);
    return got;
}

static void check_gone(struct fault_nic *f)
{
    if (cl_unlikely(cl_load_relaxed(&f->inner->gone)))
        cl_store_relaxed(&f->nic.gone, 1);
}

static unsigned fault_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    uint64_t now = cl_clock_stamp(nic->clock);
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    lock_queue(f, queue);
    if (f->faulty[CL_FAULT_TX])
        tx_pump(f, side_of(nic, queue, CL_FAULT_TX), queue, now);
    unsigned got = f->faulty[CL_FAULT_RX] ? rx_take(f, side_of(nic, queue, CL_FAULT_RX), queue, frames, n, now)
                                          : f->inner->ops->rx_burst(f->inner, queue, frames, n);
    unlock_queue(f, queue);
    check_gone(f);
    return got;
}

static unsigned fault_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    struct side *s = side_of(nic, queue, CL_FAULT_TX);
    unsigned taken = 0;
    lock_queue(f, queue);
    if (!f->faulty[CL_FAULT_TX]) {
        taken = f->inner->ops->tx_burst(f->inner, queue, frames, n);
    } else {
        uint64_t now = cl_clock_stamp(nic->clock);
        tx_pump(f, s, queue, now);
        while (taken < n && s->n_ready + 2 <= READY)
            judge(f, s, queue, CL_FAULT_TX, &frames[taken++], now);
        count_burst(s, frames, taken);
        cl_count(&s->full, taken < n);
        tx_pump(f, s, queue, now);
    }
    unlock_queue(f, queue);
    check_gone(f);
    return taken;
}

static unsigned fault_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    lock_queue(f, queue);
    unsigned got = f->inner->ops->alloc(f->inner, queue, frames, n);
    unlock_queue(f, queue);
    return got;
}

static void fault_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    lock_queue(f, queue);
    f->inner->ops->free(f->inner, queue, frames, n);
    unlock_queue(f, queue);
}

static struct cl_parker *fault_parker(struct cl_nic *nic, unsigned queue)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    return f->inner->ops->parker(f->inner, queue);
}

/* When a frame will go on, UINT64_MAX if none is there. What is ready goes on `retry_ticks` from now. */
static uint64_t next_release(const struct side *s, uint64_t now, uint64_t retry_ticks)
{
    uint64_t next = s->n_ready ? now + retry_ticks : UINT64_MAX;
    for (unsigned i = 0; i < s->n_held; i++)
        next = cl_min(next, s->held[i].until_tsc);
    return next;
}

static uint64_t fault_next_tsc(struct cl_nic *nic, unsigned queue)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    uint64_t now = cl_clock_stamp(nic->clock);
    lock_queue(f, queue);
    uint64_t rx = next_release(side_of(nic, queue, CL_FAULT_RX), now, 0);
    uint64_t tx = next_release(side_of(nic, queue, CL_FAULT_TX), now, (uint64_t)cl_ns_to_ticks(nic->clock, RETRY_NS));
    unlock_queue(f, queue);
    uint64_t below = f->inner->ops->next_tsc ? f->inner->ops->next_tsc(f->inner, queue) : UINT64_MAX;
    return cl_min(below, cl_min(rx, tx));
}

static int fault_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    const struct cl_clock *clock = nic->clock;
    uint64_t next = fault_next_tsc(nic, queue), now = cl_clock_stamp(clock);
    if (next != UINT64_MAX) {
        int64_t left = next > now ? cl_ticks_to_ns(clock, (int64_t)(next - now)) + 1 : 0;
        timeout_ns = timeout_ns < 0 ? left : cl_min(timeout_ns, left);
    }
    int rc = f->inner->ops->wait(f->inner, queue, timeout_ns);
    check_gone(f);
    return rc;
}

static void fault_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    const struct side *rx = side_of(nic, queue, CL_FAULT_RX), *tx = side_of(nic, queue, CL_FAULT_TX);
    f->inner->ops->stats(f->inner, queue, out);
    check_gone(f);
    if (f->faulty[CL_FAULT_RX]) {
        out->rx_frames = cl_load_relaxed(&rx->frames);
        out->rx_bytes = cl_load_relaxed(&rx->bytes);
    }
    if (f->faulty[CL_FAULT_TX]) {
        out->tx_frames = cl_load_relaxed(&tx->frames);
        out->tx_bytes = cl_load_relaxed(&tx->bytes);
        out->tx_full = cl_load_relaxed(&tx->full);
    }
}

static uint32_t fault_buffers_free(struct cl_nic *nic)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    return f->inner->ops->buffers_free(f->inner);
}

static int fault_fd(struct cl_nic *nic, unsigned queue)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    return f->inner->ops->fd(f->inner, queue);
}

static void fault_close(struct cl_nic *nic)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    for (unsigned q = 0; q < nic->n_queues * 2; q++) {
        struct side *s = side_of(nic, q / 2, q % 2);
        for (unsigned i = 0; i < s->n_held; i++)
            f->inner->ops->free(f->inner, q / 2, &s->held[i].frame, 1);
        for (unsigned i = 0; i < s->n_ready; i++)
            f->inner->ops->free(f->inner, q / 2, &s->ready[(s->head + i) % READY], 1);
    }
    f->inner->ops->close(f->inner);
    free(f->queues);
    free(f);
}

static const struct cl_nic_ops fault_ops = {
    .name = "fault",
    .rx_burst = fault_rx,
    .tx_burst = fault_tx,
    .alloc = fault_alloc,
    .free = fault_free,
    .parker = fault_parker,
    .wait = fault_wait,
    .stats = fault_stats,
    .buffers_free = fault_buffers_free,
    .fd = fault_fd,
    .close = fault_close,
    .next_tsc = fault_next_tsc,
};

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

static bool probability(double p)
{
    return p >= 0 && p <= 1; /* false for NaN */
}

static bool good_rates(const struct cl_fault_rates rates[2])
{
    for (unsigned d = 0; d < 2; d++) {
        const struct cl_fault_rates *r = &rates[d];
        if (!probability(r->loss) || !probability(r->duplicate) || !probability(r->reorder) || !probability(r->delay) ||
            !probability(r->corrupt))
            return false;
    }
    return true;
}

int cl_fault_nic_set(struct cl_nic *nic, const struct cl_fault_rates rates[2], char *err)
{
    struct fault_nic *f = (struct fault_nic *)nic;
    if (!good_rates(rates))
        return refuse(err, -EINVAL, "probabilities must be from 0 to 1");
    if (nic->ops != &fault_ops || !f->config.adjustable)
        return refuse(err, -EINVAL, "this NIC was not made adjustable");
    for (unsigned q = 0; q < nic->n_queues; q++)
        lock_queue(f, q);
    memcpy(f->config.rates, rates, sizeof(f->config.rates));
    for (unsigned q = nic->n_queues; q-- > 0;)
        unlock_queue(f, q);
    return 0;
}

int cl_fault_nic_new(struct cl_nic *inner, const struct cl_fault_config *config, struct cl_nic **out, char *err)
{
    if (!good_rates(config->rates))
        return refuse(err, -EINVAL, "probabilities must be from 0 to 1");
    if (config->delay_min_ns > config->delay_max_ns || config->delay_max_ns > 60000000000u)
        return refuse(err, -EINVAL, "delays must be at most a minute, the least not above the longest");
    if (config->reorder_by > 64)
        return refuse(err, -EINVAL, "reorder_by must be from 1 to 64");
    struct fault_nic *f = calloc(1, sizeof(*f));
    struct fault_queue *queues = aligned_alloc(CL_CACHELINE, inner->n_queues * sizeof(*queues));
    if (!f || !queues) {
        free(f);
        free(queues);
        return refuse(err, -ENOMEM, "out of memory");
    }
    memset(queues, 0, inner->n_queues * sizeof(*queues));
    f->nic = *inner;
    f->nic.ops = &fault_ops;
    f->nic.clock = cl_nic_clock(inner);
    f->inner = inner;
    f->config = *config;
    f->config.reorder_by = config->reorder_by ? config->reorder_by : 3;
    f->queues = queues;
    struct cl_random seeds = {config->seed ^ 0x6661756c74ull};
    for (unsigned q = 0; q < inner->n_queues; q++)
        for (unsigned d = 0; d < 2; d++)
            queues[q].side[d].random.state = cl_random_next(&seeds);
    for (unsigned d = 0; d < 2; d++) {
        const struct cl_fault_rates *r = &config->rates[d];
        f->faulty[d] =
            config->adjustable || r->loss > 0 || r->duplicate > 0 || r->reorder > 0 || r->delay > 0 || r->corrupt > 0;
    }
    *out = &f->nic;
    return 0;
}

void cl_fault_counts(struct cl_nic *nic, unsigned queue, unsigned direction, struct cl_fault_counts *out)
{
    const uint64_t *from = &side_of(nic, queue, direction)->counts.seen;
    for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}
