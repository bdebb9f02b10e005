/* Uthreads that read, write and flush a device and wait for it. Each has blocks of its own, which it checks; others of
 * the same kthread compute meanwhile and must not be held up. No watch: a lost completion stays lost, and the alarm
 * ends the program. Usage: io KTHREADS MODE DEVICE ROUNDS SEED [FILE]    DEVICE: memory, fault (late completions),
 *        uring, threads io scenario NAME */
#include "../../sched/c/check.h"
#include "../../sched/c/fake_iokernel.h"

#include "tests/support/c/asleep.h"

#include "drivers/blk/fault.h"
#include <corelane/drivers/blk_file.h>
#include "drivers/blk/memory.h"
#include "drivers/random.h"
#include "libos/storage/io.h"

#include <sched.h>

#define UTHREADS 48
#define BLOCKS 4 /* of each */
#define UNIT 4096
#define SHARED (UTHREADS * BLOCKS) /* first of eight blocks that nobody writes */

static struct cl_blk *blk;
static struct cl_storage *io;
static struct cl_sched *sched;
static unsigned rounds;
static uint64_t seed;
static uint32_t running; /* uthreads that do I/O; RMW, relaxed */
static uint64_t spun;    /* turns of those that compute */

static void fill(uint8_t *buf, uint64_t value)
{
    for (unsigned i = 0; i < UNIT; i += 8)
        memcpy(buf + i, &value, 8);
}

static void write_and_read(void *arg)
{
    uintptr_t me = (uintptr_t)arg;
    struct cl_random random = {seed + me};
    uint64_t base = me * BLOCKS * UNIT, values[BLOCKS] = {0};
    uint8_t *buf = aligned_alloc(UNIT, UNIT), *want = aligned_alloc(UNIT, UNIT);
    memset(buf, 0, UNIT);
    for (unsigned b = 0; b < BLOCKS; b++) /* there are those of the time before */
        CHECK_EQ(cl_storage_write(io, base + b * UNIT, buf, UNIT, 0), 0);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned b = (unsigned)cl_random_below(&random, BLOCKS), kind = (unsigned)cl_random_below(&random, 8);
        if (kind == 0) {
            CHECK_EQ(cl_storage_flush(io), 0);
        } else if (kind < 5) {
            fill(buf, values[b] = cl_random_next(&random));
            CHECK_EQ(cl_storage_write(io, base + b * UNIT, buf, UNIT, kind < 3 ? CL_BLK_DURABLE : 0), 0);
        } else {
            fill(want, values[b]);
            CHECK_EQ(cl_storage_read(io, base + b * UNIT, buf, UNIT), 0);
            CHECK(memcmp(buf, want, UNIT) == 0);
        }
        if (kind == 7)
            cl_uthread_sleep_ns(cl_random_below(&random, 300000));
    }
    free(buf);
    free(want);
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
}

/* Many requests by one call, and one that fails. */
static void many(void *arg)
{
    uint8_t *buf = aligned_alloc(UNIT, 8 * UNIT);
    struct cl_blk_req reqs[8], *list[8];
    (void)arg;
    for (unsigned i = 0; i < rounds / 4 + 1; i++) {
        for (unsigned j = 0; j < 8; j++) {
            reqs[j] = (struct cl_blk_req){
                .op = CL_BLK_READ, .offset = (SHARED + j) * UNIT, .bytes = UNIT, .buf = buf + (size_t)j * UNIT};
            list[j] = &reqs[j];
        }
        CHECK_EQ(cl_storage_do(io, list, 8), 0);
        reqs[5].offset = blk->bytes;
        CHECK_EQ(cl_storage_do(io, list, 8), -ERANGE);
        CHECK_EQ(reqs[4].result, 0);
    }
    CHECK_EQ(cl_storage_do(io, list, 0), 0);
    free(buf);
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
}

