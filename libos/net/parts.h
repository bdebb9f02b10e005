/* Flows in parts: while siblings steal from a queue, each works on flows of its own, so that what a flow's requests
 * touch stays at one core.
 *
 *     NIC queue --poll--> inbox (the kthread's part)
 *                    \--> apart (the siblings' part) --steal--> the inbox of a thief
 *
 * A thief says that it helps. For some polls from then on the kthread divides what a poll brings by a hash of the flow:
 * into as many parts as there are kthreads at work, of which the first is its own. The others' are put into a second
 * inbox, `apart`, of which it is the producer as well. Thieves take from there first. What is in the kthread's own
 * inbox and in the NIC's queue they leave alone while it gets on: while its handlers begin one after another. If none
 * has begun for CL_PARTS_LOOKS looks, or if it has lost its core, they take that, too, as they do where flows are not
 * in parts.
 *
 * The kthread takes from `apart` itself when its inbox is empty, and when nobody helps any more. So nothing waits there
 * for a thief that has gone, and flows that happen to be all of one part are still worked on by both. What does not fit
 * into `apart` goes to the inbox.
 *
 * Only datagrams of handlers that are not ordered are divided: others wait in their flows and types, which thieves take
 * whole. A lone frame is nobody's but the kthread's. Between several thieves nothing is divided.
 *
 * Tests: tests/libos/net/c/parts.c. */
#ifndef CORELANE_LIBOS_NET_PARTS_H
#define CORELANE_LIBOS_NET_PARTS_H

#include "netif.h"

#define CL_PARTS_ITEMS 64 /* that wait apart at most */
#define CL_PARTS_POLLS                                                                                                 \
    64 /* that bring frames, after which helpers have to say so again; they count for twice as long */
#define CL_PARTS_LOOKS 128 /* of thieves, without a handler having begun: the kthread is inside a long one */

/* The kthread: into how many parts a burst of n frames of its own queue goes. 1: nobody helps. */
static inline unsigned cl_parts(struct cl_netq *q, unsigned n)
{
    struct cl_parts *p = &q->parts;
    uint64_t helpers = cl_load_relaxed(&p->helpers);
    if (cl_likely((helpers | p->helped) == 0))
        return 1;
    unsigned parts = 1 + (unsigned)__builtin_popcountll(helpers | p->helped);
    if (++p->polls == CL_PARTS_POLLS) {
        p->polls = 0;
        cl_store_relaxed(&p->helped, __atomic_exchange_n(&p->helpers, 0, __ATOMIC_RELAXED));
        cl_store_relaxed(&p->divided, p->divided_now && p->helped);
        p->divided_now = false;
    }
    return n == 1 ? 1 : parts;
}

/* The kthread: whether a datagram is of its own part, of several. */
static inline bool cl_parts_is_own(const struct cl_netq *q, const struct cl_frame *f, unsigned l4, unsigned parts)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(f->data + CL_ETH_HLEN);
    const struct cl_udp *udp = (const struct cl_udp *)(f->data + l4);
    struct cl_flow_key key = {ip->src_be, ip->dst_be, udp->src_port_be, udp->dst_port_be, CL_IPPROTO_UDP};
    return cl_flow_hash_in(&q->nif->secret, &key) % parts == 0;
}

/* The kthread: some of a burst were put apart. */
static inline void cl_parts_divided(struct cl_netq *q)
{
    q->parts.divided_now = true;
    if (!q->parts.divided)
        cl_store_relaxed(&q->parts.divided, true);
}

/* The kthread: whether what waits apart is its own to take, with so many waiting in its inbox. */
static inline bool cl_parts_takes_back(const struct cl_netq *q, unsigned waiting)
{
    const struct cl_parts *p = &q->parts;
    return cl_inbox_count(p->apart) && (waiting == 0 || (cl_load_relaxed(&p->helpers) | p->helped) == 0);
}

/* Thief: it helps. True: the victim knew that. */
static inline bool cl_parts_help(struct cl_netq *victim, unsigned self)
{
    struct cl_parts *p = &victim->parts;
    uint64_t bit = 1ull << self;
    if (cl_load_relaxed(&p->helpers) & bit)
        return true;
    __atomic_fetch_or(&p->helpers, bit, __ATOMIC_RELAXED);
    return cl_load_relaxed(&p->helped) & bit;
}

/* Thief, which has found nothing apart: whether to leave the rest alone, since the victim gets on with it. Thieves
 * write the same words: a look too many or too few harms nobody. */
static inline bool cl_parts_leaves(struct cl_netq *victim)
{
    struct cl_parts *p = &victim->parts;
    uint32_t switches = cl_load_relaxed(&victim->signals->switches), looks = 0;
    if (!cl_load_relaxed(&p->divided))
        return false;
    if (switches == cl_load_relaxed(&p->switches))
        looks = cl_load_relaxed(&p->looks) + 1;
    else
        cl_store_relaxed(&p->switches, switches);
    cl_store_relaxed(&p->looks, cl_min(looks, (uint32_t)CL_PARTS_LOOKS));
    return looks < CL_PARTS_LOOKS;
}

#endif
