/* A tracer on a clock that the test moves: what is drawn, that the slowest of each millisecond are kept, that
 * boundaries rise whatever the stamps say, and that modes change. Usage: tracer SEED */
#include "libos/trace/trace.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <string.h>

#define MS 200
#define A_MS 500 /* messages */
#define ONE_IN 50
#define SLOWEST 4

static uint64_t now = 1000000000;
static struct cl_trace *trace;
static struct cl_tracer *t;

/* The segment as others find it: behind the tracer's ring. */
static const uint8_t *segment(void)
{
    return (const uint8_t *)t->ring - cl_trace_ring_offset(t->records, 0);
}

static uint32_t read_all(struct cl_trace_message *out, uint32_t room)
{
    static uint64_t next;
    uint64_t lost = 0, garbage = 0;
    uint32_t n =
        cl_trace_read(segment(), (uint64_t)cl_trace_bytes(1, t->records), 0, &next, out, room, &lost, &garbage);
    CHECK_EQ(lost, 0);
    CHECK_EQ(garbage, 0);
    return n;
}

/* So much later something comes. */
static void later(uint64_t ns)
{
    now += ns;
    cl_tracer_poll(t, now, now);
}

/* One that took so long, and is told at its end as a kthread does. */
static void message(uint64_t took, bool stamped)
{
    struct cl_trace_open o = {.drawn = cl_tracer_draws(t)};
    struct cl_trace_end e = {
        .begin = now - took, .pickup = now - took / 2, .start = now - took / 4, .end = now, .shared = 1};
    e.flags = CL_TRACE_ANSWERED;
    e.sent = stamped ? now + 10 : 0;
    if (o.drawn || cl_tracer_late(t, e.begin, now))
        cl_tracer_message(t, &o, &e);
}

/* Latencies of a ms from a seed: most alike, some far out. Returns how many of the SLOWEST were kept. */
static unsigned one_ms(uint64_t *state)
{
    static struct cl_trace_message got[A_MS + 8];
    uint64_t took[A_MS], slowest[A_MS];
    unsigned kept = 0;
    cl_tracer_poll(t, now, now);
    for (unsigned i = 0; i < A_MS; i++) {
        took[i] = 1000 + next_random(state) % 500 + (next_random(state) % 20 ? 0 : next_random(state) % 50000);
        now += 2000;
        message(took[i], i % 2);
        if (i % 8 == 7)
            cl_tracer_sent(t, now + 5);
    }
    cl_tracer_sent(t, now + 5);
    uint32_t n = read_all(got, A_MS + 8);
    memcpy(slowest, took, sizeof took);
    for (unsigned i = 0; i < SLOWEST; i++)
        for (unsigned k = i + 1; k < A_MS; k++)
            if (slowest[k] > slowest[i]) {
                uint64_t swap = slowest[i];
                slowest[i] = slowest[k];
                slowest[k] = swap;
            }
    for (unsigned i = 0; i < SLOWEST; i++)
        for (uint32_t k = 0; k < n; k++)
            if (got[k].end == slowest[i]) {
                kept++;
                break;
            }
    for (uint32_t k = 0; k < n; k++)
        CHECK(!(got[k].flags & CL_TRACE_UNSENT) && got[k].sent > got[k].end, "its doorbell has completed it");
    CHECK(n < A_MS / 4, "%u of %u are not a sample", n, A_MS);
    return kept;
}

static void sampled(uint64_t seed)
{
    unsigned kept = 0;
    (void)one_ms(&seed); /* it learns */
    for (unsigned i = 0; i < MS; i++)
        kept += one_ms(&seed);
    CHECK(kept > MS * SLOWEST * 95 / 100, "%u of %u slowest are there", kept, MS * SLOWEST);
}

