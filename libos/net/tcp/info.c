/* The numbers of a connection, as TCP_INFO has them. */
#include "host.h"
#include "machine.h"

static uint32_t us(uint64_t ns)
{
    return (uint32_t)cl_min(ns / 1000, (uint64_t)UINT32_MAX);
}

void cl_tcp_get_info(const struct cl_tcp_conn *c, struct cl_tcp_info *out)
{
    uint32_t mss = cl_max(c->cc.mss, 1u), sent = c->nxt - c->una, written = c->send.bytes;
    *out =
        (struct cl_tcp_info){.state = c->state,
                             .times = !!(c->flags & CL_TCP_TIMES),
                             .sacks = !!(c->flags & CL_TCP_SACKS),
                             .scales = !!(c->flags & CL_TCP_SCALES),
                             .ecn = !!(c->marks & CL_TCP_MARKS_ECN),
                             .snd_scale = c->snd_scale,
                             .rcv_scale = c->rcv_scale,
                             .rto_us = us(cl_tcp_conn_rto_ns(c)),
                             .rtt_us = us(c->rtt.smoothed_ns),
                             .rtt_var_us = us(c->rtt.variation_ns),
                             .snd_mss = mss,
                             .rcv_mss = c->rcv_mss,
                             .cwnd = c->cc.window / mss,
                             .ssthresh = c->cc.threshold == CL_TCP_CC_NO_THRESHOLD ? UINT32_MAX : c->cc.threshold / mss,
                             .snd_wnd = c->wnd,
                             .rcv_wnd = c->rcv_edge - c->rcv_nxt,
                             .unacked = (sent + mss - 1) / mss,
                             .retries = c->retries,
                             .backoff = c->rtt.doublings,
                             .resent = c->resent,
                             .sacked = c->board ? c->board->all.sacked_n : 0,
                             .lost = (cl_tcp_board_lost(c) + mss - 1) / mss,
                             .dsacks = c->dsacks,
                             .reordered = c->rtt.reordered,
                             .rtt_least_us = us(c->rtt.least_ns),
                             .delivery_rate = cl_tcp_delivery_rate(c),
                             .to_read = c->receive.bytes,
                             .unacked_bytes = written,
                             .send_limit = c->send.limit,
                             .unsent = written > sent ? written - sent : 0};
    if (c->flags & CL_TCP_RECOVERING)
        out->recovering = c->flags & CL_TCP_TIMED_OUT ? 2 : 1;
    else if (c->marks & CL_TCP_MARKS_REDUCED)
        out->recovering = 3;
    if (c->una == c->nxt)
        out->probes = c->retries;
}
