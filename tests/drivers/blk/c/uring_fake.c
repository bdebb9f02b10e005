/* The io_uring engine (drivers/blk/uring.c, drivers/blk/uring_call.c) on a kernel that is not one: it stalls, refuses
 * and forgets as a case says. */
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

long fake_syscall(long number, ...);
#define syscall fake_syscall
ssize_t fake_pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags);
#define pwritev2 fake_pwritev2
#define CL_BLK_CLOSE_MS close_ms
static unsigned close_ms = 60000;
#include "drivers/blk/uring.c"
#include "drivers/blk/uring_call.c"
#include "drivers/blk/uring_setup.c"

#include "tests/drivers/blk/c/file_fake.h"
#include "tests/support/c/check.h"

#define ENTRIES 16

/* The kernel's side. */
static uint32_t sq_head, sq_tail, sq_flags, cq_head, cq_tail, cq_flags;
static struct io_uring_sqe sqes[ENTRIES], taken[64];
static struct io_uring_cqe cqes[2 * ENTRIES];
static unsigned n_taken;
static unsigned refusals;   /* EAGAIN so many times to each request's entry */
static unsigned timeouts;   /* entries of timeouts that it was given */
static unsigned attempts;   /* entries of requests */
static unsigned stalled;    /* calls to enter for which nothing is done */
static int enter_fails;     /* errno of each call that waits */
static int wake_fails;      /* errno of each call that wakes the polling thread */
static int sync_result;     /* of each fdatasync */
static bool told_once;      /* of the first one only: the kernel tells an error once a file */
static int write_result;    /* of each write, 0: all that was asked for */
static unsigned shorter;    /* bytes that each write falls short by */
static unsigned longest_ms; /* timeout */
static unsigned calls;      /* of pwritev2 */
static ssize_t call_gives;  /* bytes, or -errno */

static struct cl_blk_req reqs[DEPTH];
static uint8_t *bufs;

static void complete(uint64_t user_data, int res)
{
    cqes[cq_tail & (2 * ENTRIES - 1)] = (struct io_uring_cqe){.user_data = user_data, .res = res};
    __atomic_store_n(&cq_tail, cq_tail + 1, __ATOMIC_RELEASE);
}

static void serve(const struct io_uring_sqe *e)
{
    if (e->opcode == IORING_OP_TIMEOUT) {
        timeouts++;
        CHECK(e->len == 1 && e->off == 0 && !(e->flags & IOSQE_FIXED_FILE), "a plain timeout");
        complete(e->user_data, -ETIME);
        return;
    }
    attempts++;
    bool refused = refusals > 0;
    refusals -= refused;
    bool fails = write_result && e->opcode == IORING_OP_WRITE;
    int result = e->opcode == IORING_OP_FSYNC ? sync_result : fails ? write_result : (int)(e->len - shorter);
    complete(e->user_data, refused ? -EAGAIN : result);
    if (e->opcode == IORING_OP_FSYNC && told_once)
        sync_result = 0;
}

long fake_syscall(long number, ...)
{
    if (number != __NR_io_uring_enter)
        return 0;
    va_list args;
    va_start(args, number);
    (void)va_arg(args, int);
    unsigned n = va_arg(args, unsigned);
    unsigned wanted = va_arg(args, unsigned);
    unsigned flags = va_arg(args, unsigned);
    va_end(args);
    if (flags & IORING_ENTER_SQ_WAKEUP && wake_fails) {
        errno = wake_fails;
        return -1;
    }
    for (; n && sq_head != __atomic_load_n(&sq_tail, __ATOMIC_ACQUIRE); n--) {
        struct io_uring_sqe *e = &sqes[sq_head & (ENTRIES - 1)];
        if (e->opcode == IORING_OP_TIMEOUT) {
            const struct __kernel_timespec *t = (const void *)(uintptr_t)e->addr;
            longest_ms = cl_max(longest_ms, (unsigned)(t->tv_nsec / 1000000));
        }
        taken[n_taken++] = *e;
        __atomic_store_n(&sq_head, sq_head + 1, __ATOMIC_RELEASE);
    }
    if (stalled) {
        stalled -= stalled != UINT32_MAX;
    } else {
        for (unsigned i = 0; i < n_taken; i++)
            serve(&taken[i]);
        n_taken = 0;
    }
    if (wanted && enter_fails) {
        errno = enter_fails;
        return -1;
    }
    if (wanted && cq_tail == cq_head) {
        errno = ETIME;
        return -1;
    }
    return 0;
}