/* After a ms whose slowest ones were slower than all that follows: it takes two to see that. */
static void slow_for_a_while(uint64_t seed)
{
    for (unsigned i = 0; i < 20; i++) {
        static struct cl_trace_message got[2 * SLOWEST];
        later(2000000);
        for (unsigned j = 0; j < SLOWEST; j++)
            message(100000000, false);
        cl_tracer_sent(t, now + 5);
        CHECK(read_all(got, 2 * SLOWEST) >= SLOWEST);
        later(1100000);
        (void)one_ms(&seed);
        (void)one_ms(&seed);
        CHECK_EQ(one_ms(&seed), SLOWEST);
    }
}

static void drawn_are_one_in(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 100000; i++)
        n += cl_tracer_draws(t);
    CHECK(n > 100000 / ONE_IN * 9 / 10 && n < 100000 / ONE_IN * 11 / 10, "%u of 100000", n);
}

static void modes(void)
{
    static struct cl_trace_message got[64];
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL + 1), -EINVAL);
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(2000000);
    for (unsigned i = 0; i < 20; i++)
        message(1000 + i, false);
    cl_tracer_sent(t, 0); /* no doorbell */
    CHECK_EQ(read_all(got, 64), 20);
    for (unsigned i = 0; i < 20; i++)
        CHECK(got[i].end == 1000 + i && got[i].sent == got[i].end && (got[i].flags & CL_TRACE_UNSENT) &&
              (got[i].flags & CL_TRACE_DRAWN));
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_OFF), 0);
    later(2000000);
    for (unsigned i = 0; i < 1000; i++)
        message(1000000, false);
    cl_tracer_away(t, &(struct cl_trace_taken){.begin = now, .end = now + 5});
    later(2000000);
    CHECK_EQ(read_all(got, 64), 0);
    CHECK_EQ(cl_trace_mode(trace), CL_TRACE_OFF);
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_SAMPLED), 0);
    later(2000000);
}

/* Stamps of several cores, in any order, and far apart: what is written down is a record all the same. */
static void boundaries_rise(uint64_t seed)
{
    struct cl_trace_message got;
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(2000000);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t stamps[5];
        for (unsigned k = 0; k < 5; k++)
            stamps[k] = now + next_random(&seed) % (next_random(&seed) % 16 ? 1000 : 1ull << 40);
        struct cl_trace_open o = {
            .drawn = true, .blocked = next_random(&seed) % 2000, .ready = next_random(&seed) % 2000};
        struct cl_trace_end e = {
            stamps[0],         stamps[1], stamps[2], stamps[3], next_random(&seed) % 2 ? stamps[4] : 0,
            CL_TRACE_ANSWERED, 0,         0,         0,         1};
        cl_tracer_message(t, &o, &e);
        cl_tracer_sent(t, stamps[4]);
        CHECK_EQ(read_all(&got, 1), 1); /* and no garbage: cl_trace_valid */
        CHECK(got.begin == stamps[0] && got.sent >= got.end && !o.id && !o.blocked && !o.drawn);
    }
}

/* The core was lost: by the signal handler, perhaps twice before the kthread looks. */
static void away(void)
{
    struct cl_trace_core got[4];
    cl_tracer_away(t, &(struct cl_trace_taken){.begin = 100, .end = 200, .by = 5, .cpu = 1});
    cl_tracer_away(t, &(struct cl_trace_taken){.begin = 300, .end = 500, .by = 6, .cpu = 1});
    later(10);
    cl_tracer_away(t, &(struct cl_trace_taken){.begin = 700, .end = 700});
    later(10);
    later(10);
    CHECK_EQ(read_all((struct cl_trace_message *)got, 4), 2);
    CHECK(got[0].kind == CL_TRACE_CORE && got[0].n == 2 && got[0].begin == 100 && got[0].end == 500);
    CHECK(got[0].by == 5 && got[0].cpu == 1 && !got[0].parked);
    CHECK(got[1].n == 1 && got[1].begin == 700 && got[1].end == 701);
}

