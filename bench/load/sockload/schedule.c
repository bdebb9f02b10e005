/* When requests are due: gaps from a table that was drawn beforehand, or times that were given. Threads have a table
 * each and their share of the rate: Poisson arrivals that are added up are Poisson arrivals. Uniform ones of several
 * threads begin one after the other, so that they interleave. */
#include "engine.h"
#include "../../../drivers/nic/loadgen/loadgen.h"

int cl_sockload_due_init(struct cl_due *d, const struct cl_sockload_config *c, uint64_t seed)
{
    return cl_gaps_draw(&d->gaps, c->arrivals, seed, c->burst ? c->burst : 16, c->duty);
}

void cl_sockload_due_free(struct cl_due *d)
{
    cl_gaps_free(&d->gaps);
}

static uint64_t gap_q16(struct cl_worker *w)
{
    struct cl_due *d = &w->due;
    if (cl_unlikely(d->left == 0)) { /* each lap of the table begins elsewhere */
        d->at = (uint32_t)cl_random_next(&w->random);
        d->left = d->gaps.mask + 1;
    }
    d->left--;
    uint32_t gap = d->gaps.table[d->at++ & d->gaps.mask];
    return (uint64_t)((unsigned __int128)gap * d->mean_gap >> (d->gaps.shift + 24 - 16));
}

static uint64_t given(const struct cl_worker *w)
{
    const struct cl_sockload *s = w->s;
    if (w->due.given >= s->config.n_replay)
        return CL_SOCKLOAD_NEVER;
    return s->start + (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)s->replay_ns[w->due.given]);
}

static void set(struct cl_worker *w, uint64_t stamp)
{
    w->next_due = stamp < w->s->end ? stamp : CL_SOCKLOAD_NEVER;
}

void cl_sockload_due_begin(struct cl_worker *w)
{
    struct cl_sockload *s = w->s;
    struct cl_due *d = &w->due;
    if (s->mode == CL_MODE_PRELOAD || s->window) {
        bool none = s->mode == CL_MODE_PRELOAD && w->preload_next >= s->config.keys;
        w->next_due = none ? CL_SOCKLOAD_NEVER : s->start;
        return;
    }
    if (s->replay_ns) {
        d->given = w->number;
        set(w, given(w));
        return;
    }
    double ticks = (double)cl_ns_to_ticks(s->clock, 1000000000) / s->rate * s->n_workers;
    d->mean_gap = (uint64_t)(ticks * (double)(1u << 24));
    bool uniform = s->config.arrivals == CL_ARRIVALS_UNIFORM;
    d->due_q16 = uniform ? (uint64_t)(ticks * 65536 * (w->number + 1) / s->n_workers) : gap_q16(w);
    set(w, s->start + (d->due_q16 >> 16));
}

void cl_sockload_due_next(struct cl_worker *w)
{
    struct cl_sockload *s = w->s;
    if (s->mode == CL_MODE_PRELOAD || s->window) {
        w->next_due = s->mode == CL_MODE_PRELOAD && w->preload_next >= s->config.keys ? CL_SOCKLOAD_NEVER : cl_tsc();
        if (s->window)
            set(w, w->next_due);
        return;
    }
    if (s->replay_ns) {
        w->due.given += s->n_workers;
        set(w, given(w));
        return;
    }
    w->due.due_q16 += gap_q16(w);
    set(w, s->start + (w->due.due_q16 >> 16));
}