static void compute(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
        __atomic_fetch_add(&spun, 1, __ATOMIC_RELAXED);
        cl_uthread_yield();
    }
}

static void open_device(const char *kind, unsigned queues, const char *path)
{
    char err[256] = "";
    if (path) {
        struct cl_blk_file_config c = {.path = path, .queues = queues, .depth = 16};
        c.engine = strcmp(kind, "uring") == 0 ? CL_BLK_ENGINE_URING : CL_BLK_ENGINE_THREADS;
        CHECK_EQ(cl_blk_file_create(path, (uint64_t)(SHARED + 8) * UNIT, NULL, NULL, err), 0);
        if (cl_blk_file_open(&c, &blk, err) < 0) {
            printf("skip %s\n", err);
            exit(0);
        }
        return;
    }
    struct cl_blk_memory_config m = {.queues = queues, .depth = 16, .bytes = 4 << 20};
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    struct cl_blk_fault_config f = {.seed = seed, .latency_min_ns = 1000, .latency_max_ns = 400000};
    if (strcmp(kind, "fault") == 0)
        CHECK_EQ(cl_blk_fault_new(blk, &f, &blk, err), 0);
}

static void check_counts(unsigned kthreads)
{
    uint64_t requests = 0, collected = 0, doorbells = 0;
    for (unsigned k = 0; k < kthreads; k++) {
        struct cl_storage_stats s;
        CHECK_EQ(cl_storage_stats(io, k, &s), 0);
        requests += s.requests;
        doorbells += s.doorbells;
        collected += s.collected + s.helped;
    }
    CHECK_EQ(requests, collected);
    CHECK(doorbells > 0 && doorbells <= requests);
    printf("requests %llu doorbells %llu spun %llu\n", (unsigned long long)requests, (unsigned long long)doorbells,
           (unsigned long long)spun);
}

static void start_uthreads(bool with_compute)
{
    running = UTHREADS + 1;
    if (with_compute) /* first: this thread may be held up between two of them until those before have ended */
        CHECK_EQ(cl_sched_spawn(sched, compute, NULL), 0);
    for (uintptr_t i = 0; i < UTHREADS; i++)
        CHECK_EQ(cl_sched_spawn(sched, write_and_read, (void *)i), 0);
    CHECK_EQ(cl_sched_spawn(sched, many, NULL), 0);
}

static void everything(int argc, char **argv)
{
    char err[256] = "";
    struct cl_sched_config c = config_from(argc, argv);
    rounds = (unsigned)atoi(argv[4]);
    seed = strtoull(argv[5], NULL, 0);
    open_device(argv[3], c.n_kthreads, argc > 6 ? argv[6] : NULL);
    sched = sched_new(&c);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), 0);
    CHECK_EQ(cl_sched_start(sched, err), 0);
    alarm(100);
    for (unsigned with_compute = 0; with_compute < 2; with_compute++) {
        start_uthreads(with_compute);
        while (__atomic_load_n(&running, __ATOMIC_ACQUIRE))
            usleep(1000);
    }
    sched_stop_checked(sched);
    check_counts(c.n_kthreads);
    CHECK(spun > 0);
    cl_storage_delete(io);
    cl_sched_delete(sched);
    cl_blk_close(blk);
}

/* Stepped by hand, on a virtual clock that the device shares: the same run twice takes the same steps. */
static uint64_t now_ns;

static uint64_t virtual_clock(void *arg)
{
    (void)arg;
    return now_ns;
}