/* Of one that is not drawn the longest wait is told, if it is slow. */
static void waits(void)
{
    struct cl_trace_wait got[4];
    struct cl_trace_open o = {.id = cl_tracer_id(t)};
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_SAMPLED), 0);
    later(5000000);
    uint64_t from = now;
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t took = i == 2 ? 900 : 100;
        struct cl_trace_wait w = {.what = CL_TRACE_WAITS_MUTEX, .begin = now, .object = i};
        cl_tracer_waited(t, &o, &w, now + took, now + took + 7);
        now += took + 7;
    }
    struct cl_trace_end e = {.begin = from, .pickup = from, .start = from, .end = now, .shared = 1};
    cl_tracer_message(t, &o, &e);
    cl_tracer_sent(t, now);
    CHECK_EQ(read_all((struct cl_trace_message *)got, 4), 2);
    const struct cl_trace_message *m = (const struct cl_trace_message *)&got[1];
    CHECK(got[0].kind == CL_TRACE_WAIT && got[0].n == 3 && got[0].object == 2 && got[0].blocked == 900);
    CHECK(m->kind == CL_TRACE_MESSAGE && m->id == got[0].id && m->blocked == 1100 && m->ready == 21 && m->end == 1121);
}

/* Stages of a wait, by stamps that are there, or not, or before it began. */
static void parts(void)
{
    static const struct {
        uint64_t stamps[2];
        uint32_t first, second;
    } cases[] = {{{150, 180}, 50, 30}, {{0, 0}, 100, 0}, {{150, 0}, 50, 50},
                 {{50, 120}, 0, 20},   {{50, 60}, 0, 0}, {{250, 300}, 100, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cl_trace_wait w = {
            .kind = CL_TRACE_WAIT, .what = CL_TRACE_WAITS_LOG, .n = 1, .begin = 100, .blocked = 100};
        cl_tracer_parts(&w, cases[i].stamps, 200);
        CHECK(w.first == cases[i].first && w.second == cases[i].second, "case %u: %u, %u", i, w.first, w.second);
        CHECK(cl_trace_valid(&w));
    }
}

/* A connection stood still: told in full; else if it is drawn, or was slow. */
static void stalls(void)
{
    struct cl_trace_stall s = {
        .end = now, .ticks = 5000, .n = 2, .flow = 7, .service = 1, .what = CL_TRACE_WAITS_RESEND};
    struct cl_trace_message got[4];
    const struct cl_trace_wait *w = (const struct cl_trace_wait *)&got[0];
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(5000000);
    s.end = now;
    cl_tracer_stalled(t, &s);
    CHECK_EQ(read_all(got, 4), 2);
    CHECK(w->what == CL_TRACE_WAITS_RESEND && w->n == 2 && w->blocked == 5000 && w->object == 7 && w->id == got[1].id);
    CHECK(got[1].flags == (CL_TRACE_STALLED | CL_TRACE_DRAWN));
    CHECK(got[1].begin == now - 5000 && got[1].sent == 5000 && got[1].end == 0);
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_SAMPLED), 0);
    later(5000000);
    for (unsigned i = 0; i < SLOWEST; i++) {
        message(8000, true);
        later(10000);
    }
    cl_tracer_sent(t, now);
    CHECK(read_all(got, 4) == SLOWEST && t->slow_ticks >= 5000);
    t->left = 10;
    cl_tracer_stalled(t, &s);
    CHECK_EQ(read_all(got, 4), 0);
    s.ticks = 20000;
    cl_tracer_stalled(t, &s);
    CHECK_EQ(read_all(got, 4), 2);
    CHECK_EQ(got[1].flags, CL_TRACE_STALLED);
    t->left = 0;
    s.ticks = 50;
    cl_tracer_stalled(t, &s);
    CHECK_EQ(read_all(got, 4), 2);
    CHECK_EQ(got[1].flags, CL_TRACE_STALLED | CL_TRACE_DRAWN);
}

/* The core was another's while the kthread was parked: told with the first message that waited then, if there is
 * one. */
