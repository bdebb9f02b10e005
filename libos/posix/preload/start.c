/* The preloaded library's beginning and end. CORELANE_POSIX has its configuration (../config.h); without one it does
 * nothing. */
#include "next.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint8_t cl_preload_kinds[CL_POSIX_FDS];
bool cl_preload_on;
__thread uint32_t cl_preload_inside __attribute__((tls_model("initial-exec")));
static pid_t *own_pid; /* in memory of its own, which is 0 in a child, however it was forked */

static struct stat usual; /* what standard error was at the beginning */

/* It is what it was, or something else for messages; but no connection and no file that came by its number. */
static bool is_for_messages(void)
{
    struct stat now;
    if (fstat(STDERR_FILENO, &now))
        return false;
    if (now.st_dev == usual.st_dev && now.st_ino == usual.st_ino)
        return true;
    return S_ISCHR(now.st_mode) || S_ISFIFO(now.st_mode) ||
           (S_ISREG(now.st_mode) && cl_preload_linux(SYS_fcntl, STDERR_FILENO, F_GETFL) & O_APPEND);
}

static void say(const char *sentence)
{
    char line[512];
    if (!is_for_messages())
        return;
    int n = snprintf(line, sizeof line, "corelane: %s: %s\n", program_invocation_short_name, sentence);
    size_t len = cl_min((size_t)n, sizeof line - 1);
    /* One that was inherited is connected to nobody, and is not to raise SIGPIPE. */
    if (cl_preload_linux(SYS_sendto, STDERR_FILENO, line, len, MSG_NOSIGNAL, NULL, 0) < 0 && errno == ENOTSOCK)
        (void)!cl_preload_linux(SYS_write, STDERR_FILENO, line, len);
}

static void fail(const char *sentence)
{
    say(sentence);
    _exit(1);
}

static const char *names[CL_POSIX_CALLS];
static unsigned n_names;

unsigned cl_preload_number(const char *name)
{
    if (n_names == CL_POSIX_CALLS)
        return CL_POSIX_CALLS - 1; /* which is then that of several */
    names[n_names] = name;
    return n_names++;
}

bool cl_preload_traces, cl_preload_decided;
/* Where the thread counts; NULL: it has made no call yet that is counted. */
static __thread struct cl_posix_call_counts *own_block __attribute__((tls_model("initial-exec")));

static struct cl_posix_call_counts *counts_of(unsigned call)
{
    if (cl_unlikely(!own_block))
        own_block = cl_posix_counts_block();
    return &own_block[call];
}

void cl_preload_counted(unsigned call, int64_t answer)
{
    struct cl_posix_call_counts *counts = counts_of(call);
    cl_count(&counts->ours, 1);
    cl_count(&counts->failed, answer < 0);
}

void cl_preload_passed(unsigned call)
{
    cl_count(&counts_of(call)->passed, 1);
}

static void say_told(const struct cl_posix_counts *all)
{
    char line[120];
    unsigned long long home = 0, away = 0;
    for (unsigned k = 0; k < CL_POSIX_KTHREADS; k++) {
        home += cl_load_relaxed(&all->told[k].home);
        away += cl_load_relaxed(&all->told[k].away);
    }
    snprintf(line, sizeof line, "told of connections where they are polled: %llu times, elsewhere: %llu", home, away);
    if (home + away)
        say(line);
}

static void say_counts(void)
{
    const struct cl_posix_counts *all = cl_posix_counts();
    char line[120];
    for (unsigned i = 0; i < CL_POSIX_CALLS; i++) {
        unsigned long long ours = 0, failed = 0;
        for (unsigned k = 0; k < CL_POSIX_BLOCKS; k++) {
            ours += cl_load_relaxed(&all->calls[k][i].ours);
            failed += cl_load_relaxed(&all->calls[k][i].failed);
        }
        snprintf(line, sizeof line, "%s of the dataplane's: %llu calls, %llu failed", all->names[i], ours, failed);
        if (ours)
            say(line);
    }
    say_told(all);
}

static void in_child(void)
{
    *own_pid = (pid_t)cl_preload_linux(SYS_getpid);
}

bool cl_preload_borrowed(void)
{
    if (cl_unlikely(*own_pid == 0)) /* a child that no handler of pthread_atfork has been told of */
        in_child();
    return (pid_t)cl_preload_linux(SYS_getpid) != *own_pid;
}

static __attribute__((constructor)) void start(void)
{
    char err[256];
    const char *words = getenv("CORELANE_POSIX");
    (void)fstat(STDERR_FILENO, &usual);
    cl_preload_decided = !words;
    if (!words || pthread_atfork(NULL, NULL, in_child))
        return;
    if (!(own_pid = cl_posix_wiped_page()) || cl_posix_counts_open(names, n_names))
        fail("its calls cannot be counted: there is no memory");
    in_child();
    if (cl_posix_open(words, cl_preload_kinds, say, fail, err))
        fail(err);
    cl_posix_find_inherited();
    cl_preload_find_runtime();
    cl_preload_traces = cl_posix_traces();
    cl_preload_decided = true;
    cl_preload_catch_faults();
    cl_preload_on = true;
}

static __thread bool ends __attribute__((tls_model("initial-exec"))); /* this thread is in exit */
static bool ending;                                                   /* one is */

int64_t cl_preload_failed(int64_t error)
{
    struct timespec second = {.tv_sec = 1};
    if (error == -ECANCELED) {
        pthread_testcancel();
        cl_posix_not_cancelled();
    }
    if (cl_load_acquire(&ending) && !ends)
        (void)cl_preload_linux(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &second, NULL);
    errno = (int)-error;
    return -1;
}

static __attribute__((destructor)) void stop(void)
{
    if (!cl_preload_on || cl_preload_inside || cl_preload_borrowed())
        return;
    cl_preload_flush();
    if (cl_preload_traces)
        say_counts();
    ends = true;
    cl_store_release(&ending, true); /* before a socket is closed */
    cl_posix_end();
}
