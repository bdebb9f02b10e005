/* Two channels and a network between them that loses, doubles, reorders, delays and corrupts datagrams, on a virtual
 * clock; either side dies and comes again. What lasts arrives at most once in all incarnations, whole, and exactly once
 * where neither side gave it up. Usage: channel lossy SEED SEEDS | channel overtaken | channel again | channel wide |
 * channel probed | channel reorders | channel steady | channel begun | channel idle | channel slow | channel cut |
 * channel mended | channel reborn */
#include "apps/raft/core/bytes.h"
#include "apps/raft/transport/channel.h"
#include "drivers/random.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: seed %lu: %s: ", __FILE__, __LINE__, seed, #condition);                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define MS 1000000ull
#define MTU_MOST 1500
#define FRAME_MAX 2000 /* but of `mended` */
#define FRAME_MOST 16384
#define FLYING 8192
#define MESSAGES 60000

struct datagram {
    uint64_t at_ns, number; /* those of one time arrive as they were sent */
    uint32_t bytes;
    uint8_t to, data[MTU_MOST];
};

struct message {
    uint32_t bytes, incarnation, arrived;
    uint8_t from, lasting, refused;
    uint64_t dropped; /* what the sender had dropped when it was sent */
};

static uint64_t seed, now_ns;
static struct cl_random draw;
static struct raft_channel sides[2];
static uint32_t lives[2], mtu = 300, frame_max = FRAME_MAX;
static struct datagram flying[FLYING];
static uint32_t n_flying, n_messages;
static struct message messages[MESSAGES];
static uint64_t sent_datagrams, lost_next; /* lost_next: bit i: lose the i-th datagram from now on */

static struct {
    uint32_t loss, duplicate, late, corrupt; /* in 1000 */
    uint64_t base_ns, spread_ns, late_ns;
    bool cut;
} wire;

static bool chance(uint32_t per_mille)
{
    return cl_random_below(&draw, 1000) < per_mille;
}

static void fly(uint8_t to, const uint8_t *data, uint32_t bytes)
{
    bool lost = lost_next & 1;
    lost_next >>= 1;
    if (lost || wire.cut || chance(wire.loss) || n_flying == FLYING)
        return;
    struct datagram *d = &flying[n_flying++];
    d->at_ns = now_ns + wire.base_ns + (wire.spread_ns ? cl_random_below(&draw, wire.spread_ns) : 0);
    if (chance(wire.late))
        d->at_ns += cl_random_below(&draw, wire.late_ns);
    d->number = sent_datagrams;
    d->to = to;
    d->bytes = bytes;
    memcpy(d->data, data, bytes);
    if (chance(wire.corrupt)) /* the header: UDP's checksum and the frame's CRC are for the rest */
        d->data[cl_random_below(&draw, RAFT_CHANNEL_HEADER)] ^= (uint8_t)(1u << cl_random_below(&draw, 8));
}

static int64_t out(void *arg, uint32_t index, const uint8_t *data, uint32_t bytes)
{
    uint8_t to = arg == &sides[0] ? 1 : 0;
    CHECK(index == 0 && bytes <= mtu - 28, "%u bytes to %u", bytes, index);
    sent_datagrams++;
    fly(to, data, bytes);
    while (chance(wire.duplicate))
        fly(to, data, bytes);
    return bytes;
}

static void begin_incarnation(int side)
{
    struct raft_channel *ch = &sides[side];
    if (lives[side]++)
        raft_channel_free(ch);
    raft_channel_init(ch, (uint32_t)side + 1, cl_random_next(&draw) | 1, mtu);
    ch->send = out;
    ch->arg = ch;
    CHECK(!raft_channel_add(ch, 2 - (uint32_t)side, frame_max), "no memory");
}

static struct raft_channel_peer *peer(int side)
{
    return &sides[side].peers[0];
}

static uint64_t dropped(int side)
{
    return peer(side)->count.reset + peer(side)->count.given_up;
}

