/* Frames from applications: check, then on to a local application, another loop or an uplink.
 *
 * Nothing in an arena is believed: descriptors are copied before they are looked at (ring.h), indices and lengths
 * checked on the copy, and the first 64 bytes of a frame copied before its addresses are checked (deliver.c delivers
 * that copy).
 *
 * Who has frames: doorbell.h.
 *
 * Turns. Each application with frames gets a quantum of work a round (limits.h), shorter while other sources have work,
 * so that the wait behind a neighbour's turn is bounded by some 8 small frames, whatever the neighbour does, and by 2
 * once the neighbour has had more to send than it may for 10 ms while somebody else has not. To an uplink that takes
 * several frames by one system call (nic.h, tx_joins) frames wait for others of such a neighbour's for 10 us at most.
 * What it may not send yet stays in its ring: that is its back-pressure. A frame that ends in a drop is charged,
 * too. */
#include "doorbell.h"
#include "kind.h"

/* A receive buffer comes back. A buffer that the application does not hold: a lie, and nothing happens. */
static inline void give_back(struct io_app *app, uint32_t buffer)
{
    if (cl_unlikely(buffer >= app->n_rx || !app->lent[buffer])) {
        io_count(app->stats.lies, 1);
        return;
    }
    app->lent[buffer] = IO_NOT_LENT;
    app->free[app->n_free] = buffer;
    cl_count(&app->n_free, 1);
    io_count(app->stats.frees, 1);
}

static inline void give_back_two(struct io_app *app, uint64_t payload)
{
    uint32_t a = payload & 0xffffff, b = (payload >> 24) & 0xffffff;
    if (a != CL_SHM_NO_BUFFER)
        give_back(app, a);
    if (b != CL_SHM_NO_BUFFER)
        give_back(app, b);
}

/* Whether an ARP message speaks for its sender alone. A request without a sender address is a probe (RFC 5227). */
static inline bool speaks_for(const struct io_app *app, const struct cl_arp *arp)
{
    bool probe = arp->sender_ip_be == 0 && arp->op_be == cl_be16(CL_ARP_REQUEST);
    return io_mac(arp->sender_mac) == app->mac && (arp->sender_ip_be == app->ip_be || probe);
}

/* Not an IPv4 packet from its sender's addresses: whether it may leave all the same. Counts the reason if not. */
static CL_NOINLINE bool may_leave_yet(struct io_app *app, const uint8_t *header, uint32_t len)
{
    enum io_kind kind = io_kind_of(header, len);
    bool own = io_mac(header + 6) == app->mac;
    if (!own || kind == IO_KIND_IPV4 || kind == IO_KIND_TAGGED ||
        (kind == IO_KIND_ARP && !speaks_for(app, io_arp_in(header)))) {
        io_count(app->stats.tx_dropped_spoofed, 1);
        return false;
    }
    if (kind == IO_KIND_BROKEN) {
        io_count(app->stats.tx_dropped_malformed, 1);
        return false;
    }
    if (kind == IO_KIND_ANOTHER && !app->any_ethertype) {
        io_count(app->stats.tx_dropped_ethertype, 1);
        return false;
    }
    return true;
}

/* Whether a frame may leave: it is IPv4 or ARP, and its source addresses are the sender's own. Counts the reason if
 * not. */
static inline bool may_leave(struct io_app *app, const uint8_t *header, uint32_t len)
{
    if (cl_likely(io_mac(header + 6) == app->mac && io_is_whole_ipv4(header, len) &&
                  io_ipv4_source(header) == app->ip_be))
        return true;
    return may_leave_yet(app, header, len);
}

/* Out of uplink `uplink`, here or on the loop that has it. */
static bool out(struct io_loop *loop, struct io_app *app, unsigned uplink, const struct io_frame *f)
{
    const struct io_uplink *u = &loop->uplinks[uplink];
    if (cl_likely(u->has_tx))
        return io_to_uplink(loop, uplink, f, app);
    return io_hand_over(loop, u->tx_queue, f, IO_HAND_UPLINK, uplink);
}

