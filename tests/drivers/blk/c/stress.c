/* Every queue of a block device at once: each thread writes, reads back and checks blocks of its own with as many
 * requests in flight as there may be, flushes, arms and disarms, while another thread reads statistics. With faults,
 * what fails is counted as failed. Run plain, under ASan and under TSan.
 * Usage: blk_stress memory|fault|uring|threads ROUNDS SEED FILE */
#include "drivers/blk/fault.h"
#include <corelane/drivers/blk_file.h>
#include "drivers/blk/memory.h"
#include "drivers/random.h"

#include "tests/support/c/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUES 3
#define BLOCKS 64 /* of each thread */
#define DEPTH 32
static struct cl_blk *blk;
static uint64_t rounds;
static uint32_t ended;
static bool faulty;

struct slot {
    struct cl_blk_req req;
    uint8_t *buf;
    bool flying;
};

struct worker {
    unsigned queue;
    struct cl_random random;
    struct slot slots[DEPTH];
    uint64_t value[BLOCKS]; /* what each block holds */
    bool unknown[BLOCKS];   /* a write failed */
    bool touched[BLOCKS];   /* a request is in flight */
    uint64_t flying, finished, failed;
    pthread_t thread;
};

static uint32_t block_of(const struct worker *w, const struct cl_blk_req *r)
{
    return (uint32_t)(r->offset / blk->block_bytes) - w->queue * BLOCKS;
}

static void fill(uint8_t *buf, uint64_t value)
{
    for (uint32_t i = 0; i < blk->block_bytes; i += 8)
        memcpy(buf + i, &value, 8);
}

static void check_read(const struct worker *w, const struct slot *s)
{
    uint32_t b = block_of(w, &s->req);
    for (uint32_t i = 0; i < blk->block_bytes && !w->unknown[b]; i += 8)
        CHECK(memcmp(s->buf + i, &w->value[b], 8) == 0);
}

static void take_done(struct worker *w)
{
    struct cl_blk_req *done[DEPTH];
    unsigned n = blk->ops->poll(blk, w->queue, done, 1 + (unsigned)cl_random_below(&w->random, DEPTH));
    for (unsigned i = 0; i < n; i++) {
        struct slot *s = done[i]->user;
        CHECK(s->flying);
        s->flying = false;
        w->failed += done[i]->result != 0;
        CHECK(done[i]->result == 0 || (faulty && done[i]->result == -EIO));
        if (done[i]->op == CL_BLK_FLUSH)
            continue;
        w->touched[block_of(w, done[i])] = false;
        if (done[i]->op == CL_BLK_WRITE)
            w->unknown[block_of(w, done[i])] = done[i]->result != 0;
        else if (done[i]->result == 0)
            check_read(w, s);
    }
    w->flying -= n;
    w->finished += n;
}

static bool prepare(struct worker *w, struct slot *s)
{
    uint32_t b = (uint32_t)cl_random_below(&w->random, BLOCKS);
    uint64_t kind = cl_random_below(&w->random, 8);
    s->req = (struct cl_blk_req){.op = CL_BLK_FLUSH, .user = s};
    if (kind == 0)
        return true;
    if (w->touched[b])
        return false;
    s->req = (struct cl_blk_req){.op = kind < 4 ? CL_BLK_READ : CL_BLK_WRITE,
                                 .flags = kind == 7 ? CL_BLK_DURABLE : 0,
                                 .offset = (uint64_t)(w->queue * BLOCKS + b) * blk->block_bytes,
                                 .bytes = blk->block_bytes,
                                 .buf = s->buf,
                                 .user = s};
    w->touched[b] = true;
    if (s->req.op == CL_BLK_WRITE)
        fill(s->buf, w->value[b] = cl_random_next(&w->random));
    return true;
}

static void submit_some(struct worker *w)
{
    struct cl_blk_req *reqs[DEPTH];
    unsigned n = 0, want = 1 + (unsigned)cl_random_below(&w->random, 8);
    for (unsigned i = 0; i < DEPTH && n < want; i++)
        if (!w->slots[i].flying && prepare(w, &w->slots[i])) {
            w->slots[i].flying = true;
            reqs[n++] = &w->slots[i].req;
        }
    for (unsigned taken = 0; taken < n;) {
        unsigned now = blk->ops->submit(blk, w->queue, reqs + taken, n - taken);
        taken += now;
        w->flying += now;
        if (taken < n)
            take_done(w);
    }
}

