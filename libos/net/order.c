/* The order of frames: from the NIC's queue to their flows (flow.h), whoever takes them.
 *
 * What is between them is the queue's receive lock: whoever takes a burst puts those of its frames that are of flows
 * into the flows before it lets go of the lock. So bursts are put in the order in which they were taken. The rest of a
 * burst, plain datagrams and what is answered at once, comes after the lock, as it does where nothing is ordered.
 *
 * The other way would be a number for each burst, taken under the lock, and to put them in the order of the numbers. It
 * makes the section shorter by the parsing, and the rest no better: while the holder of a number is away all later
 * bursts wait for it, and now they are in somebody's hands, where no sibling gets at them. With the lock they stay in
 * the NIC's queue. A sibling that finds it locked does not wait: it goes on with something else (cl_netq_lock_rx).
 *
 * A holder that is away. The section is a burst long, 2 us or less, and calls neither the NIC's doorbell nor user code,
 * but for hints that only look (tcp.h, `ahead`). Where cores move it is not left for another kthread: in the loop a
 * request for the core is answered at the next turn (cede.c), and an interrupt finds that a lock is held (spin.h) and
 * waits for the same. So only the kernel can put a holder aside in the middle, as it can in the middle of rx_burst.
 * Then the frames of this one queue wait, no more: flows that are ready already, and all other queues, go on.
 *
 * Several queues. Where a NIC keeps a flow in one queue, that is all. An iokernel does not: it steers flows away from
 * a kthread that has lost its core, while older frames of theirs are still in its ring. So it numbers its steerings,
 * and each frame has the number by which it was put into its queue. Numbers of a queue never decrease; and who sees a
 * frame of a number sees all frames of lower ones, in all queues. Before the first frame of a new number is put into
 * its flow, all that wait in other queues with lower ones go first, the lowest first (settle). That needs the locks of
 * all queues, and whoever does not get one leaves the burst in its queue and comes again. It happens once for each time
 * that flows are steered anew.
 *
 * With one kthread nothing of this is needed, and nothing is locked.
 *
 * When the first ordered handler is bound, bursts may be under way that were taken without these rules. The binder
 * passes through all locks (ordered.c) before the port can be found. So who takes a burst later follows the rules;
 * and who has taken one before and finds the port now drops what is for it, since nobody listened when it came.
 *
 * Tests: tests/libos/net/test_flow_model.py (all interleavings), tests/libos/net/c/flow_order.c (threads, steering
 * under way). */
#include "traced.h"

#include <string.h>

#define OLDER_BURST CL_NETQ_STASH

/* Whether a steering came before another one. The top byte counts attachments, the rest steerings: both wrap. */
static bool before(uint32_t a, uint32_t b)
{
    if ((a ^ b) >> 24)
        return (int8_t)((a >> 24) - (b >> 24)) < 0;
    return (int32_t)((a - b) << 8) < 0;
}

/* The steering of the frame that comes next from a queue whose lock is held. False: none waits. */
static bool next_steering(struct cl_netq *q, uint32_t *number)
{
    if (q->n_stash) {
        *number = q->stash_steering;
        return true;
    }
    return q->nic->ops->steering(q->nic, q->index, number);
}

bool cl_order_look(struct cl_netq *q)
{
    struct cl_nic *nic = q->nic;
    if (q->n_stash)
        return true;
    if (nic->ops->steering && !nic->ops->steering(nic, q->index, &q->stash_steering))
        return false;
    cl_store_relaxed(&q->n_stash, nic->ops->rx_burst(nic, q->index, q->stash, CL_NETQ_STASH));
    return q->n_stash != 0;
}