/* A message is its number and bytes that follow from it. */
static bool say(int side, uint32_t bytes, bool lasting)
{
    uint8_t data[FRAME_MOST];
    CHECK(n_messages < MESSAGES, "too many messages");
    put64(data, n_messages);
    for (uint32_t i = 8; i < bytes; i++)
        data[i] = (uint8_t)(n_messages * 31 + i);
    messages[n_messages] = (struct message){bytes, lives[side], 0, (uint8_t)side, lasting, 0, dropped(side)};
    n_messages++; /* before it is sent: it may arrive inside */
    bool went = raft_channel_send(&sides[side], 2 - (uint32_t)side, data, bytes, lasting, now_ns);
    messages[n_messages - 1].refused = !went;
    return went;
}

static void hear(int side, const struct datagram *d)
{
    uint32_t bytes;
    uint8_t *copy = malloc(d->bytes); /* of exactly that size, for the sanitizer */
    memcpy(copy, d->data, d->bytes);
    const uint8_t *frame = raft_channel_receive(&sides[side], copy, d->bytes, now_ns, &bytes);
    if (frame) {
        uint64_t number = get64(frame);
        CHECK(number < n_messages, "message %lu", number);
        struct message *m = &messages[number];
        CHECK(bytes == m->bytes && m->from != side && !m->refused, "message %lu has %u bytes", number, bytes);
        for (uint32_t i = 8; i < bytes; i++)
            CHECK(frame[i] == (uint8_t)(number * 31 + i), "message %lu, byte %u", number, i);
        m->arrived++;
        CHECK(!m->lasting || m->arrived == 1, "message %lu arrived twice", number);
    }
    free(copy);
}

/* Go on to a time: datagrams in order of arrival, each side as it asks to be called. */
static void run_until(uint64_t end_ns)
{
    for (;;) {
        uint64_t at = end_ns;
        int next = -1;
        for (uint32_t i = 0; i < n_flying; i++)
            if (flying[i].at_ns < at ||
                (next >= 0 && flying[i].at_ns == at && flying[i].number < flying[next].number)) {
                at = flying[i].at_ns;
                next = (int)i;
            }
        for (int side = 0; side < 2; side++)
            if (cl_max(sides[side].next_ns, now_ns) < at) {
                at = cl_max(sides[side].next_ns, now_ns);
                next = -2 - side;
            }
        now_ns = cl_max(now_ns, at);
        if (next == -1)
            return;
        if (next >= 0) {
            struct datagram d = flying[next];
            flying[next] = flying[--n_flying];
            hear(d.to, &d);
            raft_channel_poll(&sides[d.to], now_ns);
        } else {
            uint64_t again = raft_channel_poll(&sides[-2 - next], now_ns);
            CHECK(again > now_ns, "polled at %lu, again at %lu", now_ns, again);
        }
    }
}

static void check_books(void)
{
    for (int side = 0; side < 2; side++) {
        const struct raft_channel_peer *p = peer(side);
        const struct raft_channel_counters *c = &p->count;
        CHECK(c->datagrams_in ==
                  c->accepted + c->unnumbered + c->control + c->duplicates + c->stale + c->no_room + c->malformed,
              "side %d", side);
        CHECK(!c->malformed, "side %d: %lu that passed the checksum", side, c->malformed);
        CHECK(!c->no_room && !p->pieces.used, "side %d: %lu had no room, %u are not whole", side, c->no_room,
              p->pieces.used);
        CHECK(p->first == p->next && p->n_free == RAFT_CHANNEL_WINDOW, "side %d keeps %lu", side, p->next - p->first);
    }
    for (uint32_t i = 0; i < n_messages; i++) {
        const struct message *m = &messages[i];
        bool still = m->incarnation == lives[m->from] && m->dropped == dropped(m->from);
        CHECK(!m->refused || !m->arrived, "message %u was refused and arrived", i);
        CHECK(!m->lasting || m->refused || !still || m->arrived == 1, "message %u of side %d did not arrive", i,
              m->from);
    }
}

static void begin(uint64_t s)
{
    seed = s;
    draw = (struct cl_random){s};
    now_ns = 1000 * MS;
    n_flying = n_messages = 0;
    memset(&wire, 0, sizeof(wire));
    wire.base_ns = 20000;
    begin_incarnation(0);
    begin_incarnation(1);
}

