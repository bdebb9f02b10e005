/* What cl_pages_new gives. Usage: pages BYTES
 * Prints: where it begins within a large page, how many of its bytes are not 0, and the page faults of writing to all
 * of it. */
#include "runtime/pages.h"

#include "tests/support/c/check.h"

#include <stdlib.h>
#include <sys/resource.h>

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    uint64_t bytes = strtoull(argv[1], NULL, 0), nonzero = 0;
    volatile uint8_t *p = cl_pages_new(bytes);
    if (!p) {
        printf("none\n");
        return 0;
    }
    long before = faults();
    for (uint64_t i = 0; i < bytes; i += 4096)
        p[i] = 0;
    long taken = faults() - before;
    for (uint64_t i = 0; i < bytes; i++)
        nonzero += p[i] != 0;
    printf("%llu %llu %ld\n", (unsigned long long)((uintptr_t)p % CL_PAGES_LARGE), (unsigned long long)nonzero, taken);
    free((void *)p);
    return 0;
}
