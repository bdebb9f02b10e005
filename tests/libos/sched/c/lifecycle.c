/* Starting and stopping: two schedulers in one process that wake each other's uthreads, a stop that gives up on
 * uthreads which sleep for ever, a child forked while kthreads run, pinning that fails, deleting what was never
 * started. */
#include "check.h"

#include <sys/wait.h>

static struct cl_sem ping, pong;

static void side_a(void *arg)
{
    for (uintptr_t n = (uintptr_t)arg; n; n--) {
        cl_sem_post(&ping);
        CHECK_EQ(cl_sem_wait(&pong), 0);
    }
}

static void side_b(void *arg)
{
    for (uintptr_t n = (uintptr_t)arg; n; n--) {
        CHECK_EQ(cl_sem_wait(&ping), 0);
        cl_sem_post(&pong);
    }
}

static void forever(void *arg)
{
    cl_sem_wait(arg);
}

static void stop_from_inside(void *arg)
{
    CHECK_EQ(cl_sched_stop(arg, 0), -EDEADLK);
    CHECK_EQ(cl_sched_run(arg, forever, NULL), -EDEADLK);
}

static void test_abandon(const struct cl_sched_config *c)
{
    static struct cl_sem never;
    struct cl_sched *s = sched_started(c);
    memset(&never, 0, sizeof never);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(cl_sched_spawn(s, forever, &never), 0);
    CHECK_EQ(cl_sched_run(s, stop_from_inside, s), 0);
    CHECK_EQ(cl_sched_stop(s, 20000000), 100);
    CHECK_EQ(cl_sched_stop(s, 20000000), 100);
    CHECK_EQ(cl_sched_spawn(s, forever, &never), -ESHUTDOWN);
    cl_sched_delete(s);
}

static void test_two(const struct cl_sched_config *c)
{
    struct cl_sched *a = sched_started(c), *b = sched_started(c);
    CHECK_EQ(cl_sched_spawn(b, side_b, (void *)2000), 0);
    CHECK_EQ(cl_sched_run(a, side_a, (void *)2000), 0);
    sched_stop_checked(a);
    sched_stop_checked(b); /* both before either is deleted: the last post in b wakes a uthread of a */
    cl_sched_delete(a);
    cl_sched_delete(b);
}

static void test_fork(const struct cl_sched_config *c)
{
    struct cl_sched *s = sched_started(c);
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(cl_sched_kthreads(s) == c->n_kthreads ? 7 : 8);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    memset(&ping, 0, sizeof ping);
    memset(&pong, 0, sizeof pong);
    CHECK_EQ(cl_sched_spawn(s, side_b, (void *)100), 0);
    CHECK_EQ(cl_sched_run(s, side_a, (void *)100), 0);
    sched_stop_clean(s);
}

static void test_pinning(struct cl_sched_config c)
{
    char err[256] = "";
    int32_t cpus[64];
    struct cl_sched *s;
    for (int i = 0; i < 64; i++)
        cpus[i] = i == (int)c.n_kthreads - 1 ? 1023 : 0;
    c.cpus = cpus;
    s = sched_new(&c);
    CHECK_EQ(cl_sched_start(s, err), -EINVAL);
    printf("%s\n", err);
    CHECK(strstr(err, "CPU 1023"));
    CHECK_EQ(cl_sched_start(s, err), -EALREADY);
    cl_sched_delete(s);
}

static void test_never_started(const struct cl_sched_config *c)
{
    struct cl_sched *s = sched_new(c);
    CHECK_EQ(cl_sched_spawn(s, forever, &ping), 0);
    CHECK_EQ(cl_sched_run(s, forever, &ping), -EINVAL);
    CHECK_EQ(cl_sched_live(s), 1);
    CHECK_EQ(cl_sched_stop(s, -1), 1);
    cl_sched_delete(s);
    cl_sched_delete(NULL);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    test_two(&c);
    test_abandon(&c);
    test_fork(&c);
    test_pinning(c);
    test_never_started(&c);
    return 0;
}