static uint64_t totals[5];

static void lossy(uint64_t s)
{
    begin(s);
    wire.loss = (uint32_t)cl_random_below(&draw, 400);
    wire.duplicate = (uint32_t)cl_random_below(&draw, 400);
    wire.late = (uint32_t)cl_random_below(&draw, 200);
    wire.corrupt = (uint32_t)cl_random_below(&draw, 30);
    wire.spread_ns = cl_random_below(&draw, 2 * MS);
    wire.late_ns = 1 + cl_random_below(&draw, chance(300) ? 2000 * MS : 60 * MS);
    uint32_t large = (uint32_t)cl_random_below(&draw, 500);
    uint32_t restarts = (uint32_t)cl_random_below(&draw, 20), cuts = (uint32_t)cl_random_below(&draw, 10);
    for (int step = 0; step < 400; step++) {
        for (uint64_t n = cl_random_below(&draw, 8); n; n--) {
            uint32_t bytes = 8 + (uint32_t)cl_random_below(&draw, chance(large) ? FRAME_MAX - 8 : 150);
            say((int)cl_random_below(&draw, 2), bytes, chance(800));
        }
        if (chance(restarts))
            begin_incarnation((int)cl_random_below(&draw, 2));
        wire.cut = wire.cut ? !chance(200) : chance(cuts);
        run_until(now_ns + cl_random_below(&draw, wire.cut && chance(20) ? 3000 * MS : 3 * MS));
    }
    wire.cut = false;
    run_until(now_ns + 3000 * MS); /* still as lossy: all is sent again until it is there, or given up */
    wire.loss = wire.corrupt = 0;
    run_until(now_ns + 20000 * MS);
    check_books();
    for (int side = 0; side < 2; side++) {
        const struct raft_channel_counters *c = &peer(side)->count;
        const uint64_t all[] = {c->retransmitted, c->duplicates, c->stale, c->given_up, c->reset};
        for (int i = 0; i < 5; i++)
            totals[i] += all[i];
    }
}

/* Four are sent, the first is lost: it goes again when the others are acknowledged, before any timeout. */
static void overtaken(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    lost_next = 1;
    uint64_t began = now_ns;
    for (int i = 0; i < 4; i++)
        say(0, 20, true);
    run_until(began + 4 * MS);
    CHECK(messages[1].arrived == 1, "not there after 4 ms");
    CHECK(peer(0)->count.retransmitted == 1 && !peer(0)->count.timeouts, "%lu sent again, %lu timeouts",
          peer(0)->count.retransmitted, peer(0)->count.timeouts);
    run_until(now_ns + 1000 * MS);
    check_books();
}

/* What goes again is lost again, twice: each time it goes again when later ones are acknowledged, and no timeout is
 * waited for. */
static void again(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    uint64_t began = now_ns;
    for (int i = 0; i < 60; i++) {
        if (i == 10)
            lost_next = 1;
        uint64_t before = peer(0)->count.retransmitted;
        say(0, 20, true);
        run_until(now_ns + MS / 50);
        lost_next |= peer(0)->count.retransmitted == before && before < 2 && i > 10;
    }
    CHECK(peer(0)->count.retransmitted >= 2, "%lu sent again", peer(0)->count.retransmitted);
    run_until(began + 4 * MS);
    CHECK(!peer(0)->count.timeouts && messages[11].arrived == 1, "%lu timeouts", peer(0)->count.timeouts);
    run_until(now_ns + 1000 * MS);
    check_books();
}

/* A whole window in one go, of which the first, the middle and the last but one are lost: all three go again after a
 * round trip, though the header has bits for 64. */
