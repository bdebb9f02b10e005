/* delay: one core more when the oldest waiting thing is older than a target, one less after a calm spell.
 *
 * After Caladan's use of queueing delay (OSDI 2020), with hysteresis on both sides: growing needs the delay
 * above the target, shrinking needs `calm` checks in a row with an idle core and the delay under half of the target. So
 * a target of some microseconds gives the best tail and a target of tens batches the work: fewer moves, more for batch.
 * An application with a deadline has half of that for its target, if it is the shorter one: at the deadline itself it
 * would be too late. What waits for an application without a core only grows older: it gets one at the last check from
 * which a core that moves as moves lately did is there before the target, so a target below the interval means at first
 * sight. And where the first answer took longer than the move, as it does with caches that another has used and cores
 * that are far apart, that is taken off, too; up to a quarter of the target: the rest is not delay but what the
 * application does. A core that nobody wants is given to whoever has anything waiting.
 *
 * A core that batch work has costs it a move to and one back. Where these took more of it lately than they may, by the
 * loop's own clock, no core is taken from batch work before the work done has made up for it: the busier an application
 * is, the more requests a move is for. Each then waits longer, by MOST_HELD_NS at most; but not for who asked to have a
 * core in time, by a guarantee or a deadline.
 *
 * params[0]: target in ns (default 10 us). params[1]: calm checks before an idle core goes back (default 1: at once;
 * with more, a core may stand idle beside runnable batch work for that many intervals). params[2]: per cent that moves
 * may take of what latency applications leave to batch work (default 10; from 100 on there is no bound).
 * memory[0]: calm checks so far. memory[1] to [3]: deal.h. */
#include <corelane/iokernel/policy.h>

#define DEFAULT_TARGET_NS 10000
#define DEFAULT_CALM 1
#define DEFAULT_MOVES_PERCENT 10
#define MOST_HELD_NS 100000

static inline bool moves_cost_too_much(const struct cl_policy_view *view)
{
    uint64_t percent = view->params[2] ? cl_min(view->params[2], (uint64_t)100) : DEFAULT_MOVES_PERCENT;
    return view->moving_ns * (100 - percent) > view->batch_ns * percent;
}

/* Who was granted a core more gets one only if batch work has not got it. */
static CL_NOINLINE void hold_back(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < view->n_apps; i++)
        used += cl_min(apps[i].cores, apps[i].kind == CL_POLICY_BATCH ? apps[i].demand : apps[i].grant);
    uint64_t left = cl_max((uint64_t)view->n_cores, used) - used;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH || a->grant <= a->cores)
            continue;
        uint32_t more = a->grant - a->cores;
        bool in_time = a->cores < a->guaranteed || a->deadline_ns || cl_policy_oldest_ns(a) > MOST_HELD_NS;
        if (!in_time)
            a->grant = a->cores + (uint32_t)cl_min((uint64_t)more, left);
        left -= cl_min((uint64_t)(a->grant - a->cores), left);
    }
}

void cl_policy_delay(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint64_t target_ns = view->params[0] ? view->params[0] : DEFAULT_TARGET_NS;
    uint64_t calm = view->params[1] ? view->params[1] : DEFAULT_CALM;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH)
            continue;
        if (a->cores == 0 && a->demand == 0) { /* it rests, as most do: what follows comes to the same */
            a->grant = 0;
            a->memory[0] = 0;
            continue;
        }
        uint64_t limit_ns = a->deadline_ns ? cl_min(a->deadline_ns / 2, target_ns) : target_ns;
        uint64_t oldest_ns = cl_policy_oldest_ns(a);
        a->grant = cl_min(a->cores, a->maximum);
        /* Its age when it is answered, if the application gets a core at the next check. */
        uint64_t lag_ns = cl_max(view->move_ns, cl_min(a->answer_ns, view->move_ns + limit_ns / 4));
        uint64_t next_ns = oldest_ns + view->interval_ns + lag_ns;
        bool too_late_next = oldest_ns && a->cores == 0 && next_ns > limit_ns;
        if (oldest_ns > limit_ns || too_late_next) {
            a->memory[0] = 0;
            a->grant = cl_max(cl_min(a->cores + 1, a->demand), a->grant);
        } else if (a->idle && oldest_ns <= limit_ns / 2) {
            if (++a->memory[0] >= calm) {
                /* All of them: work conserving. The first request after this pays for one move. */
                a->grant -= cl_min(a->idle, a->grant);
                a->memory[0] = 0;
            }
        } else {
            a->memory[0] = 0;
        }
    }
    if (cl_unlikely(moves_cost_too_much(view)))
        hold_back(view, apps);
    cl_policy_share_rest(view, apps, cl_policy_share(view, apps));
}
