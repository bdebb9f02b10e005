/* When requests are due, which phase they belong to, and how a run goes from start to end. */
#include "engine.h"

#include <stdio.h>

#define LEAD_NS                                                                                                        \
    20000 /* a run's first phase begins this long after it was asked for: nothing is due before it is set up */

static uint64_t next_gap_q16(struct cl_loadgen *lg)
{
    if (cl_unlikely(lg->gap_left == 0)) {
        /* Each lap begins elsewhere, so that gaps and requests, both from tables, meet in other pairs. */
        lg->gap_at = (uint32_t)cl_random_next(&lg->random);
        lg->gap_left = lg->gaps.mask + 1;
    }
    lg->gap_left--;
    uint32_t gap = lg->gaps.table[lg->gap_at++ & lg->gaps.mask];
    return (uint64_t)((unsigned __int128)gap * lg->sched->mean_gap >> lg->gap_shift);
}

/* When request k of a replay is due. */
static uint64_t given_tsc(const struct cl_loadgen *lg, uint64_t k)
{
    if (k >= lg->replay->n)
        return CL_NEVER;
    return lg->run_tsc + (uint64_t)cl_ns_to_ticks(lg->clock, (int64_t)lg->replay->at_ns[k]);
}

/* Begin phase `p` of the schedule, or the next one that has requests; its time may lie in the past or the future. */
static void enter_phase(struct cl_loadgen *lg, struct cl_phase *p)
{
    struct cl_phase *end = lg->phases + lg->n_phases;
    for (; p < end; p++) {
        p->first_seq = lg->run_first + lg->offered;
        lg->sched = p;
        if (lg->replay) {
            lg->next_tsc = given_tsc(lg, 0);
            return;
        }
        if (lg->config.arrivals == CL_ARRIVALS_CLOSED) {
            lg->next_tsc = p->start_tsc;
            return;
        }
        if (!p->mean_gap)
            continue;
        lg->due_q16 = ((p->start_tsc - lg->run_tsc) << 16) + next_gap_q16(lg);
        lg->next_tsc = lg->run_tsc + (lg->due_q16 >> 16);
        if (lg->next_tsc < p->end_tsc)
            return;
    }
    lg->next_tsc = CL_NEVER;
}

CL_HOT uint64_t cl_schedule_next(struct cl_loadgen *lg)
{
    uint64_t intended = lg->next_tsc;
    lg->offered++;
    cl_count(&lg->sched->counts.offered, 1);
    if (cl_unlikely(lg->replay)) {
        lg->next_tsc = given_tsc(lg, lg->offered);
        return intended;
    }
    lg->due_q16 += next_gap_q16(lg);
    lg->next_tsc = lg->run_tsc + (lg->due_q16 >> 16);
    if (cl_unlikely(lg->next_tsc >= lg->sched->end_tsc))
        enter_phase(lg, lg->sched + 1);
    return intended;
}

struct cl_phase *cl_phase_of(struct cl_loadgen *lg, uint32_t seq)
{
    uint64_t full = lg->next_seq - (uint32_t)((uint32_t)lg->next_seq - seq);
    struct cl_phase *p = lg->sending;
    while (p > lg->phases && full < p->first_seq)
        p--;
    lg->answering = p;
    return p;
}

static void start_clock(struct cl_loadgen *lg, uint64_t now)
{
    memset(lg->slots, 0, ((size_t)lg->slot_mask + 1) * sizeof(*lg->slots)); /* what the preload or an old run left */
    lg->run_tsc = now + (uint64_t)cl_ns_to_ticks(lg->clock, LEAD_NS);
    uint64_t at = lg->run_tsc;
    for (uint32_t i = 0; i < lg->n_phases; i++) {
        struct cl_phase *p = &lg->phases[i];
        p->end_tsc = at + p->end_tsc; /* cl_loadgen_run left the duration there */
        p->start_tsc = at;
        cl_store_relaxed(&p->counts.start_tsc, at);
        at = p->end_tsc;
        p->first_seq = UINT64_MAX; /* not begun */
    }
    lg->run_first = lg->next_seq;
    lg->offered = lg->sent = lg->settled = 0;
    lg->n_pending = lg->window_used = 0;
    lg->window_tsc = lg->run_tsc;
    lg->looked_tsc = now;
    lg->sending = lg->answering = lg->phases;
    cl_store_relaxed(&lg->state, CL_LOAD_RUNNING);
    enter_phase(lg, lg->phases);
}

