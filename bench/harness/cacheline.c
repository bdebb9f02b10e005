/* See cacheline.h. `turn` even: it is a's turn; odd: b's. Relaxed order is enough, the word itself is the message. */
#include "cacheline.h"
#include "pinned.h"

#define STOP UINT64_MAX
#define CHECK_EVERY 65536

struct pair {
    uint64_t turn CL_ALIGNED(CL_CACHELINE); /* writers: the thread whose turn it is; and a, to stop */
    uint64_t end_wall_ns CL_ALIGNED(CL_CACHELINE);
    unsigned rounds, batches, done;
    double *out_ns;
    pthread_t a, b;
};

/* Spin until the turn is `want`. False when stopped, or when the time is up: the other thread may never have run. */
static bool await_turn(struct pair *p, uint64_t want)
{
    for (uint64_t spins = 1;; spins++) {
        uint64_t seen = cl_load_relaxed(&p->turn);
        if (cl_likely(seen == want))
            return true;
        if (seen == STOP || (spins % CHECK_EVERY == 0 && cl_bench_wall_ns() > p->end_wall_ns))
            return false;
    }
}

static void *answer(void *arg)
{
    struct pair *p = arg;
    for (uint64_t turn = 1; await_turn(p, turn); turn += 2)
        cl_store_relaxed(&p->turn, turn + 1);
    return NULL;
}

static void *ask(void *arg)
{
    struct pair *p = arg;
    uint64_t turn = 0;
    for (unsigned b = 0; b < p->batches; b++) {
        uint64_t start = cl_bench_wall_ns();
        for (unsigned i = 0; i < p->rounds; i++, turn += 2) {
            cl_store_relaxed(&p->turn, turn + 1);
            if (!await_turn(p, turn + 2))
                goto out;
        }
        uint64_t now = cl_bench_wall_ns();
        p->out_ns[p->done++] = (double)(now - start) / p->rounds;
        if (now > p->end_wall_ns)
            break;
    }
out:
    cl_store_relaxed(&p->turn, STOP);
    return NULL;
}

int cl_cacheline_roundtrip(int cpu_a, int cpu_b, unsigned rounds, unsigned batches, uint64_t limit_ns, double *out_ns,
                           char *err)
{
    struct pair p = {.rounds = rounds, .batches = batches, .out_ns = out_ns};
    if (cpu_a == cpu_b || rounds == 0 || batches == 0) {
        snprintf(err, CL_BENCH_ERR_BYTES, "a cache-line round trip needs two different cpus and at least one round");
        return -EINVAL;
    }
    p.end_wall_ns = cl_bench_wall_ns() + limit_ns;
    int rc = cl_bench_start_pinned(&p.b, cpu_b, answer, &p, err);
    if (rc)
        return rc;
    rc = cl_bench_start_pinned(&p.a, cpu_a, ask, &p, err);
    if (rc)
        cl_store_relaxed(&p.turn, STOP);
    else
        pthread_join(p.a, NULL);
    pthread_join(p.b, NULL);
    if (!rc && p.done == 0) {
        snprintf(err, CL_BENCH_ERR_BYTES, "cpus %d and %d did not run together within the time given", cpu_a, cpu_b);
        return -ETIMEDOUT;
    }
    return rc ? rc : (int)p.done;
}
