/* Promises: shares of the cores, as core time, that batch work has even beside latency applications that want
 * everything (docs/deadlines.md). How large each is, the controlling thread decides (iokernel/control/promises.py).
 *
 * What is promised is owed as time passes in which the application could use it, and paid by the core time that it
 * gets, however it gets it. While it is owed a turn's time or more it is guaranteed a core more than the whole cores of
 * its promise, until it is owed nothing. The table says so, in `guaranteed`: so each policy keeps a promise, and beyond
 * that deals as it does without. Where the latency class leaves enough, nothing is ever taken from it.
 *
 * Cores that are guaranteed to others are not for promises. Where the others' turns come at the same time, a turn that
 * has begun ends first, and then whoever is owed most begins. A share in C is exact to a turn in the long run.
 *
 * Tests: tests/iokernel/cores/c/promise.c. */
#include "../state/internal.h"

#include <errno.h>

#define TURN_NS 200000     /* a move is one per cent of that */
#define CREDIT_NS 20000000 /* what was had beyond the promise counts for so much: beyond that it was a gift */
#define DEBT_NS 100000000  /* what could not be paid is not owed for ever: the controlling thread raises the share */
#define MILLION 1000000ull

/* What it is owed now. A decision that comes late is no time in which it was kept from anything. */
static void count(struct io_loop *loop, struct io_allotment *a, uint64_t now)
{
    struct io_promise *p = &a->promise;
    const struct cl_clock *clock = loop->io->clock;
    if (!p->kept) {
        p->kept = true;
        p->turn = false;
        p->owed = 0;
        p->since = now;
        p->core_ticks = a->core_ticks;
        return;
    }
    int64_t most = cl_ns_to_ticks(clock, DEBT_NS), least = -cl_ns_to_ticks(clock, CREDIT_NS);
    uint64_t passed = cl_min(now - p->since, (uint64_t)most);
    uint64_t earned = a->demand ? passed * p->share / MILLION : 0;
    p->owed += (int64_t)earned - (int64_t)(a->core_ticks - p->core_ticks);
    p->owed = cl_max(cl_min(p->owed, most), least);
    p->since = now;
    p->core_ticks = a->core_ticks;
    p->promised += earned;
    cl_store_relaxed(&a->stats.promised_ns, (uint64_t)cl_ticks_to_ns(clock, (int64_t)p->promised));
}

/* Whole cores of its promise. */
static uint32_t whole(const struct io_allotment *a)
{
    return (uint32_t)(a->promise.share / MILLION);
}

/* Which one of those that are owed a turn has the next core that can be had; NULL: none. */
static struct io_allotment *next_turn(struct io_allotment **due, uint32_t n)
{
    struct io_allotment *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct io_allotment *a = due[i];
        if (!a)
            continue;
        bool more =
            best && (a->promise.turn == best->promise.turn ? a->promise.owed > best->promise.owed : a->promise.turn);
        if (!best || more)
            best = a;
    }
    return best;
}

static void guarantee(struct io_cores *c, const struct io_allotment *a, uint32_t cores)
{
    c->table[a->row].guaranteed = cl_min(cl_max(cores, a->guaranteed), a->maximum);
}

void io_promises_keep(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (cl_likely(!c->promises && !cl_load_relaxed(&c->n_promises)))
        return;
    struct io_allotment *due[CL_IO_MAX_APPS];
    uint32_t n = 0, taken = 0;
    int64_t turn = cl_ns_to_ticks(loop->io->clock, TURN_NS);
    c->promises = false;
    for (uint32_t i = 0; i < c->n_apps; i++) {
        struct io_allotment *a = &c->apps[i]->cores;
        a->promise.share = cl_load_relaxed(&a->promise.share_ppm);
        bool promised = a->promise.share != 0;
        taken += cl_max(a->guaranteed, whole(a));
        if (!promised && !a->promise.kept)
            continue;
        if (promised)
            count(loop, a, now);
        a->promise.kept = promised;
        c->promises |= promised;
        guarantee(c, a, whole(a));
        if (promised && a->promise.owed > (a->promise.turn ? 0 : turn - 1))
            due[n++] = a;
        else
            a->promise.turn = false;
    }
    for (uint32_t room = c->n > taken ? c->n - taken : 0, left = n; left; left--) {
        struct io_allotment *a = next_turn(due, n);
        a->promise.turn = room > 0;
        if (room > 0) {
            guarantee(c, a, whole(a) + 1);
            room--;
        }
        for (uint32_t i = 0; i < n; i++)
            due[i] = due[i] == a ? NULL : due[i];
    }
}

int cl_io_app_promise(struct cl_io *io, uint32_t id, uint32_t share_ppm)
{
    struct io_app *app = io_app_by_id(io, id);
    if (!app)
        return -ENOENT;
    if (!io->config.manage_cores || share_ppm > app->cores.maximum * MILLION)
        return -EINVAL;
    uint32_t n = 0;
    cl_store_relaxed(&app->cores.promise.share_ppm, share_ppm); /* relaxed: a number that stands alone */
    for (const struct io_app *a = io->apps; a; a = a->next)
        n += a->loop == app->loop && cl_load_relaxed(&a->cores.promise.share_ppm) != 0;
    cl_store_relaxed(&io->loops[app->loop].cores.n_promises, n); /* relaxed: whether to look */
    return 0;
}
