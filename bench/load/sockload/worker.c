/* A thread of load: sends what is due, takes the answers, and says what became of each request.
 *
 * The loop never waits for a server: due times go on whatever happens. With `spin` it asks epoll without sleeping while
 * something is outstanding or soon due; else it sleeps, and is up to a millisecond early so that it spins to the due
 * time itself. */
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define BURST 32 /* requests that are sent before the answers are looked at again */
#define EVENTS 64
#define EARLY_NS 1500000 /* epoll_wait counts in ms, and wakes late */
#define RETRY_NS 10000000

static struct cl_request *oldest(struct cl_worker *w, struct cl_conn *c)
{
    return &c->ring[c->first & w->s->ring_mask];
}

static int fail(struct cl_worker *w, int error, const char *what)
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
    return c->state == CL_CONN_READY && c->outstanding < w->s->depth;
}

static void offer(struct cl_worker *w, struct cl_conn *c)
{
    if (c->queued || !is_free(w, c))
        return;
    c->queued = 1;
    w->free[w->free_tail++ & w->free_mask] = (uint32_t)(c - w->conns);
}

static struct cl_conn *take(struct cl_worker *w)
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

static void settle(struct cl_worker *w, struct cl_request *r, uint32_t worth, uint64_t now)
{
    struct cl_sockload *s = w->s;
    r->live = 0;
    w->outstanding--;
    bool right = worth <= CL_SOCKLOAD_STORED;
    if (right) {
        cl_count(&w->progress_answered, 1);
        w->stored += r->op == CL_SOCKLOAD_INSERT;
        note_time(w, now);
    }
    if (!right && s->mode == CL_MODE_PRELOAD)
        fail(w, -EPROTO,
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
static void lose(struct cl_worker *w, struct cl_request *r)
{
    w->outstanding--;
    r->live = 0;
    w->counts.broken += r->measured;
    if (w->s->mode == CL_MODE_PRELOAD)
        fail(w, -ECONNRESET, "the server ended a connection while keys were stored");
}

static void drop(struct cl_worker *w, struct cl_conn *c, bool expected)
{
    cl_conn_close(w, c);
    for (; c->outstanding; c->outstanding--, c->first++)
        if (oldest(w, c)->live)
            lose(w, oldest(w, c));
    w->counts.reconnects += !expected;
    c->retry = 0;
    offer(w, c); /* of `fresh`, which opens it when it is taken */
}

/* Sending. */

/* Blocks of measured requests that follow one another, at equal distances over the run. */
static uint64_t record_for(struct cl_worker *w, const struct cl_request *r)
{
    uint64_t stride = w->s->record_stride;
    if (!r->measured || !stride)
        return CL_SOCKLOAD_NEVER;
    uint64_t block = w->measured++ / CL_SOCKLOAD_BLOCK;
    return block % stride || w->records_used == w->records_room ? CL_SOCKLOAD_NEVER : w->records_used++;
}

static int64_t write_text(struct cl_worker *w, const struct cl_request *r, uint8_t *out)
{
    return w->s->protocol->write(w->s, r, out, w->text_room);
}

/* Draw and write the next request while there is time for it. */
static int prepare(struct cl_worker *w)
{
    if (w->prepared || w->next_due == CL_SOCKLOAD_NEVER)
        return 0;
    cl_what_draw(w, &w->next);
    int64_t n = write_text(w, &w->next, w->text);
    if (n <= 0)
        return fail(w, -EMSGSIZE, "a request was not written: it is longer than the room for it, or empty");
    w->text_len = (uint64_t)n;
    w->prepared = true;
    return 0;
}

static void remember(struct cl_worker *w, struct cl_conn *c, const struct cl_request *r)
{
    if (w->by_id) {
        struct cl_request *slot = &w->by_id[r->id & w->by_id_mask];
        if (slot->live)
            lose(w, slot); /* of so long ago that nothing is expected any more */
        *slot = *r;
    } else {
        c->ring[(c->first + c->outstanding++) & w->s->ring_mask] = *r;
    }
    w->outstanding++;
}

/* Count a request as sent, late or not. */
static void account(struct cl_worker *w, struct cl_request *r)
{
    struct cl_sockload *s = w->s;
    cl_count(&w->progress_sent, 1);
    r->record = record_for(w, r);
    if (!r->measured)
        return;
    uint64_t lag = (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(r->sent - r->due));
    w->counts.sent++;
    w->counts.late += lag > s->config.late_ns;
    w->counts.held += r->held && lag > s->config.late_ns;
    if (!r->held)
        cl_hist_record(w->hists[CL_SOCKLOAD_LAG], lag);
    if (r->record != CL_SOCKLOAD_NEVER) {
        uint64_t due_ns = (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(r->due - s->start));
        w->records[r->record] = (struct cl_sockload_record){
            due_ns, CL_SOCKLOAD_UNANSWERED, (uint32_t)cl_min(lag, (uint64_t)UINT32_MAX), (uint16_t)w->number, r->op};
    }
}

/* Hand text to the connection; false: it could not be. */
static bool hand_over(struct cl_worker *w, struct cl_conn *c, const uint8_t *text, uint64_t n)
{
    int rc = c->state == CL_CONN_CLOSED ? cl_conn_open(w, c) : 0; /* fresh */
    rc = rc ? rc : cl_conn_send(w, c, text, n);
    if (rc == -ECONNREFUSED && !w->s->stream) /* of an earlier datagram (ICMP); this one is sent by the next call */
        rc = cl_conn_send(w, c, text, n);
    if (!rc) {
        w->counts.bytes_out += n;
        return true;
    }
    w->counts.refused++;
    if (w->s->stream)
        drop(w, c, false);
    return false;
}

static int send_datagrams(struct cl_worker *w, struct cl_conn *c, unsigned n)
{
    uint32_t each = w->s->config.request_bytes;
    int rc = cl_conn_send_together(c, w->together->text, n, each);
    if (rc == -ECONNREFUSED) /* of an earlier datagram (ICMP) */
        rc = cl_conn_send_together(c, w->together->text, n, each);
    if (n == 1 || (rc != -EINVAL && rc != -EIO && rc != -EOPNOTSUPP))
        return rc;
    w->singly = true;
    for (unsigned i = 0; i < n; i++)
        rc = cl_conn_send_together(c, w->together->text + i * each, 1, each);
    return rc;
}

/* Requests that are due by now, as many as there are, in one system call. False: there is none to be sent. */
static bool send_together(struct cl_worker *w, uint64_t now)
{
    struct cl_together *t = w->together;
    uint32_t each = w->s->config.request_bytes;
    struct cl_conn *c = take(w);
    unsigned n = 0;
    if (!c)
        return false;
    for (; n < (w->singly ? 1 : CL_SOCKLOAD_TOGETHER) && w->next_due <= now && !prepare(w); n++) {
        memcpy(t->text + n * each, w->text, each);
        t->requests[n] = w->next;
        t->requests[n].due = w->next_due;
        w->prepared = false;
        cl_due_next(w);
    }
    uint64_t sent = cl_tsc();
    int rc = n ? send_datagrams(w, c, n) : 0;
    w->counts.refused += rc != 0;
    w->counts.bytes_out += rc ? 0 : (uint64_t)n * each;
    for (unsigned i = 0; i < n; i++) {
        struct cl_request *r = &t->requests[i];
        r->sent = sent;
        r->measured = r->due >= w->s->warm_end;
        w->counts.offered += r->measured;
        if (rc)
            continue;
        account(w, r);
        r->live = 1;
        remember(w, c, r);
    }
    offer(w, c);
    return n > 0;
}

/* Send the request that is due. False: no connection is free, or there is none to be sent. */
static bool send_next(struct cl_worker *w)
{
    struct cl_sockload *s = w->s;
    if (prepare(w) || (s->window && w->outstanding >= s->window / s->n_workers + 1))
        return false;
    struct cl_conn *c = take(w);
    if (!c) {
        w->starved = true;
        return false;
    }
    struct cl_request *r = &w->next;
    r->due = w->next_due;
    r->measured = s->mode == CL_MODE_RUN && r->due >= s->warm_end;
    r->held = w->starved;
    r->sent = cl_tsc();
    if (s->window)
        r->due = r->sent;
    w->counts.offered += r->measured;
    if (hand_over(w, c, w->text, w->text_len)) {
        account(w, r);
        r->live = 1;
        remember(w, c, r);
    }
    w->prepared = false;
    offer(w, c);
    cl_due_next(w);
    w->starved = w->starved && w->next_due <= r->sent; /* whoever was due meanwhile was held, too */
    return true;
}

static bool send_some(struct cl_worker *w, uint64_t now)
{
    return w->together && !w->s->window ? send_together(w, now) : send_next(w);
}

/* The second part of an UPDATE, on the connection of the first. */
static void send_second(struct cl_worker *w, struct cl_conn *c, struct cl_request r)
{
    r.second = 1;
    r.live = 1;
    int64_t n = write_text(w, &r, w->second_text);
    if (n > 0 && hand_over(w, c, w->second_text, (uint64_t)n))
        remember(w, c, &r);
    else
        w->counts.broken += r.measured;
}

/* Receiving. */

static void answered(struct cl_worker *w, struct cl_conn *c, uint32_t worth, uint64_t now)
{
    struct cl_request r = *oldest(w, c);
    oldest(w, c)->live = 0;
    c->first++;
    c->outstanding--;
    if (r.op == CL_SOCKLOAD_UPDATE && !r.second && worth <= CL_SOCKLOAD_STORED) {
        w->outstanding--;
        send_second(w, c, r);
        return;
    }
    settle(w, &r, worth, now);
}

static bool worth_telling(int64_t n, uint32_t worth)
{
    return n > 0 && worth >= CL_SOCKLOAD_ERROR;
}

/* Keep the beginning of the first answer that is not right, for a person. */
static void hear(struct cl_worker *w, const uint8_t *in, uint32_t n)
{
    if (w->heard[0])
        return;
    uint32_t i = 0;
    for (; i < n && i < sizeof(w->heard) - 1 && in[i] != '\r' && in[i] != '\n'; i++)
        w->heard[i] = in[i] >= 32 && in[i] < 127 ? (char)in[i] : '.';
    w->heard[i] = 0;
}

/* Take the answers that are there. False: what is there is no answer. */
static bool take_answers(struct cl_worker *w, struct cl_conn *c, uint64_t now, bool end)
{
    while (c->outstanding && c->in_len > c->in_at) {
        uint32_t have = c->in_len - c->in_at, worth = CL_SOCKLOAD_WRONG, need = 0;
        if (have < c->need && !end)
            return true;
        int64_t n = w->s->protocol->read(w->s, oldest(w, c), c->in + c->in_at, have, end, &worth, &need);
        if (n < 0 || worth_telling(n, worth))
            hear(w, c->in + c->in_at, n < 0 ? have : (uint32_t)n);
        if (n < 0) {
            answered(w, c, CL_SOCKLOAD_WRONG, now);
            return false;
        }
        if (n == 0) {
            c->need = cl_max(need, have + 1);
            return true;
        }
        c->need = 0;
        c->in_at += (uint32_t)n;
        answered(w, c, worth, now);
    }
    if (c->in_len > c->in_at && !c->outstanding) {
        w->counts.stray++;
        return false;
    }
    return true;
}

static void take_datagram(struct cl_worker *w, struct cl_conn *c, const uint8_t *in, uint32_t n, uint64_t now)
{
    uint32_t worth = CL_SOCKLOAD_WRONG, need = 0;
    if (!w->by_id) {
        if (!c->outstanding)
            w->counts.stray++;
        else if (w->s->protocol->read(w->s, oldest(w, c), in, n, true, &worth, &need) > 0)
            answered(w, c, worth, now);
        else
            answered(w, c, CL_SOCKLOAD_WRONG, now);
        return;
    }
    struct cl_sockload_head head;
    if (n < sizeof(head)) {
        w->counts.stray++;
        return;
    }
    memcpy(&head, in, sizeof(head));
    struct cl_request *r = &w->by_id[head.id & w->by_id_mask];
    if (!r->live || r->id != head.id) {
        w->counts.stray++;
        return;
    }
    int64_t took = w->s->protocol->read(w->s, r, in, n, true, &worth, &need);
    if (took != (int64_t)n || worth_telling(took, worth))
        hear(w, in, n);
    settle(w, r, took == (int64_t)n ? worth : CL_SOCKLOAD_WRONG, now);
}

static void take_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    int n = cl_conn_receive_datagrams(w, c);
    uint64_t now = cl_tsc();
    for (int i = 0; i < n; i++)
        take_datagram(w, c, w->inbox->data[i], w->inbox->headers[i].msg_len, now);
    w->counts.refused += n < 0 && n != -EAGAIN; /* an ICMP message: nobody listens there */
    offer(w, c);
}

/* The answers to the greeting. False: no more can be done with what was received. */
static bool greeted(struct cl_worker *w, struct cl_conn *c, int64_t n)
{
    int whole = n > 0 ? cl_conn_greeted(c) : -ECONNRESET;
    if (whole < 0) {
        fail(w, whole,
             whole == -EPROTO ? "the server refused the greeting (password, database)"
                              : "the server ended the connection instead of answering the greeting");
        drop(w, c, false);
        return false;
    }
    if (!whole)
        return false;
    c->state = CL_CONN_READY;
    cl_count(&w->open, 1);
    offer(w, c);
    return c->in_at < c->in_len;
}

/* Take what a TCP connection has received. */
static void readable(struct cl_worker *w, struct cl_conn *c)
{
    for (unsigned i = 0; i < BURST; i++) {
        int64_t n = cl_conn_receive(w, c);
        uint64_t now = cl_tsc();
        if (n == -EAGAIN || (c->state == CL_CONN_GREETING && !greeted(w, c, n)))
            return;
        bool whole = n >= 0 && take_answers(w, c, now, n == 0);
        if (n <= 0 || !whole) {
            drop(w, c, n == 0 && whole && !c->outstanding);
            return;
        }
        if (w->s->config.fresh && !c->outstanding) {
            drop(w, c, true);
            return;
        }
        offer(w, c);
        if (c->fd < 0 || c->in_len < c->in_room)
            return; /* all that there was */
    }
}

/* One connection: opened anew if it is closed, given up if its oldest request waits too long. */
static void look_after(struct cl_worker *w, uint64_t now)
{
    struct cl_sockload *s = w->s;
    struct cl_conn *c = &w->conns[w->look_at];
    w->look_at = w->look_at + 1 == w->n_conns ? 0 : w->look_at + 1;
    if (c->state == CL_CONN_CLOSED && !s->config.fresh && now >= c->retry) {
        c->retry = now + (uint64_t)cl_ns_to_ticks(s->clock, RETRY_NS);
        if (cl_conn_open(w, c))
            w->counts.refused++;
        offer(w, c);
        return;
    }
    if (!s->config.timeout_ns || !c->outstanding || w->by_id)
        return;
    uint64_t waited = now - oldest(w, c)->sent;
    if ((int64_t)waited > cl_ns_to_ticks(s->clock, (int64_t)s->config.timeout_ns)) {
        w->counts.timeouts += oldest(w, c)->measured;
        drop(w, c, false);
    }
}

static void handle(struct cl_worker *w, const struct epoll_event *event)
{
    struct cl_conn *c = &w->conns[event->data.u32];
    if (c->fd < 0)
        return;
    if (event->events & EPOLLOUT || c->state == CL_CONN_OPENING) {
        int rc = cl_conn_writable(w, c);
        if (rc) {
            w->error = w->s->running ? w->error : rc;
            w->counts.refused++;
            uint64_t retry = cl_tsc() + (uint64_t)cl_ns_to_ticks(w->s->clock, RETRY_NS);
            drop(w, c, false);
            c->retry = retry;
            return;
        }
        offer(w, c);
    }
    if (c->fd < 0 || !(event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    if (w->s->stream)
        readable(w, c);
    else
        take_datagrams(w, c);
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

static void poll_once(struct cl_worker *w, int ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(w->epoll, events, EVENTS, ms);
    for (int i = 0; i < n; i++)
        handle(w, &events[i]);
}

/* What is still due when the time for it is over was never sent. */
static void count_dropped(struct cl_worker *w)
{
    uint64_t aborted = cl_load_relaxed(&w->s->abort) ? cl_tsc() : CL_SOCKLOAD_NEVER;
    while (w->next_due != CL_SOCKLOAD_NEVER && w->s->mode == CL_MODE_RUN && !w->s->window && w->next_due < aborted) {
        w->counts.offered += w->next_due >= w->s->warm_end;
        cl_due_next(w);
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
        for (; c->outstanding; c->outstanding--, c->first++)
            forgotten += oldest(w, c)->live && oldest(w, c)->measured;
        cl_conn_close(w, c); /* its late answers must meet no request of the next run */
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

static void pin(struct cl_worker *w)
{
    int cpu = w->s->config.cpus ? w->s->config.cpus[w->number] : -1;
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int rc = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (rc)
        fail(w, -rc, "a thread was not pinned to its CPU");
}

void *cl_worker_main(void *arg)
{
    struct cl_worker *w = arg;
    struct cl_sockload *s = w->s;
    uint64_t cpu = cpu_ns();
    pin(w);
    for (uint32_t i = 0; i < w->n_conns; i++)
        offer(w, &w->conns[i]);
    cl_due_begin(w);
    for (;;) {
        uint64_t now = cl_tsc();
        for (unsigned i = 0; i < BURST && w->next_due <= now && send_some(w, now); i++)
            now = cl_tsc();
        if (over(w, now))
            break;
        prepare(w);
        int ms = wait_ms(w, now);
        for (uint32_t i = 0; i < (ms ? w->n_conns : 1); i++)
            look_after(w, now);
        poll_once(w, ms);
    }
    count_dropped(w);
    forget_outstanding(w);
    w->prepared = false;
    w->counts.dropped = w->counts.offered - w->counts.sent;
    w->counts.cpu_ns = cpu_ns() - cpu;
    __atomic_fetch_add(&s->finished, 1, __ATOMIC_RELEASE); /* release: who sees it may read the results */
    return NULL;
}

int cl_worker_connect(struct cl_worker *w, uint64_t deadline)
{
    const uint32_t at_once = 256; /* a backlog holds so many at least, as a rule */
    uint32_t begun = 0;
    w->error = 0;
    while (w->open < w->n_conns) {
        while (begun < w->n_conns && begun < w->open + at_once) {
            struct cl_conn *c = &w->conns[begun++];
            int rc = c->state == CL_CONN_CLOSED ? cl_conn_open(w, c) : 0;
            if (rc)
                return rc;
        }
        if (w->open == w->n_conns)
            break;
        poll_once(w, 10);
        if (w->error)
            return w->error;
        if (cl_tsc() > deadline)
            return -ETIMEDOUT;
        if (cl_load_relaxed(&w->s->abort))
            return -EINTR;
    }
    return 0;
}
