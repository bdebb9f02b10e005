/* Whether what goes past the page cache of a file or disk gets into that of a loop device below it. Not a public
 * header.
 *
 * A loop device takes O_DIRECT, and writes through the page cache of what it is made of unless it was told otherwise
 * (LOOP_SET_DIRECT_IO, which is refused where its blocks are smaller than what that needs). So does all that lies on
 * one: another loop device, a disk of the device mapper, a file system.
 *
 * Of a file system without a disk of its own, as overlayfs or btrfs, it is not known where it lies, but for those in
 * memory and NFS. It lies on no such device where there is none that can be written to.
 *
 * Does not deal with: what becomes of a loop device later, and the caches of a disk itself.
 * Tests: tests/drivers/blk/test_below.py, c/below.c. */
#ifndef CORELANE_DRIVERS_BLK_BELOW_H
#define CORELANE_DRIVERS_BLK_BELOW_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* CL_BLK_BELOW_* (blk_file.h) of a disk, or of the st_dev of a file. */
int cl_blk_below(dev_t device);
/* Of an open file, folder or disk; O_PATH will do. A loop device that is open says itself what it has, also where there
 * is no sysfs. */
int cl_blk_below_fd(int fd, const struct stat *st);

#define CL_BLK_LINE 64
/* The line that sysfs says of a disk, a number or two; of a partition it says the disk's, one level up. False: it says
 * none. */
bool cl_blk_disk_says(dev_t device, const char *what, char line[CL_BLK_LINE]);

#endif
