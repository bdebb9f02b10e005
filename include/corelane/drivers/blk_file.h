/* A file or a raw block device as a block device of ours: io_uring with direct I/O, or, where that is refused, less.
 *
 *   engine    uring: one ring a queue, the file and the memory given to register_memory registered with it. Submit
 *             fills the ring and enters the kernel once, or not at all with a polling kernel thread (sqpoll).
 *             Completions are read from the ring without a system call, unless the kernel says that it holds some back
 *             for the next entry.
 *             threads: a few worker threads a queue that call pwritev2 and preadv2, where io_uring is refused (an old
 *             kernel, a container's filter, kernel.io_uring_disabled), and through the page cache.
 *   direct    O_DIRECT, so that a write goes to the disk and to nothing else. Where the file system refuses it, through
 *             the page cache; then reads may come from memory, and writes that are not durable stay there. Requests
 *             that are to be durable take turns there, since the kernel tells of a write that failed once, and not to
 *             whom it belongs. So where a loop device without direct I/O is below, which takes O_DIRECT all the same.
 *   durable   a write with RWF_DSYNC, or, where that is refused, a write linked to an fdatasync.
 *   failed    a flush or durable write that fails ends all that is to be durable, on all queues: further durable writes
 *             and flushes have the same answer until the file is opened anew. Reads, and writes that are not durable,
 *             go on.
 *
 * What came of it, and why, is in cl_blk_file_info.
 *
 * Files. A durable write costs least where it changes nothing but the blocks: cl_blk_file_create makes a file of its
 * full size, filled with zeros that are on the disk. (Into blocks that are only reserved each first write is also one
 * of the file system's metadata.) A file that is open here is locked with flock: a second one who opens it is refused.
 *
 * Raw devices are opened with O_EXCL: one that is mounted, or has a mounted partition, or is part of something else is
 * refused.
 *
 * Who polls in a loop must let the CPU go between polls (sched_yield is enough): the second half of a durable write
 * runs in a kernel worker on the CPU that took the disk's interrupt, and waits there for the next tick if a thread
 * spins.
 *
 * Does not deal with: files that shrink while open (what was there is then an error), disks that answer flushes before
 * they have stored anything, NVMe passthrough, polled I/O (IOPOLL). Tests: tests/drivers/blk/test_file.py, c/stress.c,
 * the engines on a kernel that is not one (c/uring_fake.c, c/threads_fake.c), and the common suite. */
#ifndef CORELANE_DRIVERS_BLK_FILE_H
#define CORELANE_DRIVERS_BLK_FILE_H

#include <corelane/drivers/blk.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_BLK_ENGINE_AUTO 0
#define CL_BLK_ENGINE_URING 1 /* or fail */
#define CL_BLK_ENGINE_THREADS 2

#define CL_BLK_DIRECT_AUTO 0
#define CL_BLK_DIRECT_ONLY 1 /* or fail */
#define CL_BLK_DIRECT_NEVER 2

/* Zero means the default, given in brackets. */
struct cl_blk_file_config {
    const char *path;     /* NULL: `fd` is given */
    int32_t fd;           /* with path NULL: an open file, then the device's if the call succeeds */
    uint32_t queues;      /* 1..64 [1] */
    uint32_t depth;       /* 1..4096 [128] */
    uint32_t block_bytes; /* a power of two, 512..65536, not less than direct I/O needs [4096] */
    uint32_t engine;      /* CL_BLK_ENGINE_* */
    uint32_t direct;      /* CL_BLK_DIRECT_* */
    uint32_t no_dsync;    /* link an fdatasync to durable writes, as if RWF_DSYNC were refused */
    uint32_t sqpoll;      /* a kernel thread polls for submissions; it sleeps after sqpoll_idle_ms without any [off] */
    uint32_t sqpoll_idle_ms;          /* [10] */
    uint32_t threads;                 /* engine threads: workers a queue, 1..64 [4] */
    uint64_t part_offset, part_bytes; /* only this part of it, multiples of block_bytes [all] */
    uint32_t shared;                  /* do not lock it: others may have it open */
    uint32_t read_only;               /* who may not write it may read it: writes answer -EBADF */
};

/* What is written past the page cache goes to a disk; or it is not known whether through the page cache of a loop
 * device below; or it goes through that. */
#define CL_BLK_BELOW_DIRECT 0
#define CL_BLK_BELOW_UNKNOWN 1
#define CL_BLK_BELOW_CACHED 2

struct cl_blk_file_info {
    uint32_t engine; /* URING or THREADS */
    uint32_t direct; /* 1: O_DIRECT */
    uint32_t dsync;  /* 1: RWF_DSYNC, 0: linked fdatasync */
    uint32_t sqpoll;
    uint32_t raw;   /* a block device, not a file */
    uint32_t holes; /* the file has blocks that were never written: the first write to each costs more */
    uint32_t below; /* CL_BLK_BELOW_* */
    char why[256];  /* what was refused, and why; empty: nothing */
};

/* Open. -errno with a reason in err[256], which says "it" of the file: who knows its name puts that before. */
CL_API int cl_blk_file_open(const struct cl_blk_file_config *config, struct cl_blk **out, char *err);
CL_API void cl_blk_file_info(struct cl_blk *blk, struct cl_blk_file_info *out);
/* CL_BLK_BELOW_* of a file, folder or device, and why in why[256], empty if direct; or -errno. */
CL_API int cl_blk_file_below(const char *path, char *why);
/* A new file of `bytes` (a multiple of 4096) zeros that are on the disk. It has its name only once it is whole.
 * `progress` (may be NULL) is called from time to time; not 0 ends it with -ECANCELED. -EEXIST, -ENOSPC..., with a
 * reason in err[256]. */
CL_API int cl_blk_file_create(const char *path, uint64_t bytes, int (*progress)(void *arg, uint64_t done, uint64_t of),
                              void *arg, char *err);
/* The same for what is to be added to a file's end. Not for raw devices, nor for files of another size than a multiple
 * of 4096. */
CL_API int cl_blk_file_grow(const char *path, uint64_t bytes, char *err);
// cffi: end

CL_EXTERN_C_END
#endif
