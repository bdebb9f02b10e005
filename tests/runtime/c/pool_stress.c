/* Threads take buffers, hand them to each other and give them back through their own caches: no index has two owners at
 * any time and none is lost. Usage: pool_stress CAPACITY THREADS ROUNDS SEED */
#include "runtime/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define BURST 32
#define MAILBOXES 64

static struct cl_pool *pool;
static uint32_t capacity, n_threads, rounds;
static uint64_t seed;
static uint32_t *owned;             /* per index: 1 while somebody holds it */
static uint32_t mailbox[MAILBOXES]; /* index + 1, or 0: where threads leave buffers for each other */
static uint32_t wrong;

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

/* Put buffers back, half of them through a mailbox that any other thread may empty. */
static void give_back(unsigned cache, uint32_t *held, unsigned n, uint64_t *state)
{
    for (unsigned i = 0; i < n; i++) {
        uint32_t back = held[i];
        if (next(state) & 1) {
            /* Acquire-release: the owner before us wrote to the buffer's `owned`. */
            uint32_t other = cl_exchange(&mailbox[next(state) % MAILBOXES], back + 1);
            if (!other)
                continue;
            back = other - 1;
        }
        if (!cl_exchange(&owned[back], 0))
            cl_store_relaxed(&wrong, 1);
        cl_pool_put(pool, cache, &back, 1);
    }
}

static void *work(void *arg)
{
    unsigned cache = (unsigned)(uintptr_t)arg;
    uint64_t state = seed + cache * 7919;
    uint32_t held[BURST];
    for (uint32_t r = 0; r < rounds / n_threads; r++) {
        unsigned n = cl_pool_get(pool, cache, held, next(&state) % BURST + 1);
        for (unsigned i = 0; i < n; i++)
            if (held[i] >= capacity || cl_exchange(&owned[held[i]], 1))
                cl_store_relaxed(&wrong, 1);
        if (n == 0)
            sched_yield();
        give_back(cache, held, n, &state);
        if (cl_pool_available(pool) > capacity + n_threads * BURST)
            cl_store_relaxed(&wrong, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    capacity = (uint32_t)strtoul(argv[1], NULL, 0);
    n_threads = (uint32_t)strtoul(argv[2], NULL, 0);
    rounds = (uint32_t)strtoul(argv[3], NULL, 0);
    seed = strtoull(argv[4], NULL, 0);
    pool = cl_pool_new(0, capacity, n_threads);
    owned = calloc(capacity, sizeof *owned);
    pthread_t threads[16];
    for (uintptr_t i = 0; i < n_threads; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    uint32_t left = 0;
    for (unsigned i = 0; i < MAILBOXES; i++)
        if (mailbox[i]) {
            uint32_t back = mailbox[i] - 1;
            cl_pool_put(pool, 0, &back, 1);
            left++;
        }
    uint32_t available = cl_pool_available(pool);
    bool bad = wrong || available != capacity || cl_pool_errors(pool);
    printf(bad ? "wrong: %u available of %u, two owners: %u\n" : "all %u back (%u by mailbox)\n",
           bad ? available : capacity, bad ? capacity : left, wrong);
    cl_pool_delete(pool);
    free(owned);
    return bad;
}
