/* Uthreads that wait for the log cost nothing: their kthread sleeps, or runs others; and closing under those who wait.
 * Usage: log_wait SCENARIO SEED KTHREADS. No watch: a lost completion is found by the scheduler's backstop at best, and
 * the alarm ends the program. */
#include "support.h"

#include "libos/sched/internal.h"
#include <corelane/libos/log_shared.h>
#include <corelane/libos/uthread.h>

#include <unistd.h>

#define WRITERS 32

static struct cl_log_shared shared;
static struct cl_sched *sched;
static struct cl_blk *disk;
static struct cl_log *opened;
static struct cl_log_config config;
static uint64_t now_ns;       /* of the device, where the test has the time */
static uint64_t sched_now_ns; /* of the scheduler; 0: it has the machine's clock */
static uint32_t waiting;      /* writers that have begun to append; RMW */
static uint32_t completed;    /* writers that were told; RMW */

static uint64_t turns(void)
{
    uint64_t n = 0;
    for (unsigned k = 0; k < sched->n_kthreads; k++)
        n += cl_load_relaxed(&sched->kthreads[k].turns);
    return n;
}

static uint64_t parks(void)
{
    uint64_t n = 0;
    for (unsigned k = 0; k < sched->n_kthreads; k++)
        n += cl_load_relaxed(&sched->kthreads[k].stats.parks);
    return n;
}

static void up(struct cl_blk_fault_config *faults, unsigned kthreads, uint32_t mode, bool share_late)
{
    struct cl_log_layout layout = {.flush_bytes = 8192};
    struct cl_sched_config sc;
    char err[256];
    struct cl_blk *memory = memory_disk(4 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    config = (struct cl_log_config){.buffers = 4};
    config.blk = memory;
    struct cl_blk_fault_config good = {.seed = rng(), .clock = faults->clock, .clock_arg = faults->clock_arg};
    CHECK(cl_blk_fault_new(memory, &good, &disk, err) == 0, "%s", err);
    config.blk = disk;
    CHECK(cl_log_open_wait(&config, &opened, NULL, err) == 0, "%s", err);
    CHECK(cl_blk_fault_set(disk, faults, err) == 0, "%s", err);
    cl_sched_config_init(&sc);
    sc.n_kthreads = kthreads;
    sc.poll = mode;
    sc.watch_ns = 0;
    static struct cl_clock clock;
    cl_clock_virtual(&clock, &sched_now_ns);
    sc.clock = sched_now_ns ? &clock : NULL;
    CHECK(cl_sched_new(&sc, &sched, err) == 0, "%s", err);
    if (!share_late)
        CHECK(cl_log_share(&shared, opened, sched, err) == 0, "%s", err);
    CHECK(cl_sched_start(sched, err) == 0, "%s", err);
    if (share_late)
        CHECK(cl_log_share(&shared, opened, sched, err) == 0, "%s", err);
}

/* Take all down, and look for n records. */
static void down(uint64_t n)
{
    char err[256];
    CHECK(cl_sched_stop(sched, 20000000000) == 0, "stop");
    cl_log_unshare(&shared);
    cl_sched_delete(sched);
    struct cl_blk_fault_config none = {0};
    CHECK(cl_blk_fault_set(disk, &none, err) == 0, "%s", err);
    now_ns += 1000000000; /* a superblock may be in flight */
    if (shared.log)
        CHECK(cl_log_close(shared.log, NULL) == 0, "close");
    cl_blk_fault_crash(disk);
    CHECK(cl_log_open_wait(&config, &opened, NULL, err) == 0, "%s", err);
    CHECK(cl_log_durable_index(opened) == n, "%llu records of %llu", (unsigned long long)cl_log_durable_index(opened),
          (unsigned long long)n);
    CHECK(cl_log_close(opened, NULL) == 0, "close");
    cl_blk_close(disk);
}

static void append_some(void *arg)
{
    uint64_t data = 7;
    for (unsigned i = 0; i < *(unsigned *)arg; i++)
        CHECK(cl_log_append_wait(&shared, &data, sizeof data, 0, NULL) == 0, "append");
}

/* A write takes 30 ms. A kthread that polled would turn thousands of times, one that sleeps does at each wake-up. */
static void scenario_sleeps(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {.latency_min_ns = 30000000, .latency_max_ns = 30000000};
    unsigned n = 5;
    up(&faults, kthreads, CL_SCHED_BLOCK, kthreads > 1);
    uint64_t turns_before = turns(), parks_before = parks();
    CHECK(cl_sched_run(sched, append_some, &n) == 0, "run");
    uint64_t turned = turns() - turns_before, parked = parks() - parks_before;
    CHECK(parked >= n, "%llu parks in %u appends", (unsigned long long)parked, n);
    CHECK(turned < 100ull * n * kthreads, "%llu turns in %u appends", (unsigned long long)turned, n);
    down(n);
}

static void append_one(void *arg)
{
    uint64_t data[300] = {(uintptr_t)arg}, index = 0;
    __atomic_fetch_add(&waiting, 1, __ATOMIC_RELEASE);
    CHECK(cl_log_append_wait(&shared, data, sizeof data, 0, &index) == 0 && index > 0, "append");
    __atomic_fetch_add(&completed, 1, __ATOMIC_RELEASE);
}

/* Time goes on only because others run while the writers wait. */
static void make_time(void *arg)
{
    uint32_t want = *(uint32_t *)arg;
    while (__atomic_load_n(&completed, __ATOMIC_ACQUIRE) < want) {
        for (unsigned i = 0; i < 20; i++)
            cl_uthread_yield();
        __atomic_fetch_add(&now_ns, 500, __ATOMIC_RELAXED);
    }
}

static void write_all(void)
{
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(cl_sched_spawn(sched, append_one, (void *)i) == 0, "spawn");
}

static void scenario_others_run(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {
        .latency_min_ns = 1000, .latency_max_ns = 20000, .clock = cl_blk_fault_clock_word, .clock_arg = &now_ns};
    uint32_t want = WRITERS;
    up(&faults, kthreads, CL_SCHED_ADAPTIVE, true);
    write_all();
    CHECK(cl_sched_run(sched, make_time, &want) == 0, "run");
    down(WRITERS);
}

/* Twice as many bytes under way as there are buffers, so some wait for room. */
static void many_of_them(void *arg)
{
    static const uint8_t data[3000];
    (void)arg;
    for (unsigned i = 0; i < 10; i++)
        CHECK(cl_log_append_wait(&shared, data, sizeof data, 0, NULL) == 0, "append");
    __atomic_fetch_add(&completed, 1, __ATOMIC_RELEASE);
}

static void wait_for_writers(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&completed, __ATOMIC_ACQUIRE) < WRITERS)
        cl_uthread_sleep_ns(100000);
}

