/* The one vtable that every block device implements, and what its user may rely on.
 *
 * A block device has n_queues queues of requests. A request is the user's own structure and belongs to the device from
 * the submit that takes it to the poll that returns it, and so does its buffer:
 *
 *   submit  takes the first `returned` requests; the rest stay the caller's (depth requests are in flight already). One
 *           call is one doorbell. A request that makes no sense is taken, too, and comes back with -EINVAL or -ERANGE.
 *   poll    gives back requests that are done, in any order, with their result: 0, or -errno. A request is whole, or
 *           it failed.
 *
 * Durability. No order holds between requests in flight, be they of one queue or of several. A write that is done is
 * seen by every read submitted later. It survives a crash only when it carried CL_BLK_DURABLE, or when a flush
 * submitted after it was done is done, too, on whatever queue. A crash tears a write that is not yet durable at
 * multiples of atomic_bytes: any of its pieces may be there. A write or flush that failed leaves its blocks, and all
 * that was not yet durable, in an unknown state: it may not be tried again as if nothing had happened, for the kernel
 * forgets what it could not write.
 *
 * Queue q is used by one thread at a time, which also registers memory with it. Submit, poll and arm never block, never
 * allocate and make at most one system call (devices made for tests say what they do instead).
 *
 * Waiting: `wait` returns when a request of the queue is done, when none is in flight, or at the timeout; every return
 * means only "go and poll". Who waits for other things besides has `fd` in its poll() set: while the queue is armed,
 * each completion makes it readable, and so does arming itself if something is done already. Reading it, eight bytes,
 * is the waiter's business.
 *
 * Every request is counted: submitted = completed + in flight, and completed = reads + writes + flushes + failed. */
#ifndef CORELANE_DRIVERS_BLK_H
#define CORELANE_DRIVERS_BLK_H

#include <corelane/runtime/base.h>

#include <errno.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_BLK_READ 0
#define CL_BLK_WRITE 1
#define CL_BLK_FLUSH 2 /* offset, bytes and buf mean nothing */

#define CL_BLK_DURABLE 1 /* flag of a write: done only when it is on stable storage */

#define CL_BLK_MAX_QUEUES 64
#define CL_BLK_MAX_BYTES (1u << 30) /* of one request */

/* One request. Constant while in flight, but for what the device writes. */
struct cl_blk_req {
    uint8_t op;
    uint8_t flags;
    int32_t result;          /* device: 0 or -errno */
    uint64_t offset;         /* a multiple of block_bytes */
    uint32_t bytes;          /* a multiple of block_bytes, not 0 */
    void *buf;               /* aligned to block_bytes */
    void *user;              /* the user's own */
    struct cl_blk_req *next; /* the device's while in flight, else the user's */
    uint64_t priv[2];        /* the device's while in flight */
};

/* Per-queue counters. Writer: the thread that uses the queue; readers: anybody (relaxed). */
struct cl_blk_stats {
    uint64_t submitted;           /* requests taken */
    uint64_t completed;           /* requests given back */
    uint64_t reads, read_bytes;   /* given back with result 0 */
    uint64_t writes, write_bytes; /* the same */
    uint64_t flushes;             /* the same */
    uint64_t failed;              /* given back with an error */
    uint64_t full;                /* times that submit took fewer than offered */
    uint64_t continued;           /* requests that the kernel did in more than one piece */
    uint64_t syscalls;            /* by submit, poll, arm and wait */
    uint64_t in_call;             /* writes carried out in the calling thread (settle) */
    uint64_t fixed; /* reads and writes handed to the kernel as ones of registered memory, continued ones anew */
};

struct cl_blk;

struct cl_blk_ops {
    const char *name;
    unsigned (*submit)(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n);
    unsigned (*poll)(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n);
    int (*wait)(struct cl_blk *blk, unsigned queue, int64_t timeout_ns); /* < 0: no timeout. 0 or -errno */
    int (*fd)(struct cl_blk *blk,
              unsigned queue); /* the device's own: not to be closed. Same thread as submit at first */
    void (*arm)(struct cl_blk *blk, unsigned queue, bool on);
    /* Buffers of this queue will often lie in this memory: a hint, with which some devices do with less work. 0, or
     * -errno: it makes no difference (-ENOMEM: the kernel's limit of locked memory). The memory stays until it is
     * unregistered, or the device is closed. NULL: no device of this kind has a use for it. */
    int (*register_memory)(struct cl_blk *blk, unsigned queue, void *ptr, uint64_t bytes);
    /* No request of the queue with a buffer in it is in flight. What was never registered does no harm. NULL as
     * well. */
    void (*unregister_memory)(struct cl_blk *blk, unsigned queue, void *ptr);
    void (*stats)(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out);
    /* Waits for what is in flight, and touches no request after it has returned with 0. -EBUSY: the kernel has kept
     * some for too long. It may write to them and to their buffers at any time, so they are never to be freed; nor is
     * what the device has. */
    int (*close)(struct cl_blk *blk);
    /* The time, on the device's own clock, from which on poll may have something that nobody announces; UINT64_MAX:
     * none is known. NULL for devices that announce everything. By the thread that uses the queue. */
    uint64_t (*next_ns)(struct cl_blk *blk, unsigned queue);
    /* Whether poll would have something. No system call; reads a word or two. NULL: only poll can tell. By the thread
     * that uses the queue. */
    bool (*ready)(struct cl_blk *blk, unsigned queue);
    /* Like wait, and it also ends when *word is not `value` and a FUTEX_WAKE (shared) has been made on it, and perhaps
     * for no reason. 0, or -ENOTSUP: arm the queue and wait in another way; NULL: always. By the thread that submits,
     * with one word a queue. */
    int (*wait_word)(struct cl_blk *blk, unsigned queue, const uint32_t *word, uint32_t value, int64_t timeout_ns);
    /* While `on`, a durable write that is submitted alone to a queue with nothing in flight may be kept, for `settle`.
     * Who turns this on settles what he submits before he does anything else for long; another submit, wait and arm
     * give it to the device themselves. NULL: nothing is ever kept. Both by the thread that uses the queue. */
    void (*keep)(struct cl_blk *blk, unsigned queue, bool on);
    /* What is kept goes to the device, or, `here`, is carried out in this thread, which waits in the kernel for as long
     * as the device takes, and can be given back by poll then. Sooner than by a ring: the kernel does the second half
     * of a durable write in a worker, which has to be switched to and back. Whether something was kept. */
    bool (*settle)(struct cl_blk *blk, unsigned queue, bool here);
};

