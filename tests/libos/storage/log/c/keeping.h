/* A device over another one, that keeps a lone durable write for settle (corelane/drivers/blk.h). One queue. */
#ifndef TESTS_LIBOS_STORAGE_LOG_C_KEEPING_H
#define TESTS_LIBOS_STORAGE_LOG_C_KEEPING_H

#include <corelane/drivers/blk.h>

#include "tests/support/c/check.h"

struct keeping {
    struct cl_blk blk; /* first */
    struct cl_blk *inner;
    bool on;
    struct cl_blk_req *kept, *done;
    unsigned flies;      /* taken and not given back */
    unsigned calls;      /* writes that were carried out, or begun, in the call */
    unsigned fails_from; /* from that call on, of 1, each fails; 0: none does */
    bool goes_on;        /* what the call leaves goes on by the other device */
};

static inline void keeping_let_go(struct keeping *k)
{
    struct cl_blk_req *r = k->kept;
    k->kept = NULL;
    if (r)
        CHECK(k->inner->ops->submit(k->inner, 0, &r, 1) == 1, "it takes one");
}

static unsigned keeping_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct keeping *k = (struct keeping *)blk;
    keeping_let_go(k);
    if (k->on && n == 1 && !k->flies && reqs[0]->op == CL_BLK_WRITE && reqs[0]->flags & CL_BLK_DURABLE) {
        k->kept = reqs[0];
        return k->flies = 1;
    }
    n = k->inner->ops->submit(k->inner, queue, reqs, n);
    k->flies += n;
    return n;
}

static unsigned keeping_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct keeping *k = (struct keeping *)blk;
    unsigned got = 0;
    if (k->done && n)
        done[got++] = k->done;
    k->done = got ? NULL : k->done;
    got += k->inner->ops->poll(k->inner, queue, done + got, n - got);
    k->flies -= got;
    return got;
}

static int keeping_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    struct keeping *k = (struct keeping *)blk;
    keeping_let_go(k);
    return k->done ? 0 : k->inner->ops->wait(k->inner, queue, timeout_ns);
}

static int keeping_fd(struct cl_blk *blk, unsigned queue)
{
    return cl_blk_fd(((struct keeping *)blk)->inner, queue);
}

static void keeping_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    struct keeping *k = (struct keeping *)blk;
    CHECK(!k->done && !k->kept, "what was settled, or is to be, is the caller's concern at once");
    cl_blk_arm(k->inner, queue, on);
}

static void keeping_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out)
{
    cl_blk_stats(((struct keeping *)blk)->inner, queue, out);
}

static int keeping_close(struct cl_blk *blk)
{
    return cl_blk_close(((struct keeping *)blk)->inner);
}

static uint64_t keeping_next_ns(struct cl_blk *blk, unsigned queue)
{
    struct cl_blk *inner = ((struct keeping *)blk)->inner;
    return inner->ops->next_ns ? inner->ops->next_ns(inner, queue) : UINT64_MAX;
}

static void keeping_keep(struct cl_blk *blk, unsigned queue, bool on)
{
    (void)queue;
    ((struct keeping *)blk)->on = on;
}

static bool keeping_settle(struct cl_blk *blk, unsigned queue, bool here)
{
    struct keeping *k = (struct keeping *)blk;
    struct cl_blk_req *r = k->kept;
    if (!r)
        return false;
    k->calls += here;
    if (!here || k->goes_on) {
        keeping_let_go(k);
        return true;
    }
    k->kept = NULL;
    k->done = r;
    if (k->fails_from && k->calls >= k->fails_from)
        r->result = -EIO;
    else
        (void)cl_blk_do(k->inner, queue, r);
    return true;
}

/* The other device goes with it. */
static inline struct cl_blk *keeping_over(struct keeping *k, struct cl_blk *inner)
{
    static const struct cl_blk_ops ops = {.name = "keeping",
                                          .submit = keeping_submit,
                                          .poll = keeping_poll,
                                          .wait = keeping_wait,
                                          .fd = keeping_fd,
                                          .arm = keeping_arm,
                                          .stats = keeping_stats,
                                          .close = keeping_close,
                                          .next_ns = keeping_next_ns,
                                          .keep = keeping_keep,
                                          .settle = keeping_settle};
    *k = (struct keeping){.blk = *inner, .inner = inner};
    k->blk.ops = &ops;
    return &k->blk;
}

#endif
