/* Latency of services in memory that another thread reads all the while (runtime/latency.h). Prints "consistent". */
#include "runtime/latency.h"

#include "tests/support/c/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KTHREADS 3u
#define RECORDS 50000u

static void *part;
static uint32_t done;

static uint64_t counted(const struct cl_latency *at)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < CL_LATENCY_BUCKETS; i++)
        sum += cl_load_relaxed(&at->counts[i]);
    return sum;
}

static void *reader(void *arg)
{
    (void)arg;
    uint64_t last = 0;
    for (bool end = false; !end;) {
        end = cl_load_acquire(&done); /* acquire: all that was recorded before is in this look */
        uint64_t n = 0;
        for (uint32_t k = 0; k < KTHREADS; k++)
            n += counted(cl_latency_of(part, k, 1));
        CHECK(n >= last && n <= KTHREADS * RECORDS);
        last = n;
    }
    CHECK_EQ(last, KTHREADS * RECORDS);
    return NULL;
}

static void *writer(void *arg)
{
    struct cl_latency *at = cl_latency_of(part, (uint32_t)(uintptr_t)arg, 1);
    for (uint64_t i = 0; i < RECORDS; i++) {
        cl_latency_record(at, i * 1000003 % 100000000);
        if (i % 10 == 9)
            cl_latency_count(at, 10);
    }
    return NULL;
}

static void names(void)
{
    CHECK_EQ(cl_latency_name(part, "udp:9000"), 0);
    CHECK_EQ(cl_latency_name(part, "a name that is longer than a name may be"), 1);
    for (int i = 2; i < CL_LATENCY_SERVICES; i++)
        CHECK_EQ(cl_latency_name(part, "x"), i);
    CHECK_EQ(cl_latency_name(part, "one too many"), -1);
    const struct cl_latency_names *told = part;
    CHECK_EQ(told->n, CL_LATENCY_SERVICES);
    CHECK_EQ(strcmp(told->service[0].text, "udp:9000"), 0);
    CHECK_EQ(strlen(told->service[1].text), sizeof told->service[1].text - 1);
}

int main(void)
{
    uint64_t bytes = cl_latency_bytes(KTHREADS);
    CHECK((part = aligned_alloc(CL_LATENCY_PAGE, bytes)) != NULL);
    memset(part, 0, bytes);
    names();
    pthread_t threads[KTHREADS + 1];
    for (uint32_t k = 0; k < KTHREADS; k++)
        cl_latency_init(cl_latency_of(part, k, 1));
    struct cl_latency *first = cl_latency_of(part, 0, 1), *last = cl_latency_of(part, KTHREADS - 1, 7);
    CHECK_EQ(first->hist.n_buckets, CL_LATENCY_BUCKETS);
    CHECK_EQ(cl_hist_bytes(CL_LATENCY_DIGITS, CL_LATENCY_LIMIT_NS), sizeof first->hist + sizeof first->counts);
    CHECK_EQ((uint8_t *)(last + 1) - (uint8_t *)part, bytes);
    CHECK_EQ(pthread_create(&threads[KTHREADS], NULL, reader, NULL), 0);
    for (uint32_t k = 0; k < KTHREADS; k++)
        CHECK_EQ(pthread_create(&threads[k], NULL, writer, (void *)(uintptr_t)k), 0);
    for (uint32_t k = 0; k < KTHREADS; k++)
        CHECK_EQ(pthread_join(threads[k], NULL), 0);
    cl_store_release(&done, 1);
    CHECK_EQ(pthread_join(threads[KTHREADS], NULL), 0);
    CHECK_EQ(first->requests, RECORDS);
    CHECK_EQ(cl_hist_count(&first->hist), RECORDS);
    cl_latency_record(first, UINT64_MAX); /* beyond the limit: in the last bucket */
    CHECK_EQ(first->counts[CL_LATENCY_BUCKETS - 1], 1);
    CHECK_EQ(last->requests, 0);
    free(part);
    puts("consistent");
    return 0;
}
