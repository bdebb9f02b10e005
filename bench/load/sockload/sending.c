/* Sending what is due. The next request is drawn and written beforehand, so that at its time it has only to be handed
 * to the socket. */
#include "engine.h"

#include <errno.h>
#include <string.h>

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
int cl_sockload_worker_prepare(struct cl_worker *w)
{
    if (w->prepared || w->next_due == CL_SOCKLOAD_NEVER)
        return 0;
    cl_sockload_what_draw(w, &w->next);
    w->next.due = w->next_due;
    int64_t n = write_text(w, &w->next, w->text);
    if (n <= 0)
        return cl_sockload_worker_fail(w, -EMSGSIZE,
                                       "a request was not written: it is longer than the room for it, or empty");
    w->text_len = (uint64_t)n;
    w->prepared = true;
    return 0;
}

static void remember(struct cl_worker *w, struct cl_conn *c, const struct cl_request *r)
{
    if (w->by_id) {
        struct cl_request *slot = &w->by_id[r->id & w->by_id_mask];
        if (slot->live)
            cl_sockload_worker_lose(w, slot); /* of so long ago that nothing is expected any more */
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
    int rc = c->state == CL_CONN_CLOSED ? cl_sockload_conn_open(w, c) : 0; /* fresh */
    rc = rc ? rc : cl_sockload_conn_send(w, c, text, n);
    if (rc == -ECONNREFUSED && !w->s->stream) /* of an earlier datagram (ICMP); this one is sent by the next call */
        rc = cl_sockload_conn_send(w, c, text, n);
    if (!rc) {
        w->counts.bytes_out += n;
        return true;
    }
    w->counts.refused++;
    if (w->s->stream)
        cl_sockload_worker_drop(w, c, false);
    return false;
}

/* How many of them were sent: the first ones. */
static unsigned send_datagrams(struct cl_worker *w, struct cl_conn *c, unsigned n)
{
    uint32_t each = w->s->config.request_bytes;
    int sent = w->s->carrier->send_together(w, c, w->together->text, n, each);
    if (sent == -ECONNREFUSED) /* of an earlier datagram (ICMP) */
        sent = w->s->carrier->send_together(w, c, w->together->text, n, each);
    w->counts.refused += sent < (int)n;
    return sent > 0 ? (unsigned)sent : 0;
}

/* Requests that are due by now, as many as there are, in one system call. False: there is none to be sent. */
static bool send_together(struct cl_worker *w, uint64_t now)
{
    struct cl_together *t = w->together;
    uint32_t each = w->s->config.request_bytes;
    struct cl_conn *c = cl_sockload_worker_take(w);
    unsigned n = 0;
    if (!c)
        return false;
    for (; n < CL_SOCKLOAD_TOGETHER && w->next_due <= now && !cl_sockload_worker_prepare(w); n++) {
        memcpy(t->text + n * each, w->text, each);
        t->requests[n] = w->next;
        t->requests[n].due = w->next_due;
        w->prepared = false;
        cl_sockload_due_next(w);
    }
    uint64_t sent = cl_tsc();
    unsigned left = n ? send_datagrams(w, c, n) : 0;
    w->counts.bytes_out += (uint64_t)left * each;
    for (unsigned i = 0; i < n; i++) {
        struct cl_request *r = &t->requests[i];
        r->sent = sent;
        r->measured = r->due >= w->s->warm_end;
        w->counts.offered += r->measured;
        if (i >= left)
            continue;
        account(w, r);
        r->live = 1;
        remember(w, c, r);
    }
    cl_sockload_worker_offer(w, c);
    return n > 0;
}

/* Send the request that is due. False: no connection is free, or there is none to be sent. */
static bool send_next(struct cl_worker *w)
{
    struct cl_sockload *s = w->s;
    if (cl_sockload_worker_prepare(w) || (s->window && w->outstanding >= s->window / s->n_workers + 1))
        return false;
    struct cl_conn *c = cl_sockload_worker_take(w);
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
    cl_sockload_worker_offer(w, c);
    cl_sockload_due_next(w);
    w->starved = w->starved && w->next_due <= r->sent; /* whoever was due meanwhile was held, too */
    return true;
}

bool cl_sockload_worker_send(struct cl_worker *w, uint64_t now)
{
    return w->together && !w->s->window ? send_together(w, now) : send_next(w);
}

/* The second part of an UPDATE, on the connection of the first. */
void cl_sockload_worker_send_second(struct cl_worker *w, struct cl_conn *c, struct cl_request r)
{
    r.second = 1;
    r.live = 1;
    int64_t n = write_text(w, &r, w->second_text);
    if (n > 0 && hand_over(w, c, w->second_text, (uint64_t)n))
        remember(w, c, &r);
    else
        w->counts.broken += r.measured;
}
