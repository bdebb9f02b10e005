/* Probes: where code that runs for long polls the preemption flag, to learn whether it should cede its core.
 *
 * An application has one word of preemption flags, which the iokernel writes (runtime/shm.h, cl_arena_preempt). The
 * flag of a kthread is set if its core was given to somebody else, or if its uthread has run for a quantum while others
 * wait. A probe is one load of that word and a branch; what is behind the branch is slow and rare. Numba code gets
 * probes from `@libos.batch` (libos/batch_work/work.py). C code gets them from CL_PROBE() in its loops, or from the
 * compiler (-fsanitize-coverage=trace-pc, see trace_pc.h). Put one about every microsecond: a loop of a few nanoseconds
 * a turn is better split in two, with the probe in the outer one.
 *
 * The word's address does not change as long as a runtime exists, and is the same for all of its kthreads. So it may be
 * kept in a variable across blocking calls and moves to other kthreads. On threads that no runtime owns it is a word
 * that is always 0.
 *
 * After Concord (SOSP 2023): preemption by a flag in a cache line instead of an interrupt. */
#ifndef CORELANE_LIBOS_PROBE_H
#define CORELANE_LIBOS_PROBE_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* The word to poll, of the runtime that the calling thread belongs to. Never NULL. */
CL_API const uint64_t *cl_probe_word(void);
/* What a probe does when the word is not 0: cede if the core was given away, and come back when it is ours again,
 * perhaps on another kthread; or let other uthreads run, if the quantum is over. On a uthread; does nothing elsewhere,
 * or where it may not block. May be called at any time. */
CL_API void cl_probe_slow(void);
// cffi: end

/* The same as cl_probe_word() without a call. Initial-exec: one load from the thread block. All kthreads of a runtime
 * have the same value, so a copy that the compiler keeps across a move is as good. */
extern CL_API __thread const uint64_t *cl_probe_word_self __attribute__((tls_model("initial-exec")));

/* Ticks of the time stamp counter in a microsecond, for code that is compiled ahead of time and does not know on what
 * machine it runs: how often its probes poll depends on it. Set with the first kthread; relaxed. */
extern CL_API uint64_t cl_probe_ticks_per_us;

/* The calling thread is a kthread of a runtime with this word; NULL: of none. */
CL_API void cl_probe_bind(const uint64_t *word);

/* What runs between a probe and the moment that the scheduler knows of it: code that may not be interrupted like that
 * around the probe (sched/interrupt.c tells them apart by the section). */
#define CL_PROBE_TEXT __attribute__((section("cl_probe_text")))

#define CL_PROBE()                                                                                                     \
    do {                                                                                                               \
        /* Relaxed: a flag orders nothing; what is seen after it is loaded with acquire. */                            \
        if (cl_unlikely(cl_load_relaxed(cl_probe_word_self)))                                                          \
            cl_probe_slow();                                                                                           \
    } while (0)

CL_EXTERN_C_END
#endif
