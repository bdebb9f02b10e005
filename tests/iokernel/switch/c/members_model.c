/* All interleavings of the small protocol by which members of a group come and go, around the switch's own code
 * (iokernel/switch/members.c): join, say that one is ready, take another's place, drain, leave, die, and datagrams that
 * are under way. Breadth first, every state once.
 *
 *   members_model [mistake]
 *
 * A member: JOIN, then SAY ready (the message is under way), TAKE what is in its ring, SAY draining, and LEAVE: once
 * the iokernel has answered and its ring is empty. It may DIE at any moment. The iokernel takes messages in any order;
 * that of one that replaces the others has these drain, and tells them, which they see later or never. A client sends
 * datagrams of FLOWS flows.
 *
 * What must hold, in every state:
 *   - nothing is delivered to one that is not there, or has been told that nothing comes any more (its drain was
 *     answered) while another is ready;
 *   - who leaves has an empty ring: no request is lost but those that a dead one had;
 *   - while anybody is ready, a frame is for one that is; of two states with the same who are willing each flow has the
 *     same member, and of one that comes or goes only its own flows move;
 *   - ARP reaches all, each once; the port range of a member leads to it.
 *
 * mistake: 1: a member leaves without the answer; 2: before its ring is empty; 3: a replacement that has the others
 * drain before it is ready itself and is answered. Each is found. */
#include "iokernel/switch/members.h"
#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS 3
#define FLOWS 2
#define RING 2 /* datagrams of a member under way, at most */
#define SENDS 3
#define CLIENT_IP 0x0a4d0101u
#define GROUP_IP 0x0a4d0202u

enum { ABSENT, JOINED, SAYS_READY, READY, SAYS_DRAINING, DRAINED, GONE };

struct member {
    uint8_t life;            /* one of the above, as it knows itself */
    uint8_t ready, draining; /* as the iokernel knows it */
    uint8_t asked;           /* the iokernel has told it to drain */
    uint8_t replaces;        /* its message has the others drain */
    uint8_t ring;
};

struct state {
    struct member m[MEMBERS];
    uint8_t sent;
    uint8_t own_ends; /* one has died, or drains unasked: then perhaps nobody is ready */
};

static int mistake;
static struct io_group group;
static struct io_app apps[MEMBERS];
static unsigned got[MEMBERS];

/* Where frames go, in place of deliver.c. */
void io_deliver(struct io_loop *loop, struct io_app *app, const struct io_frame *f)
{
    (void)loop;
    (void)f;
    got[app - apps]++;
}

#include "iokernel/switch/members.c"

static bool is_there(const struct member *m)
{
    return m->life != ABSENT && m->life != GONE;
}

/* Bring the group to what a state says of it, by the calls that commands make. */
static void set_up(const struct state *s)
{
    memset(&group, 0, sizeof group);
    group.key = 1;
    for (unsigned i = 0; i < MEMBERS; i++) {
        apps[i] = (struct io_app){.id = i + 1, .place = i, .group = &group};
        if (!is_there(&s->m[i]))
            continue;
        io_member_add(&apps[i]);
        if (s->m[i].ready)
            io_member_say(&apps[i], CL_MEMBER_READY);
        if (s->m[i].draining)
            io_member_say(&apps[i], CL_MEMBER_DRAINING);
    }
}

static unsigned members_there(const struct state *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        n += is_there(&s->m[i]);
    return n;
}

static void deliver(const uint8_t *frame, uint32_t len)
{
    const struct io_frame f = {.header = frame, .rest = frame, .len = len};
    memset(got, 0, sizeof got);
    io_deliver_to_group(NULL, &group, &f);
}

/* The member that gets a datagram; every one goes to exactly one. */
static unsigned receiver_of(uint16_t from_port, uint16_t to_port)
{
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
    struct cl_udp_frame f[2] = {0};
    cl_udp_headers(f, mac, mac, CLIENT_IP, GROUP_IP, from_port, to_port, 4);
    deliver((const uint8_t *)f, CL_UDP_HEADERS + 4);
    unsigned who = MEMBERS, n = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        if (got[i]) {
            who = i;
            n += got[i];
        }
    CHECK_EQ(n, 1);
    return who;
}

