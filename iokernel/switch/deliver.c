/* Where frames go: into an application's receive ring, out of an uplink, over to another loop. io_deliver steers a
 * frame: it chooses the kthread by a hash of the flow, in a table of ../cores/flows.c if cores move.
 *
 * A frame's first IO_HEADER bytes are taken from `header`, the rest from `rest`: what was checked is what is delivered,
 * even if the sender writes into its buffer meanwhile. No byte beyond the frame's length is copied: what lies behind it
 * in the sender's buffer is nobody's business.
 *
 * Pages of receive buffers come when they are first needed, which is slow: 16 buffers' by one call, and none for a
 * frame that goes to everybody, or each of those would cost that for every application that does not read. */
#include "flow.h"

#define PAGED_BUFFERS 16 /* a batch: some 8 pages, a few microseconds */
#define FETCH_AHEAD 8    /* frames: they take as long as a line that comes from far */
#define HELD_NS 10000 /* frames of an uplink wait for more for so long at most: some eight turns' and a system call */

/* Copy n bytes; inline for what small frames need. The last chunk overlaps the one before, within the n bytes. */
static inline void copy_some(uint8_t *to, const uint8_t *from, uint32_t n)
{
    if (n >= 64) {
        if (n > 512) {
            memcpy(to, from, n);
            return;
        }
        uint32_t i = 0;
        for (; i + 64 <= n; i += 64)
            __builtin_memcpy(to + i, from + i, 64);
        if (i < n)
            __builtin_memcpy(to + n - 64, from + n - 64, 64);
    } else if (n >= 32) {
        __builtin_memcpy(to, from, 32);
        __builtin_memcpy(to + n - 32, from + n - 32, 32);
    } else if (n >= 16) {
        __builtin_memcpy(to, from, 16);
        __builtin_memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        __builtin_memcpy(to, from, 8);
        __builtin_memcpy(to + n - 8, from + n - 8, 8);
    } else {
        for (uint32_t i = 0; i < n; i++)
            to[i] = from[i];
    }
}

static inline void copy_frame(uint8_t *to, const struct io_frame *f)
{
    if (f->len <= IO_HEADER) {
        copy_some(to, f->header, f->len);
        return;
    }
    __builtin_memcpy(to, f->header, IO_HEADER);
    copy_some(to + IO_HEADER, f->rest + IO_HEADER, f->len - IO_HEADER);
}

static inline uint32_t hash_of(const struct io_loop *loop, const struct io_frame *f)
{
    if (f->hash)
        return f->hash;
    return cl_rss_frame(loop->io->config.rss_key, f->header, cl_min(f->len, (uint32_t)IO_HEADER));
}

/* No buffer is free: fetch pages for some that were never used, if there are any, and the frame is worth it. */
static CL_NOINLINE bool page_in(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    uint32_t n = cl_min(app->n_rx - app->fresh, (uint32_t)PAGED_BUFFERS);
    if (n == 0 || f->flood)
        return false;
    uint64_t first = app->fresh;
    cl_memory_populate(&app->memory, app->layout.buffers_offset + first * app->stride, (uint64_t)n * app->stride);
    io_count(loop->stats.syscalls, 1);
    for (uint32_t i = 0; i < n; i++)
        app->free[i] = app->fresh + n - 1 - i; /* low ones on top */
    cl_count(&app->fresh, n);
    cl_count(&app->n_free, n);
    return true;
}

static CL_NOINLINE void look_after(struct io_loop *loop, struct io_kthread *k, bool flood)
{
    if (k->touched == IO_NOT_TOUCHED)
        loop->touched[loop->n_touched++] = k;
    k->touched = flood ? IO_TOUCHED_BY_FLOOD : IO_TOUCHED;
}

