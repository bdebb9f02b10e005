/* An application of an iokernel that opens its storage area over the control socket and has uthreads write to it, in
 * every place once and durably, and read it back, while the iokernel decides who runs.
 * Usage: area SOCKET NAME KTHREADS WRITES */
#include "../../sched/c/check.h"

#include <corelane/drivers/blk_file.h>
#include <corelane/libos/runtime.h>
#include "libos/storage/io.h"
#include "runtime/control.h"

#define UNIT 4096
#define UTHREADS 16

static struct cl_storage *io;
static uint64_t blocks;
static unsigned writes;
static uint32_t left = UTHREADS; /* RMW, relaxed; release by those that end */

static void writer(void *arg)
{
    uint64_t me = (uintptr_t)arg;
    uint64_t *buf = aligned_alloc(UNIT, UNIT);
    for (uint64_t i = 0; i < writes; i++) {
        uint64_t block = (me + i * UTHREADS) % blocks;
        for (unsigned j = 0; j < UNIT / 8; j++)
            buf[j] = block ^ 0x5ca1ab1e;
        CHECK_EQ(cl_storage_write(io, block * UNIT, buf, UNIT, CL_BLK_DURABLE), 0);
        memset(buf, 0, UNIT);
        CHECK_EQ(cl_storage_read(io, block * UNIT, buf, UNIT), 0);
        for (unsigned j = 0; j < UNIT / 8; j++)
            CHECK(buf[j] == (block ^ 0x5ca1ab1e));
        if (i % 8 == 0)
            cl_uthread_sleep_ns(1000000); /* the core goes back meanwhile */
    }
    free(buf);
    __atomic_fetch_sub(&left, 1, __ATOMIC_RELEASE);
}

static struct cl_blk *open_area(const char *path, const char *name, unsigned queues, int *claim)
{
    char err[256] = "", *json;
    struct cl_control_area ask = {.op = CL_CONTROL_AREA_OPEN};
    struct cl_blk_file_config c = {.queues = queues};
    struct cl_blk *blk;
    snprintf(ask.name, sizeof ask.name, "%s", name);
    *claim = cl_control_connect(path, 2000, err);
    CHECK(*claim >= 0);
    int rc = cl_control_area(*claim, &ask, &json, &c.fd, 10000, err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err);
    CHECK(rc > 0);
    CHECK(strstr(json, "\"limited\": true"));
    cl_control_free(json);
    CHECK_EQ(cl_blk_file_open(&c, &blk, err), 0);
    return blk;
}

int main(int argc, char **argv)
{
    char err[256] = "";
    int claim;
    CHECK_EQ(argc, 5);
    alarm(100);
    unsigned kthreads = (unsigned)atoi(argv[3]);
    writes = (unsigned)atoi(argv[4]);
    struct cl_runtime_config c = {.socket_path = argv[1], .name = "area", .kthreads = kthreads};
    struct cl_runtime *rt;
    struct cl_blk *blk = open_area(argv[1], argv[2], kthreads, &claim);
    blocks = blk->bytes / UNIT;
    CHECK_EQ(cl_runtime_new(&c, &rt, err), 0);
    CHECK_EQ(cl_storage_new(cl_runtime_sched(rt), blk, &io, err), 0);
    CHECK_EQ(cl_runtime_start(rt, err), 0);
    for (uintptr_t i = 0; i < UTHREADS; i++)
        CHECK_EQ(cl_runtime_spawn(rt, writer, (void *)i), 0);
    while (__atomic_load_n(&left, __ATOMIC_ACQUIRE))
        usleep(1000);
    CHECK_EQ(cl_runtime_stop(rt, 20000000000), 0);
    uint64_t requests = 0;
    for (unsigned k = 0; k < kthreads; k++) {
        struct cl_storage_stats s;
        CHECK_EQ(cl_storage_stats(io, k, &s), 0);
        requests += s.collected + s.helped;
    }
    CHECK_EQ(requests, 2ull * UTHREADS * writes);
    cl_storage_delete(io);
    cl_runtime_delete(rt);
    cl_blk_close(blk);
    cl_control_close(claim);
    printf("done %llu\n", (unsigned long long)requests);
    return 0;
}