/* What every block device begins with. Constant after creation, but for `gone` and `claimed`. */
struct cl_blk {
    const struct cl_blk_ops *ops;
    uint32_t n_queues;
    uint32_t depth; /* requests in flight on a queue at most */
    uint64_t bytes;
    uint32_t block_bytes;  /* unit of offset and bytes, and alignment of buf: a power of two */
    uint32_t atomic_bytes; /* a crash tears a write only at multiples of this: a power of two, at most block_bytes */
    uint8_t gone;          /* the device has failed for good: every request comes back with -EIO */
    uint8_t claimed;       /* somebody has all of it to himself: a log. By cl_blk_claim */
};

/* The same operations as functions, for callers from Python and for tests; C loops call the ops straight. */
CL_API unsigned cl_blk_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n);
CL_API unsigned cl_blk_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n);
CL_API int cl_blk_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns);
CL_API int cl_blk_fd(struct cl_blk *blk, unsigned queue);
CL_API void cl_blk_arm(struct cl_blk *blk, unsigned queue, bool on);
CL_API int cl_blk_wait_word(struct cl_blk *blk, unsigned queue, const uint32_t *word, uint32_t value,
                            int64_t timeout_ns);
CL_API void cl_blk_keep(struct cl_blk *blk, unsigned queue, bool on);     /* nothing, where the device keeps nothing */
CL_API bool cl_blk_settle(struct cl_blk *blk, unsigned queue, bool here); /* false, where it keeps nothing */
CL_API int cl_blk_ready(struct cl_blk *blk, unsigned queue);              /* 0 or 1; -ENOTSUP: only poll can tell */
CL_API int cl_blk_register_memory(struct cl_blk *blk, unsigned queue, void *ptr, uint64_t bytes);
CL_API void cl_blk_unregister_memory(struct cl_blk *blk, unsigned queue, void *ptr);
CL_API void cl_blk_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out);
CL_API int cl_blk_close(struct cl_blk *blk);

/* One request and its completion, by a thread that has nothing else in flight on the queue. 0 or -errno. Blocks: for
 * setting up, recovery and tests. */
CL_API int cl_blk_do(struct cl_blk *blk, unsigned queue, struct cl_blk_req *req);
CL_API int cl_blk_read(struct cl_blk *blk, unsigned queue, uint64_t offset, void *buf, uint32_t bytes);
CL_API int cl_blk_write(struct cl_blk *blk, unsigned queue, uint64_t offset, const void *buf, uint32_t bytes,
                        unsigned flags);
CL_API int cl_blk_flush(struct cl_blk *blk, unsigned queue);
// cffi: end

/* Have the device to oneself, until cl_blk_unclaim: false if somebody has. By any thread. */
static inline bool cl_blk_claim(struct cl_blk *blk)
{
    return !cl_exchange(&blk->claimed, 1); /* acquire: whoever had it before is done with it */
}

static inline void cl_blk_unclaim(struct cl_blk *blk)
{
    cl_store_release(&blk->claimed, 0); /* pairs with the next claim */
}

/* Whether a request makes sense: 0, -EINVAL (operation, flags, size or alignment) or -ERANGE (beyond the end). */
static inline int cl_blk_check(const struct cl_blk *blk, const struct cl_blk_req *r)
{
    uint64_t unit = blk->block_bytes - 1;
    if (r->op == CL_BLK_FLUSH)
        return r->flags ? -EINVAL : 0;
    if (cl_unlikely(r->op > CL_BLK_FLUSH || (r->flags & ~CL_BLK_DURABLE) || (r->flags && r->op != CL_BLK_WRITE) ||
                    r->bytes == 0 || r->bytes > CL_BLK_MAX_BYTES ||
                    ((r->offset | r->bytes | (uintptr_t)r->buf) & unit)))
        return -EINVAL;
    return cl_unlikely(r->bytes > blk->bytes || r->offset > blk->bytes - r->bytes) ? -ERANGE : 0;
}

/* Count a request that is given back. */
static inline void cl_blk_count(struct cl_blk_stats *s, const struct cl_blk_req *r)
{
    cl_count(&s->completed, 1);
    if (cl_unlikely(r->result)) {
        cl_count(&s->failed, 1);
    } else if (r->op == CL_BLK_READ) {
        cl_count(&s->reads, 1);
        cl_count(&s->read_bytes, r->bytes);
    } else if (r->op == CL_BLK_WRITE) {
        cl_count(&s->writes, 1);
        cl_count(&s->write_bytes, r->bytes);
    } else {
        cl_count(&s->flushes, 1);
    }
}

/* Another thread's counters: whole values, in no order between them. */
static inline void cl_blk_stats_read(const struct cl_blk_stats *from, struct cl_blk_stats *out)
{
    const uint64_t *words = &from->submitted;
    for (unsigned i = 0; i < sizeof *out / sizeof *words; i++)
        (&out->submitted)[i] = cl_load_relaxed(&words[i]);
}

CL_EXTERN_C_END
#endif