static void wide(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    uint64_t began = now_ns;
    for (int i = 0; i < RAFT_CHANNEL_WINDOW; i++) {
        lost_next = i == 0 || i == RAFT_CHANNEL_WINDOW / 2 || i == RAFT_CHANNEL_WINDOW - 2;
        CHECK(say(0, 20, true), "refused at %d", i);
    }
    run_until(began + 2 * wire.base_ns + 1);
    CHECK(peer(0)->count.retransmitted == 3, "%lu sent again", peer(0)->count.retransmitted);
    run_until(began + 3 * wire.base_ns + 1);
    for (uint32_t i = 0; i < n_messages; i++)
        CHECK(messages[i].arrived == 1, "message %u is not there", i);
    CHECK(!peer(0)->count.timeouts && !peer(0)->count.probes, "%lu timeouts, %lu probes", peer(0)->count.timeouts,
          peer(0)->count.probes);
    run_until(now_ns + 1000 * MS);
    check_books();
}

/* The last one is lost: nothing overtakes it. A probe brings it, and another if that is lost, before the first
 * timeout. */
static void probed(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    for (uint64_t lost = 1; lost < 4; lost = 2 * lost + 1) {
        uint64_t began = now_ns, probes = peer(0)->count.probes, wait_ns = raft_rtt_probe_ns(&peer(0)->rtt, 0) * lost;
        lost_next = lost;
        say(0, 20, true);
        run_until(began + wait_ns + wire.base_ns + 1);
        CHECK(messages[n_messages - 1].arrived == 1 && !peer(0)->count.timeouts, "not there after %lu us",
              (wait_ns + wire.base_ns) / 1000);
        run_until(now_ns + 1000 * MS);
        CHECK(peer(0)->count.probes == probes + (lost + 1) / 2, "%lu probes", peer(0)->count.probes - probes);
    }
    check_books();
}

/* Where datagrams overtake each other and none is lost few go again, once that was seen. */
static void reorders(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    wire.spread_ns = MS / 100;
    for (int i = 0; i < 2000; i++) {
        say(0, 20, true);
        run_until(now_ns + MS / 200);
    }
    run_until(now_ns + 1000 * MS);
    CHECK(peer(0)->count.retransmitted < 20, "%lu of 2000 sent again", peer(0)->count.retransmitted);
    CHECK(!peer(0)->count.timeouts, "%lu timeouts", peer(0)->count.timeouts);
    check_books();
}

/* One datagram of ten is lost, both ways, and the window is full: what is taken keeps on coming. */
static void steady(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    wire.loss = 100;
    uint64_t began = now_ns;
    for (int said = 0; said < 40000 && now_ns < began + 1000 * MS;) {
        for (int i = 0; i < 5 && said < 40000; i++) {
            said += say(0, 20, true);
            run_until(now_ns + 200);
        }
        run_until(now_ns + wire.base_ns / 4);
    }
    CHECK(now_ns < began + 50 * MS, "40000 frames took %lu ms", (uint64_t)((now_ns - began) / MS));
    CHECK(peer(0)->count.retransmitted < 40000 / 8, "%lu sent again", peer(0)->count.retransmitted);
    CHECK(!peer(0)->count.timeouts, "%lu timeouts", peer(0)->count.timeouts);
    wire.loss = 0;
    run_until(now_ns + 1000 * MS);
    check_books();
}

/* The first pieces of many frames are lost at once: those that came are kept, and no more goes again than was lost. */
static void begun(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    lost_next = 0x5555555555555555; /* of 32 frames of two pieces each */
    uint64_t began = now_ns;
    for (int i = 0; i < 32; i++)
        say(0, 300, true);
    run_until(began + 30000); /* less than a round trip */
    CHECK(peer(1)->pieces.used == 32, "%u frames are begun", peer(1)->pieces.used);
    run_until(began + 1000 * MS);
    CHECK(!peer(1)->count.no_room, "%lu pieces had no place", peer(1)->count.no_room);
    CHECK(peer(0)->count.retransmitted == 32, "%lu sent again", peer(0)->count.retransmitted);
    for (uint32_t i = 0; i < n_messages; i++)
        CHECK(messages[i].arrived == 1, "message %u", i);
    check_books();
}

/* One way only: a lone frame costs one acknowledgement by itself, a stream one in RAFT_CHANNEL_ACK_EVERY; both ways:
 * none. */
