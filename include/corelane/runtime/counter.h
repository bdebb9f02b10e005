/* Counters by name, for people: what an application shows of itself (corelane/libos/runtime.h, runtime/shm.h). */
#ifndef CORELANE_RUNTIME_COUNTER_H
#define CORELANE_RUNTIME_COUNTER_H

#include <corelane/runtime/base.h>

// cffi: begin
struct cl_counter {
    char name[32]; /* small letters, digits, '_'; zero-terminated */
    uint64_t value;
};

/* Fill in at most `room` counters and return how many. Only those that are not 0 are needed. */
typedef unsigned (*cl_counters_fn)(void *arg, struct cl_counter *out, unsigned room);
// cffi: end

_Static_assert(sizeof(struct cl_counter) == 40, "no hidden padding: it is shared");

#endif
