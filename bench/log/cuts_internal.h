/* The parts of cuts.h: cuts_device.c records what a run stores, cuts_run.c makes the run and judges what a cut leaves,
 * cuts.c takes the cuts. */
#ifndef CORELANE_BENCH_LOG_CUTS_INTERNAL_H
#define CORELANE_BENCH_LOG_CUTS_INTERNAL_H

#include "../../drivers/blk/memory.h"
#include "../../drivers/random.h"
#include <corelane/libos/log.h>
#include "cuts.h"

#define CUTS_SECTOR 512u
#define CUTS_FLIGHTS 64

/* What had happened to the run by some time. */
struct cuts_bounds {
    uint32_t acknowledged, submitted;    /* operations: of struct cuts_run */
    uint64_t trimmed, trim_asked;        /* first indexes */
    uint64_t snapshot, snapshot_offered; /* numbers: kept for sure, and of which the commit was asked for */
};

/* A sector as it was stored. */
struct cuts_stored {
    uint64_t offset;
    struct cuts_bounds then;
    uint32_t write; /* that it is of */
    uint8_t bytes[CUTS_SECTOR];
};

/* A write was taken by the device, or is done. */
struct cuts_event {
    uint32_t write;
    bool done;
    struct cuts_bounds then;
};

/* The device of the run: one queue, a memory device behind it. */
struct cuts_recorder {
    struct cl_blk blk;
    struct cl_blk *memory;
    struct cl_blk_req *flights[CUTS_FLIGHTS];
    uint32_t at[CUTS_FLIGHTS]; /* bytes stored of each */
    uint32_t write[CUTS_FLIGHTS];
    unsigned n;
    uint32_t n_writes;
    struct cuts_event *events; /* [room] */
    uint64_t n_events;
    struct cuts_stored *all; /* [room] */
    uint64_t n_stored, room;
    struct cl_random random;
    struct cuts_bounds now; /* the run's to keep */
};

/* What was asked of the log, in the order of the calls; number 0 is the empty log. Tag and content of a record are made
 * of the number of its append, so that a record says whose it is. */
struct cuts_op {
    struct cl_log_op op;
    uint32_t below; /* an append: whose record lies before its own; 0: none */
    uint64_t index; /* an append: of its record */
    /* What the log is once it is durable. */
    uint32_t top, meta;   /* whose are its last record and its votes; 0: there are none */
    uint64_t first, next; /* without trims */
};

struct cuts_run {
    struct cuts_recorder device;
    uint64_t seed, ticks;
    struct cuts_op *ops; /* [most_ops] */
    uint32_t most_ops, appends, truncates, restarts, metas;
    struct cl_log_op trim_op, snapshot_op;
    uint64_t trim_asked; /* of trim_op */
    bool trimming, writing, committing;
    uint32_t snapshot_sent;
    uint64_t confirms; /* superblocks that only say what was acknowledged */
    uint64_t repacks;
    uint64_t trims, snapshots;
    uint64_t flush_bytes; /* written; the ring is smaller */
    uint32_t *found;      /* [most_ops]: whose records a cut has left */
};

/* The device over `memory`, which stays the caller's. */
void cuts_recorder_begin(struct cuts_recorder *r, struct cl_blk *memory);
/* Run until `appends` are acknowledged, on a log that was formatted. 0, or -errno and why. */
int cuts_run_make(struct cuts_run *run, uint32_t appends, uint32_t in_flight, char err[256]);
/* Open what a cut left, and compare: 0, or -errno and why. sure, most: of whose bounds it must be between. Adds to
 * `out`. */
int cuts_run_check(struct cuts_run *run, struct cl_blk *left, uint64_t cut, const struct cuts_bounds *sure,
                   const struct cuts_bounds *most, struct cl_bench_log_cuts *out, char err[256]);

#endif
