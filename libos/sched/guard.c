/* Signals on uthreads: a stack for handlers on each kthread, and a report of stack overflows.
 *
 * A uthread's stack is too small for a signal frame (3.4 KB with AVX-512) plus a handler, and none is left after an
 * overflow, so each kthread has a sigaltstack. It serves handlers installed with SA_ONSTACK. A handler must not switch
 * stacks. kthreads block all signals but those that tell of a fault in the running code, SIGABRT and SIGPROF: the
 * others go to the application's own threads. */
#include "internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define HANDLER_BYTES 32768

static size_t signal_stack_bytes(void)
{
    return (HANDLER_BYTES + getauxval(AT_MINSIGSTKSZ) + 4095) & ~4095ul;
}

void *cl_signal_stack_install(void)
{
    size_t bytes = signal_stack_bytes();
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    stack_t stack = {.ss_sp = p, .ss_size = bytes};
    if (sigaltstack(&stack, NULL)) {
        munmap(p, bytes);
        return NULL;
    }
    return p;
}

void cl_signal_stack_remove(void *installed)
{
    if (!installed)
        return;
    stack_t off = {.ss_flags = SS_DISABLE};
    sigaltstack(&off, NULL);
    munmap(installed, signal_stack_bytes());
}

/* The process's: signals are. */
static struct sigaction previous;
static uint32_t installed;

static char *append_text(char *at, const char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

static char *append_number(char *at, uint64_t n)
{
    char digits[20];
    int i = 0;
    do
        digits[i++] = (char)('0' + n % 10);
    while (n /= 10);
    while (i)
        *at++ = digits[--i];
    return at;
}

/* Async-signal-safe. */
static void report(const struct cl_uthread *t)
{
    char line[160], *at = line;
    at = append_text(at, "corelane: uthread ");
    at = append_number(at, t->index);
    at = append_text(at, " ran over its stack of ");
    at = append_number(at, t->sched->stack_bytes);
    at = append_text(at, " bytes; use less of it, or raise stack_bytes\n");
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)(at - line));
    (void)ignored;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    struct cl_kthread *k = cl_kthread_self();
    const struct cl_uthread *t = k ? k->current : NULL;
    char *at = info->si_addr;
    if (t && at < t->stack_lo && at >= t->stack_lo - t->sched->guard_bytes)
        report(t);
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else {
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigaction(signal, &dfl, NULL); /* the faulting instruction is run again, and the process dies as it should */
    }
}

int cl_sched_report_overflow(void)
{
    if (__atomic_exchange_n(&installed, 1, __ATOMIC_ACQ_REL))
        return 0;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(SIGSEGV, NULL, &previous) || sigaction(SIGSEGV, &action, NULL)) {
        int err = -errno;
        cl_store_release(&installed, 0);
        return err;
    }
    return 0;
}

void cl_loop_stack_bounds(struct cl_kthread *k)
{
#if CL_ASAN
    static _Thread_local void *lo; /* of the main thread glibc reads /proc/self/maps each time */
    static _Thread_local size_t bytes;
    pthread_attr_t attr;
    if (bytes == 0 && pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &lo, &bytes);
        pthread_attr_destroy(&attr);
    }
    if (bytes) {
        k->loop.stack_lo = lo;
        k->loop.stack_top = (char *)lo + bytes;
    }
#endif
#if CL_TSAN
    k->loop.fiber = __tsan_get_current_fiber();
#endif
    (void)k;
}