CL_HOT void io_deliver(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    uint32_t hash = hash_of(loop, f);
    uint32_t to_kthread = cl_unlikely(app->cores.steered) ? app->cores.steer[cl_rss_queue(hash, IO_STEER)]
                                                          : cl_rss_queue(hash, app->n_kthreads);
    struct io_kthread *k = &app->kthreads[to_kthread];
    io_count(app->stats.rx_offered, 1);
    if (cl_unlikely(!k->sampled) && app->cores.told && app->cores.held == 0)
        io_fetch_words(&loop->cores); /* of the decision that follows: they come while the frame is copied */
    if (cl_unlikely(cl_ring_tx_space(&k->rx, 1) == 0)) {
        io_count(app->stats.rx_dropped_ring_full, 1);
        return;
    }
    if (cl_unlikely(app->n_free == 0) && !page_in(loop, app, f)) {
        io_count(app->stats.rx_dropped_no_buffer, 1);
        return;
    }
    if (cl_unlikely(f->len > app->buffer_bytes)) {
        io_count(app->stats.rx_dropped_too_long, 1);
        return;
    }
    uint32_t buffer = app->free[app->n_free - 1];
    cl_count(&app->n_free, -1u);
    uint8_t *to = app->buffers + (size_t)buffer * app->stride;
    copy_frame(to, f);
    __builtin_memcpy(to + cl_nic_stamp_offset(f->len), &loop->now, sizeof loop->now); /* for who asks where time went */
    app->lent[buffer] = IO_LENT;
    uint64_t word = cl_rx_word(hash, f->len);
    if (cl_unlikely(f->asked)) {
        io_note_asking(app, buffer, f);
        word |= CL_RX_ASKS;
    }
    cl_ring_push(&k->rx, word, cl_rx_payload(buffer, 0, app->cores.steerings));
    /* The application has these lines: send for those of a frame to come, which is perhaps as long as this one. */
    if (app->n_free >= FETCH_AHEAD)
        cl_prefetch_span_write(app->buffers + (size_t)app->free[app->n_free - FETCH_AHEAD] * app->stride, f->len);
    io_count(app->stats.rx_delivered, 1);
    io_count(app->stats.rx_bytes, f->len);
    if (cl_unlikely(!k->sampled)) {
        k->sampled = true;
        app->cores.stands = false;
        k->sample_tail = k->rx.tail;
        k->sample_tsc = loop->now;
    }
    io_active(loop, app);
    if (k->touched != IO_TOUCHED)
        look_after(loop, k, f->flood);
}

void io_deliver_all(struct io_loop *loop, const struct io_frame *f, const struct io_app *but)
{
    const struct io_frame copy = {
        .header = f->header, .rest = f->rest, .len = f->len, .hash = hash_of(loop, f), .flood = true};
    for (uint32_t i = 0; i < loop->n_apps; i++)
        if (loop->apps[i] != but)
            io_deliver(loop, loop->apps[i], &copy);
}

static void note_staged(struct io_loop *loop)
{
    cl_store_relaxed(&loop->stats.out_staged, loop->stats.out_offered - loop->stats.out_sent -
                                                  loop->stats.out_dropped_no_buffer - loop->stats.out_dropped_full -
                                                  loop->stats.out_dropped_too_long - loop->stats.out_dropped_no_uplink);
}

/* The device went away, and its NIC takes nothing any more: give the buffers of staged frames from `from` on back. */
static CL_NOINLINE void drop_staged(struct io_loop *loop, struct io_uplink *u, uint32_t from)
{
    io_count(loop->stats.out_dropped_no_uplink, u->n_staged - from);
    for (uint32_t n; from < u->n_staged; from += n) {
        n = cl_min(u->n_staged - from, (uint32_t)CL_NIC_BURST);
        u->nic->ops->free(u->nic, u->tx_queue, u->staged + from, n);
    }
}

/* Hand staged frames to the NIC; what it does not take stays. */
static void flush(struct io_loop *loop, struct io_uplink *u)
{
    u->held_since = 0;
    if (u->n_staged == 0)
        return;
    uint32_t done = 0, sent;
    while (done < u->n_staged) {
        uint32_t n = cl_min(u->n_staged - done, (uint32_t)CL_NIC_BURST);
        uint32_t took = u->nic->ops->tx_burst(u->nic, u->tx_queue, u->staged + done, n);
        done += took;
        if (took < n)
            break;
    }
    sent = done;
    if (done)
        u->retries = 0;
    if (cl_unlikely(done < u->n_staged && cl_load_relaxed(&u->nic->gone))) {
        drop_staged(loop, u, done);
        done = u->n_staged;
    }
    for (uint32_t i = 0; i < done; i++) {
        if (u->owner[i])
            u->owner[i]->staged--;
        else
            u->staged_other--;
    }
    u->n_staged -= done;
    if (u->n_staged && done) {
        memmove(u->staged, u->staged + done, u->n_staged * sizeof u->staged[0]);
        memmove(u->owner, u->owner + done, u->n_staged * sizeof u->owner[0]);
    }
    io_count(loop->stats.out_sent, sent);
    note_staged(loop);
}

