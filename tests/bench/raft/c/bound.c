/* Raw writers into memory: who writes what, sent to all and to a majority first, looking and calling, and that a
 * failure ends all. */
#include "bench/raft/bound.h"
#include "drivers/blk/fault.h"
#include "drivers/blk/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PUTS 200
#define BYTES (1u << 20)
#define HOUR_NS 3600000000000ull

static struct cl_blk *blks[3];
static int fds[3];
static uint64_t put_ns[PUTS];
static int cpus[2];

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int run(uint32_t trail_puts, const int *files)
{
    char err[256] = "";
    struct cl_bench_raft_bound how = {
        .client_cpu = cpus[0], .writers_cpu = cpus[1], .trail_puts = trail_puts, .trail_ns = HOUR_NS, .fds = files};
    int rc = cl_bench_raft_bound(blks, &how, PUTS, put_ns, err);
    CHECK(!rc == !err[0]);
    for (unsigned i = 0; !rc && i < PUTS; i++)
        CHECK(put_ns[i] > 0);
    return rc;
}

static struct cl_blk_stats stats(unsigned i)
{
    struct cl_blk_stats s;
    cl_blk_stats(blks[i], 0, &s);
    return s;
}

static void open_all(void)
{
    const struct cl_blk_memory_config config = {.bytes = BYTES};
    for (unsigned i = 0; i < 3; i++)
        CHECK(!cl_blk_memory_new(&config, &blks[i], NULL));
}

static void close_all(void)
{
    for (unsigned i = 0; i < 3; i++)
        CHECK(!cl_blk_close(blks[i]));
}

static void looking(void)
{
    open_all();
    CHECK(!run(0, NULL));
    for (unsigned i = 0; i < 3; i++)
        CHECK(stats(i).writes == PUTS && stats(i).write_bytes == PUTS * 4096);
    close_all();

    open_all();
    CHECK(!run(40, NULL)); /* the third has all in five writes at most, of whole blocks, or fewer where it was late */
    for (unsigned i = 0; i < 2; i++)
        CHECK(stats(i).writes == PUTS);
    CHECK(stats(2).writes >= 1 && stats(2).writes <= 5);
    CHECK(stats(2).write_bytes >= PUTS * 100 && stats(2).write_bytes % 4096 == 0);
    close_all();
}

static void calling(void)
{
    open_all(); /* for their size */
    for (unsigned i = 0; i < 3; i++) {
        fds[i] = memfd_create("bound", MFD_CLOEXEC);
        CHECK(fds[i] >= 0);
    }
    CHECK(!run(40, fds));
    for (unsigned i = 0; i < 3; i++)
        CHECK(lseek(fds[i], 0, SEEK_END) >= (i < 2 ? PUTS * 4096 : PUTS * 100)); /* none went round */
    CHECK(!run(0, fds));
    for (unsigned i = 0; i < 3; i++) {
        CHECK(lseek(fds[i], 0, SEEK_END) >= PUTS * 4096);
        CHECK(stats(i).writes == 0);
    }
    for (unsigned bad = 0; bad < 3; bad++) {
        int good = fds[bad];
        fds[bad] = -1;
        CHECK(run(40, fds) == -EBADF && run(0, fds) == -EBADF);
        fds[bad] = good;
    }
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
    close_all();
}

static void failing(void)
{
    const struct cl_blk_fault_config faults = {.seed = 1, .write_error = 1};
    for (unsigned bad = 0; bad < 3; bad++) {
        open_all();
        struct cl_blk *raw = blks[bad];
        CHECK(!cl_blk_fault_new(raw, &faults, &blks[bad], NULL));
        CHECK(run(0, NULL) == -EIO && run(40, NULL) == -EIO);
        close_all();
    }
    open_all();
    CHECK(run(1u << 20, NULL) == -EINVAL); /* does not go into one write */
    close_all();
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    cpus[0] = atoi(argv[1]);
    cpus[1] = atoi(argv[2]);
    looking();
    calling();
    failing();
    puts("ok");
    return 0;
}
