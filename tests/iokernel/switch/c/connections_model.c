/* All interleavings by which a TCP connection keeps its member while members of its group come and go, around the
 * switch's own code (iokernel/switch/members.c). Breadth first, every state once.
 *
 *   connections_model [mistake]
 *
 * One client, one flow. It sends its SYN, twice perhaps; the answer of whichever member it takes first makes the
 * connection that member's; then it sends segments. Members JOIN, say that they are ready, DRAIN, LEAVE when they drain
 * and have neither a connection nor a segment in a ring, and DIE at any moment, with what they have. Segments wait in
 * rings meanwhile, and are taken in any order. What a member does with one is what libos does (libos/net/receive.c,
 * libos/net/tcp/arrive.c and turns.c): it takes what is of its connection, answers a SYN, and sends back what it knows
 * nothing of, if it is asked; else it resets it.
 *
 * What must hold:
 *   - no segment is reset while the member lives whose answer to its SYN the client has taken;
 *   - a segment makes at most one hop for each member, and one more;
 *   - only what was asked about is handed on.
 *
 * mistake: 1: the switch forgets who had a slot before; 2: a member resets what it knows nothing of, though it is
 * asked; 3: one that has answered the SYN, too, resets the acknowledgement of the other's answer. Each is found. */
#include "iokernel/switch/members.h"
#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS 3
#define JOINS 4 /* one takes the place of one that has gone */
#define SYNS 2
#define SEGMENTS 2 /* of the connection, sent in all */
#define UNDER_WAY 3
#define CLIENT_IP 0x0a4d0101u
#define GROUP_IP 0x0a4d0202u
#define CLIENT_PORT 20000
#define GROUP_PORT 9000

static const uint8_t client_mac[6] = {2, 0, 0, 0, 0, 1}, group_mac[6] = {2, 0, 0, 0, 0, 2};

enum { NO_SEGMENT, SYN, SEGMENT };

struct member {
    uint8_t here, ready, draining;
    uint8_t answered; /* the SYN: it has a connection of the flow, the client's or one that the client never takes */
};

/* A segment in a ring. */
struct waiting {
    uint8_t kind, at;
    uint16_t asked;
};

struct state {
    struct member m[MEMBERS];
    struct waiting w[UNDER_WAY];
    uint8_t joins, syns, segments;
    uint8_t holder; /* + 1: the member whose answer the client has taken, while that lives; 0: nobody */
    uint8_t slot;   /* the member that has the flow's slot; those that had it before */
    uint16_t before;
};

static int mistake;
static uint32_t found; /* the mistake, so often */
static struct io_group group;
static struct io_app apps[MEMBERS];
static struct io_asking asking[MEMBERS][1];
static uint8_t lent[MEMBERS][1];
static uint32_t the_slot;
static uint8_t frame[64]; /* the client's segment: who gets it does not depend on what it says */

/* Where the last frame went, in place of deliver.c. */
static struct waiting got;
static unsigned n_got;

void io_deliver(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    (void)loop;
    got = (struct waiting){.at = (uint8_t)(app - apps), .asked = f->asked};
    n_got++;
}

#include "iokernel/switch/members.c"

static void write_frame(uint8_t *to)
{
    struct cl_udp_frame f = {0};
    cl_udp_headers(&f, client_mac, group_mac, CLIENT_IP, GROUP_IP, CLIENT_PORT, GROUP_PORT, 12);
    memcpy(to, &f, CL_UDP_HEADERS);
    ((struct cl_ipv4 *)(to + CL_ETH_HLEN))->proto = CL_IPPROTO_TCP; /* ports are at the same place */
}

static struct io_frame as_frame(const uint8_t *bytes)
{
    return (struct io_frame){.header = bytes, .rest = bytes, .len = 54};
}

static void make_apps(void)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        apps[i] = (struct io_app){
            .id = i + 1, .place = i, .group = &group, .mac = io_mac(group_mac), .ip_be = cl_be32(GROUP_IP)};
        apps[i].asking = asking[i];
        apps[i].lent = lent[i];
    }
}

/* What the slots are depends on who is there and what he has said, three bits a member: they are dealt once for
 * each. */
static struct io_group dealt[1u << 3 * MEMBERS];

static void deal_by_calls(const struct state *s)
{
    group = (struct io_group){.key = 1};
    for (unsigned i = 0; i < MEMBERS; i++) {
        apps[i].ready = apps[i].draining = false;
        if (!s->m[i].here)
            continue;
        io_member_add(&apps[i]);
        if (s->m[i].ready)
            io_member_say(&apps[i], CL_MEMBER_READY);
        if (s->m[i].draining)
            io_member_say(&apps[i], CL_MEMBER_DRAINING);
    }
}

