/* The context switch, and what the sanitizers are told about it.
 *
 * cl_context_switch saves stack pointer, frame pointer, resume address and floating-point control words to *save and
 * goes on where *to was saved. It is inline assembly that declares every other register as overwritten, so that the
 * compiler saves just those that it needs. Being inline is what makes it fast: processors predict returns by counting
 * calls, and a switch that is called and left by a jump (or called on one stack and returned from on another) puts that
 * count out of step, so that the returns after it all miss. Here each side makes as many calls as returns, and the one
 * indirect jump mostly goes to the same place. It is used in one function that is not inlined itself and in the end of
 * a uthread.
 *
 * The floating-point control words (rounding, exception masks, flush to zero) belong to a uthread, as the ABIs want it
 * of any call. Loading them costs more than all the rest, so they are loaded only where they differ; status bits do not
 * count.
 *
 * CET: a jump to another stack is not possible under shadow stacks. Nothing here is marked as fit for them, so the
 * dynamic loader leaves them off in a process that loads this library; resume points carry the branch-target marks
 * (endbr64, bti). */
#ifndef CORELANE_LIBOS_SCHED_SWITCH_H
#define CORELANE_LIBOS_SCHED_SWITCH_H

#include <corelane/runtime/base.h>

#if defined(__SANITIZE_ADDRESS__)
#define CL_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define CL_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define CL_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define CL_TSAN 0
#endif

/* A context that does not run. The assembly knows these offsets. */
struct cl_context {
    void *sp;
    void *fp;
    void *pc;
    uint64_t fp_control; /* x86-64: mxcsr | x87 control word << 32; aarch64: fpcr */
};
_Static_assert(offsetof(struct cl_context, fp) == 8 && offsetof(struct cl_context, pc) == 16 &&
                   offsetof(struct cl_context, fp_control) == 24,
               "offsets in switch_x86_64.h and switch_aarch64.h");

#if defined(__x86_64__)
#include "switch_x86_64.h"
#elif defined(__aarch64__)
#include "switch_aarch64.h"
#else
#error "corelane has context switches for x86-64 and aarch64 only"
#endif

#endif
