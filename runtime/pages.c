/* Large pieces of memory, touched when they are taken. See pages.h. */
#include "pages.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *cl_pages_new(uint64_t bytes)
{
    void *p;
    if (bytes < CL_PAGES_LARGE)
        return calloc(1, bytes);
    if (bytes > UINT64_MAX - CL_PAGES_LARGE)
        return NULL;
    uint64_t whole = (bytes + CL_PAGES_LARGE - 1) / CL_PAGES_LARGE * CL_PAGES_LARGE;
    if (posix_memalign(&p, CL_PAGES_LARGE, whole))
        return NULL;
    madvise(p, whole, MADV_HUGEPAGE); /* refused: they are small ones */
    return memset(p, 0, whole);
}

bool cl_pages_fetch(void *from, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from & ~(page - 1);
    uint64_t whole = (uintptr_t)from + bytes - first;
    return madvise((void *)first, whole, MADV_POPULATE_WRITE) == 0 || errno == EINTR;
}