static unsigned kind_of(const struct state *s)
{
    unsigned kind = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        kind |= (s->m[i].here | (unsigned)s->m[i].ready << 1 | (unsigned)s->m[i].draining << 2) << 3 * i;
    return kind;
}

/* Bring the group to what a state says of it. Its slots are dealt by the calls that commands make; but who has had the
 * flow's slot is history. */
static void set_up(const struct state *s)
{
    unsigned kind = kind_of(s);
    if (!dealt[kind].key) {
        deal_by_calls(s);
        dealt[kind] = group;
    }
    group = dealt[kind];
    for (unsigned i = 0; i < MEMBERS; i++) {
        apps[i].ready = s->m[i].ready;
        apps[i].draining = s->m[i].draining;
    }
    group.slots[the_slot] = s->slot;
    group.before[the_slot] = s->before;
}

/* Member i is added (JOINED), says something, or is removed (GONE). What comes of the flow's slot depends on the
 * members and on what it was: it is found out once for each. */
#define GONE 3
static struct {
    uint8_t known, slot;
    uint16_t before;
} changed[1u << 3 * MEMBERS][MEMBERS][GONE + 1][MEMBERS][1u << MEMBERS];

static void change_slot(struct state *s, unsigned i, unsigned what)
{
    __typeof__(changed[0][0][0][0][0]) *c = &changed[kind_of(s)][i][what][s->slot][s->before];
    if (!c->known) {
        set_up(s);
        if (what == GONE)
            io_member_remove(&apps[i]);
        else if (what == CL_MEMBER_JOINED)
            io_member_add(&apps[i]);
        else
            io_member_say(&apps[i], what);
        c->known = 1;
        c->slot = group.slots[the_slot];
        c->before = group.before[the_slot];
    }
    s->slot = c->slot;
    s->before = mistake == 1 ? 0 : c->before;
}

#define ROOM (1u << 22)
static struct state *states;
static uint32_t *table, n_states;

static uint64_t hash_of_state(const struct state *s)
{
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ ((const uint8_t *)s)[i]) * 0x100000001b3ull;
    return io_mix(h);
}

static int in_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct waiting));
}

static void add(struct state s)
{
    qsort(s.w, UNDER_WAY, sizeof s.w[0], in_order); /* they are taken in any order */
    for (uint64_t at = hash_of_state(&s);; at++) {
        uint32_t *place = &table[at & (2 * ROOM - 1)];
        if (*place == 0) {
            CHECK(n_states < ROOM);
            states[n_states] = s;
            *place = ++n_states;
            return;
        }
        if (!memcmp(&states[*place - 1], &s, sizeof s))
            return;
    }
}

static struct waiting *free_place(struct state *s)
{
    for (unsigned i = 0; i < UNDER_WAY; i++)
        if (s->w[i].kind == NO_SEGMENT)
            return &s->w[i];
    return NULL;
}

static void send_one(struct state s, uint8_t kind)
{
    struct waiting *w = free_place(&s);
    if (!w)
        return;
    set_up(&s);
    const struct io_frame f = as_frame(frame);
    n_got = 0;
    io_deliver_to_group(NULL, &group, &f);
    CHECK_EQ(n_got, 1);
    CHECK(s.m[got.at].here, "it goes to one that is not here");
    *w = got;
    w->kind = kind;
    add(s);
}

static void lose(const char *what)
{
    found++;
    CHECK(mistake, "%s", what);
}

static void hand_on(struct state s, unsigned which)
{
    struct waiting *w = &s.w[which];
    const struct io_frame f = as_frame(frame);
    unsigned at = w->at;
    struct io_frame asked_about = f;
    asked_about.asked = w->asked;
    set_up(&s);
    io_note_asking(&apps[at], 0, &asked_about);
    n_got = 0;
    CHECK(io_hand_on(NULL, &apps[at], 0, &f), "it is what was asked about");
    CHECK_EQ(n_got, 1);
    CHECK(s.m[got.at].here);
    CHECK(got.asked == 0 || (got.asked & w->asked) == w->asked, "somebody is forgotten");
    CHECK(got.asked == 0 || !(w->asked >> got.at & 1), "a member is asked again");
    CHECK(got.asked != w->asked);
    got.kind = w->kind;
    *w = got;
    add(s);
}

/* A member takes a segment out of its ring. */
static void take(const struct state *a, unsigned which)
{
    struct state s = *a;
    const struct waiting w = s.w[which];
    struct member *m = &s.m[w.at];
    bool knows = s.holder == w.at + 1, is_asked = w.asked && mistake != 2;
    s.w[which] = (struct waiting){0};
    if (w.kind == SYN) { /* whoever gets one answers it: nobody who listens hands it on */
        m->answered = 1;
        add(s);
    } else if (knows) {
        add(s);
    } else if (is_asked && !(mistake == 3 && m->answered)) {
        hand_on(*a, which);
    } else {
        if (s.holder)
            lose("a segment is reset whose connection lives");
        m->answered = 0;
        add(s);
    }
}

