/* Kthreads that nobody adopts, which threads borrow: what each call answers where it may not be made; no two are inside
 * of one at a time; what a call leaves undone is done by turns, and a timer that it arms while the kthread sleeps rings.
 * Usage: borrow KTHREADS MODE */
#include "adopted.h"

#include <sched.h>

#define THREADS 3
#define CALLS 2000

static struct cl_sched_config config;
static uint32_t inside[CL_SCHED_MAX_KTHREADS]; /* RMW */
static uint64_t calls, ran;                    /* RMW */

static void count(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELEASE);
}

static void spawn_inside(void *arg)
{
    int k = cl_kthread_index();
    CHECK(cl_sched_self() == arg && k >= 0);
    CHECK_EQ(__atomic_fetch_add(&inside[k], 1, __ATOMIC_ACQ_REL), 0);
    CHECK_EQ(cl_kthread_borrow_turn(arg, (unsigned)k), -EDEADLK);
    CHECK_EQ(cl_uthread_yield(), -EDEADLK); /* no uthread, and so nothing that could block */
    CHECK_EQ(cl_uthread_spawn(count, NULL, NULL), 0);
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    CHECK_EQ(__atomic_fetch_sub(&inside[k], 1, __ATOMIC_ACQ_REL), 1);
}

static void settle(struct cl_sched *s, unsigned k)
{
    int rc;
    while ((rc = cl_kthread_borrow_turn(s, k)))
        if (rc < 0) {
            CHECK_EQ(rc, -EBUSY);
            sched_yield();
        }
}

static void *borrow(void *arg)
{
    struct cl_sched *s = arg;
    for (unsigned i = 0; i < CALLS; i++) {
        unsigned k = i % config.n_kthreads;
        int rc;
        while ((rc = cl_kthread_borrow(s, k, spawn_inside, s)) == -EBUSY)
            sched_yield();
        CHECK_EQ(rc, 0);
        if (i % 3 == 0)
            settle(s, k);
    }
    return NULL;
}

static void many(struct cl_sched *s)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, borrow, s), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    while (__atomic_load_n(&ran, __ATOMIC_ACQUIRE) < THREADS * CALLS)
        for (unsigned k = 0; k < config.n_kthreads; k++)
            settle(s, k);
    CHECK_EQ(calls, THREADS * CALLS);
}

static uint64_t fired;

static void on_timer(struct cl_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    fired++;
}

static void arm(void *arg)
{
    static struct cl_timer timer;
    cl_timer_init(&timer, on_timer, arg);
    CHECK_EQ(cl_timer_arm(&timer, cl_sched_now_ns(arg) + 2000000), 0);
}

static void timers(struct cl_sched *s)
{
    settle(s, 0);
    CHECK(!readable(s, 0, 0));
    CHECK_EQ(cl_kthread_borrow(s, 0, arm, s), 0); /* it slept */
    while (!fired) {
        settle(s, 0);
        if (!fired)
            CHECK(readable(s, 0, -1));
    }
    CHECK_EQ(fired, 1);
}

static void *wrong(void *arg)
{
    CHECK_EQ(cl_kthread_borrow_turn(arg, 0), -EBUSY);
    CHECK_EQ(cl_kthread_borrow(arg, 0, count, NULL), -EBUSY);
    return NULL;
}

static void contract(struct cl_sched *s)
{
    pthread_t thread;
    CHECK_EQ(cl_kthread_borrow_turn(s, 64), -EINVAL);
    adopt(s, 0);
    CHECK_EQ(cl_kthread_borrow(s, 0, count, NULL), 0); /* its own */
    CHECK_EQ(cl_kthread_borrow_more(s, 0, count, NULL), 0);
    CHECK_EQ(ran, 2);
    ran = 0;
    CHECK_EQ(pthread_create(&thread, NULL, wrong, s), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(cl_kthread_let_go(s, 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(cl_kthread_borrow_turn(s, 0) != -ECHILD);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(int argc, char **argv)
{
    config = config_from(argc, argv);
    config.adopted = config.n_kthreads;
    struct cl_sched *s = sched_new(&config);
    char err[256];
    CHECK_EQ(cl_kthread_borrow_turn(s, 0), -ESHUTDOWN);
    CHECK_EQ(cl_sched_start(s, err), 0);
    contract(s);
    many(s);
    if (config.n_kthreads == 1)
        timers(s);
    CHECK_EQ(cl_sched_stop(s, 1000000000), 0);
    CHECK_EQ(cl_kthread_borrow_turn(s, 0), -ESHUTDOWN);
    cl_sched_delete(s);
    CHECK(strcmp(cl_adopt_error(-EOPNOTSUPP), cl_adopt_error(-EINVAL)));
    return 0;
}
