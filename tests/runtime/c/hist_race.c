/* One thread records, another takes snapshots all the while: totals only grow, no count is torn, the end is exact. */
#include "runtime/hist.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct cl_hist *live;
static uint32_t done;

static void *reader(void *arg)
{
    struct cl_hist *copy = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    uint64_t last = 0, looks = 0, total = (uint64_t)(uintptr_t)arg;
    const char *wrong = NULL;
    while (!wrong) {
        bool last_look = cl_load_acquire(&done); /* acquire: everything recorded before is in this look */
        cl_hist_copy(copy, live);
        uint64_t n = cl_hist_count(copy);
        if (n < last || n > total)
            wrong = "the count went back or beyond what was recorded";
        else if (n && cl_hist_percentile(copy, 50) > 1100000)
            wrong = "a percentile outside of what was recorded";
        else if (last_look && n != total)
            wrong = "the last look misses something";
        last = n;
        looks++;
        if (last_look)
            break;
    }
    cl_hist_delete(copy);
    return (void *)wrong;
}

int main(int argc, char **argv)
{
    uint64_t total = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000;
    live = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, (void *)(uintptr_t)total);
    uint64_t x = 1;
    for (uint64_t i = 0; i < total; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        cl_hist_record(live, x >> 44); /* below 2^20 */
    }
    cl_store_release(&done, 1);
    void *wrong;
    pthread_join(thread, &wrong);
    cl_hist_delete(live);
    printf("%s\n", wrong ? (char *)wrong : "consistent");
    return wrong != NULL;
}
