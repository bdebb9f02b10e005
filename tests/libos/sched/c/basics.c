/* The contract of every call, errors included, on one and on several kthreads. Usage: basics KTHREADS MODE */
#include "check.h"

#include "libos/sched/internal.h"

static unsigned ran;

static void count_one(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
}

static void exit_early(void *arg)
{
    count_one(arg);
    cl_uthread_exit();
    CHECK(!"exit came back");
}

static void test_join_and_detach(void)
{
    cl_uthread_id id, other;
    ran = 0;
    CHECK_EQ(cl_uthread_spawn(count_one, NULL, &id), 0);
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(ran, 1);
    CHECK_EQ(cl_uthread_join(id), -ESRCH);
    CHECK_EQ(cl_uthread_detach(id), -ESRCH);
    CHECK_EQ(cl_uthread_spawn(exit_early, NULL, &other), 0);
    CHECK_EQ(cl_uthread_join(id), -ESRCH); /* the object may be the same, the name is not */
    CHECK_EQ(cl_uthread_join(other), 0);
    CHECK_EQ(ran, 2);
    CHECK_EQ(cl_uthread_join(0), -ESRCH);
    CHECK_EQ(cl_uthread_join(0xffffffffffull), -ESRCH);
    CHECK_EQ(cl_uthread_join(cl_uthread_id_of(cl_uthread_self())), -EDEADLK);
    /* Ended before it is joined, and before it is detached. */
    CHECK_EQ(cl_uthread_spawn(count_one, NULL, &id), 0);
    CHECK_EQ(cl_uthread_spawn(count_one, NULL, &other), 0);
    while (__atomic_load_n(&ran, __ATOMIC_RELAXED) < 4)
        cl_uthread_yield();
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(cl_uthread_detach(other), 0);
    while (cl_uthread_join(other) == -EINVAL) /* it may still be leaving its stack */
        cl_uthread_yield();
    CHECK_EQ(cl_uthread_join(other), -ESRCH);
}

struct gate {
    struct cl_sem open, passed;
    struct cl_uthread *victim;
    cl_uthread_id id;
    int result;
};

static void wait_gate(void *arg)
{
    struct gate *g = arg;
    __atomic_store_n(&g->victim, cl_uthread_self(), __ATOMIC_RELEASE);
    cl_sem_wait(&g->open);
    cl_sem_post(&g->passed);
}

static void join_victim(void *arg)
{
    struct gate *g = arg;
    g->result = cl_uthread_join(g->id);
}

static void test_two_joiners(void)
{
    struct gate g = {.result = -1};
    cl_uthread_id joiner, detached;
    CHECK_EQ(cl_uthread_spawn(wait_gate, &g, &g.id), 0);
    CHECK_EQ(cl_uthread_spawn(join_victim, &g, &joiner), 0);
    struct cl_uthread *victim;
    while (!(victim = __atomic_load_n(&g.victim, __ATOMIC_ACQUIRE)) ||
           __atomic_load_n(&victim->join, __ATOMIC_ACQUIRE) <= CL_JOIN_CLAIMED)
        cl_uthread_yield();
    CHECK_EQ(cl_uthread_join(g.id), -EINVAL);
    CHECK_EQ(cl_uthread_detach(g.id), -EINVAL);
    cl_sem_post(&g.open);
    CHECK_EQ(cl_uthread_join(joiner), 0);
    CHECK_EQ(g.result, 0);
    CHECK_EQ(cl_uthread_spawn(wait_gate, &g, &detached), 0);
    CHECK_EQ(cl_uthread_detach(detached), 0);
    CHECK_EQ(cl_uthread_join(detached), -EINVAL);
    CHECK_EQ(cl_uthread_detach(detached), -EINVAL);
    cl_sem_post(&g.open);
    CHECK_EQ(cl_sem_wait(&g.passed), 0);
    CHECK_EQ(cl_sem_wait(&g.passed), 0);
}

