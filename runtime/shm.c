/* See shm.h. */
#include "shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERR_BYTES 256

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

static int fail(char *err, const char *what, int code)
{
    snprintf(err, ERR_BYTES, "%s: %s", what, strerror(code));
    return -code;
}

int cl_shm_create(const char *name, uint64_t bytes, void **map, char *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* a kernel before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fail(err, "cannot make a memory file", errno);
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        int code = errno;
        close(fd);
        return fail(err, "cannot size and seal a memory file", code);
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        int code = errno;
        close(fd);
        return fail(err, "cannot map a memory file", code);
    }
    *map = at;
    return fd;
}

int cl_shm_seal_readonly(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0 ? -errno : 0;
}

int cl_shm_map(int fd, uint64_t bytes, bool writable, void **map, char *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return fail(err, "the peer passed a memory file that may shrink under its mapping", EPERM);
    if (fstat(fd, &st) < 0)
        return fail(err, "cannot stat the peer's memory file", errno);
    if ((uint64_t)st.st_size < bytes) {
        snprintf(err, ERR_BYTES, "the peer's memory file has %lld bytes, %llu were announced", (long long)st.st_size,
                 (unsigned long long)bytes);
        return -EPROTO;
    }
    void *at = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return fail(err, "cannot map the peer's memory file", errno);
    *map = at;
    return 0;
}

void cl_shm_unmap(void *map, uint64_t bytes)
{
    if (map)
        munmap(map, bytes);
}

int cl_shm_layout(struct cl_arena_layout *layout)
{
    return cl_arena_layout_init(layout);
}
