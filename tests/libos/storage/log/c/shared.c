/* Many uthreads on several kthreads append to one log, trim it and let it wrap around; what each was told is durable is
 * there after a power cut, once and in its order. argv: seed, uthreads, appends of each, kthreads, mode: 0 well, 1 the
 * device fails on the way; of a device that writes in the call: 2 well, 3 it fails there, 4 what a call leaves goes on
 * by the device. */
#include "support.h"
#include "keeping.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/log_shared.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/uthread.h>

#define MAX_UTHREADS 256

struct writer {
    unsigned number;
    uint64_t last_index, acknowledged, failed;
};

static struct cl_log_shared shared;
static struct writer writers[MAX_UTHREADS];
static unsigned n_writers, appends;
static uint64_t highest; /* writers: all, under `lock` */
static struct cl_mutex lock;
static bool may_fail, calls;
static struct keeping keeping;

static int append(const void *data, uint32_t bytes, uint64_t tag, uint64_t *index)
{
    struct cl_log_future f = {.op = {.data = data, .bytes = bytes, .tag = tag}};
    uint64_t ns;
    if (!calls || (!may_fail && tag % 4 == 3))
        return cl_log_append_wait(&shared, data, bytes, tag, index);
    int rc = cl_log_begin(&shared, &f);
    *index = f.op.index;
    return rc ? rc : cl_log_future_call(&f, &ns);
}

static void writer(void *arg)
{
    struct writer *w = arg;
    uint64_t data[40];
    for (unsigned i = 0; i < appends; i++) {
        uint64_t index = 0;
        for (unsigned j = 0; j < 40; j++)
            data[j] = (uint64_t)w->number << 32 | i;
        int rc = append(data, 8 + (w->number * 37 + i * 11) % 300, (uint64_t)w->number << 32 | i, &index);
        if (rc == -ENOSPC) { /* somebody is trimming */
            i--;
            cl_uthread_yield();
            continue;
        }
        CHECK(rc == 0 || (may_fail && rc == -EIO), "%d", rc);
        if (rc) {
            w->failed++;
            continue;
        }
        CHECK(w->failed == 0, "acknowledged after a failure");
        CHECK(index > w->last_index, "indexes of one writer grow");
        w->last_index = index;
        w->acknowledged++;
        cl_mutex_lock(&lock);
        highest = cl_max(highest, index);
        cl_mutex_unlock(&lock);
        if (index % 64 == 0) {
            rc = cl_log_trim_wait(&shared, index > 200 ? index - 200 : 0);
            CHECK(rc == 0 || (may_fail && rc == -EIO), "%d", rc);
        }
    }
}

static void all(void *arg)
{
    cl_uthread_id ids[MAX_UTHREADS];
    (void)arg;
    for (unsigned i = 0; i < n_writers; i++) {
        writers[i].number = i;
        CHECK(cl_uthread_spawn(writer, &writers[i], &ids[i]) == 0, "spawn");
    }
    for (unsigned i = 0; i < n_writers; i++)
        cl_uthread_join(ids[i]);
}

static void after_the_cut(struct cl_log *log)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    uint64_t seen[MAX_UTHREADS] = {0};
    CHECK(cl_log_durable_index(log) >= highest, "index %llu was acknowledged, %llu is the last",
          (unsigned long long)highest, (unsigned long long)cl_log_durable_index(log));
    CHECK(cl_log_cursor_open(log, cl_log_first_index(log), &c) == 0, "cursor");
    int rc;
    while ((rc = next_record(log, c, &r)) == 1) {
        uint64_t number = r.tag >> 32, i = r.tag & UINT32_MAX, word;
        CHECK(number < n_writers && i + 1 > seen[number], "records of writer %llu out of order",
              (unsigned long long)number);
        seen[number] = i + 1;
        for (uint32_t at = 0; at + 8 <= r.bytes; at += 8) {
            memcpy(&word, (const uint8_t *)r.data + at, 8);
            CHECK(word == r.tag, "content");
        }
    }
    CHECK(rc == 0, "%d: %s", rc, cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
}

int main(int argc, char **argv)
{
    CHECK(argc == 6, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    n_writers = (unsigned)atoi(argv[2]);
    appends = (unsigned)atoi(argv[3]);
    int mode = atoi(argv[5]);
    may_fail = mode == 1 || mode == 3;
    calls = mode >= 2;
    struct cl_blk *memory = memory_disk(1 << 20), *disk;
    struct cl_blk_fault_config faults = {.seed = rng(),
                                         .survive = 0.5,
                                         .torn = 0.5,
                                         .latency_min_ns = 1000,
                                         .latency_max_ns = 30000,
                                         .fail_after = mode == 1 ? 20 : 0};
    struct cl_log_layout layout = {.flush_bytes = 65536};
    char err[256];
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    CHECK(cl_blk_fault_new(memory, &faults, &disk, err) == 0, "%s", err);
    struct cl_log_config config = {.blk = calls ? keeping_over(&keeping, disk) : disk, .buffers = 8};
    keeping.fails_from = mode == 3 ? 20 : 0;
    keeping.goes_on = mode == 4;
    CHECK(cl_log_open_wait(&config, &shared.log, NULL, err) == 0, "%s", err);
    struct cl_sched_config sc;
    struct cl_sched *sched;
    cl_sched_config_init(&sc);
    sc.n_kthreads = (uint32_t)atoi(argv[4]);
    CHECK(cl_sched_new(&sc, &sched, err) == 0 && cl_sched_start(sched, err) == 0, "%s", err);
    CHECK(cl_log_share(&shared, shared.log, sched, err) == 0, "%s", err);
    CHECK(cl_sched_run(sched, all, NULL) == 0, "run");
    cl_sched_delete(sched);
    struct cl_log_stats stats;
    cl_log_stats(shared.log, &stats);
    uint64_t acknowledged = 0;
    for (unsigned i = 0; i < n_writers; i++)
        acknowledged += writers[i].acknowledged;
    CHECK(may_fail ? acknowledged < (uint64_t)n_writers * appends : acknowledged == (uint64_t)n_writers * appends,
          "acknowledged");
    CHECK((keeping.calls > 0) == (calls && sc.n_kthreads == 1), "%u writes in the call", keeping.calls);
    CHECK(!may_fail || cl_log_state(shared.log) == CL_LOG_FAILED, "a device failed and the log did not");
    cl_blk_fault_crash(disk);
    cl_log_discard(shared.log);
    faults.fail_after = 0;
    CHECK(cl_blk_fault_set(disk, &faults, err) == 0, "%s", err);
    CHECK(cl_log_open_wait(&config, &shared.log, NULL, err) == 0, "%s", err);
    after_the_cut(shared.log);
    CHECK(cl_log_close(shared.log, NULL) == 0, "close");
    cl_blk_close(disk);
    printf("%llu appends in %llu flushes\nok\n", (unsigned long long)stats.appends, (unsigned long long)stats.flushes);
    return 0;
}
