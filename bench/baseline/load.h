/* What the loads of baselines share, each of which is a program by itself: the bounds of their puts and the keys they
 * put to, their clock, and how they end with a reason. */
#ifndef CORELANE_BENCH_BASELINE_LOAD_H
#define CORELANE_BENCH_BASELINE_LOAD_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_CLIENTS 1024
#define MAX_KEY 250               /* bytes, as in memcached */
#define MAX_LATENCIES (16u << 20) /* of one run */
#define KEYS 1000                 /* put to in turn */

/* Say on stderr what could not be done and why, and exit with 1. */
static inline _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
