/* Loopback: frames to our own address, or to 127.0.0.0/8 (RFC 1122, section 3.2.1.3 (g)), never reach the NIC.
 *
 * They wait at the kthread that sent them and come in with its next poll, before the NIC's, through the parser's way for
 * them (cl_rx_parse_looped) into inboxes and sockets as all others do. So a handler that sends to itself does not recurse,
 * and a sibling takes them if the kthread is away. Their buffers are the NIC's, and go back to it when they are done with:
 * CL_NETQ_LOOP of a kthread at most, and what is more is refused and counted (tx_dropped_loop). */
#include "netif.h"

#include <errno.h>

int cl_netq_loop(struct cl_netq *q, struct cl_frame *f)
{
    cl_spin_lock(&q->loop_lock);
    uint32_t n = q->n_loop;
    if (n < CL_NETQ_LOOP) {
        q->loop[(q->loop_head + n) % CL_NETQ_LOOP] = *f;
        cl_store_relaxed(&q->n_loop, n + 1); /* who looks without the lock looks again, and we poll ourselves */
    }
    cl_spin_unlock(&q->loop_lock);
    if (n < CL_NETQ_LOOP)
        return 0;
    cl_count(&q->stats.tx_dropped_loop, 1);
    cl_netq_untake(q, f);
    return -ENOBUFS;
}

unsigned cl_netq_unloop(struct cl_netq *victim, struct cl_frame *frames, unsigned n)
{
    cl_spin_lock(&victim->loop_lock);
    n = cl_min(n, victim->n_loop);
    for (unsigned i = 0; i < n; i++)
        frames[i] = victim->loop[(victim->loop_head + i) % CL_NETQ_LOOP];
    victim->loop_head = (victim->loop_head + n) % CL_NETQ_LOOP;
    cl_store_relaxed(&victim->n_loop, victim->n_loop - n);
    cl_spin_unlock(&victim->loop_lock);
    return n;
}
