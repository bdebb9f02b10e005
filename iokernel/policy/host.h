/* The place that a policy is called from: which one decides, swapping it while the loop runs, and what it may cost.
 *
 * Threads. One loop thread calls cl_policy_run. One controlling thread calls the rest.
 *
 * Calling. A built-in policy is called on the mechanism's own table. Any other is called on a copy between guard pages,
 * from which only `grant` and `memory` are taken back, and with a way out (guard.h): a call that takes longer than the
 * limit, or that faults, is left, the policy is ejected, `delay` decides in its place from this very decision on, and
 * an event says why. A grant that is no number of cores, or was not written, counts as nonsense, and the application
 * keeps the cores that it holds. A policy in whose answers there is nonsense CL_POLICY_MOST_NONSENSE times in a row is
 * ejected, too. cl_policy_settle then cuts what is left of every policy's grants to what is allowed.
 *
 * Swapping. The controlling thread writes a setting into one of two slots and publishes ticket and slot in one word,
 * `pending`; the loop takes it out by exchange at its next decision and says so in `taken`. A setting that is replaced
 * before the loop saw it was never called. So once cl_policy_host_taken says yes for a ticket, the loop calls no older
 * function any more, and what they were loaded from can go.
 *
 * `memory` of the applications is zeroed when a policy is swapped in or ejected: it lies in the mechanism's table,
 * whose rows are the same applications' from one call to the next (a row that is given to another application is zeroed
 * by the mechanism).
 *
 * Tests: tests/iokernel/policy/test_host.py, tests/iokernel/policy/c/policy_swap.c. */
#ifndef CORELANE_IOKERNEL_POLICY_HOST_H
#define CORELANE_IOKERNEL_POLICY_HOST_H

#include <corelane/iokernel/policy.h>

// cffi: begin
#define CL_POLICY_LIMIT_NS 1000000    /* longest decision of a policy that is not built in */
#define CL_POLICY_WATCH_NS 1000000    /* CPU time of the loop's thread between two checks whether one takes longer */
#define CL_POLICY_MOST_GRANT 0xffffff /* a grant above is no number of cores; so is a negative one */
#define CL_POLICY_MOST_NONSENSE 100   /* decisions in a row with such grants until a policy is ejected */

/* Why a policy was ejected. */
#define CL_POLICY_LATE 1      /* one decision took longer than the limit */
#define CL_POLICY_OUTSIDE 2   /* it touched memory just outside of its table */
#define CL_POLICY_FAULT 3     /* another fault: memory that is not there, a division by zero, an illegal instruction */
#define CL_POLICY_UNWRITTEN 4 /* wrote no grant, time after time */
#define CL_POLICY_NONSENSE 5  /* wrote a grant that is no number of cores, time after time */
#define CL_POLICY_UNWATCHED 6 /* it was not called: the timer that bounds the call cannot be made */

struct cl_policy_host;

struct cl_policy_setting {
    cl_policy_fn fn;
    uint64_t params[8];
    uint32_t guarded; /* not built in: see above */
    uint32_t reserved;
    uint64_t ticket; /* OUT, of cl_policy_host_current: which setting decides, 0 before the first */
};

/* Writer: the loop. Relaxed: counters that order nothing. */
struct cl_policy_stats {
    uint64_t decisions;
    uint64_t swaps;       /* settings taken */
    uint64_t ejected;     /* policies that were replaced by `delay` */
    uint64_t cut;         /* grants that settling changed */
    uint64_t nonsense;    /* grants that were no number of cores, or not written */
    uint64_t overwritten; /* fields that a policy may not write, and did; they were left as they had been */
    uint64_t
        timed; /* decisions of which the time was taken: all of a policy that is not built in, one in 16 of others */
    uint64_t ticks;      /* time of those, settling included */
    uint64_t last_ticks; /* of the last one */
    uint64_t most_ticks; /* of the longest one */
};

/* How the last policy that was ejected came to that. */
struct cl_policy_event {
    uint32_t reason; /* CL_POLICY_LATE, ...; 0: none was */
    uint32_t signal; /* that ended the call */
    uint64_t ticket; /* of the setting */
    uint64_t ticks;  /* how long the call had run */
    int64_t offset;  /* CL_POLICY_OUTSIDE: of what it touched, from apps[0], bytes */
    uint32_t app;    /* CL_POLICY_UNWRITTEN, _NONSENSE: the first row concerned, in the last decision */
    uint32_t grant;  /* and what was written there */
};

/* A host in which `static` decides. limit_ns, watch_ns: 0: the defaults above. -errno with a reason in err[256]. */
CL_API int cl_policy_host_new(uint64_t limit_ns, uint64_t watch_ns, struct cl_policy_host **out, char *err);
/* The thread that called cl_policy_run has ended, or is the caller. */
CL_API void cl_policy_host_delete(struct cl_policy_host *h);

/* One decision: sets view->params, calls the policy, settles, counts. Returns how many grants were cut. Loop thread. */
CL_API unsigned cl_policy_run(struct cl_policy_host *h, struct cl_policy_view *view, struct cl_policy_app *apps);

/* Have another policy decide from the next decision on. Returns its ticket (> 0), or -errno with a reason in
 * err[256]. */
CL_API int64_t cl_policy_host_set(struct cl_policy_host *h, const struct cl_policy_setting *setting, char *err);
/* Whether the loop has taken this setting, or a later one. */
CL_API bool cl_policy_host_taken(struct cl_policy_host *h, int64_t ticket);
/* What decides now: after a policy was ejected, `delay` with the ticket of the setting that it stands for. */
CL_API void cl_policy_host_current(const struct cl_policy_host *h, struct cl_policy_setting *out);
CL_API void cl_policy_host_stats(const struct cl_policy_host *h, struct cl_policy_stats *out);
/* The last event; false: none yet. */
CL_API bool cl_policy_host_event(const struct cl_policy_host *h, struct cl_policy_event *out);

// cffi: end

/* What stands in `grant` when a policy is called, so that one that writes none is found. Not -1, which arithmetic that
 * goes wrong may well yield. */
#define CL_POLICY_NO_GRANT 0x80000000u

#endif
