/* What a runtime says of itself: counters of a kthread or of all, and what it is. */
#include "counters.h"
#include "internal.h"

#include <errno.h>
#include <string.h>

static void add_words(uint64_t *sum, const uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += cl_load_relaxed(&words[i]);
}

int cl_runtime_net_stats(const struct cl_runtime *rt, int k, struct cl_net_stats *out)
{
    *out = (struct cl_net_stats){0};
    if (k < -1 || k >= (int)rt->nif->n_queues)
        return -EINVAL;
    for (unsigned i = 0; i < rt->nif->n_queues; i++)
        if (k == -1 || k == (int)i)
            add_words((uint64_t *)out, (const uint64_t *)&rt->nif->queues[i].stats, sizeof *out / sizeof(uint64_t));
    return 0;
}

int cl_runtime_chunk_stats(const struct cl_runtime *rt, unsigned holder, struct cl_chunk_stats *out)
{
    if (holder >= CL_CHUNKS_HOLDERS)
        return -EINVAL;
    cl_chunks_stats(rt->nif->chunks, holder, out);
    return 0;
}

int cl_runtime_sched_stats(const struct cl_runtime *rt, int k, struct cl_sched_stats *out)
{
    struct cl_sched_stats one;
    *out = (struct cl_sched_stats){0};
    if (k < -1 || k >= (int)rt->nif->n_queues)
        return -EINVAL;
    for (unsigned i = 0; i < rt->nif->n_queues; i++) {
        if (k != -1 && k != (int)i)
            continue;
        cl_sched_stats(rt->sched, i, &one);
        add_words((uint64_t *)out, (const uint64_t *)&one, sizeof one / sizeof(uint64_t));
    }
    return 0;
}

unsigned cl_runtime_counters(const struct cl_runtime *rt, struct cl_counter *out, unsigned room)
{
    struct cl_net_stats net;
    struct cl_sched_stats sched;
    struct cl_chunk_stats chunks[CL_CHUNKS_HOLDERS];
    cl_runtime_net_stats(rt, -1, &net);
    cl_runtime_sched_stats(rt, -1, &sched);
    for (unsigned h = 0; h < CL_CHUNKS_HOLDERS; h++)
        cl_chunks_stats(rt->nif->chunks, h, &chunks[h]);
    return cl_counters_by_name(&net, &sched, chunks, out, room);
}

void cl_runtime_info(struct cl_runtime *rt, struct cl_runtime_info *out)
{
    *out = (struct cl_runtime_info){.kthreads = (uint16_t)rt->nif->n_queues,
                                    .ipv4 = cl_be32(rt->nif->self.ip_be),
                                    .ipv4_prefix = (uint32_t)__builtin_popcount(rt->nif->self.mask_be),
                                    .mtu = rt->nif->mtu,
                                    .member = rt->member,
                                    .attached = rt->own_nic,
                                    .running = cl_netif_running(rt->nif),
                                    .gone = cl_load_relaxed(&rt->nic->gone)};
    memcpy(out->mac, rt->nif->self.mac, 6);
    cl_spin_lock(&rt->note_lock);
    memcpy(out->note, rt->note, sizeof out->note);
    cl_spin_unlock(&rt->note_lock);
}
