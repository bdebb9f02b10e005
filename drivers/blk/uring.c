/* Submission, completion and waiting of the io_uring engine (uring.h).
 *
 * A request in flight keeps in priv[0] how many bytes are done, and in priv[1] its state: completions that are still to
 * come, and the first error. */
#include "uring.h"

#include <string.h>
#include <sys/eventfd.h>

#define SYNC_TAG 1ull  /* in user_data: the fdatasync linked to the request */
#define WORD_TAG 2ull  /* instead of a request: the wait for a word (wait_word) */
#define PAUSE_TAG 4ull /* instead of a request: a timeout (push_on) */

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

/* Kernel 6.7, newer than many headers. */
#define OP_FUTEX_WAIT 51
#define FUTEX2_SIZE_U32 2

struct state { /* of a request, in priv[1] */
    uint16_t pending;
    bool sync_cancelled;
    uint8_t refused; /* so often with EAGAIN since a byte was done */
    int32_t error;
};

_Static_assert(sizeof(struct state) == 8, "fits into priv[1]");

static inline struct state *state_of(struct cl_blk_req *r)
{
    return (struct state *)(void *)&r->priv[1];
}

static void list_push(struct cl_blk_req **first, struct cl_blk_req **last, struct cl_blk_req *r)
{
    r->next = NULL;
    if (*last)
        (*last)->next = r;
    else
        *first = r;
    *last = r;
}

static struct cl_blk_req *list_pop(struct cl_blk_req **first, struct cl_blk_req **last)
{
    struct cl_blk_req *r = *first;
    if (r && !(*first = r->next))
        *last = NULL;
    return r;
}

static int enter(struct cl_uring_ring *r, unsigned to_submit, unsigned min_complete, unsigned flags, const void *arg,
                 size_t size)
{
    cl_count(&r->stats.syscalls, 1);
    long rc = syscall(__NR_io_uring_enter, r->fd, to_submit, min_complete, flags, arg, size);
    return rc < 0 ? -errno : (int)rc;
}

/* Which registered region holds the buffer, or -1. */
static int region_of(const struct cl_uring_ring *r, const void *buf, uint32_t bytes)
{
    for (uint32_t i = 0; i < r->n_regions; i++) {
        uintptr_t from = (uintptr_t)buf - (uintptr_t)r->regions[i].iov_base;
        if (from < r->regions[i].iov_len && bytes <= r->regions[i].iov_len - from)
            return (int)i;
    }
    return -1;
}

static struct io_uring_sqe *next_sqe(struct cl_uring_ring *r)
{
    struct io_uring_sqe *e = &r->sqes[r->tail++ & r->sq_mask];
    memset(e, 0, sizeof *e);
    return e;
}

static struct io_uring_sqe *next_sqe_of_file(struct cl_uring_ring *r)
{
    struct io_uring_sqe *e = next_sqe(r);
    e->flags = IOSQE_FIXED_FILE; /* file 0 */
    return e;
}

static void fill_sync(struct cl_uring_ring *r, uint64_t user_data)
{
    struct io_uring_sqe *e = next_sqe_of_file(r);
    e->opcode = IORING_OP_FSYNC;
    e->fsync_flags = IORING_FSYNC_DATASYNC;
    e->user_data = user_data;
}

/* Write the entries of a request, or of what is left of it. */
static void fill_entries(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req)
{
    struct state *s = state_of(req);
    *s = (struct state){.pending = 1, .refused = s->refused};
    if (req->op == CL_BLK_FLUSH) {
        fill_sync(r, (uintptr_t)req);
        return;
    }
    bool write = req->op == CL_BLK_WRITE, durable = req->flags & CL_BLK_DURABLE;
    uint32_t done = (uint32_t)req->priv[0];
    if (cl_unlikely(done == req->bytes)) { /* all that failed was the start of its fdatasync */
        fill_sync(r, (uintptr_t)req | SYNC_TAG);
        return;
    }
    uint8_t *buf = (uint8_t *)req->buf + done;
    int region = region_of(r, buf, req->bytes - done);
    struct io_uring_sqe *e = next_sqe_of_file(r);
    if (region >= 0) {
        e->opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
        e->buf_index = (uint16_t)region;
        cl_count(&r->stats.fixed, 1);
    } else {
        e->opcode = write ? IORING_OP_WRITE : IORING_OP_READ;
    }
    e->off = f->start + req->offset + done;
    e->addr = (uintptr_t)buf;
    e->len = req->bytes - done;
    e->user_data = (uintptr_t)req;
    if (!durable)
        return;
    if (!cl_load_relaxed(&f->no_dsync)) {
        e->rw_flags = RWF_DSYNC;
        return;
    }
    e->flags |= IOSQE_IO_LINK;
    s->pending = 2;
    fill_sync(r, (uintptr_t)req | SYNC_TAG);
}

