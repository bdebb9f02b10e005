/* The ARP cache as a state machine: time and messages are made up. Prints "ok". */
#include "libos/net/arp.h"
#include "libos/net/input.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000000ull

static struct cl_net_self self;
static struct cl_arp_cache *cache;
static const uint8_t mac_b[6] = {2, 0, 0, 0, 0, 0xb}, mac_c[6] = {2, 0, 0, 0, 0, 0xc};

static uint32_t ip(unsigned n)
{
    return cl_be32(0x0a000000u + n);
}

static struct cl_arp_todo say(uint16_t op, unsigned sender, const uint8_t *mac, unsigned target, uint64_t now)
{
    struct cl_arp m = {.op_be = cl_be16(op), .sender_ip_be = sender ? ip(sender) : 0, .target_ip_be = ip(target)};
    memcpy(m.sender_mac, mac, 6);
    struct cl_arp_todo todo;
    cl_arp_input(cache, &self, &m, now, &todo);
    return todo;
}

static enum cl_arp_result ask(unsigned n, uint64_t now, uint8_t mac[6], uint32_t buf, uint32_t *lost)
{
    struct cl_frame f = {.buf = buf}, evicted = {0};
    bool dropped = false;
    enum cl_arp_result r = cl_arp_lookup(cache, ip(n), now, mac, buf ? &f : NULL, &evicted, &dropped);
    *lost = dropped ? evicted.buf : 0;
    return r;
}

static void fresh(void)
{
    free(cache);
    cache = calloc(1, sizeof *cache);
    CHECK(cache);
}

static void resolves_and_keeps_the_latest(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    CHECK(ask(9, S, mac, 1, &lost) == CL_ARP_RESOLVE && !lost);
    for (uint32_t buf = 2; buf <= CL_ARP_HELD; buf++)
        CHECK(ask(9, S, mac, buf, &lost) == CL_ARP_WAIT && !lost);
    CHECK(ask(9, S, mac, CL_ARP_HELD + 1, &lost) == CL_ARP_WAIT && lost == 1);
    CHECK(cache->n_pending == 1);
    struct cl_arp_todo todo = say(CL_ARP_REPLY, 9, mac_b, 1, 2 * S);
    CHECK(todo.learned && !todo.reply && todo.n_out == CL_ARP_HELD && cl_mac_equal(todo.mac, mac_b));
    for (unsigned i = 0; i < CL_ARP_HELD; i++)
        CHECK(todo.out[i].buf == 2 + i);
    CHECK(cache->n_pending == 0 && cache->n_held == 0);
    CHECK(ask(9, 3 * S, mac, 6, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_b) && !lost);
}

/* Many neighbours that do not answer have not all buffers of the NIC. */
static void holds_only_so_many(void)
{
    uint8_t mac[6];
    uint32_t lost, buf = 1;
    struct cl_frame out;
    fresh();
    for (unsigned n = 1; n <= CL_ARP_HELD_ALL / CL_ARP_HELD; n++)
        for (unsigned i = 0; i < CL_ARP_HELD; i++, buf++)
            CHECK(ask(10 + n, S, mac, buf, &lost) != CL_ARP_FOUND && !lost);
    CHECK(ask(9, S, mac, buf, &lost) == CL_ARP_RESOLVE && lost == buf); /* it has none that could give way */
    CHECK(ask(11, S, mac, buf, &lost) == CL_ARP_WAIT && lost == 1);
    for (buf = 0; cl_arp_drain(cache, &out); buf++)
        ;
    CHECK(buf == CL_ARP_HELD_ALL && cache->n_held == 0);
}

