/* See path.h. */
#include "path.h"

#include "mark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST_NS 60000000000u
#define FRAMES 16384

static int refuse(char *err, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return -EINVAL;
}

static bool probability(double p)
{
    return p >= 0 && p <= 1; /* false for NaN */
}

int cl_path_check(const struct cl_link_config *c, char *err)
{
    if (!probability(c->to_bad) || !probability(c->to_good) || !probability(c->loss_good) ||
        !probability(c->loss_bad) || !probability(c->reorder))
        return refuse(err, "probabilities must be from 0 to 1");
    if (c->rate_bps && (c->rate_bps < 1000 || c->rate_bps > 1000000000000u))
        return refuse(err, "a rate must be from 1000 to 10^12 bits a second, or 0 for none");
    if (c->priorities > CL_LINK_PRIORITIES)
        return refuse(err, "a link has 1 to 8 priorities");
    if (c->delay_ns > LONGEST_NS || c->jitter_ns > LONGEST_NS)
        return refuse(err, "delay and jitter must be at most a minute each");
    if (c->reorder_by > 1024)
        return refuse(err, "reorder_by must be from 1 to 1024");
    if (c->frames == 1 || c->frames > 1u << 20)
        return refuse(err, "a path has room for 2 to 2^20 frames");
    if (c->overhead_bytes > 1024)
        return refuse(err, "the overhead must be at most 1024 bytes a frame");
    return 0;
}

struct cl_path *cl_path_new(const struct cl_link_config *c, const struct cl_nic *to, const struct cl_clock *clock,
                            uint64_t salt)
{
    struct cl_path *p = calloc(1, sizeof *p);
    struct cl_random seeds = {c->seed ^ 0x6c696e6bull ^ salt << 56};
    if (!p)
        return NULL;
    p->next_tsc = UINT64_MAX;
    p->longest = cl_min(to->mtu + CL_ETH_HLEN, to->buffer_bytes);
    cl_link_queue_init(&p->queue, c, clock->hz);
    p->loss = (struct cl_link_loss){c->to_bad, c->to_good, c->loss_good, c->loss_bad, .bad = false};
    p->loss.random.state = cl_random_next(&seeds);
    cl_link_flight_init(&p->flight, c, clock);
    p->flight.random.state = cl_random_next(&seeds);
    for (unsigned q = 0; q < CL_NIC_MAX_QUEUES; q++)
        cl_link_list_init(&p->come[q]);
    if (cl_link_store_new(&p->store, c->frames ? c->frames : FRAMES, p->longest) == 0)
        return p;
    cl_path_delete(p);
    return NULL;
}

void cl_path_delete(struct cl_path *p)
{
    if (!p)
        return;
    cl_link_store_delete(&p->store);
    free(p);
}

static void drop_slot(struct cl_path *p, uint32_t slot, uint64_t *reason)
{
    cl_link_put(&p->store, slot);
    cl_count(&p->counts.held, -1ull);
    cl_count(reason, 1);
}

static void offer_one(struct cl_path *p, const struct cl_frame *frame, unsigned queue, uint64_t now)
{
    uint32_t slot = frame->len > p->longest ? CL_LINK_NONE : cl_link_get(&p->store);
    bool marked;
    cl_count(&p->counts.offered, 1);
    if (slot == CL_LINK_NONE) {
        cl_count(frame->len > p->longest ? &p->counts.dropped_long : &p->counts.dropped_store, 1);
        return;
    }
    unsigned priority = cl_link_class(frame->data, frame->len) * p->queue.priorities / CL_LINK_PRIORITIES;
    p->store.slots[slot] = (struct cl_link_slot){
        .at = now, .hash = frame->hash, .len = frame->len, .queue = (uint8_t)queue, .priority = (uint8_t)priority};
    memcpy(cl_link_bytes(&p->store, slot), frame->data, frame->len);
    cl_count(&p->counts.held, 1);
    if (!cl_link_wait(&p->queue, &p->store, slot, &marked)) {
        cl_count(&p->counts.tail_of[priority], 1);
        drop_slot(p, slot, &p->counts.dropped_tail);
    }
    cl_count(&p->counts.marked, marked);
}