ssize_t fake_pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    CHECK(fd == -1 && n == 1 && v->iov_base == bufs && v->iov_len == 2 * BLOCK && at == 5 * BLOCK, "the write");
    CHECK(flags == RWF_DSYNC, "durable");
    calls++;
    errno = call_gives < 0 ? (int)-call_gives : 0;
    return call_gives < 0 ? -1 : call_gives;
}

static struct cl_blk *device(void)
{
    struct cl_blk_file *f = file_new();
    struct cl_uring *u = calloc(1, sizeof *u);
    u->rings = aligned_alloc(CL_CACHELINE, sizeof *u->rings);
    sq_head = sq_tail = sq_flags = cq_head = cq_tail = cq_flags = 0;
    n_taken = refusals = timeouts = attempts = stalled = longest_ms = 0;
    enter_fails = wake_fails = sync_result = write_result = 0;
    shorter = calls = 0;
    u->rings[0] = (struct cl_uring_ring){.fd = -1,
                                         .event_fd = -1,
                                         .sq_mask = ENTRIES - 1,
                                         .cq_mask = 2 * ENTRIES - 1,
                                         .sq_head = &sq_head,
                                         .sq_tail = &sq_tail,
                                         .sq_flags = &sq_flags,
                                         .cq_head = &cq_head,
                                         .cq_tail = &cq_tail,
                                         .cq_flags = &cq_flags,
                                         .sqes = sqes,
                                         .cqes = cqes};
    f->engine = u;
    f->blk.ops = &uring_ops;
    return &f->blk;
}

static void submit(struct cl_blk *blk, unsigned n)
{
    struct cl_blk_req *p[DEPTH];
    for (unsigned i = 0; i < n; i++) {
        reqs[i] = (struct cl_blk_req){
            .op = CL_BLK_WRITE, .offset = i * BLOCK, .bytes = BLOCK, .buf = bufs + i * BLOCK, .result = 1};
        p[i] = &reqs[i];
    }
    CHECK(blk->ops->submit(blk, 0, p, n) == n, "taken");
}

static unsigned collect(struct cl_blk *blk, unsigned n)
{
    struct cl_blk_req *done[DEPTH];
    unsigned got = 0;
    for (unsigned looks = 0; got < n && looks < 100000; looks++) {
        unsigned more = blk->ops->poll(blk, 0, done, n - got);
        got += more;
        if (!more)
            blk->ops->wait(blk, 0, 1000000);
    }
    return got;
}

/* What is refused a few times is done; there is a pause before each further try, and each is longer up to a limit. */
static void refused_for_a_while(unsigned times)
{
    struct cl_blk *blk = device();
    refusals = times;
    submit(blk, 1);
    CHECK(collect(blk, 1) == 1 && reqs[0].result == 0, "done after %u refusals", times);
    CHECK(attempts == times + 1 && timeouts == times, "%u tries, %u pauses", attempts, timeouts);
    CHECK(times < 10 || longest_ms == CL_BLK_PAUSE_MOST_MS, "the longest pause has %u ms", longest_ms);
    CHECK(uring_close(blk) == 0 && files_deleted == 1, "closed");
}

/* What is refused on and on is answered, all of a full queue, and the queue is as good as new. */
static void refused_for_good(void)
{
    struct cl_blk *blk = device();
    refusals = UINT32_MAX;
    submit(blk, DEPTH);
    CHECK(collect(blk, DEPTH) == DEPTH, "all are answered");
    for (unsigned i = 0; i < DEPTH; i++)
        CHECK(reqs[i].result == -EAGAIN, "the answer is %d", reqs[i].result);
    CHECK(attempts == DEPTH * (CL_BLK_REFUSED_MOST + 1) && timeouts == CL_BLK_REFUSED_MOST, "%u tries, %u pauses",
          attempts, timeouts);
    CHECK(!blk->ops->ready(blk, 0), "nothing is done that poll would not have");
    refusals = 0;
    submit(blk, DEPTH);
    CHECK(collect(blk, DEPTH) == DEPTH && reqs[0].result == 0, "it goes on");
    CHECK(uring_close(blk) == 0, "closed");
}

/* A pause may be under way when the queue is closed, and when the ring is gone. */
static void closed_in_a_pause(int error)
{
    struct cl_blk *blk = device();
    refusals = 3;
    submit(blk, 2);
    struct cl_blk_req *done;
    CHECK(blk->ops->poll(blk, 0, &done, 1) == 0, "refused");
    enter_fails = error;
    CHECK(uring_close(blk) == 0 && files_deleted == 1, "closed");
    CHECK(reqs[0].result == 0 && reqs[1].result == 0, "done: %d, %d", reqs[0].result, reqs[1].result);
}

