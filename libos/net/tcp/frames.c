/* Segments as frames: those that leave, and those that outlive their turn. See net.h. */
#include "net.h"

#include "../../../runtime/csum_copy.h"
#include "../tcp.h"

#include <string.h>

#define NEXT_BYTES (4 * CL_CACHELINE) /* of the next segment's buffer, that are taken from whoever read it last */
#define KEPT_SHARE 8                  /* an eighth of the NIC's buffers may lie in frames that wait or are leased */

static uint64_t swap_halves(uint64_t sum)
{
    uint16_t folded = (uint16_t)~cl_csum_finish(sum);
    return (uint16_t)(folded << 8 | folded >> 8);
}

static CL_NOINLINE uint64_t copy_chain(uint8_t *to, const struct cl_tcp_bytes *data, uint64_t sum)
{
    const struct cl_chunk *chunk = data->chunk;
    uint32_t done = 0, at = data->offset;
    while (done < data->len) {
        uint32_t n = cl_min(data->len - done, (uint32_t)chunk->from + chunk->len - at);
        uint64_t part = cl_csum_copy(0, to + done, chunk->bytes + at, n);
        sum += done & 1 ? swap_halves(part) : part; /* behind an odd number of bytes it stands the other way round */
        done += n;
        chunk = chunk->next;
        at = chunk ? chunk->from : 0;
    }
    return sum;
}

/* Copy data behind a header, and add it to the checksum. */
static inline uint64_t copy_data(uint8_t *to, const struct cl_tcp_bytes *data, uint64_t sum)
{
    const struct cl_chunk *chunk = data->chunk;
    if (data->len == 0)
        return sum;
    if (cl_likely(data->offset + data->len <= (uint32_t)chunk->from + chunk->len))
        return cl_csum_copy(sum, to, chunk->bytes + data->offset, data->len);
    return copy_chain(to, data, sum);
}

/* The next segment is about as long as this one: send for the lines of its buffer. The first came with the buffer. */
static void prepare_next(const struct cl_netq *q, unsigned len)
{
    if (q->n_spare && len > CL_CACHELINE)
        cl_prefetch_span_write(q->spare[q->n_spare - 1].data + CL_CACHELINE, cl_min(len, NEXT_BYTES) - CL_CACHELINE);
}

/* The answer to a SYN goes to where that came from, as a cookie does and a reset, if the neighbour's address is not
 * known yet: of many that open at one time ARP would hold some and lose the others for a second. Whatever follows goes
 * where ARP says. So a stranger who speaks in another's name gets no more than that one segment. */
bool cl_tcp_emit_frame(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                       const struct cl_tcp_bytes *data)
{
    const struct cl_tcp_flow_turn *t = (const struct cl_tcp_flow_turn *)turn;
    const struct cl_flow_key *key = &cl_tcp_block_of(c)->flow.key;
    struct cl_netq *q = t->q;
    struct cl_frame f;
    if (!cl_netq_take(q, &f))
        return false;
    if (q->n_tx + 1 >= q->flush_at) /* it is sent as soon as it is made, with all that wait */
        cl_nic_prepare(q->nic, q->index);
    struct cl_eth *eth = (struct cl_eth *)f.data;
    struct cl_ipv4 *ip = (struct cl_ipv4 *)(f.data + CL_ETH_HLEN);
    uint8_t *tcp = (uint8_t *)(ip + 1);
    uint64_t sum;
    unsigned header = cl_tcp_segment_put(s, key->own_port_be, key->peer_port_be, tcp, &sum);
    unsigned len = header + s->len, frame_len = CL_ETH_HLEN + CL_IPV4_HLEN + len;
    memcpy(eth->src, q->nif->self.mac, 6);
    eth->type_be = cl_be16(CL_ETHERTYPE_IPV4);
    cl_ipv4_fill(ip, key->own_be, key->peer_be, CL_IPPROTO_TCP, len);
    if (cl_unlikely(s->ecn))
        cl_ipv4_mark(ip, s->ecn);
    prepare_next(q, frame_len);
    sum += cl_csum_pseudo(key->own_be, key->peer_be, CL_IPPROTO_TCP, (uint16_t)len);
    ((struct cl_tcp *)tcp)->check = cl_csum_finish(copy_data(tcp + header, data, sum));
    const struct cl_route *route = cl_netq_neighbour(q, key->peer_be, turn->now_ns);
    if (cl_likely(route != NULL)) {
        memcpy(eth->dst, route->mac, 6);
        cl_netq_push_sized(q, &f, frame_len);
        return true;
    }
    f.len = (uint16_t)frame_len;
    const uint8_t *asker = t->asked && (s->flags & CL_TCPF_SYN) ? t->asker : NULL;
    /* Without a way it is as if lost. */
    return cl_netq_send_ip(q, &f, key->peer_be, turn->now_ns, asker) != -ENOBUFS;
}

/* Stopped: nothing leaves any more. */
bool cl_tcp_emit_nothing(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                         const struct cl_tcp_bytes *data)
{
    (void)turn, (void)c, (void)s, (void)data;
    return true;
}

/* Frames that outlive their turn. */

struct kept {
    struct cl_chunk_owner owner; /* first */
    struct cl_tcp_net *net;
    struct cl_frame frame;
};

static void kept_done(struct cl_chunk_owner *owner, unsigned kthread)
{
    struct kept *k = (struct kept *)owner;
    cl_netq_done(&k->net->nif->queues[kthread], &k->frame);
    __atomic_fetch_sub(&k->net->frames_kept, 1, __ATOMIC_RELAXED); /* a number */
}

bool cl_tcp_keep_frame(struct cl_tcp_turn *turn, struct cl_chunk *chunk)
{
    struct cl_tcp_flow_turn *t = (struct cl_tcp_flow_turn *)turn;
    uint32_t most = t->net->nif->nic->n_buffers / KEPT_SHARE;
    if (__atomic_fetch_add(&t->net->frames_kept, 1, __ATOMIC_RELAXED) >= most) {
        __atomic_fetch_sub(&t->net->frames_kept, 1, __ATOMIC_RELAXED);
        return false;
    }
    *(struct kept *)cl_chunk_owner(chunk) = (struct kept){{kept_done}, t->net, *t->frame};
    t->frame = NULL;
    return true;
}
