/* The doorbell of a call for help: who says that it has work for more kthreads than run gets a decision in this round,
 * not when the interval is over. The word is in a line that a round reads anyway (switch/doorbell.h), so that who does
 * not ring costs nothing more, and who does a decision.
 *
 * It is not believed. Whatever is written there: an application gets RINGS_PER_S decisions so, that is one for each of
 * the usual interval, and what it says beyond that waits for the next decision, like work that nobody rings for. All
 * together get one a microsecond, as with all else that applications bring about (io_cores_round). The call itself is
 * in another word (`help`), which a decision reads in any case: nothing depends on the bell but how soon. */
#include "../state/internal.h"

#define RINGS_PER_S 200000
#define RINGS_AT_ONCE 4 /* after a pause */

void io_rings_init(const struct cl_io *io, struct io_allotment *a)
{
    uint64_t now = io->config.tsc_hz ? 0 : cl_tsc(); /* a clock of the caller's starts at 0 */
    cl_bucket_init(&a->rings, RINGS_PER_S, RINGS_AT_ONCE, true, io->clock->hz, now);
}

void io_cores_rung(struct io_loop *loop, struct io_app *app)
{
    struct io_allotment *a = &app->cores;
    if (!a->told || loop->io->config.scan_only)
        return;
    cl_bucket_refill(&a->rings, loop->now);
    if (!cl_bucket_open(&a->rings)) {
        io_count(a->stats.rings_delayed, !a->ring_waits);
        a->ring_waits = true;
        return;
    }
    cl_bucket_take(&a->rings, 1);
    a->ring_waits = false;
    /* Relaxed, and no exchange, for which the loop would wait: who calls in the moment in which `help` is read, and
     * finds this set still, is found by the next decision. */
    cl_store_relaxed(&app->doorbell->help_rung, 0);
    io_count(a->stats.rings, 1);
    loop->cores.urgent = true;
    /* What the decision is about to read is on another core: have it come while the round goes on. */
    cl_prefetch(&io_lines_of(&a->kthreads[0])->help);
    io_fetch_words(&loop->cores);
}
