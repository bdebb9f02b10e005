/* What CL_TCP_TIMER_RESEND waits for while something is under way: RACK's reordering window, a tail loss probe (RFC
 * 8985, section 7), or the time-out (RFC 6298). A round trip of 20 us is probed after 100 us, and timed out after 200
 * ms.
 *
 * Beyond the RFC a recovery is probed, too, once until something is acknowledged: if its retransmissions are lost, and
 * nothing was sent behind them by which RACK could tell, it would stand still until the time-out. What leaves then is
 * the first segment under way. When it is acknowledged RACK finds the others. */
#include "machine.h"
#include "rack.h"

#define LEAST_NS 100000ull /* before a probe: a peer's kthread may be late by some round trips of 5 us */

/* When the time-out comes (RFC 6298, section 5.3): counted from what was acknowledged last, if nothing was sent again
 * since. */
static uint64_t time_out_ns(const struct cl_tcp_conn *c)
{
    uint64_t now_ns = c->turn->now_ns, rto_ns = cl_tcp_conn_rto_ns(c);
    uint64_t passed_ns = c->retries ? 0 : (cl_tcp_now_ms(c) - c->progress_ms) * CL_TCP_MS;
    return now_ns + rto_ns - cl_min(passed_ns, rto_ns);
}

/* PTO (section 7.2), from now on. 0: no probe. */
static uint64_t probe_ns(const struct cl_tcp_conn *c)
{
    uint32_t never = CL_TCP_TIMED_OUT | CL_TCP_PROBED | CL_TCP_PROBED_FIRST;
    bool recovering = c->flags & CL_TCP_RECOVERING;
    if (cl_tcp_opening(c) || !(c->flags & CL_TCP_SACKS) || (c->flags & never) || c->settings->no_tail_probes ||
        c->retries || c->rtt.smoothed_ns == 0 || (!recovering && cl_tcp_board_sacked(c)))
        return 0;
    /* One segment may wait for its acknowledgement as long as our own would (TLP.max_ack_delay); not one that fills a
     * hole. */
    bool waits = !recovering && c->nxt - c->una <= c->cc.mss;
    return cl_max(2 * c->rtt.smoothed_ns, LEAST_NS) + (waits ? c->settings->delayed_ack_ms * CL_TCP_MS : 0);
}

static void arm(struct cl_tcp_conn *c, uint64_t pto_ns)
{
    uint64_t at_ns = time_out_ns(c), now_ns = c->turn->now_ns;
    c->flags &= ~(CL_TCP_PROBING | CL_TCP_REORDERING);
    if (pto_ns && now_ns + pto_ns < at_ns) {
        c->flags |= CL_TCP_PROBING;
        at_ns = now_ns + pto_ns;
    }
    c->due_ns[CL_TCP_TIMER_RESEND] = at_ns;
}

/* Progress is of now, and nothing was tried again. */
void cl_tcp_watch_first(struct cl_tcp_conn *c)
{
    uint64_t in_ns = cl_tcp_conn_rto_ns(c), pto_ns = probe_ns(c);
    c->flags &= ~(CL_TCP_PROBING | CL_TCP_REORDERING);
    if (pto_ns && pto_ns < in_ns) {
        c->flags |= CL_TCP_PROBING;
        in_ns = pto_ns;
    }
    cl_tcp_set(c, CL_TCP_TIMER_RESEND, in_ns);
}

void cl_tcp_watch_sent(struct cl_tcp_conn *c, bool again)
{
    bool running = c->due_ns[CL_TCP_TIMER_RESEND] != CL_TCP_NEVER;
    uint64_t pto_ns = again ? 0 : probe_ns(c);
    if (running && (pto_ns == 0 || (c->flags & (CL_TCP_REORDERING | CL_TCP_RECOVERING))))
        return;
    arm(c, pto_ns);
}

/* An acknowledgement of nothing new leaves the timer alone (RFC 8985, section 7.2): a probe is due when it was. In a
 * recovery it tells that something goes on. */
