/* The ARP cache: a 4-way set-associative table and its retries. */
#include "arp.h"
#include <errno.h>

unsigned cl_arp_check(const uint8_t *message, unsigned len)
{
    const struct cl_arp *arp = (const struct cl_arp *)message;
    if (len < sizeof *arp || arp->htype_be != cl_be16(1) || arp->ptype_be != cl_be16(CL_ETHERTYPE_IPV4) ||
        arp->hlen != 6 || arp->plen != 4)
        return CL_DROP_ARP_MALFORMED;
    if (arp->op_be != cl_be16(CL_ARP_REQUEST) && arp->op_be != cl_be16(CL_ARP_REPLY))
        return CL_DROP_ARP_MALFORMED;
    uint32_t sender = cl_be32(arp->sender_ip_be);
    static const uint8_t zero[6];
    /* Sender address 0 is a probe (RFC 5227) and fine; no host is 127/8, a group, or reserved. */
    if (cl_mac_is_group(arp->sender_mac) || cl_mac_equal(arp->sender_mac, zero) || sender >= 0xe0000000u ||
        sender >> 24 == 127)
        return CL_DROP_ARP_MALFORMED;
    return CL_DROP_NONE;
}

static struct cl_arp_entry *set_of(struct cl_arp_cache *cache, uint32_t ip_be)
{
    return &cache->entries[((ip_be * 0x9e3779b1u) >> 26) * CL_ARP_WAYS];
}

static struct cl_arp_entry *find(struct cl_arp_cache *cache, uint32_t ip_be)
{
    struct cl_arp_entry *set = set_of(cache, ip_be);
    for (unsigned i = 0; i < CL_ARP_WAYS; i++)
        if (set[i].state != CL_ARP_FREE && set[i].ip_be == ip_be)
            return &set[i];
    return NULL;
}

/* A place for a new entry: free, else the known one confirmed longest ago. NULL: all static, or waiting for answers. */
static struct cl_arp_entry *place(struct cl_arp_cache *cache, uint32_t ip_be)
{
    struct cl_arp_entry *set = set_of(cache, ip_be), *best = NULL;
    for (unsigned i = 0; i < CL_ARP_WAYS; i++) {
        if (set[i].state == CL_ARP_FREE)
            return &set[i];
        if (set[i].state == CL_ARP_KNOWN && (!best || set[i].confirmed_ns < best->confirmed_ns))
            best = &set[i];
    }
    return best;
}

/* Release: a kthread that sees the new epoch must not go on using the mapping it remembered. */
static void bump(struct cl_arp_cache *cache)
{
    __atomic_fetch_add(&cache->epoch, 1, __ATOMIC_RELEASE);
}

/* The frames that wait for an entry are the caller's. */
static void take_held(struct cl_arp_cache *cache, struct cl_arp_entry *e, struct cl_arp_todo *todo)
{
    todo->n_out = e->n_held;
    memcpy(todo->out, e->held, e->n_held * sizeof e->held[0]);
    cache->n_held -= e->n_held;
    e->n_held = 0;
}

static void confirm(struct cl_arp_cache *cache, struct cl_arp_entry *e, const uint8_t *mac, uint64_t now_ns,
                    struct cl_arp_todo *todo)
{
    if (e->state == CL_ARP_PENDING) {
        cl_count(&cache->n_pending, -1u);
        take_held(cache, e, todo);
        memcpy(todo->mac, mac, 6);
    }
    if (e->state != CL_ARP_KNOWN || !cl_mac_equal(e->mac, mac))
        bump(cache);
    e->state = CL_ARP_KNOWN;
    memcpy(e->mac, mac, 6);
    e->tries = 0;
    e->confirmed_ns = now_ns;
    todo->learned = true;
}

/* Whether we wait for an answer about this entry. Only the first one counts, and only soon after the question: a reply
 * that nobody asked for would let anybody on the wire take our frames. */
static bool is_asked_about(const struct cl_arp_entry *e, uint64_t now_ns)
{
    return e && (e->state == CL_ARP_PENDING || (e->tries && now_ns - e->asked_ns < CL_ARP_RETRY_NS));
}

