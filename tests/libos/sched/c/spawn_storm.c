/* Trees of uthreads: each runs once and no one is lost, work spreads over the kthreads, stacks are reused, and stopping
 * gives every mapping back. Usage: spawn_storm KTHREADS MODE DEPTH */
#include "check.h"

#include <sched.h>

static unsigned depth;
static uint64_t executed, per_kthread[CL_SCHED_MAX_KTHREADS];
static struct cl_wait_group group;

static void work(unsigned n)
{
    volatile unsigned sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += i;
}

static void tree_joined(void *arg)
{
    uintptr_t level = (uintptr_t)arg;
    cl_uthread_id ids[3];
    __atomic_fetch_add(&executed, 1, __ATOMIC_RELAXED);
    work(200);
    for (unsigned i = 0; level && i < 3; i++)
        CHECK_EQ(cl_uthread_spawn(tree_joined, (void *)(level - 1), &ids[i]), 0);
    for (unsigned i = 0; level && i < 3; i++)
        CHECK_EQ(cl_uthread_join(ids[2 - i]), 0);
    __atomic_fetch_add(&per_kthread[cl_kthread_index()], 1, __ATOMIC_RELAXED);
}

static void tree_detached(void *arg)
{
    uintptr_t level = (uintptr_t)arg;
    __atomic_fetch_add(&executed, 1, __ATOMIC_RELAXED);
    CHECK_EQ(cl_wait_group_add(&group, level ? 3 : 0), 0);
    for (unsigned i = 0; level && i < 3; i++)
        CHECK_EQ(cl_uthread_spawn(tree_detached, (void *)(level - 1), NULL), 0);
    if (level % 2)
        cl_uthread_yield();
    cl_wait_group_done(&group);
}

static uint64_t nodes(unsigned level)
{
    return level ? 1 + 3 * nodes(level - 1) : 1;
}

static void root(void *arg)
{
    (void)arg;
    cl_uthread_id id;
    executed = 0;
    CHECK_EQ(cl_uthread_spawn(tree_joined, (void *)(uintptr_t)depth, &id), 0);
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(executed, nodes(depth));
    executed = 0;
    CHECK_EQ(cl_wait_group_add(&group, 1), 0);
    CHECK_EQ(cl_uthread_spawn(tree_detached, (void *)(uintptr_t)depth, NULL), 0);
    CHECK_EQ(cl_wait_group_wait(&group), 0);
    CHECK_EQ(executed, nodes(depth));
}

/* Jobs, all started on one kthread, that keep theirs until each kthread has one: so all others must be woken and steal,
 * one after the other, without any help from the clock. There is no deadline here: how soon a kthread gets a core of a
 * busy machine is not ours, that it is woken at all is, and a wake-up that is lost hangs the program, which its runner
 * ends. */
static uint64_t ends;

static bool all_have_one(unsigned n_kthreads)
{
    for (unsigned k = 0; k < n_kthreads; k++)
        if (!__atomic_load_n(&per_kthread[k], __ATOMIC_RELAXED))
            return false;
    return true;
}

static void long_job(void *arg)
{
    unsigned n_kthreads = cl_sched_kthreads(cl_sched_self());
    __atomic_fetch_add(&per_kthread[cl_kthread_index()], 1, __ATOMIC_RELAXED);
    while (!all_have_one(n_kthreads))
        sched_yield();
    __atomic_fetch_add(&ends, 1, __ATOMIC_RELAXED);
    cl_wait_group_done(arg);
}

static void spread(void *arg)
{
    struct cl_wait_group *g = arg;
    memset(per_kthread, 0, sizeof per_kthread);
    CHECK_EQ(cl_wait_group_add(g, 200), 0);
    for (unsigned i = 0; i < 200; i++)
        CHECK_EQ(cl_uthread_spawn(long_job, g, NULL), 0);
    CHECK_EQ(cl_wait_group_wait(g), 0);
    CHECK_EQ(ends, 200);
}

static unsigned mappings(void)
{
    unsigned lines = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    for (int c; f && (c = fgetc(f)) != EOF;)
        lines += c == '\n';
    if (f)
        fclose(f);
    return lines;
}

static void once(const struct cl_sched_config *c)
{
    static struct cl_wait_group g;
    struct cl_sched *s = sched_started(c);
    ends = 0;
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    CHECK_EQ(cl_sched_run(s, spread, &g), 0);
    uint64_t ran = 0;
    for (unsigned k = 0; k < c->n_kthreads; k++) {
        printf("kthread %u ran %llu of 200 long jobs\n", k, (unsigned long long)per_kthread[k]);
        ran += per_kthread[k];
    }
    CHECK_EQ(ran, 200);
    sched_stop_clean(s);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    depth = argc > 3 ? (unsigned)atoi(argv[3]) : 7;
    once(&c);
    unsigned before = mappings();
    once(&c);
    once(&c);
    printf("mappings %u, then %u\n", before, mappings());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(mappings() <= before + 4); /* pthread keeps a few stacks in a cache of its own */
#endif
    return 0;
}