/* A wait that fails is no reason to go: completions still come, and the file is closed behind the last one. */
static void closed_while_waiting_fails(int error)
{
    struct cl_blk *blk = device();
    stalled = 3;
    submit(blk, DEPTH);
    enter_fails = error;
    CHECK(uring_close(blk) == 0 && files_deleted == 1, "closed");
    for (unsigned i = 0; i < DEPTH; i++)
        CHECK(reqs[i].result == 0, "request %u: %d", i, reqs[i].result);
}

/* Nothing comes: everything is left where it is, so that what comes later does no harm. */
static void closed_while_stalled(int error)
{
    struct cl_blk *blk = device();
    stalled = UINT32_MAX;
    submit(blk, DEPTH);
    enter_fails = error;
    close_ms = 100;
    CHECK(uring_close(blk) == -EBUSY && files_deleted == 0, "given up");
    const struct cl_uring_ring *r = cl_uring_ring_of(blk, 0);
    CHECK(r->in_flight == DEPTH && reqs[0].result == 1, "what is in flight is left alone");
    close_ms = 60000;
    stalled = 0;
    enter_fails = 0;
    fake_syscall(__NR_io_uring_enter, -1, 0u, 0u, 0u); /* the disk wakes up */
    CHECK(uring_close(blk) == 0 && files_deleted == 1, "so this time it is closed");
}

/* A write is durable when the fdatasync behind it has not failed either. */
static void linked_sync(int result)
{
    struct cl_blk *blk = device();
    struct cl_blk_req *p = &reqs[0];
    ((struct cl_blk_file *)blk)->no_dsync = 1;
    sync_result = result;
    reqs[0] =
        (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .bytes = BLOCK, .buf = bufs, .result = 1};
    CHECK(blk->ops->submit(blk, 0, &p, 1) == 1 && collect(blk, 1) == 1, "done");
    CHECK(attempts == 2 && reqs[0].result == result, "%u entries, the answer is %d", attempts, reqs[0].result);
    sync_result = 0;
    CHECK(cl_blk_flush(blk, 0) == result && attempts == 2 + !result, "a failed flush is final: %u entries", attempts);
    CHECK(uring_close(blk) == 0, "closed");
}

/* Behind a flush that failed nothing is durable any more, though the kernel says so. Reads and other writes go on. */
static void a_failed_flush_is_final(void)
{
    struct cl_blk *blk = device();
    sync_result = -ENOSPC;
    CHECK(cl_blk_flush(blk, 0) == -ENOSPC, "failed");
    sync_result = 0;
    CHECK(cl_blk_flush(blk, 0) == -ENOSPC, "once and for all");
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, CL_BLK_DURABLE) == -ENOSPC && attempts == 1, "%u entries", attempts);
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, 0) == 0 && cl_blk_read(blk, 0, 0, bufs, BLOCK) == 0, "the rest goes on");
    CHECK(uring_close(blk) == 0, "closed");
}

/* So is a durable write, which has the flush in it: what was in the disk's cache may be lost. One that is none, or that
 * never began, ends nothing. */
static void a_failed_durable_write(int error, uint8_t flags, int further)
{
    struct cl_blk *blk = device();
    CHECK(cl_blk_write(blk, 0, BLOCK, bufs, BLOCK, 0) == 0, "in the disk's cache");
    write_result = error;
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, flags) == error, "failed");
    write_result = 0;
    unsigned before = attempts;
    CHECK(cl_blk_flush(blk, 0) == further, "a flush behind %d", error);
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, CL_BLK_DURABLE) == further, "a durable write behind %d", error);
    CHECK(attempts - before == (further ? 0 : 2), "%u entries", attempts - before);
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, 0) == 0 && cl_blk_read(blk, 0, 0, bufs, BLOCK) == 0, "the rest goes on");
    CHECK(uring_close(blk) == 0, "closed");
}

/* Of two that are under way the first one's error may be of what the second one was to make durable. */
static void nor_are_flushes_that_were_under_way(void)
{
    struct cl_blk *blk = device();
    struct cl_blk_req *both[2] = {&reqs[0], &reqs[1]};
    sync_result = -EIO;
    told_once = true;
    for (unsigned i = 0; i < 2; i++)
        reqs[i] = (struct cl_blk_req){.op = CL_BLK_FLUSH, .result = 1};
    CHECK(blk->ops->submit(blk, 0, both, 2) == 2 && collect(blk, 2) == 2 && attempts == 2, "done");
    CHECK(reqs[0].result == -EIO && reqs[1].result == -EIO, "%d and %d", reqs[0].result, reqs[1].result);
    told_once = false;
    CHECK(uring_close(blk) == 0, "closed");
}

