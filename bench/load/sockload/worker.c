/* A thread of load: sends what is due, takes the answers, and says what became of each request.
 *
 * The loop never waits for a server: due times go on whatever happens. With `spin` it looks without sleeping while
 * something is outstanding or soon due; else it sleeps, and is up to a millisecond early so that it spins to the due
 * time itself. */
#include "engine.h"

#include <errno.h>
#include <time.h>

#define BURST 32         /* sendings before the answers are looked at again */
#define EARLY_NS 1500000 /* epoll_wait counts in ms, and wakes late */
#define RETRY_NS 10000000
#define EVENTS_LEAST 64 /* that a carrier looks at in one go */

/* One connection: opened anew if it is closed, given up if its oldest request waits too long. */
static void look_after(struct cl_worker *w, uint64_t now)
{
    struct cl_sockload *s = w->s;
    struct cl_conn *c = &w->conns[w->look_at];
    w->look_at = w->look_at + 1 == w->n_conns ? 0 : w->look_at + 1;
    if (c->state == CL_CONN_CLOSED && !s->config.fresh && now >= c->retry) {
        c->retry = now + (uint64_t)cl_ns_to_ticks(s->clock, RETRY_NS);
        if (cl_sockload_conn_open(w, c))
            w->counts.refused++;
        cl_sockload_worker_offer(w, c);
        return;
    }
    if (!s->config.timeout_ns || !c->outstanding || w->by_id)
        return;
    uint64_t waited = now - cl_sockload_oldest(w, c)->sent;
    if ((int64_t)waited > cl_ns_to_ticks(s->clock, (int64_t)s->config.timeout_ns)) {
        w->counts.timeouts += cl_sockload_oldest(w, c)->measured;
        cl_sockload_worker_drop(w, c, false);
    }
}

/* Send what is due, some of it. Returns the time. What has come has its stamp (came.h), what is due has not: so this
 * goes first, also between what has come. */
static uint64_t send_due(struct cl_worker *w)
{
    uint64_t now = cl_tsc();
    for (unsigned i = 0; i < BURST && w->next_due <= now && cl_sockload_worker_send(w, now); i++)
        now = cl_tsc();
    return now;
}

void cl_sockload_worker_event(struct cl_worker *w, struct cl_conn *c, bool room, bool come)
{
    if (c->state == CL_CONN_CLOSED)
        return;
    if (room || c->state == CL_CONN_OPENING) {
        int rc = cl_sockload_conn_writable(w, c);
        if (rc) {
            w->error = w->connecting && !w->error ? rc : w->error;
            w->counts.refused++;
            uint64_t retry = cl_tsc() + (uint64_t)cl_ns_to_ticks(w->s->clock, RETRY_NS);
            cl_sockload_worker_drop(w, c, false);
            c->retry = retry;
            return;
        }
        cl_sockload_worker_offer(w, c);
    }
    if (c->state == CL_CONN_CLOSED || !come)
        return;
    if (w->s->stream)
        cl_sockload_worker_read(w, c);
    else
        cl_sockload_worker_read_datagrams(w, c);
    if (w->runs && !w->s->config.fresh) /* of `fresh` an event that was told may be of the connection before */
        send_due(w);
}

static int wait_ms(const struct cl_worker *w, uint64_t now)
{
    const struct cl_sockload *s = w->s;
    if (s->mode == CL_MODE_PRELOAD || s->window)
        return 0;
    if (s->config.spin && w->outstanding)
        return 0;
    uint64_t until = cl_min(w->next_due, w->outstanding ? s->drain_end : w->next_due);
    if (until <= now)
        return 0;
    int64_t ns = until == CL_SOCKLOAD_NEVER ? 1000000 : cl_ticks_to_ns(s->clock, (int64_t)(until - now)) - EARLY_NS;
    return (int)cl_max((int64_t)0, cl_min(ns / 1000000, (int64_t)20));
}

/* What is still due when the time for it is over was never sent. */
static void count_dropped(struct cl_worker *w)
{
    uint64_t aborted = cl_load_relaxed(&w->s->abort) ? cl_tsc() : CL_SOCKLOAD_NEVER;
    while (w->next_due != CL_SOCKLOAD_NEVER && w->s->mode == CL_MODE_RUN && !w->s->window && w->next_due < aborted) {
        w->counts.offered += w->next_due >= w->s->warm_end;
        cl_sockload_due_next(w);
    }
}

