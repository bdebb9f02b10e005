/* See counters.h. */
#include "counters.h"

#include <stddef.h>
#include <stdio.h>

struct field {
    const char *name;
    size_t offset;
};

#define NET(field)                                                                                                     \
    {                                                                                                                  \
#field, offsetof(struct cl_net_stats, field)                                                                   \
    }
#define SCHED(field)                                                                                                   \
    {                                                                                                                  \
        "sched_" #field, offsetof(struct cl_sched_stats, field)                                                        \
    }

static const struct field net_fields[] = {
    NET(rx_frames),
    NET(delivered),
    NET(answered),
    NET(handed_on),
    NET(handled),
    NET(replied),
    NET(unanswered),
    NET(handler_errors),
    NET(handler_faults),
    NET(extra_replies),
    NET(stolen),
    NET(unhandled),
    NET(to_sockets),
    NET(learned),
    NET(icmp_errors),
    NET(looped),
    NET(sent),
    NET(tx_frames),
    NET(tx_dropped_full),
    NET(tx_dropped_arp),
    NET(tx_dropped_gone),
    NET(tx_dropped_loop),
    NET(icmp_unreachable_sent),
    NET(icmp_rate_limited),
    NET(tcp_resets_sent),
    NET(tcp_segments),
    NET(tcp_rate_limited),
    NET(arp_requests_sent),
    NET(arp_conflicts),
    NET(type_errors),
    NET(requeued),
    NET(requeue_full),
    NET(flows_stolen),
    NET(batches),
    NET(batched),
    NET(flows_sent_home),
};

static const struct field sched_fields[] = {
    SCHED(spawned),         SCHED(finished),        SCHED(switches),      SCHED(polls),           SCHED(frames),
    SCHED(stolen_uthreads), SCHED(stolen_frames),   SCHED(stolen_timers), SCHED(timers),          SCHED(alarms),
    SCHED(runners),         SCHED(runners_refused), SCHED(parks),         SCHED(parks_cancelled), SCHED(wakes_sent),
    SCHED(injected),        SCHED(overflowed),      SCHED(wait_errors),   SCHED(preempted),       SCHED(cedes),
    SCHED(interrupts),      SCHED(quantum_signals), SCHED(quantum_held),  SCHED(quantum_late),    SCHED(idle_turns),
};

_Static_assert(sizeof(struct cl_net_stats) ==
                   8 * (sizeof net_fields / sizeof *net_fields + sizeof(((struct cl_net_stats *)0)->dropped) / 8),
               "every field has its name");
_Static_assert(sizeof(struct cl_sched_stats) == 8 * (sizeof sched_fields / sizeof *sched_fields), "as above");

struct list {
    struct cl_counter *out;
    unsigned n, room;
};

static void put(struct list *l, const char *prefix, const char *name, uint64_t value)
{
    if (value == 0 || l->n == l->room)
        return;
    struct cl_counter *c = &l->out[l->n++];
    snprintf(c->name, sizeof c->name, "%s%s", prefix, name);
    c->value = value;
}

static void put_fields(struct list *l, const struct field *fields, size_t n, const void *stats)
{
    for (size_t i = 0; i < n; i++)
        put(l, "", fields[i].name, *(const uint64_t *)((const char *)stats + fields[i].offset));
}

static const char *const holders[CL_CHUNKS_HOLDERS] = {
    [CL_CHUNKS_UDP] = "udp", [CL_CHUNKS_TCP_SEND] = "tcp_send", [CL_CHUNKS_TCP_RECEIVE] = "tcp_receive"};

unsigned cl_counters_by_name(const struct cl_net_stats *net, const struct cl_sched_stats *sched,
                             const struct cl_chunk_stats *chunks, struct cl_counter *out, unsigned room)
{
    struct list l = {out, 0, room};
    put_fields(&l, net_fields, sizeof net_fields / sizeof *net_fields, net);
    for (unsigned r = CL_DROP_NONE + 1; r < CL_DROP_REASONS; r++)
        put(&l, "dropped_", cl_drop_name(r), net->dropped[r]);
    put_fields(&l, sched_fields, sizeof sched_fields / sizeof *sched_fields, sched);
    for (unsigned h = 0; h < CL_CHUNKS_HOLDERS; h++) {
        put(&l, "chunk_bytes_", holders[h], chunks[h].held_bytes);
        put(&l, "chunks_refused_", holders[h], chunks[h].refused);
    }
    return l.n;
}