static bool probes_as_before(const struct cl_tcp_conn *c)
{
    uint32_t what = c->flags & (CL_TCP_PROBING | CL_TCP_REORDERING);
    return !what || (what == CL_TCP_PROBING && !(c->flags & CL_TCP_RECOVERING) && probe_ns(c));
}

void cl_tcp_watch_acked(struct cl_tcp_conn *c, bool moved, uint64_t reorder_ns)
{
    bool running = c->due_ns[CL_TCP_TIMER_RESEND] != CL_TCP_NEVER;
    if (moved)
        c->flags &= ~CL_TCP_PROBED_FIRST;
    if (c->una == c->nxt) {
        if (moved) {
            c->flags &= ~(CL_TCP_PROBING | CL_TCP_REORDERING);
            cl_tcp_unset(c, CL_TCP_TIMER_RESEND);
        }
    } else if (reorder_ns) {
        c->flags = (c->flags & ~CL_TCP_PROBING) | CL_TCP_REORDERING;
        cl_tcp_set(c, CL_TCP_TIMER_RESEND, reorder_ns);
    } else if (moved || !running || !probes_as_before(c)) {
        arm(c, probe_ns(c));
    }
}

static void probe_recovery(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    cl_tcp_board_lose(c, cl_tcp_walk_first(c, &w));
    c->flags |= CL_TCP_PROBED_FIRST | CL_TCP_FORCE;
    arm(c, 0);
    cl_count(&c->turn->counts->tail_probes, 1);
}

/* Section 7.3: one segment leaves with this turn, a new one if the peer's window takes it, else the last one again. */
static void probe(struct cl_tcp_conn *c)
{
    uint32_t unsent = c->flags & CL_TCP_FIN_OUT ? 0 : cl_tcp_data_end(c) - c->nxt, under_way = c->nxt - c->una;
    uint32_t len = cl_min(cl_min(unsent, cl_tcp_mss_now(c)), c->wnd > under_way ? c->wnd - under_way : 0);
    c->recover_seq = c->nxt + len;
    if (len == 0) {
        struct cl_tcp_walk w;
        cl_tcp_board_lose(c, cl_tcp_walk_to(c, &w, c->nxt - 1));
        c->flags |= CL_TCP_PROBED_AGAIN;
    }
    c->flags |= CL_TCP_PROBED | CL_TCP_FORCE;
    cl_tcp_set(c, CL_TCP_TIMER_RESEND, cl_tcp_conn_rto_ns(c));
    cl_count(&c->turn->counts->tail_probes, 1);
}

void cl_tcp_probe_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, bool moved,
                        const struct cl_tcp_told *told)
{
    if (!(c->flags & CL_TCP_PROBED) || cl_seq_before(c->una, c->recover_seq))
        return;
    bool beyond = c->una != c->recover_seq;
    bool twice = told->duplicate && told->twice.to == c->recover_seq;
    /* Both copies were acknowledged, by a peer without DSACK. */
    bool both = !moved && !beyond && cl_tcp_segment_space(s) == 0 && s->options.n_sack == 0;
    if ((c->flags & CL_TCP_PROBED_AGAIN) && !twice && !both) {
        if (!beyond)
            return;                                                    /* if both have come a duplicate follows */
        c->cc.window = cl_tcp_cc_fall(&c->cc, c->turn->now_ns, false); /* the probe mended a loss */
        c->rtt.undo_left = 0;
    }
    c->flags &= ~(CL_TCP_PROBED | CL_TCP_PROBED_AGAIN);
}

bool cl_tcp_recovery_due(struct cl_tcp_conn *c)
{
    uint32_t what = c->flags & (CL_TCP_PROBING | CL_TCP_REORDERING);
    uint64_t in_ns;
    c->flags &= ~what;
    if (what & CL_TCP_REORDERING) {
        if (cl_tcp_rack_detect(c, &in_ns))
            cl_tcp_recovery_lost(c, 0);
        cl_tcp_watch_acked(c, false, in_ns);
    } else if (what & CL_TCP_PROBING) {
        if (c->flags & CL_TCP_RECOVERING)
            probe_recovery(c);
        else
            probe(c);
    }
    return what != 0;
}
