/* See recovery.h. */
#include "machine.h"

uint32_t cl_tcp_in_flight(const struct cl_tcp_conn *c)
{
    return c->nxt - c->una - (c->resend_end - c->resend);
}

bool cl_tcp_lost(const struct cl_tcp_conn *c, uint32_t *seq, uint32_t *end)
{
    *seq = c->resend;
    *end = c->resend_end;
    return c->resend != c->resend_end;
}

void cl_tcp_sent(struct cl_tcp_conn *c, uint32_t seq, uint32_t end, bool again)
{
    if (again) {
        c->resend = end;
        c->flags &= ~(uint32_t)CL_TCP_TIMING; /* Karn's rule */
        c->resent++;
        cl_count(&c->turn->counts->resent, 1);
        return;
    }
    c->nxt = c->resend = c->resend_end = end; /* what is lost goes before anything new */
    if (!(c->flags & CL_TCP_TIMING) && seq != end) {
        c->flags |= CL_TCP_TIMING;
        c->timed_seq = end;
        c->timed_ns = c->turn->now_ns;
    }
}

/* What is lost is one segment at una. */
static void lose_first(struct cl_tcp_conn *c)
{
    c->resend = c->una;
    c->resend_end = c->una + cl_min(cl_tcp_mss_now(c), c->nxt - c->una);
}

static void leave(struct cl_tcp_conn *c)
{
    if (!(c->flags & CL_TCP_TIMED_OUT)) /* deflate (RFC 6582, section 3.2, step 3) */
        c->cc.window = cl_min(c->cc.threshold, cl_max(cl_tcp_in_flight(c), c->cc.mss) + c->cc.mss);
    c->flags &= ~(uint32_t)(CL_TCP_RECOVERING | CL_TCP_TIMED_OUT);
}

/* An acknowledgement that does not end a recovery begun by duplicates: the next segment is lost, too. */
static void partial(struct cl_tcp_conn *c, uint32_t acked)
{
    c->cc.window -= cl_min(acked, c->cc.window - c->cc.mss);
    if (acked >= c->cc.mss)
        c->cc.window += c->cc.mss;
    lose_first(c);
}

void cl_tcp_recovery_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t before)
{
    uint32_t acked = c->una - before, flight = c->nxt - before - (c->resend_end - c->resend);
    bool echoed = (c->marks & CL_TCP_ECN) && (s->flags & CL_TCPF_ECE);
    struct cl_tcp_cc_ack ack = {.now_ns = c->turn->now_ns,
                                .rtt_ns = c->rtt.smoothed_ns,
                                .acked = acked,
                                .marked = echoed ? acked : 0,
                                .una = c->una,
                                .nxt = c->nxt,
                                .limited = 2 * (uint64_t)flight >= c->cc.window};
    c->dup_acks = 0;
    if (cl_seq_before(c->resend, c->una))
        c->resend = c->una;
    if (cl_seq_before(c->resend_end, c->resend))
        c->resend_end = c->resend;
    bool by_duplicates = (c->flags & CL_TCP_RECOVERING) && !(c->flags & CL_TCP_TIMED_OUT);
    cl_tcp_cc_acked(&c->cc, &ack, by_duplicates || echoed);
    if (!(c->flags & CL_TCP_RECOVERING))
        return;
    if (cl_seq_upto(c->recover_seq, c->una))
        leave(c);
    else if (by_duplicates)
        partial(c, acked);
}

void cl_tcp_recovery_duplicate(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    (void)s;
    if (c->dup_acks < UINT8_MAX)
        c->dup_acks++;
    if (c->flags & CL_TCP_TIMED_OUT)
        return;
    if (c->flags & CL_TCP_RECOVERING) {
        c->cc.window += c->cc.mss; /* a segment has left the network */
        return;
    }
    /* Once for the losses of a window (RFC 6582, section 3.2, step 2). */
    if (c->dup_acks != CL_TCP_DUPLICATES || !cl_seq_before(c->recover_seq, c->una))
        return;
    c->flags |= CL_TCP_RECOVERING;
    c->recover_seq = c->nxt;
    c->cc.window = cl_tcp_cc_fall(&c->cc, c->turn->now_ns, false) + CL_TCP_DUPLICATES * c->cc.mss;
    lose_first(c);
    c->flags |= CL_TCP_FORCE;
    cl_count(&c->turn->counts->fast_retransmits, 1);
}

void cl_tcp_recovery_timed_out(struct cl_tcp_conn *c)
{
    cl_tcp_cc_timed_out(&c->cc, c->turn->now_ns, c->retries <= 1);
    c->resend = c->una;
    c->resend_end = c->recover_seq = c->nxt;
    c->dup_acks = 0;
    c->flags |= CL_TCP_RECOVERING | CL_TCP_TIMED_OUT | CL_TCP_FORCE;
    c->flags &= ~(uint32_t)CL_TCP_TIMING;
}

void cl_tcp_recovery_too_large(struct cl_tcp_conn *c)
{
    c->resend = c->una;
    c->resend_end = c->nxt;
    c->flags &= ~(uint32_t)CL_TCP_TIMING;
}
