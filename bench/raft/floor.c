/* See floor.h. */
#include "floor.h"
#include "../harness/pinned.h"

#include <stdlib.h>

#define REPLICAS 3
#define WRITE_BYTES 4096

struct floor_run {
    struct cl_blk *blk;
    uint32_t block, n;
    uint64_t *second_ns;
    uint8_t *buf;
    int rc;
};

/* Three writes at `at` of each third. Returns when all are done; the time of the second, or 0 after an error. */
static uint64_t three_writes(struct floor_run *r, uint64_t at)
{
    struct cl_blk *blk = r->blk;
    struct cl_blk_req reqs[REPLICAS], *send[REPLICAS], *done[REPLICAS];
    uint64_t third = blk->bytes / REPLICAS / WRITE_BYTES * WRITE_BYTES, second = 0;
    unsigned have = 0;
    for (unsigned i = 0; i < REPLICAS; i++) {
        reqs[i] = (struct cl_blk_req){.op = CL_BLK_WRITE,
                                      .flags = CL_BLK_DURABLE,
                                      .offset = i * third + at % third,
                                      .bytes = WRITE_BYTES,
                                      .buf = r->buf};
        send[i] = &reqs[i];
    }
    uint64_t begin = cl_bench_wall_ns();
    unsigned taken = blk->ops->submit(blk, 0, send, REPLICAS);
    while (have < taken) {
        unsigned n = blk->ops->poll(blk, 0, done, REPLICAS);
        for (unsigned i = 0; i < n; i++)
            if (done[i]->result)
                r->rc = done[i]->result;
        if (have < 2 && have + n >= 2)
            second = cl_bench_wall_ns() - begin;
        have += n;
        if (have == taken || n)
            continue;
        if (r->block)
            blk->ops->wait(blk, 0, -1);
        else
            sched_yield();
    }
    if (taken < REPLICAS)
        r->rc = -EAGAIN;
    return second;
}

static void *body(void *arg)
{
    struct floor_run *r = arg;
    for (uint32_t i = 0; i < r->n && !r->rc; i++)
        r->second_ns[i] = three_writes(r, (uint64_t)i * WRITE_BYTES);
    return NULL;
}

int cl_bench_raft_floor(struct cl_blk *blk, int cpu, uint32_t block, uint32_t n, uint64_t *second_ns, char err[256])
{
    struct floor_run run = {.blk = blk, .block = block, .n = n, .second_ns = second_ns};
    pthread_t thread;
    if (blk->depth < REPLICAS || blk->bytes < REPLICAS * WRITE_BYTES || blk->block_bytes > WRITE_BYTES) {
        snprintf(err, CL_BENCH_ERR_BYTES, "the device is too small for three writes of 4 KiB at once");
        return -EINVAL;
    }
    run.buf = aligned_alloc(WRITE_BYTES, WRITE_BYTES);
    if (!run.buf) {
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    memset(run.buf, 0x5a, WRITE_BYTES);
    run.rc = cl_bench_start_pinned(&thread, cpu, body, &run, err);
    if (!run.rc) {
        pthread_join(thread, NULL);
        if (run.rc)
            snprintf(err, CL_BENCH_ERR_BYTES, "a write failed: %s", strerror(-run.rc));
    }
    free(run.buf);
    return run.rc;
}
