/* A uthread that recurses without end hits the guard below its stack: the process dies of SIGSEGV, not of a neighbour's
 * overwritten stack, and says why; also if its frames are much larger than a page and touched at their far end only. So
 * does one whose single frame is larger than the stack, of a compiler that touches no page of it before. The parent
 * checks all. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>

static volatile unsigned depth;

static CL_NOINLINE unsigned recurse(unsigned n)
{
    volatile char frame[512];
    frame[0] = (char)n;
    depth = n;
    return n == ~0u ? 0 : recurse(n + 1) + (unsigned)frame[0];
}

static CL_NOINLINE unsigned recurse_widely(unsigned n)
{
    volatile char frame[24000];
    frame[0] = (char)n; /* the lowest byte */
    depth = n;
    return n == ~0u ? 0 : recurse_widely(n + 1) + (unsigned)frame[0];
}

/* What is at the lower end of a frame of so many bytes, where nothing before has touched its pages. */
static CL_NOINLINE void step_over(size_t bytes)
{
    *(volatile char *)((uintptr_t)__builtin_frame_address(0) - bytes) = 1;
}

static bool widely;
static size_t step;

static void sleeper(void *arg)
{
    cl_sem_wait(arg);
}

static void root(void *arg)
{
    static struct cl_sem never;
    (void)arg;
    for (int i = 0; i < 8; i++) /* neighbours above and below */
        cl_uthread_spawn(sleeper, &never, NULL);
    cl_uthread_yield();
    if (step)
        step_over(step);
    if (widely)
        recurse_widely(0);
    recurse(0);
}

static void child(int fd)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.stack_bytes = 32768;
    dup2(fd, STDERR_FILENO);
    CHECK_EQ(cl_sched_report_overflow(), 0);
    cl_sched_run(sched_started(&c), root, NULL);
    _exit(0);
}

int main(int argc, char **argv)
{
    int fds[2], status;
    char text[4096] = "";
    widely = argc > 1 && !strcmp(argv[1], "widely");
    step = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    CHECK_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        child(fds[1]);
    close(fds[1]);
    for (size_t n = 0; n < sizeof text - 1;) {
        ssize_t got = read(fds[0], text + n, sizeof text - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    printf("status %x, stderr: %s\n", status, text);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    CHECK(status != 0); /* the sanitizer's own handler was there before ours, and reports and exits */
#else
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
    CHECK(strstr(text, "ran over its stack of 32768 bytes"));
    return 0;
}
