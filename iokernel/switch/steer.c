/* Frames that come in from uplinks and from other loops, and ARP.
 *
 * Steering: by destination MAC; under a shared MAC by IPv4 destination (or ARP target). Then the RSS hash chooses the
 * kthread (deliver.c). The iokernel answers ARP for its applications: to the outside, and to each other (switch.c).
 * Announcements (sender = target, RFC 5227) are passed on to all; other requests of strangers for strangers are dropped
 * as not ours.
 *
 * What comes from an uplink with a local source is dropped, before anything is learned from it. */
#include "kind.h"

bool io_is_arp_question(const uint8_t *header, uint32_t len)
{
    if (cl_get16(header + 12) != cl_be16(CL_ETHERTYPE_ARP) || !io_is_whole_arp(header, len))
        return false;
    const struct cl_arp *arp = io_arp_in(header);
    return arp->op_be == cl_be16(CL_ARP_REQUEST) && arp->sender_ip_be != arp->target_ip_be;
}

const struct io_app *io_arp_target(struct io_loop *loop, const uint8_t *header, uint32_t len)
{
    if (!io_is_arp_question(header, len))
        return NULL;
    return io_find(loop->by_ip, io_arp_in(header)->target_ip_be);
}

void io_arp_reply(uint8_t *reply, const uint8_t *request, uint64_t mac)
{
    const struct cl_arp *asked = io_arp_in(request);
    struct cl_eth *eth = (struct cl_eth *)reply;
    struct cl_arp arp = {.htype_be = cl_be16(1),
                         .ptype_be = cl_be16(CL_ETHERTYPE_IPV4),
                         .hlen = 6,
                         .plen = 4,
                         .op_be = cl_be16(CL_ARP_REPLY),
                         .sender_ip_be = asked->target_ip_be,
                         .target_ip_be = asked->sender_ip_be};
    io_put_mac(arp.sender_mac, mac);
    memcpy(arp.target_mac, asked->sender_mac, 6);
    memcpy(eth->dst, asked->sender_mac, 6);
    io_put_mac(eth->src, mac);
    eth->type_be = cl_be16(CL_ETHERTYPE_ARP);
    memcpy(reply + CL_ETH_HLEN, &arp, sizeof arp);
}

/* With several uplinks: remember behind which one a station is. An ARP reply, which perhaps nobody has asked for, moves
 * none to another. */
static void learn(struct io_loop *loop, const struct io_frame *f, unsigned uplink)
{
    uint64_t mac = io_mac(f->header + 6), *known = &loop->fdb[io_slot_of(mac) & (IO_FDB - 1)];
    if (mac & 1) /* group bit: no station sends from such an address */
        return;
    if (*known && *known >> 16 == mac && io_kind_of(f->header, f->len) == IO_KIND_ARP &&
        io_arp_in(f->header)->op_be == cl_be16(CL_ARP_REPLY))
        return;
    *known = mac << 16 | (uplink + 1);
}

/* Hand a unicast frame to an application, wherever it is homed. */
static bool to_app(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    if (cl_likely(app->loop == loop->index)) {
        io_deliver_found(loop, app, f);
        io_count(loop->stats.up_local, 1);
        return true;
    }
    if (!io_hand_over(loop, app->loop, f, IO_HAND_UNICAST, 0)) {
        io_count(loop->stats.up_dropped_loop_full, 1);
        return false;
    }
    io_count(loop->stats.up_remote, 1);
    return true;
}

static void flood(struct io_loop *loop, const struct io_frame *f)
{
    io_deliver_all(loop, f, NULL);
    for (uint32_t l = 0; l < loop->io->config.n_loops; l++)
        if (l != loop->index)
            io_hand_over(loop, l, f, IO_HAND_FLOOD, 0); /* as a switch: a copy that finds no room is lost */
    io_count(loop->stats.up_flooded, 1);
}

/* Whether the uplink has a frame for everybody left: each costs the loop a copy an application, whoever sends it. */
static bool may_flood(struct io_loop *loop, struct io_uplink *u)
{
    cl_bucket_refill(&u->floods, loop->now);
    bool may = cl_bucket_open(&u->floods);
    if (may)
        cl_bucket_take(&u->floods, 1);
    return may;
}

