/* Has the code of the iokernel and of the application that is included after it run on the machine of interleave.h: its
 * loads and stores, fences, clock and system calls. Comes before any other header of the library, so that inline
 * functions do, too. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_WORDS_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_WORDS_H

#include <corelane/runtime/base.h>

#include "interleave.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define IL_TYPE(p) __typeof__(__atomic_load_n((p), __ATOMIC_RELAXED))

#undef cl_load_relaxed
#undef cl_load_acquire
#undef cl_store_relaxed
#undef cl_store_release
#undef cl_fence_seq_cst
#define cl_load_relaxed(p) ((IL_TYPE(p))(uintptr_t)il_load((p), sizeof *(p)))
#define cl_load_acquire(p) cl_load_relaxed(p)
#define cl_store_relaxed(p, v) il_store((p), sizeof *(p), (uint64_t)(uintptr_t)(v))
#define cl_store_release(p, v) cl_store_relaxed(p, v)
#define cl_fence_seq_cst() il_fence(__func__)

#include <corelane/runtime/clock.h>
#include "runtime/hist.h"

/* The clock stands still while a round of the loop, or a look of a kthread, lasts; a tick is a microsecond. */
#define NOW 1000000ull

#define il_mutant (il.mutant) /* the fault that is in; 0: none (tests/iokernel/cores/test_model.py) */

static uint64_t model_tsc(void);
static const struct cl_clock *model_clock(void);
static long model_syscall(long number, ...);
static ssize_t model_write(int fd, const void *from, size_t bytes);
static void model_yield(void);
static int model_affinity(int tid, size_t bytes, const cpu_set_t *set);
static int model_scheduler(int tid, int policy, const struct sched_param *p);

#define cl_tsc() model_tsc()
#define cl_clock_stamp(clock) ((void)(clock), model_tsc())
#define cl_tsc_ordered() model_tsc()
#define cl_clock_default() model_clock()
#define cl_hist_record(h, v) ((void)(h), (void)(v))
#define syscall model_syscall
#define write model_write
#define sched_yield model_yield
#define sched_setaffinity model_affinity
#define sched_setscheduler model_scheduler

#endif
