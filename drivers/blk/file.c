/* See blk_file.h: opening, and finding out what the file, its file system and its disk can do. */
#include "below.h"
#include "engine.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void cl_blk_file_info(struct cl_blk *blk, struct cl_blk_file_info *out)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    *out = f->info;
    out->dsync = !cl_load_relaxed(&f->no_dsync); /* may change while the device is used */
}

/* What a disk writes whole. 512 if it is not known. */
static uint32_t sector_bytes(const struct cl_blk_file *f, const struct stat *st)
{
    char line[CL_BLK_LINE];
    int bytes = 0;
    if ((!f->info.raw || ioctl(f->fd, BLKSSZGET, &bytes) < 0) &&
        cl_blk_disk_says(f->info.raw ? st->st_rdev : st->st_dev, "queue/logical_block_size", line))
        bytes = atoi(line);
    return bytes >= 512 && bytes <= 65536 && (bytes & (bytes - 1)) == 0 ? (uint32_t)bytes : 512;
}

/* What direct I/O needs of offsets and buffers; 0: not known (Linux before 6.1). */
static uint32_t direct_needs(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && x.stx_mask & STATX_DIOALIGN)
        return cl_max(x.stx_dio_offset_align, x.stx_dio_mem_align);
#else
    (void)fd;
#endif
    return 0;
}

#define GOING_AWAY_NS 1000000000ull /* how long the last user's ring may take to be freed */
#define LOOK_AGAIN_NS 5000000ull

/* True after a pause if what was refused because of another user is to be tried again. A process that was killed is
 * gone before its ring is: the kernel frees that, and the files registered in it with their locks, in a worker. Whoever
 * starts it anew at once must not be told that it still runs. */
static bool look_again(uint64_t *waited_ns)
{
    if (*waited_ns >= GOING_AWAY_NS)
        return false;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    *waited_ns += LOOK_AGAIN_NS;
    return true;
}

static int open_path(const struct cl_blk_file_config *c, bool raw, char *err)
{
    uint64_t waited_ns = 0;
    int fd;
    do
        fd = open(c->path, (c->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | (raw && !c->shared ? O_EXCL : 0));
    while (fd < 0 && errno == EBUSY && raw && look_again(&waited_ns));
    if (fd >= 0)
        return fd;
    if (errno == EBUSY && raw)
        return cl_blk_file_refuse(err, -EBUSY, "it is in use: it, or a partition of it, is mounted or claimed");
    return cl_blk_file_refuse(err, -errno, "%s", strerror(errno));
}

static bool lock_alone(int fd)
{
    uint64_t waited_ns = 0;
    int rc;
    do
        rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc < 0 && look_again(&waited_ns));
    return !rc;
}

static int take_file(struct cl_blk_file *f, const struct cl_blk_file_config *c, struct stat *st, char *err)
{
    if ((c->path ? stat(c->path, st) : fstat(c->fd, st)) < 0)
        return cl_blk_file_refuse(err, -errno, "%s", strerror(errno));
    f->info.raw = S_ISBLK(st->st_mode);
    if (!S_ISREG(st->st_mode) && !f->info.raw)
        return cl_blk_file_refuse(err, -EINVAL, "it is neither a file nor a block device");
    f->fd = c->path ? open_path(c, f->info.raw, err) : fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    if (f->fd < 0)
        return c->path ? f->fd : cl_blk_file_refuse(err, -errno, "%s", strerror(errno));
    int rc = 0;
    if (!c->shared && !lock_alone(f->fd))
        rc = cl_blk_file_refuse(err, -EBUSY, "it is open in another place; a block device has one user");
    else if (fstat(f->fd, st) < 0) /* again: it may be another by now */
        rc = cl_blk_file_refuse(err, -errno, "%s", strerror(errno));
    else if (c->path && !st->st_nlink)
        rc = cl_blk_file_refuse(err, -ENOENT, "it was deleted: what is written would go with it");
    if (rc)
        close(f->fd);
    return rc;
}

static int measure(struct cl_blk_file *f, const struct cl_blk_file_config *c, const struct stat *st, char *err)
{
    uint64_t bytes = (uint64_t)st->st_size;
    if (f->info.raw && ioctl(f->fd, BLKGETSIZE64, &bytes) < 0)
        return cl_blk_file_refuse(err, -errno, "cannot find out the device's size: %s", strerror(errno));
    if (c->part_bytes) {
        if ((c->part_offset | c->part_bytes) & (f->blk.block_bytes - 1) || c->part_bytes > bytes ||
            c->part_offset > bytes - c->part_bytes)
            return cl_blk_file_refuse(err, -EINVAL,
                                      "it has no such part, or the part does not begin and end at a block");
        f->start = c->part_offset;
        bytes = c->part_bytes;
    }
    f->blk.bytes = bytes & ~(uint64_t)(f->blk.block_bytes - 1);
    f->blk.atomic_bytes = cl_min(sector_bytes(f, st), f->blk.block_bytes);
    if (!f->blk.bytes)
        return cl_blk_file_refuse(err, -EINVAL, "it holds no block of %u bytes; make it larger first",
                                  f->blk.block_bytes);
    if (!f->info.raw) {
        off_t hole = lseek(f->fd, (off_t)f->start, SEEK_HOLE);
        f->info.holes = hole >= 0 && (uint64_t)hole < f->start + bytes;
    }
    return 0;
}

