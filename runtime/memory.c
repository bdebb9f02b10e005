/* See memory.h. */
#include "memory.h"
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define MAX_FDS 16

CL_PRINTF(3, 4) static int fail(char *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, 256, format, args);
    va_end(args);
    return -code;
}

static int open_file(const char *name, unsigned flags)
{
    int fd = memfd_create(name, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* a kernel before 6.3, or one that does not take it together with huge pages */
        fd = memfd_create(name, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static uint64_t round_up(uint64_t bytes, uint64_t page)
{
    return (bytes + page - 1) / page * page;
}

/* Size, seal and map a fresh file. -errno, with nothing left behind but the open fd. */
static int size_and_map(int fd, uint64_t bytes, struct cl_memory *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    out->page_bytes = (uint64_t)st.st_blksize; /* hugetlbfs reports its page here, tmpfs the base page */
    out->bytes = round_up(bytes, out->page_bytes);
    if (ftruncate(fd, (off_t)out->bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return -errno;
    /* Mapping reserves huge pages, so an empty pool shows here and not as SIGBUS later. */
    void *at = mmap(NULL, out->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    out->base = at;
    out->room = out->bytes;
    out->fd = fd;
    return 0;
}

static int try_create(const char *name, uint64_t bytes, unsigned memfd_flags, struct cl_memory *out)
{
    int fd = open_file(name, memfd_flags);
    if (fd < 0)
        return -errno;
    int rc = size_and_map(fd, bytes, out);
    if (rc < 0)
        close(fd);
    return rc;
}

static int prefault(struct cl_memory *m)
{
    if (madvise(m->base, m->bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno; /* out of memory: said here instead of by a signal later */
    for (uint64_t at = 0; at < m->bytes; at += m->page_bytes)
        ((volatile char *)m->base)[at] = 0; /* a fresh file: nobody else has it yet */
    return 0;
}

int cl_memory_create(const char *name, uint64_t bytes, uint32_t flags, struct cl_memory *out, char err[256])
{
    int rc = -1;
    *out = (struct cl_memory){.fd = -1};
    if (bytes == 0 || bytes > (1ull << 46))
        return fail(err, EINVAL, "a memory file of %llu bytes", (unsigned long long)bytes);
    if (flags & CL_MEMORY_HUGE) {
        rc = try_create(name, bytes, MFD_HUGETLB, out);
        out->huge_error = rc < 0 ? -rc : 0;
        out->flags = rc < 0 ? 0 : CL_MEMORY_HUGE;
    }
    if (rc < 0)
        rc = try_create(name, bytes, 0, out);
    if (rc < 0)
        return fail(err, -rc, "cannot make a memory file of %llu bytes: %s", (unsigned long long)bytes, strerror(-rc));
    if ((flags & CL_MEMORY_THP) && !(out->flags & CL_MEMORY_HUGE) && !madvise(out->base, out->bytes, MADV_HUGEPAGE))
        out->flags |= CL_MEMORY_THP;
    if (flags & CL_MEMORY_PREFAULT) {
        rc = prefault(out);
        if (rc < 0) {
            cl_memory_close(out);
            return fail(err, -rc, "cannot touch %llu bytes: %s", (unsigned long long)bytes, strerror(-rc));
        }
        out->flags |= CL_MEMORY_PREFAULT;
    }
    int seals = F_SEAL_SEAL | (flags & CL_MEMORY_PEERS_READ ? F_SEAL_FUTURE_WRITE : 0);
    if (fcntl(out->fd, F_ADD_SEALS, seals) < 0) {
        rc = errno;
        cl_memory_close(out);
        return fail(err, rc, "cannot seal a memory file: %s", strerror(rc));
    }
    out->flags |= flags & CL_MEMORY_PEERS_READ;
    return 0;
}

/* Check a peer's file and map it: anywhere, or, with base, there. */
static int map_peers(int fd, uint64_t bytes, bool writable, struct cl_memory *m, char err[256])
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return fail(err, EPERM, "the peer passed a file that may shrink under its mapping");
    if (fstat(fd, &st) < 0)
        return fail(err, errno, "cannot stat the peer's memory file: %s", strerror(errno));
    if (bytes == 0 || (uint64_t)st.st_size < bytes)
        return fail(err, EPROTO, "the peer's memory file has %lld bytes, %llu were announced", (long long)st.st_size,
                    (unsigned long long)bytes);
    if (writable && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
        return fail(err, EACCES, "the peer's memory file can be mapped read-only only");
    if (m->base && (uint64_t)st.st_size > m->room)
        return fail(err, ENOSPC, "the peer's memory file has grown to %lld bytes", (long long)st.st_size);
    int access = PROT_READ | (writable ? PROT_WRITE : 0), how = MAP_SHARED | (m->base ? MAP_FIXED : 0);
    void *at = mmap(m->base, (size_t)st.st_size, access, how, fd, 0);
    if (at == MAP_FAILED)
        return fail(err, errno, "cannot map the peer's memory file: %s", strerror(errno));
    *m = (struct cl_memory){
        .base = at, .bytes = (uint64_t)st.st_size, .room = cl_max(m->room, (uint64_t)st.st_size), .fd = fd};
    m->page_bytes = (uint64_t)st.st_blksize;
    m->flags = (m->page_bytes > (uint64_t)sysconf(_SC_PAGESIZE) ? CL_MEMORY_HUGE : 0) |
               (seals & F_SEAL_FUTURE_WRITE ? CL_MEMORY_PEERS_READ : 0);
    return 0;
}

int cl_memory_map(int fd, uint64_t bytes, bool writable, struct cl_memory *out, char err[256])
{
    *out = (struct cl_memory){.fd = -1};
    return map_peers(fd, bytes, writable, out, err);
}

/* Private memory, anywhere or at `at`; no page of it exists before it is touched. */
static void *map_private(void *at, uint64_t bytes)
{
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
}

int cl_memory_reserve(uint64_t bytes, struct cl_memory *out)
{
    *out = (struct cl_memory){.fd = -1};
    void *at = map_private(NULL, bytes);
    if (at == MAP_FAILED)
        return -errno;
    out->base = at;
    out->room = bytes;
    return 0;
}

int cl_memory_map_over(int fd, uint64_t bytes, bool writable, struct cl_memory *m, char err[256])
{
    int rc = map_peers(fd, bytes, writable, m, err);
    if (rc < 0) /* a mapping that fails may leave a hole at its addresses */
        map_private(m->base, m->room);
    return rc;
}

int cl_memory_vacate(struct cl_memory *m)
{
    if (map_private(m->base, m->room) == MAP_FAILED)
        return -errno;
    cl_memory_shut(m);
    *m = (struct cl_memory){.base = m->base, .room = m->room, .fd = -1};
    return 0;
}

void cl_memory_shut(struct cl_memory *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

void cl_memory_close(struct cl_memory *m)
{
    if (m->base) {
        munmap(m->base, m->room);
        cl_memory_shut(m);
    }
    m->base = NULL;
    m->fd = -1;
}

int cl_memory_used(const struct cl_memory *m, uint64_t *used_bytes)
{
    struct stat st;
    if (fstat(m->fd, &st) < 0)
        return -errno;
    *used_bytes = (uint64_t)st.st_blocks * 512; /* stat(2): st_blocks counts 512 bytes whatever st_blksize */
    return 0;
}

void cl_memory_populate(const struct cl_memory *m, uint64_t offset, uint64_t bytes)
{
    uint64_t end = cl_min(round_up(offset + bytes, m->page_bytes), m->bytes);
    offset -= offset % m->page_bytes;
    madvise((uint8_t *)m->base + offset, end - offset, MADV_POPULATE_WRITE);
}

int64_t cl_fds_send(int sock, const void *data, uint64_t n, const int *fds, unsigned n_fds)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    if (n == 0 || n_fds > MAX_FDS)
        return -EINVAL;
    struct iovec iov = {(void *)data, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

int64_t cl_fds_receive(int sock, void *data, uint64_t n, int flags, int *fds, unsigned max_fds, unsigned *n_fds)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {data, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes};
    msg.msg_controllen = sizeof control.bytes;
    ssize_t got = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof one);
            if (*n_fds < max_fds)
                fds[(*n_fds)++] = one;
            else
                close(one);
        }
    }
    return msg.msg_flags & MSG_CTRUNC ? -EMSGSIZE : got;
}