/* An aborted run does not count what was on its way: nobody waited for it. */
static void forget_outstanding(struct cl_worker *w)
{
    uint64_t forgotten = 0;
    for (uint32_t i = 0; w->by_id && i <= w->by_id_mask; i++) {
        forgotten += w->by_id[i].live && w->by_id[i].measured;
        w->by_id[i].live = 0;
    }
    for (uint32_t i = 0; i < w->n_conns; i++) {
        struct cl_conn *c = &w->conns[i];
        if (!c->outstanding)
            continue;
        if (c->in_len > c->in_at && !cl_load_relaxed(&w->s->abort))
            cl_sockload_worker_hear(w, c->in + c->in_at, c->in_len - c->in_at);
        for (; c->outstanding; c->outstanding--, c->first++)
            forgotten += cl_sockload_oldest(w, c)->live && cl_sockload_oldest(w, c)->measured;
        cl_sockload_conn_close(w, c); /* its late answers must meet no request of the next run */
        c->retry = 0;
    }
    w->outstanding = 0;
    if (cl_load_relaxed(&w->s->abort)) {
        w->counts.sent -= forgotten;
        w->counts.offered -= forgotten;
    }
}

static bool over(const struct cl_worker *w, uint64_t now)
{
    const struct cl_sockload *s = w->s;
    if (cl_load_relaxed(&s->abort)) /* relaxed: a wish */
        return true;
    if (w->next_due == CL_SOCKLOAD_NEVER && !w->outstanding && !w->prepared)
        return true;
    return s->mode == CL_MODE_RUN && now > s->drain_end;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void *cl_sockload_worker_main(void *arg)
{
    struct cl_worker *w = arg;
    struct cl_sockload *s = w->s;
    uint64_t cpu = cpu_ns();
    w->connecting = false;
    for (uint32_t i = 0; i < w->n_conns; i++)
        cl_sockload_worker_offer(w, &w->conns[i]);
    cl_sockload_due_begin(w);
    w->runs = true;
    for (;;) {
        uint64_t now = send_due(w);
        if (over(w, now))
            break;
        cl_sockload_worker_prepare(w);
        int ms = wait_ms(w, now);
        for (uint32_t i = 0; i < (ms ? w->n_conns : 1); i++)
            look_after(w, now);
        s->carrier->poll(w, ms);
    }
    w->runs = false;
    count_dropped(w);
    forget_outstanding(w);
    w->prepared = false;
    w->counts.dropped = w->counts.offered - w->counts.sent;
    w->counts.cpu_ns = cpu_ns() - cpu;
    __atomic_fetch_add(&s->finished, 1, __ATOMIC_RELEASE); /* release: who sees it may read the results */
    return NULL;
}

/* What a connection waits for that is not open in time. */
static void explain_delay(struct cl_worker *w)
{
    for (uint32_t i = 0; i < w->n_conns; i++) {
        enum cl_conn_state state = w->conns[i].state;
        if (state == CL_CONN_SHAKING)
            cl_sockload_worker_explain(w, -ETIMEDOUT, "TLS:", "the handshake has no answer; does it speak TLS there?");
        else if (state == CL_CONN_GREETING)
            cl_sockload_worker_explain(w, -ETIMEDOUT, "AUTH and SELECT", "have no answer; is it Redis?");
    }
}

int cl_sockload_worker_connect(struct cl_worker *w, uint64_t deadline)
{
    const uint32_t at_once = 256; /* a backlog holds so many at least, as a rule */
    uint32_t begun = 0;
    w->connecting = false;
    for (uint32_t i = 0; i <= w->n_conns / EVENTS_LEAST; i++)
        w->s->carrier->poll(w, 0); /* those that ended since the last run are opened anew, and none's fault */
    w->error = 0;
    w->reason[0] = 0;
    w->connecting = true;
    while (w->open < w->n_conns) {
        while (begun < w->n_conns && begun < w->open + at_once) {
            struct cl_conn *c = &w->conns[begun++];
            int rc = c->state == CL_CONN_CLOSED ? cl_sockload_conn_open(w, c) : 0;
            if (rc)
                return rc;
        }
        if (w->open == w->n_conns)
            break;
        w->s->carrier->poll(w, 10);
        if (w->error)
            return w->error;
        if (cl_tsc() > deadline) {
            explain_delay(w);
            return -ETIMEDOUT;
        }
        if (cl_load_relaxed(&w->s->abort))
            return -EINTR;
    }
    return 0;
}

int cl_sockload_worker_close(struct cl_worker *w, uint64_t unused)
{
    (void)unused;
    for (uint32_t i = 0; i < w->n_conns; i++)
        if (w->conns[i].state != CL_CONN_CLOSED)
            cl_sockload_conn_close(w, &w->conns[i]);
    return 0;
}