static void change(struct state s, unsigned i, unsigned what)
{
    struct member *m = &s.m[i];
    change_slot(&s, i, what);
    if (what == GONE) {
        *m = (struct member){0};
        for (unsigned k = 0; k < UNDER_WAY; k++)
            if (s.w[k].kind && s.w[k].at == i)
                s.w[k] = (struct waiting){0};
        if (s.holder == i + 1)
            s.holder = 0;
    } else if (what == CL_MEMBER_JOINED) {
        m->here = 1;
        s.joins++;
    } else {
        m->ready |= what == CL_MEMBER_READY;
        m->draining = what == CL_MEMBER_DRAINING;
    }
    add(s);
}

static void steps_of(const struct state *a, unsigned i)
{
    const struct member *m = &a->m[i];
    bool waits = false;
    if (!m->here) {
        if (a->joins < JOINS)
            change(*a, i, CL_MEMBER_JOINED);
        return;
    }
    for (unsigned k = 0; k < UNDER_WAY; k++)
        waits |= a->w[k].kind && a->w[k].at == i;
    if (!m->ready)
        change(*a, i, CL_MEMBER_READY);
    else if (!m->draining)
        change(*a, i, CL_MEMBER_DRAINING);
    change(*a, i, GONE); /* it dies; or leaves, which is the same for the switch */
    if (m->answered && !a->holder && a->segments == 0) {
        struct state s = *a;
        s.holder = (uint8_t)(i + 1); /* its answer comes, and the client takes it */
        add(s);
    }
}

static void check_changed(unsigned at, uint8_t value)
{
    uint8_t changed[64];
    memcpy(changed, frame, sizeof changed);
    changed[at] ^= value;
    const struct io_frame f = as_frame(changed);
    n_got = 0;
    CHECK(!io_hand_on(NULL, &apps[0], 0, &f), "byte %u is another", at);
    CHECK_EQ(n_got, 0);
}

/* A member hands on what it was asked about, and nothing else. */
static void check_refusals(void)
{
    struct state s = {.m = {{1, 1, 0, 0}, {1, 1, 0, 0}}, .slot = 0, .before = 2};
    struct io_frame f = as_frame(frame);
    set_up(&s);
    f.asked = 1;
    io_note_asking(&apps[0], 0, &f);
    CHECK_EQ(lent[0][0], IO_LENT_ASKS);
    for (unsigned at = 0; at < 14; at++) /* MACs and type */
        check_changed(at, 1);
    check_changed(CL_ETH_HLEN + offsetof(struct cl_ipv4, proto), CL_IPPROTO_TCP ^ CL_IPPROTO_UDP);
    for (unsigned at = offsetof(struct cl_ipv4, src_be); at < CL_IPV4_HLEN + 4; at++) /* addresses and ports */
        check_changed(CL_ETH_HLEN + at, 1);
    f.asked = 0;
    CHECK(io_hand_on(NULL, &apps[0], 0, &f));
    CHECK(got.at == 1 && got.asked == 3);
    CHECK_EQ(apps[0].stats.tx_handed_on, 1);
}

int main(int argc, char **argv)
{
    mistake = argc > 1 ? atoi(argv[1]) : 0;
    states = malloc(ROOM * sizeof *states);
    table = calloc(2 * ROOM, sizeof *table);
    CHECK(states && table);
    write_frame(frame);
    group.key = 1;
    const struct io_flow flow = io_flow_of(&group, frame, 54);
    CHECK(flow.tcp);
    make_apps();
    the_slot = slot_of(&flow);
    check_refusals();
    struct state first = {0};
    add(first);
    for (uint32_t at = 0; at < n_states && !found; at++) {
        const struct state a = states[at];
        unsigned here = 0;
        for (unsigned i = 0; i < MEMBERS; i++) {
            here += a.m[i].here;
            steps_of(&a, i);
        }
        for (unsigned k = 0; k < UNDER_WAY; k++)
            if (a.w[k].kind)
                take(&a, k);
        struct state s = a;
        if (here && s.syns < SYNS) {
            s.syns++;
            send_one(s, SYN);
        }
        s = a;
        if (here && s.holder && s.segments < SEGMENTS) {
            s.segments++;
            send_one(s, SEGMENT);
        }
    }
    printf("%u states%s\n", n_states, found ? ", and the mistake" : "");
    CHECK_EQ(found > 0, mistake > 0);
    free(states);
    free(table);
    return 0;
}