void cl_arp_input(struct cl_arp_cache *cache, const struct cl_net_self *self, const struct cl_arp *arp, uint64_t now_ns,
                  struct cl_arp_todo *todo)
{
    *todo = (struct cl_arp_todo){0};
    uint32_t sender_be = arp->sender_ip_be;
    bool for_us = arp->target_ip_be == self->ip_be && self->ip_be != 0;
    cl_spin_lock(&cache->lock);
    if (sender_be == self->ip_be && sender_be != 0) {
        if (!cl_mac_equal(arp->sender_mac, self->mac)) {
            todo->conflict = true;
            if (now_ns - cache->defended_ns >= CL_ARP_DEFEND_NS || cache->defended_ns == 0) {
                cache->defended_ns = now_ns;
                todo->announce = true;
            }
        }
    } else if (arp->op_be == cl_be16(CL_ARP_REPLY)) {
        struct cl_arp_entry *e = find(cache, sender_be);
        todo->unsolicited = !for_us || !is_asked_about(e, now_ns);
        if (!todo->unsolicited)
            confirm(cache, e, arp->sender_mac, now_ns, todo);
    } else if (sender_be != 0) {
        struct cl_arp_entry *e = find(cache, sender_be);
        bool near = ((sender_be ^ self->ip_be) & self->mask_be) == 0;
        if (!e && for_us && near && (e = place(cache, sender_be))) {
            *e = (struct cl_arp_entry){.ip_be = sender_be, .state = CL_ARP_KNOWN};
            bump(cache); /* the evicted mapping, if any, is gone */
        }
        if (e && e->state != CL_ARP_STATIC)
            confirm(cache, e, arp->sender_mac, now_ns, todo);
    }
    todo->reply = for_us && !todo->conflict && arp->op_be == cl_be16(CL_ARP_REQUEST);
    cl_spin_unlock(&cache->lock);
}

/* Let a frame wait; the neighbour's oldest gives way (RFC 1122, section 2.3.2.2: keep at least the latest), or the
 * frame, if too many wait for others. */
static void hold(struct cl_arp_cache *cache, struct cl_arp_entry *e, const struct cl_frame *held,
                 struct cl_frame *evicted, bool *dropped)
{
    if (e->n_held == CL_ARP_HELD || cache->n_held == CL_ARP_HELD_ALL) {
        *dropped = true;
        *evicted = e->n_held ? e->held[0] : *held;
        if (e->n_held == 0)
            return;
        memmove(e->held, e->held + 1, (e->n_held - 1u) * sizeof e->held[0]);
        e->n_held--;
        cache->n_held--;
    }
    e->held[e->n_held++] = *held;
    cache->n_held++;
}

enum cl_arp_result cl_arp_lookup(struct cl_arp_cache *cache, uint32_t ip_be, uint64_t now_ns, uint8_t mac[6],
                                 const struct cl_frame *held, struct cl_frame *evicted, bool *dropped)
{
    enum cl_arp_result result = CL_ARP_WAIT;
    *dropped = false;
    cl_spin_lock(&cache->lock);
    struct cl_arp_entry *e = find(cache, ip_be);
    uint64_t age_ns = e ? now_ns - e->confirmed_ns : 0;
    if (e && (e->state == CL_ARP_STATIC || (e->state == CL_ARP_KNOWN && age_ns < CL_ARP_EXPIRE_NS))) {
        memcpy(mac, e->mac, 6);
        result = CL_ARP_FOUND;
        if (e->state == CL_ARP_KNOWN && age_ns >= CL_ARP_REFRESH_NS && now_ns - e->asked_ns >= CL_ARP_RETRY_NS) {
            e->asked_ns = now_ns;
            e->tries = 1;
            result = CL_ARP_RESOLVE_UNICAST;
        }
        goto out;
    }
    if (!e || e->state == CL_ARP_KNOWN) {
        if (!e && !(e = place(cache, ip_be))) { /* a set full of unanswered questions: refuse this one */
            if (held) {
                *evicted = *held;
                *dropped = true;
            }
            goto out;
        }
        *e = (struct cl_arp_entry){
            .ip_be = ip_be, .state = CL_ARP_PENDING, .tries = 1, .confirmed_ns = now_ns, .asked_ns = now_ns};
        cl_count(&cache->n_pending, 1u);
        bump(cache);
        result = CL_ARP_RESOLVE;
    }
    if (held)
        hold(cache, e, held, evicted, dropped);
out:
    cl_spin_unlock(&cache->lock);
    return result;
}

