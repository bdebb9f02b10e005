/* What the runtime does about its elastic memory (corelane/libos/elastic.h). */
#ifndef CORELANE_LIBOS_PRIVATE_ELASTIC_H
#define CORELANE_LIBOS_PRIVATE_ELASTIC_H

#include <corelane/libos/elastic.h>
#include <corelane/runtime/counter.h>

/* What it holds, for the iokernel: names as iokernel/control/memory.py has them. Returns how many. */
unsigned cl_elastic_counters(struct cl_runtime *rt, struct cl_counter *out, unsigned room);
/* The runtime goes: its memory stays its user's, and has no limit any more. */
void cl_elastic_leave(struct cl_runtime *rt);

#endif
