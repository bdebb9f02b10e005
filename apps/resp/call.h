/* Calling a command: what is checked before, and what follows. */
#ifndef CORELANE_APPS_RESP_CALL_H
#define CORELANE_APPS_RESP_CALL_H

#include "command.h"

/* A name in cl_resp.by_name. */
struct cl_rname {
    struct cl_rnode node;
    const struct cl_rcmd *cmd;
    uint8_t key[];
};

/* The command that the arguments name; NULL: there is none. *sub: a container was named, and has no such part. */
const struct cl_rcmd *cl_rcall_find(struct cl_resp *r, const struct cl_slice *argv, uint32_t argc, bool *sub);
/* "config|get" */
void cl_rcall_name(struct cl_resp *r, const struct cl_rcmd *cmd, char name[64]);
/* Check c->argv as a command, and run or queue it. */
void cl_rcall(struct cl_resp_client *c);
/* Run a command that was checked. */
void cl_rcall_run(struct cl_resp_client *c, const struct cl_rcmd *cmd);
/* Its number among all of them, parts of containers behind the others. */
uint32_t cl_rcall_number(const struct cl_resp *r, const struct cl_rcmd *cmd);
bool cl_rcall_arity(const struct cl_rcmd *cmd, uint32_t argc);
/* What was queued by MULTI is dropped, and the keys are watched no more. */
void cl_rcall_discard(struct cl_resp_client *c);
void cl_rcall_unwatch(struct cl_resp_client *c);
/* End CLIENT PAUSE: whoever waits for that goes on. */
void cl_rcall_unpause(struct cl_resp *r);

#endif