static void taken(void)
{
    struct cl_trace_message got[4];
    const struct cl_trace_core *c = (const struct cl_trace_core *)&got[0];
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(5000000);
    struct cl_trace_taken was = {.begin = now, .end = now + 4000, .by = 9, .cpu = 2, .parked = true};
    cl_tracer_taken(t, &was);
    later(5000);
    message(1000, true); /* came when it had its core again */
    cl_tracer_sent(t, now);
    CHECK_EQ(read_all(got, 4), 1);
    message(2000, true);
    message(3000, true);
    cl_tracer_sent(t, now);
    CHECK_EQ(read_all(got, 4), 3);
    CHECK(c->kind == CL_TRACE_CORE && c->n == 1 && c->by == 9 && c->cpu == 2 && c->parked == 1);
    CHECK(c->begin == was.begin && c->end == was.end);
}

/* A command of a group that ends now, with these stamps. */
static void command(const struct cl_trace_stages *s, uint64_t begin)
{
    struct cl_trace_message got[4];
    struct cl_trace_call c = {.begin = begin, .service = 1, .what = CL_TRACE_WAITS_COMMIT};
    struct cl_trace_command of;
    CHECK(cl_tracer_called(t, &c, now));
    cl_tracer_put_call(t, &c, s, now);
    CHECK_EQ(read_all(got, 4), 2); /* and no garbage */
    memcpy(&of, &got[0], sizeof of);
    CHECK(of.kind == CL_TRACE_COMMAND && of.id == got[1].id && of.begin == begin && of.index == s->index);
    CHECK(got[1].blocked == now - begin && got[1].end == got[1].sent && of.agreed >= of.gone);
}

/* Stages of calls rise whatever the stamps say, and those that were not reached are behind all. */
static void calls(uint64_t seed)
{
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(2000000);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t at[7], begin = now - 1000;
        for (unsigned j = 0; j < 7; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            at[j] = seed >> 62 ? begin - 100 + (seed >> 40) % 1200 : 0;
        }
        struct cl_trace_stages s = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], i, 0, 0};
        command(&s, begin);
        now += 2000;
    }
    command(&(struct cl_trace_stages){.gone = now - 90, .durable = now - 50, .others = now - 80, .agreed = now - 40},
            now - 100); /* of a log that says nothing of its flushes */
    struct cl_trace_call asked = {.begin = now - 10, .service = 1, .what = CL_TRACE_WAITS_KEYS, .leaves = true};
    struct cl_trace_message got[4];
    CHECK(cl_tracer_called(t, &asked, now));
    cl_tracer_put_call(t, &asked, NULL, now);
    CHECK_EQ(read_all(got, 4), 1); /* its wait; the message waits for its doorbell */
    cl_tracer_sent(t, now + 5);
    CHECK_EQ(read_all(got, 4), 1);
    CHECK(got[0].sent == got[0].end + 5 && !(got[0].flags & CL_TRACE_UNSENT));
}

/* An append: a call whose wait has parts, and that a uthread is told of after it was made ready. */
static void appends(void)
{
    uint64_t begin = now - 100, stamps[2] = {now - 90, now - 40};
    struct cl_trace_call c = {
        .begin = begin, .service = 1, .what = CL_TRACE_WAITS_LOG, .failed = true, .ready = now - 30, .parts = stamps};
    struct cl_trace_message got[4];
    struct cl_trace_wait w;
    CHECK(cl_tracer_called(t, &c, now));
    cl_tracer_put_call(t, &c, NULL, now);
    CHECK_EQ(read_all(got, 4), 2);
    memcpy(&w, &got[0], sizeof w);
    CHECK(w.kind == CL_TRACE_WAIT && w.what == CL_TRACE_WAITS_LOG && w.id == got[1].id && w.begin == begin && w.n == 1);
    CHECK(w.first == 10 && w.second == 50 && w.blocked == 70 && w.ready == 30);
    CHECK(got[1].blocked == 70 && got[1].ready == 30 && got[1].end == 100 && got[1].sent == 100);
    CHECK((got[1].flags & (CL_TRACE_ANSWERED | CL_TRACE_ERROR)) == (CL_TRACE_ANSWERED | CL_TRACE_ERROR));
}

