/* Channels: queues of elements of one size between uthreads, and waiting for several of them at once (select).
 *
 *   struct cl_channel *jobs;
 *   cl_channel_new(128, sizeof(struct job), &jobs);
 *   cl_channel_send(jobs, &job, -1);                  on one uthread
 *   while (cl_channel_receive(jobs, &job, -1) == 0)   on others, until it is closed and empty
 *
 * Any number send and receive. Elements are copied, and come out in the order in which they went in. Who waits is
 * served first in, first out: an element goes from a sender to the receiver that waits longest, and whoever comes later
 * does not overtake. A capacity of 0 is a rendezvous: a send ends when somebody receives.
 *
 * Closing says that nothing more is sent: what is in the channel can still be received; after that, and for senders at
 * once, calls return -EPIPE. Sends that wait when it is closed fail with it, and nothing of theirs is received.
 *
 * Select waits until one of its cases can be done, and does exactly that one. Several that can be done are tried from
 * `*next` on, in a circle, and `*next` is then the one behind it, so that none starves.
 *
 * timeout_ns: < 0 for ever, 0 not at all, which any thread may ask for; a wait is for uthreads. In a scope that is
 * cancelled (scope.h) a call that would wait returns -ECANCELED, and has sent and received nothing.
 *
 * Threads: each channel has a spinlock, held while one element is copied; a select takes those of its channels in the
 * order of their addresses. */
#ifndef CORELANE_LIBOS_CHANNEL_H
#define CORELANE_LIBOS_CHANNEL_H

#include <corelane/libos/sync.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_CHANNEL_SEND 0
#define CL_CHANNEL_RECEIVE 1
#define CL_CHANNEL_CASES 16            /* of one select, at most */
#define CL_CHANNEL_ELEMENT_BYTES 4096  /* at most: it is copied under a spinlock */
#define CL_CHANNEL_BYTES 1073741824ull /* capacity * bytes, at most */

struct cl_channel;

/* One of several things to be done: send what lies at `element`, or receive to there. */
struct cl_channel_case {
    struct cl_channel *channel;
    void *element;
    uint32_t how; /* CL_CHANNEL_... */
    int32_t rc;   /* of the case that select has returned: 0, or -EPIPE: its channel is closed */
};

/* Counters: read by anybody (relaxed). */
struct cl_channel_stats {
    uint64_t sent, received; /* elements */
    uint64_t waits;          /* calls that had to wait */
    uint64_t refused;        /* calls that ended without an element: time over, cancelled, closed */
};

/* A channel for `capacity` elements of `bytes` bytes each. -EINVAL (bytes 0, or too many), -ENOMEM. Any thread. */
CL_API int cl_channel_new(uint32_t capacity, uint32_t bytes, struct cl_channel **out);
/* -EBUSY: somebody waits on it. NULL is allowed. Nobody may use it any more. Any thread. */
CL_API int cl_channel_delete(struct cl_channel *c);
/* Put one in. 0; -EPIPE: closed; -EAGAIN: full, and the timeout is 0; -ETIMEDOUT; -ECANCELED; -EDEADLK: it would wait,
 * and this place may not block. */
CL_API int cl_channel_send(struct cl_channel *c, const void *element, int64_t timeout_ns);
/* Take one out. The same; -EPIPE: closed and empty. */
CL_API int cl_channel_receive(struct cl_channel *c, void *element, int64_t timeout_ns);
/* Nothing more is sent. Who waits goes on. -EALREADY. Any thread. */
CL_API int cl_channel_close(struct cl_channel *c);
/* Do one of n cases: returns its index, and its rc is set; a closed channel counts as done (-EPIPE in rc). *next: 0 at
 * first, and kept from call to call; NULL: begin with the first each time. -EINVAL: n not 1..CL_CHANNEL_CASES, or an
 * unknown `how`; else as cl_channel_send. */
CL_API int cl_channel_select(struct cl_channel_case *cases, uint32_t n, uint32_t *next, int64_t timeout_ns);
/* Elements in it at this instant; its capacity; bytes of an element; whether it is closed. Any thread. */
CL_API uint32_t cl_channel_count(const struct cl_channel *c);
CL_API uint32_t cl_channel_capacity(const struct cl_channel *c);
CL_API uint32_t cl_channel_element_bytes(const struct cl_channel *c);
CL_API bool cl_channel_closed(const struct cl_channel *c);
CL_API void cl_channel_stats(const struct cl_channel *c, struct cl_channel_stats *out);
// cffi: end

CL_EXTERN_C_END
#endif
