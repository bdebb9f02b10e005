/* SEGMENT ARRIVES (RFC 9293, section 3.10.7), with RFC 5961's stricter looks and RFC 7323's timestamps. */
#include "machine.h"

#include <errno.h>

/* What of a segment is still to be done. */
struct arrival {
    const struct cl_tcp_segment *s;
    const uint8_t *data;
    uint32_t seq;
    uint8_t flags;
};

/* PAWS (RFC 7323, section 5.3). False: the segment is an old one. One without the timestamp that was agreed is taken:
 * it may be dropped (section 3.2), but stacks that many people use leave it out of their probes, or of all that follows
 * the handshake, and their connections would end. What is old has one, as a rule, since who sent it agreed, too. */
static bool times_right(struct cl_tcp_conn *c, const struct arrival *a)
{
    const struct cl_tcp_options *o = &a->s->options;
    if (!(c->flags & CL_TCP_TIMES) || !(o->has & CL_TCPO_TIMES) || (a->flags & CL_TCPF_RST))
        return true;
    if ((int32_t)(o->ts_val - c->ts_recent) >= 0 || cl_tcp_now_ms(c) - c->ts_recent_ms > CL_TCP_PAWS_MS)
        return true;
    cl_count(&c->turn->counts->dropped_paws, 1);
    cl_tcp_challenge(c);
    return false;
}

/* RFC 7323, section 4.3: of a segment that reaches what was acknowledged last. */
static void note_times(struct cl_tcp_conn *c, const struct arrival *a)
{
    if (!(c->flags & CL_TCP_TIMES) || !(a->s->options.has & CL_TCPO_TIMES) || !cl_seq_upto(a->seq, c->last_ack_sent))
        return;
    c->ts_recent = a->s->options.ts_val;
    c->ts_recent_ms = c->heard_ms; /* now */
}

/* Section 3.10.7.4, first: does any of it lie in the window? One right behind the window may bring no data, but an
 * acknowledgement from a peer that has filled the window. */
static bool in_window(const struct cl_tcp_conn *c, const struct arrival *a)
{
    uint32_t len = a->s->len + !!(a->flags & CL_TCPF_SYN) + !!(a->flags & CL_TCPF_FIN);
    if (len == 0 || c->rcv_nxt == c->rcv_edge) /* a window of none takes an acknowledgement that comes with data */
        return cl_seq_upto(c->rcv_nxt, a->seq) && cl_seq_upto(a->seq, c->rcv_edge);
    return cl_seq_before(a->seq, c->rcv_edge) && cl_seq_before(c->rcv_nxt, a->seq + len);
}

static void out_of_window(struct cl_tcp_conn *c, const struct arrival *a)
{
    cl_count(&c->turn->counts->dropped_window, 1);
    if (a->flags & CL_TCPF_RST)
        return;
    if (a->s->len && cl_seq_upto(a->seq + a->s->len, c->rcv_nxt))
        c->turn->twice = (struct cl_tcp_range){a->seq, a->seq + a->s->len};
    if (c->state == CL_TCP_TIME_WAIT && (a->flags & CL_TCPF_FIN))
        cl_tcp_set(c, CL_TCP_TIMER_KEEP, c->settings->time_wait_ms * CL_TCP_MS);
    if (c->state != CL_TCP_SYN_RECEIVED && (a->s->len || (a->flags & CL_TCPF_FIN)))
        c->flags |= CL_TCP_ACK_NOW; /* its sender waits for that */
    else
        cl_tcp_challenge(c);
}

/* RFC 5961, section 3.2: has it the number that is next? Or, of a peer that has sent its FIN, that FIN's: so resets of
 * programs look that were killed on macOS, and Linux takes them, too. */
static bool exact(const struct cl_tcp_conn *c, const struct arrival *a)
{
    bool fin = (c->flags & CL_TCP_FIN_CAME) && c->state != CL_TCP_TIME_WAIT;
    return a->seq == c->rcv_nxt || (fin && a->seq + 1 == c->rcv_nxt);
}