/* Services without a port are numbered, whatever is named in between. */
static void numbers(const struct cl_trace_config *config, const struct cl_clock *clock)
{
    struct cl_trace *own;
    char err[256] = "";
    CHECK(cl_trace_new(config, clock, "numbers", &own, err) == 0, "%s", err);
    CHECK_EQ(cl_trace_service_next(own, CL_TRACE_LOG), 1);
    CHECK_EQ(cl_trace_service_of(own, CL_TRACE_UDP, 1), 2);
    CHECK_EQ(cl_trace_service_next(own, CL_TRACE_LOG), 3);
    CHECK_EQ(cl_trace_service_of(own, CL_TRACE_LOG, 1), 1);
    CHECK_EQ(cl_trace_service_of(own, CL_TRACE_LOG, 2), 3);
    CHECK_EQ(cl_trace_service_next(NULL, CL_TRACE_LOG), 0);
    cl_trace_delete(own);
}

/* On a kthread without messages: what begins looks at the mode itself. */
static void without_polls(void)
{
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_OFF), 0);
    now += 2000000;
    CHECK_EQ(cl_tracer_begins(t), 0);
    CHECK_EQ(t->mode, CL_TRACE_OFF);
    CHECK_EQ(cl_tracer_begins(t), 0);
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    now += 2000000;
    CHECK_EQ(cl_tracer_begins(t), now);
    CHECK_EQ(t->mode, CL_TRACE_FULL);
}

/* One in mode full whose handler has ended after so long, as a kthread tells it: it had come before those that share
 * its end began. */
static void short_one(uint64_t took, uint32_t flags)
{
    if (!t->n_open)
        t->open.start = now;
    now += took;
    cl_tracer_open(t, cl_trace_plain(30, 20, 1, flags, 7, 22));
}

/* What fits into a group: no long wait, and nothing that was picked up after its start, or before it came. */
static void fits(void)
{
    const uint64_t most = CL_TRACER_SOON - 1, back = 0ull - 5;
    CHECK(cl_trace_is_plain(0, 0) && cl_trace_is_plain(most, most) && cl_trace_is_plain(most, 0));
    CHECK(!cl_trace_is_plain(most + 1, 0) && !cl_trace_is_plain(most + 1, most + 1));
    CHECK(!cl_trace_is_plain(3, 4) && !cl_trace_is_plain(3, back) && !cl_trace_is_plain(back, 0));
    CHECK(!cl_trace_is_plain(back, back) && !cl_trace_is_plain(UINT64_MAX, UINT64_MAX));
}

