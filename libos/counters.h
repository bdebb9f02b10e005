/* The counters of a runtime by their names. */
#ifndef CORELANE_LIBOS_COUNTERS_H
#define CORELANE_LIBOS_COUNTERS_H

#include <corelane/libos/reasons.h>
#include <corelane/libos/sched.h>
#include <corelane/runtime/counter.h>

/* See cl_runtime_counters. chunks: of each holder. */
unsigned cl_counters_by_name(const struct cl_net_stats *net, const struct cl_sched_stats *sched,
                             const struct cl_chunk_stats *chunks, struct cl_counter *out, unsigned room);

#endif
