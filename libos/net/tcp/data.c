/* Data and FINs that come (RFC 9293, section 3.10.7.4, seventh and eighth), and when they are acknowledged. */
#include "machine.h"

#include <errno.h>

/* The user has closed, and now something comes that nobody will read: the peer is to know (RFC 9293, section 3.6.1). */
static void refuse(struct cl_tcp_conn *c)
{
    cl_tcp_send_reset(c, c->una, false); /* as of a segment that is of no connection (3.5.2) */
    cl_tcp_end(c, ECONNRESET);
}

/* What the user leaves is copied. */
bool cl_tcp_keep_next(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len, uint32_t done)
{
    uint32_t seq = c->rcv_nxt - len;
    if (c->state == CL_TCP_CLOSED)
        return false;
    if (c->flags & CL_TCP_READ_SHUT) {
        refuse(c);
        return false;
    }
    if (c->receive.bytes)
        c->events |= CL_TCP_EVENT_DATA;
    if (!(c->flags & CL_TCP_KEEP_FRAMES) || !cl_tcp_put_frame(c, data + done, len - done))
        done += cl_tcp_buffer_append(c, CL_TCP_RECEIVE, seq + done, data + done, len - done);
    else
        done = len;
    c->rcv_nxt -= len - done;
    cl_tcp_next_taken(c, done);
    if (done < len)
        cl_count(&c->turn->counts->refused_memory, 1);
    return done == len;
}

/* Bytes behind a gap, or such that fill one. Each is answered at once (RFC 5681, section 4.2); but not if there was no
 * memory for it: it is as if lost. Else two ends without delay between them send and refuse it for ever. */
static bool out_of_order(struct cl_tcp_conn *c, uint32_t seq, const uint8_t *data, uint32_t len)
{
    uint32_t before = c->rcv_nxt;
    uint32_t has = cl_tcp_aside_put(c, seq, data, len);
    cl_count(&c->turn->counts->out_of_order, 1);
    if (has < len)
        cl_count(&c->turn->counts->refused_memory, 1);
    if (c->flags & CL_TCP_FIN_AHEAD)
        cl_tcp_aside_cut(c, c->fin_seq);
    uint64_t since_ns = c->aside ? c->aside->since_ns : 0;
    cl_tcp_aside_take(c);
    if (c->rcv_nxt != before) {
        cl_count(&c->turn->counts->bytes_in, c->rcv_nxt - before);
        c->events |= CL_TCP_EVENT_DATA;
        c->flags |= CL_TCP_ACK_NOW;
        if (cl_seq_before(seq + len, c->rcv_nxt)) /* and what had come before it was behind that gap */
            cl_tcp_stall_filled(c, since_ns);
    } else if (has) {
        cl_tcp_send_ack(c); /* its sender counts them */
    }
    return has == len;
}

/* The peer's FIN, if it is next. One that data in order has passed was none: it does not wait for numbers to wrap. */
static void look_for_fin(struct cl_tcp_conn *c)
{
    if (!(c->flags & CL_TCP_FIN_AHEAD))
        return;
    if (c->fin_seq == c->rcv_nxt)
        cl_tcp_fin_taken(c);
    else if (cl_seq_before(c->fin_seq, c->rcv_nxt))
        c->flags &= ~(uint32_t)CL_TCP_FIN_AHEAD;
}

void cl_tcp_take_data(struct cl_tcp_conn *c, uint32_t seq, const uint8_t *data, uint32_t len, bool fin)
{
    if (c->state != CL_TCP_ESTABLISHED && c->state != CL_TCP_FIN_WAIT_1 && c->state != CL_TCP_FIN_WAIT_2)
        return; /* the peer's FIN was in order: nothing can follow it */
    if (len && (c->flags & CL_TCP_READ_SHUT || c->deaf) && cl_seq_before(c->rcv_nxt, seq + len)) {
        refuse(c);
        return;
    }
    cl_tcp_note_length(c, len);
    if (cl_seq_before(seq, c->rcv_nxt)) { /* what comes again: the first to come was kept */
        uint32_t cut = cl_min(c->rcv_nxt - seq, len);
        c->turn->twice = (struct cl_tcp_range){seq, seq + cut};
        seq += cut;
        data += cut;
        len -= cut;
        c->flags |= CL_TCP_ACK_NOW;
    }
    if (cl_seq_before(c->rcv_edge, seq + len)) { /* a FIN right behind takes no room, and else it would come for ever */
        len = cl_min(len, c->rcv_edge - seq);
        fin = false;
        c->flags |= CL_TCP_ACK_NOW;
    }
    if (fin) /* the stream ends there, whatever came for behind it (RFC 9293, section 3.10.7.4, seventh and eighth) */
        cl_tcp_aside_cut(c, seq + len);
    bool whole = true;
    if (len)
        whole = seq == c->rcv_nxt && !c->aside ? cl_tcp_take_next(c, data, len) : out_of_order(c, seq, data, len);
    if (c->state == CL_TCP_CLOSED)
        return;
    if (fin && whole) {
        c->flags |= CL_TCP_FIN_AHEAD;
        c->fin_seq = seq + len;
        if (len == 0 && c->fin_seq != c->rcv_nxt)
            c->flags |= CL_TCP_ACK_NOW;
    }
    look_for_fin(c);
}
