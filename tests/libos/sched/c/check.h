/* What the scheduler's test programs share: a check that names its line, a scheduler from argv, a watchdog. */
#ifndef TESTS_LIBOS_SCHED_CHECK_H
#define TESTS_LIBOS_SCHED_CHECK_H

#include <corelane/libos/sched.h>
#include <corelane/libos/sync.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/uthread.h>

#include "tests/support/c/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline struct cl_sched *sched_new(const struct cl_sched_config *config)
{
    char err[256] = "";
    struct cl_sched *s;
    int rc = cl_sched_new(config, &s, err);
    if (rc)
        fprintf(stderr, "cl_sched_new: %d %s\n", rc, err);
    CHECK_EQ(rc, 0);
    return s;
}

static inline struct cl_sched *sched_started(const struct cl_sched_config *config)
{
    char err[256] = "";
    struct cl_sched *s = sched_new(config);
    int rc = cl_sched_start(s, err);
    if (rc)
        fprintf(stderr, "cl_sched_start: %d %s\n", rc, err);
    CHECK_EQ(rc, 0);
    alarm(100); /* a lost wake-up hangs: die and say so by the signal */
    return s;
}

/* KTHREADS MODE from argv, watch off: what is lost stays lost. */
static inline struct cl_sched_config config_from(int argc, char **argv)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.n_kthreads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    const char *mode = argc > 2 ? argv[2] : "block";
    c.poll = !strcmp(mode, "spin") ? CL_SCHED_SPIN : !strcmp(mode, "adaptive") ? CL_SCHED_ADAPTIVE : CL_SCHED_BLOCK;
    c.watch_ns = 0;
    return c;
}

/* Everything that was started has ended, and what was stolen from one was stolen by one. */
static inline void sched_stop_checked(struct cl_sched *s)
{
    CHECK_EQ(cl_sched_stop(s, 60000000000), 0);
    uint64_t spawned = 0, finished = 0;
    for (unsigned k = 0; k < cl_sched_kthreads(s); k++) {
        struct cl_sched_stats st;
        CHECK_EQ(cl_sched_stats(s, k, &st), 0);
        spawned += st.spawned;
        finished += st.finished;
        printf("kthread %u: switches %llu stolen %llu timers %llu parks %llu wakes %llu\n", k,
               (unsigned long long)st.switches, (unsigned long long)st.stolen_uthreads, (unsigned long long)st.timers,
               (unsigned long long)st.parks, (unsigned long long)st.wakes_sent);
    }
    CHECK_EQ(spawned, finished);
}

static inline void sched_stop_clean(struct cl_sched *s)
{
    sched_stop_checked(s);
    cl_sched_delete(s);
}

#endif