static void test_mutex(void)
{
    struct cl_mutex m = {0};
    CHECK_EQ(cl_mutex_unlock(&m), -EPERM);
    CHECK_EQ(cl_mutex_lock(&m), 0);
    CHECK_EQ(cl_mutex_lock(&m), -EDEADLK);
    CHECK_EQ(cl_mutex_trylock(&m), -EBUSY);
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    CHECK_EQ(cl_mutex_trylock(&m), 0);
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    CHECK_EQ(cl_mutex_unlock(&m), -EPERM);
    CHECK_EQ(m.word, 0);
}

static void test_timed(void)
{
    struct cl_mutex m = {0};
    struct cl_cond c = {0};
    struct cl_sem s;
    struct cl_sched *sched = cl_sched_self();
    uint64_t start = cl_sched_now_ns(sched);
    cl_sem_init(&s, 1);
    CHECK_EQ(cl_sem_value(&s), 1);
    CHECK_EQ(cl_sem_wait_until(&s, 0), 0);
    CHECK_EQ(cl_sem_trywait(&s), -EAGAIN);
    CHECK_EQ(cl_sem_wait_until(&s, start + 2000000), -ETIMEDOUT);
    CHECK(cl_sched_now_ns(sched) >= start + 2000000);
    cl_sem_post(&s); /* after a time-out the flag of waiters is stale */
    CHECK_EQ(cl_sem_value(&s), 1);
    CHECK_EQ(cl_sem_wait(&s), 0);
    CHECK(cl_sem_give(&s) == NULL); /* nobody waits */
    CHECK_EQ(cl_sem_trywait(&s), 0);
    CHECK_EQ(cl_cond_wait(&c, &m), -EPERM);
    CHECK_EQ(cl_cond_wait_until(&c, &m, start), -EPERM);
    CHECK_EQ(cl_mutex_lock(&m), 0);
    CHECK_EQ(cl_cond_wait_until(&c, &m, start + 4000000), -ETIMEDOUT);
    CHECK(cl_sched_now_ns(sched) >= start + 4000000);
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    CHECK(c.waiters.first == NULL && s.waiters.first == NULL);
    CHECK_EQ(cl_uthread_sleep_ns(1000000), 0);
    CHECK(cl_sched_now_ns(sched) >= start + 5000000);
    CHECK_EQ(cl_uthread_sleep_until_ns(start), 0);
}

static void test_wait_group(void)
{
    struct cl_wait_group g = {0};
    CHECK_EQ(cl_wait_group_wait(&g), 0);
    CHECK_EQ(cl_wait_group_done(&g), -ERANGE);
    CHECK_EQ(cl_wait_group_add(&g, 0x7fffffff), 0);
    CHECK_EQ(cl_wait_group_add(&g, 1), -ERANGE);
    CHECK_EQ(cl_wait_group_add(&g, -0x7fffffff), 0);
    CHECK_EQ(g.word, 0);
}

static void in_call(void *arg)
{
    struct cl_sem s = {0};
    CHECK_EQ(cl_uthread_yield(), -EDEADLK);
    CHECK_EQ(cl_sem_wait(&s), -EDEADLK);
    CHECK_EQ(cl_uthread_stack_left_bytes(), 0);
    char big[1 << 20]; /* more than a uthread has */
    memset(big, 1, sizeof big);
    *(char *)arg = big[12345];
}

static void test_no_switch(void)
{
    struct cl_mutex m = {0};
    struct cl_cond c = {0};
    struct cl_wait_group g = {0};
    struct cl_sem s = {0};
    cl_uthread_id id;
    char byte = 0;
    CHECK_EQ(cl_mutex_lock(&m), 0);
    CHECK_EQ(cl_wait_group_add(&g, 1), 0);
    CHECK_EQ(cl_uthread_spawn(count_one, NULL, &id), 0);
    cl_sched_no_switch_enter();
    cl_sched_no_switch_enter();
    cl_sched_no_switch_leave();
    CHECK_EQ(cl_uthread_yield(), -EDEADLK);
    CHECK_EQ(cl_uthread_sleep_ns(1), -EDEADLK);
    CHECK_EQ(cl_uthread_join(id), -EDEADLK);
    CHECK_EQ(cl_uthread_exit(), -EDEADLK);
    CHECK_EQ(cl_cond_wait(&c, &m), -EDEADLK);
    CHECK_EQ(cl_sem_wait(&s), -EDEADLK);
    CHECK_EQ(cl_wait_group_wait(&g), -EDEADLK);
    CHECK_EQ(cl_kthread_call(in_call, &byte), -EDEADLK);
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    CHECK_EQ(cl_mutex_trylock(&m), 0); /* what does not block works */
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    cl_sched_no_switch_leave();
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(cl_kthread_call(in_call, &byte), 0);
    CHECK_EQ(byte, 1);
    CHECK(cl_uthread_stack_left_bytes() > 12000);
    CHECK_EQ(cl_uthread_yield(), 0);
}

