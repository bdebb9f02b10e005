/* One owner that pushes and pops, thieves that steal: every uthread is taken exactly once, by whomever; and what the
 * owner wrote into it before the push is seen by the taker. Usage: runq_stress THIEVES ITEMS SEED */
#include "check.h"
#include "libos/sched/runq.h"

#include <pthread.h>
#include <sched.h>

static struct cl_uthread *objects;
static struct cl_runq owner_q;
static uint32_t items, *taken;
static uint32_t done;

static void take(struct cl_uthread *t)
{
    CHECK_EQ((uintptr_t)t->arg, t->index * 3u + 1); /* plain: TSan looks at the order */
    CHECK_EQ(__atomic_fetch_add(&taken[t->index], 1, __ATOMIC_RELAXED), 0);
}

static void *thief(void *arg)
{
    struct cl_runq *own = arg;
    for (;;) {
        bool last = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
        unsigned n;
        struct cl_uthread *t = cl_runq_steal(own, &owner_q, &n);
        for (; t; t = cl_runq_pop(own))
            take(t);
        if (last && !cl_runq_len(&owner_q))
            return NULL;
        sched_yield();
    }
}

int main(int argc, char **argv)
{
    int n_thieves = argc > 1 ? atoi(argv[1]) : 3;
    items = argc > 2 ? (uint32_t)atoi(argv[2]) : 200000;
    uint64_t state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    pthread_t threads[8];
    struct cl_runq *own = aligned_alloc(128, sizeof *own * (size_t)n_thieves);
    memset(own, 0, sizeof *own * (size_t)n_thieves);
    objects = aligned_alloc(64, sizeof *objects * items);
    taken = calloc(items, sizeof *taken);
    owner_q.shared = true;
    for (int i = 0; i < n_thieves; i++) {
        own[i].shared = true;
        CHECK_EQ(pthread_create(&threads[i], NULL, thief, &own[i]), 0);
    }
    for (uint32_t i = 0; i < items;) {
        unsigned burst = next_random(&state) % 400, pops = next_random(&state) % 300;
        for (; burst && i < items; burst--, i++) {
            objects[i].index = i;
            objects[i].arg = (void *)(uintptr_t)(i * 3u + 1);
            cl_runq_push(&owner_q, &objects[i]);
        }
        struct cl_uthread *t;
        for (; pops && (t = cl_runq_pop(&owner_q)); pops--)
            take(t);
    }
    for (struct cl_uthread *t; (t = cl_runq_pop(&owner_q));)
        take(t);
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < n_thieves; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < items; i++)
        CHECK_EQ(taken[i], 1);
    free(objects);
    free(own);
    free(taken);
    return 0;
}
