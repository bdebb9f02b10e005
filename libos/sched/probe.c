/* See probe.h. */
#include <corelane/libos/probe.h>

#include <corelane/libos/sched.h>

static const uint64_t nothing CL_ALIGNED(64) = 0;

CL_API __thread const uint64_t *cl_probe_word_self __attribute__((tls_model("initial-exec"))) = &nothing;

const uint64_t *cl_probe_word(void)
{
    return cl_probe_word_self;
}

void cl_probe_bind(const uint64_t *word)
{
    cl_probe_word_self = word ? word : &nothing;
}

CL_PROBE_TEXT void cl_probe_slow(void)
{
    cl_sched_preempt_poll();
}
