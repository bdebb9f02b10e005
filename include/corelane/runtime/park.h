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
 * sees the other's store, so either the sleeper finds the work or the waker finds PARKED (Dekker's argument).
 * tests/runtime/test_park.py checks every interleaving of this on a machine with store buffers, and that it breaks
 * without either fence; tests/runtime/c/park_stress.c runs it.
 *
 * A wake-up that comes late (the waker was preempted between exchange and system call) ends a later sleep too early,
 * never too late: every return from a sleep means only "re-check".
 *
 * The word may lie in memory shared with a process that is not trusted: a lie costs the waker one system call or the
 * liar its wake-up, nothing else. */
#ifndef CORELANE_RUNTIME_PARK_H
#define CORELANE_RUNTIME_PARK_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_PARK_RUNNING 0
#define CL_PARK_PARKED 1
#define CL_PARK_FUTEX -1         /* event_fd: sleep on the futex; wakers may be in other processes */
#define CL_PARK_FUTEX_PRIVATE -2 /* event_fd: sleep on the futex; all wakers are in this process, which is cheaper */

/* A place to sleep. `event_fd` >= 0: the sleeper waits in poll() on it, and on its device; else on the futex `word`.
 * word: writers: the sleeper (both values) and wakers (exchange to RUNNING); readers: wakers. */
struct cl_parker {
    uint32_t *word;
    int event_fd;
    uint32_t given; /* event_fd came by cl_park_give_fd */
};

CL_API void cl_park_begin(struct cl_parker *p);
CL_API void cl_park_cancel(struct cl_parker *p);
/* Sleep on the futex, or on event_fd if there is one, until woken or for timeout_ns (< 0: for ever). Returns with the
 * park word RUNNING. */
CL_API void cl_park_wait(struct cl_parker *p, int64_t timeout_ns);
/* Sleep in poll() on event_fd and device_fd (POLLIN; -1: no device). Same contract. A device that shows an error and
 * nothing to read does not end the sleep at once: it is over after 10 ms, for the driver to look at the device. -errno
 * if poll itself failed. */
CL_API int cl_park_wait_fd(struct cl_parker *p, int device_fd, int64_t timeout_ns);
/* Wake the sleeper if it is parked. Returns true if a system call was made. */
CL_API bool cl_park_wake(struct cl_parker *p);
/* The slow half of it: the park word was seen PARKED. */
CL_API bool cl_park_wake_parked(struct cl_parker *p);
// cffi: end

/* A sleeper that waits on a device's descriptor has an event_fd of its own. -errno; the parker is then not open. */
CL_API int cl_park_open_fd(struct cl_parker *p, uint32_t *word);
/* Have wakers write an eventfd from now on, for a sleeper that waits in its own epoll: the parker's, or a new one. It
 * stays when the sleeper has gone, since a waker may still be about to write: who owns the parker closes it, with it.
 * While nobody sleeps. -errno. */
CL_API int cl_park_give_fd(struct cl_parker *p);
CL_API void cl_park_close_given(struct cl_parker *p);
CL_API void cl_park_close_fd(struct cl_parker *p);

/* Wake after a burst: the caller made one cl_fence_seq_cst() after publishing work to several sleepers. */
static inline bool cl_park_wake_fenced(struct cl_parker *p)
{
    /* Relaxed: the fences of both sides order it; the exchange of the slow half decides between wakers. The pointer is
     * loaded as an atomic, since a port moves its parkers to another arena's words (drivers/port/port.c, rx_sync). */
    return cl_unlikely(cl_load_relaxed(cl_load_relaxed(&p->word)) == CL_PARK_PARKED) && cl_park_wake_parked(p);
}

/* cl_park_wake for hot paths: a fence and a load when nobody sleeps. */
static inline bool cl_park_wake_fast(struct cl_parker *p)
{
    cl_fence_seq_cst(); /* after the work was published */
    return cl_park_wake_fenced(p);
}

CL_EXTERN_C_END
#endif
