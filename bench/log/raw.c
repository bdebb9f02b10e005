/* The raw loops: one durable write of a block after another, with nothing around it. See loops.h. */
#include "loops.h"
#include "../harness/pinned.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 4096

struct uring {
    int fd;
    uint8_t *rings;
    size_t ring_bytes;
    struct io_uring_sqe *sqes;
    size_t sqe_bytes;
    struct io_uring_params p;
    bool fixed; /* the block is registered */
};

struct raw {
    uint32_t what;
    int fd;
    uint64_t file_bytes, from, for_ns;
    void *block;
    struct cl_bench_log_result *out;
    struct uring ring;
    int rc;
};

/* The flags of the log's own ring (drivers/blk/uring_setup.c), and none where the kernel is older than them. */
static int ring_setup(struct uring *u)
{
    u->p.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
    u->fd = (int)syscall(__NR_io_uring_setup, 4, &u->p);
    if (u->fd >= 0 || errno != EINVAL)
        return u->fd < 0 ? -errno : 0;
    u->p = (struct io_uring_params){0};
    u->fd = (int)syscall(__NR_io_uring_setup, 4, &u->p);
    return u->fd < 0 ? -errno : 0;
}

/* The file and the block are registered, as the log's are. Where there may be no such memory both go without. */
static int ring_register(struct raw *b)
{
    struct uring *u = &b->ring;
    struct iovec iov = {b->block, BLOCK};
    u->fixed = syscall(__NR_io_uring_register, u->fd, IORING_REGISTER_BUFFERS, &iov, 1) == 0;
    return syscall(__NR_io_uring_register, u->fd, IORING_REGISTER_FILES, &b->fd, 1) < 0 ? -errno : 0;
}

static int ring_map(struct uring *u)
{
    if (!(u->p.features & IORING_FEAT_SINGLE_MMAP))
        return -ENOTSUP;
    size_t sq = u->p.sq_off.array + u->p.sq_entries * sizeof(uint32_t);
    size_t cq = u->p.cq_off.cqes + u->p.cq_entries * sizeof(struct io_uring_cqe);
    u->ring_bytes = sq > cq ? sq : cq;
    u->sqe_bytes = u->p.sq_entries * sizeof *u->sqes;
    u->rings = mmap(NULL, u->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQ_RING);
    u->sqes = mmap(NULL, u->sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQES);
    return u->rings == MAP_FAILED || (void *)u->sqes == MAP_FAILED ? -errno : 0;
}

static int ring_open(struct raw *b)
{
    int rc = ring_setup(&b->ring);
    rc = rc ? rc : ring_map(&b->ring);
    return rc ? rc : ring_register(b);
}

static void ring_close(struct uring *u)
{
    if (u->rings && u->rings != MAP_FAILED)
        munmap(u->rings, u->ring_bytes);
    if (u->sqes && (void *)u->sqes != MAP_FAILED)
        munmap(u->sqes, u->sqe_bytes);
    if (u->fd >= 0)
        close(u->fd);
}

static int ring_write(struct raw *b, uint64_t offset)
{
    struct uring *u = &b->ring;
    uint32_t *tail = (uint32_t *)(u->rings + u->p.sq_off.tail), *array = (uint32_t *)(u->rings + u->p.sq_off.array);
    uint32_t *head = (uint32_t *)(u->rings + u->p.cq_off.head), *done = (uint32_t *)(u->rings + u->p.cq_off.tail);
    const uint32_t *flags = (const uint32_t *)(u->rings + u->p.sq_off.flags);
    bool look = b->what == CL_BENCH_LOG_URING_POLL;
    uint32_t slot = *tail & (u->p.sq_entries - 1);
    u->sqes[slot] = (struct io_uring_sqe){.opcode = u->fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE,
                                          .flags = IOSQE_FIXED_FILE, /* file 0; and buffer 0 */
                                          .off = offset,
                                          .addr = (uintptr_t)b->block,
                                          .len = BLOCK,
                                          .rw_flags = RWF_DSYNC};
    array[slot] = slot;
    cl_store_release(tail, *tail + 1); /* release: the kernel sees the entry whole */
    if (syscall(__NR_io_uring_enter, u->fd, 1, look ? 0 : 1, look ? 0 : IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -errno;
    while (cl_load_acquire(done) == *head) { /* acquire: the entry is read after the tail that covers it */
        if (!(cl_load_relaxed(flags) & IORING_SQ_TASKRUN))
            sched_yield();
        else if (syscall(__NR_io_uring_enter, u->fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
            return -errno;
    }
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(u->rings + u->p.cq_off.cqes) + (*head & (u->p.cq_entries - 1));
    int res = cqe->res;
    cl_store_release(head, *head + 1); /* release: read before the kernel may write it again */
    return res == BLOCK ? 0 : res < 0 ? res : -EIO;
}

static int write_one(struct raw *b, uint64_t offset)
{
    if (b->what == CL_BENCH_LOG_URING || b->what == CL_BENCH_LOG_URING_POLL)
        return ring_write(b, offset);
    if (pwrite(b->fd, b->block, BLOCK, (off_t)offset) != BLOCK)
        return -errno;
    if (b->what == CL_BENCH_LOG_FDATASYNC && fdatasync(b->fd))
        return -errno;
    return 0;
}

static void *loop(void *arg)
{
    struct raw *b = arg;
    struct cl_bench_log_result *out = b->out;
    uint64_t begin = cl_bench_wall_ns(), start = begin, end, at = b->from;
    for (; start < begin + b->for_ns && b->rc == 0; start = end) {
        b->rc = write_one(b, at);
        end = cl_bench_wall_ns();
        if (out->kept < out->room)
            out->each_ns[out->kept++] = (uint32_t)cl_min(end - start, (uint64_t)UINT32_MAX);
        out->operations++;
        at = at + BLOCK < b->file_bytes ? at + BLOCK : 0;
    }
    out->at = at;
    out->ns = cl_bench_wall_ns() - begin;
    return NULL;
}

int cl_bench_log_raw(uint32_t what, const char *path, int cpu, uint64_t for_ns, struct cl_bench_log_result *out,
                     char err[256])
{
    static const int flags[] = {O_DIRECT | O_DSYNC, O_DIRECT, O_DIRECT, 0};
    struct raw b = {.what = what, .for_ns = for_ns, .out = out, .fd = -1, .ring = {.fd = -1}};
    struct stat st;
    pthread_t thread;
    out->operations = out->kept = 0;
    if (what > CL_BENCH_LOG_FDATASYNC || posix_memalign(&b.block, BLOCK, BLOCK))
        return -EINVAL;
    memset(b.block, 0x5a, BLOCK);
    b.fd = open(path, O_RDWR | O_CLOEXEC | flags[what]);
    int rc = b.fd < 0 || fstat(b.fd, &st) ? -errno : 0;
    if (rc == 0) {
        b.file_bytes = (uint64_t)st.st_size;
        b.from = out->at + BLOCK <= b.file_bytes ? out->at : 0;
        rc = what == CL_BENCH_LOG_URING || what == CL_BENCH_LOG_URING_POLL ? ring_open(&b) : 0;
    }
    if (rc)
        snprintf(err, 256, "%s: %s", path, strerror(-rc));
    if (rc == 0)
        rc = cl_bench_start_pinned(&thread, cpu, loop, &b, err);
    if (rc == 0) {
        pthread_join(thread, NULL);
        rc = b.rc;
        if (rc)
            snprintf(err, 256, "a write to %s failed: %s", path, strerror(-rc));
    }
    ring_close(&b.ring);
    if (b.fd >= 0)
        close(b.fd);
    free(b.block);
    return rc;
}