/* Why direct I/O is not used although the kernel takes it. */
static const char *const caches[] = {
    [CL_BLK_BELOW_CACHED] =
        "a loop device has no direct I/O (losetup --direct-io=on): writes go through the page cache",
    [CL_BLK_BELOW_UNKNOWN] =
        "it is not known whether it lies on a loop device without direct I/O: writes may go through the page cache",
};

int cl_blk_file_below(const char *path, char *why)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    int below = fd < 0 || fstat(fd, &st) < 0 ? -errno : cl_blk_below_fd(fd, &st);
    if (fd >= 0)
        close(fd);
    if (below < 0)
        return cl_blk_file_refuse(why, below, "cannot look at %s: %s", path, strerror(-below));
    return cl_blk_file_refuse(why, below, "%s", caches[below] ? caches[below] : "");
}

/* O_DIRECT, tried by a read: some file systems accept the flag and refuse the call. */
static int try_direct(struct cl_blk_file *f, const struct cl_blk_file_config *c, char *err)
{
    int flags = fcntl(f->fd, F_GETFL);
    if (c->direct == CL_BLK_DIRECT_NEVER)
        return fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) < 0 ? -errno : 0;
    const char *cached = caches[f->info.below];
    uint32_t needs = direct_needs(f->fd);
    int rc = needs > f->blk.block_bytes ? -EINVAL : cached ? -EOPNOTSUPP : 0;
    if (!rc && fcntl(f->fd, F_SETFL, flags | O_DIRECT) < 0)
        rc = -errno;
    void *buf = rc ? NULL : aligned_alloc(f->blk.block_bytes, f->blk.block_bytes);
    if (!rc)
        rc = !buf ? -ENOMEM : pread(f->fd, buf, f->blk.block_bytes, 0) < 0 ? -errno : 0;
    free(buf);
    if (!rc) {
        f->info.direct = 1;
        return 0;
    }
    if (rc != -EINVAL && rc != -EOPNOTSUPP)
        return cl_blk_file_refuse(err, rc, "cannot read it: %s", strerror(-rc));
    if (needs > f->blk.block_bytes)
        return cl_blk_file_refuse(err, rc, "direct I/O needs blocks of %u bytes here; set block_bytes", needs);
    if (c->direct == CL_BLK_DIRECT_ONLY)
        return cl_blk_file_refuse(err, rc, "%s", cached ? cached : "the file system refuses direct I/O (O_DIRECT)");
    fcntl(f->fd, F_SETFL, flags & ~O_DIRECT);
    cl_blk_file_remark(f, cached ? cached : "direct I/O is refused: writes go through the page cache");
    return 0;
}

static int start(struct cl_blk_file *f, const struct cl_blk_file_config *c, char *err)
{
    char why[256] = "";
    int rc = -ENOSYS;
    if (!f->info.direct && c->engine != CL_BLK_ENGINE_THREADS)
        rc =
            cl_blk_file_refuse(why, -EOPNOTSUPP, "durable writes through the page cache take turns, by worker threads");
    else if (c->engine != CL_BLK_ENGINE_THREADS)
        rc = cl_blk_uring_start(f, c, why);
    if (rc == 0)
        return 0;
    if (c->engine == CL_BLK_ENGINE_URING)
        return cl_blk_file_refuse(err, rc, "%s", why);
    if (c->engine == CL_BLK_ENGINE_AUTO)
        cl_blk_file_remark(f, why);
    return cl_blk_threads_start(f, c, err);
}

/* Defaults filled in, limits checked. */
static int settle(struct cl_blk_file_config *c, char *err)
{
    c->queues = c->queues ? c->queues : 1;
    c->depth = c->depth ? c->depth : 128;
    c->block_bytes = c->block_bytes ? c->block_bytes : 4096;
    if (c->queues > CL_BLK_MAX_QUEUES)
        return cl_blk_file_refuse(err, -EINVAL, "a block device has at most 64 queues");
    if (c->depth > 4096)
        return cl_blk_file_refuse(err, -EINVAL, "depth must be from 1 to 4096");
    if (c->block_bytes < 512 || c->block_bytes > 65536 || (c->block_bytes & (c->block_bytes - 1)))
        return cl_blk_file_refuse(err, -EINVAL, "block_bytes must be a power of two from 512 to 65536");
    if (c->engine > CL_BLK_ENGINE_THREADS || c->direct > CL_BLK_DIRECT_NEVER || c->threads > 64)
        return cl_blk_file_refuse(err, -EINVAL, "no such engine or direct, or more than 64 threads a queue");
    return 0;
}

int cl_blk_file_open(const struct cl_blk_file_config *config, struct cl_blk **out, char *err)
{
    struct cl_blk_file_config c = *config;
    struct stat st;
    int rc = settle(&c, err);
    if (rc)
        return rc;
    struct cl_blk_file *f = calloc(1, sizeof(*f));
    if (!f)
        return cl_blk_file_refuse(err, -ENOMEM, "out of memory");
    f->blk = (struct cl_blk){.n_queues = c.queues, .depth = c.depth, .block_bytes = c.block_bytes};
    f->no_dsync = c.no_dsync != 0;
    rc = take_file(f, &c, &st, err);
    if (rc) {
        free(f);
        return rc;
    }
    f->info.below = (uint32_t)cl_blk_below_fd(f->fd, &st);
    rc = measure(f, &c, &st, err);
    rc = rc ? rc : try_direct(f, &c, err);
    rc = rc ? rc : start(f, &c, err);
    if (rc) {
        cl_blk_file_delete(f);
        return rc;
    }
    if (!c.path)
        close(c.fd);
    *out = &f->blk;
    return 0;
}
