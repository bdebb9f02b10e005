/* Clients that block on keys. A command that finds nothing leaves its arguments here and links its client to the keys.
 * When one of them is given something, the commands that wait for it are tried again, the oldest first; who finds
 * nothing again goes on waiting. */
#ifndef CORELANE_APPS_RESP_BLOCK_H
#define CORELANE_APPS_RESP_BLOCK_H

#include "command.h"

/* Wait for one of n keys until deadline_ms (0: for ever). False: the client may not wait (it is inside of EXEC): the
 * command answers as if the time were over. */
bool cl_rblock_on(struct cl_resp_client *c, const struct cl_slice *keys, uint32_t n, int64_t deadline_ms);
/* Try again those who wait for keys that were given something. */
void cl_rblock_serve(struct cl_resp *r);
/* Those whose time is over. */
void cl_rblock_timeouts(struct cl_resp *r);
/* When the next of them is over; 0: none will be. */
int64_t cl_rblock_next_ms(const struct cl_resp *r);
/* It waits no more. What it is answered is the caller's to say. */
void cl_rblock_end(struct cl_resp_client *c);

/* Copies of arguments, in one block. */
struct cl_rargs *cl_rargs_new(struct cl_resp *r, const struct cl_rcmd *cmd, const struct cl_slice *argv, uint32_t argc);
void cl_rargs_free(struct cl_resp *r, struct cl_rargs *args);

#endif
