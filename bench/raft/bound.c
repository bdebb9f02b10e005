/* See bound.h. */
#include "bound.h"
#include "../harness/pinned.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITERS 3 /* number 0 leads */
#define MAJORITY 2
#define WRITE_BYTES 4096
#define ENTRY_BYTES 192 /* of a put of 100 bytes in our log, with both headers */
#define TRAIL_MOST (256u << 10)
#define REST_NS 100000 /* who trails yields for so long before it sleeps, as our nodes do */
#define LINGER_NS 2000 /* the leader looks for its client so long before it yields, as our nodes do */

/* Words of shared memory, each on a line of its own and with one writer. They carry the number of a put. Every store is
 * a release and every load that waits an acquire: what was written before, rc above all, is seen by who sees the
 * word. */
struct word {
    uint64_t put;
} __attribute__((aligned(CL_CACHELINE)));

struct bound_run {
    struct word asked;            /* client, leader: this put is wanted */
    struct word handed[WRITERS];  /* leader, follower: write all up to this one */
    struct word written[WRITERS]; /* each writer, leader (its own: client): this one is durable */
    struct word answered;         /* leader, client: a majority has this one */
    struct word failed;   /* whoever fails first, all: not 0: -rc, and everybody ends (relaxed: a number alone) */
    struct cl_blk **blks; /* constant */
    const struct cl_bench_raft_bound *how; /* constant */
    uint8_t *buf;                          /* constant */
    uint64_t *put_ns;                      /* client */
    uint32_t n;                            /* constant */
    unsigned at_once;                      /* constant: so many writers are sent a put at once */
};

