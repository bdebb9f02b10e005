/* Queues by type: their kthread puts and takes by the rule while siblings do. Every entry is taken once, whole, and
 * those of one type in order by each taker. Usage: typed_stress SIBLINGS ENTRIES SEED. Under TSan in `make
 * test-tsan`. */
#include "libos/net/typed.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPES 5

static struct cl_types types;
static struct cl_typed queues;
static uint32_t done;
static uint8_t *taken;

struct taker {
    pthread_t thread;
    uint64_t n, last[TYPES];
    const char *wrong;
};

/* The clock is the number of what was put last: entry i came at i. */
static bool take_next(struct taker *t, uint64_t now)
{
    struct cl_rx_item item;
    int type = cl_typed_choose(&queues, now);
    if (type < 0 || !cl_typed_take(&queues, (unsigned)type, &item))
        return false;
    uint64_t i = item.rx_tsc;
    if (item.frame.buf != (uint32_t)i || item.payload_len != (unsigned)type)
        t->wrong = "an entry is torn, or of another queue";
    else if (i < t->last[type])
        t->wrong = "entries of one type and taker are out of order";
    else if (__atomic_fetch_add(&taken[i], 1, __ATOMIC_RELAXED))
        t->wrong = "an entry was taken twice";
    t->last[type] = i;
    t->n++;
    return true;
}

static void *sibling(void *arg)
{
    struct taker *t = arg;
    while (!t->wrong) {
        bool end = cl_load_acquire(&done); /* acquire: what was put before is seen below */
        if (!take_next(t, cl_load_relaxed(&queues.put)) && end && cl_typed_count(&queues) == 0)
            break;
    }
    return NULL;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

int main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    uint64_t total = argc > 2 ? strtoull(argv[2], NULL, 0) : 200000, sum = 0;
    uint64_t state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    struct taker own = {0}, *siblings = calloc(n, sizeof *siblings);
    taken = calloc(total, 1);
    queues.types = &types;
    for (unsigned i = 0; i < TYPES; i++) {
        types.target_ticks[i] = 1 + i * i;
        queues.ring[i] = cl_inbox_new(CL_UDP_TYPE_QUEUE);
    }
    cl_store_release(&types.n, TYPES);
    for (unsigned i = 0; i < n; i++)
        pthread_create(&siblings[i].thread, NULL, sibling, &siblings[i]);
    for (uint64_t i = 0; i < total && !own.wrong;) {
        unsigned type = (unsigned)(next_random(&state) % TYPES);
        struct cl_rx_item item = {.frame.buf = (uint32_t)i, .payload_len = (uint16_t)type, .rx_tsc = i};
        if (cl_typed_put(&queues, type, &item))
            i++;
        else
            sched_yield();
        if (next_random(&state) % 4 == 0)
            take_next(&own, i);
    }
    cl_store_release(&done, 1);
    const char *wrong = own.wrong;
    for (unsigned i = 0; i < n; i++) {
        pthread_join(siblings[i].thread, NULL);
        sum += siblings[i].n;
        wrong = wrong ? wrong : siblings[i].wrong;
    }
    if (!wrong && (sum + own.n != total || queues.put != queues.taken || queues.put != (uint32_t)total))
        wrong = "entries were lost, or counted wrong";
    printf("%s\n", wrong ? wrong : "ok");
    for (unsigned i = 0; i < TYPES; i++)
        free(queues.ring[i]);
    free(siblings);
    free(taken);
    return wrong != NULL;
}
