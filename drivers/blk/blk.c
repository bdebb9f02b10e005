/* Calls through the vtable, for bindings, setting up and tests. */
#include <corelane/drivers/blk.h>

#include <time.h>

unsigned cl_blk_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    return blk->ops->submit(blk, queue, reqs, n);
}

unsigned cl_blk_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    return blk->ops->poll(blk, queue, done, n);
}

int cl_blk_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    return blk->ops->wait(blk, queue, timeout_ns);
}

int cl_blk_fd(struct cl_blk *blk, unsigned queue)
{
    return blk->ops->fd(blk, queue);
}

void cl_blk_keep(struct cl_blk *blk, unsigned queue, bool on)
{
    if (blk->ops->keep)
        blk->ops->keep(blk, queue, on);
}

bool cl_blk_settle(struct cl_blk *blk, unsigned queue, bool here)
{
    return blk->ops->settle && blk->ops->settle(blk, queue, here);
}

int cl_blk_wait_word(struct cl_blk *blk, unsigned queue, const uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    return blk->ops->wait_word ? blk->ops->wait_word(blk, queue, word, value, timeout_ns) : -ENOTSUP;
}

int cl_blk_ready(struct cl_blk *blk, unsigned queue)
{
    return blk->ops->ready ? blk->ops->ready(blk, queue) : -ENOTSUP;
}

void cl_blk_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    blk->ops->arm(blk, queue, on);
}

int cl_blk_register_memory(struct cl_blk *blk, unsigned queue, void *ptr, uint64_t bytes)
{
    return blk->ops->register_memory ? blk->ops->register_memory(blk, queue, ptr, bytes) : -EOPNOTSUPP;
}

void cl_blk_unregister_memory(struct cl_blk *blk, unsigned queue, void *ptr)
{
    if (blk->ops->unregister_memory)
        blk->ops->unregister_memory(blk, queue, ptr);
}

void cl_blk_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out)
{
    blk->ops->stats(blk, queue, out);
}

int cl_blk_close(struct cl_blk *blk)
{
    return blk->ops->close(blk);
}

int cl_blk_do(struct cl_blk *blk, unsigned queue, struct cl_blk_req *req)
{
    struct cl_blk_req *done;
    if (blk->ops->submit(blk, queue, &req, 1) != 1)
        return -EBUSY;
    while (!blk->ops->poll(blk, queue, &done, 1)) {
        int rc = blk->ops->wait(blk, queue, -1);
        if (rc < 0 && rc != -EINTR) /* the device has the request all the same, which is our caller's */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return done->result;
}

int cl_blk_read(struct cl_blk *blk, unsigned queue, uint64_t offset, void *buf, uint32_t bytes)
{
    struct cl_blk_req req = {.op = CL_BLK_READ, .offset = offset, .bytes = bytes, .buf = buf};
    return cl_blk_do(blk, queue, &req);
}

int cl_blk_write(struct cl_blk *blk, unsigned queue, uint64_t offset, const void *buf, uint32_t bytes, unsigned flags)
{
    struct cl_blk_req req = {
        .op = CL_BLK_WRITE, .flags = (uint8_t)flags, .offset = offset, .bytes = bytes, .buf = (void *)buf};
    return cl_blk_do(blk, queue, &req);
}

int cl_blk_flush(struct cl_blk *blk, unsigned queue)
{
    struct cl_blk_req req = {.op = CL_BLK_FLUSH};
    return cl_blk_do(blk, queue, &req);
}
