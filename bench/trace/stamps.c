/* See stamps.h. */
#include "stamps.h"

uint64_t cl_bench_stamps(uint32_t n)
{
    uint64_t from = cl_tsc_ordered();
    for (uint32_t i = 0; i < n; i++) {
        uint64_t t = cl_tsc();
        __asm__ volatile("" ::"r"(t));
    }
    return cl_tsc_ordered() - from;
}