static void idle(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 100 * MS);
    uint64_t before = sent_datagrams;
    say(0, 20, true);
    run_until(now_ns + 1000 * MS);
    CHECK(sent_datagrams == before + 2, "%lu datagrams for one frame", sent_datagrams - before);
    before = sent_datagrams;
    for (int i = 0; i < 10 * RAFT_CHANNEL_ACK_EVERY; i++) {
        say(0, 20, true);
        run_until(now_ns + MS / 100);
    }
    run_until(now_ns + 100 * MS);
    CHECK(sent_datagrams <= before + 10 * RAFT_CHANNEL_ACK_EVERY + 11, "%lu datagrams", sent_datagrams - before);
    before = sent_datagrams;
    for (int i = 0; i < 1000; i++) {
        say(i % 2, 20, true);
        run_until(now_ns + MS / 10);
    }
    CHECK(sent_datagrams == before + 1000, "%lu datagrams for 1000 frames both ways", sent_datagrams - before);
    run_until(now_ns + 1000 * MS);
    CHECK(!peer(0)->count.retransmitted && !peer(1)->count.retransmitted, "sent again without a loss");
    check_books();
}

/* Round trips longer than the first timeout are learnt, though each is ambiguous at first (Karn). */
static void slow(void)
{
    begin(1);
    wire.base_ns = 30 * MS;
    for (int i = 0; i < 20; i++) {
        say(0, 20, true);
        run_until(now_ns + 100 * MS);
    }
    uint64_t before = peer(0)->count.retransmitted;
    CHECK(peer(0)->rtt.smooth_ns > 60 * MS && peer(0)->rtt.smooth_ns < 70 * MS, "srtt %lu ns", peer(0)->rtt.smooth_ns);
    for (int i = 0; i < 100; i++) {
        say(0, 20, true);
        run_until(now_ns + 100 * MS);
    }
    CHECK(peer(0)->count.retransmitted == before, "%lu sent again", peer(0)->count.retransmitted - before);
    check_books();
}

/* Nobody there: what is sent is kept, then refused, then given up; afterwards new frames arrive. A short cut loses
 * nothing. */
static void cut(void)
{
    begin(1);
    say(0, 20, true);
    run_until(now_ns + 50 * MS);
    wire.cut = true;
    for (int i = 0; i < 500; i++)
        CHECK(say(0, 20, true), "refused at %d", i);
    run_until(now_ns + 300 * MS);
    wire.cut = false;
    run_until(now_ns + 1000 * MS);
    CHECK(!dropped(0), "%lu dropped", dropped(0));
    check_books();
    wire.cut = true;
    int taken = 0;
    while (say(0, 20, true))
        taken++;
    CHECK(taken == RAFT_CHANNEL_WINDOW && peer(0)->count.window_full == 1, "%d taken", taken);
    CHECK(!say(0, FRAME_MAX, false), "a frame of several datagrams was taken");
    CHECK(say(0, 20, false), "one that does not last was refused");
    uint64_t before = sent_datagrams, probes = peer(0)->count.probes;
    run_until(now_ns + 5000 * MS);
    CHECK(peer(0)->count.given_up == RAFT_CHANNEL_WINDOW, "%lu given up", peer(0)->count.given_up);
    probes = peer(0)->count.probes - probes;
    CHECK(probes <= 8 && sent_datagrams - before <= 32 * RAFT_CHANNEL_SILENT + probes,
          "%lu sent to nobody, %lu of them probes", sent_datagrams - before, probes);
    wire.cut = false;
    for (int i = 0; i < 8; i++) { /* frames that are never whole do not keep their places */
        lost_next = ~1ull;
        say(0, FRAME_MAX, true);
        wire.cut = true;
        lost_next = 0;
        run_until(now_ns + 5000 * MS);
        wire.cut = false;
    }
    say(0, FRAME_MAX, true);
    run_until(now_ns + MS);
    CHECK(messages[n_messages - 1].arrived == 1, "the first frame afterwards did not arrive at once");
    run_until(now_ns + 1000 * MS);
    check_books();
}

