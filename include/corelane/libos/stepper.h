/* A stepper: runtimes, and what joins them, driven by one thread on a virtual clock (corelane/runtime/clock.h).
 *
 * While anything is to be done it is done, and no time passes. Then the clock goes to the instant at which something is
 * due next: a timer, a sleep, a frame on a link. So a minute in which little happens takes milliseconds, and equal
 * programs with equal seeds do the same in the same order, to the byte on the wire.
 *
 *   uint64_t now_ns = 1000000000;
 *   struct cl_clock clock;
 *   cl_clock_virtual(&clock, &now_ns);
 *   cl_stepper_new(&now_ns, &stepper);
 *   cl_stepper_add_runtime(stepper, rt, err);
 *   cl_stepper_run(stepper, now_ns + 60 * 1000000000ull, err);
 *
 * The NIC of rt was made with that clock (struct cl_memory_config), and rt is not started.
 *
 * What it cannot make equal: what depends on addresses of memory, other threads, devices and files.
 * Threads: one at a time; not a kthread. Tests: tests/libos/test_stepper.py. */
#ifndef CORELANE_LIBOS_STEPPER_H
#define CORELANE_LIBOS_STEPPER_H

#include <corelane/libos/runtime.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_stepper;

/* Something to drive. step: do what is to be done now, a bounded part at least; returns how much that was, 0: nothing.
 * next_ns: when there will be something, UINT64_MAX: unless others make it, never. */
struct cl_stepped {
    unsigned (*step)(void *arg);
    uint64_t (*next_ns)(void *arg);
    void *arg;
};

/* New, for the clock whose word is now_ns, which only the stepper moves from then on. -ENOMEM. */
CL_API int cl_stepper_new(uint64_t *now_ns, struct cl_stepper **out);
/* They are stepped in the order in which they were added. Each must live until it is removed. -ENOMEM. */
CL_API int cl_stepper_add(struct cl_stepper *stepper, const struct cl_stepped *part);
/* A runtime on a NIC of that clock, which has not been started. -EINVAL, -EALREADY, with a reason in err[256]. */
CL_API int cl_stepper_add_runtime(struct cl_stepper *stepper, struct cl_runtime *rt, char err[256]);
/* Whoever was added with that arg is driven no more. */
CL_API void cl_stepper_remove(struct cl_stepper *stepper, const void *arg);
/* Do all that is due up to until_ns, and leave the clock there. -EDEADLK on a kthread; -ELOOP, with a reason in
 * err[256]: there is always something to do, and so no time passes (a uthread that yields until a time has come,
 * say). */
CL_API int cl_stepper_run(struct cl_stepper *stepper, uint64_t until_ns, char err[256]);
CL_API void cl_stepper_delete(struct cl_stepper *stepper);
// cffi: end

CL_EXTERN_C_END
#endif
