/* What is learned of the path: errors that routers and hosts tell by ICMP, and how large its packets may be.
 *
 * An error counts only if it quotes a number that is under way (RFC 5927, section 4.1). It never ends a connection that
 * is open (section 5.2). That a host is out of reach shows by time-outs, and then the error is the reason that the user
 * hears (RFC 1122, section 4.2.3.9). A smaller MTU (RFC 1191) is believed down to MTU_LEAST, if what it is about was
 * larger. Where routers say nothing, time-outs of full segments make them smaller (RFC 4821 in its simplest form).
 *
 * What is found out is for all connections to that peer (paths.h): new ones begin with it, those that have time-outs
 * look there. After 10 minutes one of them sends one packet of the next larger size with new data. If it is
 * acknowledged they all send such; if not it is sent again in pieces, and tried after the next 10 minutes. */
#include "../icmp.h"
#include "machine.h"

#include <errno.h>

#define MTU_LEAST 552   /* as Linux has it; a smaller one makes headers of most that is sent */
#define MTU_COMMON 1280 /* tunnels have it */
#define HEADERS 40

/* Sizes that links have (RFC 1191, section 7.1). */
static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, MTU_LEAST};

/* The largest of them below one that is too large: a router that tells no MTU. */
static uint32_t plateau_below(uint32_t too_large)
{
    unsigned i = 0;
    while (plateaus[i] >= too_large && plateaus[i] > MTU_LEAST)
        i++;
    return plateaus[i];
}

/* The least of them that is larger, but no more than `most`, which is one, too. */
static uint32_t plateau_above(uint32_t mtu, uint32_t most)
{
    uint32_t above = most;
    for (unsigned i = 0; i < sizeof plateaus / sizeof *plateaus; i++)
        if (plateaus[i] > mtu && plateaus[i] < above)
            above = plateaus[i];
    return above;
}

/* Paths. */

static uint32_t options_of(const struct cl_tcp_conn *c)
{
    return c->flags & CL_TCP_TIMES ? CL_TCP_OPTION_TIMES : 0;
}

/* Of the packets that it sends now. */
static uint32_t mtu_of(const struct cl_tcp_conn *c)
{
    return c->cc.mss + options_of(c) + HEADERS;
}

static void set_mtu(struct cl_tcp_conn *c, uint32_t mtu)
{
    cl_tcp_not_plain(c);
    c->cc.mss = cl_min(mtu - HEADERS, (uint32_t)c->mss) - options_of(c);
}

static uint32_t peer_of(const struct cl_tcp_conn *c)
{
    return c->turn->key ? c->turn->key(c)->peer_be : 0;
}

static bool due(uint32_t due_ms, uint32_t now_ms)
{
    return (int32_t)(now_ms - due_ms) >= 0;
}

/* The place of a peer, locked. NULL: nothing is shared. *known: it is this peer's. */
static struct cl_tcp_path *enter(struct cl_tcp_conn *c, bool *known)
{
    struct cl_tcp_stack *stack = c->turn->stack;
    struct cl_tcp_paths *paths = &stack->paths;
    uint32_t peer_be = peer_of(c);
    if (!peer_be)
        return NULL;
    struct cl_tcp_path *p = &paths->of[cl_sip_two(&stack->secret, peer_be, 4ull << 56) % CL_TCP_PATHS];
    cl_spin_lock(&paths->lock);
    *known = p->peer_be == peer_be && !due(p->due_ms + CL_TCP_PATH_OLD_MS, cl_tcp_now_ms(c));
    return p;
}

/* When to look next: when the first entry is due. */
static void leave(struct cl_tcp_conn *c, bool changed)
{
    struct cl_tcp_paths *paths = &c->turn->stack->paths;
    uint32_t now_ms = cl_tcp_now_ms(c), next_ms = now_ms + CL_TCP_PATH_AGAIN_MS;
    for (unsigned i = 0; changed && i < CL_TCP_PATHS; i++) {
        const struct cl_tcp_path *p = &paths->of[i];
        if (p->peer_be && !due(p->due_ms + CL_TCP_PATH_OLD_MS, now_ms) && due(p->due_ms, next_ms))
            next_ms = p->due_ms;
    }
    if (changed)
        cl_store_relaxed(&paths->look_ms, next_ms);
    cl_spin_unlock(&paths->lock);
}

/* Packets of `mtu` pass, and larger ones do not, or are to be tried at a time. */
static void note(struct cl_tcp_conn *c, uint32_t mtu, uint32_t again_ms)
{
    bool known;
    struct cl_tcp_path *p = enter(c, &known);
    if (!p)
        return;
    *p = (struct cl_tcp_path){.peer_be = peer_of(c), .due_ms = cl_tcp_now_ms(c) + again_ms, .mtu = (uint16_t)mtu};
    cl_store_relaxed(&c->turn->stack->paths.any, 1);
    leave(c, true);
}

/* 0: as much as both ends take. */
static uint32_t known_mtu(struct cl_tcp_conn *c)
{
    bool known;
    if (!cl_load_relaxed(&c->turn->stack->paths.any)) /* relaxed: it was not so a moment ago */
        return 0;
    struct cl_tcp_path *p = enter(c, &known);
    uint32_t mtu = p && known ? p->mtu : 0;
    if (p)
        leave(c, false);
    return mtu;
}

