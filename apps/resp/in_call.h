/* When who writes resp's log may wait in the kernel for its device (cl_log_future_call): while that is the shorter way.
 * See in_call.c. */
#ifndef CORELANE_APPS_RESP_IN_CALL_H
#define CORELANE_APPS_RESP_IN_CALL_H

#include <corelane/runtime/base.h>

// cffi: begin
/* All zero: calls are allowed. Times are of the runtime's clock. One uthread at a time. */
struct cl_resp_in_call {
    uint64_t off_until_ns, rest_ns; /* none until then; the last rest */
    uint32_t missed;                /* calls in a row for which the device kept nothing */
    uint64_t usual_ns;              /* that calls take as a rule; 0: not known */
};

/* Whether the next write may be a call. */
CL_API bool cl_resp_in_call_may(const struct cl_resp_in_call *c, uint64_t now_ns);
/* One was to be, and took so long in the kernel. 0: the device kept nothing for it. */
CL_API void cl_resp_in_call_ended(struct cl_resp_in_call *c, uint64_t took_ns, uint64_t now_ns);
// cffi: end

#endif
