/* Two runtimes on the ends of a link, turned by a stepper on a virtual clock. */
#ifndef TESTS_LIBOS_TCP_STEPPED_H
#define TESTS_LIBOS_TCP_STEPPED_H

#include <corelane/drivers/nic.h>
#include <corelane/libos/libos.h>
#include <corelane/libos/stepper.h>

#include "tests/support/c/check.h"

/* kthreads 0: one for each queue. */
static inline struct cl_runtime *stepped_host(struct cl_nic *nic, uint32_t ipv4, unsigned kthreads,
                                              struct cl_stepper *stepper)
{
    struct cl_runtime_config c = {.nic = nic, .ipv4 = ipv4, .ipv4_prefix = 24, .kthreads = kthreads};
    struct cl_runtime *rt;
    char err[256] = "";
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    return rt;
}

/* Stop both, and give all back. */
static inline void stepped_end(struct cl_stepper *stepper, struct cl_runtime *a, struct cl_runtime *b,
                               struct cl_nic *ends[2])
{
    CHECK_EQ(cl_runtime_stop(a, 0), 0);
    CHECK_EQ(cl_runtime_stop(b, 0), 0);
    cl_stepper_delete(stepper);
    cl_runtime_delete(a);
    cl_runtime_delete(b);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

#endif
