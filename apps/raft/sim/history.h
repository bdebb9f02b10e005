/* Whether a history of concurrent operations on a map of registers is linearizable: whether every operation can be
 * given one instant between its invocation and its return so that, carried out in that order, all results are right.
 *
 * The search is Wing and Gong's ("Testing and verifying concurrent objects", JPDC 1993) with Lowe's memory of
 * configurations ("Testing for linearizability", CCPE 2017). A configuration is the set of operations carried out so
 * far and the register's state; one that led nowhere is never entered again. Registers are independent of each other,
 * so each key is searched alone (Herlihy and Wing's locality). Of configurations that differ only in which operations
 * of unknown outcome were used up, one that used less can do whatever one that used more can, so it stands for both;
 * and of such operations that do the same, those invoked first are used first. Among the operations that may come next
 * the one that returned first is tried first, and those of unknown outcome last: then a history that is right is mostly
 * found so without ever going back.
 *
 * Configurations are remembered by 128-bit hashes. Two that collide could make a right history look wrong, never a
 * wrong one right. Memory and time are bounded: beyond the limits the answer is "undecided", which callers count as a
 * failure.
 *
 * An operation of unknown outcome (the client gave up, or was still waiting at the end) may take effect at any time
 * after its invocation, once or never. One that certainly had no effect does not belong into the history.
 *
 * A state is a 64-bit word. Values that are text go in as digests that can be appended to: cl_history_digest is a
 * polynomial modulo 2^61 - 1, so that the digest of a text with a piece after it follows from both.
 *
 * Tests: tests/apps/raft/sim/test_history.py */
#ifndef CORELANE_APPS_RAFT_SIM_HISTORY_H
#define CORELANE_APPS_RAFT_SIM_HISTORY_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_HISTORY_ABSENT 0xffffffffffffffff
#define CL_HISTORY_UNKNOWN 0xffffffffffffffff

/* Kinds of operations. */
#define CL_HISTORY_GET 0
#define CL_HISTORY_PUT 1
#define CL_HISTORY_CAS 2
#define CL_HISTORY_APPEND 3
#define CL_HISTORY_ADD 4
#define CL_HISTORY_DELETE 5

/* Flags. REFUSED: the answer was no (CAS: another value; DELETE and those with NEEDS_KEY: no such key). NEEDS_KEY:
 * APPEND and ADD refuse an absent key instead of taking it for empty or 0. HAS_OUTPUT: the answer to APPEND or ADD gave
 * the value afterwards. */
#define CL_HISTORY_REFUSED 1
#define CL_HISTORY_NEEDS_KEY 2
#define CL_HISTORY_HAS_OUTPUT 4

/* One operation of one client. */
struct cl_history_op {
    uint64_t key;
    uint64_t invoked;  /* any clock or count that all clients share; equal times count as overlapping */
    uint64_t returned; /* CL_HISTORY_UNKNOWN: the outcome is not known */
    uint64_t input;    /* PUT, CAS: the new value; APPEND: cl_history_piece; ADD: what to add */
    uint64_t other;    /* CAS: the value expected; APPEND: cl_history_factor */
    uint64_t output;   /* GET: the value found, CL_HISTORY_ABSENT for none; with HAS_OUTPUT: the value afterwards */
    uint32_t client;   /* for reports only */
    uint8_t kind, flags;
};

/* Verdicts. */
#define CL_HISTORY_WRONG 0
#define CL_HISTORY_RIGHT 1
#define CL_HISTORY_UNDECIDED 2

/* What was found. */
struct cl_history_result {
    int32_t verdict;
    uint32_t keys;           /* searched */
    uint64_t configurations; /* entered, over all keys */
    uint64_t bad_key;        /* WRONG, UNDECIDED: the first such key... */
    uint64_t bad_ops;        /* ...how many operations of known outcome it has... */
    uint64_t bad_done;       /* ...how many of these could be put in order at most... */
    uint64_t bad_op;         /* ...and the index of the operation that had to come next and could not */
};

struct cl_history;

/* A checker that enters at most so many configurations a key and remembers them in at most so many bytes (at least
 * 64 KiB). NULL without memory. Used by one thread at a time. */
CL_API struct cl_history *cl_history_new(uint64_t max_configurations, uint64_t max_bytes);
CL_API void cl_history_delete(struct cl_history *h);
/* Check n operations, in any order. Returns the verdict. Too little memory is "undecided". */
CL_API int cl_history_check(struct cl_history *h, const struct cl_history_op *ops, uint64_t n,
                            struct cl_history_result *out);
/* The state that a text is: below 2^61. */
CL_API uint64_t cl_history_digest(const uint8_t *text, uint64_t bytes);
/* `input` and `other` of an APPEND of a text. */
CL_API uint64_t cl_history_piece(const uint8_t *text, uint64_t bytes);
CL_API uint64_t cl_history_factor(uint64_t bytes);
/* What an operation makes of a state. False if its answer does not fit the state. */
CL_API bool cl_history_apply(const struct cl_history_op *op, uint64_t state, uint64_t *next);
// cffi: end

#endif
