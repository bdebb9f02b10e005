/* What a core-allocation policy is: a function that reads a table of applications and writes how many cores each
 * should have. Mechanisms (which core, how it moves) are elsewhere; the discrete-event simulator in bench/sim calls the
 * very same functions. docs/policies.md is this page for users.
 *
 * Contract. A policy is called every `interval_ns` by one thread. It reads `view` and `apps[0..n_apps)`, writes `grant`
 * of every application, and may use `memory` (zero when the application registers and when the policy is swapped in,
 * never touched by others). It allocates nothing, locks nothing, calls nothing, keeps no state elsewhere, gives the
 * same grants for the same table, and takes time in O(n_apps). None of it is trusted: iokernel/policy/trial.h tries a
 * policy before it is installed, iokernel/policy/host.h bounds it while it runs, and cl_policy_settle brings each grant
 * into [what is guaranteed and demanded, maximum], and when the grants exceed the cores, cuts them: what is over a
 * guarantee and not demanded, then what is over a guarantee, then what was guaranteed, of each batch before latency,
 * and among equals whoever is most over its guarantee first, in the order of the table. Who wants equals to take turns
 * grants no more than there is (iokernel/policies/deal.h).
 *
 * Signals are ages: how long the oldest packet, runnable thread, overdue timer or storage completion of the application
 * has been waiting at this instant; 0 if none waits (after Shenango, NSDI 2019; Caladan, OSDI 2020).
 *
 * A policy in C is a shared object that includes this header alone:
 *
 *     #include <corelane/iokernel/policy.h>
 *     void mine(const struct cl_policy_view *view, struct cl_policy_app *apps) { ... view->params[0] ... }
 *     CL_POLICY(mine, "spare")
 *
 * Tests: tests/iokernel/policies/test_policies.py. */
#ifndef CORELANE_IOKERNEL_POLICY_H
#define CORELANE_IOKERNEL_POLICY_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_POLICY_LATENCY 0 /* requests wait for it: served before batch */
#define CL_POLICY_BATCH 1   /* uses what it gets; never "congested" */
#define CL_POLICY_PARAMS 8
#define CL_POLICY_MEMORY 4
#define CL_POLICY_MAX_APPS 256 /* rows in a table, at most */
#define CL_POLICY_ABI 2        /* of this header, for a policy compiled elsewhere */

/* One application, two cache lines. All but grant and memory are read-only for the policy.
 *
 * A grant beyond `demand` keeps cores for the application while it has no use for them: nobody else gets them. */
struct cl_policy_app {
    uint64_t packet_delay_ns;
    uint64_t thread_delay_ns;
    uint64_t timer_delay_ns;
    uint64_t storage_delay_ns;
    uint64_t attained_ns; /* core time held so far */
    uint64_t deadline_ns; /* what the application asks its tail to stay under; 0: nothing asked */
    /* Lately, from the grant of its only core, which another had, to the first frame that it sent; 0: not known. */
    uint64_t answer_ns;
    uint32_t cores;      /* held now, those on their way to it included */
    uint32_t idle;       /* of those, cores without work at this instant */
    uint32_t demand;     /* it could use at this instant: with work, and for what waits beside; at most `maximum` */
    uint32_t guaranteed; /* never less, if it wants them */
    uint32_t maximum;    /* never more */
    uint32_t kind;       /* CL_POLICY_LATENCY or CL_POLICY_BATCH */
    uint32_t weight;     /* share among equals; at least 1 */
    uint32_t rested_ns;  /* latency: since its kthread that ran last let a CPU go; 0: it has one, or not known */
    uint32_t grant;      /* OUT: cores that it should have */
    uint32_t unused;
    uint64_t memory[4]; /* the policy's own */
};