static uint64_t stepped(void)
{
    char err[256] = "";
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    c.n_kthreads = 2;
    now_ns = 1;
    rounds = 20;
    struct cl_blk_memory_config m = {.queues = 2, .depth = 16, .bytes = 4 << 20};
    struct cl_blk_fault_config f = {
        .seed = 3, .latency_min_ns = 1000, .latency_max_ns = 9000, .clock = virtual_clock, .cache_bytes = 1 << 20};
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    CHECK_EQ(cl_blk_fault_new(blk, &f, &blk, err), 0);
    sched = sched_new(&c);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), 0);
    start_uthreads(false);
    uint64_t trace = 0;
    for (unsigned i = 0; cl_sched_live(sched); i++) {
        CHECK(i < 1000000);
        uint64_t work = (uint64_t)cl_sched_step(sched, i % 2);
        trace = (trace ^ (work + 1 + now_ns)) * 0x100000001b3ull;
        now_ns += 100;
    }
    check_counts(2);
    cl_sched_stop(sched, 0);
    cl_storage_delete(io);
    cl_sched_delete(sched);
    cl_blk_close(blk);
    return trace;
}

static void scenario_stepped(void)
{
    uint64_t first = stepped();
    CHECK(first == stepped());
}

/* With uthreads that still wait: they are not brought back, and nothing is touched after the delete. */
static void wait_for_ever(void *arg)
{
    static uint8_t buf[UNIT] CL_ALIGNED(UNIT);
    (void)arg;
    cl_storage_read(io, 0, buf, UNIT);
    CHECK(!"the scheduler had ended");
}

static void scenario_stop_in_flight(void)
{
    char err[256] = "";
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    struct cl_blk_memory_config m = {.bytes = 1 << 20};
    struct cl_blk_fault_config f = {.latency_min_ns = 300000000, .latency_max_ns = 300000000};
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    CHECK_EQ(cl_blk_fault_new(blk, &f, &blk, err), 0);
    sched = sched_new(&c);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), 0);
    CHECK_EQ(cl_sched_start(sched, err), 0);
    CHECK_EQ(cl_sched_spawn(sched, wait_for_ever, NULL), 0);
    struct cl_blk_stats s;
    do
        blk->ops->stats(blk, 0, &s);
    while (s.submitted == 0);
    CHECK_EQ(cl_sched_stop(sched, 0), 1);
    cl_storage_delete(io);
    cl_sched_delete(sched);
    cl_blk_close(blk);
}

static void scenario_refusals(void)
{
    char err[256] = "";
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.n_kthreads = 2;
    struct cl_blk_memory_config m = {.bytes = 1 << 20};
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    sched = sched_new(&c);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), -EINVAL);
    CHECK(strstr(err, "1 queues, but there are 2 kthreads"));
    cl_blk_close(blk);
    m.queues = 2;
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), 0);
    CHECK_EQ(cl_storage_flush(io), -EDEADLK); /* not on a uthread */
    CHECK_EQ(cl_storage_stats(io, 2, NULL), -EINVAL);
    CHECK_EQ(cl_sched_start(sched, err), 0);
    struct cl_storage *late;
    CHECK_EQ(cl_storage_new(sched, blk, &late, err), -EEXIST);
    CHECK(strstr(err, "somebody else uses the device"));
    CHECK_EQ(cl_sched_stop(sched, -1), 0);
    cl_storage_delete(io);
    cl_sched_delete(sched);
    cl_blk_close(blk);
}

/* Where cores are managed: kthread 0 has none when its read is done. The iokernel is asked and sees it in the signals;
 * whoever gets a core then, `to`, collects. Time is a word: the device is late for as long as the test wants. */
static uint64_t managed_now;
static uint32_t managed_done;

static void managed_read(void *arg)
{
    static uint8_t buf[UNIT] CL_ALIGNED(UNIT);
    (void)arg;
    CHECK_EQ(cl_storage_read(io, 0, buf, UNIT), 0);
    cl_store_release(&managed_done, cl_load_relaxed(&managed_done) + 1);
}

/* Whose core was taken may run on until it looks, and look at its device once more. Who is seen to sleep after that
 * does not get up without a grant. */
static void managed_rests(struct fake *fake, unsigned k)
{
    cl_fence_seq_cst(); /* the owner's word before the look at the park word */
    UNTIL(fake_is_away(fake, k));
    await_sleep(fake->kthreads.tids[k]);
}

