/* Who may send, and what became of each request: the queue of free connections, counts, histograms, records.
 *
 * A request is settled (it has an answer, right or not) or lost (it will have none), once. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>

int cl_sockload_worker_fail(struct cl_worker *w, int error, const char *what)
{
    if (!w->error) {
        w->error = error;
        snprintf(w->reason, sizeof(w->reason), "%s", what);
    }
    cl_store_relaxed(&w->s->abort, 1);
    return error;
}

/* Free connections. */

static bool is_free(const struct cl_worker *w, const struct cl_conn *c)
{
    if (w->by_id)
        return c->state == CL_CONN_READY;
    if (w->s->config.fresh)
        return c->outstanding == 0;
    return c->state == CL_CONN_READY && !c->last && c->outstanding < w->s->depth;
}

void cl_sockload_worker_offer(struct cl_worker *w, struct cl_conn *c)
{
    if (c->queued || !is_free(w, c))
        return;
    c->queued = 1;
    w->free[w->free_tail++ & w->free_mask] = (uint32_t)(c - w->conns);
}

struct cl_conn *cl_sockload_worker_take(struct cl_worker *w)
{
    while (w->free_head != w->free_tail) {
        struct cl_conn *c = &w->conns[w->free[w->free_head++ & w->free_mask]];
        c->queued = 0;
        if (is_free(w, c))
            return c;
    }
    return NULL;
}

/* Accounting. */

/* What the achieved rate is computed from: answers within the measured time, from the first one on. */
static void note_time(struct cl_worker *w, uint64_t now)
{
    const struct cl_sockload *s = w->s;
    if (now < s->warm_end)
        return;
    uint64_t ns = (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(now - s->start));
    w->counts.first_ns = w->counts.first_ns ? w->counts.first_ns : ns;
    w->counts.last_ns = ns;
    w->counts.in_time += now < s->end;
}

void cl_sockload_worker_settle(struct cl_worker *w, struct cl_request *r, uint32_t worth, uint64_t came)
{
    struct cl_sockload *s = w->s;
    uint64_t now = cl_max(came, r->sent); /* the stamp is of another clock, and no answer is older than its request */
    r->live = 0;
    w->outstanding--;
    bool right = worth <= CL_SOCKLOAD_STORED;
    if (right) {
        cl_count(&w->progress_answered, 1);
        w->stored += r->op == CL_SOCKLOAD_INSERT;
        note_time(w, now);
    }
    if (!right && s->mode == CL_MODE_PRELOAD)
        cl_sockload_worker_fail(w, -EPROTO,
                                worth == CL_SOCKLOAD_ERROR ? "the server refused to store a key"
                                                           : "the server answered a SET with what is no answer to it");
    if (!r->measured)
        return;
    struct cl_sockload_counts *c = &w->counts;
    c->errors += worth == CL_SOCKLOAD_ERROR;
    c->wrong += worth == CL_SOCKLOAD_WRONG;
    if (!right)
        return;
    c->answered++;
    c->hits += worth == CL_SOCKLOAD_HIT;
    c->misses += worth == CL_SOCKLOAD_MISS;
    c->stored += worth == CL_SOCKLOAD_STORED;
    uint64_t latency = (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(now - r->due));
    cl_hist_record(w->hists[CL_SOCKLOAD_LATENCY], latency);
    cl_hist_record(w->hists[CL_SOCKLOAD_LATENCY_OF + r->op], latency);
    cl_hist_record(w->hists[CL_SOCKLOAD_FROM_SEND], (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(now - r->sent)));
    if (r->record != CL_SOCKLOAD_NEVER)
        w->records[r->record].latency_ns = latency;
}

/* What was outstanding has no answer any more. */
void cl_sockload_worker_lose(struct cl_worker *w, struct cl_request *r)
{
    w->outstanding--;
    r->live = 0;
    w->counts.broken += r->measured;
    if (w->s->mode == CL_MODE_PRELOAD)
        cl_sockload_worker_fail(w, -ECONNRESET, "the server ended a connection while keys were stored");
}

void cl_sockload_worker_hear(struct cl_worker *w, const uint8_t *in, uint32_t n)
{
    if (w->heard[0])
        return;
    uint32_t i = 0;
    for (; i < n && i < sizeof(w->heard) - 1 && in[i] != '\r' && in[i] != '\n'; i++)
        w->heard[i] = in[i] >= 32 && in[i] < 127 ? (char)in[i] : '.';
    w->heard[i] = 0;
}

void cl_sockload_worker_drop(struct cl_worker *w, struct cl_conn *c, bool expected)
{
    if (c->outstanding && c->in_len > c->in_at)
        cl_sockload_worker_hear(w, c->in + c->in_at, c->in_len - c->in_at);
    cl_sockload_conn_close(w, c);
    for (; c->outstanding; c->outstanding--, c->first++)
        if (cl_sockload_oldest(w, c)->live)
            cl_sockload_worker_lose(w, cl_sockload_oldest(w, c));
    w->counts.reconnects += !expected;
    if (w->connecting && !w->error)
        cl_sockload_worker_explain(w, -ECONNRESET, "the server ended a connection", "as soon as it was open");
    c->retry = 0;
    cl_sockload_worker_offer(w, c); /* of `fresh`, which opens it when it is taken */
}