static void refreshes_by_unicast_then_expires(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    say(CL_ARP_REQUEST, 9, mac_b, 1, S);
    CHECK(ask(9, S + CL_ARP_REFRESH_NS - 1, mac, 0, &lost) == CL_ARP_FOUND);
    CHECK(ask(9, S + CL_ARP_REFRESH_NS, mac, 0, &lost) == CL_ARP_RESOLVE_UNICAST);
    CHECK(ask(9, S + CL_ARP_REFRESH_NS + 1, mac, 0, &lost) == CL_ARP_FOUND); /* not more than once a second */
    CHECK(ask(9, S + CL_ARP_EXPIRE_NS, mac, 1, &lost) == CL_ARP_RESOLVE);
}

static void gives_up(void)
{
    uint8_t mac[6];
    uint32_t lost, resolve_be;
    struct cl_arp_todo todo;
    uint64_t now = S;
    fresh();
    CHECK(ask(9, now, mac, 7, &lost) == CL_ARP_RESOLVE);
    CHECK(!cl_arp_tick(cache, now + CL_ARP_RETRY_NS - 1, &resolve_be, &todo));
    for (unsigned i = 1; i < CL_ARP_TRIES; i++) {
        now += CL_ARP_RETRY_NS;
        CHECK(cl_arp_tick(cache, now, &resolve_be, &todo) && resolve_be == ip(9) && todo.n_out == 0);
        CHECK(!cl_arp_tick(cache, now, &resolve_be, &todo));
    }
    now += CL_ARP_RETRY_NS;
    CHECK(cl_arp_tick(cache, now, &resolve_be, &todo) && resolve_be == 0 && todo.n_out == 1 && todo.out[0].buf == 7);
    CHECK(cache->n_pending == 0 && !cl_arp_tick(cache, now, &resolve_be, &todo));
    CHECK(ask(9, now, mac, 8, &lost) == CL_ARP_RESOLVE); /* asked anew */
}

static void learns_only_what_concerns_us(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    CHECK(!say(CL_ARP_REQUEST, 9, mac_b, 5, S).learned); /* to another host */
    CHECK(ask(9, S, mac, 0, &lost) == CL_ARP_RESOLVE);
    fresh();
    struct cl_arp_todo todo = say(CL_ARP_REQUEST, 9, mac_b, 1, S);
    CHECK(todo.reply && todo.learned);
    todo = say(CL_ARP_REQUEST, 9, mac_c, 9, 2 * S); /* it announces a new MAC: known, so updated */
    CHECK(todo.learned && !todo.reply);
    CHECK(ask(9, 2 * S, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_c));
    CHECK(!say(CL_ARP_REQUEST, 0, mac_b, 1, S).learned); /* a probe has no address */
    struct cl_arp m = {.op_be = cl_be16(1), .sender_ip_be = cl_be32(0x0b000001), .target_ip_be = ip(1)};
    memcpy(m.sender_mac, mac_b, 6);
    cl_arp_input(cache, &self, &m, S, &todo); /* not of our subnet: answered, not learned */
    CHECK(todo.reply && !todo.learned);
}

/* A reply counts if there was a question, once, soon, and if it is for us: else anybody on the wire could take our
 * frames. */
static void believes_answers_only(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    struct cl_arp_todo todo = say(CL_ARP_REPLY, 9, mac_c, 1, S); /* about one that we do not know */
    CHECK(todo.unsolicited && !todo.learned && !todo.reply);
    CHECK(ask(9, S, mac, 1, &lost) == CL_ARP_RESOLVE);
    todo = say(CL_ARP_REPLY, 9, mac_c, 5, S); /* to another host */
    CHECK(todo.unsolicited && !todo.n_out);
    todo = say(CL_ARP_REPLY, 9, mac_b, 1, S);
    CHECK(todo.learned && !todo.unsolicited && todo.n_out == 1);
    for (unsigned n = 0; n < 10; n++) { /* a second answer */
        todo = say(CL_ARP_REPLY, 9, mac_c, 1, S + n);
        CHECK(todo.unsolicited && !todo.learned);
    }
    CHECK(ask(9, 2 * S, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_b));
    todo = say(CL_ARP_REPLY, 9, mac_b, 1, S + CL_ARP_REFRESH_NS - 1); /* the right one, and yet not asked for */
    CHECK(todo.unsolicited);
    uint64_t asked = S + CL_ARP_REFRESH_NS;
    CHECK(ask(9, asked, mac, 0, &lost) == CL_ARP_RESOLVE_UNICAST);
    CHECK(say(CL_ARP_REPLY, 9, mac_c, 1, asked + CL_ARP_RETRY_NS).unsolicited); /* too late */
    CHECK(ask(9, asked + CL_ARP_RETRY_NS, mac, 0, &lost) == CL_ARP_RESOLVE_UNICAST && cl_mac_equal(mac, mac_b));
    CHECK(say(CL_ARP_REPLY, 9, mac_b, 1, asked + CL_ARP_RETRY_NS).learned);
    CHECK(ask(9, asked + CL_ARP_REFRESH_NS, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_b));
}

