/* What the applications that share a core in the benchmarks do: a batch job, and a handler that notes when it was
 * called.
 *
 * The job multiplies two matrices of 32 by 32 doubles again and again (24 KB, most of an L1 cache, which it loses in
 * part to whoever had the core meanwhile). One product is one unit of work, counted in a page that the measuring
 * process maps: what is compared is work done, not CPU time. The very same function runs as a uthread with probes, as
 * one without, and in a plain thread on Linux. */
#ifndef CORELANE_BENCH_TENANT_LOOPS_H
#define CORELANE_BENCH_TENANT_LOOPS_H

#include <corelane/libos/runtime.h>

// cffi: begin
#define CL_TENANT_STAMPS 262144 /* power of two */
#define CL_TENANT_END 0xfffffffffffffffe

/* Shared by a tenant and who measures it. */
struct cl_tenant_page {
    /* Units done. Writer: the job (relaxed); reader: who measures. */
    uint64_t work CL_ALIGNED(64);
    /* Odd: the job works. Each turn has a number of its own, and a job that is spawned works until it changes: while it
     * is even an application has neither a uthread nor a timer, and cedes its core for good. Writer: who measures, and
     * in the end the tenant (CL_TENANT_END); readers: the tenant and the job; relaxed. */
    uint64_t turn CL_ALIGNED(64);
    /* Calls of the handler, and cl_tsc() at its beginning, of the last ones. Writer: the handler (release after the
     * stamp); reader: who measures (acquire). */
    uint64_t calls CL_ALIGNED(64);
    uint64_t stamps[262144];
};

#define CL_TENANT_PROBES 0 /* a probe about every 100 ns */
#define CL_TENANT_PLAIN 1  /* none */
#define CL_TENANT_DEAF 2   /* none, and the thread blocks all signals */

/* Run the job on a uthread of a runtime that has started, for this turn. */
CL_API int cl_tenant_spawn(struct cl_runtime *rt, struct cl_tenant_page *page, uint32_t looks);
/* Run it on the calling thread, without probes, for this turn. */
CL_API void cl_tenant_run(struct cl_tenant_page *page);
/* A handler (corelane/libos/udp.h) that echoes; arg: the page. */
CL_API int64_t cl_tenant_handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg);
// cffi: end

#endif
