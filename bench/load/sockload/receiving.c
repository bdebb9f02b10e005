/* Receiving: bytes become answers, and an answer ends its request. On TCP answers come in the order of the requests; a
 * datagram of the echo protocol names its own. */
#include "engine.h"

#include <errno.h>
#include <string.h>

#define READS 32 /* of one connection, before the others have their turn */

static void answered(struct cl_worker *w, struct cl_conn *c, uint32_t worth, uint64_t came)
{
    struct cl_request r = *cl_sockload_oldest(w, c);
    cl_sockload_oldest(w, c)->live = 0;
    c->first++;
    c->outstanding--;
    if (r.op == CL_SOCKLOAD_UPDATE && !r.second && worth <= CL_SOCKLOAD_STORED) {
        w->outstanding--;
        cl_sockload_worker_send_second(w, c, r);
        return;
    }
    cl_sockload_worker_settle(w, &r, worth, came);
}

static bool worth_telling(int64_t n, uint32_t worth)
{
    return n > 0 && worth >= CL_SOCKLOAD_ERROR;
}

/* Take the answers that are there. False: what is there is no answer. */
static bool take_answers(struct cl_worker *w, struct cl_conn *c, uint64_t came, bool end)
{
    while (c->outstanding && c->in_len > c->in_at) {
        uint32_t have = c->in_len - c->in_at, worth = CL_SOCKLOAD_WRONG, need = 0;
        if (have < c->need && !end)
            return true;
        int64_t n = w->s->protocol->read(w->s, cl_sockload_oldest(w, c), c->in + c->in_at, have, end, &worth, &need);
        c->last |= n > 0 && worth & CL_SOCKLOAD_LAST;
        worth &= ~(uint32_t)CL_SOCKLOAD_LAST;
        if (n < 0 || worth_telling(n, worth))
            cl_sockload_worker_hear(w, c->in + c->in_at, n < 0 ? have : (uint32_t)n);
        if (n < 0) {
            answered(w, c, CL_SOCKLOAD_WRONG, came);
            return false;
        }
        if (n == 0) {
            c->need = cl_max(need, have + 1);
            return true;
        }
        c->need = 0;
        c->in_at += (uint32_t)n;
        answered(w, c, worth, came);
    }
    if (c->in_len > c->in_at && !c->outstanding) {
        w->counts.stray++;
        return false;
    }
    return true;
}

static void take_datagram(struct cl_worker *w, struct cl_conn *c, const uint8_t *in, uint32_t n, uint64_t came)
{
    uint32_t worth = CL_SOCKLOAD_WRONG, need = 0;
    if (!w->by_id) {
        if (!c->outstanding) {
            w->counts.stray++;
            return;
        }
        bool right = w->s->protocol->read(w->s, cl_sockload_oldest(w, c), in, n, true, &worth, &need) > 0;
        if (!right)
            cl_sockload_worker_hear(w, in, n);
        answered(w, c, right ? worth : CL_SOCKLOAD_WRONG, came);
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
        cl_sockload_worker_hear(w, in, n);
    cl_sockload_worker_settle(w, r, took == (int64_t)n ? worth : CL_SOCKLOAD_WRONG, came);
}

void cl_sockload_worker_read_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    int n = w->s->carrier->receive_datagrams(w, c);
    for (int i = 0; i < n; i++) {
        w->counts.bytes_in += w->inbox->headers[i].msg_len;
        take_datagram(w, c, w->inbox->data[i], w->inbox->headers[i].msg_len, w->inbox->came[i]);
    }
    w->counts.refused += n < 0 && n != -EAGAIN; /* an ICMP message: nobody listens there */
    cl_sockload_worker_offer(w, c);
}

/* The answers to the greeting. False: no more can be done with what was received. */
static bool greeted(struct cl_worker *w, struct cl_conn *c, int64_t n)
{
    int whole = n > 0 ? cl_sockload_conn_greeted(c) : -ECONNRESET;
    if (whole < 0) {
        cl_sockload_worker_fail(w, whole,
                                whole == -EPROTO ? "the server refused the greeting (password, database)"
                                                 : "the server ended the connection instead of answering the greeting");
        cl_sockload_worker_drop(w, c, false);
        return false;
    }
    if (!whole)
        return false;
    c->state = CL_CONN_READY;
    cl_count(&w->open, 1);
    cl_sockload_worker_offer(w, c);
    return c->in_at < c->in_len;
}

/* Take what a TCP connection has received. */
void cl_sockload_worker_read(struct cl_worker *w, struct cl_conn *c)
{
    for (unsigned i = 0; i < READS || c->tls; i++) {
        int64_t n = cl_sockload_conn_receive(w, c, i < READS);
        if (n == -EAGAIN)
            cl_sockload_worker_offer(w, c); /* a handshake may have ended */
        if (n == -EAGAIN || (c->state == CL_CONN_GREETING && !greeted(w, c, n)))
            return;
        bool whole = n >= 0 && take_answers(w, c, w->came, n == 0);
        if (n <= 0 || !whole) {
            cl_sockload_worker_drop(w, c, n == 0 && whole && !c->outstanding);
            return;
        }
        if (w->s->config.fresh && !c->outstanding) {
            cl_sockload_worker_drop(w, c, true);
            return;
        }
        cl_sockload_worker_offer(w, c);
        if (c->state == CL_CONN_CLOSED || (!c->tls && c->in_len < c->in_room))
            return; /* all that there was */
    }
}
