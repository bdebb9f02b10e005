/* See spin.h. */
#include <corelane/libos/spin.h>

#include <sched.h>

#define SPINS 128 /* about a microsecond of pauses: longer than any critical section that is not preempted */

CL_API __thread uint32_t cl_spins_held __attribute__((tls_model("initial-exec")));

void cl_spin_wait(struct cl_spin *l)
{
    for (unsigned i = 1;; i++) {
        /* Look before trying, so that waiters share the line instead of pulling it from the holder. */
        if (cl_load_relaxed(&l->word) == 0 && cl_spin_try(l))
            return;
        if (i % SPINS)
            cl_relax();
        else
            sched_yield();
    }
}