static void scenario_room(unsigned kthreads)
{
    /* A write lasts so long that a slow machine fills all buffers meanwhile. */
    struct cl_blk_fault_config faults = {.latency_min_ns = 2000000, .latency_max_ns = 8000000};
    up(&faults, kthreads, CL_SCHED_BLOCK, false);
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK(cl_sched_spawn(sched, many_of_them, NULL) == 0, "spawn");
    CHECK(cl_sched_run(sched, wait_for_writers, NULL) == 0, "run");
    struct cl_log_stats stats;
    cl_spin_lock(&shared.lock);
    cl_log_stats(opened, &stats);
    cl_spin_unlock(&shared.lock);
    CHECK(stats.no_buffer > 0, "nobody waited for room");
    /* An append finds none once when it comes, and again if others came before it or if there was less than it seemed.
     * If all came back for each buffer, it would be twelve times each. */
    CHECK(stats.no_buffer < 4 * WRITERS * 10, "those who wait for room come back for nothing");
    printf("%llu times no room\n", (unsigned long long)stats.no_buffer);
    down(WRITERS * 10);
}

static bool all_have_appended(void)
{
    cl_spin_lock(&shared.lock);
    bool all = cl_log_next_index(opened) > WRITERS;
    cl_spin_unlock(&shared.lock);
    return all;
}

/* All are told, and who comes later is refused. */
static void close_under_them(void *arg)
{
    uint64_t data = 1;
    (void)arg;
    while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < WRITERS || !all_have_appended())
        cl_uthread_yield();
    CHECK(cl_log_close_wait(&shared) == 0, "close");
    CHECK(cl_log_append_wait(&shared, &data, sizeof data, 0, NULL) == -ESHUTDOWN, "an append after the close");
    CHECK(cl_log_trim_wait(&shared, 1) == -ESHUTDOWN, "a trim after the close");
    CHECK(cl_log_close_wait(&shared) == -ESHUTDOWN, "a second close");
}

static void scenario_close(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {.latency_min_ns = 1000000, .latency_max_ns = 4000000};
    up(&faults, kthreads, CL_SCHED_BLOCK, false);
    CHECK(cl_log_append_wait(&shared, &now_ns, 8, 0, NULL) == -EDEADLK, "not on a uthread");
    CHECK(cl_log_close_wait(&shared) == -EDEADLK, "not on a uthread");
    write_all();
    CHECK(cl_sched_run(sched, close_under_them, NULL) == 0, "run");
    CHECK(shared.log == NULL, "closed");
    down(WRITERS);
}

/* Nobody waits for the log any more, and still the device is told what was acknowledged, and then told the second
 * time. */
static void until_confirmed(void *arg)
{
    struct cl_log_stats stats;
    bool busy;
    append_some(arg);
    do {
        cl_uthread_sleep_ns(1000000);
        cl_spin_lock(&shared.lock);
        cl_log_stats(opened, &stats);
        busy = cl_log_busy(opened);
        cl_spin_unlock(&shared.lock);
    } while (stats.said_flush < stats.last_flush || busy);
    CHECK(stats.confirms > 0, "said by nobody");
}