static void managed_round(struct fake *fake, unsigned to)
{
    struct cl_signals *signals = &fake_lines(fake, 0)->signals;
    uint32_t help, before = cl_load_relaxed(&managed_done);
    fake_give(fake, 0, 0);
    UNTIL(fake_runs(fake, 0) || fake_is_parked(fake, 0));
    managed_rests(fake, 1); /* the core was its own the time before, and so would be what is spawned */
    CHECK_EQ(cl_sched_spawn(sched, managed_read, NULL), 0);
    help = cl_load_relaxed(&fake_lines(fake, 0)->help);
    fake_give(fake, 0, 0); /* it may have parked before */
    /* It sleeps with its queue armed; the device, whose clock is the test's, says "look" at once, as if it were
     * done. */
    UNTIL(cl_load_acquire(&signals->storage_done) != cl_load_acquire(&signals->storage_seen));
    UNTIL(cl_load_relaxed(&fake_lines(fake, 0)->help) != help && fake_is_parked(fake, 0));
    fake_take(fake, 0, 0);
    managed_rests(fake, 0);
    CHECK_EQ(cl_load_relaxed(&managed_done), before);
    cl_store_release(&managed_now, cl_load_relaxed(&managed_now) + 1000);
    while (cl_load_acquire(&managed_done) == before) {
        fake_give(fake, to, 0);
        for (int i = 0; i < 100; i++)
            sched_yield();
    }
    /* The watcher may have counted once more since. Kthread 0 puts that right when it gets up. */
    fake_give(fake, 0, 0);
    UNTIL(cl_load_relaxed(&signals->storage_done) == cl_load_relaxed(&signals->storage_seen));
    UNTIL(fake_is_parked(fake, 0));
    fake_take(fake, 0, 0);
}

static void scenario_managed(void)
{
    static struct fake fake;
    char err[256] = "";
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    fake_new(&fake, false);
    struct cl_nic *nic = fake_attach(&fake, 2, 0);
    struct cl_blk_memory_config m = {.queues = 2, .bytes = 1 << 20};
    struct cl_blk_fault_config f = {
        .latency_min_ns = 1000, .latency_max_ns = 1000, .clock = cl_blk_fault_clock_word, .clock_arg = &managed_now};
    CHECK_EQ(cl_blk_memory_new(&m, &blk, err), 0);
    CHECK_EQ(cl_blk_fault_new(blk, &f, &blk, err), 0);
    c.n_kthreads = 2;
    c.cores = nic->cores;
    sched = sched_new(&c);
    CHECK_EQ(cl_storage_new(sched, blk, &io, err), 0);
    CHECK_EQ(cl_sched_start(sched, err), 0);
    UNTIL(fake_is_parked(&fake, 0) && fake_is_parked(&fake, 1));
    for (unsigned i = 0; i < 20; i++)
        managed_round(&fake, i % 2);
    struct cl_storage_stats s;
    CHECK_EQ(cl_storage_stats(io, 0, &s), 0);
    CHECK_EQ(s.requests, 20);
    CHECK_EQ(s.collected + s.helped, 20);
    CHECK(s.helped > 0);
    CHECK_EQ(cl_sched_stop(sched, 20000000000), 0);
    cl_storage_delete(io);
    cl_sched_delete(sched);
    cl_blk_close(blk);
    cl_nic_close(nic);
    fake_down(&fake);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(100);
    if (argc == 3 && !strcmp(argv[2], "stepped"))
        scenario_stepped();
    else if (argc == 3 && !strcmp(argv[2], "stop_in_flight"))
        scenario_stop_in_flight();
    else if (argc == 3 && !strcmp(argv[2], "managed"))
        scenario_managed();
    else if (argc == 3 && !strcmp(argv[2], "refusals"))
        scenario_refusals();
    else
        everything(argc, argv);
    return 0;
}