static void take_reset(struct cl_tcp_conn *c, const struct arrival *a)
{
    if (!exact(c, a)) {
        cl_tcp_challenge(c);
        return;
    }
    cl_count(&c->turn->counts->resets_in, 1);
    if (c->state == CL_TCP_TIME_WAIT) /* an old segment may have called for it (RFC 1337, section 3, F1) */
        return;
    if (c->state == CL_TCP_SYN_RECEIVED && !(c->flags & CL_TCP_PASSIVE))
        cl_tcp_end(c, ECONNREFUSED);
    else if (c->state >= CL_TCP_CLOSING)
        cl_tcp_end(c, c->send.bytes ? ECONNRESET : 0);
    else
        cl_tcp_end(c, c->state == CL_TCP_CLOSE_WAIT ? EPIPE : ECONNRESET);
}

/* Of two that open at the same time the other's SYN comes twice: alone, and with the acknowledgement of ours. False: it
 * is dealt with. */
static bool repeated_syn(struct cl_tcp_conn *c, struct arrival *a)
{
    bool syn = (a->flags & (CL_TCPF_SYN | CL_TCPF_RST)) == CL_TCPF_SYN;
    if (c->state != CL_TCP_SYN_RECEIVED || !syn || a->seq + 1 != c->rcv_nxt)
        return true;
    if (!(a->flags & CL_TCPF_ACK)) { /* it did not get our answer */
        cl_tcp_recovery_again(c);
        return false;
    }
    a->flags &= (uint8_t)~CL_TCPF_SYN;
    a->seq++;
    c->flags |= CL_TCP_ACK_NOW;
    return true;
}

/* False: it may be anybody's, who knows our ends and no number. */
static bool synchronized(struct cl_tcp_conn *c, struct arrival *a)
{
    if (cl_tcp_reopen(c, a->s))
        return true;
    if (!times_right(c, a) || !repeated_syn(c, a))
        return false;
    bool ends = (a->flags & CL_TCPF_RST) && exact(c, a);
    if (!ends && !in_window(c, a)) {
        out_of_window(c, a);
        return false;
    }
    if (a->flags & CL_TCPF_RST) {
        take_reset(c, a);
        return false;
    }
    if (a->flags & CL_TCPF_SYN) { /* RFC 5961, section 4.2 */
        cl_tcp_challenge(c);
        return false;
    }
    if (!(a->flags & CL_TCPF_ACK)) {
        cl_count(&c->turn->counts->dropped_flags, 1);
        return false;
    }
    if (!cl_tcp_take_ack(c, a->s, a->seq))
        return false;
    note_times(c, a); /* only now: who knows no number that was sent could set a time that PAWS refuses all others by */
    if ((a->flags & CL_TCPF_URG) && a->s->urgent)
        cl_count(&c->turn->counts->urgent, 1);
    cl_tcp_ecn_came(c, a->s);
    if (a->s->len || (a->flags & CL_TCPF_FIN))
        cl_tcp_take_data(c, a->seq, a->data, a->s->len, a->flags & CL_TCPF_FIN);
    return true;
}

/* The peer's SYN, with the acknowledgement of ours or, of two that open at the same time, without (section 3.5, fig.
 * 7). */
static void answered(struct cl_tcp_conn *c, struct arrival *a)
{
    c->rcv_nxt = c->rcv_edge = a->seq + 1;
    c->last_ack_sent = c->rcv_nxt;
    cl_tcp_agree(c, a->s);
    a->seq++;
    if (a->flags & CL_TCPF_ACK) {
        if (cl_tcp_take_ack(c, a->s, a->seq))
            c->flags |= CL_TCP_ACK_NOW;
        return;
    }
    c->state = CL_TCP_SYN_RECEIVED;
    cl_tcp_recovery_again(c);
}