static void finish(struct cl_loadgen *lg, uint32_t state)
{
    for (uint32_t i = 0; i < lg->n_phases; i++) {
        struct cl_loadgen_counts *c = &lg->phases[i].counts;
        cl_store_relaxed(&c->dropped, c->offered - c->sent);
        uint64_t lost = c->offered - c->answered, lost_long = c->sent_long - c->answered_long;
        if (lg->phases[i].latency_long) {
            cl_hist_add_infinite(lg->phases[i].latency_long, lost_long);
            lost -= lost_long;
        }
        if (lg->phases[i].latency)
            cl_hist_add_infinite(lg->phases[i].latency, lost);
    }
    lg->n_pending = 0;
    lg->next_tsc = CL_NEVER;
    lg->sched = lg->sending = lg->answering = NULL; /* the next run frees the phases */
    cl_store_release(&lg->state, state);            /* release: who sees it reads the results */
}

static void fail(struct cl_loadgen *lg, const char *reason)
{
    snprintf(lg->reason, sizeof lg->reason, "%s", reason);
    finish(lg, CL_LOAD_FAILED);
}

/* The addresses are known: preload if that is still to do, else run. */
static void go_on(struct cl_loadgen *lg, uint64_t now)
{
    if (lg->config.preload && !lg->preload.finished) {
        lg->preload.progress_tsc = lg->preload.started_tsc = now;
        cl_store_relaxed(&lg->state, CL_LOAD_PRELOADING);
    } else {
        start_clock(lg, now);
    }
}

void cl_run_obey(struct cl_loadgen *lg, uint64_t now)
{
    uint32_t requested = cl_load_acquire(&lg->requested); /* acquire: the phases were written before */
    uint32_t state = cl_state(lg);
    if (requested != lg->obeyed) {
        lg->obeyed = requested;
        cl_store_relaxed(&lg->state, CL_LOAD_RESOLVING);
        lg->arp_next_tsc = now;
        lg->arp_until_tsc = now + lg->give_up_ticks;
        if (lg->resolved)
            go_on(lg, now);
    } else if (cl_load_relaxed(&lg->aborted) && state != CL_LOAD_IDLE && state != CL_LOAD_FAILED) {
        finish(lg, CL_LOAD_IDLE);
    }
}

/* All is sent that was due by the end, and answered; or time is up, and what was due counts as dropped. */
static void drain(struct cl_loadgen *lg, uint64_t now)
{
    struct cl_phase *last = &lg->phases[lg->n_phases - 1];
    bool late = now > last->end_tsc + lg->drain_ticks;
    if (late)
        while (lg->next_tsc != CL_NEVER)
            cl_schedule_next(lg);
    if (lg->next_tsc != CL_NEVER || now < last->end_tsc)
        return;
    if (cl_state(lg) == CL_LOAD_RUNNING)
        cl_store_relaxed(&lg->state, CL_LOAD_DRAINING);
    if (late || (lg->n_pending == 0 && lg->settled == lg->sent))
        finish(lg, CL_LOAD_IDLE);
}

/* Closed arrivals have no schedule: a phase ends by the clock. */
static void closed_step(struct cl_loadgen *lg, uint64_t now)
{
    while (lg->next_tsc != CL_NEVER && now >= lg->sched->end_tsc)
        enter_phase(lg, lg->sched + 1);
    /* A lost request must not hold its place for ever. */
    if (now - lg->window_tsc > lg->drain_ticks && now > lg->window_tsc) {
        lg->window_used = 0;
        lg->window_tsc = now;
    }
}

void cl_run_step(struct cl_loadgen *lg, uint64_t now)
{
    switch (cl_state(lg)) {
    case CL_LOAD_RESOLVING:
        if (lg->resolved)
            go_on(lg, now);
        else if (now >= lg->arp_until_tsc)
            fail(lg, "nobody answered the ARP requests for the server's address");
        break;
    case CL_LOAD_PRELOADING:
        if (lg->preload.finished)
            start_clock(lg, now);
        else if (now - lg->preload.started_tsc > lg->give_up_ticks)
            fail(lg, "the server did not answer the SETs of the preload");
        break;
    case CL_LOAD_RUNNING:
    case CL_LOAD_DRAINING:
        if (lg->config.arrivals == CL_ARRIVALS_CLOSED)
            closed_step(lg, now);
        drain(lg, now);
        break;
    default:
        break;
    }
}
