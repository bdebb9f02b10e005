/* Loopback: frames to our own address, or to 127.0.0.0/8 (RFC 1122, section 3.2.1.3 (g)), never reach the NIC.
 *
 * They wait at the kthread that sent them and come in with its next poll, before the NIC's, through the parser's way
 * for them (cl_rx_parse_looped) into inboxes and sockets as all others do. So a handler that sends to itself does not
 * recurse, and a sibling takes them if the kthread is away. Their buffers are the NIC's, and go back to it when they
 * are done with: CL_NETQ_LOOP of a kthread at most, and what is more is refused and counted (tx_dropped_loop).
 *
 * What is for an ordered handler does not wait there. A sender that changes its kthread would leave older frames of its
 * flow behind at the one, and be overtaken by those at the other. It is put into its flow as it is sent, so the flow
 * has the sender's order (ordered.h), with its bounds and reasons for drops. */
#include "netif.h"

#include <errno.h>

/* Put a frame for an ordered handler into its flow. False: it is for somebody else; or we stop, and nothing new is to
 * run. */
static bool put_in_order(struct cl_netq *q, const struct cl_frame *f)
{
    struct cl_netif *nif = q->nif;
    struct cl_ready_list woken = {0};
    struct cl_rx_info info;
    if (cl_load_relaxed(&nif->flows) == NULL || cl_load_relaxed(&nif->stopping)) /* relaxed: hints; the port decides */
        return false;
    cl_rx_parse_looped(&nif->self, f->data, f->len, &info);
    if (info.verdict != CL_RX_UDP)
        return false;
    /* Acquire: the socket's fields, and the flows, were written before it was published. */
    struct cl_udp_socket *s = cl_load_acquire(&nif->ports[((const struct cl_udp *)(f->data + info.l4))->dst_port_be]);
    if (!s || cl_load_relaxed(&s->kind) != CL_UDP_ORDERED)
        return false;
    struct cl_rx_item item = {.frame = *f,
                              .socket = s,
                              .rx_tsc = cl_stamp(q->time),
                              .l4 = info.l4,
                              .payload_len = info.payload_len,
                              .looped = true};
    cl_count(&q->stats.looped, 1);
    cl_count(&q->stats.rx_frames, 1);
    cl_ordered_put(q, &item, &woken);
    cl_ordered_publish(q, &woken);
    return true;
}

int cl_netq_loop(struct cl_netq *q, struct cl_frame *f)
{
    if (cl_unlikely(put_in_order(q, f)))
        return 0;
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
