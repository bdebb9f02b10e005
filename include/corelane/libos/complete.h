/* Completions: what uthreads wait for that nobody delivers and a kthread has to collect, such as storage requests.
 *
 * Whoever has queues to be polled gives the scheduler a `struct cl_completions`; queue k belongs to kthread k. While
 * nothing is in flight (cl_sched_in_flight), nothing is polled. But a kthread that spins without work then lets the CPU
 * go between polls: what another of its core waits for may need it. (Not at once if work has come within 2 us of late:
 * linger.h.) While something of kthread k is in flight
 *   - k polls at each turn of its loop. A turn comes with the first switch of uthreads 20 us after the last poll (else:
 *     with the 64th), so what is done waits behind the uthread that runs and not behind all that are ready;
 *   - every so often k lets the CPU go between uthreads with sched_yield, also when it is busy: the second half of a
 *     durable write runs in a kernel worker on the CPU that took the disk's interrupt, which else waits for the next
 *     tick (4 ms). The first time is 50 us after the request was submitted: before, there is nothing to be done for it;
 *   - without work k polls on for some 200 us, and then parks like any other (at once where somebody else could use
 *     its core, or in mode `block`), its queues armed. A thread of the scheduler's watches their descriptors. It wakes
 *     k, or, where cores are managed, counts the completion in k's signals and calls for help of the iokernel;
 *   - where cores are managed and k alone uses the one queue that there is, k parks at once. It sees by itself, while
 *     it is parked, that something is done (`ready` and `sleep` below, struct cl_park_poll), without the watcher;
 *   - a sibling polls for k when k is stuck or has lost its core.
 * So a uthread that waits costs no core, and a lone one is told within one poll.
 *
 * Does not deal with: removing while the scheduler runs. Tests: tests/libos/storage/test_io.py, test_log.py. */
#ifndef CORELANE_LIBOS_COMPLETE_H
#define CORELANE_LIBOS_COMPLETE_H

#include <corelane/libos/sched.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* Contexts as in cl_work_source: S = scheduler loop of kthread `self`. */
struct cl_completions {
    struct cl_completions *next; /* the scheduler's. Writer: add, before the element is published; readers: kthreads */
    void *arg;
    bool one_queue; /* there is one queue for all kthreads (log_shared.h): fd(0) is watched, and whoever waits is
                    * woken */
    /* S. Submit what waits to be submitted on queue k, collect what is done, make ready who waited for it, and say how
     * many were collected. self != k: for a sibling, which may be at it itself: the callee takes the queue's lock by
     * trylock then. */
    unsigned (*poll)(void *arg, unsigned self, unsigned k);
    /* S, k itself. While armed, a completion on queue k makes fd(k) readable, also one that was there before. */
    void (*arm)(void *arg, unsigned k, bool on);
    /* S, k itself, which has no core at the moment. Whether poll would collect something; it does nothing else. */
    bool (*ready)(void *arg, unsigned k);
    /* The same, on a queue of its own. Sleep until that may have changed, or as wait_word of blk.h says. Not 0: it
     * cannot. NULL, like `ready`: a kthread that parks has its queues armed. */
    int (*sleep)(void *arg, unsigned k, const uint32_t *word, uint32_t value, int64_t timeout_ns);
    /* Called once, when it is added; reading eight bytes makes it unreadable again. */
    int (*fd)(void *arg, unsigned k);
};
// cffi: end

/* From any thread, at any time before cl_sched_stop; calls at the same time take turns. -errno with a reason in
 * err[256]. */
CL_API int cl_sched_completions_add(struct cl_sched *s, struct cl_completions *c, char err[256]);
/* After cl_sched_stop, or before cl_sched_start. */
CL_API void cl_sched_completions_remove(struct cl_sched *s, struct cl_completions *c);
/* On a uthread, a timer or in S: the calling kthread submits n requests more, on its own queue (or waits for n things
 * more of the one queue). */
CL_API void cl_sched_in_flight(unsigned n);
/* In poll, or on a uthread: n requests of queue k (or n things that k waited for) have been collected. */
CL_API void cl_sched_landed(struct cl_sched *s, unsigned k, unsigned n);

/* On a kthread. Whether it may wait in the kernel as long as a disk takes: it is the only one of its scheduler, and no
 * iokernel manages its core, which would take it for one that does not cede. */
CL_API bool cl_sched_alone(void);
/* On a kthread. Turns of its loop so far: what is handled in one turn had come before any of it was. */
CL_API uint64_t cl_sched_turn(void);

CL_EXTERN_C_END
#endif