static void static_entries_stay(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    CHECK(cl_arp_add_static(cache, ip(9), mac_b) == 0);
    say(CL_ARP_REPLY, 9, mac_c, 1, S);
    CHECK(ask(9, 1000 * S, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_b));
    CHECK(ask(10, S, mac, 1, &lost) == CL_ARP_RESOLVE);
    CHECK(cl_arp_add_static(cache, ip(10), mac_b) == -EBUSY);
}

/* A flood of forged senders: memory stays bounded, static and pending entries survive, every datagram is accounted
 * for. */
/* Another link: what is known is asked for anew, what is being asked for goes on, what is static stays. */
static void forgets(void)
{
    uint8_t mac[6];
    uint32_t lost;
    fresh();
    CHECK(ask(9, S, mac, 1, &lost) == CL_ARP_RESOLVE);
    CHECK(say(CL_ARP_REPLY, 9, mac_b, 1, S).n_out == 1);
    CHECK(ask(8, S, mac, 2, &lost) == CL_ARP_RESOLVE);
    CHECK(cl_arp_add_static(cache, ip(7), mac_c) == 0);
    uint32_t epoch = cache->epoch;
    cl_arp_forget(cache);
    CHECK(cache->epoch != epoch);
    CHECK(ask(9, S + 1, mac, 3, &lost) == CL_ARP_RESOLVE && !lost);
    CHECK(ask(8, S + 1, mac, 4, &lost) == CL_ARP_WAIT && !lost && cache->n_pending == 2);
    CHECK(ask(7, S + 1, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_c));
    struct cl_arp_todo todo = say(CL_ARP_REPLY, 9, mac_c, 1, S + 2);
    CHECK(todo.n_out == 1 && todo.out[0].buf == 3 && cl_mac_equal(todo.mac, mac_c));
}

static void flood(void)
{
    uint8_t mac[6];
    uint32_t lost, held = 0, freed = 0;
    fresh();
    CHECK(cl_arp_add_static(cache, ip(9), mac_b) == 0);
    for (unsigned n = 20; n < 5000; n++) {
        self.mask_be = cl_be32(0xffff0000);
        say(CL_ARP_REQUEST, n, mac_c, 1, n * S);
        ask(n + 10000, n * S, mac, n, &lost);
        held++;
        freed += lost != 0;
    }
    CHECK(ask(9, S, mac, 0, &lost) == CL_ARP_FOUND && cl_mac_equal(mac, mac_b));
    struct cl_frame f;
    while (cl_arp_drain(cache, &f))
        freed++;
    CHECK(held == freed && cache->n_pending == 0);
}

int main(void)
{
    cl_net_self_set(&self, (const uint8_t[6]){2, 0, 0, 0, 0, 1}, 0x0a000001, 24, 0);
    resolves_and_keeps_the_latest();
    holds_only_so_many();
    refreshes_by_unicast_then_expires();
    gives_up();
    learns_only_what_concerns_us();
    believes_answers_only();
    static_entries_stay();
    forgets();
    flood();
    free(cache);
    printf("ok\n");
    return 0;
}