struct writer {
    struct bound_run *run;
    unsigned number;
    uint64_t at; /* where its next write goes */
    struct cl_blk_req req;
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

/* The same for the next put of a client that has just been answered. */
static bool await_client(struct bound_run *r, uint64_t put)
{
    for (uint64_t until = cl_bench_wall_ns() + LINGER_NS; cl_bench_wall_ns() < until;)
        if (cl_load_acquire(&r->asked.put) >= put)
            break;
    return await(r, &r->asked, put);
}

static bool call(struct writer *w, uint64_t at, uint32_t bytes)
{
    struct iovec data = {.iov_base = w->run->buf, .iov_len = bytes};
    ssize_t rc = pwritev2(w->run->how->fds[w->number], &data, 1, (off_t)at, RWF_DSYNC);
    if (rc == (ssize_t)bytes)
        return true;
    fail(w->run, rc < 0 ? -errno : -EIO);
    return false;
}

/* Begin a write, or do it. */
static bool submit(struct writer *w, uint32_t bytes)
{
    struct cl_blk *blk = w->run->blks[w->number];
    struct cl_blk_req *send = &w->req;
    uint64_t at = w->at + bytes > blk->bytes ? 0 : w->at;
    w->at = at + bytes;
    if (w->run->how->fds)
        return call(w, at, bytes);
    w->req = (struct cl_blk_req){
        .op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .offset = at, .bytes = bytes, .buf = w->run->buf};
    if (blk->ops->submit(blk, 0, &send, 1) != 1) {
        fail(w->run, -EAGAIN);
        return false;
    }
    return true;
}

/* One look at the writer's own completion. Requests never stay behind: a writer that has one looks until it is done. */
static bool finished(struct writer *w)
{
    struct cl_blk *blk = w->run->blks[w->number];
    struct cl_blk_req *done;
    if (w->run->how->fds)
        return true;
    if (blk->ops->poll(blk, 0, &done, 1) != 1)
        return false;
    if (done->result)
        fail(w->run, done->result);
    return true;
}

static bool write_out(struct writer *w, uint32_t bytes, uint64_t put)
{
    if (!submit(w, bytes))
        return false;
    while (!finished(w))
        sched_yield();
    cl_store_release(&w->run->written[w->number].put, put);
    return true;
}

static void *follower(void *arg)
{
    struct writer *w = arg;
    struct bound_run *r = w->run;
    for (uint64_t put = 1; put <= r->n; put++)
        if (!await(r, &r->handed[w->number], put) || !write_out(w, WRITE_BYTES, put))
            break;
    return NULL;
}

/* The leader's word reached more than `have`: what it says. The low half of it is the futex, and no run has 2^32
 * puts. */
static uint64_t rest(struct word *word, uint64_t have)
{
    uint64_t until = cl_bench_wall_ns() + REST_NS, handed;
    while ((handed = cl_load_acquire(&word->put)) <= have) {
        if (cl_bench_wall_ns() < until)
            sched_yield();
        else
            syscall(SYS_futex, &word->put, FUTEX_WAIT_PRIVATE, (uint32_t)handed, NULL, NULL, 0);
    }
    return handed;
}

static void *trailer(void *arg)
{
    struct writer *w = arg;
    struct bound_run *r = w->run;
    for (uint64_t have = 0; have < r->n;) {
        uint64_t handed = rest(&r->handed[w->number], have);
        uint64_t bytes = ((handed - have) * ENTRY_BYTES + WRITE_BYTES - 1) & ~(uint64_t)(WRITE_BYTES - 1);
        if (ended(r) || !write_out(w, (uint32_t)cl_min(bytes, (uint64_t)TRAIL_MOST), handed))
            break;
        have = handed;
    }
    return NULL;
}

/* Who trails is sent all up to `put`. */
static void spread(struct bound_run *r, uint64_t put)
{
    struct word *word = &r->handed[WRITERS - 1];
    cl_store_release(&word->put, put);
    syscall(SYS_futex, &word->put, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Until the leader's own write is done and the put is answered, whatever comes first. */
static void lead(struct writer *w, uint64_t put)
{
    struct bound_run *r = w->run;
    bool mine = false, answered = false;
    while (!mine || !answered) {
        mine = mine || finished(w);
        unsigned have = mine;
        for (unsigned i = 1; i < r->at_once; i++)
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
    uint64_t spread_put = 0, spread_ns = cl_bench_wall_ns();
    for (uint64_t put = 1; put <= r->n; put++) {
        if (!await_client(r, put))
            break;
        for (unsigned i = 1; i < r->at_once; i++)
            cl_store_release(&r->handed[i].put, put);
        if (!submit(w, WRITE_BYTES))
            break;
        lead(w, put);
        uint64_t now = cl_bench_wall_ns();
        if (!r->how->trail_puts || (put - spread_put < r->how->trail_puts && now - spread_ns < r->how->trail_ns))
            continue;
        spread(r, put);
        spread_put = put;
        spread_ns = now;
    }
    if (r->how->trail_puts)
        spread(r, r->n);
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
        for (unsigned i = 0; i < r->at_once; i++)
            if (!await(r, &r->written[i], put))
                return NULL;
    }
    return NULL;
}

static int run_threads(struct bound_run *r, char *err)
{
    pthread_t threads[WRITERS + 1];
    struct writer writers[WRITERS];
    unsigned started = 0;
    int rc = 0;
    for (; started < WRITERS && !rc; started += !rc) {
        void *(*body)(void *) = !started ? leader : started < r->at_once ? follower : trailer;
        writers[started] = (struct writer){.run = r, .number = started};
        rc = cl_bench_start_pinned(&threads[started], r->how->writers_cpu, body, &writers[started], err);
    }
    if (!rc) {
        rc = cl_bench_start_pinned(&threads[started], r->how->client_cpu, client, r, err);
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

static int check(struct cl_blk **blks, const struct cl_bench_raft_bound *how, char *err)
{
    uint32_t least = how->trail_puts ? TRAIL_MOST : WRITE_BYTES;
    for (unsigned i = 0; i < WRITERS; i++) {
        if (blks[i]->bytes < least || blks[i]->block_bytes > WRITE_BYTES) {
            snprintf(err, CL_BENCH_ERR_BYTES, "device %u is too small for a write of %u bytes", i, least);
            return -EINVAL;
        }
    }
    if (how->trail_puts <= TRAIL_MOST / ENTRY_BYTES)
        return 0;
    snprintf(err, CL_BENCH_ERR_BYTES, "so many puts do not go into one write: trail_puts is %u at most",
             TRAIL_MOST / ENTRY_BYTES);
    return -EINVAL;
}

int cl_bench_raft_bound(struct cl_blk **blks, const struct cl_bench_raft_bound *how, uint32_t n, uint64_t *put_ns,
                        char err[256])
{
    int rc = check(blks, how, err);
    if (rc)
        return rc;
    struct bound_run *run = aligned_alloc(CL_CACHELINE, sizeof *run);
    uint8_t *buf = aligned_alloc(WRITE_BYTES, TRAIL_MOST);
    if (run && buf) {
        memset(buf, 0x5a, TRAIL_MOST);
        memset(run, 0, sizeof *run);
        run->blks = blks;
        run->how = how;
        run->buf = buf;
        run->put_ns = put_ns;
        run->n = n;
        run->at_once = how->trail_puts ? MAJORITY : WRITERS;
        rc = run_threads(run, err);
    } else {
        rc = -ENOMEM;
        snprintf(err, CL_BENCH_ERR_BYTES, "out of memory");
    }
    free(buf);
    free(run);
    return rc;
}
