/* Park and wake: how a polling thread goes to sleep without losing work, and how it is woken across threads and
 * processes.
 *
 *   sleeper                                   waker
 *   cl_park_begin:  word = PARKED; fence      publish the work (ring push, run queue, ...)
 *   look at every work source again           cl_park_wake:  fence; if word == PARKED and
 *     work found:  cl_park_cancel               exchange(word, RUNNING) == PARKED: futex wake or eventfd write
 *     none:        cl_park_wait (or poll())
 *
 * Both fences are sequentially consistent: of "store word, load work" and "store work, load word" at least one side
 * sees the other's store, so either the sleeper finds the work or the waker finds PARKED (Dekker's argument; the
 * model-checked form is tests/runtime/c/park_stress.c under TSan, and a spin model in the next issue).
 *
 * The word may lie in memory shared with a process that is not trusted: a lie costs the waker one system call or the
 * liar its wake-up, nothing else. */
#ifndef CORELANE_RUNTIME_PARK_H
#define CORELANE_RUNTIME_PARK_H

#include "base.h"

// cffi: begin
#define CL_PARK_RUNNING 0
#define CL_PARK_PARKED 1

/* A place to sleep. `event_fd` >= 0: the sleeper waits in poll() on it and its device; else on the futex `word`. */
struct cl_parker {
    uint32_t *word;
    int event_fd;
};

CL_API void cl_park_begin(struct cl_parker *p);
CL_API void cl_park_cancel(struct cl_parker *p);
/* Sleep on the futex until woken or for timeout_ns (< 0: for ever). Returns with the word RUNNING. */
CL_API void cl_park_wait(struct cl_parker *p, int64_t timeout_ns);
/* Sleep in poll() on event_fd and device_fd (POLLIN). Same contract. -errno if poll itself failed. */
CL_API int cl_park_wait_fd(struct cl_parker *p, int device_fd, int64_t timeout_ns);
/* Wake the sleeper if it is parked. Returns true if a system call was made. */
CL_API bool cl_park_wake(struct cl_parker *p);
// cffi: end

#endif
