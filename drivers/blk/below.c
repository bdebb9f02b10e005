/* See below.h. */
#include "below.h"
#include <corelane/drivers/blk_file.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef CL_SYSFS
#define CL_SYSFS "/sys"
#endif

#define DEEP 8 /* devices on devices: each takes some of the stack, which may be a uthread's */
#define PATH 256
#define NAME 64 /* of a device */

static bool read_line(const char *path, char line[CL_BLK_LINE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, CL_BLK_LINE - 1);
    close(fd);
    line[cl_max(n, 0)] = 0;
    line[strcspn(line, "\n")] = 0;
    return n > 0;
}

/* sysfs' name of what belongs to a disk; level 1: to the disk that the partition is a part of. */
static void sysfs_path(char path[PATH], dev_t device, unsigned level, const char *what)
{
    snprintf(path, PATH, "%s/dev/block/%u:%u/%s%s", CL_SYSFS, major(device), minor(device), level ? "../" : "", what);
}

bool cl_blk_disk_says(dev_t device, const char *what, char line[CL_BLK_LINE])
{
    char path[PATH];
    for (unsigned level = 0; level < 2; level++) {
        sysfs_path(path, device, level, what);
        if (read_line(path, line))
            return true;
    }
    return false;
}

/* Whether some loop device without direct I/O can be written to, or that cannot be found out. */
static bool some_loop_caches(void)
{
    char path[PATH], line[CL_BLK_LINE];
    snprintf(path, sizeof path, "%s/block", CL_SYSFS);
    DIR *disks = opendir(path);
    if (!disks)
        return true;
    bool found = false;
    for (struct dirent *disk; !found && (disk = readdir(disks));) {
        snprintf(path, sizeof path, "%s/block/%.*s/loop/dio", CL_SYSFS, NAME, disk->d_name);
        if (!read_line(path, line) || atoi(line))
            continue;
        snprintf(path, sizeof path, "%s/block/%.*s/ro", CL_SYSFS, NAME, disk->d_name);
        found = !read_line(path, line) || !atoi(line);
    }
    closedir(disks);
    return found;
}

static int perhaps(void)
{
    return some_loop_caches() ? CL_BLK_BELOW_UNKNOWN : CL_BLK_BELOW_DIRECT;
}

static dev_t made_of(const struct loop_info64 *loop)
{
    return loop->lo_rdevice ? loop->lo_rdevice : loop->lo_device; /* the kernel's encoding is that of dev_t */
}

/* What a loop device is made of, as it says itself: the name that sysfs has of it may be another file's by now, or
 * here. False: it may not be asked. */
static bool ask_loop(dev_t device, dev_t *out)
{
    char path[PATH], link[PATH];
    sysfs_path(path, device, 0, "");
    path[strlen(path) - 1] = 0;
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n <= 0)
        return false;
    link[n] = 0;
    const char *name = strrchr(link, '/');
    snprintf(path, sizeof path, "/dev/%.*s", NAME, name ? name + 1 : link);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct stat st;
    struct loop_info64 loop;
    bool asked =
        fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) && st.st_rdev == device && ioctl(fd, LOOP_GET_STATUS64, &loop) == 0;
    close(fd);
    if (asked)
        *out = made_of(&loop);
    return asked;
}

static int below_disk(dev_t device, unsigned depth);

/* The worst of what a disk is made of, as the device mapper's and RAID's; one that is made of nothing is the lowest. */
static int below_parts(dev_t device, unsigned depth)
{
    char folder[PATH], path[PATH + NAME + 8], line[CL_BLK_LINE];
    int worst = CL_BLK_BELOW_DIRECT;
    DIR *parts = NULL;
    for (unsigned level = 0; level < 2 && !parts; level++) {
        sysfs_path(folder, device, level, "slaves");
        parts = opendir(folder);
    }
    if (!parts)
        return worst;
    for (struct dirent *part; (part = readdir(parts));) {
        unsigned major_is, minor_is;
        if (part->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%.*s/dev", folder, NAME, part->d_name);
        bool said = read_line(path, line) && sscanf(line, "%u:%u", &major_is, &minor_is) == 2;
        int below = said ? below_disk(makedev(major_is, minor_is), depth + 1) : perhaps();
        worst = cl_max(worst, below);
    }
    closedir(parts);
    return worst;
}

static int below_disk(dev_t device, unsigned depth)
{
    char line[CL_BLK_LINE];
    dev_t of;
    if (depth == DEEP)
        return perhaps();
    if (!cl_blk_disk_says(device, "loop/dio", line))
        return major(device) == LOOP_MAJOR || !major(device) ? perhaps() : below_parts(device, depth);
    if (!atoi(line))
        return CL_BLK_BELOW_CACHED;
    return ask_loop(device, &of) ? below_disk(of, depth + 1) : perhaps();
}

int cl_blk_below(dev_t device)
{
    return below_disk(device, 0);
}

/* In memory, or another machine's: no loop device of this one is below. */
static bool lies_elsewhere(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == NFS_SUPER_MAGIC);
}

int cl_blk_below_fd(int fd, const struct stat *st)
{
    struct loop_info64 loop;
    if (!S_ISBLK(st->st_mode))
        return lies_elsewhere(fd) ? CL_BLK_BELOW_DIRECT : cl_blk_below(st->st_dev);
    if (ioctl(fd, LOOP_GET_STATUS64, &loop) < 0)
        return cl_blk_below(st->st_rdev);
    return loop.lo_flags & LO_FLAGS_DIRECT_IO ? cl_blk_below(made_of(&loop)) : CL_BLK_BELOW_CACHED;
}
