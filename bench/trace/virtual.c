/* See virtual.h. */
#include "virtual.h"

#include <corelane/libos/log.h>
#include "../../drivers/blk/fault.h"
#include "../../drivers/blk/memory.h"
#include "../../libos/internal.h"
#include "../../runtime/trace.h"

#include <errno.h>

struct cl_runtime *cl_bench_virtual_host(struct cl_stepper *stepper, struct cl_nic *nic, uint32_t ipv4, uint32_t trace,
                                         int *rc, char *err)
{
    struct cl_runtime_config c = {.nic = nic,
                                  .ipv4 = ipv4,
                                  .ipv4_prefix = 24,
                                  .name = "delays",
                                  .trace = trace,
                                  .trace_records = CL_BENCH_VIRTUAL_RECORDS};
    struct cl_runtime *rt = NULL;
    *rc = *rc ? *rc : cl_runtime_new(&c, &rt, err);
    *rc = *rc ? *rc : cl_stepper_add_runtime(stepper, rt, err);
    return rt;
}

int64_t cl_bench_virtual_records(const struct cl_runtime *rt, void *out, uint32_t room)
{
    const struct cl_tracer *t = cl_trace_tracer(rt->trace, 0);
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(CL_BENCH_VIRTUAL_RECORDS, 0);
    uint64_t bytes = (uint64_t)cl_trace_bytes(1, CL_BENCH_VIRTUAL_RECORDS), next = 0, lost = 0, garbage = 0;
    uint32_t n = cl_trace_read(segment, bytes, 0, &next, out, room, &lost, &garbage);
    return lost || garbage ? -ENOBUFS : (int64_t)n;
}

static unsigned nothing(void *arg)
{
    (void)arg;
    return 0;
}

static uint64_t next_ns(void *arg)
{
    return cl_log_next_ns(((struct cl_bench_virtual_log *)arg)->log);
}

/* Until the log has nothing more to do for now. */
static void settle(struct cl_bench_virtual_log *l)
{
    while (cl_log_state(l->log) == CL_LOG_OPENING || cl_log_busy(l->log))
        if (cl_log_pump(l->log) == 0 && cl_log_next_ns(l->log) != UINT64_MAX)
            *l->now_ns = cl_max(*l->now_ns, cl_log_next_ns(l->log));
}

static struct cl_blk_fault_config takes(struct cl_bench_virtual_log *l, uint64_t ns)
{
    return (struct cl_blk_fault_config){
        .latency_min_ns = ns, .latency_max_ns = ns, .clock = cl_blk_fault_clock_word, .clock_arg = l->now_ns};
}

int cl_bench_virtual_log_open(struct cl_bench_virtual_log *l, struct cl_stepper *stepper, uint64_t *now_ns,
                              uint64_t bytes, uint64_t ns, char *err)
{
    *l = (struct cl_bench_virtual_log){.now_ns = now_ns, .part = {.step = nothing, .next_ns = next_ns, .arg = l}};
    struct cl_blk_memory_config memory = {.bytes = bytes};
    struct cl_blk_fault_config slow = takes(l, ns);
    struct cl_log_config config = {.confirm_ns = UINT64_MAX, .now_ns = cl_blk_fault_clock_word, .now_arg = now_ns};
    struct cl_log_layout layout = {.flush_bytes = 65536};
    int rc = cl_blk_memory_new(&memory, &l->disk, err);
    rc = rc ? rc : cl_log_format(l->disk, 0, &layout, err);
    rc = rc ? rc : cl_blk_fault_new(l->disk, &slow, &l->disk, err);
    config.blk = l->disk;
    rc = rc ? rc : cl_log_open(&config, &l->log, err);
    if (rc)
        return rc;
    settle(l);
    return cl_stepper_add(stepper, &l->part);
}

int cl_bench_virtual_log_takes(struct cl_bench_virtual_log *l, uint64_t ns, char *err)
{
    struct cl_blk_fault_config slow = takes(l, ns);
    return cl_blk_fault_set(l->disk, &slow, err);
}

void cl_bench_virtual_log_close(struct cl_bench_virtual_log *l)
{
    if (!l->log)
        return;
    cl_log_close_begin(l->log);
    settle(l);
    cl_log_discard(l->log);
    l->log = NULL;
}

void cl_bench_virtual_log_delete(struct cl_bench_virtual_log *l)
{
    cl_bench_virtual_log_close(l);
    if (l->disk)
        cl_blk_close(l->disk);
}