static void test_local(void)
{
    CHECK(cl_uthread_local() == NULL);
    CHECK_EQ(cl_uthread_set_local(&ran), 0);
    cl_uthread_yield();
    CHECK(cl_uthread_local() == &ran);
}

static void root(void *arg)
{
    (void)arg;
    CHECK(cl_uthread_self() != NULL && cl_sched_self() != NULL && cl_kthread_index() >= 0);
    test_join_and_detach();
    test_two_joiners();
    test_mutex();
    test_timed();
    test_wait_group();
    test_no_switch();
    test_local();
}

static void sleep_for_ever(void *arg)
{
    cl_sem_wait(arg);
}

/* All of max_uthreads can be had, and then no more; what was not used is no memory. */
static void exhaust(void *arg)
{
    struct cl_sem *gate = arg;
    unsigned n = 0;
    while (cl_uthread_spawn(sleep_for_ever, gate, NULL) == 0)
        n++;
    CHECK(n >= 1000 && n < 1000 + 64 * (cl_sched_kthreads(cl_sched_self()) + 1));
    CHECK_EQ(cl_uthread_spawn(sleep_for_ever, gate, NULL), -EAGAIN);
    for (unsigned i = 0; i < n; i++)
        cl_sem_post(gate);
}

static void test_foreign(struct cl_sched *s)
{
    struct cl_sem sem = {0};
    struct cl_mutex m = {0};
    cl_uthread_id id;
    CHECK(cl_uthread_self() == NULL && cl_sched_self() == NULL && cl_kthread_index() == -1);
    CHECK_EQ(cl_uthread_spawn(count_one, NULL, &id), -EPERM);
    CHECK_EQ(cl_uthread_join(1), -EDEADLK);
    CHECK_EQ(cl_uthread_detach(1), -EPERM);
    CHECK_EQ(cl_uthread_yield(), -EDEADLK);
    CHECK_EQ(cl_uthread_exit(), -EDEADLK);
    CHECK_EQ(cl_uthread_set_local(NULL), -EPERM);
    CHECK_EQ(cl_mutex_lock(&m), -EDEADLK);
    CHECK_EQ(cl_mutex_unlock(&m), -EPERM);
    CHECK_EQ(cl_sem_wait(&sem), -EDEADLK);
    CHECK_EQ(cl_sched_step(s, 0), -EBUSY);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv), bad = c;
    char err[256];
    struct cl_sched *s;
    struct cl_sem gate = {0};
    bad.n_kthreads = 65;
    CHECK_EQ(cl_sched_new(&bad, &s, err), -EINVAL);
    CHECK(strstr(err, "n_kthreads is 65"));
    bad = c;
    bad.stack_bytes = 4096;
    CHECK_EQ(cl_sched_new(&bad, &s, err), -EINVAL);
    CHECK(strstr(err, "stack_bytes is 4096"));
    c.max_uthreads = 1000;
    c.stack_bytes = 16384;
    s = sched_started(&c);
    CHECK_EQ(cl_sched_start(s, err), -EALREADY);
    test_foreign(s);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    CHECK_EQ(cl_sched_run(s, exhaust, &gate), 0);
    while (cl_sched_spawn(s, count_one, NULL) == -EAGAIN) /* those let go are still ending */
        usleep(1000);
    sched_stop_clean(s);
    return 0;
}
