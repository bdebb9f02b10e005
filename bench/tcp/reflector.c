/* See reflector.h. */
#include "reflector.h"

#include "minimal.h"
#include "segments.h"
#include "../harness/pinned.h"
#include "../harness/send.h"
#include "../../runtime/csum_copy.h"

#include <stdlib.h>

#define SYN_TIMES_AT 8 /* of our client's SYN (drivers/nic/tcpload/segment.c) */

struct cl_tcp_reflector {
    struct cl_nic *nic;
    pthread_t thread;
    bool takes, keeps;
    uint32_t stop;                   /* writer: cl_tcp_reflector_stop; reader: the thread. Relaxed: it guards nothing */
    struct cl_minimal *minimal;      /* NULL: it is none */
    uint8_t user[CL_CACHELINE * 32]; /* where it keeps data: a frame's is less */
};

/* The peer's time comes back to it, and stands for ours, too. */
static void turn_times(uint8_t *options, uint32_t bytes, bool syn)
{
    uint32_t at = syn ? SYN_TIMES_AT : 0;
    if (bytes >= at + 12 && cl_get32(options + at) == cl_be32(NOPS_TIMES))
        cl_put32(options + at + 8, cl_get32(options + at + 4));
}

/* It is next: the lines behind those that its NIC has sent for. */
static void fetch(const struct cl_frame *f)
{
    for (uint32_t i = CL_PREFETCH_BYTES; i < f->len; i += CL_CACHELINE)
        cl_prefetch(f->data + i);
}

/* Sum and copy the data of a segment. False: it is damaged. */
static bool keep(struct cl_tcp_reflector *r, const struct head *h, uint32_t header, uint32_t len)
{
    uint64_t sum = sum_header(h, header, len);
    const uint8_t *data = (const uint8_t *)&h->src_be + header;
    return len <= sizeof r->user && cl_csum_finish(cl_csum_copy(sum, r->user, data, len)) == 0;
}

/* Make the answer of a segment, in its place. False: there is none. */
static bool turn(struct cl_tcp_reflector *r, struct cl_frame *f, bool last)
{
    struct head *h = (struct head *)f->data;
    struct parts p;
    if (!part(f, &p))
        return false;
    uint32_t header = p.header, flags = p.flags, len = p.len, head = CL_IPV4_HLEN + header, seq_be = h->seq_be;
    if (r->keeps && !keep(r, h, header, len))
        return false;
    if ((flags & RST) || (!len && !(flags & (SYN | FIN))) || (r->takes && len && !last))
        return false;
    bool syn = flags & SYN;
    h->seq_be = syn ? cl_be32(1) : h->ack_be;
    h->ack_be = cl_be32(cl_be32(seq_be) + len + syn + (flags & FIN));
    h->offset_be |= cl_be16(ACK);
    turn_addresses(h);
    turn_times(h->options, header - 20, syn);
    if (r->takes) {
        h->ip.total_len_be = cl_be16(head);
        h->ip.check = 0;
        h->ip.check = cl_csum(&h->ip, sizeof h->ip);
        len = 0;
    }
    h->check = 0;
    uint16_t tcp_len = (uint16_t)(header + len);
    uint64_t sum = cl_csum_pseudo(h->ip.src_be, h->ip.dst_be, CL_IPPROTO_TCP, tcp_len);
    h->check = cl_csum_finish(cl_csum_add(sum, &h->src_be, tcp_len));
    f->len = (uint16_t)(CL_ETH_HLEN + head + len);
    return true;
}

static void *reflector_main(void *arg)
{
    struct cl_tcp_reflector *r = arg;
    const struct cl_nic_ops *ops = r->nic->ops;
    struct cl_frame frames[CL_NIC_BURST];
    while (!cl_load_relaxed(&r->stop)) {
        unsigned got = ops->rx_burst(r->nic, 0, frames, CL_NIC_BURST), kept = 0;
        uint64_t now_ns = got && r->minimal ? cl_bench_wall_ns() : 0;
        for (unsigned i = 0; i < got; i++) {
            if ((r->keeps || r->minimal) && i + 1 < got)
                fetch(&frames[i + 1]);
            bool answers =
                r->minimal ? cl_minimal_turn(r->minimal, &frames[i], now_ns) : turn(r, &frames[i], i + 1 == got);
            if (answers)
                frames[kept++] = frames[i];
            else
                ops->free(r->nic, 0, &frames[i], 1);
        }
        cl_bench_send_all(r->nic, frames, kept, &r->stop);
    }
    return NULL;
}

static void give_back(struct cl_tcp_reflector *r)
{
    cl_minimal_free(r->minimal);
    free(r);
}

int cl_tcp_reflector_start(struct cl_nic *nic, int cpu, uint32_t data, struct cl_tcp_reflector **out, char *err)
{
    struct cl_tcp_reflector *r = calloc(1, sizeof *r);
    if (!r) {
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    r->nic = nic;
    r->takes = data == CL_REFLECTOR_TAKES || data == CL_REFLECTOR_KEEPS;
    r->keeps = data == CL_REFLECTOR_KEEPS;
    r->minimal = data == CL_REFLECTOR_CONNECTS ? cl_minimal_new() : NULL;
    if (data == CL_REFLECTOR_CONNECTS && !r->minimal) {
        free(r);
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    int rc = cl_bench_start_pinned(&r->thread, cpu, reflector_main, r, err);
    if (rc)
        give_back(r);
    else
        *out = r;
    return rc;
}

void cl_tcp_reflector_stop(struct cl_tcp_reflector *r)
{
    cl_store_relaxed(&r->stop, 1);
    pthread_join(r->thread, NULL);
    give_back(r);
}
