/* Every sector-wise cut of a run of the log: what each prefix of the stored sectors recovers to.
 *
 * The run goes over a device that stores the sectors of the writes in flight one by one, of several writes in an order
 * drawn from the seed, and completes a write when its last one is stored. The order of all sectors is kept, with how
 * many operations had been acknowledged and submitted by then. Then the run is replayed sector by sector into an empty
 * area, and after each sector a log is opened there as after a power cut: it must be what it was after some number of
 * the operations, at least those that had been acknowledged before anything more was stored, and none that had not been
 * submitted.
 *
 * Operations are appends, one at a time and in bursts, votes, truncations and restarts; beside them trims and snapshots
 * are made. The area is so small that a run of 1000 appends goes round in it several times.
 *
 * A disk may store the sectors of what is in flight in any order. So the run is replayed once more by writes: each time
 * one is sent or done, a log is opened with what was done and a subset of the sectors in flight, of those that change
 * something. Of up to 8 every subset is tried; of more none, all, each alone, all but each, and 24 drawn from the seed.
 * A log is also opened with nothing of what is in flight, and with a byte of one of the superblocks changed, of each in
 * turn. */
#ifndef CORELANE_BENCH_LOG_CUTS_H
#define CORELANE_BENCH_LOG_CUTS_H

#include <corelane/runtime/base.h>

// cffi: begin
struct cl_bench_log_cuts {
    uint64_t appends; /* acknowledged in the run */
    uint64_t truncates, restarts, metas, trims, snapshots;
    uint64_t laps; /* of the area */
    uint64_t sectors;
    uint64_t cuts;      /* openings, one after each sector */
    uint64_t recovered; /* of them: all that was acknowledged, as it was, and nothing that was never submitted */
    uint64_t beyond;    /* operations found that had not been acknowledged, over all cuts */
    uint64_t confirms;  /* superblocks of the run that only say what was acknowledged */
    uint64_t torn;      /* cuts that left a torn flush, as reported */
    uint64_t subsets;   /* openings, each with a subset of the sectors in flight */
    uint64_t subsets_recovered, subsets_torn;
    uint64_t rotten, rotten_recovered; /* openings with one of the superblocks damaged */
    uint64_t repacks;                  /* passes that copied what is kept to the end of the ring */
};

/* appends: up to 64 Ki; in_flight: flushes in flight at most, 1 to 16. -errno with a reason in err, also of the first
 * cut that was not recovered (-EBADMSG; the counts are then those up to it). */
CL_API int cl_bench_log_cuts(uint64_t seed, uint32_t appends, uint32_t in_flight, struct cl_bench_log_cuts *out,
                             char err[256]);
// cffi: end

#endif
