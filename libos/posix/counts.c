/* See counts.h. */
#include "counts.h"
#include "linux.h"
#include "posix.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static struct cl_posix_counts *counts;
static uint32_t shared;      /* somebody makes it so, or has: RMW */
static uint64_t used;        /* blocks. RMW */
static pthread_key_t of_end; /* a thread's block, and 1 */
static char spare[sizeof(struct cl_posix_counts)] CL_ALIGNED(8);

_Static_assert(CL_POSIX_BLOCKS == 64, "bits of `used`");

static void give_back(void *arg)
{
    uint64_t bit = 1ull << ((uintptr_t)arg - 1);
    __atomic_fetch_and(&used, ~bit, __ATOMIC_RELEASE); /* the next one goes on from what it counted */
}

/* Other memory in its place, with nothing in it but names. */
static bool renew(int fd)
{
    int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(counts, sizeof *counts, PROT_READ | PROT_WRITE, MAP_FIXED | how, fd, 0) != MAP_FAILED;
}

static void in_child(void)
{
    char names[sizeof counts->names];
    uint32_t traces = counts->traces;
    memcpy(names, counts->names, sizeof names);
    if (!renew(-1))
        counts = (struct cl_posix_counts *)spare;
    memcpy(counts->names, names, sizeof names);
    counts->traces = traces;
    shared = 0;
}

int cl_posix_counts_open(const char *const *names, unsigned n)
{
    if (n > CL_POSIX_CALLS)
        return -E2BIG;
    void *memory = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    counts = memory;
    for (unsigned i = 0; i < n; i++)
        memcpy(counts->names[i], names[i], cl_min(strlen(names[i]), sizeof counts->names[i] - 1));
    int rc = -pthread_key_create(&of_end, give_back);
    return rc ? rc : -pthread_atfork(NULL, NULL, in_child);
}

struct cl_posix_counts *cl_posix_counts(void)
{
    return counts;
}

void cl_posix_counts_share(void)
{
    if (cl_load_relaxed(&shared) || __atomic_exchange_n(&shared, 1, __ATOMIC_RELAXED))
        return;
    int fd = cl_posix_inner((int)cl_linux(SYS_memfd_create, CL_POSIX_COUNTS_NAME, MFD_CLOEXEC));
    if (fd < 0)
        return; /* then nobody sees them */
    counts->magic = CL_POSIX_COUNTS_MAGIC;
    counts->pid = (uint32_t)cl_linux(SYS_getpid);
    /* What is counted between the two is lost. */
    if (cl_linux(SYS_pwrite64, fd, counts, sizeof *counts, 0) != sizeof *counts || !renew(fd))
        (void)cl_posix_inner_close(fd);
}

struct cl_posix_call_counts *cl_posix_counts_block(void)
{
    uint64_t free;
    unsigned i = CL_POSIX_BLOCKS - 1;
    while ((free = ~cl_load_relaxed(&used) & ~(1ull << i))) {
        unsigned first = (unsigned)__builtin_ctzll(free);
        if (__atomic_fetch_or(&used, 1ull << first, __ATOMIC_ACQUIRE) & 1ull << first)
            continue;
        i = first;
        pthread_setspecific(of_end, (void *)(uintptr_t)(i + 1));
        break;
    }
    return counts->calls[i];
}
