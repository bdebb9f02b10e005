/* A uthread that waits for an append gives its core away, and gets it back when the record is durable: two applications
 * of an iokernel that has one core for them. One appends to a log whose device takes 20 ms a write, the other computes
 * whenever it is let. Usage: log_cores SOCKET SEED KTHREADS */
#include "support.h"

#include <corelane/libos/runtime.h>
#include "libos/sched/internal.h"
#include <corelane/libos/log_shared.h>
#include <corelane/libos/uthread.h>

#include <unistd.h>

#define HANDED_OVER 5 /* appends during which the other one ran */

static struct cl_log_shared shared;
static uint64_t computed; /* writer: the one that computes; relaxed */
static uint32_t appending = 1, computing = 1;
static uint64_t appends, handed_over;

static void append_on(void *arg)
{
    uint64_t data = 7;
    (void)arg;
    while (handed_over < HANDED_OVER) {
        uint64_t before = cl_load_relaxed(&computed);
        CHECK(cl_log_append_wait(&shared, &data, sizeof data, 0, NULL) == 0, "append");
        appends++;
        handed_over += cl_load_relaxed(&computed) != before;
    }
    cl_store_release(&appending, 0);
}

static void compute(void *arg)
{
    (void)arg;
    while (cl_load_acquire(&appending)) {
        cl_store_relaxed(&computed, computed + 1);
        cl_uthread_yield();
    }
    cl_store_release(&computing, 0);
}

static struct cl_runtime *runtime(const char *path, const char *name, unsigned kthreads, uint32_t kind)
{
    struct cl_runtime_config c = {.socket_path = path, .name = name, .kthreads = kthreads, .kind = kind};
    struct cl_runtime *rt;
    char err[256];
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    return rt;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    alarm(100);
    char err[256];
    unsigned kthreads = (unsigned)atoi(argv[3]);
    struct cl_blk_fault_config slow = {
        .seed = strtoull(argv[2], NULL, 10), .latency_min_ns = 20000000, .latency_max_ns = 20000000};
    struct cl_blk *memory = memory_disk(16 << 20), *disk;
    struct cl_log_layout layout = {.flush_bytes = 8192};
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    CHECK(cl_blk_fault_new(memory, &slow, &disk, err) == 0, "%s", err);
    struct cl_log_config config = {.blk = disk};
    CHECK(cl_log_open_wait(&config, &shared.log, NULL, err) == 0, "%s", err);
    struct cl_runtime *writer = runtime(argv[1], "writer", kthreads, CL_RUNTIME_LATENCY);
    struct cl_runtime *other = runtime(argv[1], "other", 1, CL_RUNTIME_BATCH);
    CHECK(cl_log_share(&shared, shared.log, cl_runtime_sched(writer), err) == 0, "%s", err);
    CHECK(cl_runtime_start(writer, err) == 0 && cl_runtime_start(other, err) == 0, "%s", err);
    CHECK(cl_runtime_spawn(writer, append_on, NULL) == 0 && cl_runtime_spawn(other, compute, NULL) == 0, "spawn");
    while (cl_load_acquire(&computing))
        usleep(1000);
    CHECK(cl_runtime_stop(writer, 20000000000) == 0 && cl_runtime_stop(other, 20000000000) == 0, "stop");
    uint64_t parks = 0;
    for (unsigned k = 0; k < kthreads; k++)
        parks += cl_load_relaxed(&cl_runtime_sched(writer)->kthreads[k].stats.parks);
    CHECK(parks >= HANDED_OVER, "%llu parks in %llu appends", (unsigned long long)parks, (unsigned long long)appends);
    cl_log_unshare(&shared);
    cl_runtime_delete(writer);
    cl_runtime_delete(other);
    CHECK(cl_log_durable_index(shared.log) == appends, "all are durable");
    CHECK(cl_log_close(shared.log, NULL) == 0, "close");
    cl_blk_close(disk);
    printf("%llu appends, the other ran in %llu\nok\n", (unsigned long long)appends, (unsigned long long)handed_over);
    return 0;
}
