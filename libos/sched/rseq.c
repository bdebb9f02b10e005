/* Restartable sequences, which glibc registers for every thread: whenever the kernel has switched to it, it writes the
 * number of its CPU to the thread's own storage before it returns. That page is cold then, and a switch between two
 * processes takes a tenth longer for it. A kthread whose core changes hands depends on such switches. It uses the
 * number only for sched_getcpu(), which calls the kernel when there is none. So it is given up, for this thread.
 *
 * Does not deal with libraries that bring sequences of their own to a kthread (some allocators do): they find none
 * registered, and register, or do without. Failing costs only the time. */
#include "internal.h"

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__linux__) && defined(SYS_rseq) && (defined(__x86_64__) || defined(__aarch64__))

#define RSEQ_UNREGISTER 1
#define RSEQ_BYTES 32 /* as the first version of the structure, which is what is registered to this day */
#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
#else
#define RSEQ_SIGNATURE 0xd428bc00
#endif

/* Where glibc has it (2.35 and later); a libc without them registers nothing. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static char *thread_pointer(void)
{
    char *p;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(p));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(p));
#endif
    return p;
}

void cl_rseq_give_up(void)
{
    if (&__rseq_offset && &__rseq_size && __rseq_size)
        syscall(SYS_rseq, thread_pointer() + __rseq_offset, RSEQ_BYTES, RSEQ_UNREGISTER, RSEQ_SIGNATURE);
}

#else

void cl_rseq_give_up(void)
{
}

#endif
