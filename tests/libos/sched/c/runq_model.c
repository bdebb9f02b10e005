/* Run queues against a model, one thread: random pushes, pops and steals between two queues; every uthread comes out
 * once and the oldest first. Usage: runq_model SHARED OPERATIONS SEED */
#include "check.h"
#include "libos/sched/runq.h"

#define N 4096

static struct cl_uthread objects[N];
static struct cl_runq q[2];

/* The model: two plain arrays, oldest first. */
static struct {
    uint32_t items[N], n;
} model[2];

static uint32_t model_take(unsigned which)
{
    uint32_t item = model[which].items[0];
    memmove(&model[which].items[0], &model[which].items[1], --model[which].n * sizeof item);
    return item;
}

static void pop(unsigned which, uint32_t *free_list, uint32_t *n_free)
{
    struct cl_uthread *t = cl_runq_pop(&q[which]);
    CHECK_EQ(t != NULL, model[which].n != 0);
    if (t) {
        CHECK_EQ(t->index, model_take(which));
        free_list[(*n_free)++] = t->index;
    }
}

/* The thief's queue is empty, so what was taken is what is there afterwards. */
static void steal(unsigned thief, uint32_t *free_list, uint32_t *n_free)
{
    unsigned victim = !thief, n;
    uint32_t in_ring = q[victim].tail - q[victim].head, had = model[victim].n;
    struct cl_uthread *t = cl_runq_steal(&q[thief], &q[victim], &n);
    CHECK_EQ(t != NULL, had != 0);
    if (!t)
        return;
    CHECK_EQ(n, in_ring ? (in_ring + 1) / 2 : cl_min(CL_RUNQ_REFILL, (had + 1) / 2));
    CHECK_EQ(t->index, model_take(victim));
    free_list[(*n_free)++] = t->index;
    for (unsigned i = 1; i < n; i++)
        model[thief].items[model[thief].n++] = model_take(victim);
}

int main(int argc, char **argv)
{
    bool shared = argc > 1 && atoi(argv[1]);
    unsigned operations = argc > 2 ? (unsigned)atoi(argv[2]) : 200000;
    uint64_t state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    uint32_t free_list[N], n_free = 0, steals = 0, most = 0;
    CHECK(state != 0);
    q[0].shared = q[1].shared = shared;
    for (uint32_t i = 0; i < N; i++) {
        objects[i].index = i;
        free_list[n_free++] = i;
    }
    q[0].head = q[0].tail = UINT32_MAX - 1000; /* the counters wrap early on */
    for (unsigned i = 0; i < operations; i++) {
        unsigned which = next_random(&state) % 2, bias = i / 3000 % 2 ? 60 : 45, dice = next_random(&state) % 100;
        if (dice < bias && n_free) {
            uint32_t item = free_list[--n_free];
            cl_runq_push(&q[which], &objects[item]);
            model[which].items[model[which].n++] = item;
        } else if (dice < 98 || !shared || model[which].n) {
            pop(which, free_list, &n_free);
        } else {
            steal(which, free_list, &n_free);
            steals++;
        }
        CHECK_EQ(cl_runq_len(&q[which]), model[which].n);
        most = cl_max(most, model[which].n);
    }
    for (unsigned which = 0; which < 2; which++)
        while (model[which].n)
            pop(which, free_list, &n_free);
    CHECK_EQ(n_free, N);
    CHECK(most > 2 * CL_RUNQ_SIZE); /* the overflow list was in it */
    CHECK(!shared || steals > 0);
    return 0;
}