bool cl_arp_tick(struct cl_arp_cache *cache, uint64_t now_ns, uint32_t *resolve_be, struct cl_arp_todo *todo)
{
    *todo = (struct cl_arp_todo){0};
    *resolve_be = 0;
    bool found = false;
    cl_spin_lock(&cache->lock);
    for (unsigned i = 0; cache->n_pending && !found && i < CL_ARP_SETS * CL_ARP_WAYS; i++) {
        struct cl_arp_entry *e = &cache->entries[i];
        if (e->state != CL_ARP_PENDING || now_ns - e->asked_ns < CL_ARP_RETRY_NS)
            continue;
        found = true;
        if (e->tries < CL_ARP_TRIES) {
            e->tries++;
            e->asked_ns = now_ns;
            *resolve_be = e->ip_be;
        } else {
            take_held(cache, e, todo);
            e->state = CL_ARP_FREE;
            cl_count(&cache->n_pending, -1u);
        }
    }
    cl_spin_unlock(&cache->lock);
    return found;
}

int cl_arp_add_static(struct cl_arp_cache *cache, uint32_t ip_be, const uint8_t mac[6])
{
    int rc = -ENOSPC;
    cl_spin_lock(&cache->lock);
    struct cl_arp_entry *e = find(cache, ip_be);
    if (e && e->state == CL_ARP_PENDING) {
        rc = -EBUSY;
    } else if (e || (e = place(cache, ip_be))) {
        *e = (struct cl_arp_entry){.ip_be = ip_be, .state = CL_ARP_STATIC};
        memcpy(e->mac, mac, 6);
        bump(cache);
        rc = 0;
    }
    cl_spin_unlock(&cache->lock);
    return rc;
}

void cl_arp_forget(struct cl_arp_cache *cache)
{
    cl_spin_lock(&cache->lock);
    for (unsigned i = 0; i < CL_ARP_SETS * CL_ARP_WAYS; i++)
        if (cache->entries[i].state == CL_ARP_KNOWN) /* for which nothing waits */
            cache->entries[i].state = CL_ARP_FREE;
    bump(cache);
    cl_spin_unlock(&cache->lock);
}

bool cl_arp_drain(struct cl_arp_cache *cache, struct cl_frame *out)
{
    bool found = false;
    cl_spin_lock(&cache->lock);
    for (unsigned i = 0; !found && i < CL_ARP_SETS * CL_ARP_WAYS; i++) {
        struct cl_arp_entry *e = &cache->entries[i];
        if (e->n_held) {
            *out = e->held[--e->n_held];
            cache->n_held--;
            found = true;
        } else if (e->state == CL_ARP_PENDING) {
            e->state = CL_ARP_FREE;
            cl_count(&cache->n_pending, -1u);
        }
    }
    cl_spin_unlock(&cache->lock);
    return found;
}

void cl_arp_fill(const struct cl_net_self *self, uint8_t *frame, uint16_t op, const uint8_t *eth_dst,
                 const uint8_t *target_mac, uint32_t target_ip_be)
{
    cl_eth_fill((struct cl_eth *)frame, eth_dst, self->mac, CL_ETHERTYPE_ARP);
    struct cl_arp *arp = (struct cl_arp *)(frame + CL_ETH_HLEN);
    *arp = (struct cl_arp){.htype_be = cl_be16(1),
                           .ptype_be = cl_be16(CL_ETHERTYPE_IPV4),
                           .hlen = 6,
                           .plen = 4,
                           .op_be = cl_be16(op),
                           .sender_ip_be = self->ip_be,
                           .target_ip_be = target_ip_be};
    memcpy(arp->sender_mac, self->mac, 6);
    memcpy(arp->target_mac, target_mac, 6);
}