static unsigned willing(const struct state *s, bool *is_willing)
{
    unsigned best = 0, n = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        if (is_there(&s->m[i]))
            best = cl_max(best, 2u * s->m[i].ready + !s->m[i].draining);
    for (unsigned i = 0; i < MEMBERS; i++) {
        is_willing[i] = is_there(&s->m[i]) && 2u * s->m[i].ready + !s->m[i].draining == best;
        n += is_willing[i];
    }
    return n;
}

#define PROBES 64 /* flows whose members are compared */

/* What the switch does depends on who is there and what he has said, three bits a member: it is asked once for each. */
#define KINDS (1u << 3 * MEMBERS)

static unsigned kind_of(const struct state *s)
{
    unsigned kind = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        if (is_there(&s->m[i]))
            kind |= (1u | (unsigned)s->m[i].ready << 1 | (unsigned)s->m[i].draining << 2) << 3 * i;
    return kind;
}

static uint8_t owners[KINDS][PROBES], known[KINDS];
static uint8_t moved[KINDS][KINDS]; /* compared */

/* Who gets each flow; and what holds of a state alone. */
static const uint8_t *owners_in(const struct state *s)
{
    unsigned kind = kind_of(s);
    bool will[MEMBERS];
    if (known[kind] || !kind)
        return owners[kind];
    known[kind] = 1;
    set_up(s);
    (void)willing(s, will);
    for (unsigned flow = 0; flow < PROBES; flow++) {
        owners[kind][flow] = (uint8_t)receiver_of((uint16_t)(20000 + flow), 9000);
        CHECK(will[owners[kind][flow]], "a flow goes to one that is not willing");
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        if (is_there(&s->m[i])) {
            CHECK_EQ(receiver_of(53, (uint16_t)(CL_SHM_OWN_PORTS + i * CL_SHM_MEMBER_PORTS)), i);
            CHECK_EQ(receiver_of(53, (uint16_t)(CL_SHM_OWN_PORTS + (i + 1) * CL_SHM_MEMBER_PORTS - 1)), i);
        }
    uint8_t arp[64] = {[12] = 8, [13] = 6};
    deliver(arp, 42);
    for (unsigned i = 0; i < MEMBERS; i++)
        CHECK_EQ(got[i], is_there(&s->m[i]));
    return owners[kind];
}

/* What holds of a step: only flows of those who came to be willing, or are not any more, have moved. */
static void check_moves(const struct state *a, const struct state *b)
{
    bool before[MEMBERS], after[MEMBERS];
    unsigned from = kind_of(a), to = kind_of(b);
    const uint8_t *was = owners_in(a), *is = owners_in(b);
    if (!from || !to || moved[from][to])
        return;
    moved[from][to] = 1;
    (void)willing(a, before);
    (void)willing(b, after);
    for (unsigned flow = 0; flow < PROBES; flow++)
        if (is[flow] != was[flow])
            CHECK(!after[was[flow]] || !before[is[flow]], "a flow moved between two that were willing all the time");
}

/* Breadth first over all states. */
#define ROOM (1u << 22)
static struct state *states;
static uint32_t *slots, n_states;

static uint64_t hash_of_state(const struct state *s)
{
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ ((const uint8_t *)s)[i]) * 0x100000001b3ull;
    return io_mix(h);
}

static void add(const struct state *s)
{
    for (uint64_t at = hash_of_state(s);; at++) {
        uint32_t *slot = &slots[at & (2 * ROOM - 1)];
        if (*slot == 0) {
            CHECK(n_states < ROOM);
            states[n_states] = *s;
            *slot = ++n_states;
            return;
        }
        if (!memcmp(&states[*slot - 1], s, sizeof *s))
            return;
    }
}

static uint32_t found; /* the mistake, so often */

static void lose(const char *what)
{
    found++;
    CHECK(mistake, "%s", what);
}

