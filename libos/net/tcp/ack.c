/* Acknowledgements and windows that come (RFC 9293, section 3.10.7.4, fifth; RFC 5961, section 5). */
#include "machine.h"

/* Nothing that was sent before una is needed any more. */
static void forget(struct cl_tcp_conn *c, uint32_t una)
{
    uint32_t n = una - c->una, syn = cl_tcp_opening(c);
    bool fin = (c->flags & CL_TCP_FIN_OUT) && una == c->nxt;
    c->una = una;
    if (n > syn + fin)
        cl_tcp_buffer_drop(c, CL_TCP_SEND, n - syn - fin);
    cl_tcp_room_made(c);
}

/* It acknowledges the one segment that was under way (a SYN, a FIN, data), and all is calm. */
static bool is_all(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t before)
{
    return s->ack == c->nxt && c->one.len == s->ack - before && s->options.n_sack == 0 && cl_tcp_calm(c) &&
           !c->settings->no_prediction;
}

static void advance(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    uint32_t before = c->una;
    forget(c, s->ack);
    c->error = 0;
    c->marks &= (uint8_t)~CL_TCP_MARKS_PACED;
    if (cl_unlikely(c->flags & CL_TCP_TRIES_PATH))
        cl_tcp_path_acked(c);
    c->progress_ms = cl_tcp_now_ms(c);
    if (cl_likely(is_all(c, s, before)))
        cl_tcp_recovery_acked_all(c, s, s->ack - before);
    else
        cl_tcp_recovery_acked(c, s, before, false);
}

/* The handshake's last: of a SYN that we sent (RFC 9293, section 3.10.7.4, fifth, SYN-RECEIVED). */
static bool open_up(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq)
{
    if (s->ack != c->nxt) { /* our SYN is all that was sent */
        cl_count(&c->turn->counts->dropped_ack, 1);
        cl_tcp_send_reset(c, s->ack, false);
        return false;
    }
    bool lost = c->retries > 0;
    advance(c, s);
    if (lost) /* RFC 5681, section 3.1 */
        c->cc.window = c->cc.mss;
    cl_tcp_established(c, s, seq);
    return true;
}

/* Whether what a segment says of the window is newer than what is known. The acknowledgement tells first: one that was
 * sent again has its old number, and today's window. RFC 9293, section 3.10.7.4, lets the number tell first; then a
 * window of before would move along with una, beyond what the peer ever offered. */
static bool window_is_newer(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq)
{
    return c->wl2 == s->ack ? cl_seq_upto(c->wl1, seq) : cl_seq_before(c->wl2, s->ack);
}

void cl_tcp_take_window(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq)
{
    if (!window_is_newer(c, s, seq))
        return;
    uint32_t was = c->wnd;
    c->wnd = (uint32_t)s->window << (s->flags & CL_TCPF_SYN ? 0 : c->snd_scale);
    c->wnd_max = cl_max(c->wnd_max, c->wnd);
    c->wl1 = seq;
    c->wl2 = s->ack;
    if (c->una != c->nxt && c->wnd)
        return;
    c->retries = c->flags & CL_TCP_READ_SHUT ? c->retries : 0; /* the peer lives, whatever its window is */
    if (was == c->wnd || c->wnd == 0)
        return;
    /* What waited for it leaves now, or goes on waiting: not longer than it would have, or a peer whose windows open
     * and shut, and are never worth a segment, would put the end of waiting off. */
    c->rtt.doublings = 0;
    if (c->due_ns[CL_TCP_TIMER_RESEND] != CL_TCP_NEVER)
        c->due_ns[CL_TCP_TIMER_RESEND] =
            cl_min(c->due_ns[CL_TCP_TIMER_RESEND], c->turn->now_ns + cl_tcp_conn_rto_ns(c));
}

/* RFC 5681, section 2: nothing new in it, and something is under way. */
static bool duplicate(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    return s->ack == c->una && c->una != c->nxt && cl_tcp_segment_space(s) == 0 &&
           (uint32_t)s->window << c->snd_scale == c->wnd;
}

bool cl_tcp_take_ack(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq)
{
    if (cl_tcp_opening(c))
        return open_up(c, s, seq);
    /* Not sent yet, or older than any that was under way (RFC 5961, section 5.2). */
    if (cl_seq_before(c->nxt, s->ack) || cl_seq_before(s->ack, c->una - c->wnd_max)) {
        cl_count(&c->turn->counts->dropped_ack, 1);
        cl_tcp_challenge(c);
        return false;
    }
    if (cl_seq_before(c->una, s->ack))
        advance(c, s);
    else if (s->ack == c->una && (s->options.n_sack || cl_tcp_segment_space(s) == 0))
        cl_tcp_recovery_acked(c, s, c->una, duplicate(c, s));
    if (cl_seq_upto(c->una, s->ack))
        cl_tcp_take_window(c, s, seq);
    cl_tcp_ecn_echoed(c, s);
    if ((c->flags & CL_TCP_FIN_OUT) && c->una == c->nxt)
        cl_tcp_fin_acked(c);
    return c->state != CL_TCP_CLOSED;
}