/* All uplinks, or the one behind which the destination was seen. Returns whether at least one took it. */
static bool out_towards(struct io_loop *loop, struct io_app *app, uint64_t dst, const struct io_frame *f)
{
    if (cl_likely(loop->n_uplinks == 1))
        return out(loop, app, 0, f);
    uint64_t known = loop->fdb[io_slot_of(dst) & (IO_FDB - 1)];
    if (known && known >> 16 == dst) /* an empty slot is no entry for the address 00:00:00:00:00:00 */
        return out(loop, app, (unsigned)(known & 0xffff) - 1, f);
    bool any = false;
    for (unsigned i = 0; i < loop->n_uplinks; i++)
        any |= out(loop, app, i, f);
    return any;
}

/* Each of them is work for all others, whose time it takes. */
static bool may_flood(const struct io_loop *loop, struct io_app *app)
{
    cl_bucket_refill(&app->floods, loop->now);
    if (!cl_bucket_open(&app->floods)) {
        io_count(app->stats.tx_dropped_flood, 1);
        return false;
    }
    cl_bucket_take(&app->floods, 1);
    return true;
}

/* Broadcast and multicast: every application and every uplink; ARP for a local application is answered instead. */
static int32_t send_to_group(struct io_loop *loop, struct io_app *app, const struct io_frame *f, uint64_t dst)
{
    const struct io_app *target = io_arp_target(loop, f->header, f->len);
    if (target && target->mac != app->mac) { /* nor to another member of its group */
        uint8_t reply[IO_HEADER];
        io_arp_reply(reply, f->header, target->mac);
        const struct io_frame answer = {
            .header = reply, .rest = reply, .len = CL_ETH_HLEN + sizeof(struct cl_arp), .hash = 1};
        io_deliver(loop, app, &answer);
        io_count(app->stats.tx_answered, 1);
        return COST_FRAME;
    }
    bool question = io_is_arp_question(f->header, f->len); /* for a stranger: no local application can answer it */
    if (question && loop->n_uplinks == 0) {
        io_count(app->stats.tx_dropped_no_route, 1);
        return COST_DROP;
    }
    uint32_t copies = loop->n_uplinks;
    if (!question) {
        if (!may_flood(loop, app))
            return COST_DROP;
        io_deliver_all(loop, f, app);
        for (uint32_t l = 0; l < loop->io->config.n_loops; l++)
            if (l != loop->index)
                io_hand_over(loop, l, f, IO_HAND_FLOOD, 0);
        copies += loop->n_apps + loop->io->config.n_loops;
    }
    if (loop->n_uplinks)
        out_towards(loop, app, dst, f);
    io_count(app->stats.tx_flooded, 1);
    return (int32_t)copies * COST_FRAME;
}

/* A checked frame goes where its destination says. Returns its cost. */
static inline int32_t route(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    uint64_t dst = io_mac(f->header);
    struct io_app *to = io_find(loop->by_mac, dst);
    if (to) {
        if (cl_likely(to->loop == loop->index)) {
            io_deliver_found(loop, to, f);
            io_count(app->stats.tx_local, 1);
        } else if (io_hand_over(loop, to->loop, f, IO_HAND_UNICAST, 0)) {
            io_count(app->stats.tx_remote, 1);
        } else {
            io_count(app->stats.tx_dropped_loop_full, 1);
            return COST_DROP;
        }
    } else if (cl_unlikely(dst & 1)) {
        return send_to_group(loop, app, f, dst);
    } else if (cl_unlikely(loop->n_uplinks == 0)) {
        io_count(app->stats.tx_dropped_no_route, 1);
        return COST_DROP;
    } else if (out_towards(loop, app, dst, f)) {
        io_count(app->stats.tx_uplink, 1);
    } else {
        io_count(app->stats.tx_dropped_uplink_full, 1);
        return COST_DROP;
    }
    return COST_FRAME + (int32_t)(f->len / 64) * COST_LINE;
}