static void *run(void *arg)
{
    struct worker *w = arg;
    for (uint64_t i = 0; i < rounds; i++) {
        submit_some(w);
        if (cl_random_below(&w->random, 16) == 0)
            blk->ops->arm(blk, w->queue, cl_random_next(&w->random) & 1);
        if (cl_random_below(&w->random, 4) == 0)
            CHECK(blk->ops->wait(blk, w->queue, -1) == 0);
        take_done(w);
    }
    while (w->flying) {
        CHECK(blk->ops->wait(blk, w->queue, -1) == 0);
        take_done(w);
    }
    __atomic_fetch_add(&ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void open_file(const char *kind, const char *path)
{
    char err[256] = "";
    struct cl_blk_file_config c = {.path = path, .queues = QUEUES, .depth = DEPTH};
    c.engine = strcmp(kind, "uring") == 0 ? CL_BLK_ENGINE_URING : CL_BLK_ENGINE_THREADS;
    CHECK(cl_blk_file_create(path, QUEUES * BLOCKS * 4096, NULL, NULL, err) == 0);
    if (cl_blk_file_open(&c, &blk, err) < 0) {
        printf("skip %s\n", err);
        exit(0);
    }
}

static void open_device(const char *kind, uint64_t seed, const char *path)
{
    char err[256] = "";
    if (path) {
        open_file(kind, path);
        return;
    }
    struct cl_blk_memory_config memory = {.queues = QUEUES, .depth = DEPTH, .bytes = 4 << 20};
    CHECK(cl_blk_memory_new(&memory, &blk, err) == 0);
    if (strcmp(kind, "fault") == 0) {
        struct cl_blk_fault_config faults = {.seed = seed,
                                             .read_error = 0.01,
                                             .write_error = 0.01,
                                             .flush_error = 0.01,
                                             .latency_max_ns = 20000,
                                             .cache_bytes = 64 << 10};
        CHECK(cl_blk_fault_new(blk, &faults, &blk, err) == 0);
        faulty = true;
    }
}

static void check_stats(struct worker *workers)
{
    for (unsigned i = 0; i < QUEUES; i++) {
        struct cl_blk_stats s;
        blk->ops->stats(blk, i, &s);
        CHECK(s.submitted == s.completed && s.completed == workers[i].finished && s.failed == workers[i].failed);
        CHECK(s.completed == s.reads + s.writes + s.flushes + s.failed);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 4 || argc == 5);
    rounds = strtoull(argv[2], NULL, 0);
    uint64_t seed = strtoull(argv[3], NULL, 0);
    open_device(argv[1], seed, argc == 5 ? argv[4] : NULL);
    struct worker *workers = calloc(QUEUES, sizeof(*workers));
    for (unsigned i = 0; i < QUEUES; i++) {
        workers[i].queue = i;
        workers[i].random.state = seed + i;
        for (unsigned j = 0; j < DEPTH; j++)
            workers[i].slots[j].buf = aligned_alloc(blk->block_bytes, blk->block_bytes);
        CHECK(pthread_create(&workers[i].thread, NULL, run, &workers[i]) == 0);
    }
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < QUEUES) {
        struct cl_blk_stats s;
        for (unsigned i = 0; i < QUEUES; i++)
            blk->ops->stats(blk, i, &s);
    }
    for (unsigned i = 0; i < QUEUES; i++)
        pthread_join(workers[i].thread, NULL);
    check_stats(workers);
    printf("finished %llu\n", (unsigned long long)(workers[0].finished + workers[1].finished + workers[2].finished));
    cl_blk_close(blk);
    for (unsigned i = 0; i < QUEUES; i++)
        for (unsigned j = 0; j < DEPTH; j++)
            free(workers[i].slots[j].buf);
    free(workers);
    return 0;
}
