/* A counter in shards: see corelane/libos/state.h. A kthread writes its own line only. What runs on it is not switched
 * away from between load and store: a signal that does so finds code of its own only (cl_preemptible_add). */
#include <corelane/libos/state.h>
#include <corelane/runtime/base.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct CL_ALIGNED(64) shard {
    int64_t sum; /* writer: its kthread; readers: all, relaxed */
};

struct cl_sharded_counter {
    struct shard own[CL_SCHED_MAX_KTHREADS]; /* of the kthreads of the first scheduler that adds */
    struct shard others;                     /* RMW */
    const struct cl_sched *sched;            /* by CAS, once */
};

int cl_sharded_counter_new(struct cl_sharded_counter **out)
{
    struct cl_sharded_counter *c = aligned_alloc(64, sizeof *c);
    if (!c)
        return -ENOMEM;
    memset(c, 0, sizeof *c);
    *out = c;
    return 0;
}

void cl_sharded_counter_delete(struct cl_sharded_counter *c)
{
    free(c);
}

/* Two schedulers have kthreads of the same number: the lines are of one of them. */
static bool is_home(struct cl_sharded_counter *c, const struct cl_sched *sched)
{
    const struct cl_sched *home = cl_load_relaxed(&c->sched);
    if (cl_likely(home == sched))
        return true;
    return !home && __atomic_compare_exchange_n(&c->sched, &home, sched, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void cl_sharded_counter_add(struct cl_sharded_counter *c, int64_t n)
{
    const struct cl_sched *sched = cl_sched_self();
    if (cl_likely(sched && is_home(c, sched))) {
        int64_t *sum = &c->own[cl_kthread_index()].sum;
        cl_store_relaxed(sum, cl_load_relaxed(sum) + n);
    } else {
        __atomic_fetch_add(&c->others.sum, n, __ATOMIC_RELAXED);
    }
}

int64_t cl_sharded_counter_read(const struct cl_sharded_counter *c)
{
    int64_t sum = cl_load_relaxed(&c->others.sum);
    for (unsigned k = 0; k < CL_SCHED_MAX_KTHREADS; k++)
        sum += cl_load_relaxed(&c->own[k].sum);
    return sum;
}
