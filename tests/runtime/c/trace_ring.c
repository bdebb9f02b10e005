/* A writer that never waits, and readers that come, copy and end at any point: what a reader keeps is whole, of the
 * number that it has, and in order; and with what it counts as lost, all of them. Usage: trace_ring RECORDS_OF_THE_RING
 * RECORDS */
#include "runtime/trace.h"

#include "tests/support/c/check.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define READERS 2
#define READS 40 /* of one reader, before another takes its place */
#define ROOM 64

static void *base;
static uint64_t bytes, written;
static uint32_t size, over;

/* Record `number`: its words tell it, each in its way. */
static void make(uint64_t number, uint64_t words[CL_TRACE_WORDS])
{
    struct cl_trace_core c = {.kind = CL_TRACE_CORE, .n = 1, .begin = number, .end = number + 1};
    memcpy(words, &c, sizeof c);
    for (unsigned i = 4; i < CL_TRACE_WORDS; i++)
        words[i] = number * i;
}

static void *write_all(void *arg)
{
    struct cl_trace_ring *ring = cl_trace_ring_of(base, size, 0);
    uint64_t state = 88172645463325252ull, words[CL_TRACE_WORDS];
    (void)arg;
    for (uint64_t n = 0; n < written;) {
        uint64_t ahead = cl_min(1 + next_random(&state) % CL_TRACE_AHEAD, written - n);
        for (uint64_t i = 0; i < ahead; i++) {
            make(n + i, words);
            cl_trace_put(ring, size, n + i, words);
        }
        n += ahead;
        cl_trace_publish(ring, n);
        if (next_random(&state) % 64 == 0)
            sched_yield();
    }
    cl_store_release(&over, 1);
    return NULL;
}

/* From *next on, so many times or until all is read. */
static void read_some(uint64_t *next, uint64_t *kept, uint64_t *lost)
{
    static __thread uint64_t records[ROOM][CL_TRACE_WORDS];
    for (unsigned i = 0; i < READS; i++) {
        uint64_t before = *next, garbage = 0, words[CL_TRACE_WORDS];
        bool last = cl_load_acquire(&over);
        uint32_t n = cl_trace_read(base, bytes, 0, next, records, ROOM, lost, &garbage);
        CHECK_EQ(garbage, 0);
        for (uint32_t k = 0; k < n; k++) {
            uint64_t number = records[k][2];
            CHECK(number >= before && number < *next && (k == 0 || number > records[k - 1][2]));
            make(number, words);
            CHECK(!memcmp(words, records[k], sizeof words), "record %llu is torn", (unsigned long long)number);
        }
        *kept += n;
        if (last && *next == written)
            return;
        if (n == 0)
            sched_yield();
    }
}

/* A reader is a position; who holds it may end after any read, and another goes on, or begins anew. */
static void *read_on(void *arg)
{
    uint64_t next = 0, kept = 0, lost = 0;
    (void)arg;
    while (next < written) {
        read_some(&next, &kept, &lost);
        CHECK_EQ(kept + lost, next);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t writer, readers[READERS];
    CHECK(argc == 3);
    size = (uint32_t)atoi(argv[1]);
    written = strtoull(argv[2], NULL, 10);
    bytes = (uint64_t)cl_trace_bytes(1, size);
    base = aligned_alloc(CL_TRACE_PAGE, bytes);
    CHECK(base);
    memset(base, 0, bytes);
    *(struct cl_trace_header *)base = (struct cl_trace_header){.magic = CL_TRACE_MAGIC,
                                                               .version = CL_TRACE_VERSION,
                                                               .n_rings = 1,
                                                               .ring_records = size,
                                                               .hz = 1000000000,
                                                               .total_bytes = bytes};
    char err[256];
    CHECK(cl_trace_check(base, bytes, err) == 0, "%s", err);
    for (unsigned i = 0; i < READERS; i++)
        CHECK_EQ(pthread_create(&readers[i], NULL, read_on, NULL), 0);
    CHECK_EQ(pthread_create(&writer, NULL, write_all, NULL), 0);
    CHECK_EQ(pthread_join(writer, NULL), 0);
    for (unsigned i = 0; i < READERS; i++)
        CHECK_EQ(pthread_join(readers[i], NULL), 0);
    free(base);
    puts("ok");
    return 0;
}