/* As many as a group may have, or fewer: in fewer records than one each, and read as they were. */
static void grouped(void)
{
    static struct cl_trace_message got[CL_TRACE_GROUP_MOST];
    for (uint32_t n = 1; n <= CL_TRACE_GROUP_MOST; n++) {
        uint64_t head = t->head, start = now, id = 0;
        uint32_t answered[CL_TRACE_GROUP_MOST];
        t->open.start = now;
        for (uint32_t i = 0; i < n; i++) {
            answered[i] = i % 3 == 1 ? 0 : CL_TRACE_ANSWERED;
            if (i + 1 == CL_TRACE_GROUP_MOST) /* one more and they are ended without a doorbell */
                cl_tracer_add(t,
                              cl_trace_plain(100 + i, i, (uint16_t)(i * 8), answered[i], i * 3, (uint16_t)(60000 + i)));
            else
                cl_tracer_open(
                    t, cl_trace_plain(100 + i, i, (uint16_t)(i * 8), answered[i], i * 3, (uint16_t)(60000 + i)));
        }
        now += 40;
        cl_tracer_end_open(t, now);
        now += 9;
        cl_tracer_sent(t, now);
        CHECK_EQ(t->head - head, n < 3 ? n : 1 + (n - 1 + CL_TRACE_MORE_EACH - 1) / CL_TRACE_MORE_EACH);
        CHECK_EQ(read_all(got, CL_TRACE_GROUP_MOST), n);
        for (uint32_t i = 0; i < n; i++) {
            const struct cl_trace_message *m = &got[i];
            id = i ? id + 1 : m->id;
            CHECK(m->kind == CL_TRACE_MESSAGE && m->kthread == 0 && m->id == id && m->begin == start - 100 - i);
            CHECK(m->pickup == 100 && m->start == 100 + i && m->end == m->start + 40);
            CHECK(m->sent == m->end + (answered[i] ? 9 : 0) && m->service == i * 8 && m->flow == i * 3);
            CHECK(m->bytes == 60000 + i && m->shared == n && !m->blocked && !m->ready && !m->faults);
            CHECK_EQ(m->flags, CL_TRACE_DRAWN | answered[i] | (n > 1 ? CL_TRACE_SHARED : 0));
        }
        CHECK_EQ(cl_tracer_id(t), id + 1);
    }
}

/* More than can wait for a doorbell: those that were first are without one. */
static void many_wait(void)
{
    static struct cl_trace_message got[4 * CL_TRACER_TOGETHER];
    const uint32_t lines = 1 + (CL_TRACER_TOGETHER - 1 + CL_TRACE_MORE_EACH - 1) / CL_TRACE_MORE_EACH;
    for (uint32_t n = 3; n <= 4; n++) {
        for (uint32_t i = 0; i < n * CL_TRACER_TOGETHER; i++)
            short_one(1, CL_TRACE_ANSWERED);
        CHECK_EQ(t->pending, n == 3 ? 3 * lines : lines);
        cl_tracer_sent(t, now + 9);
        CHECK_EQ(read_all(got, 4 * CL_TRACER_TOGETHER), n * CL_TRACER_TOGETHER);
        for (uint32_t i = 0; i < n * CL_TRACER_TOGETHER; i++) {
            bool unsent = n == 4 && i < 3 * CL_TRACER_TOGETHER;
            CHECK(got[i].shared == CL_TRACER_TOGETHER && (got[i].begin + got[i].sent == now + 9) == !unsent);
            CHECK(((got[i].flags & CL_TRACE_UNSENT) != 0) == unsent && (got[i].sent == got[i].end) == unsent);
        }
    }
}

/* Of handlers with stamps of their own: one or none as it should be read. */
struct follower {
    uint64_t start, end, sent;
    uint32_t waited, picked, flags;
};

/* So many that follow each other; gaps: or do not. */
static unsigned follow(struct follower *out, unsigned n, bool gaps, uint64_t *seed)
{
    for (unsigned i = 0; i < n; i++) {
        now += gaps && next_random(seed) % 6 == 0 ? 33 : 0;
        out[i].start = now;
        now += next_random(seed) % 40 ? next_random(seed) % 1000 : CL_TRACER_SOON - 1 - next_random(seed) % 8;
        out[i].end = now;
        out[i].waited = next_random(seed) % 8 ? (uint32_t)(next_random(seed) % 100000) : (uint32_t)CL_TRACER_SOON - 1;
        out[i].picked = (uint32_t)(next_random(seed) % (out[i].waited + 1));
        out[i].flags = (next_random(seed) % 4 ? CL_TRACE_ANSWERED : 0) | CL_TRACE_FROM_KTHREAD;
        cl_tracer_follow(t, cl_trace_plain(out[i].waited, out[i].picked, 2, out[i].flags, i, (uint16_t)(7 * i)),
                         out[i].start, now);
    }
    return n;
}