/* Section 3.10.7.3. Data and a FIN that come with the SYN are sent again. */
static void syn_sent(struct cl_tcp_conn *c, struct arrival *a)
{
    bool acks = a->flags & CL_TCPF_ACK;
    if (acks && a->s->ack != c->nxt) { /* the SYN is all that was sent */
        cl_count(&c->turn->counts->dropped_ack, 1);
        if (!(a->flags & CL_TCPF_RST))
            cl_tcp_send_reset(c, a->s->ack, false);
        return;
    }
    if (a->flags & CL_TCPF_RST) {
        if (acks) {
            cl_count(&c->turn->counts->resets_in, 1);
            cl_tcp_end(c, ECONNREFUSED);
        }
        return;
    }
    if (a->flags & CL_TCPF_SYN)
        answered(c, a);
    else
        cl_count(&c->turn->counts->dropped_flags, 1);
}

/* What nearly every segment of a request or a stream is (header prediction, RFC 1323, appendix F): the next bytes,
 * which fit, of a connection where nothing is missing, and which acknowledge all or nothing new. `synchronized` finds
 * nothing to say of it but what `take_expected` does. */
static inline bool expected(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    const struct cl_tcp_options *o = &s->options;
    bool old = (c->flags & CL_TCP_TIMES) && (!(o->has & CL_TCPO_TIMES) || (int32_t)(o->ts_val - c->ts_recent) < 0);
    return (c->flags & CL_TCP_PLAIN) && s->seq == c->rcv_nxt && (s->flags & (uint8_t)~CL_TCPF_PSH) == CL_TCPF_ACK &&
           s->len && s->len <= c->rcv_edge - c->rcv_nxt &&
           (s->ack == c->una || (s->ack == c->nxt && c->one.len == c->nxt - c->una)) && o->n_sack == 0 && !old;
}

/* Its acknowledgement: una or nxt. */
static inline void take_expected_ack(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    uint32_t acked = s->ack - c->una, was = c->wnd;
    if (cl_likely(acked)) {
        c->una = s->ack;
        cl_tcp_buffer_acked(c, acked);
        cl_tcp_room_made(c);
        c->error = 0;
        c->marks = 0;                 /* CL_TCP_MARKS_PACED */
        c->progress_ms = c->heard_ms; /* now */
        cl_tcp_recovery_acked_all(c, s, acked);
    }
    if (cl_likely((uint32_t)s->window << c->snd_scale == was && was && (acked || cl_seq_upto(c->wl1, s->seq)))) {
        c->wl1 = s->seq;
        c->wl2 = s->ack;
        c->retries = c->una == c->nxt ? 0 : c->retries;
    } else {
        cl_tcp_take_window(c, s, s->seq);
    }
}

static inline void take_expected(struct cl_tcp_conn *c, const struct arrival *a)
{
    note_times(c, a);
    take_expected_ack(c, a->s);
    cl_tcp_note_length(c, a->s->len);
    (void)cl_tcp_take_next(c, a->data, a->s->len);
}

static CL_NOINLINE void take(struct cl_tcp_conn *c, struct arrival *a, uint32_t heard_ms)
{
    cl_tcp_not_plain(c);
    if (c->state == CL_TCP_LISTEN)
        cl_tcp_listen_input(c, a->s);
    else if (c->state == CL_TCP_CLOSED || !(c->flags & CL_TCP_SYN_OUT))
        cl_count(&c->turn->counts->dropped_flags, 1); /* it has said nothing yet that could be answered */
    else if (c->state == CL_TCP_SYN_SENT)
        syn_sent(c, a);
    else if (!synchronized(c, a))
        c->heard_ms = heard_ms; /* no sign of life: who is gone is not kept by what others send in its name */
}

void cl_tcp_input(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, const uint8_t *data)
{
    struct arrival a = {s, data, s->seq, s->flags};
    uint32_t heard_ms = c->heard_ms;
    cl_count(&c->turn->counts->segments_in, 1);
    c->heard_ms = cl_tcp_now_ms(c);
    c->marks &= (uint8_t)~CL_TCP_MARKS_MORE; /* as Linux, which sends what waits when something comes */
    if (cl_likely(expected(c, s)))
        take_expected(c, &a);
    else
        take(c, &a, heard_ms);
    cl_tcp_tell(c);
}
