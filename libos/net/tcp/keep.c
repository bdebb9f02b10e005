/* Times of keep-alive for one connection (RFC 9293, section 3.8.4). They are settings like others: a connection that
 * asks for its own has a copy of its settings, which it shares with all that ask for the same. */
#include "machine.h"

#include <errno.h>

/* What a connection began with: it may have asked before. */
static const struct cl_tcp_settings *origin(const struct cl_tcp_keeps *all, const struct cl_tcp_settings *s)
{
    const struct cl_tcp_keep *first = all->of, *end = all->of + CL_TCP_KEEPS;
    bool own = (uintptr_t)s >= (uintptr_t)first && (uintptr_t)s < (uintptr_t)end;
    return own ? cl_container_of(s, struct cl_tcp_keep, settings)->like : s;
}

static bool has(const struct cl_tcp_keep *k, const struct cl_tcp_settings *like, const uint32_t times[3])
{
    return k->like == like && k->settings.keep_idle_ms == times[0] && k->settings.keep_interval_ms == times[1] &&
           k->settings.keep_probes == times[2];
}

/* NULL: there are as many as may be. */
static const struct cl_tcp_settings *find(struct cl_tcp_keeps *all, const struct cl_tcp_settings *like,
                                          const uint32_t times[3])
{
    struct cl_tcp_keep *found = NULL;
    cl_spin_lock(&all->lock);
    for (uint32_t i = 0; i < all->n && !found; i++)
        if (has(&all->of[i], like, times))
            found = &all->of[i];
    if (!found && all->n < CL_TCP_KEEPS) {
        found = &all->of[all->n++];
        *found = (struct cl_tcp_keep){like, *like};
        found->settings.keep_idle_ms = times[0];
        found->settings.keep_interval_ms = times[1];
        found->settings.keep_probes = times[2];
    }
    cl_spin_unlock(&all->lock);
    return found ? &found->settings : NULL;
}

int cl_tcp_keep_times(struct cl_tcp_conn *c, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes)
{
    struct cl_tcp_keeps *all = &c->turn->stack->keeps;
    const struct cl_tcp_settings *like = origin(all, c->settings);
    bool as_begun =
        like->keep_idle_ms == idle_ms && like->keep_interval_ms == interval_ms && like->keep_probes == probes;
    const struct cl_tcp_settings *s = as_begun ? like : find(all, like, (uint32_t[]){idle_ms, interval_ms, probes});
    if (!s)
        return -ENOBUFS;
    bool other_idle = s->keep_idle_ms != c->settings->keep_idle_ms;
    c->settings = s;
    if (other_idle && (c->flags & CL_TCP_KEEP_ALIVE))
        cl_tcp_keep_from(c, cl_tcp_now_ms(c) - c->heard_ms);
    return 0;
}

void cl_tcp_keep_from(struct cl_tcp_conn *c, uint32_t passed_ms)
{
    uint32_t idle_ms = c->settings->keep_idle_ms;
    bool reads = !(c->flags & CL_TCP_READ_SHUT); /* else the timer is that of FIN_WAIT_2 */
    if (c->state >= CL_TCP_ESTABLISHED && c->state <= CL_TCP_CLOSE_WAIT && reads)
        cl_tcp_set(c, CL_TCP_TIMER_KEEP, (idle_ms > passed_ms ? idle_ms - passed_ms : 0) * CL_TCP_MS);
}

void cl_tcp_keep_alive(struct cl_tcp_conn *c, bool on)
{
    c->flags = on ? c->flags | CL_TCP_KEEP_ALIVE : c->flags & ~(uint32_t)CL_TCP_KEEP_ALIVE;
    if (on)
        cl_tcp_keep_from(c, 0);
}
