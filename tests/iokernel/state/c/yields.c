/* When an idle loop yields: now and then while it is alone, at once while somebody shares its CPU and may have been
 * woken, more and more seldom while yields find nobody, and not to who keeps the CPU.
 *
 *   yields
 *
 * Deterministic: a clock of a tick a nanosecond, which the test moves. */
#include "iokernel/state/yields.h"
#include "tests/support/c/check.h"

#define ALONE_NS 400 /* of a yield that finds nobody */
#define ROUND_NS 100 /* of an idle round */
#define RAN_NS 20000 /* of one that lets somebody run */

static struct cl_clock clock_;
static uint64_t now = 1000000000;

/* Idle rounds for so long; returns how many yields there were. */
static unsigned idle(struct io_yields *y, uint64_t ns)
{
    unsigned yields = 0;
    for (uint64_t until = now + ns; now < until; now += ROUND_NS)
        if (io_yields_due(y, &clock_, now)) {
            io_yields_done(y, &clock_, now, now + ALONE_NS);
            now += ALONE_NS;
            yields++;
        }
    return yields;
}

static void yield_for(struct io_yields *y, uint64_t ns)
{
    CHECK(io_yields_due(y, &clock_, now));
    io_yields_done(y, &clock_, now, now + ns);
    now += ns;
}

static void alone(void)
{
    struct io_yields y = {0};
    CHECK_EQ(idle(&y, 10 * IO_YIELD_NS), 10);
    io_yields_work(&y); /* who was never there is not expected */
    CHECK_EQ(idle(&y, IO_YIELD_NS), 1);
}

static void shared(void)
{
    struct io_yields y = {0};
    yield_for(&y, RAN_NS);
    CHECK(io_yields_due(&y, &clock_, now)); /* who has run may run again */
    unsigned found = idle(&y, IO_YIELD_SHARED_NS);
    CHECK(found >= IO_YIELD_SHARED_NS / IO_YIELD_NS);     /* no fewer than alone ... */
    CHECK(found <= IO_YIELD_SHARED_NS / IO_YIELD_NS + 4); /* ... and hardly more, since none of them found anybody */
    CHECK_EQ(idle(&y, 10 * IO_YIELD_NS), 10);

    now += IO_YIELD_NS;
    yield_for(&y, RAN_NS);
    for (unsigned i = 0; i < 20; i++) { /* a client whom each answer wakes: never more than a round late */
        io_yields_work(&y);
        now += ROUND_NS;
        yield_for(&y, RAN_NS);
    }
    for (unsigned i = 0; i < 20; i++) { /* a request each 50 us, and nobody there */
        io_yields_work(&y);
        CHECK(idle(&y, 50000) <= 4);
    }
}

static void hogged(void)
{
    struct io_yields y = {0};
    uint64_t wait = IO_YIELD_HOG_NS;
    for (unsigned i = 0; i < 12; i++) {
        yield_for(&y, IO_YIELD_HOGGED_NS);
        io_yields_work(&y);
        CHECK(!io_yields_due(&y, &clock_, now + wait - 1));
        now += wait;
        wait = cl_min(2 * wait, (uint64_t)IO_YIELD_HOG_MOST_NS);
    }
    yield_for(&y, ALONE_NS); /* it is gone: the next one begins anew */
    now += IO_YIELD_NS;
    yield_for(&y, IO_YIELD_HOGGED_NS);
    CHECK(!io_yields_due(&y, &clock_, now + IO_YIELD_HOG_NS - 1));
    CHECK(io_yields_due(&y, &clock_, now + IO_YIELD_HOG_NS));
}

int main(void)
{
    CHECK_EQ(cl_clock_from_hz(&clock_, 1000000000, 0, 0), 0);
    alone();
    shared();
    hogged();
    puts("ok");
    return 0;
}
