/* See raft_bound.h. */
#include "raft_bound.h"
#include "pinned.h"

#include <stdlib.h>

#define WRITERS 3 /* number 0 leads */
#define MAJORITY 2
#define WRITE_BYTES 4096

/* Words of shared memory, each on a line of its own and with one writer. They carry the number of a put. Every store is a release
 * and every load that waits an acquire: what was written before, rc above all, is seen by who sees the word. */
struct word {
    uint64_t put;
} __attribute__((aligned(CL_CACHELINE)));

struct bound_run {
    struct word asked;            /* client, leader: this put is wanted */
    struct word handed[WRITERS];  /* leader, follower: write this one */
    struct word written[WRITERS]; /* each writer, leader (its own: client): this one is durable */
    struct word answered;         /* leader, client: a majority has this one */
    struct word failed;   /* whoever fails first, all: not 0: -rc, and everybody ends (relaxed: a number alone) */
    struct cl_blk **blks; /* constant */
    uint8_t *buf;         /* constant */
    uint64_t *put_ns;     /* client */
    uint32_t n;           /* constant */
};

struct writer {
    struct bound_run *run;
    unsigned number;
};

static void fail(struct bound_run *r, int rc)
{
    cl_store_relaxed(&r->failed.put, (uint64_t)-rc);
}

static bool ended(struct bound_run *r)
{
    return cl_load_relaxed(&r->failed.put) != 0;
}

/* Yield until `word` has reached `put`. False: somebody has failed. */
static bool await(struct bound_run *r, struct word *word, uint64_t put)
{
    while (cl_load_acquire(&word->put) < put) {
        if (ended(r))
            return false;
        sched_yield();
    }
    return true;
}

static bool submit(struct bound_run *r, unsigned number, uint64_t put, struct cl_blk_req *req)
{
    struct cl_blk *blk = r->blks[number];
    struct cl_blk_req *send = req;
    *req = (struct cl_blk_req){.op = CL_BLK_WRITE,
                               .flags = CL_BLK_DURABLE,
                               .offset = (put - 1) % (blk->bytes / WRITE_BYTES) * WRITE_BYTES,
                               .bytes = WRITE_BYTES,
                               .buf = r->buf};
    if (blk->ops->submit(blk, 0, &send, 1) != 1) {
        fail(r, -EAGAIN);
        return false;
    }
    return true;
}

/* One look at the writer's own completion. Requests never stay behind: a writer that has one looks until it is done. */
static bool finished(struct bound_run *r, unsigned number)
{
    struct cl_blk *blk = r->blks[number];
    struct cl_blk_req *done;
    if (blk->ops->poll(blk, 0, &done, 1) != 1)
        return false;
    if (done->result)
        fail(r, done->result);
    return true;
}

static void *follower(void *arg)
{
    struct writer *w = arg;
    struct bound_run *r = w->run;
    struct cl_blk_req req;
    for (uint64_t put = 1; put <= r->n; put++) {
        if (!await(r, &r->handed[w->number], put) || !submit(r, w->number, put, &req))
            break;
        while (!finished(r, w->number))
            sched_yield();
        cl_store_release(&r->written[w->number].put, put);
    }
    return NULL;
}

/* Until the leader's own write is done and the put is answered, whatever comes first. */
static void lead(struct bound_run *r, uint64_t put)
{
    bool mine = false, answered = false;
    while (!mine || !answered) {
        mine = mine || finished(r, 0);
        unsigned have = mine;
        for (unsigned i = 1; i < WRITERS; i++)
            have += cl_load_acquire(&r->written[i].put) >= put;
        if (!answered && have >= MAJORITY) {
            cl_store_release(&r->answered.put, put);
            answered = true;
        }
        if (mine && ended(r))
            return;
        if (!mine || !answered)
            sched_yield();
    }
    cl_store_release(&r->written[0].put, put);
}

static void *leader(void *arg)
{
    struct writer *w = arg;
    struct bound_run *r = w->run;
    struct cl_blk_req req;
    for (uint64_t put = 1; put <= r->n; put++) {
        if (!await(r, &r->asked, put))
            break;
        for (unsigned i = 1; i < WRITERS; i++)
            cl_store_release(&r->handed[i].put, put);
        if (!submit(r, 0, put, &req))
            break;
        lead(r, put);
    }
    return NULL;
}

static void *client(void *arg)
{
    struct bound_run *r = arg;
    for (uint64_t put = 1; put <= r->n; put++) {
        uint64_t begin = cl_bench_wall_ns();
        cl_store_release(&r->asked.put, put);
        if (!await(r, &r->answered, put))
            return NULL;
        r->put_ns[put - 1] = cl_bench_wall_ns() - begin;
        for (unsigned i = 0; i < WRITERS; i++)
            if (!await(r, &r->written[i], put))
                return NULL;
    }
    return NULL;
}

static int run_threads(struct bound_run *r, int client_cpu, int writers_cpu, char *err)
{
    pthread_t threads[WRITERS + 1];
    struct writer writers[WRITERS];
    unsigned started = 0;
    int rc = 0;
    for (; started < WRITERS && !rc; started += !rc) {
        writers[started] = (struct writer){.run = r, .number = started};
        rc = cl_bench_start_pinned(&threads[started], writers_cpu, started ? follower : leader, &writers[started], err);
    }
    if (!rc) {
        rc = cl_bench_start_pinned(&threads[started], client_cpu, client, r, err);
        started += !rc;
    }
    if (rc)
        fail(r, rc);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (!rc && ended(r)) {
        rc = -(int)r->failed.put;
        snprintf(err, CL_BENCH_ERR_BYTES, "a write failed: %s", strerror(-rc));
    }
    return rc;
}

int cl_bench_raft_bound(struct cl_blk **blks, int client_cpu, int writers_cpu, uint32_t n, uint64_t *put_ns,
                        char err[256])
{
    for (unsigned i = 0; i < WRITERS; i++) {
        if (blks[i]->bytes < WRITE_BYTES || blks[i]->block_bytes > WRITE_BYTES) {
            snprintf(err, CL_BENCH_ERR_BYTES, "device %u is too small for a write of 4 KiB", i);
            return -EINVAL;
        }
    }
    struct bound_run *run = aligned_alloc(CL_CACHELINE, sizeof *run);
    uint8_t *buf = aligned_alloc(WRITE_BYTES, WRITE_BYTES);
    int rc = -ENOMEM;
    if (run && buf) {
        memset(buf, 0x5a, WRITE_BYTES);
        memset(run, 0, sizeof *run);
        run->blks = blks;
        run->buf = buf;
        run->put_ns = put_ns;
        run->n = n;
        rc = run_threads(run, client_cpu, writers_cpu, err);
    } else {
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
    }
    free(buf);
    free(run);
    return rc;
}
