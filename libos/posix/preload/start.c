/* The preloaded library's beginning and end. CORELANE_POSIX has its configuration (../config.h); without one it does
 * nothing. */
#include "next.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint8_t cl_preload_kinds[CL_POSIX_FDS];
bool cl_preload_on;
__thread uint32_t cl_preload_inside __attribute__((tls_model("initial-exec")));
static pid_t own_pid;

static void say(const char *sentence)
{
    char line[512];
    int n = snprintf(line, sizeof line, "corelane: %s: %s\n", program_invocation_short_name, sentence);
    (void)!syscall(SYS_write, STDERR_FILENO, line, cl_min((size_t)n, sizeof line - 1));
}

static void fail(const char *sentence)
{
    say(sentence);
    _exit(1);
}

bool cl_preload_traces;
static struct cl_preload_count *counts; /* grows at its head. RMW */

void cl_preload_counted(struct cl_preload_count *c, int64_t answer)
{
    if (__atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED) == 0) { /* the first enters it */
        c->next = cl_load_relaxed(&counts);
        while (!__atomic_compare_exchange_n(&counts, &c->next, c, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            ;
    }
    __atomic_fetch_add(&c->failed, answer < 0, __ATOMIC_RELAXED);
}

static void say_counts(void)
{
    char line[120];
    for (const struct cl_preload_count *c = cl_load_acquire(&counts); c; c = c->next) {
        snprintf(line, sizeof line, "%s of the dataplane's: %llu calls, %llu failed", c->name,
                 (unsigned long long)c->calls, (unsigned long long)c->failed);
        say(line);
    }
}

static void in_child(void)
{
    own_pid = (pid_t)syscall(SYS_getpid);
}

bool cl_preload_borrowed(void)
{
    return (pid_t)syscall(SYS_getpid) != own_pid;
}

static __attribute__((constructor)) void start(void)
{
    char err[256];
    const char *words = getenv("CORELANE_POSIX");
    in_child();
    if (!words || pthread_atfork(NULL, NULL, in_child))
        return;
    if (cl_posix_open(words, cl_preload_kinds, say, fail, err))
        fail(err);
    cl_preload_find_runtime();
    cl_preload_traces = cl_posix_traces();
    cl_preload_on = true;
}

static __thread bool ends __attribute__((tls_model("initial-exec"))); /* this thread is in exit */
static bool ending;                                                   /* one is */

int64_t cl_preload_failed(int64_t error)
{
    struct timespec second = {.tv_sec = 1};
    if (cl_load_acquire(&ending) && !ends)
        (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &second, NULL);
    errno = (int)-error;
    return -1;
}

static __attribute__((destructor)) void stop(void)
{
    if (!cl_preload_on || cl_preload_inside || cl_preload_borrowed())
        return;
    say_counts();
    ends = true;
    cl_store_release(&ending, true); /* before a socket is closed */
    cl_posix_end();
}
