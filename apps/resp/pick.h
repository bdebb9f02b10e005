/* Random elements of a table: HRANDFIELD, SRANDMEMBER, SPOP, ZRANDMEMBER. */
#ifndef CORELANE_APPS_RESP_PICK_H
#define CORELANE_APPS_RESP_PICK_H

#include "command.h"

/* A count in argument n: below 0 with repetitions. False: answered. */
bool cl_arg_count(struct cl_resp_client *c, uint32_t n, int64_t *out);
/* Up to n different nodes into out. Returns how many. */
uint64_t cl_rpick(struct cl_resp *r, const struct cl_rdict *d, uint64_t n, struct cl_rnode **out);
/* Answer an array of them; `emit` writes one, as a pair if `with`. d NULL: there are none. */
void cl_rpick_reply(struct cl_resp_client *c, const struct cl_rdict *d, int64_t count, bool with,
                    void (*emit)(struct cl_resp_client *c, struct cl_rnode *n, bool with));

#endif
