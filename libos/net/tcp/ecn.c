/* Congestion that is told by marks instead of losses: ECN (RFC 3168), and DCTCP on the wire (RFC 8257).
 *
 *   the path marks a segment (CE) --> its receiver echoes that (ECE) --> its sender sends less, and says so (CWR)
 *
 * With DCTCP an echo says of each segment whether it was marked. Else it is repeated until CWR comes. SYNs, segments
 * without data and those that are sent again are not offered for marks (RFC 3168, section 6.1.5). */
#include "machine.h"

#define SAID (CL_TCPF_ECE | CL_TCPF_CWR)

static bool exact(const struct cl_tcp_conn *c)
{
    return cl_tcp_cc_ops(&c->cc) == &cl_tcp_dctcp;
}

/* RFC 3168, section 6.1.1. A SYN that nobody answered asks no more: something on the way may not like the flags. */
uint8_t cl_tcp_ecn_of_syn(const struct cl_tcp_conn *c)
{
    if (c->state == CL_TCP_SYN_RECEIVED)
        return c->marks & CL_TCP_MARKS_ECN ? CL_TCPF_ECE : 0;
    return c->settings->ecn == CL_TCP_ECN_OFFER && !(c->flags & CL_TCP_SYN_OUT) ? SAID : 0;
}

void cl_tcp_ecn_agree(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn)
{
    bool answers = syn->flags & CL_TCPF_ACK;
    bool may = c->settings->ecn == CL_TCP_ECN_OFFER || (!answers && c->settings->ecn == CL_TCP_ECN_TAKE);
    bool both = may && (syn->flags & SAID) == (answers ? CL_TCPF_ECE : SAID);
    c->marks = both ? CL_TCP_MARKS_ECN : 0;
}

void cl_tcp_ecn_came(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    bool marked = s->ecn == CL_TCP_CE, echoes = c->marks & CL_TCP_MARKS_ECHO;
    if (!(c->marks & CL_TCP_MARKS_ECN) || s->len == 0)
        return;
    cl_count(&c->turn->counts->marks_in, marked);
    if (exact(c)) {
        if (marked == echoes)
            return;
        if (c->flags & CL_TCP_ACK_SOON) /* of what came before, and was not so (RFC 8257, section 3.2) */
            cl_tcp_send_ack(c);
        c->marks ^= CL_TCP_MARKS_ECHO;
        c->flags |= CL_TCP_ACK_NOW;
        return;
    }
    if (s->flags & CL_TCPF_CWR)
        c->marks &= (uint8_t)~CL_TCP_MARKS_ECHO;
    if (marked)
        c->marks |= CL_TCP_MARKS_ECHO;
}

void cl_tcp_ecn_echoed(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    if (!(c->marks & CL_TCP_MARKS_ECN))
        return;
    if ((c->marks & CL_TCP_MARKS_REDUCED) && cl_seq_before(c->reduced_seq, c->una))
        c->marks &= (uint8_t)~CL_TCP_MARKS_REDUCED;
    if (!(s->flags & CL_TCPF_ECE) || (c->marks & CL_TCP_MARKS_REDUCED))
        return;
    c->marks |= CL_TCP_MARKS_SAY_REDUCED;
    if (c->flags & CL_TCP_RECOVERING) /* a loss has reduced it already */
        return;
    c->cc.window = cl_min(c->cc.window, cl_tcp_cc_fall(&c->cc, c->turn->now_ns, true));
    c->marks = (uint8_t)((c->marks & ~CL_TCP_MARKS_SMALL) | CL_TCP_MARKS_REDUCED);
    c->reduced_seq = c->nxt;
    cl_count(&c->turn->counts->ecn_reductions, 1);
}