static void finish(struct cl_uring_ring *r, struct cl_blk_req *req, int result)
{
    req->result = result;
    list_push(&r->done_first, &r->done_last, req);
}

static void announce_done(struct cl_uring_ring *r)
{
    cl_count(&r->stats.syscalls, 1);
    (void)eventfd_write(r->event_fd, 1); /* EAGAIN: it is readable */
}

/* The kernel will take nothing more: what it has not taken is answered. */
static void give_up_ring(struct cl_blk_file *f, struct cl_uring_ring *r)
{
    cl_store_relaxed(&f->blk.gone, 1);
    for (uint32_t head = cl_load_acquire(r->sq_head); head != r->tail; r->tail--) {
        uint64_t tag = r->sqes[(r->tail - 1) & r->sq_mask].user_data;
        if (tag == WORD_TAG || tag == PAUSE_TAG) {
            *(tag == WORD_TAG ? &r->word_waits : &r->pausing) = false;
            continue;
        }
        struct cl_blk_req *req = (struct cl_blk_req *)(uintptr_t)(tag & ~SYNC_TAG);
        if (--state_of(req)->pending == 0)
            finish(r, req, -EIO);
        else
            state_of(req)->error = -EIO;
    }
    cl_store_release(r->sq_tail, r->tail);
    if (r->armed)
        announce_done(r);
}

/* Publish the entries and ring the doorbell. What the kernel does not take now (it is short of memory) stays in the
 * ring. */
static void ring_doorbell(struct cl_blk_file *f, struct cl_uring_ring *r)
{
    cl_store_release(r->sq_tail, r->tail);
    if (r->sqpoll) {
        cl_fence_seq_cst(); /* the tail is stored before the flag is read: the kernel sets the flag and then reads the
                             * tail */
        /* EOWNERDEAD: the kernel's thread has ended. Only then is what it has not taken taken back: behind any other
         * error it may live and take it. */
        if (cl_load_relaxed(r->sq_flags) & IORING_SQ_NEED_WAKEUP &&
            cl_unlikely(enter(r, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0) == -EOWNERDEAD))
            give_up_ring(f, r);
        return;
    }
    uint32_t waiting = r->tail - cl_load_acquire(r->sq_head);
    if (!waiting)
        return;
    int rc = enter(r, waiting, 0, 0, NULL, 0);
    if (cl_unlikely(rc < 0 && rc != -EAGAIN && rc != -EBUSY && rc != -EINTR && rc != -ENOMEM))
        give_up_ring(f, r);
}

void cl_uring_give(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req)
{
    fill_entries(f, r, req);
    ring_doorbell(f, r);
}

/* Keep a lone durable write for settle, if it is one. False: it goes to the ring. */
static bool keep(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req)
{
    if (r->in_flight || req->op != CL_BLK_WRITE || !(req->flags & CL_BLK_DURABLE) || cl_load_relaxed(&f->no_dsync))
        return false;
    r->kept = req;
    return true;
}

CL_HOT unsigned cl_uring_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    unsigned take = cl_min(n, blk->depth - r->in_flight);
    bool nonsense = false;
    cl_uring_let_go(f, r);
    for (unsigned i = 0; i < take; i++) {
        int rc = cl_blk_check(blk, reqs[i]);
        rc = rc ? rc : cl_blk_file_refuses(f, reqs[i]);
        reqs[i]->priv[0] = reqs[i]->priv[1] = 0;
        if (cl_likely(!rc && !blk->gone)) {
            if (!r->keeps || n != 1 || !keep(f, r, reqs[i]))
                fill_entries(f, r, reqs[i]);
        } else {
            finish(r, reqs[i], rc ? rc : -EIO);
            nonsense = true;
        }
    }
    r->in_flight += take;
    cl_count(&r->stats.submitted, take);
    if (take < n)
        cl_count(&r->stats.full, 1);
    if (take)
        ring_doorbell(f, r);
    if (cl_unlikely(nonsense && r->armed))
        announce_done(r);
    return take;
}

