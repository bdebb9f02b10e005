/* What two ends agree on in their SYNs: MSS, window scale, SACK, timestamps. */
#include "machine.h"

void cl_tcp_offer_options(const struct cl_tcp_conn *c, struct cl_tcp_options *o)
{
    /* A SYN that answers one offers only what that did (RFC 7323, sections 2.2 and 3.2; RFC 2018, section 2). */
    bool answers = c->state == CL_TCP_SYN_RECEIVED;
    uint8_t agreed =
        (uint8_t)((c->flags & CL_TCP_TIMES ? CL_TCPO_TIMES : 0) | (c->flags & CL_TCP_SACKS ? CL_TCPO_SACK_OK : 0) |
                  (c->flags & CL_TCP_SCALES ? CL_TCPO_WSCALE : 0));
    o->has = CL_TCPO_MSS | (answers ? agreed : c->settings->options);
    o->mss = c->settings->mss;
    o->wscale = c->settings->wscale;
    if (o->has & CL_TCPO_TIMES) {
        o->ts_val = cl_tcp_now_ms(c) + c->ts_offset;
        o->ts_ecr = answers ? c->ts_recent : 0;
    }
}

void cl_tcp_agree(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn)
{
    const struct cl_tcp_options *o = &syn->options;
    uint8_t both = o->has & c->settings->options;
    uint32_t mss = o->has & CL_TCPO_MSS ? o->mss : CL_TCP_MSS_DEFAULT;
    cl_tcp_ecn_agree(c, syn);
    c->flags &= ~(uint32_t)(CL_TCP_TIMES | CL_TCP_SACKS | CL_TCP_SCALES);
    c->snd_scale = c->rcv_scale = 0;
    if (both & CL_TCPO_TIMES) {
        c->flags |= CL_TCP_TIMES;
        c->ts_recent = o->ts_val;
        c->ts_recent_ms = cl_tcp_now_ms(c);
    }
    if (both & CL_TCPO_SACK_OK)
        c->flags |= CL_TCP_SACKS;
    if (both & CL_TCPO_WSCALE) {
        c->flags |= CL_TCP_SCALES;
        c->snd_scale = o->wscale & 15;
        c->rcv_scale = c->settings->wscale & 15;
    }
    mss = cl_max(mss, (uint32_t)CL_TCP_MSS_LEAST);
    c->mss = (uint16_t)cl_min(mss, (uint32_t)c->settings->mss);
    c->wnd = c->wnd_max = syn->window; /* that of a SYN is never scaled (RFC 7323, section 2.2) */
    c->wl1 = syn->seq;
    c->wl2 = syn->ack;
    cl_tcp_cc_init(&c->cc, c->settings->cc, c->mss - (c->flags & CL_TCP_TIMES ? CL_TCP_OPTION_TIMES : 0));
    cl_tcp_path_agreed(c);
}