/* Put those of n frames that are of flows; the others, for which there is room, are the rest. */
static void sift(struct cl_order *o, const struct cl_frame *frames, unsigned n)
{
    struct cl_netif *nif = o->q->nif;
    if (n && o->came == 0)
        cl_netq_trace_poll(o->q, o->rx_tsc, &frames[0]);
    o->came += n;
    if (n)
        cl_netq_look_at_tag(o->q, &frames[0]);
    for (unsigned i = 0; i < n; i++) {
        struct cl_rx_info info;
        struct cl_udp_socket *s = NULL;
        struct cl_connections *tcp;
        if (i + 1 < n)
            cl_netq_fetch_frame(&frames[i + 1]);
        cl_rx_parse(&nif->self, frames[i].data, frames[i].len, &info);
        if (info.verdict == CL_RX_UDP) /* acquire: the socket's fields were written before it was published */
            s = cl_load_acquire(&nif->ports[((const struct cl_udp *)(frames[i].data + info.l4))->dst_port_be]);
        else if (info.verdict == CL_RX_TCP && (tcp = cl_load_acquire(&nif->tcp))) {
            if (tcp->put(o->q, &frames[i], &info, o->rx_tsc, &o->woken))
                continue;
        }
        if (!s || cl_load_relaxed(&s->kind) != CL_UDP_ORDERED) {
            o->frames[o->n] = frames[i];
            o->infos[o->n++] = info;
            continue;
        }
        struct cl_rx_item item = {.frame = frames[i],
                                  .socket = s,
                                  .rx_tsc = o->rx_tsc,
                                  .l4 = info.l4,
                                  .payload_len = info.payload_len,
                                  .broadcast = info.broadcast,
                                  .traced = cl_netq_draws(o->q)};
        cl_ordered_put(o->q, &item, &o->woken);
    }
}

static void unlock_all_but(struct cl_netif *nif, const struct cl_netq *but, unsigned n)
{
    for (unsigned k = 0; k < n; k++)
        if (&nif->queues[k] != but)
            cl_spin_unlock(&nif->queues[k].rx_lock);
}

static bool lock_all_but(struct cl_netif *nif, const struct cl_netq *but)
{
    for (unsigned k = 0; k < nif->n_queues; k++)
        if (&nif->queues[k] != but && !cl_netq_lock_rx(&nif->queues[k])) {
            unlock_all_but(nif, but, k);
            return false;
        }
    return true;
}

/* Of the queues that are locked, but for one, that whose next frame has the lowest number below `number`; NULL:
 * none. */
static struct cl_netq *oldest(struct cl_netif *nif, const struct cl_netq *but, uint32_t number)
{
    struct cl_netq *found = NULL;
    for (unsigned k = 0; k < nif->n_queues; k++) {
        uint32_t of;
        if (&nif->queues[k] == but || !next_steering(&nif->queues[k], &of) || !before(of, number))
            continue;
        number = of;
        found = &nif->queues[k];
    }
    return found;
}

/* All frames of lower numbers than that of victim's next frame go first. False: not all of them could be taken now. */
static CL_NOINLINE bool settle(struct cl_order *o, struct cl_netq *victim, uint32_t number)
{
    struct cl_netif *nif = o->q->nif;
    struct cl_frame frames[OLDER_BURST];
    struct cl_netq *older;
    if (!lock_all_but(nif, victim))
        return false;
    while ((older = oldest(nif, victim, number)) && o->room - o->n >= OLDER_BURST && o->came < 4 * CL_NETQ_POLL) {
        unsigned n = older->n_stash;
        if (n)
            memcpy(frames, older->stash, n * sizeof frames[0]);
        else
            n = nif->nic->ops->rx_burst(nif->nic, older->index, frames, OLDER_BURST);
        cl_store_relaxed(&older->n_stash, 0);
        sift(o, frames, n);
    }
    if (!older)
        nif->flows->settled = number;
    unlock_all_but(nif, victim, nif->n_queues);
    return !older;
}

void cl_order_receive(struct cl_order *o, struct cl_netq *victim)
{
    struct cl_netif *nif = o->q->nif;
    struct cl_frame frames[CL_NETQ_POLL];
    uint32_t number;
    if (!nif->nic->ops->steering) {
        sift(o, frames, cl_netq_rx(victim, frames, o->room));
        return;
    }
    if (!next_steering(victim, &number))
        return;
    if (cl_unlikely(number != nif->flows->settled) && !settle(o, victim, number))
        return;
    unsigned room = o->room - o->n, n = victim->n_stash; /* a burst is of one steering */
    if (n && n <= room) {
        sift(o, victim->stash, n);
        cl_store_relaxed(&victim->n_stash, 0);
    } else if (n == 0 && room) {
        sift(o, frames, nif->nic->ops->rx_burst(nif->nic, victim->index, frames, room));
    }
}
