/* Making files for blk_file.h: of full size, and of blocks that have been written once. */
#include "engine.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 20)
#define UNIT 4096

/* Zeros from `from` to `to`, on the disk. */
static int write_zeros(int fd, uint64_t from, uint64_t to, int (*progress)(void *, uint64_t, uint64_t), void *arg)
{
    int rc = posix_fallocate(fd, (off_t)from, (off_t)(to - from)); /* no space: known at once */
    void *zeros = aligned_alloc(UNIT, CHUNK);
    if (!zeros)
        return -ENOMEM;
    memset(zeros, 0, CHUNK);
    int flags = fcntl(fd, F_GETFL);
    bool direct = fcntl(fd, F_SETFL, flags | O_DIRECT) == 0; /* not through the page cache: others need that */
    rc = -rc;
    for (uint64_t at = from; !rc && at < to;) {
        ssize_t n = pwrite(fd, zeros, cl_min((uint64_t)CHUNK, to - at), (off_t)at);
        if (n < 0 && errno == EINVAL && direct) {
            direct = false;
            fcntl(fd, F_SETFL, flags);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = -errno;
        } else {
            at += (uint64_t)n;
            rc = progress && progress(arg, at - from, to - from) ? -ECANCELED : 0;
        }
    }
    free(zeros);
    return rc ? rc : fsync(fd) < 0 ? -errno : 0;
}

static int sync_folder(const char *path)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

int cl_blk_file_create(const char *path, uint64_t bytes, int (*progress)(void *arg, uint64_t done, uint64_t of),
                       void *arg, char *err)
{
    char fresh[4096];
    uint64_t number; /* drawn: what a kill leaves would be in the way of who has the same pid, as in a container */
    if (bytes == 0 || bytes % UNIT)
        return cl_blk_file_refuse(err, -EINVAL, "the size must be a multiple of 4096 bytes");
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return cl_blk_file_refuse(err, -EIO, "the kernel gives no random number");
    if (snprintf(fresh, sizeof fresh, "%s.%llu.new", path, (unsigned long long)number) >= (int)sizeof fresh)
        return cl_blk_file_refuse(err, -ENAMETOOLONG, "the path is too long");
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return cl_blk_file_refuse(err, -errno, "cannot create %s: %s", fresh, strerror(errno));
    int rc = write_zeros(fd, 0, bytes, progress, arg);
    close(fd);
    /* link, not rename: it never takes the place of a file that is there. */
    if (!rc && link(fresh, path) < 0)
        rc = -errno;
    unlink(fresh);
    if (!rc && (rc = sync_folder(path)) < 0)
        unlink(path); /* a power cut may take the name back, and it is in the way of the next attempt */
    return rc ? cl_blk_file_refuse(err, rc, "cannot create %s: %s", path, strerror(-rc)) : 0;
}

int cl_blk_file_grow(const char *path, uint64_t bytes, char *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (rc)
        cl_blk_file_refuse(err, rc, "cannot open %s: %s", path, strerror(-rc));
    else if (!S_ISREG(st.st_mode))
        rc = cl_blk_file_refuse(err, -EINVAL, "%s is not a file: only files grow", path);
    else if (bytes % UNIT || bytes <= (uint64_t)st.st_size)
        rc = cl_blk_file_refuse(err, -EINVAL,
                                "the new size must be a multiple of 4096 bytes, and more than the old one");
    else if (st.st_size % UNIT)
        rc = cl_blk_file_refuse(err, -EINVAL, "%s has %llu bytes, no multiple of 4096: it was not made for blocks",
                                path, (unsigned long long)st.st_size);
    if (!rc && (rc = write_zeros(fd, (uint64_t)st.st_size, bytes, NULL, NULL)) < 0) {
        int back = ftruncate(fd, st.st_size);
        cl_blk_file_refuse(err, rc, "cannot grow %s: %s%s", path, strerror(-rc), back ? "; it is larger now" : "");
    }
    if (fd >= 0)
        close(fd);
    return rc;
}
