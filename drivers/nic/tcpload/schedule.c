/* When requests are due, which phase they belong to, and how a run goes from its start to its end. */
#include "engine.h"

#define LEAD_NS 20000 /* a run's first phase begins so long after its connections are open */

static uint64_t next_gap_q16(struct cl_tcpload *load)
{
    if (cl_unlikely(load->gap_left == 0)) { /* each lap begins elsewhere */
        load->gap_at = (uint32_t)cl_random_next(&load->random);
        load->gap_left = load->gaps.mask + 1;
    }
    load->gap_left--;
    uint32_t gap = load->gaps.table[load->gap_at++ & load->gaps.mask];
    return (uint64_t)((unsigned __int128)gap * load->phases[load->sched].mean_gap >> load->gap_shift);
}

/* Begin phase `i` of the schedule, or the next one that has requests. */
static void enter_phase(struct cl_tcpload *load, uint32_t i)
{
    load->next_tsc = NEVER;
    for (; asks(load) && i < load->n_phases; i++) {
        const struct phase *p = &load->phases[i];
        load->sched = i;
        if (closed_loop(load)) {
            load->next_tsc = p->start_tsc;
            return;
        }
        if (!p->mean_gap)
            continue;
        load->due_q16 = ((p->start_tsc - load->run_tsc) << 16) + next_gap_q16(load);
        load->next_tsc = load->run_tsc + (load->due_q16 >> 16);
        if (load->next_tsc < p->end_tsc)
            return;
        load->next_tsc = NEVER;
    }
}

/* The next request of the schedule, which moves on. */
static struct pending next(struct cl_tcpload *load)
{
    struct pending taken = {load->next_tsc, load->sched};
    cl_count(&load->phases[load->sched].counts.offered, 1);
    load->due_q16 += next_gap_q16(load);
    load->next_tsc = load->run_tsc + (load->due_q16 >> 16);
    if (cl_unlikely(load->next_tsc >= load->phases[load->sched].end_tsc))
        enter_phase(load, load->sched + 1);
    return taken;
}

static void draw_closed(struct cl_tcpload *load, uint64_t now, uint32_t n)
{
    while (load->next_tsc != NEVER && now >= load->phases[load->sched].end_tsc)
        enter_phase(load, load->sched + 1);
    while (load->n_pending < n && load->next_tsc <= now) {
        cl_count(&load->phases[load->sched].counts.offered, 1);
        load->pending[load->n_pending++] = (struct pending){now, load->sched};
    }
}

void cl_tcpload_draw(struct cl_tcpload *load, uint64_t now, uint32_t n)
{
    if (state_of(load) != CL_TCPLOAD_RUNNING && state_of(load) != CL_TCPLOAD_DRAINING)
        return;
    n = cl_min(cl_min(n, (uint32_t)CL_NIC_BURST), ring_len(&load->idle));
    if (cl_unlikely(closed_loop(load))) {
        draw_closed(load, now, n);
        return;
    }
    while (load->n_pending < n && load->next_tsc <= now)
        load->pending[load->n_pending++] = next(load);
}

static void start_clock(struct cl_tcpload *load, uint64_t now)
{
    uint64_t at = now + (uint64_t)cl_ns_to_ticks(load->clock, LEAD_NS);
    load->run_tsc = at;
    for (uint32_t i = 0; i < load->n_phases; i++) {
        struct phase *p = &load->phases[i];
        p->start_tsc = at;
        cl_store_relaxed(&p->counts.start_tsc, at);
        at = p->end_tsc += at; /* cl_tcpload_run left the duration there */
    }
    load->current = 0;
    load->attack.next_tsc = 0;
    cl_store_relaxed(&load->state, CL_TCPLOAD_RUNNING);
    enter_phase(load, 0);
}

/* No more requests: what was not answered will not be. Resets leave, then the state is `state`. */
static void finish(struct cl_tcpload *load, uint32_t state)
{
    for (uint32_t i = 0; i < load->n_phases; i++) {
        struct cl_tcpload_counts *c = &load->phases[i].counts;
        cl_store_relaxed(&c->dropped, c->offered - c->sent);
        if (load->phases[i].latency)
            cl_hist_add_infinite(load->phases[i].latency, c->offered - c->answered);
    }
    load->n_pending = 0;
    load->next_tsc = NEVER;
    load->end_state = state;
    cl_store_relaxed(&load->state, CL_TCPLOAD_ENDING);
    cl_tcpload_reset(load, !load->config.keep || state == CL_TCPLOAD_FAILED || cl_load_relaxed(&load->aborted));
}