/* Have the line take what it can by now. */
static void serve_line(struct cl_path *p, uint64_t now)
{
    uint64_t left_tsc;
    for (uint32_t slot; (slot = cl_link_serve(&p->queue, &p->store, now, &left_tsc)) != CL_LINK_NONE;) {
        cl_count(&p->counts.sent_of[p->store.slots[slot].priority], 1);
        if (cl_link_lost(&p->loss))
            drop_slot(p, slot, &p->counts.dropped_lost);
        else
            cl_count(&p->counts.reordered, cl_link_leave(&p->flight, &p->store, slot, left_tsc));
    }
}

static void look_ahead(struct cl_path *p)
{
    p->next_tsc = cl_min(cl_link_queue_next(&p->queue), cl_link_flight_next(&p->flight, &p->store));
}

void cl_path_offer(struct cl_path *p, const struct cl_frame *frames, unsigned n, unsigned queue, uint64_t now)
{
    serve_line(p, now); /* before the queue knows of what comes now */
    for (unsigned i = 0; i < n; i++) {
        offer_one(p, &frames[i], queue, now);
        serve_line(p, now);
    }
    look_ahead(p);
}

void cl_path_advance_slow(struct cl_path *p, uint64_t now)
{
    serve_line(p, now);
    for (uint32_t slot; (slot = cl_link_come(&p->flight, &p->store, now)) != CL_LINK_NONE;) {
        cl_link_push(&p->store, &p->come[p->store.slots[slot].queue], slot);
        p->has_come = true;
    }
    look_ahead(p);
}

unsigned cl_path_fill(struct cl_path *p, struct cl_nic *to, unsigned queue, struct cl_frame *frames, unsigned n)
{
    const struct cl_link_store *s = &p->store;
    unsigned waiting = 0;
    if (!cl_path_has(p, queue))
        return 0;
    uint32_t slot = p->come[queue].first;
    for (uint32_t i = slot; i != CL_LINK_NONE && waiting < cl_min(n, (unsigned)CL_NIC_BURST); i = s->slots[i].next)
        waiting++;
    unsigned got = to->ops->alloc(to, queue, frames, waiting);
    for (unsigned i = 0; i < got; i++, slot = s->slots[slot].next) {
        memcpy(frames[i].data, cl_link_bytes(s, slot), s->slots[slot].len);
        frames[i].len = s->slots[slot].len;
        frames[i].hash = s->slots[slot].hash;
    }
    return got;
}

void cl_path_delivered(struct cl_path *p, unsigned queue, unsigned n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        uint32_t slot = cl_link_pop(&p->store, &p->come[queue]);
        bytes += p->store.slots[slot].len;
        cl_link_put(&p->store, slot);
    }
    cl_count(&p->counts.delivered, n);
    cl_count(&p->counts.delivered_bytes, bytes);
    cl_count(&p->counts.held, -(uint64_t)n);
}

unsigned cl_path_send(struct cl_path *p, struct cl_nic *to, unsigned queue)
{
    struct cl_frame burst[CL_NIC_BURST];
    unsigned sent = 0, n;
    while ((n = cl_path_fill(p, to, queue, burst, CL_NIC_BURST))) {
        unsigned taken = to->ops->tx_burst(to, queue, burst, n);
        cl_path_delivered(p, queue, taken);
        sent += taken;
        if (taken < n) {
            to->ops->free(to, queue, burst + taken, n - taken);
            break;
        }
    }
    return sent;
}

void cl_path_counts(const struct cl_path *p, struct cl_link_counts *out)
{
    const uint64_t *from = &p->counts.offered;
    for (size_t i = 0; i < sizeof *out / sizeof *from; i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}