/* One that never began is tried again, and done. */
static void a_refused_flush_is_not(void)
{
    struct cl_blk *blk = device();
    refusals = 2;
    CHECK(cl_blk_flush(blk, 0) == 0 && cl_blk_flush(blk, 0) == 0 && attempts == 4, "%u entries", attempts);
    CHECK(uring_close(blk) == 0, "closed");
}

/* Less than a block is no progress: it would never end. */
static void short_by_less_than_a_block(void)
{
    struct cl_blk *blk = device();
    shorter = 512;
    submit(blk, 1);
    CHECK(collect(blk, 1) == 1 && attempts == 1, "done in %u entries", attempts);
    CHECK(reqs[0].result == -EIO, "the answer is %d", reqs[0].result);
    CHECK(uring_close(blk) == 0, "closed");
}

/* A lone durable write of two blocks, which is kept. */
static struct cl_blk *with_one_kept(void)
{
    struct cl_blk *blk = device();
    struct cl_blk_req *p = &reqs[0], *done[1];
    blk->ops->keep(blk, 0, true);
    reqs[0] = (struct cl_blk_req){
        .op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .offset = 4 * BLOCK, .bytes = 2 * BLOCK, .buf = bufs, .result = 1};
    ((struct cl_blk_file *)blk)->start = BLOCK;
    CHECK(blk->ops->submit(blk, 0, &p, 1) == 1 && blk->ops->poll(blk, 0, done, 1) == 0, "kept");
    CHECK(attempts == 0 && calls == 0, "%u entries, %u calls", attempts, calls);
    return blk;
}

/* In the call it is done, or fails; what the call leaves goes on in the ring. */
static void in_the_call(ssize_t gives, int result, unsigned entries)
{
    struct cl_blk *blk = with_one_kept();
    call_gives = gives;
    CHECK(blk->ops->settle(blk, 0, true) && !blk->ops->settle(blk, 0, true) && blk->ops->ready(blk, 0), "settled");
    CHECK(collect(blk, 1) == 1 && calls == 1 && attempts == entries, "%u calls, %u entries", calls, attempts);
    CHECK(reqs[0].result == result, "%zd: the answer is %d", gives, reqs[0].result);
    struct cl_blk_stats stats;
    blk->ops->stats(blk, 0, &stats);
    CHECK(stats.in_call == 1 && stats.submitted == 1 && stats.completed == 1, "counted");
    CHECK(cl_blk_flush(blk, 0) == result, "%zd: a flush behind it", gives);
    CHECK(uring_close(blk) == 0, "closed");
}

/* Whoever waits, or has more, gives it to the device. */
static void kept_no_longer(unsigned way)
{
    struct cl_blk *blk = with_one_kept();
    struct cl_blk_req *p = &reqs[1];
    if (way == 0)
        blk->ops->settle(blk, 0, false);
    else if (way == 1)
        blk->ops->wait(blk, 0, 1000);
    else if (way == 2)
        blk->ops->wait_word(blk, 0, &cq_flags, 0, 1000);
    else if (way == 3)
        blk->ops->arm(blk, 0, false);
    else if (way == 4) {
        reqs[1] =
            (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .bytes = BLOCK, .buf = bufs, .result = 1};
        CHECK(blk->ops->submit(blk, 0, &p, 1) == 1, "taken");
    } else {
        CHECK(uring_close(blk) == 0 && reqs[0].result == 0 && calls == 0, "closing ends it");
        return;
    }
    CHECK(!blk->ops->settle(blk, 0, true), "nothing is kept");
    CHECK(collect(blk, 1 + (way == 4)) == 1 + (way == 4) && calls == 0, "done by the ring");
    CHECK(attempts == 1 + (way == 4) && reqs[0].result == 0, "%u entries", attempts);
    CHECK(uring_close(blk) == 0, "closed");
}

