/* What happens when nothing does: retransmission (RFC 6298, section 5), probes of windows (RFC 9293, section 3.8.6.1),
 * delayed acknowledgements, keep-alive (3.8.4), and the ends of waiting. */
#include "machine.h"

#include <errno.h>

/* The peer does not answer: the user hears of it, and if the peer lives it does, too. */
static void give_up(struct cl_tcp_conn *c, bool reset)
{
    if (reset)
        cl_tcp_send_reset(c, c->nxt, true);
    cl_tcp_end(c, c->error ? c->error : ETIMEDOUT);
}

static unsigned most_retries(const struct cl_tcp_conn *c)
{
    if (c->state == CL_TCP_SYN_SENT)
        return c->settings->syn_retries;
    if (c->state == CL_TCP_SYN_RECEIVED)
        return c->settings->syn_ack_retries;
    return c->flags & CL_TCP_READ_SHUT ? CL_TCP_ORPHAN_RETRIES : CL_TCP_RETRIES;
}

/* Whether it was tried long enough: by the user's time if there is one, else by how often. */
static bool exhausted(const struct cl_tcp_conn *c)
{
    if (c->user_timeout_ms)
        return cl_tcp_now_ms(c) - c->progress_ms >= c->user_timeout_ms;
    return c->retries >= most_retries(c);
}

static void back_off(struct cl_tcp_conn *c)
{
    if (c->retries < UINT8_MAX)
        c->retries++;
    if (c->rtt.doublings < UINT8_MAX)
        c->rtt.doublings++;
    uint64_t wait_ns = cl_tcp_conn_rto_ns(c);
    if (c->user_timeout_ms) {
        uint32_t passed_ms = cl_tcp_now_ms(c) - c->progress_ms;
        uint32_t left_ms = passed_ms < c->user_timeout_ms ? c->user_timeout_ms - passed_ms : 0;
        wait_ns = cl_min(wait_ns, left_ms * CL_TCP_MS);
    }
    cl_tcp_set(c, CL_TCP_TIMER_RESEND, wait_ns);
}

/* Nothing is under way, and something waits for the window: what fits leaves, else it is asked. */
static void persist(struct cl_tcp_conn *c)
{
    bool orphan = c->flags & CL_TCP_READ_SHUT;
    if ((orphan && cl_tcp_now_ms(c) - c->progress_ms >= CL_TCP_ORPHAN_MS) || exhausted(c)) {
        give_up(c, true);
        return;
    }
    back_off(c);
    if (c->wnd == 0) {
        cl_tcp_send_probe(c);
        return;
    }
    /* Override the silly window's rule (section 3.8.6.2.1). The largest window says how much memory the peer has, and
     * that has become less: else each of its windows would wait for this timer. */
    c->flags |= CL_TCP_FORCE;
    c->wnd_max = c->wnd;
}

static void resend_due(struct cl_tcp_conn *c)
{
    if (c->una == c->nxt) {
        if (c->send.bytes || cl_tcp_fin_due(c))
            persist(c);
        return;
    }
    if (cl_tcp_recovery_due(c))
        return;
    if (exhausted(c)) {
        give_up(c, c->state > CL_TCP_SYN_RECEIVED);
        return;
    }
    cl_count(&c->turn->counts->timeouts, 1);
    back_off(c);
    cl_tcp_recovery_timed_out(c);
    cl_tcp_suspect_path(c);
}

static void keep_due(struct cl_tcp_conn *c)
{
    const struct cl_tcp_settings *s = c->settings;
    if (c->state == CL_TCP_TIME_WAIT || (c->state == CL_TCP_FIN_WAIT_2 && (c->flags & CL_TCP_READ_SHUT))) {
        cl_tcp_end(c, 0);
        return;
    }
    if (!(c->flags & CL_TCP_KEEP_ALIVE))
        return;
    uint32_t idle_ms = cl_tcp_now_ms(c) - c->heard_ms, first_ms = s->keep_idle_ms;
    if (c->una != c->nxt || c->send.bytes || idle_ms < first_ms) {            /* other timers ask, or it was heard of */
        bool counts = c->una != c->nxt || c->send.bytes || cl_tcp_fin_due(c); /* one of the others, in vain perhaps */
        c->retries = counts ? c->retries : 0;
        cl_tcp_set(c, CL_TCP_TIMER_KEEP, (idle_ms < first_ms ? first_ms - idle_ms : first_ms) * CL_TCP_MS);
        return;
    }
    /* The user's time counts from when it was heard of, as in Linux: users add up idle time and probes for it. */
    bool over = c->user_timeout_ms ? idle_ms >= c->user_timeout_ms && c->retries : c->retries >= s->keep_probes;
    if (over) {
        give_up(c, true);
        return;
    }
    c->retries++;
    cl_tcp_send_probe(c);
    cl_tcp_set(c, CL_TCP_TIMER_KEEP, s->keep_interval_ms * CL_TCP_MS);
}

static void due(struct cl_tcp_conn *c, enum cl_tcp_timer timer)
{
    cl_tcp_unset(c, timer);
    switch (timer) {
    case CL_TCP_TIMER_RESEND:
        resend_due(c);
        break;
    case CL_TCP_TIMER_ACK:
        c->flags |= CL_TCP_ACK_NOW;
        break;
    case CL_TCP_TIMER_KEEP:
        keep_due(c);
        break;
    default: /* a buffer may be there now: the turn's end tries again */
        if (c->flags & CL_TCP_WANTS_ROOM) {
            c->flags &= ~(uint32_t)CL_TCP_WANTS_ROOM;
            c->events |= CL_TCP_EVENT_WRITABLE;
        }
    }
}

void cl_tcp_timers(struct cl_tcp_conn *c)
{
    if (cl_likely(cl_tcp_due_ns(c) > c->turn->now_ns))
        return;
    cl_tcp_not_plain(c);
    for (unsigned i = 0; i < CL_TCP_TIMERS; i++)
        if (c->due_ns[i] <= c->turn->now_ns)
            due(c, (enum cl_tcp_timer)i);
    if (c->timer_at && c->timer_at * CL_TCP_USER_TIMER_NS <= c->turn->now_ns) {
        c->timer_at = 0;
        c->events |= CL_TCP_EVENT_TIMER;
    }
}