static void scenario_confirmed(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {.latency_min_ns = 100000, .latency_max_ns = 400000};
    unsigned n = 3;
    up(&faults, kthreads, CL_SCHED_BLOCK, false);
    CHECK(cl_sched_run(sched, until_confirmed, &n) == 0, "run");
    down(n);
}

/* One append beside uthreads that only compute, each for longer than the loop lets them run while something flies. What
 * counts is how many of them run before the append is with the device, and, once the device is done with it, before its
 * uthread is made ready. */
#define COMPUTING 64

struct lone {
    struct cl_log_future f;
    uint64_t submitted_before;
    bool asks, over;
    unsigned before_sent, after_done; /* turns of others */
};

static struct lone lone;

static uint64_t submitted(void)
{
    struct cl_blk_stats stats;
    cl_blk_stats(disk, 0, &stats);
    return stats.submitted;
}

static void compute(void *arg)
{
    (void)arg;
    while (!lone.over) {
        if (lone.asks && submitted() == lone.submitted_before) {
            lone.before_sent++;
        } else if (lone.asks && lone.f.op.result == CL_LOG_PENDING) {
            if (now_ns)
                lone.after_done++;
            now_ns = 1000000; /* the device is done */
        }
        sched_now_ns += 2 * CL_COMPLETIONS_NS;
        cl_uthread_yield();
    }
}

static void append_beside_others(void *arg)
{
    uint64_t data = 7;
    cl_uthread_id ids[COMPUTING];
    (void)arg;
    for (unsigned i = 0; i < COMPUTING; i++)
        CHECK(cl_uthread_spawn(compute, NULL, &ids[i]) == 0, "spawn");
    cl_uthread_yield(); /* all of them run, and wait for their next turn */
    lone.submitted_before = submitted();
    lone.f = (struct cl_log_future){.op = {.data = &data, .bytes = sizeof data}};
    lone.asks = true;
    CHECK(cl_log_begin(&shared, &lone.f) == 0 && cl_log_future_wait(&lone.f) == 0, "append");
    lone.over = true;
    for (unsigned i = 0; i < COMPUTING; i++)
        cl_uthread_join(ids[i]);
}

static void scenario_lone(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {
        .latency_min_ns = 1000, .latency_max_ns = 1000, .clock = cl_blk_fault_clock_word, .clock_arg = &now_ns};
    CHECK(kthreads == 1, "others would run meanwhile");
    sched_now_ns = 1;
    up(&faults, kthreads, CL_SCHED_ADAPTIVE, false);
    CHECK(cl_sched_run(sched, append_beside_others, NULL) == 0, "run");
    CHECK(now_ns && lone.before_sent == 0, "%u turns of others before it was sent", lone.before_sent);
    CHECK(lone.after_done == 0, "%u turns of others before it was told", lone.after_done);
    down(1);
}

/* The device's time goes on when all writers wait: of each round at most as many flushes as may be in flight, and one
 * for the rest. */
#define ROUNDS 50

static void append_rounds(void *arg)
{
    unsigned n = ROUNDS;
    (void)arg;
    append_some(&n);
    completed++;
}

static struct cl_log_stats rounds_stats;

static void rounds(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK(cl_uthread_spawn(append_rounds, NULL, NULL) == 0, "spawn");
    while (completed < WRITERS) {
        if (shared.sleepers + completed == WRITERS)
            now_ns += 1000;
        cl_uthread_yield();
    }
    cl_log_stats(opened, &rounds_stats);
}

/* The scheduler's time stands still: under a sanitizer 20 us are few appends, and what is in flight would be looked at
 * between them. */
static void scenario_burst(unsigned kthreads)
{
    struct cl_blk_fault_config faults = {
        .latency_min_ns = 1000, .latency_max_ns = 1000, .clock = cl_blk_fault_clock_word, .clock_arg = &now_ns};
    CHECK(kthreads == 1, "others would append meanwhile");
    sched_now_ns = 1;
    up(&faults, kthreads, CL_SCHED_ADAPTIVE, false);
    CHECK(cl_sched_run(sched, rounds, NULL) == 0, "run");
    CHECK(rounds_stats.flushes <= ROUNDS * 5, "%llu flushes for %u appends", (unsigned long long)rounds_stats.flushes,
          WRITERS * ROUNDS);
    down(WRITERS * ROUNDS);
    printf("%llu flushes\n", (unsigned long long)rounds_stats.flushes);
}

static const struct {
    const char *name;
    void (*run)(unsigned kthreads);
} scenarios[] = {
    {"sleeps", scenario_sleeps}, {"others_run", scenario_others_run}, {"room", scenario_room},
    {"close", scenario_close},   {"confirmed", scenario_confirmed},   {"lone", scenario_lone},
    {"burst", scenario_burst},
};

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    alarm(100);
    rng_state = strtoull(argv[2], NULL, 10);
    unsigned kthreads = (unsigned)atoi(argv[3]);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run(kthreads);
            printf("ok\n");
            return 0;
        }
    return 2;
}