/* One SEND descriptor. Returns its cost. */
static inline int32_t send_one(struct io_loop *loop, struct io_app *app, uint64_t word, uint64_t payload)
{
    uint32_t len = word & 0xffff, offset = (word >> 16) & 0xffff, buffer = (word >> 32) & 0xffffff;
    io_count(app->stats.tx_taken, 1);
    int32_t cost = COST_DROP;
    bool lent = buffer < app->n_rx;
    bool own = lent ? app->lent[buffer] : buffer < app->n_buffers;
    if (cl_unlikely(!own || len < CL_ETH_HLEN || len > loop->mtu_frame || offset + len > app->buffer_bytes)) {
        io_count(app->stats.tx_dropped_descriptor, 1);
        io_count(app->stats.lies, 1);
    } else {
        const uint8_t *data = app->buffers + (size_t)buffer * app->stride + offset;
        uint8_t header[IO_HEADER] CL_ALIGNED(16);
        __builtin_memcpy(header, data, IO_HEADER); /* the buffer's slack (shm.h) makes that legal for short frames */
        const struct io_frame f = {.header = header, .rest = data, .len = len};
        cl_bucket_take(&app->frames, 1);
        cl_bucket_take(&app->bytes, len);
        if (cl_unlikely(lent && app->lent[buffer] == IO_LENT_ASKS) && io_hand_on(loop, app, buffer, &f)) {
            cost = COST_FRAME + (int32_t)(len / 64) * COST_LINE;
        } else if (cl_likely(may_leave(app, header, len))) {
            io_count(app->stats.tx_bytes, len);
            cost = route(loop, app, &f);
        }
    }
    if (lent && own)
        give_back(app, buffer);
    give_back_two(app, payload);
    return cost;
}

/* The index is not checked yet, so keep it inside the arena. */
static inline void prefetch_frame(const struct io_app *app, uint64_t word)
{
    uint32_t buffer = (word >> 32) & 0xffffff;
    if (cl_likely(buffer < app->n_buffers && word >> 56 == CL_TX_SEND))
        cl_prefetch_span(app->buffers + (size_t)buffer * app->stride + ((word >> 16) & 0xffff), word & 0xffff);
}

/* Send for the frames of this burst, and of the next one if it waits. */
static inline void prefetch_frames(const struct io_app *app, const struct io_kthread *k, const struct cl_desc *d,
                                   unsigned n, bool full)
{
    struct cl_desc next[IO_BURST];
    for (unsigned i = 0; i < n; i++)
        prefetch_frame(app, d[i].word);
    unsigned waiting = full ? cl_ring_peek(&k->tx, next, n) : 0;
    for (unsigned i = 0; i < waiting; i++)
        prefetch_frame(app, next[i].word);
}

static inline bool limits_open(const struct io_app *app)
{
    return cl_bucket_open(&app->frames) && cl_bucket_open(&app->bytes);
}

/* One kthread's ring, as far as turn and limits go. Returns whether anything was read. */
static CL_HOT bool poll_ring(struct io_loop *loop, struct io_app *app, struct io_kthread *k)
{
    struct cl_desc d[IO_BURST];
    bool any = false;
    uint32_t stamps = 0;
    while (app->deficit > 0) {
        uint32_t want = cl_min((uint32_t)app->deficit / COST_FRAME + 1, (uint32_t)IO_BURST);
        unsigned n = cl_ring_pop(&k->tx, d, want);
        if (n == 0)
            break;
        prefetch_frames(app, k, d, n, n == want);
        unsigned i = 0;
        for (; i < n && app->deficit > 0; i++) {
            uint64_t kind = d[i].word >> 56;
            if (cl_likely(kind == CL_TX_SEND)) {
                if (cl_unlikely(!limits_open(app)))
                    break;
                stamps += d[i].payload / CL_TX_STAMP & 1;
                app->deficit -= send_one(loop, app, d[i].word, d[i].payload);
            } else if (kind == CL_TX_FREE) {
                uint32_t buffer = (d[i].word >> 32) & 0xffffff;
                give_back(app, buffer);
                give_back_two(app, d[i].payload);
                app->deficit -= COST_RETURN;
            } else {
                io_count(app->stats.lies, 1);
                app->deficit -= COST_RETURN;
            }
        }
        k->tx.head -= n - i; /* not looked at: as if never popped; read anew next time */
        any |= i > 0;
        if (i < n) {
            app->throttled = app->deficit > 0;
            break;
        }
        if (n < want)
            break;
    }
    if (any) {
        k->heard = loop->now;
        if (cl_unlikely(stamps))
            io_stamp_taken(loop, k, stamps);
        cl_ring_publish(&k->tx); /* the frames are copied: the send buffers are the application's again */
    }
    return any;
}

static inline bool greedy(const struct io_loop *loop, const struct io_app *app)
{
    return app->greedy_turns >= GREEDY_TURNS && loop->now - app->greedy_since >= loop->io->greedy_ticks;
}

