/* Applying what propagate.h has said: to an engine that was made new, or that stands where the first unit begins.
 *
 * No key expires and none is evicted meanwhile, nothing is refused for want of memory, and nothing is answered or said
 * again: whoever did it first has decided all that. The engine may hold more than its limit then; the next write of a
 * client makes room. */
#ifndef CORELANE_APPS_RESP_APPLY_H
#define CORELANE_APPS_RESP_APPLY_H

#include "resp.h"

/* Units, whole ones. 0; -EBADMSG: bytes that are no such form, or a command that fails on this state, with a reason in
 * err: what came before it was applied. */
int cl_rapply(struct cl_resp *r, const uint8_t *bytes, uint64_t len, char err[256]);

#endif