/* While somebody who sends there has had his turn and has more, frames are gathered for a NIC that takes several by one
 * system call: that lasts as long as several turns. */
static inline bool wait_for_more(struct io_loop *loop, uint32_t i)
{
    struct io_uplink *u = &loop->uplinks[i];
    if (cl_likely(!(loop->more_for & 1u << i)) || !u->nic->tx_joins || !u->n_staged || u->n_staged >= CL_NIC_BURST)
        return false;
    if (!u->held_since)
        u->held_since = loop->now;
    note_staged(loop);
    return loop->now - u->held_since < (uint64_t)cl_ns_to_ticks(loop->io->clock, HELD_NS);
}

void io_flush_uplinks(struct io_loop *loop)
{
    for (uint32_t i = 0; i < loop->n_uplinks; i++)
        if (!wait_for_more(loop, i))
            flush(loop, &loop->uplinks[i]);
    loop->more_for = 0;
}

/* The part of the queue that one sender may fill while the NIC does not keep up. */
static inline uint32_t share_of(const struct io_loop *loop)
{
    static const uint32_t by_apps[8] = {IO_STAGED,     IO_STAGED / 2, IO_STAGED / 3, IO_STAGED / 4,
                                        IO_STAGED / 5, IO_STAGED / 6, IO_STAGED / 7, IO_STAGED / 8};
    return by_apps[cl_min(loop->n_apps, 7u)];
}

CL_HOT bool io_to_uplink(struct io_loop *loop, unsigned uplink, const struct io_frame *f, struct io_app *own)
{
    io_count(loop->stats.out_offered, 1);
    if (cl_unlikely(uplink >= loop->n_uplinks || !loop->uplinks[uplink].has_tx)) {
        io_count(loop->stats.out_dropped_no_uplink, 1);
        return false;
    }
    struct io_uplink *u = &loop->uplinks[uplink];
    loop->sent_to |= 1u << uplink;
    uint32_t *used = own ? &own->staged : &u->staged_other;
    if (cl_unlikely(u->n_staged == IO_STAGED || *used >= share_of(loop))) {
        flush(loop, u);
        if (u->n_staged == IO_STAGED || *used >= share_of(loop)) {
            io_count(loop->stats.out_dropped_full, 1);
            return false;
        }
    }
    if (cl_unlikely(u->n_spare == 0)) {
        u->n_spare = u->nic->ops->alloc(u->nic, u->tx_queue, u->spare, IO_SPARE / 2);
        if (u->n_spare == 0) {
            io_count(loop->stats.out_dropped_no_buffer, 1);
            return false;
        }
    }
    struct cl_frame *to = &u->spare[u->n_spare - 1];
    if (cl_unlikely(f->len > to->room || f->len > loop->mtu_frame)) {
        io_count(loop->stats.out_dropped_too_long, 1);
        return false;
    }
    u->n_spare--;
    copy_frame(to->data, f);
    if (u->share_mac && own) { /* io_arp_reply has put it in already */
        io_put_mac(to->data + 6, u->mac);
        if (cl_get16(to->data + 12) == cl_be16(CL_ETHERTYPE_ARP) && f->len >= CL_ETH_HLEN + sizeof(struct cl_arp))
            io_put_mac(to->data + CL_ETH_HLEN + offsetof(struct cl_arp, sender_mac), u->mac);
    }
    to->len = (uint16_t)f->len;
    u->staged[u->n_staged] = *to;
    u->owner[u->n_staged++] = own;
    ++*used;
    io_count(loop->stats.out_bytes, f->len);
    return true;
}

bool io_hand_over(struct io_loop *loop, unsigned to, const struct io_frame *f, unsigned kind, unsigned uplink)
{
    struct io_handover *h = loop->out[to];
    if (f->len > h->stride || cl_ring_tx_space(&h->tx, 1) == 0) {
        io_count(loop->stats.loop_out_dropped_full, 1);
        return false;
    }
    io_count(loop->stats.loop_out, 1);
    copy_frame(h->frames + (size_t)(h->tx.tail & (IO_HANDOVER_SLOTS - 1)) * h->stride, f);
    cl_ring_push(&h->tx, f->len | (uint64_t)kind << 32 | (uint64_t)uplink << 40, hash_of(loop, f));
    loop->handed[to] = true;
    return true;
}
