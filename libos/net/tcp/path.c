/* What is learned of the path: errors that routers and hosts tell by ICMP, and how large its packets may be.
 *
 * An error counts only if it quotes a number that is under way (RFC 5927, section 4.1). It never ends a connection that
 * is open (section 5.2). That a host is out of reach shows by time-outs, and then the error is the reason that the user
 * hears (RFC 1122, section 4.2.3.9). A smaller MTU (RFC 1191) is believed down to MTU_LEAST, if what it is about was
 * larger. Where routers say nothing, time-outs of full segments make them smaller (RFC 4821 in its simplest form). The
 * MTU of a connection never grows again. */
#include "../icmp.h"
#include "machine.h"

#include <errno.h>

#define MTU_LEAST 552   /* as Linux has it; a smaller one makes headers of most that is sent */
#define MTU_COMMON 1280 /* tunnels have it */
#define HEADERS 40

/* The largest of the sizes that links have below one that is too large (RFC 1191, section 7.1): a router that tells no
 * MTU. */
static uint32_t plateau_below(uint32_t too_large)
{
    static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, MTU_LEAST};
    unsigned i = 0;
    while (plateaus[i] >= too_large && plateaus[i] > MTU_LEAST)
        i++;
    return plateaus[i];
}

/* Segments fit into `mtu` from now on, and what is under way did not get through. False: they did before. */
static bool shrink(struct cl_tcp_conn *c, uint32_t mtu)
{
    uint32_t mss = cl_max(mtu, (uint32_t)MTU_LEAST) - HEADERS;
    if (mss >= c->mss)
        return false;
    c->mss = (uint16_t)mss;
    c->cc.mss = mss - (c->flags & CL_TCP_TIMES ? CL_TCP_OPTION_TIMES : 0);
    cl_tcp_recovery_again(c);
    cl_count(&c->turn->counts->mtu_shrunk, 1);
    return true;
}

/* A segment that nobody answers, but would if it were smaller: small enough for tunnels first, then for all. */
void cl_tcp_suspect_path(struct cl_tcp_conn *c)
{
    bool full = c->nxt - c->una >= c->cc.mss;
    if (!c->settings->black_holes || !full || c->state < CL_TCP_ESTABLISHED)
        return;
    if (c->retries == CL_TCP_BLACK_HOLE_RETRIES)
        (void)shrink(c, MTU_COMMON);
    else if (c->retries == 2 * CL_TCP_BLACK_HOLE_RETRIES)
        (void)shrink(c, MTU_LEAST);
}

void cl_tcp_complain(struct cl_tcp_conn *c, const struct cl_icmp_about *about)
{
    struct cl_tcp_counts *counts = c->turn->counts;
    bool refused = about->error == ECONNREFUSED || about->error == ENOPROTOOPT; /* by the host itself */
    if (c->state <= CL_TCP_LISTEN || !cl_seq_in(about->seq, c->una, c->nxt)) {
        cl_count(&counts->icmp_ignored, 1);
    } else if (about->error == EMSGSIZE) {
        uint32_t mtu = about->mtu ? about->mtu : plateau_below(about->total_len);
        if (mtu >= about->total_len || cl_tcp_opening(c) || !shrink(c, mtu))
            cl_count(&counts->icmp_ignored, 1);
    } else if (refused && cl_tcp_opening(c)) {
        cl_tcp_end(c, about->error);
    } else {
        c->error = (int16_t)about->error; /* the reason, if it is never answered */
    }
    cl_count(&counts->icmp_errors, 1);
    cl_tcp_tell(c);
}