struct cl_policy_view {
    uint64_t now_ns;
    uint64_t interval_ns; /* time between two calls */
    uint32_t n_apps;
    uint32_t n_cores;   /* that can be granted */
    uint64_t params[8]; /* the policy's settings, in its own order; 0: its default */
    /* How long it lately took a core to move from an owner with work, from the grant to the new owner's first
     * instruction; 0: not known. Last, so that policies compiled before there was such a word read the others where
     * they are. */
    uint64_t move_ns;
    /* Of the last few milliseconds, what is older counting less: core time of batch applications, and for how long
     * cores were on their way between them and latency applications, either way. What moves cost batch work is the
     * second over both. */
    uint64_t batch_ns, moving_ns;
};

typedef void (*cl_policy_fn)(const struct cl_policy_view *view, struct cl_policy_app *apps);

/* A built-in policy by name: static, shenango, delay, fair, attained. NULL if there is none of that name. */
CL_API cl_policy_fn cl_policy_find(const char *name);
/* Names, one after the other, by index; NULL past the end. */
CL_API const char *cl_policy_name(unsigned index);
/* Bring grants to what is allowed (see above). Returns how many were brought into their bounds, and cores cut. */
CL_API unsigned cl_policy_settle(const struct cl_policy_view *view, struct cl_policy_app *apps);
// cffi: end

_Static_assert(sizeof(struct cl_policy_app) == 128, "two cache lines");
_Static_assert(offsetof(struct cl_policy_app, grant) == 88, "what a policy only reads comes first");

/* What a compiled policy says of itself: exported as NAME_policy beside the function NAME, and read from the file
 * before anything of it is loaded. */
struct cl_policy_note {
    uint32_t abi;
    uint32_t app_bytes;
    char params[120]; /* names of its settings, in the order of view->params, separated by spaces */
};
/* In C++ this stands above the function, which gets its C name by it. */
#define CL_POLICY(function, names)                                                                                     \
    CL_EXTERN_C_BEGIN                                                                                                  \
    CL_API void function(const struct cl_policy_view *, struct cl_policy_app *);                                       \
    extern CL_API const struct cl_policy_note function##_policy;                                                       \
    CL_EXTERN_C_END                                                                                                    \
    const struct cl_policy_note function##_policy = {CL_POLICY_ABI, sizeof(struct cl_policy_app), names};

/* The built-in ones, one a file in policies/. */
CL_API void cl_policy_static(const struct cl_policy_view *view, struct cl_policy_app *apps);
CL_API void cl_policy_shenango(const struct cl_policy_view *view, struct cl_policy_app *apps);
CL_API void cl_policy_delay(const struct cl_policy_view *view, struct cl_policy_app *apps);
CL_API void cl_policy_fair(const struct cl_policy_view *view, struct cl_policy_app *apps);
CL_API void cl_policy_attained(const struct cl_policy_view *view, struct cl_policy_app *apps);

/* Age of the oldest thing that waits, whatever it is. */
static inline uint64_t cl_policy_oldest_ns(const struct cl_policy_app *a)
{
    uint64_t packet = cl_max(a->packet_delay_ns, a->thread_delay_ns);
    uint64_t other = cl_max(a->timer_delay_ns, a->storage_delay_ns);
    return cl_max(packet, other);
}

/* For the end of a policy that wrote `grant` of the latency applications: one pass over the table, mostly. Where these
 * want more than there is: guarantees of either kind first, and the rest core by core to whoever of them attained least
 * for its weight, in turns of 20 us. Each batch application has what it is guaranteed and demands, and what all these
 * leave goes to those that demand more, by attained time over weight (iokernel/policies/deal.h). Returns cores that are
 * left. Uses memory[1], [2] and [3]. */
CL_API uint32_t cl_policy_share(const struct cl_policy_view *view, struct cl_policy_app *apps);
/* After that: the cores left, that nobody wants, go, one each, to latency applications in which anything waits at
 * all. */
CL_API void cl_policy_share_rest(const struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t left);
/* Give what all grants leave to batch applications that demand more than theirs, by attained time over weight.
 * Uses the batch applications' memory[1], [2] and [3]. */
CL_API void cl_policy_share_left(const struct cl_policy_view *view, struct cl_policy_app *apps);

CL_EXTERN_C_END
#endif
