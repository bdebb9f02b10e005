/* See probe.h. */
#include <corelane/libos/probe.h>

#include <corelane/libos/sched.h>
#include <corelane/runtime/clock.h>

static const uint64_t nothing CL_ALIGNED(64) = 0;

CL_API __thread const uint64_t *cl_probe_word_self __attribute__((tls_model("initial-exec"))) = &nothing;

CL_API uint64_t cl_probe_ticks_per_us = 1000;

const uint64_t *cl_probe_word(void)
{
    return cl_probe_word_self;
}

static uint32_t measured; /* relaxed: who sees it late measures once more */

static CL_NOINLINE void measure(void)
{
    /* Relaxed: whoever still sees the first value polls at the wrong intervals for a moment. */
    cl_store_relaxed(&cl_probe_ticks_per_us, cl_max(cl_clock_default()->hz / 1000000, (uint64_t)1));
    cl_store_relaxed(&measured, 1);
}

void cl_probe_bind(const uint64_t *word)
{
    cl_probe_word_self = word ? word : &nothing;
    if (cl_unlikely(word && !cl_load_relaxed(&measured))) /* and not at each turn of an adopted kthread */
        measure();
}

CL_PROBE_TEXT void cl_probe_slow(void)
{
    cl_sched_preempt_poll();
}
