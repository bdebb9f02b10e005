/* See reflector.h. */
#include "reflector.h"

#include <corelane/runtime/clock.h>
#include "../../runtime/net.h"
#include "../harness/pinned.h"

#include <linux/if_xdp.h>
#include <stdlib.h>

#define BURST 64
#define CHUNK_BYTES 2048
#define TIMED 4096  /* doorbells remembered; power of two */
#define SHORTEST 42 /* Ethernet, IPv4 without options, UDP */

struct cl_reflector {
    struct cl_umem umem;
    struct cl_xsk xsk;
    pthread_t thread;
    bool started;
    bool checks;
    uint32_t stop CL_ALIGNED(CL_CACHELINE);      /* writer: delete (relaxed, it orders nothing); reader: the thread */
    uint32_t timed;                              /* writer: time_doorbells; reader: the thread; relaxed as well */
    uint64_t reflected CL_ALIGNED(CL_CACHELINE); /* writer: the thread; readers: counts (relaxed) */
    uint64_t ignored;
    uint32_t n_doorbells;  /* writer: the thread (release after the entry); readers: doorbells */
    uint32_t ticks[TIMED]; /* of the last ones; relaxed */
};

/* Turn a UDP datagram round; false for any other frame. */
static inline bool turn(uint8_t *f, uint32_t len)
{
    uint16_t type, mac[6];
    memcpy(&type, f + 12, 2);
    if (cl_unlikely(len < SHORTEST || type != __builtin_bswap16(0x0800) || f[14] != 0x45 || f[23] != 17))
        return false;
    memcpy(mac, f, 6);
    memcpy(f, f + 6, 6);
    memcpy(f + 6, mac, 6);
    uint64_t addresses;
    uint32_t ports;
    memcpy(&addresses, f + 26, 8);
    memcpy(&ports, f + 34, 4);
    addresses = addresses << 32 | addresses >> 32;
    ports = ports << 16 | ports >> 16;
    memcpy(f + 26, &addresses, 8);
    memcpy(f + 34, &ports, 4);
    return true;
}

/* Whether it is a whole datagram with right checksums: what a host has to find out before it answers (RFC 1122,
 * sections 3.2.1.2 and 4.1.3.4). The frame is of at least SHORTEST bytes. */
static inline bool is_right(const uint8_t *frame, uint32_t len)
{
    const struct cl_udp_frame *f = (const struct cl_udp_frame *)frame;
    uint16_t total = cl_be16(f->ip.total_len_be), bytes = cl_be16(f->udp.len_be);
    return total <= len - CL_ETH_HLEN && bytes >= CL_UDP_HLEN && CL_IPV4_HLEN + bytes <= total &&
           cl_csum(&f->ip, sizeof f->ip) == 0 && cl_udp_checksum_ok(f->ip.src_be, f->ip.dst_be, &f->udp, bytes);
}

/* The checksums of an answer, made anew: what a host has to do whose answer is not what it was sent. */
static inline void finish(uint8_t *frame)
{
    struct cl_udp_frame *f = (struct cl_udp_frame *)frame;
    f->ip.check = 0;
    f->ip.check = cl_csum(&f->ip, sizeof f->ip);
    f->udp.check = 0;
    f->udp.check = cl_udp_checksum(f->ip.src_be, f->ip.dst_be, &f->udp, cl_be16(f->udp.len_be));
}

/* turn, as a host that checks what came. */
static inline bool answer(uint8_t *f, uint32_t len)
{
    if (cl_unlikely(len < SHORTEST || !is_right(f, len) || !turn(f, len)))
        return false;
    finish(f);
    return true;
}

/* Sent chunks go straight back to be received into. The rings are as long as there are chunks, so both always fit. */
static inline void recycle(struct cl_xsk *x)
{
    uint32_t n = cl_xsk_ready(&x->completion);
    if (!n)
        return;
    const uint64_t *from = x->completion.entries;
    uint64_t *to = x->fill.entries;
    for (uint32_t i = 0; i < n; i++)
        to[x->fill.ours++ & x->fill.mask] =
            from[x->completion.ours++ & x->completion.mask] & ~(uint64_t)(CHUNK_BYTES - 1);
    cl_xsk_release(&x->completion);
    cl_xsk_submit(&x->fill);
}