/* The application that a frame for the uplink's own MAC is for. */
static struct io_app *by_address(struct io_loop *loop, const struct io_frame *f)
{
    enum io_kind kind = io_kind_of(f->header, f->len);
    if (kind == IO_KIND_IPV4)
        return io_find(loop->by_ip, io_ipv4_target(f->header));
    return kind == IO_KIND_ARP ? io_find(loop->by_ip, io_arp_in(f->header)->target_ip_be) : NULL;
}

/* A frame under a shared MAC: the application must see its own address as destination. */
static void to_shared(struct io_loop *loop, const struct io_frame *f)
{
    struct io_app *app = by_address(loop, f);
    if (!app) {
        io_count(loop->stats.up_dropped_not_ours, 1);
        return;
    }
    uint8_t header[IO_HEADER];
    memcpy(header, f->header, cl_min(f->len, (uint32_t)IO_HEADER));
    io_put_mac(header, app->mac);
    if (cl_get16(header + 12) == cl_be16(CL_ETHERTYPE_ARP))
        io_put_mac(header + CL_ETH_HLEN + offsetof(struct cl_arp, target_mac), app->mac);
    struct io_frame own = *f;
    own.header = header;
    to_app(loop, app, &own);
}

/* Anything but a unicast frame for a local application's MAC. */
static void steer_rest(struct io_loop *loop, unsigned uplink, const struct io_frame *f, uint64_t dst)
{
    struct io_uplink *u = &loop->uplinks[uplink];
    const struct io_app *target = io_arp_target(loop, f->header, f->len);
    if (target && ((dst & 1) || (u->share_mac && dst == u->mac))) {
        uint8_t reply[IO_HEADER];
        io_arp_reply(reply, f->header, u->share_mac ? u->mac : target->mac);
        struct io_frame answer = {
            .header = reply, .rest = reply, .len = CL_ETH_HLEN + sizeof(struct cl_arp), .hash = 1};
        if (!u->has_tx)
            io_hand_over(loop, u->tx_queue, &answer, IO_HAND_UPLINK, uplink);
        else
            io_to_uplink(loop, uplink, &answer, NULL);
        io_count(loop->stats.up_answered, 1);
        return;
    }
    if (dst & 1) {
        if (io_is_arp_question(f->header, f->len))
            io_count(loop->stats.up_dropped_not_ours, 1);
        else if (may_flood(loop, u))
            flood(loop, f);
        else
            io_count(loop->stats.up_dropped_flood, 1);
        return;
    }
    if (u->share_mac && dst == u->mac)
        to_shared(loop, f);
    else
        io_count(loop->stats.up_dropped_not_ours, 1);
}

/* Whether a MAC address is one under which our own frames leave: an application's, or an uplink's that they share. */
static inline bool is_our_mac(const struct io_loop *loop, uint64_t mac)
{
    if (io_find(loop->by_mac, mac))
        return true;
    for (uint32_t i = 0; loop->shares_mac && i < loop->n_uplinks; i++)
        if (loop->uplinks[i].share_mac && loop->uplinks[i].mac == mac)
            return true;
    return false;
}

/* Whether a frame from outside is whole, and claims no local address. Whoever is local sends through us, so what comes
 * from a wire is never believed about what is local: it would be answered to somebody who has not asked, or take what
 * is meant for him. Counts the reason if not. */
static CL_NOINLINE bool check_claims(struct io_loop *loop, const struct io_frame *f)
{
    enum io_kind kind = io_kind_of(f->header, f->len);
    bool ours = is_our_mac(loop, io_mac(f->header + 6));
    if (kind == IO_KIND_IPV4) {
        ours |= io_find(loop->by_ip, io_ipv4_source(f->header)) != NULL;
    } else if (kind == IO_KIND_ARP) {
        const struct cl_arp *arp = io_arp_in(f->header);
        ours |= is_our_mac(loop, io_mac(arp->sender_mac)) || io_find(loop->by_ip, arp->sender_ip_be) != NULL;
    } else if (kind == IO_KIND_BROKEN && !ours) {
        io_count(loop->stats.up_dropped_malformed, 1);
        return false;
    }
    if (!ours && kind != IO_KIND_TAGGED)
        return true;
    io_count(loop->stats.up_dropped_spoofed, 1);
    return false;
}

