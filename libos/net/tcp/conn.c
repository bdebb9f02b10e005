/* A block from its beginning to its end, and the frame of a turn. */
#include "machine.h"

void cl_tcp_settings_default(struct cl_tcp_settings *s, uint32_t mtu)
{
    *s = (struct cl_tcp_settings){.send_limit = 256 << 10,
                                  .receive_limit = 256 << 10,
                                  .keep_idle_ms = 7200000,
                                  .keep_interval_ms = 75000,
                                  .keep_probes = 9,
                                  .delayed_ack_ms = 40,
                                  .rto_least_ms = 200,
                                  .time_wait_ms = 60000,
                                  .fin_wait_ms = 60000,
                                  .mss = (uint16_t)(mtu - 40),
                                  .wscale = 7,
                                  .syn_retries = 6, /* 127 s, as in Linux; RFC 9293, section 3.8.3: R2 of 3 minutes */
                                  .syn_ack_retries = 5, /* of what a stranger asked for */
                                  .options = CL_TCPO_WSCALE | CL_TCPO_SACK_OK | CL_TCPO_TIMES,
                                  .ecn = CL_TCP_ECN_TAKE,
                                  .black_holes = true,
                                  .cc = &cl_tcp_cubic};
}

void cl_tcp_restart(struct cl_tcp_conn *c, struct cl_tcp_turn *turn, const struct cl_tcp_settings *settings,
                    uint32_t iss, uint32_t ts_offset)
{
    uint32_t now_ms = (uint32_t)(turn->now_ns / CL_TCP_MS);
    *c = (struct cl_tcp_conn){.turn = turn,
                              .settings = settings,
                              .una = iss,
                              .nxt = iss,
                              .recover_seq = iss,
                              .ts_offset = ts_offset,
                              .mss = CL_TCP_MSS_DEFAULT,
                              .rcv_mss = CL_TCP_MSS_DEFAULT,
                              .flags = settings->flags,
                              .send.limit = settings->send_limit,
                              .receive.limit = settings->receive_limit,
                              .user_timeout_ms = settings->user_timeout_ms,
                              .heard_ms = now_ms,
                              .progress_ms = now_ms};
    for (unsigned i = 0; i < CL_TCP_TIMERS; i++)
        cl_tcp_unset(c, (enum cl_tcp_timer)i);
    cl_tcp_cc_init(&c->cc, settings->cc, CL_TCP_MSS_DEFAULT);
}

/* The initial number grows by one each 4.1 us beside a hash of the ends (RFC 6528, section 3); the offset of timestamps
 * is of the other half of it. */
void cl_tcp_init(struct cl_tcp_conn *c, struct cl_tcp_turn *turn, const struct cl_flow_key *key,
                 const struct cl_tcp_settings *settings)
{
    uint64_t first = (uint64_t)key->peer_be << 32 | key->own_be;
    uint64_t last = (uint64_t)key->peer_port_be << 16 | key->own_port_be | 12ull << 56;
    uint64_t hash = cl_sip_two(&turn->stack->secret, first, last);
    cl_tcp_restart(c, turn, settings, (uint32_t)hash + (uint32_t)(turn->now_ns >> 12), (uint32_t)(hash >> 32));
}

bool cl_tcp_finish(struct cl_tcp_conn *c)
{
    if (cl_unlikely(c->loans)) /* leases may have come back */
        cl_tcp_window_opened(c);
    cl_tcp_tell(c);
    cl_tcp_output(c);
    cl_tcp_buffer_tidy(c);
    if (!(c->flags & CL_TCP_PLAIN) && cl_tcp_is_plain(c))
        c->flags |= CL_TCP_PLAIN;
    bool lives = c->state != CL_TCP_CLOSED || !(c->flags & CL_TCP_TOLD);
    if (cl_unlikely(c->loans && !lives))
        cl_tcp_loans_leave(c);
    c->turn = NULL;
    return lives;
}

const char *cl_tcp_invariant(const struct cl_tcp_conn *c)
{
    uint32_t end = cl_tcp_data_end(c) + !!(c->flags & CL_TCP_FIN_OUT);
    bool timed = cl_tcp_due_ns(c) != CL_TCP_NEVER;
    if ((c->flags & CL_TCP_PLAIN) && !cl_tcp_is_plain(c))
        return "plain, and is not";
    if (c->state == CL_TCP_CLOSED)
        return timed                                   ? "a timer of a closed connection"
               : c->send.first || c->aside || c->board ? "memory of one"
                                                       : NULL;
    if (c->send.bytes == 0 && c->send.first)
        return "memory of an empty buffer";
    const char *wrong = cl_tcp_board_invariant(c);
    if (wrong)
        return wrong;
    if (c->state >= CL_TCP_ESTABLISHED && c->una != c->nxt && cl_seq_before(end, c->nxt))
        return "more was sent than was written";
    if (c->state >= CL_TCP_ESTABLISHED && cl_seq_before(c->rcv_edge, c->rcv_nxt))
        return "more came than was offered";
    if (c->una != c->nxt && c->due_ns[CL_TCP_TIMER_RESEND] == CL_TCP_NEVER)
        return "something is under way, and no timer is set";
    if ((c->send.bytes || cl_tcp_fin_due(c)) && c->state >= CL_TCP_ESTABLISHED && !timed)
        return "something is to be sent, and no timer is set";
    if (c->state == CL_TCP_TIME_WAIT && !timed)
        return "TIME_WAIT without an end";
    for (unsigned i = 0; c->aside && i < c->aside->n; i++) {
        const struct cl_tcp_aside *r = &c->aside->ranges[i];
        if (cl_seq_upto(r->to, r->from) || !cl_seq_before(i ? r[-1].to : c->rcv_nxt, r->from) ||
            cl_seq_before(c->rcv_edge, r->to))
            return "what is out of order is not between the edges, or touches";
    }
    return NULL;
}