static void not_kept(void)
{
    struct cl_blk *blk = device();
    struct cl_blk_req *p = &reqs[0];
    blk->ops->keep(blk, 0, true);
    submit(blk, 1);
    CHECK(!blk->ops->settle(blk, 0, true), "no plain write");
    stalled = UINT32_MAX;
    struct cl_blk_req *durable = &reqs[1];
    reqs[1] =
        (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .bytes = BLOCK, .buf = bufs, .result = 1};
    CHECK(blk->ops->submit(blk, 0, &durable, 1) == 1 && !blk->ops->settle(blk, 0, true), "none beside another one");
    stalled = 0;
    CHECK(collect(blk, 2) == 2, "done");
    blk->ops->keep(blk, 0, false);
    reqs[0] =
        (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .bytes = BLOCK, .buf = bufs, .result = 1};
    CHECK(blk->ops->submit(blk, 0, &p, 1) == 1 && !blk->ops->settle(blk, 0, true), "none unasked");
    CHECK(collect(blk, 1) == 1 && calls == 0, "done");
    CHECK(uring_close(blk) == 0, "closed");
    blk = with_one_kept();
    blk->gone = 1;
    CHECK(blk->ops->settle(blk, 0, true) && collect(blk, 1) == 1 && calls == 0 && reqs[0].result == -EIO, "gone");
    CHECK(uring_close(blk) == 0, "closed");
}

/* The kernel's polling thread ends before it takes anything, asleep or awake: all is answered, and so is what comes
 * later. */
static void the_polling_thread_ends(bool asleep)
{
    struct cl_blk *blk = device();
    cl_uring_ring_of(blk, 0)->sqpoll = true;
    ((struct cl_blk_file *)blk)->no_dsync = 1; /* two entries each, where it is durable */
    sq_flags = asleep ? IORING_SQ_NEED_WAKEUP : 0;
    wake_fails = enter_fails = EOWNERDEAD;
    submit(blk, 3);
    CHECK(collect(blk, 3) == 3 && attempts == 0 && blk->gone, "answered, and the device is gone");
    for (unsigned i = 0; i < 3; i++)
        CHECK(reqs[i].result == -EIO, "request %u: %d", i, reqs[i].result);
    CHECK(sq_head == sq_tail, "taken back");
    CHECK(cl_blk_write(blk, 0, 0, bufs, BLOCK, CL_BLK_DURABLE) == -EIO && cl_blk_flush(blk, 0) == -EIO, "for good");
    CHECK(uring_close(blk) == 0 && files_deleted == 1, "closed");
}

/* It cannot be woken for another reason, so it may live: what it takes later must still be there. */
static void the_polling_thread_may_live(int error)
{
    struct cl_blk *blk = device();
    cl_uring_ring_of(blk, 0)->sqpoll = true;
    sq_flags = IORING_SQ_NEED_WAKEUP;
    wake_fails = error;
    submit(blk, 3);
    CHECK(sq_tail - sq_head == 3 && !blk->gone, "%u entries", sq_tail - sq_head);
    fake_syscall(__NR_io_uring_enter, -1, 3u, 0u, 0u); /* it takes them */
    CHECK(collect(blk, 3) == 3 && attempts == 3 && reqs[2].result == 0, "done");
    CHECK(uring_close(blk) == 0, "closed");
}

int main(void)
{
    bufs = aligned_alloc(BLOCK, DEPTH * BLOCK);
    memset(bufs, 7, DEPTH * BLOCK);
    for (unsigned times = 0; times < 12; times++)
        refused_for_a_while(times);
    refused_for_good();
    closed_in_a_pause(0);
    closed_in_a_pause(EINTR);
    closed_while_waiting_fails(EBADF);
    closed_while_waiting_fails(EAGAIN);
    closed_while_stalled(0);
    closed_while_stalled(EBADF);
    linked_sync(0);
    linked_sync(-EIO);
    a_failed_flush_is_final();
    a_failed_durable_write(-EIO, CL_BLK_DURABLE, -EIO);
    a_failed_durable_write(-ENOSPC, CL_BLK_DURABLE, -ENOSPC);
    a_failed_durable_write(-EIO, 0, 0);
    a_failed_durable_write(-EAGAIN, CL_BLK_DURABLE, 0);
    nor_are_flushes_that_were_under_way();
    a_refused_flush_is_not();
    short_by_less_than_a_block();
    in_the_call(2 * BLOCK, 0, 0);
    in_the_call(-EIO, -EIO, 0);
    in_the_call(BLOCK, 0, 1);
    in_the_call(-EINTR, 0, 1);
    in_the_call(-EAGAIN, 0, 1);
    in_the_call(-EOPNOTSUPP, 0, 2);
    for (unsigned way = 0; way < 6; way++)
        kept_no_longer(way);
    not_kept();
    the_polling_thread_ends(true);
    the_polling_thread_ends(false);
    the_polling_thread_may_live(EINTR);
    the_polling_thread_may_live(EBADF);
    free(bufs);
    printf("ok\n");
    return 0;
}
