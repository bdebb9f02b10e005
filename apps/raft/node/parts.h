/* In how many parts clients' commands go: which number is best is found out by trials. See parts.c. */
#ifndef CORELANE_APPS_RAFT_NODE_PARTS_H
#define CORELANE_APPS_RAFT_NODE_PARTS_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_RAFT_PARTS_CHOICES 5 /* 1, 2, 4, 8 and 16 parts */

/* All zero: knows nothing. A choice's score is the mean time for which each command has a client wait, in ns. */
struct cl_raft_parts {
    double ratio[CL_RAFT_PARTS_CHOICES]; /* of each choice: its score over the best one's, in the mean; 0: not known */
    double area_ns, busy_ns, done;       /* of this trial, so far */
    double score;                        /* of the best choice, in the mean; 0: not known */
    double last_score;                   /* of its last trial */
    uint32_t rounds;                     /* of this trial, so far */
    uint32_t trials;                     /* of this cycle: first `span` of the best choice, then one of each other */
    uint32_t span;
    uint32_t cycles;   /* since the best choice changed */
    int32_t off;       /* trials in a row in which the best one scored far more (> 0), or less */
    uint8_t best, now; /* choices: as far as it is known; and of this trial */
    uint8_t begun, pad;
};

/* In how many parts commands go now. */
CL_API uint32_t cl_raft_parts_now(const struct cl_raft_parts *p);
/* A round ended: all that was there when it began is committed. In it `done` commands were committed. busy_ns: for so
 * long there were any. area_ns: the times of all of them, added up. */
CL_API void cl_raft_parts_round(struct cl_raft_parts *p, uint64_t area_ns, uint64_t busy_ns, uint64_t done);
// cffi: end

#endif
