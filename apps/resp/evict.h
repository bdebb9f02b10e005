/* Room for what a command may take: by removing keys as maxmemory-policy says, or not at all. */
#ifndef CORELANE_APPS_RESP_EVICT_H
#define CORELANE_APPS_RESP_EVICT_H

#include "resp.h"

/* Odd numbers: by frequency of use. */
enum cl_rpolicy {
    CL_RE_NO_EVICTION = 0,
    CL_RE_ALLKEYS_LFU = 1,
    CL_RE_ALLKEYS_LRU = 2,
    CL_RE_VOLATILE_LFU = 3,
    CL_RE_VOLATILE_LRU = 4,
    CL_RE_ALLKEYS_RANDOM = 6,
    CL_RE_VOLATILE_RANDOM = 8,
    CL_RE_VOLATILE_TTL = 10
};

/* See that so many bytes more may be taken. False: they may not, whatever was removed. */
bool cl_evict_for(struct cl_resp *r, uint64_t bytes);
/* The same for a command, which is refused with -OOM. */
bool cl_evict_or_refuse(struct cl_resp_client *c, uint64_t bytes);
void cl_evict_refuse(struct cl_resp_client *c);

#endif
