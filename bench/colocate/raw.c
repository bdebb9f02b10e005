/* See raw.h. */
#include "raw.h"

#include "../../drivers/random.h"
#include <corelane/libos/probe.h>
#include "../../libos/sched/internal.h"
#include <corelane/runtime/clock.h>
#include "../harness/pinned.h"

#include <stdlib.h>

#define LAG_SHIFT 3 /* a first answer's lag is averaged over some eight */

/* The worker core. */

static __thread struct cl_raw_board *bound;

static bool over(const struct cl_raw_board *b, uint64_t turn)
{
    return cl_load_relaxed(&b->turn) != turn;
}

void cl_raw_bind(struct cl_raw_board *b)
{
    bound = b;
    cl_probe_bind(&b->owner);
    cl_rseq_give_up();
}

void cl_raw_cede(void)
{
    struct cl_raw_board *b = bound;
    cl_store_relaxed(&b->seen, cl_tsc());
    uint64_t turn = cl_load_relaxed(&b->turn);
    while (turn % 2 && cl_load_acquire(&b->owner) != CL_RAW_BATCH && !over(b, turn))
        sched_yield();
}

static void compute(const struct cl_raw_requests *r, uint64_t i)
{
    struct cl_udp_req req = r->each[i % r->n]; /* the handler changes it */
    r->handler(&req, 1, r->arg);
}

/* All that is due by now and comes meanwhile. */
static uint64_t work_off(struct cl_raw_board *b, uint64_t next, const struct cl_raw_requests *requests)
{
    uint64_t at = cl_tsc(), due_n;
    while ((due_n = cl_load_acquire(&b->due_n)) != next) {
        for (; next != due_n; next++) {
            uint64_t now;
            if (b->computes)
                compute(requests, next);
            at += b->service_ticks; /* not from `now`: what a reading of the clock overshoots does not add up */
            while ((int64_t)((now = cl_tsc()) - at) < 0)
                ;
            cl_store_relaxed(&b->answered[next], now);
        }
        if (cl_load_relaxed(&b->due_n) == next)
            break;
    }
    return next;
}

void cl_raw_serve(struct cl_raw_board *b, uint64_t turn, const struct cl_raw_requests *requests)
{
    uint64_t next = 0;
    cl_rseq_give_up();
    cl_store_release(&b->ready, turn);
    while (!over(b, turn)) {
        if (cl_load_acquire(&b->owner) != CL_RAW_SERVER) {
            sched_yield();
            continue;
        }
        if (!b->keeps)
            cl_store_relaxed(&b->began, cl_tsc());
        next = work_off(b, next, requests);
        if (b->keeps)
            continue;
        cl_store_relaxed(&b->served, next);
        cl_store_release(&b->owner, CL_RAW_BATCH);
        sched_yield();
    }
    cl_store_release(&b->ready, 0);
}

/* The other one. */

struct offer {
    struct cl_raw_board *b;
    const struct cl_raw_load *load;
    struct cl_raw_result *out;
    struct cl_random random;
    double gap_ticks, next; /* next: ticks from start_tsc to the next request */
    uint64_t due_n, served; /* served: by the end of the server's last turn */
    uint64_t target_ticks, lag_ticks, decided_tsc;
    bool with_server;
};

static void draw(struct offer *o)
{
    o->next += o->gap_ticks * cl_random_exp(&o->random);
}

/* The stamps of a hand-over that is over. Those of the job and of the server are in lines that are fetched anyway. */
static void keep(struct offer *o, uint64_t first)
{
    const struct cl_raw_board *b = o->b;
    if (!o->load->steps || o->out->steps == CL_RAW_STEPS || !first)
        return;
    o->load->steps[o->out->steps++] = (struct cl_raw_step){b->due[o->served], o->decided_tsc, cl_load_relaxed(&b->seen),
                                                           cl_load_relaxed(&b->began), first};
}

/* The core, as far as it is the generator's to give: to the server when the oldest request would be too old, and what
 * came of it when it is the job's again. */
static void decide(struct offer *o, uint64_t now)
{
    struct cl_raw_board *b = o->b;
    if (o->with_server) {
        if (cl_load_acquire(&b->owner) == CL_RAW_SERVER)
            return;
        o->with_server = false;
        o->out->server_ticks += now - o->decided_tsc;
        o->out->moves += 2;
        uint64_t first = cl_load_relaxed(&b->answered[o->served]), lag = first - o->decided_tsc;
        keep(o, first);
        if ((int64_t)lag > 0)
            o->lag_ticks += (uint64_t)(((int64_t)lag - (int64_t)o->lag_ticks) >> LAG_SHIFT);
        o->served = cl_load_relaxed(&b->served);
    }
    if (o->served == o->due_n)
        return;
    uint64_t lag = cl_min(o->lag_ticks, o->target_ticks / 4);
    if ((int64_t)(now + lag - b->due[o->served]) < (int64_t)o->target_ticks)
        return;
    o->with_server = true;
    o->decided_tsc = now;
    cl_store_release(&b->owner, CL_RAW_SERVER);
}

