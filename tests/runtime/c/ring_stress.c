/* Two threads, one ring: every descriptor arrives once, in order, whole, over many laps and across the wrap of the
 * 32-bit positions. Both sides yield when they cannot go on, so that it also ends on one core. Usage: ring_stress SIZE
 * MESSAGES BURST START (START: first position, to come near 2^32) */
#include "runtime/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t size, burst, start;
static uint64_t messages;
static struct cl_desc *slots;
static uint32_t shared_head CL_ALIGNED(CL_CACHELINE);

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

static void *produce(void *arg)
{
    struct cl_ring_tx tx;
    (void)arg;
    if (cl_ring_tx_init(&tx, slots, &shared_head, size))
        return "tx_init";
    tx.tail = tx.head_cache = start;
    for (uint64_t i = 0; i < messages;) {
        if (cl_ring_push(&tx, i, mix(i)))
            i++;
        else
            sched_yield();
    }
    return tx.lies ? "the producer saw an impossible head" : NULL;
}

static void *consume(void *arg)
{
    struct cl_ring_rx rx;
    struct cl_desc got[64];
    (void)arg;
    if (cl_ring_rx_init(&rx, slots, &shared_head, size))
        return "rx_init";
    rx.head = rx.published = start;
    for (uint64_t i = 0; i < messages;) {
        unsigned n = cl_ring_pop(&rx, got, burst);
        for (unsigned k = 0; k < n; k++, i++)
            if (got[k].word != i || got[k].payload != mix(i))
                return "out of order, twice, or torn";
        cl_ring_publish(&rx);
        if (n == 0)
            sched_yield();
    }
    return cl_ring_ready(&rx) ? "one descriptor too many" : NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    size = (uint32_t)strtoul(argv[1], NULL, 0);
    messages = strtoull(argv[2], NULL, 0);
    burst = (uint32_t)strtoul(argv[3], NULL, 0);
    start = (uint32_t)strtoul(argv[4], NULL, 0);
    slots = aligned_alloc(CL_CACHELINE, size < 4 ? CL_CACHELINE : size * sizeof *slots);
    /* As if `start` descriptors had gone through: slots hold the previous lap's phase. */
    for (uint32_t i = 0; i < size; i++) {
        uint32_t last = start - size + ((i - start) & (size - 1));
        slots[i] = (struct cl_desc){cl_ring_phase(size, last), 0};
    }
    shared_head = start;
    pthread_t threads[2];
    const char *wrong[2];
    pthread_create(&threads[0], NULL, produce, NULL);
    pthread_create(&threads[1], NULL, consume, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], (void **)&wrong[i]);
    free(slots);
    for (int i = 0; i < 2; i++)
        if (wrong[i]) {
            printf("%s\n", wrong[i]);
            return 1;
        }
    printf("%llu descriptors through %u slots\n", (unsigned long long)messages, size);
    return 0;
}
