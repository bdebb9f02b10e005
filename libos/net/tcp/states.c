/* The states that a connection goes through when it opens, closes and ends (RFC 9293, section 3.3.2, figure 5). */
#include "machine.h"

void cl_tcp_established(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq)
{
    struct cl_tcp_counts *counts = c->turn->counts;
    c->state = c->flags & CL_TCP_FIN_WANTED ? CL_TCP_FIN_WAIT_1 : CL_TCP_ESTABLISHED;
    c->wnd = (uint32_t)s->window << (s->flags & CL_TCPF_SYN ? 0 : c->snd_scale);
    c->wnd_max = c->wnd; /* that of a SYN was no window for data */
    c->wl1 = seq;
    c->wl2 = s->ack;
    c->quick = CL_TCP_QUICK;
    c->events |= CL_TCP_EVENT_OPENED;
    cl_count(c->flags & CL_TCP_PASSIVE ? &counts->accepted : &counts->opened, 1);
    if (c->listener && c->listener->accepts)
        cl_tcp_waits(c->listener);
    else
        cl_tcp_accepted(c);
    if (c->flags & CL_TCP_KEEP_ALIVE)
        cl_tcp_set(c, CL_TCP_TIMER_KEEP, c->settings->keep_idle_ms * CL_TCP_MS);
}

static void free_send(struct cl_tcp_conn *c)
{
    if (c->send.first)
        cl_tcp_buffer_drop(c, CL_TCP_SEND, c->send.bytes);
    cl_tcp_board_free(c);
}

static void free_receive(struct cl_tcp_conn *c)
{
    cl_tcp_aside_free(c);
    if (c->receive.bytes == 0)
        return;
    cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, c->receive.bytes);
    c->events &= (uint8_t)~CL_TCP_EVENT_EOF; /* the user did not get all: this is no end of a stream */
}

static void unset_all(struct cl_tcp_conn *c)
{
    for (unsigned i = 0; i < CL_TCP_TIMERS; i++)
        cl_tcp_unset(c, (enum cl_tcp_timer)i);
    c->timer_at = 0;
}

/* Both sides have said all: the user is done, the numbers rest. */
static void time_wait(struct cl_tcp_conn *c)
{
    c->state = CL_TCP_TIME_WAIT;
    cl_count(&c->turn->counts->rests, 1);
    cl_tcp_aside_free(c);
    unset_all(c);
    cl_tcp_set(c, CL_TCP_TIMER_KEEP, c->settings->time_wait_ms * CL_TCP_MS);
    c->events |= CL_TCP_EVENT_ENDED;
}

void cl_tcp_fin_taken(struct cl_tcp_conn *c)
{
    c->rcv_nxt++;
    c->rcv_edge = cl_seq_max(c->rcv_edge, c->rcv_nxt);
    c->flags = (c->flags & ~(uint32_t)CL_TCP_FIN_AHEAD) | CL_TCP_FIN_CAME;
    c->events |= CL_TCP_EVENT_EOF;
    if (c->receive.bytes) /* what waits is offered a last time: nothing more will complete it */
        c->events |= CL_TCP_EVENT_DATA;
    cl_tcp_aside_free(c); /* what a peer sent behind its FIN */
    if (c->state == CL_TCP_ESTABLISHED) {
        c->state = CL_TCP_CLOSE_WAIT;
        cl_tcp_ack_now(c); /* the user closes, too, as a rule */
        return;
    }
    c->flags |= CL_TCP_ACK_NOW;
    if (c->state == CL_TCP_FIN_WAIT_1)
        c->state = CL_TCP_CLOSING;
    else
        time_wait(c);
}

void cl_tcp_fin_acked(struct cl_tcp_conn *c)
{
    if (c->state == CL_TCP_FIN_WAIT_1) {
        c->state = CL_TCP_FIN_WAIT_2;
        if (c->flags & CL_TCP_READ_SHUT)
            cl_tcp_set(c, CL_TCP_TIMER_KEEP, c->settings->fin_wait_ms * CL_TCP_MS);
    } else if (c->state == CL_TCP_CLOSING) {
        time_wait(c);
    } else if (c->state == CL_TCP_LAST_ACK) {
        cl_tcp_end(c, 0);
    }
}

void cl_tcp_end(struct cl_tcp_conn *c, int error)
{
    if (c->state == CL_TCP_LISTEN || (c->state == CL_TCP_SYN_RECEIVED && (c->flags & CL_TCP_PASSIVE)))
        c->flags |= CL_TCP_TOLD; /* its user never knew of it */
    cl_tcp_accepted(c);
    if (c->state == CL_TCP_TIME_WAIT)
        cl_count(&c->turn->counts->rested, 1);
    cl_tcp_not_plain(c);
    if (cl_unlikely(c->stall))
        cl_tcp_stall_over(c, c->turn->now_ns);
    c->state = CL_TCP_CLOSED;
    c->error = (uint8_t)error;
    unset_all(c);
    free_send(c);
    cl_tcp_aside_free(c);
    if (error || (c->flags & CL_TCP_READ_SHUT)) /* RFC 9293, section 3.10.7.4: queues are flushed */
        free_receive(c);
    c->flags &= ~(uint32_t)(CL_TCP_ACK_NOW | CL_TCP_ACK_SOON | CL_TCP_FORCE);
    c->events |= CL_TCP_EVENT_ENDED;
}