/* A read or write ended with `res`, part of what was asked for perhaps. */
static void data_done(struct cl_blk_file *f, struct cl_blk_req *req, int res)
{
    struct state *s = state_of(req);
    if (res > 0 && ((uint32_t)res & (f->blk.block_bytes - 1)) && (uint64_t)req->priv[0] + (uint32_t)res < req->bytes)
        res -= (int)((uint32_t)res & (f->blk.block_bytes - 1)); /* direct I/O goes on at a block */
    if (res > 0) {
        req->priv[0] += (uint32_t)res;
        s->refused = 0;
    } else if (res == 0)
        s->error = -EIO; /* the file has shrunk */
    else if (!s->error)
        s->error = res;
}

/* The last completion of a request has come: it is done, or goes on. Returns whether it is done. */
static bool request_ended(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req)
{
    struct state *s = state_of(req);
    bool data = req->op != CL_BLK_FLUSH, durable = data && req->flags & CL_BLK_DURABLE;
    int error = s->error;
    if (cl_unlikely(error == -EOPNOTSUPP && durable && !cl_load_relaxed(&f->no_dsync))) {
        cl_store_relaxed(&f->no_dsync, 1);
        error = -EINTR;
    }
    if (cl_likely(!error && (!data || req->priv[0] == req->bytes) && !s->sync_cancelled)) {
        req->result = 0;
        r->pause_ms = 0;
        return true;
    }
    if (error && error != -EINTR && (error != -EAGAIN || s->refused == CL_BLK_REFUSED_MOST)) {
        if (durable && cl_blk_file_failed(error))
            cl_store_relaxed(&f->not_durable, error);
        req->result = error;
        return true;
    }
    if (cl_unlikely(error == -EAGAIN)) {
        s->refused++;
        r->refused = true;
    }
    cl_count(&r->stats.continued, 1);
    list_push(&r->again_first, &r->again_last, req);
    return false;
}

/* What a sync says of what it was to make durable. If another one has failed meanwhile, that may have taken the error
 * of this one. */
static int synced(struct cl_blk_file *f, int res)
{
    if (res >= 0)
        return cl_load_relaxed(&f->not_durable);
    if (cl_blk_file_failed(res))
        cl_store_relaxed(&f->not_durable, res);
    return res;
}

static bool take_cqe(struct cl_blk_file *f, struct cl_uring_ring *r, const struct io_uring_cqe *c)
{
    struct cl_blk_req *req = (struct cl_blk_req *)(uintptr_t)(c->user_data & ~SYNC_TAG);
    struct state *s = state_of(req);
    int res = c->res;
    if (c->user_data & SYNC_TAG) {
        if (res == -ECANCELED)
            s->sync_cancelled = true;
        else if (!s->error)
            s->error = synced(f, res);
    } else if (req->op == CL_BLK_FLUSH) {
        s->error = synced(f, res);
    } else {
        data_done(f, req, res);
    }
    return --s->pending == 0 && request_ended(f, r, req);
}

void cl_uring_written(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req, int res)
{
    *state_of(req) = (struct state){.refused = state_of(req)->refused};
    data_done(f, req, res);
    if (request_ended(f, r, req))
        list_push(&r->done_first, &r->done_last, req);
}

/* A timeout in the ring, whose completion wakes who waits like that of a request. What it holds back has no entries
 * meanwhile, so there is room for this one. */
static void fill_pause(struct cl_uring_ring *r)
{
    r->pause_ms = r->pause_ms ? cl_min(2 * r->pause_ms, CL_BLK_PAUSE_MOST_MS) : 1;
    struct __kernel_timespec t = {.tv_nsec = r->pause_ms * 1000000ll};
    struct io_uring_sqe *e = next_sqe(r);
    e->opcode = IORING_OP_TIMEOUT;
    e->fd = -1;
    r->pause = t; /* read when the kernel takes the entry */
    e->addr = (uintptr_t)&r->pause;
    e->len = 1;
    e->user_data = PAUSE_TAG;
    r->pausing = true;
}

