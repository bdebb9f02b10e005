/* How many flushes of a log are in flight at once: as many as its device does, found out by how long they take. See
 * width.c.
 *
 * Owned by the log, used by whoever is inside a call on it. Times are the log's clock, in ns. */
#ifndef CORELANE_LIBOS_STORAGE_LOG_WIDTH_H
#define CORELANE_LIBOS_STORAGE_LOG_WIDTH_H

#include <stdbool.h>
#include <stdint.h>

struct cl_log_width {
    uint32_t now, most;  /* flushes in flight at most: now, and ever */
    uint64_t lone_ns;    /* mean of those that were in flight alone; 0: not known */
    uint64_t lone_bytes; /* the same of their sizes */
    uint32_t since_lone; /* flushes sent since the last one of these */
    uint32_t crowded,
        slow; /* flushes of this round that had others beside them, and those of them that had to wait for those */
    uint32_t narrow;   /* flushes sent since it was narrowed or tried wider */
    uint32_t patience; /* so many are sent before it is tried wider */
    bool tries;        /* this round is such a trial */
};

/* What is known of a flush while it is in flight. */
struct cl_log_flown {
    uint64_t sent_ns;
    uint32_t bytes;
    bool beside; /* others were in flight at the same time */
};

void cl_log_width_init(struct cl_log_width *w, uint32_t most);

/* How many may be in flight now: `now`, or one, so that a flush goes alone from time to time. 1 .. most. */
uint32_t cl_log_width_limit(const struct cl_log_width *w);

/* A flush of so many bytes is sent while `others` are in flight. last: the one sent before it, also if it is done. */
void cl_log_width_sent(struct cl_log_width *w, struct cl_log_flown *f, struct cl_log_flown *last, uint32_t others,
                       uint32_t bytes, uint64_t now_ns);

/* A flush is done. */
void cl_log_width_done(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t now_ns);

#endif
