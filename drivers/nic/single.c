/* See single.h. */
#include "single.h"

#include <errno.h>
#include <sys/mman.h>

int cl_single_init(struct cl_single_nic *s)
{
    s->stride = s->nic.buffer_bytes | CL_CACHELINE;
    s->base_len = s->nic.n_buffers * s->stride;
    s->pool = cl_pool_new(0, s->nic.n_buffers, 1);
    void *base = mmap(NULL, s->base_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->base = base == MAP_FAILED ? NULL : base;
    s->parker = (struct cl_parker){.word = &s->word, .event_fd = -1};
    return s->pool && s->base ? 0 : -ENOMEM;
}

void cl_single_exit(struct cl_single_nic *s)
{
    cl_park_close_given(&s->parker);
    if (s->base)
        munmap(s->base, s->base_len);
    cl_pool_delete(s->pool);
}

unsigned cl_single_get(struct cl_single_nic *s, struct cl_frame *frames, unsigned n)
{
    uint32_t index[CL_NIC_BURST];
    unsigned got = cl_pool_get(s->pool, 0, index, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < got; i++)
        frames[i] = (struct cl_frame){
            .data = cl_single_buffer(s, index[i]), .buf = index[i], .room = (uint16_t)s->nic.buffer_bytes};
    return got;
}

unsigned cl_single_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_single_nic *s = (struct cl_single_nic *)nic;
    (void)queue;
    unsigned got = cl_single_get(s, frames, n);
    cl_count(&s->stats.alloc_short, got < cl_min(n, (unsigned)CL_NIC_BURST));
    return got;
}

void cl_single_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_single_nic *s = (struct cl_single_nic *)nic;
    (void)queue;
    for (unsigned i = 0; i < n; i++)
        cl_pool_put(s->pool, 0, &frames[i].buf, 1);
}

struct cl_parker *cl_single_parker(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return &((struct cl_single_nic *)nic)->parker;
}

void cl_single_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    (void)queue;
    cl_nic_stats_read(&((struct cl_single_nic *)nic)->stats, out);
}

uint32_t cl_single_buffers_free(struct cl_nic *nic)
{
    return cl_pool_available(((struct cl_single_nic *)nic)->pool);
}

int cl_single_no_fd(struct cl_nic *nic, unsigned queue)
{
    (void)nic;
    (void)queue;
    return -1;
}

int cl_single_wait_until(struct cl_single_nic *s, uint64_t next_tsc, int64_t timeout_ns)
{
    const struct cl_clock *clock = s->nic.clock;
    uint64_t now = cl_clock_stamp(clock);
    if (next_tsc != UINT64_MAX) {
        int64_t left = next_tsc > now ? cl_ticks_to_ns(clock, (int64_t)(next_tsc - now)) + 1 : 0;
        timeout_ns = timeout_ns < 0 ? left : cl_min(timeout_ns, left);
    }
    cl_count(&s->stats.syscalls, timeout_ns != 0);
    cl_park_wait(&s->parker, timeout_ns);
    return 0;
}
