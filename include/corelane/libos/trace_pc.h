/* Probes by the compiler: `-fsanitize-coverage=trace-pc` (gcc and clang) calls __sanitizer_cov_trace_pc at every basic
 * block. Compile with what `corelane config --probe-cflags` prints, which includes this file into each unit; nothing in
 * the code has to change. The linker keeps one of the definitions.
 *
 * Every CL_TRACE_PC_EVERY-th call polls the preemption flag. Each block pays for a call, so this suits code whose
 * blocks are long or that is not worth touching. Inner loops are better off with CL_PROBE() (probe.h) every few hundred
 * turns.
 *
 * Does not deal with: functions of other libraries, and assembly. Code that must not be left (a signal handler, a
 * section that holds a lock of the C library) is compiled without the flag. */
#ifndef CORELANE_LIBOS_TRACE_PC_H
#define CORELANE_LIBOS_TRACE_PC_H

#include <corelane/libos/probe.h>

CL_EXTERN_C_BEGIN

#ifndef CL_TRACE_PC_EVERY
#define CL_TRACE_PC_EVERY 256
#endif

#define CL_TRACE_PC_LOCAL __attribute__((weak, visibility("hidden")))

/* Calls left until the next poll, of this thread. A uthread that moves goes on with its new thread's count. */
CL_TRACE_PC_LOCAL __thread int cl_trace_pc_left __attribute__((tls_model("initial-exec")));

void __sanitizer_cov_trace_pc(void);

/* Not instrumented: it would call itself. */
#if defined(__clang__)
__attribute__((no_sanitize("coverage")))
#else
__attribute__((no_sanitize_coverage))
#endif
CL_TRACE_PC_LOCAL void
__sanitizer_cov_trace_pc(void)
{
    if (cl_unlikely(--cl_trace_pc_left < 0)) {
        cl_trace_pc_left = CL_TRACE_PC_EVERY;
        CL_PROBE();
    }
}

CL_EXTERN_C_END
#endif