/* Turn n received frames round into the tx ring; returns how many were datagrams. */
static inline uint32_t reflect(struct cl_reflector *r, struct cl_xsk *x, uint32_t n)
{
    const struct xdp_desc *from = x->rx.entries;
    struct xdp_desc *to = x->tx.entries;
    uint64_t *back = x->fill.entries;
    uint32_t turned = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct xdp_desc d = from[x->rx.ours++ & x->rx.mask];
        uint8_t *frame = r->umem.area + d.addr;
        if (cl_likely(r->checks ? answer(frame, d.len) : turn(frame, d.len))) {
            to[x->tx.ours++ & x->tx.mask] = (struct xdp_desc){d.addr, d.len, 0};
            turned++;
        } else {
            back[x->fill.ours++ & x->fill.mask] = d.addr & ~(uint64_t)(CHUNK_BYTES - 1);
        }
    }
    if (turned)
        cl_xsk_submit(&x->tx);
    return turned;
}

/* The doorbell, with its time if that was asked for. */
static inline int ring(struct cl_reflector *r, struct cl_xsk *x)
{
    if (cl_likely(!cl_load_relaxed(&r->timed)))
        return cl_xsk_kick(x);
    uint64_t start = cl_tsc();
    int rc = cl_xsk_kick(x);
    cl_store_relaxed(&r->ticks[r->n_doorbells & (TIMED - 1)], (uint32_t)(cl_tsc() - start));
    cl_store_release(&r->n_doorbells, r->n_doorbells + 1);
    return rc;
}

static void *loop(void *arg)
{
    struct cl_reflector *r = arg;
    struct cl_xsk *x = &r->xsk;
    bool again = false; /* the last doorbell left frames in the tx ring */
    while (!cl_load_relaxed(&r->stop)) {
        uint32_t n = cl_min(cl_xsk_ready(&x->rx), (uint32_t)BURST);
        if (!n && !again) {
            recycle(x);
            continue;
        }
        uint32_t turned = reflect(r, x, n);
        if ((turned || again) && (!x->need_wakeup || cl_xsk_wants_wakeup(&x->tx)))
            again = ring(r, x) < 0;
        cl_xsk_release(&x->rx);
        cl_xsk_submit(&x->fill);
        recycle(x);
        cl_count(&r->reflected, turned);
        cl_count(&r->ignored, n - turned);
    }
    return NULL;
}

int cl_reflector_new(const struct cl_xsk_config *config, uint32_t queue, uint32_t chunks, bool checks, int cpu,
                     struct cl_reflector **out, char *err)
{
    if (chunks == 0 || chunks > config->fill_size || chunks > config->tx_size) {
        snprintf(err, CL_BENCH_ERR_BYTES, "%u chunks for rings of %u and %u: no more than these are possible", chunks,
                 config->fill_size, config->tx_size);
        return -EINVAL;
    }
    struct cl_reflector *r = aligned_alloc(CL_CACHELINE, sizeof *r);
    if (!r) {
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    memset(r, 0, sizeof *r);
    r->xsk.fd = -1;
    r->checks = checks;
    int rc = cl_umem_init(&r->umem, chunks, CHUNK_BYTES, err);
    if (!rc)
        rc = cl_xsk_open(&r->xsk, &r->umem, config, queue, err);
    if (!rc) {
        uint64_t *fill = r->xsk.fill.entries;
        for (uint32_t i = 0; i < chunks; i++)
            fill[r->xsk.fill.ours++ & r->xsk.fill.mask] = (uint64_t)i * CHUNK_BYTES;
        cl_xsk_submit(&r->xsk.fill);
        rc = cl_bench_start_pinned(&r->thread, cpu, loop, r, err);
        r->started = !rc;
    }
    if (rc) {
        cl_reflector_delete(r);
        return rc;
    }
    *out = r;
    return 0;
}

int cl_reflector_fd(const struct cl_reflector *r)
{
    return r->xsk.fd;
}

void cl_reflector_counts(const struct cl_reflector *r, uint64_t *reflected, uint64_t *ignored)
{
    *reflected = cl_load_relaxed(&r->reflected);
    *ignored = cl_load_relaxed(&r->ignored);
}

void cl_reflector_time_doorbells(struct cl_reflector *r)
{
    cl_store_relaxed(&r->timed, 1);
}

unsigned cl_reflector_doorbells(const struct cl_reflector *r, double *ns, unsigned n)
{
    uint32_t have = cl_load_acquire(&r->n_doorbells); /* acquire: the entries before it */
    n = cl_min(n, cl_min(have, (uint32_t)TIMED));
    for (unsigned i = 0; i < n; i++)
        ns[i] = (double)cl_ticks_to_ns(cl_clock_default(), cl_load_relaxed(&r->ticks[(have - n + i) & (TIMED - 1)]));
    return n;
}

void cl_reflector_delete(struct cl_reflector *r)
{
    if (r->started) {
        cl_store_relaxed(&r->stop, 1);
        pthread_join(r->thread, NULL);
    }
    cl_xsk_close(&r->xsk);
    cl_umem_exit(&r->umem);
    free(r);
}