void cl_tcp_path_agreed(struct cl_tcp_conn *c)
{
    uint32_t mtu = known_mtu(c);
    if (mtu && mtu < mtu_of(c))
        set_mtu(c, mtu);
}

uint32_t cl_tcp_path_try(struct cl_tcp_conn *c, uint32_t most)
{
    uint32_t now_ms = cl_tcp_now_ms(c), mine = mtu_of(c), tries = 0;
    bool known, changed = false;
    /* Relaxed: it is looked at again under the lock. */
    if (!due(cl_load_relaxed(&c->turn->stack->paths.look_ms), now_ms))
        return 0;
    struct cl_tcp_path *p = enter(c, &known);
    if (!p)
        return 0;
    if (!known) { /* it was forgotten */
        *p =
            (struct cl_tcp_path){.peer_be = peer_of(c), .due_ms = now_ms + CL_TCP_PATH_AGAIN_MS, .mtu = (uint16_t)mine};
        changed = true;
    } else if (p->mtu > mine) {
        set_mtu(c, p->mtu); /* another one has found it out */
    } else if (due(p->due_ms, now_ms)) {
        tries = plateau_above(mine, (uint32_t)c->mss + HEADERS);
        if (tries - HEADERS - options_of(c) > most) {
            tries = 0;
        } else {
            p->due_ms = now_ms + CL_TCP_PATH_AGAIN_MS;
            p->tries = (uint16_t)tries;
            p->who = c;
            p->end = c->nxt + tries - HEADERS - options_of(c);
        }
        changed = tries != 0;
    }
    leave(c, changed);
    uint32_t sacks = c->cc.mss - cl_tcp_mss_now(c);
    return tries ? tries - HEADERS - options_of(c) - sacks : 0;
}

void cl_tcp_path_tried(struct cl_tcp_conn *c)
{
    c->flags |= CL_TCP_TRIES_PATH;
    cl_count(&c->turn->counts->paths_tried, 1);
}

void cl_tcp_path_failed(struct cl_tcp_conn *c)
{
    c->flags &= ~(uint32_t)CL_TCP_TRIES_PATH;
}

void cl_tcp_path_acked(struct cl_tcp_conn *c)
{
    bool known;
    uint32_t mtu = 0;
    struct cl_tcp_path *p = enter(c, &known);
    bool tries = p && known && p->who == c && p->tries;
    if (tries && cl_seq_upto(p->end, c->una)) {
        mtu = p->mtu = p->tries;
        p->tries = 0;
        p->due_ms = cl_tcp_now_ms(c) + CL_TCP_PATH_MORE_MS;
    }
    if (p)
        leave(c, mtu);
    if (mtu)
        set_mtu(c, mtu);
    if (mtu || !tries) /* or its place went to another peer */
        c->flags &= ~(uint32_t)CL_TCP_TRIES_PATH;
    cl_count(&c->turn->counts->mtu_grown, mtu != 0);
}

/* What comes. */

/* Segments fit into `mtu` from now on, and what is under way did not get through. False: they did before. */
static bool shrink(struct cl_tcp_conn *c, uint32_t mtu)
{
    mtu = cl_max(mtu, (uint32_t)MTU_LEAST);
    if (mtu >= mtu_of(c))
        return false;
    set_mtu(c, mtu);
    note(c, mtu, CL_TCP_PATH_AGAIN_MS);
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
    uint32_t known = c->retries == 1 ? known_mtu(c) : 0;
    if (known) /* another connection knows more */
        (void)shrink(c, known);
    else if (c->retries == CL_TCP_BLACK_HOLE_RETRIES)
        (void)shrink(c, MTU_COMMON);
    else if (c->retries == 2 * CL_TCP_BLACK_HOLE_RETRIES)
        (void)shrink(c, MTU_LEAST);
}

/* It is about the packet that tries the path: so much passes, and not what was tried. */
static bool said_of_tried(struct cl_tcp_conn *c, uint32_t mtu)
{
    if (!(c->flags & CL_TCP_TRIES_PATH) || mtu < mtu_of(c))
        return false;
    cl_tcp_path_failed(c);
    set_mtu(c, mtu);
    note(c, mtu, CL_TCP_PATH_AGAIN_MS);
    return true;
}

void cl_tcp_complain(struct cl_tcp_conn *c, const struct cl_icmp_about *about)
{
    struct cl_tcp_counts *counts = c->turn->counts;
    bool refused = about->error == ECONNREFUSED || about->error == ENOPROTOOPT; /* by the host itself */
    if (c->state <= CL_TCP_LISTEN || !cl_seq_in(about->seq, c->una, c->nxt)) {
        cl_count(&counts->icmp_ignored, 1);
    } else if (about->error == EMSGSIZE) {
        uint32_t mtu = about->mtu ? about->mtu : plateau_below(about->total_len);
        if (mtu >= about->total_len || cl_tcp_opening(c) || !(said_of_tried(c, mtu) || shrink(c, mtu)))
            cl_count(&counts->icmp_ignored, 1);
    } else if (refused && cl_tcp_opening(c)) {
        cl_tcp_end(c, about->error);
    } else {
        c->error = (uint8_t)about->error; /* the reason, if it is never answered */
    }
    cl_count(&counts->icmp_errors, 1);
    cl_tcp_tell(c);
}
