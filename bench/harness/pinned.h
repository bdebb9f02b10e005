/* Starting a pinned helper thread, and the wall clock, for the measuring threads of bench/. */
#ifndef CORELANE_BENCH_HARNESS_PINNED_H
#define CORELANE_BENCH_HARNESS_PINNED_H

#include <corelane/runtime/base.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CL_BENCH_ERR_BYTES 256

static inline uint64_t cl_bench_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Start `body(arg)` on `cpu`. -errno with a reason in err; no thread then exists. */
static inline int cl_bench_start_pinned(pthread_t *thread, int cpu, void *(*body)(void *), void *arg, char *err)
{
    pthread_attr_t attr;
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        snprintf(err, CL_BENCH_ERR_BYTES, "cpu %d is out of range", cpu);
        return -EINVAL;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_attr_init(&attr);
    int rc = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    if (!rc)
        rc = pthread_create(thread, &attr, body, arg);
    pthread_attr_destroy(&attr);
    if (rc)
        snprintf(err, CL_BENCH_ERR_BYTES, "cannot start a thread on cpu %d: %s", cpu, strerror(rc));
    return -rc;
}

#endif