static void begin(struct cl_tcpload *load, uint64_t now)
{
    load->n_pending = load->n_owed = load->current = 0;
    load->outstanding = 0;
    load->idle.head = load->idle.tail = 0;
    load->next_tsc = NEVER;
    load->progress_tsc = now;
    if (load->config.traffic == CL_TCPLOAD_CHURN) {
        for (uint32_t i = 0; i < load->config.connections; i++)
            ring_push(&load->idle, i);
        start_clock(load, now);
        return;
    }
    for (uint32_t i = 0; load->config.keep && i < load->config.connections; i++)
        if (is_fit(&load->conns[i]))
            ring_push(&load->idle, i);
    load->to_open = load->opened_seen = 0;
    cl_store_relaxed(&load->state, CL_TCPLOAD_OPENING);
}

void cl_tcpload_obey(struct cl_tcpload *load, uint64_t now)
{
    uint32_t requested = cl_load_acquire(&load->requested); /* acquire: the phases were written before */
    uint32_t state = state_of(load);
    if (requested != load->obeyed) {
        load->obeyed = requested;
        begin(load, now);
    } else if (cl_load_relaxed(&load->aborted) && state >= CL_TCPLOAD_OPENING && state <= CL_TCPLOAD_DRAINING) {
        finish(load, CL_TCPLOAD_IDLE);
    }
}

static void fail(struct cl_tcpload *load)
{
    load->failed_with = load->n_open;
    finish(load, CL_TCPLOAD_FAILED);
}

static void open_some(struct cl_tcpload *load, uint64_t now)
{
    uint64_t opened = load->n_open;
    /* The first one alone: the server asks for our MAC address then, and drops what it cannot keep meanwhile. */
    uint32_t most = cl_min(load->n_open + 1, (uint32_t)OPENING_MOST);
    while (load->to_open < load->config.connections && load->n_opening < most) {
        struct conn *c = &load->conns[load->to_open++];
        if (c->state == CLOSED)
            cl_tcpload_open_one(load, c);
    }
    if (opened == load->config.connections) {
        start_clock(load, now);
    } else if (load->to_open == load->config.connections && load->n_opening == 0) {
        fail(load); /* the server refused some */
    } else if (opened != load->opened_seen) {
        load->opened_seen = (uint32_t)opened;
        load->progress_tsc = now;
    } else if (now - load->progress_tsc > load->give_up_ticks) {
        fail(load);
    }
}

/* All is sent that was due by the end, and answered; or time is up, and what was due counts as dropped. */
static void drain(struct cl_tcpload *load, uint64_t now)
{
    uint64_t end_tsc = load->phases[load->n_phases - 1].end_tsc;
    if (now < end_tsc)
        return;
    bool late = now > end_tsc + load->drain_ticks;
    if (closed_loop(load))
        load->next_tsc = NEVER;
    while (late && load->next_tsc != NEVER)
        next(load);
    if (load->next_tsc != NEVER)
        return;
    cl_store_relaxed(&load->state, CL_TCPLOAD_DRAINING);
    if (late || (load->n_pending == 0 && load->outstanding == 0))
        finish(load, CL_TCPLOAD_IDLE);
}

void cl_tcpload_step(struct cl_tcpload *load, uint64_t now)
{
    switch (state_of(load)) {
    case CL_TCPLOAD_OPENING:
        open_some(load, now);
        break;
    case CL_TCPLOAD_RUNNING:
    case CL_TCPLOAD_DRAINING:
        while (load->current + 1 < load->n_phases && now >= load->phases[load->current].end_tsc)
            load->current++;
        drain(load, now);
        break;
    case CL_TCPLOAD_ENDING:
        if (ring_len(&load->out) == 0)
            cl_store_release(&load->state, load->end_state); /* release: who sees it reads the results */
        break;
    default:
        break;
    }
}