/* What the kernel has not taken yet, and what has to go once more. */
static void push_on(struct cl_blk_file *f, struct cl_uring_ring *r)
{
    if (cl_unlikely(r->refused && !r->pausing && !f->blk.gone))
        fill_pause(r);
    for (struct cl_blk_req *req; f->blk.gone && (req = list_pop(&r->again_first, &r->again_last));)
        finish(r, req, -EIO);
    for (struct cl_blk_req *req; !r->pausing && (req = list_pop(&r->again_first, &r->again_last));)
        fill_entries(f, r, req);
    ring_doorbell(f, r);
    if (cl_unlikely(r->armed && r->done_first))
        announce_done(r);
}

static inline bool of_no_request(const struct io_uring_cqe *c)
{
    return c->user_data == WORD_TAG || c->user_data == PAUSE_TAG;
}

/* The wait for the word has ended, or a pause. */
static void other_done(struct cl_uring_ring *r, const struct io_uring_cqe *c)
{
    if (c->user_data == PAUSE_TAG) {
        r->pausing = r->refused = false;
        return;
    }
    r->word_waits = false;
    if (c->res == -EINVAL || c->res == -EOPNOTSUPP)
        r->word_refused = true;
}

/* Take completions of other things that are next in the ring, so that what is left there is of requests. */
static void take_others(struct cl_uring_ring *r)
{
    uint32_t head = *r->cq_head;
    for (; head != cl_load_acquire(r->cq_tail) && of_no_request(&r->cqes[head & r->cq_mask]); head++)
        other_done(r, &r->cqes[head & r->cq_mask]);
    if (head != *r->cq_head)
        cl_store_release(r->cq_head, head);
}

