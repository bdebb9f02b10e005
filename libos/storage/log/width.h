/* How many flushes of a log are in flight at once: as many as its device does, found out by how long they take. See
 * width.c.
 *
 * Owned by the log, used by whoever is inside a call on it. Times are the log's clock, in ns. */
#ifndef CORELANE_LIBOS_STORAGE_LOG_WIDTH_H
#define CORELANE_LIBOS_STORAGE_LOG_WIDTH_H

#include <stdbool.h>
#include <stdint.h>

#define CL_LOG_WIDTH_DONE 64 /* flushes whose ends are kept */

struct cl_log_width {
    uint32_t now, most; /* flushes in flight at most: now, and ever */
    struct cl_log_lone {
        uint64_t ns;                     /* mean of those that were in flight alone; of the first ones the least */
        uint64_t bytes;                  /* the same of their sizes */
        uint32_t seen;                   /* how many there were, up to as many as it takes */
    } lone[2];                           /* small ones, and large ones */
    bool learns;                         /* some of a kind of which too few flew alone are sent: one at a time */
    uint32_t since_lone;                 /* flushes sent since the last one that was alone */
    uint64_t beside_ns;                  /* mean of small ones that had others beside them; 0: there were none */
    uint64_t idle_ns;                    /* mean time for which nothing had been in flight before a flush was sent */
    int32_t votes;                       /* that the device does half as many as `now`, less votes that it does more */
    uint32_t round;                      /* grows as `now` changes: votes are of one */
    uint32_t narrow;                     /* flushes sent since it was narrowed */
    uint32_t patience;                   /* so many are sent before it is tried wider */
    bool tries;                          /* this round is such a trial */
    uint64_t done;                       /* flushes that are done */
    uint64_t done_ns[CL_LOG_WIDTH_DONE]; /* when number n was: at n modulo this */
};

/* What is known of a flush while it is in flight. */
struct cl_log_flown {
    uint64_t sent_ns;
    uint64_t
        turn; /* when so many flushes are done, a device that does half of `now` begins with this one; 0: at once */
    uint32_t bytes;
    uint32_t round;
    bool beside; /* others were in flight at the same time */
};

/* first: so many fly before anything is known of the device. 1 .. most. */
void cl_log_width_init(struct cl_log_width *w, uint32_t most, uint32_t first);

/* How many may be in flight now: `now`, or one, so that a flush goes alone from time to time. 1 .. most. */
uint32_t cl_log_width_limit(const struct cl_log_width *w);

/* Whether those who append gain by two flushes, of which one is in flight while those of the other append. */
bool cl_log_width_parts(const struct cl_log_width *w);

/* A flush of so many bytes is sent while `others` are in flight. last: the one sent before it, also if it is done. */
void cl_log_width_sent(struct cl_log_width *w, struct cl_log_flown *f, struct cl_log_flown *last, uint32_t others,
                       uint32_t bytes, uint64_t now_ns);

/* A flush is done. */
void cl_log_width_done(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t now_ns);

#endif