static bool push(struct offer *o, uint64_t now)
{
    uint64_t before = o->due_n, start = o->out->start_tsc;
    while (start + (uint64_t)o->next <= now && start + (uint64_t)o->next < o->out->end_tsc) {
        if (o->due_n == CL_RAW_MOST)
            return false;
        o->b->due[o->due_n++] = start + (uint64_t)o->next;
        draw(o);
    }
    if (o->due_n != before)
        cl_store_release(&o->b->due_n, o->due_n);
    return true;
}

static bool answered(const struct offer *o)
{
    const struct cl_raw_board *b = o->b;
    return o->due_n == 0 || cl_load_relaxed(&b->answered[o->due_n - 1]);
}

static int offer(struct offer *o)
{
    struct cl_raw_board *b = o->b;
    uint64_t work = cl_load_relaxed(&b->work);
    const struct cl_clock *clock = cl_clock_default();
    o->out->start_tsc = cl_tsc();
    o->out->end_tsc = o->out->start_tsc + (uint64_t)cl_ns_to_ticks(clock, (int64_t)o->load->duration_ns);
    draw(o);
    uint64_t now;
    while ((int64_t)((now = cl_tsc()) - o->out->end_tsc) < 0) {
        if (!push(o, now))
            return -ENOBUFS;
        if (!b->keeps)
            decide(o, now);
    }
    o->out->work = cl_load_relaxed(&b->work) - work;
    o->out->first_ticks = o->lag_ticks;
    struct cl_raw_result counted = *o->out;
    if (o->with_server)
        counted.server_ticks += now - o->decided_tsc;
    if (!push(o, now))
        return -ENOBUFS;
    uint64_t until = now + (uint64_t)cl_ns_to_ticks(clock, (int64_t)o->load->drain_ns);
    while (!answered(o) && (int64_t)((now = cl_tsc()) - until) < 0)
        if (!b->keeps)
            decide(o, now);
    *o->out = counted;
    o->out->requests = o->due_n;
    return 0;
}

void cl_raw_reset(struct cl_raw_board *b, uint64_t keeps)
{
    memset(b->answered, 0, cl_min(b->due_n, (uint64_t)CL_RAW_MOST) * sizeof *b->answered);
    b->due_n = b->served = 0;
    b->keeps = keeps;
    b->owner = keeps ? CL_RAW_SERVER : CL_RAW_BATCH;
}

int cl_raw_offer(struct cl_raw_board *b, const struct cl_raw_load *load, struct cl_raw_result *out, char *err)
{
    cpu_set_t before, set;
    *out = (struct cl_raw_result){0};
    if (!(load->rate > 0 && load->rate <= 1e9) || load->cpu < 0 || load->cpu >= CPU_SETSIZE)
        return snprintf(err, CL_BENCH_ERR_BYTES, "raw hand-overs need a rate above 0 and a core"), -EINVAL;
    CPU_ZERO(&set);
    CPU_SET((unsigned)load->cpu, &set);
    sched_getaffinity(0, sizeof before, &before);
    if (sched_setaffinity(0, sizeof set, &set))
        return snprintf(err, CL_BENCH_ERR_BYTES, "core %d is not ours to run on", load->cpu), -EINVAL;
    struct offer o = {.b = b, .load = load, .out = out, .random = {load->seed}};
    o.gap_ticks = (double)cl_ns_to_ticks(cl_clock_default(), 1000000000) / load->rate;
    o.target_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)load->target_ns);
    int rc = offer(&o);
    sched_setaffinity(0, sizeof before, &before);
    if (rc)
        snprintf(err, CL_BENCH_ERR_BYTES, "more than %d requests in a turn of raw hand-overs", CL_RAW_MOST);
    return rc;
}

uint64_t cl_raw_latencies(const struct cl_raw_board *b, uint64_t requests, uint64_t from_tsc, uint64_t to_tsc,
                          struct cl_hist *out)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < requests; i++) {
        uint64_t due = b->due[i], answer = cl_load_acquire(&b->answered[i]);
        if ((int64_t)(due - from_tsc) < 0 || (int64_t)(due - to_tsc) >= 0)
            continue;
        n++;
        if (answer)
            cl_hist_add(out, (uint64_t)cl_ticks_to_ns(cl_clock_default(), (int64_t)(answer - due)), 1);
        else
            cl_hist_add_infinite(out, 1);
    }
    return n;
}
