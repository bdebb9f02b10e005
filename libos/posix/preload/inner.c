/* Calls by which the runtime makes descriptors of its own: those are kept from the program (../inner.c). That it is the
 * runtime that calls, by whatever thread, is told by where the call returns to. */
#include "next.h"

#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

uintptr_t cl_preload_runtime[2];

/* The library in which the runtime is. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    uintptr_t at = (uintptr_t)cl_posix_inner;
    (void)size, (void)arg;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + h->p_vaddr;
        if (h->p_type != PT_LOAD || at < from || at - from >= h->p_memsz)
            continue;
        cl_preload_runtime[0] = from;
        cl_preload_runtime[1] = from + h->p_memsz;
        return 1;
    }
    return 0;
}

void cl_preload_find_runtime(void)
{
    (void)dl_iterate_phdr(look_at, NULL);
}

static int made(int fd, bool by_runtime)
{
    return by_runtime ? cl_posix_inner(fd) : fd;
}

/* The mode is there with O_CREAT and O_TMPFILE, and harmless without. */
#define MODE(before)                                                                                                   \
    ({                                                                                                                 \
        va_list arguments;                                                                                             \
        va_start(arguments, before);                                                                                   \
        mode_t mode = va_arg(arguments, mode_t);                                                                       \
        va_end(arguments);                                                                                             \
        mode;                                                                                                          \
    })

NEXT_FIRST(int, open, (const char *path, int flags, ...), (path, flags, MODE(flags)))
PUBLIC int open(const char *path, int flags, ...)
{
    return made(next_open(path, flags, MODE(flags)), BY_RUNTIME);
}

NEXT_FIRST(int, eventfd, (unsigned count, int flags), (count, flags))
PUBLIC int eventfd(unsigned count, int flags)
{
    return made(next_eventfd(count, flags), BY_RUNTIME);
}

NEXT_FIRST(int, timerfd_create, (int clock, int flags), (clock, flags))
PUBLIC int timerfd_create(int clock, int flags)
{
    return made(next_timerfd_create(clock, flags), BY_RUNTIME);
}

NEXT_FIRST(int, memfd_create, (const char *name, unsigned flags), (name, flags))
PUBLIC int memfd_create(const char *name, unsigned flags)
{
    return made(next_memfd_create(name, flags), BY_RUNTIME);
}

void cl_preload_got(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned char *at = CMSG_DATA(c), *end = (unsigned char *)c + c->cmsg_len;
        for (int fd; (size_t)(end - at) >= sizeof fd; at += sizeof fd) {
            memcpy(&fd, at, sizeof fd);
            fd = cl_posix_inner(fd);
            memcpy(at, &fd, sizeof fd);
        }
    }
}