/* After a turn of the application's. */
static inline void note_turn(const struct io_loop *loop, struct io_app *app, bool backlogged)
{
    if (!backlogged)
        app->greedy_turns = 0;
    else if (app->greedy_turns++ == 0)
        app->greedy_since = loop->now;
    else
        app->greedy_turns = cl_min(app->greedy_turns, (uint32_t)GREEDY_TURNS);
}

/* Decided once a round for all, so that equals get equal turns. */
struct quanta {
    int32_t modest, greedy;
};

static inline struct quanta quanta_of(const struct io_loop *loop)
{
    if (loop->stats.rounds >= loop->shared_until)
        return (struct quanta){QUANTUM_ALONE, QUANTUM_ALONE};
    return (struct quanta){QUANTUM_SHARED, loop->stats.rounds < loop->modest_until ? QUANTUM_GREEDY : QUANTUM_SHARED};
}

/* Whether any ring that is polled has something left. */
static bool has_more(const struct io_app *app, uint64_t polled)
{
    for (; polled; polled &= polled - 1)
        if (cl_ring_ready(&app->kthreads[__builtin_ctzll(polled)].tx))
            return true;
    return false;
}

/* The rings of `ready` in turn, as far as turn and limits go. Returns whether anything was read. */
static inline bool poll_rings(struct io_loop *loop, struct io_app *app, uint64_t ready)
{
    uint32_t first = app->next_kthread;
    bool any = false;
    for (uint64_t left = io_rotate(ready, first); left; left &= left - 1) {
        uint32_t k = ((uint32_t)__builtin_ctzll(left) + first) & 63;
        any |= poll_ring(loop, app, &app->kthreads[k]);
        if (app->deficit <= 0 || app->throttled) { /* the next turn begins with the next kthread */
            app->next_kthread = k + 1 == app->n_kthreads ? 0 : k + 1;
            break;
        }
    }
    return any;
}

static CL_HOT bool poll_app(struct io_loop *loop, uint32_t at, const struct quanta *quanta)
{
    struct io_app *app = loop->apps[at];
    struct io_doorbell *bell = &loop->doorbells[at];
    uint64_t ready = io_ready(loop, app, bell);
    if (!ready) {
        app->deficit = 0;
        app->greedy_turns = 0;
        app->throttled = false;
        return false;
    }
    int32_t quantum = greedy(loop, app) ? quanta->greedy : quanta->modest;
    cl_bucket_refill(&app->frames, loop->now);
    cl_bucket_refill(&app->bytes, loop->now);
    app->deficit = cl_min(app->deficit + quantum, quantum);
    app->throttled = false;
    loop->sent_to = 0;
    uint64_t sent_before = app->stats.tx_taken;
    bool any = poll_rings(loop, app, ready);
    bool backlogged = !app->throttled && app->deficit <= 0;
    note_turn(loop, app, backlogged);
    if (app->throttled)
        io_count(app->stats.tx_throttled, 1);
    else if (backlogged)
        io_count(app->stats.backlogged, 1);
    if (backlogged && any && has_more(app, bell->polled))
        loop->more_for |= loop->sent_to;
    if (any) {
        io_active(loop, app);
        if (cl_unlikely(app->cores.given))
            io_cores_answered(loop, app);
        /* Who only gives buffers back is the flood's receiver, and not hurt by it. */
        if (!greedy(loop, app) && app->stats.tx_taken != sent_before)
            loop->modest_until = loop->stats.rounds + SHARED_ROUNDS;
    }
    return any || backlogged; /* who is in debt for a flood has frames all the same, and does not ring for them again */
}

bool io_poll_apps(struct io_loop *loop)
{
    if (loop->n_apps == 0)
        return false;
    const struct quanta quanta = quanta_of(loop);
    bool busy = false;
    uint32_t at = loop->next_app;
    io_look_around(loop);
    for (uint32_t i = 0; i < loop->n_apps; i++) {
        const struct io_doorbell *bell = &loop->doorbells[at];
        if (cl_unlikely(io_help_rung(bell)))
            io_cores_rung(loop, loop->apps[at]);
        if (bell->polled | cl_load_relaxed(bell->rung))
            busy |= poll_app(loop, at, &quanta);
        if (++at >= loop->n_apps)
            at = 0;
    }
    if (++loop->next_app >= loop->n_apps)
        loop->next_app = 0;
    return busy;
}
