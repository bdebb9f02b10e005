/* Whether a kthread that has just run out of work lingers: it polls on for a moment before it lets the CPU go.
 *
 * To let the CPU go and have it again takes some 1 us alone and 4 to 7 us beside others of the core. Nobody polls
 * meanwhile. That is well spent if the next work is far off. If the next work is a client's answer away, the work waits
 * for it. So a kthread remembers whether lingering has paid of late, by a score. The score rises when work came while
 * it lingered, and falls when none did. If the score is too low, the kthread lingers each CL_LINGER_TRY th time
 * nevertheless, so that it learns of a change.
 *
 * Lingering that never pays costs the others CL_LINGER_NS / CL_LINGER_TRY of each idle period, 118 ns.
 *
 * Time is in ticks of the scheduler's clock. One user: the kthread. Tests: tests/libos/sched/c/linger.c. */
#ifndef CORELANE_LIBOS_SCHED_LINGER_H
#define CORELANE_LIBOS_SCHED_LINGER_H

#include <stdbool.h>
#include <stdint.h>

#define CL_LINGER_NS 2000  /* longest time */
#define CL_LINGER_TRY 17   /* a prime: tries do not fall into step with what comes by turns */
#define CL_LINGER_MOST 8   /* highest score ... */
#define CL_LINGER_ENOUGH 4 /* ... and the one from which on it lingers each time */

/* All zero is a valid beginning: nothing learnt. */
struct cl_linger {
    uint64_t until;  /* ticks, 0: it does not linger */
    uint32_t score;  /* 0 .. CL_LINGER_MOST */
    uint32_t passed; /* idle periods without lingering since the last one with it */
};

/* An idle period begins. */
static inline void cl_linger_begin(struct cl_linger *l, uint64_t now, uint64_t ticks)
{
    l->until = 0;
    if (l->score < CL_LINGER_ENOUGH && ++l->passed < CL_LINGER_TRY)
        return;
    l->passed = 0;
    l->until = now + ticks;
}

/* Whether to linger on at `now`. */
static inline bool cl_linger_on(struct cl_linger *l, uint64_t now)
{
    if (!l->until)
        return false;
    if (now < l->until)
        return true;
    l->until = 0;
    l->score -= l->score > 0;
    return false;
}

/* Work has come. If its time was over by then, as for one that did not have the CPU, lingering has not found it. */
static inline void cl_linger_over(struct cl_linger *l, uint64_t now)
{
    if (!cl_linger_on(l, now))
        return;
    l->until = 0;
    l->score = l->score + 2 < CL_LINGER_MOST ? l->score + 2 : CL_LINGER_MOST;
}

#endif
