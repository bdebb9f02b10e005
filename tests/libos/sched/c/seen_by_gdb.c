/* What gdb stops in: uthreads that wait, one that is ready and has never run, and one that runs and aborts. */
#include "check.h"

static struct cl_sem never;

static CL_NOINLINE void waits_deep_down(struct cl_sem *sem, unsigned n)
{
    volatile unsigned left = n;
    if (left)
        waits_deep_down(sem, left - 1);
    else
        cl_sem_wait(sem);
    left = 0;
}

static void waiter(void *arg)
{
    waits_deep_down(arg, 3);
}

static void never_run(void *arg)
{
    (void)arg;
}

static CL_NOINLINE void stops_here(void)
{
    abort();
}

static void root(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++)
        cl_uthread_spawn(waiter, &never, NULL);
    cl_uthread_yield();
    cl_uthread_spawn(never_run, NULL, NULL);
    stops_here();
}

int main(void)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    cl_sched_run(sched_started(&c), root, NULL);
    return 0;
}