/* A new incarnation is told by each of 200 datagrams that it is taken for another, and asks once in a while who that
 * is: a question for each would be answered by each, and each answer be asked about in turn. */
static void reborn(void)
{
    begin(1);
    wire.base_ns = 30 * MS;
    say(0, 20, true);
    run_until(now_ns + 200 * MS);
    begin_incarnation(1);
    uint64_t before = sent_datagrams;
    for (int i = 0; i < 200; i++) {
        say(0, 20, true);
        run_until(now_ns + MS / 20);
    }
    run_until(now_ns + 25 * MS); /* all have come, and no answer has */
    CHECK(sent_datagrams > before + 200 && sent_datagrams <= before + 220, "%lu datagrams", sent_datagrams - before);
    run_until(now_ns + 1000 * MS);
    say(0, 20, true); /* those before were for the other */
    run_until(now_ns + 1000 * MS);
    check_books();
    CHECK(messages[n_messages - 1].arrived == 1, "the last did not arrive");
}

/* One says a frame of several datagrams each 2 ms, the other a short one each 3 ms that does not last, or nothing.
 * After a cut all that was taken is there within a few round trips, or, if nothing is heard, after the next timeout: no
 * frame waits for another. */
static void mended_after(uint32_t datagram, uint32_t bytes, uint64_t cut_ms, bool heard)
{
    mtu = datagram;
    frame_max = FRAME_MOST;
    begin(cut_ms);
    wire.base_ns = 100000;
    wire.spread_ns = 50000;
    say(0, 100, true);
    run_until(now_ns + 18 * MS);
    uint64_t mended = now_ns + cut_ms * MS, until = mended + (heard ? 0 : 200 * MS) + 15 * MS;
    uint32_t late = 0;
    for (int ms = 0; now_ns < mended + 1000 * MS; ms++) {
        wire.cut = now_ns < mended;
        if (ms % 2 == 0)
            say(0, bytes, true);
        if (ms % 3 == 0 && heard)
            say(1, 100, false);
        run_until(now_ns + MS);
        for (uint32_t i = 0; now_ns == until && i + 4 < n_messages; i++)
            late += messages[i].lasting && !messages[i].refused && !messages[i].arrived;
    }
    CHECK(!late, "%u of %u bytes each are not there %lu ms after a cut of %lu ms, MTU %u", late, bytes,
          (uint64_t)((until - mended) / MS), cut_ms, mtu);
    CHECK(!dropped(0), "%lu given up", dropped(0));
    run_until(now_ns + 1000 * MS);
    check_books();
}

static void mended(void)
{
    const uint32_t datagrams[] = {600, 1500}, bytes[] = {1000, 8000, FRAME_MOST};
    const uint64_t cuts[] = {10, 90, 200, 500};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                for (int heard = 0; heard < 2; heard++)
                    mended_after(datagrams[i], bytes[j], cuts[k], heard);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, seeds = argc > 3 ? strtoull(argv[3], NULL, 0) : 20;
    if (!strcmp(what, "overtaken"))
        overtaken();
    else if (!strcmp(what, "again"))
        again();
    else if (!strcmp(what, "wide"))
        wide();
    else if (!strcmp(what, "probed"))
        probed();
    else if (!strcmp(what, "reorders"))
        reorders();
    else if (!strcmp(what, "steady"))
        steady();
    else if (!strcmp(what, "begun"))
        begun();
    else if (!strcmp(what, "idle"))
        idle();
    else if (!strcmp(what, "slow"))
        slow();
    else if (!strcmp(what, "cut"))
        cut();
    else if (!strcmp(what, "mended"))
        mended();
    else if (!strcmp(what, "reborn"))
        reborn();
    else
        for (uint64_t s = first; s < first + seeds; s++)
            lossy(s);
    raft_channel_free(&sides[0]);
    raft_channel_free(&sides[1]);
    printf("retransmitted %lu duplicates %lu stale %lu given_up %lu reset %lu\n", totals[0], totals[1], totals[2],
           totals[3], totals[4]);
    return 0;
}
