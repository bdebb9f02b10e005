/* Work with a deadline: what an application asks of its iokernel, and what becomes of it (docs/deadlines.md). */
#ifndef CORELANE_RUNTIME_PROMISE_H
#define CORELANE_RUNTIME_PROMISE_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_promise {
    uint64_t work;      /* units to be done; 0: only look what became of what was asked */
    uint64_t done;      /* units that it has counted so far; those of `work` come after them */
    uint64_t within_us; /* from now */
    char counter[32];   /* the counter that it publishes of its units; zero-terminated */
};

#define CL_PROMISE_NONE 0      /* it has not asked */
#define CL_PROMISE_MEASURING 1 /* how fast it is */
#define CL_PROMISE_ADMITTED 2
#define CL_PROMISE_REFUSED 3 /* the text says what would be possible */
#define CL_PROMISE_MET 4
#define CL_PROMISE_MISSED 5 /* the text says why */

struct cl_promised {
    uint32_t state;     /* CL_PROMISE_... */
    uint32_t share_ppm; /* cores that it is promised now, millionths */
    uint64_t done;      /* units of `work` that are done, as far as is known */
    uint64_t ends_us;   /* until all are, at the pace of the last seconds; UINT64_MAX: not known */
    char text[240];     /* one line for people, zero-terminated */
};
// cffi: end

_Static_assert(sizeof(struct cl_promise) == 56 && sizeof(struct cl_promised) == 264,
               "no hidden padding: they are parts of messages");

CL_EXTERN_C_END
#endif
