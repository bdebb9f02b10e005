/* Two runtimes on the two ends of a memory link, and uthreads that a test waits for. */
#ifndef TESTS_LIBOS_PAIR_H
#define TESTS_LIBOS_PAIR_H

#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>

#include "tests/support/c/check.h"

#define MS 1000000ll
#define IP_A 0x0a4d0001u
#define IP_B 0x0a4d0002u

static struct cl_nic *ends[2];
static struct cl_runtime *rt_a, *rt_b;
static struct cl_wait_group all; /* whoever is waited for says that it is done */
static uint32_t buffers;         /* of both pools, before anything runs */
static char err[256];

static inline struct cl_runtime *pair_end(unsigned end, unsigned kthreads, uint32_t quantum_us)
{
    struct cl_runtime_config config = {.nic = ends[end], .kthreads = kthreads, .quantum_us = quantum_us};
    struct cl_runtime *rt = NULL;
    CHECK(cl_runtime_new(&config, &rt, err) == 0, "%s", err);
    return rt;
}

/* The quantum is B's. */
static inline void pair_new(unsigned kthreads_a, unsigned kthreads_b, uint32_t quantum_us)
{
    struct cl_memory_config link = {.queues = {kthreads_a, kthreads_b}, .ipv4 = {IP_A, IP_B}, .ipv4_prefix = 16};
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    buffers = cl_nic_buffers_free(ends[0]) + cl_nic_buffers_free(ends[1]);
    rt_a = pair_end(0, kthreads_a, 0);
    rt_b = pair_end(1, kthreads_b, quantum_us);
    cl_wait_group_init(&all);
}

static inline void pair_start(void)
{
    CHECK(cl_runtime_start(rt_a, err) == 0, "%s", err);
    CHECK(cl_runtime_start(rt_b, err) == 0, "%s", err);
}

static void pair_wait_all(void *arg)
{
    (void)arg;
    cl_wait_group_wait(&all);
}

/* Until all are done; the caller is no uthread. */
static inline void pair_wait(void)
{
    CHECK(cl_sched_run(cl_runtime_sched(rt_a), pair_wait_all, NULL) == 0);
}

static inline void pair_stop(void)
{
    CHECK(cl_runtime_stop(rt_a, 10000 * MS) == 0);
    CHECK(cl_runtime_stop(rt_b, 10000 * MS) == 0);
}

/* The runtimes and the link; no buffer is lost. */
static inline void pair_delete(void)
{
    cl_runtime_delete(rt_a);
    cl_runtime_delete(rt_b);
    struct cl_frame f;
    for (unsigned e = 0; e < 2; e++) /* frames that came after the stop */
        for (unsigned q = 0; q < ends[e]->n_queues; q++)
            while (cl_nic_rx(ends[e], q, &f, 1))
                cl_nic_free(ends[e], q, &f, 1);
    CHECK_EQ(cl_nic_buffers_free(ends[0]) + cl_nic_buffers_free(ends[1]), buffers);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

#endif
