/* See listen.h. */
#include "machine.h"

#define REOPEN_STEP 100000 /* numbers between two connections of the same ends: beyond what may still be on its way */

void cl_tcp_listen(struct cl_tcp_conn *c, struct cl_tcp_listener *l)
{
    c->listener = l;
    c->user = l->user;
    c->arg = l->arg;
    c->flags |= CL_TCP_PASSIVE;
    c->state = CL_TCP_LISTEN;
}

/* RFC 9293, section 3.10.7.2. */
void cl_tcp_listen_input(struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    if (s->flags & CL_TCPF_RST) {
        cl_tcp_end(c, 0);
    } else if (s->flags & CL_TCPF_ACK) {
        cl_tcp_send_reset(c, s->ack, false);
        cl_tcp_end(c, 0);
    } else if (!(s->flags & CL_TCPF_SYN)) {
        cl_tcp_end(c, 0);
    } else {
        c->rcv_nxt = c->rcv_edge = c->last_ack_sent = s->seq + 1;
        c->state = CL_TCP_SYN_RECEIVED;
        c->progress_ms = cl_tcp_now_ms(c);
        cl_tcp_agree(c, s);
    }
}

/* No old SYN: later than all that came, by its timestamp or its number (RFC 6191, section 2; RFC 1122, 4.2.2.13). */
static bool surely_new(const struct cl_tcp_conn *c, const struct cl_tcp_segment *syn)
{
    if ((c->flags & CL_TCP_TIMES) && (syn->options.has & CL_TCPO_TIMES) && syn->options.ts_val != c->ts_recent)
        return (int32_t)(syn->options.ts_val - c->ts_recent) > 0;
    return cl_seq_before(c->rcv_nxt, syn->seq);
}

bool cl_tcp_reopen(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn)
{
    struct cl_tcp_turn *turn = c->turn;
    uint8_t flags = CL_TCPF_SYN | CL_TCPF_ACK | CL_TCPF_RST | CL_TCPF_FIN;
    if (c->state != CL_TCP_TIME_WAIT || (syn->flags & flags) != CL_TCPF_SYN || !(c->flags & CL_TCP_TOLD) ||
        !surely_new(c, syn))
        return false;
    struct cl_tcp_listener *l = turn->listener ? turn->listener(turn, c) : NULL;
    if (!l)
        return false;
    uint32_t iss = c->nxt + REOPEN_STEP, ts_offset = c->ts_offset;
    cl_tcp_end(c, 0);
    cl_tcp_loans_leave(c);
    cl_tcp_restart(c, turn, l->settings, iss, ts_offset);
    cl_tcp_listen(c, l);
    cl_tcp_listen_input(c, syn);
    return true;
}