/* The iokernel takes a member's message. */
static void take_message(struct state *s, unsigned i)
{
    struct member *m = &s->m[i];
    if (m->life == SAYS_READY) {
        m->life = READY;
        m->ready = 1;
        for (unsigned k = 0; k < MEMBERS && m->replaces; k++)
            if (k != i && is_there(&s->m[k]) && s->m[k].ready) {
                s->m[k].draining = 1;
                s->m[k].asked = 1;
            }
        m->replaces = 0;
    } else {
        m->life = DRAINED;
        m->draining = 1;
    }
}

static void step(const struct state *from, struct state s)
{
    check_moves(from, &s);
    add(&s);
}

/* A datagram of a flow comes. */
static void send_one(const struct state *a, unsigned flow)
{
    struct state s = *a;
    if (s.sent == SENDS || !members_there(&s))
        return;
    unsigned who = owners_in(a)[flow];
    bool other = false;
    for (unsigned i = 0; i < MEMBERS; i++)
        other |= i != who && is_there(&s.m[i]) && s.m[i].ready && !s.m[i].draining;
    CHECK(s.m[who].life != DRAINED || !other, "one that has drained gets a request beside one that is ready");
    if (s.m[who].ring < RING)
        s.m[who].ring++;
    s.sent++;
    step(a, s);
}

static void steps_of(const struct state *a, unsigned i)
{
    struct state s = *a;
    struct member *m = &s.m[i];
    if (m->life == ABSENT) {
        *m = (struct member){.life = JOINED};
        step(a, s);
    } else if (m->life == JOINED) {
        for (unsigned replaces = 0; replaces < 2; replaces++) {
            s = *a;
            m->life = SAYS_READY;
            m->replaces = (uint8_t)replaces;
            if (mistake == 3 && replaces)
                for (unsigned k = 0; k < MEMBERS; k++)
                    if (k != i && s.m[k].life == READY) {
                        s.m[k].life = DRAINED;
                        s.m[k].draining = s.m[k].asked = 1;
                    }
            step(a, s);
        }
    } else if (m->life == READY) {
        m->life = SAYS_DRAINING;
        s.own_ends |= !m->asked;
        step(a, s);
    }
    s = *a;
    if (m->life == SAYS_READY || m->life == SAYS_DRAINING) {
        take_message(&s, i);
        step(a, s);
        s = *a;
    }
    if (m->ring) {
        m->ring--;
        step(a, s);
        s = *a;
    }
    bool may_leave = m->life == DRAINED || (mistake == 1 && m->life == SAYS_DRAINING);
    if (may_leave && (m->ring == 0 || mistake == 2)) {
        if (m->ring)
            lose("a request is lost with one that left");
        /* Between its last look and the end of its attachment something may come, if it is alone, or not known to
         * drain. */
        bool known = m->draining, another = false;
        for (unsigned k = 0; k < MEMBERS; k++)
            another |= k != i && is_there(&s.m[k]) && s.m[k].ready && !s.m[k].draining;
        if (!known && another)
            lose("one leaves to whom requests still come");
        if (m->asked && !another && !a->own_ends)
            lose("nobody is ready when the last one leaves");
        *m = (struct member){.life = GONE};
        step(a, s);
        s = *a;
    }
    if (is_there(m)) {
        *m = (struct member){.life = GONE}; /* dead, with what it had */
        s.own_ends = 1;
        step(a, s);
    }
}

int main(int argc, char **argv)
{
    mistake = argc > 1 ? atoi(argv[1]) : 0;
    states = malloc(ROOM * sizeof *states);
    slots = calloc(2 * ROOM, sizeof *slots);
    CHECK(states && slots);
    struct state first = {0};
    add(&first);
    for (uint32_t at = 0; at < n_states; at++) {
        const struct state a = states[at];
        for (unsigned flow = 0; flow < FLOWS; flow++)
            send_one(&a, flow);
        for (unsigned i = 0; i < MEMBERS; i++)
            steps_of(&a, i);
    }
    printf("%u states; the mistake was found %u times\n", n_states, found);
    CHECK_EQ(found > 0, mistake > 0);
    free(states);
    free(slots);
    return 0;
}