CL_HOT unsigned cl_uring_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    unsigned got = 0;
    if (!r->in_flight)
        return 0;
    uint32_t head = *r->cq_head; /* ours */
    /* Relaxed: only says that an entry into the kernel brings more. */
    if (cl_unlikely(head == cl_load_acquire(r->cq_tail) &&
                    cl_load_relaxed(r->sq_flags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
        enter(r, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0);
    uint32_t tail = cl_load_acquire(r->cq_tail);
    for (; head != tail && got < n; head++) {
        const struct io_uring_cqe *c = &r->cqes[head & r->cq_mask];
        struct cl_blk_req *req = (struct cl_blk_req *)(uintptr_t)(c->user_data & ~SYNC_TAG);
        if (cl_unlikely(of_no_request(c))) {
            other_done(r, c);
        } else if (take_cqe(f, r, c)) {
            done[got++] = req;
            cl_blk_count(&r->stats, req);
        }
    }
    cl_store_release(r->cq_head, head); /* the kernel may write these entries again */
    for (struct cl_blk_req *req; got < n && cl_unlikely((req = list_pop(&r->done_first, &r->done_last)));) {
        done[got++] = req;
        cl_blk_count(&r->stats, req);
    }
    r->in_flight -= got;
    if (cl_unlikely(r->again_first || (!r->sqpoll && *r->sq_tail != cl_load_acquire(r->sq_head))))
        push_on(f, r);
    return got;
}

static bool something_done(struct cl_uring_ring *r)
{
    if (cl_unlikely(r->word_waits || r->pausing))
        take_others(r);
    return r->done_first || (r->again_first && !r->pausing) || cl_load_acquire(r->cq_tail) != *r->cq_head ||
           cl_load_relaxed(r->sq_flags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

bool cl_uring_ready(struct cl_blk *blk, unsigned queue)
{
    return something_done(cl_uring_ring_of(blk, queue));
}

int cl_uring_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    cl_uring_let_go((struct cl_blk_file *)blk, r);
    if (!r->in_flight || something_done(r) || timeout_ns == 0)
        return 0;
    struct __kernel_timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct io_uring_getevents_arg arg = {.ts = timeout_ns > 0 ? (uintptr_t)&t : 0};
    /* Entries that the kernel did not take are offered again: it might else wait for what it does not have. */
    unsigned left = r->sqpoll ? 0 : r->tail - cl_load_acquire(r->sq_head);
    int rc = enter(r, left, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
    if (cl_unlikely(rc == -EOWNERDEAD)) { /* as in ring_doorbell, but it was awake then */
        give_up_ring((struct cl_blk_file *)blk, r);
        return something_done(r) ? 0 : rc;
    }
    return rc >= 0 || rc == -ETIME || rc == -EAGAIN || rc == -EBUSY ? 0 : rc;
}

static void fill_word(struct cl_uring_ring *r, const uint32_t *word, uint32_t value)
{
    struct io_uring_sqe *e = next_sqe(r);
    uint64_t any = UINT32_MAX;
    e->opcode = OP_FUTEX_WAIT;
    e->fd = FUTEX2_SIZE_U32;
    e->addr = (uintptr_t)word;
    e->off = value;                              /* addr2 */
    memcpy((uint8_t *)e + 48, &any, sizeof any); /* addr3: the bits of a wake that count */
    e->user_data = WORD_TAG;
    cl_store_release(r->sq_tail, r->tail);
    r->word_waits = true;
}

/* The kernel did not take the entry: what it leaves in the ring is to be of requests, for which alone there is room. */
static void take_back_word(struct cl_uring_ring *r)
{
    if (cl_likely(cl_load_acquire(r->sq_head) == r->tail))
        return;
    cl_store_release(r->sq_tail, --r->tail); /* it was the last */
    r->word_waits = false;
}

/* A FUTEX_WAIT in the ring, beside the requests. It stays there when a request ends the wait, and serves the next one:
 * the kernel compares the word only when it takes the entry, so it is compared here once the entry is known to be
 * taken. Should it then take a wake from a plain FUTEX_WAIT of this thread, its completion interrupts that one, which
 * begins anew and compares. */
int cl_uring_wait_word(struct cl_blk *blk, unsigned queue, const uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    cl_uring_let_go((struct cl_blk_file *)blk, r);
    if (r->sqpoll || r->word_refused || (r->word && r->word != word) ||
        r->tail - cl_load_acquire(r->sq_head) > r->sq_mask)
        return -ENOTSUP;
    if (something_done(r))
        return 0;
    bool fresh = !r->word_waits;
    r->word = word;
    if (fresh)
        fill_word(r, word, value);
    else if (cl_load_acquire(word) != value) /* acquire: what was stored before it */
        return 0;
    struct __kernel_timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct io_uring_getevents_arg arg = {.ts = timeout_ns >= 0 ? (uintptr_t)&t : 0};
    /* EINTR, ETIME, EAGAIN: the caller re-checks. */
    enter(r, r->tail - cl_load_acquire(r->sq_head), 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
    if (fresh)
        take_back_word(r);
    take_others(r);
    return r->word_refused ? -ENOTSUP : 0;
}

int cl_uring_fd(struct cl_blk *blk, unsigned queue)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    if (r->event_fd >= 0)
        return r->event_fd;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    __atomic_fetch_or(r->cq_flags, IORING_CQ_EVENTFD_DISABLED, __ATOMIC_RELAXED); /* before anything can come of it */
    if (fd >= 0 && syscall(__NR_io_uring_register, r->fd, IORING_REGISTER_EVENTFD, &fd, 1) < 0) {
        close(fd);
        return -1;
    }
    return r->event_fd = fd;
}

void cl_uring_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    cl_uring_let_go((struct cl_blk_file *)blk, r);
    r->armed = on && cl_uring_fd(blk, queue) >= 0;
    if (!r->armed) {
        __atomic_fetch_or(r->cq_flags, IORING_CQ_EVENTFD_DISABLED, __ATOMIC_RELAXED); /* one event more does no harm */
        return;
    }
    /* The flag is cleared, then completions are polled for; the kernel puts a completion there, then reads the flag. */
    __atomic_fetch_and(r->cq_flags, ~(uint32_t)IORING_CQ_EVENTFD_DISABLED, __ATOMIC_SEQ_CST);
    cl_fence_seq_cst();
    if (something_done(r))
        announce_done(r);
}

void cl_uring_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out)
{
    cl_blk_stats_read(&cl_uring_ring_of(blk, queue)->stats, out);
}