/* Each of a row is read as it was, in fewer records, whether its doorbell is rung or not. */
static void rows(uint64_t seed)
{
    static struct cl_trace_message got[2 * CL_TRACER_TOGETHER];
    struct follower want[2 * CL_TRACER_TOGETHER];
    uint32_t messages = 0, records = 0;
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    for (unsigned r = 0; r < 2000; r++) {
        later(5000000);
        bool gaps = next_random(&seed) % 2, rings = next_random(&seed) % 4;
        unsigned most = gaps ? CL_TRACER_TOGETHER - 1 : 2 * CL_TRACER_TOGETHER - 1; /* all can wait for a doorbell */
        unsigned n = follow(want, 1 + (unsigned)(next_random(&seed) % most), gaps, &seed);
        uint64_t head = t->head;
        now += 9;
        cl_tracer_sent(t, rings ? now : 0);
        CHECK_EQ(read_all(got, 2 * CL_TRACER_TOGETHER), n);
        messages += n;
        records += (uint32_t)(t->head - head);
        for (unsigned i = 0; i < n; i++) {
            const struct cl_trace_message *m = &got[i];
            bool answered = want[i].flags & CL_TRACE_ANSWERED;
            uint64_t begin = want[i].start - want[i].waited, sent = answered && rings ? now : want[i].end;
            CHECK(m->kind == CL_TRACE_MESSAGE && m->begin == begin && m->start == want[i].waited);
            CHECK(m->pickup == m->start - want[i].picked && m->begin + m->end == want[i].end);
            CHECK_EQ(m->sent, cl_min(sent - begin, (uint64_t)UINT32_MAX));
            CHECK(m->shared == 1 && m->flow == i && m->bytes == 7 * i && m->service == 2);
            CHECK_EQ(m->flags, want[i].flags | CL_TRACE_DRAWN | (answered && !rings ? CL_TRACE_UNSENT : 0));
            CHECK(!m->blocked && !m->ready && (i == 0 || m->id == got[i - 1].id + 1));
        }
    }
    CHECK(records < messages * 3 / 4, "%u records of %u messages", records, messages);
}

/* What short handlers share, until their doorbell or until something else begins. A long one has the next ones stamped.
 */
