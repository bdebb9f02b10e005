/* See listen.h. */
#include "machine.h"

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