/* The same, and soon done for an IPv4 packet where nobody has an address of that hash. */
static inline bool may_come_in(struct io_loop *loop, const struct io_frame *f)
{
    if (cl_likely(io_is_whole_ipv4(f->header, f->len) && !loop->shares_mac &&
                  !loop->by_mac[io_slot_of(io_mac(f->header + 6))].app &&
                  !loop->by_ip[io_slot_of(io_ipv4_source(f->header))].app))
        return true;
    return check_claims(loop, f);
}

static CL_HOT void steer_burst(struct io_loop *loop, unsigned uplink, const struct cl_frame *frames, unsigned n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < cl_min(n, 4u); i++)
        cl_prefetch(frames[i].data);
    for (unsigned i = 0; i < n; i++) {
        if (i + 4 < n)
            cl_prefetch(frames[i + 4].data);
        const struct io_frame f = {
            .header = frames[i].data, .rest = frames[i].data, .len = frames[i].len, .hash = frames[i].hash};
        bytes += f.len;
        if (cl_unlikely(f.len < CL_ETH_HLEN || f.len > loop->mtu_frame)) {
            io_count(loop->stats.up_dropped_malformed, 1);
            continue;
        }
        if (cl_unlikely(!may_come_in(loop, &f)))
            continue;
        if (cl_unlikely(loop->n_uplinks > 1))
            learn(loop, &f, uplink);
        uint64_t dst = io_mac(f.header);
        struct io_app *app = io_find(loop->by_mac, dst);
        if (cl_likely(app != NULL))
            to_app(loop, app, &f);
        else
            steer_rest(loop, uplink, &f, dst);
    }
    io_count(loop->stats.up_received, n);
    io_count(loop->stats.up_bytes, bytes);
}

bool io_poll_uplinks(struct io_loop *loop)
{
    struct cl_frame frames[IO_UPLINK_BURST];
    bool busy = false;
    for (uint32_t i = 0; i < loop->n_uplinks; i++) {
        struct cl_nic *nic = loop->uplinks[i].nic;
        for (uint32_t q = loop->index; q < nic->n_queues; q += loop->io->config.n_loops) {
            unsigned n = nic->ops->rx_burst(nic, q, frames, IO_UPLINK_BURST);
            if (n == 0)
                continue;
            steer_burst(loop, i, frames, n);
            nic->ops->free(nic, q, frames, n);
            busy = true;
        }
    }
    return busy;
}

/* A frame that another loop handed over; it decided what kind it is. */
static void take_over(struct io_loop *loop, const struct io_frame *f, unsigned kind, unsigned uplink)
{
    if (kind == IO_HAND_UPLINK) {
        io_to_uplink(loop, uplink, f, NULL);
    } else if (kind == IO_HAND_FLOOD) {
        io_deliver_all(loop, f, NULL);
    } else {
        struct io_app *app = io_find(loop->by_mac, io_mac(f->header));
        if (app && app->loop == loop->index)
            io_deliver_found(loop, app, f);
        else
            io_count(loop->stats.loop_in_gone, 1);
    }
}

bool io_poll_handovers(struct io_loop *loop)
{
    bool busy = false;
    for (uint32_t l = 0; l < loop->io->config.n_loops; l++) {
        struct io_handover *h = loop->in[l];
        if (!h || !cl_ring_ready(&h->rx))
            continue;
        struct cl_desc d[IO_BURST];
        uint32_t at = h->rx.head;
        unsigned n = cl_ring_pop(&h->rx, d, IO_BURST);
        for (unsigned i = 0; i < n; i++) {
            const uint8_t *data = h->frames + (size_t)((at + i) & (IO_HANDOVER_SLOTS - 1)) * h->stride;
            const struct io_frame f = {
                .header = data, .rest = data, .len = (uint32_t)d[i].word, .hash = (uint32_t)d[i].payload};
            take_over(loop, &f, (d[i].word >> 32) & 0xff, (d[i].word >> 40) & 0xff);
        }
        cl_ring_publish(&h->rx); /* after the frames, which lie in the slots' own buffers, have been copied */
        io_count(loop->stats.loop_in, n);
        busy = true;
    }
    return busy;
}