static void together(void)
{
    static struct cl_trace_message got[CL_TRACE_AHEAD];
    const uint32_t drawn = CL_TRACE_DRAWN;
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_FULL), 0);
    later(5000000);
    uint64_t start = now;
    for (unsigned i = 0; i < 3; i++)
        short_one(40, i == 1 ? 0 : CL_TRACE_ANSWERED);
    uint64_t end = now;
    cl_tracer_end_open(t, now); /* before the doorbell */
    now += 25;
    cl_tracer_sent(t, now);
    CHECK_EQ(read_all(got, 4), 3);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(got[i].shared == 3 && got[i].pickup == 10 && got[i].begin + got[i].end == end);
        CHECK_EQ(got[i].begin + got[i].start, start);
        CHECK_EQ(got[i].sent, got[i].end + (i == 1 ? 0 : 25));
        CHECK_EQ(got[i].flags, drawn | CL_TRACE_SHARED | (i == 1 ? 0 : CL_TRACE_ANSWERED));
    }
    CHECK(t->open.alone == 0 && t->open.ended == now);
    short_one(40, CL_TRACE_ANSWERED);
    cl_tracer_close_open(t);
    end = now;
    short_one(2000, CL_TRACE_ANSWERED);
    cl_tracer_sent(t, now + 7);
    CHECK_EQ(read_all(got, 4), 2);
    for (unsigned i = 0; i < 2; i++)
        CHECK(got[i].shared == 1 && got[i].flags == (drawn | CL_TRACE_ANSWERED) &&
              got[i].begin + got[i].sent == now + 7);
    CHECK(got[0].begin + got[0].end == end && got[1].id == got[0].id + 1);
    CHECK(got[1].begin + got[1].end == now + 7, "nobody has said when it ended: it had when its doorbell was rung");
    CHECK(t->open.alone, "the second was long");
    short_one(40, 0);
    CHECK(t->n_open == 0 && t->pending == 1, "it has its own end");
    cl_tracer_sent(t, 0); /* no doorbell */
    CHECK_EQ(read_all(got, 4), 1);
    CHECK(got[0].shared == 1 && got[0].end == 70 && got[0].sent == 70 && got[0].flags == drawn);
    t->open.alone = 0;
    many_wait();
    for (unsigned n = 1; n <= 8; n++) { /* about to ring, and rung: of few the time between is not theirs */
        for (unsigned i = 0; i < 2 * n - 1; i++)
            short_one(40, CL_TRACE_ANSWERED);
        unsigned of = t->n_open;
        end = now + (of < 3 || n % 2 ? 0 : 9);
        cl_tracer_rings(t, n % 2 ? now : 0); /* n odd: where it is stamped before */
        now += 9;
        cl_tracer_sent(t, now);
        CHECK_EQ(read_all(got, CL_TRACE_AHEAD), of);
        CHECK(got[0].begin + got[0].end == end && got[0].begin + got[0].sent == now, "%u", of);
    }
    short_one(40, CL_TRACE_ANSWERED);
    cl_tracer_rings(t, 0);
    end = now;
    now += 9;
    cl_tracer_sent(t, now);
    CHECK(read_all(got, 4) == 1 && got[0].begin + got[0].end == end && got[0].begin + got[0].sent == now);
    struct cl_trace_taken was = {.begin = now, .end = now + 4000, .by = 9, .cpu = 2, .parked = true};
    cl_tracer_taken(t, &was);
    short_one(40, CL_TRACE_ANSWERED);
    cl_tracer_sent(t, now);
    CHECK_EQ(read_all(got, 4), 2); /* who had the core, and it */
    CHECK(got[0].kind == CL_TRACE_CORE && got[1].kind == CL_TRACE_MESSAGE);
}

int main(int argc, char **argv)
{
    struct cl_clock clock;
    char err[256] = "";
    struct cl_trace_config config = {
        .n_rings = 1, .mode = CL_TRACE_SAMPLED, .one_in = ONE_IN, .slowest = SLOWEST, .records = 65536};
    CHECK(argc == 2);
    cl_clock_virtual(&clock, &now);
    CHECK(cl_trace_new(&config, &clock, "tracer", &trace, err) == 0, "%s", err);
    t = cl_trace_tracer(trace, 0);
    CHECK(cl_trace_check(segment(), (uint64_t)cl_trace_bytes(1, 65536), err) == 0, "%s", err);
    CHECK_EQ(cl_trace_service_of(trace, CL_TRACE_UDP, 9000), 1);
    CHECK_EQ(cl_trace_service_of(trace, CL_TRACE_TCP, 9000), 2);
    CHECK_EQ(cl_trace_service_of(trace, CL_TRACE_UDP, 9000), 1);
    for (unsigned port = 1; port < CL_TRACE_SERVICES + 10; port++)
        CHECK_EQ(cl_trace_service_of(trace, CL_TRACE_UDP, (uint16_t)port), port + 2 < CL_TRACE_SERVICES ? port + 2 : 0);
    CHECK(cl_trace_service_of(NULL, 1, 1) == 0 && !cl_trace_tracer(NULL, 3) && cl_trace_mode(NULL) == CL_TRACE_OFF);
    uint64_t seed = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    sampled(seed);
    slow_for_a_while(seed);
    drawn_are_one_in();
    modes();
    boundaries_rise(seed);
    away();
    waits();
    parts();
    stalls();
    calls(seed);
    appends();
    numbers(&config, &clock);
    without_polls();
    taken();
    together();
    rows(seed);
    fits();
    grouped();
    cl_trace_delete(trace);
    config.records = 1000;
    CHECK(cl_trace_new(&config, &clock, "tracer", &trace, err) == -EINVAL && strstr(err, "power of two"));
    puts("ok");
    return 0;
}
